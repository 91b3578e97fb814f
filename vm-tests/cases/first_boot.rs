//! A new node boots for the first time (story: the first boot), with and without somebody to tell it what to be.
//!
//! Prepared: the disk of a node that has never booted, plain or OSTree, and dracut's initramfs with our module, with
//! the real Ignition or without. True afterwards, by case:
//!
//! 1. Ignition gets its config: our unit finds nothing to do, on this boot and the next, and leaves no trace. How
//!    many milliseconds it takes is printed.
//! 2. Ignition's server stays silent, and the image has a config: the node comes up as if the server had answered. And
//!    the same on OSTree without Ignition, where `/var` has to be found.
//! 3. The Machine Config Server, of TLS and outside of the guest, has nothing for a while, and its authority is in the
//!    pointer config: Ignition gets it at last, and nobody disturbs it.
//! 4. No network card at all, and a medium labelled MCO-RESCUE: the node is that config.
//! 10. What a config disables stays disabled, although a preset of the image enables it at the first boot.
//!
//! The console of case 1 stays empty, as it would without us; the journal has one line, `nothing to do: Ignition wrote
//! the node's config; 22 ms`. That of case 2, without Ignition:
//!
//! ```text
//! ---- mco-rescue: done ----------------------------------------------------------
//! Done    applied rendered-worker-d946f94f49dc2c794f3776d405869291
//! Why     a first boot that got no config
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::configs;
use super::node::{PROGRAM, bring_program, brings_along, is_healthy_in};
use crate::lab::images::{self, Kind, Layout};
use crate::lab::node::{Booted, Node, cluster_network};
use crate::lab::{Case, disk, run};
use crate::support::file;
use crate::support::http::{Authority, Response, Routes, Server, Years};

pub(super) const IGNITION: &str = "ignition.firstboot ignition.platform.id=qemu";
/// The cluster's card in the initramfs, without any server of addresses.
pub(super) const NETWORK: &str = "rd.neednet=1 ifname=cluster:52:54:00:00:00:02 ip=10.0.3.15::10.0.3.2:255.255.255.0::cluster:none";
const SERVER: &str = "https://10.0.3.100:22623/config/worker";

#[test]
#[ignore = "a big guest: make vm-test runs it"]
fn a_first_boot_whose_ignition_has_a_config_is_left_alone() {
    let Some(case) = Case::begin_as_root("1 first boot with Ignition") else {
        return;
    };
    let mut node = Node::new(&case, Layout::Plain);
    let config = configs::older(configs::worker(&node.public_key(), 250, json!({})));
    let initramfs = images::initramfs_with_us(Kind::Ignition);
    let given = ignition(&case, &config["spec"]["config"]);
    added(&case, Kind::Ignition, &initramfs);
    case.prepared();

    let machine = node.machine(&initramfs);
    let mut booted = node.boot(
        &machine
            .clone()
            .append(IGNITION)
            .device(&["-fw_cfg", &given]),
    );
    booted.comes_up();
    assert!(
        booted
            .ask("cat /etc/kubernetes/kubelet.conf")
            .contains("maxPods: 250")
    );
    assert_eq!(booted.ask("systemctl is-active kubelet.service"), "active");
    left_alone(&case, &booted, "Ignition wrote the node's config");
    booted.power_off();

    let mut booted = node.boot(&machine);
    booted.comes_up();
    left_alone(&case, &booted, "the node has booted before");
    booted.power_off();
}

#[test]
#[ignore = "a big guest: make vm-test runs it"]
fn a_first_boot_whose_server_is_silent_takes_the_config_of_the_image() {
    let Some(case) = Case::begin_as_root("2 silent server, config in the image") else {
        return;
    };
    let mut node = Node::new(&case, Layout::Plain);
    let config = configs::older(configs::worker(&node.public_key(), 250, json!({})));
    let initramfs = images::initramfs_with_us(Kind::Ignition);
    let given = ignition(&case, &pointer(None));
    case.prepared();

    let machine = cluster_network(node.machine(&initramfs), None)
        .append(&format!("{IGNITION} {NETWORK} mco_rescue.timeout=5"))
        .archive(&baked_in(&case, &config))
        .device(&["-fw_cfg", &given]);
    let mut booted = node.boot(&machine);
    booted
        .guest
        .wait_for(&format!("Ignition was given {}", configs::name(&config)));
    booted.comes_up();
    bring_program(&booted);
    is_healthy_in(&booted, &config);
    first_boot_files(&booted, &config);
    told(&case, &booted, "applied");
    booted.power_off();
}

