//! Cleaning up after a run: what it replaced goes to the history, and its staged names are removed.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::sys::stat::fstat;

use crate::base::invocation::mco_rescue;
use crate::base::paths;
use crate::base::reason::Reason;
use crate::host::root::{Place, Root, RootPath};

use super::boot::settle_boot;
use super::capsules::remember_taken;
use super::execute::Stages;
use super::history::{prune_history, remove_history};
use super::journal::{Journal, JournalStep, away_name, is_staged_name, new_name, old_name};
use super::leavings::{empty_directory, history_path, open_own, remove_if_empty, remove_staged};
use super::recover_error::RecoverError;
use super::state::{StateDirectory, StateError};
use super::{disk, strays as stray_stages};

/// Moves, after the `committed` mark, backup copies to the history and removes staged names.
///
/// # Errors
/// Something is left. It does not change the result of the run, and the next run tries again.
pub(super) fn tidy_up(
    root: &Root,
    state: &StateDirectory,
    journal: &Journal,
    stages: &[RootPath],
) -> Result<(), RecoverError> {
    settle_boot(root, journal);
    remember_taken(root, journal)?;
    keep_trees(root, journal)?;
    forget_undone(root, journal)?;
    close_run(root, state, stages, Some(journal))
}

/// Logs an error of cleaning up: it does not change the result, and the next run tries again.
pub(super) fn warn_only(result: Result<(), RecoverError>) {
    if let Err(error) = result {
        log::warn!("tidying up: {error}. Next: {}", mco_rescue("recover"));
    }
}

/// Moves, after the `committed` mark, replaced directories to the history. If that is on another mount, it has had a copy since
/// they were staged; whatever has changed in them since is copied again.
///
/// # Errors
/// A transient error, such as an I/O error: nothing is deleted, and the next run tries again.
pub(super) fn keep_trees(root: &Root, journal: &Journal) -> Result<(), RecoverError> {
    let failed = |path: &RootPath, reason: Reason| StateError::System(path.to_string(), reason);
    let history = history_path(&journal.id);
    let history = open_own(root, &history).map_err(|e| failed(&history, e))?;
    let steps = journal.steps.iter().enumerate();
    for (index, step) in steps.filter(|(_, step)| step.step.exchanges_directory()) {
        let Some(path) = journal.stages.get(step.stage) else {
            continue;
        };
        let Some(stage) = open_own(root, path).map_err(|e| failed(path, e))? else {
            continue;
        };
        let name = new_name(index);
        let kept = history.as_ref().map_or(Err(Errno::EXDEV), |history| {
            disk::rename_across(stage.as_fd(), &name, history.as_fd(), &old_name(index))
        });
        match kept {
            Ok(()) => {}
            Err(errno) if is_transient(errno) => return Err(failed(path, errno.into()).into()),
            Err(Errno::EXDEV) => {
                let kept = keep_across(&stage, history.as_ref(), index, step);
                kept.map_err(|reason| failed(path, reason))?;
            }
            Err(_) => remove_for_good(&stage, &name, step),
        }
    }
    Ok(())
}

/// Removes a tree whose copy is in the history; an interrupted run continues where it was.
fn keep_across(
    stage: &File,
    history: Option<&File>,
    index: usize,
    step: &JournalStep,
) -> Result<(), Reason> {
    let (name, away) = (new_name(index), away_name(index));
    if place_in(stage, &name)?.stat()?.is_some() {
        if let Some(history) = history {
            copy_again(stage, history, index, step);
        }
        // From here on, an incomplete tree is not taken for the complete one.
        disk::rename_across(stage.as_fd(), &name, stage.as_fd(), &away)?;
    }
    remove_for_good(stage, &away, step);
    // After a power cut only the journal describes it, and the journal is removed next.
    Ok(disk::sync_file_system(stage)?)
}

/// Replaces the earlier copy with the tree as it was when it was replaced; if that fails, the earlier copy is kept. One of the
/// two exists at any time.
fn copy_again(stage: &File, history: &File, index: usize, step: &JournalStep) {
    let (kept, fresh) = (old_name(index), away_name(index));
    // A run that was killed here has left an incomplete copy.
    let copied = disk::remove_tree(history.as_fd(), fresh.as_str()).map_err(Reason::from);
    let replaced = copied.and_then(|()| {
        let tree = place_in(stage, &new_name(index))?;
        disk::copy_tree(&tree, history.as_fd(), &fresh, true)?;
        disk::sync_file_system(history)?;
        disk::exchange_names(history.as_fd(), &fresh, &place_in(history, &kept)?)?;
        Ok(disk::sync_directory(history)?)
    });
    if let Err(reason) = replaced {
        let path = step.step.path();
        log::warn!("keeping what changed in {path} while the run was made ready: {reason}");
    }
    if let Err(errno) = disk::remove_tree(history.as_fd(), fresh.as_str()) {
        log::warn!("removing {fresh} of the history: {}", Reason::from(errno));
    }
}

fn place_in(dir: &File, name: &str) -> std::io::Result<Place> {
    let dir = dir.as_fd().try_clone_to_owned()?;
    Ok(Place {
        dir: dir.into(),
        name: name.to_owned(),
    })
}

fn is_transient(errno: Errno) -> bool {
    use Errno::{EDQUOT, EINTR, EIO, ENOMEM, ENOSPC, EROFS};
    matches!(errno, EDQUOT | EINTR | EIO | ENOMEM | ENOSPC | EROFS)
}

fn remove_for_good(stage: &File, name: &str, step: &JournalStep) {
    if let Err(errno) = disk::remove_tree(stage.as_fd(), name) {
        let reason = Reason::from(errno);
        log::warn!("removing what was at {}: {reason}", step.step.path());
    }
}

