//! The same config applied by Debian's Ignition and by us gives the same tree: files, drop-ins, units, masks.
//!
//! Ignition's labelling step needs a policy and `setfiles`; both are stubs here, as labels are not compared.

use std::collections::BTreeSet;
use std::fs;

use crate::support::ignition::{can_compare, ignite};
use crate::support::{Entry, Snapshot, TestRoot, machine_config, say};
use serde_json::{Value, json};

/// The tree without what only one of the two keeps for itself.
fn comparable(root: &TestRoot) -> (Snapshot, BTreeSet<String>) {
    let mut tree = root.snapshot();
    let own = [
        "etc/machine-config-daemon",
        "etc/.ignition-result.json",
        "etc/.pwd.lock",
    ];
    tree.retain(|path, _| !own.iter().any(|prefix| path.starts_with(prefix)) && path != "var/lib");
    let preset = tree.remove("etc/systemd/system-preset/20-ignition.preset");
    let lines = preset
        .map(|entry| String::from_utf8(entry.content).unwrap())
        .unwrap_or_default();
    (tree, lines.lines().map(str::to_owned).collect())
}

/// Applies by Ignition, and by us as a bare config and inside a MachineConfig; compares. Gives the number of
/// paths compared. `empty_dropins` are what the daemon, and so a MachineConfig, does not write.
fn compare(name: &str, mut ignition: Value, empty_dropins: &[String]) -> usize {
    // Debian's Ignition ends at 3.3, and its account tools want a whole system in the root.
    ignition["ignition"] = json!({"version": "3.3.0"});
    ignition.as_object_mut().unwrap().remove("passwd");
    let (theirs, bare, rendered) = (fresh(), fresh(), fresh());
    ignite(&theirs, &ignition);
    bare.apply(&ignition);
    rendered.apply(&machine_config("rendered-worker-0", ignition));
    same_tree(&format!("{name}, bare"), &theirs, &bare, &[])
        + same_tree(
            &format!("{name}, rendered"),
            &theirs,
            &rendered,
            empty_dropins,
        )
}

fn same_tree(name: &str, theirs: &TestRoot, ours: &TestRoot, empty_dropins: &[String]) -> usize {
    let (mut wanted, their_presets) = comparable(theirs);
    let (mut found, our_presets) = comparable(ours);
    // Ignition leaves enablement to the preset run of the first boot; we make the links as well.
    found.retain(|path, entry| !is_enablement(path, entry));
    for path in empty_dropins {
        assert_eq!(wanted.remove(path).unwrap().content, b"", "{name}: {path}");
        assert!(!found.contains_key(path), "{name}: {path}");
    }
    wanted.retain(|path, entry| entry.kind != 'd' || found.contains_key(path));
    found.retain(|path, entry| entry.kind != 'd' || wanted.contains_key(path));
    for (path, entry) in &wanted {
        assert_eq!(found.get(path), Some(entry), "{name}: {path}");
    }
    assert_eq!(found.len(), wanted.len(), "{name}");
    assert_eq!(our_presets, their_presets, "{name}: preset lines");
    wanted.len()
}

/// A root whose first boot is still to come.
fn fresh() -> TestRoot {
    let root = TestRoot::new();
    root.remove("etc/machine-id");
    root
}

fn is_enablement(path: &str, entry: &Entry) -> bool {
    entry.kind == 'l' && path.starts_with("etc/systemd/system/") && entry.content != b"/dev/null"
}

#[test]
fn the_example_gives_the_tree_that_ignition_makes() {
    if !can_compare() {
        return;
    }
    let bytes = fs::read("examples/rendered-worker.yaml").unwrap();
    let config =
        mco_rescue::config::document::parse_document(bytes.as_slice(), "the example").unwrap();
    let mut document: Value = serde_json::from_str(&config.record).unwrap();
    // For instances Ignition asks a running systemd for its version, and there is none.
    let units = document["spec"]["config"]["systemd"]["units"]
        .as_array_mut()
        .unwrap();
    units.retain(|unit| !unit["name"].as_str().unwrap().contains("@b"));
    // Ignition writes an empty drop-in as an empty file; the daemon, and we, write none.
    let empty = empty_dropins(&document);
    assert!(!empty.is_empty());
    let count = compare("example", document["spec"]["config"].clone(), &empty);
    say(&format!(
        "{count} paths of the example compared with Ignition"
    ));
}

/// Paths of drop-ins whose contents are the empty string.
fn empty_dropins(document: &Value) -> Vec<String> {
    let units = document["spec"]["config"]["systemd"]["units"]
        .as_array()
        .unwrap();
    let mut paths = Vec::new();
    for unit in units {
        for dropin in unit["dropins"].as_array().into_iter().flatten() {
            if dropin["contents"] == json!("") {
                let path = format!(
                    "etc/systemd/system/{}.d/{}",
                    unit["name"].as_str().unwrap(),
                    dropin["name"].as_str().unwrap()
                );
                paths.push(path);
            }
        }
    }
    paths
}

