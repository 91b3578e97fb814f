//! The Machine Config Daemon as a set of rules: what it will do, told from values (mcd-contract).
//!
//! Pure: nothing here reads a disk, asks a program or knows the time.

pub mod outline;
pub mod release;
pub mod start;
