//! What the Machine Config Server serves, and the encapsulated object of a first boot, given as configs.

use crate::support::{TestRoot, file, machine_config};
use serde_json::{Value, json};

const A: &str = "rendered-worker-a";
const CONTENT: &str = "/etc/mcs-machine-config-content.json";
const ANNOTATIONS: &str = "/etc/machine-config-daemon/node-annotations.json";

fn rendered(name: &str) -> Value {
    machine_config(
        name,
        json!({"storage": {"files": [file("/etc/a.conf", 0o644, "a\n")]}}),
    )
}

/// The config as it is served: its own files, then the additions.
fn served(config: &Value) -> Value {
    let mut ignition = config["spec"]["config"].clone();
    let files = ignition["storage"]["files"].as_array_mut().unwrap();
    files.push(file(ANNOTATIONS, 0o644, "{}"));
    files.push(file(
        "/etc/kubernetes/kubeconfig",
        0o644,
        "kind: Config # served\n",
    ));
    files.push(file(
        CONTENT,
        0o644,
        &serde_json::to_string_pretty(config).unwrap(),
    ));
    files.push(file(
        "/etc/ignition-machine-config-encapsulated.json",
        0o644,
        &encapsulated(config).to_string(),
    ));
    ignition
}

fn encapsulated(config: &Value) -> Value {
    let mut config = config.clone();
    config["spec"]["config"] = json!({"ignition": {"version": "3.5.0"}});
    config
}

/// A node before its first boot: nothing of the daemon's, no kubeconfig.
fn fresh() -> TestRoot {
    let root = TestRoot::new();
    root.remove("etc/kubernetes/kubeconfig");
    root
}

#[test]
fn a_served_config_makes_a_fresh_node_what_its_first_boot_would_have_made_it() {
    let root = fresh();
    let config = root.config(&served(&rendered(A)));
    root.run(&["apply", "--yes", config.path()]).ok();
    assert_eq!(root.read("etc/a.conf"), "a\n");
    assert_eq!(root.read(ANNOTATIONS), "{}");
    assert_eq!(
        (
            root.read("etc/kubernetes/kubeconfig").as_str(),
            root.mode("etc/kubernetes/kubeconfig")
        ),
        ("kind: Config # served\n", 0o600)
    );
    // The record is the MachineConfig that was inside, not the served Ignition.
    let record: Value =
        serde_json::from_str(&root.read("etc/machine-config-daemon/currentconfig")).unwrap();
    assert_eq!(record, rendered(A));
    root.run(&["verify"]).ok();
    assert_eq!(
        root.run(&["plan", config.path(), "--output", "json"])
            .ok()
            .json()["steps"],
        json!([])
    );
}

#[test]
fn additions_of_the_server_are_never_stale() {
    let root = fresh();
    let config = root.config(&served(&rendered(A)));
    root.run(&["apply", "--yes", config.path()]).ok();
    root.apply(&machine_config(
        "rendered-worker-b",
        json!({"storage": {"files": [file("/etc/b.conf", 0o644, "b\n")]}}),
    ));
    assert!(!root.exists("etc/a.conf"));
    for path in [
        ANNOTATIONS,
        CONTENT,
        "/etc/kubernetes/kubeconfig",
        "/etc/ignition-machine-config-encapsulated.json",
    ] {
        assert!(root.exists(path), "{path}");
    }
}

#[test]
fn a_recorded_node_gets_the_config_without_the_additions() {
    let root = TestRoot::new();
    root.apply(&rendered("rendered-worker-0"));
    let config = root.config(&served(&rendered(A)));
    root.run(&["apply", "--yes", config.path()]).ok();
    assert!(!root.exists(ANNOTATIONS) && !root.exists(CONTENT));
    assert_eq!(root.read("etc/kubernetes/kubeconfig"), "kind: Config\n");
}

#[test]
fn an_encapsulated_config_is_completed_from_the_node_or_refused() {
    let root = TestRoot::new();
    root.write("etc/a.conf", "a\n");
    let config = root.config(&encapsulated(&rendered(A)));
    let before = root.everything();
    let said = root.run(&["apply", "--yes", config.path()]).exits(1).err();
    assert!(
        said.contains("encapsulated") && said.contains("mcs-machine-config-content.json"),
        "{said}"
    );
    assert_eq!(root.everything(), before);
    // Another config's full copy does not help; its own does.
    root.write(CONTENT, &rendered("rendered-worker-b").to_string());
    root.run(&["plan", config.path()]).exits(1);
    root.write(CONTENT, &rendered(A).to_string());
    root.run(&["apply", "--yes", config.path()]).ok();
    assert_eq!(root.read("etc/a.conf"), "a\n");
    root.run(&["verify"]).ok();
}

#[test]
fn a_machine_config_that_is_broken_inside_is_refused_with_both_places() {
    let mut broken = rendered(A);
    broken["spec"]["config"]["storage"]["files"][0]["path"] = json!("relative");
    let root = fresh();
    let config = root.config(&served(&broken));
    let said = root.run(&["apply", "--yes", config.path()]).exits(1).err();
    assert!(
        said.contains("spec.config.storage.files[0].path of the MachineConfig in /etc/mcs"),
        "{said}"
    );
}
