//! journalctl: the errors of a unit, and the catalogue of the texts that `journalctl -x` shows.

use std::time::Duration;

use super::{CommandError, CommandLine, CommandOutput, CommandRunner};

/// Makes journalctl reread the catalogue files. The texts are only an aid, so a failure is logged and not reported.
pub fn update_catalogue(runner: &dyn CommandRunner) {
    let line = CommandLine::new("journalctl", ["--update-catalog"], Duration::from_secs(60));
    match runner.run(&line) {
        Ok(output) if output.status == Some(0) => {}
        Ok(output) => log::info!("journalctl --update-catalog: {}", output.stderr.trim()),
        Err(error) => log::info!("{error}"),
    }
}

/// Returns what the programs of a unit wrote since a time (seconds since 1970): their error lines, or the last line if there
/// are none.
///
/// # Errors
/// journalctl is missing, or gives no answer.
pub fn errors_of_unit(
    runner: &dyn CommandRunner,
    unit: &str,
    since: u64,
) -> Result<String, CommandError> {
    let line =
        |args: &[String]| CommandLine::new("journalctl", args.to_vec(), Duration::from_secs(60));
    // The last lines may not have reached the journal yet.
    if let Err(error) = runner.run(&line(&["--sync".to_owned()])) {
        log::info!("{error}");
    }
    let of_unit = format!("_SYSTEMD_UNIT={unit}");
    let fixed = ["--no-pager", "-b", "-o", "cat", "-n", "200"].map(str::to_owned);
    let which = [format!("--since=@{since}"), of_unit];
    match runner.run(&line(&[&fixed[..], &which].concat()))? {
        CommandOutput {
            status: Some(0),
            stdout,
            ..
        } => Ok(errors_in(&stdout)),
        answer => Err(CommandError::Failed(
            "journalctl".to_owned(),
            answer.stderr.trim().to_owned(),
        )),
    }
}

fn errors_in(log: &str) -> String {
    let is_error = |line: &&str| line.to_ascii_lowercase().starts_with("error");
    let errors: Vec<&str> = log.lines().filter(is_error).collect();
    if errors.is_empty() {
        let mut said = log.lines().map(str::trim).filter(|line| !line.is_empty());
        said.next_back().unwrap_or_default().to_owned()
    } else {
        errors.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_found_among_progress() {
        let log = "Switching from image a to b\nError: parsing reference\nStarting syncfs for system repo\nerror: Switching: x\n";
        assert_eq!(
            errors_in(log),
            "Error: parsing reference\nerror: Switching: x"
        );
        assert_eq!(errors_in("one\ntwo\n"), "two");
        assert_eq!(errors_in(""), "");
    }
}
