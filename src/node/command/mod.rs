//! Runs other programs.
//!
//! Each submodule builds the argument vectors of one program and parses its output with pure functions. Policy and retries are
//! decided elsewhere.

pub mod blkid;
pub mod bootc;
pub mod config_test;
pub mod crictl;
pub mod engine;
pub mod guard_unit;
mod host;
pub mod ignition;
pub mod ip;
pub mod job;
pub mod journalctl;
pub mod motd;
pub mod network_manager;
pub mod origin;
pub mod ostree;
pub mod pager;
pub mod rehearsal_unit;
pub mod rpm;
pub mod rpm_ostree;
pub mod shadow;
pub mod ssh_keygen;
pub mod systemctl;
pub mod wall;

use std::time::Duration;

use crate::host::sys::privileges::Capability;

pub use host::{HostRunner, TerminalCommand, become_init};

/// A program with its arguments and time limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine {
    /// Program name, looked up in the system directories only.
    pub program: String,
    /// Arguments.
    pub args: Vec<String>,
    /// Time limit, after which the program is killed.
    pub timeout: Duration,
    /// Capabilities that the program keeps; most programs need none.
    pub capabilities: &'static [Capability],
}

impl CommandLine {
    /// Creates the command line of a program that keeps no capability.
    pub fn new(
        program: impl Into<String>,
        args: impl IntoIterator<Item = impl ToString>,
        timeout: Duration,
    ) -> Self {
        Self {
            program: program.into(),
            args: args.into_iter().map(|arg| arg.to_string()).collect(),
            timeout,
            capabilities: &[],
        }
    }

    /// Sets the capabilities that the program keeps.
    #[must_use]
    pub fn with_capabilities(mut self, capabilities: &'static [Capability]) -> Self {
        self.capabilities = capabilities;
        self
    }
}

/// The result of a program that ran to its end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandOutput {
    /// Exit status; `None` when a signal ended it.
    pub status: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// The last KiB of standard error.
    pub stderr: String,
}

/// The reason why a program gave no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// The program is not installed.
    #[error("{0} is not installed")]
    Missing(String),
    /// The program failed or could not be started: its name and the reason.
    #[error("running {0}: {1}")]
    Failed(String, String),
    /// The program was killed at its time limit: its name and the limit in seconds.
    #[error("{0} gave no answer within {1} s and was killed")]
    TimedOut(String, u64),
    /// This run was asked to stop, so the program was killed.
    #[error("{0} was ended because this run was")]
    Interrupted(String),
}

/// Runs programs: on the host, or scripted in a test.
pub trait CommandRunner {
    /// Runs a program until it exits.
    ///
    /// # Errors
    /// The program is missing, cannot be started, or takes too long.
    fn run(&self, command: &CommandLine) -> Result<CommandOutput, CommandError>;

    /// Runs a program until it exits or `ended` returns true.
    ///
    /// # Errors
    /// As for [`Self::run`]; [`CommandError::Interrupted`] if `ended` returned true.
    fn run_until(
        &self,
        command: &CommandLine,
        ended: &dyn Fn() -> bool,
    ) -> Result<CommandOutput, CommandError> {
        let _ = ended;
        self.run(command)
    }
}
