//! Staging: creates every new object and keeps every old one before the first name changes.
//!
//! Uses 0700 directories on each mount: never a target's own directory (programs read every file in their conf directories),
//! and never across a bind mount (EXDEV).

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::stat::{FileStat, fstat};

use super::disk;
use super::journal::{old_name, staged_path};
use super::state::{StateError, make_path};
use crate::base::object::{Object, ObjectKind, Stamp};
use crate::base::paths;
use crate::base::reason::Reason;
use crate::change::plan::{Attributes, Payload, PlannedStep, Section, Step};
use crate::host::root::{Place, Root, RootError, RootPath, mount_id};
use crate::node::Labels;

/// An error when an object is staged.
#[derive(Debug, thiserror::Error)]
pub(super) enum StageError {
    /// The system reported an error for a path.
    #[error("{0}: {1}")]
    Io(String, Reason),
    /// A path could not be resolved.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The state directory cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// Another program changed the path since the plan was made.
    #[error("{0} was changed by another program meanwhile. Look at it, then run again")]
    Changed(RootPath),
    /// The bytes differ from the planned ones.
    #[error("{0}: the bytes to be written are not those that were planned")]
    WrongBytes(RootPath),
}

fn io_error(path: &RootPath, error: impl Into<Reason>) -> StageError {
    StageError::Io(path.to_string(), error.into())
}

/// The open staging directory of one mount.
#[derive(Debug)]
pub(super) struct Stage {
    /// The directory in the root.
    pub path: RootPath,
    /// Open for creating names and syncing; opened before the first staged write.
    pub dir: File,
    /// The file system.
    pub dev: u64,
}

/// Possible staging directories for one mount, best first.
#[derive(Debug, Clone)]
pub(super) struct Candidates {
    mount: u64,
    /// The directories, in the order in which they are tried.
    pub paths: Vec<RootPath>,
}

impl Candidates {
    /// Returns the same locations under another name.
    fn with_number(&self, number: usize) -> Self {
        let renamed = |path: &RootPath| RootPath::parse(&format!("{path}-{number}")).ok();
        Self {
            mount: self.mount,
            paths: self.paths.iter().filter_map(renamed).collect(),
        }
    }
}

/// Returns sets of candidates for each mount that the steps use, and for each step the index of its set.
pub(super) fn stage_candidates(
    root: &Root,
    id: &str,
    steps: &[PlannedStep],
    within: &[Option<usize>],
) -> Result<(Vec<Candidates>, Vec<usize>), StageError> {
    let (sets, used) = by_mount(root, id, steps)?;
    Ok(spread_steps(sets, &used, within))
}

/// Returns for each step the one that creates its parent directory: the new object is staged inside that directory and moved
/// together with it. Records are excluded, because they are moved last.
pub(super) fn nest_steps(steps: &[PlannedStep]) -> Vec<Option<usize>> {
    let mut made: BTreeMap<&str, usize> = BTreeMap::new();
    let mut within = Vec::with_capacity(steps.len());
    for (index, planned) in steps.iter().enumerate() {
        let path = planned.step.path();
        let adds = planned.section != Section::Records
            && matches!(
                planned.step,
                Step::MakeDirectory { .. } | Step::Put { old: None, .. }
            );
        let above = path
            .parent_text()
            .and_then(|above| made.get(above).copied());
        within.push(above.filter(|_| adds));
        if adds && matches!(planned.step, Step::MakeDirectory { .. }) {
            made.insert(path.relative(), index);
        } else {
            made.remove(path.relative());
        }
    }
    within
}

/// Number of steps that share a directory: a directory accepts one new name at a time, however many threads create names.
const SHARE: usize = 96;

/// Maximum number of sets; more do not make staging faster.
const MOST_SETS: usize = 64;

