//! A test is skipped by one function, and not where everything can be installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Lacks, Run, is_root, skip};

/// What [`skipping`] lacks.
const WHAT: &str = "MCO_RESCUE_TEST_LACKS";

#[test]
#[ignore = "the child process of other tests"]
fn skipping() {
    let all = [
        ("setup", Lacks::Setup),
        ("root", Lacks::Root),
        ("machine", Lacks::Machine),
        ("counterpart", Lacks::Counterpart),
        ("shared", Lacks::Shared),
    ];
    let what = std::env::var(WHAT).unwrap();
    let (_, lacks) = all.iter().find(|(word, _)| *word == what).unwrap();
    skip(*lacks, "there is\nno moon");
}

/// Runs it in another process; returns what it printed and the list that it wrote.
fn skip_there(what: &str, strict: &str) -> (Run, String) {
    let list = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "skips::skipping", "--ignored"]);
    command.env(WHAT, what).env("MCO_RESCUE_STRICT", strict);
    let output = command.env("MCO_RESCUE_SKIPS", list.path()).output();
    (
        Run::of(output.unwrap()),
        fs::read_to_string(list.path()).unwrap(),
    )
}

#[test]
fn what_setup_installs_may_not_be_missing_under_strict() {
    for what in ["setup", "root", "machine", "counterpart", "shared"] {
        let (run, list) = skip_there(what, "0");
        assert_eq!(run.code(), 0, "{}", run.out());
        assert_eq!(list, format!("{what}\tthere is no moon\tskips::skipping\n"));
        assert!(run.err().contains(&format!("SKIP ({what}): there is")));
        let (run, list) = skip_there(what, "1");
        let refused = what == "setup" || (what == "root" && is_root());
        assert_eq!(run.code() != 0, refused, "{what}: {}", run.out());
        assert_eq!(list.is_empty(), refused, "{list}");
        assert_eq!(run.out().contains("no moon), but"), refused);
    }
}

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn no_other_place_says_that_it_skips() {
    let mut files = Vec::new();
    for directory in ["src", "tests", "vm-tests"] {
        sources(Path::new(directory), &mut files);
    }
    assert!(files.len() > 500, "{}", files.len());
    files.retain(|file| {
        !["skip.rs", "skips.rs"]
            .iter()
            .any(|name| file.ends_with(name))
    });
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let says = text.contains("\"SKIP") || text.contains("SKIPPED");
        assert!(!says, "{}: call support::skip()", file.display());
    }
}
