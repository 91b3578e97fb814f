//! What an earlier run left to do, and what its recovery would do. Only reads.

use std::fmt;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use serde::Serialize;

use crate::base::paths;
use crate::base::reason::Reason;
use crate::change::plan::Step;
use crate::host::root::{Root, RootPath};

use super::execute::{Executor, KeptObject, StepError};
use super::journal::{CommitMark, ConfigRef, Intent, Journal, JournalStep};
use super::leavings::history_path;
use super::lock::is_held;
use super::recover_error::RecoverError;
use super::state::{StateDirectory, StateError};
use super::survey::{Direction, Leave, RecoveryChoice, Survey};
use super::{disk, flags, freeze, strays as stray_stages};

/// What an earlier run left to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pending {
    /// Nothing.
    Nothing,
    /// Only staged names: no name of the node was changed.
    Staged(ConfigRef),
    /// A journal: some names may be changed and others not.
    Unfinished(ConfigRef, Option<String>),
    /// Everything is in place; only cleaning up remains.
    Committed(ConfigRef),
}

/// The state of an earlier run, without its config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PendingState {
    /// Nothing is left to do.
    Nothing,
    /// There are staged names.
    Staged,
    /// There is a journal.
    Unfinished,
    /// Only cleaning up remains.
    Committed,
}

impl fmt::Display for PendingState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "nothing",
            Self::Staged => "staged",
            Self::Unfinished => "unfinished",
            Self::Committed => "committed",
        })
    }
}

impl Pending {
    /// Returns the state, and the config of the run.
    pub fn state(&self) -> (PendingState, Option<&ConfigRef>) {
        match self {
            Self::Nothing => (PendingState::Nothing, None),
            Self::Staged(config) => (PendingState::Staged, Some(config)),
            Self::Unfinished(config, _) => (PendingState::Unfinished, Some(config)),
            Self::Committed(config) => (PendingState::Committed, Some(config)),
        }
    }
}

/// The files of an interrupted run in the state directory, as far as they can be read.
pub(super) struct RunFiles {
    pub(super) journal: Option<Journal>,
    /// The mark belongs to the run of the journal or the intent.
    pub(super) committed: bool,
    pub(super) intent: Option<Intent>,
    /// The mark belongs to no run, or cannot be read.
    pub(super) stray_mark: bool,
    /// The intent cannot be read.
    pub(super) lost_intent: bool,
}

impl RunFiles {
    /// Reads the files. A damaged journal is an error, because without it nothing is known about the names. A damaged mark or
    /// intent is not.
    pub(super) fn read_files(root: &Root, state: &StateDirectory) -> Result<Self, StateError> {
        let journal = read_journal(root, state)?;
        let (mark, lost_mark) = or_damaged(state.read_file::<CommitMark>(root, paths::COMMITTED))?;
        let (intent, lost_intent) = or_damaged(state.read_file::<Intent>(root, paths::INTENT))?;
        let ids = [
            journal.as_ref().map(|journal| &journal.id),
            intent.as_ref().map(|intent| &intent.id),
        ];
        let id = ids.into_iter().flatten().next();
        let committed = mark.as_ref().is_some_and(|mark| Some(&mark.id) == id);
        Ok(Self {
            journal,
            committed,
            intent,
            stray_mark: lost_mark || (mark.is_some() && !committed),
            lost_intent,
        })
    }
}

/// Returns the journal of a run that has changed names. A journal without its final name counts if a name of its run has
/// changed, because of two file systems the state's may have lost more in a power cut. Everything listed in it was durable
/// before the first name changed.
pub(super) fn read_journal(
    root: &Root,
    state: &StateDirectory,
) -> Result<Option<Journal>, StateError> {
    match state.read_file(root, paths::JOURNAL)? {
        Some(journal) => Ok(Some(journal)),
        None => match state.read_prepared_journal(root)? {
            Some(journal) if has_begun(root, &journal)? => Ok(Some(journal)),
            _ => Ok(None),
        },
    }
}

/// Returns true if a name or a flag of a run has changed, or may have changed on a file system that is not mounted.
fn has_begun(root: &Root, journal: &Journal) -> Result<bool, StateError> {
    let dirs = open_stages(root, journal)?;
    if dirs.iter().any(Option::is_none) {
        return Ok(true);
    }
    let stages = borrow_stages(&dirs);
    let executor = Executor::new(root, journal, &stages);
    for (index, step) in journal.steps.iter().enumerate() {
        if is_step_taken(&executor, index, step)? {
            return Ok(true);
        }
    }
    flags::are_cleared(root, &journal.held)
        .map_err(|error| StateError::Undecided(error.to_string()))
}

