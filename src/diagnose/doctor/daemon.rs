//! The evidence about the daemon's own problems: its log, and its state according to the API.

use crate::judge::daemon::annotations::Annotations;
use crate::judge::daemon::complaints::Complaint;

/// The daemon's problems.
#[derive(Debug, Clone, Default)]
pub struct DaemonTroubles {
    /// The failure in its log that is not resolved.
    pub complaint: Option<Complaint>,
    /// Files and directories of its log that could not be read.
    pub unread_log: Vec<String>,
    /// The annotations at the last answer of the API.
    pub api: Option<Annotations>,
    /// Name of the Node.
    pub node: String,
    /// True if a run that was killed during this boot left the kubelet stopped.
    pub kubelet_stopped: bool,
}

impl DaemonTroubles {
    /// Returns true if, after the given time, the API reported that the daemon is done.
    pub fn is_done_after(&self, at: u64) -> bool {
        let api = self.api.as_ref();
        api.is_some_and(|api| {
            api.seen > at && api.state.as_deref() == Some("Done") && api.current == api.desired
        })
    }
}
