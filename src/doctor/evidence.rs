//! What was seen of a node, as values. Gathered by [`crate::cli`], judged by [`super::checks`].
//!
//! A new check that needs something more adds a field here, and one function that fills it in where the rest is
//! gathered.

use crate::boot::FirstBoot;
use crate::command::systemctl::StartResult;
use crate::command::systemctl::UnitActivity;
use crate::daemon::forecast::Forecast;
use crate::daemon::forecast::Told;
use crate::doctor::upkeep::Upkeep;
use crate::drift::Drift;
use crate::images::pull::Trace;
use crate::invocation::{root_option, shell_word};
use crate::kargs::Kargs;
use crate::node::bootloader::{BootEntry, KernelDirectory};
use crate::node::certificates::Certificate;
use crate::node::clock::Clock;
use crate::node::deploy_directories::DeployDirectory;
use crate::node::images_on_disk::Storage;
use crate::node::network::Network;
use crate::node::space::{KernelRoom, Space};
use crate::node::system::Facts;
use crate::node::{Records, System};
use crate::object::Flags;
use crate::root::RootPath;
use crate::staging::awaited::Awaited;
use crate::transaction::LastRun;
use crate::transaction::Pending;

/// Something that was looked at, or why it could not be.
#[derive(Debug, Clone)]
pub enum Look<T> {
    /// What was seen.
    Seen(T),
    /// Why it was not.
    Unseen(String),
}

impl<T> Default for Look<T> {
    fn default() -> Self {
        Self::Unseen("nobody looked at it".to_owned())
    }
}

impl<T> Look<T> {
    /// What was seen, or why it was not.
    ///
    /// # Errors
    /// Why it was not.
    pub fn seen(&self) -> Result<&T, &str> {
        match self {
            Self::Seen(seen) => Ok(seen),
            Self::Unseen(why) => Err(why),
        }
    }

    /// What was seen, if it was.
    pub fn get(&self) -> Option<&T> {
        self.seen().ok()
    }
}

/// Errors say why something was not seen.
impl<T, E: Into<anyhow::Error>> From<Result<T, E>> for Look<T> {
    fn from(result: Result<T, E>) -> Self {
        match result {
            Ok(seen) => Self::Seen(seen),
            Err(error) => Self::Unseen(format!("{:#}", error.into())),
        }
    }
}

/// All of it.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    /// The root, as it was named.
    pub root: String,
    /// There is something of a system in it.
    pub has_system: bool,
    /// It is that of the running system.
    pub live: bool,
    /// It is the one that an initramfs is about to enter.
    pub in_initramfs: bool,
    /// We may read everything.
    pub as_root: bool,
    /// The root belongs to an OSTree deployment: `CHECKSUM.SERIAL`.
    pub deployment: Option<String>,
    /// It is the tree of one, as `/usr/etc` tells also where its name is lost: it boots images.
    pub boots_images: bool,
    /// systemd still has its first boot before it.
    pub never_booted: bool,
    /// The daemon's records.
    pub records: Look<Records>,
    /// A run of ours that was interrupted.
    pub pending: Look<Pending>,
    /// Staging directories of runs of ours that are over.
    pub strays: Vec<RootPath>,
    /// The last run of ours.
    pub last_run: Option<LastRun>,
    /// The boot that one of our runs waits for.
    pub awaited: Look<Option<Awaited>>,
    /// How this boot went in the initramfs, where our module was in it.
    pub first_boot: Option<FirstBoot>,
    /// When that was written; seconds since 1970.
    pub first_boot_ended: Option<u64>,
    /// Where files tell of a first boot.
    pub first_boot_files: FirstBootFiles,
    /// What rpm-ostree says.
    pub system: System,
    /// The image of the root's deployment, as files tell it.
    pub image_on_disk: Option<String>,
    /// The arguments of the default boot entry, without those of the deployment.
    pub arguments_on_disk: Look<Kargs>,
    /// The disk beside the recorded config.
    pub compared: Look<Compared>,
    /// What the daemon will do when it starts.
    pub forecast: Option<Forecast>,
    /// Which configs are spoken of, and which are at hand.
    pub configs: Look<Configs>,
    /// How the recorded image would be pulled; nothing where no image is recorded.
    pub pull: Look<Option<Pull>>,
    /// `/boot`.
    pub boot: Look<Boot>,
    /// Room on the file systems of the OS and of the node's data: one, or two.
    pub disks: Look<Vec<Disk>>,
    /// The directories of deployments.
    pub deployments: Look<Vec<Deployed>>,
    /// Why the last shutdown could not write what was staged: the file and its words.
    pub finalize_failure: Look<Option<(String, String)>>,
    /// Certificates, and files with some that could not be read.
    pub certificates: Look<Vec<Certificate>>,
    /// Files with certificates that could not be read, with the reason.
    pub certificates_unseen: Vec<String>,
    /// The kubelet's bootstrap credentials.
    pub kubeconfig: Look<Kubeconfig>,
    /// The node's time, and who else tells one.
    pub clock: Clock,
    /// Network configuration, and the cluster network that the node's configs are for.
    pub network: Look<Network>,
    /// The store of the container images.
    pub storage: Look<Storage>,
    /// Units, as the running manager knows them.
    pub units: Look<Vec<UnitActivity>>,
    /// How rpm-ostreed was started last, as the running manager knows it.
    pub rpm_ostreed: Look<StartResult>,
    /// Where the Machine Config Server is, as far as the node knows.
    pub server: Option<String>,
    /// What it keeps beside its configs.
    pub upkeep: Upkeep,
}

