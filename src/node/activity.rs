//! Activity on a live node: processes, units, and a transaction of the OS. Only read here, not judged.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use sysinfo::{ProcessRefreshKind, ProcessesToUpdate, System, UpdateKind};

use crate::base::order::StableOrder;
use crate::base::paths;
use crate::base::reason::Reason;
use crate::host::root::{Root, RootError, RootPath};
use crate::host::running;
use crate::node::command::systemctl::UnitActivity;
use crate::node::command::{CommandRunner, bootc, rpm_ostree, systemctl};

use super::booted::{self, SoftMarker};
use super::host::systemd_runs;
use super::staged::StagedEvidence;

/// The service that pulls the operator's image at first boot, and retries forever.
pub const FIRST_BOOT_PULL: &str = "machine-config-daemon-pull.service";
/// The service that completes the first boot, and retries forever (docs/develop/agreement.md: First boot).
pub const FIRST_BOOT_SERVICE: &str = "machine-config-daemon-firstboot.service";

/// Name of the daemon's program.
pub const DAEMON: &str = "machine-config-daemon";
/// The command that restarts the daemon by hand.
pub const START_ANEW: &str = "crictl stop $(crictl ps -q --name machine-config-daemon)";
/// Units that update a node, or reboot it for an update.
const UNITS: [&str; 11] = [
    FIRST_BOOT_PULL,
    FIRST_BOOT_SERVICE,
    "machine-config-daemon-host.service",
    "machine-config-daemon-revert.service",
    "machine-config-daemon-update-rpmostree-via-container.service",
    "machine-config-daemon-reboot.service",
    "ostree-finalize-staged.service",
    "bootc-operator-switch.service",
    "bootc-fetch-apply-updates.service",
    bootc::UNIT,
    bootc::UPDATE_TIMER,
];
/// The activity of a live node; empty on a root that is not live.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Activity {
    /// All processes.
    pub processes: Vec<Process>,
    /// The cgroup of this process.
    pub own_cgroup: Option<String>,
    /// The kernel's controls for the cgroups of the daemon's containers.
    pub containers: BTreeMap<String, Controls>,
    /// The units that update a node, as systemd knows them.
    pub units: Vec<UnitActivity>,
    /// Title of rpm-ostree's running transaction.
    pub transaction: Option<String>,
    /// The deployment that waits for the next reboot, with the evidence of what staged it.
    pub staged: Option<StagedEvidence>,
    /// True if a soft reboot into a deployment is prepared.
    pub soft_reboot: bool,
    /// A shutdown is scheduled.
    pub shutdown: bool,
    /// Why systemd gave no answer, so that `units` are unknown.
    pub silence: Option<String>,
}

/// The kernel's abilities for a cgroup and all below it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Controls {
    /// The processes can be frozen.
    pub freeze: bool,
    /// All its processes can be killed at once (kernel 5.14 and later).
    pub kill: bool,
}

/// A process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Process id of the parent.
    pub parent: u32,
    /// Command line; empty for kernel threads.
    pub args: Vec<String>,
    /// Path of the cgroup (version 2).
    pub cgroup: Option<String>,
}

impl Process {
    /// Returns the program's name without directories.
    pub fn program(&self) -> &str {
        let first = self.args.first().map_or("", String::as_str);
        first.rsplit('/').next().unwrap_or(first)
    }

    /// Returns true for a bootc or an ostree that stages, or changes what the next boot enters. Neither has a transaction by which
    /// others could be notified.
    pub fn changes_deployments(&self) -> bool {
        let word = |at: usize| self.args.get(at).map_or("", String::as_str);
        match self.program() {
            "bootc" => BOOTC_WORK.contains(&word(1)),
            "ostree" => {
                word(1) == "admin"
                    && OSTREE_WORK.contains(&word(2))
                    && self.sysroot_argument().is_none_or(is_own_sysroot)
            }
            _ => false,
        }
    }

    /// Returns the value of `--sysroot`.
    fn sysroot_argument(&self) -> Option<&str> {
        let pairs = self.args.iter().zip(self.args.iter().skip(1));
        let apart = pairs.filter(|(option, _)| *option == "--sysroot");
        let mut apart = apart.map(|(_, value)| value.as_str());
        let joined = self.args.iter();
        let mut joined = joined.filter_map(|word| word.strip_prefix("--sysroot="));
        joined.next().or_else(|| apart.next())
    }
}

