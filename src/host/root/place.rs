//! The last component of a path in its open directory: what is there, and its contents.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use sha2::{Digest, Sha256};

use crate::base::object::{HexDigest, Object, ObjectKind, Stamp};
use crate::host::progress;
use crate::host::sys::parallel;
use crate::host::sys::signals::retry_interrupted;

use super::{Hold, KnownDigests, MAX_READ, errno_of, mount, resolve, to_hex};

/// A resolved parent directory, and a name in it.
#[derive(Debug)]
pub struct Place {
    /// The parent as an `O_PATH` descriptor; shared by everything in it.
    pub dir: Arc<OwnedFd>,
    /// The last component, never followed.
    pub name: String,
}

impl Place {
    /// Returns the stat of the name, without following it; `None` if it does not exist.
    pub fn stat(&self) -> Result<Option<FileStat>, Errno> {
        match fstatat(&self.dir, self.name.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Returns type, mode, owner and content identity of the object, and its stamp.
    pub fn observe(&self) -> Result<Option<(Object, Stamp)>, Errno> {
        self.observe_knowing(None)
    }

    /// Does the same, but does not read a file whose digest is known.
    pub fn observe_knowing(
        &self,
        digests: Option<&KnownDigests>,
    ) -> Result<Option<(Object, Stamp)>, Errno> {
        match self.stat()? {
            Some(stat) => self.read_object(&stat, digests).map(Some),
            None => Ok(None),
        }
    }

    /// Does the same, and returns the mount and flags that hold the object in place.
    pub fn observe_held(
        &self,
        digests: &KnownDigests,
    ) -> Result<Option<(Object, Stamp, Hold)>, Errno> {
        let (stat, hold) = match mount::stat_at(self.dir.as_fd(), &self.name) {
            Ok(found) => found,
            Err(Errno::ENOENT | Errno::ENOTDIR) => return Ok(None),
            Err(errno) => return Err(errno),
        };
        let (object, stamp) = self.read_object(&stat, Some(digests))?;
        Ok(Some((object, stamp, hold)))
    }

    fn read_object(
        &self,
        stat: &FileStat,
        digests: Option<&KnownDigests>,
    ) -> Result<(Object, Stamp), Errno> {
        let object = Object::new(
            self.read_kind(stat, digests)?,
            stat.st_mode & 0o7777,
            (stat.st_uid, stat.st_gid),
        );
        Ok((object, Stamp::from(stat)))
    }

    /// Returns the type of the object without reading a file's bytes (its digest is left empty).
    pub fn shallow_kind(&self) -> Result<Option<ObjectKind>, Errno> {
        let Some(stat) = self.stat()? else {
            return Ok(None);
        };
        if resolve::kind_of(&stat) == SFlag::S_IFREG {
            let size = u64::try_from(stat.st_size).unwrap_or_default();
            return Ok(Some(ObjectKind::File {
                size,
                sha256: HexDigest::default(),
            }));
        }
        self.read_kind(&stat, None).map(Some)
    }

    /// Returns the bytes of the regular file with this name, without following a link; `None` if there is none.
    pub fn read_file(&self) -> Result<Option<Vec<u8>>, Errno> {
        let is_file = |stat: &FileStat| resolve::kind_of(stat) == SFlag::S_IFREG;
        let read = || {
            // A device is not even opened.
            if !self.stat()?.is_some_and(|stat| is_file(&stat)) {
                return Ok(None);
            }
            let file = self.open_file()?;
            let is_file = is_file(&fstat(&file)?);
            is_file.then(|| read_whole(file, MAX_READ)).transpose()
        };
        match read() {
            Err(Errno::ENOENT | Errno::ELOOP | Errno::ENXIO) => Ok(None),
            read => read,
        }
    }

    /// Returns the mount and the flags of the object, without following a link; `None` if it does not exist.
    pub fn read_hold(&self) -> Result<Option<Hold>, Errno> {
        match mount::stat_at(self.dir.as_fd(), &self.name) {
            Ok((_, hold)) => Ok(Some(hold)),
            Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Returns the target of the symbolic link with this name, byte for byte.
    pub fn read_target(&self) -> Result<OsString, Errno> {
        readlinkat(&self.dir, self.name.as_str())
    }

    /// Opens the name for reading, without following a link.
    pub fn open_file(&self) -> Result<File, Errno> {
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        let open = || nix::fcntl::openat(&self.dir, self.name.as_str(), flags, Mode::empty());
        retry_interrupted(open).map(File::from)
    }

    fn read_kind(
        &self,
        stat: &FileStat,
        digests: Option<&KnownDigests>,
    ) -> Result<ObjectKind, Errno> {
        Ok(match resolve::kind_of(stat) {
            // The kernel also reports this for files that it generates, but those are on no device.
            SFlag::S_IFREG if stat.st_size == 0 && libc::major(stat.st_dev) != 0 => {
                ObjectKind::File {
                    size: 0,
                    sha256: HexDigest::of_nothing(),
                }
            }
            SFlag::S_IFREG if is_too_large(stat) => ObjectKind::unread_file(stat),
            SFlag::S_IFREG => {
                let expected = u64::try_from(stat.st_size).unwrap_or_default();
                if let Some(sha256) = digests.and_then(|digests| digests.find_digest(stat)) {
                    let size = expected;
                    return Ok(ObjectKind::File { size, sha256 });
                }
                let read = digest_of(self.open_file()?, expected);
                let (size, sha256) = read.map_err(|e| errno_of(&e))?;
                let sha256 = sha256.into();
                let kind = ObjectKind::File { size, sha256 };
                if let Some(digests) = digests {
                    digests.learn_read(stat, &kind);
                }
                kind
            }
            SFlag::S_IFLNK => {
                let target = readlinkat(&self.dir, self.name.as_str())?;
                ObjectKind::Symlink {
                    target: target.to_string_lossy().into_owned(),
                }
            }
            SFlag::S_IFDIR => ObjectKind::Directory,
            _ => ObjectKind::Special {
                type_bits: stat.st_mode & libc::S_IFMT,
            },
        })
    }
}

/// Maximum size of a file of root that is hashed, in bytes; no config contains a larger one.
pub const MAX_DIGEST: u64 = 3 << 29;

/// The same for a file of an ordinary user, who could give it any size.
const MAX_DIGEST_OF_USERS: u64 = MAX_READ;

/// Returns true for a file that is too large to read: a sparse file costs an ordinary user nothing, but takes hours to read.
fn is_too_large(stat: &FileStat) -> bool {
    let limit = match stat.st_uid {
        0 => MAX_DIGEST,
        _ => MAX_DIGEST_OF_USERS,
    };
    u64::try_from(stat.st_size).unwrap_or_default() > limit
}

pub(super) fn read_whole(file: File, limit: u64) -> Result<Vec<u8>, Errno> {
    let size = fstat(&file).map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or_default());
    if size > limit {
        return Err(Errno::EFBIG);
    }
    // Reserves the space at once: a growing vector would temporarily need twice as much.
    let room = usize::try_from(size).unwrap_or_default();
    let mut bytes = Vec::with_capacity(room.saturating_add(1));
    let mut bounded = file.take(limit + 1);
    let read = bounded.read_to_end(&mut bytes);
    if read.map_err(|e| errno_of(&e))? as u64 > limit {
        return Err(Errno::EFBIG);
    }
    Ok(bytes)
}

/// Returns size and lower-case hex SHA-256 of everything that `reader` yields.
pub fn digest_reader(mut reader: impl Read) -> io::Result<(u64, String)> {
    let mut all = Summed::default();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return Ok(all.finish()),
            Ok(n) => all.add_piece(buffer.get(..n).unwrap_or_default()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// Does the same; for many bytes, by what is `expected`, one thread reads while another one hashes.
pub fn digest_ahead(reader: impl Read + Send, expected: u64) -> io::Result<(u64, String)> {
    let mut all = Summed::default();
    parallel::read_pieces(reader, expected, |piece| {
        all.add_piece(piece);
        Ok(())
    })?;
    Ok(all.finish())
}

/// Bytes that were counted and hashed.
#[derive(Default)]
struct Summed {
    size: u64,
    hash: Sha256,
}

impl Summed {
    fn add_piece(&mut self, piece: &[u8]) {
        self.hash.update(piece);
        self.size += piece.len() as u64;
        progress::advance_by(piece.len() as u64);
    }

    fn finish(self) -> (u64, String) {
        (self.size, to_hex(&self.hash.finalize()))
    }
}

/// Returns size and digest of a file. Reads no more bytes than expected, so that a growing file is not followed. If 0 bytes are
/// expected, as the kernel reports for generated files, reads all.
fn digest_of(file: File, expected: u64) -> io::Result<(u64, String)> {
    match expected {
        0 => digest_ahead(file, 0),
        expected => digest_ahead(file.take(expected), expected),
    }
}
