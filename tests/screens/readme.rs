//! Every command that README.md shows is run here on a scratch root, or listed with the reason why it is not.

use std::fs;

use serde_json::json;

use crate::support::{TestRoot, file, kubelet_unit, machine_config};

/// Commands that run on a scratch root, in an order that makes sense, with their exit codes. `PATH` is a file of this test, `CONFIG`
/// its config, and `BUNDLE` a new file.
const RUN: [(&str, &str, &[i32]); 32] = [
    ("doctor", "doctor", &[0, 3, 6]),
    ("plan", "plan", &[0]),
    ("apply", "apply --yes", &[0]),
    ("status", "status", &[0]),
    ("install", "install", &[0]),
    ("record", "record", &[0]),
    ("doctor", "doctor", &[0, 3, 6]),
    ("status", "status", &[0]),
    ("verify", "verify", &[3]),
    ("show", "show", &[0]),
    ("doctor FP-nn", "doctor FP-03", &[0]),
    ("doctor --fix FP-nn", "doctor --fix FP-03 --yes", &[3]),
    ("doctor --until DATE", "doctor --until 2030-01-01", &[1, 3]),
    ("doctor --bundle FILE", "doctor --bundle BUNDLE", &[3, 6]),
    ("history", "history", &[0]),
    ("diff N", "diff 1", &[3]),
    ("keep", "keep", &[0]),
    ("keep PATH --to FILE", "keep --to PATH", &[0]),
    ("change with FILE", "change with PATH", &[0]),
    ("apply", "apply --yes", &[0]),
    ("apply [CONFIG]", "apply --yes CONFIG", &[0]),
    ("fetch", "fetch CONFIG", &[0]),
    ("cache", "cache list", &[0]),
    ("complete", "complete", &[0]),
    ("firstboot", "firstboot", &[0]),
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
const NOT_HERE: [(&str, &str); 23] = [
    ("ssh core@NODE", "another machine; tests/trial/sessions.rs"),
    ("fetch --pool", "a server; tests/fetch"),
    ("make static", "make test builds it"),
    ("sudo make install", "tests/install/packaging.rs"),
    ("make demo", "tests/screens/manual.rs"),
    ("make test", "this"),
    ("apply --try=10m", "a running node; tests/trial"),
    ("apply --reboot", "a running node; tests/os"),
    (
        "firstboot --complete",
        "an OS image; tests/first_boot/complete.rs",
    ),
    ("confirm", "a running node; tests/trial"),
    (
        "apply --root DIR --key FILE",
        "a key; tests/apply/passwd.rs",
    ),
    ("pivot", "a running node; tests/os"),
    ("preflight", "an OS image; tests/crossing"),
    ("rehearse", "a running node; vm-tests/cases/rehearsals.rs"),
    ("render", "parts of a config; tests/config/render.rs"),
    ("change", "the three below"),
    ("butane", "a Butane config; tests/controllers/butane.rs"),
    ("report DIR", "many nodes; tests/pages/fleet.rs"),
    ("--try", "a running node; tests/trial"),
    (
        "change mirror",
        "registries.conf; tests/controllers/change.rs",
    ),
    ("oc", "a cluster"),
    ("cargo", "the tool that runs this"),
    ("core", "a user"),
];

/// The commands of README.md: the lines of its blocks, and those in backticks in the table of symptoms and in that of commands.
fn shown() -> Vec<String> {
    let text = fs::read_to_string("README.md").unwrap();
    // What is between fences is the output of the demo, which has a test of its own.
    let text: String = text.split("```").step_by(2).collect();
    let lines = text.lines().filter_map(|line| line.strip_prefix("    "));
    let blocks = lines.map(|line| line.split(" #").next().unwrap().trim().to_owned());
    let quoted = ["| symptom", "| command"].into_iter().flat_map(|head| {
        let rows = text.lines().skip_while(move |line| !line.starts_with(head));
        let rows = rows.take_while(|line| line.starts_with('|'));
        rows.flat_map(|row| {
            let cells = row.split('`').skip(1).step_by(2);
            cells.map(str::to_owned).collect::<Vec<_>>()
        })
    });
    let program = "sudo ./mco-rescue ";
    let blocks = blocks.map(|line| line.strip_prefix(program).unwrap_or(&line).to_owned());
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
    let (kept, bundle) = (root.path("kept.yaml"), root.path("bundle.tar.gz"));
    let document = root.config(&config);
    for (name, arguments, codes) in RUN {
        if name == "verify" {
            // The one file that has to change.
            root.write("etc/a", "by hand\n");
        }
        let arguments = arguments
            .replace("PATH", kept.to_str().unwrap())
            .replace("BUNDLE", bundle.to_str().unwrap())
            .replace("CONFIG", document.path());
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
