//! The facts about a node that determine whether it can run another OS image: processor, network interfaces and their
//! configuration, disks, boot loader, container runtime.
//!
//! Everything is read below one root. In a root that is not running, `/proc`, `/sys` and `/run` are empty, and the facts about
//! hardware are missing, with the reason.

mod accounts;
mod block;
mod boot;
mod control_plane;
mod crio;
mod devices;
mod file_faults;
mod filesystems;
mod firmware;
mod interface_names;
mod interfaces;
mod legacy_network;
pub(super) mod link_files;
mod luks;
mod next_login;
pub(super) mod node_files;
mod origin;
mod own_modules;
mod processor;
mod record;
pub(super) mod sections;
mod static_network;

pub use accounts::EtcAccounts;
pub use block::{BlockDevice, BlockStorage, MountedFileSystem, read_mounts};
pub use boot::BootFiles;
pub use control_plane::ApiServerPod;
pub use crio::{Crio, CrioFile};
pub use devices::{DeviceLevel, DiskDevices, layers_below};
pub use file_faults::FileFaults;
pub use filesystems::{Encrypted, Xfs};
pub use firmware::{Firmware, SystemPartition, read_unmounted_partitions};
pub use interface_names::{
    InterfaceNames, NameUse, PERSIST_STAMP, of_arguments, pinned_by_arguments,
};
pub use interfaces::{Interface, Mac, read_interfaces};
pub use legacy_network::{LegacyConnection, LegacyNetwork};
pub use link_files::{Applies, LinkDropIn, LinkFile, add_drop_in};
pub use luks::{LuksFault, LuksHeader, Pin, parse_luks};
pub use next_login::{KEYS_MIGRATION, NextLogin};
pub use origin::OriginSections;
pub use own_modules::OwnModules;
pub use processor::Processor;
pub use record::RecordedConfig;
pub use static_network::StaticNetwork;

use std::collections::BTreeSet;

use file_faults::Around;
use node_files::NodeFiles;

use crate::base::kargs::Kargs;
use crate::base::paths;
use crate::base::reason::Reason;
use crate::config::document::{Desired, MachineConfig};
use crate::formats::checkpoint::CheckpointFile;
use crate::host::root::{Root, RootError, RootPath};
use crate::node::engine::{Engine, installed_engine};
use crate::node::images::manifest::go_architecture;
use crate::node::images::tree::{ImageTree, ModuleLists};
use crate::node::space::Space;
use crate::node::unit_links::{UnitLink, find_lost_units};
use crate::node::zipl::{self, UnusedZipl};
use crate::node::{OsRelease, image_arguments, kubelet_state};

/// A fact, or the reason why it is missing.
pub type Seen<T> = Result<T, Reason>;

/// The facts about a node.
#[derive(Debug, Clone)]
pub struct Platform {
    /// The operating system of the root.
    pub os_release: OsRelease,
    /// The program that stages operating systems.
    pub engine: Seen<Engine>,
    /// The kernel arguments that the image which runs brings, for bootc.
    pub image_arguments: Seen<Kargs>,
    /// The machine's architecture in Go's names, such as `amd64`.
    pub architecture: Seen<String>,
    /// Programs of a node that exist in the root, such as `usr/bin/kubelet`.
    pub programs: Seen<BTreeSet<&'static str>>,
    /// The kernel command line.
    pub command_line: Seen<Kargs>,
    /// Boot loader entries and kernels.
    pub boot: BootFiles,
    /// Mounts and block devices.
    pub storage: BlockStorage,
    /// Firmware and boot loader.
    pub firmware: Firmware,
    /// A setup in which zipl is not run for new boot entries.
    pub unused_zipl: Seen<Option<UnusedZipl>>,
    /// The reason why the node's tools refuse to fetch the image, regardless of the network. Also `None` if that was not
    /// determined, as for a plan, which determines it itself.
    pub refused_fetch: Seen<Option<String>>,
    /// The mounted XFS.
    pub xfs: Vec<Xfs>,
    /// The encrypted devices below the root file system and `/var`.
    pub encrypted: Vec<Encrypted>,
    /// Configuration files of multipath: path and text.
    pub multipath_settings: Seen<Vec<(String, String)>>,
    /// The space of the file system with the deployments; `None` if the root has no `/sysroot`.
    pub sysroot_space: Seen<Option<Space>>,
    /// Changes that rpm-ostree makes to the image.
    pub origin: Seen<OriginSections>,
    /// Checkpoint files of the kubelet that are kept at the next boot.
    pub kubelet_files: Seen<Vec<CheckpointFile>>,
    /// The API server on this node; `None` if there is none.
    pub api_server: Seen<Option<ApiServerPod>>,
    /// Configuration of CRI-O.
    pub crio: Crio,
    /// The recorded config of the node.
    pub record: RecordedConfig,
    /// Its processor.
    pub processor: Seen<Processor>,
    /// Its physical Ethernet interfaces.
    pub interfaces: Seen<Vec<Interface>>,
    /// The names of interfaces in its configuration.
    pub interface_names: InterfaceNames,
    /// Its network configuration in obsolete forms.
    pub legacy_network: LegacyNetwork,
    /// Its static network, if it does not use DHCP.
    pub static_network: Option<StaticNetwork>,
    /// The devices of `/` and `/boot`.
    pub disks: Seen<Vec<DiskDevices>>,
    /// The modules of the running kernel; empty if their lists cannot be read.
    pub modules: ModuleLists,
    /// Modules that do not come with the operating system.
    pub own_modules: OwnModules,
    /// The accounts of `/etc`.
    pub accounts: Seen<EtcAccounts>,
    /// Logins before and after an image; `None` without an image, or if it has no sshd configuration.
    pub next_login: Seen<Option<NextLogin>>,
    /// Unit links that break with an image and work now; empty without an image.
    pub lost_units: Seen<Vec<UnitLink>>,
    /// Faults in the node's files; `None` if they were not looked for.
    pub file_faults: Option<Box<FileFaults>>,
}

