//! FP-46: the address of the node has changed.

use std::process::Command;

use super::small::directory;
use super::worker::{
    Branch, ETCD, KEYFILES, Row, SERVING, all_met, booted, healthy, is_well, sick, well,
};
use super::{Dark, doctor, doctor_on, of, unseen};
use crate::support::control_plane::ControlPlane;
use crate::support::mounts::with_network;
use crate::support::ostree_node::OstreeNode;
use crate::support::{Lacks, TestRoot, copy_program, skip};
use rcgen::{CertificateParams, KeyPair};

const KUBELET: &str = "etc/systemd/system/kubelet.service.d/20-nodenet.conf";
const CRIO: &str = "etc/systemd/system/crio.service.d/20-nodenet.conf";
const ENV: &str = "etc/kubernetes/static-pod-resources/etcd-certs/configmaps/etcd-scripts/etcd.env";

/// As nodeip-configuration writes it.
fn chosen(root: &TestRoot, address: &str) {
    root.write(
        KUBELET,
        &format!(
            "[Service]\nEnvironment=\"KUBELET_NODE_IP={address}\" \"KUBELET_NODE_IPS={address},2001:db8::a\"\n"
        ),
    );
    root.write(
        CRIO,
        &format!("[Service]\nEnvironment=\"CONTAINER_STREAM_ADDRESS={address}\"\n"),
    );
}

fn fixed(root: &TestRoot, address: &str) {
    root.write(
        &format!("{KEYFILES}/ens3.nmconnection"),
        &format!(
            "[connection]\nid=ens3\ntype=ethernet\ninterface-name=ens3\n[ipv4]\nmethod=manual\naddress1={address}/24,192.0.2.1\ndns=192.0.2.1;\n"
        ),
    );
}

fn valid_for(addresses: &[&str]) -> String {
    let names = addresses.iter().map(|one| (*one).to_owned());
    let params = CertificateParams::new(names.collect::<Vec<_>>()).unwrap();
    let key = KeyPair::generate().unwrap();
    params.self_signed(&key).unwrap().pem()
}

/// What etcd has kept on a node of the control plane.
fn member(root: &TestRoot, address: &str) {
    root.write("etc/kubernetes/manifests/etcd-pod.yaml", "kind: Pod\n");
    root.write(
        ENV,
        &format!(
            "export ETCD_IMAGE=\"quay.example/etcd\"\nexport NODE_worker_0_ETCD_NAME=\"worker-0\"\nexport NODE_worker_0_IP=\"{address}\"\nexport NODE_worker_1_IP=\"192.0.2.99\"\n"
        ),
    );
    root.write(
        &format!("{ETCD}/etcd-peer-worker-0.crt"),
        &valid_for(&["localhost", "127.0.0.1", address]),
    );
    root.write(
        &format!("{ETCD}/etcd-peer-worker-1.crt"),
        &valid_for(&["192.0.2.99"]),
    );
}

const CHANGED: Branch = Branch {
    id: "FP-46",
    severity: "warning",
    what: "the configuration gives the node another address",
    seen: &[
        "KUBELET_NODE_IP: 192.0.2.10",
        "192.0.2.20/24",
        "ens3.nmconnection",
    ],
    next: &["ls -l ROOT/etc/NetworkManager/system-connections"],
};

