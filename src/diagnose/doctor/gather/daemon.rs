//! Gathers the problems of the daemon itself: its log, the API's last answer, and what a killed run left behind.

use anyhow::Result;

use crate::base::paths;
use crate::change::workloads::is_left_stopped;
use crate::diagnose::doctor::daemon::DaemonTroubles;
use crate::host::root::{Root, RootPath};
use crate::judge::daemon::{annotations, complaints};
use crate::node::command::CommandRunner;
use crate::node::host_name::registered_name;

/// Reads the problems.
pub(super) fn read_troubles(root: &Root, runner: &dyn CommandRunner) -> Result<DaemonTroubles> {
    let api = annotations::read_annotations(root)?;
    let named = api.as_ref().map(|api| api.node.clone());
    // The name of the machine that reads a disk is not the name of the node.
    let is_known = root.is_live() || root.exists(&RootPath::fixed(paths::HOSTNAME))?;
    let mut unread_log = Vec::new();
    Ok(DaemonTroubles {
        complaint: complaints::read_complaint(root, &mut unread_log),
        unread_log,
        node: named
            .or_else(|| registered_name(root).ok().filter(|_| is_known))
            .unwrap_or_else(|| "NODE".to_owned()),
        api,
        kubelet_stopped: is_left_stopped(root, runner)?,
    })
}
