//! What is on the node, as data. Reads through the root and query commands;
//! no writes, and no judgement on what it sees.

pub mod accounts;
pub mod activity;
pub mod bootloader;
pub mod builds;
pub mod certificates;
pub mod clock;
pub mod deploy_directories;
pub mod deployments;
pub mod etcd;
pub mod host;
pub mod images_on_disk;
mod labels;
pub mod login;
pub mod name_servers;
pub mod network;
pub mod os;
pub mod os_release;
mod records;
pub mod space;
pub mod stamps;
pub mod sysroot;
pub mod system;
pub mod unit_links;
mod units;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;

use crate::command::{CommandRunner, rpm};
use crate::object::{Flags, Object, Stamp};
use crate::root::{Mount, Obstacle, ResolveError, Root, RootError, RootPath, hold_of, mount_of};
use crate::systemd::{Support, UnitEntry, UnitTree};

pub use accounts::Accounts;
pub use activity::{Activity, FIRST_BOOT_PULL, FIRST_BOOT_SERVICE, Process, UnitActivity};
pub use host::Host;
pub use labels::{Labels, Mislabelled};
pub use os::Os;
pub use records::{Baseline, Recorded, Records};
pub use system::System;

/// Everything that a plan may ask of a node.
#[derive(Debug, Clone)]
pub struct NodeState {
    /// What is at the paths of interest; a path that is not in here does not exist.
    pub objects: BTreeMap<RootPath, Object>,
    /// Bytes of the files that were asked for.
    pub texts: BTreeMap<RootPath, Vec<u8>>,
    /// When each object was seen, to notice that somebody changed it since.
    pub stamps: BTreeMap<RootPath, Stamp>,
    /// Paths that could not be looked at, with the kernel's word.
    pub obstructed: BTreeMap<RootPath, ResolveError>,
    /// Directories above the paths of interest, as far as they exist.
    pub directories: BTreeMap<RootPath, Directory>,
    /// Flags of objects and directories that carry some.
    pub flags: BTreeMap<RootPath, Flags>,
    /// Flags of the root directory itself.
    pub root_flags: Flags,
    /// Objects of interest that something is mounted on.
    pub mount_points: BTreeSet<RootPath>,
    /// What keeps a directory that may have to give way in its place.
    pub obstacles: BTreeMap<RootPath, Obstacle>,
    /// The mount of the root directory itself.
    pub root_mount: u64,
    /// The mounts met on the way, by id.
    pub mounts: BTreeMap<u64, Mount>,
    /// Unit files, presets and links.
    pub units: UnitTree,
    /// What the root's systemd can do.
    pub systemd: Support,
    /// Users and groups.
    pub accounts: Accounts,
    /// Who we are and what this root is.
    pub host: Host,
    /// The operating system, as files tell it.
    pub os: Os,
    /// The same as rpm-ostree tells it, where it was asked.
    pub system: System,
    /// The SELinux policy of the root, and the labels of the objects.
    pub labels: Labels,
    /// Whether a package owns the file; only for paths that were asked, on a live root with rpm.
    pub packaged: BTreeMap<RootPath, bool>,
}

/// A directory that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Directory {
    /// The mount it is on.
    pub mount: u64,
    /// Permission bits.
    pub mode: u32,
    /// Owner and group.
    pub owner: (u32, u32),
}

/// What a plan needs to know.
#[derive(Debug, Clone, Default)]
pub struct Interest {
    /// Paths whose objects matter.
    pub paths: BTreeSet<RootPath>,
    /// Those of them that may be in the way of something else, as directories, with everything below.
    pub in_the_way: BTreeSet<RootPath>,
    /// Existing files of which the package database may be asked.
    pub packaged: BTreeSet<RootPath>,
    /// Units whose enablement matters.
    pub units: BTreeSet<String>,
    /// Files whose bytes matter: something is appended to them.
    pub texts: BTreeSet<RootPath>,
    /// Unit files and presets that are about to be written; what they lead to matters too.
    pub overlay: Vec<(String, UnitEntry)>,
    /// The operating system matters: rpm-ostree is asked, where the root runs.
    pub system: bool,
}

/// Looks at everything in `interest`.
pub fn observe(
    root: &Root,
    interest: &Interest,
    runner: &dyn CommandRunner,
) -> Result<NodeState, RootError> {
    let at_root = |errno: nix::errno::Errno| RootError {
        path: "/".into(),
        cause: errno.into(),
    };
    let root_mount = mount_of(root.as_fd()).map_err(at_root)?;
    let root_hold = hold_of(root.as_fd()).map_err(at_root)?;
    let host = Host::observe(root)?;
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
        root_mount: root_mount.id,
        mounts: BTreeMap::from([(root_mount.id, root_mount)]),
        units: UnitTree::new(),
        systemd: units::support(root)?,
        accounts: Accounts::read(root)?,
        os: Os::observe(root, &host)?,
        system: if interest.system {
            System::observe(root, &host, runner)?
        } else {
            System::NotAsked
        },
        host,
        labels: Labels::read(root),
        packaged: BTreeMap::new(),
    };
    for path in &interest.paths {
        node.observe_object(root, path)?;
        node.observe_way(root, path)?;
        node.observe_hold(root, path, root_hold.mount)?;
    }
    for path in &interest.in_the_way {
        node.observe_below(root, path)?;
    }
    for path in &interest.texts {
        if let Some(bytes) = root.read_file(path)? {
            node.texts.insert(path.clone(), bytes);
        }
    }
    units::observe(root, interest, &mut node)?;
    if node.host.live {
        node.packaged = ask_rpm(&node, interest, runner);
    }
    Ok(node)
}

