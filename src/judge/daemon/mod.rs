//! Decisions of the Machine Config Daemon: on a step from one config to another (whether it is accepted, which changes count,
//! the actions after the files, and the drain; docs/develop/agreement.md: Transitions, Update, Actions), and on a node at its start
//! (docs/develop/agreement.md: Start, Validation).
//!
//! Pure: values in, values out. Other modules carry the actions out.

pub mod actions;
pub mod annotations;
pub mod complaints;
pub mod first_boot;
pub mod forecast;
pub mod handover;
pub mod midway;
pub mod pod_log;
pub mod policies;
pub mod registries;
pub mod release;
pub mod start;
pub mod update;

pub use actions::{Action, ActionCause, Queued, default_policies, laid_over_defaults};
pub use update::{Update, decide_allowing, decide_taken};