fn is_step_taken(
    executor: &Executor<'_>,
    index: usize,
    step: &JournalStep,
) -> Result<bool, StateError> {
    let taken = executor.is_taken(index, step);
    taken.map_err(|error| StateError::Undecided(error.to_string()))
}

/// Treats a damaged file as missing, and logs it; a file that cannot be read now is an error.
pub(super) fn or_damaged<T>(
    read: Result<Option<T>, StateError>,
) -> Result<(Option<T>, bool), StateError> {
    match read {
        Ok(found) => Ok((found, false)),
        Err(StateError::Damaged(file, why)) => {
            let path = format!("/{}/{file}", paths::STATE);
            log::warn!("{path} is damaged and is skipped: {why}");
            Ok((None, true))
        }
        Err(error) => Err(error),
    }
}

/// Returns what an earlier run left to do on a root; only reads.
pub fn find_pending(root: &Root) -> Result<Pending, StateError> {
    let Some(state) = StateDirectory::open(root)? else {
        return Ok(Pending::Nothing);
    };
    let files = RunFiles::read_files(root, &state)?;
    Ok(match (files.journal, files.committed, files.intent) {
        (Some(journal), true, _) => Pending::Committed(journal.config),
        (Some(journal), false, _) => Pending::Unfinished(journal.config, journal.deployment),
        (None, committed, Some(intent)) if committed || is_closed(root, &intent.id)? => {
            Pending::Committed(intent.config)
        }
        (None, _, Some(intent)) => Pending::Staged(intent.config),
        (None, _, None) if files.lost_intent => Pending::Staged(ConfigRef::unknown()),
        (None, _, None) => Pending::Nothing,
    })
}

/// The direction of the next recovery, and its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveryOutlook {
    /// Finished, or undone.
    pub direction: Direction,
    /// Paths that it changes.
    pub left: Vec<RootPath>,
    /// The remaining changes, in order.
    pub steps: Vec<Step>,
    /// The text of the daemon's record, if a new one is written.
    pub record: Option<Vec<u8>>,
}

/// Predicts the recovery of a half-finished run; `None` without one. Only reads.
///
/// # Errors
/// The recovery would be stuck, or a file cannot be read.
pub fn foresee_recovery(root: &Root) -> Result<Option<RecoveryOutlook>, RecoverError> {
    let Some(state) = StateDirectory::open(root)? else {
        return Ok(None);
    };
    let files = RunFiles::read_files(root, &state)?;
    let Some(journal) = files.journal.filter(|_| !files.committed) else {
        return Ok(None);
    };
    let dirs = open_stages(root, &journal)?;
    let stages = borrow_stages(&dirs);
    let executor = Executor::new(root, &journal, &stages);
    let survey = Survey::of_journal(root, &journal, &executor, &Leave::default())?;
    let asked = RecoveryChoice {
        direction: Direction::Forward,
        leave: Leave::default(),
    };
    let decided = survey.decide_direction(&journal, asked);
    let direction = decided.map_err(|stuck| RecoverError::Stuck(Box::new(stuck)))?;
    let steps: Vec<usize> = survey.pending_steps(direction).collect();
    let left = paths_of(&journal, &steps);
    let record = match direction {
        Direction::Forward => staged_record(root, &journal, &executor, &steps)?,
        Direction::Back => None,
    };
    let steps = steps.iter().filter_map(|index| journal.steps.get(*index));
    let steps = steps.map(|step| step.step.clone()).collect();
    Ok(Some(RecoveryOutlook {
        direction,
        left,
        steps,
        record,
    }))
}

/// Reads the daemon's record that one of these steps will write.
fn staged_record(
    root: &Root,
    journal: &Journal,
    executor: &Executor<'_>,
    steps: &[usize],
) -> Result<Option<Vec<u8>>, RecoverError> {
    let record = RootPath::fixed(paths::CURRENT_CONFIG);
    for &index in steps {
        let Some(step) = journal.steps.get(index) else {
            continue;
        };
        let stage = journal.stages.get(step.stage);
        let (true, Some(stage)) = (*step.step.path() == record, stage) else {
            continue;
        };
        if let KeptObject::As(name) = executor.find_staged(index, step)? {
            let staged = stage.join(&name);
            let staged = staged.map_err(|_| StepError::Conflict(record.clone()))?;
            return Ok(root.read_file(&staged).map_err(StepError::from)?);
        }
    }
    Ok(None)
}