#[test]
#[ignore = "a big guest: make vm-test runs it"]
fn a_first_boot_on_ostree_without_ignition_takes_the_config_of_the_image() {
    let Some(case) = Case::begin_as_root("2 and 10 config in the image, OSTree") else {
        return;
    };
    let mut node = Node::new(&case, Layout::Ostree);
    let more = json!({
        "files": [file("/var/lib/site/data", 0o600, "below the real /var\n")],
        "units": [{"name": "chatty.service", "enabled": false}],
    });
    let config = configs::worker(&node.public_key(), 250, more);
    let initramfs = images::initramfs_with_us(Kind::Lean);
    brings_along(&node, &config);
    case.prepared();

    let machine = node.machine(&initramfs);
    let mut booted = node.boot(&machine);
    booted.comes_up();
    bring_program(&booted);
    is_healthy_in(&booted, &config);
    first_boot_files(&booted, &config);
    assert_eq!(
        booted.ask("sudo cat /var/lib/site/data"),
        "below the real /var"
    );
    assert!(
        booted
            .ask("findmnt -no SOURCE /var")
            .contains("/ostree/deploy/rhcos/var")
    );
    // Case 10: the presets did their work, and not on what the config disables.
    let states = "systemctl is-enabled talkative.service chatty.service || true; systemctl is-active chatty.service || true";
    assert_eq!(booted.ask(states), "enabled\ndisabled\ninactive");
    told(&case, &booted, "applied");
    booted.power_off();

    let mut booted = node.boot(&machine);
    booted.comes_up();
    is_healthy_in(&booted, &config);
    assert_eq!(booted.ask(states), "enabled\ndisabled\ninactive");
    told(&case, &booted, "nothing");
    booted.power_off();
}

#[test]
#[ignore = "a big guest: make vm-test runs it"]
fn a_first_boot_waits_for_a_server_that_has_nothing_yet() {
    let Some(case) = Case::begin_as_root("3 server that is late") else {
        return;
    };
    let mut node = Node::new(&case, Layout::Plain);
    let config = configs::older(configs::worker(&node.public_key(), 250, json!({})));
    let initramfs = images::initramfs_with_us(Kind::Ignition);
    let authority = Authority::new("root-ca of the machine config server");
    let identity = authority.issue(&["10.0.3.100"], Years(2020, 2060));
    let served = config["spec"]["config"].to_string();
    let server = Server::tls(
        Routes::new().at("/config/worker", move |request| match request.nth {
            0..4 => Response::status(503),
            _ => Response::ok(&served),
        }),
        &identity,
    );
    let given = ignition(&case, &pointer(Some(&authority.pem)));
    case.prepared();

    let machine = cluster_network(node.machine(&initramfs), Some(server.address().port()))
        .append(&format!("{IGNITION} {NETWORK}"))
        .device(&["-fw_cfg", &given]);
    let mut booted = node.boot(&machine);
    booted.comes_up();
    assert!(server.requests().len() >= 5);
    assert_eq!(booted.ask("systemctl is-active kubelet.service"), "active");
    left_alone(&case, &booted, "Ignition wrote the node's config");
    booted.power_off();
}

#[test]
#[ignore = "a big guest: make vm-test runs it"]
fn a_first_boot_without_any_network_takes_the_config_of_a_medium() {
    let Some(case) = Case::begin_as_root("4 and 10 medium, no network") else {
        return;
    };
    let mut node = Node::new(&case, Layout::Plain);
    let unit = json!([{"name": "chatty.service", "enabled": false}]);
    let config = configs::worker(&node.public_key(), 250, json!({"units": unit}));
    let initramfs = images::initramfs_with_us(Kind::Lean);
    node.prepare(|root| {
        fs::copy(images::program(), root.join(&PROGRAM[1..])).unwrap();
        fs::write(root.join("etc/vm-case.sh"), REPORT).unwrap();
    });
    let medium = medium(&case, &config);
    case.prepared();

    let mut guest = node.start(&node.machine(&initramfs).disk(&medium));
    guest.powers_off();
    assert_eq!(guest.value("CARDS "), "lo", "{}", guest.tail());
    assert_eq!(guest.value("FAILED"), "", "{}", guest.tail());
    assert_eq!(
        guest.value("ACTIVE "),
        "active active inactive",
        "{}",
        guest.tail()
    );
    assert_eq!(
        guest.value("ENABLED "),
        "enabled enabled enabled disabled",
        "{}",
        guest.tail()
    );
    assert_eq!(guest.value("VERIFY "), "0", "{}", guest.tail());
    let recorded = disk::read(node.disk(), "/etc/machine-config-daemon/currentconfig");
    let recorded: Value = serde_json::from_str(&recorded).unwrap();
    assert_eq!(configs::name(&recorded), configs::name(&config));
    let keys = disk::read(node.disk(), "/home/core/.ssh/authorized_keys.d/ignition");
    assert_eq!(keys.trim(), node.public_key());
}

/// What the module adds to an initramfs as dracut packs it by itself (here it is packed in less time). Three mebibytes
/// are the most it may, with the program as it is shipped.
fn added(case: &Case, kind: Kind, with_us: &Path) {
    let size = |path: &Path| {
        let repack = "set -o pipefail; zstd -dcq <\"$1\" | zstd -15 -T0 -q | wc -c";
        let size = run(Command::new("bash").args(["-c", repack, "bash"]).arg(path));
        size.trim().parse::<u64>().unwrap()
    };
    let (with, without) = (size(with_us), size(&images::initramfs(kind)));
    let added = with - without;
    case.tell(&format!(
        "the module adds {added} bytes to an initramfs of {without}"
    ));
    let shipped = fs::metadata(images::program()).unwrap().len() < 10_000_000;
    assert!(added < 3 << 20 || !shipped, "the module adds {added} bytes");
}

