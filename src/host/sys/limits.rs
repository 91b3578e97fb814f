//! Limits of the process (`ulimit`) and its umask, before and while something is changed.

use std::os::fd::{BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::stat::{Mode, umask};

/// As many open files as every run is content with.
const FILES: u64 = 1024;
/// With fewer a run could stop half-way, and would not find back.
const FEWEST_FILES: u64 = 48;
/// Descriptors that changing names, and taking that back, needs beside those that are open already.
const SPARE: usize = 24;

/// A limit leaves no room for a run.
#[derive(Debug, thiserror::Error)]
#[error(
    "only {0} files may be open at once, and a run needs {FEWEST_FILES}; nothing was changed. Raise the limit: ulimit -n {FILES}"
)]
pub struct TooFewFiles(u64);

/// Makes new files independent of the caller's umask, those of the programs that are started too: others never write them.
#[allow(
    clippy::disallowed_methods,
    reason = "once, at the start of the process; modes are set on descriptors all the same"
)]
pub fn set_umask() {
    umask(Mode::S_IWGRP | Mode::S_IWOTH);
}

/// Raises the number of open files as far as it is needed and allowed.
///
/// # Errors
/// It stays too low.
pub fn allow_open_files() -> Result<(), TooFewFiles> {
    let Ok((now, most)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return Ok(());
    };
    if now >= FILES {
        return Ok(());
    }
    // With the privilege for it the upper limit gives way too.
    let raised = setrlimit(Resource::RLIMIT_NOFILE, FILES, most.max(FILES))
        .or_else(|_| setrlimit(Resource::RLIMIT_NOFILE, most.min(FILES), most));
    let (now, _) = raised
        .and_then(|()| getrlimit(Resource::RLIMIT_NOFILE))
        .unwrap_or((now, most));
    if now < FEWEST_FILES {
        return Err(TooFewFiles(now));
    }
    Ok(())
}

/// Checks that enough descriptors are left for what must not fail for want of one.
///
/// # Errors
/// The system's word.
pub fn ensure_descriptors(any: BorrowedFd<'_>) -> Result<(), Errno> {
    let held: Result<Vec<OwnedFd>, _> = (0..SPARE).map(|_| any.try_clone_to_owned()).collect();
    held.map(drop).map_err(|_| Errno::EMFILE)
}
