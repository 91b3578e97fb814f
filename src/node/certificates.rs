//! The certificates of a node: subject, validity and file. Private keys are never stored.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::base::paths;
use crate::host::net;
use crate::host::root::{Root, RootPath};
use crate::node::{RootError, authorities};

/// The purpose of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateRole {
    /// Kubelet client certificate, presented to the API.
    KubeletClient,
    /// Kubelet serving certificate, presented to clients that request logs.
    KubeletServing,
    /// Authority of the kubelet's clients.
    ClientAuthority,
    /// Authority of the API and of the Machine Config Server.
    ServerAuthority,
    /// Authority in the pointer config, which the first boot trusts.
    Pointer,
    /// Certificate of an etcd member.
    Etcd,
}

/// A certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// Its purpose.
    pub role: CertificateRole,
    /// Path of its file.
    pub path: String,
    /// Its subject.
    pub subject: String,
    /// Start of its validity, in seconds since 1970.
    pub not_before: u64,
    /// End of its validity, in seconds since 1970.
    pub not_after: u64,
}

/// Files with a single purpose.
const FILES: [(&str, CertificateRole); 9] = [
    (paths::KUBELET_CLIENT, CertificateRole::KubeletClient),
    (paths::KUBELET_SERVING, CertificateRole::KubeletServing),
    (
        "etc/kubernetes/kubelet-ca.crt",
        CertificateRole::ClientAuthority,
    ),
    ("etc/kubernetes/ca.crt", CertificateRole::ServerAuthority),
    (paths::KUBECONFIG, CertificateRole::ServerAuthority),
    (paths::KUBELET_KUBECONFIG, CertificateRole::ServerAuthority),
    (paths::SERVER, CertificateRole::ServerAuthority),
    ("boot/ignition/config.ign", CertificateRole::Pointer),
    ("usr/lib/ignition/user.ign", CertificateRole::Pointer),
];

/// Returns the certificates, and the errors of files that cannot be read.
pub fn read_certificates(root: &Root) -> (Vec<Certificate>, Vec<String>) {
    let (mut all, mut unseen) = (Vec::new(), Vec::new());
    let fixed = FILES.map(|(path, role)| (RootPath::fixed(path), role));
    let of_etcd = of_etcd(root).unwrap_or_else(|error| {
        unseen.push(error.to_string());
        Vec::new()
    });
    for (path, role) in fixed.into_iter().chain(of_etcd) {
        match root.read(&path) {
            Ok(Some(bytes)) => {
                let found = of_file(&path, role, &bytes);
                // A kubeconfig or a pointer need not bring an authority.
                let is_own = matches!(
                    role,
                    CertificateRole::KubeletClient | CertificateRole::KubeletServing
                );
                if found.is_empty() && is_own {
                    unseen.push(format!("{path}: no certificate in it can be read"));
                }
                all.extend(found);
            }
            Ok(None) => {}
            Err(error) => unseen.push(error.to_string()),
        }
    }
    (all, unseen)
}

fn of_etcd(root: &Root) -> Result<Vec<(RootPath, CertificateRole)>, RootError> {
    let folder = RootPath::fixed(paths::ETCD_CERTIFICATES);
    let names = root.list(&folder)?.into_iter();
    let certificates = names.filter(|name| name.ends_with(".crt"));
    Ok(certificates
        .filter_map(|name| Some((folder.join(&name).ok()?, CertificateRole::Etcd)))
        .collect())
}

fn of_file(path: &RootPath, role: CertificateRole, bytes: &[u8]) -> Vec<Certificate> {
    let blocks = authorities::to_pem(bytes);
    let shown = net::system_certificates(blocks.as_bytes());
    let shown = shown.iter().filter_map(|der| net::read_certificate(der));
    let all = shown.map(|one| Certificate {
        role,
        path: path.to_string(),
        subject: one.subject,
        not_before: seconds_of_time(one.not_before),
        not_after: seconds_of_time(one.not_after),
    });
    all.collect()
}

/// Returns the seconds since 1970.
pub(super) fn seconds_of_time(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map(|since| since.as_secs())
        .unwrap_or_default()
}
