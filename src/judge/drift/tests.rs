//! Tests of `drift`.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde_json::{Value, json};

use super::*;
use crate::base::kargs::Kargs;
use crate::config::document::MachineConfig;
use crate::formats::systemd::{Support, UnitTree};
use crate::node::{Host, Labels, Os, System};

fn parse_config(spec: &Value) -> MachineConfig {
    let text = json!({"metadata": {"name": "rendered-worker-1"}, "spec": spec}).to_string();
    crate::config::document::parse_document(text, "test").unwrap()
}

fn desired_files(files: &Value) -> Desired {
    let part = json!({"ignition": {"version": "3.4.0"}, "storage": {"files": files}});
    Desired::from_config(&parse_config(&json!({"config": part})))
}

/// Returns a node with these files, each with its text, mode and owner.
fn node_with(files: &[(&str, &str, u32, u32)]) -> NodeState {
    let object = |(path, text, mode, owner): &(&str, &str, u32, u32)| {
        let object = text_object(text.as_bytes(), *mode, (*owner, *owner));
        (RootPath::parse(path).unwrap(), object)
    };
    let host = Host {
        engine: crate::node::engine::Engine::RpmOstree,
        user: (0, 0),
        can_chown: true,
        capabilities: HashSet::new(),
        live: false,
        separate_var: false,
        var_missing: false,
        in_initramfs: false,
        never_booted: false,
        has_usr_etc: false,
        deployment: None,
        fips: None,
    };
    NodeState {
        objects: files.iter().map(object).collect(),
        texts: BTreeMap::new(),
        stamps: BTreeMap::new(),
        obstructed: BTreeMap::new(),
        directories: BTreeMap::new(),
        flags: BTreeMap::new(),
        root_flags: Default::default(),
        mount_points: BTreeSet::new(),
        obstacles: BTreeMap::new(),
        trees: BTreeMap::new(),
        root_mount: 1,
        mounts: BTreeMap::new(),
        units: UnitTree::new(),
        systemd: Support {
            upheld_by: false,
            preset_ignore: false,
        },
        accounts: Accounts::default(),
        size: None,
        architecture: None,
        host,
        os: Os::default(),
        neighbours: crate::node::Neighbours::default(),
        system: System::default(),
        labels: Labels::default(),
        elsewhere: BTreeMap::new(),
        packaged: BTreeMap::new(),
    }
}

fn kinds(drifts: &[Drift]) -> Vec<(DriftKind, &str)> {
    let kind = |drift: &'_ Drift| drift.kind;
    let subjects = drifts.iter().map(|drift| drift.subject.as_str());
    drifts.iter().map(kind).zip(subjects).collect()
}

#[test]
fn a_node_as_the_config_wants_it_has_no_drift() {
    let desired = desired_files(&json!([{"path": "/etc/a", "contents": {"source": "data:,a"}}]));
    let node = node_with(&[("/etc/a", "a", 0o644, 0)]);
    assert_eq!(find_drifts(&desired, &node), []);
    assert_eq!(daemon_verdict("rendered-worker-1", None, &[]), None);
}

#[test]
fn differences_come_in_the_order_of_the_config_and_the_first_is_the_verdict() {
    let desired = desired_files(&json!([
        {"path": "/etc/other-owner", "contents": {"source": "data:,a"}},
        {"path": "/etc/mode", "mode": 0o600, "contents": {"source": "data:,a"}},
        {"path": "/etc/bytes", "contents": {"source": "data:,abc"}},
        {"path": "/etc/missing", "contents": {"source": "data:,a"}},
    ]));
    let mut node = node_with(&[
        ("/etc/bytes", "a", 0o644, 0),
        ("/etc/mode", "a", 0o644, 0),
        ("/etc/other-owner", "a", 0o644, 7),
    ]);
    let all = find_drifts(&desired, &node);
    let wanted = [
        (DriftKind::Owner, "/etc/other-owner"),
        (DriftKind::Mode, "/etc/mode"),
        (DriftKind::Content, "/etc/bytes"),
        (DriftKind::Missing, "/etc/missing"),
    ];
    assert_eq!(kinds(&all), wanted);
    // The daemon does not compare owners.
    let message = "unexpected on-disk state validating against c: mode mismatch for file: \"/etc/mode\"; \
                       expected: -rw-------/384/0600; received: -rw-r--r--/420/0644";
    assert_eq!(daemon_verdict("c", None, &all).as_deref(), Some(message));
    assert_eq!(
        daemon_verdict("c", Some(""), &all).as_deref(),
        Some(message)
    );
    let layered = daemon_verdict("c", Some("registry.example/os@sha256:ab"), &all);
    let of_image = message.replace("against c:", "against registry.example/os@sha256:ab:");
    assert_eq!(layered, Some(of_image));
    // Without the privilege an owner cannot be changed, so it is not compared.
    node.host.can_chown = false;
    assert_eq!(kinds(&find_drifts(&desired, &node)), wanted[1..]);
}

