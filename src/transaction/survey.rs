//! Which way an interrupted run can still be taken: every step is judged by itself, by what is at its path and in its
//! own stage.
//!
//! A step whose file system is gone (a tmpfs after a boot, a disk that is not mounted) stops nothing: there is nothing
//! to be done for it here, so it is left and said. A path that was changed since stops both ways until it is put right,
//! moved away, or left by name.

use std::collections::BTreeSet;

use super::execute::{Executor, Kept, Progress, Reach, StepError};
use super::journal::{Journal, JournalStep, old_name};
use super::recover::history_path;
use crate::invocation::{mco_rescue, shell_word};
use crate::plan::Step;
use crate::root::{Place, Root, RootPath};

/// Which way an unfinished transaction is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To its end; back where that is impossible.
    Forward,
    /// Back to how it was.
    Back,
}

/// Paths that may stay as they are where they cannot be brought along.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leave {
    /// Everything.
    pub all: bool,
    /// These, and what is below them.
    pub paths: Vec<RootPath>,
}

impl Leave {
    /// Returns true where a path is one of them.
    pub fn covers(&self, path: &RootPath) -> bool {
        self.all || self.paths.iter().any(|left| path.is_in(left.relative()))
    }
}

/// A path that was left as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// Which.
    pub path: RootPath,
    /// Why.
    pub why: &'static str,
}

/// The work that is left for a step in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// It is there already.
    There,
    /// It can be taken.
    Open,
    /// Its place is gone, so there is nothing to be done; why.
    Gone(&'static str),
    /// The object that it takes is missing.
    Lost,
}

/// Which way was asked for, and what may be left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Which way.
    pub direction: Direction,
    /// Paths that may be left.
    pub leave: Leave,
}

/// A path that is on neither side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Foreign {
    /// Which.
    pub path: RootPath,
    /// How it differs from both sides.
    pub why: String,
    /// Where the content from before is kept.
    pub before: Option<String>,
    /// Where the content of the run is kept.
    pub after: Option<String>,
}

/// Why neither way is open, or not the one that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stuck {
    /// Paths that are on neither side.
    Foreign {
        /// What was asked for.
        asked: Asked,
        /// The paths.
        paths: Vec<Foreign>,
    },
    /// Paths whose new, and whose old objects are missing.
    Lost {
        /// What was asked for.
        asked: Asked,
        /// They cannot be brought forward.
        forward: Vec<RootPath>,
        /// They cannot be taken back.
        back: Vec<RootPath>,
    },
}

/// More paths than this are named by the directory that they have in common.
const NAMED: usize = 6;

impl std::fmt::Display for Stuck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Foreign { asked, paths } => foreign(f, asked, paths),
            Self::Lost {
                asked,
                forward,
                back,
            } => lost(f, asked, forward, back),
        }
    }
}

fn foreign(f: &mut std::fmt::Formatter<'_>, asked: &Asked, all: &[Foreign]) -> std::fmt::Result {
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
        ". Nothing was changed. Put each right by hand with one of its contents, or move it away, then run again; or \
         let them stay as they are. Next: {}",
        command(asked.direction, &asked.leave, &paths)
    )
}

fn lost(
    f: &mut std::fmt::Formatter<'_>,
    Asked { direction, leave }: &Asked,
    forward: &[RootPath],
    back: &[RootPath],
) -> std::fmt::Result {
    if *direction == Direction::Back && forward.is_empty() {
        return write!(
            f,
            "the interrupted run cannot be undone: the staged objects from before are damaged or missing for {}. Nothing \
             was changed. All else can be undone: {}. Or the run can be finished. Next: {}",
            list(back),
            command(Direction::Back, leave, back),
            command(Direction::Forward, leave, &[])
        );
    }
    write!(
        f,
        "the interrupted run can be neither finished nor undone: staged objects are damaged or missing, the new ones for \
         {}, those from before for {}. Nothing was changed. It can be undone but for the latter: {}. Or it can be \
         finished but for the former. Next: {}",
        list(forward),
        list(back),
        command(Direction::Back, leave, back),
        command(Direction::Forward, leave, forward)
    )
}

fn list(paths: &[RootPath]) -> String {
    let all: Vec<String> = paths.iter().map(ToString::to_string).collect();
    all.join(", ")
}

