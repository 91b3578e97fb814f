//! FP-09: the node's certificates have expired.

use std::fs;
use std::process::Stdio;

use super::small::live;
use super::worker::{Branch, CLIENT, ETCD, Row, SERVING, all_met, healthy, sick, well};
use super::{CRITICAL, Sick, WARNING, by_years, certificate, doctor, doctor_on, of};
use crate::support::{Lacks, Run, is_root, skip};
use serde_json::Value;

pub(super) const SICK: &[Sick] = &[
    Sick {
        id: "FP-09",
        code: CRITICAL,
        what: "the kubelet's client certificate has expired",
        next: "oc get csr --field-selector spec.signerName=kubernetes.io/kube-apiserver-client-kubelet",
        sicken: |root| {
            root.write(CLIENT, &by_years("system:node:worker-0", 2020, 2021));
        },
    },
    Sick {
        id: "FP-09",
        code: WARNING,
        what: "kubelet-ca.crt has expired",
        next: "oc get mcp",
        sicken: |root| {
            root.write(
                "etc/kubernetes/kubelet-ca.crt",
                &by_years("kubelet-signer", 2010, 2020),
            );
        },
    },
];

const CERTIFICATES: [Row; 8] = [
    sick(
        |root| root.write(CLIENT, &certificate("system:node:worker-0", -40)),
        Branch {
            id: "FP-09",
            severity: "critical",
            what: "the kubelet's client certificate has expired",
            seen: &[
                "kubeconfig is present: the kubelet requests a new one",
                "40 days after the end",
                "Part of the existing bootstrap client certificate is expired",
                "two new certificates are approved",
            ],
            next: &[
                "oc get csr --field-selector spec.signerName=kubernetes.io/kube-apiserver-client-kubelet # once the node",
                "oc get csr NAME -o jsonpath='{.spec.request}' | base64 -d | openssl req -noout -subject",
                "oc adm certificate approve NAME",
                "oc get csr --field-selector spec.signerName=kubernetes.io/kubelet-serving # a minute later",
            ],
        },
    ),
    sick(
        |root| {
            root.write(CLIENT, &certificate("system:node:worker-0", 0));
            root.remove("etc/kubernetes/kubeconfig");
        },
        Branch {
            id: "FP-09",
            severity: "critical",
            what: "the kubelet's client certificate has expired",
            seen: &[
                "kubeconfig is missing: copy it from another node",
                "less than a day after the end",
            ],
            next: &[
                // No request appears without it.
                "Copy /etc/kubernetes/kubeconfig from another node",
                "oc get csr --field-selector",
                "oc get csr NAME",
                "oc adm certificate approve NAME",
                "oc get csr --field-selector",
            ],
        },
    ),
    sick(
        |root| root.write(SERVING, &certificate("system:node:worker-0", -1)),
        Branch {
            id: "FP-09",
            severity: "warning",
            what: "the kubelet's server certificate has expired",
            seen: &[
                "kubelet-server-current.pem",
                "1 day after the end",
                "oc logs, exec and debug fail",
            ],
            next: &[
                "oc get csr --field-selector spec.signerName=kubernetes.io/kubelet-serving",
                "oc get csr NAME -o jsonpath",
                "oc adm certificate approve NAME",
            ],
        },
    ),
    // Each one of them counts.
    sick(
        |root| {
            root.write(
                &format!("{ETCD}/etcd-serving-b.crt"),
                &certificate("etcd-b", -2),
            )
        },
        Branch {
            id: "FP-09",
            severity: "critical",
            what: "a certificate of etcd has expired",
            seen: &[
                "etcd-serving-b.crt",
                "CN=etcd-b until",
                "The other etcd members reject this one",
            ],
            next: &["oc get clusteroperator etcd"],
        },
    ),
    well("FP-09", |root| {
        root.write(&format!("{ETCD}/etcd-serving-b.key"), &certificate("k", -2))
    }),
    sick(
        |root| root.write(CLIENT, &certificate("system:node:worker-0", 1)),
        Branch {
            id: "FP-09",
            severity: "notice",
            what: "the kubelet's client certificate ends within two days",
            seen: &[
                "kubelet-client-current.pem",
                "the node becomes NotReady then",
            ],
            next: &["oc get csr"],
        },
    ),
    sick(
        |root| root.write(&format!("{ETCD}/etcd-peer-a.crt"), &certificate("etcd", 1)),
        Branch {
            id: "FP-09",
            severity: "notice",
            what: "a certificate of etcd ends within two days",
            seen: &["etcd-peer-a.crt"],
            next: &["oc get csr"],
        },
    ),
    // Of authorities one that is valid is enough.
    well("FP-09", |root| {
        let both = certificate("old", -1) + &certificate("kubelet-signer", 4000);
        root.write("etc/kubernetes/kubelet-ca.crt", &both);
    }),
];

#[test]
fn every_certificate_of_a_node_is_reported_before_and_after_its_end() {
    all_met(&CERTIFICATES);
}

#[test]
fn a_file_that_only_root_may_read_is_said_without_root() {
    if !is_root() {
        return skip(Lacks::Root, "giving a file to root needs root");
    }
    let root = healthy();
    fs::set_permissions(
        root.dir(),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let mut command = root.command(&["doctor", "--output", "json"]);
    let command = std::os::unix::process::CommandExt::uid(&mut command, 65534);
    let output = command.stdin(Stdio::null()).output();
    let Ok(output) = output else {
        return skip(Lacks::Machine, "the program is where nobody may run it");
    };
    let report = Run::of(output).json();
    let check = |id: &str| {
        let checks = report["checks"].as_array().unwrap();
        checks
            .iter()
            .find(|check| check["id"] == id)
            .unwrap()
            .clone()
    };
    let unseen = check("FP-09")["unseen"].to_string();
    assert!(unseen.contains("kubelet-client-current.pem"), "{report:#}");
}

#[test]
fn only_a_running_node_restarts_its_kubelet_for_a_new_certificate() {
    live(|node| {
        let path = "var/lib/kubelet/pki/kubelet-client-current.pem";
        let expired = by_years("system:node:worker-0", 2020, 2021);
        node.root.write(path, &expired);
        let first = |seen: &Value| of(seen, "FP-09")[0]["next"][0].to_string();
        let here = first(&doctor_on(node));
        assert!(here.contains("systemctl restart kubelet"), "{here}");
        let disk = first(&doctor(&node.root));
        assert!(disk.contains("# once the node has booted"), "{disk}");
    });
}