/// A small generator with a fixed seed: the same configs in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn bytes(&mut self) -> Vec<u8> {
        let length = self.below(300);
        (0..length)
            .map(|_| u8::try_from(self.below(256)).unwrap())
            .collect()
    }

    fn file(&mut self, path: &str) -> Value {
        let bytes = self.bytes();
        let (source, compression) = match self.below(3) {
            0 => (format!("data:,{}", percent(&bytes)), Value::Null),
            1 => (format!("data:;base64,{}", base64(&bytes)), json!("")),
            _ => (
                format!(
                    "data:text/plain;charset=utf-8;base64,{}",
                    base64(&gzip(&bytes))
                ),
                json!("gzip"),
            ),
        };
        let mut file = json!({"path": path, "overwrite": true, "contents": {"source": source, "compression": compression}});
        if self.below(4) > 0 {
            file["mode"] = json!(self.below(0o1000));
        }
        if self.below(3) == 0 {
            file["user"] = json!({"id": self.below(70_000)});
        }
        if self.below(3) == 0 {
            file["group"] = json!({"name": (["root", "wheel", "core"])[usize::try_from(self.below(3)).unwrap()]});
        }
        file
    }
}

fn percent(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("%{b:02x}")).collect()
}

fn base64(bytes: &[u8]) -> String {
    base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bytes)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut encoder, bytes).unwrap();
    encoder.finish().unwrap()
}

/// Two halves, for two processors; each with its own seed.
#[test]
fn generated_configs_give_the_trees_that_ignition_makes() {
    compare_generated(20_261_121, 250);
}

#[test]
fn more_generated_configs_give_the_trees_that_ignition_makes() {
    compare_generated(21, 250);
}

fn compare_generated(seed: u64, rounds: u64) {
    if !can_compare() {
        return;
    }
    let mut random = Random(seed);
    let mut paths = 0;
    for round in 0..rounds {
        let places = [
            "/etc",
            "/etc/deep/er",
            "/var/lib/x",
            "/usr/local/bin",
            "/opt/a b",
        ];
        let count = 1 + random.below(12);
        let files: Vec<Value> = (0..count)
            .map(|n| {
                let dir = places[usize::try_from(random.below(5)).unwrap()];
                random.file(&format!("{dir}/f{n}"))
            })
            .collect();
        let count = random.below(6);
        let units: Vec<Value> = (0..count).map(|n| unit(&mut random, n)).collect();
        let ignition = json!({
            "storage": {"files": files, "directories": directories(&mut random), "links": links(&files)},
            "systemd": {"units": units},
        });
        paths += compare(&format!("seed {seed}, round {round}"), ignition, &[]);
    }
    say(&format!(
        "{paths} paths of {rounds} generated configs (seed {seed}) compared with Ignition"
    ));
}

/// Directories of their own, and one above files of the same config.
fn directories(random: &mut Random) -> Vec<Value> {
    let mut all = vec![json!({"path": "/etc/deep", "mode": random.below(0o1000)})];
    for n in 0..4 {
        let mut directory = json!({"path": format!("/srv/d{}/sub{n}", n % 2), "user": {"id": random.below(70_000)}});
        if random.below(2) == 0 {
            directory["mode"] = json!(random.below(0o1000));
        }
        all.push(directory);
    }
    all
}

/// Soft links, dangling or not, and hard links to files of the same config.
fn links(files: &[Value]) -> Vec<Value> {
    let paths = files.iter().map(|file| file["path"].as_str().unwrap());
    let mut all: Vec<Value> = paths
        .take(6)
        .enumerate()
        .map(|(n, path)| json!({"path": format!("/srv/l{n}"), "target": path, "hard": n % 2 == 0}))
        .collect();
    all.push(json!({"path": "/srv/dangling", "target": "../nowhere", "user": {"id": 12}, "group": {"name": "wheel"}}));
    all
}

/// A unit with contents, a drop-in, or a mask. Ignition asks the root's systemctl before it disables, so none is off.
fn unit(random: &mut Random, n: u64) -> Value {
    let text = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";
    let name = format!("u{n}.service");
    match random.below(4) {
        0 => json!({"name": name, "mask": true}),
        1 => {
            json!({"name": name, "dropins": [{"name": "10-x.conf", "contents": "[Unit]\nDescription=x\n"}]})
        }
        2 => json!({"name": name, "contents": text, "enabled": true}),
        _ => json!({"name": name, "contents": text}),
    }
}
