//! The possible directions for an interrupted run. Every step is judged separately: by the object at its path and the objects
//! in its stage.
//!
//! A step whose file system is missing (a tmpfs after a boot, a disk that is not mounted) stops nothing: its path is left and
//! reported. A path that was changed since blocks both directions until it is corrected, moved away, or named to be left.

use std::collections::BTreeSet;

use super::execute::{Executor, KeptObject, Reach, StepError, StepProgress};
use super::journal::{Journal, JournalStep, old_name};
use super::leavings::history_path;
use crate::base::invocation::{mco_rescue, shell_word};
use crate::change::plan::Step;
use crate::host::root::{Place, Root, RootPath};

/// The direction of a recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To the end of the run, or back if that is impossible.
    Forward,
    /// Back to the state before the run.
    Back,
}

/// Paths that may be left as they are if recovery cannot change them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leave {
    /// Everything.
    pub all: bool,
    /// These paths and everything below them.
    pub paths: Vec<RootPath>,
}

impl Leave {
    /// Returns true if it includes a path.
    pub fn covers_path(&self, path: &RootPath) -> bool {
        self.all || self.paths.iter().any(|left| path.is_in(left.relative()))
    }
}

/// A path that was left as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftPath {
    /// Path in the root.
    pub path: RootPath,
    /// Reason, for the report.
    pub why: &'static str,
}

/// What remains to be done for a step in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StepOutlook {
    /// Nothing: the wanted object is in place.
    There,
    /// The step can be taken.
    Open,
    /// Nothing: its location is missing, for this reason.
    Gone(&'static str),
    /// The object that it needs is missing.
    Lost,
}

/// The requested direction, and the paths that may be left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveryChoice {
    /// The requested direction.
    pub direction: Direction,
    /// Paths that may be left.
    pub leave: Leave,
}

/// A path with neither its old nor its new object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Foreign {
    /// The path.
    pub path: RootPath,
    /// The difference from both, in words.
    pub why: String,
    /// Path of the backup copy from before the run.
    pub before: Option<String>,
    /// Path of the copy that the run staged.
    pub after: Option<String>,
}

/// The reason why the run can go in neither direction, or not in the requested one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stuck {
    /// Paths that have neither their old nor their new object.
    Foreign {
        /// The requested direction, and the paths that may be left.
        asked: RecoveryChoice,
        /// The paths.
        paths: Vec<Foreign>,
    },
    /// Paths whose new objects, and paths whose old objects are missing.
    Lost {
        /// The requested direction, and the paths that may be left.
        asked: RecoveryChoice,
        /// Paths that cannot be completed.
        forward: Vec<RootPath>,
        /// They cannot be taken back.
        back: Vec<RootPath>,
    },
}

/// Maximum number of paths that are listed; beyond that, their common directory is named.
const NAMED: usize = 6;

impl std::fmt::Display for Stuck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Foreign { asked, paths } => fmt_foreign(f, asked, paths),
            Self::Lost {
                asked,
                forward,
                back,
            } => fmt_lost(f, asked, forward, back),
        }
    }
}

fn fmt_foreign(
    f: &mut std::fmt::Formatter<'_>,
    asked: &RecoveryChoice,
    all: &[Foreign],
) -> std::fmt::Result {
    write!(f, "these paths stand in the way of the interrupted run: ")?;
    for (number, one) in all.iter().enumerate() {
        let separator = if number > 0 { "; " } else { "" };
        write!(f, "{separator}{} ({}", one.path, one.why)?;
        for (what, place) in [("before", &one.before), ("after", &one.after)] {
            if let Some(place) = place {
                write!(f, "; its content {what}: {place}")?;
            }
        }
        write!(f, ")")?;
    }
    let paths: Vec<RootPath> = all.iter().map(|one| one.path.clone()).collect();
    write!(
        f,
        ". Nothing was changed. Restore each by hand to one of its two contents, or move it away, then run again; or \
         leave them as they are. Next: {}",
        recover_command(asked.direction, &asked.leave, &paths)
    )
}

fn fmt_lost(
    f: &mut std::fmt::Formatter<'_>,
    RecoveryChoice { direction, leave }: &RecoveryChoice,
    forward: &[RootPath],
    back: &[RootPath],
) -> std::fmt::Result {
    if *direction == Direction::Back && forward.is_empty() {
        return write!(
            f,
            "the interrupted run cannot be undone: the staged old objects are damaged or missing for {}. Nothing \
             was changed. The run can be finished, or everything else undone. Next: {}, or {}",
            join_paths(back),
            recover_command(Direction::Forward, leave, &[]),
            recover_command(Direction::Back, leave, back)
        );
    }
    write!(
        f,
        "the interrupted run can be neither finished nor undone: staged objects are damaged or missing, the new ones for \
         {}, the old ones for {}. Nothing was changed. It can be finished except for the former, or undone except for the \
         latter. Next: {}, or {}",
        join_paths(forward),
        join_paths(back),
        recover_command(Direction::Forward, leave, forward),
        recover_command(Direction::Back, leave, back)
    )
}

