//! The state of the node, as data, read through the root and through query commands.
//!
//! Each module reads one kind of evidence and gives one of three answers: absent, present, or unknown with the reason. It changes
//! no file and passes no verdict on the node, with three exceptions: [`mounts`] changes mounts,
//! [`login_session::judge_confirmation`] decides whether a login may confirm a trial, and [`login`] decides which logins sshd accepts.
//!
//! - [`Host`] is what every command reads first: accounts, mounts, records, the booted deployment. Start there.
//! - [`command`] has the command lines of other programs and the parsers of their output; `command/host.rs` is the only file of
//!   the program that starts one, but for the pager of a person at a terminal (`command/pager.rs`).
//! - [`images`] reads media with OS images, and [`mounts`] makes a file system visible.

pub mod account_files;
pub mod accounts;
pub mod activity;
pub mod authorities;
mod base_facts;
pub mod boot;
pub mod boot_counter;
pub mod boot_kernels;
pub mod boot_log;
pub mod boot_variables;
pub mod boot_waits;
pub mod booted;
pub mod bootloader;
pub mod builds;
pub mod certificates;
pub mod clock;
pub mod command;
pub mod composefs;
pub mod crio_marks;
pub mod deploy_directories;
pub mod engine;
pub mod etcd;
pub mod etcd_files;
pub mod fault_group;
pub mod host;
pub mod host_name;
pub mod image_arguments;
pub mod images;
pub mod images_on_disk;
pub mod judged_units;
pub mod kernel;
pub mod kernel_modules;
pub mod keyfile_faults;
pub mod kubelet_state;
mod labels;
pub mod lasting;
pub mod login;
pub mod login_session;
mod machine;
pub mod mounts;
pub mod name_servers;
pub mod neighbours;
pub mod network;
pub mod network_faults;
pub mod network_manager;
pub mod node_address;
pub mod node_programs;
mod observer;
pub mod originals;
pub mod os;
pub mod os_accounts;
pub mod os_release;
pub mod ostree_repository;
pub mod ovsdb_files;
pub mod platform;
pub mod pod_manifest;
pub mod pull_files;
mod records;
pub mod requests;
pub mod selinux_state;
pub mod service_configs;
pub mod services_at_work;
pub mod shadow_lines;
pub mod space;
pub mod sshd_ports;
pub mod staged;
pub mod stamps;
pub mod static_network;
pub mod static_pods;
pub mod sysroot;
pub mod system;
pub mod two_nodes;
pub mod unit_links;
mod units;
pub mod view;
pub mod virtual_addresses;
pub mod zipl;

use std::collections::{BTreeMap, BTreeSet};

use crate::base::object::{Flags, Object, ObjectKind, Stamp};
use crate::config::controllers::kubelet::values::MachineSize;
use crate::formats::systemd::{Support, UnitEntry, UnitTree};
use crate::host::root::{
    Mount, Obstacle, RealPath, ResolveError, Root, RootError, RootPath, hold_of,
};
use crate::node::command::CommandRunner;
use crate::node::command::rpm::{self, Ownership};

pub use accounts::Accounts;
pub use activity::{Activity, FIRST_BOOT_PULL, FIRST_BOOT_SERVICE, Process};
pub use base_facts::BaseFacts;
pub use host::Host;
pub use labels::{Labels, Mislabelled};
pub use machine::{Machine, has_system};
pub use neighbours::Neighbours;
use observer::{ObjectObserver, SeenObjects, ToRead};
pub use os::Os;
pub use os_release::OsRelease;
pub use records::{Baseline, RecordReader, Recorded, Records};
pub use system::System;
pub use units::is_source_path;