impl Platform {
    /// Reads all facts as of the next boot, after a run that replaces the recorded config if there is one. A fact that cannot be
    /// read is missing with its reason, which is not an error.
    pub fn observe_next(root: &Root, next: Option<NextConfig<'_>>) -> Self {
        let kernel = read_text(root, "proc/sys/kernel/osrelease");
        let kernel = kernel.map(|version| version.trim().to_owned()).ok();
        let (modules, own_modules) = own_modules::read_modules(root, kernel.as_deref());
        Self {
            modules,
            own_modules,
            ..Self::observe_but_modules(root, next)
        }
    }

    /// Reads all facts except those about kernel modules, which take long.
    pub fn observe_but_modules(root: &Root, next: Option<NextConfig<'_>>) -> Self {
        let files = NodeFiles::new(root, next);
        let command_line = read_text(root, "proc/cmdline").map(|text| Kargs::parse(text.trim()));
        let boot = BootFiles::observe(root);
        let storage = BlockStorage::observe(root);
        let interfaces = interfaces::read_interfaces(root);
        Self {
            os_release: OsRelease::read(root).unwrap_or_default(),
            engine: installed_engine(root).map_err(Reason::from_error),
            image_arguments: image_arguments::read_image_arguments(root),
            architecture: Ok(go_architecture(std::env::consts::ARCH).to_owned()),
            programs: find_programs(root).map_err(Reason::from_error),
            origin: OriginSections::observe(root, &boot, &command_line),
            command_line,
            kubelet_files: kubelet_state::kept_over_a_boot(root).map_err(Reason::from_error),
            api_server: ApiServerPod::observe(root),
            boot,
            firmware: Firmware::observe(root, &storage),
            unused_zipl: zipl::find_unused(root),
            refused_fetch: Ok(None),
            xfs: filesystems::read_xfs(root, &storage),
            encrypted: filesystems::read_encrypted(root, &storage),
            multipath_settings: read_multipath(&files).map_err(Reason::from_error),
            disks: devices::read_disks(root, &storage),
            storage,
            sysroot_space: Space::read_space(root, &RootPath::fixed(paths::SYSROOT))
                .map_err(Reason::from_error),
            crio: Crio::observe(&files),
            record: match next {
                Some(next) => RecordedConfig::observe(root).replace_config(next),
                None => RecordedConfig::observe(root),
            },
            processor: read_text(root, "proc/cpuinfo")
                .and_then(|text| processor::parse_processor(&text)),
            interface_names: InterfaceNames::observe(
                &files,
                interfaces.as_deref().unwrap_or_default(),
            ),
            interfaces,
            legacy_network: legacy_network::read_legacy_network(&files),
            static_network: static_network::read_static_network(&files),
            modules: ModuleLists::default(),
            own_modules: OwnModules::default(),
            accounts: accounts::observe_etc_accounts(root),
            next_login: Ok(None),
            lost_units: Ok(Vec::new()),
            file_faults: None,
        }
    }

