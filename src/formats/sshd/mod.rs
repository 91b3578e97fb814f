//! The settings of sshd, as sshd reads them: files with `Include` and `Match` in, values for one user out. Pure.
//!
//! The rules are those of `servconf.c`, `auth.c` and `auth2-pubkey.c` of OpenSSH; `tests/commands/sshd.rs` compares them with a
//! real sshd. Settings that depend on the connection, such as `Match Address`, have no certain value here.

mod config;
mod keywords;
mod user;
mod words;

pub use config::{ConfigFiles, SshdConfig, SshdLine};
pub use user::{Certainty, LoginObstacle, SshdUser};
pub use words::matches_pattern;

/// The main file of settings.
pub const CONFIG: &str = "/etc/ssh/sshd_config";