fn join_paths(paths: &[RootPath]) -> String {
    let all: Vec<String> = paths.iter().map(ToString::to_string).collect();
    all.join(", ")
}

/// Returns the command that leaves these paths as they are, in addition to those that were already named.
fn recover_command(direction: Direction, leave: &Leave, paths: &[RootPath]) -> String {
    let mut said = "recover".to_owned();
    if direction == Direction::Back {
        said.push_str(" --back");
    }
    let all = leave.paths.iter().chain(paths);
    let all: Vec<RootPath> = all.cloned().collect::<BTreeSet<_>>().into_iter().collect();
    let named = if leave.all {
        vec!["/".to_owned()]
    } else if all.len() > NAMED {
        vec![common_directory(&all)]
    } else {
        all.iter().map(ToString::to_string).collect()
    };
    let words = named.iter().map(|path| shell_word(path));
    words.for_each(|path| said.push_str(&format!(" --leave {path}")));
    mco_rescue(&said)
}

/// Returns the deepest directory that contains all of them.
fn common_directory(paths: &[RootPath]) -> String {
    let mut above = paths.iter().take(1).flat_map(RootPath::ancestors).skip(1);
    let common = above.find(|directory| paths.iter().all(|path| path.is_in(directory.relative())));
    common.map_or_else(|| "/".to_owned(), |directory| directory.to_string())
}

/// The progress of every step, and what remains to be done for it.
pub(super) struct Survey {
    progress: Vec<Option<StepProgress>>,
    forward: Vec<StepOutlook>,
    back: Vec<StepOutlook>,
    /// Steps that are left as they are because the user named them.
    named: BTreeSet<usize>,
    /// Every path counts as named, as when a trial is reverted.
    leaves_all: bool,
    foreign: Vec<Foreign>,
}

impl Survey {
    /// Reads every path of a journal.
    ///
    /// # Errors
    /// A stage cannot be read: its objects are then neither present nor missing.
    pub(super) fn of_journal(
        root: &Root,
        journal: &Journal,
        executor: &Executor<'_>,
        leave: &Leave,
    ) -> Result<Self, StepError> {
        let mut survey = Self {
            progress: Vec::new(),
            forward: Vec::new(),
            back: Vec::new(),
            named: BTreeSet::new(),
            leaves_all: leave.all,
            foreign: Vec::new(),
        };
        for (index, step) in journal.steps.iter().enumerate() {
            survey.inspect_step(root, journal, executor, leave, (index, step))?;
        }
        survey.forward = survey.ways_towards(journal, executor, leave, Direction::Forward)?;
        survey.back = survey.ways_towards(journal, executor, leave, Direction::Back)?;
        survey.mark_named(journal, leave);
        Ok(survey)
    }

    /// Judges every step in one direction. A directory that an earlier step creates counts as existing.
    fn ways_towards(
        &self,
        journal: &Journal,
        executor: &Executor<'_>,
        leave: &Leave,
        direction: Direction,
    ) -> Result<Vec<StepOutlook>, StepError> {
        let mut ways = vec![StepOutlook::There; journal.steps.len()];
        let mut made: BTreeSet<RootPath> = BTreeSet::new();
        let mut order: Vec<usize> = (0..journal.steps.len()).collect();
        if direction == Direction::Back {
            order.reverse();
        }
        for index in order {
            let (Some(step), Some(slot)) = (journal.steps.get(index), ways.get_mut(index)) else {
                continue;
            };
            // A step in neither state is judged separately.
            let Some(progress) = self.progress.get(index).copied().flatten() else {
                continue;
            };
            *slot = match judge_step(executor, &made, (index, step, progress), direction) {
                Err(StepError::Staged(..)) if leave.covers_path(step.step.path()) => {
                    StepOutlook::Lost
                }
                way => way?,
            };
            if *slot == StepOutlook::Open && makes_directory(&step.step, direction) {
                made.insert(step.step.path().clone());
            }
        }
        Ok(ways)
    }

    fn inspect_step(
        &mut self,
        root: &Root,
        journal: &Journal,
        executor: &Executor<'_>,
        leave: &Leave,
        (index, step): (usize, &JournalStep),
    ) -> Result<(), StepError> {
        let path = step.step.path();
        // A disk error may be transient, but a path that cannot be read may also be left permanently.
        let progress = executor.step_progress(&step.step);
        let why = match progress.or_else(|_| executor.step_progress(&step.step)) {
            Ok(StepProgress::Foreign) => "it is neither as before nor as after the run".to_owned(),
            Ok(progress) => {
                self.progress.push(Some(progress));
                return Ok(());
            }
            Err(error) => format!("it cannot be read: {error}"),
        };
        self.progress.push(None);
        if leave.covers_path(path) {
            self.named.insert(index);
            return Ok(());
        }
        let (before, after) = kept_copies(root, journal, executor, index, step)?;
        self.foreign.push(Foreign {
            path: path.clone(),
            why,
            before,
            after,
        });
        Ok(())
    }