const ROWS: [Row; 12] = [
    sick(
        |root| {
            chosen(root, "192.0.2.10");
            fixed(root, "192.0.2.20");
        },
        CHANGED,
    ),
    // In another network, but the way out of the node is there.
    sick(
        |root| {
            chosen(root, "198.51.100.10");
            fixed(root, "192.0.2.20");
        },
        Branch {
            seen: &["KUBELET_NODE_IP: 198.51.100.10", "192.0.2.20/24"],
            ..CHANGED
        },
    ),
    sick(
        |root| {
            member(root, "192.0.2.10");
            fixed(root, "192.0.2.20");
        },
        Branch {
            severity: "critical",
            seen: &[
                "NODE_worker_0_IP: 192.0.2.10",
                "etcd-peer-worker-0.crt",
                "does not start",
            ],
            ..CHANGED
        },
    ),
    sick(
        |root| {
            root.write(SERVING, &valid_for(&["192.0.2.10"]));
            fixed(root, "192.0.2.20");
        },
        Branch {
            seen: &["kubelet-server-current.pem", "IP Address: 192.0.2.10"],
            ..CHANGED
        },
    ),
    // The choice took another interface; both are there.
    sick(
        |root| {
            member(root, "192.0.2.10");
            chosen(root, "198.51.100.10");
            fixed(root, "192.0.2.10");
            root.write(
                &format!("{KEYFILES}/ens4.nmconnection"),
                "[connection]\nid=ens4\ninterface-name=ens4\n[ipv4]\nmethod=manual\naddress1=198.51.100.10/24\n",
            );
        },
        Branch {
            id: "FP-46",
            severity: "critical",
            what: "kubelet and etcd have different addresses",
            seen: &["expected NODE_worker_0_IP to be 198.51.100.10, got 192.0.2.10"],
            next: &["ls -l "],
        },
    ),
    sick(
        |root| {
            chosen(root, "192.0.2.10");
            fixed(root, "192.0.2.10");
            root.write(
                &format!("{KEYFILES}/ens4.nmconnection"),
                "[connection]\nid=ens4\ninterface-name=ens4\n[ipv4]\nmethod=manual\naddress1=198.51.100.10/24\n",
            );
            root.write(
                "etc/default/nodeip-configuration",
                "NODEIP_HINT=198.51.100.1\n",
            );
        },
        Branch {
            id: "FP-46",
            severity: "warning",
            what: "the node's address is not in the hint's network",
            seen: &["198.51.100.1", "192.0.2.10"],
            next: &["cat ROOT/etc/default/nodeip-configuration"],
        },
    ),
    well("FP-46", |root| {
        member(root, "192.0.2.10");
        chosen(root, "192.0.2.10");
        fixed(root, "192.0.2.10");
        root.write(SERVING, &valid_for(&["worker-0", "192.0.2.10"]));
        root.write(
            "etc/default/nodeip-configuration",
            "NODEIP_HINT=192.0.2.1\n",
        );
    }),
    // The kubelet chooses for itself.
    well("FP-46", |root| {
        root.write(
            KUBELET,
            "[Service]\nEnvironment=\"KUBELET_NODE_IP=0.0.0.0\" \"KUBELET_NODE_IPS=::\"\n",
        );
        fixed(root, "192.0.2.20");
    }),
    // The preferred address of two stacks is the other one.
    well("FP-46", |root| {
        member(root, "192.0.2.10");
        fixed(root, "192.0.2.10");
        root.write(
            KUBELET,
            "[Service]\nEnvironment=\"KUBELET_NODE_IP=2001:db8::a\" \"KUBELET_NODE_IPS=2001:db8::a,192.0.2.10\"\n",
        );
    }),
    // nmstate has it, in the file of this host and not in that of another one.
    well("FP-46", |root| {
        chosen(root, "192.0.2.10");
        let state = |address: &str| {
            format!(
                "interfaces:\n- name: ens3\n  ipv4:\n    enabled: true\n    address:\n    - ip: {address}\n      prefix-length: 24\n"
            )
        };
        root.write("etc/nmstate/openshift/worker-0.yml", &state("192.0.2.10"));
        root.write("etc/nmstate/openshift/worker-1.yml", &state("192.0.2.20"));
    }),
    // Nothing was ever kept.
    well("FP-46", |root| fixed(root, "192.0.2.20")),
    // A second network with a fixed address says nothing of the first.
    well("FP-46", |root| {
        chosen(root, "192.0.2.10");
        root.write(
            &format!("{KEYFILES}/ens4.nmconnection"),
            "[connection]\nid=ens4\ninterface-name=ens4\n[ipv4]\nmethod=manual\naddress1=198.51.100.10/24\n",
        );
    }),
];

#[test]
fn an_address_that_the_configuration_takes_away_is_found() {
    all_met(&ROWS);
}

