//! `doctor --until`: does a node come back by itself, and what stops it on which day.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use super::master::with;
use super::worker::{self, CLIENT, SERVING};
use super::{CRITICAL, DAY, FINE, WARNING, certificate, says};
use crate::support::control_plane::ControlPlane;
use crate::support::{Lacks, Run, TestRoot, flat, is_root, skip};
use base64::prelude::{BASE64_STANDARD, Engine};
use mco_rescue::base::time::{current_time, format_utc};
use serde_json::Value;

/// The day that is so many days from now.
fn day(days: u64) -> String {
    format_utc(current_time() + days * DAY.as_secs())[..10].to_owned()
}

#[track_caller]
fn until(root: &TestRoot, days: u64, code: i32) -> Value {
    root.run(&["doctor", "--until", &day(days), "--output", "json"])
        .exits(code)
        .json()
}

fn steps(outlook: &Value) -> Vec<&Value> {
    outlook["steps"].as_array().unwrap().iter().collect()
}

/// The first step with this verdict.
#[track_caller]
fn first<'a>(outlook: &'a Value, verdict: &str) -> &'a Value {
    let all = steps(outlook);
    let found = all.into_iter().find(|step| step["verdict"] == verdict);
    found.unwrap_or_else(|| panic!("no {verdict}: {outlook:#}"))
}

#[test]
fn a_control_plane_comes_back_by_itself_then_with_hands_then_not() {
    let root = with(&ControlPlane::new());
    let before = root.everything();
    let soon = until(&root, 10, FINE);
    assert_eq!(
        (soon["node"].as_str(), soon["verdict"].as_str()),
        (Some("control-plane"), Some("by-itself"))
    );
    // The kubelets' certificates end in 25 days, etcd's in 1785.
    let winter = until(&root, 60, WARNING);
    assert_eq!(winter["verdict"], "needs-hands");
    for outlook in [&soon, &winter] {
        assert_eq!(outlook["first_day"], day(25), "{outlook:#}");
        assert_eq!(outlook["lost_day"], day(1785), "{outlook:#}");
    }
    let stall = first(&winter, "needs-hands");
    assert_eq!(stall["path"], format!("/{CLIENT}"));
    says(
        &stall["means"].to_string(),
        &["stays Pending", "machine-approver does not run"],
    );
    let waves: Vec<&str> = winter["approvals"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["requests"].as_str().unwrap())
        .collect();
    assert_eq!(waves, ["client", "server"]);
    assert_eq!(winter["approvals"][0]["from"], stall["at"]);
    let of_node = "node-kubeconfigs/localhost-recovery.kubeconfig oc get csr";
    says(&winter["next"].to_string(), &[of_node]);
    // After two years that kubeconfig has ended, too.
    says(
        &until(&root, 800, WARNING)["next"].to_string(),
        &["KUBECONFIG=KUBECONFIG-OF-AN-ADMIN oc get csr"],
    );
    // What costs a run of the recovery and no hands.
    let all = steps(&winter);
    let of = |name: &str| *all.iter().find(|step| step["name"] == name).unwrap();
    for (name, words) in [
        ("aggregator-client", "cert-regeneration-controller"),
        ("csr-signer", "recovery-controller"),
        (
            "kube-scheduler-client-cert-key",
            "cert-regeneration-controller",
        ),
        ("etcd-serving-metrics-master-0", "operator writes a new one"),
    ] {
        assert_eq!(of(name)["verdict"], "by-itself", "{name}");
        says(&of(name)["means"].to_string(), &[words]);
    }
    // Renewal of a running cluster: half of 30 days, of which five have passed.
    let renewed = of("aggregator-client")["renewed_from"].as_u64().unwrap();
    assert!(
        renewed.abs_diff(current_time() + 10 * DAY.as_secs()) < 3600,
        "{renewed}"
    );
    let never = until(&root, 3000, CRITICAL);
    assert_eq!(never["verdict"], "lost");
    says(
        &first(&never, "lost")["means"].to_string(),
        &["etcd", "renews"],
    );
    assert_eq!(root.everything(), before, "something was changed");
}

#[test]
fn the_text_answers_first_and_fits() {
    let root = with(&ControlPlane::new());
    for (days, code, answer) in [
        (10, FINE, "it comes back by itself if it is off until"),
        (
            60,
            WARNING,
            "it does not come back by itself if it is off until",
        ),
        (
            3000,
            CRITICAL,
            "nothing on it brings it back if it is off until",
        ),
    ] {
        let mut command = root.command(&["doctor", "--until", &day(days)]);
        let run = Run::of(
            command
                .env("TERM", "dumb")
                .stdin(Stdio::null())
                .output()
                .unwrap(),
        )
        .exits(code);
        let text = run.out();
        says(
            &flat(&text),
            &[
                &format!("a control-plane node: {answer} {}.", day(days)),
                &format!(
                    "Needs an admin from {} Ends the kubelet's client certificate, {}",
                    day(25),
                    day(25)
                ),
                &format!("Lost from {}", day(1785)),
                "First client requests",
                "Second server requests",
                "oc get csr",
            ],
        );
        assert_eq!(text.contains("Renewed automatically"), days > 10, "{text}");
        assert!(text.is_ascii());
        for line in text.lines() {
            // Commands are to be copied.
            let whole = line.contains(" oc ");
            assert!(
                whole || line.len() <= 80 || line.split_whitespace().count() <= 2,
                "{line}"
            );
        }
    }
}

