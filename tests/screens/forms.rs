//! Forms of the output: YAML, colours, the version, and what `apply` says at its end.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::{PROGRAM, TestRoot, file, flat, machine_config};

const GREEN: &str = "\u{1b}[32m";

fn config(name: &str, text: &str) -> Value {
    machine_config(
        name,
        json!({"storage": {"files": [file("/etc/a.conf", 0o644, text)]}}),
    )
}

#[test]
fn yaml_is_the_json_document() {
    let root = TestRoot::new();
    root.apply(&config("rendered-worker-one", "one\n"));
    let yaml = root.run(&["verify", "-o", "yaml"]).ok().out();
    let document = root.run(&["verify", "-o", "json"]).ok().json();
    assert!(yaml.contains("\nschema: mco-rescue/verify/v1\n"), "{yaml}");
    let keys: Vec<&str> = yaml
        .lines()
        .filter(|line| !line.starts_with([' ', '-']))
        .filter_map(|line| line.split(':').next())
        .collect();
    let mut wanted: Vec<&String> = document.as_object().unwrap().keys().collect();
    wanted.sort();
    assert_eq!(keys, wanted);
}

#[test]
fn the_version_is_a_command_too() {
    let root = TestRoot::new();
    let text = root.run(&["version"]).ok().out();
    let version = env!("CARGO_PKG_VERSION");
    assert!(
        text.starts_with(&format!("mco-rescue {version}\nCommit")),
        "{text}"
    );
    let document = root.run(&["version", "-o", "json"]).ok().json();
    assert_eq!(document["version"], version);
    let completion = root.run(&["completion", "bash"]).ok().out();
    assert_eq!(completion, root.run(&["completions", "bash"]).ok().out());
}

#[test]
fn a_config_is_given_as_with_oc() {
    let root = TestRoot::new();
    let config = root.config(&config("rendered-worker-one", "one\n"));
    let plan = root.run(&["plan", config.path()]).ok().out();
    let changes = |out: &str| out.split("Next: ").next().unwrap().to_owned();
    for option in ["-f", "--filename"] {
        let run = root.run(&["plan", option, config.path()]).ok();
        assert_eq!(changes(&run.out()), changes(&plan), "{option}");
    }
    root.run(&["plan", "-f", config.path(), config.path()])
        .exits(2);
    root.run(&["apply", "-y", "-f", config.path()]).ok();
    root.run(&["verify", "-f", config.path()]).ok();
}

#[test]
fn a_diff_is_coloured_only_if_it_is_asked_for() {
    let root = TestRoot::new();
    root.apply(&config("rendered-worker-one", "one\n"));
    root.write("etc/a.conf", "other\n");
    let plain = root.run(&["verify"]).exits(3);
    assert!(!plain.out().contains('\u{1b}'), "{}", plain.out());
    let coloured = root.run(&["verify", "--color=always"]).exits(3);
    assert!(
        coloured.out().contains(&format!("{GREEN}      +one")),
        "{}",
        coloured.out()
    );
    let json = root
        .run(&["verify", "--color=always", "-o", "json"])
        .exits(3);
    assert!(!json.out().contains('\u{1b}'));
    let none = [PROGRAM, "--color=always", "verify", "--root", "/none"];
    let output = Command::new(none[0]).args(&none[1..]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("\u{1b}[1;31merror:\u{1b}[0m "), "{said}");
}

#[test]
fn apply_ends_with_the_command_that_undoes_it() {
    let root = TestRoot::new();
    let config = root.config(&config("rendered-worker-one", "one\n"));
    let run = root.run(&["apply", "-y", config.path()]).ok();
    let undo = format!(
        "\nUndo: mco-rescue rollback --root {}\n",
        root.dir().display()
    );
    assert!(run.out().contains(&undo), "{}", run.out());
    let status = root.run(&["status"]).ok().out();
    let forecast = "adopted if the cluster wants this config, else it updates";
    assert!(flat(&status).contains(forecast), "{status}");
    assert!(!status.contains("If desired is"), "{status}");
}

#[test]
fn what_the_cache_forgot_is_a_document() {
    let root = TestRoot::new();
    let config = root.config(&config("rendered-worker-one", "one\n"));
    root.run(&["fetch", config.path()]).ok();
    let run = root
        .run(&["cache", "forget", "rendered-worker-one", "-o", "json"])
        .ok();
    assert_eq!(run.json()["removed"], "rendered-worker-one");
}