/// Splits the steps of a mount into groups, each with its own set.
fn spread_steps(
    mut sets: Vec<Candidates>,
    used: &[usize],
    within: &[Option<usize>],
) -> (Vec<Candidates>, Vec<usize>) {
    let share = SHARE.max(used.len().div_ceil(MOST_SETS));
    // For each mount: the current set, and how many steps use it.
    let mut current: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    let mut spread: Vec<usize> = Vec::with_capacity(used.len());
    for (&mount, within) in used.iter().zip(within) {
        if let Some(&set) = within.and_then(|above| spread.get(above)) {
            spread.push(set);
            continue;
        }
        let (index, steps) = current.entry(mount).or_insert((mount, 0));
        if *steps == share
            && let Some(first) = sets.get(mount)
        {
            let another = first.with_number(sets.len());
            (*index, *steps) = (sets.len(), 0);
            sets.push(another);
        }
        *steps += 1;
        spread.push(*index);
    }
    (sets, spread)
}

/// Returns one set of candidates for each mount that the steps use, and for each step the index of its set.
fn by_mount(
    root: &Root,
    id: &str,
    steps: &[PlannedStep],
) -> Result<(Vec<Candidates>, Vec<usize>), StageError> {
    let own = path_below(&Some(RootPath::fixed(paths::STAGE)), id);
    let mut sets = Vec::new();
    // By the directory itself, which may be a mount point.
    if let Some(path) = own.first() {
        let (_, dir) = root.open_nearest(path)?;
        let mount = mount_id(&dir).map_err(|e| io_error(path, e))?;
        sets.push(Candidates { mount, paths: own });
    }
    let mut known: BTreeMap<Option<RootPath>, usize> = BTreeMap::new();
    // By the parent directory of a path, whether it exists or not.
    let mut by_parent: BTreeMap<Option<RootPath>, usize> = BTreeMap::new();
    // A directory that is about to be created will be on the mount of its parent.
    let mut made: BTreeMap<&RootPath, usize> = BTreeMap::new();
    let mut used = Vec::new();
    for planned in steps {
        let path = planned.step.path();
        let parent = path.parent();
        let of_made = || made.get(parent.as_ref()?);
        let index = match by_parent.get(&parent).or_else(of_made) {
            Some(&index) => index,
            None => {
                let (nearest, dir) = root.open_nearest(path)?;
                let index = match known.get(&nearest) {
                    Some(&index) => index,
                    None => {
                        let mount = mount_id(&dir).map_err(|e| io_error(path, e))?;
                        set_on_mount(root, &nearest, mount, id, &mut sets)?
                    }
                };
                known.insert(nearest, index);
                by_parent.insert(parent, index);
                index
            }
        };
        if matches!(planned.step, Step::MakeDirectory { .. }) {
            made.insert(path, index);
        }
        used.push(index);
    }
    Ok((sets, used))
}

/// Returns the index of a mount's set, which is added if it is missing.
fn set_on_mount(
    root: &Root,
    nearest: &Option<RootPath>,
    mount: u64,
    id: &str,
    sets: &mut Vec<Candidates>,
) -> Result<usize, StageError> {
    if let Some(index) = sets.iter().position(|set| set.mount == mount) {
        return Ok(index);
    }
    let paths = on_mount(root, nearest, mount, id)?;
    sets.push(Candidates { mount, paths });
    Ok(sets.len() - 1)
}

/// Returns the candidates from the top of the mount down to the directory: the top may be immutable, like a deployment's root.
fn on_mount(
    root: &Root,
    nearest: &Option<RootPath>,
    mount: u64,
    id: &str,
) -> Result<Vec<RootPath>, StageError> {
    let mut all: Vec<Option<RootPath>> = nearest
        .iter()
        .flat_map(RootPath::ancestors)
        .map(Some)
        .collect();
    all.push(None);
    let mut paths = Vec::new();
    for directory in all {
        let dir = match &directory {
            Some(path) => root.open_directory(path)?,
            None => root.as_fd().try_clone_to_owned().ok(),
        };
        let Some(dir) = dir else { break };
        if mount_id(&dir).ok() != Some(mount) {
            break;
        }
        paths.splice(0..0, path_below(&directory, &format!(".mco-rescue-{id}")));
    }
    Ok(paths)
}

