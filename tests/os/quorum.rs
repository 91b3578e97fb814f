//! A control-plane node before a reboot: the real etcd of three members, with one of them gone, and without any.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::ansible::Fleet;
use crate::support::mounts::with_network;
use crate::support::ostree_node::{IMAGE, NEXT, OstreeNode};
use crate::support::{Lacks, TestRoot, file, flat, machine_config, skip};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use serde_json::json;

const CERTIFICATES: &str = "etc/kubernetes/static-pod-resources/etcd-certs/secrets/etcd-all-certs";
const BUNDLE: &str = "etc/kubernetes/static-pod-resources/etcd-certs/configmaps/etcd-all-bundles/server-ca-bundle.crt";

/// Three members on the loopback of a network of their own.
struct Etcd {
    members: Vec<Child>,
    _dir: tempfile::TempDir,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for member in &mut self.members {
            let _ = member.kill();
            let _ = member.wait();
        }
    }
}

fn client_port(member: usize) -> usize {
    2379 + 100 * member
}

impl Etcd {
    /// Starts them with the certificates of a node.
    fn start(root: &TestRoot, count: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let peer = |member| format!("m{member}=http://127.0.0.1:{}", client_port(member) + 1);
        let all: Vec<String> = (0..count).map(peer).collect();
        let members = (0..count).map(|member| {
            let client = format!("https://127.0.0.1:{}", client_port(member));
            let peer = format!("http://127.0.0.1:{}", client_port(member) + 1);
            let mut etcd = Command::new("etcd");
            etcd.args(["--name", &format!("m{member}"), "--data-dir"])
                .arg(dir.path().join(format!("m{member}")));
            etcd.args([
                "--listen-client-urls",
                &client,
                "--advertise-client-urls",
                &client,
            ]);
            etcd.args([
                "--listen-peer-urls",
                &peer,
                "--initial-advertise-peer-urls",
                &peer,
            ]);
            etcd.args(["--initial-cluster", &all.join(","), "--client-cert-auth"]);
            let certificate = |name: &str| root.path(&format!("{CERTIFICATES}/{name}"));
            etcd.arg("--cert-file").arg(certificate("etcd-peer-m0.crt"));
            etcd.arg("--key-file").arg(certificate("etcd-peer-m0.key"));
            etcd.arg("--trusted-ca-file").arg(root.path(BUNDLE));
            etcd.stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap()
        });
        let members = members.collect();
        Self { members, _dir: dir }
    }

    fn stop(&mut self, member: usize) {
        self.members[member].kill().unwrap();
        self.members[member].wait().unwrap();
    }
}

/// What the operator of etcd puts on a node's disk.
fn certificates(root: &TestRoot) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&key).unwrap();
    root.write(BUNDLE, &authority.pem());
    let issuer = Issuer::new(params, key);
    let mut peer =
        CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
    peer.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    let key = KeyPair::generate().unwrap();
    let signed = peer.signed_by(&key, &issuer).unwrap();
    root.write(&format!("{CERTIFICATES}/etcd-peer-m0.crt"), &signed.pem());
    root.write(
        &format!("{CERTIFICATES}/etcd-peer-m0.key"),
        &key.serialize_pem(),
    );
}

/// A control-plane node whose config needs a reboot, in a network of its own.
fn with_node(test: impl FnOnce(&OstreeNode) + Send) {
    if Command::new("etcd").arg("--version").output().is_err() {
        return skip(Lacks::Setup, "etcd is not installed");
    }
    with_network(|| {
        let node = OstreeNode::new();
        let ignition = json!({"storage": {"files": [file("/etc/new", 0o644, "new\n")]}});
        let mut config = machine_config("rendered-master-1", ignition);
        config["spec"]["osImageURL"] = json!(IMAGE);
        config["spec"]["kernelArguments"] = json!(["nohz=on"]);
        node.root.write("config", &config.to_string());
        node.root
            .write("etc/kubernetes/manifests/etcd-pod.yaml", "kind: Pod\n");
        certificates(&node.root);
        test(&node);
    });
}

