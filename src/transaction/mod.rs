//! The transaction: intent, staging, barrier, journal, renames, barrier, records, barrier
//! (docs/transaction.md). All or nothing, and the next run finishes or undoes.
//!
//! Flushes take most of the time of a small run, so there are seven, however much is changed: the intent's bytes; three
//! barriers, each one `syncfs` for each file system; the journal's name, then those of mark and status, whose bytes
//! went with the barrier before; and one for tidying up. What else is made relies on ext4, xfs and btrfs: of two names
//! on one file system, the later is never durable before the earlier.
//!
//! Only `disk`, private to this module, changes a file system. The guard that
//! [`acquire`] gives is the only way to begin.

mod disk;
mod execute;
mod flags;
mod force;
mod freeze;
mod jobs;
pub mod journal;
mod last_run;
mod lock;
pub mod place;
mod pwd_lock;
mod recover;
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

use crate::command::job::{Done, Job};
use crate::node::Labels;
use crate::object::Stamp;
use crate::paths;
use crate::plan::{Held, PlannedStep, Section, Step};
use crate::progress::{self, Work};
use crate::reason::Reason;
use crate::root::{Root, RootPath};
use crate::sys::limits;
use crate::sys::memory::HalfWay;
use crate::sys::parallel;
use crate::sys::signals::{self, Answer, DeferredSignals};

use execute::{Executor, Progress, StepError};
use flags::FlagsError;
use jobs::JobError;
use journal::{ConfigRef, Intent, Journal, JournalStep, Mark, VERSION};
use stage::{Stage, StageError, Staging};
use state::{State, StateError};

pub use force::{request_force, withdraw_force};
pub use jobs::Running;
pub use last_run::{LastRun, Outcome, Phase};
pub use lock::{Lock, LockError, acquire, acquire_elsewhere, is_held};
pub use recover::{
    Changes, Pending, RecoverError, Recovered, Wanted, frozen, give_up, history, order, pending,
    recover, strays,
};
pub use state::StateError as StateDirectoryError;
pub use store::Store;
pub use survey::{Direction, Leave, Left};

/// How many finished runs are kept for `rollback`.
pub const HISTORY_KEPT: usize = 3;

/// What a transaction is about.
#[allow(
    missing_debug_implementations,
    reason = "whole objects must not get into a message"
)]
pub struct Request<'a> {
    /// The root.
    pub root: &'a Root,
    /// Proof that nobody else is at it.
    pub lock: &'a Lock,
    /// The steps; those of [`Section::Records`] come last.
    pub steps: &'a [PlannedStep],
    /// Flags that stand in the way of the steps.
    pub held: &'a [Held],
    /// Cgroups that stand still while names change, and are ended afterwards.
    pub freeze: &'a [String],
    /// Stamps of the objects that the plan saw.
    pub seen: &'a BTreeMap<RootPath, Stamp>,
    /// The labels that our own files get; those of the steps are in the steps.
    pub labels: &'a Labels,
    /// The config.
    pub config: ConfigRef,
    /// The deployment whose `etc` this is.
    pub deployment: Option<String>,
    /// The root's `var` is a mount of its own: an empty one is not the real one.
    pub separate_var: bool,
    /// The finished run that this one takes back; both leave the history.
    pub undoes: Option<String>,
    /// What the running system is told between the files and the records.
    pub jobs: &'a [Job],
    /// The running system; without a boot nothing may be told.
    pub running: Running<'a>,
}

