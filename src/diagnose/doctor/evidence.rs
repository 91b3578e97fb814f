//! The evidence about a node, as values. Gathered by [`super::gather`], judged by [`super::checks`].
//!
//! A new check that needs more evidence adds a field here, and one function that fills it in where the rest is gathered.

use crate::base::invocation::{ON_THE_NODE, root_option, shell_word};
use crate::base::kargs::Kargs;
use crate::base::object::Flags;
use crate::base::reason::Reason;
use crate::change::staging::awaited::Awaited;
use crate::change::staging::next_boot::NextBoot;
use crate::change::staging::reboots::RebootNeed;
use crate::change::transaction::{LastRun, Pending};
use crate::change::trial::{Trial, TrialResult};
use crate::config::document::MachineConfig;
use crate::diagnose::doctor::Fact;
use crate::diagnose::doctor::crossing::CrossingEvidence;
use crate::diagnose::doctor::daemon::DaemonTroubles;
use crate::diagnose::doctor::upkeep::Upkeep;
use crate::diagnose::first_boot::FirstBootResult;
use crate::host::root::RootPath;
use crate::judge::daemon::forecast::{AnnotationSource, Forecast};
use crate::judge::drift::{self, Drift};
use crate::node::boot_kernels::BootKernel;
use crate::node::boot_variables::{BootVariables, SystemDisk};
use crate::node::boot_waits::BootWaits;
use crate::node::bootloader::{BootEntry, KernelDirectory};
use crate::node::certificates::{Certificate, CertificateRole};
use crate::node::clock::Clock;
use crate::node::command::ip::NetworkInterface;
use crate::node::command::systemctl::{StartResult, UnitActivity, UnitJob};
use crate::node::crio_marks::CrioMarks;
use crate::node::deploy_directories::DeployDirectory;
use crate::node::engine::Engine;
use crate::node::etcd_files::EtcdFiles;
use crate::node::host_name::HostNames;
use crate::node::images::pull::Trace;
use crate::node::images_on_disk::ContainersStorage;
use crate::node::kernel_modules::KernelModules;
use crate::node::kubelet_state::KubeletState;
use crate::node::network::Network;
use crate::node::network_faults::NetworkFaults;
use crate::node::node_address::NodeAddresses;
use crate::node::node_programs::NodePrograms;
use crate::node::os_accounts::OsAccounts;
use crate::node::ostree_repository::OstreeRepository;
use crate::node::ovsdb_files::OvsdbFiles;
use crate::node::pull_files::PullFaults;
use crate::node::selinux_state::SelinuxState;
use crate::node::service_configs::BrokenConfig;
use crate::node::space::{KernelRoom, Largest, Space};
use crate::node::static_network::StaticAddresses;
use crate::node::static_pods::StaticPods;
use crate::node::system::SystemFacts;
use crate::node::two_nodes::TwoNodes;
use crate::node::virtual_addresses::VirtualAddresses;
use crate::node::{Os, Records, System};

/// Something that was examined, or the reason why it could not be.
#[derive(Debug, Clone)]
pub enum Look<T> {
    /// What was seen.
    Seen(T),
    /// The reason why it is missing.
    Unseen(String),
}

impl<T> Default for Look<T> {
    fn default() -> Self {
        Self::Unseen("not checked".to_owned())
    }
}

impl<T> Look<T> {
    /// Returns the evidence, or the reason why it is missing.
    ///
    /// # Errors
    /// The reason why it is missing.
    pub fn seen(&self) -> Result<&T, &str> {
        match self {
            Self::Seen(seen) => Ok(seen),
            Self::Unseen(why) => Err(why),
        }
    }

    /// Returns the evidence, if it is available.
    pub fn get(&self) -> Option<&T> {
        self.seen().ok()
    }
}

/// The error's text is the reason.
impl<T, E: Into<anyhow::Error>> From<Result<T, E>> for Look<T> {
    fn from(result: Result<T, E>) -> Self {
        match result {
            Ok(seen) => Self::Seen(seen),
            Err(error) => Self::Unseen(format!("{:#}", error.into())),
        }
    }
}

