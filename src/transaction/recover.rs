//! Finishing or undoing what an interrupted run left; may itself be interrupted and run again.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use nix::errno::Errno;
use nix::sys::stat::fstat;

use super::disk;
use super::execute::{Executor, Stages, StepError};
use super::flags::{self, FlagsError};
use super::freeze;
use super::jobs::{self, JobError, Running};
use super::journal::{
    ConfigRef, Intent, Journal, JournalStep, Mark, away_name, is_staged_name, new_name, old_name,
};
use super::lock::{Lock, is_held};
use super::state::{self, State, StateError};
use super::survey::{Asked, Direction, Leave, Left, Stuck, Survey};
use super::{HISTORY_KEPT, strays as stray_stages};
use crate::invocation::mco_rescue;
use crate::node::activity;
use crate::paths;
use crate::plan::FinishedRun;
use crate::reason::Reason;
use crate::root::{Place, Root, RootError, RootPath};
use crate::sys::signals::DeferredSignals;

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
    Finished(ConfigRef, Changes),
    /// The interrupted run was undone.
    Undone(ConfigRef, Changes),
    /// The interrupted run was given up; where its old objects are.
    GivenUp(ConfigRef, Option<RootPath>),
}

/// The paths of an interrupted run after its recovery, in the order of its steps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// These changed.
    pub changed: Vec<RootPath>,
    /// These could not be brought along and stay as they are.
    pub left: Vec<Left>,
}

impl Recovered {
    /// The paths that changed.
    pub fn changed(&self) -> &[RootPath] {
        match self {
            Self::Nothing | Self::Swept(_) | Self::GivenUp(..) => &[],
            Self::Finished(_, changes) | Self::Undone(_, changes) => &changes.changed,
        }
    }

    /// The paths that stay as they are.
    pub fn left(&self) -> &[Left] {
        match self {
            Self::Nothing | Self::Swept(_) | Self::GivenUp(..) => &[],
            Self::Finished(_, changes) | Self::Undone(_, changes) => &changes.left,
        }
    }
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
    /// Flags in the way.
    #[error(transparent)]
    Flags(#[from] FlagsError),
    /// No way is open.
    #[error("{0}")]
    Stuck(Box<Stuck>),
    /// A path that was to be left.
    #[error(
        "--leave {0}: no path of the interrupted run is there or below. Nothing was changed. Next: {recover}", recover = mco_rescue("recover")
    )]
    NotItsPath(RootPath),
    /// There is nothing to be given up.
    #[error(
        "--give-up is for an interrupted run whose journal is damaged; here none is. Nothing was changed. \
         Next: {recover}", recover = mco_rescue("recover")
    )]
    Whole,
    /// The journal is about another deployment's `etc`.
    #[error(
        "the interrupted run belongs to deployment {0}, but this is {1}. Boot into that deployment and run recover there, \
         or give it up here with `recover --back`"
    )]
    OtherDeployment(String, String),
    /// Something of ours could not be removed.
    #[error("left-overs of the run could not be removed; the next run tries again")]
    LeftOvers,
    /// Flushing.
    #[error("flushing to disk: {0}")]
    Sync(Reason),
    /// A job for the running system failed; the files were put back for it.
    #[error("{0}; the interrupted run was undone{1}")]
    Undone(Box<JobError>, String),
}

/// How recovery is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Which way.
    pub direction: Direction,
    /// Paths that may stay as they are.
    pub leave: &'a Leave,
    /// The deployment whose `etc` this is.
    pub deployment: Option<&'a str>,
}

/// The files of an interrupted run in the state directory, as far as they can be read.
struct Files {
    journal: Option<Journal>,
    /// The mark is of the run that journal or intent tell of.
    committed: bool,
    intent: Option<Intent>,
    /// A mark alone, or one that says nothing.
    stray_mark: bool,
    /// An intent that says nothing.
    lost_intent: bool,
}