/// A transaction that was carried out.
#[derive(Debug, Clone)]
pub struct Finished {
    /// Its id.
    pub id: String,
    /// New objects that could not be given their SELinux label, and why.
    pub unlabelled: Vec<(RootPath, Reason)>,
    /// What the running system was told.
    pub told: Vec<(Job, Done)>,
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

/// Carries out the steps.
///
/// What `describe` says of the result is kept for `status`, as soon as a name was changed.
pub fn run(
    request: &Request<'_>,
    describe: impl Fn(&Result<Finished, Failure>) -> LastRun,
) -> Result<Finished, Failure> {
    let unchanged = |error: &dyn std::fmt::Display| Failure::NothingChanged(error.to_string());
    request.lock.require().map_err(|e| unchanged(&e))?;
    // A signal must not end the run between two names; while there are only staged ones it undoes them.
    let signals = DeferredSignals::new();
    signals::answer(Answer::Staging);
    let _accounts = pwd_lock::for_steps(request.root, request.steps, request.labels)
        .map_err(|e| unchanged(&e))?;
    let state = State::make(request.root, request.separate_var, request.labels)
        .map_err(|e| unchanged(&e))?;
    let mut run = Run::new(request, state, &signals).map_err(|e| unchanged(&e))?;
    if let Err(error) = run.prepare().and_then(|()| run.stage()) {
        let failure = run.abandon(&error);
        if matches!(error, RunError::Signal(_)) {
            // Nobody is there to say it when the signal has its way.
            log::warn!("{failure}; nothing was changed");
            signals::answer(Answer::Said);
        }
        return Err(failure);
    }
    if let Err(error) = run.has_descriptors().and_then(|()| run.write_journal()) {
        return Err(run.abandon(&error));
    }
    let _half_way = HalfWay::begin();
    signals::answer(Answer::Finishing);
    freeze::freeze(request.freeze);
    // Signals still wait, so that what is written of the run is not cut off.
    let committed = run.commit(&describe);
    signals::answer(Answer::SeeStatus);
    match committed {
        Ok(()) => {
            freeze::end(request.freeze);
            Ok(run.finish())
        }
        Err(error) => {
            let failed = Err(run.undo(&error));
            // Half-way, a person has to act first: until then the daemon does not stand still.
            freeze::thaw(request.freeze);
            is_told(run.state.write(paths::STATUS, &describe(&failed)));
            failed
        }
    }
}

/// Whether what is told of a run was written. Where it was not, the run does not fail because of that.
fn is_told(result: Result<(), StateError>) -> bool {
    if let Err(error) = &result {
        log::warn!("writing the status: {error}");
    }
    result.is_ok()
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

/// Fewer steps than this are staged by one thread.
const PART: usize = 512;

/// What came of staging some steps.
#[derive(Default)]
struct Staged {
    stamps: Vec<Option<Stamp>>,
    unlabelled: Vec<(RootPath, Reason)>,
}

impl Staged {
    /// Stages one more.
    fn add(&mut self, staging: &Staging<'_>, index: usize) -> Result<(), RunError> {
        let Some(planned) = staging.steps.get(index) else {
            return Ok(());
        };
        let stage = staging.stage_of.get(index);
        let stage = stage.and_then(|&at| staging.stages.get(at));
        let stage = stage.ok_or_else(|| StageError::Changed(planned.step.path().clone()))?;
        self.stamps.push(staging.stage(index, planned, stage)?);
        if let Some(errno) = staging.label(index, planned, stage)? {
            let path = planned.step.path().clone();
            self.unlabelled.push((path, errno.into()));
        }
        Ok(())
    }
}

struct Run<'a> {
    request: &'a Request<'a>,
    signals: &'a DeferredSignals,
    id: String,
    state: State,
    /// Every file is flushed by itself: this kernel's `syncfs` reports no errors.
    sync_each: bool,
    history: Option<File>,
    candidates: Vec<stage::Candidates>,
    stage_of: Vec<usize>,
    stages: Vec<Stage>,
    stamps: Vec<Option<Stamp>>,
    unlabelled: Vec<(RootPath, Reason)>,
    journal: Option<Journal>,
    /// How many steps were taken.
    taken: usize,
    /// How many jobs were begun.
    begun: usize,
    told: Vec<(Job, Done)>,
}

impl<'a> Run<'a> {
    fn new(
        request: &'a Request<'a>,
        state: State,
        signals: &'a DeferredSignals,
    ) -> Result<Self, RunError> {
        let id = new_id(request.root);
        let (candidates, stage_of) = stage::candidates(request.root, &id, request.steps)?;
        Ok(Self {
            request,
            signals,
            id,
            state,
            sync_each: !syncfs_reports_errors(),
            history: None,
            candidates,
            stage_of,
            stages: Vec::new(),
            stamps: Vec::new(),
            unlabelled: Vec::new(),
            journal: None,
            taken: 0,
            begun: 0,
            told: Vec::new(),
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
        self.state.prepare(paths::INTENT, &intent, true)?;
        self.state.put(paths::INTENT)?;
        let sets = self.candidates.split_first();
        if sets.is_some_and(|(own, others)| others.iter().any(|set| !set.is_beside(own))) {
            // On the file system of the state itself no name made later is durable before this one.
            self.state.sync()?;
        }
        self.history = Some(state::make_path(
            self.request.root,
            &recover::history_path(&self.id),
            self.request.labels,
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
            sync_each: self.sync_each,
        };
        let bytes = self
            .request
            .steps
            .iter()
            .map(|planned| match &planned.step {
                Step::Put { new, .. } => new.size(),
                _ => 0,
            });
        let phase = progress::begin(Work::new("Staging the files").of(bytes.sum()));
        let indices: Vec<usize> = (0..self.request.steps.len()).collect();
        // A second name needs what it is a name of.
        let least = if staging.has_second_names() {
            indices.len()
        } else {
            PART
        };
        let failed = AtomicBool::new(false);
        let signals = self.signals;
        let parts = parallel::in_parts(&indices, least, |part| {
            let mut done = Staged::default();
            for &index in part {
                if failed.load(Ordering::Relaxed) {
                    break;
                }
                let staged = go_on(signals).and_then(|()| done.add(&staging, index));
                if let Err(error) = staged {
                    failed.store(true, Ordering::Relaxed);
                    return Err(error);
                }
            }
            Ok(done)
        });
        let mut all = Staged::default();
        for part in parts {
            let part = part?;
            all.stamps.extend(part.stamps);
            all.unlabelled.extend(part.unlabelled);
        }
        (self.stamps, self.unlabelled) = (all.stamps, all.unlabelled);
        drop(phase);
        self.prepare_journal()?;
        self.barrier()?;
        self.go_on()
    }

    /// Asked to end, the run goes no further; once the journal is written it does.
    fn go_on(&self) -> Result<(), RunError> {
        go_on(self.signals)
    }

    /// Flushes every file system that is touched, each once.
    fn barrier(&self) -> Result<(), RunError> {
        let _phase = progress::begin(Work::new("Flushing to disk"));
        let state = RootPath::fixed(paths::STATE);
        let failed = |path: &RootPath, errno: Errno| RunError::Sync(path.clone(), errno.into());
        let mut done = BTreeSet::new();
        for stage in &self.stages {
            if done.insert(stage.dev) {
                disk::sync_file_system(&stage.dir).map_err(|errno| failed(&stage.path, errno))?;
            }
        }
        // As a rule it is the first stage's.
        let dev = fstat(self.state.dir())
            .map_err(|errno| failed(&state, errno))?
            .st_dev;
        if done.insert(dev) {
            disk::sync_file_system(self.state.dir()).map_err(|errno| failed(&state, errno))?;
        }
        Ok(())
    }

    /// The commit point: the journal, whose bytes were flushed with everything staged, gets its name.
    fn write_journal(&mut self) -> Result<(), RunError> {
        self.state.put(paths::JOURNAL)?;
        Ok(self.state.sync()?)
    }

    fn prepare_journal(&mut self) -> Result<(), RunError> {
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
            held: self.request.held.to_vec(),
            freeze: self.request.freeze.to_vec(),
            undoes: self.request.undoes.clone(),
            jobs: self.request.jobs.to_vec(),
            boot: self.request.running.boot.map(str::to_owned),
        };
        self.state
            .prepare(paths::JOURNAL, &journal, self.sync_each)?;
        self.journal = Some(journal);
        Ok(())
    }

    /// Flags cleared, renames, barrier 2, jobs, records, flags set, barrier 3, and the mark from which there is only forward.
    fn commit(
        &mut self,
        describe: &impl Fn(&Result<Finished, Failure>) -> LastRun,
    ) -> Result<(), RunError> {
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
        describe: &impl Fn(&Result<Finished, Failure>) -> LastRun,
    ) -> Result<(), RunError> {
        flags::clear(self.request.root, &journal.held)?;
        self.forward(journal, journal.records_from)?;
        self.barrier()?;
        self.tell(journal)?;
        self.forward(journal, journal.steps.len())?;
        flags::restore(self.request.root, &journal.held)?;
        let mark = Mark {
            id: self.id.clone(),
        };
        self.state
            .prepare(paths::COMMITTED, &mark, self.sync_each)?;
        // Their bytes go with the barrier, and their names with one flush: first the mark's.
        let status = describe(&Ok(self.finished()));
        let status = self.state.prepare(paths::STATUS, &status, self.sync_each);
        let told = is_told(status);
        self.barrier()?;
        self.state.put(paths::COMMITTED)?;
        if told {
            is_told(self.state.put(paths::STATUS));
        }
        Ok(self.state.sync()?)
    }

    /// Takes the steps that were not taken yet, up to `end`.
    fn forward(&mut self, journal: &Journal, end: usize) -> Result<(), RunError> {
        let _phase = progress::begin(Work::new("Putting the files in place"));
        let dirs = stage_dirs(&self.stages);
        let executor = Executor::new(self.request.root, &dirs);
        for (index, step) in journal.steps.iter().enumerate().take(end).skip(self.taken) {
            log::debug!("{} {}", step.step.sign(), step.step.path());
            executor.forward(index, step, self.stamps.get(index).and_then(Option::as_ref))?;
            self.taken = index + 1;
        }
        Ok(())
    }

    /// Tells the running system what has changed.
    fn tell(&mut self, journal: &Journal) -> Result<(), RunError> {
        let runner = self.request.running.runner;
        match jobs::carry_out(runner, jobs::left(journal, &self.request.running)) {
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

    fn finish(&self) -> Finished {
        // Everything is in place; what is left over now is swept by the next run.
        if let Err(error) = self.tidy() {
            log::warn!("tidying up after the run: {error}");
        }
        self.finished()
    }

    fn finished(&self) -> Finished {
        Finished {
            id: self.id.clone(),
            unlabelled: self.unlabelled.clone(),
            told: self.told.clone(),
        }
    }

    fn tidy(&self) -> Result<(), RecoverError> {
        let (root, stages) = (self.request.root, self.stage_paths());
        if let Some(journal) = &self.journal {
            recover::keep_trees(root, journal)?;
            recover::forget_undone(root, journal);
        }
        recover::close(root, &self.state, &self.id, &stages)?;
        if self.request.undoes.is_some() {
            // What was taken back is the config's own; it can be applied again.
            recover::remove_history(root, &recover::history_path(&self.id));
        }
        Ok(())
    }

    /// From here on none may be missing.
    fn has_descriptors(&self) -> Result<(), RunError> {
        let left = limits::has_descriptors(self.request.root.as_fd());
        left.map_err(|errno| RunError::Descriptors(errno.into()))
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
        let dirs = stage_dirs(&self.stages);
        // The step that failed took no effect as a rule; a change of mode and owner may be half done.
        let executor = Executor::new(self.request.root, &dirs);
        let failed = journal
            .steps
            .get(self.taken)
            .map(|step| executor.progress(&step.step));
        let took_effect = matches!(failed, Some(Ok(Progress::After | Progress::Between)));
        let taken = self.taken + usize::from(took_effect);
        let steps: Vec<usize> = (0..taken).collect();
        let undone = recover::undo(self.request.root, &self.state, journal, &dirs, &steps);
        if let Err(second) = undone {
            return Failure::Incomplete(format!("{error}; then, putting it back: {second}"));
        }
        let mut said = vec![error.to_string()];
        said.extend(self.tell_again(journal));
        Failure::RolledBack(said.join("; "))
    }

    /// Services have read what is gone again.
    fn tell_again(&self, journal: &Journal) -> Option<String> {
        let failed = jobs::tell_again(self.request.running.runner, journal, self.begun);
        match (self.begun, failed.as_slice()) {
            (0, _) => None,
            (_, []) => Some("who was told of the new files was told of the old ones".to_owned()),
            (_, failed) => Some(format!("then, with the old files: {}", failed.join("; "))),
        }
    }
}

fn stage_dirs(stages: &[Stage]) -> Vec<Option<BorrowedFd<'_>>> {
    let dirs = stages.iter().map(|stage| Some(stage.dir.as_fd()));
    dirs.collect()
}

fn go_on(signals: &DeferredSignals) -> Result<(), RunError> {
    match signals.waiting() {
        Some(signal) => Err(RunError::Signal(signal)),
        None => Ok(()),
    }
}

fn touched_directory(step: &Step) -> Option<RootPath> {
    match step {
        Step::MakeDirectory { path, .. } | Step::RemoveDirectory { path, .. } => Some(path.clone()),
        other => other.path().parent(),
    }
}

/// Unique on this node, and later than every run of the history even if the clock was set back since.
fn new_id(root: &Root) -> String {
    let since_epoch = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    let names = recover::history_names(root);
    let newest = names.last().map_or(0, |name| recover::order(name).0);
    let now = since_epoch.as_millis().max(newest.saturating_add(1));
    format!("{now}-{}", std::process::id())
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
pub fn write_last_run(root: &Root, _lock: &Lock, run: &LastRun) {
    is_told(match State::open(root) {
        Ok(Some(state)) => state.write(paths::STATUS, run),
        Ok(None) => Ok(()),
        Err(error) => Err(error),
    });
}

/// What came of the last run.
pub fn last_run(root: &Root) -> Result<Option<LastRun>, StateError> {
    match State::open(root)? {
        Some(state) => state.read(root, paths::STATUS),
        None => Ok(None),
    }
}
