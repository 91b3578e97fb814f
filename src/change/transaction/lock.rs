//! One run at a time: a lock on the state directory, which needs no file of its own.
//!
//! Only the owner can open that directory. If every user could open it, every user could block all runs.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::stat::{FileStat, fstat, major, minor};
use nix::unistd::geteuid;
use sysinfo::{Pid, Process, ProcessRefreshKind, ProcessesToUpdate, System, UpdateKind};

use super::disk;
use super::state::{StateError, make_path_noting};
use crate::base::invocation::whole_command;
use crate::base::paths;
use crate::base::reason::Reason;
use crate::host::root::{Place, Root, RootError, RootPath};
use crate::host::running;
use crate::host::sys::signals;
use crate::node::{Host, Labels};

/// The components of the state directory's path, from the top.
const NAMES: [&str; 3] = ["var", "lib", "mco-rescue"];
/// Descriptor of the directory in which this run created each of them; -1 for a directory that it did not create.
static MADE_IN: [AtomicI32; NAMES.len()] = [const { AtomicI32::new(-1) }; NAMES.len()];

/// Makes a fatal signal remove these directories if they are empty.
fn leave_nothing_at_a_signal(made: &[Place]) {
    for (slot, place) in MADE_IN.iter().rev().zip(made.iter().rev()) {
        slot.store(place.dir.as_raw_fd(), Ordering::Relaxed);
    }
    if !made.is_empty() {
        // SAFETY: the function removes directories by open descriptors and does not allocate.
        unsafe { signals::before_end(remove_made) };
    }
}

/// Removes the directories in [`MADE_IN`]; called in a signal handler.
fn remove_made() {
    for (slot, name) in MADE_IN.iter().zip(NAMES).rev() {
        let dir = slot.load(Ordering::Relaxed);
        if dir >= 0 {
            // SAFETY: the descriptor is taken out of its slot before it is closed.
            let dir = unsafe { BorrowedFd::borrow_raw(dir) };
            // A directory that is not empty is kept; a signal handler cannot log that.
            let _ = disk::remove_directory(dir, name);
        }
    }
}

/// The right to run a transaction; only [`acquire_lock`] creates one. It ends when its descriptors are closed: unlocking them
/// explicitly could fail, and that could no longer be reported.
#[derive(Debug)]
pub struct Lock {
    /// The locked state directory; `None` for a file that is not part of a node. The error is why it cannot be created: nothing
    /// can then be written on this root.
    held: Result<Option<File>, Reason>,
    /// Directories that were created, from the top.
    made: Vec<Place>,
    /// The directories above the state directory are kept, because a config needs them.
    keeps_parents: Cell<bool>,
    /// The directories that older versions lock, and one that contains no node.
    _older: Vec<File>,
}

impl Lock {
    /// Refuses to write if the lock could not be taken. A state directory that other users can open is made private, because
    /// they could lock it.
    ///
    /// # Errors
    /// The reason why nothing can be written; reading works without the lock.
    pub fn require_writable(&self) -> Result<(), LockError> {
        match &self.held {
            Ok(Some(dir)) => Ok(disk::make_private(dir)?),
            Ok(None) => Ok(()),
            Err(why) => Err(LockError::Impossible(why.clone())),
        }
    }

    /// Keeps the directories above the state directory, because the node's config requires them.
    pub fn keep_parents(&self) {
        self.keeps_parents.set(true);
        let above = MADE_IN.iter().take(NAMES.len() - 1);
        above.for_each(|slot| slot.store(-1, Ordering::Relaxed));
    }

    /// Returns true if the state directory exists only for this lock.
    pub fn made_state(&self) -> bool {
        !self.made.is_empty()
    }
}

/// Removes the directories that were created for the lock, if they are empty.
impl Drop for Lock {
    fn drop(&mut self) {
        let all = self.made.iter().rev();
        let most = if self.keeps_parents.get() {
            1
        } else {
            usize::MAX
        };
        for place in all.take(most) {
            // A directory that is no longer empty is kept.
            if let Err(errno) = disk::remove_directory(place.dir.as_fd(), &place.name) {
                log::info!("removing {}: {}", place.name, Reason::from(errno));
            }
        }
        if !self.made.is_empty() {
            let all = MADE_IN.iter();
            all.for_each(|slot| slot.store(-1, Ordering::Relaxed));
        }
    }
}

