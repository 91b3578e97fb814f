//! Reasons why systemd refuses a unit, a link or a setting.

use super::install_section::SectionError;
use super::unit_name::SpecifierError;

/// A mistake in a unit, a link or a setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// No unit with this name.
    #[error("does not exist")]
    NotFound,
    /// An alias of a missing unit.
    #[error("is an alias of a unit that does not exist")]
    DanglingAlias,
    /// Masked by an empty file or a link to `/dev/null`.
    #[error("is masked")]
    Masked,
    /// A cycle of links, an alias of itself, or a unit that is enabled by the name of a link.
    #[error("is a link that systemd refuses to operate on")]
    TooManyLinks,
    /// Generated or transient units cannot be enabled.
    #[error("is transient or generated")]
    Generated,
    /// A directory or special file where a unit file should be.
    #[error("is not a regular file")]
    NotRegular,
    /// A link with a non-directory on its path.
    #[error("is a link, but something on its way is not a directory")]
    NoDirectory,
    /// A link with a name on its path that is too long for any file system.
    #[error("is a link to a name that is too long")]
    NameTooLong,
    /// A drop-in that breaks the unit, with its path.
    #[error("has a drop-in that cannot be read: {0} {1}")]
    Dropin(String, Box<Fault>),
    /// A file where systemd would need a directory.
    #[error("is not a directory")]
    NotADirectory,
    /// A link to a missing directory, with its target.
    #[error("is a link to {0:?}, which does not exist")]
    DanglingDirectory(String),
    /// A link in place of a directory that leads back to itself.
    #[error("is a link that leads in a circle")]
    Circle,
    /// A link to a directory of the OS, which no program can write to.
    #[error("is a link to {0:?}, which is read-only")]
    ReadOnly(String),
    /// A name that systemctl takes for an option.
    #[error("begins with \"-\", so systemctl takes the name for an option")]
    TakenForOption,
    /// Something other than a link where a link should be.
    #[error("already exists and is not a symlink")]
    Exists,
    /// Another link where a link should be, with its target.
    #[error("already exists and is a symlink to {0:?}")]
    ExistsAsLink(String),
    /// Not the name of a unit.
    #[error("is not a valid unit name")]
    InvalidName,
    /// Units of this type are never templates.
    #[error("is of a type that cannot be a template")]
    NotTemplatable,
    /// An alias that does not fit the unit.
    #[error("cannot be an alias of {0:?}")]
    BadAlias(String),
    /// A template without instance, wanted by something that is not a template.
    #[error("cannot depend on {0:?}, which is a template")]
    NoInstance(String),
    /// A setting that cannot be expanded.
    #[error("cannot be expanded: {0}")]
    Specifier(#[from] SpecifierError),
    /// A file that systemd refuses to read.
    #[error("cannot be read: {0}")]
    Section(#[from] SectionError),
    /// A path that [`read_units`](super::read_units) did not read: guessing would be worse than refusing.
    #[error("was not read")]
    NotRead,
}

/// A fault with its subject: a unit's name, a path, or a setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{subject} {fault}")]
pub struct Problem {
    /// A unit's name, a path inside the root, or the text of a setting.
    pub subject: String,
    /// The fault of the subject.
    pub fault: Fault,
}

impl Problem {
    pub(super) fn new(subject: impl Into<String>, fault: Fault) -> Self {
        Self {
            subject: subject.into(),
            fault,
        }
    }
}