#[test]
fn an_exempt_certificate_does_not_matter_for_the_daemon() {
    let path = "/etc/kubernetes/kubelet-ca.crt";
    let desired = desired_files(&json!([{"path": path, "contents": {"source": "data:,a"}}]));
    let all = find_drifts(&desired, &node_with(&[]));
    assert_eq!(kinds(&all), [(DriftKind::Missing, path)]);
    assert_eq!(daemon_verdict("c", None, &all), None);
}

#[test]
fn a_file_that_cannot_be_examined_is_reported_with_its_cause() {
    let desired = desired_files(&json!([{"path": "/etc/a", "contents": {"source": "data:,a"}}]));
    let mut node = node_with(&[("/etc/a", "a", 0o644, 0)]);
    let cause = ResolveError::System(Errno::EACCES);
    node.obstructed
        .insert(RootPath::parse("/etc/a").unwrap(), cause);
    let all = find_drifts(&desired, &node);
    let message = "could not read file \"/etc/a\": open /etc/a: permission denied";
    assert_eq!(all[0].daemon.as_deref(), Some(message));
}

#[test]
fn an_argument_with_a_blank_in_quotes_is_missing_even_where_it_is_present() {
    let config = parse_config(&json!({"kernelArguments": ["a=1 b", "\"c d\""]}));
    let drift = |line: &str| missing_arguments(&config, Some(&Kargs::parse(line)));
    let message = |line: &str| drift(line).and_then(|drift| drift.daemon);
    let wanted = "missing expected kernel arguments: [\"c d\"]";
    assert_eq!(message("b a=1 \"c d\"").as_deref(), Some(wanted));
    let wanted = "missing expected kernel arguments: [a=1 \"c d\"]";
    assert_eq!(message("b a=2").as_deref(), Some(wanted));
    assert_eq!(missing_arguments(&parse_config(&json!({})), None), None);
}

#[test]
fn a_layered_image_takes_the_place_of_that_of_the_config() {
    let config = parse_config(&json!({"osImageURL": "registry/os@sha256:1"}));
    let runs = |layered, runs| image_drift(&config, layered, runs);
    assert_eq!(runs(None, "registry/os@sha256:1"), None);
    assert_eq!(runs(Some(""), "registry/os@sha256:1"), None);
    assert_eq!(runs(Some("registry/own"), "registry/own"), None);
    let drift = runs(Some("registry/own"), "registry/os@sha256:1").unwrap();
    assert!(drift.is_of_the_os());
    let message = "expected target osImageURL \"registry/own\", have \"registry/os@sha256:1\"";
    assert_eq!(drift.daemon.as_deref(), Some(message));
}

#[test]
fn modes_print_as_go_prints_them() {
    let object = |kind, mode| GoMode::from_object(&Object::new(kind, mode, (0, 0))).to_string();
    let file = || ObjectKind::File {
        size: 0,
        sha256: String::new().into(),
    };
    assert_eq!(object(file(), 0o644), "-rw-r--r--/420/0644");
    assert_eq!(object(file(), 0o1644), "trw-r--r--/1048996/04000644");
    assert_eq!(object(file(), 0o4755), "urwxr-xr-x/8389101/040000755");
    assert_eq!(
        object(ObjectKind::Directory, 0o755),
        "drwxr-xr-x/2147484141/020000000755"
    );
    assert_eq!(
        object(
            ObjectKind::Symlink {
                target: "/x".into()
            },
            0o777
        ),
        "Lrwxrwxrwx/134218239/01000000777"
    );
    assert_eq!(object(file(), 0), "----------/0/0");
}
