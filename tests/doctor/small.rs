//! A small node: a file, a unit, a pull secret and a key in its config, a boot entry and a boot image; on a disk or running.

use std::fs;
use std::process::Command;

use super::{RECORD, by_years};
use crate::support::mounts::with_mounts;
use crate::support::ostree_node::{BOOTED, IMAGE, OstreeNode};
use crate::support::{PROGRAM, Run, TestRoot, file, kubelet_unit, machine_config};
use serde_json::{Value, json};

pub(super) const NAME: &str = "rendered-worker-a";
pub(super) const PULL_SECRET: &str =
    r#"{"auths":{"registry.example":{"auth":"c2VjcmV0OnNlY3JldA=="}}}"#;
pub(super) const ENTRY: &str = "boot/loader/entries/ostree-1.conf";
pub(super) const SIGNER: &str = "openshift-kube-apiserver_kube-apiserver-to-kubelet-signer@1";

/// What a node is in: a file, a unit, the pull secret, a key.
pub(super) fn config() -> Value {
    let unit = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";
    let ignition = json!({
        "storage": {"files": [
            file("/etc/of-config.conf", 0o644, "x\n"),
            file("/var/lib/kubelet/config.json", 0o600, PULL_SECRET),
        ]},
        "systemd": {"units": [{"name": "own.service", "enabled": true, "contents": unit}, kubelet_unit()]},
        "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBdBmyV7tmBKXQFcrHRXpnDTYlFTREUPCl0aYrhYEcEO a"]}]},
    });
    let mut config = machine_config(NAME, ignition);
    config["spec"]["osImageURL"] = json!(IMAGE);
    config
}

pub(super) fn furnish(root: &TestRoot) {
    let policy = r#"{"default": [{"type": "insecureAcceptAnything"}]}"#;
    root.write("etc/containers/policy.json", policy);
    root.write(
        "etc/kubernetes/kubelet-ca.crt",
        &by_years(SIGNER, 2020, 2090),
    );
    root.write("etc/resolv.conf", "search example\nnameserver 192.0.2.1\n");
    root.write(
        ENTRY,
        "title OS\nversion 1\nlinux /ostree/os-1/vmlinuz\noptions rw console=tty0\n",
    );
    root.write(
        "usr/lib/os-release",
        "ID=scos\nOSTREE_VERSION='9.6.20250701-0'\n",
    );
    root.write(
        ".coreos-aleph-version.json",
        r#"{"build": "418.94.202501300131-0", "imgid": "x"}"#,
    );
}

/// A node that has booted before and is what its record says.
pub(super) fn node() -> TestRoot {
    let root = TestRoot::new();
    root.apply(&config());
    furnish(&root);
    root
}

/// Changes the recorded config without the disk.
pub(super) fn recorded(root: &TestRoot, change: impl FnOnce(&mut Value)) {
    let mut config = config();
    change(&mut config["spec"]);
    root.write(RECORD, &config.to_string());
}

/// As the API had the annotations when it was asked last.
pub(super) fn annotated(root: &TestRoot, current: Option<&str>, desired: Option<&str>) {
    let seen = json!({"version": 1, "node": "worker-0", "seen": 1_700_000_000, "current": current,
        "desired": desired, "state": "Working"});
    root.write("var/lib/mco-rescue/annotations.json", &seen.to_string());
}

/// A live node with stubs of its programs.
pub(super) fn live(test: impl FnOnce(&OstreeNode) + Send) {
    with_mounts(|| {
        let node = OstreeNode::new();
        furnish(&node.root);
        test(&node);
    });
}

pub(super) fn record_on(node: &OstreeNode, change: impl FnOnce(&mut Value)) {
    let mut config = config();
    change(&mut config["spec"]);
    node.root.write(RECORD, &config.to_string());
}

/// Replaces a part of what the stub of rpm-ostree says.
pub(super) fn rpm_ostree_says(node: &OstreeNode, part: &str, instead: &str) {
    let script = node.root.read("usr/sbin/rpm-ostree");
    assert!(script.contains(part), "no {part:?} in {script}");
    let script = script.replace(part, instead);
    node.program("rpm-ostree", script.trim_start_matches("#!/bin/sh\n"));
}

/// What the kernel of the node was booted with.
pub(super) fn booted_with(node: &OstreeNode, words: &str) {
    let line = format!("rw ostree=/ostree/boot.1/rhcos/0/0 {words}\n");
    node.root.write("cmdline", &line);
}

/// A deployment of a disk that is mounted elsewhere; its config wants an extension, and this ends its origin file.
pub(super) fn disk_of_a_node(origin: &str) -> (TestRoot, String) {
    let (outer, place) = (TestRoot::empty(), format!("{BOOTED}.0"));
    let mut wanted = config();
    wanted["spec"]["extensions"] = json!(["usbguard"]);
    let reference = format!("container-image-reference=ostree-unverified-registry:{IMAGE}");
    for (path, text) in [
        (RECORD, wanted.to_string()),
        (
            "etc/machine-id",
            "0123456789abcdef0123456789abcdef\n".to_owned(),
        ),
        (
            "usr/lib/os-release",
            "ID=rhcos\nVARIANT_ID=coreos\n".to_owned(),
        ),
        ("var/lib/x", String::new()),
        (
            &origin_of(&place),
            format!("[origin]\n{reference}\n{origin}"),
        ),
    ] {
        outer.write(&format!("{place}/{path}"), &text);
    }
    (outer, place)
}

pub(super) fn origin_of(place: &str) -> String {
    format!("sysroot/ostree/deploy/rhcos/deploy/{place}.origin")
}

pub(super) fn run_at(outer: &TestRoot, place: &str) -> Run {
    let mut command = Command::new(PROGRAM);
    command.arg("--root").arg(outer.path(place));
    command.args(["doctor", "--output", "json"]);
    Run::of(command.output().unwrap())
}

/// A directory where a file belongs.
pub(super) fn directory(root: &TestRoot, path: &str) {
    let _ = fs::remove_file(root.path(path));
    fs::create_dir_all(root.path(path)).unwrap();
}

/// A link that leads to itself where a directory belongs.
pub(super) fn endless(root: &TestRoot, path: &str) {
    let _ = fs::remove_dir_all(root.path(path));
    root.link(path, path.rsplit('/').next().unwrap());
}
