//! The finished runs in the history: their list, their order, and what is removed of them.

use crate::base::order::StableOrder;
use crate::base::paths;
use crate::base::reason::Reason;
use crate::change::plan::FinishedRun;
use crate::host::root::{Root, RootError, RootPath};

use super::journal::{Journal, is_staged_name};
use super::leavings::{empty_directory, history_path, open_own, remove_if_empty};
use super::lock::Lock;
use super::recover_error::ForgetError;
use super::state::{self, StateError};
use super::{HISTORY_KEPT, disk};

/// Returns the names of the history's directories, oldest first; empty without a history.
///
/// # Errors
/// The history cannot be read: it is then not empty.
pub(super) fn history_names(root: &Root) -> Result<Vec<String>, StateError> {
    let path = RootPath::fixed(paths::HISTORY);
    let all = root.list(&path);
    let mut names = all.map_err(|error| StateError::System(path.to_string(), error.into()))?;
    names.order_by_key(|name| id_order(name));
    Ok(names)
}

/// Returns the numbers in an id, for sorting. The clock may have begun at 1970, so ids do not sort as text.
pub fn id_order(id: &str) -> (u128, u64) {
    let (time, process) = id.split_once('-').unwrap_or((id, ""));
    (
        time.parse().unwrap_or_default(),
        process.parse().unwrap_or_default(),
    )
}

/// Returns the finished runs that can be reverted, newest first.
///
/// # Errors
/// The history or a journal in it cannot be read: continuing with an older run would revert the wrong one.
pub fn read_history(root: &Root) -> Result<Vec<FinishedRun>, StateError> {
    let all = RootPath::fixed(paths::HISTORY);
    let names = history_names(root)?;
    let runs = names.iter().rev().map(|id| finished_run(root, &all, id));
    runs.filter_map(Result::transpose).collect()
}

fn finished_run(root: &Root, all: &RootPath, id: &str) -> Result<Option<FinishedRun>, StateError> {
    let damaged = |error: &dyn std::fmt::Display| {
        StateError::Damaged(format!("history/{id}"), error.to_string())
    };
    let failed = |error: RootError| StateError::System(error.path.clone(), error.into());
    let objects = all.join(id).map_err(|e| damaged(&e))?;
    let name = RootPath::fixed(paths::JOURNAL);
    let path = objects.join(name.name()).map_err(|e| damaged(&e))?;
    let Some(bytes) = root.read(&path).map_err(failed)? else {
        return Ok(None);
    };
    let journal: Journal =
        state::parse_file(&bytes).map_err(|error| error.of_file(&format!("history/{id}")))?;
    Ok(journal
        .undoes
        .is_none()
        .then(|| as_finished_run(journal, objects)))
}

fn as_finished_run(journal: Journal, objects: RootPath) -> FinishedRun {
    let steps = journal.steps.into_iter();
    FinishedRun {
        id: journal.id,
        config: journal.config.name,
        by: journal.by,
        objects,
        held: journal.held,
        jobs: journal.jobs,
        steps: steps.map(|step| (step.step, step.section)).collect(),
    }
}

/// Removes a finished run from the history, after which it can no longer be reverted.
///
/// # Errors
/// The lock is not held for writing, or part of the run is left.
pub fn forget_run(root: &Root, lock: &Lock, id: &str) -> Result<(), ForgetError> {
    lock.require_writable()?;
    if remove_history(root, &history_path(id)) {
        Ok(())
    } else {
        Err(ForgetError::Left(id.to_owned()))
    }
}

/// Removes the directory of a run in the history. Returns false if part of it is left.
pub(super) fn remove_history(root: &Root, directory: &RootPath) -> bool {
    let journal = RootPath::fixed(paths::JOURNAL);
    let is_ours = |name: &str| is_staged_name(name) || name == journal.name() || name == GIVEN_UP;
    let emptied = empty_directory(root, directory, is_ours, |dir, name| {
        disk::remove_tree(dir, name)
    });
    emptied & remove_if_empty(root, &RootPath::fixed(paths::HISTORY))
}

/// Removes all but the newest runs from the history.
pub(super) fn prune_history(root: &Root) -> Result<(), StateError> {
    let history = RootPath::fixed(paths::HISTORY);
    let names = history_names(root)?;
    for name in names.iter().rev().skip(HISTORY_KEPT) {
        if let Ok(directory) = history.join(name) {
            remove_history(root, &directory);
        }
    }
    Ok(())
}

/// Name of the file that marks the backup copies of a run that was given up: they have no journal, and are kept.
const GIVEN_UP: &str = "given-up";

/// Marks the backup copies below a path. Returns false if there are none. The run is given up even on a full disk.
pub(super) fn mark_given_up(root: &Root, path: &RootPath) -> bool {
    let marked = match open_own(root, path) {
        Ok(None) => return false,
        Ok(Some(dir)) => disk::replace_durably(&dir, GIVEN_UP, b"").map_err(Reason::from),
        Err(reason) => Err(reason),
    };
    if let Err(reason) = marked {
        log::warn!("marking {path} to be kept: {reason}");
    }
    true
}

/// Removes the backup copies of a run that changed no name, and whose intent is lost.
pub(super) fn sweep_unnamed_history(root: &Root) -> Result<(), StateError> {
    let all = RootPath::fixed(paths::HISTORY);
    let journal = RootPath::fixed(paths::JOURNAL);
    let paths = history_names(root)?
        .into_iter()
        .filter_map(|id| all.join(&id).ok());
    for path in paths {
        let has = |name: &str| {
            let found = path.join(name).ok().map(|path| root.exists(&path));
            !matches!(found, Some(Ok(false)))
        };
        if !has(journal.name()) && !has(GIVEN_UP) {
            remove_history(root, &path);
        }
    }
    Ok(())
}
