//! The JSON documents: their schemas are those of one table, and a validator accepts what the program prints.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::documents::{Table, file_name};
use crate::support::mounts::with_mounts;
use crate::support::ostree_node::{IMAGE, NEXT, OstreeNode};
use crate::support::{Lacks, POLICY, Run, TestRoot, file, machine_config, skip};

/// With this variable the schemas are written, and not compared.
const WRITE: &str = "MCO_RESCUE_WRITE_DOCS";

const DIRECTORY: &str = "docs/schemas";

#[test]
fn the_schemas_are_those_of_the_table() {
    let table = Table::read();
    let mut wanted: BTreeMap<String, String> = BTreeMap::new();
    for name in table.documents.keys() {
        let schema = serde_json::to_string_pretty(&table.json_schema(name)).unwrap() + "\n";
        wanted.insert(file_name(name), schema);
    }
    wanted.insert("README.md".to_owned(), table.page());
    let directory = Path::new(DIRECTORY);
    for (name, text) in &wanted {
        let path = directory.join(name);
        if std::env::var_os(WRITE).is_some() {
            fs::create_dir_all(directory).unwrap();
            fs::write(&path, text).unwrap();
        }
        let there = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            there == *text,
            "{} is not that of tests/support/documents.txt: {WRITE}=1 cargo test --test main documents",
            path.display()
        );
    }
    for entry in fs::read_dir(directory).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(wanted.contains_key(&name), "{name} is of no document");
    }
}

