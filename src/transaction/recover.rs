//! Finishing or undoing what an interrupted run left; may itself be interrupted and run again.

use std::fs::File;
use std::os::fd::AsFd;

use super::disk;
use super::execute::{Executor, Progress, StepError};
use super::journal::{ConfigRef, Intent, Journal, is_staged_name};
use super::lock::Lock;
use super::state::{State, StateError};
use super::{HISTORY_KEPT, directory_fd, sync_parent};
use crate::error::Reason;
use crate::paths;
use crate::root::{Root, RootPath};

/// Which way an unfinished transaction is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To its end; back where that is impossible.
    Forward,
    /// Back to how it was.
    Back,
}

/// What an earlier run left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pending {
    /// Nothing.
    Nothing,
    /// Staged names only: no name of the node was changed.
    Staged(ConfigRef),
    /// A journal: names may be half-way.
    Unfinished(ConfigRef, Option<String>),
    /// Everything is in place, only tidying up is left.
    Committed(ConfigRef),
}

/// What recovery did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recovered {
    /// There was nothing to do.
    Nothing,
    /// Staged names were swept.
    Swept(ConfigRef),
    /// The interrupted run was brought to its end.
    Finished(ConfigRef),
    /// The interrupted run was undone.
    Undone(ConfigRef),
}

/// Why recovery stopped.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// State files.
    #[error(transparent)]
    State(#[from] StateError),
    /// A step.
    #[error(transparent)]
    Step(#[from] StepError),
    /// Paths that are neither old nor new.
    #[error(
        "these paths are neither as before nor as after the interrupted run: {0}. Put each right by hand, \
         or move it away, then run again"
    )]
    Conflicts(String),
    /// Neither way is open.
    #[error(
        "staged objects are damaged or missing for: {0}. The interrupted run can be neither finished nor undone"
    )]
    Lost(String),
    /// The journal is about another deployment's `etc`.
    #[error(
        "the interrupted run belongs to deployment {0}, but this is {1}. Boot into that deployment and run recover there, \
         or give it up here with `recover --back`"
    )]
    OtherDeployment(String, String),
    /// Flushing.
    #[error("flushing to disk: {0}")]
    Sync(Reason),
}

/// What is left to be done on a root; reads only.
pub fn pending(root: &Root) -> Result<Pending, StateError> {
    let Some(state) = State::open(root)? else {
        return Ok(Pending::Nothing);
    };
    let journal: Option<Journal> = state.read(root, paths::JOURNAL)?;
    let committed: Option<String> = state.read(root, paths::COMMITTED)?;
    let intent: Option<Intent> = state.read(root, paths::INTENT)?;
    Ok(match (journal, committed, intent) {
        (Some(journal), Some(_), _) => Pending::Committed(journal.config),
        (Some(journal), None, _) => Pending::Unfinished(journal.config, journal.deployment),
        (None, Some(_), Some(intent)) => Pending::Committed(intent.config),
        (None, None, Some(intent)) => Pending::Staged(intent.config),
        (None, _, None) => Pending::Nothing,
    })
}

/// Finishes or undoes. Without anything pending it does nothing.
pub fn recover(
    root: &Root,
    _lock: &Lock,
    direction: Direction,
    deployment: Option<&str>,
) -> Result<Recovered, RecoverError> {
    let Some(state) = State::open(root)? else {
        return Ok(Recovered::Nothing);
    };
    let journal: Option<Journal> = state.read(root, paths::JOURNAL)?;
    let committed: Option<String> = state.read(root, paths::COMMITTED)?;
    let intent: Option<Intent> = state.read(root, paths::INTENT)?;
    let stages = intent
        .as_ref()
        .map(|intent| intent.stages.clone())
        .unwrap_or_default();
    match (journal, committed, intent) {
        (Some(journal), Some(_), _) => {
            close(root, &state, &journal.id, &with(&stages, &journal.stages))?;
            Ok(Recovered::Finished(journal.config))
        }
        (Some(journal), None, _) => {
            unfinished(root, &state, journal, &stages, direction, deployment)
        }
        (None, Some(_), Some(intent)) => {
            close(root, &state, &intent.id, &stages)?;
            Ok(Recovered::Finished(intent.config))
        }
        (None, None, Some(intent)) => {
            discard(root, &state, &intent.id, &stages)?;
            Ok(Recovered::Swept(intent.config))
        }
        (None, Some(_), None) => {
            state.remove(paths::COMMITTED)?;
            Ok(Recovered::Nothing)
        }
        (None, None, None) => Ok(Recovered::Nothing),
    }
}

