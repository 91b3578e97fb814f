//! The evidence about the daemon's own troubles: its log, and what the API said of its state.

use crate::judge::daemon::annotations::Annotations;
use crate::judge::daemon::complaints::Complaint;

/// The daemon's last words.
#[derive(Debug, Clone, Default)]
pub struct DaemonTroubles {
    /// The failure in its log that is not over.
    pub complaint: Option<Complaint>,
    /// The annotations at the last answer of the API.
    pub api: Option<Annotations>,
    /// Name of the Node.
    pub node: String,
    /// A run that was killed in this boot has left the kubelet stopped.
    pub kubelet_stopped: bool,
}

impl DaemonTroubles {
    /// Returns true if the API said later than a time that the daemon is done.
    pub fn is_done_after(&self, at: u64) -> bool {
        let api = self.api.as_ref();
        api.is_some_and(|api| {
            api.seen > at && api.state.as_deref() == Some("Done") && api.current == api.desired
        })
    }
}
