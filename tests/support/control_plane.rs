//! The files of a healthy control-plane node: manifests, revisions, certificates with their keys, and the kubelet's. The
//! layout is that of the operators' installers; contents are as short as they can be. Certificates are real, with keys of
//! P-256; every signer signs as in a cluster, with one for each purpose.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, SystemTime};

use base64::prelude::{BASE64_STANDARD, Engine};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
};
use serde_json::{Value, json};

use super::TestRoot;

/// The manifests that the kubelet runs.
pub const MANIFESTS: &str = "etc/kubernetes/manifests";
/// Revisions, and certificates without one.
pub const RESOURCES: &str = "etc/kubernetes/static-pod-resources";
/// The kubelet's certificates.
pub const KUBELET_PKI: &str = "var/lib/kubelet/pki";
/// The revision that each pod runs.
pub const REVISION: u32 = 8;
/// The control-plane nodes; the root is that of the first.
pub const NODES: [&str; 3] = ["master-0", "master-1", "master-2"];

const DAY: u64 = 86_400;
const YEAR: i64 = 365;

/// A control plane to be written into a root.
pub struct ControlPlane {
    /// Days before and after now in which a certificate is valid, by its name.
    lives: BTreeMap<String, (f64, f64)>,
    nodes: Vec<&'static str>,
    revisions: Vec<u32>,
}

/// A certificate with its key, in PEM.
struct Pair {
    certificate: String,
    key: String,
}

/// An authority.
struct Signer {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// Days before and after now, of a certificate that was renewed at its ordinary time.
fn ordinary(name: &str) -> (f64, f64) {
    let (age, life) = match name {
        "localhost-recovery-serving-certkey" => (40, 10 * YEAR),
        "localhost-recovery-serving-signer" | "loadbalancer-serving-signer" => (40, 10 * YEAR),
        "localhost-serving-signer" | "service-network-serving-signer" => (40, 10 * YEAR),
        "kube-apiserver-to-kubelet-signer" => (40, YEAR),
        "node-kubeconfigs" => (10, 2 * YEAR),
        "node-system-admin-signer" => (40, 3 * YEAR),
        "kube-control-plane-signer" | "csr-signer-signer" => (20, 60),
        _ if name.contains("etcd") => (40, 5 * YEAR),
        // Those of 30 days are renewed after 15.
        _ => (5, 30),
    };
    (f64::from(age), (life - i64::from(age)) as f64)
}

impl ControlPlane {
    /// Three nodes, each pod with the revisions 7 and 8, of which it runs the latter.
    pub fn new() -> Self {
        Self {
            lives: BTreeMap::new(),
            nodes: NODES.to_vec(),
            revisions: vec![REVISION - 1, REVISION],
        }
    }

    /// A cluster of one node.
    pub fn single() -> Self {
        Self {
            nodes: vec![NODES[0]],
            ..Self::new()
        }
    }

    /// A certificate ends so many days from now; before now, it has expired. It began at its ordinary time, or as long
    /// before its end as it is valid. `name` is a directory below `secrets`, the stem of an etcd file, `kubelet-client`,
    /// `kubelet-server`, or a signer.
    pub fn ends(self, name: &str, days: f64) -> Self {
        let (before, after) = ordinary(name);
        let began = if days > -before + 0.5 {
            before
        } else {
            before + after - days
        };
        self.lives(name, began, days)
    }

    /// A certificate is valid from so many days before now until so many days after it.
    pub fn lives(mut self, name: &str, before: f64, after: f64) -> Self {
        self.lives.insert(name.to_owned(), (before, after));
        self
    }

    /// The whole control plane has been off for so many days.
    pub fn cold_for(mut self, days: f64) -> Self {
        for name in ALL.into_iter().chain(SIGNERS) {
            let (before, after) = ordinary(name);
            self.lives
                .insert(name.to_owned(), (before + days, after - days));
        }
        for node in NODES {
            for kind in ["etcd-peer", "etcd-serving", "etcd-serving-metrics"] {
                let name = format!("{kind}-{node}");
                let (before, after) = ordinary(&name);
                self.lives.insert(name, (before + days, after - days));
            }
        }
        self
    }

