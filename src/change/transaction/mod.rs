//! The transaction: intent, staging, journal, barrier, names, records, mark, barrier (docs/develop/transaction.md). All or nothing; the
//! next run completes or undoes an interrupted one.
//!
//! Syncing takes most of the time of a small run, so there are two syncs for each file system, however much is changed. The
//! first makes all bytes durable, the second all names. In between, the run relies on a property of ext4, xfs and btrfs: of two
//! names on one file system, the later is never durable before the earlier. So a journal under its final name proves that
//! everything staged is durable, and a mark proves the same for every name before it. Of two file systems, one may be ahead of
//! the other: a prepared journal therefore counts as soon as any name of its run has changed (`recover`), and the mark waits
//! for the names on all others.
//!
//! The order of flushes and renames stands below, in `TransactionRun::stage_steps` and `TransactionRun::commit_steps`.
//!
//! Only `disk`, private to this module, changes a file system. A transaction needs the guard returned by [`acquire_lock`]. The only
//! caller is `run::opening::Opening`, with which every command that takes the lock of a node begins. Without the lock, only whole
//! files are written: those in a store ([`open_store`]), the daemon's force file, and output that the user asked for.

mod boot;
mod boot_counter;
mod capsules;
mod close;
mod disk;
mod execute;
mod flags;
mod force;
mod freeze;
mod history;
mod jobs;
pub mod journal;
mod last_run;
mod leavings;
mod lock;
mod output;
mod pending;
pub mod place;
mod pwd_lock;
mod recorder;
mod recover;
mod recover_error;
mod stage;
mod state;
mod store;
mod strays;
mod survey;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::stat::fstat;

use crate::base::object::Stamp;
use crate::base::paths;
use crate::base::reason::Reason;
use crate::change::capsule::accepted::TakenFromCapsule;
use crate::change::plan::{Held, PlannedStep, Section, Step};
use crate::host::progress::{self, Work};
use crate::host::root::{Root, RootPath};
use crate::host::sys::memory::RunStage;
use crate::host::sys::signals::{self, DeferredSignals, SignalAnswer};
use crate::host::sys::{limits, parallel};
use crate::node::Labels;
use crate::node::command::job::{Done, Job};

use execute::{Executor, StepError};
use flags::FlagsError;
use jobs::JobError;
use journal::{CommitMark, ConfigRef, Intent, Journal, JournalStep, VERSION};
use stage::{Stage, StageContext, StageError};
use state::{StateDirectory, StateError};

pub use boot::is_on_boot;
pub use boot_counter::{arm_boot_counter, disarm_boot_counter};
pub use capsules::remember_capsule;
pub use force::{request_force, withdraw_force};
pub use history::{forget_run, id_order, read_history};
pub use jobs::RunningSystem;
pub use last_run::{LastRun, RunOutcome, RunPhase};
pub use lock::{Lock, LockError, acquire_lock, is_held};
pub use output::{write_output, write_readable_output};
pub use pending::{
    Pending, PendingState, RecoveryOutlook, count_taken, find_frozen, find_pending, find_strays,
    foresee_recovery,
};
pub use recorder::{RecorderFile, RecorderWrite, write_boot_copies, write_snapshots};
pub use recover::{RecoverRequest, Recovered, RecoveryChanges, give_up_run, recover_interrupted};
pub use recover_error::RecoverError;
pub use state::StateError as StateDirectoryError;
pub use store::{open_store, store_value};
pub use survey::{Direction, Leave, LeftPath};

/// Number of finished runs that are kept for `rollback`.
pub const HISTORY_KEPT: usize = 3;

