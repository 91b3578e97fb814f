//! `--try`: a change that is reverted automatically unless it is confirmed (docs/explanation/trial.md).
//!
//! The command that makes the change stores the trial, starts the guard outside of its login, makes the change, and then only
//! watches: that is [`running`]. [`guard`] decides at the end of the time limit, [`boot`] during a boot, and [`confirm`] before
//! that.

mod announce;
pub mod boot;
mod boot_loader;
mod checkpoint;
pub mod confirm;
pub mod guard;
pub mod guards;
pub mod notice;
mod revert;
pub mod running;
