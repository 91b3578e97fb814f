//! Every command that README.md shows is run here on a scratch root, or listed with the reason why it is not.

use std::fs;

use serde_json::json;

use crate::support::{TestRoot, file, kubelet_unit, machine_config};

/// Commands that run on a scratch root, in an order that makes sense, with their exit codes. `PATH` is a file of this test.
const RUN: [(&str, &str, &[i32]); 19] = [
    ("sudo ./mco-rescue doctor", "doctor", &[0, 3, 6]),
    ("sudo ./mco-rescue plan", "plan", &[0]),
    ("sudo ./mco-rescue apply", "apply --yes", &[0]),
    ("sudo ./mco-rescue status", "status", &[0]),
    ("sudo ./mco-rescue install", "install", &[0]),
    ("sudo ./mco-rescue record", "record", &[0]),
    ("doctor", "doctor", &[0, 3, 6]),
    ("status", "status", &[0]),
    ("verify", "verify", &[3]),
    ("keep", "keep --to PATH", &[0]),
    ("change with", "change with PATH", &[0]),
    ("apply", "apply --yes", &[0]),
    ("change kubelet", "change kubelet maxPods=300", &[0, 1]),
    ("recover", "recover", &[0]),
    // No boot of this root has reached its end.
    ("diff", "diff", &[1]),
    ("status --for-cluster", "status --for-cluster", &[0]),
    ("rollback", "rollback --yes", &[0]),
    ("mco-rescue man", "man", &[0]),
    ("mco-rescue", "--version", &[0]),
];

/// The others, with the reason and the tests that run them.
const NOT_HERE: [(&str, &str); 14] = [
    ("ssh core@NODE", "another machine; tests/trial/sessions.rs"),
    ("sudo ./mco-rescue fetch", "a server; tests/fetch"),
    ("make static", "make test builds it"),
    ("sudo make install", "tests/install/packaging.rs"),
    ("make demo", "tests/screens/manual.rs"),
    ("make test", "this"),
    ("apply --try=10m", "a running node; tests/trial"),
    ("confirm", "a running node; tests/trial"),
    (
        "apply --root DIR --key FILE",
        "a key; tests/apply/passwd.rs",
    ),
    ("pivot --os-from DIR", "a running node; tests/os"),
    (
        "change mirror",
        "registries.conf; tests/controllers/change.rs",
    ),
    ("oc", "a cluster"),
    ("cargo", "the tool that runs this"),
    ("core", "a user"),
];

/// The commands of README.md: the lines of its blocks, and those in backticks in the table of symptoms.
fn shown() -> Vec<String> {
    let text = fs::read_to_string("README.md").unwrap();
    // What is between fences is the output of the demo, which has a test of its own.
    let text: String = text.split("```").step_by(2).collect();
    let lines = text.lines().filter_map(|line| line.strip_prefix("    "));
    let blocks = lines.map(|line| line.split(" #").next().unwrap().trim().to_owned());
    let rows = text
        .lines()
        .skip_while(|line| !line.starts_with("| symptom"));
    let rows = rows.take_while(|line| line.starts_with('|'));
    let quoted = rows.flat_map(|row| {
        let cells = row.split('`').skip(1).step_by(2);
        cells.map(str::to_owned).collect::<Vec<_>>()
    });
    blocks
        .chain(quoted)
        .filter(|line| !line.is_empty())
        .collect()
}

#[test]
fn every_command_of_the_readme_is_run_or_listed_with_a_reason() {
    let shown = shown();
    assert!(shown.len() > 20, "{shown:?}");
    let is_run = |command: &str| RUN.iter().any(|(name, _, _)| *name == command);
    let is_listed = |command: &str| {
        NOT_HERE.iter().any(|(begin, _)| {
            let rest = command.strip_prefix(begin);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        })
    };
    let lost: Vec<&String> = shown
        .iter()
        .filter(|command| !is_run(command) && !is_listed(command))
        .collect();
    assert!(lost.is_empty(), "neither run nor listed: {lost:?}");
}

#[test]
fn the_commands_of_the_readme_lead_through_a_night() {
    let root = TestRoot::new();
    let config = machine_config(
        "rendered-worker-a",
        json!({"storage": {"files": [file("/etc/a", 0o644, "a\n")]}, "systemd": {"units": [kubelet_unit()]}}),
    );
    root.apply(&config);
    let kept = root.path("kept.yaml");
    for (name, arguments, codes) in RUN {
        if name == "verify" {
            // The one file that has to change.
            root.write("etc/a", "by hand\n");
        }
        let arguments = arguments.replace("PATH", kept.to_str().unwrap());
        let arguments: Vec<&str> = arguments.split(' ').collect();
        let run = root.run(&arguments);
        assert!(
            codes.contains(&run.code()),
            "{name}: {}{}{}",
            run.code(),
            run.out(),
            run.err()
        );
    }
}
