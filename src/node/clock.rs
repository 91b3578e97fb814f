//! What time it is, and everybody at hand who tells something of it.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::paths;
use crate::root::{Root, RootPath};

/// The time, and what speaks for and against it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Clock {
    /// Seconds since 1970, by the clock of the running system.
    pub now: u64,
    /// The clock of the board, where the kernel shows one; seconds since 1970, taken as UTC.
    pub board: Option<u64>,
    /// Moments that have passed for sure.
    pub passed: Vec<Moment>,
    /// What the clock of a server said.
    pub server: Option<Heard>,
    /// Why it was not heard now.
    pub server_unseen: Option<String>,
}

/// What somebody else's clock said, beside that of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    /// Who said it; of what was heard before, the file that keeps it.
    pub place: String,
    /// Seconds since 1970.
    pub said: u64,
    /// By the clock of this machine at that moment; nothing where another machine heard it.
    pub own: Option<u64>,
    /// Just now, not before.
    pub now: bool,
}

/// A moment that a file tells of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moment {
    /// What tells of it.
    pub place: String,
    /// What happened then.
    pub what: &'static str,
    /// Seconds since 1970.
    pub at: u64,
    /// Somebody else's clock said so, not this node's.
    pub foreign: bool,
}

/// Files that are written now and then while a node runs.
const WRITTEN: [&str; 7] = [
    paths::CURRENT_CONFIG,
    paths::NODE_ANNOTATIONS_KEPT,
    paths::STATUS,
    paths::KUBELET_KUBECONFIG,
    "etc/machine-id",
    "var/lib/systemd/timesync/clock",
    "var/lib/chrony/drift",
];

/// Reads the clocks of the running system, and when files of the root were written.
pub fn read(root: &Root) -> Clock {
    Clock {
        now: now(),
        board: root.is_live().then(board).flatten(),
        passed: WRITTEN
            .iter()
            .filter_map(|path| written(root, path))
            .collect(),
        ..Clock::default()
    }
}

/// Seconds since 1970 by the clock of the running system.
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map(|since| since.as_secs()).unwrap_or_default()
}

#[allow(
    clippy::disallowed_methods,
    reason = "sysfs of the running kernel, not a path of the node's root"
)]
fn board() -> Option<u64> {
    let text = std::fs::read_to_string("/sys/class/rtc/rtc0/since_epoch").ok()?;
    text.trim().parse().ok()
}

fn written(root: &Root, path: &'static str) -> Option<Moment> {
    let path = RootPath::fixed(path);
    let stat = root.place(&path).ok()??.stat().ok()??;
    Some(Moment {
        place: path.to_string(),
        what: "was written",
        at: u64::try_from(stat.st_mtime).ok()?,
        foreign: false,
    })
}
