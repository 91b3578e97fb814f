//! The engine of runs: everything that begins, carries out and ends a change of a node.
//!
//! A front end opens a root and requests a run with plain values; the command line is one such front end. The engine knows no
//! command-line options, prints nothing and reads no terminal: questions and messages during a run go through [`front::Front`], and
//! its results are values.
//!
//! - [`opening`] is the single beginning: it refuses what must not begin and takes the lock. Start there.
//! - [`node_change`] is the value that every function needs to change a node, [`work`] carries out a plan, and [`ending`] is the
//!   single end.
//! - [`apply`] brings the node to the state of a config, [`pivot`] changes the OS image alone, [`key`] adds an SSH key, [`fix`]
//!   cures a finding of `doctor`, and [`install`] installs or removes the program.
//! - [`fetch`] gets configs into the cache, [`cluster`] what the API and the daemon's log say, and [`change`] derives a config in
//!   place of the cluster's controllers.
//! - [`first_boot`] does the work of a boot in the initramfs, and [`complete`] that after a reboot.
//! - [`recover`] finishes or undoes an interrupted run, [`rollback`] and [`reverting`] revert finished runs.
//! - [`image`] copies an OS image out of a node, and [`render`] renders the config of a pool.
//! - [`capsule`] remembers the capsules that runs take something from, and lists a directory for a new one.
//! - [`trial`] is a change that reverts automatically unless it is confirmed.
//! - [`status`], [`handover`], [`history`], [`compared`] and [`keep`] observe a node as a whole, and change nothing.
//! - [`snapshot`] records the node's facts at the end of a run, [`events`] writes to the journal, and [`logins`] informs people who
//!   log in.
//!
//! The room comes after `diagnose`, as each run ends with a snapshot by the recorder there, and before `report`, which turns the
//! results into text. Reading and planning are in `change/session`, so that `diagnose` can use them.

pub mod front;

pub mod node_change;

pub mod events;

pub mod capsule;

pub mod first_boot_units;

pub mod snapshot;

pub mod history;

pub mod compared;

pub mod interrupted;

pub mod opening;

pub mod work;

pub mod cache;

pub mod reverting;

pub mod trial;

pub mod ending;

pub mod logins;

pub mod recover;

pub mod cluster;

pub mod fetch;

pub mod apply;

pub mod pivot;

pub mod key;

pub mod install;

pub mod fix;

pub mod status;

pub mod change;
pub mod change_proof;

pub mod handover;

pub mod keep;

pub mod first_boot;

pub mod complete;

pub mod image;

pub mod render;

pub mod kept_runs;

pub mod rollback;

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "files of a test, not of a node")]
mod tests;