fn path_below(directory: &Option<RootPath>, name: &str) -> Vec<RootPath> {
    let path = match directory {
        Some(directory) => directory.join(name),
        None => RootPath::parse(&format!("/{name}")),
    };
    path.into_iter().collect()
}

/// Creates the staging directory of one mount: the first candidate that the file system allows. `prepare` is called for each
/// candidate before it is created.
pub(super) fn make_stage(
    root: &Root,
    candidates: &Candidates,
    prepare: &mut impl FnMut(&RootPath) -> Result<(), StateError>,
) -> Result<Stage, StageError> {
    let mut last = None;
    for path in &candidates.paths {
        prepare(path)?;
        // Nothing stays in it, so it needs no label.
        match make_path(root, path, &Labels::default()) {
            Ok(dir) => {
                let dev = fstat(&dir).map_err(|e| io_error(path, e))?.st_dev;
                return Ok(Stage {
                    path: path.clone(),
                    dir,
                    dev,
                });
            }
            Err(error) => last = Some(error),
        }
    }
    Err(last.map_or_else(
        || io_error(&RootPath::fixed(paths::STAGE), Errno::ENOENT),
        StageError::State,
    ))
}

/// The order in which steps are staged.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct StagingOrder {
    /// Steps before all others: large directories, without their content.
    pub first: Vec<usize>,
    /// The other parts, each in its own order; no part depends on another.
    pub parts: Vec<Vec<usize>>,
}

/// Approximate number of steps in a part: fewer are not worth a thread.
const PART: usize = 32;

/// Distributes steps over parts. A directory and everything staged in it form one part; if that is more than half of all steps,
/// the directory precedes all parts.
fn share_out(steps: &[PlannedStep], within: &[Option<usize>]) -> StagingOrder {
    let mut order = StagingOrder::default();
    let mut trees: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    // For each step, the one whose directory contains it in the end.
    let mut tops: Vec<usize> = Vec::with_capacity(steps.len());
    for (index, within) in within.iter().enumerate() {
        let top = within.and_then(|above| tops.get(above).copied());
        let top = top.unwrap_or(index);
        tops.push(top);
        trees.entry(top).or_default().push(index);
    }
    let is_directory = |index: &usize| {
        let planned = steps.get(*index);
        planned.is_some_and(|planned| matches!(planned.step, Step::MakeDirectory { .. }))
    };
    let mut part = Vec::new();
    for tree in trees.into_values() {
        if tree.len() > PART.max(steps.len() / 2) {
            let (directories, others): (Vec<usize>, Vec<usize>) =
                tree.into_iter().partition(is_directory);
            order.first.extend(directories);
            order
                .parts
                .extend(others.chunks(PART).map(<[usize]>::to_vec));
        } else {
            part.extend(tree);
        }
        if part.len() >= PART {
            order.parts.push(std::mem::take(&mut part));
        }
    }
    order
        .parts
        .extend(Some(part).filter(|part| !part.is_empty()));
    order
}

/// The data that staging a step needs.
pub(super) struct StageContext<'a> {
    /// All steps, and for each the stage it uses.
    pub steps: &'a [PlannedStep],
    /// Index into `stages` for each step.
    pub stage_of: &'a [usize],
    /// The result of [`nest_steps`].
    pub within: &'a [Option<usize>],
    /// The staging directories.
    pub stages: &'a [Stage],
    /// The root.
    pub root: &'a Root,
    /// History directory of this transaction.
    pub history: &'a File,
    /// Stamps of the objects that the plan read.
    pub seen: &'a BTreeMap<RootPath, Stamp>,
    /// Every file is synced, because this kernel's `syncfs` reports no errors.
    pub sync_each: bool,
}

