//! Changing names: one step forward, one step back, and what a path looks like in between.

use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;

use super::disk;
use super::journal::{JournalStep, away_name, new_name, old_name};
use crate::invocation::mco_rescue;
use crate::object::{Kind, Object, Stamp};
use crate::plan::{Attributes, Step};
use crate::reason::Reason;
use crate::root::{Place, Places, ResolveError, Root, RootError, RootPath, mount_id};

/// Why a step could not be taken or taken back.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The kernel said no.
    #[error("{0}: {1}")]
    Io(RootPath, Reason),
    /// Resolving failed.
    #[error(transparent)]
    Root(#[from] RootError),
    /// A staged object cannot be read.
    #[error(
        "reading what is staged for {0}: {1}. Nothing was changed. Next: {recover}; where it stays so: \
         {leave}", recover = mco_rescue("recover"), leave = mco_rescue(&format!("recover --leave {}", .0))
    )]
    Staged(RootPath, Reason),
    /// What is there is neither the old nor the new object.
    #[error(
        "{0} is neither as it was before nor as it should be after; it was changed by somebody else"
    )]
    Conflict(RootPath),
}

/// How far a step has come, by what is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The old object is there.
    Before,
    /// Mode and owner are half changed.
    Between,
    /// Nothing is there, although both sides have something.
    Absent,
    /// The new object is there.
    After,
    /// Something else is.
    Foreign,
}

/// An object that going on or back takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// It takes none.
    NotNeeded,
    /// It is in the stage, by this name.
    As(String),
    /// It is missing, or not whole.
    Missing,
}

/// The staging directories in the journal's order; `None` for one that is not there any more.
pub type Stages<'a> = [Option<BorrowedFd<'a>>];

/// Where the objects of a step can be moved to and from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Stage and target are on one mount.
    Whole,
    /// There is no stage any more.
    NoStage,
    /// There is no directory for the target.
    NoDirectory,
    /// The directory of the target is on another mount than the stage.
    OtherMount,
}

/// Carries steps out below one root.
pub struct Executor<'a> {
    root: &'a Root,
    stages: &'a Stages<'a>,
    /// Where the last steps were taken.
    places: RefCell<Places>,
}

impl<'a> Executor<'a> {
    /// For steps of one root, whose staging directories stand in the journal's order.
    pub fn new(root: &'a Root, stages: &'a Stages<'a>) -> Self {
        Self {
            root,
            stages,
            places: RefCell::default(),
        }
    }

    /// Looks at a step's path and tells how far it is.
    pub fn progress(&self, step: &Step) -> Result<Progress, StepError> {
        let path = step.path();
        let found = match self.root.observe(path) {
            Ok(found) => found.map(|(object, _)| object),
            // The directory above is still to be put in the place of something else.
            Err(error) if error.cause == ResolveError::System(Errno::ENOTDIR) => None,
            Err(error) => return Err(error.into()),
        };
        let is = |wanted: Option<&Object>| match (&found, wanted) {
            (Some(found), Some(wanted)) => found.is_like(wanted),
            (None, None) => true,
            _ => false,
        };
        Ok(match step {
            Step::MakeDirectory { .. } => match &found {
                None => Progress::Before,
                Some(found) if found.is_directory() => Progress::After,
                Some(_) => Progress::Foreign,
            },
            Step::RemoveDirectory { .. } => match &found {
                None => Progress::After,
                Some(found) if found.is_directory() => Progress::Before,
                Some(_) => Progress::Foreign,
            },
            Step::Put { new, .. } if is(Some(new)) => Progress::After,
            Step::Put { old, .. } if is(old.as_ref()) => Progress::Before,
            Step::Remove { .. } if is(None) => Progress::After,
            Step::Remove { old, .. } if is(Some(old)) => Progress::Before,
            Step::Metadata { new, .. } if attributes(found.as_ref()) == Some(*new) => {
                Progress::After
            }
            Step::Metadata { old, .. } if attributes(found.as_ref()) == Some(*old) => {
                Progress::Before
            }
            Step::Metadata { new, old, .. } if is_between(found.as_ref(), *old, *new) => {
                Progress::Between
            }
            Step::Put { .. } | Step::Metadata { .. } if found.is_none() => Progress::Absent,
            _ => Progress::Foreign,
        })
    }

