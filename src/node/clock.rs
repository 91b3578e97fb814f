//! The system's time, and every other source of time on the node.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::base::paths;
use crate::host::root::{Root, RootPath};
use crate::host::running;

/// The clocks, and known moments of the past.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Clock {
    /// Seconds since 1970, by the clock of the running system.
    pub now: u64,
    /// The hardware clock as UTC, in seconds since 1970; `None` if the kernel has none.
    pub board: Option<u64>,
    /// Moments that have certainly passed.
    pub passed: Vec<PastMoment>,
    /// The clock of the server.
    pub server: Option<Heard>,
    /// The reason why the server was not queried in this run.
    pub server_unseen: Option<String>,
}

/// A server's time, with this machine's time at the same moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    /// Name of the server, or the file that stores an earlier answer.
    pub place: String,
    /// The server's time, in seconds since 1970.
    pub said: u64,
    /// This machine's time at that moment; `None` if another machine received the answer.
    pub own: Option<u64>,
    /// The answer was received in this run, not read from a file.
    pub now: bool,
}

/// A known moment of the past.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastMoment {
    /// The source of the moment.
    pub place: String,
    /// The event at that moment.
    pub what: &'static str,
    /// Seconds since 1970.
    pub at: u64,
    /// Measured by another clock, not this node's.
    pub foreign: bool,
}

/// Files that a running node rewrites now and then.
const WRITTEN: [&str; 7] = [
    paths::CURRENT_CONFIG,
    paths::NODE_ANNOTATIONS_KEPT,
    paths::STATUS,
    paths::KUBELET_KUBECONFIG,
    "etc/machine-id",
    "var/lib/systemd/timesync/clock",
    "var/lib/chrony/drift",
];

/// Reads the clocks of the running system, and the modification times of the root's files.
pub fn read_clock(root: &Root) -> Clock {
    Clock {
        now: read_system_time(),
        board: root.is_live().then(read_board).flatten(),
        passed: WRITTEN
            .iter()
            .filter_map(|path| written_time(root, path))
            .collect(),
        ..Clock::default()
    }
}

/// Returns the seconds since 1970 by the clock of the running system.
pub fn read_system_time() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map(|since| since.as_secs()).unwrap_or_default()
}

fn read_board() -> Option<u64> {
    let text = running::read_text("/sys/class/rtc/rtc0/since_epoch").ok()?;
    text.trim().parse().ok()
}

fn written_time(root: &Root, path: &'static str) -> Option<PastMoment> {
    let path = RootPath::fixed(path);
    let stat = root.stat(&path).ok()??;
    Some(PastMoment {
        place: path.to_string(),
        what: "was written",
        at: u64::try_from(stat.st_mtime).ok()?,
        foreign: false,
    })
}
