//! The common form of all MachineConfigs of the operator's controllers.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value, json};

/// The annotation with the operator's version.
pub const GENERATED_BY: &str = "machineconfiguration.openshift.io/generated-by-controller-version";
/// The label of the role.
pub const ROLE: &str = "machineconfiguration.openshift.io/role";

/// One file of a generated MachineConfig. Its mode is always 0644, and its owner is root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GeneratedFile {
    /// Absolute path.
    pub path: String,
    /// Its bytes.
    pub contents: Vec<u8>,
}

impl GeneratedFile {
    /// Creates a file with this text.
    pub fn new(path: impl Into<String>, contents: impl Into<Vec<u8>>) -> Self {
        Self {
            path: path.into(),
            contents: contents.into(),
        }
    }

    /// Returns the file's entry in `storage.files`, with keys in the operator's order.
    pub fn entry(&self) -> Value {
        json!({
            "overwrite": true,
            "path": self.path,
            "contents": data_contents(&self.contents),
            "mode": 420,
        })
    }
}

/// Returns the `contents` of a file in the controllers' form.
pub fn data_contents(bytes: &[u8]) -> Value {
    let data = BASE64_STANDARD.encode(bytes);
    json!({
        "compression": "",
        "source": format!("data:text/plain;charset=utf-8;base64,{data}"),
    })
}

/// A MachineConfig that a controller generates.
#[derive(Debug, Clone, Default)]
pub struct GeneratedConfig {
    /// Its name, such as `99-worker-generated-registries`.
    pub name: String,
    /// The pool in its label.
    pub pool: String,
    /// Its files, in the order in which the controller writes them.
    pub files: Vec<GeneratedFile>,
    /// Its kernel arguments.
    pub kernel_arguments: Option<Vec<String>>,
    /// `metadata.ownerReferences`.
    pub owners: Vec<Value>,
}

impl GeneratedConfig {
    /// Returns the object. `operator` is the version (git hash) of the running operator. Without it the annotation is left out,
    /// because a wrong one stops the render controller.
    pub fn object(&self, operator: Option<&str>) -> Value {
        let mut metadata = Map::new();
        metadata.insert("name".to_owned(), self.name.as_str().into());
        metadata.insert("labels".to_owned(), json!({ ROLE: self.pool }));
        if let Some(version) = operator {
            metadata.insert("annotations".to_owned(), json!({ GENERATED_BY: version }));
        }
        if !self.owners.is_empty() {
            metadata.insert("ownerReferences".to_owned(), self.owners.clone().into());
        }
        let mut config = json!({"ignition": {"version": "3.5.0"}});
        if !self.files.is_empty() {
            let entries: Vec<Value> = self.files.iter().map(GeneratedFile::entry).collect();
            config["storage"] = json!({ "files": entries });
        }
        json!({
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineConfig",
            "metadata": metadata,
            "spec": {
                "osImageURL": "",
                "baseOSExtensionsContainerImage": "",
                "config": config,
                "kernelArguments": self.kernel_arguments,
                "extensions": null,
                "fips": false,
                "kernelType": "",
            },
        })
    }
}
