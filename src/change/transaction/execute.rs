//! Changes of names: how to take a step, how to undo it, and the intermediate states of a path.

use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;

use super::disk;
use super::journal::{Journal, JournalStep, away_name, new_name, old_name};
use crate::base::invocation::mco_rescue;
use crate::base::object::{Object, ObjectKind, Stamp};
use crate::base::reason::Reason;
use crate::change::plan::{Attributes, Step};
use crate::host::root::{Place, RecentPlaces, ResolveError, Root, RootError, RootPath, mount_id};

/// An error when a step is taken or undone.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The kernel reported an error for a path.
    #[error("{0}: {1}")]
    Io(RootPath, Reason),
    /// A path could not be resolved.
    #[error(transparent)]
    Root(#[from] RootError),
    /// A staged object cannot be read.
    #[error(
        "reading what is staged for {0}: {1}. Nothing was changed. Next: {recover}, or {leave} # \
         if this persists", recover = mco_rescue("recover"), leave = mco_rescue(&format!("recover --leave {}", .0))
    )]
    Staged(RootPath, Reason),
    /// The path has neither its old nor its new object.
    #[error(
        "{0} is neither as it was before nor as it should be after; it was changed by another program"
    )]
    Conflict(RootPath),
}

/// The progress of a step, according to the object on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StepProgress {
    /// The old object is there.
    Before,
    /// Mode and owner have been changed only in part.
    Between,
    /// The path is empty, although there should be an object both before and after the step.
    Absent,
    /// The new object is there.
    After,
    /// The path has a different object.
    Foreign,
}

/// The staged object that a step needs in one direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum KeptObject {
    /// The step needs none.
    NotNeeded,
    /// It is in the stage, at this path.
    As(String),
    /// It is missing or incomplete.
    Missing,
}

/// The staging directories in the journal's order; `None` for one that no longer exists.
pub(super) type Stages<'a> = [Option<BorrowedFd<'a>>];

/// Whether the objects of a step can be moved between its stage and its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Stage and target are on one mount.
    Whole,
    /// The stage no longer exists.
    NoStage,
    /// The directory of the target does not exist.
    NoDirectory,
    /// The directory of the target and the stage are on different mounts.
    OtherMount,
}

/// Takes and undoes the steps of one journal.
pub(super) struct Executor<'a> {
    root: &'a Root,
    journal: &'a Journal,
    stages: &'a Stages<'a>,
    /// Directories of recent steps.
    places: RefCell<RecentPlaces>,
}

impl<'a> Executor<'a> {
    /// Creates an executor for the steps of a journal; `stages` are in the journal's order.
    pub(super) fn new(root: &'a Root, journal: &'a Journal, stages: &'a Stages<'a>) -> Self {
        Self {
            root,
            journal,
            stages,
            places: RefCell::default(),
        }
    }

