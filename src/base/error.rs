//! Exit codes, and which error leads to which.
//!
//! Typed errors are defined next to the code that returns them; this module only translates an error into an exit code.
//! Without an error, the file of a command in `cli/` chooses the code, and `run/ending.rs` that of a change.

use std::process::ExitCode as ProcessExitCode;
use std::sync::atomic::{AtomicU8, Ordering};

/// The exit code of a run. Documented in README and `--help`; scripts rely on the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitCode {
    /// Done. For `verify`: no differences; for `plan`: `apply` would not refuse.
    Done = 0,
    /// An error; nothing on the node was changed.
    Error = 1,
    /// The command line is wrong.
    Usage = 2,
    /// Differences were found; for `doctor`: a warning, but nothing critical.
    Drift = 3,
    /// The run failed halfway and was undone.
    RolledBack = 4,
    /// The command stopped halfway: its message names the command to continue with, usually `mco-rescue recover`.
    Incomplete = 5,
    /// `doctor` found something critical.
    Critical = 6,
}

impl From<ExitCode> for ProcessExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code as u8)
    }
}

/// An error that determines the exit code; every other error is [`ExitCode::Error`].
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The transaction failed and was undone; the tree is as before.
    #[error("{0}; everything was restored, the node is as it was before")]
    RolledBack(String),
    /// Something was left unfinished.
    #[error("{0}")]
    Incomplete(String),
    /// The answer to the question was no.
    #[error("Not confirmed. Nothing was changed.")]
    Declined,
}

/// Returns true if the user declined the change: that is an answer, not an error.
pub fn is_declined(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(RunError::Declined))
}

/// What a command has changed so far. A later value contains the earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Changed {
    /// Something that precedes it: an interrupted run was finished, or the units for the boot were installed.
    Before = 1,
    /// Part of what the command was asked to do is in place.
    Part = 2,
}

/// What this process has changed so far.
static CHANGED: AtomicU8 = AtomicU8::new(0);

/// Records that something was changed: a later error must not say that nothing was.
pub fn note_changed(changed: Changed) {
    CHANGED.fetch_max(changed as u8, Ordering::Relaxed);
}

fn has_changed(changed: Changed) -> bool {
    CHANGED.load(Ordering::Relaxed) >= changed as u8
}

/// Returns the exit code for an error that reached `main`.
pub fn exit_code(error: &anyhow::Error) -> ExitCode {
    exit_code_after(error, has_changed(Changed::Part))
}

fn exit_code_after(error: &anyhow::Error, has_changed_part: bool) -> ExitCode {
    match error.downcast_ref::<RunError>() {
        Some(RunError::RolledBack(_)) => ExitCode::RolledBack,
        Some(RunError::Incomplete(_)) => ExitCode::Incomplete,
        Some(RunError::Declined) | None if has_changed_part => ExitCode::Incomplete,
        Some(RunError::Declined) | None => ExitCode::Error,
    }
}

/// Returns the text of an error that reached `main`, adapted to what the command had changed before.
pub fn error_words(error: &anyhow::Error) -> String {
    let said = format!("{error:#}");
    if has_changed(Changed::Before) {
        said.replace("othing was changed", "othing else was changed")
            .replace(
                "the node is as it was before",
                "the node is as it was before this run",
            )
    } else {
        said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typed_errors_choose_their_exit_code_through_context() {
        let error = anyhow::Error::new(RunError::Incomplete("x".into())).context("applying a");
        assert_eq!(exit_code_after(&error, false), ExitCode::Incomplete);
        let plain = anyhow::anyhow!("plain");
        assert_eq!(exit_code_after(&plain, false), ExitCode::Error);
        assert_eq!(exit_code_after(&plain, true), ExitCode::Incomplete);
    }
}
