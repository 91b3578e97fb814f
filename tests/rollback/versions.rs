//! State files of other versions of the program: those of 0.1.0 as that version wrote them (`tests/fixtures/states`), and those
//! of a newer version, made of them.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{self, Lacks, STATE, TestRoot, file, flat_run, is_root, skip, unsealed};

const OLD: &str = "tests/fixtures/states/0.1.0";
const ONE: &str = "rendered-worker-dc81c5455e52d31cfc85c8d9b12a1577";
const TWO: &str = "rendered-worker-bf79a56224f536a7c7e7f77650e06180";

/// A node with the state that version 0.1.0 left. `None`, said aloud, without the right to give files away.
fn node(state: &str) -> Option<TestRoot> {
    if !is_root() {
        skip(
            Lacks::Root,
            "the nodes with the state of 0.1.0 have files of several owners, which need root",
        );
        return None;
    }
    let root = TestRoot::empty();
    let mut command = Command::new("tar");
    let command = command
        .args(["--extract", "--same-owner", "--preserve-permissions"])
        .arg("--file")
        .arg(Path::new(OLD).join(format!("{state}.tar.gz")))
        .arg("--directory")
        .arg(root.dir());
    assert!(command.status().unwrap().success(), "{state}");
    Some(root)
}

/// The contents of the files that the two configs bring; None for one that is missing.
fn contents(root: &TestRoot) -> [Option<String>; 4] {
    let read = |name: &str| {
        let path = format!("etc/{name}.conf");
        root.exists(&path).then(|| root.read(&path))
    };
    ["one", "two", "both", "vendor"].map(read)
}

fn expected(texts: [&str; 4]) -> [Option<String>; 4] {
    texts.map(|text| (!text.is_empty()).then(|| format!("{text}\n")))
}

#[test]
fn runs_of_0_1_0_are_finished_undone_and_taken_back() {
    let before = ["one", "", "of-one", "# of the vendor"];
    let after = ["", "two", "of-two", "ours"];
    let none = ["", "", "", "# of the vendor"];
    for (state, args, files, recorded) in [
        ("staged", &["recover"][..], before, Some(ONE)),
        ("staged", &["recover", "--back"], before, Some(ONE)),
        ("half-way", &["recover"], after, Some(TWO)),
        ("half-way", &["recover", "--back"], before, Some(ONE)),
        ("half-way", &["apply", "--yes"], after, Some(TWO)),
        ("half-way", &["rollback", "--yes"], before, Some(ONE)),
        ("committed", &["recover"], after, Some(TWO)),
        ("committed", &["recover", "--back"], after, Some(TWO)),
        ("committed", &["rollback", "--yes"], before, Some(ONE)),
        ("applied", &["recover"], after, Some(TWO)),
        ("applied", &["rollback", "--yes"], before, Some(ONE)),
        ("taken-back", &["rollback", "--yes", "--to"], none, None),
    ] {
        let what = format!("{state}: {}", args.join(" "));
        let Some(root) = node(state) else { return };
        let list = root.run(&["rollback", "--list", "-o", "json"]).json();
        let oldest = list["runs"].as_array().unwrap().last().cloned();
        let oldest = oldest.map(|run| run["id"].as_str().unwrap().to_owned());
        let id = oldest.filter(|_| args.last() == Some(&"--to"));
        let args: Vec<&str> = args.iter().copied().chain(id.as_deref()).collect();
        root.run(&args).exits(0);
        assert_eq!(contents(&root), expected(files), "{what}");
        let status = root.run(&["status", "--output", "json"]).ok().json();
        assert_eq!(status["recorded"], json!(recorded), "{what}");
        assert_eq!(status["pending"], "nothing", "{what}");
        if recorded.is_some() {
            root.run(&["verify"]).exits(0);
        }
        // What it left is no more than a run of today leaves.
        let left = root.everything();
        let left: Vec<&String> = left
            .keys()
            .filter(|path| path.contains("/stage/"))
            .collect();
        assert_eq!(left, Vec::<&String>::new(), "{what}");
    }
}

