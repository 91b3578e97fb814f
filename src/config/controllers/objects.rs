//! API objects in files: single, as lists, or in several YAML documents.

use std::sync::Arc;

use serde_json::Value;

use crate::config::document::{DocumentError, Finding, not_text, yaml};

/// An API object, with its place in the file that it came from.
#[derive(Debug, Clone)]
pub struct ApiObject {
    /// `apiVersion`, such as `config.openshift.io/v1`.
    pub api_version: String,
    /// `kind`, such as `KubeletConfig`.
    pub kind: String,
    /// `metadata.name`; empty if it is missing.
    pub name: String,
    /// `metadata.namespace`.
    pub namespace: Option<String>,
    /// The whole object.
    pub value: Value,
    /// The name of the file in messages.
    pub origin: String,
    place: Place,
}

/// The place of an object in its file.
#[derive(Debug, Clone)]
struct Place {
    /// The path of the object, such as `items[2].`; empty for a separate document.
    at: String,
    /// The text of a YAML file, and the index of the object's document in it.
    text: Option<(Arc<str>, usize)>,
}

impl ApiObject {
    /// Creates an object that is not from a file. `origin` names its source in messages.
    pub fn new(value: Value, origin: &str) -> Self {
        let place = Place {
            at: String::new(),
            text: None,
        };
        Self::at_place(value, origin, place)
    }

    fn at_place(value: Value, origin: &str, place: Place) -> Self {
        let namespace = text_at(&value, "/metadata/namespace");
        Self {
            api_version: text_at(&value, "/apiVersion"),
            kind: text_at(&value, "/kind"),
            name: text_at(&value, "/metadata/name"),
            namespace: Some(namespace).filter(|name| !name.is_empty()),
            origin: origin.to_owned(),
            place,
            value,
        }
    }

    /// Returns the error with which this object is refused. `path` is a place in the object, such as `spec.logLevel`. The
    /// message names the file, and for YAML the line.
    pub fn refuse(&self, path: &str, message: impl Into<String>) -> DocumentError {
        DocumentError {
            origin: self.origin.clone(),
            findings: vec![self.locate(Finding::error(path, message))],
        }
    }

    /// Returns the finding with its place in the whole file.
    pub fn locate(&self, mut finding: Finding) -> Finding {
        finding.path = format!("{}{}", self.place.at, finding.path);
        if let Some((text, index)) = &self.place.text {
            let mut findings = [finding];
            yaml::add_lines_of(text, *index, &mut findings);
            let [located] = findings;
            return located;
        }
        finding
    }

    /// Returns the value at a JSON pointer such as `/spec/logLevel`; `None` if it is missing or `null`.
    pub fn get(&self, pointer: &str) -> Option<&Value> {
        self.value.pointer(pointer).filter(|value| !value.is_null())
    }

    /// Returns `KIND NAME`, the object's name in messages.
    pub fn title(&self) -> String {
        format!("{} {}", self.kind, self.name)
    }
}

/// Kinds that the controllers read, apart from MachineConfig.
pub const KINDS: [&str; 15] = [
    "APIServer",
    "CRIOCredentialProviderConfig",
    "ClusterImagePolicy",
    "ClusterVersion",
    "ContainerRuntimeConfig",
    "FeatureGate",
    "Image",
    "ImageContentSourcePolicy",
    "ImageDigestMirrorSet",
    "ImagePolicy",
    "ImageTagMirrorSet",
    "KubeletConfig",
    "MachineConfigPool",
    "Node",
    "OSImageStream",
];

/// API groups of the kinds that are read; a `Node` of the group `v1` is something else.
const GROUPS: [&str; 3] = [
    "config.openshift.io/",
    "machineconfiguration.openshift.io/",
    "operator.openshift.io/",
];

impl ApiObject {
    /// Returns true for an object that a controller reads.
    pub fn is_read(&self) -> bool {
        KINDS.contains(&self.kind.as_str())
            && GROUPS
                .iter()
                .any(|group| self.api_version.starts_with(group))
    }

    /// Returns true for a MachineConfig.
    pub fn is_machine_config(&self) -> bool {
        self.kind == "MachineConfig"
    }
}

/// Parses the objects in a file: JSON or YAML, single, as lists (`kind: List` and typed lists), or several YAML documents.
/// `origin` is the name of the file in messages.
///
/// # Errors
/// The text cannot be parsed, or contains values that are not API objects.
pub fn read_objects(bytes: &[u8], origin: &str) -> Result<Vec<ApiObject>, DocumentError> {
    let refused = |finding| DocumentError {
        origin: origin.to_owned(),
        findings: vec![finding],
    };
    let text =
        std::str::from_utf8(bytes).map_err(|e| refused(Finding::error("", not_text(bytes, e))))?;
    // Several JSON documents are parsed as YAML.
    let is_json = text.trim_start().starts_with('{') && !text.contains("\n---");
    let documents = if is_json {
        let value = serde_json::from_str(text)
            .map_err(|e| refused(Finding::error("", format!("not valid JSON: {e}"))))?;
        vec![(value, None)]
    } else {
        let all = yaml::parse_all(text)
            .map_err(|e| refused(Finding::error("", format!("not valid YAML: {e}"))))?;
        let text: Arc<str> = text.into();
        let with_text = |(index, (_, value))| (value, Some((Arc::clone(&text), index)));
        all.into_iter().enumerate().map(with_text).collect()
    };
    if documents.is_empty() {
        let message = "the document is empty; copy it again";
        return Err(refused(Finding::error("", message)));
    }
    let mut objects = Vec::new();
    for (value, text) in documents {
        let place = Place {
            at: String::new(),
            text,
        };
        add_objects(value, origin, place, &mut objects)?;
    }
    Ok(objects)
}

fn add_objects(
    mut value: Value,
    origin: &str,
    place: Place,
    objects: &mut Vec<ApiObject>,
) -> Result<(), DocumentError> {
    let kind = text_at(&value, "/kind");
    let is_list = kind.is_empty() || kind.ends_with("List");
    if is_list && let Some(Value::Array(items)) = value.get_mut("items").map(Value::take) {
        for (index, item) in items.into_iter().enumerate() {
            let place = Place {
                at: format!("{}items[{index}].", place.at),
                text: place.text.clone(),
            };
            add_objects(item, origin, place, objects)?;
        }
        return Ok(());
    }
    let object = ApiObject::at_place(value, origin, place);
    if object.kind.is_empty() || object.api_version.is_empty() {
        let missing = if object.kind.is_empty() {
            "kind"
        } else {
            "apiVersion"
        };
        let message =
            "missing; this is not an object of the cluster's API (`oc get -o yaml` writes one)";
        return Err(object.refuse(missing, message));
    }
    objects.push(object);
    Ok(())
}

fn text_at(value: &Value, pointer: &str) -> String {
    let text = value.pointer(pointer).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}