#[test]
fn each_certificate_that_nothing_renews_is_a_last_day() {
    for (name, days, words) in [
        ("etcd-client", 300.0, "the API server cannot use etcd"),
        (
            "localhost-recovery-serving-certkey",
            200.0,
            "localhost-recovery",
        ),
        ("etcd-peer-master-2", 100.0, "members refuse each other"),
        ("etcd-signer", 50.0, "CN=etcd-signer ends first"),
    ] {
        let root = with(&ControlPlane::new().ends(name, days));
        let outlook = until(&root, 400, CRITICAL);
        assert_eq!(outlook["lost_day"], day(days as u64), "{name}");
        let all: String = steps(&outlook)
            .iter()
            .filter(|step| step["verdict"] == "lost")
            .map(|step| step["means"].to_string())
            .collect();
        says(&all, &[words]);
    }
    // The kubeconfigs of the node: approvals need another one.
    let root = with(&ControlPlane::new().ends("node-kubeconfigs", 20.0));
    let outlook = until(&root, 22, WARNING);
    assert_eq!(outlook["first_day"], day(20));
    says(
        &first(&outlook, "needs-hands")["means"].to_string(),
        &["approvals need one from elsewhere"],
    );
}

#[test]
fn a_node_that_is_already_too_late_is_reported_since_when() {
    let root = with(&ControlPlane::new().cold_for(100.0));
    let outlook = until(&root, 0, WARNING);
    let at = first(&outlook, "needs-hands")["at"].as_u64().unwrap();
    assert!(at < current_time(), "{outlook:#}");
    assert_eq!(outlook["first_day"], format_utc(at)[..10].to_owned());
}

#[test]
fn a_worker_needs_its_bootstrap_credentials_and_an_approval() {
    let root = worker::healthy();
    let outlook = until(&root, 10, FINE);
    assert_eq!(
        (
            outlook["node"].as_str(),
            &outlook["first_day"],
            &outlook["lost_day"]
        ),
        (Some("worker"), &Value::from(day(20)), &Value::Null)
    );
    let outlook = until(&root, 30, WARNING);
    says(
        &first(&outlook, "needs-hands")["means"].to_string(),
        &["node-bootstrapper"],
    );
    assert_eq!(outlook["approvals"].as_array().unwrap().len(), 2);
    assert_eq!(outlook["notes"], serde_json::json!([]));
    root.remove("etc/kubernetes/kubeconfig");
    says(
        &until(&root, 10, FINE)["notes"].to_string(),
        &["/etc/kubernetes/kubeconfig is missing"],
    );
    // The server certificate alone stops nothing.
    root.write(SERVING, &certificate("system:node:worker-0", 5));
    let outlook = until(&root, 10, FINE);
    assert_eq!(outlook["first_day"], day(20));
    // Without its client certificate, it needs hands now.
    root.remove(CLIENT);
    let outlook = until(&root, 0, WARNING);
    says(
        &first(&outlook, "needs-hands").to_string(),
        &["it is missing", CLIENT],
    );
}

#[test]
fn a_cluster_younger_than_a_day_is_reported() {
    let plane = ControlPlane::new()
        .lives("kubelet-client-current", 0.2, 0.7)
        .lives("kubelet-server-current", 0.2, 0.7)
        .lives("csr-signer", 0.3, 0.7);
    let outlook = until(&with(&plane), 3, WARNING);
    says(
        &outlook["notes"].to_string(),
        &["younger than that", "25 hours"],
    );
    let outlook = until(&with(&ControlPlane::new()), 3, FINE);
    let notes = outlook["notes"].to_string();
    assert!(
        !notes.contains("25 hours") && !notes.contains("FP-54"),
        "{notes}"
    );
}

