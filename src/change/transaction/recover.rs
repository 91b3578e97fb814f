//! Completes or undoes an interrupted run. May itself be interrupted, and repeated.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::sys::stat::fstat;

use super::boot::settle_boot;
use super::disk;
use super::execute::{Executor, KeptObject, Stages, StepError};
use super::flags::{self, FlagsError};
use super::freeze;
use super::jobs::{self, JobError, RunningSystem};
use super::journal::{
    CommitMark, ConfigRef, Intent, Journal, JournalStep, away_name, is_staged_name, new_name,
    old_name,
};
use super::last_run::LastRun;
use super::leavings::{empty_directory, history_path, open_own, remove_if_empty, remove_staged};
use super::lock::{Lock, LockError, is_held};
use super::state::{self, StateDirectory, StateError};
use super::survey::{Direction, Leave, LeftPath, RecoveryChoice, Stuck, Survey};
use super::{HISTORY_KEPT, strays as stray_stages};
use crate::base::invocation::mco_rescue;
use crate::base::order::StableOrder;
use crate::base::paths;
use crate::base::reason::Reason;
use crate::change::plan::FinishedRun;
use crate::change::plan::Step;
use crate::host::root::{Place, Root, RootError, RootPath};
use crate::host::sys::signals::DeferredSignals;
use crate::node::activity;

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

impl Pending {
    /// Returns the word of the state, and the config of the run.
    pub fn words(&self) -> (&'static str, Option<&ConfigRef>) {
        match self {
            Self::Nothing => ("nothing", None),
            Self::Staged(config) => ("staged", Some(config)),
            Self::Unfinished(config, _) => ("unfinished", Some(config)),
            Self::Committed(config) => ("committed", Some(config)),
        }
    }
}

/// The result of a recovery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recovered {
    /// Nothing was pending.
    Nothing,
    /// Staged names were removed.
    Swept(ConfigRef),
    /// The interrupted run was finished.
    Finished(ConfigRef, RecoveryChanges),
    /// The interrupted run was undone.
    Undone(ConfigRef, RecoveryChanges),
    /// The interrupted run was given up; has the path of its backup copies.
    GivenUp(ConfigRef, Option<RootPath>),
}

/// The paths of an interrupted run after its recovery, in the order of its steps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecoveryChanges {
    /// Paths that were changed.
    pub changed: Vec<RootPath>,
    /// Paths that could not be changed and are left as they are.
    pub left: Vec<LeftPath>,
}

impl Recovered {
    /// Returns the paths that were changed.
    pub fn changed(&self) -> &[RootPath] {
        match self {
            Self::Nothing | Self::Swept(_) | Self::GivenUp(..) => &[],
            Self::Finished(_, changes) | Self::Undone(_, changes) => &changes.changed,
        }
    }

    /// Returns the paths that are left as they are.
    pub fn left(&self) -> &[LeftPath] {
        match self {
            Self::Nothing | Self::Swept(_) | Self::GivenUp(..) => &[],
            Self::Finished(_, changes) | Self::Undone(_, changes) => &changes.left,
        }
    }
}

/// An error that stopped recovery.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// A file of the state directory cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// A step could not be taken.
    #[error(transparent)]
    Step(#[from] StepError),
    /// Flags could not be cleared or set.
    #[error(transparent)]
    Flags(#[from] FlagsError),
    /// The run can go in neither direction.
    #[error("{0}")]
    Stuck(Box<Stuck>),
    /// A path of `--leave` does not belong to the run.
    #[error(
        "--leave {0}: no path of the interrupted run is there or below. Nothing was changed. Next: {recover}", recover = mco_rescue("recover")
    )]
    NotItsPath(RootPath),
    /// No journal is damaged or of another version, so there is nothing to give up.
    #[error(
        "--give-up is for an interrupted run whose journal is damaged, or of another version; here none is. Nothing was changed. \
         Next: {recover}", recover = mco_rescue("recover")
    )]
    Whole,
    /// The journal belongs to another deployment's `etc`.
    #[error(
        "the interrupted run belongs to deployment {0}, but this is {1}. Boot into that deployment and run recover there, \
         or give it up here with `recover --back`"
    )]
    OtherDeployment(String, String),
    /// A staged name could not be removed.
    #[error("left-overs of the run could not be removed; the next run tries again")]
    LeftOvers,
    /// A file system could not be synced.
    #[error("flushing to disk: {0}")]
    Sync(Reason),
    /// A job for the running system failed, so the files were restored.
    #[error("{0}; the interrupted run was undone{1}")]
    Undone(Box<JobError>, String),
}

