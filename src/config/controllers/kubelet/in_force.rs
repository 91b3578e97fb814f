//! Signs that a rendered config already contains a KubeletConfig; the base values that it replaced are then unknown.

use serde_json::Value;

use super::base;
use super::fields::KUBELET;
use super::files::{LOG_LEVEL, NODE_SIZING};

/// The start of a file that a controller wrote; the templates use another form.
const WRITTEN: &str = "data:text/plain;charset=utf-8;base64,";

/// Values that the templates of all versions and platforms set.
const USUAL: [(&str, &[&str]); 10] = [
    ("maxPods", &["250"]),
    ("podPidsLimit", &["4096"]),
    ("containerLogMaxSize", &["50Mi"]),
    ("kubeAPIQPS", &["50"]),
    ("kubeAPIBurst", &["100"]),
    ("serializeImagePulls", &["false"]),
    ("nodeStatusReportFrequency", &["5m0s"]),
    // Two nodes with fencing.
    ("shutdownGracePeriod", &["0s", "1m30s"]),
    ("shutdownGracePeriodCriticalPods", &["0s", "1m0s"]),
    ("systemReserved", &["{\"ephemeral-storage\":\"1Gi\"}"]),
];

/// Fields that the templates set, apart from those with a usual value and those that are in every file.
const OF_TEMPLATES: [&str; 20] = [
    "apiVersion",
    "cgroupDriver",
    "cgroupRoot",
    "clusterDNS",
    "clusterDomain",
    "enableSystemLogQuery",
    "enforceNodeAllocatable",
    "failSwapOn",
    "featureGates",
    "kind",
    "nodeStatusUpdateFrequency",
    "protectKernelDefaults",
    "rotateCertificates",
    "serverTLSBootstrap",
    "staticPodPath",
    "systemCgroups",
    "systemReservedCgroup",
    "tlsCipherSuites",
    "tlsMinVersion",
    "volumePluginDir",
];

/// Returns the signs as words for a sentence; empty if the rendered config looks like the base.
pub(super) fn find_signs(config: &Value) -> Vec<String> {
    let files = config
        .pointer("/spec/config/storage/files")
        .and_then(Value::as_array);
    let written = |path: &str| {
        let mut all = files.into_iter().flatten();
        let file = all.find(|file| file.get("path").and_then(Value::as_str) == Some(path));
        let source = file.and_then(|file| file.pointer("/contents/source")?.as_str());
        source.is_some_and(|source| source.starts_with(WRITTEN))
    };
    let paths = [NODE_SIZING, LOG_LEVEL]
        .into_iter()
        .filter(|path| written(path));
    let mut signs: Vec<String> = paths
        .map(|path| format!("a controller wrote {path}"))
        .collect();
    let Some(fields) = base::of_rendered(config) else {
        return signs;
    };
    for (name, value) in &fields {
        let shown = match value {
            Value::String(text) => text.clone(),
            _ => value.to_string(),
        };
        let usual = USUAL.iter().find(|(known, _)| known == name);
        let is_usual = match usual {
            Some((_, values)) => values.contains(&shown.as_str()),
            None => OF_TEMPLATES.contains(&name.as_str()) || is_untouched(name, value),
        };
        if !is_usual {
            signs.push(match value {
                Value::Array(_) | Value::Object(_) => format!("{name} is set"),
                _ => format!("{name} is {shown}"),
            });
        }
    }
    signs
}

/// Returns true for an empty field that is in every file.
fn is_untouched(name: &str, value: &Value) -> bool {
    let is_always = KUBELET
        .find_field(name)
        .is_some_and(super::fields::KubeletField::is_always);
    // Structs contain values of the templates, such as the client CA.
    is_always && (value.is_object() || [Value::from("0s"), Value::from("")].contains(value))
}