/// The input of a transaction.
#[allow(
    missing_debug_implementations,
    reason = "whole objects must not get into a message"
)]
pub struct TransactionRequest<'a> {
    /// The root.
    pub root: &'a Root,
    /// Proof that no other run is active on this root.
    pub lock: &'a Lock,
    /// The steps; those of [`Section::Records`] come last.
    pub steps: &'a [PlannedStep],
    /// Flags in the way of the steps.
    pub held: &'a [Held],
    /// Cgroups that are frozen while names change, and killed afterwards.
    pub freeze: &'a [String],
    /// Stamps of the objects that the plan read.
    pub seen: &'a BTreeMap<RootPath, Stamp>,
    /// The labels for this program's own files; those of the steps are in the steps.
    pub labels: &'a Labels,
    /// Its id, from [`next_run_id`].
    pub id: String,
    /// The config.
    pub config: ConfigRef,
    /// Who runs it; `None` for a service.
    pub by: Option<String>,
    /// The deployment whose `etc` this is.
    pub deployment: Option<String>,
    /// The root's `var` is a separate mount: an empty directory is not the real one.
    pub separate_var: bool,
    /// Id of the finished run that this one reverts; both are removed from the history.
    pub undoes: Option<String>,
    /// Jobs for the running system, which run between the files and the records.
    pub jobs: &'a [Job],
    /// What is taken from capsules.
    pub capsules: &'a [TakenFromCapsule],
    /// The running system; without a boot id no job runs.
    pub running: RunningSystem<'a>,
}

/// A transaction that was carried out.
#[derive(Debug, Clone)]
pub struct Finished {
    /// Its id.
    pub id: String,
    /// New objects whose SELinux label could not be set, and why.
    pub unlabelled: Vec<(RootPath, Reason)>,
    /// The jobs that ran, with their results.
    pub told: Vec<(Job, Done)>,
}

/// A transaction that failed.
#[derive(Debug, thiserror::Error)]
pub enum TransactionFailure {
    /// It failed before anything was changed; staged objects were removed.
    #[error("{0}")]
    NothingChanged(String),
    /// It failed half-way; everything was restored.
    #[error("{0}")]
    RolledBack(String),
    /// It failed half-way and could not be restored: `recover` is needed.
    #[error("{0}")]
    Incomplete(String),
}

/// Runs the steps of a request as one transaction.
///
/// The text that `describe` returns for the result is stored for `status` as soon as a name was changed.
pub fn run_transaction(
    request: &TransactionRequest<'_>,
    describe: impl Fn(&Result<Finished, TransactionFailure>) -> LastRun,
) -> Result<Finished, TransactionFailure> {
    let unchanged =
        |error: &dyn std::fmt::Display| TransactionFailure::NothingChanged(error.to_string());
    request.lock.require_writable().map_err(|e| unchanged(&e))?;
    // A signal must not end the run between two names; while there are only staged names, it undoes them.
    let signals = DeferredSignals::new();
    signals::set_answer(SignalAnswer::Staging);
    let _accounts = pwd_lock::lock_for_steps(request.root, request.steps, request.labels)
        .map_err(|e| unchanged(&e))?;
    let state = StateDirectory::open_or_make(request.root, request.separate_var, request.labels)
        .map_err(|e| unchanged(&e))?;
    let mut run = TransactionRun::new(request, state, &signals).map_err(|e| unchanged(&e))?;
    if let Err(error) = run.write_intent().and_then(|()| run.stage_steps()) {
        let failure = run.abandon_run(&error);
        if matches!(error, TransactionError::Signal(_)) && !signals.is_within_another() {
            // After the signal no caller is left to report it.
            log::warn!("{failure}; nothing was changed");
            signals::set_answer(SignalAnswer::Said);
        }
        return Err(failure);
    }
    if let Err(error) = run.ensure_descriptors().and_then(|()| run.name_journal()) {
        return Err(run.abandon_run(&error));
    }
    let _changing = RunStage::enter_changing();
    signals::set_answer(SignalAnswer::Finishing);
    freeze::freeze_cgroups(request.freeze);
    // Signals are still deferred, so that the report of the run is complete.
    let committed = run.commit_run(&describe);
    signals::set_answer(SignalAnswer::SeeStatus);
    match committed {
        Ok(()) => {
            freeze::kill_cgroups(request.freeze);
            Ok(run.finish_run())
        }
        Err(error) => {
            let failed = Err(run.undo_taken(&error));
            // Half-way, the user has to act first: until then the daemon keeps running.
            freeze::thaw_cgroups(request.freeze);
            warn_if_unwritten(run.state.write_file(paths::STATUS, &describe(&failed)));
            failed
        }
    }
}

