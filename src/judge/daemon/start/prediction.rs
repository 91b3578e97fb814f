//! The outcome of the daemon's start.

use serde::Serialize;

/// The state that the daemon sets for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Everything is as desired.
    Done,
    /// It reports an error and retries forever.
    Degraded,
    /// It was asked for a change that it never makes.
    Unreconcilable,
    /// It starts an update to another config or image; the node reboots.
    Working,
    /// The known facts do not determine the state.
    Unknown,
}

/// An update that starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StartUpdate {
    /// Name of the old config.
    pub from: String,
    /// Name of the new config.
    pub to: String,
}

/// An object that the API must have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StartNeed {
    /// Name of the MachineConfig.
    pub machine_config: String,
    /// The message with which the daemon is Degraded while the object is missing.
    pub otherwise: String,
}

/// A renamed file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Renamed {
    /// Absolute path before.
    pub from: String,
    /// Absolute path afterwards.
    pub to: String,
}

/// The daemon's behaviour at its start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Prediction {
    /// The last state that it sets during its start.
    pub state: State,
    /// Its message, word for word.
    pub error: Option<String>,
    /// The update that starts.
    pub update: Option<StartUpdate>,
    /// The image that it first rebases to on a first boot.
    pub pivot: Option<String>,
    /// Whether it requests a drain; `None` if that depends on unknown facts.
    pub drain: Option<bool>,
    /// Whether it reboots the node; `None` if that depends on unknown facts.
    pub reboot: Option<bool>,
    /// The config in `currentconfig` afterwards; `None` if the file is missing or unreadable.
    pub record_after: Option<String>,
    /// `node-annotations.json` exists afterwards.
    pub node_annotations_after: bool,
    /// The force file exists afterwards.
    pub force_file_after: bool,
    /// Files that it renames.
    pub renamed: Vec<Renamed>,
    /// Objects that the API must have for this outcome.
    pub needs: Vec<StartNeed>,
    /// The reasons, and other facts for the reader.
    pub because: Vec<String>,
}
