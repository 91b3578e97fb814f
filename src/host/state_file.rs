//! JSON files that the program stores below its state directory and reads again.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::host::root::{Root, RootError, RootPath};
use crate::host::sealed;

/// Reads a stored JSON file whose contents can be obtained again; `None` if it is missing, damaged or of another version, which
/// is logged.
pub fn read_remembered<T: DeserializeOwned>(
    root: &Root,
    file: &'static str,
    known: u32,
    version: fn(&T) -> u32,
) -> Result<Option<T>, RootError> {
    let path = RootPath::fixed(file);
    let Some(bytes) = root.read(&path)? else {
        return Ok(None);
    };
    if let Some(other) = other_version(&bytes, known) {
        log::warn!(
            "{path} has version {other}, this program knows {known}; it is skipped until it is written again"
        );
        return Ok(None);
    }
    if let Err(broken) = sealed::check_seal(&bytes) {
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

/// Returns the version in a JSON object if it differs from `known`. Ignores the checksum, because another version may seal
/// differently.
pub fn other_version(bytes: &[u8], known: u32) -> Option<u64> {
    let version = version_of(bytes).ok()??;
    (version != u64::from(known)).then_some(version)
}

/// Returns the version in a JSON object; `None` if it has none, if the version is not a whole number, or if the text is not an
/// object: the marker of version 0.1.0 is a string. No other value is kept in memory.
///
/// # Errors
/// The text of an object is not valid JSON.
pub fn version_of(bytes: &[u8]) -> serde_json::Result<Option<u64>> {
    if !bytes.trim_ascii_start().starts_with(b"{") {
        return Ok(None);
    }
    let fields: BTreeMap<String, &RawValue> = serde_json::from_slice(bytes)?;
    let version = fields.get("version");
    Ok(version.and_then(|version| version.get().parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_version_that_is_there_and_differs_is_another_one() {
        for (text, other) in [
            (r#"{"version": 2, "steps": [{"version": 1}]}"#, Some(2)),
            (r#"{"checksum": "0", "version": 0}"#, Some(0)),
            (r#"{"version": 1, "new": {}}"#, None),
            (r#"{"id": "1-1"}"#, None),
            (r#"{"version": "2"}"#, None),
            (r#"{"version": -2}"#, None),
            (r#"{"version": 2.0}"#, None),
            (r#"{"version": null}"#, None),
            ("[2]", None),
            (r#""version""#, None),
            (r#"{"version": 2"#, None),
            ("", None),
        ] {
            assert_eq!(other_version(text.as_bytes(), 1), other, "{text}");
        }
    }
}
