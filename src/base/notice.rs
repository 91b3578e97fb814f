//! A notice: a subject and a message for the user.

use serde::{Deserialize, Serialize};

/// Something that the user has to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// A JSON path, a node path or a unit.
    pub subject: String,
    /// What it is, and what to do next.
    pub message: String,
}
