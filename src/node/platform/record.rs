//! The parts of the daemon's record of the current config that matter for a crossing.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::NextConfig;
use crate::base::kargs::Kargs;
use crate::base::paths;
use crate::host::root::{Root, RootPath};

/// The requests of the recorded config; empty if the record is missing or unreadable.
#[derive(Debug, Clone, Default)]
pub struct RecordedConfig {
    /// Its kernel arguments.
    pub kernel_arguments: Kargs,
    /// Kernel arguments of the recorded config if a new one replaces it; otherwise equal to `kernel_arguments`.
    pub old_arguments: Kargs,
    /// Paths of its files.
    pub files: BTreeSet<String>,
    /// Version of the release that created it, such as `4.18.3`; empty if unknown.
    pub release: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Config {
    metadata: Metadata,
    spec: Spec,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Metadata {
    annotations: Annotations,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Annotations {
    #[serde(rename = "machineconfiguration.openshift.io/release-image-version")]
    release: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    kernel_arguments: Option<Vec<String>>,
    config: Ignition,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Ignition {
    storage: Storage,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Storage {
    files: Option<Vec<File>>,
}

#[derive(Deserialize)]
struct File {
    path: String,
}

impl RecordedConfig {
    /// Reads the record of a root.
    pub(super) fn observe(root: &Root) -> Self {
        let path = RootPath::fixed(paths::CURRENT_CONFIG);
        let bytes = root.read(&path).ok().flatten().unwrap_or_default();
        let config: Config = serde_json::from_slice(&bytes).unwrap_or_default();
        let arguments = config.spec.kernel_arguments.unwrap_or_default();
        let files = config.spec.config.storage.files.unwrap_or_default();
        let kernel_arguments = Kargs::from_entries(&arguments);
        Self {
            old_arguments: kernel_arguments.clone(),
            kernel_arguments,
            files: files.into_iter().map(|file| file.path).collect(),
            release: config.metadata.annotations.release.unwrap_or_default(),
        }
    }

    /// Returns the requests of a new config; the release is kept.
    pub(super) fn replace(self, next: NextConfig<'_>) -> Self {
        let files = next.desired.files.iter();
        Self {
            old_arguments: self.old_arguments,
            kernel_arguments: Kargs::from_entries(&next.config.kernel_arguments),
            files: files.map(|file| file.path.to_string()).collect(),
            release: self.release,
        }
    }
}
