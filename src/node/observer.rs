//! Reads objects at paths, in order: each directory is opened once for all its entries, and a missing one is looked up once.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::originals::OriginalPaths;
use super::{Directory, NodeState};
use crate::base::object::{Flags, Object, ObjectKind, Stamp};
use crate::host::root::{
    Hold, Mount, Place, RealPath, Recent, RecentPlaces, ResolveError, Root, RootError, RootPath,
    mount_of, stat_of_open,
};
use crate::host::sys::parallel;

/// Minimum number of paths for each thread.
const PART: usize = 64;

/// The results of an observer.
#[derive(Debug, Default)]
pub(super) struct SeenObjects {
    /// The objects, one entry for each path that was read.
    pub(super) objects: Vec<(RootPath, Object)>,
    pub(super) stamps: Vec<(RootPath, Stamp)>,
    pub(super) obstructed: BTreeMap<RootPath, ResolveError>,
    pub(super) directories: BTreeMap<RootPath, Directory>,
    pub(super) flags: BTreeMap<RootPath, Flags>,
    pub(super) mount_points: BTreeSet<RootPath>,
    pub(super) mounts: BTreeMap<u64, Mount>,
    pub(super) labels: Vec<(RootPath, Option<String>)>,
    pub(super) elsewhere: BTreeMap<RootPath, RealPath>,
}

/// Reads objects; caches opened directories.
pub(super) struct ObjectObserver<'r> {
    root: &'r Root,
    /// Id of the root directory's mount.
    root_mount: u64,
    /// Labels are read too.
    labels: bool,
    /// Stamps are kept only for objects with several hard links.
    few_stamps: bool,
    /// Missing directories; true if something else exists at the path.
    missing: BTreeMap<RootPath, bool>,
    parents: Recent<Parent>,
    places: RecentPlaces,
    seen: SeenObjects,
}

/// The directory of a path.
#[derive(Clone)]
struct Parent {
    dir: Option<Arc<OwnedFd>>,
    /// The obstacle that prevents its creation.
    obstacle: Option<ResolveError>,
}

/// Objects to read.
pub(super) enum ToRead {
    /// The object at a path.
    Object(RootPath),
    /// The daemon's copy and stamps for a path. Nothing is recorded for those that do not exist, which are most.
    Originals(RootPath),
}

/// Reads `all` in parts, each with a `new` observer. Returns the results of the parts, in order.
pub(super) fn observe_all<'r>(
    new: impl Fn() -> ObjectObserver<'r> + Sync,
    all: &[ToRead],
) -> Result<Vec<SeenObjects>, RootError> {
    let parts = parallel::in_parts(all, PART, |part| {
        let mut observer = new();
        let mut part = part.iter();
        part.try_for_each(|to_read| match to_read {
            ToRead::Object(path) => observer.read_object(path),
            ToRead::Originals(path) => {
                let mut paths = OriginalPaths::of_path(path).paths();
                paths.try_for_each(|path| observer.read_object(&path))
            }
        })?;
        Ok(observer.into_seen())
    });
    parts.into_iter().collect()
}

impl<'r> ObjectObserver<'r> {
    pub(super) fn new(root: &'r Root, root_mount: u64, labels: bool) -> Self {
        Self {
            root,
            root_mount,
            labels,
            few_stamps: false,
            missing: BTreeMap::new(),
            parents: Recent::default(),
            places: RecentPlaces::default(),
            seen: SeenObjects::default(),
        }
    }

    /// Returns an observer that, with `few`, keeps stamps only for objects with several hard links.
    pub(super) fn with_few_stamps(self, few: bool) -> Self {
        Self {
            few_stamps: few,
            ..self
        }
    }

    /// Creates an observer that continues from earlier results.
    pub(super) fn going_on(root: &'r Root, root_mount: u64, node: &NodeState) -> Self {
        let mut observer = Self::new(root, root_mount, node.labels.is_usable());
        observer.seen.directories.clone_from(&node.directories);
        observer.seen.mounts.clone_from(&node.mounts);
        observer
    }

