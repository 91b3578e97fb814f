//! The machine that the program runs on: its kernel, its files, its network.
//!
//! Everything that leaves the process goes through here, with three exceptions: [`crate::node::command`] starts programs,
//! [`crate::node::mounts`] changes mounts, and `change/transaction/disk/` changes file systems. So this module only reads files,
//! with these exceptions: `sys/runtime.rs` writes files of one boot below `/run`, and Ignition's config in an initramfs;
//! [`running`] writes settings of the kernel and to devices.
//!
//! - [`root`] opens every path of a node, below one root and never outside it. Start there if a link is followed wrongly.
//! - [`running`] reads the kernel's interfaces (`/proc`, `/sys`, cgroups) and markers of the current boot; [`caller`] opens
//!   paths given by the user.
//! - [`net`] fetches a URL, with limits on time and size.
//! - [`sys`] deals with the process: signals, locks, memory, capabilities, threads, the journal.
//! - [`progress`] draws on a terminal.
//! - [`sealed`] and [`state_file`] read the program's own state, and detect damage and other versions.

pub mod running;

pub mod caller;

pub mod sys;

pub mod progress;

pub mod root;

pub mod sealed;

pub mod state_file;

pub mod net;