impl StageContext<'_> {
    /// Stages one step. Returns the stamp that its target must still have when its name changes.
    pub(super) fn stage_step(
        &self,
        index: usize,
        planned: &PlannedStep,
        stage: &Stage,
    ) -> Result<Option<Stamp>, StageError> {
        match &planned.step {
            // A removed directory is staged too, to be able to restore it.
            Step::MakeDirectory {
                path,
                mode,
                uid,
                gid,
            }
            | Step::RemoveDirectory {
                path,
                mode,
                uid,
                gid,
            } => {
                let name = self.staged_path(index);
                let made = disk::make_directory(stage.dir.as_fd(), &name, *mode, (*uid, *gid));
                made.map(|_| None).map_err(|e| io_error(path, e))
            }
            Step::Put { path, new, old } => {
                self.new_object(index, planned, path, new, stage)?;
                match old {
                    None => Ok(None),
                    // It is moved here as a whole when its name changes.
                    Some(old) if old.is_directory() => {
                        self.keep_tree(index, path, stage)?;
                        self.check_unchanged(path, old).map(Some)
                    }
                    Some(old) => self.keep_old(index, path, old, Some(stage)).map(Some),
                }
            }
            Step::Remove { path, old } => self.keep_old(index, path, old, None).map(Some),
            Step::Metadata { path, old, .. } => {
                let place = self.resolve_place(path)?;
                let stat = place.stat().map_err(|e| io_error(path, e))?;
                let found = stat.as_ref().map(stat_attributes);
                if found.is_some_and(|found| found != *old) && !self.is_touched_before(index, path)
                {
                    return Err(StageError::Changed(path.clone()));
                }
                Ok(stat.map(|stat| Stamp::from(&stat)))
            }
        }
    }

    fn staged_path(&self, index: usize) -> String {
        staged_path(index, |at| {
            let planned = self.steps.get(at)?;
            Some((&planned.step, self.within.get(at).copied().flatten()))
        })
    }

    /// Returns the order in which the steps are staged.
    pub(super) fn share_out(&self) -> StagingOrder {
        let is_second_name = |planned: &PlannedStep| matches!(planned.payload, Payload::LinkTo(_));
        // A hard link needs its target first, and the steps are in such an order.
        if self.steps.iter().any(is_second_name) {
            return StagingOrder {
                first: (0..self.steps.len()).collect(),
                parts: Vec::new(),
            };
        }
        share_out(self.steps, self.within)
    }

    /// Returns true if an earlier step of this run changes the path.
    fn is_touched_before(&self, index: usize, path: &RootPath) -> bool {
        let mut earlier = self.steps.iter().take(index);
        earlier.any(|planned| planned.step.path() == path)
    }

    fn resolve_place(&self, path: &RootPath) -> Result<Place, StageError> {
        self.root
            .open_place(path)?
            .ok_or_else(|| StageError::Changed(path.clone()))
    }

    fn new_object(
        &self,
        index: usize,
        planned: &PlannedStep,
        path: &RootPath,
        new: &Object,
        stage: &Stage,
    ) -> Result<(), StageError> {
        let name = self.staged_path(index);
        let dir = stage.dir.as_fd();
        if let Payload::LinkTo(target) = &planned.payload {
            return self.link_staged(target, path, dir, &name);
        }
        if let Payload::NameOf(source) = &planned.payload {
            let source = self.resolve_place(source)?;
            return disk::link_or_copy(&source, new, dir, &name, self.sync_each)
                .map_err(|e| io_error(path, e));
        }
        if let Payload::TreeOf(source) = &planned.payload {
            let source = self.resolve_place(source)?;
            let copied = disk::copy_tree(&source, dir, &name, self.sync_each);
            return copied.map_err(|e| io_error(path, e));
        }
        if new.is_directory() {
            let made = disk::make_directory(dir, &name, new.mode, new.owner());
            return made.map(drop).map_err(|e| io_error(path, e));
        }
        if let ObjectKind::Symlink { target } = &new.kind {
            return disk::write_link(dir, &name, target, new.owner())
                .map_err(|e| io_error(path, e));
        }
        let kind = match &planned.payload {
            Payload::CopyOf(source) if new.kind.is_unread() => {
                let source = self.resolve_place(source)?;
                return disk::link_or_copy(&source, new, dir, &name, self.sync_each)
                    .map_err(|e| io_error(path, e));
            }
            Payload::CopyOf(source) => {
                let source_file = self
                    .root
                    .open_file(source)?
                    .ok_or_else(|| StageError::Changed(source.clone()))?;
                let source = disk::ByteSource::File(&source_file);
                let written = disk::write_file(dir, &name, source, new, self.sync_each);
                let (written, _) = written.map_err(|e| io_error(path, e))?;
                disk::copy_extended(&source_file, dir, &name).map_err(|e| io_error(path, e))?;
                disk::copy_times(&source_file, dir, &name).map_err(|e| io_error(path, e))?;
                written
            }
            payload => {
                let source = payload_source(payload).map_err(|e| io_error(path, e))?;
                let (kind, stat) = disk::write_file(dir, &name, source, new, self.sync_each)
                    .map_err(|e| io_error(path, e))?;
                if kind == new.kind {
                    // With the config's text, so that there is only one copy of it.
                    self.root.digests().learn_written(&stat, &new.kind);
                }
                kind
            }
        };
        if !new.kind.is_copied_as(&kind) {
            return Err(StageError::WrongBytes(path.clone()));
        }
        Ok(())
    }

    /// Creates a hard link to the object that an earlier step staged for the target, or to the target itself.
    fn link_staged(
        &self,
        target: &RootPath,
        path: &RootPath,
        dir: BorrowedFd<'_>,
        name: &str,
    ) -> Result<(), StageError> {
        let staged =
            self.steps
                .iter()
                .zip(self.stage_of)
                .enumerate()
                .find_map(|(index, (planned, &at))| {
                    let puts = matches!(&planned.step, Step::Put { path, .. } if path == target);
                    let stage = self.stages.get(at).filter(|_| puts)?;
                    let dir = stage.dir.as_fd().try_clone_to_owned().ok()?;
                    Some(Place {
                        dir: dir.into(),
                        name: self.staged_path(index),
                    })
                });
        let place = match staged {
            Some(place) => place,
            None => self.resolve_place(target)?,
        };
        disk::hard_link(&place, dir, name).map_err(|e| io_error(path, e))
    }

    /// Sets the label of a step's staged object. Returns the error if labels are impossible here.
    pub(super) fn label_staged(
        &self,
        index: usize,
        planned: &PlannedStep,
        stage: &Stage,
    ) -> Result<Option<Errno>, StageError> {
        let path = planned.step.path();
        let (dir, name) = (stage.dir.as_fd(), self.staged_path(index));
        let result = match &planned.label {
            Some(label) => disk::set_label(dir, &name, label),
            None => match self.label_source(planned)? {
                Some(place) => disk::copy_label(&place, dir, &name),
                None => Ok(()),
            },
        };
        match result {
            Ok(()) => Ok(None),
            Err(errno) if disk::is_refusal(errno) => Ok(Some(errno)),
            Err(errno) => Err(io_error(path, errno)),
        }
    }

    /// Returns the object whose label a new object without its own gets: its source, or the object that it replaces.
    fn label_source(&self, planned: &PlannedStep) -> Result<Option<Place>, StageError> {
        let path = match (&planned.step, &planned.payload) {
            (_, Payload::LinkTo(_) | Payload::NameOf(_) | Payload::TreeOf(_)) => return Ok(None),
            (Step::Put { .. }, Payload::CopyOf(source)) => source,
            (
                Step::Put {
                    path, old: Some(_), ..
                }
                | Step::RemoveDirectory { path, .. },
                _,
            ) => path,
            _ => return Ok(None),
        };
        // A missing object is reported elsewhere.
        Ok(self.root.open_place(path)?)
    }

    /// Returns the stamp of the old object, if it is still the one that the plan read.
    fn check_unchanged(&self, path: &RootPath, old: &Object) -> Result<Stamp, StageError> {
        let place = self.resolve_place(path)?;
        let stat = place.stat().map_err(|e| io_error(path, e))?;
        let now = stat.as_ref().map(Stamp::from);
        // The stamp is the quick answer; a hard link to the same inode may have changed it, so identity decides.
        if now.is_none() || now.as_ref() != self.seen.get(path) {
            let again = place.observe().map_err(|e| io_error(path, e))?;
            if !again.is_some_and(|(object, _)| object.is_like(old)) {
                return Err(StageError::Changed(path.clone()));
            }
        }
        now.ok_or_else(|| StageError::Changed(path.clone()))
    }

    /// Copies a directory that will be replaced to the history, if that is on another mount. It cannot be moved there later,
    /// and at this time a full disk still means that nothing was changed.
    fn keep_tree(&self, index: usize, path: &RootPath, stage: &Stage) -> Result<(), StageError> {
        let at = |errno: Errno| io_error(path, errno);
        let here = mount_id(&stage.dir).map_err(at)?;
        if here == mount_id(self.history).map_err(at)? {
            return Ok(());
        }
        let place = self.resolve_place(path)?;
        let name = old_name(index);
        let copied = disk::copy_tree(&place, self.history.as_fd(), &name, self.sync_each);
        copied.map_err(|e| {
            let reason = Reason::from(e);
            let message = format!("keeping what is in it for a rollback: {reason}");
            StageError::Io(path.to_string(), message.into())
        })
    }

    /// Links the old object twice: next to its new one for undoing, and in the history.
    fn keep_old(
        &self,
        index: usize,
        path: &RootPath,
        old: &Object,
        stage: Option<&Stage>,
    ) -> Result<Stamp, StageError> {
        let before = self.check_unchanged(path, old)?;
        let place = self.resolve_place(path)?;
        let name = old_name(index);
        let mut dirs = stage
            .map(|stage| stage.dir.as_fd())
            .into_iter()
            .chain([self.history.as_fd()]);
        let kept =
            dirs.try_for_each(|dir| disk::link_or_copy(&place, old, dir, &name, self.sync_each));
        if let Err(error) = kept {
            // If another program changed it in the meantime, that is the error to report.
            self.check_unchanged(path, old)?;
            return Err(io_error(path, error));
        }
        // A new link changes the inode's change time; this is the one to compare from here on. Any other difference was made by
        // another program.
        let after = place.stat().map_err(|e| io_error(path, e))?;
        let kept = after.as_ref().filter(|after| {
            Stamp::from(*after).same_but_change_time(&before) && old.has_attributes_of(after)
        });
        kept.map(Stamp::from)
            .ok_or_else(|| StageError::Changed(path.clone()))
    }
}

fn stat_attributes(stat: &FileStat) -> Attributes {
    Attributes {
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
    }
}

fn payload_source(payload: &Payload) -> Result<disk::ByteSource<'_>, Reason> {
    match payload {
        Payload::Bytes(bytes) => Ok(disk::ByteSource::Bytes(bytes)),
        Payload::Record(text) => Ok(disk::ByteSource::Text(text.as_bytes())),
        Payload::Contents(contents) => {
            let reader = contents.open_reader().map_err(Reason::from_error)?;
            Ok(disk::ByteSource::Contents(reader))
        }
        Payload::None
        | Payload::CopyOf(_)
        | Payload::TreeOf(_)
        | Payload::LinkTo(_)
        | Payload::NameOf(_) => Err("nothing to be written".into()),
    }
}