fn with(a: &[RootPath], b: &[RootPath]) -> Vec<RootPath> {
    a.iter()
        .chain(b.iter().filter(|path| !a.contains(path)))
        .cloned()
        .collect()
}

fn unfinished(
    root: &Root,
    state: &State,
    journal: Journal,
    stages: &[RootPath],
    direction: Direction,
    deployment: Option<&str>,
) -> Result<Recovered, RecoverError> {
    if direction == Direction::Forward && journal.deployment.as_deref() != deployment {
        let name = |deployment: Option<&str>| deployment.unwrap_or("(none)").to_owned();
        return Err(RecoverError::OtherDeployment(
            name(journal.deployment.as_deref()),
            name(deployment),
        ));
    }
    let dirs: Vec<File> = journal
        .stages
        .iter()
        .filter_map(|path| directory_fd(root, path))
        .collect();
    let whole = dirs.len() == journal.stages.len();
    let progress = survey(root, &journal, &dirs)?;
    let executor = Executor {
        root,
        stages: &dirs,
    };
    let steps = || journal.steps.iter().enumerate().zip(&progress);
    let lost = |left: Progress, there: &dyn Fn(usize) -> bool| -> Vec<String> {
        let unfit = steps().filter(|((index, _), p)| **p == left && !(whole && there(*index)));
        unfit
            .map(|((_, step), _)| step.step.path().to_string())
            .collect()
    };
    let staged = |index: usize| {
        journal
            .steps
            .get(index)
            .is_some_and(|step| executor.is_staged(index, step))
    };
    let kept = |index: usize| {
        journal
            .steps
            .get(index)
            .is_some_and(|step| executor.is_kept(index, step))
    };
    let (no_way_on, no_way_back) = (
        lost(Progress::Before, &staged),
        lost(Progress::After, &kept),
    );
    if direction == Direction::Forward && no_way_on.is_empty() {
        for ((index, step), _) in steps().filter(|(_, p)| **p == Progress::Before) {
            executor.forward(index, step, None)?;
        }
        sync_all(&dirs)?;
        state.write(paths::COMMITTED, &journal.id)?;
        close(root, state, &journal.id, &with(stages, &journal.stages))?;
        return Ok(Recovered::Finished(journal.config));
    }
    if !no_way_back.is_empty() {
        return Err(RecoverError::Lost(
            [no_way_on, no_way_back].concat().join(", "),
        ));
    }
    undo(root, state, &journal, &dirs)?;
    Ok(Recovered::Undone(journal.config))
}

/// How far every step is; stops at paths that belong to neither side.
fn survey(root: &Root, journal: &Journal, dirs: &[File]) -> Result<Vec<Progress>, RecoverError> {
    let executor = Executor { root, stages: dirs };
    let progress: Vec<Progress> = journal
        .steps
        .iter()
        .map(|step| executor.progress(&step.step))
        .collect::<Result<_, _>>()?;
    let foreign: Vec<String> = journal
        .steps
        .iter()
        .zip(&progress)
        .filter(|(_, progress)| **progress == Progress::Foreign)
        .map(|(step, _)| step.step.path().to_string())
        .collect();
    if foreign.is_empty() {
        Ok(progress)
    } else {
        Err(RecoverError::Conflicts(foreign.join(", ")))
    }
}

