//! `doctor` knows what changed since the last good boot.

use super::{answer, boots, end_of_boot, history, node};
use crate::support::live::{answers, furnish, run_live};
use crate::support::{Lacks, TestRoot, file, is_root, machine_config, skip};
use serde_json::{Value, json};

fn doctor(root: &TestRoot) -> Value {
    answer(&root.run(&["doctor", "--output", "json"]))
}

fn finding<'a>(report: &'a Value, part: &str) -> &'a Value {
    let mut all = report["findings"].as_array().unwrap().iter();
    let found = all.find(|one| one["evidence"].to_string().contains(part));
    found.unwrap_or_else(|| panic!("no finding about {part}: {report:#}"))
}

#[test]
fn a_finding_tells_between_which_boots_its_evidence_changed() {
    let root = node();
    root.remove("etc/machine-config-daemon/currentconfig");
    let files = json!([file("/etc/of-config", 0o644, "a\n")]);
    let config = machine_config("rendered-worker-a", json!({"storage": {"files": files}}));
    root.apply(&config).ok();
    end_of_boot(&root);
    boots(&root, "boot-2");
    end_of_boot(&root);
    // Emptied, as by a power cut.
    root.write("etc/machine-config-daemon/currentconfig", "");
    root.write("etc/motd", "x\n");
    let report = doctor(&root);
    let found = finding(&report, "/etc/machine-config-daemon/currentconfig");
    assert_eq!(
        found["changed"]["subject"], "/etc/machine-config-daemon/currentconfig",
        "{found:#}"
    );
    assert_eq!(found["changed"]["from"]["snapshot"], 2);
    assert_eq!(found["changed"]["until"]["snapshot"], json!(null));
    let since = &report["since"];
    assert_eq!(since["good"]["snapshot"], 2);
    let motd = since["differences"].as_array().unwrap().iter();
    let motd: Vec<&Value> = motd.filter(|one| one["subject"] == "/etc/motd").collect();
    assert_eq!(motd[0]["explained_by"], json!([]));
    let text = root.run(&["doctor"]);
    let text = text.out();
    assert!(
        text.contains("Changed since the last good boot (snapshot 2"),
        "{text}"
    );
    assert!(text.contains("  ~ /etc/motd: "), "{text}");
    assert!(
        text.contains("  Changed  /etc/machine-config-daemon/currentconfig, "),
        "{text}"
    );
    let others = text
        .lines()
        .filter(|line| !line.contains(root.dir().to_str().unwrap()));
    assert!(
        others.clone().all(|line| line.chars().count() <= 80),
        "{text}"
    );
}

#[test]
fn without_a_recorder_doctor_is_as_before() {
    let root = node();
    let report = doctor(&root);
    assert_eq!(report["since"], json!(null));
    let text = root.run(&["doctor"]).out();
    assert!(
        !text.contains("good boot") && !text.contains("snapshot"),
        "{text}"
    );
}

#[test]
fn a_node_as_at_its_last_good_boot_has_no_changes() {
    let root = node();
    end_of_boot(&root);
    let report = doctor(&root);
    assert_eq!(report["since"]["differences"], json!([]));
    assert!(!root.run(&["doctor"]).out().contains("Changed since"));
}

/// The units of a running node.
const RUNNING: &str = "case \"$*\" in *list-units*) printf '%s\\n' \
    'kubelet.service loaded active running Kubelet' 'crio.service loaded active running CRI-O' \
    'a.service loaded failed failed A';; *) exit 1;; esac";
const STOPPED: &str = "case \"$*\" in *list-units*) printf '%s\\n' \
    'kubelet.service loaded activating auto-restart Kubelet' \
    'crio.service loaded active running CRI-O';; *) exit 1;; esac";

#[test]
fn a_boot_is_good_if_the_kubelet_runs_at_its_end() {
    if !is_root() {
        return skip(Lacks::Root, "changing the root needs root");
    }
    let root = TestRoot::new();
    furnish(
        &root,
        &json!({"kargs": "root=UUID=1 ostree=/ostree/boot.1/rhcos/abc/0", "booted": "quay.example/os@sha256:1"}),
    );
    root.write("etc/systemd/system/kubelet.service", "[Service]\n");
    root.link(
        "etc/systemd/system/multi-user.target.wants/kubelet.service",
        "../kubelet.service",
    );
    answers(&root, "systemctl", STOPPED);
    let said = run_live(&root, &["record", "--at-boot", "--output", "json"])
        .ok()
        .json();
    assert_eq!(said["outcome"], "no-kubelet", "{said:#}");
    answers(&root, "systemctl", RUNNING);
    let said = run_live(&root, &["record", "--at-boot", "--output", "json"])
        .ok()
        .json();
    assert_eq!(said["outcome"], "good", "{said:#}");
    let seen = history(&root);
    let outcomes: Vec<&Value> = seen["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["outcome"])
        .collect();
    assert_eq!(outcomes, [&json!("good"), &json!("no-kubelet")]);
    answers(&root, "systemctl", STOPPED);
    let run = run_live(&root, &["diff", "--output", "json"]).exits(3);
    let found = super::differences(&run.json());
    let units: Vec<_> = found.iter().filter(|one| one.0 == "units").collect();
    let names: Vec<&str> = units.iter().map(|one| one.1.as_str()).collect();
    assert_eq!(names, ["a.service", "kubelet.service"], "{found:?}");
}
