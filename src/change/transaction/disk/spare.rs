//! Space that a revert has reserved, and that it uses bit by bit.
//!
//! On a full disk, another program is often waiting for the next free block. If the space were freed all at once before the
//! revert begins, it would be gone by the time it is needed. So a process that holds the spare file frees a piece of it only
//! when one of its own calls finds the file system full, and repeats the call immediately.

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, fstat};
use nix::unistd::fsync;

use crate::host::sys::signals::retry_interrupted;

/// Number of bytes that are freed for one call.
const PIECE: u64 = 128 << 10;

/// The spare file that this process holds.
static SPARE: Mutex<Option<File>> = Mutex::new(None);

/// Takes the spare file for this process, and frees half of it for the programs that it runs.
pub(in super::super) fn hold_spare(file: File) -> Result<(), Errno> {
    let size = size_of(&file)?;
    shrink_file(&file, size / 2)?;
    *lock_spare() = Some(file);
    Ok(())
}

/// Lets go of the spare file.
pub(in super::super) fn release_spare() {
    *lock_spare() = None;
}

/// Makes a call on the file system of `place`. As long as that is full and a piece of the spare file on it is left, one is
/// freed and the call is repeated.
///
/// # Errors
/// Those of the call.
pub(super) fn with_spare<T>(
    place: impl AsFd,
    mut call: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::ENOSPC | Errno::EDQUOT) if frees_piece(&place) => {}
            result => return result,
        }
    }
}

/// Frees a piece. Returns false if none is left, or the spare file is on another file system.
fn frees_piece(place: &impl AsFd) -> bool {
    let held = lock_spare();
    let Some(file) = held.as_ref() else {
        return false;
    };
    let (Ok(here), Ok(spare)) = (fstat(place), fstat(file)) else {
        return false;
    };
    let size = u64::try_from(spare.st_size).unwrap_or(0);
    here.st_dev == spare.st_dev && size > 0 && shrink_file(file, size.saturating_sub(PIECE)).is_ok()
}

fn lock_spare() -> MutexGuard<'static, Option<File>> {
    SPARE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens a file of this program for [`shrink_file`].
pub(in super::super) fn open_to_shrink(dir: &File, name: &str) -> Result<File, Errno> {
    let flags = OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    retry_interrupted(|| openat(dir, name, flags, Mode::empty())).map(File::from)
}

/// Returns the size of an open file, in bytes.
fn size_of(file: &File) -> Result<u64, Errno> {
    fstat(file).map(|stat| u64::try_from(stat.st_size).unwrap_or(0))
}

/// Truncates a file to this size and syncs it: some file systems keep freed blocks until then.
fn shrink_file(file: &File, size: u64) -> Result<(), Errno> {
    let size = i64::try_from(size).map_err(|_| Errno::EINVAL)?;
    retry_interrupted(|| nix::unistd::ftruncate(file, size))?;
    retry_interrupted(|| fsync(file))
}
