//! Cures that are files only: `doctor --fix` shows the changes as a plan and makes them in the ordinary transaction.
//!
//! Values only. A check attaches changes where they are certain and safe, and where its finding is gone afterwards;
//! `plan/fix.rs` turns them into steps. A fix does not change what a config brings: that is the task of `apply`.

use serde::Serialize;

pub use crate::change::plan::FixChange;

/// The cure of a finding.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Fix {
    /// The command that carries it out; [`super::examine`] fills it in.
    pub command: String,
    /// The changes, in order.
    pub changes: Vec<FixChange>,
    /// The commands that are still needed after the changes, in order.
    pub then: Vec<String>,
}