/// Commands of bootc that stage, or change what the next boot enters.
const BOOTC_WORK: [&str; 6] = [
    "switch",
    "upgrade",
    "update",
    "rollback",
    "edit",
    "loader-entries",
];

/// The same of `ostree admin`.
const OSTREE_WORK: [&str; 9] = [
    "cleanup",
    "deploy",
    "kargs",
    "pin",
    "set-default",
    "set-origin",
    "switch",
    "undeploy",
    "upgrade",
];

/// Returns true if `--sysroot` names the running system, and not a mounted disk.
fn is_own_sysroot(path: &str) -> bool {
    matches!(path.trim_end_matches('/'), "" | "/sysroot")
}

/// Returns a process that changes deployments, if one runs.
///
/// # Errors
/// The processes cannot be listed.
pub fn deployments_changer() -> Result<Option<Process>, RootError> {
    let mut all = list_processes()?.into_iter();
    Ok(all.find(Process::changes_deployments))
}

/// Returns true if a process waits for the lock of the sysroot, which another one has, whatever its name: every bootc takes it, also
/// one that only asks. The kernel lists who waits with an arrow, for the inode.
///
/// # Errors
/// The lock's file or the kernel's list cannot be read.
pub fn is_sysroot_lock_awaited(root: &Root) -> Result<bool, Reason> {
    let lock = RootPath::fixed(paths::SYSROOT_LOCK);
    let read = root.read_with_stat(&lock, 1);
    let Some((_, stat)) = read.map_err(Reason::from_error)? else {
        return Ok(false);
    };
    let locks = running::read_text("/proc/locks");
    let locks = locks.map_err(|error| format!("/proc/locks: {error}"))?;
    let inode = format!(":{}", stat.st_ino);
    let waits = |line: &str| {
        line.contains(": -> ") && line.split_whitespace().any(|word| word.ends_with(&inode))
    };
    Ok(locks.lines().any(waits))
}

/// Returns the cgroup of the whole container from the cgroup of one of its processes: some runtimes (crun) put processes into a
/// cgroup below the container's own.
pub fn container_of(cgroup: &str) -> Option<&str> {
    let (pods, _) = cgroup.match_indices("/kubepods").next()?;
    let (end, scope) = cgroup
        .get(pods..)?
        .match_indices(".scope")
        .find(|(at, scope)| {
            let rest = cgroup.get(pods + at + scope.len()..);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })?;
    cgroup.get(..pods + end + scope.len())
}

impl Activity {
    /// Reads the activity of the running system, if the root is its root.
    ///
    /// # Errors
    /// The root or the list of processes cannot be read.
    pub fn observe(root: &Root, runner: &dyn CommandRunner) -> Result<Self, RootError> {
        if !root.is_live() {
            return Ok(Self::default());
        }
        // Early in a boot there is no bus. rpm-ostree would wait for it, but no transaction can run without it either.
        let has_systemd = systemd_runs(root);
        let is_early = has_systemd && !root.exists(&RootPath::fixed(paths::SYSTEM_BUS))?;
        let mut silence = None;
        let transaction = if is_early {
            None
        } else {
            rpm_ostree::running_transaction(runner).unwrap_or_else(|error| {
                // The plan names the silence of the engine.
                log::info!("querying rpm-ostree: {error}");
                None
            })
        };
        let units = systemctl::query_activity(runner, &UNITS).unwrap_or_else(|error| {
            log::info!("querying systemd: {error}");
            // Without systemd there are no units.
            silence = has_systemd.then(|| error.to_string());
            Vec::new()
        });
        let processes = list_processes()?;
        let containers = of_daemons(&processes).into_iter();
        Ok(Self {
            containers: containers
                .map(|cgroup| {
                    let controls = read_controls(&cgroup);
                    (cgroup, controls)
                })
                .collect(),
            processes,
            own_cgroup: cgroup_of("self"),
            units,
            transaction,
            staged: StagedEvidence::observe(root, runner)?,
            soft_reboot: booted::soft_marker(root)? == SoftMarker::Prepared,
            shutdown: root.exists(&RootPath::fixed(paths::SCHEDULED_SHUTDOWN))?,
            silence,
        })
    }
}

