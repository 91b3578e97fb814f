//! journalctl: what a unit said in the boot before this one.

use std::time::Duration;

use super::{CommandError, CommandLine, CommandRunner};

/// Why the staged deployment was not finalized when the system went down: the daemon shows the same line
/// (mcd-contract 5.1, `ostree-finalize-staged-failure`).
pub fn finalize_failure(runner: &dyn CommandRunner) -> Result<Option<String>, CommandError> {
    let answer = runner.run(&finalize_log())?;
    Ok(first_error(&answer.stdout))
}

fn finalize_log() -> CommandLine {
    let args = [
        "-b",
        "-1",
        "-u",
        "ostree-finalize-staged.service",
        "-o",
        "cat",
        "--no-pager",
    ];
    CommandLine {
        program: "journalctl".into(),
        args: args.map(str::to_owned).to_vec(),
        timeout: Duration::from_secs(30),
        capabilities: &[],
    }
}

fn first_error(log: &str) -> Option<String> {
    log.lines()
        .map(str::trim)
        .find(|line| line.starts_with("error:"))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_is_told() {
        let log =
            "Finalizing staged deployment\nerror: Executing bwrap: no such file\nerror: later\n";
        assert_eq!(
            first_error(log).as_deref(),
            Some("error: Executing bwrap: no such file")
        );
        assert_eq!(first_error("Finalizing staged deployment\n"), None);
    }
}
