//! FP-54: a static pod is missing, or its revision is not complete.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use super::master::{RESOURCES, Row, all_met, with};
use super::small::endless;
use super::worker::{self, Branch, copy};
use super::{Dark, doctor, finding, ids, of, says, unseen};
use crate::support::control_plane::{ControlPlane, MANIFESTS};
use crate::support::{Lacks, Run, TestRoot, is_root, skip};
use serde_json::json;

const APISERVER: &str = "etc/kubernetes/manifests/kube-apiserver-pod.yaml";
const OWN: &str = "etc/kubernetes/static-pod-resources/kube-apiserver-pod-8";
const OLD: &str = "etc/kubernetes/static-pod-resources/kube-apiserver-pod-7";
const CERTS: &str = "etc/kubernetes/static-pod-resources/kube-apiserver-certs";
const ETCD: &str =
    "etc/kubernetes/static-pod-resources/etcd-certs/secrets/etcd-all-certs/etcd-peer-master-0";

fn critical(
    what: &'static str,
    seen: &'static [&'static str],
    next: &'static [&'static str],
) -> Option<Branch> {
    Some(Branch {
        id: "FP-54",
        severity: "critical",
        what,
        seen,
        next,
    })
}

fn empty(root: &TestRoot, path: &str) {
    fs::write(root.path(path), "").unwrap();
}

fn change(root: &TestRoot, path: &str, from: &str, to: &str) {
    let text = root.read(path);
    assert!(text.contains(from), "{text}");
    fs::write(root.path(path), text.replace(from, to)).unwrap();
}