/// What is at `/etc/kubernetes/kubeconfig`, links followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kubeconfig {
    /// A file with something in it.
    There,
    /// A file of no bytes.
    Empty,
    /// No file.
    Missing,
}

/// Traces of a first boot.
#[derive(Debug, Clone, Default)]
pub struct FirstBootFiles {
    /// The first-boot service still has its input.
    pub encapsulated: bool,
    /// Ignition wrote its result: it got a config.
    pub ignition_result: bool,
    /// The daemon wrote why the bootstrap's config is not the cluster's.
    pub bootstrap_diff: bool,
    /// A copy of the first-boot input was put away.
    pub encapsulated_kept: bool,
}

/// The disk beside the recorded config.
#[derive(Debug, Clone, Default)]
pub struct Compared {
    /// Name of the config.
    pub config: String,
    /// Its image.
    pub os_image: String,
    /// Its kernel arguments.
    pub arguments: Vec<String>,
    /// Everything that differs, in the daemon's order.
    pub drifts: Vec<Drift>,
    /// Files of the config that should have content and are empty.
    pub emptied: Vec<RootPath>,
    /// When each file that differs was changed last; seconds since 1970.
    pub changed: Vec<(RootPath, u64)>,
    /// Objects of the config that carry flags, and directories above them.
    pub flags: Vec<(RootPath, Flags)>,
}

/// A config that somebody speaks of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Named {
    /// Its name.
    pub name: String,
    /// Who speaks of it, such as `recorded`, `wanted by the cluster`.
    pub role: String,
    /// Where it has that from.
    pub place: String,
    /// Where its contents are on the node; empty where they are not.
    pub at: Vec<String>,
}

/// A config whose contents are on the node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AtHand {
    /// Its name.
    pub name: String,
    /// The pool, where it is known.
    pub pool: Option<String>,
    /// Where, as a file; or `cached:NAME`.
    pub at: String,
    /// Whether the hash in its name is that of its contents; nothing where the name has none.
    pub name_matches: Option<bool>,
    /// Which cluster network it is for, where it says so.
    pub network: Option<&'static str>,
    /// When it was fetched, of those in the cache.
    pub fetched: Option<u64>,
}

/// Configs.
#[derive(Debug, Clone, Default)]
pub struct Configs {
    /// Spoken of.
    pub named: Vec<Named>,
    /// Contents.
    pub at_hand: Vec<AtHand>,
    /// Damaged files: which, and what is wrong.
    pub damaged: Vec<(String, String)>,
    /// Who told of what the cluster wants, and when (seconds since 1970).
    pub told: Option<(Told, Option<u64>)>,
}

/// How an image would be pulled.
#[derive(Debug, Clone)]
pub struct Pull {
    /// The image.
    pub image: String,
    /// The decisions, or why there are none.
    pub trace: Result<Trace, Refusal>,
}

/// Why no image can be pulled at all, or nothing tells how.
#[derive(Debug, Clone, Default)]
pub struct Refusal {
    /// The file.
    pub place: String,
    /// What is wrong with it.
    pub words: String,
    /// The command that helps, or opens the file.
    pub next: String,
}

/// `/boot`.
#[derive(Debug, Clone, Default)]
pub struct Boot {
    /// Room.
    pub space: Space,
    /// What one more kernel needs, where the deployments are known.
    pub room: Option<KernelRoom>,
    /// The entries, default first.
    pub entries: Vec<BootEntry>,
    /// The kernels.
    pub kernels: Vec<KernelDirectory>,
}

/// Room on a file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct Disk {
    /// A directory on it.
    pub place: &'static str,
    /// The repository of the OS is on it.
    pub of_the_os: bool,
    /// Room.
    pub space: Space,
}

/// A deployment's directory.
#[derive(Debug, Clone)]
pub struct Deployed {
    /// Which.
    pub directory: DeployDirectory,
    /// rpm-ostree lists it; nothing where it was not asked.
    pub known: Option<bool>,
    /// What in it may not be changed.
    pub immutable: Look<Vec<RootPath>>,
}

