//! `rollback --to` over several runs is one promise: what stops it says what went back, and the command that goes on.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};

use crate::support::faults::{Traced, can_trace, count, duplicate, kill, on_threads, traced};
use crate::support::mounts::{mount, with_mounts};
use crate::support::{TestRoot, file, flat, machine_config};

const WATCHED: &str = "renameat,renameat2,fsync,syncfs,linkat,unlinkat,write";

fn config(letter: char) -> Value {
    let files: Vec<Value> = (0..3)
        .map(|n| file(&format!("/etc/series/{letter}{n}.conf"), 0o644, "new\n"))
        .collect();
    machine_config(
        &format!("rendered-worker-{letter}"),
        json!({"storage": {"files": files}}),
    )
}

/// A root with three runs, and the ids of its history, the newest first.
fn root() -> (TestRoot, Vec<String>) {
    let root = TestRoot::new();
    for letter in ['a', 'b', 'c'] {
        root.apply(&config(letter));
    }
    let list = root.run(&["rollback", "--list", "--output", "json"]).json();
    let runs = list["runs"].as_array().unwrap().iter();
    let ids = runs.map(|run| run["id"].as_str().unwrap().to_owned());
    (root, ids.collect())
}

/// The calls of a name that come after the first run has gone back, as numbers among the calls of that name.
fn after_the_first(clean: &Traced, name: &str) -> Vec<usize> {
    let mut is_after = false;
    let (mut number, mut all) = (0, Vec::new());
    for call in &clean.calls {
        number += usize::from(call.name == name);
        if call.name == name && is_after {
            all.push(number);
        }
        // The mark of the run goes last.
        is_after |= call.name == "unlinkat" && call.line.contains("\"committed\"");
    }
    all
}

fn says_how_far(run: &Traced, root: &TestRoot, ids: &[String]) {
    let said = flat(&run.err);
    assert_eq!(run.code, Some(5), "{said}");
    assert!(said.contains("rendered-worker-c"), "{said}");
    let (gone, _) = said.split_once(" was reverted, ").expect(&said);
    assert!(gone.contains("rendered-worker-c"), "{said}");
    for words in ["nothing was changed", "as it was before ("] {
        assert!(!said.contains(words), "{words}: {said}");
    }
    let next = format!(
        "mco-rescue rollback --to {} --root {}",
        ids[2],
        root.dir().display()
    );
    assert!(said.contains(&next), "{next}: {said}");
    // The command that is printed goes on.
    root.run(&["recover"]).ok();
    root.run(&["rollback", "--yes", "--to", &ids[2]]).ok();
    assert!(!root.exists("etc/series"));
}

#[test]
fn an_error_or_a_signal_in_a_later_run_says_what_went_back() {
    if !can_trace() {
        return;
    }
    let (template, ids) = root();
    let args = ["rollback", "--yes", "--to", &ids[2]];
    let clean = traced(&duplicate(template.dir()), WATCHED, &[], &args);
    assert_eq!(clean.code, Some(0), "{}", clean.err);
    for (name, fault, nth) in [
        ("renameat", "error=EIO", 1),
        ("syncfs", "error=EIO", 0),
        ("fsync", "error=EIO", 0),
        ("linkat", "signal=TERM", 0),
        ("renameat", "signal=TERM", 0),
        ("syncfs", "signal=TERM", 1),
    ] {
        let places = after_the_first(&clean, name);
        let Some(place) = places.get(nth) else {
            continue;
        };
        let root = duplicate(template.dir());
        let inject = format!("{name}:{fault}:when={place}");
        let run = traced(&root, WATCHED, std::slice::from_ref(&inject), &args);
        if run.code == Some(0) {
            assert!(!root.exists("etc/series"), "{inject}");
            continue;
        }
        says_how_far(&run, &root, &ids);
    }
}