/// All facts that a plan may need.
#[derive(Debug, Clone)]
pub struct NodeState {
    /// Objects at the paths of interest; a path that is not in here does not exist.
    pub objects: BTreeMap<RootPath, Object>,
    /// Contents of the requested files.
    pub texts: BTreeMap<RootPath, Vec<u8>>,
    /// Time stamp of each object when it was read, to notice later changes by others.
    pub stamps: BTreeMap<RootPath, Stamp>,
    /// Paths that could not be read, with the kernel's error.
    pub obstructed: BTreeMap<RootPath, ResolveError>,
    /// Directories above the paths of interest, as far as they exist.
    pub directories: BTreeMap<RootPath, Directory>,
    /// Flags of objects and directories that carry some.
    pub flags: BTreeMap<RootPath, Flags>,
    /// Flags of the root directory.
    pub root_flags: Flags,
    /// Objects of interest that are mount points.
    pub mount_points: BTreeSet<RootPath>,
    /// Objects that keep a directory in its place although it may have to be removed.
    pub obstacles: BTreeMap<RootPath, Obstacle>,
    /// Sizes of the objects in a directory that may have to be removed.
    pub trees: BTreeMap<RootPath, Vec<u64>>,
    /// The mount of the root directory itself.
    pub root_mount: u64,
    /// The mounts met on the way, by id.
    pub mounts: BTreeMap<u64, Mount>,
    /// Unit files, presets and links.
    pub units: UnitTree,
    /// What the root's systemd supports.
    pub systemd: Support,
    /// Users and groups.
    pub accounts: Accounts,
    /// Facts about process and root.
    pub host: Host,
    /// Memory and processors of the machine, as the kernel reports them in this root; `None` of a disk.
    pub size: Option<MachineSize>,
    /// The architecture of the root's programs as `uname -m` names it, such as `x86_64`; `None` if it is not known.
    pub architecture: Option<&'static str>,
    /// The operating system, from files.
    pub os: Os,
    /// The operating system, from rpm-ostree.
    pub system: System,
    /// What else changes the node, where it runs.
    pub neighbours: Neighbours,
    /// The SELinux policy of the root, and the labels of the objects.
    pub labels: Labels,
    /// Directories whose real path differs from their path because of links.
    pub elsewhere: BTreeMap<RootPath, RealPath>,
    /// Owning packages of the requested files, on a live root with rpm.
    pub packaged: BTreeMap<RootPath, Packaged>,
}

/// The package database's answer about a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packaged {
    /// A package owns it.
    Owned,
    /// No package owns it.
    Foreign,
    /// rpm was queried without an answer.
    Unanswered,
}

/// An existing directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Directory {
    /// Id of its mount.
    pub mount: u64,
    /// Permission bits.
    pub mode: u32,
    /// Uid and gid.
    pub owner: (u32, u32),
}

/// The facts that a plan needs.
#[derive(Debug, Clone, Default)]
pub struct Interest {
    /// Paths whose objects are needed.
    pub paths: BTreeSet<RootPath>,
    /// Those of them whose copies and stamps of the daemon's are needed too ([`originals::OriginalPaths`]).
    pub originals: BTreeSet<RootPath>,
    /// Those of them that may have to be removed although they are directories, with everything below.
    pub in_the_way: BTreeSet<RootPath>,
    /// Existing files whose packages may be queried.
    pub packaged: BTreeSet<RootPath>,
    /// Units whose enablement is needed.
    pub units: BTreeSet<String>,
    /// Files whose contents are needed, as something is appended to them.
    pub texts: BTreeSet<RootPath>,
    /// Unit files and presets that will be written; units that they refer to are needed too.
    pub overlay: Vec<(String, UnitEntry)>,
    /// The operating system is needed: rpm-ostree is queried, if the root runs.
    pub system: bool,
    /// Nothing is going to be changed: stamps are needed only of objects with more names than one.
    pub few_stamps: bool,
}

/// Reads all facts in `interest`.
///
/// # Errors
/// The system's error.
pub fn observe_node(
    root: &Root,
    interest: Interest,
    runner: &dyn CommandRunner,
) -> Result<NodeState, RootError> {
    observe_with(root, BaseFacts::observe(root)?, interest, runner)
}