#[test]
fn a_whole_control_plane_is_compared_with_its_own_etcd() {
    let root = TestRoot::new();
    ControlPlane::new().write(&root);
    root.write("etc/hostname", "master-0\n");
    chosen(&root, "192.0.2.11");
    fixed(&root, "192.0.2.11");
    let report = doctor(&root);
    for id in ["FP-29", "FP-44", "FP-45", "FP-46", "FP-53", "FP-59"] {
        assert_eq!(of(&report, id), Vec::<serde_json::Value>::new(), "{id}");
    }
    // The address of another node of the cluster.
    chosen(&root, "192.0.2.12");
    fixed(&root, "192.0.2.12");
    let changed = Branch {
        severity: "critical",
        seen: &["NODE_master_0_IP: 192.0.2.11", "192.0.2.12/24"],
        ..CHANGED
    };
    changed.met_by(&doctor(&root), root.dir().to_str().unwrap());
    root.write("etc/hostname", "master-1\n");
    let report = doctor(&root);
    assert_eq!(
        of(&report, "FP-45")[0]["severity"],
        "critical",
        "{report:#}"
    );
}

pub(super) const DARK: &[Dark] = &[("FP-46", "kept addresses: ", |root| directory(root, KUBELET))];

#[test]
fn what_dhcp_will_give_is_unknown_on_a_disk() {
    let root = healthy();
    assert_eq!(unseen(&doctor(&root), "FP-46"), "[]");
    chosen(&root, "192.0.2.10");
    for automatic in [false, true] {
        if automatic {
            root.write(
                &format!("{KEYFILES}/ens3.nmconnection"),
                "[connection]\nid=ens3\ninterface-name=ens3\n[ipv4]\nmethod=auto\naddress1=192.0.2.77/24,192.0.2.1\n",
            );
        }
        let report = doctor(&root);
        assert_eq!(of(&report, "FP-46"), Vec::<serde_json::Value>::new());
        let text = unseen(&report, "FP-46");
        assert!(text.contains("DHCP gives them at boot"), "{text}");
    }
}

/// With the real `ip`, in a network of the test's own.
fn on_a_network(test: impl FnOnce(&OstreeNode) + Send) {
    with_network(|| {
        let node = booted();
        match ["/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip"]
            .iter()
            .find(|at| std::path::Path::new(at).exists())
        {
            Some(program) => copy_program(&node.root, program),
            None => return skip(Lacks::Setup, "ip is not installed"),
        }
        test(&node);
    });
}

fn address(words: &[&str]) {
    let mut command = Command::new("ip");
    assert!(command.arg("addr").args(words).status().unwrap().success());
}

#[test]
fn an_address_that_no_interface_has_is_found_on_a_running_node() {
    on_a_network(|node| {
        chosen(&node.root, "192.0.2.10");
        address(&["add", "192.0.2.10/24", "dev", "lo"]);
        is_well(node, "FP-46");
        address(&["del", "192.0.2.10/24", "dev", "lo"]);
        address(&["add", "192.0.2.11/24", "dev", "lo"]);
        let gone = Branch {
            id: "FP-46",
            severity: "warning",
            what: "the node's address is on no interface",
            seen: &[
                "ip addr, lo",
                "192.0.2.11",
                "node IP: \\\"192.0.2.10\\\" not found in the host's network interfaces",
            ],
            next: &[
                "ip -br addr",
                "nmcli connection show",
                "journalctl -b -u nodeip-configuration",
            ],
        };
        gone.met_by(&doctor_on(node), "");
        // A virtual address is another node's tomorrow.
        address(&["add", "192.0.2.10/32", "dev", "lo", "label", "vip"]);
        gone.met_by(&doctor_on(node), "");
        member(&node.root, "192.0.2.10");
        let critical = Branch {
            severity: "critical",
            ..gone
        };
        critical.met_by(&doctor_on(node), "");
    });
}

#[test]
fn an_interface_whose_address_cannot_be_asked_for_is_not_trouble() {
    with_network(|| {
        let node = booted();
        chosen(&node.root, "192.0.2.10");
        // STUB of ip that fails.
        node.program("ip", "echo 'Cannot open netlink socket' >&2; exit 2");
        let report = doctor_on(&node);
        assert_eq!(of(&report, "FP-46"), Vec::<serde_json::Value>::new());
        let text = unseen(&report, "FP-46");
        assert!(text.contains("Cannot open netlink socket"), "{text}");
    });
}
