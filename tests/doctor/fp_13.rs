//! FP-13: files carry the immutable attribute.

use std::process::{Command, Stdio};

use super::worker::{Branch, healthy, is_well, on_a_node};
use super::{WARNING, doctor_on, doctor_with, finding, unseen};
use crate::support::ostree_node::BOOTED;
use crate::support::{Lacks, TestRoot, skip};

/// A root whose attributes are taken away before it is removed.
struct Flagged(TestRoot);

impl Drop for Flagged {
    fn drop(&mut self) {
        let mut command = Command::new("chattr");
        let _ = command
            .args(["-R", "-ia"])
            .arg(self.0.dir())
            .stderr(Stdio::null())
            .status();
    }
}

#[test]
fn a_file_that_may_not_be_changed_is_found_in_the_config_and_in_an_old_deployment() {
    let root = Flagged(healthy());
    let old = format!("sysroot/ostree/deploy/rhcos/deploy/{BOOTED}.0/etc/agent.conf");
    root.0.write(&old, "");
    let set = |path: &str| {
        let mut command = Command::new("chattr");
        let command = command
            .arg("+i")
            .arg(root.0.path(path))
            .stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    if !set("etc/pool.conf") {
        return skip(
            Lacks::root_or_program("chattr"),
            "flags of files cannot be set here",
        );
    }
    let report = doctor_with(&root.0, &["--output", "json"])
        .exits(WARNING)
        .json();
    let found = finding(&report, "FP-13");
    assert_eq!(found["what"], "a path of the config is immutable");
    let next = found["next"][0].as_str().unwrap();
    assert!(
        next.starts_with("mco-rescue apply --clear-immutable"),
        "{next}"
    );

    assert!(set(&old));
    let report = doctor_with(&root.0, &["--output", "json"])
        .exits(WARNING)
        .json();
    let findings = report["findings"].as_array().unwrap().iter();
    let next: Vec<&str> = findings.filter_map(|one| one["next"][0].as_str()).collect();
    assert!(
        next.contains(&format!("chattr -ia {}/{old}", root.0.dir().display()).as_str()),
        "{report:#}"
    );
}

/// Sets an attribute; nothing where the file system takes none.
fn protected(root: &TestRoot, path: &str, attribute: &str) -> Option<Protected> {
    let path = root.path(path);
    let set = |attribute: &str| {
        let mut command = Command::new("chattr");
        command.arg(attribute).arg(&path).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    if !set(&format!("+{attribute}")) {
        skip(
            Lacks::root_or_program("chattr"),
            "flags of files cannot be set here",
        );
        return None;
    }
    Some(Protected(path, attribute.to_owned()))
}

/// What may not be changed, until this is dropped.
struct Protected(std::path::PathBuf, String);

impl Drop for Protected {
    fn drop(&mut self) {
        let mut command = Command::new("chattr");
        let _ = command.arg(format!("-{}", self.1)).arg(&self.0).status();
    }
}

#[test]
fn an_old_deployment_with_a_protected_file_is_told_from_one_that_is_listed() {
    on_a_node(|node| {
        let deploy = "sysroot/ostree/deploy/rhcos/deploy";
        let (listed, old) = (
            format!("{deploy}/{BOOTED}.0"),
            format!("{deploy}/{}.0", "0d".repeat(32)),
        );
        let text = unseen(&doctor_on(node), "FP-13");
        assert!(
            text.contains("attributes in deployments: no deployment is visible"),
            "{text}"
        );
        for place in [&listed, &old] {
            node.root.write(&format!("{place}/etc/agent.conf"), "");
        }
        is_well(node, "FP-13");
        // The directory itself carries it by ostree's design.
        let Some(_root) = protected(&node.root, &old, "i") else {
            return;
        };
        is_well(node, "FP-13");
        drop(_root);
        let held = protected(&node.root, &format!("{listed}/etc/agent.conf"), "a");
        Branch {
            id: "FP-13",
            severity: "notice",
            what: "a deployment has immutable files",
            seen: &["chattr +i or +a", "Once this deployment is old"],
            next: &[
                "chattr -ia /sysroot/ostree/deploy/rhcos/deploy/b0b0",
                "ostree admin cleanup",
            ],
        }
        .met_by(&doctor_on(node), "");
        drop(held);
        let held = protected(&node.root, &format!("{old}/etc/agent.conf"), "i");
        Branch {
            id: "FP-13",
            severity: "warning",
            what: "an old deployment cannot be removed",
            seen: &[
                "rpm-ostree does not list this deployment",
                "old deployments fill the disk",
                "Operation not permitted",
            ],
            next: &[
                "chattr -ia /sysroot/ostree/deploy/rhcos/deploy/0d0d",
                "ostree admin cleanup",
            ],
        }
        .met_by(&doctor_on(node), "");
        drop(held);
        let _held = protected(&node.root, "etc/pool.conf", "a");
        Branch {
            id: "FP-13",
            severity: "warning",
            what: "a path of the config is immutable",
            seen: &["/etc/pool.conf", "(chattr +a)"],
            next: &["mco-rescue apply --clear-immutable"],
        }
        .met_by(&doctor_on(node), "");
    });
}
