//! rpm: finds out which files belong to packages.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{CommandError, CommandLine, CommandOutput, CommandRunner};
use crate::host::root::RootPath;
use crate::host::sys::privileges::Capability;

/// Files per query: opening the database takes longer than any query.
const AT_ONCE: usize = 256;
/// rpm itself stats each file, and home directories are closed to other users.
const LOOK: &[Capability] = &[Capability::CAP_DAC_READ_SEARCH];
/// The line that rpm prints for each package that owns a file.
const OWNED: &str = "owned";

/// The package database's answers for some files.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ownership {
    /// True for a file that a package owns. Has only the files for which rpm has an answer.
    pub owned: BTreeMap<RootPath, bool>,
    /// The files without an answer, each with its reason.
    pub unanswered: Vec<(RootPath, CommandError)>,
}

/// Asks the package database of the running system which of these files belong to a package (docs/develop/agreement.md: Originals). A
/// file on which rpm fails does not affect the answers for the others.
///
/// # Errors
/// rpm is missing.
pub fn query_owned(
    runner: &dyn CommandRunner,
    paths: &[&RootPath],
) -> Result<Ownership, CommandError> {
    let mut all = Ownership::default();
    for some in paths.chunks(AT_ONCE) {
        all.ask_all(runner, some)?;
    }
    Ok(all)
}

impl Ownership {
    /// Asks about all paths at once, and bisects them if an answer is missing.
    fn ask_all(
        &mut self,
        runner: &dyn CommandRunner,
        paths: &[&RootPath],
    ) -> Result<(), CommandError> {
        if let [path] = paths {
            return self.ask_one(runner, path);
        }
        match runner.run(&owners_query(paths)) {
            Ok(answer) => {
                if let Some(answers) = parse_all_owned(&answer, paths) {
                    self.owned.extend(answers);
                    return Ok(());
                }
            }
            // rpm does not work at all: asking about each path would multiply the wait by their number.
            Err(error) => return self.no_answer(paths, &error),
        }
        let (first, second) = paths.split_at(paths.len() / 2);
        self.ask_all(runner, first)?;
        self.ask_all(runner, second)
    }

    fn ask_one(&mut self, runner: &dyn CommandRunner, path: &RootPath) -> Result<(), CommandError> {
        let answer = match runner.run(&owner_query(path)) {
            Ok(answer) => answer,
            Err(error) => return self.no_answer(&[path], &error),
        };
        match parse_owned(&answer) {
            Some(owned) => drop(self.owned.insert(path.clone(), owned)),
            None => {
                let said = answer.stderr.trim().to_owned();
                let error = CommandError::Failed("rpm".into(), said);
                self.unanswered.push((path.clone(), error));
            }
        }
        Ok(())
    }

    fn no_answer(&mut self, paths: &[&RootPath], error: &CommandError) -> Result<(), CommandError> {
        if matches!(error, CommandError::Missing(_)) {
            return Err(error.clone());
        }
        let paths = paths.iter().map(|path| ((*path).clone(), error.clone()));
        self.unanswered.extend(paths);
        Ok(())
    }
}

fn owners_query(paths: &[&RootPath]) -> CommandLine {
    let mut args = vec!["-qf".to_owned(), "--qf".to_owned(), format!("{OWNED}\\n")];
    args.extend(paths.iter().map(ToString::to_string));
    CommandLine::new("rpm", args, Duration::from_secs(60)).with_capabilities(LOOK)
}

/// Parses the output: every path that is not reported as unowned belongs to a package. Returns `None` if there are too few
/// answers or rpm reports an error. Two packages may own one file, so the number of answers alone proves nothing.
fn parse_all_owned(
    answer: &CommandOutput,
    paths: &[&RootPath],
) -> Option<BTreeMap<RootPath, bool>> {
    if answer.stderr.lines().any(|line| line.contains("error:")) {
        return None;
    }
    let foreign = |line: &str| {
        let path = line.strip_prefix("file ")?;
        let path = path.strip_suffix(" is not owned by any package")?;
        Some(path.to_owned())
    };
    let foreign: BTreeSet<String> = answer.stdout.lines().filter_map(foreign).collect();
    let answers: BTreeMap<RootPath, bool> = paths
        .iter()
        .map(|path| ((*path).clone(), !foreign.contains(&path.to_string())))
        .collect();
    let owned = answers.values().filter(|owned| **owned).count();
    let said = answer.stdout.lines().filter(|line| *line == OWNED).count();
    (said >= owned).then_some(answers)
}

