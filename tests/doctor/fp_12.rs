//! FP-12: the network configuration is half-way.

use std::fs;

use super::worker::{
    Branch, KEYFILES, Row, all_met, import, is_well, on_a_node, prepared_for, sick, well,
};
use super::{CRITICAL, Sick, WARNING, doctor_on};
use crate::support::TestRoot;
use crate::support::mounts::mount;

pub(super) const SICK: &[Sick] = &[
    Sick {
        id: "FP-12",
        code: CRITICAL,
        what: "the cluster network is not that of the config",
        next: "mco-rescue apply cached:rendered-worker-b",
        sicken: |root| {
            root.apply(&prepared_for("OpenShiftSDN", "rendered-worker-a"));
            import(root, &prepared_for("OVNKubernetes", "rendered-worker-b"));
        },
    },
    Sick {
        id: "FP-12",
        code: CRITICAL,
        what: "the bridge br-ex is incomplete",
        next: "mv /",
        sicken: |root| {
            ["br-ex", "ovs-if-br-ex"]
                .iter()
                .for_each(|name| connection(root, name, name))
        },
    },
    Sick {
        id: "FP-12",
        code: WARNING,
        what: "1 connection of NetworkManager is empty",
        next: "mv /",
        sicken: |root| {
            root.write(
                "etc/NetworkManager/system-connections/eno1.nmconnection",
                "",
            )
        },
    },
];

/// A connection of NetworkManager that holds a secret.
fn connection(root: &TestRoot, file: &str, id: &str) {
    let text = format!("[connection]\nid={id}\ntype=ovs-port\n[802-1x]\npassword=topsecret\n");
    root.write(&format!("{KEYFILES}/{file}.nmconnection"), &text);
}

const BRIDGE: [&str; 5] = [
    "br-ex",
    "ovs-if-br-ex",
    "ovs-port-br-ex",
    "ovs-if-phys0",
    "ovs-port-phys0",
];

const NETWORK: [Row; 7] = [
    // What is left over of an older boot has the connection's own id in its name.
    sick(
        |root| {
            connection(
                root,
                "ovs-if-br-ex-108d42c4-d0b9-4064-a40f-117e35fa1ef5",
                "ovs-if-br-ex",
            )
        },
        Branch {
            id: "FP-12",
            severity: "critical",
            what: "the bridge br-ex is incomplete",
            seen: &["br-ex, ovs-port-br-ex, ovs-if-phys0, ovs-port-phys0"],
            next: &[
                "mv ROOT/etc/NetworkManager/system-connections/ovs-if-br-ex-108d42c4-d0b9-4064-a40f-117e35fa1ef5.nmconnection ROOT/etc/NetworkManager/ovs-if-br-ex-",
            ],
        },
    ),
    well("FP-12", |root| {
        BRIDGE.iter().for_each(|name| connection(root, name, name))
    }),
    sick(
        |root| {
            root.write(&format!("{KEYFILES}/a.nmconnection"), " \n");
            root.write(&format!("{KEYFILES}/b.nmconnection"), "");
        },
        Branch {
            id: "FP-12",
            severity: "warning",
            what: "2 connections of NetworkManager are empty",
            seen: &["b.nmconnection"],
            next: &[
                "mv ROOT/etc/NetworkManager/system-connections/a.nmconnection ROOT/etc/NetworkManager/a.nmconnection.mco-rescue-",
            ],
        },
    ),
    // All five are there, and NetworkManager does not take one: the mode is the cure.
    sick(
        |root| {
            BRIDGE.iter().for_each(|name| connection(root, name, name));
            root.chmod(&format!("{KEYFILES}/br-ex.nmconnection"), 0o644);
        },
        Branch {
            id: "FP-12",
            severity: "critical",
            what: "the bridge br-ex is incomplete",
            seen: &["missing", "NetworkManager rejects it: mode 0644"],
            next: &[
                "chown root: ROOT/etc/NetworkManager/system-connections/br-ex.nmconnection && chmod 0600 ROOT/",
            ],
        },
    ),
    well("FP-12", |root| {
        BRIDGE.iter().for_each(|name| connection(root, name, name))
    }),
    // The other network runs, and no config for it is at hand.
    sick(
        |root| {
            root.remove("etc/kubernetes/cni/net.d/10-ovn-kubernetes.conf");
            root.write("etc/cni/net.d/80-openshift-network.conf", "{}\n");
        },
        Branch {
            id: "FP-12",
            severity: "critical",
            what: "the cluster network is not that of the config",
            seen: &[
                "written by OpenShiftSDN",
                "is for OVNKubernetes",
                "no config for OpenShiftSDN",
            ],
            next: &[
                "mco-rescue plan FILE --root ROOT",
                "mco-rescue apply FILE --root ROOT",
            ],
        },
    ),
    // Which interfaces a disk will have, and what comes up on it, nobody knows.
    well("FP-12", |root| {
        root.remove("etc/kubernetes/cni/net.d/10-ovn-kubernetes.conf");
        root.write(
            &format!("{KEYFILES}/eno9.nmconnection"),
            "[connection]\nid=eno9\ntype=ethernet\ninterface-name=eno9\n",
        );
    }),
];