    /// Reads a step's path and returns the progress of the step.
    pub(super) fn step_progress(&self, step: &Step) -> Result<StepProgress, StepError> {
        let path = step.path();
        let found = match self.root.observe(path) {
            Ok(found) => found.map(|(object, _)| object),
            // The parent directory has not yet replaced another object.
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
                None => StepProgress::Before,
                Some(found) if found.is_directory() => StepProgress::After,
                Some(_) => StepProgress::Foreign,
            },
            Step::RemoveDirectory { .. } => match &found {
                None => StepProgress::After,
                Some(found) if found.is_directory() => StepProgress::Before,
                Some(_) => StepProgress::Foreign,
            },
            Step::Put { new, .. } if is(Some(new)) => StepProgress::After,
            Step::Put { old, .. } if is(old.as_ref()) => StepProgress::Before,
            Step::Remove { .. } if is(None) => StepProgress::After,
            Step::Remove { old, .. } if is(Some(old)) => StepProgress::Before,
            Step::Metadata { new, .. } if attributes_of(found.as_ref()) == Some(*new) => {
                StepProgress::After
            }
            Step::Metadata { old, .. } if attributes_of(found.as_ref()) == Some(*old) => {
                StepProgress::Before
            }
            Step::Metadata { new, old, .. } if is_between(found.as_ref(), *old, *new) => {
                StepProgress::Between
            }
            Step::Put { .. } | Step::Metadata { .. } if found.is_none() => StepProgress::Absent,
            _ => StepProgress::Foreign,
        })
    }

    /// Checks whether the objects of a step can be moved between its stage and its target.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn check_reach(&self, step: &JournalStep) -> Result<Reach, StepError> {
        let path = step.step.path();
        let Some(stage) = self.stages.get(step.stage).copied().flatten() else {
            return Ok(Reach::NoStage);
        };
        let place = match self.root.open_place(path) {
            Ok(Some(place)) => place,
            Ok(None) => return Ok(Reach::NoDirectory),
            // Something else is in place of the directory.
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

    /// Returns true if a step has certainly been taken: its target is the new object, and its stage shows that a run has moved
    /// it there. An object in the way of its path proves nothing.
    ///
    /// # Errors
    /// The system's error: the step may or may not have been taken.
    pub(super) fn is_taken(&self, index: usize, step: &JournalStep) -> Result<bool, StepError> {
        let progress = match self.step_progress(&step.step) {
            Err(StepError::Root(error)) if error.cause.is_obstacle() => return Ok(false),
            progress => progress?,
        };
        let is_metadata = matches!(&step.step, Step::Metadata { .. });
        if is_metadata && progress == StepProgress::Between {
            return Ok(true);
        }
        if progress != StepProgress::After {
            return Ok(false);
        }
        let is_kept = || Ok(matches!(self.find_kept(index, step)?, KeptObject::As(_)));
        match &step.step {
            put if put.exchanges_directory() => is_kept(),
            Step::Put { .. } | Step::MakeDirectory { .. } => {
                let has_left = self.find_staged(index, step)? == KeptObject::Missing;
                // btrfs may lose the removal of a name from the stage, but keep its addition to the target.
                Ok(has_left || self.is_staged_object(index, step)?)
            }
            Step::Remove { .. } | Step::RemoveDirectory { .. } => is_kept(),
            Step::Metadata { .. } => Ok(true),
        }
    }

    /// Returns true if the target and the staged new object of a step are two names of one object.
    fn is_staged_object(&self, index: usize, step: &JournalStep) -> Result<bool, StepError> {
        let of = |place: Option<Place>| -> Result<_, StepError> {
            let stat = place.map(|place| place.stat()).transpose();
            let stat = stat.map_err(|errno| unreadable_stage(step, errno.into()))?;
            Ok(stat.flatten().map(|stat| (stat.st_dev, stat.st_ino)))
        };
        let staged = of(self.find_new(index, step)?.map(|(_, place)| place))?;
        Ok(staged.is_some() && staged == of(self.root.open_place(step.step.path())?)?)
    }

    /// Returns the name of a step's staged new object, if it is present and intact; not needed for a step without one.
    ///
    /// # Errors
    /// The system's error: the object is then neither present nor missing.
    pub(super) fn find_staged(
        &self,
        index: usize,
        step: &JournalStep,
    ) -> Result<KeptObject, StepError> {
        match &step.step {
            Step::Put { new, .. } => self.staged_as(index, step, new),
            Step::MakeDirectory { mode, uid, gid, .. } => {
                self.staged_as(index, step, &directory_object(*mode, *uid, *gid))
            }
            Step::Remove { .. } | Step::RemoveDirectory { .. } | Step::Metadata { .. } => {
                Ok(KeptObject::NotNeeded)
            }
        }
    }

    /// Returns the name of a step's kept old object, if it is present and intact.
    ///
    /// # Errors
    /// As for [`find_staged`](Self::find_staged).
    pub(super) fn find_kept(
        &self,
        index: usize,
        step: &JournalStep,
    ) -> Result<KeptObject, StepError> {
        match &step.step {
            Step::Put { old: Some(old), .. } if step.step.exchanges_directory() => {
                self.kept_as(step, new_name(index), old)
            }
            Step::Put { old: Some(old), .. } => self.kept_as(step, old_name(index), old),
            Step::Remove { old, .. } => self.kept_as(step, away_name(index), old),
            Step::RemoveDirectory { mode, uid, gid, .. } => {
                self.kept_as(step, new_name(index), &directory_object(*mode, *uid, *gid))
            }
            _ => Ok(KeptObject::NotNeeded),
        }
    }

    fn kept_as(
        &self,
        step: &JournalStep,
        name: String,
        wanted: &Object,
    ) -> Result<KeptObject, StepError> {
        let place = self.place_in_stage(step, &name)?;
        compare_staged(step, name, place, wanted)
    }

    fn staged_as(
        &self,
        index: usize,
        step: &JournalStep,
        wanted: &Object,
    ) -> Result<KeptObject, StepError> {
        match self.find_new(index, step)? {
            Some((path, place)) => compare_staged(step, path, Some(place), wanted),
            None => Ok(KeptObject::Missing),
        }
    }

    /// Returns path and place of a step's new object in the stage: inside the directory in which it was staged, or separately,
    /// as staged by older versions and by [`undo_step`](Self::undo_step).
    fn find_new(
        &self,
        index: usize,
        step: &JournalStep,
    ) -> Result<Option<(String, Place)>, StepError> {
        for path in [self.journal.staged_path(index), new_name(index)] {
            let Some(place) = self.place_in_stage(step, &path)? else {
                continue;
            };
            let found = place.stat();
            let found = found.map_err(|errno| unreadable_stage(step, errno.into()))?;
            if found.is_some() {
                return Ok(Some((path, place)));
            }
        }
        Ok(None)
    }

    /// Returns a place below the stage of a step; `None` if the stage or a directory in it is missing.
    fn place_in_stage(&self, step: &JournalStep, path: &str) -> Result<Option<Place>, StepError> {
        let Some(stage) = self.stages.get(step.stage).copied().flatten() else {
            return Ok(None);
        };
        let failed = |errno: Errno| unreadable_stage(step, errno.into());
        let dir = stage.try_clone_to_owned();
        let mut dir = dir.map_err(|e| unreadable_stage(step, e.into()))?;
        let mut names = path.split('/').peekable();
        while let Some(name) = names.next() {
            if names.peek().is_none() {
                return Ok(Some(Place {
                    dir: dir.into(),
                    name: name.to_owned(),
                }));
            }
            dir = match disk::open_directory(dir.as_fd(), name) {
                Ok(below) => below.into(),
                Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => return Ok(None),
                Err(errno) => return Err(failed(errno)),
            };
        }
        Ok(None)
    }

    /// Takes a step. `seen` is the stamp of the target when it was staged; without one, identity decides.
    pub(super) fn take_step(
        &self,
        index: usize,
        step: &JournalStep,
        seen: Option<&Stamp>,
    ) -> Result<(), StepError> {
        let path = step.step.path();
        // From here on, a directory may be reached by another path, unless the step only adds a name.
        let adds = matches!(
            &step.step,
            Step::MakeDirectory { .. } | Step::Put { old: None, .. }
        );
        if !adds {
            self.places.borrow_mut().forget_all();
        }
        let place = self.places.borrow_mut().open_place(self.root, path)?;
        let place = place.ok_or_else(|| StepError::Io(path.clone(), Errno::ENOENT.into()))?;
        // In the run itself such a step is skipped.
        if step.within.is_some() && self.step_progress(&step.step)? == StepProgress::After {
            return Ok(());
        }
        // If the path was empty, the kernel ensures that it still is.
        let is_absent = !adds && self.ensure_unchanged(&place, &step.step, seen)?;
        let stage = || self.stage_dir(step, path);
        let result = match &step.step {
            Step::MakeDirectory { .. } | Step::Put { .. } if adds || is_absent => {
                match self.place_staged(index, step, &place)? {
                    Err(Errno::EEXIST) => return Err(StepError::Conflict(path.clone())),
                    other => other,
                }
            }
            put if put.exchanges_directory() => {
                disk::exchange_names(stage()?, &new_name(index), &place)
            }
            Step::Put { .. } | Step::MakeDirectory { .. } => {
                disk::rename_over(stage()?, &new_name(index), &place)
            }
            Step::Remove { .. } => disk::move_aside(&place, stage()?, &away_name(index)),
            // If another program has added something, the directory is kept.
            Step::RemoveDirectory { .. } => {
                disk::remove_directory(place.dir.as_fd(), &place.name).map(drop)
            }
            Step::Metadata { new, .. } => {
                disk::set_attributes(&place, new.mode, (new.uid, new.gid))
            }
        };
        result.map_err(|errno| StepError::Io(path.clone(), errno.into()))
    }

    /// Refuses a step whose object was changed meanwhile. Returns true if the object is gone.
    fn ensure_unchanged(
        &self,
        place: &Place,
        step: &Step,
        seen: Option<&Stamp>,
    ) -> Result<bool, StepError> {
        let path = step.path();
        match self.progress_since(place, path, step, seen)? {
            StepProgress::Before | StepProgress::Between => Ok(false),
            // In recovery this is normal; in the run itself, something has just removed it.
            StepProgress::Absent if seen.is_none() => Ok(true),
            _ => Err(StepError::Conflict(path.clone())),
        }
    }

    /// Moves the new object of a step to its free target.
    fn place_staged(
        &self,
        index: usize,
        step: &JournalStep,
        place: &Place,
    ) -> Result<Result<(), Errno>, StepError> {
        let stage = self.stage_dir(step, step.step.path())?;
        let staged = self.journal.staged_path(index);
        if !staged.contains('/') {
            let placed = disk::place_new(stage, &staged, place);
            if placed != Err(Errno::ENOENT) {
                return Ok(placed);
            }
        }
        // From an interrupted run or an older version.
        let found = self.find_new(index, step)?;
        Ok(found.map_or(Err(Errno::ENOENT), |(_, from)| {
            disk::place_new(from.dir.as_fd(), &from.name, place)
        }))
    }

    /// Returns the progress of a step. Nothing is read if its target still has the stamp.
    fn progress_since(
        &self,
        place: &Place,
        path: &RootPath,
        step: &Step,
        seen: Option<&Stamp>,
    ) -> Result<StepProgress, StepError> {
        let has_old = !matches!(
            step,
            Step::MakeDirectory { .. } | Step::RemoveDirectory { .. } | Step::Put { old: None, .. }
        );
        if let Some(seen) = seen.filter(|_| has_old) {
            let stat = place
                .stat()
                .map_err(|errno| StepError::Io(path.clone(), errno.into()))?;
            if stat.as_ref().map(Stamp::from).as_ref() == Some(seen) {
                return Ok(StepProgress::Before);
            }
        }
        self.step_progress(step)
    }

    /// Undoes a step, whatever its progress.
    pub(super) fn undo_step(&self, index: usize, step: &JournalStep) -> Result<(), StepError> {
        let path = step.step.path();
        let is_absent = match self.step_progress(&step.step)? {
            StepProgress::Before => return Ok(()),
            StepProgress::Foreign => return Err(StepError::Conflict(path.clone())),
            StepProgress::After | StepProgress::Between => false,
            StepProgress::Absent => true,
        };
        let place = self.resolve_place(path)?;
        let stage = || self.stage_dir(step, path);
        let result = match &step.step {
            put if put.exchanges_directory() && is_absent => {
                disk::place_new(stage()?, &new_name(index), &place)
            }
            Step::Put { old: Some(_), .. } if is_absent && !step.step.exchanges_directory() => {
                disk::place_new(stage()?, &old_name(index), &place)
            }
            Step::Metadata { .. } if is_absent => Ok(()),
            put if put.exchanges_directory() => {
                disk::exchange_names(stage()?, &new_name(index), &place)
            }
            // If another program has added something, the directory is kept.
            Step::MakeDirectory { .. } => {
                disk::remove_directory(place.dir.as_fd(), &place.name).map(drop)
            }
            Step::Put { old: Some(_), .. } => disk::rename_over(stage()?, &old_name(index), &place),
            Step::Put { old: None, new, .. } => {
                let moved = match self.stages.get(step.stage).copied().flatten() {
                    Some(stage) => disk::move_aside(&place, stage, &new_name(index)),
                    None => Err(Errno::EXDEV),
                };
                match moved {
                    // Without a stage on its mount, the object is deleted: it is the one from the run.
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

    fn resolve_place(&self, path: &RootPath) -> Result<Place, StepError> {
        let place = self.root.open_place(path)?;
        place.ok_or_else(|| StepError::Io(path.clone(), Errno::ENOENT.into()))
    }

    fn stage_dir(&self, step: &JournalStep, path: &RootPath) -> Result<BorrowedFd<'a>, StepError> {
        let stage = self.stages.get(step.stage).copied().flatten();
        stage.ok_or_else(|| StepError::Io(path.clone(), Errno::ENOENT.into()))
    }
}

/// Returns the error of an unreadable stage.
fn unreadable_stage(step: &JournalStep, reason: Reason) -> StepError {
    StepError::Staged(step.step.path().clone(), reason)
}

/// Compares the object at a path of the stage with the expected one.
fn compare_staged(
    step: &JournalStep,
    path: String,
    place: Option<Place>,
    wanted: &Object,
) -> Result<KeptObject, StepError> {
    let found = place.map(|place| place.observe()).transpose();
    let found = found.map_err(|errno| unreadable_stage(step, errno.into()))?;
    let found = found.flatten();
    Ok(match found {
        Some((found, _)) if found.is_like(wanted) => KeptObject::As(path),
        _ => KeptObject::Missing,
    })
}

fn directory_object(mode: u32, uid: u32, gid: u32) -> Object {
    Object::new(ObjectKind::Directory, mode, (uid, gid))
}

/// Returns true if the owner was changed but not the mode, or if the change of owner cleared special bits.
fn is_between(object: Option<&Object>, old: Attributes, new: Attributes) -> bool {
    let Some(found) = attributes_of(object) else {
        return false;
    };
    let owner = |a: Attributes| (a.uid, a.gid);
    let modes = [old.mode, new.mode, old.mode & 0o777, new.mode & 0o777];
    (owner(found) == owner(old) || owner(found) == owner(new)) && modes.contains(&found.mode)
}

fn attributes_of(object: Option<&Object>) -> Option<Attributes> {
    let object = object.filter(|object| !matches!(object.kind, ObjectKind::Symlink { .. }))?;
    Some(object.into())
}