/// An error when the lock is taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds the lock.
    #[error("another run holds the lock on this root: {0}. Wait for it to end. Next: {again}", again = whole_command())]
    Held(String),
    /// The state directory cannot be created.
    #[error("{0}")]
    Impossible(Reason),
    /// The directory could not be opened.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The kernel refused.
    #[error("locking {place}: {0}. Run it as root, or as the owner of the root", place = RootPath::fixed(paths::STATE))]
    System(Reason),
}

impl From<Errno> for LockError {
    fn from(errno: Errno) -> Self {
        Self::System(errno.into())
    }
}

/// Takes the lock without waiting. Two deployments share it through their common `var`.
///
/// A missing state directory is created, and removed with the lock if it is still empty. If it cannot be created, a plan can
/// still be shown: [`Lock::require_writable`] precedes every write.
///
/// # Errors
/// Another run holds the lock, or the kernel reports an error.
pub fn acquire_lock(root: &Root) -> Result<Lock, LockError> {
    let older = lock_older(root)?;
    loop {
        let (dir, made) = match open_or_make(root)? {
            Ok(opened) => opened,
            Err(why) => {
                return Ok(Lock {
                    held: Err(Reason::from_error(why)),
                    made: Vec::new(),
                    keeps_parents: Cell::default(),
                    _older: older,
                });
            }
        };
        if let Some(holder) = try_lock(&dir)? {
            return Err(LockError::Held(holder));
        }
        // A run that has just ended may have removed the directory.
        if is_the_state(root, &dir)? {
            leave_nothing_at_a_signal(&made);
            return Ok(Lock {
                held: Ok(Some(dir)),
                made,
                keeps_parents: Cell::default(),
                _older: older,
            });
        }
    }
}

/// Returns true if a run holds the lock. Does not take the lock to find out, because that would block a run that is just
/// starting.
pub fn is_held(root: &Root) -> bool {
    let opened = root.open_directory(&RootPath::fixed(paths::STATE));
    let Ok(Some(dir)) = opened else {
        return false;
    };
    let by_device = |stat: FileStat| {
        let device = Some(device_number(&stat));
        find_lock(&kernel_locks(), stat.st_ino, device.as_deref())
    };
    let known = fstat(&dir).ok().and_then(by_device);
    // With only the inode to go by, the lock could be on a file elsewhere.
    known.is_some() || is_held_by_us(&dir)
}

/// Opens or creates the state directory; also returns the directories that were created. The inner error is why it cannot be
/// created.
fn open_or_make(root: &Root) -> Result<Result<(File, Vec<Place>), StateError>, LockError> {
    if let Some(dir) = root.open_directory(&RootPath::fixed(paths::STATE))? {
        return Ok(Ok((disk::open_directory(dir.as_fd(), ".")?, Vec::new())));
    }
    if Host::observe(root)?.var_missing {
        return Ok(Err(StateError::NotMounted));
    }
    let mut made = Vec::new();
    let path = RootPath::fixed(paths::STATE);
    let opened = make_path_noting(root, &path, &Labels::read(root), &mut made);
    Ok(match opened {
        Ok(dir) => Ok((dir, made)),
        Err(error) => {
            for place in made.iter().rev() {
                // The first error is the one that matters.
                let _ = disk::remove_directory(place.dir.as_fd(), &place.name);
            }
            Err(error)
        }
    })
}

fn is_the_state(root: &Root, dir: &File) -> Result<bool, LockError> {
    let Some(there) = root.open_directory(&RootPath::fixed(paths::STATE))? else {
        return Ok(false);
    };
    let (own, there) = (fstat(dir)?, fstat(there)?);
    Ok((own.st_dev, own.st_ino) == (there.st_dev, there.st_ino))
}