/// The evidence about a node.
#[derive(Debug, Clone, Default)]
pub struct DoctorEvidence {
    /// Path of the root, as it was given.
    pub root: String,
    /// True if the root is that of the running system.
    pub live: bool,
    /// True if Pacemaker manages kubelet and etcd: two nodes with fencing.
    pub fencing: bool,
    /// True if the root is the one that an initramfs is about to enter.
    pub in_initramfs: bool,
    /// True if `--deep` was given: slow parts are read and judged too.
    pub deep: bool,
    /// True if the process runs as root and may read everything.
    pub as_root: bool,
    /// Name of the root's OSTree deployment: `CHECKSUM.SERIAL`.
    pub deployment: Option<String>,
    /// True if the root is an OSTree deployment that boots images, recognized by its `/usr/etc` even if the name is unknown.
    pub boots_images: bool,
    /// True if systemd has not finished its first boot.
    pub never_booted: bool,
    /// Paths that exist and that no check could read, with the cause. What only root may read counts for root alone.
    pub failed_reads: Vec<Fact>,
    /// The daemon's records.
    pub records: Look<Records>,
    /// An interrupted run.
    pub pending: Look<Pending>,
    /// The trial that runs.
    pub trial: Look<Option<Trial>>,
    /// The end of the last trial.
    pub last_trial: Look<Option<TrialResult>>,
    /// Files of this program that another version of it wrote: path, that version, and the version this program knows.
    pub other_versions: Look<Vec<(RootPath, u64, u64)>>,
    /// Staging directories of finished runs.
    pub strays: Vec<RootPath>,
    /// The last run.
    pub last_run: Look<Option<LastRun>>,
    /// Runs of this boot whose files need a reboot.
    pub reboots: Look<Vec<RebootNeed>>,
    /// The boot that a run waits for.
    pub awaited: Look<Option<Awaited>>,
    /// What the next boot enters, and which program selected it.
    pub next_boot: Look<Option<NextBoot>>,
    /// The result of this boot in the initramfs, if the module ran there.
    pub first_boot: Look<Option<FirstBootResult>>,
    /// Time of that result; seconds since 1970.
    pub first_boot_ended: Option<u64>,
    /// Files that show a first boot.
    pub first_boot_files: FirstBootFiles,
    /// The state of rpm-ostree.
    pub system: System,
    /// The program that stages it.
    pub engine: Engine,
    /// The root's deployment, from its origin file.
    pub os: Look<Os>,
    /// The arguments of the default boot entry, without those specific to the deployment.
    pub arguments_on_disk: Look<Kargs>,
    /// The comparison of the disk with the recorded config.
    pub compared: Look<ConfigComparison>,
    /// The daemon's behaviour at its next start.
    pub forecast: Option<Forecast>,
    /// Configs that are named somewhere, and configs with contents on the node.
    pub configs: Look<Configs>,
    /// The pull of the recorded image; `None` if no image is recorded.
    pub pull: Look<Option<PullEvidence>>,
    /// Files for pulls that have no effect, or that stop pulls.
    pub pull_files: Look<PullFaults>,
    /// `/boot`.
    pub boot: Look<BootEvidence>,
    /// Free space on the file systems of the OS and of the node's data: one, or two.
    pub disks: Look<Vec<DiskEvidence>>,
    /// The directories of deployments.
    pub deployments: Look<Vec<DeployedTree>>,
    /// The error with which the last shutdown failed to write the staged deployment: file and message.
    pub finalize_failure: Look<Option<(String, String)>>,
    /// Certificates of the kubelet and of etcd, and authorities.
    pub certificates: Look<Vec<Certificate>>,
    /// Certificate files that could not be read, with the reason.
    pub certificates_unseen: Vec<String>,
    /// The static pods of a control-plane node; `None` on other nodes.
    pub static_pods: Look<Option<StaticPods>>,
    /// The data of etcd, and its backups.
    pub etcd_files: Look<EtcdFiles>,
    /// The databases of Open vSwitch and OVN.
    pub ovsdb_files: Look<OvsdbFiles>,
    /// The kubelet's bootstrap credentials.
    pub kubeconfig: Look<Kubeconfig>,
    /// The node's time, and other sources of time.
    pub clock: Clock,
    /// Network configuration, and the cluster network that the node's configs are for.
    pub network: Look<Network>,
    /// The store of the container images.
    pub storage: Look<ContainersStorage>,
    /// The marks of CRI-O's last shutdown.
    pub crio_marks: Look<CrioMarks>,
    /// Programs of a node that are missing; `None` on a system whose kubelet is not enabled.
    pub programs: Look<Option<NodePrograms>>,
    /// The kernels of the boot entries.
    pub boot_kernels: Look<Vec<BootKernel>>,
    /// The ostree repository; `None` on a system without one.
    pub repository: Look<Option<OstreeRepository>>,
    /// Checkpoint files and policies of the kubelet; `None` on a system without a kubelet.
    pub kubelet_state: Look<Option<KubeletState>>,
    /// Units as the running manager knows them.
    pub units: Look<Vec<UnitActivity>>,
    /// The result of rpm-ostreed's last start, from the running manager.
    pub rpm_ostreed: Look<StartResult>,
    /// Name or address of the Machine Config Server, if the node knows it.
    pub server: Look<Option<String>>,
    /// The parts of the node outside its configs.
    pub upkeep: Upkeep,
    /// The names of the host.
    pub host_names: Look<HostNames>,
    /// The network interfaces with their addresses; only for a running system.
    pub interfaces: Look<Vec<NetworkInterface>>,
    /// The addresses that the configuration sets.
    pub static_network: Look<StaticAddresses>,
    /// Network configuration that is not in effect.
    pub network_faults: Look<NetworkFaults>,
    /// The addresses that components of the node have stored.
    pub node_addresses: Look<NodeAddresses>,
    /// Users and groups of the OS.
    pub os_accounts: Look<OsAccounts>,
    /// Mode and policy of SELinux.
    pub selinux: Look<SelinuxState>,
    /// Configuration that services reject.
    pub service_configs: Look<Vec<BrokenConfig>>,
    /// Kernel modules that the node needs, and settings that disable modules.
    pub kernel_modules: Look<KernelModules>,
    /// The daemon's own problems.
    pub daemon: Look<DaemonTroubles>,
    /// The files of two nodes with fencing; `None` on any other node.
    pub two_nodes: Look<Option<TwoNodes>>,
    /// The system that the next boot enters, and the node as `preflight` sees it; `None` if the root boots no images.
    pub crossing: Look<Option<CrossingEvidence>>,
    /// Jobs of the running manager.
    pub jobs: Look<Vec<UnitJob>>,
    /// Seconds since the kernel started; only for a running system.
    pub uptime: Option<u64>,
    /// The conditions that units wait for.
    pub boot_waits: Look<BootWaits>,
    /// Virtual addresses; `None` on a node without any.
    pub virtual_addresses: Look<Option<VirtualAddresses>>,
    /// Boot entries of the firmware; `None` on a machine without EFI.
    pub boot_variables: Look<Option<BootVariables>>,
    /// The disk of the root, as the firmware sees it.
    pub system_disk: Look<SystemDisk>,
    /// Whether the first-boot stamp exists on `/boot`.
    pub first_boot_stamp: Look<bool>,
}

