//! FP-53: this node cannot hold a virtual address.

use super::small::directory;
use super::worker::{Branch, KEYFILES, Row, all_met, is_well, on_a_node, sick, well};
use super::{Dark, doctor_on, unseen};
use crate::support::TestRoot;
use crate::support::ostree_node::OstreeNode;

const MANIFESTS: &str = "etc/kubernetes/manifests";
const RESOURCES: &str = "etc/kubernetes/static-pod-resources";
const CONFIG: &str = "etc/keepalived/keepalived.conf";
const BALANCER: &str = "etc/haproxy/haproxy.cfg";

/// Two virtual routers as the monitor renders them, with these lines in the API's.
fn routers(root: &TestRoot, api: &str) {
    let text = format!(
        "global_defs {{\n    enable_script_security\n}}\nvrrp_script chk_ocp_lb {{\n    script \"/usr/bin/timeout 1.9 /etc/keepalived/chk_ocp_script.sh\"\n    weight 20\n}}\n\
         vrrp_script chk_ingress {{\n    script \"/usr/bin/curl -fs http://localhost:1936/healthz\"\n}}\n\
         vrrp_instance c_API_0 {{\n    state BACKUP\n{api}\n    authentication {{\n        auth_pass c_api_vip\n    }}\n    virtual_ipaddress {{\n        192.0.2.5/32 label vip\n    }}\n    track_script {{\n        chk_ocp_lb\n    }}\n}}\n"
    );
    root.write(CONFIG, &text);
}

const PEERS: &str = "    interface ens3\n    unicast_src_ip 192.0.2.10\n    unicast_peer {\n        192.0.2.11\n        192.0.2.12\n    }";

/// A node of the control plane on premises, as it runs.
fn on_premises(root: &TestRoot) {
    for pod in ["keepalived", "haproxy"] {
        root.write(&format!("{MANIFESTS}/{pod}.yaml"), "kind: Pod\n");
    }
    root.write(
        &format!("{RESOURCES}/keepalived/keepalived.conf.tmpl"),
        "x\n",
    );
    root.write(&format!("{RESOURCES}/haproxy/haproxy.cfg.tmpl"), "x\n");
    routers(root, PEERS);
    root.write("etc/keepalived/chk_ocp_script.sh", "#!/bin/bash\n");
    root.chmod("etc/keepalived/chk_ocp_script.sh", 0o755);
    root.write(
        BALANCER,
        "backend masters\n   server a 192.0.2.10:6443 weight 1\n   server b 192.0.2.11:6443 weight 1\n",
    );
}

/// A worker on premises: ingress alone.
fn worker_on_premises(root: &TestRoot) {
    on_premises(root);
    root.remove(&format!("{MANIFESTS}/haproxy.yaml"));
    root.remove(&format!("{RESOURCES}/haproxy/haproxy.cfg.tmpl"));
    root.remove(BALANCER);
    let text = root.read(CONFIG).replace("_API_0", "_INGRESS_0");
    root.write(CONFIG, &text);
}

const ROWS: [Row; 15] = [
    sick(
        |root| {
            on_premises(root);
            root.remove(&format!("{MANIFESTS}/haproxy.yaml"));
        },
        Branch {
            id: "FP-53",
            severity: "warning",
            what: "the manifest of haproxy is missing",
            seen: &["/etc/kubernetes/manifests/haproxy.yaml"],
            next: &["mco-rescue apply --latest --root ROOT"],
        },
    ),
    sick(
        |root| {
            on_premises(root);
            root.remove(&format!("{MANIFESTS}/keepalived.yaml"));
        },
        Branch {
            id: "FP-53",
            severity: "warning",
            what: "the manifest of keepalived is missing",
            seen: &["has its template"],
            next: &["mco-rescue apply --latest --root ROOT"],
        },
    ),
    sick(
        |root| {
            on_premises(root);
            root.write(CONFIG, "");
        },
        Branch {
            id: "FP-53",
            severity: "warning",
            what: "keepalived has no configuration",
            seen: &["/etc/keepalived/keepalived.conf", "empty"],
            next: &["ls -l ROOT/etc/keepalived/keepalived.conf"],
        },
    ),
    sick(
        |root| {
            on_premises(root);
            root.write(BALANCER, "\0\0\0\0");
        },
        Branch {
            id: "FP-53",
            severity: "warning",
            what: "haproxy has no configuration",
            seen: &["/etc/haproxy/haproxy.cfg", "empty"],
            next: &["ls -l ROOT/etc/haproxy/haproxy.cfg"],
        },
    ),
    sick(
        |root| {
            on_premises(root);
            root.write(BALANCER, "listen stats\nbackend masters\n");
        },
        Branch {
            id: "FP-53",
            severity: "warning",
            what: "the load balancer has no API server",
            seen: &["no line with server"],
            next: &["ls -l ROOT/etc/haproxy/haproxy.cfg"],
        },
    ),
    sick(
        |root| {
            on_premises(root);
            root.chmod("etc/keepalived/chk_ocp_script.sh", 0o644);
        },
        Branch {
            id: "FP-53",
            severity: "warning",
            what: "a check of keepalived cannot run",
            seen: &["/etc/keepalived/chk_ocp_script.sh", "not executable"],
            next: &["ls -l ROOT/etc/keepalived"],
        },
    ),
    sick(
        |root| {
            on_premises(root);
            routers(root, &PEERS.replace("192.0.2.11", "192.0.2.10"));
        },
        Branch {
            id: "FP-53",
            severity: "warning",
            what: "keepalived has its own node as a peer",
            seen: &["c_API_0: unicast_peer with 192.0.2.10"],
            next: &["ls -l ROOT/etc/keepalived/keepalived.conf"],
        },
    ),
    sick(
        |root| {
            on_premises(root);
            routers(
                root,
                "    interface ens3\n    unicast_src_ip 192.0.2.10\n    unicast_peer {\n    }",
            );
        },
        Branch {
            id: "FP-53",
            severity: "warning",
            what: "keepalived knows no other node",
            seen: &["unicast_peer is empty"],
            next: &["ls -l ROOT/etc/keepalived/keepalived.conf"],
        },
    ),
    well("FP-53", on_premises),
    well("FP-53", worker_on_premises),
    // Multicast has no peers.
    well("FP-53", |root| {
        on_premises(root);
        routers(root, "    interface ens3");
    }),
    // A load balancer of the user's.
    well("FP-53", |root| {
        on_premises(root);
        for pod in ["keepalived", "haproxy"] {
            root.remove(&format!("{MANIFESTS}/{pod}.yaml"));
            root.write(
                &format!("etc/kubernetes/disabled-manifests/{pod}.yaml"),
                "kind: Pod\n",
            );
        }
        root.remove(CONFIG);
    }),
    // It was installed and has not run yet.
    well("FP-53", |root| {
        on_premises(root);
        root.remove(CONFIG);
        root.remove(BALANCER);
    }),
    // The mark is of the last boot.
    well("FP-53", |root| {
        on_premises(root);
        root.write("run/nodeip-configuration/remote-worker", "");
    }),
    // No platform.
    well("FP-53", |root| {
        root.write(
            &format!("{KEYFILES}/ens3.nmconnection"),
            "[connection]\nid=ens3\n",
        );
    }),
];

