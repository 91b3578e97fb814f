//! Changing names: one step forward, one step back, and what a path looks like in between.

use std::cell::RefCell;
use std::fs::File;
use std::os::fd::AsFd;

use nix::errno::Errno;

use super::disk;
use super::journal::{JournalStep, away_name, new_name, old_name};
use crate::error::Reason;
use crate::object::{Kind, Object, Stamp};
use crate::plan::{Attributes, Step};
use crate::root::{Place, Places, ResolveError, Root, RootError, RootPath};

/// Why a step could not be taken or taken back.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The kernel said no.
    #[error("{0}: {1}")]
    Io(RootPath, Reason),
    /// Resolving failed.
    #[error(transparent)]
    Root(#[from] RootError),
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
    /// The new object is there.
    After,
    /// Something else is.
    Foreign,
}

/// Carries steps out below one root.
pub struct Executor<'a> {
    root: &'a Root,
    /// The staging directories, in the journal's order.
    stages: &'a [File],
    /// Where the last steps were taken.
    places: RefCell<Places>,
}

impl<'a> Executor<'a> {
    /// For steps of one root, whose staging directories stand in the journal's order.
    pub fn new(root: &'a Root, stages: &'a [File]) -> Self {
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
            (Some(found), Some(wanted)) => found.is(wanted),
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
            _ => Progress::Foreign,
        })
    }

    /// Whether the staged object of a step that is still to be taken is there and whole.
    pub fn is_staged(&self, index: usize, step: &JournalStep) -> bool {
        let staged = self.staged_object(step.stage, &new_name(index));
        match &step.step {
            Step::Put { new, .. } => staged.is_some_and(|found| found.is(new)),
            Step::MakeDirectory { mode, uid, gid, .. } => {
                let wanted = directory(*mode, *uid, *gid);
                staged.is_some_and(|found| found.is(&wanted))
            }
            Step::Remove { .. } | Step::RemoveDirectory { .. } | Step::Metadata { .. } => true,
        }
    }

    /// Whether a step that was taken can be taken back.
    pub fn is_kept(&self, index: usize, step: &JournalStep) -> bool {
        let kept = |name: String, old: &Object| {
            self.staged_object(step.stage, &name)
                .is_some_and(|found| found.is(old))
        };
        match &step.step {
            Step::Put { old: Some(old), .. } if step.step.exchanges() => kept(new_name(index), old),
            Step::Put { old: Some(old), .. } => kept(old_name(index), old),
            Step::Remove { old, .. } => kept(away_name(index), old),
            Step::RemoveDirectory { mode, uid, gid, .. } => {
                kept(new_name(index), &directory(*mode, *uid, *gid))
            }
            _ => true,
        }
    }

    fn staged_object(&self, stage: usize, name: &str) -> Option<Object> {
        let dir = self.stages.get(stage)?.as_fd().try_clone_to_owned().ok()?;
        let place = Place {
            dir: dir.into(),
            name: name.to_owned(),
        };
        place.observe().ok().flatten().map(|(object, _)| object)
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
        if !is_new && !self.is_unchanged(&place, path, &step.step, seen)? {
            return Err(StepError::Conflict(path.clone()));
        }
        let stage = self.stage(step, path)?;
        let result = match &step.step {
            put if put.exchanges() => disk::exchange(stage.as_fd(), &new_name(index), &place),
            Step::Put { old: Some(_), .. } => {
                disk::replace(stage.as_fd(), &new_name(index), &place)
            }
            Step::MakeDirectory { .. } | Step::Put { old: None, .. } => {
                match disk::place_new(stage.as_fd(), &new_name(index), &place) {
                    Err(Errno::EEXIST) => return Err(StepError::Conflict(path.clone())),
                    other => other,
                }
            }
            Step::Remove { .. } => disk::move_aside(&place, stage.as_fd(), &away_name(index)),
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

    fn is_unchanged(
        &self,
        place: &Place,
        path: &RootPath,
        step: &Step,
        seen: Option<&Stamp>,
    ) -> Result<bool, StepError> {
        let has_old = !matches!(
            step,
            Step::MakeDirectory { .. } | Step::RemoveDirectory { .. } | Step::Put { old: None, .. }
        );
        if let Some(seen) = seen.filter(|_| has_old) {
            let stat = place
                .stat()
                .map_err(|errno| StepError::Io(path.clone(), errno.into()))?;
            if stat.as_ref().map(Stamp::from).as_ref() == Some(seen) {
                return Ok(true);
            }
        }
        Ok(matches!(
            self.progress(step)?,
            Progress::Before | Progress::Between
        ))
    }

    /// Takes a step back, however far it has come.
    pub fn back(&self, index: usize, step: &JournalStep) -> Result<(), StepError> {
        let path = step.step.path();
        match self.progress(&step.step)? {
            Progress::Before => return Ok(()),
            Progress::Foreign => return Err(StepError::Conflict(path.clone())),
            Progress::After | Progress::Between => {}
        }
        let place = self.place(path)?;
        let stage = self.stage(step, path)?;
        let result = match &step.step {
            put if put.exchanges() => disk::exchange(stage.as_fd(), &new_name(index), &place),
            // Somebody may have put something in; then it stays.
            Step::MakeDirectory { .. } => {
                disk::remove_directory(place.dir.as_fd(), &place.name).map(drop)
            }
            Step::Put { old: Some(_), .. } => {
                disk::replace(stage.as_fd(), &old_name(index), &place)
            }
            Step::Put { old: None, .. } => {
                disk::move_aside(&place, stage.as_fd(), &new_name(index))
            }
            Step::Remove { .. } => disk::place_new(stage.as_fd(), &away_name(index), &place),
            Step::RemoveDirectory { .. } => {
                disk::place_new(stage.as_fd(), &new_name(index), &place)
            }
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

    fn stage(&self, step: &JournalStep, path: &RootPath) -> Result<&File, StepError> {
        self.stages
            .get(step.stage)
            .ok_or_else(|| StepError::Io(path.clone(), Errno::ENOENT.into()))
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
