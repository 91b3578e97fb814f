//! The paths at which the daemon keeps the originals of files that it replaces.

use crate::base::paths;
use crate::host::root::RootPath;

/// Suffix of a stamp, after the name of its file.
pub const NOORIG_SUFFIX: &str = ".mcdnoorig";

/// The copies and stamps that the daemon needs to restore one path.
#[derive(Debug, Clone)]
pub struct OriginalPaths {
    /// The copy of the original.
    pub orig: RootPath,
    /// The stamp that records that there was no original.
    pub noorig: RootPath,
    /// The OS's copy below `usr`, for paths below `etc`.
    pub twin: Option<RootPath>,
}

impl OriginalPaths {
    /// Returns the three paths for one file.
    pub fn of_path(path: &RootPath) -> Self {
        Self {
            orig: path.moved_below(paths::ORIG, ".mcdorig"),
            noorig: path.moved_below(paths::NOORIG, NOORIG_SUFFIX),
            twin: path.is_in("etc").then(|| path.moved_below("usr", "")),
        }
    }

    /// Returns all of these paths.
    pub fn paths(self) -> impl Iterator<Item = RootPath> {
        [self.orig, self.noorig].into_iter().chain(self.twin)
    }
}
