//! The Ignition config that the Machine Config Server serves: a rendered config with first-boot additions.
//!
//! The server appends generated files (annotations, bootstrap kubeconfig, certificates) and puts the whole
//! MachineConfig into one of them; that is the only place that holds its name (mcd-contract section 2).

use serde_json::Value;

use super::finding::Finding;
use super::ignition::{File, Ignition};
use super::machine_config::MachineConfig;
use super::resource::Contents;
use crate::paths;

/// The text of the MachineConfig inside a served config; `None` when it carries none.
///
/// # Errors
/// A finding where the file is there but cannot be decoded.
pub fn machine_config(config: &Value) -> Result<Option<String>, Finding> {
    let files = config.pointer("/storage/files").and_then(Value::as_array);
    let wanted = format!("/{}", paths::MCS_CONTENT);
    let found = files
        .into_iter()
        .flatten()
        .enumerate()
        .find(|(_, file)| file["path"] == wanted.as_str());
    let Some((index, file)) = found else {
        return Ok(None);
    };
    let at = format!("storage.files[{index}].contents");
    let text = |key: &str| {
        file["contents"][key]
            .as_str()
            .filter(|text| !text.is_empty())
    };
    let bytes = Contents::new(text("source"), text("compression"))
        .and_then(|contents| contents.bytes())
        .map_err(|error| Finding::error(&at, error.to_string()))?;
    let decoded = String::from_utf8(bytes);
    decoded
        .map(Some)
        .map_err(|_| Finding::error(&at, "the MachineConfig inside is not UTF-8 text"))
}

/// Files of the served config that are not the MachineConfig's own: the server's additions.
pub fn additions(served: &Ignition, config: &MachineConfig) -> Vec<File> {
    let own = |file: &&File| {
        config
            .ignition
            .storage
            .files
            .iter()
            .any(|own| own.path == file.path)
    };
    served
        .storage
        .files
        .iter()
        .filter(|file| !own(file))
        .cloned()
        .collect()
}

/// Whether an Ignition part is only a version: what the encapsulated first-boot object holds. A config of
/// spec 2 has its other sections there, as empty objects.
pub fn is_emptied(config: &Value) -> bool {
    let Some(map) = config.as_object() else {
        return false;
    };
    let empty = |value: &Value| value.as_object().is_some_and(serde_json::Map::is_empty);
    let only_version = |value: &Value| {
        value.as_object().is_some_and(|meta| {
            meta.iter()
                .all(|(key, value)| key == "version" || empty(value))
        })
    };
    map.iter().all(|(key, value)| {
        if key == "ignition" {
            only_version(value)
        } else {
            empty(value)
        }
    })
}
