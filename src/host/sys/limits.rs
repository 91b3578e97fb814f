//! Limits of the process (`ulimit`) and its umask, before and during changes.

use std::os::fd::{BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::stat::{Mode, umask};

/// Number of open files that is sufficient for every run.
const FILES: u64 = 1024;
/// With fewer, a run could stop halfway and be unable to undo its changes.
const FEWEST_FILES: u64 = 48;
/// Number of descriptors that changing names, and undoing that, needs in addition to those already open.
const SPARE: usize = 24;

/// A limit is too low for a run.
#[derive(Debug, thiserror::Error)]
#[error(
    "only {0} files may be open at once, and a run needs {FEWEST_FILES}; nothing was changed. Raise the limit: ulimit -n {FILES}"
)]
pub struct TooFewFiles(u64);

/// Makes new files independent of the caller's umask, including those of started programs: other users can never write them.
#[allow(
    clippy::disallowed_methods,
    reason = "once, at the start of the process; modes are set on descriptors all the same"
)]
pub fn set_umask() {
    umask(Mode::S_IWGRP | Mode::S_IWOTH);
}

/// Raises the limit on open files as far as needed and allowed.
///
/// # Errors
/// It remains too low.
pub fn allow_open_files() -> Result<(), TooFewFiles> {
    let Ok((now, most)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return Ok(());
    };
    if now >= FILES {
        return Ok(());
    }
    // With the required privilege, the upper limit is raised too.
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

/// Checks that enough descriptors are left for operations that must not fail for lack of one.
///
/// # Errors
/// The system's error.
pub fn ensure_descriptors(any: BorrowedFd<'_>) -> Result<(), Errno> {
    let held: Result<Vec<OwnedFd>, _> = (0..SPARE).map(|_| any.try_clone_to_owned()).collect();
    held.map(drop).map_err(|_| Errno::EMFILE)
}