#[test]
fn every_key_has_a_meaning_that_is_a_sentence() {
    let table = Table::read();
    for (name, entry) in table.documents.iter().chain(&table.types) {
        assert!(
            entry.meaning.ends_with(['.', '`']),
            "{name}: {}",
            entry.meaning
        );
    }
    for name in table.documents.keys() {
        let text = table.json_schema(name).to_string();
        assert!(!text.contains(r#""description":"""#), "{name}");
    }
}

#[test]
fn a_document_that_differs_from_the_table_is_found() {
    let table = Table::read();
    let document = json!({
        "schema": "mco-rescue/key/v1", "kind": "ssh-ed25519", "fingerprint": "SHA256:x", "comment": "", "path": "/x",
        "steps": 1,
    });
    assert_eq!(table.differences(&document), Vec::<String>::new());
    for (key, value) in [
        ("more", json!(1)),
        ("steps", json!("1")),
        ("steps", Value::Null),
    ] {
        let mut wrong = document.clone();
        wrong[key] = value;
        assert_eq!(table.differences(&wrong).len(), 1, "{wrong}");
    }
    let mut wrong = document.clone();
    wrong.as_object_mut().unwrap().remove("comment");
    assert_eq!(table.differences(&wrong), ["key/v1: no comment"]);
    let unknown = json!({"schema": "mco-rescue/other/v1"});
    assert_eq!(table.differences(&unknown).len(), 1);
}

/// The documents of many commands on several roots.
#[derive(Default)]
struct Collected(Vec<Value>);

impl Collected {
    fn add(&mut self, run: Run) {
        let document = run.json();
        assert!(document["schema"].is_string(), "{document:#}");
        self.0.push(document);
    }

    /// Runs each command with JSON.
    fn run(&mut self, root: &TestRoot, commands: &[&[&str]]) {
        for command in commands {
            self.add(root.run(&[&["--output", "json"], *command].concat()));
        }
    }

    fn kinds(&self) -> BTreeSet<String> {
        let kind = |one: &Value| one["schema"].as_str().unwrap().replace("mco-rescue/", "");
        self.0.iter().map(kind).collect()
    }
}

fn config(number: usize, files: &[Value]) -> Value {
    let name = format!("rendered-worker-{number}");
    let unit = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";
    machine_config(
        &name,
        json!({
            "storage": {"files": files},
            "systemd": {"units": [{"name": "a.service", "contents": unit, "enabled": number == 1}]},
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": [format!("ssh-ed25519 AAAA {name}")]}]},
        }),
    )
}

fn of_a_directory(all: &mut Collected) {
    let root = TestRoot::new();
    all.run(
        &root,
        &[
            &["status"],
            &["doctor"],
            &["doctor", "--list"],
            &["rollback", "--list"],
            &["recover"],
            &["complete"],
            &["cache", "list"],
        ],
    );
    let one = config(
        1,
        &[
            file("/etc/one", 0o644, "1\n"),
            file("/etc/both", 0o600, "1\n"),
        ],
    );
    let two = config(
        2,
        &[
            file("/etc/two", 0o644, "2\n"),
            file("/etc/both", 0o644, "2\n"),
        ],
    );
    let (first, second) = (root.config(&one), root.config(&two));
    let key = root.path("key.pub");
    let line = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f me@desk\n";
    root.write("key.pub", line);
    let butane = root.path("one.bu");
    let head = "variant: openshift\nversion: 4.18.0\nmetadata:\n  name: a\n  labels:\n";
    let role = "    machineconfiguration.openshift.io/role: worker\nunknown: 1\n";
    root.write("one.bu", &format!("{head}{role}"));
    root.write("etc/two", "by hand\n");
    root.link("etc/both", "one");
    all.run(
        &root,
        &[
            &["butane", butane.to_str().unwrap()],
            &["show", first.path()],
            &["show", first.path(), "/etc/both"],
            &["plan", first.path()],
            &["fetch", first.path()],
            &["apply", "--yes", first.path()],
            &["verify"],
            &["plan", second.path()],
            &["apply", "--yes", "--key", key.to_str().unwrap()],
            &["verify"],
            &["apply", "--yes", second.path()],
            &["cache", "list"],
            &["rollback", "--list"],
            &["status"],
            &["doctor", "FP-03"],
            &["record"],
            &["history"],
        ],
    );
    root.write("etc/NetworkManager/system-connections/a.nmconnection", "");
    let fix = &["doctor", "--yes", "--fix", "FP-12"];
    all.run(&root, &[&["doctor"], fix, fix, &["rollback", "--yes"]]);
    let gathered = root.path("gathered");
    let status = root.run(&["status", "--output", "json"]).ok();
    root.write("gathered/worker-0.json", &status.out());
    all.run(&root, &[&["report", gathered.to_str().unwrap()]]);
    root.write("etc/two", "edited\n");
    all.run(&root, &[&["keep"]]);
    root.chmod("etc/both", 0o600);
    root.remove("etc/systemd/system/a.service");
    all.run(&root, &[&["verify"], &["doctor"], &["plan", second.path()]]);
    all.run(&root, &[&["diff", "1"], &["record"], &["history"]]);
    root.remove("etc/machine-config-daemon/currentconfig");
    all.run(&root, &[&["status"], &["doctor"]]);
    all.run(
        &root,
        &[&["apply", "--yes", second.path()], &["rollback", "--yes"]],
    );
    // A refusal is a plan with blockers.
    root.write("etc/in-the-way/file", "x\n");
    let refused = root.config(&config(3, &[file("/etc/in-the-way", 0o644, "3\n")]));
    all.add(
        root.run(&["--output", "json", "apply", "--yes", refused.path()])
            .exits(1),
    );
    all.add(
        root.run(&["--output", "json", "doctor", "--until", "2999-12-31"])
            .exits(3),
    );
    let stick = root.path("stick");
    fs::create_dir(&stick).unwrap();
    fs::write(stick.join("one.json"), fs::read(first.path()).unwrap()).unwrap();
    let stick = stick.to_str().unwrap();
    all.run(
        &root,
        &[
            &["capsule", "make", stick, "--unsigned"],
            &["capsule", "show", stick],
        ],
    );
    let archive = root.path("rescue.img");
    all.run(
        &root,
        &[
            &["install"],
            &["install", "--remove", "--yes"],
            &[
                "install",
                "--initramfs",
                archive.to_str().unwrap(),
                "--config",
                first.path(),
            ],
        ],
    );
}

/// A node with a stand-in for rpm-ostree.
fn of_a_system(all: &mut Collected) {
    let node = OstreeNode::new();
    node.root.write(POLICY.0, POLICY.1);
    for (path, number, image) in [("config", 1, IMAGE), ("next", 2, NEXT)] {
        let mut config = config(number, &[file("/etc/site", 0o644, "of both\n")]);
        config["spec"]["osImageURL"] = json!(image);
        config["spec"]["kernelArguments"] = json!([format!("a={number}")]);
        node.root.write(path, &config.to_string());
    }
    let mut run = |args: &[&str]| {
        let found = node.run(&[&["--output", "json"], args].concat());
        if found.out().is_empty() {
            panic!("{args:?}: {}", found.err());
        }
        all.add(found);
    };
    run(&["apply", "--yes", "/config"]);
    run(&["plan", "/next"]);
    run(&["status", "--for-cluster"]);
    run(&["change", "runtime", "pidsLimit=4096"]);
    run(&["apply", "--yes", "/next"]);
    run(&["status"]);
    run(&["doctor"]);
    run(&["complete"]);
    run(&["rollback", "--list"]);
    run(&["rollback", "--yes"]);
    run(&["pivot", "--yes", NEXT]);
    run(&["rollback", "--forget"]);
}

/// Reads `[schema, document]` in each line, and prints what the validator finds.
const VALIDATE: &str = r#"
import json, sys
from jsonschema import Draft202012Validator
count = 0
for line in sys.stdin:
    schema, document = json.loads(line)
    Draft202012Validator.check_schema(schema)
    for error in Draft202012Validator(schema).iter_errors(document):
        print(schema["title"], error.json_path, error.message[:300])
    count += 1
print(count)
"#;

/// A Python that has the validator: Debian's, which tests/setup.sh installs, or the first one of PATH.
fn python() -> Option<&'static str> {
    ["/usr/bin/python3", "python3"].into_iter().find(|python| {
        let found = Command::new(python)
            .args(["-c", "import jsonschema"])
            .output();
        found.is_ok_and(|output| output.status.success())
    })
}

#[test]
fn a_validator_accepts_what_the_program_prints() {
    let mut all = Collected::default();
    of_a_directory(&mut all);
    let mut kinds = BTreeSet::from([
        "plan/v1",
        "verify/v1",
        "doctor/v1",
        "doctor-check/v1",
        "doctor-list/v1",
        "doctor-fix/v1",
        "doctor-until/v1",
        "show/v1",
        "show-file/v1",
        "recover/v1",
        "install/v1",
        "fetch/v1",
        "cache/v1",
        "butane/v1",
        "key/v1",
        "record/v1",
        "history/v1",
        "diff/v1",
        "rollback/v1",
        "rollback-list/v1",
        "complete/v1",
        "status/v1",
        "fleet/v1",
        "keep/v1",
        "capsule-made/v1",
        "capsule/v1",
    ]);
    with_mounts(|| {
        of_a_system(&mut all);
        kinds.extend(["pivot/v1", "forget/v1", "for-cluster/v1", "change/v1"]);
    });
    let kinds: BTreeSet<String> = kinds.into_iter().map(str::to_owned).collect();
    assert_eq!(all.kinds(), kinds);
    let table = Table::read();
    // The tests of their commands read the others.
    assert!(table.documents.len() <= kinds.len() + 9);
    let Some(python) = python() else {
        return skip(
            Lacks::Setup,
            "no validator: python3-jsonschema is not installed",
        );
    };
    let mut lines = String::new();
    for document in &all.0 {
        let schema = document["schema"]
            .as_str()
            .unwrap()
            .replace("mco-rescue/", "");
        let path = Path::new(DIRECTORY).join(file_name(&schema));
        let schema: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        lines += &format!("{}\n", json!([schema, document]));
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("documents");
    fs::write(&path, lines).unwrap();
    let output = Command::new(python)
        .args(["-c", VALIDATE])
        .stdin(fs::File::open(path).unwrap())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.trim(), all.0.len().to_string(), "{err}");
}
