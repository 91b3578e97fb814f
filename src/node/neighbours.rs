//! Anything else that changes this node apart from its daemon: a prepared soft reboot, and programs that own a part of it.

use serde::Deserialize;

use crate::base::paths;
use crate::base::reason::Reason;
use crate::host::root::{Root, RootError, RootPath, stat_of_open};
use crate::node::command::{CommandRunner, systemctl};
use crate::node::kernel::{kernel_command_line, read_uptime};

use super::booted::{self, SoftMarker};
use super::deploy_directories::{self, DeployDirectory};
use super::host::{self, Host};

/// The units of Pacemaker, and those that it starts and stops on a cluster of two nodes with fencing.
const FENCED: [&str; 5] = [
    "kubelet.service",
    "etcd.service",
    "corosync.service",
    "pacemaker.service",
    "pcsd.service",
];

/// Facts about the node; those about running programs are missing for a root that is not live.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Neighbours {
    /// A soft reboot is prepared.
    pub soft_prepared: bool,
    /// A soft reboot succeeded, but its marker was not removed.
    pub soft_left_over: bool,
    /// The node was installed or upgraded from a seed image (IBI, IBU).
    pub image_based: Option<ImageBased>,
    /// Pacemaker manages kubelet and etcd: a cluster of two nodes with fencing.
    pub fencing: bool,
}

/// A node from a seed image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageBased {
    /// Evidence for it.
    pub evidence: String,
    /// Stateroots other than the running one, to which an upgrade can be rolled back.
    pub stateroots: Vec<String>,
    /// The unit that rolls back an upgrade, if it is active, or the reason why this is unknown.
    pub monitor: Result<Option<Monitor>, Reason>,
}

/// `lca-init-monitor.service`: it boots the other stateroot if the upgrade is not completed in time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Monitor {
    /// Its time limit, in seconds.
    pub timeout: u64,
    /// The remaining seconds; `None` if its start time is unknown.
    pub left: Option<u64>,
}

/// The name of the monitor.
pub const MONITOR: &str = "lca-init-monitor.service";
/// The default time limit, in seconds.
const DEFAULT_TIMEOUT: u64 = 30 * 60;

impl Neighbours {
    /// Reads them.
    ///
    /// # Errors
    /// A path cannot be read.
    pub fn observe(
        root: &Root,
        host: &Host,
        runner: &dyn CommandRunner,
    ) -> Result<Self, RootError> {
        Ok(Self {
            soft_prepared: super::boot::is_soft_prepared(root),
            soft_left_over: root.is_live() && booted::soft_marker(root)? == SoftMarker::LeftOver,
            image_based: image_based(root, host, runner)?,
            fencing: has_fencing(root)?,
        })
    }
}

/// Returns true if Pacemaker manages kubelet and etcd, that is, if its cluster is set up. Before that, the kubelet is enabled
/// as usual.
///
/// # Errors
/// A path cannot be read.
pub fn has_fencing(root: &Root) -> Result<bool, RootError> {
    root.exists(&RootPath::fixed(paths::COROSYNC))
}

/// Returns true for a unit that Pacemaker starts and stops.
pub fn is_fenced(unit: &str) -> bool {
    FENCED.contains(&unit)
}

/// Returns evidence that recert rewrote certificates and text in the node's config in place, so that the hash in the config's
/// name proves nothing.
///
/// # Errors
/// A path cannot be read.
pub fn image_based_evidence(root: &Root, host: &Host) -> Result<Option<String>, RootError> {
    let words = host.live.then(kernel_command_line).flatten();
    let words = words.unwrap_or_default();
    if let Some(word) = words
        .split_whitespace()
        .find(|word| word.starts_with("ibu="))
    {
        return Ok(Some(format!("kernel argument {word}")));
    }
    if root.exists(&RootPath::fixed(paths::LIFECYCLE_AGENT))? {
        return Ok(Some(format!("/{}", paths::LIFECYCLE_AGENT)));
    }
    let own = own_stateroot(
        root,
        host,
        &deploy_directories::list_deploy_directories(root)?,
    );
    let named = own.filter(|name| name.starts_with("rhcos_"));
    Ok(named.map(|name| format!("stateroot {name}")))
}

/// Returns the stateroot of the root's deployment; `None` if the deployment is unknown. Several stateroots can have the same
/// commit.
pub fn own_stateroot(root: &Root, host: &Host, all: &[DeployDirectory]) -> Option<String> {
    let linked = booted::ostree_link().filter(|_| host.live);
    let linked = linked.and_then(|link| link.split('/').nth(3).map(str::to_owned));
    let identity = stat_of_open(root.as_fd()).map(|(stat, _)| (stat.st_dev, stat.st_ino));
    let runs = |one: &&DeployDirectory| Some(&one.name) == host.deployment.as_ref();
    let is_root = |one: &&DeployDirectory| identity == Ok(one.identity);
    let named = all.iter().filter(runs);
    let own = named.clone().find(is_root).or_else(|| named.clone().next());
    linked
        .filter(|name| all.iter().any(|one| one.stateroot == *name))
        .or_else(|| own.map(|one| one.stateroot.clone()))
}

/// Returns all stateroots except that of the root's deployment.
fn other_stateroots(root: &Root, host: &Host) -> Result<Vec<String>, RootError> {
    let all = deploy_directories::list_deploy_directories(root)?;
    let own = own_stateroot(root, host, &all);
    let mut others: Vec<String> = all.into_iter().map(|one| one.stateroot).collect();
    others.sort();
    others.dedup();
    others.retain(|name| Some(name) != own.as_ref());
    Ok(others)
}

fn image_based(
    root: &Root,
    host: &Host,
    runner: &dyn CommandRunner,
) -> Result<Option<ImageBased>, RootError> {
    let Some(evidence) = image_based_evidence(root, host)? else {
        return Ok(None);
    };
    let monitor = if host.live && host::systemd_runs(root) {
        find_monitor(root, runner)
    } else {
        Ok(None)
    };
    Ok(Some(ImageBased {
        evidence,
        stateroots: other_stateroots(root, host)?,
        monitor,
    }))
}

/// The keys of its file that are used here.
#[derive(Debug, Default, Deserialize)]
struct MonitorFile {
    #[serde(default)]
    monitor_timeout: u64,
}

fn find_monitor(root: &Root, runner: &dyn CommandRunner) -> Result<Option<Monitor>, Reason> {
    let Some(began) = systemctl::query_start(runner, MONITOR).map_err(Reason::from_error)? else {
        return Ok(None);
    };
    let text = root.read(&RootPath::fixed(paths::AUTO_ROLLBACK));
    let text = text.map_err(Reason::from_error)?;
    let file: MonitorFile = text
        .and_then(|text| serde_json::from_slice(&text).ok())
        .unwrap_or_default();
    let timeout = match file.monitor_timeout {
        0 => DEFAULT_TIMEOUT,
        seconds => seconds,
    };
    let left = began.zip(read_uptime()).map(|(began, now)| {
        let passed = now.saturating_sub(began / 1_000_000);
        timeout.saturating_sub(passed)
    });
    Ok(Some(Monitor { timeout, left }))
}