/// Returns the versions of the installed packages among these, by name.
///
/// # Errors
/// rpm is missing or gives no answer.
pub fn query_versions(
    runner: &dyn CommandRunner,
    packages: &[&str],
) -> Result<BTreeMap<String, String>, CommandError> {
    let options = ["-q", "--queryformat", "%{NAME} %{VERSION}-%{RELEASE}\n"];
    let words = options.iter().chain(packages);
    let answer = runner.run(&CommandLine::new("rpm", words, Duration::from_secs(20)))?;
    // For a package that is not installed, rpm prints a sentence of more words.
    let version = |line: &str| match line.split(' ').collect::<Vec<_>>().as_slice() {
        [name, version] if packages.contains(name) => {
            Some(((*name).to_owned(), (*version).to_owned()))
        }
        _ => None,
    };
    Ok(answer.stdout.lines().filter_map(version).collect())
}

/// Returns true if a package is installed, using the daemon's query (docs/develop/agreement.md: Packages).
pub fn is_installed(runner: &dyn CommandRunner, package: &str) -> Result<bool, CommandError> {
    let answer = runner.run(&CommandLine::new(
        "rpm",
        ["-q", package],
        Duration::from_secs(30),
    ))?;
    match answer.status {
        Some(0) => Ok(true),
        Some(1) => Ok(false),
        _ => Err(CommandError::Failed(
            "rpm".into(),
            answer.stderr.trim().to_owned(),
        )),
    }
}

fn owner_query(path: &RootPath) -> CommandLine {
    let args = vec!["-qf".to_owned(), path.to_string()];
    CommandLine::new("rpm", args, Duration::from_secs(30)).with_capabilities(LOOK)
}

