//! The last run, as stored in `status.json`.

use serde::{Deserialize, Serialize};

use super::journal::{ConfigRef, VERSION};
use crate::base::notice::Notice;

/// The result of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunOutcome {
    /// Everything is in place.
    Done,
    /// It failed and was undone.
    RolledBack,
    /// It failed and needs `recover`.
    Incomplete,
    /// An interrupted run was finished.
    Recovered,
    /// An interrupted run was undone.
    Undone,
}

/// One phase of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunPhase {
    /// `plan`, `transaction`, `verify`, `recover`.
    pub name: String,
    /// Its result.
    pub result: String,
}

/// The last run, as stored in `status.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastRun {
    /// Version of this file.
    pub version: u32,
    /// Id of the transaction; empty if none began.
    pub id: String,
    /// The config.
    pub config: ConfigRef,
    /// Who ran it; `None` for a service, and for versions that did not record it.
    #[serde(default)]
    pub by: Option<String>,
    /// Seconds since 1970.
    pub started: u64,
    /// Seconds since 1970.
    pub finished: u64,
    /// Its result.
    pub outcome: RunOutcome,
    /// The phases in order.
    pub phases: Vec<RunPhase>,
    /// Number of steps.
    pub steps: usize,
    /// The message that was printed.
    pub notices: Vec<Notice>,
}

impl LastRun {
    /// The version this program writes.
    pub const VERSION: u32 = VERSION;
}