#[test]
fn connections_that_stop_the_network_are_reported_with_the_files_of_this_root() {
    all_met(&NETWORK);
}

#[test]
fn connections_and_cluster_network_are_judged_beside_what_the_node_has() {
    on_a_node(|node| {
        let keyfile = |name: &str, kind: &str| {
            let text = format!("[connection]\nid={name}\ntype={kind}\ninterface-name={name}\n");
            node.root
                .write(&format!("{KEYFILES}/{name}.nmconnection"), &text);
        };
        keyfile("eno9", "ethernet");
        // Without /sys nobody tells which there are.
        is_well(node, "FP-12");
        fs::create_dir(node.root.path("sys")).unwrap();
        let sys = node.root.path("sys");
        mount(&["--bind", "/sys", sys.to_str().unwrap()]);
        node.root.remove(&format!("{KEYFILES}/eno9.nmconnection"));
        keyfile("lo", "ethernet");
        // A bridge is made by its connection.
        keyfile("br9", "bridge");
        is_well(node, "FP-12");
        keyfile("eno9", "ethernet");
        Branch {
            id: "FP-12",
            severity: "warning",
            what: "a connection is for a missing interface",
            seen: &[
                "eno9.nmconnection",
                "is for eno9, which is missing",
                "interfaces",
            ],
            next: &["ip link", "nmcli connection show"],
        }
        .met_by(&doctor_on(node), "");
        node.root
            .write(&format!("{KEYFILES}/eno9.nmconnection"), "");
        Branch {
            id: "FP-12",
            severity: "warning",
            what: "1 connection of NetworkManager is empty",
            seen: &["eno9.nmconnection", "ignores it"],
            next: &[
                "mv /etc/NetworkManager/system-connections/eno9.nmconnection /etc/NetworkManager/eno9.nmconnection.mco-rescue-",
                "nmcli connection reload",
            ],
        }
        .met_by(&doctor_on(node), "");
        node.root.remove(&format!("{KEYFILES}/eno9.nmconnection"));
        connection(&node.root, "ovs-port-phys0", "ovs-port-phys0");
        Branch {
            id: "FP-12",
            severity: "critical",
            what: "the bridge br-ex is incomplete",
            seen: &["br-ex, ovs-if-br-ex, ovs-port-br-ex, ovs-if-phys0"],
            next: &[
                "mv /etc/NetworkManager/system-connections/ovs-port-phys0.nmconnection /etc/NetworkManager/ovs-port-phys0.nmconnection.mco-rescue-",
                "systemctl reboot",
            ],
        }
        .met_by(&doctor_on(node), "");
        node.root
            .remove(&format!("{KEYFILES}/ovs-port-phys0.nmconnection"));
        node.root
            .remove("etc/kubernetes/cni/net.d/10-ovn-kubernetes.conf");
        node.root
            .remove("run/multus/cni/net.d/10-ovn-kubernetes.conf");
        Branch {
            id: "FP-12",
            severity: "warning",
            what: "the cluster network has not come up",
            seen: &["/run/multus/cni/net.d", "nothing of OVNKubernetes"],
            next: &[
                "systemctl status ovs-configuration kubelet",
                "crictl ps -a --name ovnkube",
            ],
        }
        .met_by(&doctor_on(node), "");
    });
}
