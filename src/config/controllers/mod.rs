//! The operator's other controllers, offline: the MachineConfigs that they generate from API objects (docs/reference/controllers.md).
//!
//! Objects in, MachineConfigs out; no I/O. The entry is [`generate_configs`]. Each controller has its own module: `registries`
//! (mirrors, blocked registries, image policies), `credentials` (CRIOCredentialProviderConfig), `kubelet` (KubeletConfig),
//! `runtime` (ContainerRuntimeConfig), `node_config` (latency profile, cgroups), `os_stream` (the images of OSImageStream).

pub mod cluster;
mod credentials;
pub mod derive;
pub mod generated;
mod known_fields;
pub mod kubelet;
mod latency;
mod nearest;
pub mod node_config;
pub mod objects;
mod os_stream;
pub mod quantity;
pub mod registries;
pub mod runtime;
mod suffix;
mod toml_text;

use std::fmt;

use serde_json::Value;

pub use cluster::{Base, Cluster, ConfigPool};
pub use generated::{GeneratedConfig, GeneratedFile};
pub use objects::{ApiObject, read_objects};

/// The refusal of an object by a controller.
#[derive(Debug, Clone)]
pub struct ObjectRefusal {
    /// Kind and name of the object, such as `KubeletConfig small`.
    pub object: String,
    /// File and place of the defect, such as `limits.yaml: spec.logLevel (line 9)`.
    pub place: String,
    /// The controller's own message, without the prefix `Error: `.
    pub message: String,
    /// The next step, in this program's words.
    pub advice: String,
}

/// A fact that the admin should know, but that does not stop anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Kind and name of the object; empty for a note about all.
    pub object: String,
    /// One or two sentences.
    pub text: String,
    /// Because of it, the name or the contents of the rendered config may differ from the cluster's.
    pub inexact: bool,
}

impl Note {
    /// Creates a note that leaves the rendered config certain.
    pub fn exact(object: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            object: object.into(),
            text: text.into(),
            inexact: false,
        }
    }

    /// Creates a note because of which the rendered config may differ from the cluster's.
    pub fn inexact(object: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            inexact: true,
            ..Self::exact(object, text)
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.object.as_str() {
            "" => f.write_str(&self.text),
            object => write!(f, "{object}: {}", self.text),
        }
    }
}

/// The result of the controllers.
#[derive(Debug, Clone, Default)]
pub struct Generation {
    /// New MachineConfigs, or replacements for the one with the same name.
    pub configs: Vec<GeneratedConfig>,
    /// Names of MachineConfigs that the controllers delete.
    pub deleted: Vec<String>,
    /// MachineConfigs of the templates that change (`01-ROLE-kubelet` with a TLS profile), as whole objects.
    pub changed_parts: Vec<Value>,
    /// The refused objects. Nothing is generated from them.
    pub refusals: Vec<ObjectRefusal>,
    /// Notes.
    pub notes: Vec<Note>,
}

/// Runs every controller on the objects of a cluster, in the operator's order: registries, credentials, runtime, kubelet, node.
pub fn generate_configs(cluster: &Cluster) -> Generation {
    let mut generation = Generation::default();
    known_fields::sync_known_fields(cluster, &mut generation);
    registries::sync_registries(cluster, &mut generation);
    credentials::sync_credentials(cluster, &mut generation);
    runtime::sync_runtime(cluster, &mut generation);
    kubelet::sync_kubelet(cluster, &mut generation);
    node_config::sync_node_config(cluster, &mut generation);
    generation
}

/// Returns an object with the fields of a newer one merged in, recursively; lists are replaced.
pub fn with_fields(object: &Value, newer: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (object, newer) else {
        return newer.clone();
    };
    let mut merged = old.clone();
    for (name, value) in new {
        let value = match old.get(name) {
            Some(before) => with_fields(before, value),
            None => value.clone(),
        };
        merged.insert(name.clone(), value);
    }
    merged.into()
}

/// Returns true for the kinds that the registries controller reads.
pub fn is_of_registries(kind: &str) -> bool {
    [
        "Image",
        "ImageContentSourcePolicy",
        "ImageDigestMirrorSet",
        "ImageTagMirrorSet",
    ]
    .contains(&kind)
        || ["ClusterImagePolicy", "ImagePolicy"].contains(&kind)
}

/// Returns the effect on the node if an object that was applied on the node is never given to the API. `kind` is the object's
/// kind.
pub fn if_forgotten(kind: &str) -> &'static str {
    match kind {
        "MachineConfig" => {
            "the cluster's next rendered config lacks this MachineConfig, and the node reverts to the old files"
        }
        "KubeletConfig" => {
            "the KubeletConfig controller writes kubelet.conf without it, and the node reboots into the old limits"
        }
        "ContainerRuntimeConfig" => {
            "the ContainerRuntimeConfig controller makes no file of it, and the node reboots into the old options"
        }
        "CRIOCredentialProviderConfig" => {
            "the controller gives the kubelet CRI-O's credential provider without it, and the kubelet is restarted"
        }
        "MachineConfigPool" | "OSImageStream" => {
            "the operator renders the pool from the object in the API, with its OS image, and the node reboots into that"
        }
        "Node" | "APIServer" | "FeatureGate" => {
            "the controllers write kubelet.conf from the object in the API, and the node reboots into it"
        }
        _ => {
            "the controllers write registries.conf and policy.json without it, and the node's pods pull from the old places"
        }
    }
}

/// Returns true if a label selector of the API (`matchLabels`, `matchExpressions`) selects these labels. A missing or empty
/// selector selects nothing, as in the operator's controllers.
pub fn selects_labels(
    selector: Option<&Value>,
    labels: &std::collections::BTreeMap<String, String>,
) -> bool {
    let Some(selector) = selector else {
        return false;
    };
    let equal = selector.get("matchLabels").and_then(Value::as_object);
    let expressions = selector.get("matchExpressions").and_then(Value::as_array);
    if equal.is_none_or(|all| all.is_empty()) && expressions.is_none_or(Vec::is_empty) {
        return false;
    }
    let has_equal =
        |(key, value): (&String, &Value)| labels.get(key).map(String::as_str) == value.as_str();
    let meets = |expression: &Value| {
        let text = |key: &str| expression.get(key).and_then(Value::as_str);
        let found = text("key").and_then(|key| labels.get(key));
        let values = expression.get("values").and_then(Value::as_array);
        let listed = found.is_some_and(|found| {
            values.is_some_and(|all| all.iter().any(|value| value.as_str() == Some(found)))
        });
        match text("operator") {
            Some("In") => listed,
            Some("NotIn") => !listed,
            Some("Exists") => found.is_some(),
            Some("DoesNotExist") => found.is_none(),
            _ => false,
        }
    };
    equal.into_iter().flatten().all(has_equal) && expressions.into_iter().flatten().all(meets)
}