    /// Whether the objects of a step can be moved between its stage and its target.
    ///
    /// # Errors
    /// What the system said.
    pub fn reach(&self, step: &JournalStep) -> Result<Reach, StepError> {
        let path = step.step.path();
        let Some(stage) = self.stages.get(step.stage).copied().flatten() else {
            return Ok(Reach::NoStage);
        };
        let place = match self.root.place(path) {
            Ok(Some(place)) => place,
            Ok(None) => return Ok(Reach::NoDirectory),
            // Something else stands where the directory was.
            Err(error) if error.cause == ResolveError::System(Errno::ENOTDIR) => {
                return Ok(Reach::NoDirectory);
            }
            Err(error) => return Err(error.into()),
        };
        let mount = |dir: BorrowedFd<'_>| {
            mount_id(dir).map_err(|errno| StepError::Io(path.clone(), errno.into()))
        };
        let same = mount(place.dir.as_fd())? == mount(stage)?;
        Ok(if same {
            Reach::Whole
        } else {
            Reach::OtherMount
        })
    }

    /// The name under which the new object of a step is staged, while it is there and whole; a step without one
    /// needs none.
    ///
    /// # Errors
    /// What the system said: such an object is neither there nor missing.
    pub fn staged(&self, index: usize, step: &JournalStep) -> Result<Kept, StepError> {
        match &step.step {
            Step::Put { new, .. } => self.kept_as(step, new_name(index), new),
            Step::MakeDirectory { mode, uid, gid, .. } => {
                self.kept_as(step, new_name(index), &directory(*mode, *uid, *gid))
            }
            Step::Remove { .. } | Step::RemoveDirectory { .. } | Step::Metadata { .. } => {
                Ok(Kept::NotNeeded)
            }
        }
    }

    /// The name under which the old object of a step is kept, while it is there and whole.
    ///
    /// # Errors
    /// As [`staged`](Self::staged).
    pub fn kept(&self, index: usize, step: &JournalStep) -> Result<Kept, StepError> {
        match &step.step {
            Step::Put { old: Some(old), .. } if step.step.exchanges() => {
                self.kept_as(step, new_name(index), old)
            }
            Step::Put { old: Some(old), .. } => self.kept_as(step, old_name(index), old),
            Step::Remove { old, .. } => self.kept_as(step, away_name(index), old),
            Step::RemoveDirectory { mode, uid, gid, .. } => {
                self.kept_as(step, new_name(index), &directory(*mode, *uid, *gid))
            }
            _ => Ok(Kept::NotNeeded),
        }
    }

    fn kept_as(
        &self,
        step: &JournalStep,
        name: String,
        wanted: &Object,
    ) -> Result<Kept, StepError> {
        let Some(stage) = self.stages.get(step.stage).copied().flatten() else {
            return Ok(Kept::Missing);
        };
        let failed = |reason: Reason| StepError::Staged(step.step.path().clone(), reason);
        let dir = stage.try_clone_to_owned().map_err(|e| failed(e.into()))?;
        let place = Place {
            dir: dir.into(),
            name,
        };
        let found = place.observe().map_err(|errno| failed(errno.into()))?;
        let is_it = found.is_some_and(|(found, _)| found.is_like(wanted));
        Ok(if is_it {
            Kept::As(place.name)
        } else {
            Kept::Missing
        })
    }

    /// Takes a step. `seen` is the stamp the target had when it was staged; without one, identity decides.
    pub fn forward(
        &self,
        index: usize,
        step: &JournalStep,
        seen: Option<&Stamp>,
    ) -> Result<(), StepError> {
        let path = step.step.path();
        // A directory may be reached another way from here on.
        let moves = !matches!(&step.step, Step::Put { old: None, .. });
        if moves {
            self.places.borrow_mut().forget();
        }
        let place = self.places.borrow_mut().of(self.root, path)?;
        let place = place.ok_or_else(|| StepError::Io(path.clone(), Errno::ENOENT.into()))?;
        // Where nothing was, the kernel sees to it that nothing is.
        let is_new = matches!(
            &step.step,
            Step::MakeDirectory { .. } | Step::Put { old: None, .. }
        );
        let mut is_absent = false;
        if !is_new {
            match self.unchanged(&place, path, &step.step, seen)? {
                Progress::Before | Progress::Between => {}
                // Of a run that was interrupted; in a run of our own something took it away just now.
                Progress::Absent if seen.is_none() => is_absent = true,
                _ => return Err(StepError::Conflict(path.clone())),
            }
        }
        let stage = || self.stage(step, path);
        let result = match &step.step {
            Step::MakeDirectory { .. } | Step::Put { .. } if is_new || is_absent => {
                match disk::place_new(stage()?, &new_name(index), &place) {
                    Err(Errno::EEXIST) => return Err(StepError::Conflict(path.clone())),
                    other => other,
                }
            }
            put if put.exchanges() => disk::exchange(stage()?, &new_name(index), &place),
            Step::Put { .. } | Step::MakeDirectory { .. } => {
                disk::replace(stage()?, &new_name(index), &place)
            }
            Step::Remove { .. } => disk::move_aside(&place, stage()?, &away_name(index)),
            // Somebody may have put something in; then it stays.
            Step::RemoveDirectory { .. } => {
                disk::remove_directory(place.dir.as_fd(), &place.name).map(drop)
            }
            Step::Metadata { new, .. } => {
                disk::set_attributes(&place, new.mode, (new.uid, new.gid))
            }
        };
        result.map_err(|errno| StepError::Io(path.clone(), errno.into()))
    }

    /// How far the step is; with the stamp of its target nothing is read where that is still the same.
    fn unchanged(
        &self,
        place: &Place,
        path: &RootPath,
        step: &Step,
        seen: Option<&Stamp>,
    ) -> Result<Progress, StepError> {
        let has_old = !matches!(
            step,
            Step::MakeDirectory { .. } | Step::RemoveDirectory { .. } | Step::Put { old: None, .. }
        );
        if let Some(seen) = seen.filter(|_| has_old) {
            let stat = place
                .stat()
                .map_err(|errno| StepError::Io(path.clone(), errno.into()))?;
            if stat.as_ref().map(Stamp::from).as_ref() == Some(seen) {
                return Ok(Progress::Before);
            }
        }
        self.progress(step)
    }

    /// Takes a step back, however far it has come.
    pub fn back(&self, index: usize, step: &JournalStep) -> Result<(), StepError> {
        let path = step.step.path();
        let is_absent = match self.progress(&step.step)? {
            Progress::Before => return Ok(()),
            Progress::Foreign => return Err(StepError::Conflict(path.clone())),
            Progress::After | Progress::Between => false,
            Progress::Absent => true,
        };
        let place = self.place(path)?;
        let stage = || self.stage(step, path);
        let result = match &step.step {
            put if put.exchanges() && is_absent => {
                disk::place_new(stage()?, &new_name(index), &place)
            }
            Step::Put { old: Some(_), .. } if is_absent && !step.step.exchanges() => {
                disk::place_new(stage()?, &old_name(index), &place)
            }
            Step::Metadata { .. } if is_absent => Ok(()),
            put if put.exchanges() => disk::exchange(stage()?, &new_name(index), &place),
            // Somebody may have put something in; then it stays.
            Step::MakeDirectory { .. } => {
                disk::remove_directory(place.dir.as_fd(), &place.name).map(drop)
            }
            Step::Put { old: Some(_), .. } => disk::replace(stage()?, &old_name(index), &place),
            Step::Put { old: None, new, .. } => {
                let moved = match self.stages.get(step.stage).copied().flatten() {
                    Some(stage) => disk::move_aside(&place, stage, &new_name(index)),
                    None => Err(Errno::EXDEV),
                };
                match moved {
                    // Without a stage on its mount it goes for good: it is what the run put there.
                    Err(Errno::EXDEV) if !new.is_directory() => {
                        disk::remove_file(place.dir.as_fd(), &place.name)
                    }
                    other => other,
                }
            }
            Step::Remove { .. } => disk::place_new(stage()?, &away_name(index), &place),
            Step::RemoveDirectory { .. } => disk::place_new(stage()?, &new_name(index), &place),
            Step::Metadata { old, .. } => {
                disk::set_attributes(&place, old.mode, (old.uid, old.gid))
            }
        };
        result.map_err(|errno| StepError::Io(path.clone(), errno.into()))
    }

    fn place(&self, path: &RootPath) -> Result<Place, StepError> {
        let place = self.root.place(path)?;
        place.ok_or_else(|| StepError::Io(path.clone(), Errno::ENOENT.into()))
    }

    fn stage(&self, step: &JournalStep, path: &RootPath) -> Result<BorrowedFd<'a>, StepError> {
        let stage = self.stages.get(step.stage).copied().flatten();
        stage.ok_or_else(|| StepError::Io(path.clone(), Errno::ENOENT.into()))
    }
}

fn directory(mode: u32, uid: u32, gid: u32) -> Object {
    Object {
        kind: Kind::Directory,
        mode,
        uid,
        gid,
    }
}

/// Owner changed, mode not yet; or a mode that the change of owner stripped of its special bits.
fn is_between(object: Option<&Object>, old: Attributes, new: Attributes) -> bool {
    let Some(found) = attributes(object) else {
        return false;
    };
    let owner = |a: Attributes| (a.uid, a.gid);
    let modes = [old.mode, new.mode, old.mode & 0o777, new.mode & 0o777];
    (owner(found) == owner(old) || owner(found) == owner(new)) && modes.contains(&found.mode)
}

fn attributes(object: Option<&Object>) -> Option<Attributes> {
    let object = object.filter(|object| !matches!(object.kind, Kind::Symlink { .. }))?;
    Some(object.into())
}
