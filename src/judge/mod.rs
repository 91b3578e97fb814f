//! Judges a config and a node. Changes nothing.
//!
//! - [`drift`] compares a config with a node. The differences are in the order and the words of the Machine Config Daemon.
//!   Start there.
//! - [`daemon`] predicts what the daemon of this release does next: policies, annotations, forecast.
//! - [`crossing`] judges whether the node can run another OS image; one file per check.
//! - [`accounts`] resolves users and groups of bare Ignition configs.

pub mod accounts;

pub mod drift;

pub mod daemon;

pub mod crossing;
