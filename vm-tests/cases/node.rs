//! What the cases with a running node share: how it came to be in a config, and what it is asked.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::configs;
use crate::lab::node::{Booted, Node};
use crate::lab::{Shell, images, run};

/// Where the program is on a node that it was copied to.
pub const PROGRAM: &str = "/usr/local/bin/mco-rescue";

/// Makes it a node that has been in this config for a while, with the program at hand.
pub fn has_been_in(node: &Node, config: &Value) {
    let text = config.to_string();
    node.prepare(|root| {
        fs::write(
            root.join("etc/machine-id"),
            "0123456789abcdef0123456789abcdef\n",
        )
        .unwrap();
        apply(root, &text);
        fs::copy(images::program(), root.join(&PROGRAM[1..])).unwrap();
    });
}

/// Makes it a node that has never booted, whose image brings this config along.
pub fn brings_along(node: &Node, config: &Value) {
    node.prepare(|root| {
        let directory = root.join("usr/lib/mco-rescue/configs");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("worker.json"), config.to_string()).unwrap();
    });
}

/// The program on a node that came up without it, for questions.
pub fn bring_program(booted: &Booted) {
    booted.bring("mco-rescue", &fs::read(images::program()).unwrap());
    booted.ask(&format!("sudo install -D -m 0755 mco-rescue {PROGRAM}"));
}

/// Applies a config to a root on the host.
pub fn apply(root: &Path, config: &str) {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), config).unwrap();
    let mut command = Command::new(images::program());
    command
        .arg("--root")
        .arg(root)
        .args(["apply", "--yes"])
        .arg(file.path());
    run(&mut command);
}

/// The kubelet and crio run, nothing has failed, and the config is what is recorded, with nothing that differs.
pub fn is_healthy_in(node: &Booted, config: &Value) {
    let active = node.ask("systemctl is-active sshd.service || true");
    assert_eq!(active, "active");
    runs_config(node, config);
}

/// The same of a node that has no sshd.
pub fn runs_config(node: &impl Shell, config: &Value) {
    let active = node.ask(
        "systemctl is-active kubelet.service crio.service || true; systemctl --failed --no-legend",
    );
    assert_eq!(
        active,
        "active\nactive",
        "{}",
        node.ask("systemctl status kubelet.service crio.service || true")
    );
    let verify = node.run(&format!("sudo {PROGRAM} verify"));
    assert_eq!(verify.code(), 0, "{}{}", verify.out(), verify.err());
    let recorded = node.ask("sudo cat /etc/machine-config-daemon/currentconfig");
    let recorded: Value = serde_json::from_str(&recorded).unwrap();
    assert_eq!(configs::name(&recorded), configs::name(config));
}
