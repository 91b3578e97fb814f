//! FP-10: something was cut off half-way.

use std::fs;
use std::process::{Command, Stdio};

use super::worker::{
    self, Branch, Row, all_met, copy, healthy, is_well, on_a_node, prepared_for, sick,
};
use super::{CRITICAL, RECORD, Sick, WARNING, doctor, doctor_on, doctor_with, of};
use crate::support::{Config, Lacks, PROGRAM, TestRoot, skip};

pub(super) const SICK: &[Sick] = &[
    Sick {
        id: "FP-10",
        code: CRITICAL,
        what: "1 file of the config is empty",
        next: "mco-rescue apply --root",
        sicken: |root| root.write("etc/pool.conf", ""),
    },
    Sick {
        id: "FP-10",
        code: CRITICAL,
        what: "the daemon's record cannot be read",
        next: "mco-rescue apply cached:NAME",
        sicken: |root| root.write(RECORD, ""),
    },
    Sick {
        id: "FP-10",
        code: CRITICAL,
        what: "the first boot is not finished",
        next: "on the node itself, once it has booted: mco-rescue firstboot --complete",
        sicken: |root| {
            root.write(
                "etc/ignition-machine-config-encapsulated.json",
                &worker::config().to_string(),
            );
        },
    },
    Sick {
        id: "FP-10",
        code: WARNING,
        what: "a newer version of mco-rescue wrote state of this node",
        next: "mco-rescue status --root",
        sicken: |root| root.write("var/lib/mco-rescue/journal.json", r#"{"version": 2}"#),
    },
    Sick {
        id: "FP-10",
        code: WARNING,
        what: "a newer version of mco-rescue wrote state of this node",
        next: "mco-rescue status --root",
        sicken: |root| root.write("var/lib/mco-rescue/pins.json", r#"{"version": 2}"#),
    },
    Sick {
        id: "FP-10",
        code: WARNING,
        what: "the store of container images is damaged",
        next: "mv /",
        sicken: |root| storage(root, ""),
    },
    Sick {
        id: "FP-10",
        code: WARNING,
        what: "the store of container images is damaged",
        next: "mv /",
        sicken: |root| storage(root, r#"[{"id": "bbbbbbbbbbbbbbbb"}]"#),
    },
];

fn storage(root: &TestRoot, layers: &str) {
    let store = "var/lib/containers/storage";
    root.write(&format!("{store}/overlay-layers/layers.json"), layers);
    root.write(
        &format!("{store}/overlay-images/images.json"),
        r#"[{"id": "i1", "names": ["quay.example/a:1"], "layer": "aaaaaaaaaaaaaaaa"}]"#,
    );
    fs::create_dir_all(root.path(&format!("{store}/overlay/aaaaaaaaaaaaaaaa"))).unwrap();
}

const EMPTIED: [Row; 1] = [sick(
    |root| {
        root.write("etc/pool.conf", "");
        root.write("etc/other.conf", "");
    },
    Branch {
        id: "FP-10",
        severity: "critical",
        what: "2 files of the config are empty",
        seen: &["/etc/other.conf", "/etc/pool.conf", "0 bytes"],
        next: &["mco-rescue apply --root ROOT"],
    },
)];

#[test]
fn files_that_a_power_cut_emptied_are_counted() {
    all_met(&EMPTIED);
}

#[test]
fn an_interrupted_run_comes_first() {
    let root = healthy();
    let config = root.config(&prepared_for("OVNKubernetes", "rendered-worker-b"));
    let killed = Command::new("strace")
        .args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=renameat"])
        .args([
            "-e",
            "inject=renameat:signal=SIGKILL:when=3",
            PROGRAM,
            "--root",
        ])
        .arg(root.dir())
        .args(["apply", "--yes", config.path()])
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .status();
    if killed.is_err() {
        return skip(Lacks::Setup, "strace is not installed");
    }
    let report = doctor_with(&root, &["--output", "json"])
        .exits(CRITICAL)
        .json();
    let first = &report["findings"][0];
    assert_eq!(first["what"], "a run of mco-rescue is unfinished");
    assert!(
        first["next"][0]
            .as_str()
            .unwrap()
            .starts_with("mco-rescue recover")
    );
    root.run(&["recover"]).ok();
    doctor_with(&root, &[]).ok();
}

/// Kills an apply of another config at the given call.
fn cut_off(root: &TestRoot, call: &str, nth: u32) -> bool {
    let config: Config = root.config(&prepared_for("OpenShiftSDN", "rendered-worker-b"));
    let status = Command::new("strace")
        .args(["-f", "-qq", "-o", "/dev/null", "-e"])
        .arg(format!("trace={call}"))
        .arg("-e")
        .arg(format!("inject={call}:signal=SIGKILL:when={nth}"))
        .args([PROGRAM, "--root"])
        .arg(root.dir())
        .args(["apply", "--yes", config.path()])
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .status();
    status.is_ok()
}

#[test]
fn a_run_is_described_by_how_far_it_came() {
    let run = |severity, what| Branch {
        id: "FP-10",
        severity,
        what,
        seen: &["applying rendered-worker-b"],
        next: &["mco-rescue recover --root ROOT"],
    };
    let template = healthy();
    for (call, branch) in [
        (
            ("syncfs", 1),
            run(
                "warning",
                "a run was interrupted before it changed anything",
            ),
        ),
        (
            ("renameat", 3),
            run("critical", "a run of mco-rescue is unfinished"),
        ),
        (
            ("unlinkat", 6),
            run("warning", "a finished run was not cleaned up"),
        ),
    ] {
        let root = copy(&template);
        if !cut_off(&root, call.0, call.1) {
            return skip(Lacks::Setup, "strace is not installed");
        }
        branch.met_by(&doctor(&root), root.dir().to_str().unwrap());
        root.run(&["recover"]).ok();
        assert!(of(&doctor(&root), "FP-10").is_empty(), "{}", branch.what);
    }
}

#[test]
fn a_damaged_store_of_images_and_a_first_boot_name_the_running_services() {
    on_a_node(|node| {
        let store = "var/lib/containers/storage";
        node.root
            .write(&format!("{store}/overlay-layers/layers.json"), "");
        Branch {
            id: "FP-10",
            severity: "warning",
            what: "the store of container images is damaged",
            seen: &["layers.json", "layer not known"],
            next: &[
                "systemctl stop kubelet crio",
                "crio wipe --force",
                "systemctl start crio kubelet",
            ],
        }
        .met_by(&doctor_on(node), "");
        node.root
            .remove(&format!("{store}/overlay-layers/layers.json"));
        is_well(node, "FP-10");
        let kept = "etc/ignition-machine-config-encapsulated.json";
        node.root.write(kept, &worker::config().to_string());
        let answer = r#"case $* in
            *ActiveState,SubState*) printf 'Id=machine-config-daemon-firstboot.service\nActiveState=failed\nSubState=failed\n' ;;
            *) exit 1 ;; esac"#;
        node.program("systemctl", answer);
        Branch {
            id: "FP-10",
            severity: "critical",
            what: "the first boot is not finished",
            seen: &[
                "machine-config-daemon-firstboot.service",
                "failed (failed)",
                "still there",
            ],
            next: &[
                "journalctl -b -u machine-config-daemon-firstboot",
                "mco-rescue firstboot --complete",
            ],
        }
        .met_by(&doctor_on(node), "");
    });
}

/// Paths below a node's root that some check reads, and whose errors not every reader reports.
const READ_BY_CHECKS: [&str; 9] = [
    "etc/passwd",
    "etc/group",
    "etc/shadow",
    "etc/hostname",
    "etc/resolv.conf",
    "etc/kubernetes/kubeconfig",
    "etc/containers/policy.json",
    "etc/machine-config-daemon/currentimage",
    "var/lib/mco-rescue/annotations.json",
];

#[test]
fn a_node_with_a_file_that_cannot_be_read_is_never_healthy() {
    for path in READ_BY_CHECKS {
        let root = healthy();
        let _ = fs::remove_file(root.path(path));
        fs::create_dir_all(root.path(path)).unwrap();
        let seen = doctor(&root);
        let findings = seen["findings"].as_array().unwrap();
        let named = findings.iter().any(|one| {
            one["severity"] != "notice" && one["evidence"].to_string().contains(&format!("/{path}"))
        });
        assert!(named, "{path}: {findings:?}");
        let said = doctor_with(&root, &["doctor"]);
        assert!(said.code() != 0, "{path}: {}", said.out());
    }
}

#[test]
fn a_directory_among_files_that_are_listed_is_no_fault() {
    let root = healthy();
    for folder in ["etc/sysctl.d/old", "etc/NetworkManager/conf.d/backup"] {
        fs::create_dir_all(root.path(folder)).unwrap();
    }
    assert_eq!(of(&doctor(&root), "FP-10"), Vec::<serde_json::Value>::new());
}
