//! `-h` fits a terminal, `--help` has every option in its group, and `--dry-run` changes nothing.

use clap::CommandFactory;
use mco_rescue::cli::Cli;
use serde_json::json;
use std::process::Command;

use crate::support::{PROGRAM, TestRoot, file, machine_config};

/// Lines of a terminal, less one for the prompt.
const LINES: usize = 23;
const COLUMNS: usize = 80;

fn help(words: &[&str]) -> String {
    let output = Command::new(PROGRAM).args(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the words of every command, also of those below a command.
fn commands() -> Vec<Vec<String>> {
    let mut command = Cli::command();
    command.build();
    let mut all = vec![Vec::new()];
    add_commands(&command, &[], &mut all);
    all
}

fn add_commands(command: &clap::Command, above: &[String], all: &mut Vec<Vec<String>>) {
    let below = command.get_subcommands();
    for one in below.filter(|one| one.get_name() != "help") {
        let words = [above, &[one.get_name().to_owned()]].concat();
        add_commands(one, &words, all);
        all.push(words);
    }
}

#[test]
fn the_short_help_of_every_command_fits_one_screen() {
    let all = commands();
    assert!(all.len() > 30, "{}", all.len());
    for command in all {
        let words: Vec<&str> = command.iter().map(String::as_str).chain(["-h"]).collect();
        let help = help(&words);
        let count = help.lines().count();
        assert!(count <= LINES, "{words:?}: {count} lines\n{help}");
        let wide = help.lines().find(|line| line.chars().count() > COLUMNS);
        assert_eq!(wide, None, "{words:?}");
    }
}

#[test]
fn the_short_help_names_what_people_need_and_where_the_rest_is() {
    let apply = help(&["apply", "-h"]);
    let needed = [
        "-n, --dry-run",
        "--files-only",
        "--os-from <PATH>",
        "--try[=<TIME>]",
        "--reboot",
        "--key <FILE>",
        "--root <DIR>",
        "-y, --yes",
    ];
    for option in needed {
        assert!(apply.contains(option), "{option}: {apply}");
    }
    assert!(!apply.contains("--allow-lockout"), "{apply}");
    assert!(
        apply.ends_with("\nMore: mco-rescue apply --help\n"),
        "{apply}"
    );
    let mirror = help(&["change", "mirror", "-h"]);
    assert!(
        mirror.ends_with("\nMore: mco-rescue change mirror --help\n"),
        "{mirror}"
    );
    // What only reads asks nothing.
    assert!(!help(&["status", "-h"]).contains("--yes"));
}

#[test]
fn the_long_help_has_its_options_in_groups() {
    let groups = [
        "Options:",
        "Which config:",
        "Overrides, each for one refusal:",
        "Operating system:",
        "After the files:",
        "Trial:",
        "Forecast of the daemon:",
        "Options of every command:",
    ];
    let apply = help(&["apply", "--help"]);
    let places: Vec<Option<usize>> = groups
        .iter()
        .map(|group| apply.find(&format!("\n{group}\n")))
        .collect();
    assert!(places.iter().all(Option::is_some), "{places:?}: {apply}");
    assert!(places.is_sorted(), "{places:?}: {apply}");
}

#[test]
fn the_command_alone_shows_the_first_screen() {
    let first = help(&["-h"]);
    let output = Command::new(PROGRAM).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), first);
    // The long form is that of clap, with all exit codes.
    assert!(help(&["--help"]).contains("Exit codes:"));
}

fn config(name: &str, text: &str) -> serde_json::Value {
    machine_config(
        name,
        json!({"storage": {"files": [file("/etc/a.conf", 0o644, text)]}}),
    )
}

#[test]
fn a_dry_run_of_rollback_shows_the_plan_and_changes_nothing() {
    let root = TestRoot::new();
    root.apply(&config("rendered-worker-one", "one\n"));
    root.apply(&config("rendered-worker-two", "two\n"));
    let before = root.everything();
    for option in ["--dry-run", "-n"] {
        let run = root.run(&["rollback", option, "--yes"]).ok();
        assert!(run.out().contains("/etc/a.conf"), "{}", run.out());
        assert!(
            run.out().ends_with("Dry run: nothing was changed.\n"),
            "{}",
            run.out()
        );
    }
    let document = root.run(&["rollback", "-n", "-o", "json"]).ok().json();
    assert_eq!(document["schema"], "mco-rescue/plan/v1");
    assert!(root.everything() == before);
    root.run(&["rollback", "--dry-run", "--list"]).exits(2);
}

#[test]
fn a_dry_run_of_install_names_the_files_and_writes_none() {
    let root = TestRoot::new();
    let before = root.everything();
    let run = root.run(&["install", "--dry-run", "--not-a-node"]).ok();
    assert!(
        run.out().contains("/usr/local/bin/mco-rescue"),
        "{}",
        run.out()
    );
    assert!(
        run.out().ends_with("Dry run: nothing was changed.\n"),
        "{}",
        run.out()
    );
    assert!(root.everything() == before);
    root.run(&["install", "--not-a-node"]);
    let before = root.everything();
    let run = root
        .run(&["install", "--remove", "--dry-run", "--yes"])
        .ok();
    assert!(
        run.out().contains("/usr/local/bin/mco-rescue"),
        "{}",
        run.out()
    );
    assert!(root.everything() == before);
}