fn restore(number: &'static str) -> &'static [&'static str] {
    match number {
        "8" => &[
            "install -m 0600 ROOT/etc/kubernetes/static-pod-resources/kube-apiserver-pod-8/kube-apiserver-pod.yaml ROOT/etc/kubernetes/manifests/kube-apiserver-pod.yaml",
        ],
        _ => &[
            "install -m 0600 ROOT/etc/kubernetes/static-pod-resources/kube-apiserver-pod-7/kube-apiserver-pod.yaml ROOT/etc/kubernetes/manifests/kube-apiserver-pod.yaml",
        ],
    }
}

const ASIDE: &str = "mv ROOT/etc/kubernetes/manifests/kube-apiserver-pod.yaml ROOT/etc/kubernetes/kube-apiserver-pod.yaml.mco-rescue-";
const OTHER: &[&str] = &[
    ASIDE,
    "install -m 0600 ROOT/etc/kubernetes/static-pod-resources/kube-apiserver-pod-7/kube-apiserver-pod.yaml ROOT/etc/kubernetes/manifests/",
];
const UNUSABLE: &[&str] = &[
    ASIDE,
    "install -m 0600 ROOT/etc/kubernetes/static-pod-resources/kube-apiserver-pod-8/kube-apiserver-pod.yaml ROOT/etc/kubernetes/manifests/",
];
const SYNCER: &[&str] = &["crictl logs", "oc get secret -n openshift-kube-apiserver"];

pub(super) const DARK: &[Dark] = &[
    ("FP-54", "static pods", |root| endless(root, RESOURCES)),
    ("FP-39", "certificates of static pods", |root| {
        endless(root, RESOURCES)
    }),
];

#[test]
fn a_control_plane_that_is_not_whole_is_reported_with_its_cure() {
    let rows = [
        Row {
            done: |_| {},
            found: None,
        },
        // Cut between the removal of the old manifest and the new one.
        Row {
            done: |root| root.remove(APISERVER),
            found: critical(
                "the manifest of kube-apiserver is missing",
                &[
                    "kube-apiserver-pod-8",
                    "complete, 17 files",
                    "static pod lifecycle failure",
                    "copy of the manifest",
                ],
                restore("8"),
            ),
        },
        Row {
            done: |root| empty(root, APISERVER),
            found: critical(
                "the manifest of kube-apiserver is unusable",
                &["it is empty"],
                UNUSABLE,
            ),
        },
        Row {
            done: |root| root.write(APISERVER, &"\0".repeat(4096)),
            found: critical(
                "the manifest of kube-apiserver is unusable",
                &["zero bytes"],
                UNUSABLE,
            ),
        },
        Row {
            done: |root| root.write(APISERVER, "{\"kind\": \"Pod\", \"metadata\": {"),
            found: critical(
                "the manifest of kube-apiserver is unusable",
                &["EOF while parsing"],
                UNUSABLE,
            ),
        },
        // The newest one is torn: the one before has a manifest, and perhaps older secrets.
        Row {
            done: |root| {
                root.remove(APISERVER);
                empty(root, &format!("{OWN}/kube-apiserver-pod.yaml"));
            },
            found: critical(
                "the manifest of kube-apiserver is missing",
                &[
                    "its manifest is unusable, it is empty",
                    "older secrets (FP-39)",
                ],
                restore("7"),
            ),
        },
        Row {
            done: |root| {
                root.remove(APISERVER);
                empty(root, &format!("{OWN}/secrets/etcd-client/tls.key"));
                change(
                    root,
                    &format!("{OLD}/kube-apiserver-pod.yaml"),
                    "\"revision\":\"7\"",
                    "\"revision\":\"6\"",
                );
            },
            found: critical(
                "the manifest of kube-apiserver is missing",
                &[
                    "no revision on this node is complete",
                    "not complete: /etc/kubernetes",
                    "its manifest has another number",
                ],
                &[
                    "oc patch kubeapiserver cluster --type merge -p '{\"spec\":{\"forceRedeploymentReason\":",
                ],
            ),
        },
        // Files of the revision in force.
        Row {
            done: |root| empty(root, &format!("{OWN}/secrets/etcd-client/tls.key")),
            found: critical(
                "files of kube-apiserver are missing or damaged",
                &[
                    "etcd-client/tls.key",
                    "0 bytes",
                    "failed to find any PEM data",
                ],
                OTHER,
            ),
        },
        Row {
            done: |root| {
                empty(
                    root,
                    &format!("{OWN}/configmaps/kubelet-serving-ca/ca-bundle.crt"),
                )
            },
            found: critical(
                "files of kube-apiserver are missing or damaged",
                &["kubelet-serving-ca"],
                OTHER,
            ),
        },
        Row {
            done: |root| root.remove(&format!("{OWN}/configmaps/config/config.yaml")),
            found: critical(
                "files of kube-apiserver are missing or damaged",
                &[
                    "open /etc/kubernetes/static-pod-resources/kube-apiserver-pod-8/configmaps/config/config.yaml: no such file",
                ],
                OTHER,
            ),
        },
        Row {
            done: |root| fs::remove_dir_all(root.path(OWN)).unwrap(),
            found: critical(
                "revision 8 of kube-apiserver is missing",
                &["hostPath type check failed"],
                OTHER,
            ),
        },
        // What XFS leaves after a power cut.
        Row {
            done: |root| {
                root.write(
                    &format!("{OWN}/secrets/etcd-client/tls.crt"),
                    &"\0".repeat(1100),
                )
            },
            found: critical(
                "files of kube-apiserver are missing or damaged",
                &["no certificate and no key in it"],
                OTHER,
            ),
        },
        // Those without a revision.
        Row {
            done: |root| root.remove(&format!("{CERTS}/secrets/aggregator-client/tls.crt")),
            found: critical(
                "files of kube-apiserver are missing or damaged",
                &["aggregator-client/tls.crt", "missing"],
                SYNCER,
            ),
        },
        Row {
            done: |root| {
                empty(
                    root,
                    &format!("{CERTS}/secrets/node-kubeconfigs/localhost.kubeconfig"),
                );
                root.write(
                    &format!("{RESOURCES}/staging/0a1b/secrets/x/tls.key"),
                    "old",
                );
            },
            found: critical(
                "files of kube-apiserver are missing or damaged",
                &[
                    "localhost.kubeconfig",
                    "staging/0a1b",
                    "it may have the old content",
                ],
                &[
                    "ls -lR ROOT/etc/kubernetes/static-pod-resources/staging/0a1b",
                    "crictl logs",
                    "oc get secret",
                ],
            ),
        },
        // Torn pairs.
        Row {
            done: |root| {
                let key = root.read(&format!("{CERTS}/secrets/kubelet-client/tls.key"));
                fs::write(
                    root.path(&format!("{OWN}/secrets/etcd-client/tls.key")),
                    key,
                )
                .unwrap();
            },
            found: critical(
                "a key of kube-apiserver is another certificate's",
                &[
                    "etcd-client/tls.crt",
                    "private key does not match public key",
                ],
                OTHER,
            ),
        },
        Row {
            done: |root| {
                let other = root.read(&format!("{CERTS}/secrets/kubelet-client/tls.crt"));
                fs::write(
                    root.path(&format!("{CERTS}/secrets/aggregator-client/tls.crt")),
                    other,
                )
                .unwrap();
            },
            found: critical(
                "a key of kube-apiserver is another certificate's",
                &["aggregator-client/tls.crt"],
                SYNCER,
            ),
        },
        // etcd's revision has a copy of what is without one.
        Row {
            done: |root| empty(root, &format!("{ETCD}.key")),
            found: critical(
                "files of etcd are missing or damaged",
                &["etcd-peer-master-0.key", "0 bytes"],
                &[
                    "install -m 0600 ROOT/etc/kubernetes/static-pod-resources/etcd-pod-8/secrets/etcd-all-certs/etcd-peer-master-0.crt",
                    "install -m 0600 ROOT/etc/kubernetes/static-pod-resources/etcd-pod-8/secrets/etcd-all-certs/etcd-peer-master-0.key",
                ],
            ),
        },
        Row {
            done: |root| {
                let other = root.read(&format!("{CERTS}/secrets/kubelet-client/tls.key"));
                fs::write(root.path(&format!("{ETCD}.key")), other).unwrap();
            },
            found: critical(
                "a key of etcd is another certificate's",
                &["etcd-peer-master-0.crt"],
                &["install", "install"],
            ),
        },
        Row {
            done: |root| {
                let mut pod: serde_json::Value =
                    serde_json::from_str(&root.read(APISERVER)).unwrap();
                pod["metadata"]["annotations"] = json!({
                    "startup-monitor.static-pods.openshift.io/fallback-for-revision": "9",
                    "startup-monitor.static-pods.openshift.io/fallback-reason": "NetworkError",
                    "startup-monitor.static-pods.openshift.io/fallback-message": "connection refused",
                });
                root.write(APISERVER, &pod.to_string());
            },
            found: Some(Branch {
                id: "FP-54",
                severity: "warning",
                what: "kube-apiserver fell back to an older revision",
                seen: &[
                    "revision 8 runs, in place of 9",
                    "NetworkError: connection refused",
                    "fallback-for-revision: 9",
                ],
                next: &["oc get clusteroperator kube-apiserver"],
            }),
        },
        Row {
            done: |root| {
                let stopped = "home/core/assets/manifests-stopped/etcd-pod.yaml";
                root.write(stopped, &root.read(&format!("{MANIFESTS}/etcd-pod.yaml")));
                root.remove(&format!("{MANIFESTS}/etcd-pod.yaml"));
            },
            found: Some(Branch {
                id: "FP-54",
                severity: "notice",
                what: "static pods were stopped on purpose",
                seen: &["manifests-stopped/etcd-pod.yaml"],
                next: &[
                    "mv ROOT/home/core/assets/manifests-stopped/etcd-pod.yaml ROOT/etc/kubernetes/manifests/etcd-pod.yaml",
                ],
            }),
        },
        Row {
            done: |root| {
                fs::remove_dir_all(root.path(&format!("{OWN}/configmaps/kube-apiserver-pod")))
                    .unwrap()
            },
            found: Some(Branch {
                id: "FP-54",
                severity: "notice",
                what: "revision 8 of kube-apiserver lacks a usual part",
                seen: &["configmaps/kube-apiserver-pod"],
                next: &[
                    "ls -l ROOT/etc/kubernetes/static-pod-resources/kube-apiserver-pod-*/*/kube-apiserver-pod",
                ],
            }),
        },
        // Nothing of this does any harm.
        Row {
            done: |root| {
                root.write(&format!("{RESOURCES}/staging/0a1b/secrets/x/tls.key"), "");
                root.write(
                    &format!("{RESOURCES}/configmaps/cloud-config/ca-bundle.pem"),
                    "",
                );
                root.write(&format!("{OWN}/configmaps/cloud-config/config"), "");
                root.write(
                    &format!("{CERTS}/configmaps/trusted-ca-bundle/ca-bundle.crt"),
                    "",
                );
                fs::create_dir_all(root.path(&format!("{RESOURCES}/kube-apiserver-pod-x")))
                    .unwrap();
                fs::create_dir_all(root.path(&format!("{RESOURCES}/kube-apiserver-pod-09")))
                    .unwrap();
                root.write(
                    &format!("{OWN}/secrets/localhost-recovery-client-token/service-ca.crt"),
                    "",
                );
                // Torn, but not in force.
                empty(root, &format!("{OLD}/secrets/etcd-client/tls.crt"));
                empty(root, &format!("{OLD}/kube-apiserver-pod.yaml"));
            },
            found: None,
        },
        // A newer revision on its way: the one before runs.
        Row {
            done: |root| {
                root.write(
                    &format!("{RESOURCES}/kube-apiserver-pod-9/secrets/etcd-client/tls.crt"),
                    "",
                )
            },
            found: None,
        },
        // The lock of the revision, written before the manifest of the kubelet.
        Row {
            done: |root| {
                change(
                    root,
                    &format!("{OWN}/kube-apiserver-pod.yaml"),
                    "cert-syncer",
                    "cert-syncer2",
                );
                root.write(
                    "home/core/assets/manifests-stopped/kube-apiserver-pod.yaml",
                    "old",
                );
            },
            found: None,
        },
    ];
    all_met(&with(&ControlPlane::new()), &rows);
}

#[test]
fn each_missing_manifest_has_a_copy_and_a_cure_of_files() {
    let template = with(&ControlPlane::new());
    for name in [
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
    ] {
        let root = copy(&template);
        let manifest = format!("{MANIFESTS}/{name}-pod.yaml");
        let before = root.read(&manifest);
        root.remove(&manifest);
        let report = doctor(&root);
        assert_eq!(ids(&report), ["FP-54"], "{report:#}");
        let found = finding(&report, "FP-54");
        assert_eq!(found["what"], format!("the manifest of {name} is missing"));
        let change = &found["fix"]["changes"][0];
        assert_eq!(change["change"], "copy-file", "{found:#}");
        assert_eq!(change["path"], format!("/{manifest}"));
        assert_eq!(change["mode"], "0600");
        // The command does what it says.
        let command = found["next"][0].as_str().unwrap();
        let status = Command::new("sh").args(["-c", command]).status().unwrap();
        assert!(status.success(), "{command}");
        assert_eq!(
            (root.read(&manifest), root.mode(&manifest)),
            (before, 0o600)
        );
        assert_eq!(ids(&doctor(&root)), Vec::<String>::new());
    }
}

#[test]
fn a_manifest_that_moves_aside_leaves_the_directory_of_the_kubelet() {
    let root = with(&ControlPlane::new());
    empty(&root, APISERVER);
    let found = finding(&doctor(&root), "FP-54").clone();
    for command in found["next"].as_array().unwrap() {
        let status = Command::new("sh")
            .args(["-c", command.as_str().unwrap()])
            .status();
        assert!(status.unwrap().success(), "{command}");
    }
    let names = fs::read_dir(root.path(MANIFESTS)).unwrap();
    assert_eq!(names.count(), 4);
    assert_eq!(ids(&doctor(&root)), Vec::<String>::new());
}

/// The cure is what a person would do, and can be taken back.
#[test]
fn the_cure_of_files_brings_the_pod_back_and_can_be_taken_back() {
    let template = with(&ControlPlane::new());
    let sicken: [fn(&TestRoot); 4] = [
        |root| root.remove(APISERVER),
        |root| empty(root, APISERVER),
        |root| root.write(&format!("{ETCD}.crt"), &"\0".repeat(900)),
        |root| {
            root.remove(&format!(
                "{RESOURCES}/etcd-certs/configmaps/etcd-all-bundles/server-ca-bundle.crt"
            ))
        },
    ];
    for (number, sicken) in sicken.into_iter().enumerate() {
        let root = copy(&template);
        let healthy = root.snapshot();
        sicken(&root);
        let sick = root.snapshot();
        root.run(&["doctor", "--fix", "FP-54", "--yes"]).ok();
        assert_eq!(ids(&doctor(&root)), Vec::<String>::new(), "{number}");
        let cured = root.snapshot();
        let changed: Vec<&String> = healthy
            .iter()
            .filter(|(path, entry)| cured.get(*path) != Some(entry))
            .map(|(path, _)| path)
            .collect();
        assert_eq!(changed, Vec::<&String>::new(), "{number}");
        let names = fs::read_dir(root.path(MANIFESTS)).unwrap();
        assert_eq!(names.count(), 4, "the kubelet reads every file there");
        root.run(&["rollback", "--yes"]).ok();
        assert_eq!(root.snapshot(), sick, "{number}");
    }
    // An older revision may have older secrets: that is not a certain cure.
    let root = copy(&template);
    root.remove(APISERVER);
    empty(&root, &format!("{OWN}/secrets/etcd-client/tls.key"));
    assert_eq!(
        finding(&doctor(&root), "FP-54")["fix"],
        serde_json::Value::Null
    );
}

#[test]
fn a_single_node_has_a_monitor_and_a_link_that_are_no_revisions() {
    let root = with(&ControlPlane::single());
    let monitor = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"kube-apiserver-startup-monitor"},"spec":{}}"#;
    root.write(
        &format!("{MANIFESTS}/kube-apiserver-startup-monitor-pod.yaml"),
        monitor,
    );
    root.link(
        &format!("{RESOURCES}/kube-apiserver-last-known-good"),
        "kube-apiserver-pod-8/kube-apiserver-pod.yaml",
    );
    assert_eq!(ids(&doctor(&root)), Vec::<String>::new());
    root.remove(APISERVER);
    assert_eq!(ids(&doctor(&root)), ["FP-54"]);
}

