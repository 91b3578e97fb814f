//! The files of trials: the current one, and the result of the last one.

use serde::de::DeserializeOwned;

use super::{Trial, TrialResult, VERSION};
use crate::base::invocation::{mco_rescue, node_path};
use crate::base::paths;
use crate::change::transaction::{StateDirectoryError, open_store, store_value};
use crate::host::root::{Root, RootPath};
use crate::host::sealed;
use crate::host::state_file::other_version;

/// The reason why a file of a trial cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TrialFileError {
    /// The file is damaged, or of another version.
    #[error(
        "/{file}: {why}. It is left as it is, and it does not revert any change. Move it away, and revert the last run if it should not stay. Next: mv {place} {place}.damaged, then {back}",
        place = node_path(file),
        back = mco_rescue("rollback")
    )]
    Damaged {
        /// The file.
        file: &'static str,
        /// The reason.
        why: String,
    },
    /// The file cannot be read.
    #[error(transparent)]
    Root(#[from] crate::host::root::RootError),
}

/// Reads the current trial; `None` if there is none.
///
/// # Errors
/// The file is damaged or cannot be read.
pub fn read_trial(root: &Root) -> Result<Option<Trial>, TrialFileError> {
    read_file(root, paths::TRIAL)
}

/// Reads the result of the last trial; `None` if there was none.
///
/// # Errors
/// The file is damaged or cannot be read.
pub fn read_result(root: &Root) -> Result<Option<TrialResult>, TrialFileError> {
    read_file(root, paths::TRIAL_RESULT)
}

/// Writes the trial, durably.
///
/// # Errors
/// The file cannot be written.
pub fn store_trial(root: &Root, trial: &Trial) -> Result<(), StateDirectoryError> {
    store_value(root, paths::TRIAL, trial)
}

/// Writes the result of the last trial, durably.
///
/// # Errors
/// The file cannot be written.
pub fn store_result(root: &Root, result: &TrialResult) -> Result<(), StateDirectoryError> {
    store_value(root, paths::TRIAL_RESULT, result)
}

/// Ends a trial: writes its result, then removes the trial. The removal is the commit point.
///
/// # Errors
/// A file cannot be written or removed.
pub fn end_trial(root: &Root, result: Option<&TrialResult>) -> Result<(), StateDirectoryError> {
    if let Some(result) = result {
        store_result(root, result)?;
    }
    let store = open_store(root, paths::STATE)?;
    store.remove_file(RootPath::fixed(paths::TRIAL).name())
}

fn read_file<T: DeserializeOwned>(
    root: &Root,
    file: &'static str,
) -> Result<Option<T>, TrialFileError> {
    let Some(bytes) = root.read(&RootPath::fixed(file))? else {
        return Ok(None);
    };
    let damaged = |why: String| TrialFileError::Damaged { file, why };
    // Before the seal and the keys, which may differ in another version.
    if let Some(other) = other_version(&bytes, VERSION) {
        let why = format!("has version {other}, this program knows {VERSION}");
        return Err(damaged(why));
    }
    sealed::check_seal(&bytes).map_err(|broken| damaged(broken.to_string()))?;
    let value = serde_json::from_slice(&bytes);
    let value = value.map_err(|error| damaged(format!("cannot be read: {error}")))?;
    Ok(Some(value))
}
