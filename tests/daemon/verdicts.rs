//! The daemon's own verdicts, where the captured data is there: what its code said of the same disks and
//! transitions is what `verify` and `plan` say.

use std::fs;

use crate::support::patch::patch;
use crate::support::{TestRoot, say, shared_data};
use serde_json::{Value, json};

fn load(relative: &str) -> Option<Value> {
    Some(serde_json::from_slice(&fs::read(shared_data(relative)?).unwrap()).unwrap())
}

/// Does to the root what a case says.
fn operate(root: &TestRoot, op: &Value) {
    let text = |key: &str| op[key].as_str().unwrap();
    let path = text("path");
    match text("op") {
        "append" => root_append(root, path, text("text")),
        "write" => fs::write(root.path(path), text("text")).unwrap(),
        "chmod" => root.chmod(path, u32::from_str_radix(text("mode"), 8).unwrap()),
        "unlink" => root.remove(path),
        "symlink" => std::os::unix::fs::symlink(text("target"), root.path(path)).unwrap(),
        "mkdir" => fs::create_dir_all(root.path(path)).unwrap(),
        other => panic!("unknown operation {other}"),
    }
}

fn root_append(root: &TestRoot, path: &str, text: &str) {
    let before = root.read(path);
    fs::write(root.path(path), before + text).unwrap();
}

/// Applies the config of a file of cases, does each case's operations, compares the daemon's message.
fn drift_cases(file: &str) -> usize {
    let Some(data) = load(&format!("verdicts/{file}")) else {
        return 0;
    };
    let config = shared_data(data["config"].as_str().unwrap()).unwrap();
    let cases = data["cases"].as_array().unwrap();
    for case in cases {
        let name = case["name"].as_str().unwrap();
        let root = TestRoot::new();
        // The unit that one case links to comes with the OS.
        root.write(
            "usr/lib/systemd/system/openvswitch.service",
            "[Service]\n[Install]\nWantedBy=multi-user.target\n",
        );
        root.run(&["apply", "--yes", config.to_str().unwrap()]).ok();
        case["ops"]
            .as_array()
            .unwrap()
            .iter()
            .for_each(|op| operate(&root, op));
        let verdict = root.run(&["verify", "--output", "json"]).json()["verdict"].clone();
        let wanted = match case["error"].as_str() {
            Some(error) => {
                let applied: Value =
                    serde_json::from_str(&root.read("etc/machine-config-daemon/currentconfig"))
                        .unwrap();
                let outer = "unexpected on-disk state validating against";
                json!(format!(
                    "{outer} {}: {error}",
                    applied["metadata"]["name"].as_str().unwrap()
                ))
            }
            None => Value::Null,
        };
        assert_eq!(verdict, wanted, "{file}: {name}");
        // Whatever the cluster wants, that is what it says when it starts.
        let status = root.run(&["status", "--output", "json"]).ok().json();
        let foretold = &status["daemon"]["branches"][0]["prediction"]["error"];
        assert_eq!(*foretold, wanted, "{file}: {name}");
        // Whatever was done to the disk, apply takes it back, unless something has to be moved away by hand.
        let directory = case["ops"]
            .as_array()
            .unwrap()
            .iter()
            .any(|op| op["op"] == "mkdir" && case["error"].is_string());
        if !directory || file.contains("enablement") {
            root.run(&["apply", "--yes"]).ok();
            assert_eq!(
                root.run(&["verify", "--output", "json"]).ok().json()["drifts"],
                json!([]),
                "{file}: {name}"
            );
        }
    }
    cases.len()
}

#[test]
fn verify_says_of_every_captured_disk_what_the_daemon_said() {
    let count = drift_cases("drift.json") + drift_cases("drift-enablement.json");
    say(&format!("{count} captured disks judged as the daemon did"));
}

/// The refusals of a plan: blockers, or the errors of a document that is refused outright.
fn refusal(root: &TestRoot, config: &Value, more: &[&str]) -> Option<String> {
    let config = root.config(config);
    // The captures change contents under one name; the daemon looks at no hash.
    let options = ["--files-only", "--edited-config", "--output", "json"];
    let run = root.run(&[&["plan", config.path()], &options[..], more].concat());
    if run.out().is_empty() {
        return Some(run.err());
    }
    let blockers = run.json()["blockers"].clone();
    let texts: Vec<String> = blockers
        .as_array()
        .unwrap()
        .iter()
        .map(|b| b["message"].as_str().unwrap().to_owned())
        .collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}

/// The daemon's sentence, without what only its parser says of a document that is broken in itself.
fn reason(sentence: &str) -> Option<&str> {
    sentence
        .contains(" is not reconcilable against ")
        .then_some(sentence)
}

#[test]
fn plan_refuses_the_transitions_that_the_daemon_refused_and_no_others() {
    let Some(data) = load("verdicts/transitions.json") else {
        return;
    };
    let base: Value = load(data["base"].as_str().unwrap()).unwrap();
    let (mut refused, mut taken) = (0, 0);
    for case in data["cases"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let (mut old, mut new) = (base.clone(), base.clone());
        patch(&mut old, &case["old"]);
        new.clone_from(&old);
        patch(&mut new, &case["new"]);
        let root = TestRoot::new();
        // The record alone: the old config may itself have parts that are not applied.
        root.write("etc/machine-config-daemon/currentconfig", &old.to_string());
        let said = refusal(&root, &new, &[]);
        match case["expected"]["refused"].as_str() {
            Some(sentence) => {
                let said =
                    said.unwrap_or_else(|| panic!("{name}: taken, but the daemon says {sentence}"));
                if let Some(sentence) = reason(sentence) {
                    assert!(
                        said.contains(sentence),
                        "{name}: {said}\nthe daemon says {sentence}"
                    );
                }
                refused += 1;
            }
            None => {
                assert_eq!(said, None, "{name}: the daemon takes this");
                taken += 1;
            }
        }
    }
    say(&format!(
        "{refused} transitions refused and {taken} taken as the daemon does"
    ));
}

#[test]
fn plan_judges_whole_pairs_as_the_daemon_did() {
    let Some(pairs) = shared_data("pairs") else {
        return;
    };
    let mut count = 0;
    for entry in fs::read_dir(pairs).unwrap() {
        let dir = entry.unwrap().path();
        let read = |name: &str| -> Option<Value> {
            serde_json::from_slice(&fs::read(dir.join(name)).ok()?).ok()
        };
        let (Some(old), Some(new), Some(expected)) = (
            read("old.json"),
            read("new.json"),
            read("expected-actions.json"),
        ) else {
            continue;
        };
        let root = TestRoot::new();
        root.write("etc/machine-config-daemon/currentconfig", &old.to_string());
        let cluster = root.config(&json!({
            "kind": "MachineConfiguration", "metadata": {"name": "cluster"},
            "spec": {"irreconcilableValidationOverrides": expected["overrides"]},
        }));
        let said = refusal(&root, &new, &["--policy", cluster.path()]);
        let reconcilable = expected["reconcilable"] == json!(true);
        assert_eq!(said.is_none(), reconcilable, "{}: {said:?}", dir.display());
        count += 1;
    }
    say(&format!("{count} pairs judged"));
}
