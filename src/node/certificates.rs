//! The certificates that a node keeps: whose, from when to when, and in which file. Keys are never kept.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::net;
use crate::node::authorities;
use crate::paths;
use crate::root::{Root, RootPath};

/// What a certificate is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The kubelet shows it to the API.
    KubeletClient,
    /// The kubelet shows it to whoever asks for logs.
    KubeletServing,
    /// Whom the kubelet believes when somebody asks it.
    ClientAuthority,
    /// Whom the node believes to be the API, or the Machine Config Server.
    ServerAuthority,
    /// What the node was provisioned with: whom the first boot believes.
    Pointer,
    /// Of a member of etcd.
    Etcd,
}

/// One certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// What it is for.
    pub role: Role,
    /// Its file.
    pub path: String,
    /// Whose it is.
    pub subject: String,
    /// Seconds since 1970.
    pub not_before: u64,
    /// Seconds since 1970.
    pub not_after: u64,
}

/// Files with one purpose each.
const FILES: [(&str, Role); 9] = [
    (paths::KUBELET_CLIENT, Role::KubeletClient),
    (paths::KUBELET_SERVING, Role::KubeletServing),
    ("etc/kubernetes/kubelet-ca.crt", Role::ClientAuthority),
    ("etc/kubernetes/ca.crt", Role::ServerAuthority),
    (paths::KUBECONFIG, Role::ServerAuthority),
    (paths::KUBELET_KUBECONFIG, Role::ServerAuthority),
    (paths::SERVER, Role::ServerAuthority),
    ("boot/ignition/config.ign", Role::Pointer),
    ("usr/lib/ignition/user.ign", Role::Pointer),
];

/// The certificates, and why some files could not be read.
pub fn read(root: &Root) -> (Vec<Certificate>, Vec<String>) {
    let (mut all, mut unseen) = (Vec::new(), Vec::new());
    let fixed = FILES.map(|(path, role)| (RootPath::fixed(path), role));
    for (path, role) in fixed.into_iter().chain(of_etcd(root)) {
        match root.read(&path) {
            Ok(Some(bytes)) => all.extend(of_file(&path, role, &bytes)),
            Ok(None) => {}
            Err(error) => unseen.push(error.to_string()),
        }
    }
    (all, unseen)
}

fn of_etcd(root: &Root) -> Vec<(RootPath, Role)> {
    let folder = RootPath::fixed(paths::ETCD_CERTIFICATES);
    let names = root.list(&folder).unwrap_or_default().into_iter();
    let certificates = names.filter(|name| name.ends_with(".crt"));
    certificates
        .filter_map(|name| Some((folder.join(&name).ok()?, Role::Etcd)))
        .collect()
}

fn of_file(path: &RootPath, role: Role, bytes: &[u8]) -> Vec<Certificate> {
    let blocks = authorities::pem(bytes);
    let shown = net::system_certificates(blocks.as_bytes());
    let shown = shown.iter().filter_map(|der| net::read_certificate(der));
    let all = shown.map(|one| Certificate {
        role,
        path: path.to_string(),
        subject: one.subject,
        not_before: seconds(one.not_before),
        not_after: seconds(one.not_after),
    });
    all.collect()
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map(|since| since.as_secs())
        .unwrap_or_default()
}
