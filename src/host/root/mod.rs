//! The root: one directory descriptor, opened once, and everything that is read below it.
//!
//! Only this module turns a path of a document into a file descriptor. It has no function that writes; only `transaction/disk`
//! changes things.
#![allow(
    clippy::disallowed_methods,
    reason = "this is the one place that opens paths of the node"
)]

mod digests;
mod entries;
mod exposed;
mod failures;
mod label;
mod mount;
mod obstacle;
mod path;
mod place;
mod places;
mod resolve;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, ResolveFlag, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};
use nix::unistd::{AccessFlags, faccessat};
use sha2::{Digest, Sha256};

pub use digests::KnownDigests;
pub use entries::EntryType;
use entries::{names_in, types_in};
pub use exposed::{Exposed, ExposedBy};
pub use label::{ExtendedAttributes, LABEL, all_attributes, extended_attributes, proc_path};
pub use mount::{Hold, Mount, hold_of, mount_id, mount_of, stat_of_open};
pub use obstacle::{Obstacle, skip_obstacle};
pub use path::{RealPath, RootPath, RootPathError};
use place::read_whole;
pub use place::{MAX_DIGEST, Place, digest_ahead, digest_reader};
pub use places::{Recent, RecentPlaces};
pub use resolve::{Follow, ResolveError};
use resolve::{Opened, open_directory};

use crate::base::object::{HexDigest, Object, Stamp};
use crate::base::paths;
use crate::base::reason::Reason;
use crate::host::sys::signals::retry_interrupted;

/// A directory that is treated as `/`.
#[derive(Debug)]
pub struct Root {
    dir: OwnedFd,
    shown: PathBuf,
    is_live: bool,
    digests: Arc<KnownDigests>,
    failures: Option<Arc<failures::FailedReads>>,
}

/// An error with a path inside the root.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{path}: {cause}")]
pub struct RootError {
    /// The path as it is written in the document.
    pub path: String,
    /// The reason.
    pub cause: ResolveError,
}

impl RootError {
    /// Returns the error of a path of the root.
    pub fn at(path: impl ToString, cause: impl Into<ResolveError>) -> Self {
        Self {
            path: path.to_string(),
            cause: cause.into(),
        }
    }

    /// Returns the error of a system call on a path.
    pub fn of_system(path: impl ToString, error: &std::io::Error) -> Self {
        Self::at(path, errno_of(error))
    }
}

/// Maximum size of a file that is read into memory, in bytes: records and unit files are far smaller.
const MAX_READ: u64 = 64 << 20;
/// Maximum size of a key file that is read, in bytes.
const MAX_SMALL: u64 = 1 << 20;

/// Returns true if a directory is the root of the running system. This is determined once, when the root is opened: a later error
/// would make a running system look like a disk.
fn is_system_root(dir: &OwnedFd) -> Result<bool, RootError> {
    let stats = nix::sys::stat::fstat(dir)
        .and_then(|own| Ok((own, nix::sys::stat::stat("/")?)))
        .map_err(|errno| RootError::at("/", errno));
    let (own, live) = stats?;
    Ok(own.st_dev == live.st_dev && own.st_ino == live.st_ino)
}

