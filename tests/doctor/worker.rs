//! A worker as it runs: a cluster network, certificates and what an OS image needs; and rows of what is done to it and found then.

use std::fs;
use std::process::Command;

use super::{certificate, doctor, doctor_on, of, unseen};
use crate::support::mounts::with_mounts;
use crate::support::ostree_node::{IMAGE, OstreeNode};
use crate::support::{TestRoot, file, kubelet_unit, machine_config};
use mco_rescue::base::invocation::ON_THE_NODE;
use serde_json::{Value, json};

pub(super) const CLIENT: &str = "var/lib/kubelet/pki/kubelet-client-current.pem";
pub(super) const SERVING: &str = "var/lib/kubelet/pki/kubelet-server-current.pem";
pub(super) const ETCD: &str =
    "etc/kubernetes/static-pod-resources/etcd-certs/secrets/etcd-all-certs";
pub(super) const POLICY: &str = "etc/containers/policy.json";
pub(super) const SECRET: &str = "var/lib/kubelet/config.json";
pub(super) const KEYFILES: &str = "etc/NetworkManager/system-connections";

pub(super) fn prepared_for(network: &str, name: &str) -> Value {
    let unit = format!(
        "[Service]\nType=oneshot\nExecStart=/usr/local/bin/configure-ovs.sh {network}\n[Install]\nWantedBy=network-online.target\n"
    );
    let mut config = machine_config(
        name,
        json!({
            "storage": {"files": [file("/etc/pool.conf", 0o644, "a\n"), file("/etc/other.conf", 0o600, "b\n")]},
            "systemd": {"units": [{"name": "ovs-configuration.service", "enabled": true, "contents": unit}, kubelet_unit()]},
        }),
    );
    config["spec"]["osImageURL"] = IMAGE.into();
    config
}

pub(super) fn config() -> Value {
    prepared_for("OVNKubernetes", "rendered-worker-a")
}

/// What every node has besides its config; it boots images.
pub(super) fn furnish(root: &TestRoot) {
    root.write(
        POLICY,
        r#"{"default": [{"type": "insecureAcceptAnything"}]}"#,
    );
    root.write(
        "home/core/.ssh/authorized_keys",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBdBmyV7tmBKXQFcrHRXpnDTYlFTREUPCl0aYrhYEcEO a\n",
    );
    root.write("etc/resolv.conf", "nameserver 192.0.2.1\n");
    root.write(
        SECRET,
        r#"{"auths": {"quay.example": {"auth": "c2VjcmV0OnNlY3JldA=="}}}"#,
    );
    root.write("etc/kubernetes/cni/net.d/10-ovn-kubernetes.conf", "{}\n");
    root.write(CLIENT, &certificate("system:node:worker-0", 20));
    root.chmod(CLIENT, 0o600);
    root.write(SERVING, &certificate("system:node:worker-0", 20));
    root.write(
        "etc/kubernetes/kubelet-ca.crt",
        &certificate("kubelet-signer", 4000),
    );
    root.write(
        &format!("{ETCD}/etcd-peer-a.crt"),
        &certificate("etcd", 300),
    );
    fs::create_dir_all(root.path("usr/etc")).unwrap();
}

/// A copy of a root, as it is.
pub(super) fn copy(of: &TestRoot) -> TestRoot {
    let root = TestRoot::empty();
    let mut command = Command::new("cp");
    command.arg("-a").arg(of.dir().join(".")).arg(root.dir());
    assert!(command.status().unwrap().success());
    root
}

pub(super) fn healthy() -> TestRoot {
    let root = TestRoot::new();
    furnish(&root);
    root.apply(&config());
    root
}

pub(super) fn import(root: &TestRoot, config: &Value) {
    let config = root.config(config);
    root.run(&["fetch", config.path()]).ok();
}

/// What the API said of the node last.
pub(super) fn annotated(root: &TestRoot, current: &str, desired: &str) {
    let seen = json!({"version": 1, "node": "worker-0", "seen": 1_700_000_000, "current": current,
        "desired": desired, "state": "Done"});
    root.write("var/lib/mco-rescue/annotations.json", &seen.to_string());
}