#[test]
fn etcd_of_two_nodes_with_fencing_needs_no_manifest() {
    let root = with(&ControlPlane::new());
    root.write("etc/corosync/corosync.conf", "quorum {\n}\n");
    root.remove(&format!("{MANIFESTS}/etcd-pod.yaml"));
    assert_eq!(of(&doctor(&root), "FP-54"), Vec::<serde_json::Value>::new());
    root.remove(APISERVER);
    says(
        &finding(&doctor(&root), "FP-54").to_string(),
        &["kube-apiserver is missing"],
    );
    // A corosync.conf that cannot be read is there.
    let found = of(&doctor(&root), "FP-54");
    std::fs::remove_dir_all(root.path("etc/corosync")).unwrap();
    root.link("etc/corosync", "corosync");
    assert_eq!(of(&doctor(&root), "FP-54"), found);
}

#[test]
fn machines_without_revisions_are_silent() {
    let worker = worker::healthy();
    assert_eq!(unseen(&doctor(&worker), "FP-54"), "[]");
    // A bootstrap machine.
    worker.write(
        APISERVER,
        "kind: Pod\nmetadata:\n  name: bootstrap-kube-apiserver\nspec: {}\n",
    );
    worker.write(&format!("{MANIFESTS}/etcd-pod.yaml"), "");
    assert_eq!(
        of(&doctor(&worker), "FP-54"),
        Vec::<serde_json::Value>::new()
    );
    // A new node whose first installer has not come to its end.
    worker.remove(&format!("{MANIFESTS}/etcd-pod.yaml"));
    worker.write(
        &format!("{RESOURCES}/etcd-pod-3/secrets/etcd-all-certs/x.crt"),
        "x",
    );
    let found = finding(&doctor(&worker), "FP-54").clone();
    assert_eq!(found["severity"], "warning", "{found:#}");
}

