//! The files generated from a KubeletConfig.

use serde_json::{Map, Value};

use super::base::{self, KubeletFields};
use super::fields::KUBELET;
use super::merge::merge_fields;
use super::tls;
use super::validate::{Invalid, Spec, different_cgroups};
use crate::config::controllers::GeneratedFile;
use crate::config::controllers::cluster::KUBELET_CONF;

/// The file with the node's reserved resources.
pub(super) const NODE_SIZING: &str = "/etc/node-sizing-enabled.env";
/// The file with the kubelet's log level.
pub(super) const LOG_LEVEL: &str = "/etc/systemd/system/kubelet.service.d/20-logging.conf";
/// Keys of `systemReserved` that are variables in [`NODE_SIZING`], in its order, with their defaults.
const RESERVED: [(&str, &str, &str); 3] = [
    ("memory", "SYSTEM_RESERVED_MEMORY", "1Gi"),
    ("cpu", "SYSTEM_RESERVED_CPU", "500m"),
    ("ephemeral-storage", "SYSTEM_RESERVED_ES", "1Gi"),
];

/// Returns the files of a KubeletConfig for a pool, and the merged configuration.
///
/// # Errors
/// The operator refuses it after the merge.
pub(super) fn make_files(
    spec: &Spec<'_>,
    mut base: KubeletFields,
) -> Result<(Vec<GeneratedFile>, KubeletFields), Invalid> {
    if let Some(profile) = spec.tls_profile {
        base::set_tls(&mut base, &tls::tls_settings(Some(profile)));
    }
    let mut own = spec.fields.clone().unwrap_or_default();
    let reserved = take_reserved(&mut own);
    own.remove("featureGates");
    if spec.raw.contains("\"protectKernelDefaults\":false") {
        base.remove("protectKernelDefaults");
    }
    clear_system_cgroup(&mut base, &own);
    merge_fields(&mut base, own, &KUBELET);
    if spec.fields.is_some() {
        reserve_cpus(&mut base);
    }
    if let Some((reserved, system)) = different_cgroups(&base) {
        return Err(Invalid::new(
            "spec.kubeletConfig.systemReservedCgroup",
            format!(
                "invalid merged configuration: systemReservedCgroup ({reserved}) must match systemCgroups ({system})"
            ),
            "set spec.kubeletConfig.systemCgroups and systemReservedCgroup to the same value",
        ));
    }
    let mut files = Vec::new();
    files.extend(node_sizing(spec.auto_sizing, &reserved));
    if let Some(level) = spec.log_level {
        let text = format!("[Service]\nEnvironment=\"KUBELET_LOG_LEVEL={level}\"\n");
        files.push(GeneratedFile::new(LOG_LEVEL, text));
    }
    files.push(GeneratedFile::new(KUBELET_CONF, base::write_fields(&base)));
    Ok((files, base))
}

/// Removes the keys of `systemReserved` that go into a separate file, and returns them.
fn take_reserved(own: &mut KubeletFields) -> Map<String, Value> {
    let mut taken = Map::new();
    if let Some(Value::Object(reserved)) = own.get_mut("systemReserved") {
        for (key, ..) in RESERVED {
            if let Some(value) = reserved.remove(key) {
                taken.insert(key.to_owned(), value);
            }
        }
    }
    taken
}

fn node_sizing(auto_sizing: Option<bool>, reserved: &Map<String, Value>) -> Option<GeneratedFile> {
    let enabled = match (auto_sizing, reserved.is_empty()) {
        (None, true) => return None,
        (Some(enabled), true) => enabled,
        (_, false) => false,
    };
    let mut text = format!("NODE_SIZING_ENABLED={enabled}\n");
    for (key, variable, default) in RESERVED {
        let value = reserved.get(key).and_then(Value::as_str);
        let value = value.filter(|value| !value.is_empty()).unwrap_or(default);
        text.push_str(&format!("{variable}={value}\n"));
    }
    Some(GeneratedFile::new(NODE_SIZING, text))
}

fn texts_at<'f>(fields: &'f KubeletFields, name: &str) -> Vec<&'f str> {
    let list = fields.get(name).and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// Clears the base's cgroup if the KubeletConfig enforces limits, but not those of the system.
fn clear_system_cgroup(base: &mut KubeletFields, own: &KubeletFields) {
    let enforced = texts_at(own, "enforceNodeAllocatable");
    let has_own = own.get("systemReservedCgroup").and_then(Value::as_str);
    let of_system =
        |name: &&str| ["system-reserved", "system-reserved-compressible"].contains(name);
    if !enforced.is_empty() && !enforced.iter().any(of_system) && has_own.is_none_or(str::is_empty)
    {
        base.remove("systemReservedCgroup");
    }
}

/// Clears limits that reserved CPUs exclude.
fn reserve_cpus(fields: &mut KubeletFields) {
    let reserved = fields.get("reservedSystemCPUs").and_then(Value::as_str);
    if reserved.is_none_or(str::is_empty) {
        return;
    }
    fields.remove("systemReservedCgroup");
    let mut enforced = texts_at(fields, "enforceNodeAllocatable");
    enforced.retain(|name| !["system-reserved", "system-reserved-compressible"].contains(name));
    if !enforced.contains(&"pods") {
        enforced.insert(0, "pods");
    }
    let enforced: Vec<Value> = enforced.into_iter().map(Value::from).collect();
    fields.insert("enforceNodeAllocatable".to_owned(), enforced.into());
}