impl Evidence {
    /// What rpm-ostree answered, or why there is no answer.
    ///
    /// # Errors
    /// Why there is none.
    pub fn facts(&self) -> Result<&Facts, String> {
        match &self.system {
            System::Known(facts) => Ok(facts),
            System::Silent(why) => Err(why.clone()),
            System::NotAsked => {
                Err("rpm-ostree answers only on the node itself, booted by ostree".to_owned())
            }
        }
    }

    /// The image that runs, or would: as rpm-ostree tells it, else as files do.
    pub fn image(&self) -> Option<String> {
        let booted = self
            .facts()
            .ok()
            .and_then(|facts| facts.deployments.booted());
        booted
            .map(crate::command::rpm_ostree::status::Deployment::image)
            .or_else(|| self.image_on_disk.clone())
    }

    /// Name of the recorded config.
    pub fn recorded(&self) -> Option<String> {
        self.records.get().and_then(Records::name)
    }

    /// A path of this root as commands of the running system take it. Of a disk, what is not the deployment's is on
    /// the disk itself, or in the `var` of its stateroot: nobody but us sees that in the deployment.
    pub fn path(&self, path: &str) -> String {
        shell_word(&self.place(path))
    }

    fn place(&self, path: &str) -> String {
        let path = path.trim_start_matches('/');
        let directory = self.upkeep.directory.trim_end_matches('/');
        if self.live {
            return format!("/{path}");
        }
        if self.root == self.upkeep.directory {
            return format!("{directory}/{path}");
        }
        if let Some(path) = path.strip_prefix("sysroot/") {
            return format!("{}/{path}", self.root.trim_end_matches('/'));
        }
        if path == "boot" || path.starts_with("boot/") {
            return format!("{}/{path}", self.root.trim_end_matches('/'));
        }
        match in_var(path).zip(stateroot(directory)) {
            Some((path, stateroot)) => format!("{stateroot}/var/{path}"),
            None => format!("{directory}/{path}"),
        }
    }

    /// The command that lets ostree remove what it does not need.
    pub fn cleanup(&self) -> String {
        match self.live {
            true => "ostree admin cleanup".to_owned(),
            false => format!("ostree admin cleanup --sysroot={}", shell_word(&self.root)),
        }
    }

    /// `mco-rescue ARGUMENTS`, leading to this root.
    pub fn command(&self, arguments: &str) -> String {
        format!("mco-rescue {arguments}{}", self.at_root())
    }

    /// The options that lead our commands to this root.
    pub fn at_root(&self) -> String {
        if self.live {
            String::new()
        } else {
            root_option(&self.root)
        }
    }
}

/// A path below `var`, where an OSTree system has it, or links to it.
fn in_var(path: &str) -> Option<String> {
    let (first, below) = path.split_once('/')?;
    match first {
        "var" => Some(below.to_owned()),
        "home" => Some(format!("home/{below}")),
        "root" => Some(format!("roothome/{below}")),
        _ => None,
    }
}

/// The directory of the stateroot that a deployment's directory, `STATEROOT/deploy/NAME`, belongs to.
fn stateroot(deployment: &str) -> Option<&str> {
    let (above, _) = deployment.rsplit_once('/')?;
    above.strip_suffix("/deploy")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(live: bool, root: &str, directory: &str) -> Evidence {
        Evidence {
            live,
            root: root.to_owned(),
            upkeep: Upkeep {
                directory: directory.to_owned(),
                ..Upkeep::default()
            },
            ..Evidence::default()
        }
    }

    #[test]
    fn paths_lead_to_the_root_that_was_looked_at() {
        let disk = at(false, "/mnt", "/mnt/ostree/deploy/os/deploy/ab.0");
        let tree = at(false, "/mnt", "/mnt");
        let node = at(true, "/", "/");
        for (path, of_node, of_tree, of_disk) in [
            (
                "/etc/a",
                "/etc/a",
                "/mnt/etc/a",
                "/mnt/ostree/deploy/os/deploy/ab.0/etc/a",
            ),
            (
                "/var/a",
                "/var/a",
                "/mnt/var/a",
                "/mnt/ostree/deploy/os/var/a",
            ),
            (
                "/home/a/b",
                "/home/a/b",
                "/mnt/home/a/b",
                "/mnt/ostree/deploy/os/var/home/a/b",
            ),
            (
                "/root/",
                "/root/",
                "/mnt/root/",
                "/mnt/ostree/deploy/os/var/roothome/",
            ),
            ("/boot/a", "/boot/a", "/mnt/boot/a", "/mnt/boot/a"),
            ("/boot", "/boot", "/mnt/boot", "/mnt/boot"),
            ("/sysroot/a", "/sysroot/a", "/mnt/sysroot/a", "/mnt/a"),
        ] {
            assert_eq!(node.path(path), of_node);
            assert_eq!(tree.path(path), of_tree);
            assert_eq!(disk.path(path), of_disk);
        }
    }
}