pub(super) const DARK: &[Dark] = &[(
    "FP-53",
    "virtual addresses: /etc/keepalived/keepalived.conf",
    |root| {
        on_premises(root);
        directory(root, CONFIG);
    },
)];

#[test]
fn what_keeps_a_virtual_address_away_is_found() {
    all_met(&ROWS);
}

/// STUB of ip: interfaces with an address each.
fn interfaces(node: &OstreeNode, all: &[(&str, &str)]) {
    let all: Vec<String> = all
        .iter()
        .map(|(name, address)| {
            format!(r#"{{"ifname":"{name}","addr_info":[{{"local":"{address}","prefixlen":24}}]}}"#)
        })
        .collect();
    node.program("ip", &format!("echo '[{}]'", all.join(",")));
}

#[test]
fn a_running_node_is_compared_with_its_interfaces() {
    on_a_node(|node| {
        on_premises(&node.root);
        interfaces(node, &[("ens3", "192.0.2.10")]);
        is_well(node, "FP-53");
        let other = Branch {
            id: "FP-53",
            severity: "warning",
            what: "keepalived is for an interface that is missing",
            seen: &[
                "c_API_0: interface ens3",
                "enp1s0",
                "192.0.2.11, 192.0.2.12",
            ],
            next: &[
                "ip -br addr",
                "arping -D -c 3 -I ens3 192.0.2.5",
                "crictl stopp ",
            ],
        };
        interfaces(node, &[("enp1s0", "192.0.2.10")]);
        other.met_by(&doctor_on(node), "");
        interfaces(node, &[("ens3", "192.0.2.77")]);
        let other = Branch {
            what: "keepalived is for an address that is missing",
            seen: &["c_API_0: unicast_src_ip 192.0.2.10"],
            ..other
        };
        other.met_by(&doctor_on(node), "");
        // The address of the node itself is the matter of FP-46.
        node.root.write(
            "etc/systemd/system/kubelet.service.d/20-nodenet.conf",
            "[Service]\nEnvironment=\"KUBELET_NODE_IP=192.0.2.10\"\n",
        );
        is_well(node, "FP-53");
        node.program("ip", "exit 1");
        assert!(unseen(&doctor_on(node), "FP-53").contains("the interfaces: "));
        is_well(node, "FP-53");
    });
}

#[test]
fn a_mark_of_a_remote_worker_puts_the_control_plane_to_sleep() {
    on_a_node(|node| {
        on_premises(&node.root);
        interfaces(node, &[("ens3", "192.0.2.10")]);
        node.root
            .write("run/nodeip-configuration/remote-worker", "");
        Branch {
            id: "FP-53",
            severity: "warning",
            what: "keepalived sleeps on a control-plane node",
            seen: &["/run/nodeip-configuration/remote-worker"],
            next: &[
                "ip -br addr",
                "journalctl -b -u nodeip-",
                "mv /run/nodeip-configuration/remote-worker ",
            ],
        }
        .met_by(&doctor_on(node), "");
        // A worker in another network has it by right.
        worker_on_premises(&node.root);
        is_well(node, "FP-53");
    });
}

#[test]
fn a_running_pod_without_its_file_is_found() {
    on_a_node(|node| {
        on_premises(&node.root);
        interfaces(node, &[("ens3", "192.0.2.10")]);
        node.root.remove(CONFIG);
        Branch {
            id: "FP-53",
            severity: "warning",
            what: "keepalived has no configuration",
            seen: &["missing", "first minutes"],
            next: &["crictl ps -a --name keepalived-monitor", "crictl logs "],
        }
        .met_by(&doctor_on(node), "");
    });
}