/// Returns true if a process with the daemon's name is running. Always false on a root that is not live.
///
/// # Errors
/// The processes cannot be listed.
pub fn daemon_runs(root: &Root) -> Result<bool, RootError> {
    let all = processes_of(root)?;
    Ok(all.iter().any(|process| process.program() == DAEMON))
}

/// Returns the containers of the daemon; empty on a root that is not live.
///
/// # Errors
/// The processes cannot be listed.
pub fn daemon_containers(root: &Root) -> Result<Vec<String>, RootError> {
    Ok(of_daemons(&processes_of(root)?))
}

fn processes_of(root: &Root) -> Result<Vec<Process>, RootError> {
    if root.is_live() {
        list_processes()
    } else {
        Ok(Vec::new())
    }
}

fn of_daemons(processes: &[Process]) -> Vec<String> {
    let daemons = processes.iter().filter(|one| one.program() == DAEMON);
    let containers = daemons.filter_map(|one| container_of(one.cgroup.as_deref()?));
    containers.map(str::to_owned).collect()
}

/// Lists the processes of this machine.
///
/// # Errors
/// `/proc` cannot be read. The library then shows no process, not even this one.
fn list_processes() -> Result<Vec<Process>, RootError> {
    let unread = || RootError::at("/proc", Errno::EIO);
    let mut system = System::new().map_err(|_| unread())?;
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
        cgroup: cgroup_of(&process.pid().to_string()),
    };
    let mut all: Vec<Process> = all.map(process).collect();
    all.order_by_key(|process| process.pid);
    let own = std::process::id();
    if all.iter().any(|process| process.pid == own) {
        Ok(all)
    } else {
        Err(unread())
    }
}

fn cgroup_of(process: &str) -> Option<String> {
    let text = running::read_text(format!("/proc/{process}/cgroup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(line.to_owned())
}

/// Mount points of cgroup version 2, alone or next to version 1.
const CGROUP_MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// Returns the directory of a cgroup if it exists and can be frozen. The path may come from a journal, so `..` is refused.
pub fn cgroup_directory(cgroup: &str) -> Option<PathBuf> {
    let relative = cgroup.strip_prefix('/')?;
    let climbs = |part: &str| matches!(part, "" | "." | "..");
    if relative.split('/').any(climbs) {
        return None;
    }
    let places = CGROUP_MOUNTS.iter();
    let mut places = places.map(|mount| Path::new(mount).join(relative));
    places.find(|dir| running::exists(dir.join("cgroup.freeze")))
}

fn read_controls(cgroup: &str) -> Controls {
    let dir = cgroup_directory(cgroup);
    Controls {
        freeze: dir.is_some(),
        kill: dir.is_some_and(|dir| running::exists(dir.join("cgroup.kill"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_named_by_its_scope_whatever_is_below() {
        let pod = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice";
        let scope = format!("{pod}/crio-0a.scope");
        for cgroup in ["", "/container", "/container/init.scope"] {
            let found = format!("{scope}{cgroup}");
            assert_eq!(container_of(&found), Some(scope.as_str()), "{cgroup}");
        }
        for none in [
            pod,
            "/",
            "/user.slice/session-1.scope",
            "/kubepods.slice/a.scoped/b",
            "/system.slice/machine-config-daemon.service",
        ] {
            assert_eq!(container_of(none), None, "{none}");
        }
    }

    #[test]
    fn ostree_on_a_mounted_disk_changes_nothing_here() {
        for (line, changes) in [
            ("/usr/bin/ostree admin deploy os", true),
            ("ostree admin deploy --sysroot=/ os", true),
            ("ostree admin deploy --sysroot /sysroot os", true),
            ("ostree admin deploy --sysroot=/mnt/sysroot os", false),
            ("ostree admin undeploy --sysroot /mnt 1", false),
            ("ostree admin status", false),
            ("bootc switch image", true),
        ] {
            let process = Process {
                pid: 7,
                parent: 1,
                args: line.split(' ').map(str::to_owned).collect(),
                cgroup: None,
            };
            assert_eq!(process.changes_deployments(), changes, "{line}");
        }
    }

    #[test]
    fn no_path_leads_out_of_the_hierarchy() {
        for bad in ["", "/", "a", "/../etc", "/a/../..", "//a", "/a/./b"] {
            assert_eq!(cgroup_directory(bad), None, "{bad:?}");
        }
    }
}