/// The reason why a finished run is still in the history.
#[derive(Debug, thiserror::Error)]
pub enum ForgetError {
    /// The lock is not held for writing.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// Part of it could not be removed.
    #[error("run {0} was taken back, but it is still in the history. Next: rm -r /{history}/{0}", history = paths::HISTORY)]
    Left(String),
}

/// The input of a recovery.
#[derive(Debug, Clone, Copy)]
pub struct RecoverRequest<'a> {
    /// The requested direction.
    pub direction: Direction,
    /// Paths that may be left as they are.
    pub leave: &'a Leave,
    /// The deployment whose `etc` this is.
    pub deployment: Option<&'a str>,
}

/// The files of an interrupted run in the state directory, as far as they can be read.
struct RunFiles {
    journal: Option<Journal>,
    /// The mark belongs to the run of the journal or the intent.
    committed: bool,
    intent: Option<Intent>,
    /// The mark belongs to no run, or cannot be read.
    stray_mark: bool,
    /// The intent cannot be read.
    lost_intent: bool,
}

impl RunFiles {
    /// Reads the files. A damaged journal is an error, because without it nothing is known about the names. A damaged mark or
    /// intent is not.
    fn read_files(root: &Root, state: &StateDirectory) -> Result<Self, StateError> {
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
fn read_journal(root: &Root, state: &StateDirectory) -> Result<Option<Journal>, StateError> {
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
    let stages: Vec<_> = dirs
        .iter()
        .map(|dir| dir.as_ref().map(File::as_fd))
        .collect();
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

/// Renames a prepared journal to its final name if its run has changed names, or removes it: durably, before anything listed in
/// it is touched.
fn resolve_prepared(root: &Root, state: &StateDirectory) -> Result<(), StateError> {
    let has = |file| {
        let path = RootPath::fixed(file);
        let found = root.exists(&path);
        found.map_err(|error| StateError::System(path.to_string(), error.into()))
    };
    if !has(paths::PREPARED_JOURNAL)? {
        return Ok(());
    }
    if !has(paths::JOURNAL)? && read_journal(root, state)?.is_some() {
        state.commit_file(paths::JOURNAL)?;
    } else {
        state.unlink_file(paths::PREPARED_JOURNAL)?;
    }
    state.sync_names()
}

/// Treats a damaged file as missing, and logs it; a file that cannot be read now is an error.
fn or_damaged<T>(read: Result<Option<T>, StateError>) -> Result<(Option<T>, bool), StateError> {
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
    let stages: Vec<_> = dirs
        .iter()
        .map(|dir| dir.as_ref().map(File::as_fd))
        .collect();
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
    let stages: Vec<_> = dirs
        .iter()
        .map(|dir| dir.as_ref().map(File::as_fd))
        .collect();
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

/// Completes or undoes an interrupted run. Without one, only removes stale staging directories.
pub fn recover_interrupted(
    root: &Root,
    _lock: &Lock,
    wanted: &RecoverRequest<'_>,
    running: &RunningSystem<'_>,
) -> Result<Recovered, RecoverError> {
    recover_state(root, wanted, running).inspect_err(|_| {
        // The user has to look first, which may take days. The list in the journal cannot be read in every state.
        freeze::thaw_cgroups(&activity::daemon_containers(root));
    })
}

fn recover_state(
    root: &Root,
    wanted: &RecoverRequest<'_>,
    running: &RunningSystem<'_>,
) -> Result<Recovered, RecoverError> {
    let Some(state) = StateDirectory::open(root)? else {
        return Ok(Recovered::Nothing);
    };
    let _signals = DeferredSignals::new();
    resolve_prepared(root, &state)?;
    state.sweep_temporaries(root);
    let recovered = recover_run(root, &state, wanted, running)?;
    if let Ok(id) = pending_id(root, &state) {
        let swept = stray_stages::sweep_stages(root, id.as_deref());
        for path in &swept {
            log::warn!("{path} of an earlier run was stale and is removed");
        }
        if !swept.is_empty() {
            remove_if_empty(root, &RootPath::fixed(paths::STAGE));
        }
    }
    Ok(recovered)
}

/// Returns true if the journal of a run is in its history: only a committed run moves it there. btrfs can lose the removal of
/// the intent but keep that of the mark.
fn is_closed(root: &Root, id: &str) -> Result<bool, StateError> {
    let name = RootPath::fixed(paths::JOURNAL);
    let Ok(path) = history_path(id).join(name.name()) else {
        return Ok(false);
    };
    let found = root.exists(&path);
    found.map_err(|error| StateError::System(error.path.clone(), error.into()))
}

/// Returns the id of the run that still needs its staging directories.
fn pending_id(root: &Root, state: &StateDirectory) -> Result<Option<String>, StateError> {
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

fn recover_run(
    root: &Root,
    state: &StateDirectory,
    wanted: &RecoverRequest<'_>,
    running: &RunningSystem<'_>,
) -> Result<Recovered, RecoverError> {
    let files = RunFiles::read_files(root, state)?;
    if files.stray_mark {
        // It belongs to no known run; the files themselves show what is in place.
        log::warn!("/{} belongs to no run and is removed", paths::COMMITTED);
        state.remove_file(paths::COMMITTED)?;
    }
    if files.journal.is_some() || files.intent.is_some() {
        drop_torn_status(root, state)?;
    }
    let stages = files.intent.iter().flat_map(|intent| intent.stages.clone());
    let stages: Vec<RootPath> = stages.collect();
    match (files.journal, files.committed, files.intent) {
        (Some(journal), true, _) => {
            flush_mark(state)?;
            freeze::kill_cgroups(&journal.freeze);
            tidy_up(root, state, &journal, &union_of(&stages, &journal.stages));
            Ok(Recovered::Finished(
                journal.config,
                RecoveryChanges::default(),
            ))
        }
        (Some(journal), false, _) => {
            let unfinished = Unfinished {
                root,
                state,
                journal,
                stages: &stages,
                running,
            };
            unfinished.resolve_run(wanted)
        }
        (None, committed, Some(intent)) if committed || is_closed(root, &intent.id)? => {
            flush_mark(state)?;
            warn_only(close_run(root, state, &intent.id, &stages));
            Ok(Recovered::Finished(
                intent.config,
                RecoveryChanges::default(),
            ))
        }
        (None, _, Some(intent)) => {
            warn_only(discard_run(root, state, &intent.id, &stages));
            Ok(Recovered::Swept(intent.config))
        }
        (None, _, None) if files.lost_intent => {
            // Without a journal, no name was changed.
            sweep_unnamed_history(root)?;
            state.remove_file(paths::INTENT)?;
            Ok(Recovered::Swept(ConfigRef::unknown()))
        }
        (None, _, None) => Ok(Recovered::Nothing),
    }
}

/// Removes the status of an interrupted run if its content is lost: the name may be durable without it.
fn drop_torn_status(root: &Root, state: &StateDirectory) -> Result<(), StateError> {
    match or_damaged(state.read_file::<LastRun>(root, paths::STATUS)) {
        Ok((_, true)) => state.unlink_file(paths::STATUS),
        // In another version, it describes another run.
        Ok((_, false)) | Err(StateError::Version(..)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Syncs the file system of the state. A run that was killed before its last sync has left a mark that a power cut would undo;
/// names on other file systems were synced before the mark was written.
fn flush_mark(state: &StateDirectory) -> Result<(), RecoverError> {
    disk::sync_file_system(state.dir()).map_err(|errno| RecoverError::Sync(errno.into()))
}

/// Gives up a run with a damaged journal, or with a file of another version: the tree is left as it is, with some files from
/// before the run and some from the run. Its backup copies stay in the history, and the files as `NAME.damaged`.
pub fn give_up_run(root: &Root, _lock: &Lock) -> Result<Recovered, RecoverError> {
    let Some(state) = StateDirectory::open(root)? else {
        return Ok(Recovered::Nothing);
    };
    let _signals = DeferredSignals::new();
    let intent = or_damaged(state.read_file::<Intent>(root, paths::INTENT));
    let mut lost = match state.read_file::<Journal>(root, paths::JOURNAL) {
        Err(StateError::Damaged(..)) => true,
        other => is_of_other_version(other)?,
    };
    lost |= is_of_other_version(state.read_prepared_journal(root))?;
    lost |= is_of_other_version(or_damaged(
        state.read_file::<CommitMark>(root, paths::COMMITTED),
    ))?;
    if !lost && !matches!(intent, Err(StateError::Version(..))) {
        return Err(RecoverError::Whole);
    }
    let intent = match intent {
        Err(StateError::Version(..)) => {
            state.set_aside(paths::INTENT)?;
            None
        }
        other => other?.0,
    };
    // The journal would have listed them.
    freeze::thaw_cgroups(&activity::daemon_containers(root));
    state.set_aside(paths::JOURNAL)?;
    state.set_aside(paths::PREPARED_JOURNAL)?;
    let stages = intent.iter().flat_map(|intent| intent.stages.clone());
    let swept = sweep_all(root, &stages.collect::<Vec<_>>());
    state.unlink_file(paths::COMMITTED)?;
    warn_only(forget_intent(&state, swept));
    state.sync_names()?;
    let (config, id) = intent.map_or((ConfigRef::unknown(), None), |intent| {
        (intent.config, Some(intent.id))
    });
    let kept = id.map(|id| history_path(&id));
    let kept = kept.filter(|path| mark_given_up(root, path));
    Ok(Recovered::GivenUp(config, kept))
}

/// Returns true for a file of another version.
fn is_of_other_version<T>(read: Result<T, StateError>) -> Result<bool, StateError> {
    match read {
        Ok(_) => Ok(false),
        Err(StateError::Version(..)) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Name of the file that marks the backup copies of a run that was given up: they have no journal, and are kept.
const GIVEN_UP: &str = "given-up";

/// Marks the backup copies below a path. Returns false if there are none. The run is given up even on a full disk.
fn mark_given_up(root: &Root, path: &RootPath) -> bool {
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
fn sweep_unnamed_history(root: &Root) -> Result<(), StateError> {
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

fn union_of(a: &[RootPath], b: &[RootPath]) -> Vec<RootPath> {
    a.iter()
        .chain(b.iter().filter(|path| !a.contains(path)))
        .cloned()
        .collect()
}

/// An interrupted run with a journal but without the mark.
struct Unfinished<'a> {
    root: &'a Root,
    state: &'a StateDirectory,
    journal: Journal,
    stages: &'a [RootPath],
    running: &'a RunningSystem<'a>,
}

impl Unfinished<'_> {
    fn resolve_run(self, wanted: &RecoverRequest<'_>) -> Result<Recovered, RecoverError> {
        let journal = &self.journal;
        let (direction, deployment) = (wanted.direction, wanted.deployment);
        if direction == Direction::Forward && journal.deployment.as_deref() != deployment {
            let name = |deployment: Option<&str>| deployment.unwrap_or("(none)").to_owned();
            let (theirs, ours) = (name(journal.deployment.as_deref()), name(deployment));
            return Err(RecoverError::OtherDeployment(theirs, ours));
        }
        are_its_paths(journal, wanted.leave)?;
        let dirs = open_stages(self.root, journal)?;
        let stages: Vec<_> = dirs
            .iter()
            .map(|dir| dir.as_ref().map(File::as_fd))
            .collect();
        match self.decide_direction(wanted, &stages)? {
            (Direction::Forward, survey) => self.finish_forward(&survey, &stages),
            (Direction::Back, survey) => self.take_back(&survey, &stages),
        }
    }

    fn decide_direction(
        &self,
        wanted: &RecoverRequest<'_>,
        stages: &Stages<'_>,
    ) -> Result<(Direction, Survey), RecoverError> {
        let executor = Executor::new(self.root, &self.journal, stages);
        let survey = Survey::of_journal(self.root, &self.journal, &executor, wanted.leave)?;
        let asked = RecoveryChoice {
            direction: wanted.direction,
            leave: wanted.leave.clone(),
        };
        let decided = survey.decide_direction(&self.journal, asked);
        let direction = decided.map_err(|stuck| RecoverError::Stuck(Box::new(stuck)))?;
        Ok((direction, survey))
    }

    /// Undoes the steps, and runs the jobs again if services have read the new files.
    fn take_back(self, survey: &Survey, stages: &Stages<'_>) -> Result<Recovered, RecoverError> {
        let journal = &self.journal;
        let steps: Vec<usize> = survey.pending_steps(Direction::Back).collect();
        let changes = RecoveryChanges {
            changed: paths_of(journal, &steps),
            left: survey.left_paths(journal, Direction::Back),
        };
        // No job runs before the last file is in place.
        let told = survey.all_files(journal);
        undo_steps(self.root, self.state, journal, stages, &steps)?;
        let left = jobs::jobs_left(journal, self.running).len();
        if left > 0 {
            let told = if told { left } else { 0 };
            let failed = jobs::repeat_jobs(self.running.runner, journal, told);
            failed.iter().for_each(|said| log::warn!("{said}"));
        }
        Ok(Recovered::Undone(self.journal.config, changes))
    }

    /// Takes the remaining steps: the files, the jobs, the records, and the mark.
    fn finish_forward(
        self,
        survey: &Survey,
        stages: &Stages<'_>,
    ) -> Result<Recovered, RecoverError> {
        let (root, journal) = (self.root, &self.journal);
        let steps: Vec<usize> = survey.pending_steps(Direction::Forward).collect();
        let changes = RecoveryChanges {
            changed: paths_of(journal, &steps),
            left: survey.left_paths(journal, Direction::Forward),
        };
        flags::clear_flags(root, &journal.held)?;
        let (files, records): (Vec<usize>, Vec<usize>) = steps
            .iter()
            .partition(|index| **index < journal.records_from);
        self.take_steps(&files, stages)?;
        if !survey.has_records(journal) {
            self.run_jobs(survey, stages)?;
        }
        self.take_steps(&records, stages)?;
        flags::restore_flags(root, &journal.held)?;
        sync_all(stages)?;
        let mark = CommitMark {
            id: journal.id.clone(),
        };
        self.state.write_file(paths::COMMITTED, &mark)?;
        freeze::kill_cgroups(&journal.freeze);
        let all = union_of(self.stages, &journal.stages);
        tidy_up(root, self.state, journal, &all);
        Ok(Recovered::Finished(self.journal.config, changes))
    }

    fn take_steps(&self, steps: &[usize], stages: &Stages<'_>) -> Result<(), RecoverError> {
        let executor = Executor::new(self.root, &self.journal, stages);
        for &index in steps {
            if let Some(step) = self.journal.steps.get(index) {
                executor.take_step(index, step, None)?;
            }
        }
        Ok(())
    }

    /// Runs all jobs if it is the same boot, some perhaps for the second time. A failed job undoes the run, as in the run
    /// itself.
    fn run_jobs(&self, survey: &Survey, stages: &Stages<'_>) -> Result<(), RecoverError> {
        let (journal, runner) = (&self.journal, self.running.runner);
        let left = jobs::jobs_left(journal, self.running);
        if left.is_empty() {
            return Ok(());
        }
        sync_all(stages)?;
        let Err((index, error)) = jobs::carry_out(runner, left) else {
            return Ok(());
        };
        let taken = (0..journal.records_from)
            .filter(|index| !survey.stays(*index, Direction::Forward))
            .collect::<Vec<usize>>();
        undo_steps(self.root, self.state, journal, stages, &taken)?;
        let failed = jobs::repeat_jobs(runner, journal, index + 1);
        let failed = failed
            .iter()
            .map(|said| format!("; then, with the old files: {said}"));
        Err(RecoverError::Undone(Box::new(error), failed.collect()))
    }
}

/// Checks that every path of `--leave` belongs to the run, or is above such a path.
fn are_its_paths(journal: &Journal, leave: &Leave) -> Result<(), RecoverError> {
    let is_its = |left: &&RootPath| {
        let mut steps = journal.steps.iter();
        steps.any(|step| step.step.path().is_in(left.relative()))
    };
    match leave.paths.iter().find(|left| !is_its(left)) {
        Some(path) => Err(RecoverError::NotItsPath(path.clone())),
        None => Ok(()),
    }
}

/// Opens the staging directories; `None` for a missing one.
fn open_stages(root: &Root, journal: &Journal) -> Result<Vec<Option<File>>, StateError> {
    let all = journal.stages.iter();
    all.map(|path| open_stage(root, path)).collect()
}

fn open_stage(root: &Root, path: &RootPath) -> Result<Option<File>, StateError> {
    let failed = |reason: Reason| StateError::System(path.to_string(), reason);
    let dir = match root.directory(path) {
        Ok(dir) => dir,
        Err(error) if error.cause.is_obstacle() => None,
        Err(error) => return Err(failed(error.into())),
    };
    let opened = dir.map(|dir| disk::open_directory(dir.as_fd(), "."));
    opened.transpose().map_err(|errno| failed(errno.into()))
}

/// Returns the paths of some steps.
fn paths_of(journal: &Journal, indices: &[usize]) -> Vec<RootPath> {
    let steps = indices.iter().filter_map(|index| journal.steps.get(*index));
    steps.map(|step| step.step.path().clone()).collect()
}

/// Undoes these steps, last first, then removes the journal.
pub(super) fn undo_steps(
    root: &Root,
    state: &StateDirectory,
    journal: &Journal,
    stages: &Stages<'_>,
    steps: &[usize],
) -> Result<(), RecoverError> {
    // If the mark outlived an error, the next run would take a half-undone tree for a finished one.
    state.remove_file(paths::COMMITTED)?;
    let executor = Executor::new(root, journal, stages);
    if !steps.is_empty() {
        flags::clear_flags(root, &journal.held)?;
    }
    let mut last_first = steps.to_vec();
    last_first.sort_unstable_by(|a, b| b.cmp(a));
    for index in last_first {
        if let Some(step) = journal.steps.get(index) {
            executor.undo_step(index, step)?;
        }
    }
    flags::restore_flags(root, &journal.held)?;
    sync_all(stages)?;
    freeze::thaw_cgroups(&journal.freeze);
    state.remove_file(paths::JOURNAL)?;
    // Everything is as before; the next run sweeps any leftovers.
    warn_only(discard_undone(root, state, journal));
    Ok(())
}

/// Removes what is left of an undone run. Only its intent lists all its staging directories.
fn discard_undone(
    root: &Root,
    state: &StateDirectory,
    journal: &Journal,
) -> Result<(), RecoverError> {
    let (intent, _) = or_damaged(state.read_file::<Intent>(root, paths::INTENT))?;
    let stages = intent.map(|intent| intent.stages).unwrap_or_default();
    let stages = union_of(&stages, &journal.stages);
    discard_run(root, state, &journal.id, &stages)
}

/// Logs an error of cleaning up: it does not change the result, and the next run tries again.
fn warn_only(result: Result<(), RecoverError>) {
    if let Err(error) = result {
        log::warn!("tidying up: {error}. Next: {}", mco_rescue("recover"));
    }
}

/// After the `committed` mark: moves backup copies to the history and removes staged names. An error is logged.
pub(super) fn tidy_up(root: &Root, state: &StateDirectory, journal: &Journal, stages: &[RootPath]) {
    settle_boot(root, journal);
    let tidied = keep_trees(root, journal)
        .and_then(|()| forget_undone(root, journal))
        .and_then(|()| close_run(root, state, &journal.id, stages));
    warn_only(tidied);
}

fn sync_all(stages: &Stages<'_>) -> Result<(), RecoverError> {
    stages.iter().flatten().try_for_each(|dir| {
        disk::sync_file_system(dir).map_err(|errno| RecoverError::Sync(errno.into()))
    })
}

/// After the `committed` mark: moves replaced directories to the history. If that is on another mount, it has had a copy since
/// they were staged; whatever has changed in them since is copied again.
///
/// # Errors
/// A transient error, such as an I/O error: nothing is deleted, and the next run tries again.
pub(super) fn keep_trees(root: &Root, journal: &Journal) -> Result<(), RecoverError> {
    let failed = |path: &RootPath, reason: Reason| StateError::System(path.to_string(), reason);
    let history = history_path(&journal.id);
    let history = open_own(root, &history).map_err(|e| failed(&history, e))?;
    let steps = journal.steps.iter().enumerate();
    for (index, step) in steps.filter(|(_, step)| step.step.exchanges()) {
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

/// After the `committed` mark: removes the reverted run from the history, so that the next `rollback` goes further back.
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
        objects,
        held: journal.held,
        jobs: journal.jobs,
        steps: steps.map(|step| (step.step, step.section)).collect(),
    }
}

/// After the `committed` mark: sweeps, moves the journal to the history, and removes the intent. All of this becomes durable
/// with a later sync; the next run redoes what a power cut undoes.
pub(super) fn close_run(
    root: &Root,
    state: &StateDirectory,
    id: &str,
    stages: &[RootPath],
) -> Result<(), RecoverError> {
    let swept = sweep_all(root, stages);
    // Whatever another file system loses of this is found again by its location and name.
    let swept =
        swept && (stray_stages::are_searched(root, stages) || flush_others(root, state, stages));
    let history = history_path(id);
    let opened =
        open_own(root, &history).map_err(|e| StateError::System(history.to_string(), e))?;
    if let Some(history) = opened {
        let name = RootPath::fixed(paths::JOURNAL);
        match disk::rename_across(
            state.dir().as_fd(),
            name.name(),
            history.as_fd(),
            name.name(),
        ) {
            // An earlier attempt has already moved it.
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(errno) => return Err(StateError::System(name.to_string(), errno.into()).into()),
        }
    } else {
        // Left in place, it would always be taken for an unfinished run.
        log::warn!("{history} is missing, so this run cannot be taken back");
        state.unlink_file(paths::JOURNAL)?;
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
fn forget_intent(state: &StateDirectory, swept: bool) -> Result<(), RecoverError> {
    if swept {
        Ok(state.unlink_file(paths::INTENT)?)
    } else {
        Err(RecoverError::LeftOvers)
    }
}

fn sweep_all(root: &Root, stages: &[RootPath]) -> bool {
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
        Some(path) => match root.directory(path) {
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

/// Removes a finished run from the history, after which it can no longer be reverted.
///
/// # Errors
/// The lock is not held for writing, or part of the run is left.
pub fn forget_run(root: &Root, lock: &Lock, id: &str) -> Result<(), ForgetError> {
    lock.require_writable()?;
    match remove_history(root, &history_path(id)) {
        true => Ok(()),
        false => Err(ForgetError::Left(id.to_owned())),
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
fn prune_history(root: &Root) -> Result<(), StateError> {
    let history = RootPath::fixed(paths::HISTORY);
    let names = history_names(root)?;
    for name in names.iter().rev().skip(HISTORY_KEPT) {
        if let Ok(directory) = history.join(name) {
            remove_history(root, &directory);
        }
    }
    Ok(())
}
