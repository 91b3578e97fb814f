//! The machine that the program runs on: its kernel, its files, its network.
//!
//! Everything that leaves the process goes through here, but for two things: [`crate::node::command`] starts programs, and
//! `change/transaction/disk.rs` changes a file system. So this room reads only.
//!
//! - [`root`] opens every path of a node, below one root and never outside it. Begin there if a link is followed wrongly.
//! - [`running`] reads the kernel's interfaces (`/proc`, `/sys`, cgroups) and markers of the running boot; [`caller`] opens paths
//!   that the user named.
//! - [`net`] fetches one URL within bounds.
//! - [`sys`] is the process: signals, locks, memory, capabilities, threads, the journal.
//! - [`progress`] draws on a terminal.
//! - [`sealed`] and [`state_file`] read the program's own state, and say if it is damaged or of another version.

pub mod running;

pub mod caller;

pub mod sys;

pub mod progress;

pub mod root;

pub mod sealed;

pub mod state_file;

pub mod net;
