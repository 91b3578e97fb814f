//! A config that refers to others, and how one is merged over another (docs/develop/ignition.md: Validation, Merging).
//!
//! Values only: `source` decides what is fetched, in which order, and within which limits.

use std::fmt;

use serde_json::Value;

use super::finding::Finding;
use super::ignition::{Meta, Resource};
use super::merge::{self, ConfigSection};

/// A checked Ignition config of any version, converted to the newest form.
#[derive(Clone)]
pub struct ConfigLayer {
    section: ConfigSection,
    minor: u64,
    /// Warnings for the user; their paths refer to the config's own document.
    pub warnings: Vec<Finding>,
}

/// The references from a config to others.
#[derive(Debug, Clone, Default)]
pub struct ConfigReferences {
    /// The config that replaces this one.
    pub replace: Option<Resource>,
    /// The configs that are merged into it, in order.
    pub merge: Vec<Resource>,
}

impl fmt::Debug for ConfigLayer {
    // The contents may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Layer(3.{})", self.minor)
    }
}

impl ConfigLayer {
    /// Creates a layer from a checked config of spec 3.`minor` at the path `at` of its document.
    ///
    /// # Errors
    /// A value has the wrong type.
    pub fn new(
        config: &Value,
        minor: u64,
        at: &str,
        warnings: Vec<Finding>,
    ) -> Result<Self, Finding> {
        let mut section = merge::read_section(config, minor, at)?;
        if minor < 6 {
            without_special_bits(&mut section);
        }
        Ok(Self {
            section,
            minor,
            warnings,
        })
    }

    /// Returns the references. A `replace` without a source is ignored; one with an empty source fails later.
    pub fn references(&self) -> ConfigReferences {
        let config = self.ignition_section().config;
        let replace = Some(config.replace).filter(|resource| resource.source.is_some());
        ConfigReferences {
            replace,
            merge: config.merge.to_vec(),
        }
    }

    /// Returns the `ignition` section: time limits, authorities and proxies for fetching.
    pub fn ignition_section(&self) -> Meta {
        let meta = self.section.get("ignition").cloned();
        meta.and_then(|meta| serde_json::from_value(meta).ok())
            .unwrap_or_default()
    }

    /// Merges `child` over this config. Warnings stay with their own documents.
    #[must_use]
    pub fn merged_with(&self, child: &Self) -> Self {
        Self {
            section: merge::merge_sections(&self.section, &child.section),
            minor: self.minor.max(child.minor),
            warnings: self.warnings.clone(),
        }
    }

    /// Returns the config as a separate document, without references.
    pub fn to_document(&self) -> String {
        let mut section = self.section.clone();
        let version = format!("3.{}.0", self.minor);
        if let Some(meta) = section.get_mut("ignition").and_then(Value::as_object_mut) {
            meta.remove("config");
            meta.insert("version".into(), version.into());
        }
        Value::Object(section).to_string()
    }
}

/// Removes the special bits of modes. They have no effect before spec 3.6 (docs/develop/ignition.md: Validation), and merging a newer
/// config over an older one must not revive them.
fn without_special_bits(section: &mut ConfigSection) {
    let storage = section.get_mut("storage").and_then(Value::as_object_mut);
    let Some(storage) = storage else { return };
    for list in ["files", "directories"] {
        let nodes = storage.get_mut(list).and_then(Value::as_array_mut);
        for node in nodes.into_iter().flatten() {
            if let Some(mode) = node.get_mut("mode")
                && let Some(bits) = mode.as_i64()
            {
                *mode = (bits & 0o777).into();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn layer(value: Value) -> ConfigLayer {
        let version = value["ignition"]["version"].as_str().unwrap();
        let minor = version.split('.').nth(1).unwrap().parse().unwrap();
        ConfigLayer::new(&value, minor, "", Vec::new()).unwrap()
    }

    #[test]
    fn the_newest_version_wins_and_old_special_bits_stay_off() {
        let file = |path: &str| json!({"path": path, "mode": 0o4755});
        let parent = layer(
            json!({"ignition": {"version": "3.2.0"}, "storage": {"files": [file("/a"), file("/b")]}}),
        );
        let child =
            layer(json!({"ignition": {"version": "3.6.0"}, "storage": {"files": [file("/b")]}}));
        let merged: Value =
            serde_json::from_str(&parent.merged_with(&child).to_document()).unwrap();
        let wanted = json!({
            "ignition": {"version": "3.6.0"},
            "storage": {"files": [{"path": "/a", "mode": 0o755}, {"path": "/b", "mode": 0o4755}]},
        });
        assert_eq!(merged, wanted);
    }

    #[test]
    fn references_leave_the_text_and_stay_readable() {
        let config = json!({"ignition": {"version": "3.1.0", "config": {
            "merge": [{"source": "data:,a"}], "replace": {}}}});
        let layer = layer(config);
        assert_eq!(layer.to_document(), r#"{"ignition":{"version":"3.1.0"}}"#);
        let references = layer.references();
        assert!(references.replace.is_none());
        assert_eq!(references.merge.len(), 1);
    }
}