#[test]
fn what_0_1_0_recorded_is_read_by_every_command_that_looks() {
    for (state, pending, code) in [
        ("staged", "staged", 0),
        ("half-way", "unfinished", 3),
        ("committed", "committed", 0),
        ("applied", "nothing", 0),
        ("taken-back", "nothing", 0),
    ] {
        let Some(root) = node(state) else { return };
        let before = root.everything();
        let status = root.run(&["status", "--output", "json"]).ok().json();
        assert_eq!(status["pending"], pending, "{state}");
        assert_eq!(status["last_run"]["outcome"], "done", "{state}");
        assert!(!status["history"].as_array().unwrap().is_empty(), "{state}");
        root.run(&["verify"]).exits(code);
        let history = root.run(&["history"]).ok();
        assert!(
            flat_run(&history).contains(ONE),
            "{state}: {}",
            history.out()
        );
        let found = root.run(&["doctor"]);
        let tells = flat_run(&found).contains("FP-10:");
        assert_eq!(tells, pending != "nothing", "{state}: {}", found.out());
        assert!(
            root.everything() == before,
            "{state}: a command that looks wrote"
        );
    }
    let Some(root) = node("cached") else { return };
    let listed = root.run(&["cache", "list"]).ok();
    assert!(listed.out().contains(ONE) && listed.out().contains(TWO));
    root.run(&["apply", "--yes", &format!("cached:{TWO}")]).ok();
    assert_eq!(contents(&root)[1].as_deref(), Some("two\n"));
}