#[test]
fn a_date_that_cannot_be_answered_is_an_error() {
    let root = worker::healthy();
    for date in ["soon", "2027-02-29", "2027-1-1", "2027-01-01T25:00:00Z", ""] {
        let run = root.run(&["doctor", "--until", date]).exits(2);
        says(
            &run.err(),
            &["is not a date; write 2026-01-31 or 2026-01-31T12:00:00Z"],
        );
    }
    let run = root.run(&["doctor", "--until", "2020-01-01"]).exits(1);
    says(
        &run.err(),
        &["2020-01-01T23:59:59Z is in the past", "Give a later day"],
    );
    let run = root
        .run(&["doctor", "--until", &day(1), "--bundle", "/nowhere/x"])
        .exits(2);
    says(&run.err(), &["cannot be used with"]);
    // A time with a zone; today is not over.
    let at = format_utc(current_time() + 3600).replace('Z', "+00:00");
    root.run(&["doctor", "--until", &at]).exits(FINE);
    root.run(&["doctor", "--until", &day(0)]).exits(FINE);
    // Half a revision does not start, whatever the dates are.
    let master = with(&ControlPlane::new());
    master.remove("etc/kubernetes/manifests/etcd-pod.yaml");
    let notes = until(&master, 3, FINE)["notes"].to_string();
    says(&notes, &["A static pod is not complete (FP-54)"]);
    let other = TestRoot::empty();
    other.write("etc/os-release", "ID=debian\n");
    let run = other.run(&["doctor", "--until", &day(1)]).exits(1);
    says(
        &flat(&run.err()),
        &["no certificate of a kubelet or of a control plane"],
    );
}

#[test]
fn what_only_root_may_read_gives_no_promise() {
    if !is_root() {
        return skip(Lacks::Root, "giving files to root needs root");
    }
    let root = with(&ControlPlane::new());
    root.chmod("", 0o755);
    let mut command = root.command(&["doctor", "--until", &day(1), "--output", "json"]);
    let output = CommandExt::uid(&mut command, 65534)
        .stdin(Stdio::null())
        .output();
    let Ok(output) = output else {
        return skip(Lacks::Machine, "the program is where nobody may run it");
    };
    let run = Run::of(output).exits(1);
    says(
        &run.json()["unseen"].to_string(),
        &["kubelet-client-current.pem", "etcd-client"],
    );
    says(&run.err(), &["Run it with sudo"]);
    assert_eq!(run.json()["verdict"], "unknown");
}

#[test]
fn a_certificate_that_cannot_be_read_is_neither_missing_nor_good() {
    let root = worker::healthy();
    // The kubelet's link is absolute.
    let real = root.target(CLIENT).unwrap_or_else(|| CLIENT.to_owned());
    root.write(&real, "garbage\n");
    let outlook = until(&root, 10, 1);
    assert_eq!(outlook["verdict"], "unknown", "{outlook:#}");
    says(
        &outlook["unseen"].to_string(),
        &[CLIENT, "no certificate in it can be read"],
    );
    let said = root.run(&["doctor", "--until", &day(10)]).exits(1).out();
    says(
        &flat(&said),
        &[
            "it is not known if it comes back by itself after",
            "as 1 file could not be read.",
        ],
    );
    assert!(
        !said.contains("it is missing") && !said.contains("No certificate"),
        "{said}"
    );
}

/// Every date, and the day on which OpenSSL refuses.
#[test]
fn the_days_are_those_of_openssl() {
    if Command::new("openssl").arg("version").output().is_err() {
        return skip(Lacks::Setup, "there is no openssl");
    }
    let root = with(&ControlPlane::new().ends("etcd-signer", 50.0));
    let outlook = until(&root, 60, CRITICAL);
    let scratch = tempfile::tempdir().unwrap();
    let copy = scratch.path().join("one.pem");
    let mut compared = 0;
    for step in steps(&outlook) {
        // The kubelet's links are absolute.
        let path = step["path"].as_str().unwrap();
        let path = root.path(&root.target(path).unwrap_or_else(|| path.to_owned()));
        let mut text = fs::read_to_string(&path).unwrap();
        if let Some((_, data)) = text.split_once("client-certificate-data: ") {
            let data = data.lines().next().unwrap();
            text = String::from_utf8(BASE64_STANDARD.decode(data).unwrap()).unwrap();
        }
        let ends = text
            .split_inclusive("-----END CERTIFICATE-----\n")
            .filter_map(|block| {
                fs::write(&copy, block).unwrap();
                let mut command = Command::new("openssl");
                command
                    .args(["x509", "-noout", "-enddate", "-dateopt", "iso_8601", "-in"])
                    .arg(&copy);
                let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
                Some(said.trim().strip_prefix("notAfter=")?.replace(' ', "T"))
            });
        let last = ends.max().unwrap();
        let signed_by_etcd = step["means"].as_str().unwrap().contains("ends first");
        if signed_by_etcd {
            let bundle = root.path("etc/kubernetes/static-pod-resources/etcd-certs/configmaps/etcd-all-bundles/server-ca-bundle.crt");
            let at = step["at"].as_u64().unwrap();
            for (second, accepted) in [(at - 1, true), (at + 1, false)] {
                let mut command = Command::new("openssl");
                command
                    .arg("verify")
                    .arg("-CAfile")
                    .arg(&bundle)
                    .args(["-attime", &second.to_string()])
                    .arg(&path);
                assert_eq!(
                    command.output().unwrap().status.success(),
                    accepted,
                    "{step:#}"
                );
            }
        } else {
            assert_eq!(last, format_utc(step["at"].as_u64().unwrap()), "{step:#}");
        }
        compared += 1;
    }
    assert!(compared > 25, "{compared}");
}
