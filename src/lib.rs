//! Applies, verifies and repairs a rendered MachineConfig on a node, without the cluster network.
//!
//! The rooms stand in the order of their layers: a room uses only rooms that stand above it in this file, and a module only
//! modules that stand above it in the `mod.rs` of its room. `tests/layers.rs` reads these files and fails on an arrow
//! upwards. Read downwards, the list is also the way of the data: a document becomes a plan, the plan a transaction, and the
//! command line prints the result.

#[cfg(test)]
#[allow(dead_code, reason = "in part for the tests of the program")]
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

pub mod report;

pub mod cli;
