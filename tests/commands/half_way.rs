//! A run that is half-way: what looks at the node says so, with the command that leads out, and takes none of its files for
//! a change by hand.

use crate::support::faults::{Scene, can_trace};
use crate::support::{TestRoot, file, flat_run, machine_config, say};
use serde_json::{Value, json};

fn config(name: &str, text: &str) -> Value {
    let files = ["a", "b", "c", "d"].map(|name| file(&format!("/etc/{name}.conf"), 0o644, text));
    machine_config(name, json!({"storage": {"files": files}}))
}

/// A node on which a run to `rendered-worker-2` was killed while it put its files in place.
fn half_way() -> Option<(Scene, TestRoot)> {
    if !can_trace() {
        return None;
    }
    let root = TestRoot::new();
    root.apply(&config("rendered-worker-1", "one\n"));
    let new = config("rendered-worker-2", "two\n");
    let scene = Scene::leading(&root, Some(new), &["renameat"], &[]);
    let (first, _) = scene.renames();
    let node = scene.killed_at("renameat", first + 2);
    let texts = ["a", "b", "c", "d"].map(|name| node.read(&format!("etc/{name}.conf")));
    assert!(texts.iter().any(|text| text == "one\n"));
    assert!(texts.iter().any(|text| text == "two\n"));
    Some((scene, node))
}

fn says(said: &str, words: &[&str], never: &[&str]) {
    for word in words {
        assert!(said.contains(word), "no {word:?} in {said}");
    }
    for word in never {
        assert!(!said.contains(word), "{word:?} in {said}");
    }
}

#[test]
fn plan_tells_what_is_there_after_the_interrupted_run_is_finished() {
    let Some((_scene, node)) = half_way() else {
        return;
    };
    let before = node.everything();
    let plan = node.run(&["plan"]).ok();
    let words = [
        "rendered-worker-2",
        "After the interrupted run is finished",
        "left. Once it is finished, there is nothing to do",
        "Next: mco-rescue recover",
        "/etc/d.conf",
    ];
    says(&flat_run(&plan), &words, &["Nothing to do: the node"]);
    let plan = node.run(&["plan", "--output", "json"]).ok().json();
    assert_eq!(plan["config"], "rendered-worker-2");
    assert_eq!(plan["steps"], json!([]));
    // The config from before is another one by then: all of its files come back.
    let old = node.config(&config("rendered-worker-1", "one\n"));
    let plan = node.run(&["plan", old.path()]).ok();
    let words = [
        "A run to rendered-worker-2 is unfinished. This is planned from the node after that run is finished",
        "or: mco-rescue recover --back",
        "Recorded rendered-worker-2",
    ];
    says(&flat_run(&plan), &words, &["Nothing to do"]);
    let steps = |root: &TestRoot| {
        let plan = root.run(&["plan", old.path(), "--output", "json"]).ok();
        let mut steps = plan.json()["steps"].clone();
        for step in steps.as_array_mut().unwrap() {
            step.as_object_mut().unwrap().remove("diff");
        }
        steps
    };
    let foreseen = steps(&node);
    assert_eq!(node.everything(), before);
    node.run(&["recover"]).ok();
    assert_eq!(
        foreseen,
        steps(&node),
        "it is what comes after the recovery"
    );
    assert!(foreseen.to_string().contains("/etc/a.conf"), "{foreseen}");
    let plan = flat_run(&node.run(&["plan"]).ok());
    says(&plan, &["rendered-worker-2"], &["half-way"]);
}

#[test]
fn verify_doctor_and_show_call_no_file_of_it_a_change_by_hand() {
    let Some((_scene, node)) = half_way() else {
        return;
    };
    let verify = node.run(&["verify"]).exits(3);
    let words = [
        "A run to rendered-worker-2 is unfinished",
        "not changes by hand",
        "mco-rescue recover",
    ];
    says(&flat_run(&verify), &words, &["Differences", "Degraded"]);
    let verify = node.run(&["verify", "--output", "json"]).exits(3).json();
    assert_eq!(verify["clean"], json!(false));
    assert_eq!(verify["drifts"], json!([]));
    let doctor = node.run(&["doctor", "--output", "json"]).json();
    let findings = doctor["findings"].as_array().unwrap();
    let ids: Vec<&str> = findings
        .iter()
        .filter_map(|one| one["id"].as_str())
        .collect();
    assert!(ids.contains(&"FP-10") && !ids.contains(&"FP-03"), "{ids:?}");
    let show = node.run(&["show"]).ok();
    let words = [
        "a run to rendered-worker-2 is unfinished",
        "Next: mco-rescue recover",
    ];
    says(&flat_run(&show), &words, &[]);
    say("half-way: plan, verify, doctor and show were asked");
}