#[test]
fn what_only_root_may_read_is_not_judged() {
    if !is_root() {
        return skip(Lacks::Root, "giving files to root needs root");
    }
    let root = with(&ControlPlane::new());
    root.chmod("", 0o755);
    let mut command = root.command(&["doctor", "--output", "json"]);
    let output = CommandExt::uid(&mut command, 65534)
        .stdin(Stdio::null())
        .output();
    let Ok(output) = output else {
        return skip(Lacks::Machine, "the program is where nobody may run it");
    };
    let report = Run::of(output).json();
    assert_eq!(
        of(&report, "FP-54"),
        Vec::<serde_json::Value>::new(),
        "{report:#}"
    );
    says(
        &unseen(&report, "FP-54"),
        &["kube-apiserver-pod.yaml", "etcd-client"],
    );
}

/// Keys as Go's operators write them, made and judged by OpenSSL.
#[test]
fn keys_of_every_kind_are_judged_as_openssl_judges_them() {
    let Ok(version) = Command::new("openssl").arg("version").output() else {
        return skip(Lacks::Setup, "there is no openssl");
    };
    assert!(version.status.success());
    let root = with(&ControlPlane::new());
    let place = root.path(&format!("{CERTS}/secrets/aggregator-client"));
    let scratch = tempfile::tempdir().unwrap();
    let openssl = |line: &str| {
        let mut command = Command::new("openssl");
        let output = command
            .args(line.split_whitespace())
            .current_dir(scratch.path())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{line}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        output.stdout
    };
    for (kind, arguments) in [
        (
            "rsa8",
            "genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out",
        ),
        ("rsa1", "genrsa -traditional -out"),
        (
            "ec8",
            "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-384 -out",
        ),
        ("ec1", "ecparam -name prime256v1 -genkey -noout -out"),
        ("ed", "genpkey -algorithm ed25519 -out"),
    ] {
        for name in ["own", "other"] {
            openssl(&format!("{arguments} {name}.key"));
        }
        openssl("req -x509 -new -key own.key -subj /CN=x -days 30 -out own.crt");
        fs::copy(scratch.path().join("own.crt"), place.join("tls.crt")).unwrap();
        let of_certificate = openssl("x509 -in own.crt -noout -pubkey");
        for name in ["own", "other"] {
            fs::copy(
                scratch.path().join(format!("{name}.key")),
                place.join("tls.key"),
            )
            .unwrap();
            let same = openssl(&format!("pkey -in {name}.key -pubout")) == of_certificate;
            assert_eq!(same, name == "own");
            let found = of(&doctor(&root), "FP-54").len();
            assert_eq!(found, usize::from(!same), "{kind} {name}");
        }
    }
}