/// The state of `/etc/kubernetes/kubeconfig`, links followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kubeconfig {
    /// A file with content.
    There,
    /// A file of 0 bytes.
    Empty,
    /// No file.
    Missing,
}

/// Files that indicate a first boot.
#[derive(Debug, Clone, Default)]
pub struct FirstBootFiles {
    /// Whether the input of the first-boot service exists.
    pub encapsulated: Look<bool>,
    /// Whether Ignition's result file exists, which shows that it received a config.
    pub ignition_result: Look<bool>,
    /// Whether the daemon's file about a bootstrap config that differs from the cluster's exists.
    pub bootstrap_diff: Look<bool>,
    /// Whether the backup copy of the first-boot input exists.
    pub encapsulated_kept: Look<bool>,
    /// The OS change that failed at the daemon's first boot, in the daemon's words.
    pub pivot_failed: Option<String>,
}

impl FirstBootFiles {
    /// Returns true if the first-boot service still has its input, so the first boot is not finished.
    pub fn is_waiting(&self) -> bool {
        self.encapsulated.get() == Some(&true)
    }
}

/// The comparison of the disk with the recorded config.
#[derive(Debug, Clone, Default)]
pub struct ConfigComparison {
    /// Name of the config.
    pub config: String,
    /// Its image.
    pub os_image: String,
    /// All differences, in the daemon's order.
    pub drifts: Vec<Drift>,
    /// Files of the config that should have content but are empty.
    pub emptied: Vec<RootPath>,
    /// Time of the last change of each file that differs; seconds since 1970.
    pub changed: Vec<(RootPath, u64)>,
    /// Objects of the config that have flags, and directories above them.
    pub flags: Vec<(RootPath, Flags)>,
}

