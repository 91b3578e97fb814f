//! From a config to a changed node.
//!
//! A config passes through these modules once: [`source`] selects it, [`plan`] computes the steps and the blockers,
//! [`transaction`] carries out all of the steps or none, and [`staging`] stages the operating system. Start with
//! [`session::Session`]: what every command gathers about the root, its config and the node, and the plan that is made of that.
//!
//! - [`capsule`] verifies the signed list of what is on a medium, and [`image`] takes an OS image from another node; [`source`] and
//!   [`staging`] use them.
//! - A [`trial`] reverts the change automatically unless it is confirmed, by a person or by [`probes`]. These three modules judge;
//!   `run/trial` acts.
//! - [`workloads`] stops kubelet and pods for a run, and [`install`] puts the program and its units on a node.
//!
//! Only `transaction/disk/` changes a file system, in the whole program. A run needs the guard that `transaction::acquire_lock`
//! returns. Its only caller is `run::opening::Opening`, with which every command that takes the lock of a node begins.

pub mod capsule;

pub mod image;

pub mod source;

pub mod probes;

pub mod plan;

pub mod transaction;

pub mod workloads;

pub mod staging;

pub mod trial;

pub mod install;

pub mod session;
