//! Completes or undoes an interrupted run. May itself be interrupted, and repeated.

use crate::base::paths;
use crate::host::root::{Root, RootPath};
use crate::host::sys::signals::DeferredSignals;
use crate::node::activity;

use super::close::{
    close_run, discard_run, forget_intent, sweep_all, sync_all, tidy_up, union_of, warn_only,
};
use super::execute::{Executor, Stages};
use super::history::{mark_given_up, sweep_unnamed_history};
use super::jobs::{self, RunningSystem};
use super::journal::{CommitMark, ConfigRef, Intent, Journal};
use super::last_run::LastRun;
use super::leavings::{history_path, remove_if_empty};
use super::lock::Lock;
use super::pending::{
    RunFiles, borrow_stages, is_closed, open_stages, or_damaged, paths_of, pending_id, read_journal,
};
use super::recover_error::RecoverError;
use super::state::{StateDirectory, StateError};
use super::survey::{Direction, Leave, LeftPath, RecoveryChoice, Survey};
use super::{disk, flags, freeze, strays as stray_stages};

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
    pub fn changed_paths(&self) -> &[RootPath] {
        match self {
            Self::Nothing | Self::Swept(_) | Self::GivenUp(..) => &[],
            Self::Finished(_, changes) | Self::Undone(_, changes) => &changes.changed,
        }
    }

    /// Returns the paths that are left as they are.
    pub fn left_paths(&self) -> &[LeftPath] {
        match self {
            Self::Nothing | Self::Swept(_) | Self::GivenUp(..) => &[],
            Self::Finished(_, changes) | Self::Undone(_, changes) => &changes.left,
        }
    }
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

/// Completes or undoes an interrupted run. Without one, only removes stale staging directories.
pub fn recover_interrupted(
    root: &Root,
    _lock: &Lock,
    wanted: &RecoverRequest<'_>,
    running: &RunningSystem<'_>,
) -> Result<Recovered, RecoverError> {
    recover_state(root, wanted, running).inspect_err(|_| {
        // The user has to look first, which may take days. The list in the journal cannot be read in every state.
        thaw_daemons(root);
    })
}

/// Thaws the daemon's containers.
fn thaw_daemons(root: &Root) {
    match activity::daemon_containers(root) {
        Ok(containers) => freeze::thaw_cgroups(&containers),
        Err(error) => log::warn!("a daemon that the run froze may still be frozen: {error}"),
    }
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
            let stages = union_of(&stages, &journal.stages);
            warn_only(tidy_up(root, state, &journal, &stages));
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
            warn_only(close_run(root, state, &stages, None));
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
    thaw_daemons(root);
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
        let stages = borrow_stages(&dirs);
        match self.decide_direction(wanted, &stages)? {
            (Direction::Forward, survey) => self.finish_forward(&survey, &stages),
            (Direction::Back, survey) => self.undo_steps(&survey, &stages),
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
    fn undo_steps(self, survey: &Survey, stages: &Stages<'_>) -> Result<Recovered, RecoverError> {
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
        warn_only(tidy_up(root, self.state, journal, &all));
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
            .filter(|index| !survey.stays_in(*index, Direction::Forward))
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
