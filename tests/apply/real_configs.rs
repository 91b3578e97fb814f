//! Real rendered configs, where the captured data is there: applied, verified clean, applied again without
//! anything to do, and every file's bytes and mode checked by a decoder of its own.

use std::io::Read;

use crate::support::{TestRoot, say, shared_data};
use serde_json::Value;

/// A `data:` URL, decoded without the program's own code.
fn decode(contents: &Value) -> Vec<u8> {
    let source = contents["source"].as_str().unwrap_or_default();
    let (header, payload) = source.split_once(',').unwrap_or_default();
    let bytes = if header.ends_with(";base64") {
        from_base64(payload)
    } else {
        from_percent(payload)
    };
    if contents["compression"].as_str() != Some("gzip") {
        return bytes;
    }
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(bytes.as_slice())
        .read_to_end(&mut plain)
        .unwrap();
    plain
}

fn from_percent(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text.bytes();
    while let Some(b) = rest.next() {
        let hex: Vec<u8> = if b == b'%' {
            rest.by_ref().take(2).collect()
        } else {
            vec![]
        };
        out.push(match std::str::from_utf8(&hex) {
            Ok("") => b,
            digits => u8::from_str_radix(digits.unwrap(), 16).unwrap(),
        });
    }
    out
}

fn from_base64(text: &str) -> Vec<u8> {
    let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = Vec::new();
    let (mut bits, mut count) = (0u32, 0);
    for b in text.bytes().filter(|b| *b != b'=') {
        bits = (bits << 6) | u32::try_from(digits.iter().position(|d| *d == b).unwrap()).unwrap();
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push(u8::try_from(bits >> count & 0xff).unwrap());
        }
    }
    out
}

fn rendered() -> Vec<(String, Value)> {
    let Some(dir) = shared_data("rendered") else {
        return Vec::new();
    };
    let mut configs: Vec<(String, Value)> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "json"))
        .map(|path| {
            (
                path.to_str().unwrap().to_owned(),
                serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap(),
            )
        })
        .collect();
    configs.sort_by(|a, b| a.0.cmp(&b.0));
    configs
}

/// The last entry of a path wins where a 2.x config had it twice; rendered 3.x configs have each path once.
fn check_files(root: &TestRoot, config: &Value) -> usize {
    let files = config["spec"]["config"]["storage"]["files"]
        .as_array()
        .unwrap();
    for file in files {
        let path = file["path"].as_str().unwrap();
        let bytes = std::fs::read(root.path(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
        assert!(bytes == decode(&file["contents"]), "{path} has other bytes");
        let mode = file["mode"].as_u64().unwrap_or(0o644);
        assert_eq!(u64::from(root.mode(path)), mode, "mode of {path}");
    }
    files.len()
}

fn check_units(root: &TestRoot, config: &Value) -> usize {
    let units = config["spec"]["config"]["systemd"]["units"]
        .as_array()
        .unwrap();
    for unit in units {
        let name = unit["name"].as_str().unwrap();
        let path = format!("etc/systemd/system/{name}");
        match (
            unit["mask"].as_bool(),
            unit["contents"].as_str().unwrap_or_default(),
        ) {
            (Some(true), _) => {
                assert_eq!(root.target(&path).as_deref(), Some("/dev/null"), "{name}")
            }
            (_, "") => {}
            (_, text) => assert_eq!(root.read(&path), text, "{name}"),
        }
        for dropin in unit["dropins"].as_array().into_iter().flatten() {
            let path = format!("{path}.d/{}", dropin["name"].as_str().unwrap());
            match dropin["contents"].as_str().unwrap_or_default() {
                "" => assert!(!root.exists(&path), "{path} is empty in the config"),
                text => assert_eq!(root.read(&path), text, "{path}"),
            }
        }
    }
    units.len()
}

#[test]
fn every_rendered_config_applies_verifies_and_then_has_nothing_to_do() {
    let configs = rendered();
    let (mut files, mut units) = (0, 0);
    for (path, config) in &configs {
        let root = TestRoot::new();
        // The group that one of the configs names; a real node has it.
        root.write(
            "etc/group",
            &format!("{}chrony:x:992:\n", root.read("etc/group")),
        );
        root.write(
            "etc/passwd",
            &format!(
                "{}chrony:x:992:992::/:/sbin/nologin\n",
                root.read("etc/passwd")
            ),
        );
        root.run(&["apply", "--yes", path]).ok();
        root.run(&["verify", path]).ok();
        let plan = root.run(&["plan", path, "--output", "json"]).ok().json();
        assert_eq!(plan["steps"], serde_json::json!([]), "{path}");
        files += check_files(&root, config);
        units += check_units(&root, config);
        // The record is the object as it was received.
        let record = root.read("etc/machine-config-daemon/currentconfig");
        assert_eq!(record, std::fs::read_to_string(path).unwrap().trim());
    }
    say(&format!(
        "{} rendered configs applied and verified: {files} files, {units} units",
        configs.len()
    ));
}

#[test]
fn going_from_any_rendered_config_to_another_leaves_exactly_the_other() {
    let configs = rendered();
    let Some((first, _)) = configs
        .iter()
        .find(|(path, _)| path.ends_with("baremetal-worker.json"))
    else {
        return;
    };
    for (path, config) in configs
        .iter()
        .filter(|(path, _)| path.ends_with("-worker.json") && path != first)
    {
        let root = TestRoot::new();
        root.run(&["apply", "--yes", first]).ok();
        let options = ["--files-only", "--allow-removals"];
        root.run(&[&["apply", "--yes", path], &options[..]].concat())
            .ok();
        check_files(&root, config);
        check_units(&root, config);
        let fresh = TestRoot::new();
        fresh.run(&["apply", "--yes", path]).ok();
        let (mut went, mut came) = (root.snapshot(), fresh.snapshot());
        // What is never deleted (contract 6.5), and directories that became empty, may stay.
        for tree in [&mut went, &mut came] {
            tree.retain(|path, entry| entry.kind != 'd' && !path.contains("etc/docker/certs.d"));
        }
        let kept: Vec<_> = went
            .keys()
            .filter(|path| !came.contains_key(*path))
            .collect();
        let lost: Vec<_> = came
            .keys()
            .filter(|path| !went.contains_key(*path))
            .collect();
        assert!(
            kept.is_empty() && lost.is_empty(),
            "{path}: too many {kept:?}, missing {lost:?}"
        );
    }
}