impl Files {
    /// Reads them. Without the journal nothing is known of the names; mark and intent can be done without.
    fn read(root: &Root, state: &State) -> Result<Self, StateError> {
        let journal: Option<Journal> = state.read(root, paths::JOURNAL)?;
        let (mark, lost_mark) = or_damaged(state.read::<Mark>(root, paths::COMMITTED))?;
        let (intent, lost_intent) = or_damaged(state.read::<Intent>(root, paths::INTENT))?;
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

/// A damaged file is as good as none, and said; one that cannot be read now is an error.
fn or_damaged<T>(read: Result<Option<T>, StateError>) -> Result<(Option<T>, bool), StateError> {
    match read {
        Ok(found) => Ok((found, false)),
        Err(StateError::Damaged(file, why)) => {
            let path = format!("/{}/{file}", paths::STATE);
            log::warn!("{path} is damaged and is passed over: {why}");
            Ok((None, true))
        }
        Err(error) => Err(error),
    }
}

/// What is left to be done on a root; reads only.
pub fn pending(root: &Root) -> Result<Pending, StateError> {
    let Some(state) = State::open(root)? else {
        return Ok(Pending::Nothing);
    };
    let files = Files::read(root, &state)?;
    Ok(match (files.journal, files.committed, files.intent) {
        (Some(journal), true, _) => Pending::Committed(journal.config),
        (Some(journal), false, _) => Pending::Unfinished(journal.config, journal.deployment),
        (None, true, Some(intent)) => Pending::Committed(intent.config),
        (None, false, Some(intent)) => Pending::Staged(intent.config),
        (None, _, None) if files.lost_intent => Pending::Staged(ConfigRef::unknown()),
        (None, _, None) => Pending::Nothing,
    })
}

/// The files that thaw the containers which an interrupted run has left standing still; none while a run is at work.
///
/// # Errors
/// A journal that cannot be read.
pub fn frozen(root: &Root) -> Result<Vec<PathBuf>, StateError> {
    let state = State::open(root)?.filter(|_| root.is_live() && !is_held(root));
    let journal = state.map(|state| state.read::<Journal>(root, paths::JOURNAL));
    let journal = journal.transpose()?.flatten();
    Ok(journal.map_or_else(Vec::new, |journal| freeze::standing(&journal.freeze)))
}

/// Finishes or undoes. Without anything pending it only removes what runs that are over have left.
pub fn recover(
    root: &Root,
    _lock: &Lock,
    wanted: &Wanted<'_>,
    running: &Running<'_>,
) -> Result<Recovered, RecoverError> {
    resolve(root, wanted, running).inspect_err(|_| {
        // A person has to look first; that may take days. What the journal names cannot be read in every state.
        freeze::thaw(&activity::daemon_containers(root));
    })
}

fn resolve(
    root: &Root,
    wanted: &Wanted<'_>,
    running: &Running<'_>,
) -> Result<Recovered, RecoverError> {
    let Some(state) = State::open(root)? else {
        return Ok(Recovered::Nothing);
    };
    let _signals = DeferredSignals::new();
    state.sweep(root);
    let recovered = recover_run(root, &state, wanted, running)?;
    if let Ok(id) = pending_id(root, &state) {
        for path in stray_stages::sweep(root, id.as_deref()) {
            log::warn!("{path}, which an earlier run had left, is removed");
        }
    }
    Ok(recovered)
}

/// The run that still needs its stages.
fn pending_id(root: &Root, state: &State) -> Result<Option<String>, StateError> {
    let journal: Option<Journal> = state.read(root, paths::JOURNAL)?;
    let intent: Option<Intent> = state.read(root, paths::INTENT)?;
    let of_intent = intent.map(|intent| intent.id);
    Ok(journal.map(|journal| journal.id).or(of_intent))
}

/// The staging directories of runs that are over; reads only.
pub fn strays(root: &Root) -> Vec<RootPath> {
    let id = match State::open(root) {
        Ok(Some(state)) => pending_id(root, &state),
        Ok(None) => Ok(None),
        Err(error) => Err(error),
    };
    // Whose they are is not known where the state cannot be read.
    id.map_or_else(|_| Vec::new(), |id| stray_stages::find(root, id.as_deref()))
}

fn recover_run(
    root: &Root,
    state: &State,
    wanted: &Wanted<'_>,
    running: &Running<'_>,
) -> Result<Recovered, RecoverError> {
    let files = Files::read(root, state)?;
    if files.stray_mark {
        // It is of no run that is known; what is in place shows by itself.
        log::warn!("/{} belongs to no run and goes", paths::COMMITTED);
        state.remove(paths::COMMITTED)?;
    }
    let stages = files.intent.iter().flat_map(|intent| intent.stages.clone());
    let stages: Vec<RootPath> = stages.collect();
    match (files.journal, files.committed, files.intent) {
        (Some(journal), true, _) => {
            freeze::end(&journal.freeze);
            tidy(root, state, &journal, &with(&stages, &journal.stages));
            Ok(Recovered::Finished(journal.config, Changes::default()))
        }
        (Some(journal), false, _) => {
            let unfinished = Unfinished {
                root,
                state,
                journal,
                stages: &stages,
                running,
            };
            unfinished.resolve(wanted)
        }
        (None, true, Some(intent)) => {
            said_only(close(root, state, &intent.id, &stages));
            Ok(Recovered::Finished(intent.config, Changes::default()))
        }
        (None, false, Some(intent)) => {
            said_only(discard(root, state, &intent.id, &stages));
            Ok(Recovered::Swept(intent.config))
        }
        (None, _, None) if files.lost_intent => {
            // Without a journal no name had changed.
            state.remove(paths::INTENT)?;
            Ok(Recovered::Swept(ConfigRef::unknown()))
        }
        (None, _, None) => Ok(Recovered::Nothing),
    }
}

/// Forgets a run whose journal is damaged: the tree stays as it is, with files from before and of the run. What the run
/// kept stays in the history, and the journal beside its place.
pub fn give_up(root: &Root, _lock: &Lock) -> Result<Recovered, RecoverError> {
    let Some(state) = State::open(root)? else {
        return Ok(Recovered::Nothing);
    };
    let _signals = DeferredSignals::new();
    match state.read::<Journal>(root, paths::JOURNAL) {
        Err(StateError::Damaged(..)) => {}
        Ok(_) => return Err(RecoverError::Whole),
        Err(error) => return Err(error.into()),
    }
    let (intent, _) = or_damaged(state.read::<Intent>(root, paths::INTENT))?;
    // The journal would have named them.
    freeze::thaw(&activity::daemon_containers(root));
    state.set_aside(paths::JOURNAL)?;
    let stages = intent.iter().flat_map(|intent| intent.stages.clone());
    let swept = sweep_all(root, &stages.collect::<Vec<_>>());
    state.forget(paths::COMMITTED)?;
    said_only(forget_intent(&state, swept));
    state.sync()?;
    let (config, id) = intent.map_or((ConfigRef::unknown(), None), |intent| {
        (intent.config, Some(intent.id))
    });
    let kept = id.map(|id| history_path(&id));
    let kept = kept.filter(|path| matches!(open(root, path), Ok(Some(_))));
    Ok(Recovered::GivenUp(config, kept))
}

fn with(a: &[RootPath], b: &[RootPath]) -> Vec<RootPath> {
    a.iter()
        .chain(b.iter().filter(|path| !a.contains(path)))
        .cloned()
        .collect()
}

/// A journal that is not committed.
struct Unfinished<'a> {
    root: &'a Root,
    state: &'a State,
    journal: Journal,
    stages: &'a [RootPath],
    running: &'a Running<'a>,
}

impl Unfinished<'_> {
    fn resolve(self, wanted: &Wanted<'_>) -> Result<Recovered, RecoverError> {
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
        match self.decide(wanted, &stages)? {
            (Direction::Forward, survey) => self.finish(&survey, &stages),
            (Direction::Back, survey) => self.take_back(&survey, &stages),
        }
    }

