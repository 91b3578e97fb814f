//! The parts of the daemon's record of the current config that matter for a crossing.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::{NextConfig, Seen};
use crate::base::kargs::Kargs;
use crate::base::paths;
use crate::base::reason::Reason;
use crate::host::root::{Root, RootPath};

/// The requests of the recorded config; empty if the record is missing.
#[derive(Debug, Clone)]
pub struct RecordedConfig {
    /// Its kernel arguments.
    pub kernel_arguments: Seen<Kargs>,
    /// Kernel arguments of the recorded config if a new one replaces it; otherwise equal to `kernel_arguments`.
    pub old_arguments: Seen<Kargs>,
    /// Paths of its files, to name the next step; also empty if the record cannot be read.
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
        let (config, unread) = match read_config(root) {
            Ok(config) => (config, None),
            Err(why) => (Config::default(), Some(why)),
        };
        let arguments = config.spec.kernel_arguments.unwrap_or_default();
        let arguments = unread.map_or_else(|| Ok(Kargs::from_entries(&arguments)), Err);
        let files = config.spec.config.storage.files.unwrap_or_default();
        Self {
            old_arguments: arguments.clone(),
            kernel_arguments: arguments,
            files: files.into_iter().map(|file| file.path).collect(),
            release: config.metadata.annotations.release.unwrap_or_default(),
        }
    }

    /// Returns true if it asks for a kernel argument; false if the record cannot be read, after which the arguments of the next boot
    /// are unknown as well.
    pub fn asks_for(&self, token: &str) -> bool {
        let arguments = self.kernel_arguments.as_ref();
        arguments.is_ok_and(|arguments| arguments.tokens().iter().any(|one| one == token))
    }

    /// Returns the requests of a new config; the release is kept.
    pub(super) fn replace_config(self, next: NextConfig<'_>) -> Self {
        let files = next.desired.files.iter();
        Self {
            old_arguments: self.old_arguments,
            kernel_arguments: Ok(Kargs::from_entries(&next.config.kernel_arguments)),
            files: files.map(|file| file.path.to_string()).collect(),
            release: self.release,
        }
    }
}

fn read_config(root: &Root) -> Seen<Config> {
    let read = root.read(&RootPath::fixed(paths::CURRENT_CONFIG));
    match read.map_err(Reason::from_error)? {
        None => Ok(Config::default()),
        Some(bytes) => serde_json::from_slice(&bytes)
            .map_err(|error| format!("/{}: {error}", paths::CURRENT_CONFIG).into()),
    }
}
