//! One run at a time: a lock on the root's `var` directory, which needs no file of its own.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::sys::stat::{Mode, fstat};
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System, UpdateKind};

use crate::error::Reason;
use crate::root::{Root, RootError, RootPath};

/// The right to run a transaction; only `acquire` makes one.
#[derive(Debug)]
pub struct Lock {
    _held: Flock<OwnedFd>,
}

/// Why the lock could not be had.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Somebody else has it.
    #[error("another run holds the lock on this root: {0}. Wait for it to end, then try again")]
    Held(String),
    /// The directory could not be opened.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The kernel said no.
    #[error("locking the root: {0}")]
    System(Reason),
}

impl From<Errno> for LockError {
    fn from(errno: Errno) -> Self {
        Self::System(errno.into())
    }
}

/// Takes the lock, without waiting.
pub fn acquire(root: &Root) -> Result<Lock, LockError> {
    let path = RootPath::fixed("var");
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    // A root that has no var yet is locked itself.
    let dir = match root.directory(&path)? {
        Some(var) => nix::fcntl::openat(&var, ".", flags, Mode::empty())?,
        None => nix::fcntl::openat(root.as_fd(), ".", flags, Mode::empty())?,
    };
    match Flock::lock(dir, FlockArg::LockExclusiveNonblock) {
        Ok(held) => Ok(Lock { _held: held }),
        Err((dir, Errno::EWOULDBLOCK)) => Err(LockError::Held(holder(&dir))),
        Err((_, errno)) => Err(errno.into()),
    }
}

/// Who holds the lock, as far as the kernel tells.
fn holder(dir: &OwnedFd) -> String {
    let pid = fstat(dir.as_fd())
        .ok()
        .and_then(|stat| lock_owner(&kernel_locks(), stat.st_ino));
    match pid {
        Some(pid) => describe(pid),
        None => "a process that cannot be seen from here".to_owned(),
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "procfs of the running kernel, not a path of the node's root"
)]
fn kernel_locks() -> String {
    std::fs::read_to_string("/proc/locks").unwrap_or_default()
}

/// Lines of `/proc/locks`: `1: FLOCK  ADVISORY  WRITE 1234 fe:01:5678 0 EOF`.
fn lock_owner(locks: &str, inode: u64) -> Option<u32> {
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, "WRITE", pid, place, ..] = words.as_slice() else {
            return None;
        };
        let found: u64 = place.rsplit(':').next()?.parse().ok()?;
        if found == inode {
            pid.parse().ok()
        } else {
            None
        }
    })
}

fn describe(pid: u32) -> String {
    let Ok(mut system) = System::new() else {
        return format!("process {pid}");
    };
    let what = ProcessRefreshKind::nothing().with_cmd(UpdateKind::Always);
    system.refresh_processes_specifics(ProcessesToUpdate::Some(&[Pid::from_u32(pid)]), true, what);
    let Some(process) = system.process(Pid::from_u32(pid)) else {
        return format!("process {pid}");
    };
    let command: Vec<_> = process
        .cmd()
        .iter()
        .map(|part| part.to_string_lossy())
        .collect();
    let running = Duration::from_secs(process.run_time());
    format!(
        "process {pid} ({}), running for {} s",
        command.join(" "),
        running.as_secs()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_is_found_by_inode() {
        let locks = "1: POSIX  ADVISORY  WRITE 10 fe:01:77 0 EOF\n2: FLOCK  ADVISORY  WRITE 11 fe:01:77 0 EOF\n";
        assert_eq!(lock_owner(locks, 77), Some(11));
        assert_eq!(lock_owner(locks, 7), None);
        assert_eq!(lock_owner("garbage\n", 7), None);
    }
}
