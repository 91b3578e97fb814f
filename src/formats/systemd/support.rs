//! The features of a root's systemd, by its version.

/// Features of the root's systemd beyond those of version 252.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Support {
    /// `UpheldBy=` and `*.upholds` directories (since 254).
    pub upheld_by: bool,
    /// The `ignore` verb in preset files (since 256).
    pub preset_ignore: bool,
}

impl Support {
    /// Returns the features of a version.
    pub const fn of_version(version: u32) -> Self {
        Support {
            upheld_by: version >= 254,
            preset_ignore: version >= 256,
        }
    }

    /// Returns the suffixes of directories whose links mean dependencies.
    pub(super) fn dependency_suffixes(&self) -> &'static [&'static str] {
        if self.upheld_by {
            &[".wants", ".requires", ".upholds"]
        } else {
            &[".wants", ".requires"]
        }
    }
}
