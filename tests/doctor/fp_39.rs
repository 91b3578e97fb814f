//! FP-39: the control plane was off for too long.

use super::master::{RESOURCES, with};
use super::worker::{self, copy};
use super::{certificate, doctor, finding, ids, of, says, unseen};
use crate::support::TestRoot;
use crate::support::control_plane::ControlPlane;
use serde_json::Value;

const CERTS: &str = "etc/kubernetes/static-pod-resources/kube-apiserver-certs";

/// What a plane is told: exactly these checks, and the words of FP-39.
#[track_caller]
fn told(plane: &ControlPlane, all: &[&str]) -> Value {
    told_of(&with(plane), all)
}

#[track_caller]
fn told_of(root: &TestRoot, all: &[&str]) -> Value {
    let report = doctor(root);
    assert_eq!(ids(&report), all, "{report:#}");
    assert_eq!(unseen(&report, "FP-39"), "[]");
    report
}

#[track_caller]
fn is(report: &Value, severity: &str, what: &str, words: &[&str]) {
    let found = finding(report, "FP-39");
    assert_eq!(
        (found["severity"].as_str(), found["what"].as_str()),
        (Some(severity), Some(what)),
        "{found:#}"
    );
    says(&found.to_string(), words);
}

const RENEWED: &str = "certificates of the control plane have expired";
const LOST: &str = "expired certificates that nothing here renews";
const OVERDUE: &str = "the control plane's certificates are overdue";

#[test]
fn a_control_plane_that_runs_has_nothing() {
    told(&ControlPlane::new(), &[]);
    told(&ControlPlane::single(), &[]);
    // Just before their ordinary renewal.
    told(&ControlPlane::new().cold_for(9.5), &[]);
}

#[test]
fn certificates_are_overdue_by_their_own_life() {
    let report = told(&ControlPlane::new().cold_for(20.0), &["FP-39"]);
    is(
        &report,
        "notice",
        OVERDUE,
        &["The first ends at", "mco-rescue doctor --until 20"],
    );
    // Releases under test renew every few hours: the same fraction, of another life.
    told(&ControlPlane::new().lives("csr-signer", 0.2, 0.3), &[]);
    let report = told(
        &ControlPlane::new().lives("csr-signer", 0.35, 0.15),
        &["FP-39"],
    );
    is(&report, "notice", OVERDUE, &["csr-signer/tls.crt"]);
    // The kubeconfigs live for two years and are written every month.
    told(
        &ControlPlane::new().lives("node-kubeconfigs", 60.0, 670.0),
        &[],
    );
    let report = told(
        &ControlPlane::new().lives("node-kubeconfigs", 200.0, 530.0),
        &["FP-39"],
    );
    is(&report, "notice", OVERDUE, &["node-kubeconfigs"]);
}

#[test]
fn what_the_control_plane_renews_itself_costs_two_waves_of_approvals() {
    let report = told(
        &ControlPlane::new().ends("aggregator-client", -3.0),
        &["FP-39"],
    );
    is(
        &report,
        "warning",
        RENEWED,
        &[
            "aggregator-client/tls.crt",
            "CN=system:openshift-aggregator until",
            "two rounds",
            "x509: certificate has expired or is not yet valid",
            "node-kubeconfigs/localhost-recovery.kubeconfig oc get csr # once the node has booted",
            "oc adm certificate approve NAME",
        ],
    );
    for name in [
        "csr-signer",
        "kube-scheduler-client-cert-key",
        "kube-controller-manager-client-cert-key",
    ] {
        let report = told(&ControlPlane::new().ends(name, -1.0), &["FP-39"]);
        is(&report, "warning", RENEWED, &[name]);
    }
    // Nobody can approve with an expired kubeconfig.
    let report = told(
        &ControlPlane::new().ends("node-kubeconfigs", -1.0),
        &["FP-39"],
    );
    is(
        &report,
        "warning",
        RENEWED,
        &[
            "lb-ext.kubeconfig",
            "KUBECONFIG=KUBECONFIG-OF-AN-ADMIN oc get csr",
        ],
    );
}

