//! The last few directories that were resolved, so that what is done to many names in one opens it once.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::{Place, Root, RootError, RootPath};

/// The ways to a directory, its parents, a file's directory and the one of the daemon's stamp for it take turns.
const KEPT: usize = 6;

/// What is known of the directories that were used last (`None`: the root itself).
#[derive(Debug)]
pub struct Recent<T>(Vec<(Option<RootPath>, T)>);

/// Directories as they were when they were looked up. Whoever changes one of them has to [`Places::forget`].
#[derive(Debug, Default)]
pub struct Places(Recent<Arc<OwnedFd>>);

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self(Vec::with_capacity(KEPT))
    }
}

impl<T: Clone> Recent<T> {
    /// What is known of the directory that a path is in.
    pub fn above(&mut self, path: &RootPath) -> Option<T> {
        let above = path.above();
        let same = |known: &Option<RootPath>| known.as_ref().map(RootPath::relative) == above;
        let at = self.0.iter().position(|(known, _)| same(known))?;
        self.0.get_mut(..=at)?.rotate_right(1);
        self.0.first().map(|(_, known)| known.clone())
    }

    /// Learns of it, and forgets the one that was not used for longest.
    pub fn learn(&mut self, path: &RootPath, known: T) {
        self.0.truncate(KEPT - 1);
        self.0.insert(0, (path.parent(), known));
    }
}

impl Places {
    /// The parent of `path` and its last name; `None` when the parent does not exist.
    pub fn of(&mut self, root: &Root, path: &RootPath) -> Result<Option<Place>, RootError> {
        if let Some(dir) = self.0.above(path) {
            return Ok(Some(Place {
                dir,
                name: path.name().to_owned(),
            }));
        }
        let place = root.place(path)?;
        if let Some(place) = &place {
            self.0.learn(path, Arc::clone(&place.dir));
        }
        Ok(place)
    }

    /// Looks everything up anew from here on.
    pub fn forget(&mut self) {
        self.0.0.clear();
    }
}