    /// Writes the files.
    pub fn write(&self, root: &TestRoot) {
        let signers: BTreeMap<&str, Signer> = SIGNERS.map(|name| (name, self.signer(name))).into();
        let written = Written {
            plane: self,
            root,
            signers: &signers,
        };
        written.write_apiserver();
        written.write_controller_manager();
        written.write_scheduler();
        written.write_etcd();
        written.write_kubelet();
    }

    fn time(&self, name: &str) -> (SystemTime, SystemTime) {
        let (before, after) = match self.lives.get(name) {
            Some(life) => *life,
            None => ordinary(name),
        };
        let now = SystemTime::now();
        let moved = |days: f64| {
            let span = Duration::from_secs((days.abs() * DAY as f64) as u64);
            if days < 0.0 { now - span } else { now + span }
        };
        (moved(-before), moved(after))
    }

    fn params(&self, life: &str, subject: &str) -> CertificateParams {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, subject);
        let (from, until) = self.time(life);
        params.not_before = from.into();
        params.not_after = until.into();
        params.use_authority_key_identifier_extension = true;
        params
    }

    fn signer(&self, name: &str) -> Signer {
        let mut params = self.params(name, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Signer {
            pem,
            issuer: Issuer::new(params, key),
        }
    }
}

/// Certificates by the names of their directories, besides those of etcd's nodes.
const ALL: [&str; 16] = [
    "aggregator-client",
    "kubelet-client",
    "localhost-serving-cert-certkey",
    "service-network-serving-certkey",
    "external-loadbalancer-serving-certkey",
    "internal-loadbalancer-serving-certkey",
    "control-plane-node-admin-client-cert-key",
    "check-endpoints-client-cert-key",
    "node-kubeconfigs",
    "localhost-recovery-serving-certkey",
    "etcd-client",
    "csr-signer",
    "kube-controller-manager-client-cert-key",
    "kube-scheduler-client-cert-key",
    "kubelet-client-current",
    "kubelet-server-current",
];

const SIGNERS: [&str; 11] = [
    "aggregator-client-signer",
    "kube-apiserver-to-kubelet-signer",
    "localhost-serving-signer",
    "service-network-serving-signer",
    "loadbalancer-serving-signer",
    "kube-control-plane-signer",
    "node-system-admin-signer",
    "localhost-recovery-serving-signer",
    "csr-signer-signer",
    "etcd-signer",
    "etcd-metrics-signer",
];

/// A control plane on its way into a root.
struct Written<'a> {
    plane: &'a ControlPlane,
    root: &'a TestRoot,
    signers: &'a BTreeMap<&'a str, Signer>,
}

