//! The lock that shadow-utils takes on the account files, held while we replace `etc/shadow`.

use std::fs::File;
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, openat};
use nix::sys::stat::Mode;

use super::disk;
use crate::error::Reason;
use crate::paths;
use crate::plan::PlannedStep;
use crate::root::{Place, Root, RootPath};

/// Held as long as it lives.
pub struct PasswordLock {
    _file: File,
    place: Place,
    made: bool,
}

/// Why it could not be had.
#[derive(Debug, thiserror::Error)]
#[error("locking the account files (/{path}): {0}. Another program may be changing a password; try again", path = paths::PWD_LOCK)]
pub struct PasswordLockError(Reason);

/// Takes the lock if a step touches the shadow file.
pub fn for_steps(
    root: &Root,
    steps: &[PlannedStep],
) -> Result<Option<PasswordLock>, PasswordLockError> {
    let shadow = RootPath::fixed(paths::SHADOW);
    if !steps.iter().any(|planned| *planned.step.path() == shadow) {
        return Ok(None);
    }
    acquire(root).map(Some)
}

fn acquire(root: &Root) -> Result<PasswordLock, PasswordLockError> {
    let path = RootPath::fixed(paths::PWD_LOCK);
    let place = root.place(&path).map_err(|e| PasswordLockError(e.into()))?;
    let place = place.ok_or_else(|| PasswordLockError(Errno::ENOENT.into()))?;
    let said = |errno: Errno| PasswordLockError(errno.into());
    let made = place.stat().map_err(said)?.is_none();
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let file = openat(
        &place.dir,
        place.name.as_str(),
        flags,
        Mode::from_bits_truncate(0o600),
    )
    .map_err(said)?;
    let whole = libc::flock {
        l_type: libc::F_WRLCK as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(&file, FcntlArg::F_SETLK(&whole)).map_err(said)?;
    Ok(PasswordLock {
        _file: File::from(file),
        place,
        made,
    })
}

impl Drop for PasswordLock {
    fn drop(&mut self) {
        if self.made {
            // It was not there before; a left-over would be harmless.
            let _ = disk::remove_file(self.place.dir.as_fd(), &self.place.name);
        }
    }
}
