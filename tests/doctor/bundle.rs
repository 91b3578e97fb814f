//! `doctor --bundle`: an archive for somebody else, without what is nobody else's.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::support::{TestRoot, file, kubelet_unit, machine_config};
use flate2::read::GzDecoder;
use serde_json::{Value, json};

const CANARY: &str = "CanaryThatNobodyMaySee";

/// A node with secrets in its config, on its disk, and in what is kept of the network.
fn node() -> TestRoot {
    let root = TestRoot::new();
    let secret = format!("{{\"auth\": \"{CANARY}\"}}");
    let mut config = machine_config(
        "rendered-worker-1",
        json!({
            "storage": {"files": [file("/etc/token", 0o600, &secret), file("/etc/plain", 0o644, "plain\n")]},
            "systemd": {"units": [kubelet_unit()]},
            "passwd": {"users": [{"name": "core", "passwordHash": format!("$6$salt${CANARY}")}]},
        }),
    );
    config["spec"]["kernelArguments"] = json!([]);
    root.apply(&config);
    root.write("etc/token", &format!("{CANARY} by hand\n"));
    root.write("etc/kubernetes/kubeconfig", &format!("token: {CANARY}\n"));
    let entry = format!(
        "title x\nversion 1\noptions root=x ignition.config.url=https://me:{CANARY}@host/a?{CANARY}\nlinux /vmlinuz\n"
    );
    root.write("boot/loader/entries/ostree-1.conf", &entry);
    root
}

fn unpacked(path: &Path) -> BTreeMap<String, String> {
    let mut archive = tar::Archive::new(GzDecoder::new(File::open(path).unwrap()));
    let text = |entry: std::io::Result<tar::Entry<'_, _>>| {
        let mut entry: tar::Entry<'_, GzDecoder<File>> = entry.unwrap();
        let name = entry.path().unwrap().to_str().unwrap().to_owned();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        (
            name.trim_start_matches("mco-rescue-bundle/").to_owned(),
            text,
        )
    };
    archive.entries().unwrap().map(text).collect()
}

#[test]
fn it_tells_what_was_found_and_nobodys_secret() {
    let root = node();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bundle.tar.gz");
    let run = root
        .run(&["doctor", "--bundle", path.to_str().unwrap()])
        .exits(3);
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let all = unpacked(&path);
    for (name, text) in &all {
        assert!(!text.contains(CANARY), "{name}: {text}");
    }
    assert!(
        all["doctor.txt"].contains("/etc/token"),
        "{}",
        all["doctor.txt"]
    );
    let recorded: Value = serde_json::from_str(&all["recorded.json"]).unwrap();
    assert_eq!(recorded["name"], "rendered-worker-1");
    let status: Value = serde_json::from_str(&all["status.json"]).unwrap();
    assert_eq!(status["recorded"], "rendered-worker-1");
    assert!(
        all["boot-entries.txt"].contains("ignition.config.url=https://(secret, 25 bytes)@host/a?("),
        "{}",
        all["boot-entries.txt"]
    );
    // The list is shown, and is in it; it names everything else.
    let shown = run.out();
    for name in all.keys().filter(|name| *name != "LIST") {
        assert!(
            shown.contains(name.as_str()) && all["LIST"].contains(name.as_str()),
            "{name}"
        );
    }
}

#[test]
fn what_is_there_is_never_written_over() {
    let root = node();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bundle.tar.gz");
    fs::write(&path, "mine").unwrap();
    let said = root
        .run(&["doctor", "--bundle", path.to_str().unwrap()])
        .exits(1)
        .err();
    assert!(said.contains("give another FILE"), "{said}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
}
