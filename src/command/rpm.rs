//! rpm: whether a package owns a file.

use std::time::Duration;

use super::{CommandError, CommandLine, CommandOutput, CommandRunner};
use crate::root::RootPath;

/// Asks the package database of the running system (mcd-contract 6.4).
pub fn owns(runner: &dyn CommandRunner, path: &RootPath) -> Result<bool, CommandError> {
    let answer = runner.run(&query(path))?;
    read(&answer).ok_or_else(|| CommandError::Failed("rpm".into(), answer.stderr.trim().to_owned()))
}

/// Whether a package is installed, as the daemon asks (mcd-contract 8.5).
pub fn has(runner: &dyn CommandRunner, package: &str) -> Result<bool, CommandError> {
    let answer = runner.run(&CommandLine {
        program: "rpm".into(),
        args: vec!["-q".to_owned(), package.to_owned()],
        timeout: Duration::from_secs(30),
        capabilities: &[],
    })?;
    match answer.status {
        Some(0) => Ok(true),
        Some(1) => Ok(false),
        _ => Err(CommandError::Failed(
            "rpm".into(),
            answer.stderr.trim().to_owned(),
        )),
    }
}

fn query(path: &RootPath) -> CommandLine {
    let args = vec!["-qf".to_owned(), path.to_string()];
    CommandLine {
        program: "rpm".into(),
        args,
        timeout: Duration::from_secs(30),
        capabilities: &[],
    }
}

/// `None` where rpm itself failed.
fn read(answer: &CommandOutput) -> Option<bool> {
    match answer.status {
        Some(0) => Some(true),
        Some(_)
            if format!("{}{}", answer.stdout, answer.stderr)
                .contains("is not owned by any package") =>
        {
            Some(false)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_real_rpm_says_that_it_does_not_own_a_file_of_ours() {
        let path = RootPath::parse("/etc/hostname").unwrap();
        match owns(&crate::command::HostRunner, &path) {
            Err(CommandError::Missing(_)) => eprintln!("SKIP: rpm is not installed"),
            // Debian's rpm has an empty database.
            answer => assert_eq!(answer, Ok(false)),
        }
    }

    #[test]
    fn the_three_answers_are_told_apart() {
        let answer = |status, stdout: &str| CommandOutput {
            status: Some(status),
            stdout: stdout.into(),
            stderr: String::new(),
        };
        assert_eq!(read(&answer(0, "chrony-4.5-1.el9.x86_64\n")), Some(true));
        assert_eq!(
            read(&answer(1, "file /etc/a is not owned by any package\n")),
            Some(false)
        );
        assert_eq!(read(&answer(1, "error: rpmdb open failed\n")), None);
    }
}