    /// Marks the steps whose objects are lost and whose paths were named: they are left as they are.
    fn mark_named(&mut self, journal: &Journal, leave: &Leave) {
        for (index, step) in journal.steps.iter().enumerate() {
            if !leave.covers_path(step.step.path()) {
                continue;
            }
            let stuck = |ways: &[StepOutlook]| ways.get(index) == Some(&StepOutlook::Lost);
            if stuck(&self.forward) || stuck(&self.back) {
                self.named.insert(index);
            }
        }
    }

    /// Chooses the direction.
    ///
    /// # Errors
    /// The paths in the way, with the commands that resolve this.
    pub(super) fn decide_direction(
        &self,
        journal: &Journal,
        asked: RecoveryChoice,
    ) -> Result<Direction, Stuck> {
        let direction = asked.direction;
        if !self.foreign.is_empty() {
            let paths = self.foreign.clone();
            return Err(Stuck::Foreign { asked, paths });
        }
        // Complete takes precedence over leaving something, and the requested direction over the other one.
        for lenient in [false, true] {
            if direction == Direction::Forward && self.is_open(Direction::Forward, lenient) {
                return Ok(Direction::Forward);
            }
            if self.is_open(Direction::Back, lenient) {
                return Ok(Direction::Back);
            }
        }
        Err(Stuck::Lost {
            asked,
            forward: self.lost_paths(journal, Direction::Forward),
            back: self.lost_paths(journal, Direction::Back),
        })
    }

    fn ways_in(&self, direction: Direction) -> &[StepOutlook] {
        match direction {
            Direction::Forward => &self.forward,
            Direction::Back => &self.back,
        }
    }

    fn is_open(&self, direction: Direction, lenient: bool) -> bool {
        let ways = self.ways_in(direction).iter().enumerate();
        let mut closed = ways.filter(|(index, way)| match way {
            StepOutlook::There | StepOutlook::Open => false,
            StepOutlook::Gone(_) => !lenient,
            StepOutlook::Lost => !self.named.contains(index),
        });
        closed.next().is_none()
    }

    fn lost_paths(&self, journal: &Journal, direction: Direction) -> Vec<RootPath> {
        let steps = journal
            .steps
            .iter()
            .zip(self.ways_in(direction))
            .enumerate();
        let lost = steps
            .filter(|(index, (_, way))| **way == StepOutlook::Lost && !self.named.contains(index));
        lost.map(|(_, (step, _))| step.step.path().clone())
            .collect()
    }

    /// Returns the indices of the steps to take in a direction.
    pub(super) fn pending_steps(&self, direction: Direction) -> impl Iterator<Item = usize> {
        let ways = self.ways_in(direction).iter().enumerate();
        let open = ways.filter(|(_, way)| **way == StepOutlook::Open);
        open.map(|(index, _)| index)
    }

    /// Returns true if a step is left as it is in a direction.
    pub(super) fn stays_in(&self, index: usize, direction: Direction) -> bool {
        let way = self.ways_in(direction).get(index);
        self.is_left(index) || matches!(way, Some(StepOutlook::Gone(_) | StepOutlook::Lost))
    }

    /// Returns true for a named path with neither its old nor its new object.
    fn is_left(&self, index: usize) -> bool {
        self.named.contains(&index) && self.progress.get(index).copied().flatten().is_none()
    }

    /// Returns the paths that are left as they are in a direction.
    pub(super) fn left_paths(&self, journal: &Journal, direction: Direction) -> Vec<LeftPath> {
        let steps = journal
            .steps
            .iter()
            .zip(self.ways_in(direction))
            .enumerate();
        let left = steps.filter_map(|(index, (step, way))| {
            let why = match way {
                _ if self.leaves_all && self.is_left(index) => {
                    "it cannot be read, or is neither as before nor as after the run"
                }
                StepOutlook::Lost if self.leaves_all => "what the run kept of it is damaged",
                _ if self.is_left(index) => "as asked",
                StepOutlook::Lost => "as asked",
                StepOutlook::Gone(why) => why,
                StepOutlook::There | StepOutlook::Open => return None,
            };
            let path = step.step.path().clone();
            Some(LeftPath { path, why })
        });
        left.collect()
    }

    /// Returns true if every file was in place: only then can a job have run.
    pub(super) fn all_files(&self, journal: &Journal) -> bool {
        let mut files = self.progress.iter().take(journal.records_from);
        files.all(|progress| *progress == Some(StepProgress::After))
    }

