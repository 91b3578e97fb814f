//! Flags in the way (`chattr +i`, `+a`): cleared right before the first rename, and set again on the object that is at the path
//! afterwards.
//!
//! The journal lists them, so that they are set again however the run ends. It is durable before the first one is cleared, and
//! is kept until the last one is set again and synced: forward they are set before the mark `committed`, backward before the
//! journal is removed. If a run is killed in between, even while it sets them, `recover` takes over: it clears them once more
//! (clearing and setting can be repeated), completes its work, and sets them. A removed object has no flags to set; `rollback`
//! finds its flags in the history.

use std::fs::File;
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::sys::stat::{SFlag, fstat};

use super::disk;
use crate::base::object::Flags;
use crate::base::reason::Reason;
use crate::change::plan::Held;
use crate::host::root::{Root, RootError, RootPath, hold_of};

/// An error when flags are cleared or set.
#[derive(Debug, thiserror::Error)]
pub enum FlagsError {
    /// The kernel refused.
    #[error("changing the flags of {0}: {1}. That needs CAP_LINUX_IMMUTABLE; see `lsattr -d {0}`")]
    Io(RootPath, Reason),
    /// A path could not be resolved.
    #[error(transparent)]
    Root(#[from] RootError),
}

/// Clears the flags of all these paths.
pub(super) fn clear_flags(root: &Root, held: &[Held]) -> Result<(), FlagsError> {
    let mut held = held.iter();
    held.try_for_each(|held| set_flags_at(root, &held.path, Flags::default()))
}

/// Sets the flags again on the objects that are now at these paths.
pub(super) fn restore_flags(root: &Root, held: &[Held]) -> Result<(), FlagsError> {
    let mut held = held.iter();
    held.try_for_each(|held| set_flags_at(root, &held.path, held.flags))
}

/// Returns true if one of these flags is not set now. An object in the way of a path proves nothing.
///
/// # Errors
/// The system's error: the flags may or may not be set.
pub(super) fn are_cleared(root: &Root, held: &[Held]) -> Result<bool, FlagsError> {
    for held in held {
        let file = match open_flagged(root, &held.path) {
            Err(FlagsError::Root(error)) if error.cause.is_obstacle() => None,
            file => file?,
        };
        let found = file.map(hold_of).transpose();
        let found = found.map_err(|errno| FlagsError::Io(held.path.clone(), errno.into()))?;
        if found.is_some_and(|found| found.flags != held.flags) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn set_flags_at(root: &Root, path: &RootPath, flags: Flags) -> Result<(), FlagsError> {
    let failed = |errno: Errno| FlagsError::Io(path.clone(), errno.into());
    let Some(file) = open_flagged(root, path)? else {
        return Ok(());
    };
    let kind = SFlag::from_bits_truncate(fstat(&file).map_err(failed)?.st_mode & libc::S_IFMT);
    if !matches!(kind, SFlag::S_IFREG | SFlag::S_IFDIR) {
        return Ok(());
    }
    disk::set_flags(&file, flags).map_err(failed)
}

/// Opens the object at the path. A link has no flags, but the directory that it leads to may have some.
fn open_flagged(root: &Root, path: &RootPath) -> Result<Option<File>, FlagsError> {
    let failed = |errno: Errno| FlagsError::Io(path.clone(), errno.into());
    let Some(place) = root.open_place(path)? else {
        return Ok(None);
    };
    match place.stat().map_err(failed)? {
        None => Ok(None),
        Some(stat) if stat.st_mode & libc::S_IFMT == libc::S_IFLNK => {
            let dir = match root.open_directory(path) {
                // A link that does not lead to a directory has no target with flags.
                Err(error) if error.cause.is_obstacle() => None,
                dir => dir?,
            };
            let dir = dir.map(|dir| disk::open_directory(dir.as_fd(), "."));
            dir.transpose().map_err(failed)
        }
        Some(_) => place.open_file().map(Some).map_err(failed),
    }
}