/// On a booted node, with programs that answer as the real ones do.
pub(super) fn on_a_node(test: impl FnOnce(&OstreeNode) + Send) {
    with_mounts(|| test(&booted()));
}

/// The same; the mounts are already those of the test alone.
pub(super) fn booted() -> OstreeNode {
    let node = OstreeNode::new();
    furnish(&node.root);
    fs::create_dir_all(node.root.path("run/multus/cni/net.d")).unwrap();
    node.root
        .write("run/multus/cni/net.d/10-ovn-kubernetes.conf", "{}\n");
    node.root.apply(&config());
    node
}

#[track_caller]
pub(super) fn is_well(node: &OstreeNode, id: &str) {
    let report = doctor_on(node);
    assert_eq!(of(&report, id), Vec::<Value>::new());
}

/// One branch: what is said, from what, and what to do; `ROOT` stands for the root's directory.
pub(super) struct Branch {
    pub(super) id: &'static str,
    pub(super) severity: &'static str,
    pub(super) what: &'static str,
    /// Parts of evidence and meaning.
    pub(super) seen: &'static [&'static str],
    /// How the commands begin, all of them in order.
    pub(super) next: &'static [&'static str],
}

impl Branch {
    /// The check finds this and nothing else, and no line is cut off on a terminal.
    #[track_caller]
    pub(super) fn met_by(&self, report: &Value, place: &str) {
        let found = of(report, self.id);
        let [found] = found.as_slice() else {
            panic!("{} {}: {:#}", self.id, self.what, report["findings"]);
        };
        // A figure that others change meanwhile is left out at the end.
        let what = found["what"].as_str().unwrap();
        let begins = self.what.ends_with(' ') && what.starts_with(self.what);
        assert!(begins || what == self.what, "{found:#}");
        assert_eq!(found["severity"], self.severity, "{found:#}");
        assert!(self.what.len() <= mco_rescue::diagnose::doctor::WHAT);
        for part in self.seen {
            let part = part.replace("ROOT", place);
            assert!(found.to_string().contains(&part), "no {part:?}: {found:#}");
        }
        let next = found["next"].as_array().unwrap().iter();
        let next: Vec<&str> = next.map(|one| one.as_str().unwrap()).collect();
        assert_eq!(next.len(), self.next.len(), "{found:#}");
        for (is, begins) in next.iter().zip(self.next) {
            let begins = begins.replace("ROOT", place);
            // That a command is marked for another root, and only then, is checked for all of them alike.
            let is = is.strip_prefix(ON_THE_NODE).unwrap_or(is);
            assert!(is.starts_with(&begins), "{is} is not {begins}: {found:#}");
        }
    }
}

/// Something done to a healthy root, and what is found then; nothing: it is healthy still.
pub(super) struct Row {
    pub(super) id: &'static str,
    pub(super) done: fn(&TestRoot),
    pub(super) found: Option<Branch>,
}

pub(super) const fn sick(done: fn(&TestRoot), found: Branch) -> Row {
    Row {
        id: found.id,
        done,
        found: Some(found),
    }
}

pub(super) const fn well(id: &'static str, done: fn(&TestRoot)) -> Row {
    Row {
        id,
        done,
        found: None,
    }
}

pub(super) fn all_met(rows: &[Row]) {
    let template = healthy();
    let report = doctor(&template);
    assert_eq!(report["findings"], json!([]));
    assert!(unseen(&report, "FP-04").contains("no source here names it"));
    for (number, row) in rows.iter().enumerate() {
        let root = copy(&template);
        (row.done)(&root);
        let report = doctor(&root);
        match &row.found {
            Some(branch) => branch.met_by(&report, root.dir().to_str().unwrap()),
            None => assert_eq!(of(&report, row.id), Vec::<Value>::new(), "row {number}"),
        }
    }
}
