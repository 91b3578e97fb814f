//! rpm: which files the packages own.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{CommandError, CommandLine, CommandOutput, CommandRunner};
use crate::root::RootPath;

/// So many files are asked about at once: opening the database takes longer than any answer.
const AT_ONCE: usize = 256;
/// What is printed for each package that owns a file.
const OWNED: &str = "owned";

/// Asks the package database of the running system which of these files belong to a package (mcd-contract 6.4).
///
/// # Errors
/// rpm is missing, or does not answer for one of them.
pub fn owned(
    runner: &dyn CommandRunner,
    paths: &[&RootPath],
) -> Result<BTreeMap<RootPath, bool>, CommandError> {
    let mut all = BTreeMap::new();
    for some in paths.chunks(AT_ONCE) {
        let answer = runner.run(&question(some))?;
        match read_all(&answer.stdout, some) {
            Some(answers) => all.extend(answers),
            // One that is gone meanwhile, or an rpm that speaks another way.
            None => {
                for path in some {
                    all.insert((*path).clone(), owns(runner, path)?);
                }
            }
        }
    }
    Ok(all)
}

fn owns(runner: &dyn CommandRunner, path: &RootPath) -> Result<bool, CommandError> {
    let answer = runner.run(&query(path))?;
    read(&answer).ok_or_else(|| CommandError::Failed("rpm".into(), answer.stderr.trim().to_owned()))
}

fn question(paths: &[&RootPath]) -> CommandLine {
    let mut args = vec!["-qf".to_owned(), "--qf".to_owned(), format!("{OWNED}\\n")];
    args.extend(paths.iter().map(ToString::to_string));
    CommandLine {
        program: "rpm".into(),
        args,
        timeout: Duration::from_secs(60),
        capabilities: &[],
    }
}

/// Who is not named as nobody's is somebody's; `None` where there are fewer answers than that.
fn read_all(stdout: &str, paths: &[&RootPath]) -> Option<BTreeMap<RootPath, bool>> {
    let nobodys = |line: &str| {
        let path = line.strip_prefix("file ")?;
        let path = path.strip_suffix(" is not owned by any package")?;
        Some(path.to_owned())
    };
    let nobodys: BTreeSet<String> = stdout.lines().filter_map(nobodys).collect();
    let answers: BTreeMap<RootPath, bool> = paths
        .iter()
        .map(|path| ((*path).clone(), !nobodys.contains(&path.to_string())))
        .collect();
    let owned = answers.values().filter(|owned| **owned).count();
    let said = stdout.lines().filter(|line| *line == OWNED).count();
    (said >= owned).then_some(answers)
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
    fn many_files_are_one_question_to_the_real_rpm() {
        let paths = ["/etc/hostname", "/etc/passwd"].map(|path| RootPath::parse(path).unwrap());
        let paths: Vec<&RootPath> = paths.iter().collect();
        let answer = match crate::command::HostRunner.run(&question(&paths)) {
            Err(CommandError::Missing(_)) => return eprintln!("SKIP: rpm is not installed"),
            answer => answer.unwrap(),
        };
        // Debian's rpm has an empty database.
        let wanted = paths.iter().map(|path| ((*path).clone(), false));
        assert_eq!(read_all(&answer.stdout, &paths), Some(wanted.collect()));
    }

    #[test]
    fn an_answer_that_is_missing_is_not_taken_for_one() {
        let paths = ["/a", "/b"].map(|path| RootPath::parse(path).unwrap());
        let paths: Vec<&RootPath> = paths.iter().collect();
        let read = |stdout: &str| {
            let answers = read_all(stdout, &paths)?;
            Some(answers.into_values().collect::<Vec<_>>())
        };
        let nobodys = "file /a is not owned by any package\n";
        assert_eq!(read(&format!("{nobodys}owned\n")), Some(vec![false, true]));
        // Two packages may own a file.
        assert_eq!(
            read(&format!("{nobodys}owned\nowned\n")),
            Some(vec![false, true])
        );
        assert_eq!(read(nobodys), None);
        assert_eq!(read("owned\n"), None);
        assert_eq!(read(""), None);
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