    /// Returns true if a record was written: then every job was done.
    pub(super) fn has_records(&self, journal: &Journal) -> bool {
        let mut records = self.progress.iter().skip(journal.records_from);
        records.any(|progress| *progress == Some(StepProgress::After))
    }
}

fn makes_directory(step: &Step, direction: Direction) -> bool {
    match (step, direction) {
        (Step::MakeDirectory { .. }, Direction::Forward)
        | (Step::RemoveDirectory { .. }, Direction::Back) => true,
        (Step::Put { new, .. }, Direction::Forward) => new.is_directory(),
        (Step::Put { old: Some(old), .. }, Direction::Back) => old.is_directory(),
        _ => false,
    }
}

fn judge_step(
    executor: &Executor<'_>,
    made: &BTreeSet<RootPath>,
    (index, step, progress): (usize, &JournalStep, StepProgress),
    direction: Direction,
) -> Result<StepOutlook, StepError> {
    let is_there = match direction {
        Direction::Forward => progress == StepProgress::After,
        Direction::Back => progress == StepProgress::Before,
    };
    if is_there {
        return Ok(StepOutlook::There);
    }
    let needed = match direction {
        Direction::Forward => executor.find_staged(index, step)?,
        Direction::Back => executor.find_kept(index, step)?,
    };
    let is_nothing = is_nothing(&step.step, progress);
    if matches!(step.step, Step::Metadata { .. }) {
        return Ok(if is_nothing {
            StepOutlook::Gone("it no longer exists")
        } else {
            StepOutlook::Open
        });
    }
    if needs_no_stage(&step.step, direction) {
        return Ok(StepOutlook::Open);
    }
    let gone_or_lost = |why| {
        if is_nothing {
            StepOutlook::Gone(why)
        } else {
            StepOutlook::Lost
        }
    };
    let above = step.step.path().parent();
    let is_made = above.is_some_and(|dir| made.contains(&dir));
    Ok(match executor.check_reach(step)? {
        Reach::NoStage => gone_or_lost("its file system, with the staged objects, is missing"),
        Reach::OtherMount => gone_or_lost("its directory is on another file system now"),
        Reach::NoDirectory if !is_made => gone_or_lost("the directory above it is missing"),
        Reach::NoDirectory | Reach::Whole => match needed {
            KeptObject::NotNeeded | KeptObject::As(_) => StepOutlook::Open,
            // It was in place before; otherwise it would be in the stage.
            KeptObject::Missing
                if progress == StepProgress::Absent
                    || is_nothing && direction == Direction::Forward =>
            {
                StepOutlook::Gone("it was removed since")
            }
            KeptObject::Missing => StepOutlook::Lost,
        },
    })
}

/// Returns true if the path is empty.
fn is_nothing(step: &Step, progress: StepProgress) -> bool {
    match step {
        Step::MakeDirectory { .. } | Step::Put { old: None, .. } => {
            progress == StepProgress::Before
        }
        Step::Remove { .. } | Step::RemoveDirectory { .. } => progress == StepProgress::After,
        Step::Put { .. } | Step::Metadata { .. } => progress == StepProgress::Absent,
    }
}

/// Returns true if a step needs nothing from the stage.
fn needs_no_stage(step: &Step, direction: Direction) -> bool {
    match (step, direction) {
        (Step::RemoveDirectory { .. }, Direction::Forward)
        | (Step::MakeDirectory { .. }, Direction::Back) => true,
        (Step::Put { old: None, new, .. }, Direction::Back) => !new.is_directory(),
        _ => false,
    }
}

/// Returns the paths of the two copies of a changed path: from before the run, and from the run.
fn kept_copies(
    root: &Root,
    journal: &Journal,
    executor: &Executor<'_>,
    index: usize,
    step: &JournalStep,
) -> Result<(Option<String>, Option<String>), StepError> {
    let stage = journal.stages.get(step.stage);
    let shown = |kept: KeptObject| match (kept, stage) {
        (KeptObject::As(name), Some(stage)) => Some(format!("{stage}/{name}")),
        _ => None,
    };
    let before = shown(executor.find_kept(index, step)?);
    let before = before.or_else(|| in_history(root, journal, index, step));
    Ok((before, shown(executor.find_staged(index, step)?)))
}

fn in_history(root: &Root, journal: &Journal, index: usize, step: &JournalStep) -> Option<String> {
    let (Step::Put { old: Some(old), .. } | Step::Remove { old, .. }) = &step.step else {
        return None;
    };
    let path = history_path(&journal.id).join(&old_name(index)).ok()?;
    let place: Option<Place> = root.open_place(&path).ok().flatten();
    let (found, _) = place?.observe().ok().flatten()?;
    found.is_like(old).then(|| path.to_string())
}
