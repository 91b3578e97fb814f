//! The machine of a root: its name, its system, and the traces of a cluster node.

use crate::base::paths;
use crate::host::root::{Root, RootError, RootPath, skip_obstacle};
use crate::node::composefs::composefs_traces;

use super::Host;
use super::os_release::{Class, OpenshiftVersion, OsRelease};

/// Files of the daemon and of the first boot.
const RECORDS: [&str; 6] = [
    paths::CURRENT_CONFIG,
    paths::NODE_ANNOTATIONS,
    paths::NODE_ANNOTATIONS_KEPT,
    paths::ENCAPSULATED,
    paths::ENCAPSULATED_KEPT,
    paths::MCS_CONTENT,
];

/// Files of a run that is unfinished or can be reverted.
const RUNS: [&str; 4] = [
    paths::JOURNAL,
    paths::INTENT,
    paths::COMMITTED,
    paths::AWAITED,
];

/// Facts about a machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Machine {
    /// The root as given on the command line.
    pub root: String,
    /// It is the root of the running system.
    pub live: bool,
    /// The host name; `None` if the root does not contain it.
    pub name: Option<String>,
    /// The system's name with its version; empty without an `os-release`.
    pub system: String,
    /// A short form of that: `RHCOS 9.6`.
    pub short_system: String,
    /// `OPENSHIFT_VERSION` of `os-release`.
    pub openshift: OpenshiftVersion,
    /// `os-release` names a CoreOS.
    pub is_coreos: bool,
    /// It was booted by OSTree, or the root is a deployment.
    pub is_deployment: bool,
    /// The traces of bootc's composefs backend; such a system is not an OSTree system.
    pub composefs: Option<String>,
    /// The first file found of the daemon or of a run.
    pub record: Option<String>,
    /// It has an `/etc` or a `/usr`.
    pub has_system: bool,
    /// The root looks like the `/etc` of a system.
    pub is_etc: bool,
    /// Another root is mounted at `/host`, as in debug pods.
    pub has_host: bool,
}

impl Machine {
    /// Reads the facts of a root.
    ///
    /// # Errors
    /// An `os-release` cannot be read.
    pub fn observe(root: &Root) -> Result<Self, RootError> {
        let host = Host::observe(root)?;
        let release = OsRelease::read(root)?;
        let exists = |path: &'static str| skip_obstacle(root.exists(&RootPath::fixed(path)));
        Ok(Self {
            root: root.shown().display().to_string(),
            live: host.live,
            name: machine_name(root, host.live),
            system: release.name().to_owned(),
            short_system: release.short_name(),
            openshift: release.openshift_version(),
            is_coreos: is_coreos(&release),
            is_deployment: host.deployment.is_some() || host.live && exists(paths::OSTREE_BOOTED)?,
            composefs: composefs_traces(root, &host)?,
            record: find_record(root)?.map(|path| format!("/{path}")),
            has_system: has_system(root),
            is_etc: exists("passwd")? || exists("machine-id")? || exists("hostname")?,
            has_host: exists("host/etc")?,
        })
    }
}

/// Returns true if the root has an `/etc` or a `/usr`, or if that cannot be read: the error is then of what is read there.
pub fn has_system(root: &Root) -> bool {
    let may_exist = |path| root.exists(&RootPath::fixed(path)).unwrap_or(true);
    may_exist("etc") || may_exist("usr")
}

/// Returns the first path that shows that the daemon or this program has worked on the root.
fn find_record(root: &Root) -> Result<Option<&'static str>, RootError> {
    for path in RECORDS.into_iter().chain(RUNS) {
        if skip_obstacle(root.exists(&RootPath::fixed(path)))? {
            return Ok(Some(path));
        }
    }
    let runs = skip_obstacle(root.list(&RootPath::fixed(paths::HISTORY)))?;
    Ok((!runs.is_empty()).then_some(paths::HISTORY))
}

/// Returns the machine's name. For any root but the running system, only files are used, because the kernel's name is that of
/// this machine. An unreadable name is treated as missing, because nothing depends on it.
fn machine_name(root: &Root, live: bool) -> Option<String> {
    let fixed = root.read_small(&RootPath::fixed(paths::HOSTNAME));
    let fixed = fixed.inspect_err(|error| log::info!("reading the host name: {error}"));
    let fixed = fixed.ok().flatten();
    let fixed = fixed.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned());
    let of_kernel = || live.then(sysinfo::System::host_name)?.ok();
    fixed.filter(|name| !name.is_empty()).or_else(of_kernel)
}

/// Returns true for the classes of systems that the daemon supports, and for older ids of those systems.
fn is_coreos(release: &OsRelease) -> bool {
    let id = release.get("ID");
    release.class() != Class::Other || matches!(id, "fcos" | "fedora-coreos")
}
