//! Resolves a [`RootPath`] into a directory descriptor: `openat2`, inside the root.
//!
//! Absolute links are re-rooted, links that climb stop at the root, and magic links are never followed. A link that belongs to
//! an ordinary user is followed only to something that belongs to the same user: if the root is `/` itself, staying inside it
//! restricts nothing, so the owner of the link has to.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat, openat2, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};

use crate::base::reason::Reason;
use crate::host::sys::signals::retry_interrupted;

/// Maximum number of links in one path, as in the kernel.
const MAX_LINKS: usize = 40;
/// Maximum number of retries: `openat2` returns EAGAIN while another process renames something below it.
const MAX_AGAIN: usize = 32;

/// An error while resolving a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// The kernel reported an error.
    #[error("{}", Reason::from(*.0))]
    System(Errno),
    /// The kernel is older than 5.6.
    #[error(
        "this kernel has no openat2 (it came with Linux 5.6); mco-rescue does not work without it"
    )]
    NoOpenat2,
    /// Something else is where a directory should be.
    #[error("{0} exists, but does not lead to a directory")]
    NoDirectory(String),
    /// There is a link where none may be followed.
    #[error("a symbolic link is at this path or on the way to it, and is not followed")]
    Link,
    /// A link of an ordinary user leads to another user's directory.
    #[error(
        "a symbolic link owned by uid {owner} leads to a directory owned by uid {target}; not followed"
    )]
    ForeignLink {
        /// Owner of the link, as uid.
        owner: u32,
        /// Owner of the directory that it leads to, as uid.
        target: u32,
    },
}

impl From<Errno> for ResolveError {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

impl ResolveError {
    /// Returns true if the path, or a directory on the way to it, does not exist.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::System(Errno::ENOENT))
    }

    /// Returns true if access was denied, so that another user may be able to read it.
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::System(Errno::EACCES | Errno::EPERM))
    }

    /// Returns true if an object on the path is the cause, which a plan can name. After any other error, such as an I/O error,
    /// it is unknown what is there.
    pub fn is_obstacle(&self) -> bool {
        let in_the_way = [
            Errno::ENOTDIR,
            Errno::ELOOP,
            Errno::EACCES,
            Errno::EPERM,
            Errno::EXDEV,
            Errno::ENAMETOOLONG,
        ];
        match self {
            Self::System(errno) => in_the_way.contains(errno),
            Self::NoOpenat2 => false,
            Self::NoDirectory(_) | Self::Link | Self::ForeignLink { .. } => true,
        }
    }
}

/// The rule for symbolic links on the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follow {
    /// Followed if their owner may be trusted.
    Trusted,
    /// Never followed: below a user's home.
    Never,
}

/// A directory that is open.
pub(super) struct Opened {
    /// Its `O_PATH` descriptor.
    pub(super) dir: OwnedFd,
    /// True if there was no link on the path, so that the path is its real path.
    pub(super) straight: bool,
}

/// Opens the directory at `path` below `root`.
pub(super) fn open_directory(
    root: BorrowedFd<'_>,
    path: &str,
    follow: Follow,
) -> Result<Opened, ResolveError> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let (dir, straight) = match open_in_root(root, path, flags, ResolveFlag::RESOLVE_NO_SYMLINKS) {
        // Only the rare path that contains a link needs the walk.
        Err(ResolveError::System(Errno::ELOOP)) if follow == Follow::Trusted => {
            (walk_path(root, path, &mut |_, _| {})?, false)
        }
        other => (other?, true),
    };
    Ok(Opened { dir, straight })
}

/// Opens the directory at `path` below `root`, with no link on the path; it can be listed and mounted on.
pub(super) fn open_plain_directory(
    root: BorrowedFd<'_>,
    path: &str,
) -> Result<OwnedFd, ResolveError> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    match open_in_root(root, path, flags, ResolveFlag::RESOLVE_NO_SYMLINKS) {
        Err(ResolveError::System(Errno::ELOOP)) => Err(ResolveError::Link),
        other => other,
    }
}

/// Calls `openat2` inside the root once, with the limited retries that the kernel asks for.
pub(super) fn open_in_root(
    root: BorrowedFd<'_>,
    path: &str,
    flags: OFlag,
    extra: ResolveFlag,
) -> Result<OwnedFd, ResolveError> {
    let resolve = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS | extra;
    let how = OpenHow::new().flags(flags).resolve(resolve);
    for _ in 0..MAX_AGAIN {
        match openat2(root, if path.is_empty() { "." } else { path }, how) {
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(Errno::ENOSYS) => return Err(ResolveError::NoOpenat2),
            other => return Ok(other?),
        }
    }
    Err(Errno::EAGAIN.into())
}

/// Resolves a path with links, one component at a time, and checks the owner of every link. Calls `visit` for every directory
/// on the path, starting with the root.
pub(super) fn walk_path(
    root: BorrowedFd<'_>,
    path: &str,
    visit: &mut dyn FnMut(BorrowedFd<'_>, &FileStat),
) -> Result<OwnedFd, ResolveError> {
    let mut todo: VecDeque<OsString> = path_components(OsStr::new(path));
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY;
    let top = open_in_root(root, ".", flags, ResolveFlag::empty())?;
    visit(top.as_fd(), &fstat(&top)?);
    let mut stack = vec![top];
    let mut owners = Vec::new();
    let mut links = 0;
    while let Some(name) = todo.pop_front() {
        if name == ".." {
            // Climbing stops at the root, as in the kernel with RESOLVE_IN_ROOT.
            if stack.len() > 1 {
                stack.pop();
            }
            continue;
        }
        let next = open_one(top_of(&stack)?, &name)?;
        let stat = fstat(&next)?;
        match kind_of(&stat) {
            SFlag::S_IFDIR => {
                visit(next.as_fd(), &stat);
                stack.push(next);
            }
            SFlag::S_IFLNK => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(Errno::ELOOP.into());
                }
                owners.push(stat.st_uid);
                let target = readlinkat(&next, "")?;
                if target.as_bytes().starts_with(b"/") {
                    stack.truncate(1);
                }
                for part in path_components(&target).into_iter().rev() {
                    todo.push_front(part);
                }
            }
            _ => return Err(Errno::ENOTDIR.into()),
        }
    }
    let end = stack.pop().ok_or(Errno::ENOENT)?;
    check_owners(root, &owners, fstat(&end)?.st_uid)?;
    Ok(end)
}

/// Checks the owners of links: those of root and of the tree's owner are trusted; others may lead only to directories of the
/// same owner.
fn check_owners(root: BorrowedFd<'_>, owners: &[u32], target: u32) -> Result<(), ResolveError> {
    let tree = fstat(root)?.st_uid;
    match owners
        .iter()
        .find(|&&owner| owner != 0 && owner != tree && owner != target)
    {
        Some(&owner) => Err(ResolveError::ForeignLink { owner, target }),
        None => Ok(()),
    }
}

fn open_one(directory: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    retry_interrupted(|| openat(directory, name, flags, Mode::empty()))
}

fn top_of(stack: &[OwnedFd]) -> Result<BorrowedFd<'_>, Errno> {
    stack.last().map(AsFd::as_fd).ok_or(Errno::ENOENT)
}

fn path_components(path: &OsStr) -> VecDeque<OsString> {
    let parts = path.as_bytes().split(|&b| b == b'/');
    parts
        .filter(|p| !p.is_empty() && *p != b".")
        .map(|p| OsStr::from_bytes(p).to_owned())
        .collect()
}

/// Returns the file type bits of a stat result.
pub(super) fn kind_of(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode & libc::S_IFMT)
}
