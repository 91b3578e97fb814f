//! FP-14: rpm-ostree is busy or does not answer.

use std::process::{Command, Stdio};

use super::worker::{Branch, healthy, is_well, on_a_node};
use super::{FINE, WARNING, answer, doctor_exits, doctor_on, finding, of, unseen};
use crate::support::ostree_node::BOOTED;
use crate::support::{PROGRAM, Run, TestRoot};

#[test]
fn an_rpm_ostree_that_does_not_answer_is_found() {
    on_a_node(|node| {
        node.program(
            "rpm-ostree",
            "echo 'error: Could not activate remote peer' >&2; exit 1",
        );
        let report = doctor_exits(node, WARNING);
        let found = finding(&report, "FP-14");
        assert_eq!(found["what"], "rpm-ostree does not answer");
        assert!(
            found["next"][0]
                .as_str()
                .unwrap()
                .starts_with("systemctl status rpm-ostreed")
        );
    });
}

#[test]
fn a_daemon_that_was_killed_for_want_of_memory_is_told_apart() {
    on_a_node(|node| {
        node.program(
            "rpm-ostree",
            "echo 'error: Bus owner changed, aborting' >&2; exit 1",
        );
        let answer = r#"case $* in
            *Result*) printf 'LoadState=loaded\nResult=oom-kill\nConditionResult=yes\nExecMainStatus=9\n' ;;
            *) exit 1 ;; esac"#;
        node.program("systemctl", answer);
        let report = doctor_exits(node, WARNING);
        let found = finding(&report, "FP-14");
        assert!(
            found["evidence"][0]["said"]
                .as_str()
                .unwrap()
                .contains("out of memory"),
            "{found:#}"
        );
        assert_eq!(found["next"][0], "systemctl stop kubelet crio");
    });
}

#[test]
fn a_running_transaction_is_only_a_notice() {
    on_a_node(|node| {
        let real = node.root.read("usr/sbin/rpm-ostree");
        let busy = real.replace(
            r#""transaction": null"#,
            r#""transaction": ["Rebase", ":1.9", "/org/projectatomic/rpmostree1/rhcos"]"#,
        );
        node.program("rpm-ostree", busy.trim_start_matches("#!/bin/sh\n"));
        let report = doctor_exits(node, FINE);
        let found = finding(&report, "FP-14");
        assert_eq!(found["severity"], "notice");
        assert!(
            found["evidence"][0]["said"]
                .as_str()
                .unwrap()
                .contains("Rebase")
        );
    });
}

#[test]
fn a_deployment_that_does_not_run_has_no_rpm_ostree_to_ask() {
    let disk = TestRoot::empty();
    let place = disk.path(&format!("{BOOTED}.0"));
    let healthy = healthy();
    let mut command = Command::new("cp");
    command.arg("-a").arg(healthy.dir()).arg(&place);
    assert!(command.status().unwrap().success());
    let mut command = Command::new(PROGRAM);
    command
        .arg("--root")
        .arg(&place)
        .args(["doctor", "--output", "json"]);
    let report = answer(&Run::of(command.stdin(Stdio::null()).output().unwrap()));
    assert!(of(&report, "FP-14").is_empty(), "{report:#}");
    let text = unseen(&report, "FP-14");
    assert!(
        text.contains("it answers only on the booted node"),
        "{text}"
    );
}

#[test]
fn an_rpm_ostreed_that_did_not_start_is_reported_with_the_reason() {
    on_a_node(|node| {
        let answers = |load: &str, result: &str, status: &str| {
            let script = format!(
                "case $* in *Result*) printf 'LoadState={load}\\nResult={result}\\nConditionResult=yes\\nExecMainStatus={status}\\n' ;; *) exit 1 ;; esac"
            );
            node.program("systemctl", &script);
        };
        answers("loaded", "success", "0");
        is_well(node, "FP-14");
        let silent = "echo 'error: Could not activate remote peer' >&2; exit 1";
        node.program("rpm-ostree", silent);
        for (load, result, status, seen, hint) in [
            (
                "masked",
                "success",
                "0",
                &["masked"] as &'static [&str],
                "systemctl unmask rpm-ostreed",
            ),
            (
                "loaded",
                "exit-code",
                "203",
                &["its program cannot be run"],
                "journalctl -b -u rpm-ostreed",
            ),
            (
                "loaded",
                "exit-code",
                "1",
                &["exit-code 1", "Bus owner changed"],
                "journalctl -b -u rpm-ostreed",
            ),
        ] {
            answers(load, result, status);
            Branch {
                id: "FP-14",
                severity: "warning",
                what: "rpm-ostreed did not start",
                seen,
                next: if hint.starts_with("systemctl") {
                    &[
                        "systemctl unmask rpm-ostreed",
                        "systemctl restart rpm-ostreed",
                    ]
                } else {
                    &[
                        "journalctl -b -u rpm-ostreed",
                        "systemctl restart rpm-ostreed",
                    ]
                },
            }
            .met_by(&doctor_on(node), "");
        }
        // It ran, and says nothing all the same.
        answers("loaded", "success", "0");
        Branch {
            id: "FP-14",
            severity: "warning",
            what: "rpm-ostree does not answer",
            seen: &["rpm-ostree status", "Could not activate remote peer"],
            next: &[
                "systemctl status rpm-ostreed dbus.socket",
                "journalctl -b -u rpm-ostreed",
            ],
        }
        .met_by(&doctor_on(node), "");
    });
}