/// What `plan` says, once it is so; the members find each other meanwhile.
fn waits_until(node: &OstreeNode, is_so: impl Fn(&str) -> bool) -> String {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let said = flat(&node.run(&["plan", "/config"]).ok().out());
        if is_so(&said) {
            return said;
        }
        assert!(Instant::now() < deadline, "{said}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_member_may_leave_while_more_than_half_are_left() {
    with_node(|node| {
        let _etcd = Etcd::start(&node.root, 3);
        waits_until(node, |said| !said.contains("etcd:"));
        node.run(&["apply", "--yes", "--reboot", "/config"]).ok();
        assert_eq!(node.calls().last().unwrap(), "systemctl --no-block reboot");
    });
}

#[test]
fn no_reboot_is_made_by_which_quorum_would_be_lost() {
    with_node(|node| {
        let mut etcd = Etcd::start(&node.root, 3);
        waits_until(node, |said| !said.contains("etcd:"));
        etcd.stop(2);
        let said = waits_until(node, |said| {
            said.contains("1 of 3 members of etcd are left, and 2 are needed; not well: m2")
        });
        assert!(said.contains("--ignore-quorum"), "{said}");
        let reboot = ["apply", "--yes", "--reboot", "/config"];
        let refused = flat(&node.run(&reboot).exits(1).out());
        assert!(refused.contains("Blockers (1): - etcd:"), "{refused}");
        let policy = r#"{"default": [{"type": "insecureAcceptAnything"}]}"#;
        node.root.write("etc/containers/policy.json", policy);
        node.run(&["pivot", "--yes", NEXT]).exits(1);
        assert_eq!(node.calls(), Vec::<String>::new(), "nothing was staged");
        assert!(!node.root.exists("etc/new"));
        // Staging alone harms nobody; a reboot does, when it is said that it may.
        node.run(&["apply", "--yes", "/config"]).ok();
        assert!(node.root.exists("etc/new"));
        assert!(!node.calls().iter().any(|call| call.ends_with(" reboot")));
        node.run(&[&reboot[..], &["--ignore-quorum"]].concat()).ok();
        assert_eq!(node.calls().last().unwrap(), "systemctl --no-block reboot");
    });
}

#[test]
fn no_pods_are_stopped_by_which_quorum_would_be_lost() {
    with_node(|node| {
        let mut etcd = Etcd::start(&node.root, 3);
        waits_until(node, |said| !said.contains("etcd:"));
        etcd.stop(2);
        waits_until(node, |said| {
            said.contains("1 of 3 members of etcd are left")
        });
        let stop = ["apply", "--yes", "--stop-workloads", "/config"];
        let refused = flat(&node.run(&stop).exits(1).out());
        assert!(refused.contains("Blockers (1): - etcd:"), "{refused}");
        assert!(refused.contains("--ignore-quorum"), "{refused}");
        assert_eq!(node.calls(), Vec::<String>::new());
        assert!(!node.root.exists("etc/new"));
    });
}

#[test]
fn the_playbook_shows_why_a_reboot_is_refused_and_stops() {
    let Some(mut fleet) = Fleet::new() else {
        return;
    };
    with_node(|node| {
        let mut etcd = Etcd::start(&node.root, 3);
        waits_until(node, |said| !said.contains("etcd:"));
        etcd.stop(2);
        waits_until(node, |said| {
            said.contains("1 of 3 members of etcd are left")
        });
        node.run(&["fetch", "/config"]).ok();
        // On the node itself `/` is its root; here it is entered first.
        let enter = format!(
            "#!/bin/sh\nexec chroot {} /usr/mco-rescue \"$@\"\n",
            node.root.dir().display()
        );
        fleet.host("master-0", "/".as_ref());
        let other = TestRoot::new();
        fleet.host("master-1", other.dir());
        let mut given = json!({
            "mco_rescue_binary": fleet.write("enter", &enter),
            "mco_rescue_config": "cached:rendered-master-1",
            "mco_rescue_reboot": true,
        });
        let before = other.everything();
        let play = fleet.play(&given, &[]).fails();
        let words = "1 of 3 members of etcd are left, and 2 are needed; not well: m2";
        assert!(play.said().contains(words), "{}", play.said());
        assert_eq!(
            play.count("master-0", "changed"),
            Some(0),
            "{}",
            play.said()
        );
        assert_eq!(play.count("master-1", "ok"), None, "{}", play.said());
        assert_eq!(other.everything(), before);
        assert_eq!(node.calls(), Vec::<String>::new(), "nothing was staged");

        // Staging alone is done: what waits for the reboot is not a failure, and a second run has nothing to do.
        given["mco_rescue_reboot"] = json!(false);
        fleet.only("master-0");
        let play = fleet.play(&given, &[]).ok();
        assert_eq!(
            play.count("master-0", "changed"),
            Some(1),
            "{}",
            play.said()
        );
        assert!(node.root.exists("etc/new"));
        let play = fleet.play(&given, &[]).ok();
        assert_eq!(
            play.count("master-0", "changed"),
            Some(0),
            "{}",
            play.said()
        );
        assert!(!node.calls().iter().any(|call| call.ends_with(" reboot")));
    });
}

#[test]
fn the_only_member_and_a_silent_one_are_reported_and_in_nobodys_way() {
    with_node(|node| {
        waits_until(node, |said| said.contains("its etcd does not answer"));
        let _etcd = Etcd::start(&node.root, 1);
        waits_until(node, |said| {
            said.contains("this node is the only member of etcd")
        });
        node.run(&["apply", "--yes", "--reboot", "/config"]).ok();
        assert!(node.root.exists("etc/new"));
    });
}
