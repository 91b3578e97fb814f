//! The marker files that CRI-O writes at a clean shutdown. The next boot checks them before it empties the image store.

use crate::base::paths;
use crate::host::root::{Root, RootError, RootPath};

/// Written when CRI-O stops, removed when it starts.
pub const CLEAN: &str = "var/lib/crio/clean.shutdown";
/// Written at the start of a CRI-O that supports [`CLEAN`].
pub const SUPPORTED: &str = "var/lib/crio/clean.shutdown.supported";
/// The unit that empties the store at boot.
pub const WIPE: &str = "crio-wipe.service";

/// The marks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CrioMarks {
    /// [`CLEAN`] exists.
    pub is_clean: bool,
    /// [`SUPPORTED`] exists.
    pub is_supported: bool,
    /// The unit [`WIPE`] exists and is not masked.
    pub wipes_at_boot: bool,
}

/// Reads the marks.
///
/// # Errors
/// A path cannot be resolved.
pub fn read_crio_marks(root: &Root) -> Result<CrioMarks, RootError> {
    Ok(CrioMarks {
        is_clean: root.exists(&RootPath::fixed(CLEAN))?,
        is_supported: root.exists(&RootPath::fixed(SUPPORTED))?,
        wipes_at_boot: wipes_at_boot(root)?,
    })
}

fn wipes_at_boot(root: &Root) -> Result<bool, RootError> {
    for directory in [paths::UNITS, "usr/lib/systemd/system"] {
        let path = RootPath::parse(&format!("/{directory}/{WIPE}"));
        let Ok(path) = path else { continue };
        if root.exists(&path)? {
            // A masked unit is a link to a device.
            return Ok(root.read_small(&path)?.is_some());
        }
    }
    Ok(false)
}