/// Reads the facts in `interest` that `base` does not have yet.
///
/// # Errors
/// The system's error.
pub fn observe_with(
    root: &Root,
    base: BaseFacts,
    mut interest: Interest,
    runner: &dyn CommandRunner,
) -> Result<NodeState, RootError> {
    let (root_mount, root_hold, host) = (base.root_mount, base.root_hold, base.host);
    let mut node = NodeState {
        objects: BTreeMap::new(),
        texts: BTreeMap::new(),
        stamps: BTreeMap::new(),
        obstructed: BTreeMap::new(),
        directories: BTreeMap::new(),
        flags: BTreeMap::new(),
        root_flags: root_hold.flags,
        mount_points: BTreeSet::new(),
        obstacles: BTreeMap::new(),
        trees: BTreeMap::new(),
        root_mount: root_mount.id,
        mounts: BTreeMap::from([(root_mount.id, root_mount)]),
        units: base.units,
        systemd: base.systemd,
        accounts: base.accounts,
        os: base.os,
        system: if interest.system {
            System::observe(root, &host, runner)?
        } else {
            System::NotAsked
        },
        neighbours: Neighbours::observe(root, &host, runner)?,
        size: host::machine_size(root),
        architecture: host::host_architecture(root, host.live),
        host,
        labels: base.labels,
        elsewhere: BTreeMap::new(),
        packaged: BTreeMap::new(),
    };
    let labels = node.labels.is_usable();
    let mount = root_hold.mount;
    let paths = std::mem::take(&mut interest.paths);
    let originals = std::mem::take(&mut interest.originals);
    let originals = originals.into_iter().map(ToRead::Originals);
    let all = paths.into_iter().map(ToRead::Object).chain(originals);
    let all: Vec<_> = all.collect();
    let new = || ObjectObserver::new(root, mount, labels).with_few_stamps(interest.few_stamps);
    let seen = observer::observe_all(new, &all)?;
    drop(all);
    node.take_parts(seen);
    for path in &interest.in_the_way {
        node.observe_below(root, path)?;
    }
    for path in &interest.texts {
        if let Some(bytes) = root.read_file(path)? {
            node.texts.insert(path.clone(), bytes);
        }
    }
    node.take_parts(vec![base.links]);
    let mut observer = ObjectObserver::going_on(root, mount, &node);
    units::read_contents(&interest, &mut node, &mut observer)?;
    node.take_parts(vec![observer.into_seen()]);
    if node.host.live {
        node.packaged = ask_rpm(&node, &interest, runner);
    }
    Ok(node)
}

/// Queries the package database, only about existing files, and only if rpm is installed.
fn ask_rpm(
    node: &NodeState,
    interest: &Interest,
    runner: &dyn CommandRunner,
) -> BTreeMap<RootPath, Packaged> {
    let existing = interest.packaged.iter();
    let existing: Vec<&RootPath> = existing
        .filter(|path| node.objects.contains_key(path))
        .collect();
    let seen = rpm::query_owned(runner, &existing).unwrap_or_else(|error| {
        log::info!("querying rpm for the owners of files: {error}");
        Ownership::default()
    });
    let mut all = BTreeMap::new();
    for (path, owned) in seen.owned {
        let packaged = if owned {
            Packaged::Owned
        } else {
            Packaged::Foreign
        };
        all.insert(path, packaged);
    }
    for (path, error) in seen.unanswered {
        log::info!("querying rpm for the owner of {path}: {error}");
        all.insert(path, Packaged::Unanswered);
    }
    all
}

impl NodeState {
    /// Returns the object at a path.
    pub fn object(&self, path: &RootPath) -> Option<&Object> {
        self.objects.get(path)
    }

    /// Forgets the objects that were seen, before they are read again.
    pub fn forget_objects(&mut self) {
        self.objects.clear();
        self.stamps.clear();
        self.labels.found.clear();
    }

