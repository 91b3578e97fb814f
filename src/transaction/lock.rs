//! One run at a time: a lock on the root directory and its `var`, which needs no file of its own.
#![allow(
    clippy::disallowed_methods,
    reason = "locks are taken on directories that root/ has opened"
)]

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::{FileStat, Mode, fstat, major, minor};
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System, UpdateKind};

use crate::error::Reason;
use crate::root::{Root, RootError, RootPath};
use crate::signals::uninterrupted;

/// The right to run a transaction; only `acquire` makes one. It ends with its descriptors: unlocking them
/// could fail, and by then there is nobody to tell.
#[derive(Debug)]
pub struct Lock {
    _root: File,
    _var: Option<File>,
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

/// Takes the lock, without waiting: on the root, and on its `var`, which two deployments share.
pub fn acquire(root: &Root) -> Result<Lock, LockError> {
    let own = lock(root.as_fd())?;
    let var = root.directory(&RootPath::fixed("var"))?;
    let var = var.map(|var| lock(var.as_fd())).transpose()?;
    Ok(Lock {
        _root: own,
        _var: var,
    })
}

fn lock(dir: BorrowedFd<'_>) -> Result<File, LockError> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let open = || nix::fcntl::openat(dir, ".", flags, Mode::empty());
    let dir = File::from(uninterrupted(open)?);
    loop {
        match dir.try_lock() {
            Ok(()) => return Ok(dir),
            Err(TryLockError::WouldBlock) => return Err(LockError::Held(holder(&dir))),
            Err(TryLockError::Error(e)) if e.kind() == ErrorKind::Interrupted => {}
            Err(TryLockError::Error(e)) => return Err(LockError::System(e.into())),
        }
    }
}

/// Who holds the lock, as far as the kernel tells.
fn holder(dir: &File) -> String {
    let pid = fstat(dir.as_fd())
        .ok()
        .and_then(|stat| lock_owner(&kernel_locks(), &stat));
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

fn lock_owner(locks: &str, stat: &FileStat) -> Option<u32> {
    let device = format!("{:02x}:{:02x}", major(stat.st_dev), minor(stat.st_dev));
    // Some file systems show another device number there than to stat; the inode alone is the second best.
    find_lock(locks, stat.st_ino, Some(&device)).or_else(|| find_lock(locks, stat.st_ino, None))
}

/// Lines of `/proc/locks`: `1: FLOCK  ADVISORY  WRITE 1234 fe:01:5678 0 EOF`.
fn find_lock(locks: &str, inode: u64, device: Option<&str>) -> Option<u32> {
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, "WRITE", pid, place, ..] = words.as_slice() else {
            return None;
        };
        let (place, found) = place.rsplit_once(':')?;
        let same = found.parse() == Ok(inode) && device.is_none_or(|device| device == place);
        if same { pid.parse().ok() } else { None }
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
        let locks = "1: POSIX  ADVISORY  WRITE 10 fe:01:77 0 EOF\n2: FLOCK  ADVISORY  WRITE 12 00:2a:77 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 11 fe:01:77 0 EOF\n";
        assert_eq!(find_lock(locks, 77, Some("fe:01")), Some(11));
        assert_eq!(find_lock(locks, 77, None), Some(12));
        assert_eq!(find_lock(locks, 7, None), None);
        assert_eq!(find_lock("garbage\n", 7, None), None);
    }
}