    fn decide(
        &self,
        wanted: &Wanted<'_>,
        stages: &Stages<'_>,
    ) -> Result<(Direction, Survey), RecoverError> {
        let executor = Executor::new(self.root, stages);
        let survey = Survey::of(self.root, &self.journal, &executor, wanted.leave)?;
        let asked = Asked {
            direction: wanted.direction,
            leave: wanted.leave.clone(),
        };
        let decided = survey.decide(&self.journal, asked);
        let direction = decided.map_err(|stuck| RecoverError::Stuck(Box::new(stuck)))?;
        Ok((direction, survey))
    }

    /// Back: the files, and whatever was told of the new ones.
    fn take_back(self, survey: &Survey, stages: &Stages<'_>) -> Result<Recovered, RecoverError> {
        let journal = &self.journal;
        let steps: Vec<usize> = survey.pending(Direction::Back).collect();
        let changes = Changes {
            changed: paths_of(journal, &steps),
            left: survey.left(journal, Direction::Back),
        };
        // Nothing was told before the last file was in place.
        let told = survey.all_files(journal);
        undo(self.root, self.state, journal, stages, &steps)?;
        let left = jobs::left(journal, self.running).len();
        if left > 0 {
            let told = if told { left } else { 0 };
            let failed = jobs::tell_again(self.running.runner, journal, told);
            failed.iter().for_each(|said| log::warn!("{said}"));
        }
        Ok(Recovered::Undone(self.journal.config, changes))
    }

