//! Cures that consist only of file changes: `doctor --fix` shows the changes as a plan and makes them in the usual transaction.
//!
//! Values only. A check attaches changes if they are certain and safe, and if its finding is gone afterwards; `plan/fix.rs`
//! turns them into steps. A fix never changes what a config contains: that is the task of `apply`.

use serde::Serialize;

pub use crate::change::plan::FixChange;

/// The cure of a finding.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Fix {
    /// The command that carries it out; filled in by [`super::run_checks`].
    pub command: String,
    /// The changes, in order.
    pub changes: Vec<FixChange>,
    /// The commands that are still needed after the changes, in order.
    pub then: Vec<String>,
}
