//! A directory that is going to be replaced with all its contents: the space that a copy takes, and the first obstacle.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};

use super::{ResolveError, Root, RootError, RootPath, hold_of, resolve};
use crate::base::object::Flags;

/// An object that prevents a directory from being moved with all its contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// A mount point.
    Mount(RootPath),
    /// An object with flags.
    Flagged(RootPath, Flags),
}

/// Everything below a directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    /// The first obstacle; the sizes are incomplete then.
    pub obstacle: Option<Obstacle>,
    /// The size of each object in it.
    pub sizes: Vec<u64>,
}

impl Root {
    /// Reads everything below a directory. Does not follow links or enter other mounts.
    ///
    /// # Errors
    /// The system's error.
    pub fn read_tree(&self, path: &RootPath) -> Result<Tree, RootError> {
        let mut tree = Tree::default();
        if let Some(dir) = self.open_directory(path)? {
            let mount = hold_of(&dir).map_err(|e| RootError::at(path, e))?.mount;
            tree.add_objects(dir.as_fd(), path, mount)
                .map_err(|e| RootError::at(path, e))?;
        }
        Ok(tree)
    }
}

impl Tree {
    /// Adds the objects of a directory, up to the first obstacle.
    fn add_objects(
        &mut self,
        dir: BorrowedFd<'_>,
        path: &RootPath,
        mount: u64,
    ) -> Result<(), Errno> {
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
            let fd = open_path(dir.as_fd(), &name)?;
            let hold = hold_of(&fd)?;
            if hold.mount != mount {
                self.obstacle = Some(Obstacle::Mount(child));
            } else if !hold.flags.is_empty() {
                self.obstacle = Some(Obstacle::Flagged(child, hold.flags));
            } else {
                let stat = fstat(&fd)?;
                self.sizes.push(size_of_stat(&stat));
                if resolve::kind_of(&stat) == SFlag::S_IFDIR {
                    self.add_objects(fd.as_fd(), &child, mount)?;
                }
            }
            if self.obstacle.is_some() {
                break;
            }
        }
        Ok(())
    }
}

fn size_of_stat(stat: &FileStat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or_default()
}

fn open_path(dir: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    openat(dir, name, flags, Mode::empty())
}

/// Returns what was read, or the default if an unexpected object is in its place: a link to itself, or a directory instead of a
/// file. The object is logged as a warning, once, and skipped as the programs of the node skip it. For files read in addition
/// to a config, and never for files of this program or records of the daemon.
///
/// # Errors
/// Every other error, such as an I/O error or a denied access, after which the contents are unknown.
pub fn skip_obstacle<T: Default>(read: Result<T, RootError>) -> Result<T, RootError> {
    static NAMED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let is_in_the_way = |cause: &ResolveError| {
        *cause == ResolveError::System(Errno::EISDIR) || cause.is_obstacle() && !cause.is_denied()
    };
    match read {
        Err(error) if is_in_the_way(&error.cause) => {
            let words = error.to_string();
            let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
            if named.insert(words.clone()) {
                log::warn!("{words}; it is skipped");
            }
            Ok(T::default())
        }
        other => other,
    }
}