/// The role of a config that is named somewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigRole {
    /// The node's record.
    Recorded,
    /// The cluster's desired config.
    Desired,
    /// The node's current config, for the cluster.
    Current,
}

impl std::fmt::Display for ConfigRole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Recorded => "recorded",
            Self::Desired => "wanted by the cluster",
            Self::Current => "current for the cluster",
        })
    }
}

/// A config that is named somewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MentionedConfig {
    /// Its name.
    pub name: String,
    /// Its role.
    pub role: ConfigRole,
    /// The source of the role.
    pub place: String,
    /// Copies of its contents on the node; empty if there is none.
    pub at: Vec<String>,
}

/// A config whose contents are on the node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamedConfig {
    /// Its name.
    pub name: String,
    /// The pool, if it is known.
    pub pool: Option<String>,
    /// Path of the copy, or `cached:NAME`.
    pub at: String,
    /// True if the contents match the hash in the name; `None` if the name has no hash.
    pub name_matches: Option<bool>,
    /// The config's cluster network, if it names one.
    pub network: Option<&'static str>,
    /// Time of the fetch of a cached config; seconds since 1970.
    pub fetched: Option<u64>,
}

/// The configs of a node.
#[derive(Debug, Clone, Default)]
pub struct Configs {
    /// Configs that are named somewhere.
    pub named: Vec<MentionedConfig>,
    /// Configs with contents on the node.
    pub available: Vec<NamedConfig>,
    /// Damaged files, with the error.
    pub damaged: Vec<(String, String)>,
    /// The source of the desired config, and its time (seconds since 1970).
    pub told: Option<(AnnotationSource, Option<u64>)>,
}

/// The pull of an image.
#[derive(Debug, Clone)]
pub struct PullEvidence {
    /// Reference of the image.
    pub image: String,
    /// The decisions, or the reason why there are none.
    pub trace: Result<Trace, PullRefusal>,
}

/// The reason why no image can be pulled, or why the decisions are unknown.
#[derive(Debug, Clone, Default)]
pub struct PullRefusal {
    /// Path of the file.
    pub place: String,
    /// The error in it.
    pub words: String,
    /// The command that fixes or opens the file.
    pub next: String,
}

/// The state of `/boot`.
#[derive(Debug, Clone, Default)]
pub struct BootEvidence {
    /// Size and free space.
    pub space: Space,
    /// Space that one more kernel needs, if the deployments are known.
    pub room: Option<KernelRoom>,
    /// The entries, default first.
    pub entries: Vec<BootEntry>,
    /// The kernels.
    pub kernels: Vec<KernelDirectory>,
    /// The largest consumers of space other than the kernels.
    pub largest: Look<Largest>,
}

/// A file system of the node.
#[derive(Debug, Clone, Default)]
pub struct DiskEvidence {
    /// A directory on it.
    pub place: &'static str,
    /// True if it holds the repository of the OS.
    pub of_the_os: bool,
    /// Size and free space.
    pub space: Space,
    /// The largest consumers of space in `/var`; empty if this disk does not hold it, or has enough free space.
    pub largest: Look<Largest>,
}