/// The package database is asked only about existing files, and only where there is an rpm.
fn ask_rpm(
    node: &NodeState,
    interest: &Interest,
    runner: &dyn CommandRunner,
) -> BTreeMap<RootPath, bool> {
    let existing = interest
        .packaged
        .iter()
        .filter(|path| node.objects.contains_key(path));
    let mut answers = BTreeMap::new();
    for path in existing {
        match rpm::owns(runner, path) {
            Ok(owned) => drop(answers.insert(path.clone(), owned)),
            Err(error) => {
                log::info!("asking rpm about {path}: {error}");
                break;
            }
        }
    }
    answers
}

impl NodeState {
    /// What is at a path.
    pub fn object(&self, path: &RootPath) -> Option<&Object> {
        self.objects.get(path)
    }

    /// The mount of the nearest existing directory at or above a path's parent.
    pub fn mount_for(&self, path: &RootPath) -> u64 {
        let known = path
            .ancestors()
            .skip(1)
            .find_map(|above| self.directories.get(&above));
        known.map_or(self.root_mount, |directory| directory.mount)
    }

    fn observe_object(&mut self, root: &Root, path: &RootPath) -> Result<(), RootError> {
        match root.observe(path) {
            Ok(Some((object, stamp))) => {
                self.objects.insert(path.clone(), object);
                self.stamps.insert(path.clone(), stamp);
                self.labels.observe(root, path);
            }
            Ok(None) => {}
            Err(error) if error.cause.is_obstacle() => {
                self.obstructed.insert(path.clone(), error.cause);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Looks at what holds an object in its place: flags, and being a mount point.
    fn observe_hold(
        &mut self,
        root: &Root,
        path: &RootPath,
        root_mount: u64,
    ) -> Result<(), RootError> {
        if !self.objects.contains_key(path) {
            return Ok(());
        }
        let hold = match root.place(path)? {
            Some(place) => place.hold().map_err(|errno| at(path, errno))?,
            None => None,
        };
        let Some(hold) = hold else { return Ok(()) };
        let above = match path.parent() {
            Some(parent) => self.directories.get(&parent).map(|above| above.mount),
            None => Some(root_mount),
        };
        if above.is_some_and(|above| above != hold.mount) {
            self.mount_points.insert(path.clone());
        }
        self.note_flags(path, hold.flags);
        Ok(())
    }

    fn note_flags(&mut self, path: &RootPath, flags: Flags) {
        if !flags.is_empty() {
            self.flags.insert(path.clone(), flags);
        }
    }

    fn observe_below(&mut self, root: &Root, path: &RootPath) -> Result<(), RootError> {
        if self.object(path).is_some_and(Object::is_directory)
            && let Some(obstacle) = root.obstacle_below(path)?
        {
            self.obstacles.insert(path.clone(), obstacle);
        }
        Ok(())
    }

    /// Looks at the directories above a path; what stands in the way of making one is noted with the path.
    fn observe_way(&mut self, root: &Root, path: &RootPath) -> Result<(), RootError> {
        for above in path.ancestors().skip(1) {
            if !self.observe_directory(root, &above)? {
                break;
            }
            let missing =
                !self.directories.contains_key(&above) && !self.obstructed.contains_key(path);
            if missing && root.exists(&above).unwrap_or(false) {
                let cause = ResolveError::NoDirectory(above.to_string());
                self.obstructed.insert(path.clone(), cause);
            }
        }
        Ok(())
    }

    /// Looks at a directory once; false where it was known already.
    fn observe_directory(&mut self, root: &Root, path: &RootPath) -> Result<bool, RootError> {
        if self.directories.contains_key(path) {
            return Ok(false);
        }
        let dir = match root.directory(path) {
            Ok(Some(dir)) => dir,
            Ok(None) => return Ok(true),
            // What stands in the way is noted with the path that wanted through.
            Err(error) if error.cause.is_obstacle() => return Ok(true),
            Err(error) => return Err(error),
        };
        let stat = nix::sys::stat::fstat(&dir).map_err(|errno| at(path, errno))?;
        let mount = mount_of(&dir).map_err(|errno| at(path, errno))?;
        let hold = hold_of(&dir).map_err(|errno| at(path, errno))?;
        self.note_flags(path, hold.flags);
        let owner = (stat.st_uid, stat.st_gid);
        self.directories.insert(
            path.clone(),
            Directory {
                mount: mount.id,
                mode: stat.st_mode & 0o7777,
                owner,
            },
        );
        self.mounts.insert(mount.id, mount);
        self.labels.observe_directory(root, path, dir.as_fd());
        Ok(true)
    }
}

fn at(path: &RootPath, errno: nix::errno::Errno) -> RootError {
    RootError {
        path: path.to_string(),
        cause: errno.into(),
    }
}