    /// Returns the path after following the links in its parent directories, as far as these exist.
    pub fn real_path(&self, path: &RootPath) -> RootPath {
        if self.elsewhere.is_empty() {
            return path.clone();
        }
        let real = path.ancestors().skip(1).find_map(|above| {
            let real = self.elsewhere.get(&above)?;
            let below = path.relative().strip_prefix(above.relative())?;
            real.join(below).ok()
        });
        real.unwrap_or_else(|| path.clone())
    }

    /// Returns the mount of the nearest existing directory at or above a path's parent.
    pub fn mount_for(&self, path: &RootPath) -> u64 {
        let known = path
            .ancestors()
            .skip(1)
            .find_map(|above| self.directories.get(&above));
        known.map_or(self.root_mount, |directory| directory.mount)
    }

    /// Reads the objects at more paths.
    ///
    /// # Errors
    /// The root cannot be read.
    pub fn observe_more(
        &mut self,
        root: &Root,
        paths: BTreeSet<RootPath>,
    ) -> Result<(), RootError> {
        let hold = hold_of(root.as_fd()).map_err(|errno| RootError::at("/", errno))?;
        let paths: Vec<_> = paths.into_iter().map(ToRead::Object).collect();
        let new = || ObjectObserver::new(root, hold.mount, self.labels.is_usable());
        let seen = observer::observe_all(new, &paths)?;
        self.take_parts(seen);
        Ok(())
    }

    /// Adds directories that will exist before the first step of a plan, topmost first. Those that no path of interest lies below
    /// are left out.
    pub fn foresee_directories(&mut self, paths: &[RootPath]) {
        let owner = self.host.attainable_owner((0, 0));
        for path in paths {
            let is_below_known = match path.parent() {
                Some(parent) => self.directories.contains_key(&parent),
                None => true,
            };
            let is_known = self.objects.contains_key(path) || self.directories.contains_key(path);
            if !is_below_known || is_known {
                continue;
            }
            let directory = Directory {
                mount: self.mount_for(path),
                mode: 0o755,
                owner,
            };
            self.directories.insert(path.clone(), directory);
            let object = Object::new(ObjectKind::Directory, directory.mode, owner);
            self.objects.insert(path.clone(), object);
        }
    }

    /// Adds the results of observers, in their order.
    fn take_parts(&mut self, mut parts: Vec<SeenObjects>) {
        // One table after the other: each part of the results goes as soon as it is in its table.
        add_results(&mut self.objects, &mut parts, |part| &mut part.objects);
        add_results(&mut self.stamps, &mut parts, |part| &mut part.stamps);
        add_results(&mut self.labels.found, &mut parts, |part| &mut part.labels);
        for seen in parts {
            self.obstructed.extend(seen.obstructed);
            self.directories.extend(seen.directories);
            self.flags.extend(seen.flags);
            self.mount_points.extend(seen.mount_points);
            self.mounts.extend(seen.mounts);
            self.labels.elsewhere.extend(seen.elsewhere.clone());
            self.elsewhere.extend(seen.elsewhere);
        }
    }

    fn observe_below(&mut self, root: &Root, path: &RootPath) -> Result<(), RootError> {
        if self.object(path).is_some_and(Object::is_directory) {
            let tree = root.read_tree(path)?;
            let obstacle = tree.obstacle.map(|obstacle| (path.clone(), obstacle));
            self.obstacles.extend(obstacle);
            self.trees.insert(path.clone(), tree.sizes);
        }
        Ok(())
    }
}

/// Adds results in order: an empty map is built from them at once.
fn add_results<T>(
    known: &mut BTreeMap<RootPath, T>,
    parts: &mut [SeenObjects],
    of: fn(&mut SeenObjects) -> &mut Vec<(RootPath, T)>,
) {
    let count = parts.iter_mut().map(|part| of(part).len()).sum();
    let mut found = Vec::with_capacity(count);
    for part in parts {
        found.extend(std::mem::take(of(part)));
    }
    if known.is_empty() {
        *known = found.into_iter().collect();
    } else {
        known.extend(found);
    }
}
