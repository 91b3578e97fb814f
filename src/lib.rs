//! Applies, verifies and repairs a rendered MachineConfig on a node, without the cluster network.
//!
//! The modules stand in the order of their layers: a module uses only modules that stand above it in this file.
//! `tests/layers.rs` reads this file and fails on an arrow upwards. Read downwards, the list is also the way of the
//! data: a document becomes a plan, the plan a transaction, and the command line prints the result.

// Values, without any effect.

pub mod error;

pub mod reason;

pub mod text;

pub mod time;

pub mod notice;

pub mod object;

pub mod paths;

pub mod kargs;

pub mod go_quote;

pub mod go_json;

pub mod go_yaml;

pub mod secrets;

pub mod ssh_key;

pub mod age;

pub mod owned;

pub mod invocation;

// The process and the kernel; progress on a terminal.

pub mod sys;

pub mod progress;

// The edges that read: paths of a root, labels, the network.

pub mod root;

pub mod sealed;

pub mod state_file;

pub mod labels;

pub mod net;

// Pure: bytes in, values out.

pub mod systemd;

pub mod document;

pub mod checkpoint;

pub mod render;

pub mod butane;

pub mod controllers;

pub mod etcd_data;

pub mod ovsdb;

pub mod sshd;

pub mod grub;

// The edge that starts programs, and the evidence on a node.

pub mod command;

pub mod images;

pub mod node;

pub mod mounts;

// Judgements: differences from a config, and what the daemon will do.

pub mod accounts;

pub mod drift;

pub mod daemon;

pub mod crossing;

// From a config to a changed node.

pub mod source;

pub mod probes;

pub mod plan;

pub mod transaction;

pub mod staging;

pub mod trial;

// Commands, and their output.

pub mod first_boot;

pub mod install;

pub mod recorder;

pub mod doctor;

pub mod fleet;

pub mod keep;

pub mod report;

pub mod cli;
