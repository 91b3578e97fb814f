//! An unprivileged user on a root of another user: unreadable paths are neither differences nor faults of the node, and paths that
//! cannot be written are reported before anything is tried.

use anyhow::{Result, anyhow, bail};
use nix::unistd::AccessFlags;

use crate::base::error::RunError;
use crate::base::invocation::{node_path, whole_command};
use crate::base::notice::Notice;
use crate::base::paths;
use crate::base::text::count_noun;
use crate::change::plan::{Plan, of_composefs};
use crate::host::root::{Root, RootPath};
use crate::host::sys::privileges;
use crate::node::composefs::composefs_traces;
use crate::node::{Host, NodeState};

/// The access that a command needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessNeed {
    /// The command only reads.
    Read,
    /// The command changes something, or predicts a change.
    Write,
}

/// The advice in all of these cases.
const SUDO: &str = "Run it with sudo";

/// Directories that every command reads, and that every command that changes a node writes.
const KEPT: [&str; 2] = ["etc", paths::STATE];

/// Paths that a run writes in addition to those of its plan.
const WRITTEN: [&str; 3] = [paths::PWD_LOCK, paths::HISTORY, paths::CACHE];

/// Refuses a root to which an unprivileged user has no such access, and refuses to write on a system with bootc's composefs
/// backend.
pub fn expect_access(root: &Root, need: AccessNeed) -> Result<()> {
    if need == AccessNeed::Write
        && let Some(traces) = composefs_traces(root, &Host::observe(root)?)?
    {
        let Notice { subject, message } = of_composefs(&traces);
        bail!("{subject}: {message}. Nothing was changed");
    }
    if privileges::opens_all() {
        return Ok(());
    }
    let read = AccessFlags::R_OK | AccessFlags::X_OK;
    let (access, word) = match need {
        AccessNeed::Read => (read, "read"),
        AccessNeed::Write => (read | AccessFlags::W_OK, "written"),
    };
    let mut kept = KEPT.iter().map(|path| RootPath::fixed(path));
    match kept.find_map(|path| root.closed_at(&path, access)) {
        Some(closed) => {
            bail!(
                "{} cannot be {word} by this user: permission denied. Nothing was changed",
                node_path(&closed.to_string())
            )
        }
        None => Ok(()),
    }
}

/// Refuses to compare if paths could not be read by an unprivileged user.
pub fn expect_read(node: &NodeState) -> Result<()> {
    if privileges::opens_all() {
        return Ok(());
    }
    let denied = |path: &&RootPath| node.obstructed[*path].is_denied();
    let mut denied = node.obstructed.keys().filter(denied);
    let Some(first) = denied.next() else {
        return Ok(());
    };
    let all = count_noun(1 + denied.count(), "path");
    let first = node_path(&first.to_string());
    bail!("{all} cannot be read by this user, such as {first}: permission denied")
}

/// Returns a blocker if an unprivileged user could begin the plan but not complete it.
pub fn denied_writes(root: &Root, node: &NodeState, plan: &Plan) -> Option<Notice> {
    if privileges::opens_all() {
        return None;
    }
    let access = AccessFlags::W_OK | AccessFlags::X_OK;
    let foreign = |path: &RootPath| {
        let owner = node.object(path).map(|object| object.uid);
        owner.is_some_and(|owner| owner != node.host.user.0)
    };
    let steps = plan.steps.iter().map(|planned| planned.step.path());
    let closed = steps.filter(|path| {
        let above = path.parent();
        foreign(path) || above.is_some_and(|above| root.closed_at(&above, access).is_some())
    });
    let ours = WRITTEN.map(RootPath::fixed);
    let ours = ours.iter().filter(|path| root.is_closed_to_writing(path));
    let mut closed = closed.chain(ours.filter(|_| !plan.steps.is_empty()));
    let first = closed.next()?;
    let (all, first) = (
        count_noun(1 + closed.count(), "path"),
        node_path(&first.to_string()),
    );
    Some(Notice::new(
        "permission",
        format!("{all} cannot be written by this user, such as {first}. {SUDO}"),
    ))
}

/// Returns true if the text is about a path that an unprivileged user cannot access.
pub fn is_denied(words: &str) -> bool {
    let words = words.to_lowercase();
    let denied = ["permission denied", "operation not permitted"];
    !privileges::opens_all() && denied.iter().any(|denied| words.contains(denied))
}

/// Adds the advice to use sudo to an error that root would not get.
pub fn explain_access(error: anyhow::Error) -> anyhow::Error {
    let text = format!("{error:#}");
    if text.contains(SUDO) || !is_denied(&text) {
        return error;
    }
    let again = format!("{SUDO}. Next: sudo {}", whole_command());
    let said = format!("{}. {again}", text.trim_end().trim_end_matches('.'));
    match error.downcast_ref::<RunError>() {
        Some(RunError::Incomplete(_)) => RunError::Incomplete(said).into(),
        Some(RunError::RolledBack(why)) => RunError::RolledBack(format!("{why} ({SUDO})")).into(),
        Some(RunError::Declined) | None => anyhow!(said),
    }
}
