//! The last few directories that were resolved, so that what is done to many names in one opens it once.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::{Place, Root, RootError, RootPath};

/// A file and the daemon's stamp for it take turns.
const KEPT: usize = 4;

/// Directories as they were when they were looked up. Whoever changes one of them has to [`Places::forget`].
#[derive(Debug, Default)]
pub struct Places {
    recent: VecDeque<(Option<RootPath>, Arc<OwnedFd>)>,
}

impl Places {
    /// The parent of `path` and its last name; `None` when the parent does not exist.
    pub fn of(&mut self, root: &Root, path: &RootPath) -> Result<Option<Place>, RootError> {
        let parent = path.parent();
        let known = self.recent.iter().find(|(known, _)| *known == parent);
        if let Some((_, dir)) = known {
            return Ok(Some(Place {
                dir: Arc::clone(dir),
                name: path.name().to_owned(),
            }));
        }
        let place = root.place(path)?;
        if let Some(place) = &place {
            self.recent.truncate(KEPT - 1);
            self.recent.push_front((parent, Arc::clone(&place.dir)));
        }
        Ok(place)
    }

    /// Looks everything up anew from here on.
    pub fn forget(&mut self) {
        self.recent.clear();
    }
}