/// Takes every step back, last first, then forgets the transaction.
pub fn undo(
    root: &Root,
    state: &State,
    journal: &Journal,
    dirs: &[File],
) -> Result<(), RecoverError> {
    let executor = Executor { root, stages: dirs };
    for (index, step) in journal.steps.iter().enumerate().rev() {
        executor.back(index, step)?;
    }
    sync_all(dirs)?;
    state.remove(paths::JOURNAL)?;
    let intent: Option<Intent> = state.read(root, paths::INTENT)?;
    let stages = intent.map(|intent| intent.stages).unwrap_or_default();
    discard(root, state, &journal.id, &with(&stages, &journal.stages))
}

fn sync_all(dirs: &[File]) -> Result<(), RecoverError> {
    dirs.iter().try_for_each(|dir| {
        disk::sync_file_system(dir).map_err(|errno| RecoverError::Sync(errno.into()))
    })
}

/// Where the old objects and the journal of a transaction are kept.
pub fn history_path(id: &str) -> RootPath {
    RootPath::fixed(paths::HISTORY)
        .join(id)
        .unwrap_or_else(|_| RootPath::fixed(paths::HISTORY))
}

/// After the `committed` mark: sweep, move the journal to the history, forget the intent.
pub fn close(
    root: &Root,
    state: &State,
    id: &str,
    stages: &[RootPath],
) -> Result<(), RecoverError> {
    stages.iter().for_each(|stage| sweep(root, stage));
    if let Some(history) = directory_fd(root, &history_path(id)) {
        let name = RootPath::fixed(paths::JOURNAL);
        match disk::rename(
            state.dir().as_fd(),
            name.name(),
            history.as_fd(),
            name.name(),
        ) {
            // An earlier attempt has moved it already.
            Ok(()) | Err(nix::errno::Errno::ENOENT) => {}
            Err(errno) => return Err(StateError::System(name.to_string(), errno.into()).into()),
        }
        disk::sync_directory(&history).map_err(|errno| RecoverError::Sync(errno.into()))?;
    }
    state.remove(paths::INTENT)?;
    state.remove(paths::COMMITTED)?;
    prune_history(root);
    Ok(sync_parent(state)?)
}

/// A run that changed no name: staged names, history and intent go.
pub fn discard(
    root: &Root,
    state: &State,
    id: &str,
    stages: &[RootPath],
) -> Result<(), RecoverError> {
    stages.iter().for_each(|stage| sweep(root, stage));
    remove_history(root, &history_path(id));
    Ok(state.remove(paths::INTENT)?)
}

/// Removes our own names from a staging directory, then the directory. Foreign names stay, and are said.
fn sweep(root: &Root, stage: &RootPath) {
    for name in root.list(stage).unwrap_or_default() {
        let Some(dir) = directory_fd(root, stage) else {
            continue;
        };
        if !is_staged_name(&name) {
            log::warn!("{stage}/{name} was not put there by mco-rescue; it is left alone");
        } else if let Err(errno) = disk::remove_file(dir.as_fd(), &name) {
            log::warn!("removing {stage}/{name}: {errno}");
        }
    }
    remove_if_empty(root, stage);
    if stage.is_in(paths::STAGE) {
        remove_if_empty(root, &RootPath::fixed(paths::STAGE));
    }
}

fn remove_if_empty(root: &Root, directory: &RootPath) {
    if let Ok(Some(place)) = root.place(directory) {
        // A directory with something in it stays.
        let _ = disk::remove_directory(place.dir.as_fd(), &place.name);
    }
}

fn remove_history(root: &Root, directory: &RootPath) {
    for name in root.list(directory).unwrap_or_default() {
        if let Some(dir) = directory_fd(root, directory)
            && let Err(errno) = disk::remove_file(dir.as_fd(), &name)
        {
            log::warn!("removing {directory}/{name}: {errno}");
        }
    }
    remove_if_empty(root, directory);
    remove_if_empty(root, &RootPath::fixed(paths::HISTORY));
}

/// Only the newest runs are kept; ids begin with the time, so names sort by age.
fn prune_history(root: &Root) {
    let history = RootPath::fixed(paths::HISTORY);
    let names = root.list(&history).unwrap_or_default();
    for name in names.iter().rev().skip(HISTORY_KEPT) {
        if let Ok(directory) = history.join(name) {
            remove_history(root, &directory);
        }
    }
}
