//! Applies, verifies and repairs a rendered MachineConfig on a node, without the cluster network.
//!
//! The modules stand in the order in which data flows: a document becomes a plan, the plan a
//! transaction, and the same comparison says before and after what differs.

pub mod accounts;
pub mod awaited;
pub mod boot;
pub mod cli;
pub mod daemon;
pub mod doctor;
pub mod document;
pub mod drift;
pub mod install;
pub mod node;
pub mod plan;
pub mod render;
pub mod report;
pub mod source;
pub mod transaction;

pub mod command;
pub mod error;
pub mod go_quote;
pub mod images;
pub mod invocation;
pub mod kargs;
pub mod labels;
pub mod limits;
pub mod memory;
pub mod mounts;
pub mod net;
pub mod object;
pub mod owned;
pub mod parallel;
pub mod paths;
pub mod privileges;
pub mod progress;
pub mod root;
pub mod runtime;
pub mod sealed;
pub mod signals;
pub mod ssh_key;
pub mod systemd;
