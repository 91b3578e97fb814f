//! A new node is to take its config from a technician's stick, and its image says whose signature it wants to see (story: a stick
//! for a technician).
//!
//! Prepared: the disk of a node that has never booted, a key, and sticks of vfat labelled MCO-RESCUE, each with a config and the
//! capsule that the key signed. One byte of each wrong stick was changed afterwards. True afterwards, by case:
//!
//! 1. The image has policy and key in `/usr/lib/mco-rescue`; there is no network and no Ignition. Of a stick with a changed config
//!    nothing is applied, the console says which file it is, and the node boots without a config. With `mco_rescue=apply` and the
//!    right stick the next boot is that config, and the node knows who signed it.
//! 2. Ignition's server is silent, and policy and key came with the initramfs, as no root is there yet. Of a stick with a changed
//!    list Ignition gets nothing, and the console says why. The right stick makes the node, and it knows who signed its config.
//!
//! The console of case 1, with the wrong stick:
//!
//! ```text
//! ---- mco-rescue: the config of this node was NOT applied -----------------------
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::configs;
use super::first_boot::{IGNITION, NETWORK, ignition, pointer};
use super::node::{PROGRAM, bring_program, is_healthy_in};
use crate::lab::images::{self, Kind, Layout};
use crate::lab::node::{Node, cluster_network};
use crate::lab::qemu::Guest;
use crate::lab::{Case, disk, run};

const SIGNER: &str = "alice@example.com";
/// What a node has that must not be told what to be by everybody: below `/usr/lib/mco-rescue`.
const POLICY: &str = "first-boot = required\n";

/// A key, and what it signs.
struct Desk<'a> {
    case: &'a Case,
    key: PathBuf,
}

impl<'a> Desk<'a> {
    fn new(case: &'a Case) -> Self {
        let key = case.path("signer");
        let mut keygen = Command::new("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"]);
        run(keygen.arg(&key));
        Self { case, key }
    }

    /// Writes policy and key below a root, or what becomes one.
    fn writes_demands(&self, root: &Path) {
        let directory = root.join("usr/lib/mco-rescue");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("policy"), POLICY).unwrap();
        let public = fs::read_to_string(self.key.with_extension("pub")).unwrap();
        let line = format!("{SIGNER} namespaces=\"mco-rescue-capsule\" {public}");
        fs::write(directory.join("allowed_signers"), line).unwrap();
    }

    /// A stick with a config, signed, in which `change` replaces a byte of a file afterwards.
    fn stick(&self, name: &str, config: &Value, change: Option<Change>) -> PathBuf {
        let top = tempfile::tempdir().unwrap();
        fs::write(top.path().join("worker.json"), config.to_string()).unwrap();
        let mut make = Command::new(images::program());
        make.args(["capsule", "make"]).arg(top.path());
        make.arg("--sign").arg(&self.key);
        run(make.args(["--sequence", "8", "--not-after", "2099-01-01T00:00:00Z"]));
        if let Some(change) = change {
            change.make(top.path());
        }
        let stick = self.case.path(name);
        disk::formatted(&stick, 16, &["mkfs.vfat", "-n", "MCO-RESCUE"]);
        let mut copy = Command::new("mcopy");
        copy.arg("-i").arg(&stick);
        for file in ["worker.json", "capsule.json", "capsule.json.sig"] {
            copy.arg(top.path().join(file));
        }
        run(copy.arg("::"));
        stick
    }
}

/// One byte of a file on a stick.
#[derive(Clone, Copy)]
struct Change {
    file: &'static str,
    from: &'static str,
    to: &'static str,
}

impl Change {
    fn make(self, top: &Path) {
        let path = top.join(self.file);
        let was = fs::read_to_string(&path).unwrap();
        let is = was.replacen(self.from, self.to, 1);
        let differ = was.bytes().zip(is.bytes()).filter(|(a, b)| a != b).count();
        assert_eq!((differ, was.len()), (1, is.len()), "{}", self.file);
        fs::write(path, is).unwrap();
    }
}