/// Takes the lock. If another process holds it, returns a description of that process.
fn try_lock(dir: &File) -> Result<Option<String>, LockError> {
    loop {
        match dir.try_lock() {
            Ok(()) => return Ok(None),
            Err(TryLockError::WouldBlock) => return Ok(Some(describe_holder(dir))),
            Err(TryLockError::Error(e)) if e.kind() == ErrorKind::Interrupted => {}
            Err(TryLockError::Error(e)) => return Err(LockError::System(e.into())),
        }
    }
}

/// Takes the locks of older versions on the root and its `var`: this blocks older versions, and they block this one. A lock of
/// any other program there is ignored.
fn lock_older(root: &Root) -> Result<Vec<File>, LockError> {
    let var = root.open_directory(&RootPath::fixed("var"))?;
    let all = [
        disk::open_directory(root.as_fd(), ".").ok(),
        var.and_then(|var| disk::open_directory(var.as_fd(), ".").ok()),
    ];
    let mut locked = Vec::new();
    for dir in all.into_iter().flatten() {
        match try_lock(&dir)? {
            None => locked.push(dir),
            Some(holder) if is_held_by_us(&dir) => return Err(LockError::Held(holder)),
            Some(_) => log::info!("another program holds a lock on the root, which means nothing"),
        }
    }
    Ok(locked)
}

/// Returns true if the lock is held by this program, run by root or by the current user. The name alone proves nothing, because
/// every user can choose it.
fn is_held_by_us(dir: impl AsFd) -> bool {
    let Some(pid) = holder_pid(dir) else {
        return false;
    };
    let ours = |process: &Process| {
        let user = process.user_id().map(|user| **user);
        let name = process.name().to_string_lossy().starts_with(PROGRAM);
        name && user.is_some_and(|user| user == 0 || user == geteuid().as_raw())
    };
    inspect_process(pid, &ours).unwrap_or_default()
}

/// The kernel's name of this program.
const PROGRAM: &str = "mco-rescue";

/// Calls `ask` with a process; `None` if it no longer exists.
fn inspect_process<T>(pid: u32, ask: &dyn Fn(&Process) -> T) -> Option<T> {
    let mut system = System::new().ok()?;
    let what = ProcessRefreshKind::nothing()
        .with_cmd(UpdateKind::Always)
        .with_user(UpdateKind::Always);
    let pid = Pid::from_u32(pid);
    system.refresh_processes_specifics(ProcessesToUpdate::Some(&[pid]), true, what);
    system.process(pid).map(ask)
}

/// Describes the process that holds the lock, as far as the kernel shows it.
fn describe_holder(dir: &File) -> String {
    match holder_pid(dir) {
        Some(pid) => describe_process(pid),
        None => "a process that cannot be seen from here".to_owned(),
    }
}

fn holder_pid(dir: impl AsFd) -> Option<u32> {
    let stat = fstat(dir).ok()?;
    lock_owner(&kernel_locks(), &stat)
}

fn kernel_locks() -> String {
    running::read_text("/proc/locks").unwrap_or_default()
}

fn lock_owner(locks: &str, stat: &FileStat) -> Option<u32> {
    let device = device_number(stat);
    // Some file systems show a different device number there than in stat; the inode alone is second best.
    find_lock(locks, stat.st_ino, Some(&device)).or_else(|| find_lock(locks, stat.st_ino, None))
}

/// Formats the device number like `/proc/locks`.
fn device_number(stat: &FileStat) -> String {
    format!("{:02x}:{:02x}", major(stat.st_dev), minor(stat.st_dev))
}

/// Finds the process in lines of `/proc/locks` such as `1: FLOCK  ADVISORY  WRITE 1234 fe:01:5678 0 EOF`.
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

fn describe_process(pid: u32) -> String {
    let words = |process: &Process| {
        let command = process.cmd().iter();
        let command: Vec<_> = command.map(|part| part.to_string_lossy()).collect();
        let running = Duration::from_secs(process.run_time());
        format!(
            "process {pid} ({}), running for {} s",
            command.join(" "),
            running.as_secs()
        )
    };
    inspect_process(pid, &words).unwrap_or_else(|| format!("process {pid}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_lead_to_the_state() {
        assert_eq!(NAMES.join("/"), paths::STATE);
    }

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