    /// Forward: the files, whatever is to be told, the records, and the mark.
    fn finish(self, survey: &Survey, stages: &Stages<'_>) -> Result<Recovered, RecoverError> {
        let (root, journal) = (self.root, &self.journal);
        let steps: Vec<usize> = survey.pending(Direction::Forward).collect();
        let changes = Changes {
            changed: paths_of(journal, &steps),
            left: survey.left(journal, Direction::Forward),
        };
        flags::clear(root, &journal.held)?;
        let (files, records): (Vec<usize>, Vec<usize>) = steps
            .iter()
            .partition(|index| **index < journal.records_from);
        self.forward(&files, stages)?;
        if !survey.has_records(journal) {
            self.tell(survey, stages)?;
        }
        self.forward(&records, stages)?;
        flags::restore(root, &journal.held)?;
        sync_all(stages)?;
        let mark = Mark {
            id: journal.id.clone(),
        };
        self.state.write(paths::COMMITTED, &mark)?;
        freeze::end(&journal.freeze);
        let all = with(self.stages, &journal.stages);
        tidy(root, self.state, journal, &all);
        Ok(Recovered::Finished(self.journal.config, changes))
    }

    fn forward(&self, steps: &[usize], stages: &Stages<'_>) -> Result<(), RecoverError> {
        let executor = Executor::new(self.root, stages);
        for &index in steps {
            if let Some(step) = self.journal.steps.get(index) {
                executor.forward(index, step, None)?;
            }
        }
        Ok(())
    }

    /// In the same boot everything is told, perhaps again. A job that fails undoes the run, as it would have then.
    fn tell(&self, survey: &Survey, stages: &Stages<'_>) -> Result<(), RecoverError> {
        let (journal, runner) = (&self.journal, self.running.runner);
        let left = jobs::left(journal, self.running);
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
        undo(self.root, self.state, journal, stages, &taken)?;
        let failed = jobs::tell_again(runner, journal, index + 1);
        let failed = failed
            .iter()
            .map(|said| format!("; then, with the old files: {said}"));
        Err(RecoverError::Undone(Box::new(error), failed.collect()))
    }
}

/// Every path that is to be left has to be one of the run, or above one.
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

/// The staging directories; `None` for one that is not there any more, or is not one.
fn open_stages(root: &Root, journal: &Journal) -> Result<Vec<Option<File>>, RecoverError> {
    let all = journal.stages.iter();
    all.map(|path| open_stage(root, path)).collect()
}

fn open_stage(root: &Root, path: &RootPath) -> Result<Option<File>, RecoverError> {
    let failed = |reason: Reason| RecoverError::State(StateError::System(path.to_string(), reason));
    let dir = match root.directory(path) {
        Ok(dir) => dir,
        Err(error) if error.cause.is_obstacle() => None,
        Err(error) => return Err(failed(error.into())),
    };
    let opened = dir.map(|dir| disk::open_directory(dir.as_fd(), "."));
    opened.transpose().map_err(|errno| failed(errno.into()))
}

/// The paths of some steps.
fn paths_of(journal: &Journal, indices: &[usize]) -> Vec<RootPath> {
    let steps = indices.iter().filter_map(|index| journal.steps.get(*index));
    steps.map(|step| step.step.path().clone()).collect()
}