impl Written<'_> {
    fn pair(&self, life: &str, subject: &str, signer: &str) -> Pair {
        let params = self.plane.params(life, subject);
        let key = KeyPair::generate().unwrap();
        let signed = params.signed_by(&key, &self.signers[signer].issuer);
        Pair {
            certificate: signed.unwrap().pem(),
            key: key.serialize_pem(),
        }
    }

    /// Every file of a pod's directory is for its owner alone.
    fn secret(&self, place: &str, text: &str) {
        let path = format!("{RESOURCES}/{place}");
        self.root.write(&path, text);
        self.root.chmod(&path, 0o600);
    }

    fn config(&self, place: &str, text: &str) {
        self.root.write(&format!("{RESOURCES}/{place}"), text);
    }

    fn tls(&self, directory: &str, name: &str, subject: &str, signer: &str) {
        let pair = self.pair(name, subject, signer);
        self.secret(
            &format!("{directory}/secrets/{name}/tls.crt"),
            &pair.certificate,
        );
        self.secret(&format!("{directory}/secrets/{name}/tls.key"), &pair.key);
    }

    fn bundle(&self, place: &str, signers: &[&str]) {
        let all: String = signers
            .iter()
            .map(|name| self.signers[name].pem.as_str())
            .collect();
        self.config(place, &all);
    }

    /// A manifest, in its revision and, of the one that runs, for the kubelet.
    fn manifest(&self, pod: &str, revision: u32, text: &str) {
        let copy = format!("{pod}-pod-{revision}/{pod}-pod.yaml");
        self.secret(&copy, text);
        if revision == REVISION {
            let path = format!("{MANIFESTS}/{pod}-pod.yaml");
            self.root.write(&path, text);
            self.root.chmod(&path, 0o600);
        }
    }

    fn write_apiserver(&self) {
        let certs = "kube-apiserver-certs";
        for (name, subject, signer) in [
            (
                "aggregator-client",
                "system:openshift-aggregator",
                "aggregator-client-signer",
            ),
            (
                "kubelet-client",
                "system:kube-apiserver",
                "kube-apiserver-to-kubelet-signer",
            ),
            (
                "localhost-serving-cert-certkey",
                "localhost",
                "localhost-serving-signer",
            ),
            (
                "service-network-serving-certkey",
                "172.30.0.1",
                "service-network-serving-signer",
            ),
            (
                "external-loadbalancer-serving-certkey",
                "api.cluster.example",
                "loadbalancer-serving-signer",
            ),
            (
                "internal-loadbalancer-serving-certkey",
                "api-int.cluster.example",
                "loadbalancer-serving-signer",
            ),
            (
                "control-plane-node-admin-client-cert-key",
                "system:control-plane-node-admin",
                "kube-control-plane-signer",
            ),
            (
                "check-endpoints-client-cert-key",
                "system:serviceaccount:openshift-kube-apiserver:check-endpoints",
                "kube-control-plane-signer",
            ),
        ] {
            self.tls(certs, name, subject, signer);
        }
        let admin = self.pair(
            "node-kubeconfigs",
            "system:admin",
            "node-system-admin-signer",
        );
        for (name, host) in [
            ("localhost", "localhost:6443"),
            ("localhost-recovery", "localhost:6443"),
            ("lb-int", "api-int.cluster.example:6443"),
            ("lb-ext", "api.cluster.example:6443"),
        ] {
            let text = kubeconfig(host, &self.signers["localhost-serving-signer"].pem, &admin);
            self.secret(
                &format!("{certs}/secrets/node-kubeconfigs/{name}.kubeconfig"),
                &text,
            );
        }
        let key = KeyPair::generate().unwrap();
        let place = format!("{certs}/secrets/bound-service-account-signing-key");
        self.secret(
            &format!("{place}/service-account.key"),
            &key.serialize_pem(),
        );
        self.secret(
            &format!("{place}/service-account.pub"),
            &key.public_key_pem(),
        );
        let client_ca = [
            "csr-signer-signer",
            "kube-control-plane-signer",
            "kube-apiserver-to-kubelet-signer",
            "node-system-admin-signer",
        ];
        for (name, signers) in [
            (
                "aggregator-client-ca",
                &["aggregator-client-signer"] as &[&str],
            ),
            ("client-ca", &client_ca),
        ] {
            self.bundle(&format!("{certs}/configmaps/{name}/ca-bundle.crt"), signers);
        }
        let of_files = "apiVersion: v1\nkind: Config\n";
        for name in [
            "check-endpoints-kubeconfig",
            "control-plane-node-kubeconfig",
        ] {
            self.config(&format!("{certs}/configmaps/{name}/kubeconfig"), of_files);
        }
        // Its secrets stay the same over the revisions.
        let recovery = self.pair(
            "localhost-recovery-serving-certkey",
            "localhost-recovery",
            "localhost-recovery-serving-signer",
        );
        let etcd = self.pair("etcd-client", "etcd-client", "etcd-signer");
        for &revision in &self.plane.revisions {
            let own = format!("kube-apiserver-pod-{revision}");
            for (name, pair) in [
                ("localhost-recovery-serving-certkey", &recovery),
                ("etcd-client", &etcd),
            ] {
                self.secret(&format!("{own}/secrets/{name}/tls.crt"), &pair.certificate);
                self.secret(&format!("{own}/secrets/{name}/tls.key"), &pair.key);
            }
            let token = format!("{own}/secrets/localhost-recovery-client-token");
            self.token(&token);
            let maps = format!("{own}/configmaps");
            self.bundle(
                &format!("{maps}/etcd-serving-ca/ca-bundle.crt"),
                &["etcd-signer"],
            );
            self.bundle(
                &format!("{maps}/kubelet-serving-ca/ca-bundle.crt"),
                &["csr-signer-signer"],
            );
            let servers = [
                "localhost-serving-signer",
                "service-network-serving-signer",
                "loadbalancer-serving-signer",
                "localhost-recovery-serving-signer",
            ];
            self.bundle(
                &format!("{maps}/kube-apiserver-server-ca/ca-bundle.crt"),
                &servers,
            );
            self.config(
                &format!("{maps}/kube-apiserver-cert-syncer-kubeconfig/kubeconfig"),
                of_files,
            );
            let public = key.public_key_pem();
            self.config(
                &format!("{maps}/bound-sa-token-signing-certs/service-account-001.pub"),
                &public,
            );
            self.config(
                &format!("{maps}/sa-token-signing-certs/service-account-001.pub"),
                &public,
            );
            self.config(
                &format!("{maps}/kube-apiserver-audit-policies/policy.yaml"),
                "kind: Policy\n",
            );
            self.config(
                &format!("{maps}/config/config.yaml"),
                &apiserver_config().to_string(),
            );
            self.pod_map(&maps, "kube-apiserver", revision);
            let script = "if [ -f /etc/kubernetes/static-pod-certs/configmaps/trusted-ca-bundle/ca-bundle.crt ]; then\n  \
                cp -f /etc/kubernetes/static-pod-certs/configmaps/trusted-ca-bundle/ca-bundle.crt /etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem\nfi\n\
                exec watch-termination --kubeconfig=/etc/kubernetes/static-pod-resources/configmaps/kube-apiserver-cert-syncer-kubeconfig/kubeconfig -- \
                hyperkube kube-apiserver --openshift-config=/etc/kubernetes/static-pod-resources/configmaps/config/config.yaml --advertise-address=${HOST_IP}\n";
            let pod = pod(
                "kube-apiserver",
                "kube-apiserver",
                revision,
                json!([
                    container("kube-apiserver", &["/bin/bash", "-ec"], &[script]),
                    container(
                        "kube-apiserver-cert-syncer",
                        &["cluster-kube-apiserver-operator", "cert-syncer"],
                        &[
                            "--kubeconfig=/etc/kubernetes/static-pod-resources/configmaps/kube-apiserver-cert-syncer-kubeconfig/kubeconfig",
                            "--destination-dir=/etc/kubernetes/static-pod-certs",
                        ],
                    ),
                    container(
                        "kube-apiserver-check-endpoints",
                        &["cluster-kube-apiserver-operator", "check-endpoints"],
                        &[
                            "--kubeconfig",
                            "/etc/kubernetes/static-pod-certs/configmaps/check-endpoints-kubeconfig/kubeconfig",
                        ],
                    ),
                ]),
            );
            self.manifest("kube-apiserver", revision, &pod.to_string());
        }
    }

    fn token(&self, directory: &str) {
        for (name, text) in [
            ("token", "eyJhbGciOiJub25lIn0.e30."),
            ("namespace", "openshift-kube-apiserver"),
        ] {
            self.secret(&format!("{directory}/{name}"), text);
        }
    }

    /// The operator's template of the pod, and what the installer knows of the revision.
    fn pod_map(&self, maps: &str, name: &str, revision: u32) {
        let place = format!("{maps}/{name}-pod");
        self.config(&format!("{place}/version"), "4.18.1");
        self.config(&format!("{place}/forceRedeploymentReason"), "");
        self.config(
            &format!("{place}/pod.yaml"),
            &format!("revision {revision}\n"),
        );
    }

    fn write_controller_manager(&self) {
        let (pod_name, certs) = ("kube-controller-manager", "kube-controller-manager-certs");
        self.tls(certs, "csr-signer", "kube-csr-signer", "csr-signer-signer");
        let (name, subject) = (
            "kube-controller-manager-client-cert-key",
            "system:kube-controller-manager",
        );
        self.tls(certs, name, subject, "kube-control-plane-signer");
        for (name, signer) in [
            ("aggregator-client-ca", "aggregator-client-signer"),
            ("client-ca", "kube-control-plane-signer"),
        ] {
            self.bundle(
                &format!("{certs}/configmaps/{name}/ca-bundle.crt"),
                &[signer],
            );
        }
        let key = KeyPair::generate().unwrap();
        for &revision in &self.plane.revisions {
            let own = format!("{pod_name}-pod-{revision}");
            let maps = format!("{own}/configmaps");
            let private = format!("{own}/secrets/service-account-private-key");
            self.secret(
                &format!("{private}/service-account.key"),
                &key.serialize_pem(),
            );
            self.token(&format!("{own}/secrets/localhost-recovery-client-token"));
            for name in [
                "controller-manager-kubeconfig",
                "kube-controller-cert-syncer-kubeconfig",
            ] {
                self.config(&format!("{maps}/{name}/kubeconfig"), "kind: Config\n");
            }
            self.bundle(
                &format!("{maps}/serviceaccount-ca/ca-bundle.crt"),
                &["service-network-serving-signer"],
            );
            let config = json!({"extendedArguments": {
                "cluster-signing-cert-file": ["/etc/kubernetes/static-pod-certs/secrets/csr-signer/tls.crt"],
                "cluster-signing-key-file": ["/etc/kubernetes/static-pod-certs/secrets/csr-signer/tls.key"],
                "root-ca-file": ["/etc/kubernetes/static-pod-resources/configmaps/serviceaccount-ca/ca-bundle.crt"],
                "service-account-private-key-file":
                    ["/etc/kubernetes/static-pod-resources/secrets/service-account-private-key/service-account.key"],
            }});
            self.config(&format!("{maps}/config/config.yaml"), &config.to_string());
            self.pod_map(&maps, pod_name, revision);
            let script = "exec hyperkube kube-controller-manager --openshift-config=/etc/kubernetes/static-pod-resources/configmaps/config/config.yaml \\\n  \
                --kubeconfig=/etc/kubernetes/static-pod-resources/configmaps/controller-manager-kubeconfig/kubeconfig \\\n  \
                --client-ca-file=/etc/kubernetes/static-pod-certs/configmaps/client-ca/ca-bundle.crt\n";
            let recovery = "exec cluster-kube-controller-manager-operator cert-recovery-controller \
                --kubeconfig=/etc/kubernetes/static-pod-resources/configmaps/kube-controller-cert-syncer-kubeconfig/kubeconfig --namespace=${POD_NAMESPACE}";
            let pod = pod(
                pod_name,
                pod_name,
                revision,
                json!([
                    container(
                        pod_name,
                        &["/bin/bash", "-euxo", "pipefail", "-c"],
                        &[script]
                    ),
                    container(
                        "kube-controller-manager-recovery-controller",
                        &["/bin/bash", "-euxo", "pipefail", "-c"],
                        &[recovery],
                    ),
                ]),
            );
            self.manifest(pod_name, revision, &pod.to_string());
        }
    }

    fn write_scheduler(&self) {
        let (pod_name, certs) = ("kube-scheduler", "kube-scheduler-certs");
        let (name, subject) = ("kube-scheduler-client-cert-key", "system:kube-scheduler");
        self.tls(certs, name, subject, "kube-control-plane-signer");
        for &revision in &self.plane.revisions {
            let own = format!("{pod_name}-pod-{revision}");
            let maps = format!("{own}/configmaps");
            self.token(&format!("{own}/secrets/localhost-recovery-client-token"));
            for name in [
                "scheduler-kubeconfig",
                "kube-scheduler-cert-syncer-kubeconfig",
            ] {
                self.config(&format!("{maps}/{name}/kubeconfig"), "kind: Config\n");
            }
            self.config(
                &format!("{maps}/config/config.yaml"),
                "kind: KubeSchedulerConfiguration\n",
            );
            self.pod_map(&maps, pod_name, revision);
            let pod = pod(
                pod_name,
                "openshift-kube-scheduler",
                revision,
                json!([container(
                    pod_name,
                    &["hyperkube", "kube-scheduler"],
                    &[
                        "--config=/etc/kubernetes/static-pod-resources/configmaps/config/config.yaml",
                        "--cert-dir=/var/run/kubernetes",
                        "--authentication-kubeconfig=/etc/kubernetes/static-pod-resources/configmaps/scheduler-kubeconfig/kubeconfig",
                    ],
                )]),
            );
            self.manifest(pod_name, revision, &pod.to_string());
        }
    }

    fn write_etcd(&self) {
        let node = NODES[0];
        let directories = self.plane.revisions.iter();
        let directories = directories.map(|revision| format!("etcd-pod-{revision}"));
        let directories: Vec<String> = directories.chain(["etcd-certs".to_owned()]).collect();
        for name in &self.plane.nodes {
            for (kind, signer) in [
                ("etcd-peer", "etcd-signer"),
                ("etcd-serving", "etcd-signer"),
                ("etcd-serving-metrics", "etcd-metrics-signer"),
            ] {
                let stem = format!("{kind}-{name}");
                let pair = self.pair(&stem, &format!("system:{kind}:{name}"), signer);
                for directory in &directories {
                    let place = format!("{directory}/secrets/etcd-all-certs/{stem}");
                    self.secret(&format!("{place}.crt"), &pair.certificate);
                    self.secret(&format!("{place}.key"), &pair.key);
                }
            }
        }
        let mut variables = String::new();
        for (index, name) in self.plane.nodes.iter().enumerate() {
            let address = format!("192.0.2.{}", 11 + index);
            let name_in_shell = name.replace('-', "_");
            variables += &format!(
                "export NODE_{name_in_shell}_ETCD_NAME=\"{name}\"\nexport NODE_{name_in_shell}_ETCD_URL_HOST=\"{address}\"\n\
                 export NODE_{name_in_shell}_IP=\"{address}\"\n"
            );
        }
        for directory in &directories {
            let bundles = format!("{directory}/configmaps/etcd-all-bundles");
            self.bundle(&format!("{bundles}/server-ca-bundle.crt"), &["etcd-signer"]);
            self.bundle(
                &format!("{bundles}/metrics-ca-bundle.crt"),
                &["etcd-metrics-signer"],
            );
        }
        let scripts = "etcd-certs/configmaps/etcd-scripts";
        self.config(&format!("{scripts}/etcd.env"), &variables);
        self.config(&format!("{scripts}/cluster-backup.sh"), "#!/bin/sh\n");
        for &revision in &self.plane.revisions {
            let maps = format!("etcd-pod-{revision}/configmaps");
            self.config(
                &format!("{maps}/etcd-endpoints/MTkyLjAuMi4xMQ"),
                "192.0.2.11",
            );
            self.pod_map(&maps, "etcd", revision);
            self.manifest("etcd", revision, &etcd_manifest(node, revision));
        }
    }

    /// The kubelet's, as it keeps them: a link to a file with certificate and key.
    fn write_kubelet(&self) {
        fs::create_dir_all(self.root.path(KUBELET_PKI)).unwrap();
        for kind in ["client", "server"] {
            let life = format!("kubelet-{kind}-current");
            let subject = format!("system:node:{}", NODES[0]);
            let pair = self.pair(&life, &subject, "csr-signer-signer");
            let name = format!("kubelet-{kind}-2026-01-31-12-00-00.pem");
            let path = format!("{KUBELET_PKI}/{name}");
            self.root.write(&path, &(pair.certificate + &pair.key));
            self.root.chmod(&path, 0o600);
            let link = format!("{KUBELET_PKI}/{life}.pem");
            if self.root.exists(&link) {
                self.root.remove(&link);
            }
            self.root.link(&link, &format!("/{path}"));
        }
    }
}

