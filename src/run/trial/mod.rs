//! `--try`: a change that goes back by itself unless it is confirmed (docs/explanation/trial.md).
//!
//! The command that makes the change writes the trial down, starts the guard outside of its login, makes the change, and
//! then only watches: that is [`running`]. [`guard`] decides at the end of the time, [`boot`] at a boot, [`confirm`] before.

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
