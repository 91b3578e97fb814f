//! Cures that are files only: `doctor --fix` shows the changes as a plan and makes them in the ordinary transaction.
//!
//! Values only. A check attaches changes where they are certain and safe, and where the trouble is over afterwards;
//! `plan/fix.rs` turns them into steps. A fix does not change what a config brings: that is the task of `apply`.

use serde::{Serialize, Serializer};

/// The cure of a finding.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Fix {
    /// The command that carries it out; [`super::examine`] fills it in.
    pub command: String,
    /// The changes, in order.
    pub changes: Vec<FixChange>,
}

/// One change of a fix. Paths are absolute, as the node sees them: `/etc/name`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "change")]
pub enum FixChange {
    /// A file or link gets another name: `NAME.mco-rescue-TIME`, with mode, owner, times and label. Where programs read
    /// every name in its directory, it goes to the directory above.
    MoveAside {
        /// The file or link.
        path: String,
    },
    /// Permission bits of a file or directory change.
    SetMode {
        /// The file or directory.
        path: String,
        /// The new bits.
        #[serde(serialize_with = "octal")]
        mode: u32,
    },
    /// A file or directory gets the owner and group of another one.
    SetOwnerOf {
        /// The file or directory.
        path: String,
        /// The file or directory whose owner and group it gets.
        from: String,
    },
    /// A file is made where none is. Owner and group are root.
    CreateFile {
        /// The new file.
        path: String,
        /// Its permission bits.
        #[serde(serialize_with = "octal")]
        mode: u32,
        /// Its content.
        #[serde(skip)]
        content: Vec<u8>,
    },
    /// A file with the content and owner of another one is put in place of what is at the path, if anything is.
    CopyFile {
        /// The source.
        from: String,
        /// The new file.
        path: String,
        /// Its permission bits.
        #[serde(serialize_with = "octal")]
        mode: u32,
    },
    /// A file gets other content; mode, owner and label stay.
    ReplaceFile {
        /// The file.
        path: String,
        /// Its new content.
        #[serde(skip)]
        content: Vec<u8>,
    },
    /// A symbolic link is put in place of a file or link, if any is.
    MakeLink {
        /// The link.
        path: String,
        /// Its text.
        target: String,
    },
}

impl FixChange {
    /// The path that changes.
    pub fn path(&self) -> &str {
        match self {
            Self::MoveAside { path }
            | Self::SetMode { path, .. }
            | Self::SetOwnerOf { path, .. }
            | Self::CreateFile { path, .. }
            | Self::CopyFile { path, .. }
            | Self::ReplaceFile { path, .. }
            | Self::MakeLink { path, .. } => path,
        }
    }

    /// Returns the change that moves a file or link aside.
    pub fn move_aside(path: impl Into<String>) -> Self {
        Self::MoveAside { path: path.into() }
    }

    /// Returns the change that sets permission bits.
    pub fn set_mode(path: impl Into<String>, mode: u32) -> Self {
        Self::SetMode {
            path: path.into(),
            mode,
        }
    }

    /// Returns the change that makes a file.
    pub fn create_file(path: impl Into<String>, mode: u32, content: impl Into<Vec<u8>>) -> Self {
        Self::CreateFile {
            path: path.into(),
            mode,
            content: content.into(),
        }
    }

    /// Returns the change that copies a file.
    pub fn copy_file(from: impl Into<String>, path: impl Into<String>, mode: u32) -> Self {
        Self::CopyFile {
            from: from.into(),
            path: path.into(),
            mode,
        }
    }

    /// Returns the change that gives a file other content.
    pub fn replace_file(path: impl Into<String>, content: impl Into<Vec<u8>>) -> Self {
        Self::ReplaceFile {
            path: path.into(),
            content: content.into(),
        }
    }
}

fn octal<S: Serializer>(mode: &u32, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(&format!("{mode:04o}"))
}
