//! The transaction: intent, staging, barrier, journal, renames, barrier, records, barrier
//! (design.md section 3). All or nothing, and the next run finishes or undoes.
//!
//! Only `disk`, private to this module, changes a file system. The guard that
//! [`acquire`] gives is the only way to begin.

mod disk;
mod execute;
pub mod journal;
mod lock;
mod pwd_lock;
mod recover;
mod stage;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::AsFd;

use nix::sys::signal::Signal;

use crate::error::Reason;
use crate::object::Stamp;
use crate::paths;
use crate::plan::{PlannedStep, Section, Step};
use crate::report::status::LastRun;
use crate::root::{Root, RootPath};
use crate::signals::DeferredSignals;

use execute::{Executor, Progress, StepError};
use journal::{ConfigRef, Intent, Journal, JournalStep, VERSION};
use recover::RecoverError;
use stage::{Stage, StageError, Staging};
use state::{State, StateError};

pub use lock::{Lock, LockError, acquire};
pub use recover::{Direction, Pending, Recovered, history, pending, recover};
pub use state::StateError as StateDirectoryError;

/// How many finished runs are kept for `rollback`.
const HISTORY_KEPT: usize = 3;

/// What a transaction is about.
pub struct Request<'a> {
    /// The root.
    pub root: &'a Root,
    /// Proof that nobody else is at it.
    pub lock: &'a Lock,
    /// The steps; those of [`Section::Records`] come last.
    pub steps: &'a [PlannedStep],
    /// Stamps of the objects that the plan saw.
    pub seen: &'a BTreeMap<RootPath, Stamp>,
    /// The config.
    pub config: ConfigRef,
    /// The deployment whose `etc` this is.
    pub deployment: Option<String>,
    /// We run in an initramfs, where an empty `var` is not the real one.
    pub initramfs: bool,
    /// The finished run that this one takes back; both leave the history.
    pub undoes: Option<String>,
}

/// How a transaction failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Before anything was changed; staged objects are gone again.
    #[error("{0}")]
    NothingChanged(String),
    /// Half-way; everything was put back.
    #[error("{0}")]
    RolledBack(String),
    /// Half-way, and it could not be put back: `recover` is needed.
    #[error("{0}")]
    Incomplete(String),
}

/// Carries out the steps. Gives the transaction's id.
///
/// `record` is told the result while signals still wait, so that what it writes is not cut off.
pub fn run(
    request: &Request<'_>,
    record: impl FnOnce(&Result<String, Failure>),
) -> Result<String, Failure> {
    let unchanged = |error: &dyn std::fmt::Display| Failure::NothingChanged(error.to_string());
    // A signal must not end the run between two names; while there are only staged ones it undoes them.
    let signals = DeferredSignals::new();
    let _accounts = pwd_lock::for_steps(request.root, request.steps).map_err(|e| unchanged(&e))?;
    let state = State::make(request.root, request.initramfs).map_err(|e| unchanged(&e))?;
    let mut run = Run::new(request, state, &signals).map_err(|e| unchanged(&e))?;
    if let Err(error) = run.prepare().and_then(|()| run.stage()) {
        let failure = run.abandon(&error);
        if matches!(error, RunError::Signal(_)) {
            // Nobody is there to say it when the signal has its way.
            log::warn!("{failure}; nothing was changed");
        }
        return Err(failure);
    }
    if let Err(error) = run.write_journal() {
        return Err(run.abandon(&error));
    }
    let result = match run.commit() {
        Ok(()) => Ok(run.finish()),
        Err(error) => Err(run.undo(&error)),
    };
    record(&result);
    result
}

/// Anything that can go wrong in a run.
#[derive(Debug, thiserror::Error)]
enum RunError {
    #[error(transparent)]
    Stage(#[from] StageError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Step(#[from] StepError),
    #[error("flushing {0} to disk: {1}")]
    Sync(RootPath, Reason),
    #[error("ended by {0} before the first change")]
    Signal(Signal),
}

struct Run<'a> {
    request: &'a Request<'a>,
    signals: &'a DeferredSignals,
    id: String,
    state: State,
    history: Option<File>,
    candidates: Vec<stage::Candidates>,
    stage_of: Vec<usize>,
    stages: Vec<Stage>,
    stamps: Vec<Option<Stamp>>,
    journal: Option<Journal>,
    /// How many steps were taken.
    taken: usize,
}

