//! The cluster moves from one network to another, and the new config does not reach the nodes any more
//! (story: the migration that was cut off).
//!
//! Prepared: a running node at config A, with a card in the cluster's network. Its cable is pulled. Over the other
//! card an administrator copies the program and B to the node: `ssh core@node`, `sudo mco-rescue plan`, `apply`,
//! reboot. True afterwards: while the cable is still out, the node is at B: the files that its network needs are
//! there, what A had and B has not is gone, new services run, `verify` is clean, and the daemon finds its records,
//! on the node and, after power-off, on its disk.

use serde_json::{Value, json};

use super::configs;
use super::node::{PROGRAM, has_been_in, is_healthy_in};
use crate::lab::images::{self, Kind, Layout};
use crate::lab::node::{CLUSTER_CARD, Node, cluster_network};
use crate::lab::qemu::End;
use crate::lab::{Case, disk};
use crate::support::file;

#[test]
#[ignore = "a big guest: make vm-test runs it"]
fn a_node_whose_network_is_gone_takes_the_new_config_from_a_file() {
    let Some(case) = Case::begin_as_root("5 migration") else {
        return;
    };
    let mut node = Node::new(&case, Layout::Plain);
    let key = node.public_key();
    let part = |what: &str| {
        let unit = format!("{what}-configuration.service");
        json!({
            "files": [file(&format!("/etc/{what}/network.conf"), 0o644, "mtu = 1400\n")],
            "units": [{"name": unit, "enabled": true, "contents": configs::idle(what)}],
        })
    };
    let (a, b) = (
        configs::worker(&key, 250, part("sdn")),
        configs::worker(&key, 250, part("ovs")),
    );
    has_been_in(&node, &a);
    node.prepare(|root| std::fs::remove_file(root.join(&PROGRAM[1..])).unwrap());
    let initramfs = images::initramfs(Kind::Lean);
    let program = std::fs::read(images::program()).unwrap();
    case.prepared();

    let machine = cluster_network(node.machine(&initramfs), None);
    let mut booted = node.boot(&machine);
    booted.comes_up();
    let carrier =
        "cat $(grep -l 52:54:00:00:00:02 /sys/class/net/*/address | xargs dirname)/carrier";
    assert_eq!(booted.ask(carrier), "1");
    booted.guest.set_link(CLUSTER_CARD, false);
    assert_eq!(booted.ask(carrier), "0");
    booted.bring("mco-rescue", &program);
    booted.bring("b.json", b.to_string().as_bytes());
    booted.ask(&format!("sudo install -m 0755 mco-rescue {PROGRAM}"));
    let plan = booted.ask(&format!("sudo {PROGRAM} plan b.json"));
    for change in ["+ /etc/ovs/network.conf", "- /etc/sdn/network.conf"] {
        assert!(plan.contains(change), "{plan}");
    }
    booted.ask(&format!("sudo {PROGRAM} apply --yes b.json"));
    booted.run("sudo systemctl --no-block reboot");
    assert_eq!(
        booted.guest.ended(),
        End::Rebooted,
        "{}",
        booted.guest.tail()
    );

    let mut booted = node.boot(&machine);
    booted.guest.set_link(CLUSTER_CARD, false);
    booted.comes_up();
    is_healthy_in(&booted, &b);
    assert_eq!(
        booted.ask("systemctl is-active ovs-configuration.service"),
        "active"
    );
    booted.ask("test ! -e /etc/sdn/network.conf && test ! -e /etc/systemd/system/sdn-configuration.service");
    booted.power_off();
    let recorded = disk::read(node.disk(), "/etc/machine-config-daemon/currentconfig");
    let recorded: Value = serde_json::from_str(&recorded).unwrap();
    assert_eq!(configs::name(&recorded), configs::name(&b));
}