/// Removes, after the `committed` mark, the reverted run from the history, so that the next `rollback` goes further back.
///
/// # Errors
/// Part of it is left: a later `rollback` would take it for the newest run. The next run tries again.
pub(super) fn forget_undone(root: &Root, journal: &Journal) -> Result<(), RecoverError> {
    match &journal.undoes {
        Some(undone) if !remove_history(root, &history_path(undone)) => {
            Err(RecoverError::LeftOvers)
        }
        _ => Ok(()),
    }
}

/// Moves the journal of a run to its backup copies in the history. A run that reverted another one leaves nothing there: what it
/// reverted is the config's own, and can be applied again.
fn end_journal(root: &Root, state: &StateDirectory, journal: &Journal) -> Result<(), RecoverError> {
    let history = history_path(&journal.id);
    if journal.undoes.is_some() {
        if !remove_history(root, &history) {
            return Err(RecoverError::LeftOvers);
        }
        return Ok(state.unlink_file(paths::JOURNAL)?);
    }
    let failed = |reason| StateError::System(history.to_string(), reason);
    let Some(kept) = open_own(root, &history).map_err(failed)? else {
        // Left in place, it would always be taken for an unfinished run.
        log::warn!("{history} is missing, so this run cannot be reverted");
        return Ok(state.unlink_file(paths::JOURNAL)?);
    };
    let name = RootPath::fixed(paths::JOURNAL);
    let (from, name) = (state.dir().as_fd(), name.name());
    disk::rename_across(from, name, kept.as_fd(), name)
        .map_err(|errno| StateError::System(name.to_owned(), errno.into()).into())
}

/// Sweeps after the `committed` mark, then removes journal and intent; an earlier attempt may have ended the journal. All of this
/// becomes durable with a later sync; the next run redoes what a power cut undoes.
pub(super) fn close_run(
    root: &Root,
    state: &StateDirectory,
    stages: &[RootPath],
    journal: Option<&Journal>,
) -> Result<(), RecoverError> {
    let swept = sweep_all(root, stages);
    // Whatever another file system loses of this is found again by its location and name.
    let swept =
        swept && (stray_stages::are_searched(root, stages) || flush_others(root, state, stages));
    if let Some(journal) = journal {
        end_journal(root, state, journal)?;
    }
    forget_intent(state, swept)?;
    // Last: a journal without the mark would be taken for an unfinished run. A mark alone means nothing.
    state.unlink_file(paths::COMMITTED)?;
    if let Err(error) = prune_history(root) {
        log::warn!("removing old runs from the history: {error}");
    }
    Ok(())
}

/// Removes staged names, history and intent of a run that changed no name.
pub(super) fn discard_run(
    root: &Root,
    state: &StateDirectory,
    id: &str,
    stages: &[RootPath],
) -> Result<(), RecoverError> {
    let swept = sweep_all(root, stages) & remove_history(root, &history_path(id));
    let swept = swept && flush_others(root, state, stages);
    state.sweep_temporaries(root);
    forget_intent(state, swept)?;
    Ok(state.sync_names()?)
}

/// Removes the intent, unless staged names are left: a later run finds them by the intent.
pub(super) fn forget_intent(state: &StateDirectory, swept: bool) -> Result<(), RecoverError> {
    if swept {
        Ok(state.unlink_file(paths::INTENT)?)
    } else {
        Err(RecoverError::LeftOvers)
    }
}

pub(super) fn sweep_all(root: &Root, stages: &[RootPath]) -> bool {
    let swept = stages
        .iter()
        .map(|stage| empty_directory(root, stage, is_staged_name, remove_staged));
    let all = swept.fold(true, |all, one| all & one);
    all & remove_if_empty(root, &RootPath::fixed(paths::STAGE))
}

/// Syncs the file systems whose staged names were removed, except that of the state: there, no removal is durable after that of
/// the intent. If another file system lost a removal in a power cut, no later run would find the names.
fn flush_others(root: &Root, state: &StateDirectory, stages: &[RootPath]) -> bool {
    let Ok(own) = fstat(state.dir()) else {
        return false;
    };
    let mut done = BTreeSet::from([own.st_dev]);
    let parents: BTreeSet<Option<RootPath>> = stages.iter().map(RootPath::parent).collect();
    parents.iter().all(|parent| {
        let flushed = flush_parent(root, parent.as_ref(), &mut done);
        if let Err(reason) = &flushed {
            let shown = parent.as_ref().map_or("/".to_owned(), RootPath::to_string);
            log::warn!("flushing the file system of {shown}: {reason}");
        }
        flushed.is_ok()
    })
}

fn flush_parent(
    root: &Root,
    dir: Option<&RootPath>,
    done: &mut BTreeSet<u64>,
) -> Result<(), Reason> {
    let dir = match dir {
        Some(path) => match root.open_directory(path) {
            Ok(Some(dir)) => dir,
            Ok(None) => return Ok(()),
            Err(error) if error.cause.is_obstacle() => return Ok(()),
            Err(error) => return Err(error.into()),
        },
        None => root.as_fd().try_clone_to_owned()?,
    };
    if done.insert(fstat(&dir)?.st_dev) {
        disk::sync_file_system(disk::open_directory(dir.as_fd(), ".")?)?;
    }
    Ok(())
}

pub(super) fn union_of(a: &[RootPath], b: &[RootPath]) -> Vec<RootPath> {
    a.iter()
        .chain(b.iter().filter(|path| !a.contains(path)))
        .cloned()
        .collect()
}

pub(super) fn sync_all(stages: &Stages<'_>) -> Result<(), RecoverError> {
    stages.iter().flatten().try_for_each(|dir| {
        disk::sync_file_system(dir).map_err(|errno| RecoverError::Sync(errno.into()))
    })
}
