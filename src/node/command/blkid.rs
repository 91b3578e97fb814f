//! blkid: finds the block device with a label.

use std::time::Duration;

use super::{CommandError, CommandLine, CommandOutput, CommandRunner};

/// Returns the devices with this label, bypassing blkid's cache.
pub fn find_labelled(runner: &dyn CommandRunner, label: &str) -> Result<Vec<String>, CommandError> {
    let answer = runner.run(&label_query(label))?;
    parse_devices(&answer)
        .ok_or_else(|| CommandError::Failed("blkid".into(), answer.stderr.trim().to_owned()))
}

/// Returns the type of the file system on a device, such as `vfat`; `None` if blkid does not know it.
pub fn file_system(
    runner: &dyn CommandRunner,
    device: &str,
) -> Result<Option<String>, CommandError> {
    let answer = runner.run(&blkid_line(&["-o", "value", "-s", "TYPE", device]))?;
    let kind = answer.stdout.trim();
    Ok((!kind.is_empty()).then(|| kind.to_owned()))
}

fn label_query(label: &str) -> CommandLine {
    blkid_line(&["-o", "device", "-t", &format!("LABEL={label}")])
}

fn blkid_line(args: &[&str]) -> CommandLine {
    let asked_anew = ["-c", "/dev/null"];
    let args = asked_anew.iter().chain(args);
    CommandLine {
        program: "blkid".into(),
        args: args.map(|arg| (*arg).to_owned()).collect(),
        timeout: Duration::from_secs(30),
        // Only root can read the devices.
        capabilities: &[],
    }
}

/// Parses the output; exit status 2 means that no device has the label.
fn parse_devices(answer: &CommandOutput) -> Option<Vec<String>> {
    match answer.status {
        Some(0) => Some(answer.stdout.lines().map(str::to_owned).collect()),
        Some(2) if answer.stderr.trim().is_empty() => Some(Vec::new()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_real_blkid_knows_no_device_of_an_odd_label() {
        match find_labelled(&crate::node::command::HostRunner, "no-such-label-anywhere") {
            Err(CommandError::Missing(_)) => {
                crate::skip::skip(crate::skip::Lacks::Setup, "blkid is not installed")
            }
            answer => assert_eq!(answer, Ok(Vec::new())),
        }
    }

    #[test]
    fn devices_come_one_a_line() {
        let answer = |status, stdout: &str, stderr: &str| CommandOutput {
            status: Some(status),
            stdout: stdout.into(),
            stderr: stderr.into(),
        };
        let two = vec!["/dev/sda1".to_owned(), "/dev/sdb".to_owned()];
        assert_eq!(
            parse_devices(&answer(0, "/dev/sda1\n/dev/sdb\n", "")),
            Some(two)
        );
        assert_eq!(parse_devices(&answer(2, "", "")), Some(Vec::new()));
        assert_eq!(parse_devices(&answer(4, "", "usage")), None);
    }
}
