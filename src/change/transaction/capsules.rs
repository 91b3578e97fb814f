//! Records which capsules were accepted. The number only grows, so an older capsule is never accepted again.

use std::fs::File;

use super::journal::Journal;
use super::state::StateError;
use super::store::{open_store, store_value};
use crate::base::paths;
use crate::base::reason::Reason;
use crate::change::capsule::accepted::{AcceptedCapsules, AcceptedError, TakenFromCapsule};
use crate::host::root::{Root, RootPath};

/// The reason why a capsule is not remembered.
#[derive(Debug, thiserror::Error)]
pub enum CapsuleMemoryError {
    /// It is not known which capsules were accepted before.
    #[error(transparent)]
    Accepted(#[from] AcceptedError),
    /// The file cannot be written.
    #[error("remembering the capsule: {0}")]
    State(#[from] StateError),
}

/// Remembers what was taken from a capsule.
///
/// # Errors
/// What is known cannot be read, or the file cannot be written; it is as before then.
pub fn remember_capsule(root: &Root, taken: &TakenFromCapsule) -> Result<(), CapsuleMemoryError> {
    open_store(root, paths::STATE)?;
    let _turn = wait_for_turn(root)?;
    match AcceptedCapsules::after_taking(AcceptedCapsules::read(root)?, taken) {
        Some(after) => Ok(store_value(root, paths::CAPSULES, &after)?),
        None => Ok(()),
    }
}

/// Remembers what a run took, once it carries the mark. Its journal stays until this is done, so that no interruption loses a
/// number, and a run that is undone leaves none.
pub(super) fn remember_taken(root: &Root, journal: &Journal) -> Result<(), CapsuleMemoryError> {
    for taken in &journal.capsules {
        match remember_capsule(root, taken) {
            // Until somebody removes the file, no capsule is accepted at all.
            Err(CapsuleMemoryError::Accepted(error @ AcceptedError::Damaged(_))) => {
                log::warn!("{error}");
            }
            remembered => remembered?,
        }
    }
    Ok(())
}

/// Waits until no other process changes the file: `fetch` has no lock of a run. The turn ends with the descriptor.
fn wait_for_turn(root: &Root) -> Result<Option<File>, StateError> {
    let path = RootPath::fixed(paths::MARKER);
    let failed = |reason: Reason| StateError::System(path.to_string(), reason);
    let place = root
        .open_place(&path)
        .map_err(|error| failed(error.into()))?;
    let Some(place) = place else {
        return Ok(None);
    };
    let file = place.open_file().map_err(|errno| failed(errno.into()))?;
    file.lock().map_err(|error| failed(error.into()))?;
    Ok(Some(file))
}
