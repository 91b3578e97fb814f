//! `--try`: a change that is reverted automatically unless it is confirmed (docs/explanation/trial.md).
//!
//! The command that makes the change stores the trial, starts the guard outside of its login, makes the change, and then only
//! watches: that is [`running`]. [`guard`] asks `change::trial::judge_guard` every few seconds and acts on
//! it, [`boot`] asks `judge_boot` during a boot, and [`confirm`] ends the trial before that.

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