    /// Adds the logins and the units that an image would leave.
    #[must_use]
    pub fn with_image(self, root: &Root, next: Option<NextConfig<'_>>, tree: &ImageTree) -> Self {
        let next_login =
            next_login::observe_next_login(root, next, tree).map_err(Reason::from_error);
        let units = next.map_or(&[][..], |next| &next.desired.units);
        let brings = |name: &str| {
            units
                .iter()
                .any(|unit| unit.name == name && unit.text().is_some())
        };
        let lost_units = find_lost_units(root, tree, &brings).map_err(Reason::from_error);
        Self {
            next_login,
            lost_units,
            ..self
        }
    }

    /// Adds the faults in the node's files. `recorded` is the node's config.
    #[must_use]
    pub fn with_file_faults(
        self,
        root: &Root,
        next: Option<NextConfig<'_>>,
        recorded: Option<&MachineConfig>,
    ) -> Self {
        let arguments = self.next_arguments().map(|(_, arguments)| arguments);
        let around = Around {
            config: next.map(|next| next.config).or(recorded),
            arguments: &arguments,
        };
        let faults = FileFaults::observe(root, next, &around);
        Self {
            file_faults: Some(Box::new(faults)),
            ..self
        }
    }

    /// Returns the kernel arguments of the next boot, changed as its config demands, and the source of those that its
    /// deployment inherits.
    ///
    /// # Errors
    /// The reason why the current arguments are unknown.
    pub fn next_arguments(&self) -> Seen<(String, Kargs)> {
        let (place, inherited) = self.boot.inherited_arguments(&self.command_line)?;
        let old = self.record.old_arguments.as_ref().map_err(Clone::clone)?;
        let new = self.record.kernel_arguments.as_ref();
        Ok((
            place,
            inherited.after_change(old, new.map_err(Clone::clone)?),
        ))
    }
}

/// A config with which a run replaces the recorded one.
#[derive(Debug, Clone, Copy)]
pub struct NextConfig<'a> {
    /// The config.
    pub config: &'a MachineConfig,
    /// Its files.
    pub desired: &'a Desired,
    /// The files of the recorded config. Those that the new config lacks are removed.
    pub old: Option<&'a Desired>,
}

impl Platform {
    /// Returns the kernel arguments of the next boot, and the interface names in them and in the configuration.
    pub fn used_names(&self) -> (Kargs, Vec<NameUse>) {
        let arguments = self.boot.inherited_arguments(&self.command_line);
        let arguments = arguments
            .map(|(_, arguments)| arguments)
            .unwrap_or_default();
        let mut uses = self.interface_names.uses.clone();
        uses.extend(of_arguments(&arguments));
        (arguments, uses)
    }
}

/// Reads the configuration files of multipath.
fn read_multipath(root: &NodeFiles<'_>) -> Result<Vec<(String, String)>, RootError> {
    let folder = RootPath::fixed("etc/multipath/conf.d");
    let names = root.list(&folder)?.into_iter();
    let names = names.filter(|name| name.ends_with(".conf"));
    let files = names.filter_map(|name| folder.join(&name).ok());
    let files = std::iter::once(RootPath::fixed("etc/multipath.conf")).chain(files);
    let mut texts = Vec::new();
    for path in files {
        if let Some(bytes) = root.read_small(&path)? {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            texts.push((path.to_string(), text));
        }
    }
    Ok(texts)
}

/// Returns what was read. After an error, adds it to `unseen` and returns the empty value.
fn note_unseen<T: Default>(read: Result<T, RootError>, unseen: &mut Vec<String>) -> T {
    read.unwrap_or_else(|error| {
        unseen.push(error.to_string());
        T::default()
    })
}

/// Reads a text file, or returns why it is missing.
pub(super) fn read_text(root: &Root, path: &'static str) -> Seen<String> {
    match root.read_small(&RootPath::fixed(path)) {
        Ok(Some(bytes)) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Ok(None) => Err(format!("/{path} is missing below this root").into()),
        Err(error) => Err(Reason::from_error(error)),
    }
}

/// Programs that every node of a cluster has.
const PROGRAMS: [&str; 3] = ["usr/bin/kubelet", "usr/bin/crio", "usr/bin/ovs-vsctl"];

fn find_programs(root: &Root) -> Result<BTreeSet<&'static str>, RootError> {
    let mut found = BTreeSet::new();
    for path in PROGRAMS {
        if root.exists(&RootPath::fixed(path))? {
            found.insert(path);
        }
    }
    Ok(found)
}
