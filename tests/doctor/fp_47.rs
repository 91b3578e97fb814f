//! FP-47: databases of Open vSwitch and OVN, made by the real `ovsdb-tool`, and what the real `ovsdb-server` does with damaged ones.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{CRITICAL, FINE, WARNING, doctor, found, of, says, unseen};
use crate::support::{Lacks, TestRoot, say, skip};

const CONF: &str = "etc/openvswitch/conf.db";
const NORTH: &str = "var/lib/ovn-ic/etc/ovnnb_db.db";
const SCHEMA: &str = r#"{"name":"Test","version":"1.0.0","tables":{"T":{"columns":{"n":{"type":"integer"}},"isRoot":true}}}"#;

fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn insert(number: u32) -> String {
    format!(r#"["Test",{{"op":"insert","table":"T","row":{{"n":{number}}}}}]"#)
}

/// Is true if the programs are here.
fn has_ovsdb() -> bool {
    let there = Command::new("ovsdb-tool").arg("--version").output().is_ok();
    if !there {
        skip(
            Lacks::Setup,
            "ovsdb-tool is not installed (on Debian: openvswitch-common)",
        );
    }
    there
}

/// A database with a schema and six transactions.
fn standalone(dir: &Path) -> Vec<u8> {
    let (schema, file) = (dir.join("schema"), dir.join("standalone.db"));
    fs::write(&schema, SCHEMA).unwrap();
    let file_text = file.to_str().unwrap();
    run(
        "ovsdb-tool",
        &["create", file_text, schema.to_str().unwrap()],
    );
    for number in 1..=6 {
        run("ovsdb-tool", &["transact", file_text, &insert(number)]);
    }
    fs::read(file).unwrap()
}

/// The same of a cluster of one server.
fn clustered(dir: &Path) -> Vec<u8> {
    let (schema, file) = (dir.join("schema"), dir.join("clustered.db"));
    fs::write(&schema, SCHEMA).unwrap();
    let raft = format!("unix:{}", dir.join("raft").display());
    run(
        "ovsdb-tool",
        &[
            "create-cluster",
            file.to_str().unwrap(),
            schema.to_str().unwrap(),
            &raft,
        ],
    );
    let mut server = Server::start(dir, &file);
    assert!(server.rows().is_some());
    for number in 1..=6 {
        run(
            "ovsdb-client",
            &["transact", &server.socket, &insert(number)],
        );
    }
    drop(server);
    fs::read(file).unwrap()
}

/// The real server on one database; it does nothing but answer.
struct Server {
    child: Child,
    socket: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(dir: &Path, file: &Path) -> Self {
        let socket = dir.join("socket");
        let _ = fs::remove_file(&socket);
        let child = Command::new("ovsdb-server")
            .args(["--no-chdir", "--log-file=/dev/null"])
            .arg(format!("--unixctl={}", dir.join("control").display()))
            .arg(format!("--remote=punix:{}", socket.display()))
            .arg(file)
            .env("OVS_RUNDIR", dir)
            .env("OVS_LOGDIR", dir)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self {
            child: child.unwrap(),
            socket: format!("unix:{}", socket.display()),
        }
    }

    /// Returns the number of rows, once the server answers; `None` if it has ended.
    fn rows(&mut self) -> Option<usize> {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if self.child.try_wait().unwrap().is_some() {
                return None;
            }
            let dump = Command::new("ovsdb-client")
                .args(["-f", "json", "dump", &self.socket, "Test"])
                .output()
                .unwrap();
            if let Ok(table) = serde_json::from_slice::<Value>(&dump.stdout) {
                return Some(table["data"].as_array().unwrap().len());
            }
            assert!(Instant::now() < deadline, "{dump:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Offsets of the records: of their headers and of their data.
fn records(bytes: &[u8]) -> Vec<(usize, usize)> {
    let text = std::str::from_utf8(bytes).unwrap();
    let headers = text
        .match_indices("OVSDB ")
        .filter(|(at, _)| *at == 0 || bytes[at - 1] == b'\n');
    headers
        .map(|(at, _)| (at, at + text[at..].find('\n').unwrap() + 1))
        .collect()
}

/// A damage: what, and which part of the database with records at these places.
type Damage = (&'static str, fn(Vec<u8>, &[(usize, usize)]) -> Vec<u8>);

fn flip(mut bytes: Vec<u8>, at: usize) -> Vec<u8> {
    bytes[at] ^= 1;
    bytes
}

const DAMAGES: [Damage; 17] = [
    ("none", |bytes, _| bytes),
    ("empty", |_, _| Vec::new()),
    ("zeros", |bytes, _| vec![0; bytes.len()]),
    ("garbage", |_, _| b"garbage\n".to_vec()),
    ("first header cut off", |bytes, _| bytes[..20].to_vec()),
    ("first header, bad length", |bytes, _| flip(bytes, 14)),
    ("first header, bad magic", |bytes, _| flip(bytes, 2)),
    ("first data flipped", |bytes, at| flip(bytes, at[0].1 + 9)),
    ("first data cut off", |bytes, at| {
        bytes[..at[0].1 + 10].to_vec()
    }),
    ("only the first", |bytes, at| bytes[..at[1].0].to_vec()),
    ("last data cut off", |bytes, _| {
        bytes[..bytes.len() - 7].to_vec()
    }),
    ("last header cut off", |bytes, at| {
        bytes[..at.last().unwrap().0 + 15].to_vec()
    }),
    ("last data flipped", |bytes, at| {
        flip(bytes, at.last().unwrap().1 + 5)
    }),
    ("middle data flipped", |bytes, at| {
        flip(bytes, at[at.len() / 2].1 + 5)
    }),
    ("middle hash flipped", |bytes, at| {
        flip(bytes, at[at.len() / 2].1 - 3)
    }),
    ("middle header flipped", |bytes, at| {
        flip(bytes, at[at.len() / 2].0)
    }),
    ("zeros behind the end", |bytes, _| {
        [bytes, vec![0; 600]].concat()
    }),
];

/// The verdict of the program: if the server starts, and the number of sound records.
fn verdict(root: &TestRoot) -> (bool, Option<usize>) {
    let all = of(&doctor(root), "FP-47");
    let Some(one) = all.first() else {
        return (true, None);
    };
    let said = one["evidence"][0]["said"].as_str().unwrap();
    let records = said.split(' ').next().unwrap().parse().unwrap_or(0);
    (one["severity"] != "critical", Some(records))
}

#[test]
fn the_verdict_on_damaged_databases_is_that_of_the_server() {
    if !has_ovsdb() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let root = TestRoot::new();
    let mut compared = 0;
    for bytes in [standalone(dir.path()), clustered(dir.path())] {
        let places = records(&bytes);
        let text = std::str::from_utf8(&bytes).unwrap();
        let is_row =
            |place: &(usize, usize)| text[place.1..].lines().next().unwrap().contains("\"n\":");
        for (what, damage) in DAMAGES {
            let damaged = damage(bytes.clone(), &places);
            root.write(CONF, "");
            fs::write(root.path(CONF), &damaged).unwrap();
            let (starts, records) = verdict(&root);
            let file = dir.path().join("damaged.db");
            fs::write(&file, &damaged).unwrap();
            let rows = Server::start(dir.path(), &file).rows();
            assert_eq!(starts, rows.is_some(), "{what}");
            // Rows come from records that are sound and before the first one that is not.
            let sound = records.unwrap_or(usize::MAX).min(places.len());
            let of_records = places[..sound]
                .iter()
                .skip(1)
                .filter(|place| is_row(place))
                .count();
            let of_records = if what == "only the first" {
                0
            } else {
                of_records
            };
            assert!(
                !starts || rows == Some(of_records),
                "{what}: {rows:?} {of_records}"
            );
            compared += 1;
        }
    }
    say(&format!(
        "ovsdb-server: {compared} databases, the same verdict and the same rows of each"
    ));
}

/// A database, its bytes, and the exit code, severity and words of the program.
type Row<'a> = (&'a str, &'a [u8], i32, &'a str, &'a [&'a str]);

#[test]
fn each_damage_is_found_and_nothing_else() {
    if !has_ovsdb() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let sound = standalone(dir.path());
    let places = records(&sound);
    let middle = flip(sound.clone(), places[3].1 + 5);
    let tail = sound[..sound.len() - 3].to_vec();
    let root = TestRoot::new();
    for path in [CONF, NORTH] {
        root.write(path, "");
        fs::write(root.path(path), &sound).unwrap();
        assert_eq!(of(&doctor(&root), "FP-47"), Vec::<Value>::new());
    }
    let rows: [Row<'_>; 7] = [
        (
            CONF,
            b"",
            CRITICAL,
            "critical",
            &[
                "Open vSwitch cannot read its database",
                "cannot identify file type",
                "mv ",
                ".mco-rescue-damaged",
                "move-aside",
            ],
        ),
        (
            CONF,
            &middle[..places[0].1 + 5],
            CRITICAL,
            "critical",
            &["Open vSwitch cannot read its database", "End of file"],
        ),
        (
            CONF,
            &middle,
            WARNING,
            "warning",
            &[
                "Open vSwitch returns to an older state",
                "3 records are sound",
                "SHA-1 hash",
                "3 records behind it",
            ],
        ),
        (
            CONF,
            &tail,
            FINE,
            "notice",
            &[
                "the database of Open vSwitch ends in an incomplete record",
                "6 records are sound",
            ],
        ),
        (
            NORTH,
            b"",
            CRITICAL,
            "critical",
            &["OVN cannot read a database", NORTH],
        ),
        (
            NORTH,
            &middle,
            WARNING,
            "warning",
            &["a database of OVN returns", NORTH],
        ),
        (
            NORTH,
            &tail,
            FINE,
            "notice",
            &["a database of OVN ends in an incomplete record"],
        ),
    ];
    for (path, bytes, code, severity, words) in rows {
        fs::write(root.path(path), bytes).unwrap();
        let seen = root.run(&["doctor", "--output", "json"]).exits(code).json();
        says(&found(&seen, "FP-47", severity), words);
        fs::write(root.path(path), &sound).unwrap();
    }
}

#[test]
fn an_empty_database_of_open_vswitch_is_moved_aside_by_the_fix() {
    let root = TestRoot::new();
    root.write(CONF, "");
    assert_eq!(of(&doctor(&root), "FP-47").len(), 1);
    root.run(&["doctor", "--fix", "FP-47", "--yes"]).ok();
    assert!(!root.exists(CONF));
    assert_eq!(of(&doctor(&root), "FP-47"), Vec::<Value>::new());
    let kept = fs::read_dir(root.path("etc/openvswitch")).unwrap();
    let kept: Vec<String> = kept
        .map(|one| one.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(
        kept.len() == 1 && kept[0].starts_with("conf.db.mco-rescue-"),
        "{kept:?}"
    );
}

#[test]
fn a_node_without_open_vswitch_is_silent() {
    let seen = doctor(&TestRoot::new());
    assert_eq!(of(&seen, "FP-47"), Vec::<Value>::new());
    assert_eq!(unseen(&seen, "FP-47"), "[]");
}