/// A deployment's directory.
#[derive(Debug, Clone)]
pub struct DeployedTree {
    /// The directory.
    pub directory: DeployDirectory,
    /// True if rpm-ostree lists it; `None` if rpm-ostree was not queried.
    pub known: Option<bool>,
    /// Immutable objects in it.
    pub immutable: Look<Vec<RootPath>>,
}

impl DoctorEvidence {
    /// Returns the commands that stop kubelet and CRI-O. If Pacemaker manages the kubelet, it has to stop it.
    pub fn stop_workloads(&self) -> Vec<&'static str> {
        if self.fencing {
            vec!["pcs node standby $(hostname)", "systemctl stop crio"]
        } else {
            vec!["systemctl stop kubelet crio"]
        }
    }

    /// Returns the commands that start them again.
    pub fn start_workloads(&self) -> Vec<&'static str> {
        if self.fencing {
            vec!["systemctl start crio", "pcs node unstandby $(hostname)"]
        } else {
            vec!["systemctl start crio kubelet"]
        }
    }

    /// Returns the command that stops the kubelet. If Pacemaker manages it, Pacemaker has to stop it.
    pub fn stop_kubelet(&self) -> &'static str {
        if self.fencing {
            "pcs node standby $(hostname)"
        } else {
            "systemctl stop kubelet"
        }
    }

    /// Returns the command that starts it again.
    pub fn start_kubelet(&self) -> &'static str {
        if self.fencing {
            "pcs node unstandby $(hostname)"
        } else {
            "systemctl start kubelet"
        }
    }

    /// Returns the commands that restart the kubelet.
    pub fn restart_kubelet(&self) -> Vec<&'static str> {
        if self.fencing {
            vec![
                "pcs node standby $(hostname)",
                "pcs node unstandby $(hostname)",
            ]
        } else {
            vec!["systemctl restart kubelet"]
        }
    }

    /// Returns the answer of rpm-ostree.
    ///
    /// # Errors
    /// The reason why there is none.
    pub fn facts(&self) -> Result<&SystemFacts, Reason> {
        match &self.system {
            System::Known(facts) => Ok(facts),
            System::Silent(why) => Err(why.clone().into()),
            System::Composefs(system) => Err(format!(
                "no OSTree node; bootc's composefs backend: {}",
                system.traces
            )
            .into()),
            System::NotAsked => {
                let engine = self.engine.name();
                Err(format!("{engine} answers only on the node itself, booted by ostree").into())
            }
        }
    }

    /// Returns the running image: from rpm-ostree, else from the origin file.
    pub fn running_image(&self) -> Option<String> {
        let booted = self
            .facts()
            .ok()
            .and_then(|facts| facts.deployments.booted());
        booted
            .map(crate::node::command::rpm_ostree::status::Deployment::image)
            .or_else(|| self.os.get()?.image.clone())
    }

    /// Returns the daemon's verdict on differences from a config; `None` if it finds nothing.
    pub fn daemon_verdict(&self, config: &str, drifts: &[Drift]) -> Option<String> {
        let records = self.records.get();
        let layered = records.and_then(|records| records.current_image.as_deref());
        drift::daemon_verdict(config, layered, drifts)
    }

    /// Returns the arguments of the running kernel, else of the default boot entry.
    ///
    /// # Errors
    /// The reason why they are missing.
    pub fn boot_arguments(&self) -> Result<&Kargs, &str> {
        match &self.system {
            System::Known(facts) => Ok(&facts.booted_arguments),
            _ => self.arguments_on_disk.seen(),
        }
    }

    /// Returns the name of the node in the cluster, from the kubelet's certificate.
    pub fn node_name(&self) -> Option<&str> {
        let mut all = self.certificates.get()?.iter();
        all.find_map(|one| {
            let subject = Some(&one.subject).filter(|_| one.role == CertificateRole::KubeletClient);
            let (_, rest) = subject?.split_once("system:node:")?;
            let end = rest.find([',', '+', ' ']).unwrap_or(rest.len());
            rest.get(..end).filter(|name| !name.is_empty())
        })
    }

    /// Returns the last run, if there was one and it can be read.
    pub fn last_run(&self) -> Option<&LastRun> {
        self.last_run.get()?.as_ref()
    }

    /// Returns the Machine Config Server for a sentence.
    pub fn server_name(&self) -> String {
        let name = "the Machine Config Server";
        match self.server.seen() {
            Ok(Some(server)) => server.clone(),
            Ok(None) => name.to_owned(),
            Err(why) => format!("{name} ({why})"),
        }
    }

    /// Returns the name of the recorded config.
    pub fn recorded_name(&self) -> Option<String> {
        self.records.get().and_then(Records::name)
    }

    /// Returns the recorded config, if it can be read.
    pub fn config(&self) -> Option<&MachineConfig> {
        self.records.get().and_then(Records::recorded_config)
    }

    /// Returns true for a file, unit file or drop-in of the recorded config, which only `apply` may change.
    pub fn is_of_config(&self, path: &str) -> bool {
        self.config()
            .is_some_and(|config| config.contains_file(path))
    }

    /// Returns a path of this root for commands of the running system. On a mounted disk, paths outside the deployment are on
    /// the disk itself, or in the `var` of its stateroot; only mco-rescue resolves them.
    pub fn shell_path(&self, path: &str) -> String {
        shell_word(&self.path_below(path))
    }

    /// Returns the command that moves a file aside, into a directory in which no program reads it, named as `doctor --fix`
    /// names it.
    pub fn command_to_move_aside(&self, path: &str, directory: &str) -> String {
        let name = path.rsplit('/').next().unwrap_or(path);
        let (from, to) = (
            self.shell_path(path),
            self.shell_path(&format!("{directory}/{name}")),
        );
        format!("mv {from} {to}.mco-rescue-$(date -u +%Y%m%dT%H%M%SZ)")
    }

    /// Returns the same path without shell quoting.
    pub fn path_below(&self, path: &str) -> String {
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
        match in_var(path).zip(stateroot_of(directory)) {
            Some((path, stateroot)) => format!("{stateroot}/var/{path}"),
            None => format!("{directory}/{path}"),
        }
    }

    /// Returns the command with which ostree removes unused files.
    pub fn cleanup_command(&self) -> String {
        if self.live {
            "ostree admin cleanup".to_owned()
        } else {
            format!("ostree admin cleanup --sysroot={}", shell_word(&self.root))
        }
    }

    /// Returns `mco-rescue ARGUMENTS` for this root, or for the booted node where nothing else can carry it out.
    pub fn own_command(&self, arguments: &str) -> String {
        if !self.live && needs_booted_node(arguments) {
            return format!("{ON_THE_NODE}mco-rescue {arguments}");
        }
        format!("mco-rescue {arguments}{}", self.at_root())
    }

    /// Returns the options that select this root.
    pub fn at_root(&self) -> String {
        if self.live {
            String::new()
        } else {
            root_option(&self.root)
        }
    }
}

