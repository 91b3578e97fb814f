//! What the Machine Config Daemon decides: about a step from one config to another (whether it takes it, what counts
//! as changed, what it does after the files, and whether it drains first; docs/agreement.md: Transitions, Update, Actions), and about a node
//! that it finds when it starts (5.2, 5.3).
//!
//! Pure: values in, values out. Who carries anything out is elsewhere.

pub mod actions;
pub mod annotations;
pub mod forecast;
pub mod handover;
pub mod midway;
pub mod pod_log;
pub mod policies;
pub mod registries;
pub mod release;
pub mod start;
pub mod update;

pub use actions::{Action, Cause, Queued, Unknown, default_policies, laid_over_defaults};
pub use update::{
    Diff, FirstBoot, FirstBootAction, Update, decide, decide_allowing, decide_taken, first_boot,
};