fn kubeconfig(host: &str, authority: &str, admin: &Pair) -> String {
    let [authority, certificate, key] =
        [authority, &admin.certificate, &admin.key].map(|text| BASE64_STANDARD.encode(text));
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: c\n  cluster:\n    certificate-authority-data: {authority}\n    \
         server: https://{host}\nusers:\n- name: system:admin\n  user:\n    client-certificate-data: {certificate}\n    \
         client-key-data: {key}\n"
    )
}

fn apiserver_config() -> Value {
    let certs = "/etc/kubernetes/static-pod-certs";
    let resources = "/etc/kubernetes/static-pod-resources";
    json!({
        "kind": "KubeAPIServerConfig",
        "apiServerArguments": {
            "audit-log-path": ["/var/log/kube-apiserver/audit.log"],
            "audit-policy-file": [format!("{resources}/configmaps/kube-apiserver-audit-policies/policy.yaml")],
            "client-ca-file": [format!("{certs}/configmaps/client-ca/ca-bundle.crt")],
            "etcd-cafile": [format!("{resources}/configmaps/etcd-serving-ca/ca-bundle.crt")],
            "etcd-certfile": [format!("{resources}/secrets/etcd-client/tls.crt")],
            "etcd-keyfile": [format!("{resources}/secrets/etcd-client/tls.key")],
            "etcd-servers": ["https://192.0.2.11:2379"],
            "kubelet-certificate-authority": [format!("{resources}/configmaps/kubelet-serving-ca/ca-bundle.crt")],
            "kubelet-client-certificate": [format!("{certs}/secrets/kubelet-client/tls.crt")],
            "kubelet-client-key": [format!("{certs}/secrets/kubelet-client/tls.key")],
            "proxy-client-cert-file": [format!("{certs}/secrets/aggregator-client/tls.crt")],
            "service-account-key-file": [
                format!("{resources}/configmaps/sa-token-signing-certs/service-account-001.pub"),
                format!("{resources}/configmaps/bound-sa-token-signing-certs"),
            ],
            "tls-cert-file": [format!("{certs}/secrets/service-network-serving-certkey/tls.crt")],
        },
        "authConfig": {"oauthMetadataFile": ""},
    })
}