/// Parses the output for one path; `None` if rpm itself failed.
fn parse_owned(answer: &CommandOutput) -> Option<bool> {
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
    use std::cell::Cell;

    use super::*;

    fn paths(names: &[&str]) -> Vec<RootPath> {
        let parse = |name: &&str| RootPath::parse(name).unwrap();
        names.iter().map(parse).collect()
    }

    #[test]
    fn the_real_rpm_says_that_it_does_not_own_files_of_ours() {
        let paths = paths(&["/etc/hostname", "/etc/passwd"]);
        for paths in [&paths[..1], &paths[..]] {
            let asked: Vec<&RootPath> = paths.iter().collect();
            match query_owned(&crate::node::command::HostRunner, &asked) {
                Err(CommandError::Missing(_)) => {
                    crate::skip::skip(crate::skip::Lacks::Setup, "rpm is not installed")
                }
                // Debian's rpm has an empty database.
                answer => {
                    let wanted = paths.iter().map(|path| (path.clone(), false)).collect();
                    assert_eq!(
                        answer,
                        Ok(Ownership {
                            owned: wanted,
                            unanswered: Vec::new()
                        })
                    );
                }
            }
        }
    }

    /// Answers like rpm: `/N-I` is a file that N packages own, and `/x-I` one that rpm cannot stat.
    #[derive(Default)]
    struct Rpm {
        calls: Cell<usize>,
    }

    impl CommandRunner for Rpm {
        fn run(&self, command: &CommandLine) -> Result<CommandOutput, CommandError> {
            self.calls.set(self.calls.get() + 1);
            let bulk = command.args.iter().any(|arg| arg == "--qf");
            let mut out = CommandOutput::default();
            let mut failed = 0;
            for path in command.args.iter().filter(|arg| arg.starts_with('/')) {
                match path[1..2].parse::<usize>() {
                    Ok(0) => {
                        out.stdout
                            .push_str(&format!("file {path} is not owned by any package\n"));
                        failed += 1;
                    }
                    Ok(packages) => {
                        let line = if bulk { "owned\n" } else { "p-1-1.x86_64\n" };
                        out.stdout.push_str(&line.repeat(packages));
                    }
                    Err(_) => {
                        let said = format!("error: file {path}: Permission denied\n");
                        out.stderr.push_str(&said);
                        failed += 1;
                    }
                }
            }
            out.status = Some(failed);
            Ok(out)
        }
    }

    #[test]
    fn a_path_that_rpm_fails_over_takes_no_other_answer_away() {
        // Every combination of four kinds in five places: no package, one, two, no answer.
        for row in 0..4_usize.pow(5) {
            let kind = |at: u32| ["0", "1", "2", "x"][row / 4_usize.pow(at) % 4];
            let names: Vec<String> = (0..5).map(|at| format!("/{}-{at}", kind(at))).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let paths = paths(&names);
            let asked: Vec<&RootPath> = paths.iter().collect();
            let seen = query_owned(&Rpm::default(), &asked).unwrap();
            for path in &paths {
                let wanted = match &path.relative()[..1] {
                    "x" => None,
                    packages => Some(packages != "0"),
                };
                assert_eq!(seen.owned.get(path).copied(), wanted, "{path} in {names:?}");
            }
            let unanswered: Vec<&RootPath> = seen.unanswered.iter().map(|(path, _)| path).collect();
            let wanted = paths.iter().filter(|path| path.relative().starts_with('x'));
            assert_eq!(unanswered, wanted.collect::<Vec<_>>(), "{names:?}");
        }
    }

    #[test]
    fn one_path_without_an_answer_costs_a_few_questions_more() {
        let names: Vec<String> = (0..256).map(|at| format!("/{}-{at}", at % 3)).collect();
        let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
        names[77] = "/x-77";
        let paths = paths(&names);
        let asked: Vec<&RootPath> = paths.iter().collect();
        let rpm = Rpm::default();
        let seen = query_owned(&rpm, &asked).unwrap();
        assert_eq!((seen.owned.len(), seen.unanswered.len()), (255, 1));
        assert!(rpm.calls.get() < 20, "{}", rpm.calls.get());
    }

    #[test]
    fn an_answer_that_is_missing_is_not_taken_for_one() {
        let paths = paths(&["/a", "/b"]);
        let paths: Vec<&RootPath> = paths.iter().collect();
        let read = |stdout: &str, stderr: &str| {
            let answer = CommandOutput {
                status: Some(0),
                stdout: stdout.into(),
                stderr: stderr.into(),
            };
            let answers = parse_all_owned(&answer, &paths)?;
            Some(answers.into_values().collect::<Vec<_>>())
        };
        let foreign = "file /a is not owned by any package\n";
        let both = format!("{foreign}owned\n");
        assert_eq!(read(&both, ""), Some(vec![false, true]));
        let warning = "warning: Found bdb Packages database while attempting sqlite backend\n";
        assert_eq!(read(&both, warning), Some(vec![false, true]));
        // Two packages may own the same file.
        let twice = format!("{foreign}owned\nowned\n");
        assert_eq!(read(&twice, ""), Some(vec![false, true]));
        assert_eq!(
            read("owned\nowned\n", "error: file /b: Permission denied\n"),
            None
        );
        assert_eq!(read(foreign, ""), None);
        assert_eq!(read("owned\n", ""), None);
        assert_eq!(read("", ""), None);
    }

    #[test]
    fn the_three_answers_are_told_apart() {
        let answer = |status, stdout: &str| CommandOutput {
            status: Some(status),
            stdout: stdout.into(),
            stderr: String::new(),
        };
        assert_eq!(
            parse_owned(&answer(0, "chrony-4.5-1.el9.x86_64\n")),
            Some(true)
        );
        assert_eq!(
            parse_owned(&answer(1, "file /etc/a is not owned by any package\n")),
            Some(false)
        );
        assert_eq!(parse_owned(&answer(1, "error: rpmdb open failed\n")), None);
    }
}
