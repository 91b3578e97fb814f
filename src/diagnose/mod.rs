//! What is wrong with a node, and what changed on it.
//!
//! Evidence is gathered from a root and from query commands, and judged. Only [`recorder`] writes, and only its own snapshots.
//!
//! - [`doctor`] has one file for each failure seen in the field, and judges the evidence that `doctor/gather` collects. Start there.
//! - [`recorder`] keeps snapshots of a node's facts and compares two of them.
//! - [`fleet`] compares many nodes by their documents.
//! - [`keep`] finds the manual changes that a MachineConfig can contain.
//! - [`first_boot`] decides what a boot in the initramfs does, from the kernel arguments and the facts about the root.

pub mod first_boot;

pub mod recorder;

pub mod doctor;

pub mod fleet;

pub mod keep;
