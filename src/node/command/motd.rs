//! Removes the text shown at login after a while. A systemd timer does it, because none of our processes lives that long.

use std::time::Duration;

use super::{CommandError, CommandLine, CommandRunner};
use crate::host::sys::runtime;

/// Timer and service that remove the text.
const UNIT: &str = "mco-rescue-motd";
/// Time limit for one call to systemd.
const QUICK: Duration = Duration::from_secs(30);

/// Schedules the removal of the text of [`runtime::announce_at_login`]. Replaces an earlier schedule.
///
/// # Errors
/// systemd is missing or reports an error. The text then stays until the next boot.
pub fn withdraw_after(runner: &dyn CommandRunner, time: Duration) -> Result<(), CommandError> {
    let stop = [
        "stop",
        "--quiet",
        "mco-rescue-motd.timer",
        "mco-rescue-motd.service",
    ];
    // These units exist only after another trial during the same boot.
    runner.run(&command_line("systemctl", &stop)).map(drop)?;
    let answer = runner.run(&removal_line(time))?;
    match answer.status {
        Some(0) => Ok(()),
        _ => Err(CommandError::Failed(
            "systemd-run".into(),
            answer.stderr.trim().to_owned(),
        )),
    }
}

fn removal_line(time: Duration) -> CommandLine {
    let unit = format!("--unit={UNIT}");
    let after = format!("--on-active={}", time.as_secs());
    let path = runtime::announcement_path();
    command_line(
        "systemd-run",
        &[
            "--quiet",
            "--collect",
            &unit,
            &after,
            "--timer-property=AccuracySec=1min",
            // Otherwise systemd-run waits for the boot to finish, while the boot waits for it.
            "--timer-property=DefaultDependencies=no",
            "rm",
            "-f",
            &path,
        ],
    )
}

fn command_line(program: &str, args: &[&str]) -> CommandLine {
    CommandLine::new(program, args, QUICK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_text_is_removed() {
        let line = removal_line(Duration::from_secs(86_400));
        assert_eq!(line.program, "systemd-run");
        let words = line.args.join(" ");
        assert!(words.contains("--on-active=86400 "), "{words}");
        assert!(
            words.ends_with("rm -f /run/motd.d/60-mco-rescue"),
            "{words}"
        );
    }
}
