//! Applies, verifies and repairs a rendered MachineConfig on a node, without the cluster network.
//!
//! The rooms (top-level modules) are listed in layer order: each uses only those listed above it in this file, and a submodule only
//! those listed above it in its parent's `mod.rs`. `tests/layers.rs` reads these files and fails on a dependency in the other
//! direction. From top to bottom, the list also follows the data: a document becomes a plan, the plan a transaction, and the
//! command line prints the result.

#[cfg(test)]
#[allow(
    clippy::disallowed_methods,
    dead_code,
    reason = "shared with the tests of the program, in part for those alone"
)]
#[path = "../tests/support/skip.rs"]
mod skip;

pub mod base;

pub mod host;

pub mod formats;

pub mod config;

pub mod node;

pub mod judge;

pub mod change;

pub mod diagnose;

pub mod run;

pub mod rehearse;

pub mod report;

pub mod cli;
