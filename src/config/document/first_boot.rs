//! The files that the Machine Config Server adds to a rendered config for the first boot (docs/develop/agreement.md: Server).

use std::fmt::Write;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde_json::{Value, json};

use super::decode::decode_ignition;
use super::finding::Finding;
use super::machine_config::MachineConfig;
use super::served;
use crate::base::paths;

/// Characters that the server leaves unescaped in sources, apart from letters and digits.
const RAW: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'!')
    .remove(b'~')
    .remove(b'*')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')');

/// Returns the Ignition config that the server would serve for a MachineConfig, without the bootstrap kubeconfig and the
/// certificates, which only the cluster has (docs/develop/agreement.md: Server).
///
/// # Errors
/// The Ignition part is not of spec 3, in which the first-boot files are written.
pub fn serve_config(config: &MachineConfig) -> Result<String, Finding> {
    let unreadable = |e: serde_json::Error| Finding::error("spec.config", e.to_string());
    let mut object: Value = serde_json::from_str(&config.record).map_err(unreadable)?;
    let part = object.pointer("/spec/config").cloned().unwrap_or_default();
    let version = part.pointer("/ignition/version").and_then(Value::as_str);
    let Some(version) = version
        .filter(|version| version.starts_with("3."))
        .map(str::to_owned)
    else {
        return Err(Finding::error(
            "spec.config.ignition.version",
            "only a config of spec 3 can be given the files of a first boot",
        ));
    };
    let content = indented_json(&object).map_err(unreadable)?;
    object["spec"]["config"] = json!({"ignition": {"version": version}});
    let encapsulated = serde_json::to_string(&object).map_err(unreadable)?;
    let added = [
        (paths::NODE_ANNOTATIONS, node_annotations(&config.name)),
        (paths::MCS_CONTENT, content),
        (paths::ENCAPSULATED, encapsulated),
    ];
    let mut served = part;
    let files = served["storage"]["files"].take();
    let mut files = files.as_array().cloned().unwrap_or_default();
    files.extend(added.map(|(path, text)| data_url_file(path, &text)));
    served["storage"]["files"] = Value::Array(files);
    serde_json::to_string(&served).map_err(unreadable)
}

/// Adds the first-boot files to the additions of a config, unless the server has added some.
///
/// # Errors
/// As for [`serve_config`].
pub fn with_first_boot_files(mut config: MachineConfig) -> Result<MachineConfig, Vec<Finding>> {
    if config.bare || !config.additions.is_empty() {
        return Ok(config);
    }
    let text = serve_config(&config).map_err(|finding| vec![finding])?;
    let decoded = decode_ignition(&text, "")?;
    config.additions = served::first_boot_additions(&decoded.config, &config);
    Ok(config)
}

fn node_annotations(name: &str) -> String {
    let all = json!({
        "machineconfiguration.openshift.io/currentConfig": name,
        "machineconfiguration.openshift.io/desiredConfig": name,
        "machineconfiguration.openshift.io/firstPivotConfig": name,
        "machineconfiguration.openshift.io/state": "Done",
    });
    all.to_string()
}

fn data_url_file(path: &str, text: &str) -> Value {
    let mut source = "data:,".to_owned();
    // Writing to a string cannot fail.
    let _ = write!(source, "{}", utf8_percent_encode(text, RAW));
    json!({"path": format!("/{path}"), "mode": 0o644, "overwrite": true, "contents": {"source": source}})
}

fn indented_json(object: &Value) -> serde_json::Result<String> {
    let mut text = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut text, formatter);
    object.serialize(&mut serializer)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::document;

    const CONFIG: &str = r#"{"metadata":{"name":"rendered-worker-1"},"spec":{"osImageURL":"registry/os@sha256:1",
        "config":{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/etc/a","mode":384,
        "contents":{"source":"data:,a"}}]}}}}"#;

    #[test]
    fn what_is_served_leads_back_to_the_config_with_the_first_boot_files() {
        let config = document::parse_document(CONFIG.as_bytes(), "test").unwrap();
        let again =
            document::parse_document(serve_config(&config).unwrap().as_bytes(), "served").unwrap();
        assert_eq!(again.name, config.name);
        assert_eq!(again.os_image_url, config.os_image_url);
        assert_eq!(again.ignition.storage.files.len(), 1);
        let added: Vec<&str> = again
            .additions
            .iter()
            .map(|file| file.path.as_str())
            .collect();
        let wanted = [
            paths::NODE_ANNOTATIONS,
            paths::MCS_CONTENT,
            paths::ENCAPSULATED,
        ];
        assert_eq!(added, wanted.map(|path| format!("/{path}")));
    }

    #[test]
    fn the_encapsulated_object_has_an_empty_ignition_part() {
        let config = document::parse_document(CONFIG.as_bytes(), "test").unwrap();
        let served =
            document::parse_document(serve_config(&config).unwrap().as_bytes(), "served").unwrap();
        let file = &served.additions[2];
        let bytes = file.contents.contents().unwrap().bytes().unwrap();
        let inner = document::parse_document(bytes, "encapsulated").unwrap();
        assert!(inner.emptied);
        assert_eq!(
            (inner.name.as_str(), inner.os_image_url.as_str()),
            ("rendered-worker-1", "registry/os@sha256:1")
        );
    }
}