/// Takes these steps back, last first, then forgets the transaction.
pub fn undo(
    root: &Root,
    state: &State,
    journal: &Journal,
    stages: &Stages<'_>,
    steps: &[usize],
) -> Result<(), RecoverError> {
    // A mark that outlived the error would make the next run take a half-undone tree for a finished one.
    state.remove(paths::COMMITTED)?;
    let executor = Executor::new(root, stages);
    if !steps.is_empty() {
        flags::clear(root, &journal.held)?;
    }
    let mut last_first = steps.to_vec();
    last_first.sort_unstable_by(|a, b| b.cmp(a));
    for index in last_first {
        if let Some(step) = journal.steps.get(index) {
            executor.back(index, step)?;
        }
    }
    flags::restore(root, &journal.held)?;
    sync_all(stages)?;
    freeze::thaw(&journal.freeze);
    state.remove(paths::JOURNAL)?;
    // Everything is as before; what is left over now is swept by the next run.
    let intent: Option<Intent> = state.read(root, paths::INTENT).unwrap_or_default();
    let stages = intent.map(|intent| intent.stages).unwrap_or_default();
    let stages = with(&stages, &journal.stages);
    said_only(discard(root, state, &journal.id, &stages));
    Ok(())
}

/// After the verdict nothing changes it: what is left over is said, and the next run tries again.
fn said_only(result: Result<(), RecoverError>) {
    if let Err(error) = result {
        log::warn!("tidying up: {error}. Next: {}", mco_rescue("recover"));
    }
}

/// After the `committed` mark: what the run kept for itself goes where it belongs. Whatever fails is said.
pub fn tidy(root: &Root, state: &State, journal: &Journal, stages: &[RootPath]) {
    let tidied = keep_trees(root, journal).and_then(|()| {
        forget_undone(root, journal);
        close(root, state, &journal.id, stages)
    });
    said_only(tidied);
}

fn sync_all(stages: &Stages<'_>) -> Result<(), RecoverError> {
    stages.iter().flatten().try_for_each(|dir| {
        disk::sync_file_system(dir).map_err(|errno| RecoverError::Sync(errno.into()))
    })
}

/// Where the old objects and the journal of a transaction are kept.
pub fn history_path(id: &str) -> RootPath {
    RootPath::fixed(paths::HISTORY)
        .join(id)
        .unwrap_or_else(|_| RootPath::fixed(paths::HISTORY))
}

/// After the `committed` mark: directories that gave way go to the history. Where that is on another mount, a copy is
/// there since they were staged; what has changed in them since is copied once more.
///
/// # Errors
/// What may pass, such as an I/O error: nothing is deleted then, and the next run tries again.
pub fn keep_trees(root: &Root, journal: &Journal) -> Result<(), RecoverError> {
    let failed = |path: &RootPath, reason: Reason| StateError::System(path.to_string(), reason);
    let history = history_path(&journal.id);
    let history = open(root, &history).map_err(|e| failed(&history, e))?;
    let steps = journal.steps.iter().enumerate();
    for (index, step) in steps.filter(|(_, step)| step.step.exchanges()) {
        let Some(path) = journal.stages.get(step.stage) else {
            continue;
        };
        let Some(stage) = open(root, path).map_err(|e| failed(path, e))? else {
            continue;
        };
        let name = new_name(index);
        let kept = history.as_ref().map_or(Err(Errno::EXDEV), |history| {
            disk::rename(stage.as_fd(), &name, history.as_fd(), &old_name(index))
        });
        match kept {
            Ok(()) => {}
            Err(errno) if may_pass(errno) => return Err(failed(path, errno.into()).into()),
            Err(Errno::EXDEV) => {
                let kept = keep_across(&stage, history.as_ref(), index, step);
                kept.map_err(|reason| failed(path, reason))?;
            }
            Err(_) => remove_for_good(&stage, &name, step),
        }
    }
    Ok(())
}

/// Takes a tree away whose copy is in the history; a run that is cut off here goes on where it was.
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
        // From here on no half of it is taken for the whole.
        disk::rename(stage.as_fd(), &name, stage.as_fd(), &away)?;
    }
    remove_for_good(stage, &away, step);
    Ok(())
}

