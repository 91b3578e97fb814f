//! FP-02: no config has reached this node.

use std::fs::File;
use std::time::{Duration, SystemTime};

use super::worker::{self, Branch, Row, all_met, is_well, on_a_node, sick, well};
use super::{CRITICAL, DAY, RECORD, Sick, answer, doctor_on, of, small, unseen};
use crate::support::TestRoot;
use crate::support::faults::traced;
use crate::support::scenes::can_disturb;
use serde_json::{Value, json};

pub(super) const SICK: &[Sick] = &[Sick {
    id: "FP-02",
    code: CRITICAL,
    what: "no config has reached this node",
    next: "mco-rescue fetch --from-media --root",
    sicken: |root| {
        root.remove(RECORD);
        root.write("etc/machine-id", "uninitialized\n");
    },
}];

/// Two days before the end.
const NO_CONFIG: [Row; 3] = [
    sick(
        |root| root.remove(RECORD),
        Branch {
            id: "FP-02",
            severity: "notice",
            what: "no MachineConfig is recorded here",
            seen: &["Ignition has written no config", "not a cluster node"],
            next: &[
                "mco-rescue fetch --from-media --root ROOT",
                "mco-rescue apply --latest --root ROOT",
            ],
        },
    ),
    sick(
        |root| {
            root.remove(RECORD);
            root.write("etc/.ignition-result.json", "{}");
            root.write("etc/machine-id", "");
        },
        Branch {
            id: "FP-02",
            severity: "critical",
            what: "no config has reached this node yet",
            seen: &["Ignition has written a config", "it never joins"],
            next: &[
                "mco-rescue fetch --from-media --root ROOT",
                "mco-rescue apply --latest --root ROOT",
            ],
        },
    ),
    well("FP-02", |root| {
        root.remove(RECORD);
        root.write(
            "etc/mcs-machine-config-content.json",
            &worker::config().to_string(),
        );
    }),
];

#[test]
fn a_node_without_a_config_is_told_from_one_that_lost_its_record() {
    all_met(&NO_CONFIG);
}

#[test]
fn a_failure_in_the_initramfs_is_reported_until_a_run_makes_up_for_it() {
    on_a_node(|node| {
        let boot = |outcome: &str| {
            let text = json!({"schema": "mco-rescue/firstboot/v1", "outcome": outcome, "why": "asked for",
                "config": null, "phase": "fetching the config", "cause": "no route to api-int.example", "took": 9});
            node.root
                .write("run/mco-rescue/firstboot.json", &text.to_string());
        };
        boot("nothing");
        is_well(node, "FP-02");
        boot("failed");
        let later = SystemTime::now() + Duration::from_secs(60);
        let file = node.root.path("run/mco-rescue/firstboot.json");
        let set = |time| {
            File::options()
                .write(true)
                .open(&file)
                .unwrap()
                .set_modified(time)
                .unwrap()
        };
        set(later);
        Branch {
            id: "FP-02",
            severity: "critical",
            what: "this boot could not apply its config",
            seen: &["while fetching the config", "no route to api-int.example"],
            next: &["mco-rescue fetch --from-media", "mco-rescue apply --latest"],
        }
        .met_by(&doctor_on(node), "");
        set(SystemTime::now() - DAY);
        is_well(node, "FP-02");
    });
}

#[test]
fn what_the_daemons_first_boot_could_not_change_is_reported() {
    on_a_node(|node| {
        let sentinel = "run/mcd-firstboot-pivot-failed";
        node.root
            .write(sentinel, "error: no space left on device\n");
        Branch {
            id: "FP-02",
            severity: "critical",
            what: "the first boot could not change the operating system",
            seen: &["no space left on device", "does not join"],
            next: &[
                "journalctl -b -u machine-config-daemon-firstboot",
                "mco-rescue firstboot --complete",
            ],
        }
        .met_by(&doctor_on(node), "");
        node.root.remove(sentinel);
        is_well(node, "FP-02");
    });
}