/// Returns true if the command stages an operating system or confirms a trial, which no other root than `/` can.
fn needs_booted_node(arguments: &str) -> bool {
    let mut words = arguments.split(' ');
    words.next() == Some("confirm") || words.any(|word| ["--reboot", "--complete"].contains(&word))
}

/// Returns the path below `var`, where an OSTree system stores or links it.
fn in_var(path: &str) -> Option<String> {
    let (first, below) = path.split_once('/')?;
    match first {
        "var" => Some(below.to_owned()),
        "home" => Some(format!("home/{below}")),
        "root" => Some(format!("roothome/{below}")),
        _ => None,
    }
}

/// Returns the stateroot of a deployment directory `STATEROOT/deploy/NAME`.
fn stateroot_of(deployment: &str) -> Option<&str> {
    let (above, _) = deployment.rsplit_once('/')?;
    above.strip_suffix("/deploy")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(live: bool, root: &str, directory: &str) -> DoctorEvidence {
        DoctorEvidence {
            live,
            root: root.to_owned(),
            upkeep: Upkeep {
                directory: directory.to_owned(),
                ..Upkeep::default()
            },
            ..DoctorEvidence::default()
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
            assert_eq!(node.shell_path(path), of_node);
            assert_eq!(tree.shell_path(path), of_tree);
            assert_eq!(disk.shell_path(path), of_disk);
        }
    }
}