impl<'a> Run<'a> {
    fn new(
        request: &'a Request<'a>,
        state: State,
        signals: &'a DeferredSignals,
    ) -> Result<Self, RunError> {
        let id = new_id();
        let (candidates, stage_of) = stage::candidates(request.root, &id, request.steps)?;
        Ok(Self {
            request,
            signals,
            id,
            state,
            history: None,
            candidates,
            stage_of,
            stages: Vec::new(),
            stamps: Vec::new(),
            journal: None,
            taken: 0,
        })
    }

    /// Barrier 0: the intent is durable before the first staged name exists.
    fn prepare(&mut self) -> Result<(), RunError> {
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
        self.state.write(paths::INTENT, &intent)?;
        self.history = Some(state::make_path(
            self.request.root,
            &recover::history_path(&self.id),
        )?);
        Ok(())
    }

    /// Every directory that may hold staged names.
    fn stage_paths(&self) -> Vec<RootPath> {
        self.candidates
            .iter()
            .flat_map(|set| set.paths.clone())
            .collect()
    }

    /// Makes every new object and keeps every old one, then barrier 1.
    fn stage(&mut self) -> Result<(), RunError> {
        for set in &self.candidates {
            self.stages.push(stage::make(self.request.root, set)?);
        }
        let Some(history) = &self.history else {
            return Ok(());
        };
        let staging = Staging {
            steps: self.request.steps,
            stage_of: &self.stage_of,
            stages: &self.stages,
            root: self.request.root,
            history,
            seen: self.request.seen,
            sync_each: !syncfs_reports_errors(),
        };
        for (index, planned) in self.request.steps.iter().enumerate() {
            self.go_on()?;
            let stage = self.stage_of.get(index).and_then(|&at| self.stages.get(at));
            let stage = stage.ok_or_else(|| StageError::Changed(planned.step.path().clone()))?;
            self.stamps.push(staging.stage(index, planned, stage)?);
        }
        self.barrier()?;
        self.go_on()
    }

    /// Asked to end, the run goes no further; once the journal is written it does.
    fn go_on(&self) -> Result<(), RunError> {
        match self.signals.waiting() {
            Some(signal) => Err(RunError::Signal(signal)),
            None => Ok(()),
        }
    }

    /// Flushes every file system that is touched, each once.
    fn barrier(&self) -> Result<(), RunError> {
        let mut done = BTreeSet::new();
        for stage in &self.stages {
            if done.insert(stage.dev) {
                disk::sync_file_system(&stage.dir)
                    .map_err(|errno| RunError::Sync(stage.path.clone(), errno.into()))?;
            }
        }
        Ok(())
    }

