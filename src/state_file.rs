//! JSON files that the program keeps below its state directory, and reads again.

use serde::de::DeserializeOwned;

use crate::root::{Root, RootError, RootPath};
use crate::sealed;

/// Reads a stored JSON file; None if it is missing or damaged, which is logged.
pub fn remembered<T: DeserializeOwned>(
    root: &Root,
    file: &'static str,
    known: u32,
    version: fn(&T) -> u32,
) -> Result<Option<T>, RootError> {
    let path = RootPath::fixed(file);
    let Some(bytes) = root.read(&path)? else {
        return Ok(None);
    };
    if let Err(broken) = sealed::check(&bytes) {
        log::warn!("{path} is damaged and is skipped: {broken}");
        return Ok(None);
    }
    match serde_json::from_slice::<T>(&bytes) {
        Ok(kept) if version(&kept) == known => Ok(Some(kept)),
        Ok(kept) => {
            log::warn!("{path} has version {}; it is skipped", version(&kept));
            Ok(None)
        }
        Err(error) => {
            log::warn!("{path} cannot be read and is skipped: {error}");
            Ok(None)
        }
    }
}