#[test]
fn a_failure_in_the_initramfs_is_reported_there() {
    on_a_node(|node| {
        node.root.write("etc/initrd-release", "ID=rhcos\n");
        for path in ["etc/passwd", "usr/bin/sh", "var/lib/x"] {
            node.root.write(&format!("sysroot/{path}"), "");
        }
        let report = || {
            let args = ["--root", "/sysroot", "doctor", "--output", "json"];
            answer(&node.run(&args))
        };
        let next: &[&str] = &[
            "mco-rescue fetch --from-media --root /sysroot",
            "mco-rescue apply --latest --root /sysroot",
        ];
        let told = |what, seen| Branch {
            id: "FP-02",
            severity: "critical",
            what,
            seen,
            next,
        };
        let before = report();
        told("no config has reached this node yet", &["/currentconfig"]).met_by(&before, "");
        let server = unseen(&before, "FP-02");
        assert!(
            server.contains("whether the Machine Config Server answers"),
            "{server}"
        );
        let failed = json!({"schema": "mco-rescue/firstboot/v1", "outcome": "failed", "why": "asked for", "config": null,
            "phase": "applying it", "cause": "no space left on device", "took": 9});
        node.root
            .write("run/mco-rescue/firstboot.json", &failed.to_string());
        told(
            "this boot could not apply its config",
            &["while applying it", "no space left on device"],
        )
        .met_by(&report(), "");
    });
}

/// EIO at a trace of the first boot: neither present nor missing.
#[test]
fn traces_of_the_first_boot_that_cannot_be_looked_for_are_not_taken_for_missing() {
    if !can_disturb() {
        return;
    }
    let never = |root: &TestRoot| root.remove(RECORD);
    let recorded = |_: &TestRoot| {};
    type Make<'a> = &'a dyn Fn(&TestRoot);
    let table: [(&str, &str, &str, Make<'_>); 6] = [
        (
            "etc/ignition-machine-config-encapsulated.json",
            "FP-02",
            "its input cannot be looked for",
            &never,
        ),
        (
            "etc/ignition-machine-config-encapsulated.json.bak",
            "FP-02",
            "its input cannot be looked for",
            &never,
        ),
        ("etc/.ignition-result.json", "FP-02", "", &never),
        (
            "etc/ignition-machine-config-encapsulated.json",
            "FP-10",
            "the input of the first boot",
            &recorded,
        ),
        (
            "etc/ignition-machine-config-encapsulated.json",
            "FP-01",
            "the input of the first boot",
            &recorded,
        ),
        (
            "etc/machine-config-daemon/bootstrapconfigdiff",
            "FP-04",
            "a config of the bootstrap",
            &recorded,
        ),
    ];
    for (path, id, words, make) in table {
        let root = small::node();
        make(&root);
        let args = ["doctor", "--output", "json"];
        let clean = traced(&root, "newfstatat", &[], &args);
        let name = path.rsplit('/').next().unwrap();
        let mut calls = clean.calls.iter().filter(|call| call.name == "newfstatat");
        let looked = calls.position(|call| call.line.contains(&format!("\"{name}\"")));
        let nth = looked.unwrap_or_else(|| panic!("{path} is not looked for")) + 1;
        let run = traced(
            &root,
            "newfstatat",
            &[format!("newfstatat:error=EIO:when={nth}")],
            &args,
        );
        let injected = run
            .calls
            .iter()
            .find(|call| call.line.contains("(INJECTED)"));
        assert!(injected.unwrap().line.contains(name), "{path}");
        let seen: Value = serde_json::from_str(&run.out).unwrap();
        let shown = match words {
            "" => super::finding(&seen, id).to_string(),
            _ => unseen(&seen, id),
        };
        assert!(
            shown.contains(words) && shown.contains("I/O error"),
            "{path} {id}: {shown}"
        );
        assert!(words.is_empty() || of(&seen, id).is_empty(), "{path} {id}");
    }
}
