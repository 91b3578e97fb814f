//! Looking at paths, in order: a directory is opened once for all that is in it, and one that is missing is missed once.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use super::{Directory, NodeState, at};
use crate::object::{Flags, Object, Stamp};
use crate::parallel;
use crate::root::{
    Hold, Mount, Place, Places, ResolveError, Root, RootError, RootPath, mount_of, stat_of_open,
};

/// Fewer paths than this are looked at by one thread.
const PART: usize = 512;

/// What was seen.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) objects: BTreeMap<RootPath, Object>,
    pub(super) stamps: BTreeMap<RootPath, Stamp>,
    pub(super) obstructed: BTreeMap<RootPath, ResolveError>,
    pub(super) directories: BTreeMap<RootPath, Directory>,
    pub(super) flags: BTreeMap<RootPath, Flags>,
    pub(super) mount_points: BTreeSet<RootPath>,
    pub(super) mounts: BTreeMap<u64, Mount>,
    pub(super) labels: BTreeMap<RootPath, Option<String>>,
    pub(super) elsewhere: BTreeMap<RootPath, RootPath>,
}

/// Somebody who looks.
pub(super) struct Observer<'r> {
    root: &'r Root,
    /// The mount of the root directory.
    root_mount: u64,
    /// Labels are noted.
    labels: bool,
    /// Directories that are not there; true where something else is.
    missing: BTreeMap<RootPath, bool>,
    /// The last parent (`None`: the root itself).
    parent: Option<(Option<RootPath>, Parent)>,
    places: Places,
    seen: Seen,
}

/// The directory of a path.
#[derive(Clone)]
struct Parent {
    dir: Option<Arc<OwnedFd>>,
    /// What stands in the way of making it.
    obstacle: Option<ResolveError>,
}

/// Looks at all `paths`, and notes labels where they matter.
pub(super) fn look(
    root: &Root,
    root_mount: u64,
    labels: bool,
    paths: &BTreeSet<RootPath>,
) -> Result<Seen, RootError> {
    let paths: Vec<&RootPath> = paths.iter().collect();
    let parts = parallel::in_parts(&paths, PART, |part| {
        let mut observer = Observer::new(root, root_mount, labels);
        let mut part = part.iter();
        part.try_for_each(|path| observer.object(path))
            .map(|()| observer.seen())
    });
    let mut all = Seen::default();
    for part in parts {
        all.add(part?);
    }
    Ok(all)
}

impl Seen {
    /// Adds what somebody else has seen.
    fn add(&mut self, other: Self) {
        self.objects.extend(other.objects);
        self.stamps.extend(other.stamps);
        self.obstructed.extend(other.obstructed);
        self.directories.extend(other.directories);
        self.flags.extend(other.flags);
        self.mount_points.extend(other.mount_points);
        self.mounts.extend(other.mounts);
        self.labels.extend(other.labels);
        self.elsewhere.extend(other.elsewhere);
    }
}

impl<'r> Observer<'r> {
    pub(super) fn new(root: &'r Root, root_mount: u64, labels: bool) -> Self {
        Self {
            root,
            root_mount,
            labels,
            missing: BTreeMap::new(),
            parent: None,
            places: Places::default(),
            seen: Seen::default(),
        }
    }

    /// One who goes on from what was seen already.
    pub(super) fn going_on(root: &'r Root, root_mount: u64, node: &NodeState) -> Self {
        let mut observer = Self::new(root, root_mount, node.labels.usable());
        observer.seen.directories.clone_from(&node.directories);
        observer.seen.mounts.clone_from(&node.mounts);
        observer
    }

    pub(super) fn seen(self) -> Seen {
        self.seen
    }

    /// The parent of a path and its last name; `None` where there is no parent.
    pub(super) fn place(&mut self, path: &RootPath) -> Result<Option<Place>, RootError> {
        self.places.of(self.root, path)
    }

