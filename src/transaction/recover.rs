//! Finishing or undoing what an interrupted run left; may itself be interrupted and run again.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;

use super::disk;
use super::execute::{Executor, Progress, StepError};
use super::flags::{self, FlagsError};
use super::freeze;
use super::jobs::{self, JobError, Running};
use super::journal::{
    ConfigRef, Intent, Journal, JournalStep, VERSION, away_name, is_staged_name, new_name, old_name,
};
use super::lock::Lock;
use super::state::{State, StateError};
use super::{HISTORY_KEPT, directory_fd};
use crate::error::Reason;
use crate::node::activity;
use crate::paths;
use crate::plan::FinishedRun;
use crate::root::{Place, Root, RootPath};
use crate::signals::DeferredSignals;

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
    /// The interrupted run was brought to its end; these paths changed for that, in the order of the steps.
    Finished(ConfigRef, Vec<RootPath>),
    /// The interrupted run was undone; these paths changed for that, in the order of the steps.
    Undone(ConfigRef, Vec<RootPath>),
}

impl Recovered {
    /// The paths that changed.
    pub fn changed(&self) -> &[RootPath] {
        match self {
            Self::Nothing | Self::Swept(_) => &[],
            Self::Finished(_, changed) | Self::Undone(_, changed) => changed,
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
    /// Something of ours could not be removed.
    #[error("left-overs of the run could not be removed; the next run tries again")]
    LeftOvers,
    /// Flushing.
    #[error("flushing to disk: {0}")]
    Sync(Reason),
    /// What the running system was told; the files were put back for it.
    #[error("{0}; the interrupted run was undone{1}")]
    Undone(Box<JobError>, String),
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
    running: &Running<'_>,
) -> Result<Recovered, RecoverError> {
    resolve(root, direction, deployment, running).inspect_err(|_| {
        // A person has to look first; that may take days. What the journal names cannot be read in every state.
        freeze::thaw(&activity::daemon_containers(root));
    })
}

fn resolve(
    root: &Root,
    direction: Direction,
    deployment: Option<&str>,
    running: &Running<'_>,
) -> Result<Recovered, RecoverError> {
    let Some(state) = State::open(root)? else {
        return Ok(Recovered::Nothing);
    };
    let _signals = DeferredSignals::new();
    state.sweep(root);
    let journal: Option<Journal> = state.read(root, paths::JOURNAL)?;
    let committed: Option<String> = state.read(root, paths::COMMITTED)?;
    let intent: Option<Intent> = state.read(root, paths::INTENT)?;
    let stages = intent
        .as_ref()
        .map(|intent| intent.stages.clone())
        .unwrap_or_default();
    match (journal, committed, intent) {
        (Some(journal), Some(_), _) => {
            freeze::end(&journal.freeze);
            keep_trees(root, &journal)?;
            forget_undone(root, &journal);
            close(root, &state, &journal.id, &with(&stages, &journal.stages))?;
            Ok(Recovered::Finished(journal.config, Vec::new()))
        }
        (Some(journal), None, _) => {
            let unfinished = Unfinished {
                root,
                state: &state,
                journal,
                stages: &stages,
                running,
            };
            unfinished.resolve(direction, deployment)
        }
        (None, Some(_), Some(intent)) => {
            close(root, &state, &intent.id, &stages)?;
            Ok(Recovered::Finished(intent.config, Vec::new()))
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

/// A journal that is not committed.
struct Unfinished<'a> {
    root: &'a Root,
    state: &'a State,
    journal: Journal,
    stages: &'a [RootPath],
    running: &'a Running<'a>,
}

impl Unfinished<'_> {
    fn resolve(
        self,
        direction: Direction,
        deployment: Option<&str>,
    ) -> Result<Recovered, RecoverError> {
        let journal = &self.journal;
        if direction == Direction::Forward && journal.deployment.as_deref() != deployment {
            let name = |deployment: Option<&str>| deployment.unwrap_or("(none)").to_owned();
            let (theirs, ours) = (name(journal.deployment.as_deref()), name(deployment));
            return Err(RecoverError::OtherDeployment(theirs, ours));
        }
        let dirs: Vec<File> = journal
            .stages
            .iter()
            .filter_map(|path| directory_fd(self.root, path))
            .collect();
        let survey = Survey::of(self.root, journal, &dirs)?;
        if direction == Direction::Forward && survey.lost_forward.is_empty() {
            return self.finish(&survey, &dirs);
        }
        if !survey.lost_back.is_empty() {
            let lost = [survey.lost_forward, survey.lost_back].concat();
            return Err(RecoverError::Lost(lost.join(", ")));
        }
        let changed = paths_of(journal, survey.taken());
        // Nobody was told before the last file was in place.
        let mut files = survey.progress.iter().take(journal.records_from);
        let told = files.all(|progress| *progress == Progress::After);
        undo(self.root, self.state, journal, &dirs)?;
        let left = jobs::left(journal, self.running).len();
        if left > 0 {
            let told = if told { left } else { 0 };
            let failed = jobs::tell_again(self.running.runner, journal, told);
            failed.iter().for_each(|said| log::warn!("{said}"));
        }
        Ok(Recovered::Undone(self.journal.config, changed))
    }

    /// Forward: the files, whoever is to be told, the records, and the mark.
    fn finish(self, survey: &Survey, dirs: &[File]) -> Result<Recovered, RecoverError> {
        let (root, journal) = (self.root, &self.journal);
        let changed = paths_of(journal, survey.pending());
        flags::clear(root, &journal.held)?;
        self.forward(survey, dirs, |index| index < journal.records_from)?;
        if !survey.has_records(journal) {
            self.tell(dirs)?;
        }
        self.forward(survey, dirs, |index| index >= journal.records_from)?;
        flags::restore(root, &journal.held)?;
        sync_all(dirs)?;
        self.state.write(paths::COMMITTED, &journal.id)?;
        freeze::end(&journal.freeze);
        keep_trees(root, journal)?;
        forget_undone(root, journal);
        close(
            root,
            self.state,
            &journal.id,
            &with(self.stages, &journal.stages),
        )?;
        Ok(Recovered::Finished(self.journal.config, changed))
    }

    fn forward(
        &self,
        survey: &Survey,
        dirs: &[File],
        now: impl Fn(usize) -> bool,
    ) -> Result<(), RecoverError> {
        let executor = Executor::new(self.root, dirs);
        for index in survey.pending().filter(|index| now(*index)) {
            if let Some(step) = self.journal.steps.get(index) {
                executor.forward(index, step, None)?;
            }
        }
        Ok(())
    }

    /// In the same boot everybody is told, perhaps again. A job that fails undoes the run, as it would have then.
    fn tell(&self, dirs: &[File]) -> Result<(), RecoverError> {
        let (journal, runner) = (&self.journal, self.running.runner);
        let left = jobs::left(journal, self.running);
        if left.is_empty() {
            return Ok(());
        }
        sync_all(dirs)?;
        let Err((index, error)) = jobs::carry_out(runner, left) else {
            return Ok(());
        };
        undo_some(self.root, self.state, journal, dirs, journal.records_from)?;
        let failed = jobs::tell_again(runner, journal, index + 1);
        let failed = failed
            .iter()
            .map(|said| format!("; then, with the old files: {said}"));
        Err(RecoverError::Undone(Box::new(error), failed.collect()))
    }
}

/// The paths of some steps.
fn paths_of(journal: &Journal, indices: impl Iterator<Item = usize>) -> Vec<RootPath> {
    let steps = indices.filter_map(|index| journal.steps.get(index));
    steps.map(|step| step.step.path().clone()).collect()
}

/// How far every step is, and which steps have lost what they need to go on or back.
struct Survey {
    progress: Vec<Progress>,
    lost_forward: Vec<String>,
    lost_back: Vec<String>,
}

impl Survey {
    /// Looks at every path; stops at those that belong to neither side.
    fn of(root: &Root, journal: &Journal, dirs: &[File]) -> Result<Self, RecoverError> {
        let executor = Executor::new(root, dirs);
        let progress = journal
            .steps
            .iter()
            .map(|step| executor.progress(&step.step));
        let progress: Vec<Progress> = progress.collect::<Result<_, _>>()?;
        let paths = |fits: &dyn Fn(usize, &JournalStep, Progress) -> bool| -> Vec<String> {
            let steps = journal.steps.iter().zip(&progress).enumerate();
            let fitting = steps.filter(|(index, (step, progress))| fits(*index, step, **progress));
            fitting
                .map(|(_, (step, _))| step.step.path().to_string())
                .collect()
        };
        let foreign = paths(&|_, _, progress| progress == Progress::Foreign);
        if !foreign.is_empty() {
            return Err(RecoverError::Conflicts(foreign.join(", ")));
        }
        let whole = dirs.len() == journal.stages.len();
        let lost_forward = paths(&|index, step, progress| {
            progress != Progress::After && !(whole && executor.is_staged(index, step))
        });
        let lost_back = paths(&|index, step, progress| {
            progress == Progress::After && !(whole && executor.is_kept(index, step))
        });
        Ok(Self {
            progress,
            lost_forward,
            lost_back,
        })
    }

    /// Whether a record was written: then everybody was told before.
    fn has_records(&self, journal: &Journal) -> bool {
        let mut records = self.progress.iter().skip(journal.records_from);
        records.any(|progress| *progress == Progress::After)
    }

    /// Steps that are still to be taken, or taken to their end.
    fn pending(&self) -> impl Iterator<Item = usize> {
        let steps = self.progress.iter().enumerate();
        steps
            .filter(|(_, progress)| matches!(progress, Progress::Before | Progress::Between))
            .map(|(index, _)| index)
    }

    /// Steps that took effect, wholly or in part.
    fn taken(&self) -> impl Iterator<Item = usize> {
        let steps = self.progress.iter().enumerate();
        steps
            .filter(|(_, progress)| matches!(progress, Progress::After | Progress::Between))
            .map(|(index, _)| index)
    }
}

/// Takes every step back, last first, then forgets the transaction.
pub fn undo(
    root: &Root,
    state: &State,
    journal: &Journal,
    dirs: &[File],
) -> Result<(), RecoverError> {
    undo_some(root, state, journal, dirs, journal.steps.len())
}

/// Takes the first `taken` steps back, last first, then forgets the transaction.
pub fn undo_some(
    root: &Root,
    state: &State,
    journal: &Journal,
    dirs: &[File],
    taken: usize,
) -> Result<(), RecoverError> {
    // A mark that outlived the error would make the next run take a half-undone tree for a finished one.
    state.remove(paths::COMMITTED)?;
    let executor = Executor::new(root, dirs);
    if taken > 0 {
        flags::clear(root, &journal.held)?;
    }
    for (index, step) in journal.steps.iter().enumerate().take(taken).rev() {
        executor.back(index, step)?;
    }
    flags::restore(root, &journal.held)?;
    sync_all(dirs)?;
    freeze::thaw(&journal.freeze);
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
                if let Some(history) = &history {
                    copy_again(&stage, history, index, step);
                }
                remove_for_good(&stage, &name, step);
            }
            Err(_) => remove_for_good(&stage, &name, step),
        }
    }
    Ok(())
}