impl Root {
    /// Opens `path` as the root. The running system resolves this path; all later ones are resolved inside the root.
    pub fn open(path: &Path) -> Result<Self, RootError> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let dir = nix::fcntl::open(path, flags, Mode::empty())
            .map_err(|errno| RootError::at(path.display(), errno))?;
        Ok(Self {
            is_live: is_system_root(&dir)?,
            dir,
            shown: path.to_owned(),
            digests: Arc::default(),
            failures: None,
        })
    }

    /// Opens the directory of a file that a person named, and returns the file's path in it; `None` if the path ends without a name.
    ///
    /// # Errors
    /// The directory cannot be opened.
    pub fn open_above(path: &Path) -> Result<Option<(Self, RootPath)>, RootError> {
        let above = match path.parent() {
            Some(above) if above.as_os_str().is_empty() => Path::new("."),
            Some(above) => above,
            None => return Ok(None),
        };
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(inside) = name.and_then(|name| RootPath::parse(&format!("/{name}")).ok()) else {
            return Ok(None);
        };
        Ok(Some((Self::open(above)?, inside)))
    }

    /// Opens the same root again; it shows the same mounts.
    ///
    /// # Errors
    /// The system's error.
    pub fn open_again(&self) -> Result<Self, RootError> {
        let dir = resolve::open_plain_directory(self.as_fd(), ".");
        Ok(Self {
            dir: dir.map_err(|cause| RootError::at("/", cause))?,
            shown: self.shown.clone(),
            is_live: self.is_live,
            digests: Arc::clone(&self.digests),
            failures: self.failures.clone(),
        })
    }

    /// Opens a directory of this root as a root of its own.
    ///
    /// # Errors
    /// It is missing, or is a symbolic link, or a link is on the way.
    pub fn open_within(&self, path: &RootPath) -> Result<Self, RootError> {
        let dir = self.plain_directory(path)?;
        let dir = dir.ok_or_else(|| RootError::at(path, Errno::ENOENT))?;
        Ok(Self {
            is_live: is_system_root(&dir)?,
            dir,
            shown: self.shown.join(path.relative()),
            digests: Arc::clone(&self.digests),
            // Its paths begin elsewhere.
            failures: None,
        })
    }

    /// Opens a directory that is not reached through a symbolic link; `None` if it does not exist.
    ///
    /// # Errors
    /// It is a link, or a link is on the way, or the system reports an error.
    pub fn plain_directory(&self, path: &RootPath) -> Result<Option<OwnedFd>, RootError> {
        match resolve::open_plain_directory(self.as_fd(), path.relative()) {
            Ok(dir) => Ok(Some(dir)),
            Err(error) if error.is_missing() => Ok(None),
            Err(cause) => Err(RootError::at(path, cause)),
        }
    }

    /// Returns the path with which the root was opened, for messages.
    pub fn shown(&self) -> &Path {
        &self.shown
    }

    /// Returns true if this is the root of the running system.
    pub fn is_live(&self) -> bool {
        self.is_live
    }

    /// Returns the root's own descriptor, for `syncfs` and locks.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Opens a directory; `None` if it does not exist.
    pub fn open_directory(&self, path: &RootPath) -> Result<Option<OwnedFd>, RootError> {
        let opened = self.resolve_directory(path.relative(), || path.to_string())?;
        Ok(opened.map(|opened| opened.dir))
    }

    /// Does the same, and returns its real path if a link leads to it.
    pub fn directory_and_end(
        &self,
        path: &RootPath,
    ) -> Result<Option<(OwnedFd, Option<RealPath>)>, RootError> {
        let opened = self.resolve_directory(path.relative(), || path.to_string())?;
        Ok(opened.map(|opened| {
            let end = self.end_of(&opened);
            let end = end.filter(|real| real.relative() != path.relative());
            (opened.dir, end)
        }))
    }

    /// Returns the real path of a directory that a link leads to.
    fn end_of(&self, opened: &Opened) -> Option<RealPath> {
        let linked = !opened.straight;
        linked.then(|| self.real_path(opened.dir.as_fd())).flatten()
    }

    /// Returns the nearest directory at or above `path`, if this process does not have this access to it. Ignores other
    /// obstacles.
    pub fn closed_at(&self, path: &RootPath, access: AccessFlags) -> Option<RootPath> {
        for above in path.ancestors() {
            match self.open_directory(&above) {
                Ok(None) => {}
                Ok(Some(dir)) => {
                    let allowed = faccessat(&dir, ".", access, AtFlags::AT_EACCESS);
                    return matches!(allowed, Err(Errno::EACCES | Errno::EPERM)).then_some(above);
                }
                Err(error) => return error.cause.is_denied().then_some(above),
            }
        }
        None
    }

    /// Returns true if there is an object at `path` that this process may not write.
    pub fn is_closed_to_writing(&self, path: &RootPath) -> bool {
        let access = AccessFlags::W_OK;
        let place = self.open_place(path).ok().flatten();
        let allowed = place
            .map(|place| faccessat(&place.dir, place.name.as_str(), access, AtFlags::AT_EACCESS));
        matches!(allowed, Some(Err(Errno::EACCES | Errno::EPERM)))
    }

    /// Returns the parent of `path` and its last name; `None` if the parent does not exist.
    pub fn open_place(&self, path: &RootPath) -> Result<Option<Place>, RootError> {
        let opened =
            self.resolve_directory(path.parent_text().unwrap_or("."), || path.to_string())?;
        Ok(opened.map(|opened| Place {
            dir: opened.dir.into(),
            name: path.name().to_owned(),
        }))
    }

    /// Returns the parent of `path`, with its real path if a link leads to it; `None` if it does not exist.
    pub fn parent_and_end(
        &self,
        path: &RootPath,
    ) -> Result<Option<(OwnedFd, Option<RealPath>)>, RootError> {
        let above = path.parent_text();
        let opened = self.resolve_directory(above.unwrap_or("."), || path.to_string())?;
        Ok(opened.map(|opened| {
            let end = self.end_of(&opened);
            let end = end.filter(|real| real.relative() != above.unwrap_or_default());
            (opened.dir, end)
        }))
    }

    /// Returns the real path of a directory, with links followed; `None` if `/proc` does not show it.
    pub fn real_path(&self, dir: BorrowedFd<'_>) -> Option<RealPath> {
        let path = |fd: BorrowedFd<'_>| std::fs::read_link(descriptor_path(fd)).ok();
        let own = path(self.as_fd())?;
        match path(dir)?.strip_prefix(own).ok()?.to_str()? {
            "" => Some(RealPath::Root),
            below => {
                let path = RootPath::parse(&format!("/{below}")).ok()?;
                Some(RealPath::Below(path))
            }
        }
    }

    /// Returns the name by which the running system opens the file at `path`, with all links resolved inside the root. `None`
    /// if there is no such file, or `/proc` does not show it.
    ///
    /// # Errors
    /// The system's error.
    pub fn outer_name(&self, path: &RootPath) -> Result<Option<PathBuf>, RootError> {
        let (flags, extra) = (OFlag::O_PATH | OFlag::O_CLOEXEC, ResolveFlag::empty());
        match resolve::open_in_root(self.as_fd(), path.relative(), flags, extra) {
            Ok(file) => {
                let is_file =
                    fstat(&file).is_ok_and(|stat| resolve::kind_of(&stat) == SFlag::S_IFREG);
                let name = || std::fs::read_link(descriptor_path(file.as_fd())).ok();
                Ok(is_file.then(name).flatten())
            }
            Err(error) if error.is_missing() => Ok(None),
            Err(cause) => Err(RootError::at(path, cause)),
        }
    }

    /// Resolves a directory. A link of the OS may lead to the home of a user; below it nothing is followed, because its owner
    /// could link anywhere.
    fn resolve_directory(
        &self,
        relative: &str,
        shown: impl FnOnce() -> String,
    ) -> Result<Option<Opened>, RootError> {
        let home = paths::CORE_HOME;
        let below = relative
            .strip_prefix(home)
            .and_then(|rest| rest.strip_prefix('/'));
        let result = match below {
            Some(below) => open_directory(self.as_fd(), home, Follow::Trusted).and_then(|home| {
                let opened = open_directory(home.dir.as_fd(), below, Follow::Never)?;
                Ok(Opened {
                    straight: opened.straight && home.straight,
                    ..opened
                })
            }),
            None => open_directory(self.as_fd(), relative, Follow::Trusted),
        };
        match result {
            Ok(opened) => Ok(Some(opened)),
            Err(error) if error.is_missing() => Ok(None),
            Err(cause) => Err(RootError::at(shown(), cause)),
        }
    }

    /// Returns the object at `path` (without following the last component), with the digest of a file's bytes.
    pub fn observe(&self, path: &RootPath) -> Result<Option<(Object, Stamp)>, RootError> {
        match self.open_place(path)? {
            Some(place) => place
                .observe_knowing(Some(&self.digests))
                .map_err(|errno| RootError::at(path, errno)),
            None => Ok(None),
        }
    }

    /// Returns the stat of the object at `path` itself, without following a link there; `None` if it is missing.
    pub fn stat(&self, path: &RootPath) -> Result<Option<FileStat>, RootError> {
        match self.open_place(path)? {
            Some(place) => place.stat().map_err(|errno| RootError::at(path, errno)),
            None => Ok(None),
        }
    }

    /// Returns the digest of an open file if it is known without reading the file.
    pub fn known_digest(&self, file: &File) -> Option<HexDigest> {
        self.digests.find_digest(&fstat(file).ok()?)
    }

    /// Returns the digests of files that were read or written below this root.
    pub fn digests(&self) -> &KnownDigests {
        &self.digests
    }

    /// Returns true if something exists at `path`, without following the last component.
    pub fn exists(&self, path: &RootPath) -> Result<bool, RootError> {
        let Some(place) = self.open_place(path)? else {
            return Ok(false);
        };
        match place.stat() {
            Ok(stat) => Ok(stat.is_some()),
            Err(errno) => Err(RootError::at(path, errno)),
        }
    }

    /// Returns the bytes of the file at `path`, following links inside the root; `None` if there is no such file.
    pub fn read(&self, path: &RootPath) -> Result<Option<Vec<u8>>, RootError> {
        self.read_within(path, MAX_READ)
    }

    /// Does the same for a file of up to `limit` bytes.
    pub fn read_within(&self, path: &RootPath, limit: u64) -> Result<Option<Vec<u8>>, RootError> {
        Ok(self.read_with_stat(path, limit)?.map(|(bytes, _)| bytes))
    }

    /// Does the same, and returns the stat of the file from before it was read.
    pub fn read_with_stat(
        &self,
        path: &RootPath,
        limit: u64,
    ) -> Result<Option<(Vec<u8>, FileStat)>, RootError> {
        match self.open_followed(path)? {
            Some(file) => {
                let read = fstat(&file).and_then(|stat| Ok((read_whole(file, limit)?, stat)));
                self.note_failure(read.map(Some).map_err(|errno| RootError::at(path, errno)))
            }
            None => Ok(None),
        }
    }

    /// Returns the bytes of a small file that may belong to an ordinary user; `None` if there is no such file, or if it is
    /// larger.
    ///
    /// # Errors
    /// The system's error.
    pub fn read_small(&self, path: &RootPath) -> Result<Option<Vec<u8>>, RootError> {
        match self.read_within(path, MAX_SMALL) {
            Err(error) if error.cause == ResolveError::System(Errno::EFBIG) => Ok(None),
            read => read,
        }
    }

    /// Opens the file at `path` for reading, following links inside the root; `None` if there is no such file, or if it is a
    /// device, pipe or socket.
    pub fn open_followed(&self, path: &RootPath) -> Result<Option<File>, RootError> {
        // Opening a device may have side effects; reading one, or a pipe, may never end.
        self.note_failure(self.open_of_kinds(path, &[SFlag::S_IFREG, SFlag::S_IFDIR]))
    }

    /// Opens the block device at `path` for reading, or a regular file in its place, such as a disk image; `None` if there is
    /// neither. The only place that opens a device: unlike a pipe, a disk does not block.
    ///
    /// # Errors
    /// The system's error.
    pub fn open_block_device(&self, path: &RootPath) -> Result<Option<File>, RootError> {
        self.open_of_kinds(path, &[SFlag::S_IFBLK, SFlag::S_IFREG])
    }

    fn open_of_kinds(&self, path: &RootPath, kinds: &[SFlag]) -> Result<Option<File>, RootError> {
        let open = |flags: OFlag| {
            let flags = flags | OFlag::O_CLOEXEC;
            let (dir, extra) = (self.dir.as_fd(), ResolveFlag::empty());
            match resolve::open_in_root(dir, path.relative(), flags, extra) {
                Ok(fd) => Ok(Some(File::from(fd))),
                Err(error) if error.is_missing() => Ok(None),
                Err(cause) => Err(RootError::at(path, cause)),
            }
        };
        let Some(found) = open(OFlag::O_PATH)? else {
            return Ok(None);
        };
        let kind = resolve::kind_of(&fstat(&found).map_err(|errno| RootError::at(path, errno))?);
        if kinds.contains(&kind) {
            open(OFlag::O_RDONLY | OFlag::O_NONBLOCK)
        } else {
            Ok(None)
        }
    }

    /// Returns the bytes of the regular file at `path` itself, without following a link there; `None` if there is none.
    ///
    /// For paths that may be below a user's directory: the user could redirect [`Root::read`] to other users' secrets.
    pub fn read_file(&self, path: &RootPath) -> Result<Option<Vec<u8>>, RootError> {
        let Some(place) = self.open_place(path)? else {
            return Ok(None);
        };
        let read = place.read_file();
        self.note_failure(read.map_err(|errno| RootError::at(path, errno)))
    }

    /// Returns the target of the symbolic link at `path`, verbatim; `None` if it is not a link.
    pub fn read_link(&self, path: &RootPath) -> Result<Option<String>, RootError> {
        let Some(place) = self.open_place(path)? else {
            return Ok(None);
        };
        match readlinkat(&place.dir, place.name.as_str()) {
            Ok(target) => Ok(Some(target.to_string_lossy().into_owned())),
            Err(Errno::ENOENT | Errno::EINVAL | Errno::ENOTDIR) => Ok(None),
            Err(errno) => Err(RootError::at(path, errno)),
        }
    }

    /// Returns the names in a directory, sorted; empty if there is no such directory.
    pub fn list(&self, path: &RootPath) -> Result<Vec<String>, RootError> {
        let names = self.open_to_list(path)?.map(names_in).transpose();
        Ok(names
            .map_err(|errno| RootError::at(path, errno))?
            .unwrap_or_default())
    }

    /// Returns the names in a directory with their types; empty if there is no such directory.
    pub fn list_types(&self, path: &RootPath) -> Result<Vec<(String, EntryType)>, RootError> {
        let entries = self.open_to_list(path)?.map(types_in).transpose();
        Ok(entries
            .map_err(|errno| RootError::at(path, errno))?
            .unwrap_or_default())
    }

    fn open_to_list(&self, path: &RootPath) -> Result<Option<OwnedFd>, RootError> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let (dir, extra) = (self.dir.as_fd(), ResolveFlag::empty());
        self.note_listed(path);
        match resolve::open_in_root(dir, path.relative(), flags, extra) {
            Ok(fd) => Ok(Some(fd)),
            Err(ResolveError::System(Errno::ENOENT | Errno::ENOTDIR)) => Ok(None),
            Err(cause) => self.note_failure(Err(RootError::at(path, cause))),
        }
    }

    /// Returns the names at the top of the root, sorted.
    pub fn list_top(&self) -> Result<Vec<String>, RootError> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let open = || nix::fcntl::openat(&self.dir, ".", flags, Mode::empty());
        let names = retry_interrupted(open).and_then(names_in);
        names.map_err(at_root)
    }

    /// Returns the mount points of this machine's disks below the root; empty if they are unknown.
    pub fn mount_points(&self) -> Vec<RootPath> {
        let own = std::fs::read_link(descriptor_path(self.as_fd())).ok();
        let own = own.and_then(|path| path.to_str().map(str::to_owned));
        let below = own.map_or_else(Vec::new, |own| mount::points_below(&own));
        let paths = below.into_iter();
        let paths = paths.filter_map(|path| RootPath::parse(&format!("/{path}")).ok());
        paths.collect()
    }

    /// Returns the nearest existing directory at or above the parent of `path`, with its path (`None` for the root itself).
    pub fn open_nearest(&self, path: &RootPath) -> Result<(Option<RootPath>, OwnedFd), RootError> {
        for ancestor in path.ancestors().skip(1) {
            match self.open_directory(&ancestor) {
                Ok(Some(dir)) => return Ok((Some(ancestor), dir)),
                Ok(None) => {}
                // Something else, which is about to be replaced by a directory.
                Err(error) if error.cause == ResolveError::System(Errno::ENOTDIR) => {}
                Err(error) => return Err(error),
            }
        }
        let own = self
            .resolve_directory(".", || "/".to_owned())?
            .ok_or_else(|| at_root(Errno::ENOENT))?;
        Ok((None, own.dir))
    }

    /// Opens the file at `path` for reading, without following a link there.
    pub fn open_file(&self, path: &RootPath) -> Result<Option<File>, RootError> {
        match self.open_place(path)? {
            Some(place) => place
                .open_file()
                .map(Some)
                .map_err(|errno| RootError::at(path, errno)),
            None => Ok(None),
        }
    }
}

/// Returns a path that refers to an open descriptor, for calls that accept only paths.
pub fn descriptor_path(fd: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

/// Returns the lower-case hex SHA-256 of some bytes.
pub fn sha256_hex(bytes: &[u8]) -> String {
    to_hex(&Sha256::digest(bytes))
}

/// Returns the lower-case hex of some bytes.
pub fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |half: u8| DIGITS.get(usize::from(half)).copied().unwrap_or_default();
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(digit(byte >> 4).into());
        text.push(digit(byte & 15).into());
    }
    text
}

fn at_root(errno: Errno) -> RootError {
    RootError::at("/", errno)
}

fn errno_of(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

impl From<RootError> for Reason {
    fn from(error: RootError) -> Self {
        error.cause.to_string().into()
    }
}