/// What a node says that nobody can log in to.
const REPORT: &str = r#"
echo "CARDS $(ls /sys/class/net | tr '\n' ' ')"
echo "FAILED $(systemctl --failed --no-legend | tr '\n' ' ')"
echo "ACTIVE $(systemctl is-active kubelet.service crio.service chatty.service | tr '\n' ' ')"
echo "ENABLED $(systemctl is-enabled kubelet.service crio.service talkative.service chatty.service | tr '\n' ' ')"
/usr/local/bin/mco-rescue verify >/run/verify
code=$?
[ $code = 0 ] || cat /run/verify
echo "VERIFY $code"
systemctl --no-block poweroff
"#;

/// QEMU's words for a config of the user.
pub(super) fn ignition(case: &Case, config: &Value) -> String {
    let path = case.path("config.ign");
    fs::write(&path, config.to_string()).unwrap();
    format!("name=opt/com.coreos/config,file={}", path.display())
}

/// As an installer writes it.
pub(super) fn pointer(authority: Option<&str>) -> Value {
    let mut pointer =
        json!({"ignition": {"version": "3.2.0", "config": {"merge": [{"source": SERVER}]}}});
    if let Some(pem) = authority {
        let encoded: String = pem.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let authorities = json!([{"source": format!("data:,{encoded}")}]);
        pointer["ignition"]["security"] = json!({"tls": {"certificateAuthorities": authorities}});
    }
    pointer
}

/// One more archive of the initramfs, with the config that the image brings along.
fn baked_in(case: &Case, config: &Value) -> PathBuf {
    let directory = tempfile::tempdir().unwrap();
    let configs = directory.path().join("usr/lib/mco-rescue/configs");
    fs::create_dir_all(&configs).unwrap();
    fs::write(configs.join("worker.json"), config.to_string()).unwrap();
    let path = case.path("baked-in.cpio");
    fs::write(&path, images::packed(directory.path(), "cat")).unwrap();
    path
}

/// A stick as people format one.
fn medium(case: &Case, config: &Value) -> PathBuf {
    let (medium, copied) = (case.path("medium"), case.path("worker.json"));
    disk::formatted(&medium, 16, &["mkfs.vfat", "-n", "MCO-RESCUE"]);
    fs::write(&copied, config.to_string()).unwrap();
    run(Command::new("mcopy")
        .arg("-i")
        .arg(&medium)
        .arg(&copied)
        .arg("::"));
    medium
}

/// What became of the boot in the initramfs; said with its time.
fn told(case: &Case, booted: &Booted, outcome: &str) -> Value {
    let kept: Value =
        serde_json::from_str(&booted.ask("sudo cat /run/mco-rescue/firstboot.json")).unwrap();
    assert_eq!(kept["outcome"], outcome, "{kept}");
    let journal =
        "sudo journalctl -b -o json -u mco-rescue-firstboot.service _PID=1 JOB_TYPE=start";
    let journal = booted.ask(journal);
    let times = journal.lines().map(|line| {
        let entry: Value = serde_json::from_str(line).unwrap();
        entry["__MONOTONIC_TIMESTAMP"]
            .as_str()
            .unwrap()
            .parse::<u64>()
            .unwrap()
    });
    let times: Vec<u64> = times.collect();
    assert_eq!(times.len(), 2, "{journal}");
    let unit = (times[1] - times[0]) / 1000;
    let (why, took) = (kept["why"].as_str().unwrap(), &kept["took"]);
    case.tell(&format!(
        "{outcome}: {why}; {took} ms, and {unit} ms of its unit"
    ));
    kept
}

/// Nothing to do, said with its reason, and no trace.
fn left_alone(case: &Case, booted: &Booted, why: &str) {
    let kept = told(case, booted, "nothing");
    assert_eq!(kept["why"], why);
    booted.ask("test ! -e /var/lib/mco-rescue && test ! -e /etc/machine-config-daemon");
}

/// What the daemon wants to find after a first boot (its contract, sections 3 and 5).
fn first_boot_files(booted: &Booted, config: &Value) {
    let read = |path: &str| {
        let text = booted.ask(&format!("sudo cat {path}"));
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let annotations = read("/etc/machine-config-daemon/node-annotations.json");
    for key in ["currentConfig", "desiredConfig"] {
        let name = &annotations[format!("machineconfiguration.openshift.io/{key}")];
        assert_eq!(name, configs::name(config), "{annotations}");
    }
    assert_eq!(
        configs::name(&read("/etc/mcs-machine-config-content.json")),
        configs::name(config)
    );
}
