//! What is going on on a live node: processes, units, a transaction of the OS. No judgement here.

use sysinfo::{ProcessRefreshKind, ProcessesToUpdate, System, UpdateKind};

use crate::command::{CommandRunner, rpm_ostree, systemctl};
use crate::paths;
use crate::root::{Root, RootError, RootPath};

/// Pulls the operator's image for the first-boot service, again and again until it is there.
pub const FIRST_BOOT_PULL: &str = "machine-config-daemon-pull.service";
/// Completes a first boot, again and again until it can (mcd-contract section 3).
pub const FIRST_BOOT_SERVICE: &str = "machine-config-daemon-firstboot.service";

/// Name of the daemon's program.
pub const DAEMON: &str = "machine-config-daemon";
/// Units that update a node, or reboot it for an update.
const UNITS: [&str; 7] = [
    FIRST_BOOT_PULL,
    FIRST_BOOT_SERVICE,
    "machine-config-daemon-host.service",
    "machine-config-daemon-revert.service",
    "machine-config-daemon-update-rpmostree-via-container.service",
    "machine-config-daemon-reboot.service",
    "ostree-finalize-staged.service",
];

/// What was seen; nothing of it on a root that is not live.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Activity {
    /// All processes.
    pub processes: Vec<Process>,
    /// The cgroup of this process.
    pub own_cgroup: Option<String>,
    /// The units that update a node, as systemd knows them.
    pub units: Vec<UnitActivity>,
    /// What the running transaction of rpm-ostree does.
    pub transaction: Option<String>,
    /// A deployment waits for the next reboot.
    pub staged: bool,
    /// A shutdown is scheduled.
    pub shutdown: bool,
}

/// A process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Id of its parent.
    pub parent: u32,
    /// Its command line; empty for the kernel's own.
    pub args: Vec<String>,
    /// Its cgroup (version 2).
    pub cgroup: Option<String>,
}

impl Process {
    /// The program's name without directories.
    pub fn program(&self) -> &str {
        let first = self.args.first().map_or("", String::as_str);
        first.rsplit('/').next().unwrap_or(first)
    }
}

/// A unit's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitActivity {
    /// Its name.
    pub name: String,
    /// Such as `active`.
    pub active: String,
    /// Such as `running`.
    pub sub: String,
}

impl UnitActivity {
    /// Whether it does something; a oneshot that ran is `active (exited)`, and at work no more.
    pub fn is_at_work(&self) -> bool {
        match self.active.as_str() {
            "activating" | "deactivating" | "reloading" => true,
            "active" => self.sub == "running",
            _ => false,
        }
    }

    /// Whether it was started and has not ended.
    pub fn is_running(&self) -> bool {
        matches!(
            self.active.as_str(),
            "active" | "activating" | "reloading" | "refreshing"
        )
    }
}

impl Activity {
    /// Looks at the running system, if the root is its root.
    ///
    /// # Errors
    /// What the root said. A program that is missing or fails only says nothing.
    pub fn observe(root: &Root, runner: &dyn CommandRunner) -> Result<Self, RootError> {
        if !root.is_live() {
            return Ok(Self::default());
        }
        let transaction = rpm_ostree::transaction(runner).unwrap_or_else(|error| {
            log::info!("asking rpm-ostree: {error}");
            None
        });
        let units = systemctl::activity(runner, &UNITS).unwrap_or_else(|error| {
            log::info!("asking systemd: {error}");
            Vec::new()
        });
        Ok(Self {
            processes: processes(),
            own_cgroup: cgroup("self"),
            units,
            transaction,
            staged: root.exists(&RootPath::fixed(paths::STAGED_DEPLOYMENT))?,
            shutdown: root.exists(&RootPath::fixed(paths::SCHEDULED_SHUTDOWN))?,
        })
    }
}

/// Whether a process of the daemon's name runs, on a live root.
pub fn daemon_runs(root: &Root) -> bool {
    let all = if root.is_live() {
        processes()
    } else {
        Vec::new()
    };
    all.iter().any(|process| process.program() == DAEMON)
}

fn processes() -> Vec<Process> {
    let Ok(mut system) = System::new() else {
        return Vec::new();
    };
    let what = ProcessRefreshKind::nothing()
        .with_cmd(UpdateKind::Always)
        .without_tasks();
    system.refresh_processes_specifics(ProcessesToUpdate::All, true, what);
    let all = system.processes().values();
    let process = |process: &sysinfo::Process| Process {
        pid: process.pid().as_u32(),
        parent: process.parent().map_or(0, |parent| parent.as_u32()),
        args: process
            .cmd()
            .iter()
            .map(|arg| arg.to_string_lossy().into_owned())
            .collect(),
        cgroup: cgroup(&process.pid().to_string()),
    };
    let mut all: Vec<Process> = all.map(process).collect();
    all.sort_by_key(|process| process.pid);
    all
}

#[allow(
    clippy::disallowed_methods,
    reason = "procfs of the running kernel, not a path of the node's root"
)]
fn cgroup(process: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{process}/cgroup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(line.to_owned())
}
