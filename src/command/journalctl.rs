//! journalctl: the database of the texts that `journalctl -x` shows.

use std::time::Duration;

use super::{CommandLine, CommandRunner};

/// Lets journalctl read the catalogue files again. The texts are only a help, so a failure is logged and not reported.
pub fn update_catalogue(runner: &dyn CommandRunner) {
    let line = CommandLine {
        program: "journalctl".into(),
        args: vec!["--update-catalog".to_owned()],
        timeout: Duration::from_secs(60),
        capabilities: &[],
    };
    match runner.run(&line) {
        Ok(output) if output.status == Some(0) => {}
        Ok(output) => log::info!("journalctl --update-catalog: {}", output.stderr.trim()),
        Err(error) => log::info!("{error}"),
    }
}
