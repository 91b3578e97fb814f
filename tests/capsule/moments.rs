//! What happens to a stick while it is read, and to a run while it is carried out: what is used is what was checked, and a number is
//! remembered exactly if its run is done.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use super::keys::{NAME, Stick, config_text};
use crate::support::faults::{CHANGING, can_trace, copy_tree, duplicate, on_threads, traced};
use crate::support::steps::Stepped;
use crate::support::{Run, TestRoot, flat, say};

const KNOWN: &str = "var/lib/mco-rescue/capsules.json";
const FILE: &str = "etc/from-stick";

/// The last number that a node remembers.
pub(super) fn number(root: &TestRoot) -> Option<u64> {
    let bytes = fs::read(root.path(KNOWN)).ok()?;
    let value: Value = serde_json::from_slice(&bytes).unwrap();
    value["last"]["sequence"].as_u64()
}

/// Calls at which a run stands still: the name of a call, and a part of its line.
const MOMENTS: [(&str, &str); 6] = [
    ("openat2", "mco-rescue/allowed_signers"),
    ("openat", "\"capsule.json\""),
    ("openat", "\"capsule.json.sig\""),
    ("openat", "\"one.json\""),
    ("read", "MachineConfig"),
    ("renameat", ".journal.json.new"),
];

/// What is done to the stick then.
type StickChange = (&'static str, fn(&Path));

const CHANGES: [StickChange; 6] = [
    ("the config is written over", |stick| {
        fs::write(stick.join("configs/one.json"), evil()).unwrap();
    }),
    ("another config gets its name", |stick| {
        fs::write(stick.join("new"), evil()).unwrap();
        fs::rename(stick.join("new"), stick.join("configs/one.json")).unwrap();
    }),
    ("a link gets its name", |stick| {
        fs::write(stick.join("new"), evil()).unwrap();
        fs::remove_file(stick.join("configs/one.json")).unwrap();
        symlink(stick.join("new"), stick.join("configs/one.json")).unwrap();
    }),
    ("another directory gets the name of its own", |stick| {
        fs::rename(stick.join("configs"), stick.join("was")).unwrap();
        fs::create_dir(stick.join("evil")).unwrap();
        fs::write(stick.join("evil/one.json"), evil()).unwrap();
        symlink("evil", stick.join("configs")).unwrap();
    }),
    ("another stick gets its place", |stick| {
        let was = stick.with_extension("was");
        fs::rename(stick, &was).unwrap();
        fs::create_dir_all(stick.join("configs")).unwrap();
        fs::rename(was, stick.join("was")).unwrap();
        fs::write(stick.join("configs/one.json"), evil()).unwrap();
    }),
    ("the list is written over", |stick| {
        let list = fs::read_to_string(stick.join("capsule.json")).unwrap();
        let list = list.replace("\"sequence\": 7", "\"sequence\": 9");
        fs::write(stick.join("capsule.json"), list).unwrap();
        fs::write(stick.join("configs/one.json"), evil()).unwrap();
    }),
];

/// A config as long as the signed one.
fn evil() -> String {
    config_text(NAME, "X\n")
}

/// Stops `apply` after a call, changes the stick, and gives the end of the run, and if the call was the one of the moment: threads
/// that look at the node make the same calls, in an order of their own.
fn apply_changed(stick: &Stick, at: (&str, &str), change: fn(&Path)) -> Option<(Run, bool)> {
    let config = stick.config();
    let args = ["apply", "--yes", &config];
    let clean = duplicate(stick.root.dir());
    let clean = traced(&clean, at.0, &[], &args);
    assert_eq!(clean.code, Some(0), "{}", clean.err);
    let mut same = clean.calls.iter().filter(|call| call.name == at.0);
    let nth = same.position(|call| call.line.contains(at.1))? + 1;
    let fault = format!("{}:signal=STOP:when={nth}", at.0);
    let mut run = Stepped::start(&stick.root, at.0, &[fault], &args);
    let is_there = run.next()?.line.contains(at.1);
    change(stick.stick.path());
    run.resume();
    Some((Run::of(run.output()), is_there))
}

#[test]
fn a_stick_that_changes_while_it_is_read_gives_what_was_checked_or_nothing() {
    if !can_trace() {
        return;
    }
    let mut cells = Vec::new();
    for moment in MOMENTS {
        for change in CHANGES {
            cells.push((moment, change));
        }
    }
    let (exact, read) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let problems = on_threads(&cells, |(moment, (what, change))| {
        let Some(stick) = Stick::new() else {
            return Vec::new();
        };
        let before = stick.root.snapshot();
        let Some((run, is_there)) = apply_changed(&stick, *moment, *change) else {
            return vec![format!("{moment:?} is no moment of a run")];
        };
        exact.fetch_add(usize::from(is_there), Ordering::Relaxed);
        let said = flat(&format!("{} {}", run.out(), run.err()));
        let applied = stick.root.exists(FILE).then(|| stick.root.read(FILE));
        let fault = match (run.code(), applied.as_deref(), number(&stick.root)) {
            (0, Some("1\n"), Some(7)) => {
                read.fetch_add(1, Ordering::Relaxed);
                None
            }
            (1, None, None) if stick.root.snapshot() == before => None,
            other => Some(format!("{moment:?}, {what}: {other:?}: {said}")),
        };
        fault.into_iter().collect()
    });
    let [exact, read] = [exact, read].map(AtomicUsize::into_inner);
    let all = cells.len();
    say(&format!(
        "{all} changes of a stick while it is read, {exact} at the very call; {read} runs applied what was signed"
    ));
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(exact * 2 > all && read > 0 && read < all, "{exact} {read}");
}

/// A node that has taken capsule 7, and a stick with capsule 8 and another config.
fn second_stick() -> Option<Stick> {
    let stick = Stick::new()?;
    assert_eq!(stick.apply().code(), 0);
    stick.put("configs/one.json", &config_text("rendered-worker-2", "2\n"));
    stick.make(&["--sequence", "8"]);
    Some(stick)
}

/// Problems of a node whose number and files do not belong together.
fn torn(root: &TestRoot) -> Option<String> {
    let (number, text) = (number(root), root.read(FILE));
    match (number, text.as_str()) {
        (Some(7), "1\n") | (Some(8), "2\n") => None,
        other => Some(format!("number and file are {other:?}")),
    }
}

#[test]
fn a_number_is_remembered_if_and_only_if_its_run_is_done_wherever_it_is_killed() {
    if !can_trace() {
        return;
    }
    let Some(stick) = second_stick() else { return };
    let config = stick.config();
    let args = ["apply", "--yes", &config];
    let template = tempfile::tempdir().unwrap();
    copy_tree(stick.root.dir(), template.path());
    let clean = traced(&duplicate(template.path()), &CHANGING.join(","), &[], &args);
    assert_eq!(clean.code, Some(0), "{}", clean.err);
    let mut points = Vec::new();
    for call in CHANGING {
        let count = clean.calls.iter().filter(|one| one.name == call).count();
        points.extend((1..=count).map(|nth| (call, nth)));
    }
    let problems = on_threads(&points, |(call, nth)| {
        let complain = |why: String| format!("killed at {call} {nth}: {why}");
        let mut problems = Vec::new();
        for back in [false, true] {
            let root = duplicate(template.path());
            let fault = format!("{call}:signal=KILL:when={nth}");
            traced(&root, call, &[fault], &args).was_killed(call, *nth);
            // What is remembered already is of a run that only goes forward.
            if number(&root) == Some(8) && root.read(FILE) != "2\n" {
                problems.push(complain("the number is ahead of the run".to_owned()));
            }
            let recover: &[&str] = if back {
                &["recover", "--yes", "--back"]
            } else {
                &["recover", "--yes"]
            };
            let recovered = root.run(recover);
            if recovered.code() != 0 {
                problems.push(complain(recovered.err()));
            }
            problems.extend(torn(&root).map(complain));
            // The second run, with the same stick.
            let again = root.run(&args);
            if again.code() != 0 || number(&root) != Some(8) || root.read(FILE) != "2\n" {
                let said = format!("again: {} {:?}", again.err(), number(&root));
                problems.push(complain(said));
            }
        }
        problems
    });
    say(&format!(
        "killed at {} calls, forward and back",
        points.len()
    ));
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn a_run_that_fails_leaves_the_number_as_it_was() {
    let Some(stick) = second_stick() else { return };
    // Refused: nothing can be made where a directory is.
    fs::remove_file(stick.root.path(FILE)).unwrap();
    fs::create_dir_all(stick.root.path(FILE).join("full")).unwrap();
    let refused = stick.apply();
    assert_ne!(refused.code(), 0);
    assert_eq!(number(&stick.root), Some(7), "{}", refused.err());
    fs::remove_dir_all(stick.root.path(FILE)).unwrap();
    assert_eq!(stick.apply().code(), 0);
    assert_eq!(number(&stick.root), Some(8));
    // What was taken back was seen all the same.
    assert_eq!(stick.root.run(&["rollback", "--yes"]).code(), 0);
    assert_eq!(number(&stick.root), Some(8));
}

#[test]
fn fetches_beside_each_other_lose_no_number() {
    let Some(stick) = Stick::new() else { return };
    let sticks: Vec<tempfile::TempDir> = (8..16)
        .map(|number: u64| {
            stick.put(
                "configs/one.json",
                &config_text(NAME, &format!("{number}\n")),
            );
            stick.make(&["--sequence", &number.to_string()]);
            let copy = tempfile::tempdir().unwrap();
            copy_tree(stick.stick.path(), copy.path());
            copy
        })
        .collect();
    let children: Vec<_> = sticks
        .iter()
        .map(|stick_copy| {
            let path = stick_copy.path().join("configs/one.json");
            let mut command: Command = stick.root.command(&["fetch", path.to_str().unwrap()]);
            let command = command.stdout(Stdio::null()).stderr(Stdio::null());
            command.spawn().unwrap()
        })
        .collect();
    for mut child in children {
        child.wait().unwrap();
    }
    // Those that came late were refused or changed nothing.
    assert_eq!(number(&stick.root), Some(15));
}
