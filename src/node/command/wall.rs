//! wall of util-linux: a message on the terminals of all logins.

use std::time::Duration;

use super::{CommandError, CommandLine, CommandRunner};
use crate::host::sys::privileges::Capability;

/// Writes a message to the terminals of all logins. The message is only an aid, so a failure is logged and not reported.
pub fn write_to_terminals(runner: &dyn CommandRunner, message: &str) {
    match runner.run(&wall_line(message)) {
        Ok(output) if output.status == Some(0) => {}
        Ok(output) => log::info!("wall: {}", output.stderr.trim()),
        Err(CommandError::Missing(_)) => {
            log::info!("wall is not installed, so no message went to the terminals");
        }
        Err(error) => log::info!("{error}"),
    }
}

/// Returns the command line. The message is an argument, because programs started here have no standard input.
fn wall_line(message: &str) -> CommandLine {
    CommandLine {
        program: "wall".into(),
        args: vec!["--".to_owned(), message.to_owned()],
        timeout: Duration::from_secs(20),
        // The terminals belong to their users, and the setgid bit of the program has no effect here.
        capabilities: &[Capability::CAP_DAC_OVERRIDE],
    }
}