/// Returns true if the status was written. An error is logged and does not fail the run.
fn warn_if_unwritten(result: Result<(), StateError>) -> bool {
    if let Err(error) = &result {
        log::warn!("writing the status: {error}");
    }
    result.is_ok()
}

/// An error of a run.
#[derive(Debug, thiserror::Error)]
enum TransactionError {
    #[error(transparent)]
    Stage(#[from] StageError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Step(#[from] StepError),
    #[error(transparent)]
    Flags(#[from] FlagsError),
    #[error(transparent)]
    Job(#[from] JobError),
    #[error("flushing {0} to disk: {1}")]
    Sync(RootPath, Reason),
    #[error("ended by {0} before the first change")]
    Signal(Signal),
    #[error("looking for spare descriptors: {0}; raise the limit with ulimit -n 1024")]
    Descriptors(Reason),
}

/// The result of staging some steps.
#[derive(Default)]
struct Staged {
    stamps: BTreeMap<usize, Stamp>,
    unlabelled: Vec<(RootPath, Reason)>,
}

impl Staged {
    /// Stages one more step.
    fn stage_step(
        &mut self,
        staging: &StageContext<'_>,
        index: usize,
    ) -> Result<(), TransactionError> {
        let Some(planned) = staging.steps.get(index) else {
            return Ok(());
        };
        let stage = staging.stage_of.get(index);
        let stage = stage.and_then(|&at| staging.stages.get(at));
        let stage = stage.ok_or_else(|| StageError::Changed(planned.step.path().clone()))?;
        let stamp = staging.stage_step(index, planned, stage)?;
        self.stamps.extend(stamp.map(|stamp| (index, stamp)));
        if let Some(errno) = staging.label_staged(index, planned, stage)? {
            let path = planned.step.path().clone();
            self.unlabelled.push((path, errno.into()));
        }
        Ok(())
    }
}

/// Stages all steps, on all processors if there are enough steps.
fn stage_all(
    staging: &StageContext<'_>,
    signals: &DeferredSignals,
) -> Result<Staged, TransactionError> {
    let failed = AtomicBool::new(false);
    let stage_part = |part: &[usize]| {
        let mut done = Staged::default();
        for &index in part {
            if failed.load(Ordering::Relaxed) {
                break;
            }
            let staged = go_on(signals).and_then(|()| done.stage_step(staging, index));
            if let Err(error) = staged {
                failed.store(true, Ordering::Relaxed);
                return Err(error);
            }
        }
        Ok(done)
    };
    let order = staging.share_out();
    let mut all = stage_part(&order.first)?;
    let stage_parts = |parts: &[Vec<usize>]| -> Result<Vec<Staged>, _> {
        parts.iter().map(|part| stage_part(part)).collect()
    };
    for parts in parallel::in_parts(&order.parts, 1, stage_parts) {
        for part in parts? {
            all.stamps.extend(part.stamps);
            all.unlabelled.extend(part.unlabelled);
        }
    }
    Ok(all)
}

struct TransactionRun<'a> {
    request: &'a TransactionRequest<'a>,
    signals: &'a DeferredSignals,
    id: String,
    state: StateDirectory,
    /// Every file is synced separately, because this kernel's `syncfs` reports no errors.
    sync_each: bool,
    history: Option<File>,
    candidates: Vec<stage::Candidates>,
    stage_of: Vec<usize>,
    within: Vec<Option<usize>>,
    stages: Vec<Stage>,
    /// Stamps of the existing targets, by the indexes of their steps.
    stamps: BTreeMap<usize, Stamp>,
    unlabelled: Vec<(RootPath, Reason)>,
    journal: Option<Journal>,
    /// Number of steps taken.
    taken: usize,
    /// Number of jobs started.
    begun: usize,
    told: Vec<(Job, Done)>,
}

impl<'a> TransactionRun<'a> {
    fn new(
        request: &'a TransactionRequest<'a>,
        state: StateDirectory,
        signals: &'a DeferredSignals,
    ) -> Result<Self, TransactionError> {
        let id = request.id.clone();
        let within = stage::nest_steps(request.steps);
        let (candidates, stage_of) =
            stage::stage_candidates(request.root, &id, request.steps, &within)?;
        Ok(Self {
            request,
            signals,
            id,
            state,
            sync_each: !syncfs_reports_errors(),
            history: None,
            candidates,
            stage_of,
            within,
            stages: Vec::new(),
            stamps: BTreeMap::new(),
            unlabelled: Vec::new(),
            journal: None,
            taken: 0,
            begun: 0,
            told: Vec::new(),
        })
    }

    /// Writes the intent. It becomes durable with the first staged name on its file system; staged names on other file systems
    /// are found without it, by their location.
    fn write_intent(&mut self) -> Result<(), TransactionError> {
        let steps = self.request.steps.iter();
        let touched: BTreeSet<RootPath> =
            steps.filter_map(|p| touched_directory(&p.step)).collect();
        let intent = Intent {
            version: VERSION,
            id: self.id.clone(),
            config: self.request.config.clone(),
            deployment: self.request.deployment.clone(),
            stages: self.stage_paths(),
            directories: touched.into_iter().collect(),
        };
        self.state.prepare_file(paths::INTENT, &intent, false)?;
        self.state.commit_file(paths::INTENT)?;
        self.history = Some(state::make_path(
            self.request.root,
            &leavings::history_path(&self.id),
            self.request.labels,
        )?);
        Ok(())
    }

    /// Returns every directory that may contain staged names.
    fn stage_paths(&self) -> Vec<RootPath> {
        self.candidates
            .iter()
            .flat_map(|set| set.paths.clone())
            .collect()
    }

    /// Returns true if something is staged on a different file system than the state's, or if that is unknown.
    fn stages_elsewhere(&self) -> bool {
        let own = fstat(self.state.dir()).map(|stat| stat.st_dev);
        let device = |path: &RootPath| {
            let (_, dir) = self.request.root.open_nearest(path).ok()?;
            fstat(&dir).ok().map(|stat| stat.st_dev)
        };
        let first = self.candidates.iter().filter_map(|set| set.paths.first());
        first.map(device).any(|device| device != own.ok())
    }

    /// Stages every new object and hard-links every old one, then passes barrier 1.
    fn stage_steps(&mut self) -> Result<(), TransactionError> {
        let first = self.candidates.iter();
        let first = first.filter_map(|set| set.paths.first().cloned());
        let first: Vec<RootPath> = first.collect();
        // After a power cut, only the intent leads to the others.
        let mut is_listed = false;
        let mut list_elsewhere = |path: &RootPath| {
            if is_listed || first.contains(path) {
                return Ok(());
            }
            is_listed = true;
            self.state.sync_file(paths::INTENT)
        };
        if !strays::are_searched(self.request.root, &first) {
            list_elsewhere(&RootPath::fixed(paths::INTENT))?;
        }
        if self.state.is_new() && self.stages_elsewhere() {
            // Without its state directory, a later run would not know whether staged objects are still needed.
            self.state.sync_names()?;
        }
        for set in &self.candidates {
            let root = self.request.root;
            self.stages
                .push(stage::make_stage(root, set, &mut list_elsewhere)?);
        }
        let Some(history) = &self.history else {
            return Ok(());
        };
        let staging = StageContext {
            steps: self.request.steps,
            stage_of: &self.stage_of,
            within: &self.within,
            stages: &self.stages,
            root: self.request.root,
            history,
            seen: self.request.seen,
            sync_each: self.sync_each,
        };
        let size = |planned: &PlannedStep| match &planned.step {
            Step::Put { new, .. } => new.size(),
            _ => 0,
        };
        let bytes = self.request.steps.iter().map(size).sum();
        let phase = progress::begin_phase(Work::new("Staging the files").with_total(bytes));
        let all = stage_all(&staging, self.signals)?;
        (self.stamps, self.unlabelled) = (all.stamps, all.unlabelled);
        drop(phase);
        // So an intact journal proves that everything staged elsewhere is durable.
        self.flush_others()?;
        self.prepare_journal()?;
        self.flush_own()?;
        self.go_on()
    }

    /// Stops the run after a signal; once the journal is written, signals no longer stop it.
    fn go_on(&self) -> Result<(), TransactionError> {
        go_on(self.signals)
    }

    /// Syncs every affected file system except that of the state, each once.
    fn flush_others(&self) -> Result<(), TransactionError> {
        let _phase = progress::begin_phase(Work::new("Flushing to disk"));
        let state = RootPath::fixed(paths::STATE);
        let failed =
            |path: &RootPath, errno: Errno| TransactionError::Sync(path.clone(), errno.into());
        let own = fstat(self.state.dir()).map_err(|errno| failed(&state, errno))?;
        let mut done = BTreeSet::from([own.st_dev]);
        for stage in &self.stages {
            if done.insert(stage.dev) {
                disk::sync_file_system(&stage.dir).map_err(|errno| failed(&stage.path, errno))?;
            }
        }
        Ok(())
    }

    /// Syncs the file system of the state.
    fn flush_own(&self) -> Result<(), TransactionError> {
        let _phase = progress::begin_phase(Work::new("Flushing to disk"));
        let failed =
            |errno: Errno| TransactionError::Sync(RootPath::fixed(paths::STATE), errno.into());
        disk::sync_file_system(self.state.dir()).map_err(failed)
    }

    /// Renames the journal to its final name, which proves that barrier 1 was passed.
    fn name_journal(&mut self) -> Result<(), TransactionError> {
        Ok(self.state.commit_file(paths::JOURNAL)?)
    }

    fn prepare_journal(&mut self) -> Result<(), TransactionError> {
        let stages = self.stage_of.iter().zip(&self.within);
        let steps = self.request.steps.iter().zip(stages);
        let steps = steps
            .map(|(planned, (&stage, &within))| JournalStep {
                step: planned.step.clone(),
                stage,
                section: planned.section,
                within,
            })
            .collect();
        let records_from = self
            .request
            .steps
            .iter()
            .position(|planned| planned.section == Section::Records);
        let journal = Journal {
            version: VERSION,
            id: self.id.clone(),
            config: self.request.config.clone(),
            by: self.request.by.clone(),
            deployment: self.request.deployment.clone(),
            stages: self.stages.iter().map(|stage| stage.path.clone()).collect(),
            steps,
            records_from: records_from.unwrap_or(self.request.steps.len()),
            held: self.request.held.to_vec(),
            freeze: self.request.freeze.to_vec(),
            undoes: self.request.undoes.clone(),
            jobs: self.request.jobs.to_vec(),
            capsules: self.request.capsules.to_vec(),
            boot: self.request.running.boot.cloned(),
        };
        self.state
            .prepare_file(paths::JOURNAL, &journal, self.sync_each)?;
        self.journal = Some(journal);
        Ok(())
    }

    /// Clears flags, renames, runs the jobs, writes the records, sets flags, then writes the mark and passes barrier 2. From
    /// there on, recovery only goes forward.
    fn commit_run(
        &mut self,
        describe: &impl Fn(&Result<Finished, TransactionFailure>) -> LastRun,
    ) -> Result<(), TransactionError> {
        let Some(journal) = self.journal.take() else {
            return Ok(());
        };
        let result = self.commit_steps(&journal, describe);
        self.journal = Some(journal);
        result
    }

    fn commit_steps(
        &mut self,
        journal: &Journal,
        describe: &impl Fn(&Result<Finished, TransactionFailure>) -> LastRun,
    ) -> Result<(), TransactionError> {
        flags::clear_flags(self.request.root, &journal.held)?;
        self.take_steps(journal, journal.records_from)?;
        self.run_jobs(journal)?;
        self.take_steps(journal, journal.steps.len())?;
        flags::restore_flags(self.request.root, &journal.held)?;
        // If the mark became durable before a name elsewhere, recovery would treat that name as changed.
        self.flush_others()?;
        let mark = CommitMark {
            id: self.id.clone(),
        };
        self.state
            .prepare_file(paths::COMMITTED, &mark, self.sync_each)?;
        self.state.commit_file(paths::COMMITTED)?;
        let status = describe(&Ok(self.as_finished()));
        let status = self
            .state
            .prepare_file(paths::STATUS, &status, self.sync_each)
            .and_then(|()| self.state.commit_file(paths::STATUS));
        warn_if_unwritten(status);
        self.flush_own()
    }

    /// Takes the remaining steps up to index `end`.
    fn take_steps(&mut self, journal: &Journal, end: usize) -> Result<(), TransactionError> {
        let _phase = progress::begin_phase(Work::new("Putting the files in place"));
        let dirs = stage_dirs(&self.stages);
        let executor = Executor::new(self.request.root, journal, &dirs);
        for (index, step) in journal.steps.iter().enumerate().take(end).skip(self.taken) {
            log::debug!("{} {}", step.step.sign(), step.step.path());
            if step.within.is_some() {
                // It came with its directory.
                self.taken = index + 1;
                continue;
            }
            executor.take_step(index, step, self.stamps.get(&index))?;
            self.taken = index + 1;
        }
        Ok(())
    }

    /// Runs the jobs for the running system.
    fn run_jobs(&mut self, journal: &Journal) -> Result<(), TransactionError> {
        let runner = self.request.running.runner;
        match jobs::carry_out(runner, jobs::jobs_left(journal, &self.request.running)) {
            Ok(told) => {
                self.begun = told.len();
                self.told = told;
                Ok(())
            }
            Err((index, error)) => {
                self.begun = index + 1;
                Err(error.into())
            }
        }
    }

    fn finish_run(&self) -> Finished {
        // Everything is in place; the next run sweeps any leftovers.
        if let Some(journal) = &self.journal {
            let stages = self.stage_paths();
            let tidied = close::tidy_up(self.request.root, &self.state, journal, &stages);
            if let Err(error) = tidied {
                log::warn!("tidying up after the run: {error}");
            }
        }
        self.as_finished()
    }

    fn as_finished(&self) -> Finished {
        Finished {
            id: self.id.clone(),
            unlabelled: self.unlabelled.clone(),
            told: self.told.clone(),
        }
    }

    /// Checks that there are spare descriptors, because from here on none may be lacking.
    fn ensure_descriptors(&self) -> Result<(), TransactionError> {
        let left = limits::ensure_descriptors(self.request.root.as_fd());
        left.map_err(|errno| TransactionError::Descriptors(errno.into()))
    }

    /// Removes journal and staged names. No name was changed yet, so the node is as it was.
    fn abandon_run(&self, error: &TransactionError) -> TransactionFailure {
        // Durably, and before the staged names: otherwise the next run could take these for placed.
        if let Err(second) = self.state.remove_journal()
            && self.may_have_journal()
        {
            return TransactionFailure::Incomplete(format!(
                "{error}; then, removing the journal: {second}"
            ));
        }
        match close::discard_run(
            self.request.root,
            &self.state,
            &self.id,
            &self.stage_paths(),
        ) {
            Ok(()) => TransactionFailure::NothingChanged(error.to_string()),
            Err(second) => {
                TransactionFailure::NothingChanged(format!("{error}; then, tidying up: {second}"))
            }
        }
    }

    /// Returns true if a journal of this run exists, or if that is unknown.
    fn may_have_journal(&self) -> bool {
        let mut files = [paths::JOURNAL, paths::PREPARED_JOURNAL].into_iter();
        let is_missing = |file| {
            let found = self.request.root.exists(&RootPath::fixed(file));
            matches!(found, Ok(false))
        };
        !files.all(is_missing)
    }

    /// Undoes the steps that were taken. Reports the first error, followed by any error of undoing.
    fn undo_taken(&self, error: &TransactionError) -> TransactionFailure {
        log::warn!("{error}; restoring everything");
        let Some(journal) = &self.journal else {
            return TransactionFailure::Incomplete(error.to_string());
        };
        let dirs = stage_dirs(&self.stages);
        // Usually the failed step had no effect, but a change of mode and owner may be partly done.
        let executor = Executor::new(self.request.root, journal, &dirs);
        // An existing directory may be another program's; what the run staged for it is then still in the stage.
        let failed = journal.steps.get(self.taken);
        let took_effect = failed.map(|step| executor.is_taken(self.taken, step));
        let took_effect = match took_effect.transpose() {
            Ok(took_effect) => took_effect.unwrap_or_default(),
            Err(second) => {
                return TransactionFailure::Incomplete(format!(
                    "{error}; then, looking at that path: {second}"
                ));
            }
        };
        let taken = self.taken + usize::from(took_effect);
        let is_taken = |index: &usize| journal.placed_by(*index) < taken;
        let steps: Vec<usize> = (0..journal.steps.len()).filter(is_taken).collect();
        let undone = recover::undo_steps(self.request.root, &self.state, journal, &dirs, &steps);
        if let Err(second) = undone {
            return TransactionFailure::Incomplete(format!(
                "{error}; then, putting it back: {second}"
            ));
        }
        let mut said = vec![error.to_string()];
        said.extend(self.repeat_jobs(journal));
        TransactionFailure::RolledBack(said.join("; "))
    }

    /// Runs the jobs again, because services have read files that have been removed or replaced since.
    fn repeat_jobs(&self, journal: &Journal) -> Option<String> {
        let failed = jobs::repeat_jobs(self.request.running.runner, journal, self.begun);
        match (self.begun, failed.as_slice()) {
            (0, _) => None,
            (_, []) => {
                Some("services that read the new files were reloaded with the old ones".to_owned())
            }
            (_, failed) => Some(format!("then, with the old files: {}", failed.join("; "))),
        }
    }
}

fn stage_dirs(stages: &[Stage]) -> Vec<Option<BorrowedFd<'_>>> {
    let dirs = stages.iter().map(|stage| Some(stage.dir.as_fd()));
    dirs.collect()
}

fn go_on(signals: &DeferredSignals) -> Result<(), TransactionError> {
    match signals.waiting_signal() {
        Some(signal) => Err(TransactionError::Signal(signal)),
        None => Ok(()),
    }
}

fn touched_directory(step: &Step) -> Option<RootPath> {
    match step {
        Step::MakeDirectory { path, .. } | Step::RemoveDirectory { path, .. } => Some(path.clone()),
        other => other.path().parent(),
    }
}

/// Returns the id of the next run: unique on this node, and later than every run in the history even if the clock was set back.
/// It is determined before the run begins, so that no power cut can leave a run in place without a name.
///
/// # Errors
/// The history cannot be read.
pub fn next_run_id(root: &Root, _lock: &Lock) -> Result<String, StateError> {
    let since_epoch = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    let names = history::history_names(root)?;
    let newest = names.last().map_or(0, |name| history::id_order(name).0);
    let now = since_epoch.as_millis().max(newest.saturating_add(1));
    Ok(format!("{now}-{}", std::process::id()))
}

/// Returns true from kernel 5.8 on; older kernels lose write errors in `syncfs`.
fn syncfs_reports_errors() -> bool {
    let release = sysinfo::System::kernel_version().unwrap_or_default();
    let mut numbers = release
        .split(['.', '-'])
        .map(|part| part.parse::<u32>().unwrap_or_default());
    (
        numbers.next().unwrap_or_default(),
        numbers.next().unwrap_or_default(),
    ) >= (5, 8)
}

/// Stores the result of a run, for `status`.
pub fn write_last_run(root: &Root, _lock: &Lock, run: &LastRun) {
    warn_if_unwritten(match StateDirectory::open(root) {
        Ok(Some(state)) => state.write_file(paths::STATUS, run),
        Ok(None) => Ok(()),
        Err(error) => Err(error),
    });
}

/// Reads the result of the last run.
pub fn last_run(root: &Root) -> Result<Option<LastRun>, StateError> {
    match StateDirectory::open(root)? {
        Some(state) => state.read_file(root, paths::STATUS),
        None => Ok(None),
    }
}