#[test]
fn what_nothing_renews_is_critical() {
    for name in ["etcd-client", "localhost-recovery-serving-certkey"] {
        let report = told(&ControlPlane::new().ends(name, -1.0), &["FP-39"]);
        is(
            &report,
            "critical",
            LOST,
            &[
                &format!("kube-apiserver-pod-8/secrets/{name}/tls.crt"),
                "no approval helps",
            ],
        );
    }
    // The authority ends before what it signed, which every verifier refuses then.
    let report = told(&ControlPlane::new().ends("etcd-signer", -1.0), &["FP-39"]);
    is(
        &report,
        "critical",
        LOST,
        &[
            "etcd-all-bundles/server-ca-bundle.crt",
            "etcd-serving-ca/ca-bundle.crt",
            "by its authority CN=etcd-signer",
        ],
    );
    let report = told(
        &ControlPlane::new().ends("localhost-recovery-serving-signer", -1.0),
        &["FP-39"],
    );
    is(
        &report,
        "critical",
        LOST,
        &["localhost-recovery-serving-certkey"],
    );
}

#[test]
fn one_fact_is_reported_by_one_check() {
    told(
        &ControlPlane::new().ends("etcd-peer-master-1", -1.0),
        &["FP-09"],
    );
    told(
        &ControlPlane::new().ends("kubelet-client-current", -1.0),
        &["FP-09"],
    );
    told(
        &ControlPlane::new().ends("kubelet-server-current", -1.0),
        &["FP-09"],
    );
    // A winter in the cellar: the kubelet's by FP-09, the control plane's by FP-39.
    let report = told(
        &ControlPlane::new().cold_for(100.0),
        &["FP-09", "FP-09", "FP-39"],
    );
    is(&report, "warning", RENEWED, &["more"]);
    let found = finding(&report, "FP-39")["evidence"].to_string();
    assert!(
        !found.contains("/var/lib/kubelet") && !found.contains("etcd-all-certs"),
        "{found}"
    );
}

#[test]
fn what_is_not_in_force_does_not_count() {
    let root = with(&ControlPlane::new());
    let healthy = copy(&root);
    let old = certificate("old", -400);
    // The revision before, the copies in etcd's revision, a directory of an old release, authorities of others.
    for path in [
        "kube-apiserver-pod-7/secrets/etcd-client/tls.crt",
        "kube-apiserver-certs/secrets/kube-apiserver-cert-syncer-client-cert-key/tls.crt",
        "kube-apiserver-certs/configmaps/trusted-ca-bundle/ca-bundle.crt",
        "etcd-certs/configmaps/restore-etcd-pod/x.crt",
    ] {
        root.write(&format!("{RESOURCES}/{path}"), &old);
    }
    // An expired authority in a bundle is normal as long as another one is valid.
    for path in [
        "kube-apiserver-certs/configmaps/client-ca",
        "etcd-certs/configmaps/etcd-all-bundles",
    ] {
        let file = if path.contains("etcd") {
            "server-ca-bundle.crt"
        } else {
            "ca-bundle.crt"
        };
        let path = format!("{RESOURCES}/{path}/{file}");
        root.write(&path, &(old.clone() + &root.read(&path)));
    }
    told_of(&root, &[]);
    // A certificate of the admin's own stops nothing but itself.
    let own = format!("{CERTS}/secrets/user-serving-cert-000/tls.crt");
    healthy.write(&own, &certificate("api.example", -2));
    let report = told_of(&healthy, &["FP-39"]);
    is(
        &report,
        "warning",
        "your own certificate of the API has expired",
        &["CN=api.example", "oc get apiserver cluster"],
    );
}

#[test]
fn a_clock_that_is_behind_is_not_believed() {
    // A certificate from the future: more time has passed than the clock says.
    let plane = ControlPlane::new().lives("etcd-peer-master-0", -100.0, 1700.0);
    let report = told(&plane, &["FP-15", "FP-39"]);
    is(
        &report,
        "warning",
        RENEWED,
        &["in place of the clock (FP-15)", "etcd-peer-master-0.crt"],
    );
}

#[test]
fn a_worker_has_none_of_this() {
    let root = worker::healthy();
    let report = doctor(&root);
    assert_eq!(
        (of(&report, "FP-39"), unseen(&report, "FP-39")),
        (Vec::new(), "[]".to_owned())
    );
}
