//! FP-27: pull secrets and authorities of several writers.

use super::small::{self, directory};
use super::worker::{Branch, SECRET, healthy};
use super::{Dark, Sick, WARNING, doctor, found, of, says};
use crate::support::{TestRoot, file};
use serde_json::Value;

pub(super) const SICK: &[Sick] = &[Sick {
    id: "FP-27",
    code: WARNING,
    what: "a pull secret cannot be used",
    next: "mco-rescue verify --root",
    sicken: |root| root.write("var/lib/kubelet/config.json", "{\"auths\": {\"quay"),
}];

pub(super) const DARK: &[Dark] = &[("FP-27", "pull secrets", |root| {
    directory(root, "etc/ostree/auth.json")
})];

#[test]
fn a_pull_secret_that_cannot_be_used_is_reported_once() {
    let root = healthy();
    root.write(SECRET, "{\"auths\": {\"quay");
    let report = doctor(&root);
    Branch {
        id: "FP-27",
        severity: "warning",
        what: "a pull secret cannot be used",
        seen: &["/var/lib/kubelet/config.json", "it is not JSON"],
        next: &[
            "mco-rescue verify --root ROOT",
            "ls -l ROOT/var/lib/kubelet/config.json",
        ],
    }
    .met_by(&report, root.dir().to_str().unwrap());
    assert_eq!(
        report["findings"].as_array().unwrap().len(),
        1,
        "{report:#}"
    );
}

#[test]
fn a_pull_secret_that_cannot_be_used_is_reported_and_never_shown() {
    let root = small::node();
    let path = "var/lib/kubelet/config.json";
    root.write(
        path,
        r#"{"auths":{"registry.example":{"auth":"c2VjcmV0OnNlY3JldA=="}"#,
    );
    let seen = doctor(&root).to_string();
    assert!(!seen.contains("c2VjcmV0"), "{seen}");
    let all = of(&doctor(&root), "FP-27");
    assert_eq!(all[0]["severity"], "warning", "{all:#?}");
    root.write(path, r#"{"auths":{"other.example":{"auth":"eDp5"}}}"#);
    root.chmod(path, 0o600);
    says(
        &found(&doctor(&root), "FP-27", "notice"),
        &["changed on the node", "content mismatch"],
    );
}

#[test]
fn a_pull_secret_without_entries_is_reported_and_that_of_the_internal_registry_may_be_empty() {
    let root = small::node();
    root.write("etc/mco/internal-registry-pull-secret.json", "{}");
    assert_eq!(of(&doctor(&root), "FP-27"), Vec::<Value>::new());
    root.write("etc/ostree/auth.json", r#"{"auths":{}}"#);
    says(
        &found(&doctor(&root), "FP-27", "warning"),
        &["cannot be used", "/etc/ostree/auth.json", "it has no entry"],
    );
}

#[test]
fn a_kubelet_without_its_authority_is_critical() {
    let root = TestRoot::new();
    let mut config = small::config();
    let files = config["spec"]["config"]["storage"]["files"]
        .as_array_mut()
        .unwrap();
    files.push(file("/etc/kubernetes/kubelet-ca.crt", 0o644, "x\n"));
    root.apply(&config);
    small::furnish(&root);
    assert_eq!(of(&doctor(&root), "FP-27"), Vec::<Value>::new());
    root.remove("etc/kubernetes/kubelet-ca.crt");
    says(
        &found(&doctor(&root), "FP-27", "critical"),
        &["kubelet-ca.crt"],
    );
    // The command that it names is the remedy.
    root.run(&["apply", "--yes"]).ok();
    assert_eq!(of(&doctor(&root), "FP-27"), Vec::<Value>::new());
}

#[test]
fn what_the_daemon_writes_itself_once_it_runs_is_missed_with_a_warning() {
    let root = TestRoot::new();
    let bundle = "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem";
    let mut config = small::config();
    let files = config["spec"]["config"]["storage"]["files"].as_array_mut();
    files.unwrap().push(file(bundle, 0o644, "x\n"));
    root.apply(&config);
    small::furnish(&root);
    assert_eq!(of(&doctor(&root), "FP-27"), Vec::<Value>::new());
    root.remove(bundle);
    says(
        &found(&doctor(&root), "FP-27", "warning"),
        &[
            "missing that the daemon writes itself",
            "ca-bundle.pem",
            "once it runs",
        ],
    );
}
