//! What lies below a directory that is to give way, and would not go with it.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, SFlag, fstat};

use super::{Root, RootError, RootPath, at, hold_of, resolve};
use crate::object::Flags;

/// What keeps a directory, with everything in it, from going.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// Something is mounted there.
    Mount(RootPath),
    /// It carries flags.
    Flagged(RootPath, Flags),
}

impl Root {
    /// The first obstacle below a directory. Links are not followed, and other mounts not entered.
    ///
    /// # Errors
    /// The system's word.
    pub fn obstacle_below(&self, path: &RootPath) -> Result<Option<Obstacle>, RootError> {
        let Some(dir) = self.directory(path)? else {
            return Ok(None);
        };
        let mount = hold_of(&dir).map_err(|e| at(path, e))?.mount;
        below(dir.as_fd(), path, mount).map_err(|e| at(path, e))
    }
}

fn below(dir: BorrowedFd<'_>, path: &RootPath, mount: u64) -> Result<Option<Obstacle>, Errno> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut dir = Dir::from_fd(openat(dir, ".", flags, Mode::empty())?)?;
    let names: Result<Vec<_>, Errno> = dir
        .iter()
        .map(|entry| entry.map(|entry| entry.file_name().to_owned()))
        .collect();
    let names = names?.into_iter();
    for name in names.filter(|name| !matches!(name.to_bytes(), b"." | b"..")) {
        let child = path
            .join(&name.to_string_lossy())
            .map_err(|_| Errno::EILSEQ)?;
        let fd = open(dir.as_fd(), &name)?;
        let hold = hold_of(&fd)?;
        if hold.mount != mount {
            return Ok(Some(Obstacle::Mount(child)));
        }
        if !hold.flags.is_empty() {
            return Ok(Some(Obstacle::Flagged(child, hold.flags)));
        }
        let found = match resolve::kind(&fstat(&fd)?) {
            SFlag::S_IFDIR => below(fd.as_fd(), &child, mount)?,
            _ => None,
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

fn open(dir: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    openat(dir, name, flags, Mode::empty())
}
