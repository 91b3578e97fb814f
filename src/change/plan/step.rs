//! The steps of a plan, and the parts of it in which they are.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::base::object::Object;
use crate::config::document::{Contents, Text};
use crate::host::root::RootPath;

/// One change of one path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "step")]
pub enum Step {
    /// Creates a directory.
    MakeDirectory {
        /// Its path.
        path: RootPath,
        /// Permission bits.
        mode: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
    },
    /// Removes a directory if it is empty.
    RemoveDirectory {
        /// Its path.
        path: RootPath,
        /// Permission bits, to restore it.
        mode: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
    },
    /// Creates a file or link, or replaces the object at its path.
    Put {
        /// Its path.
        path: RootPath,
        /// The new object.
        new: Object,
        /// The current object.
        old: Option<Object>,
    },
    /// Removes a file or link.
    Remove {
        /// Its path.
        path: RootPath,
        /// The current object.
        old: Object,
    },
    /// Changes mode and owner of an object.
    Metadata {
        /// Its path.
        path: RootPath,
        /// The new attributes.
        new: Attributes,
        /// The current attributes.
        old: Attributes,
    },
}

/// Mode and owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl From<&Object> for Attributes {
    fn from(object: &Object) -> Self {
        Self {
            mode: object.mode,
            uid: object.uid,
            gid: object.gid,
        }
    }
}

impl Step {
    /// Returns the path that changes.
    pub fn path(&self) -> &RootPath {
        match self {
            Self::MakeDirectory { path, .. }
            | Self::RemoveDirectory { path, .. }
            | Self::Put { path, .. }
            | Self::Remove { path, .. }
            | Self::Metadata { path, .. } => path,
        }
    }

    /// Returns the size of the old contents that reverting the step restores, in bytes.
    pub fn old_size(&self) -> u64 {
        match self {
            Self::Put { old, .. } => old.as_ref().map_or(0, Object::size),
            Self::Remove { old, .. } => old.size(),
            Self::MakeDirectory { .. } | Self::RemoveDirectory { .. } | Self::Metadata { .. } => 0,
        }
    }

    /// Returns true if a directory with all its content is exchanged with something else.
    pub fn exchanges_directory(&self) -> bool {
        match self {
            Self::Put {
                new,
                old: Some(old),
                ..
            } => new.is_directory() != old.is_directory(),
            _ => false,
        }
    }

    /// Returns a symbol for lists: `+` new, `~` changed, `-` removed.
    pub fn sign(&self) -> char {
        match self {
            Self::MakeDirectory { .. } | Self::Put { old: None, .. } => '+',
            Self::Put { .. } | Self::Metadata { .. } => '~',
            Self::Remove { .. } | Self::RemoveDirectory { .. } => '-',
        }
    }
}

/// The source of a new object's bytes. `Debug` does not show them.
#[derive(Clone)]
pub enum Payload {
    /// None: for directories, links, removals.
    None,
    /// Bytes that the plan created.
    Bytes(Vec<u8>),
    /// The document itself, as received.
    Record(Text),
    /// Contents in the document, decoded when they are written.
    Contents(Contents),
    /// A copy of another file in the root, including its times.
    CopyOf(RootPath),
    /// A copy of another directory in the root with all its content.
    TreeOf(RootPath),
    /// A hard link to another path, or to what the same plan writes there.
    LinkTo(RootPath),
    /// A hard link to the current object at another path, or a copy if the file system has no hard links.
    NameOf(RootPath),
}

impl std::fmt::Debug for Payload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => write!(f, "None"),
            Self::Bytes(bytes) => write!(f, "Bytes({})", bytes.len()),
            Self::Record(text) => write!(f, "{text:?}"),
            Self::Contents(contents) => write!(f, "{contents:?}"),
            Self::CopyOf(path) => write!(f, "CopyOf({path})"),
            Self::TreeOf(path) => write!(f, "TreeOf({path})"),
            Self::LinkTo(path) => write!(f, "LinkTo({path})"),
            Self::NameOf(path) => write!(f, "NameOf({path})"),
        }
    }
}

/// The part of a config that a step belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Section {
    /// Account files, homes and mailboxes of a bare Ignition config.
    Accounts,
    /// Keys and passwords.
    Users,
    /// Directories and links.
    Nodes,
    /// Files.
    Files,
    /// Files that the config no longer has.
    Stale,
    /// Unit files, drop-ins and masks.
    Units,
    /// Enablement links and presets.
    Enablement,
    /// The daemon's originals and stamps.
    Originals,
    /// The daemon's records, written last.
    Records,
}

/// A step with everything needed to carry it out and to explain it.
#[derive(Debug, Clone)]
pub struct PlannedStep {
    /// The change.
    pub step: Step,
    /// The bytes.
    pub payload: Payload,
    /// Its part of the config.
    pub section: Section,
    /// Why it is needed.
    pub why: Cow<'static, str>,
    /// The SELinux label of the new object. `None` means that of the file it is a copy of, else of the object it replaces, else
    /// the kernel's default.
    pub label: Option<String>,
}
