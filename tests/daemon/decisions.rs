//! What the daemon's own code decided about steps between configs, where the captured data is there, is what
//! `daemon::decide` says of them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::support::patch::patch;
use crate::support::{say, shared_data};
use mco_rescue::config::document::{self, MachineConfig};
use mco_rescue::judge::daemon::policies::{ClusterPolicies, PolicyAction};
use mco_rescue::judge::daemon::{self, Update, decide_allowing, default_policies};
use serde_json::{Value, json};

fn config(bytes: &[u8]) -> MachineConfig {
    document::parse_document(bytes, "captured").unwrap()
}

fn load(path: &Path) -> Option<Value> {
    Some(serde_json::from_slice(&fs::read(path).ok()?).unwrap())
}

fn actions(update: &Update) -> Value {
    let actions: Vec<_> = update.queue.iter().map(|one| one.action.clone()).collect();
    json!(actions.iter().map(PolicyAction::from).collect::<Vec<_>>())
}

fn strings(list: &Value) -> Vec<String> {
    serde_json::from_value(list.clone()).unwrap_or_default()
}

/// The policies of a pair: those that its administrator set are laid over the defaults.
fn policies(dir: &Path) -> ClusterPolicies {
    match fs::read_to_string(dir.join("node-disruption-policy.yaml")) {
        Ok(text) => {
            let user = document::yaml::parse_yaml(&text).unwrap();
            daemon::laid_over_defaults(&serde_json::from_value(user).unwrap())
        }
        Err(_) => default_policies(),
    }
}

fn check_pair(dir: &Path, expected: &Value) {
    let name = dir.display();
    let read = |file: &str| config(&fs::read(dir.join(file)).unwrap());
    let (old, new) = (read("old.json"), read("new.json"));
    let allowed = strings(&expected["overrides"]["storage"]);
    let update = decide_allowing(&old, &new, &policies(dir), &allowed, false);
    if let Some(error) = expected["error"].as_str() {
        let refusal = update.refusal.as_ref().unwrap();
        assert!(error.ends_with(&refusal.sentence), "{name}: {refusal:?}");
        assert_eq!(update.queue, [], "{name}");
        return;
    }
    assert_eq!(update.refusal, None, "{name}");
    let diff = serde_json::to_value(update.diff).unwrap();
    for (flag, value) in diff.as_object().unwrap() {
        assert_eq!(*value, expected["diff"][flag], "{name}: {flag}");
    }
    for (ours, theirs) in [
        (&update.changed_files, "changedFiles"),
        (&update.added_units, "addedUnits"),
        (&update.updated_units, "updatedUnits"),
        (&update.removed_units, "removedUnits"),
    ] {
        assert_eq!(*ours, strings(&expected[theirs]), "{name}: {theirs}");
    }
    assert_eq!(actions(&update), expected["actions"], "{name}");
    assert_eq!(update.drain, expected["drain"], "{name}");
}

#[test]
fn every_captured_pair_is_decided_as_the_daemon_did() {
    let Some(pairs) = shared_data("pairs") else {
        return;
    };
    let mut count = 0;
    for entry in fs::read_dir(pairs).unwrap() {
        let dir = entry.unwrap().path();
        if let Some(expected) = load(&dir.join("expected-actions.json")) {
            check_pair(&dir, &expected);
            count += 1;
        }
    }
    assert!(count > 0, "no pair was found");
    say(&format!("{count} pairs decided as the daemon did"));
}

/// The daemon's flags as Go prints the structure: `{osUpdate:false kargs:false ...}`.
fn flags(text: &str) -> Value {
    let pairs = text.trim_matches(['{', '}']).split(' ');
    let pairs = pairs.map(|pair| pair.split_once(':').unwrap());
    json!(
        pairs
            .map(|(flag, value)| (flag, value == "true"))
            .collect::<std::collections::BTreeMap<_, _>>()
    )
}

/// Where no policy was asked the capture has the bare kind, else the object.
fn kinds(actions: &Value) -> Vec<Value> {
    let all = actions.as_array().unwrap().iter();
    all.map(|action| match action.as_str() {
        Some(kind) => json!({"type": kind}),
        None => action.clone(),
    })
    .collect()
}

/// As a multiset: the daemon walks files in a random order.
fn sorted(mut actions: Vec<Value>) -> Vec<Value> {
    actions.sort_by_key(Value::to_string);
    actions
}

fn check_transition(name: &str, old: &MachineConfig, new: &MachineConfig, expected: &Value) {
    let update = decide_allowing(old, new, &default_policies(), &[], false);
    assert_eq!(update.refusal, None, "{name}");
    let diff = serde_json::to_value(update.diff).unwrap();
    let wanted = flags(expected["diff"].as_str().unwrap());
    for (flag, value) in diff.as_object().unwrap() {
        assert_eq!(*value, wanted[flag], "{name}: {flag}");
    }
    let set = |names: &[String]| names.iter().cloned().collect::<BTreeSet<String>>();
    let units = [
        &update.added_units,
        &update.updated_units,
        &update.removed_units,
    ];
    let units: Vec<String> = units.into_iter().flatten().cloned().collect();
    assert_eq!(
        set(&update.changed_files),
        set(&strings(&expected["changedFiles"])),
        "{name}"
    );
    assert_eq!(
        set(&units),
        set(&strings(&expected["changedUnits"])),
        "{name}"
    );
    let ours = actions(&update).as_array().unwrap().clone();
    assert_eq!(sorted(ours), sorted(kinds(&expected["actions"])), "{name}");
}

#[test]
fn every_captured_transition_is_decided_as_the_daemon_did() {
    let Some(data) = shared_data("verdicts/transitions.json").and_then(|path| load(&path)) else {
        return;
    };
    let base = shared_data(data["base"].as_str().unwrap()).unwrap();
    let base = load(&base).unwrap();
    let (mut decided, mut refused, mut unparsable) = (0, 0, 0);
    for case in data["cases"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let mut old = base.clone();
        patch(&mut old, &case["old"]);
        let mut new = old.clone();
        patch(&mut new, &case["new"]);
        let old = config(old.to_string().as_bytes());
        let parsed = document::parse_document(new.to_string().as_bytes(), name);
        match (case["expected"]["refused"].as_str(), parsed) {
            (None, Ok(new)) => {
                check_transition(name, &old, &new, &case["expected"]);
                decided += 1;
            }
            (Some(sentence), Ok(new)) => {
                let update = decide_allowing(&old, &new, &default_policies(), &[], false);
                assert_eq!(update.refusal.unwrap().sentence, sentence, "{name}");
                refused += 1;
            }
            // Broken in itself: the daemon says so when it parses, and so do we.
            (Some(sentence), Err(_)) => {
                assert!(
                    !sentence.contains(" is not reconcilable against "),
                    "{name}"
                );
                unparsable += 1;
            }
            (None, Err(error)) => panic!("{name}: {error}"),
        }
    }
    say(&format!(
        "{decided} transitions decided, {refused} refused with the daemon's sentence, {unparsable} not even parsed"
    ));
}