/// The tree as it was when it gave way, in place of its copy of some moments before; where that fails, that one stays.
fn copy_again(stage: &File, history: &File, index: usize, step: &JournalStep) {
    let Ok(dir) = stage.as_fd().try_clone_to_owned() else {
        return;
    };
    let tree = Place {
        dir: dir.into(),
        name: new_name(index),
    };
    let (kept, fresh) = (old_name(index), away_name(index));
    let (history, path) = (history.as_fd(), step.step.path());
    let copied = disk::copy_tree(&tree, history, &fresh, true).map_err(Reason::from);
    let replaced = copied.and_then(|()| {
        disk::remove_tree(history, kept.as_str())?;
        Ok(disk::rename(history, &fresh, history, &kept)?)
    });
    if let Err(reason) = replaced {
        log::warn!("keeping what changed in {path} while the run was made ready: {reason}");
        // Half a copy is of no use.
        let _ = disk::remove_tree(history, fresh.as_str());
    }
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
    let objects = all.join(id).map_err(|e| damaged(&e))?;
    let name = RootPath::fixed(paths::JOURNAL);
    let path = objects.join(name.name()).map_err(|e| damaged(&e))?;
    let Some(bytes) = root.read(&path).map_err(|e| damaged(&e))? else {
        return Ok(None);
    };
    let journal: Journal = serde_json::from_slice(&bytes).map_err(|e| damaged(&e))?;
    if journal.version != VERSION {
        return Err(damaged(&format!("is of version {}", journal.version)));
    }
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
    let swept = sweep_all(root, stages);
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
fn empty(
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