    /// The commit point.
    fn write_journal(&mut self) -> Result<(), RunError> {
        let steps = self.request.steps.iter().zip(&self.stage_of);
        let steps = steps
            .map(|(planned, &stage)| JournalStep {
                step: planned.step.clone(),
                stage,
                section: planned.section,
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
            deployment: self.request.deployment.clone(),
            stages: self.stages.iter().map(|stage| stage.path.clone()).collect(),
            steps,
            records_from: records_from.unwrap_or(self.request.steps.len()),
            undoes: self.request.undoes.clone(),
        };
        self.state.write(paths::JOURNAL, &journal)?;
        self.journal = Some(journal);
        Ok(())
    }

    /// Renames, barrier 2, records, barrier 3, and the mark from which there is only forward.
    fn commit(&mut self) -> Result<(), RunError> {
        let Some(journal) = self.journal.take() else {
            return Ok(());
        };
        let result = self.commit_steps(&journal);
        self.journal = Some(journal);
        result
    }

    fn commit_steps(&mut self, journal: &Journal) -> Result<(), RunError> {
        self.forward(journal, journal.records_from)?;
        self.barrier()?;
        self.forward(journal, journal.steps.len())?;
        self.barrier()?;
        Ok(self.state.write(paths::COMMITTED, &self.id)?)
    }

    /// Takes the steps that were not taken yet, up to `end`.
    fn forward(&mut self, journal: &Journal, end: usize) -> Result<(), RunError> {
        let dirs = self.stage_dirs();
        let executor = Executor {
            root: self.request.root,
            stages: &dirs,
        };
        for (index, step) in journal.steps.iter().enumerate().take(end).skip(self.taken) {
            log::debug!("{} {}", step.step.sign(), step.step.path());
            executor.forward(index, step, self.stamps.get(index).and_then(Option::as_ref))?;
            self.taken = index + 1;
        }
        Ok(())
    }

    fn stage_dirs(&self) -> Vec<File> {
        self.stages
            .iter()
            .filter_map(|stage| stage.dir.try_clone().ok())
            .collect()
    }

    fn finish(self) -> String {
        if let Some(journal) = &self.journal {
            recover::keep_trees(self.request.root, journal);
            recover::forget_undone(self.request.root, journal);
        }
        // Everything is in place; what is left over now is swept by the next run.
        if let Err(error) = recover::close(
            self.request.root,
            &self.state,
            &self.id,
            &self.stage_paths(),
        ) {
            log::warn!("tidying up after the run: {error}");
        }
        if self.request.undoes.is_some() {
            // What was taken back is the config's own; it can be applied again.
            recover::remove_history(self.request.root, &recover::history_path(&self.id));
        }
        self.id
    }

    /// Nothing was renamed yet: journal and staged names go, and the node is as it was.
    fn abandon(&self, error: &RunError) -> Failure {
        // A journal whose directory could not be flushed may be there all the same.
        if let Err(second) = self.state.remove(paths::JOURNAL) {
            return Failure::Incomplete(format!("{error}; then, removing the journal: {second}"));
        }
        match recover::discard(
            self.request.root,
            &self.state,
            &self.id,
            &self.stage_paths(),
        ) {
            Ok(()) => Failure::NothingChanged(error.to_string()),
            Err(second) => Failure::NothingChanged(format!("{error}; then, tidying up: {second}")),
        }
    }

    /// The first error is the one that is told; a second one while undoing follows it.
    fn undo(&self, error: &RunError) -> Failure {
        log::warn!("{error}; putting everything back");
        let Some(journal) = &self.journal else {
            return Failure::Incomplete(error.to_string());
        };
        let dirs = self.stage_dirs();
        // The step that failed took no effect as a rule; a change of mode and owner may be half done.
        let executor = Executor {
            root: self.request.root,
            stages: &dirs,
        };
        let failed = journal
            .steps
            .get(self.taken)
            .map(|step| executor.progress(&step.step));
        let took_effect = matches!(failed, Some(Ok(Progress::After | Progress::Between)));
        let taken = self.taken + usize::from(took_effect);
        match recover::undo_some(self.request.root, &self.state, journal, &dirs, taken) {
            Ok(()) => Failure::RolledBack(error.to_string()),
            Err(RecoverError::LeftOvers) => {
                Failure::RolledBack(format!("{error}; {}", RecoverError::LeftOvers))
            }
            Err(second) => Failure::Incomplete(format!("{error}; then, putting it back: {second}")),
        }
    }
}

fn touched_directory(step: &Step) -> Option<RootPath> {
    match step {
        Step::MakeDirectory { path, .. } | Step::RemoveDirectory { path, .. } => Some(path.clone()),
        other => other.path().parent(),
    }
}

/// Unique on this node; only for people's eyes beyond that.
fn new_id() -> String {
    let since_epoch = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    format!("{}-{}", since_epoch.as_millis(), std::process::id())
}

/// Kernels before 5.8 lose write errors in `syncfs`.
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

/// Keeps what came of a run, for `status`.
pub fn write_last_run(root: &Root, _lock: &Lock, run: &LastRun) -> Result<(), StateError> {
    match State::open(root)? {
        Some(state) => state.write(paths::STATUS, run),
        None => Ok(()),
    }
}

/// What came of the last run.
pub fn last_run(root: &Root) -> Result<Option<LastRun>, StateError> {
    match State::open(root)? {
        Some(state) => state.read(root, paths::STATUS),
        None => Ok(None),
    }
}

fn sync_parent(state: &State) -> Result<(), StateError> {
    disk::sync_directory(state.dir())
        .map_err(|errno| StateError::System(format!("/{}", paths::STATE), errno.into()))
}

fn directory_fd(root: &Root, path: &RootPath) -> Option<File> {
    let dir = root.directory(path).ok().flatten()?;
    disk::open_directory(dir.as_fd(), ".").ok()
}