/// The tree as it was when it gave way, in place of its copy of some moments before; where that fails, that one stays.
/// One of the two is there at any moment.
fn copy_again(stage: &File, history: &File, index: usize, step: &JournalStep) {
    let (kept, fresh) = (old_name(index), away_name(index));
    // A run that was killed here has left half a copy.
    let copied = disk::remove_tree(history.as_fd(), fresh.as_str()).map_err(Reason::from);
    let replaced = copied.and_then(|()| {
        let tree = place_in(stage, &new_name(index))?;
        disk::copy_tree(&tree, history.as_fd(), &fresh, true)?;
        disk::sync_file_system(history)?;
        disk::exchange(history.as_fd(), &fresh, &place_in(history, &kept)?)?;
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

fn may_pass(errno: Errno) -> bool {
    use Errno::{EDQUOT, EINTR, EIO, ENOMEM, ENOSPC, EROFS};
    matches!(errno, EDQUOT | EINTR | EIO | ENOMEM | ENOSPC | EROFS)
}

fn remove_for_good(stage: &File, name: &str, step: &JournalStep) {
    if let Err(errno) = disk::remove_tree(stage.as_fd(), name) {
        let reason = Reason::from(errno);
        log::warn!("removing what was at {}: {reason}", step.step.path());
    }
}

/// After the `committed` mark: a run that was taken back leaves the history, so that the next `rollback` goes
/// further.
pub fn forget_undone(root: &Root, journal: &Journal) {
    if let Some(undone) = &journal.undoes {
        remove_history(root, &history_path(undone));
    }
}

/// The directories of the history, the oldest first.
pub fn history_names(root: &Root) -> Vec<String> {
    let all = root.list(&RootPath::fixed(paths::HISTORY));
    let mut names = all.unwrap_or_default();
    names.sort_by_key(|name| order(name));
    names
}

/// Ids are ordered by their numbers, not by their letters: a clock may have begun at 1970.
pub fn order(id: &str) -> (u128, u64) {
    let (time, process) = id.split_once('-').unwrap_or((id, ""));
    (
        time.parse().unwrap_or_default(),
        process.parse().unwrap_or_default(),
    )
}

/// The finished runs that can be taken back, the newest first.
///
/// # Errors
/// A journal that cannot be read: going on to an older run would take the wrong one back.
pub fn history(root: &Root) -> Result<Vec<FinishedRun>, StateError> {
    let all = RootPath::fixed(paths::HISTORY);
    let names = history_names(root);
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
    let journal: Journal = state::parse(&bytes).map_err(|why| damaged(&why))?;
    Ok(journal.undoes.is_none().then(|| finished(journal, objects)))
}

fn finished(journal: Journal, objects: RootPath) -> FinishedRun {
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

/// After the `committed` mark: sweep, move the journal to the history, forget the intent.
pub fn close(
    root: &Root,
    state: &State,
    id: &str,
    stages: &[RootPath],
) -> Result<(), RecoverError> {
    let swept = sweep_all(root, stages) && flush_others(root, state, stages);
    let history = history_path(id);
    let opened = open(root, &history).map_err(|e| StateError::System(history.to_string(), e))?;
    if let Some(history) = opened {
        let name = RootPath::fixed(paths::JOURNAL);
        match disk::rename(
            state.dir().as_fd(),
            name.name(),
            history.as_fd(),
            name.name(),
        ) {
            // An earlier attempt has moved it already.
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(errno) => return Err(StateError::System(name.to_string(), errno.into()).into()),
        }
    } else {
        // Left where it is, it would be taken for an unfinished run without end.
        log::warn!("{history} is missing, so this run cannot be taken back");
        state.forget(paths::JOURNAL)?;
    }
    let forgotten = forget_intent(state, swept);
    // A journal without the mark would be taken for an unfinished run.
    state.sync()?;
    forgotten?;
    // Durable with the next flush, whose ever: a mark alone says nothing.
    state.forget(paths::COMMITTED)?;
    prune_history(root);
    Ok(())
}

/// A run that changed no name: staged names, history and intent go.
pub fn discard(
    root: &Root,
    state: &State,
    id: &str,
    stages: &[RootPath],
) -> Result<(), RecoverError> {
    let swept = sweep_all(root, stages) & remove_history(root, &history_path(id));
    let swept = swept && flush_others(root, state, stages);
    state.sweep(root);
    forget_intent(state, swept)?;
    Ok(state.sync()?)
}

/// A directory of ours; `None` where it is gone.
fn open(root: &Root, path: &RootPath) -> Result<Option<File>, Reason> {
    let dir = root.directory(path)?;
    let opened = dir.map(|dir| disk::open_directory(dir.as_fd(), "."));
    Ok(opened.transpose()?)
}

/// The intent is what a later run finds left-overs by; while there are any it stays.
fn forget_intent(state: &State, swept: bool) -> Result<(), RecoverError> {
    if swept {
        Ok(state.forget(paths::INTENT)?)
    } else {
        Err(RecoverError::LeftOvers)
    }
}

fn sweep_all(root: &Root, stages: &[RootPath]) -> bool {
    let swept = stages
        .iter()
        .map(|stage| empty(root, stage, is_staged_name, disk::remove_staged));
    let all = swept.fold(true, |all, one| all & one);
    all & remove_if_empty(root, &RootPath::fixed(paths::STAGE))
}

/// Flushes the file systems that were swept, but that of the state: there no name goes for good after the intent. What
/// another one forgets at a power cut nothing would tell of any more.
fn flush_others(root: &Root, state: &State, stages: &[RootPath]) -> bool {
    let Ok(own) = fstat(state.dir()) else {
        return false;
    };
    let mut done = BTreeSet::from([own.st_dev]);
    let parents: BTreeSet<Option<RootPath>> = stages.iter().map(RootPath::parent).collect();
    parents.iter().all(|parent| {
        let flushed = flush(root, parent.as_ref(), &mut done);
        if let Err(reason) = &flushed {
            let shown = parent.as_ref().map_or("/".to_owned(), RootPath::to_string);
            log::warn!("flushing the file system of {shown}: {reason}");
        }
        flushed.is_ok()
    })
}

fn flush(root: &Root, dir: Option<&RootPath>, done: &mut BTreeSet<u64>) -> Result<(), Reason> {
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

pub fn remove_history(root: &Root, directory: &RootPath) -> bool {
    let journal = RootPath::fixed(paths::JOURNAL);
    let is_ours = |name: &str| is_staged_name(name) || name == journal.name();
    let emptied = empty(root, directory, is_ours, |dir, name| {
        disk::remove_tree(dir, name)
    });
    emptied & remove_if_empty(root, &RootPath::fixed(paths::HISTORY))
}

/// Removes our own names from a directory, then the directory. Foreign names stay, and are said.
/// False where something of ours is left.
pub fn empty(
    root: &Root,
    directory: &RootPath,
    is_ours: impl Fn(&str) -> bool,
    remove: impl Fn(BorrowedFd<'_>, &str) -> Result<(), Errno>,
) -> bool {
    let opened = open(root, directory).and_then(|dir| Ok((dir, root.list(directory)?)));
    let (dir, names) = match opened {
        Ok((Some(dir), names)) => (dir, names),
        Ok((None, _)) => return true,
        Err(reason) => {
            log::warn!("sweeping {directory}: {reason}");
            return false;
        }
    };
    let mut emptied = true;
    for name in names {
        if !is_ours(&name) {
            log::warn!("{directory}/{name} was not put there by mco-rescue; it is left alone");
        } else if let Err(errno) = remove(dir.as_fd(), &name) {
            log::warn!("removing {directory}/{name}: {}", Reason::from(errno));
            emptied = false;
        }
    }
    emptied & remove_if_empty(root, directory)
}

/// A directory with something in it stays; false where one should have gone and did not.
fn remove_if_empty(root: &Root, directory: &RootPath) -> bool {
    let place = match root.place(directory) {
        Ok(Some(place)) => place,
        Ok(None) => return true,
        Err(error) => {
            log::warn!("removing {error}");
            return false;
        }
    };
    match disk::remove_directory(place.dir.as_fd(), &place.name) {
        Ok(_) => true,
        Err(errno) => {
            log::warn!("removing {directory}: {}", Reason::from(errno));
            false
        }
    }
}

/// Only the newest runs are kept.
fn prune_history(root: &Root) {
    let history = RootPath::fixed(paths::HISTORY);
    let names = history_names(root);
    for name in names.iter().rev().skip(HISTORY_KEPT) {
        if let Ok(directory) = history.join(name) {
            remove_history(root, &directory);
        }
    }
}