/// Returns the number of steps that an unfinished run has taken, and the number of all its steps; only reads. `None` without
/// such a run.
///
/// # Errors
/// The journal or a stage of the run cannot be read.
pub fn count_taken(root: &Root) -> Result<Option<(usize, usize)>, StateError> {
    let Some(state) = StateDirectory::open(root)? else {
        return Ok(None);
    };
    let Some(journal) = read_journal(root, &state)? else {
        return Ok(None);
    };
    let dirs = open_stages(root, &journal)?;
    let stages = borrow_stages(&dirs);
    let executor = Executor::new(root, &journal, &stages);
    let mut taken = 0;
    for (index, step) in journal.steps.iter().enumerate() {
        taken += usize::from(is_step_taken(&executor, index, step)?);
    }
    Ok(Some((taken, journal.steps.len())))
}

/// Returns the control files of containers that an interrupted run left frozen; none while a run works.
///
/// # Errors
/// A journal cannot be read.
pub fn find_frozen(root: &Root) -> Result<Vec<PathBuf>, StateError> {
    let state = StateDirectory::open(root)?.filter(|_| root.is_live() && !is_held(root));
    let journal = state.map(|state| state.read_file::<Journal>(root, paths::JOURNAL));
    let journal = journal.transpose()?.flatten();
    Ok(journal.map_or_else(Vec::new, |journal| freeze::frozen_files(&journal.freeze)))
}

/// Returns true if the journal of a run is in its history: only a committed run moves it there. btrfs can lose the removal of
/// the intent but keep that of the mark.
pub(super) fn is_closed(root: &Root, id: &str) -> Result<bool, StateError> {
    let name = RootPath::fixed(paths::JOURNAL);
    let Ok(path) = history_path(id).join(name.name()) else {
        return Ok(false);
    };
    let found = root.exists(&path);
    found.map_err(|error| StateError::System(error.path.clone(), error.into()))
}

/// Returns the id of the run that still needs its staging directories.
pub(super) fn pending_id(
    root: &Root,
    state: &StateDirectory,
) -> Result<Option<String>, StateError> {
    let journal: Option<Journal> = state.read_file(root, paths::JOURNAL)?;
    let intent: Option<Intent> = state.read_file(root, paths::INTENT)?;
    let of_intent = intent.map(|intent| intent.id);
    Ok(journal.map(|journal| journal.id).or(of_intent))
}

/// Returns the stale staging directories; only reads.
pub fn find_strays(root: &Root) -> Vec<RootPath> {
    let id = match StateDirectory::open(root) {
        Ok(Some(state)) => pending_id(root, &state),
        Ok(None) => Ok(None),
        Err(error) => Err(error),
    };
    // Without the state, it is unknown which of them a run still needs.
    id.map_or_else(
        |_| Vec::new(),
        |id| stray_stages::find_stages(root, id.as_deref()),
    )
}

/// Opens the staging directories; `None` for a missing one.
pub(super) fn open_stages(root: &Root, journal: &Journal) -> Result<Vec<Option<File>>, StateError> {
    let all = journal.stages.iter();
    all.map(|path| open_stage(root, path)).collect()
}

/// Returns the descriptors of opened staging directories.
pub(super) fn borrow_stages(dirs: &[Option<File>]) -> Vec<Option<BorrowedFd<'_>>> {
    dirs.iter()
        .map(|dir| dir.as_ref().map(File::as_fd))
        .collect()
}

fn open_stage(root: &Root, path: &RootPath) -> Result<Option<File>, StateError> {
    let failed = |reason: Reason| StateError::System(path.to_string(), reason);
    let dir = match root.open_directory(path) {
        Ok(dir) => dir,
        Err(error) if error.cause.is_obstacle() => None,
        Err(error) => return Err(failed(error.into())),
    };
    let opened = dir.map(|dir| disk::open_directory(dir.as_fd(), "."));
    opened.transpose().map_err(|errno| failed(errno.into()))
}

/// Returns the paths of some steps.
pub(super) fn paths_of(journal: &Journal, indices: &[usize]) -> Vec<RootPath> {
    let steps = indices.iter().filter_map(|index| journal.steps.get(*index));
    steps.map(|step| step.step.path().clone()).collect()
}
