//! The most recently resolved directories, so that operations on many names in one directory open it only once.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::{Place, Root, RootError, RootPath};

/// Number of directories that are kept: a directory, its parents, a file's directory and that of the daemon's stamp alternate.
const KEPT: usize = 6;

/// Values of the most recently used directories (`None` is the root itself).
#[derive(Debug)]
pub struct Recent<T>(Vec<(Option<RootPath>, T)>);

/// Directories as they were when they were looked up. A caller that changes one of them must call [`RecentPlaces::forget_all`].
#[derive(Debug, Default)]
pub struct RecentPlaces(Recent<Arc<OwnedFd>>);

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self(Vec::with_capacity(KEPT))
    }
}

impl<T: Clone> Recent<T> {
    /// Returns the value of a path's parent.
    pub fn find_parent(&mut self, path: &RootPath) -> Option<T> {
        let above = path.parent_text();
        let same = |known: &Option<RootPath>| known.as_ref().map(RootPath::relative) == above;
        let at = self.0.iter().position(|(known, _)| same(known))?;
        self.0.get_mut(..=at)?.rotate_right(1);
        self.0.first().map(|(_, known)| known.clone())
    }

    /// Adds the value of a path's parent, and removes the least recently used one.
    pub fn add_parent(&mut self, path: &RootPath, known: T) {
        self.0.truncate(KEPT - 1);
        self.0.insert(0, (path.parent(), known));
    }
}

impl RecentPlaces {
    /// Returns the parent of `path` and its last name; `None` if the parent does not exist.
    pub fn open_place(&mut self, root: &Root, path: &RootPath) -> Result<Option<Place>, RootError> {
        if let Some(dir) = self.0.find_parent(path) {
            return Ok(Some(Place {
                dir,
                name: path.name().to_owned(),
            }));
        }
        let place = root.open_place(path)?;
        if let Some(place) = &place {
            self.0.add_parent(path, Arc::clone(&place.dir));
        }
        Ok(place)
    }

    /// Forgets everything, so that it is looked up again.
    pub fn forget_all(&mut self) {
        self.0.0.clear();
    }
}