fn container(name: &str, command: &[&str], args: &[&str]) -> Value {
    json!({
        "name": name,
        "image": "quay.example/release@sha256:0123",
        "command": command,
        "args": args,
        "env": [{"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}],
        "volumeMounts": [
            {"mountPath": "/etc/kubernetes/static-pod-resources", "name": "resource-dir"},
            {"mountPath": "/etc/kubernetes/static-pod-certs", "name": "cert-dir"},
        ],
    })
}

fn pod(name: &str, pod_name: &str, revision: u32, containers: Value) -> Value {
    json!({
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": pod_name,
            "namespace": format!("openshift-{name}"),
            "labels": {"app": name, "revision": revision.to_string()},
        },
        "spec": {
            "hostNetwork": true,
            "containers": containers,
            "volumes": [
                {"name": "resource-dir",
                 "hostPath": {"path": format!("/{RESOURCES}/{name}-pod-{revision}")}},
                {"name": "cert-dir", "hostPath": {"path": format!("/{RESOURCES}/{name}-certs")}},
                {"name": "tmp-dir", "emptyDir": {}},
            ],
        },
    })
}

fn etcd_manifest(node: &str, revision: u32) -> String {
    let certs = "/etc/kubernetes/static-pod-certs";
    let own = format!("{certs}/secrets/etcd-all-certs");
    let bundle = format!("{certs}/configmaps/etcd-all-bundles/server-ca-bundle.crt");
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: etcd\n  namespace: openshift-etcd\n  labels:\n    app: etcd\n    \
         revision: \"{revision}\"\nspec:\n  initContainers:\n  - name: etcd-resources-copy\n    command:\n    - /bin/sh\n    - -c\n    - |\n      \
         cp -p {certs}/configmaps/etcd-scripts/*.sh /usr/local/bin\n    volumeMounts:\n    - {{mountPath: {certs}, name: cert-dir}}\n  \
         containers:\n  - name: etcd\n    command:\n    - /bin/sh\n    - -c\n    - |\n      set -euo pipefail\n      \
         exec nice -n -19 etcd \\\n        --cert-file={own}/etcd-serving-{node}.crt \\\n        \
         --key-file={own}/etcd-serving-{node}.key \\\n        --trusted-ca-file={bundle} \\\n        \
         --peer-cert-file={own}/etcd-peer-{node}.crt \\\n        --peer-key-file={own}/etcd-peer-{node}.key \\\n        \
         --initial-advertise-peer-urls=https://${{NODE_IP}}:2380 || mv /etc/kubernetes/etcd-backup-dir/etcd-member.yaml /etc/kubernetes/manifests\n    \
         env:\n    - name: ETCDCTL_CERT\n      value: {own}/etcd-peer-{node}.crt\n    - name: ETCD_STATIC_POD_VERSION\n      value: \"{revision}\"\n    \
         volumeMounts:\n    - {{mountPath: /etc/kubernetes/manifests, name: static-pod-dir}}\n    - {{mountPath: /etc/kubernetes/static-pod-resources, name: resource-dir}}\n    \
         - {{mountPath: {certs}, name: cert-dir}}\n    - {{mountPath: /var/lib/etcd/, name: data-dir}}\n  \
         volumes:\n  - {{name: static-pod-dir, hostPath: {{path: /{MANIFESTS}}}}}\n  - {{name: resource-dir, hostPath: {{path: /{RESOURCES}/etcd-pod-{revision}}}}}\n  \
         - {{name: cert-dir, hostPath: {{path: /{RESOURCES}/etcd-certs}}}}\n  - {{name: data-dir, hostPath: {{path: /var/lib/etcd, type: \"\"}}}}\n"
    )
}