/// The command that leaves these paths as they are, besides those that were named already.
fn command(direction: Direction, leave: &Leave, paths: &[RootPath]) -> String {
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

/// The deepest directory that is above all of them.
fn common_directory(paths: &[RootPath]) -> String {
    let mut above = paths.iter().take(1).flat_map(RootPath::ancestors).skip(1);
    let common = above.find(|directory| paths.iter().all(|path| path.is_in(directory.relative())));
    common.map_or_else(|| "/".to_owned(), |directory| directory.to_string())
}

/// How far every step is, and what can be done for it.
pub struct Survey {
    progress: Vec<Option<Progress>>,
    forward: Vec<Way>,
    back: Vec<Way>,
    /// Steps that stay as they are because they were named.
    named: BTreeSet<usize>,
    foreign: Vec<Foreign>,
}

impl Survey {
    /// Looks at every path.
    ///
    /// # Errors
    /// A stage that cannot be read: what is in it is neither there nor missing.
    pub fn of(
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
            foreign: Vec::new(),
        };
        for (index, step) in journal.steps.iter().enumerate() {
            survey.look(root, journal, executor, leave, (index, step))?;
        }
        survey.forward = survey.ways_towards(journal, executor, leave, Direction::Forward)?;
        survey.back = survey.ways_towards(journal, executor, leave, Direction::Back)?;
        survey.name(journal, leave);
        Ok(survey)
    }

    /// Judges every step in one direction. A directory that an earlier step makes is as good as there.
    fn ways_towards(
        &self,
        journal: &Journal,
        executor: &Executor<'_>,
        leave: &Leave,
        direction: Direction,
    ) -> Result<Vec<Way>, StepError> {
        let mut ways = vec![Way::There; journal.steps.len()];
        let mut made: BTreeSet<RootPath> = BTreeSet::new();
        let mut order: Vec<usize> = (0..journal.steps.len()).collect();
        if direction == Direction::Back {
            order.reverse();
        }
        for index in order {
            let (Some(step), Some(slot)) = (journal.steps.get(index), ways.get_mut(index)) else {
                continue;
            };
            // What is on neither side is judged by itself.
            let Some(progress) = self.progress.get(index).copied().flatten() else {
                continue;
            };
            *slot = match way(executor, &made, (index, step, progress), direction) {
                Err(StepError::Staged(..)) if leave.covers(step.step.path()) => Way::Lost,
                way => way?,
            };
            if *slot == Way::Open && makes_directory(&step.step, direction) {
                made.insert(step.step.path().clone());
            }
        }
        Ok(ways)
    }

    fn look(
        &mut self,
        root: &Root,
        journal: &Journal,
        executor: &Executor<'_>,
        leave: &Leave,
        (index, step): (usize, &JournalStep),
    ) -> Result<(), StepError> {
        let path = step.step.path();
        let why = match executor.progress(&step.step) {
            Ok(Progress::Foreign) => "it is neither as before nor as after the run".to_owned(),
            Ok(progress) => {
                self.progress.push(Some(progress));
                return Ok(());
            }
            Err(error) => format!("it cannot be looked at: {error}"),
        };
        self.progress.push(None);
        if leave.covers(path) {
            self.named.insert(index);
            return Ok(());
        }
        let (before, after) = copies(root, journal, executor, index, step)?;
        self.foreign.push(Foreign {
            path: path.clone(),
            why,
            before,
            after,
        });
        Ok(())
    }

    /// Steps with nothing to go on by stay where they are if they were named.
    fn name(&mut self, journal: &Journal, leave: &Leave) {
        for (index, step) in journal.steps.iter().enumerate() {
            if !leave.covers(step.step.path()) {
                continue;
            }
            let stuck = |ways: &[Way]| ways.get(index) == Some(&Way::Lost);
            if stuck(&self.forward) || stuck(&self.back) {
                self.named.insert(index);
            }
        }
    }

    /// Which way it is taken, or why none is open.
    ///
    /// # Errors
    /// The paths in the way, and how to go on.
    pub fn decide(&self, journal: &Journal, asked: Asked) -> Result<Direction, Stuck> {
        let direction = asked.direction;
        if !self.foreign.is_empty() {
            let paths = self.foreign.clone();
            return Err(Stuck::Foreign { asked, paths });
        }
        // Whole before with something left; as asked before the other way.
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
            forward: self.lost(journal, Direction::Forward),
            back: self.lost(journal, Direction::Back),
        })
    }

    fn ways(&self, direction: Direction) -> &[Way] {
        match direction {
            Direction::Forward => &self.forward,
            Direction::Back => &self.back,
        }
    }

    fn is_open(&self, direction: Direction, lenient: bool) -> bool {
        let ways = self.ways(direction).iter().enumerate();
        let mut closed = ways.filter(|(index, way)| match way {
            Way::There | Way::Open => false,
            Way::Gone(_) => !lenient,
            Way::Lost => !self.named.contains(index),
        });
        closed.next().is_none()
    }

    fn lost(&self, journal: &Journal, direction: Direction) -> Vec<RootPath> {
        let steps = journal.steps.iter().zip(self.ways(direction)).enumerate();
        let lost =
            steps.filter(|(index, (_, way))| **way == Way::Lost && !self.named.contains(index));
        lost.map(|(_, (step, _))| step.step.path().clone())
            .collect()
    }

    /// The steps that are to be taken in a direction.
    pub fn pending(&self, direction: Direction) -> impl Iterator<Item = usize> {
        let ways = self.ways(direction).iter().enumerate();
        let open = ways.filter(|(_, way)| **way == Way::Open);
        open.map(|(index, _)| index)
    }

    /// Returns true where a step stays as it is in a direction.
    pub fn stays(&self, index: usize, direction: Direction) -> bool {
        let way = self.ways(direction).get(index);
        self.is_left(index) || matches!(way, Some(Way::Gone(_) | Way::Lost))
    }

    /// Neither side is there, and it was named.
    fn is_left(&self, index: usize) -> bool {
        self.named.contains(&index) && self.progress.get(index).copied().flatten().is_none()
    }

    /// The paths that stay as they are in a direction.
    pub fn left(&self, journal: &Journal, direction: Direction) -> Vec<Left> {
        let steps = journal.steps.iter().zip(self.ways(direction)).enumerate();
        let left = steps.filter_map(|(index, (step, way))| {
            let why = match way {
                _ if self.is_left(index) => "as asked",
                Way::Lost => "as asked",
                Way::Gone(why) => why,
                Way::There | Way::Open => return None,
            };
            let path = step.step.path().clone();
            Some(Left { path, why })
        });
        left.collect()
    }

    /// Returns true where every file was in place before the records: then the running system may know of them.
    pub fn all_files(&self, journal: &Journal) -> bool {
        let mut files = self.progress.iter().take(journal.records_from);
        files.all(|progress| *progress == Some(Progress::After))
    }

    /// Returns true where a record was written: then the running system knew of the files before.
    pub fn has_records(&self, journal: &Journal) -> bool {
        let mut records = self.progress.iter().skip(journal.records_from);
        records.any(|progress| *progress == Some(Progress::After))
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

fn way(
    executor: &Executor<'_>,
    made: &BTreeSet<RootPath>,
    (index, step, progress): (usize, &JournalStep, Progress),
    direction: Direction,
) -> Result<Way, StepError> {
    let is_there = match direction {
        Direction::Forward => progress == Progress::After,
        Direction::Back => progress == Progress::Before,
    };
    if is_there {
        return Ok(Way::There);
    }
    let needed = match direction {
        Direction::Forward => executor.staged(index, step)?,
        Direction::Back => executor.kept(index, step)?,
    };
    let is_nothing = is_nothing(&step.step, progress);
    if matches!(step.step, Step::Metadata { .. }) {
        return Ok(if is_nothing {
            Way::Gone("nothing is there any more")
        } else {
            Way::Open
        });
    }
    if needs_no_stage(&step.step, direction) {
        return Ok(Way::Open);
    }
    let gone_or_lost = |why| {
        if is_nothing {
            Way::Gone(why)
        } else {
            Way::Lost
        }
    };
    Ok(match executor.reach(step)? {
        Reach::NoStage => gone_or_lost("its file system, with what was staged there, is gone"),
        Reach::OtherMount => gone_or_lost("its directory is on another file system now"),
        Reach::NoDirectory
            if !step
                .step
                .path()
                .parent()
                .is_some_and(|dir| made.contains(&dir)) =>
        {
            gone_or_lost("the directory above it is gone")
        }
        Reach::NoDirectory | Reach::Whole => match needed {
            Kept::NotNeeded | Kept::As(_) => Way::Open,
            // It was in its place already, else it would be in the stage.
            Kept::Missing if progress == Progress::Absent => Way::Gone("it was removed since"),
            Kept::Missing if is_nothing && direction == Direction::Forward => {
                Way::Gone("it was removed since")
            }
            Kept::Missing => Way::Lost,
        },
    })
}

/// Returns true where nothing is at the path.
fn is_nothing(step: &Step, progress: Progress) -> bool {
    match step {
        Step::MakeDirectory { .. } | Step::Put { old: None, .. } => progress == Progress::Before,
        Step::Remove { .. } | Step::RemoveDirectory { .. } => progress == Progress::After,
        Step::Put { .. } | Step::Metadata { .. } => progress == Progress::Absent,
    }
}

/// Returns true where a step is taken at its path alone.
fn needs_no_stage(step: &Step, direction: Direction) -> bool {
    match (step, direction) {
        (Step::RemoveDirectory { .. }, Direction::Forward)
        | (Step::MakeDirectory { .. }, Direction::Back) => true,
        (Step::Put { old: None, new, .. }, Direction::Back) => !new.is_directory(),
        _ => false,
    }
}

/// Where the contents of a path that was changed are kept: from before, and of the run.
fn copies(
    root: &Root,
    journal: &Journal,
    executor: &Executor<'_>,
    index: usize,
    step: &JournalStep,
) -> Result<(Option<String>, Option<String>), StepError> {
    let stage = journal.stages.get(step.stage);
    let shown = |kept: Kept| match (kept, stage) {
        (Kept::As(name), Some(stage)) => Some(format!("{stage}/{name}")),
        _ => None,
    };
    let before = shown(executor.kept(index, step)?);
    let before = before.or_else(|| in_history(root, journal, index, step));
    Ok((before, shown(executor.staged(index, step)?)))
}

fn in_history(root: &Root, journal: &Journal, index: usize, step: &JournalStep) -> Option<String> {
    let (Step::Put { old: Some(old), .. } | Step::Remove { old, .. }) = &step.step else {
        return None;
    };
    let path = history_path(&journal.id).join(&old_name(index)).ok()?;
    let place: Option<Place> = root.place(&path).ok().flatten();
    let (found, _) = place?.observe().ok().flatten()?;
    found.is_like(old).then(|| path.to_string())
}
