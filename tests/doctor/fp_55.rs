//! FP-55: two nodes with fencing.

use super::worker::{Branch, Row, all_met, healthy, sick, well};
use super::{doctor, of, unseen};
use crate::support::TestRoot;

const CONFIG: &str = "etc/corosync/corosync.conf";
const ENV: &str = "etc/kubernetes/static-pod-resources/etcd-certs/configmaps/etcd-scripts/etcd.env";
const POD: &str =
    "etc/kubernetes/static-pod-resources/etcd-certs/configmaps/external-etcd-pod/pod.yaml";
const DROP_IN: &str = "etc/systemd/system/corosync.service.d/10-after-ovs-configuration.conf";

/// `corosync.conf` as pcs writes it.
fn corosync(names: &[&str]) -> String {
    let nodes = names.iter().enumerate().map(|(index, name)| {
        let id = index + 1;
        format!("    node {{\n        ring0_addr: 192.0.2.1{index}\n        name: {name}\n        nodeid: {id}\n    }}\n\n")
    });
    format!(
        "totem {{\n    version: 2\n    cluster_name: TNF\n    transport: knet\n    config_version: 4\n}}\n\nnodelist {{\n{}}}\n\n\
         quorum {{\n    provider: corosync_votequorum\n    two_node: 1\n    wait_for_all: 1\n}}\n\nlogging {{\n    to_logfile: yes\n}}\n",
        nodes.collect::<String>()
    )
}

fn members(root: &TestRoot, names: &[&str]) {
    let lines = names.iter().enumerate();
    let lines = lines.map(|(index, name)| format!("export NODE_{name}_IP=\"192.0.2.1{index}\"\n"));
    root.write(ENV, &lines.collect::<String>());
}

/// A node of two as it runs: Pacemaker starts etcd, and Corosync waits for the bridge.
fn two_nodes(root: &TestRoot) {
    root.write(CONFIG, &corosync(&["master-0", "master-1"]));
    members(root, &["master_0", "master_1"]);
    root.write(DROP_IN, "[Unit]\nAfter=ovs-configuration.service\n");
    root.write(POD, "kind: Pod\n");
    root.write(
        "var/lib/pacemaker/cib/cib.xml",
        "<cib><primitive id=\"etcd\" class=\"ocf\" provider=\"heartbeat\" type=\"podman-etcd\"/></cib>\n",
    );
}

#[test]
fn each_trouble_is_found_and_a_node_as_it_runs_is_well() {
    let rows: [Row; 8] = [
        well("FP-55", |_| {}),
        well("FP-55", two_nodes),
        // Its cluster is not set up yet: no resource, no member list, and no bridge to wait for.
        well("FP-55", |root| {
            root.write(CONFIG, &corosync(&["master-0", "master-1"]));
            root.remove("etc/systemd/system/ovs-configuration.service");
        }),
        sick(
            |root| {
                two_nodes(root);
                root.write(CONFIG, &corosync(&["master-0"]));
            },
            Branch {
                id: "FP-55",
                severity: "critical",
                what: "Corosync knows this node alone: the cluster is split",
                seen: &[
                    "nodelist: master-0; config_version: 4",
                    "NODE_master_1_IP=192.0.2.11",
                    "force_new_cluster held by multiple nodes",
                ],
                next: &[
                    "pcs status",
                    "pcs stonith status",
                    "grep -A20 nodelist ROOT/etc/corosync/corosync.conf",
                ],
            },
        ),
        sick(
            |root| {
                two_nodes(root);
                root.write(CONFIG, &corosync(&["master-0"]));
                members(root, &["master_0"]);
            },
            Branch {
                id: "FP-55",
                severity: "warning",
                what: "Corosync and etcd know this node alone",
                seen: &["only while the other node is being replaced"],
                next: &["pcs status", "pcs stonith status", "grep -A20"],
            },
        ),
        sick(
            |root| {
                two_nodes(root);
                root.write(CONFIG, "totem {\n}\n");
            },
            Branch {
                id: "FP-55",
                severity: "critical",
                what: "Corosync's list of nodes is empty",
                seen: &["nodelist: no node"],
                next: &["pcs status", "pcs stonith status", "grep -A20"],
            },
        ),
        sick(
            |root| {
                two_nodes(root);
                root.remove(DROP_IN);
                root.write(
                    "etc/systemd/system/corosync.service.d/20-other.conf",
                    "[Unit]\nAfter=network.target\n# After=ovs-configuration.service\n",
                );
            },
            Branch {
                id: "FP-55",
                severity: "warning",
                what: "Corosync does not wait for the node's bridge",
                seen: &["After=ovs-configuration.service"],
                next: &["pcs stonith status", "mco-rescue verify --root ROOT"],
            },
        ),
        sick(
            |root| {
                two_nodes(root);
                root.remove(POD);
            },
            Branch {
                id: "FP-55",
                severity: "warning",
                what: "the pod from which Pacemaker starts etcd is missing",
                seen: &["podman-etcd", "external etcd pod manifest"],
                next: &["pcs status", "pcs resource cleanup etcd"],
            },
        ),
    ];
    all_met(&rows);
}

#[test]
fn no_command_goes_around_pacemaker_and_what_cannot_be_read_is_said() {
    let root = healthy();
    two_nodes(&root);
    root.write(CONFIG, &corosync(&["master-0"]));
    root.remove(DROP_IN);
    root.remove(POD);
    for finding in of(&doctor(&root), "FP-55") {
        let next = finding["next"].to_string();
        for word in ["systemctl", "podman", "reboot"] {
            assert!(!next.contains(word), "{word}: {next}");
        }
    }
    root.remove(CONFIG);
    std::fs::create_dir_all(root.path(&format!("{CONFIG}/x"))).unwrap();
    let seen = doctor(&root);
    assert_eq!(
        of(&seen, "FP-55")
            .iter()
            .filter(|one| one["what"].to_string().contains("split"))
            .count(),
        0
    );
    let _ = unseen(&seen, "FP-55");
}
