//! The object at a path as a value: type, mode, owner and content.
//!
//! Shared by observation, drift, plan and journal, so that "is it already so?" and "is it still so?" are the same comparison.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use nix::sys::stat::FileStat;
use serde::{Deserialize, Serialize, Serializer};

/// The type of an object, with its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "type")]
pub enum ObjectKind {
    /// A regular file.
    File {
        /// Length in bytes.
        size: u64,
        /// Lower-case hex SHA-256 of the bytes.
        sha256: HexDigest,
    },
    /// A symbolic link.
    Symlink {
        /// The link's text.
        target: String,
    },
    /// A directory; its entries are not part of its identity.
    Directory,
    /// A device, pipe or socket.
    Special {
        /// The `S_IFMT` bits of its mode.
        type_bits: u32,
    },
}

/// Lower-case hex of a digest. Clones share the text, because it is in the config, in the plan and in the journal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String")]
pub struct HexDigest(#[serde(serialize_with = "serialize_text")] Arc<str>);

fn serialize_text<S: Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}

impl From<String> for HexDigest {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl HexDigest {
    /// Returns the SHA-256 of empty content: the daemon's stamp for each file is empty.
    pub fn of_nothing() -> Self {
        static DIGEST: OnceLock<HexDigest> = OnceLock::new();
        let text = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        DIGEST.get_or_init(|| Self(text.into())).clone()
    }
}

impl Deref for HexDigest {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// Stands in for the digest of a file that is too large to read.
const UNREAD: &str = "unread";

impl ObjectKind {
    /// Returns a file larger than anything a config contains: its size and modification time stand in for its content.
    pub fn unread_file(stat: &FileStat) -> Self {
        Self::File {
            size: u64::try_from(stat.st_size).unwrap_or_default(),
            sha256: format!(
                "{UNREAD}, modified {}.{:09}",
                stat.st_mtime, stat.st_mtime_nsec
            )
            .into(),
        }
    }

    /// Returns true for a file whose content was too large to read.
    pub fn is_unread(&self) -> bool {
        matches!(self, Self::File { sha256, .. } if sha256.starts_with(UNREAD))
    }

    /// Returns true if a copy that was just written and read back has the same content.
    pub fn is_copied_as(&self, copy: &Self) -> bool {
        match (self, copy) {
            (Self::File { size, .. }, Self::File { size: copied, .. }) if self.is_unread() => {
                size == copied
            }
            _ => self == copy,
        }
    }
}

/// The identity of an object (docs/develop/transaction.md): inode numbers are not part of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// Type and content.
    #[serde(flatten)]
    pub kind: ObjectKind,
    /// Permission bits with setuid, setgid and sticky (07777).
    pub mode: u32,
    /// Numeric user id.
    pub uid: u32,
    /// Numeric group id.
    pub gid: u32,
}

impl Object {
    /// Creates an object with an owner and a group.
    pub fn new(kind: ObjectKind, mode: u32, (uid, gid): (u32, u32)) -> Self {
        Self {
            kind,
            mode,
            uid,
            gid,
        }
    }

    /// Returns true if `self`, on disk, matches `wanted`. The mode of a link is ignored.
    pub fn is_like(&self, wanted: &Self) -> bool {
        let mode_counts = !matches!(wanted.kind, ObjectKind::Symlink { .. });
        self.kind == wanted.kind
            && self.owner() == wanted.owner()
            && (!mode_counts || self.mode == wanted.mode)
    }

    /// Returns user id and group id.
    pub fn owner(&self) -> (u32, u32) {
        (self.uid, self.gid)
    }

    /// Returns true for a directory.
    pub fn is_directory(&self) -> bool {
        self.kind == ObjectKind::Directory
    }

    /// Returns true if mode and owner match a stat. The mode of a link is ignored.
    pub fn has_attributes_of(&self, stat: &FileStat) -> bool {
        let mode_counts = !matches!(self.kind, ObjectKind::Symlink { .. });
        self.owner() == (stat.st_uid, stat.st_gid)
            && (!mode_counts || self.mode == stat.st_mode & 0o7777)
    }

    /// Returns the number of content bytes, for space calculations.
    pub fn size(&self) -> u64 {
        match &self.kind {
            ObjectKind::File { size, .. } => *size,
            ObjectKind::Symlink { target } => target.len() as u64,
            ObjectKind::Directory | ObjectKind::Special { .. } => 0,
        }
    }
}

/// File system flags (`chattr`) that make changes fail even for root.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flags {
    /// `chattr +i`: nothing about it can be changed; in a directory, no name.
    pub immutable: bool,
    /// `chattr +a`: can only grow; in a directory names can only be added.
    pub append_only: bool,
}

impl Flags {
    /// Returns true if none is set.
    pub fn is_empty(self) -> bool {
        !self.immutable && !self.append_only
    }

    /// Returns the flags as `chattr` writes them, such as `ia`.
    pub fn letters(self) -> &'static str {
        match (self.immutable, self.append_only) {
            (true, true) => "ia",
            (true, false) => "i",
            (false, true) => "a",
            (false, false) => "",
        }
    }

    /// Returns the flags in words.
    pub fn words(self) -> &'static str {
        match (self.immutable, self.append_only) {
            (true, true) => "immutable and append-only",
            (true, false) => "immutable",
            (false, true) => "append-only",
            (false, false) => "without flags",
        }
    }
}

/// Inode, size and times of an object: proves within one run that it was not changed since.
///
/// Never stored: a file system may reuse a freed inode number for the next file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    dev: u64,
    ino: u64,
    size: i64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// Returns device and inode number.
    pub fn inode(&self) -> (u64, u64) {
        (self.dev, self.ino)
    }

    /// Returns true if both name the same inode.
    pub fn same_file(&self, other: &Self) -> bool {
        self.inode() == other.inode()
    }

    /// Returns true if at most the change time differs: another name, or other attributes, but the same bytes.
    pub fn same_but_change_time(&self, other: &Self) -> bool {
        self.same_file(other) && self.size == other.size && self.modified == other.modified
    }
}

impl From<&FileStat> for Stamp {
    fn from(stat: &FileStat) -> Self {
        Self {
            dev: stat.st_dev,
            ino: stat.st_ino,
            size: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }
}
