//! The lock that shadow-utils takes on the account files, held while this program replaces one of them.

use std::fs::File;
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::stat::{SFlag, fstat};

use super::disk;
use crate::base::object::ObjectKind;
use crate::base::paths;
use crate::base::reason::Reason;
use crate::change::plan::PlannedStep;
use crate::host::root::{Place, Root, RootPath};
use crate::host::sys::signals::retry_interrupted;
use crate::node::Labels;
use crate::node::account_files::WRITTEN;

/// The lock, held until it is dropped. The file is kept, as by shadow-utils, because another process may be waiting for it.
pub(super) struct PasswordLock {
    _file: File,
}

/// An error when the lock is taken.
#[derive(Debug, thiserror::Error)]
#[error("locking the account files (/{path}): {0}. Another program may be changing a password; try again", path = paths::PWD_LOCK)]
pub(super) struct PasswordLockError(Reason);

/// Takes the lock if a step changes an account file.
pub(super) fn lock_for_steps(
    root: &Root,
    steps: &[PlannedStep],
    labels: &Labels,
) -> Result<Option<PasswordLock>, PasswordLockError> {
    let account = |path: &RootPath| WRITTEN.contains(&path.relative());
    if !steps.iter().any(|planned| account(planned.step.path())) {
        return Ok(None);
    }
    acquire_password_lock(root, labels).map(Some)
}

fn acquire_password_lock(root: &Root, labels: &Labels) -> Result<PasswordLock, PasswordLockError> {
    let path = RootPath::fixed(paths::PWD_LOCK);
    let place = root
        .open_place(&path)
        .map_err(|e| PasswordLockError(e.into()))?;
    let place = place.ok_or_else(|| PasswordLockError(Errno::ENOENT.into()))?;
    let failed = |errno: Errno| PasswordLockError(errno.into());
    let file = disk::open_lock_file(&place).map_err(failed)?;
    if SFlag::from_bits_truncate(fstat(&file).map_err(failed)?.st_mode & libc::S_IFMT)
        != SFlag::S_IFREG
    {
        return Err(PasswordLockError("is not a regular file".to_owned().into()));
    }
    let whole = libc::flock {
        l_type: libc::F_WRLCK as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    label_lock_file(&place, &path, labels).map_err(failed)?;
    retry_interrupted(|| fcntl(&file, FcntlArg::F_SETLK(&whole))).map_err(failed)?;
    Ok(PasswordLock { _file: file })
}

/// Labels a lock file without a label, such as one just created while no policy is loaded.
fn label_lock_file(place: &Place, path: &RootPath, labels: &Labels) -> Result<(), Errno> {
    let file = ObjectKind::File {
        size: 0,
        sha256: String::new().into(),
    };
    let Some(label) = labels.wanted_label(path, &file) else {
        return Ok(());
    };
    let found = place.read_label();
    let result = match found {
        Ok(None) => disk::set_label(place.dir.as_fd(), &place.name, &label),
        found => found.map(drop),
    };
    match result {
        Err(errno) if disk::is_refusal(errno) => Ok(()),
        other => other,
    }
}