/// The answer to a document of a newer version.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    /// Commands that change the node are refused, and these words of the way out are printed.
    Refused(&'static str),
    /// Only `rollback` is.
    NoRollback(&'static str),
    /// Only `install` is.
    NoInstall(&'static str),
    /// It is skipped aloud by this command, and written again some day.
    Skipped(&'static [&'static str]),
}

/// A document: its file, the state of the node, its text where 0.1.0 has none there, and what becomes of a newer one.
struct Document {
    file: String,
    state: &'static str,
    text: Option<Value>,
    then: Then,
}

fn documents(history: &str, cached: &str) -> Vec<Document> {
    use Then::{NoInstall, NoRollback, Refused, Skipped};
    let give_up = Refused("recover --give-up");
    let status = Skipped(&["status"]);
    let config = json!({"name": TWO, "digest": "", "origin": ""});
    let known = |file: &str, state, then| Document {
        file: file.to_owned(),
        state,
        text: None,
        then,
    };
    let new = |file: &str, text, then| Document {
        file: file.to_owned(),
        state: "applied",
        text: Some(text),
        then,
    };
    let mut mark = new("committed", json!({"version": 1, "id": ""}), give_up);
    mark.state = "committed";
    vec![
        known("intent.json", "staged", give_up),
        known("journal.json", "half-way", give_up),
        known(".journal.json.new", "staged", give_up),
        mark,
        known("status.json", "applied", status),
        known(
            history,
            "applied",
            NoRollback("rm -r /var/lib/mco-rescue/history/"),
        ),
        known(cached, "cached", Skipped(&["cache", "list"])),
        new(
            "trial.json",
            json!({"version": 1, "id": "1-1", "what": TWO, "began": 1, "window": 60, "boot_limit": 60, "phase": "applying",
                "boot": {"boot": "b"}, "head": "", "reboots": false, "login": {"boot": "b"}}),
            Refused("trial.json"),
        ),
        new(
            "trial-result.json",
            json!({"version": 1, "id": "1-1", "what": TWO, "outcome": "confirmed", "why": "", "began": 1, "ended": 2}),
            status,
        ),
        new(
            "awaited.json",
            json!({"version": 1, "way": "forward", "run": null, "boot": "b", "from": "f", "image": "i", "config": config,
                "kernel_arguments": [], "since": 0, "failed": "the previous deployment was booted again"}),
            Refused("awaited.json.version-2"),
        ),
        new(
            "os-runs.json",
            json!({"version": 1, "runs": [{"run": "1-1", "from": "f"}]}),
            Refused("os-runs.json.version-2"),
        ),
        new(
            "pins.json",
            json!({"version": 1, "deployments": ["f"]}),
            Refused("pins.json.version-2"),
        ),
        new(
            "asked.json",
            json!({"version": 1, "deployments": []}),
            Refused("asked.json.version-2"),
        ),
        new(
            "reboots.json",
            json!({"version": 1, "runs": []}),
            Refused("reboots.json.version-2"),
        ),
        new(
            "changes.json",
            json!({"version": 1, "changes": []}),
            Refused("changes.json.version-2"),
        ),
        new(
            "annotations.json",
            json!({"version": 1, "node": "worker-0", "seen": 1, "current": ONE, "desired": TWO, "state": "Done"}),
            status,
        ),
        new(
            "disruption-policies.json",
            json!({"version": 1, "asked": "received", "at": 1, "known": null}),
            status,
        ),
        new(
            "daemon-log.json",
            json!({"version": 1, "wanted": null, "current": null}),
            status,
        ),
        new(
            "server.json",
            json!({"version": 1, "url": "https://api-int.example:22623", "pool": "worker", "authorities": "", "answered": 1}),
            Skipped(&["doctor"]),
        ),
        new(
            "server-clock.json",
            json!({"version": 1, "url": "https://api-int.example:22623", "date": 1, "seen": 1}),
            Skipped(&["doctor"]),
        ),
        new(
            "install.json",
            json!({"version": 1, "directories": []}),
            NoInstall("rm /var/lib/mco-rescue/install.json"),
        ),
    ]
}

impl Document {
    /// A node with this document, after an edit.
    fn node(&self, edit: impl Fn(&mut Value)) -> Option<TestRoot> {
        let root = node(self.state)?;
        let path = format!("{STATE}/{}", self.file);
        let mut text = match (&self.text, root.exists(&path)) {
            (Some(text), _) => text.clone(),
            (None, there) => {
                assert!(there, "{path}");
                unsealed(&root.read(&path))
            }
        };
        if self.file == "committed" {
            text["id"] = unsealed(&root.read(&format!("{STATE}/journal.json")))["id"].clone();
        }
        edit(&mut text);
        root.write(&path, &text.to_string());
        Some(root)
    }

    fn path(&self) -> String {
        format!("/{STATE}/{}", self.file)
    }
}

/// The newest run and one config of the fixtures.
fn all_documents() -> Option<Vec<Document>> {
    let names = |root: &TestRoot, directory: &str| {
        let all = std::fs::read_dir(root.path(&format!("{STATE}/{directory}"))).unwrap();
        let mut names: Vec<String> = all
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names.pop().unwrap()
    };
    let run = names(&node("applied")?, "history");
    let cached = names(&node("cached")?, "cache");
    let history = format!("history/{run}/journal.json");
    Some(documents(&history, &format!("cache/{cached}")))
}

const LOOKING: [&[&str]; 6] = [
    &["status"],
    &["verify"],
    &["history"],
    &["doctor"],
    &["cache", "list"],
    &["plan"],
];
const CHANGING: [&[&str]; 5] = [
    &["recover"],
    &["rollback", "--yes"],
    &["apply", "--yes"],
    &["complete"],
    &["install", "--remove", "--yes"],
];

/// Exit codes of all commands, and the status afterwards, of a node of its own each.
fn results(make: &dyn Fn() -> Option<TestRoot>) -> Option<Vec<(String, i32, String)>> {
    let mut all = Vec::new();
    for args in LOOKING.iter().chain(&CHANGING) {
        let root = make()?;
        let code = root.run(args).code();
        let mut status = root.run(&["status", "--output", "json"]).ok().json();
        for changing in ["now", "root", "last_run"] {
            status[changing] = Value::Null;
        }
        if let Some(ended) = status.pointer_mut("/last_trial/ended") {
            *ended = Value::Null;
        }
        // A run of these commands has an id of its own.
        let history = status["history"].as_array().map(Vec::len);
        status["history"] = json!(history);
        let shown = status.to_string();
        let shown = shown.replace(root.dir().to_str().unwrap(), "ROOT");
        all.push((args.join(" "), code, shown));
    }
    Some(all)
}

#[test]
fn keys_that_are_not_known_change_nothing() {
    let Some(all) = all_documents() else { return };
    for document in all {
        let same = results(&|| document.node(|_| {}));
        let more = results(&|| {
            document.node(|text| {
                text["of_a_newer_version"] = json!({"keys": [1, null, {"a": "b"}]});
            })
        });
        for (same, more) in same.iter().flatten().zip(more.iter().flatten()) {
            assert_eq!(same, more, "{}", document.path());
        }
    }
}

#[test]
fn a_document_of_a_newer_version_is_refused_or_skipped_in_words() {
    let Some(all) = all_documents() else { return };
    for document in &all {
        let path = document.path();
        let newer = || document.node(|text| text["version"] = json!(2)).unwrap();
        let named = match document.then {
            // The run is named by its directory.
            Then::NoRollback(_) => path.trim_end_matches("/journal.json").to_owned(),
            Then::Skipped(["cache", ..]) => Path::new(&path)
                .file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned(),
            _ => path.clone(),
        };
        for args in LOOKING.iter().chain(&CHANGING).chain(&[&["install"][..]]) {
            let root = newer();
            let before = root.everything();
            let run = root.run(args);
            // The commands have the paths of this machine.
            let said = flat_run(&run).replace(root.dir().to_str().unwrap(), "");
            let what = format!("{path}: {}: exit {}: {said}", args.join(" "), run.code());
            let changes = CHANGING.contains(args);
            let way = match document.then {
                Then::Refused(way) if changes || args == &["plan"] => Some(way),
                Then::NoRollback(way) if args == &["rollback", "--yes"] => Some(way),
                Then::NoInstall(way) if args == &["install"] => Some(way),
                _ => None,
            };
            if let Some(way) = way {
                assert_eq!(run.code(), 1, "{what}");
                assert!(said.contains(&named) && said.contains(way), "{what}");
                assert!(said.contains("version 2"), "{what}");
                assert!(root.everything() == before, "{what}: it wrote");
            } else if LOOKING.contains(args) {
                assert!(root.everything() == before, "{what}: it wrote");
            }
            let Then::Skipped(teller) = document.then else {
                continue;
            };
            if args == &teller {
                assert!(
                    said.contains(&named) && said.contains("version 2"),
                    "{what}"
                );
            }
            // Without a record there is nothing to compare or to plan.
            if !changes && args != &["plan"] && args != &["verify"] {
                assert_ne!(run.code(), 1, "{what}");
            }
        }
    }
}

#[test]
fn every_way_out_of_a_newer_version_leads_out() {
    let Some(all) = all_documents() else { return };
    for document in &all {
        if matches!(document.then, Then::Skipped(_)) {
            continue;
        }
        let path = document.path();
        let root = document.node(|text| text["version"] = json!(2)).unwrap();
        let refused: &[&str] = match document.then {
            Then::NoInstall(_) => &["install"],
            _ => &["rollback", "--yes"],
        };
        let said = flat_run(&root.run(refused).exits(1));
        if said.contains("--give-up") {
            // Files of before may stand beside those of the run, so the exit code is that of a difference.
            root.run(&["recover", "--give-up"]).exits(3);
        } else {
            let begin = said
                .find(&format!("mv {}", root.dir().display()))
                .or_else(|| said.find("rm "))
                .or_else(|| said.find("mv /var"));
            let command = &said[begin.unwrap_or_else(|| panic!("{path}: {said}"))..];
            let words: Vec<&str> = command.split([' ', ';']).collect();
            let length = match words[..] {
                ["rm", "-r", ..] | ["mv", ..] => 3,
                _ => 2,
            };
            // Paths without the root are those of the node.
            let inside = |word: &&str| match word.strip_prefix("/var/") {
                Some(rest) => root.path(&format!("var/{rest}")).display().to_string(),
                None => (*word).to_owned(),
            };
            let arguments: Vec<String> = words[1..length].iter().map(inside).collect();
            let status = Command::new(words[0]).args(&arguments).status().unwrap();
            assert!(status.success(), "{path}: {command}");
        }
        let status = root.run(&["status"]).ok();
        assert!(!flat_run(&status).contains("has version"), "{path}");
        let config = root.config(&support::machine_config(
            "rendered-worker-00000000000000000000000000000000",
            json!({"storage": {"files": [file("/etc/three.conf", 0o644, "three\n")]}}),
        ));
        let args = [
            "apply",
            "--yes",
            "--edited-config",
            "--allow-removals",
            config.path(),
        ];
        root.run(&args).ok();
        assert_eq!(root.read("etc/three.conf"), "three\n", "{path}");
        root.run(&["install"]).ok();
    }
}

#[test]
fn a_snapshot_of_a_newer_version_is_named_and_left() {
    let Some(root) = node("applied") else { return };
    root.run(&["record"]).ok();
    let snapshot = format!("{STATE}/recorder/snapshot-000001.json");
    let mut text = unsealed(&root.read(&snapshot));
    text["version"] = json!(2);
    root.write(&snapshot, &text.to_string());
    let before = root.read(&snapshot);
    let said = flat_run(&root.run(&["history"]));
    assert!(
        said.contains("snapshot-000001.json") && said.contains("it has version 2"),
        "{said}"
    );
    root.run(&["record"]).ok();
    assert_eq!(root.read(&snapshot), before);
}
