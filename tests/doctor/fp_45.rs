//! FP-45: the host name differs from the name of the node.

use super::small::directory;
use super::worker::{
    Branch, CLIENT, Row, all_met, booted, copy, healthy, is_well, on_a_node, sick, well,
};
use super::{
    CRITICAL, Dark, FINE, certificate, doctor, doctor_exits, doctor_on, doctor_with, of, unseen,
};
use crate::support::TestRoot;
use crate::support::mounts::with_mounts;

pub(super) fn named(root: &TestRoot, name: &str) {
    root.write("etc/hostname", &format!("{name}\n"));
}

fn of_node(root: &TestRoot, name: &str) {
    root.write(CLIENT, &certificate(&format!("system:node:{name}"), 20));
}

const CLONE: Branch = Branch {
    id: "FP-45",
    severity: "critical",
    what: "the kubelet's certificate belongs to another node",
    seen: &["/etc/hostname", "worker-7", "system:node:worker-0", "clone"],
    next: &[
        "echo worker-0 >ROOT/etc/hostname",
        "mv ROOT/var/lib/kubelet/pki ROOT/var/lib/kubelet/pki.mco-rescue-",
    ],
};

const fn nameless(said: &'static [&'static str]) -> Branch {
    Branch {
        id: "FP-45",
        severity: "warning",
        what: "the host has no name of its own",
        seen: said,
        next: &["echo worker-0 >ROOT/etc/hostname"],
    }
}

const ROWS: [Row; 13] = [
    sick(|root| named(root, "worker-7"), CLONE),
    sick(
        |root| named(root, "localhost.localdomain"),
        nameless(&["localhost.localdomain", "system:node:worker-0"]),
    ),
    // The service that waits for a name looks for the word anywhere in it.
    sick(
        |root| named(root, "localhost4"),
        nameless(&["node \\\"localhost4\\\" not found"]),
    ),
    sick(|root| named(root, "fedora"), nameless(&["system image"])),
    sick(|root| named(root, "linux"), nameless(&["system image"])),
    sick(
        |root| {
            named(root, "localhost");
            of_node(root, "localhost.localdomain");
        },
        Branch {
            id: "FP-45",
            severity: "warning",
            what: "the node has joined as localhost",
            seen: &["system:node:localhost.localdomain"],
            next: &["oc get nodes", "oc describe csr"],
        },
    ),
    // Platforms add a domain; DNS does not know capitals.
    well("FP-45", |root| named(root, "Worker-0.example.com")),
    well("FP-45", |root| {
        named(root, "worker-0");
        of_node(root, "worker-0.cluster.example.com");
    }),
    // A machine may really be called so, if the node is.
    well("FP-45", |root| {
        named(root, "fedora");
        of_node(root, "fedora");
    }),
    // Before the first join there is nothing to compare.
    well("FP-45", |root| {
        named(root, "localhost");
        root.remove(CLIENT);
    }),
    // An older generation of a renamed node lies beside the one in use.
    well("FP-45", |root| {
        named(root, "worker-0");
        root.write(
            "var/lib/kubelet/pki/kubelet-client-2020-01-01-00-00-00.pem",
            &certificate("system:node:worker-9", 20),
        );
    }),
    // The kubelet is given its name, and that of the host is another one.
    well("FP-45", |root| {
        named(root, "ip-192-0-2-1");
        root.write(
            "etc/systemd/system/kubelet.service.d/20-aws-node-name.conf",
            "[Service]\nEnvironment=\"KUBELET_NODE_NAME=worker-0\"\n",
        );
    }),
    sick(
        |root| {
            named(root, "worker-0");
            root.write(
                "etc/kubernetes/kubelet-env",
                "KUBELET_NODE_NAME=worker-7.example.com\n",
            );
        },
        Branch {
            id: "FP-45",
            severity: "critical",
            what: "the kubelet's certificate belongs to another node",
            seen: &["/etc/kubernetes/kubelet-env", "worker-7.example.com"],
            next: &[
                "vi ROOT/etc/kubernetes/kubelet-env",
                "mv ROOT/var/lib/kubelet/pki ",
            ],
        },
    ),
];

pub(super) const DARK: &[Dark] = &[
    ("FP-45", "the host's name: /etc/hostname", |root| {
        of_node(root, "worker-0");
        directory(root, "etc/hostname");
    }),
    (
        "FP-45",
        "the host's name: /etc/kubernetes/kubelet-env",
        |root| {
            of_node(root, "worker-0");
            directory(root, "etc/kubernetes/kubelet-env");
        },
    ),
];

#[test]
fn a_host_with_another_name_than_its_node_is_found() {
    all_met(&ROWS);
}

#[test]
fn a_name_that_the_network_gives_is_not_known_on_a_disk() {
    let root = healthy();
    let report = doctor(&root);
    assert_eq!(of(&report, "FP-45"), Vec::<serde_json::Value>::new());
    let text = unseen(&report, "FP-45");
    assert!(text.contains("/etc/hostname is missing"), "{text}");
    root.remove(CLIENT);
    assert_eq!(unseen(&doctor(&root), "FP-45"), "[]");
}

#[test]
fn a_disk_without_a_name_gets_that_of_its_certificate() {
    let root = copy(&healthy());
    named(&root, "localhost");
    doctor_with(&root, &["--fix", "FP-45", "--yes"]).exits(FINE);
    assert_eq!(root.read("etc/hostname"), "worker-0\n");
    assert_eq!(of(&doctor(&root), "FP-45"), Vec::<serde_json::Value>::new());
    root.run(&["rollback", "--yes"]).exits(FINE);
    assert_eq!(root.read("etc/hostname"), "localhost\n");
    // A clone is not a matter of the name alone.
    named(&root, "worker-7");
    assert!(of(&doctor(&root), "FP-45")[0]["fix"].is_null());
}

#[test]
fn the_running_kernel_has_the_name_that_counts() {
    on_a_node(|node| {
        is_well(node, "FP-45");
        node.root.write("kernel-hostname", "worker-7\n");
        let report = doctor_exits(node, CRITICAL);
        let branch = Branch {
            seen: &["/proc/sys/kernel/hostname", "worker-7"],
            next: &[
                "hostnamectl set-hostname --static worker-0",
                "mv /var/lib/kubelet/pki ",
            ],
            ..CLONE
        };
        branch.met_by(&report, "");
        node.root.write("kernel-hostname", "localhost\n");
        let branch = Branch {
            next: &[
                "hostnamectl set-hostname --static worker-0",
                "systemctl restart kubelet",
            ],
            ..nameless(&["five minutes"])
        };
        branch.met_by(&doctor_on(node), "");
    });
}

#[test]
fn a_name_that_only_the_next_boot_gets_is_found() {
    with_mounts(|| {
        let node = booted();
        named(&node.root, "worker-7");
        let branch = Branch {
            id: "FP-45",
            severity: "warning",
            what: "the next boot gives the host another name",
            seen: &["/etc/hostname", "worker-7", "system:node:worker-0"],
            next: &["hostnamectl set-hostname --static worker-0"],
        };
        branch.met_by(&doctor_on(&node), "");
        named(&node.root, "worker-0");
        is_well(&node, "FP-45");
    });
}
