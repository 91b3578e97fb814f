//! What is wrong with a node, and what changed on it.
//!
//! - [`doctor`] has one file for each failure seen in the field. Start there.
//! - [`recorder`] keeps snapshots of a node's facts and compares two of them.
//! - [`fleet`] compares many nodes by their documents.
//! - [`keep`] finds the manual changes that a MachineConfig can contain.
//! - [`first_boot`] reads what Ignition left at the first boot.

pub mod first_boot;

pub mod recorder;

pub mod doctor;

pub mod fleet;

pub mod keep;
