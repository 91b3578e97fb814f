//! Proves that the objects of a change make its config.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

use super::change::replay_change;
use crate::change::source::changes::{KeptChange, KeptChanges};
use crate::config::controllers::cluster::file_of;
use crate::config::document::MachineConfig;

/// Returns a sentence about everything that a change has and its objects do not carry; `None` if the cluster makes the same files,
/// units and settings of them.
pub(super) fn describe_gap(
    changes: &KeptChanges,
    change: &KeptChange,
    kept: &[MachineConfig],
) -> Option<String> {
    let gap = match compare_replay(changes, change, kept) {
        Ok(gap) if gap.is_empty() => return None,
        Ok(gap) => format!(
            "Not carried by these objects: {}. The cluster's config differs from that of this node there, until the cluster's \
             own objects say the same.",
            gap.join(", ")
        ),
        Err(error) => format!(
            "It is not known whether these objects make {}: {error:#}.",
            change.config
        ),
    };
    Some(gap)
}

/// Returns the parts of the change's config that its objects do not make of the first config.
fn compare_replay(
    changes: &KeptChanges,
    change: &KeptChange,
    kept: &[MachineConfig],
) -> Result<Vec<String>> {
    let find = |name: &str| {
        let found = kept.iter().find(|config| config.name == name);
        found.with_context(|| format!("{name} is not on this node"))
    };
    let wanted = find(&change.config)?;
    let made = replay_change(find(changes.start_of(change))?, &change.objects)?;
    let wanted: Value = serde_json::from_str(&wanted.record).context("reading the config")?;
    let (wanted, made) = (parts_of(&wanted), parts_of(&made));
    let names = wanted
        .keys()
        .chain(made.keys().filter(|name| !wanted.contains_key(*name)));
    let differs = |name: &&String| wanted.get(*name) != made.get(*name);
    Ok(names.filter(differs).cloned().collect())
}

/// Returns the files, the units and the other settings of a rendered config.
fn parts_of(config: &Value) -> BTreeMap<String, Vec<u8>> {
    let mut parts = BTreeMap::new();
    let list = |pointer: &str| config.pointer(pointer).and_then(Value::as_array);
    let text = |value: &Value, key: &str| value.get(key)?.as_str().map(str::to_owned);
    for file in list("/spec/config/storage/files").into_iter().flatten() {
        if let Some(path) = text(file, "path") {
            // What cannot be decoded is compared as it is.
            let contents = file_of(config, &path);
            let mut contents = contents.unwrap_or_else(|| file.to_string().into_bytes());
            contents.extend(
                format!(
                    "{:?}",
                    (file.get("mode"), file.get("user"), file.get("group"))
                )
                .bytes(),
            );
            parts.insert(path, contents);
        }
    }
    for unit in list("/spec/config/systemd/units").into_iter().flatten() {
        if let Some(name) = text(unit, "name") {
            parts.insert(name, unit.to_string().into_bytes());
        }
    }
    let users = config.pointer("/spec/config/passwd").map(Value::to_string);
    parts.extend(users.map(|users| ("passwd".to_owned(), users.into_bytes())));
    let settings = config.get("spec").and_then(Value::as_object);
    for (name, value) in settings.into_iter().flatten() {
        if name != "config" {
            parts.insert(name.clone(), value.to_string().into_bytes());
        }
    }
    parts
}
