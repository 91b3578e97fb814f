//! Judgements on a config and a node. They change nothing.
//!
//! - [`drift`] compares a config with a node. The differences have the order and the words of the Machine Config Daemon. Begin
//!   there.
//! - [`daemon`] says what the daemon of this release does next: policies, annotations, forecast.
//! - [`crossing`] says if the node can run another OS image; one file for each check.
//! - [`accounts`] resolves users and groups of bare Ignition configs.

pub mod accounts;

pub mod drift;

pub mod daemon;

pub mod crossing;