/// The console in one line, without the words that only break it.
fn said(guest: &Guest) -> String {
    let console = guest.console();
    console.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What a node says that nobody can log in to.
const REPORT: &str = r#"
echo "OUTCOME $(tr -d '\n' </run/mco-rescue/firstboot.json)"
echo "ACTIVE $(systemctl is-active kubelet.service crio.service | tr '\n' ' ')"
/usr/local/bin/mco-rescue --quiet status --output json >/run/status
echo "STATUS $(tr -d '\n' </run/status)"
/usr/local/bin/mco-rescue --quiet verify >/run/verify
code=$?
[ $code = 0 ] || cat /run/verify
echo "VERIFY $code"
systemctl --no-block poweroff
"#;

/// Nothing of a config is on the node, and no capsule is remembered.
fn has_no_config(node: &Node<'_>) {
    node.prepare(|root| {
        for path in [
            "etc/machine-config-daemon",
            "etc/kubernetes/kubelet.conf",
            "etc/systemd/system/kubelet.service",
            "var/lib/mco-rescue/capsules.json",
        ] {
            assert!(!root.join(path).exists(), "{path}");
        }
    });
}

fn is_signed(status: &Value) {
    let signed = &status["recorded_signed"];
    assert_eq!(signed["signer"], SIGNER, "{status:#}");
    assert_eq!(signed["sequence"], 8, "{status:#}");
}

#[test]
#[ignore = "a big guest: make vm-test runs it"]
fn a_first_boot_takes_from_a_stick_what_its_image_trusts_and_nothing_else() {
    let Some(case) = Case::begin_as_root("11 signed stick, key in the image") else {
        return;
    };
    let mut node = Node::new(&case, Layout::Plain);
    let config = configs::worker(&node.public_key(), 250, json!({}));
    let initramfs = images::initramfs_with_us(Kind::Lean);
    let desk = Desk::new(&case);
    node.prepare(|root| {
        desk.writes_demands(root);
        fs::copy(images::program(), root.join(&PROGRAM[1..])).unwrap();
        fs::write(root.join("etc/vm-case.sh"), REPORT).unwrap();
    });
    // Still a config, and another one.
    let change = Change {
        file: "worker.json",
        from: "/bin/sleep",
        to: "/bin/sleeq",
    };
    let wrong = desk.stick("wrong", &config, Some(change));
    let right = desk.stick("right", &config, None);
    case.prepared();

    let machine = node.machine(&initramfs);
    let mut guest = node.start(&machine.clone().disk(&wrong));
    guest.powers_off();
    let said = said(&guest);
    for words in [
        "the config of this node was NOT applied",
        "MCO-RESCUE:/worker.json is not the file of the capsule (its contents differ), so it is not read",
        "nothing was changed; the boot continues without mco-rescue",
    ] {
        assert!(said.contains(words), "{words}: {}", guest.tail());
    }
    let outcome: Value = serde_json::from_str(&guest.value("OUTCOME ")).unwrap();
    assert_eq!(outcome["outcome"], "failed", "{outcome}");
    assert_eq!(guest.value("ACTIVE "), "inactive inactive");
    has_no_config(&node);
    case.tell(&format!("refused: {}", outcome["cause"].as_str().unwrap()));

    let mut guest = node.start(&machine.append("mco_rescue=apply").disk(&right));
    guest.powers_off();
    let outcome: Value = serde_json::from_str(&guest.value("OUTCOME ")).unwrap();
    assert_eq!(outcome["outcome"], "applied", "{outcome}");
    assert_eq!(guest.value("ACTIVE "), "active active", "{}", guest.tail());
    assert_eq!(guest.value("VERIFY "), "0", "{}", guest.tail());
    let status: Value = serde_json::from_str(&guest.value("STATUS ")).unwrap();
    assert_eq!(status["recorded"], configs::name(&config), "{status:#}");
    is_signed(&status);
}

#[test]
#[ignore = "a big guest: make vm-test runs it"]
fn ignition_is_given_from_a_stick_what_the_initramfs_trusts_and_nothing_else() {
    let Some(case) = Case::begin_as_root("11 signed stick, key in the initramfs") else {
        return;
    };
    let mut node = Node::new(&case, Layout::Plain);
    let config = configs::older(configs::worker(&node.public_key(), 250, json!({})));
    let initramfs = images::initramfs_with_us(Kind::Ignition);
    let given = ignition(&case, &pointer(None));
    let desk = Desk::new(&case);
    let change = Change {
        file: "capsule.json",
        from: "\"sequence\": 8",
        to: "\"sequence\": 9",
    };
    let wrong = desk.stick("wrong", &config, Some(change));
    let right = desk.stick("right", &config, None);
    let demands = tempfile::tempdir().unwrap();
    desk.writes_demands(demands.path());
    let archive = case.path("demands.cpio");
    fs::write(&archive, images::packed(demands.path(), "cat")).unwrap();
    case.prepared();

    let machine = cluster_network(node.machine(&initramfs), None)
        .append(&format!("{IGNITION} {NETWORK} mco_rescue.timeout=5"))
        .archive(&archive)
        .device(&["-fw_cfg", &given]);
    let mut booted = node.boot(&machine.clone().disk(&wrong));
    booted.guest.wait_for("Boot with mco_rescue=shell to look");
    let told = said(&booted.guest);
    let words = "the signature of MCO-RESCUE:/capsule.json does not match";
    assert!(told.contains(words), "{}", booted.guest.tail());
    booted.guest.cut();
    drop(booted);
    has_no_config(&node);

    let mut booted = node.boot(&machine.disk(&right));
    let given = format!("Ignition was given {}", configs::name(&config));
    booted.guest.wait_for(&given);
    booted.comes_up();
    bring_program(&booted);
    is_healthy_in(&booted, &config);
    let status = booted.ask(&format!("sudo {PROGRAM} status --output json"));
    is_signed(&serde_json::from_str(&status).unwrap());
    booted.power_off();
}
