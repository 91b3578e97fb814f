//! Directories in which an ordinary user can replace one of root's files.

use std::fmt;
use std::os::fd::BorrowedFd;

use nix::sys::stat::{FileStat, fstat};

use super::{RealPath, Root, RootError, RootPath, resolve};

/// A directory on a path whose contents another user can replace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exposed {
    /// The directory, with links resolved; `None` if `/proc` does not show it.
    pub directory: Option<RealPath>,
    /// The reason.
    pub by: ExposedBy,
}

/// The reason why another user can replace the contents of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExposedBy {
    /// It belongs to an ordinary user, with this uid.
    Owner(u32),
    /// Its group or all users can write to it, with this mode.
    Mode(u32),
}

impl fmt::Display for ExposedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner(uid) => write!(f, "belongs to uid {uid}"),
            Self::Mode(mode) => write!(f, "can be written by other users (mode {mode:04o})"),
        }
    }
}

impl Root {
    /// Returns the first directory on the way to `path`, including those that links pass through, whose contents a user other
    /// than root and the owner of the tree can replace. Missing directories are skipped.
    ///
    /// # Errors
    /// The path cannot be resolved.
    pub fn exposed_on_the_way(&self, path: &RootPath) -> Result<Option<Exposed>, RootError> {
        let tree = fstat(self.as_fd()).map_err(|errno| RootError::at(path, errno))?;
        let mut found = None;
        let mut visit = |dir: BorrowedFd<'_>, stat: &FileStat| {
            if let (None, Some(by)) = (&found, exposed_by(stat, tree.st_uid)) {
                let directory = self.real_path(dir);
                found = Some(Exposed { directory, by });
            }
        };
        match resolve::walk_path(self.as_fd(), path.parent_text().unwrap_or("."), &mut visit) {
            Err(error) if !error.is_missing() => Err(RootError::at(path, error)),
            _ => Ok(found),
        }
    }
}

fn exposed_by(stat: &FileStat, tree: u32) -> Option<ExposedBy> {
    let mode = stat.st_mode & 0o7777;
    if stat.st_uid != 0 && stat.st_uid != tree {
        return Some(ExposedBy::Owner(stat.st_uid));
    }
    // In a sticky directory, users can rename and remove only their own files.
    let is_open = mode & 0o022 != 0 && mode & libc::S_ISVTX == 0;
    is_open.then_some(ExposedBy::Mode(mode))
}