    /// Looks at what is at a path, and at the directories above it.
    pub(super) fn object(&mut self, path: &RootPath) -> Result<(), RootError> {
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
        match place.observe_held() {
            Ok(Some((object, stamp, hold))) => {
                self.seen.objects.insert(path.clone(), object);
                self.seen.stamps.insert(path.clone(), stamp);
                if let Some(label) = self.labels.then(|| place.label().ok()).flatten() {
                    self.seen.labels.insert(path.clone(), label);
                }
                self.hold(path, hold);
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(errno) if ResolveError::from(errno).is_obstacle() => {
                self.seen.obstructed.insert(path.clone(), errno.into());
                Ok(())
            }
            Err(errno) => Err(at(path, errno)),
        }
    }

    /// Notes what holds an object in its place: flags, and being a mount point.
    fn hold(&mut self, path: &RootPath, hold: Hold) {
        let above = match path.parent() {
            Some(parent) => self.seen.directories.get(&parent).map(|above| above.mount),
            None => Some(self.root_mount),
        };
        if above.is_some_and(|above| above != hold.mount) {
            self.seen.mount_points.insert(path.clone());
        }
        self.flags(path, hold.flags);
    }

    fn flags(&mut self, path: &RootPath, flags: Flags) {
        if !flags.is_empty() {
            self.seen.flags.insert(path.clone(), flags);
        }
    }

    fn parent_of(&mut self, path: &RootPath) -> Result<Parent, RootError> {
        let key = path.parent();
        if let Some((last, parent)) = &self.parent
            && *last == key
        {
            return Ok(parent.clone());
        }
        let mut parent = Parent {
            dir: None,
            obstacle: None,
        };
        if !key
            .as_ref()
            .is_some_and(|key| self.missing.contains_key(key))
        {
            match self.root.place(path) {
                Ok(place) => parent.dir = place.map(|place| place.dir),
                Err(error) if error.cause.is_obstacle() => parent.obstacle = Some(error.cause),
                Err(error) => return Err(error),
            }
        }
        self.way(path, &mut parent)?;
        self.parent = Some((key, parent.clone()));
        Ok(parent)
    }

    /// Looks at the directories above a path, up to one that is known.
    fn way(&mut self, path: &RootPath, parent: &mut Parent) -> Result<(), RootError> {
        let mut opened = parent.dir.clone();
        for above in path.ancestors().skip(1) {
            if self.seen.directories.contains_key(&above) {
                break;
            }
            if !self.directory(&above, opened.take())? && self.is_something_else(&above) {
                let cause = ResolveError::NoDirectory(above.to_string());
                parent.obstacle.get_or_insert(cause);
            }
        }
        Ok(())
    }

    /// Whether something that is no directory is where one is missing.
    fn is_something_else(&mut self, path: &RootPath) -> bool {
        let root = self.root;
        let exists = || root.exists(path).unwrap_or(false);
        *self.missing.entry(path.clone()).or_insert_with(exists)
    }

    /// Looks at a directory, which may be open already; says whether it is there.
    pub(super) fn directory(
        &mut self,
        path: &RootPath,
        opened: Option<Arc<OwnedFd>>,
    ) -> Result<bool, RootError> {
        if self.seen.directories.contains_key(path) {
            return Ok(true);
        }
        if self.missing.contains_key(path) {
            return Ok(false);
        }
        let dir = match opened {
            Some(dir) => dir,
            None => match self.root.directory(path) {
                Ok(Some(dir)) => Arc::new(dir),
                Ok(None) => return Ok(false),
                // What stands in the way is noted with the path that wanted through.
                Err(error) if error.cause.is_obstacle() => return Ok(false),
                Err(error) => return Err(error),
            },
        };
        let (stat, hold) = stat_of_open(&dir).map_err(|errno| at(path, errno))?;
        self.flags(path, hold.flags);
        let directory = Directory {
            mount: hold.mount,
            mode: stat.st_mode & 0o7777,
            owner: (stat.st_uid, stat.st_gid),
        };
        self.seen.directories.insert(path.clone(), directory);
        if !self.seen.mounts.contains_key(&hold.mount) {
            let mount = mount_of(&dir).map_err(|errno| at(path, errno))?;
            self.seen.mounts.insert(mount.id, mount);
        }
        if self.labels {
            let real = self.root.real_path(dir.as_fd());
            let real = real.filter(|real| real != path);
            self.seen
                .elsewhere
                .extend(real.map(|real| (path.clone(), real)));
        }
        Ok(true)
    }
}
