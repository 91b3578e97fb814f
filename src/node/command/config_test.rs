//! Programs that test their own configuration: `sshd -t`, `visudo -c`, `chronyd -p`.

use std::time::Duration;

use super::{CommandError, CommandLine, CommandRunner};

/// A program that tests its configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigTest {
    /// `sshd -t`.
    Sshd,
    /// `visudo -c`.
    Visudo,
    /// `chronyd -p`, which prints its configuration and ends.
    Chronyd,
}

impl ConfigTest {
    /// Returns the program with its arguments.
    pub fn words(self) -> [&'static str; 2] {
        match self {
            Self::Sshd => ["sshd", "-t"],
            Self::Visudo => ["visudo", "-c"],
            Self::Chronyd => ["chronyd", "-p"],
        }
    }

    /// Runs the test and returns the line that describes the error; `None` if there is no error, or if the program is missing,
    /// cannot tell, or fails for an unrelated reason such as missing keys.
    pub fn find_fault(self, runner: &dyn CommandRunner) -> Option<String> {
        let [program, option] = self.words();
        let line = CommandLine::new(program, [option], Duration::from_secs(5));
        let answer = match runner.run(&line) {
            Ok(answer) => answer,
            Err(CommandError::Missing(_)) => return None,
            Err(error) => {
                log::info!("testing a configuration: {error}");
                return None;
            }
        };
        if answer.status == Some(0) {
            return None;
        }
        let mut lines = answer.stderr.lines().chain(answer.stdout.lines());
        let found = lines.find(|line| self.is_fault(line))?;
        Some(found.trim().to_owned())
    }

    /// Returns true for a line that describes a configuration error and its place.
    fn is_fault(self, line: &str) -> bool {
        match self {
            Self::Sshd => line
                .split_once(" line ")
                .is_some_and(|(_, rest)| rest.starts_with(|c: char| c.is_ascii_digit())),
            Self::Visudo => line.contains("syntax error") || line.contains("parse error"),
            Self::Chronyd => line.contains("Fatal error") && line.contains(" at line "),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ConfigTest;

    /// Lines of OpenSSH 9.2, sudo 1.9.13 and chrony 4.3.
    #[test]
    fn a_fault_is_a_line_with_its_place() {
        for (test, line, is_fault) in [
            (
                ConfigTest::Sshd,
                "/etc/ssh/sshd_config line 2: unsupported option \"maybee\".",
                true,
            ),
            (
                ConfigTest::Sshd,
                "sshd: no hostkeys available -- exiting.",
                false,
            ),
            (
                ConfigTest::Sshd,
                "Privilege separation user sshd does not exist",
                false,
            ),
            (
                ConfigTest::Visudo,
                "/etc/sudoers.d/x:1:15: syntax error",
                true,
            ),
            (
                ConfigTest::Visudo,
                "/etc/sudoers.d/x: bad permissions, should be mode 0440",
                false,
            ),
            (
                ConfigTest::Chronyd,
                "2026-11-23T09:19:24Z Fatal error : Invalid directive at line 2 in file /etc/chrony.conf",
                true,
            ),
            (
                ConfigTest::Chronyd,
                "2026-11-23T09:19:24Z Fatal error : Could not open /etc/chrony.conf : No such file or directory",
                false,
            ),
        ] {
            assert_eq!(test.is_fault(line), is_fault, "{line}");
        }
    }
}
