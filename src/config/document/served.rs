//! The parts of an Ignition config as served by the Machine Config Server: the MachineConfig, and first-boot additions.
//!
//! The server appends generated files (annotations, bootstrap kubeconfig, certificates), one of which contains the whole
//! MachineConfig. That file is the only place with its name (docs/develop/agreement.md: Server).

use serde_json::Value;

use super::contents::Contents;
use super::finding::Finding;
use super::ignition::{File, Ignition};
use super::machine_config::MachineConfig;
use super::schema::Item;
use super::text::Text;
use crate::base::paths;

/// Returns the text of the MachineConfig in a served config; `None` if it has none.
///
/// # Errors
/// The file exists but cannot be decoded.
pub(super) fn machine_config(config: &Value) -> Result<Option<String>, Finding> {
    let Some((index, file)) = find_carrier(config) else {
        return Ok(None);
    };
    let at = format!("storage.files[{index}].contents");
    let text = |key: &str| {
        file["contents"][key]
            .as_str()
            .filter(|text| !text.is_empty())
    };
    let source = text("source").map(|text| Text::from(text.to_owned()));
    let bytes = Contents::new(source, text("compression"))
        .and_then(|contents| contents.bytes())
        .map_err(|error| Finding::error(&at, error.to_string()))?;
    let decoded = String::from_utf8(bytes);
    decoded
        .map(Some)
        .map_err(|_| Finding::error(&at, "the MachineConfig inside is not UTF-8 text"))
}

/// Returns true if a config, or the outline of one, contains a MachineConfig.
pub(super) fn has_machine_config(config: &impl Item) -> bool {
    find_carrier(config).is_some()
}

fn find_carrier<V: Item>(config: &V) -> Option<(usize, &V)> {
    let files = config.field("storage")?.field("files")?;
    let wanted = format!("/{}", paths::MCS_CONTENT);
    let is_carrier = |file: &V| file.field("path").and_then(V::text) == Some(&wanted);
    let mut files = files.items().iter().enumerate();
    files.find(|(_, file)| is_carrier(file))
}

/// Returns the files of the served config that are not in the MachineConfig: the server's additions.
pub(super) fn first_boot_additions(served: &Ignition, config: &MachineConfig) -> Vec<File> {
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