/// Left in the history, a rollback would take the place of a run that can be reverted.
#[test]
fn a_rollback_that_is_killed_anywhere_leaves_nothing_of_itself_in_the_history() {
    if !can_trace() {
        return;
    }
    let (template, ids) = root();
    let args = ["rollback", "--yes"];
    let clean = traced(&duplicate(template.dir()), WATCHED, &[], &args);
    assert_eq!(clean.code, Some(0), "{}", clean.err);
    let names = WATCHED.split(',');
    let points: Vec<(&str, usize)> = names
        .flat_map(|name| (1..=count(&clean.calls, name)).map(move |nth| (name, nth)))
        .collect();
    assert!(points.len() > 30, "{points:?}");
    let problems = on_threads(&points, |(name, nth)| {
        let root = duplicate(template.dir());
        kill(&root, name, *nth, &args);
        root.run(&["recover"]).ok();
        let is_reverted = !root.exists("etc/series/c0.conf");
        let wanted = BTreeSet::from_iter(ids[usize::from(is_reverted)..].iter().cloned());
        let kept = fs::read_dir(root.path("var/lib/mco-rescue/history")).unwrap();
        let kept: BTreeSet<String> = kept
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let unlike = format!("{name} {nth}, reverted {is_reverted}: {kept:?}");
        (kept != wanted).then_some(unlike).into_iter().collect()
    });
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn on_a_read_only_root_nothing_is_begun() {
    with_mounts(|| {
        let (root, ids) = root();
        let dir = root.dir().to_str().unwrap();
        mount(&["--bind", dir, dir]);
        mount(&["-o", "remount,bind,ro", dir]);
        let before = root.everything();
        for args in [
            &["rollback", "--yes"][..],
            &["rollback", "--yes", "--to", &ids[2]],
        ] {
            let run = root.run(args).exits(1);
            assert!(run.err().contains("read-only"), "{}", run.err());
            assert!(run.err().contains("nothing was changed"), "{}", run.err());
            assert!(!run.err().contains("recover"), "{}", run.err());
        }
        assert_eq!(root.everything(), before);
    });
}

#[test]
fn the_last_config_of_a_node_goes_only_if_its_run_is_named() {
    let root = TestRoot::new();
    root.apply(&config('a'));
    root.apply(&config('b'));
    let listed = || flat(&root.run(&["rollback", "--list"]).ok().out());
    assert!(listed().contains("# the first one"), "{}", listed());
    root.run(&["rollback", "--yes"]).ok();
    assert!(!listed().contains("# the first one"), "{}", listed());
    let before = root.read("etc/series/a0.conf");
    // A refusal is not what makes the next one go.
    let mut refused = String::new();
    for _ in 0..2 {
        let run = root.run(&["rollback", "--yes"]).exits(1);
        refused = flat(&run.err());
        assert!(refused.contains("had no config"), "{refused}");
        assert_eq!(root.read("etc/series/a0.conf"), before);
    }
    // A record of the last run that cannot be read proves nothing.
    let status = root.read("var/lib/mco-rescue/status.json");
    root.write("var/lib/mco-rescue/status.json", "{");
    let run = root.run(&["rollback", "--yes"]).exits(1);
    let said = flat(&run.err());
    assert!(
        said.contains("not known what ran last") && said.contains("rollback --to "),
        "{said}"
    );
    assert_eq!(root.read("etc/series/a0.conf"), before);
    root.write("var/lib/mco-rescue/status.json", &status);
    let (_, id) = refused.split_once("rollback --to ").unwrap();
    let id = id.split_whitespace().next().unwrap();
    root.run(&["rollback", "--yes", "--to", id]).ok();
    assert!(!root.exists("etc/series/a0.conf"));

    // Right after its run it is undone as every run is, and after one more run too.
    root.apply(&config('a'));
    root.run(&["rollback", "--yes"]).ok();
    root.apply(&config('a'));
    root.apply(&config('b'));
    root.run(&["rollback", "--yes"]).ok();
    root.apply(&config('c'));
    root.run(&["rollback", "--yes"]).ok();
    root.run(&["rollback", "--yes"]).exits(1);
}

#[test]
fn a_reboot_is_for_the_node_that_runs() {
    let root = TestRoot::new();
    root.apply(&config('a'));
    for command in ["apply", "rollback"] {
        let run = root.run(&[command, "--yes", "--reboot"]).exits(1);
        assert!(
            run.err().contains("only on the running node"),
            "{}",
            run.err()
        );
    }
    assert!(root.exists("etc/series/a0.conf"));
}