    /// Returns the root that is read.
    pub(super) fn root(&self) -> &'r Root {
        self.root
    }

    pub(super) fn into_seen(self) -> SeenObjects {
        self.seen
    }

    /// Returns the parent of a path and its last name; `None` if there is no parent.
    pub(super) fn open_place(&mut self, path: &RootPath) -> Result<Option<Place>, RootError> {
        self.places.open_place(self.root, path)
    }

    /// Reads the object at a path, and the directories above it.
    pub(super) fn read_object(&mut self, path: &RootPath) -> Result<(), RootError> {
        let parent = self.parent_of(path)?;
        if let Some(obstacle) = parent.obstacle {
            self.seen.obstructed.insert(path.clone(), obstacle);
        }
        let Some(dir) = parent.dir else {
            return Ok(());
        };
        let place = Place {
            dir,
            name: path.name().to_owned(),
        };
        match place.observe_held(self.root.digests()) {
            Ok(Some((object, stamp, hold))) => {
                self.seen.objects.push((path.clone(), object));
                if !self.few_stamps || hold.has_more_names {
                    self.seen.stamps.push((path.clone(), stamp));
                }
                if let Some(label) = self.labels.then(|| place.read_label().ok()).flatten() {
                    self.seen.labels.push((path.clone(), label));
                }
                self.record_hold(path, hold);
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(errno) if ResolveError::from(errno).is_obstacle() => {
                self.seen.obstructed.insert(path.clone(), errno.into());
                Ok(())
            }
            Err(errno) => Err(RootError::at(path, errno)),
        }
    }

    /// Returns the target of the link that was read last, if it is at this path.
    pub(super) fn last_target(&self, path: &RootPath) -> Option<&str> {
        match self.seen.objects.last() {
            Some((last, object)) if last == path => match &object.kind {
                ObjectKind::Symlink { target } => Some(target),
                _ => None,
            },
            _ => None,
        }
    }

    /// Records what prevents an object from being replaced: flags, and being a mount point.
    fn record_hold(&mut self, path: &RootPath, hold: Hold) {
        let above = match path.parent() {
            Some(parent) => self.seen.directories.get(&parent).map(|above| above.mount),
            None => Some(self.root_mount),
        };
        if above.is_some_and(|above| above != hold.mount) {
            self.seen.mount_points.insert(path.clone());
        }
        self.record_flags(path, hold.flags);
    }

    fn record_flags(&mut self, path: &RootPath, flags: Flags) {
        if !flags.is_empty() {
            self.seen.flags.insert(path.clone(), flags);
        }
    }

    fn parent_of(&mut self, path: &RootPath) -> Result<Parent, RootError> {
        if let Some(known) = self.parents.find_parent(path) {
            return Ok(known);
        }
        let parent = self.look_up(path)?;
        self.parents.add_parent(path, parent.clone());
        Ok(parent)
    }

    /// Opens the parent of a path, and reads the directories above it, up to one that is known.
    fn look_up(&mut self, path: &RootPath) -> Result<Parent, RootError> {
        let mut unknown = Vec::new();
        for above in path.ancestors().skip(1) {
            if self.missing.contains_key(&above) {
                self.missing
                    .extend(unknown.into_iter().map(|below| (below, false)));
                return Ok(self.without_directory(path, None));
            }
            if self.seen.directories.contains_key(&above) {
                break;
            }
            unknown.push(above);
        }
        match self.root.parent_and_end(path) {
            Ok(Some((dir, end))) => {
                let dir = Arc::new(dir);
                let mut opened = Some((Arc::clone(&dir), end));
                for above in &unknown {
                    self.read_directory(above, opened.take())?;
                }
                Ok(Parent {
                    dir: Some(dir),
                    obstacle: None,
                })
            }
            Ok(None) => self.record_missing(&unknown, path, None),
            Err(error) if error.cause.is_obstacle() => {
                self.record_missing(&unknown, path, Some(error.cause))
            }
            Err(error) => Err(error),
        }
    }

    /// Records the first missing directory above a path, nearest first; nothing below it exists.
    fn record_missing(
        &mut self,
        above: &[RootPath],
        path: &RootPath,
        obstacle: Option<ResolveError>,
    ) -> Result<Parent, RootError> {
        // The nearest one was just looked up and does not exist.
        let nearest = above.first().filter(|_| obstacle.is_none());
        let mut missed = false;
        for above in above.iter().rev() {
            if missed {
                self.missing.insert(above.clone(), false);
            } else if Some(above) == nearest || !self.read_directory(above, None)? {
                let something = self.is_occupied(above);
                self.missing.insert(above.clone(), something);
                missed = true;
            }
        }
        Ok(self.without_directory(path, obstacle))
    }

    /// Returns true if anything exists at a path, such as a broken link. An unreadable directory counts as empty.
    fn is_occupied(&mut self, path: &RootPath) -> bool {
        let parent = self.parent_of(path).ok();
        let place = parent.and_then(|parent| {
            let (dir, name) = (parent.dir?, path.name().to_owned());
            Some(Place { dir, name })
        });
        place.is_some_and(|place| matches!(place.stat(), Ok(Some(_))))
    }

    /// Returns the parent of a path whose directory does not exist. Unless given, the obstacle to its creation is a
    /// non-directory.
    fn without_directory(&self, path: &RootPath, obstacle: Option<ResolveError>) -> Parent {
        let something_else = |above: &RootPath| self.missing.get(above) == Some(&true);
        let no_directory = || {
            let at = path.ancestors().skip(1).find(something_else)?;
            Some(ResolveError::NoDirectory(at.to_string()))
        };
        Parent {
            dir: None,
            obstacle: obstacle.or_else(no_directory),
        }
    }

    /// Reads a directory, which may be open already, and its real path if a link leads to it. Returns true if it exists.
    pub(super) fn read_directory(
        &mut self,
        path: &RootPath,
        opened: Option<(Arc<OwnedFd>, Option<RealPath>)>,
    ) -> Result<bool, RootError> {
        if self.seen.directories.contains_key(path) {
            return Ok(true);
        }
        if self.missing.contains_key(path) {
            return Ok(false);
        }
        let (dir, end) = match opened {
            Some(opened) => opened,
            None => match self.root.directory_and_end(path) {
                Ok(Some((dir, end))) => (Arc::new(dir), end),
                Ok(None) => return Ok(false),
                // The obstacle is recorded with the path that was read.
                Err(error) if error.cause.is_obstacle() => return Ok(false),
                Err(error) => return Err(error),
            },
        };
        let (stat, hold) = stat_of_open(&dir).map_err(|errno| RootError::at(path, errno))?;
        self.record_flags(path, hold.flags);
        let directory = Directory {
            mount: hold.mount,
            mode: stat.st_mode & 0o7777,
            owner: (stat.st_uid, stat.st_gid),
        };
        self.seen.directories.insert(path.clone(), directory);
        if !self.seen.mounts.contains_key(&hold.mount) {
            let mount = mount_of(&dir).map_err(|errno| RootError::at(path, errno))?;
            self.seen.mounts.insert(mount.id, mount);
        }
        let elsewhere = end.map(|real| (path.clone(), real));
        self.seen.elsewhere.extend(elsewhere);
        Ok(true)
    }
}
