//! From a config to a changed node.
//!
//! A config goes through this room once: [`source`] chooses it, [`plan`] makes the steps and the blockers, [`transaction`]
//! carries them out, all or none, and [`staging`] stages the operating system. A [`trial`] takes the change back by itself
//! unless it is confirmed, by a person or by [`probes`].
//!
//! `transaction/disk.rs` is the only file of the program that changes a file system, and the guard that
//! `transaction::acquire_lock` returns is the only way to begin.

pub mod source;

pub mod probes;

pub mod plan;

pub mod transaction;

pub mod staging;

pub mod trial;

pub mod install;
