//! The addresses that parts of a node have stored as the node's own: kubelet, CRI-O, etcd, and the certificates.

use std::net::IpAddr;

use super::host_name::find_variable;
use crate::base::paths;
use crate::host::net;
use crate::host::root::{Root, RootPath};
use crate::node::etcd;

/// The address that was chosen for the kubelet.
const KUBELET: &str = "etc/systemd/system/kubelet.service.d/20-nodenet.conf";
/// The same for CRI-O.
const CRIO: &str = "etc/systemd/system/crio.service.d/20-nodenet.conf";
/// The hint of an admin: any address in the network of the node's address.
const HINT: &str = "etc/default/nodeip-configuration";
/// Variables of etcd's pod.
const ETCD_ENV: &str =
    "etc/kubernetes/static-pod-resources/etcd-certs/configmaps/etcd-scripts/etcd.env";

/// A part of a node that has stored an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressHolder {
    /// The kubelet, which reports it to the API.
    Kubelet,
    /// CRI-O.
    Crio,
    /// etcd's variables.
    Etcd,
    /// The certificate that etcd's members present to each other.
    EtcdCertificate,
    /// The kubelet's serving certificate.
    Serving,
}

/// Addresses that a part of the node has stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptAddress {
    /// Path of the file.
    pub place: String,
    /// The part that stores them.
    pub holder: AddressHolder,
    /// The variable, or the field of the certificate.
    pub key: String,
    /// The addresses, the preferred one first.
    pub addresses: Vec<IpAddr>,
}

/// The addresses of a node, according to its files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeAddresses {
    /// Each file's.
    pub kept: Vec<KeptAddress>,
    /// The address in the hint.
    pub hint: Option<IpAddr>,
    /// The node belongs to the control plane.
    pub control_plane: bool,
    /// Files that could not be read, with the reason.
    pub unseen: Vec<String>,
}

impl NodeAddresses {
    /// Returns the addresses that a part has stored.
    pub fn addresses_of(&self, holder: AddressHolder) -> Option<&KeptAddress> {
        self.kept.iter().find(|one| one.holder == holder)
    }
}

/// Reads the addresses. `names` are the names of this node: files and variables of etcd also have those of the other nodes.
pub fn read_node_addresses(root: &Root, names: &[&str]) -> NodeAddresses {
    let mut found = NodeAddresses::default();
    match etcd::is_here(root) {
        Ok(is_here) => found.control_plane = is_here,
        Err(error) => found.unseen.push(error.to_string()),
    }
    found.add_variable(
        root,
        KUBELET,
        AddressHolder::Kubelet,
        &["KUBELET_NODE_IP", "KUBELET_NODE_IPS"],
    );
    found.add_variable(
        root,
        CRIO,
        AddressHolder::Crio,
        &["CONTAINER_STREAM_ADDRESS"],
    );
    for name in names {
        let name = name.replace(['-', '.'], "_");
        let key = format!("NODE_{name}_IP");
        if found.addresses_of(AddressHolder::Etcd).is_none() {
            found.add_variable(root, ETCD_ENV, AddressHolder::Etcd, &[&key]);
        }
    }
    for name in names {
        let file = format!("/{}/etcd-peer-{name}.crt", paths::ETCD_CERTIFICATES);
        if found.addresses_of(AddressHolder::EtcdCertificate).is_none()
            && let Ok(path) = RootPath::parse(&file)
        {
            found.add_certificate(root, &path, AddressHolder::EtcdCertificate);
        }
    }
    let serving = RootPath::fixed(paths::KUBELET_SERVING);
    found.add_certificate(root, &serving, AddressHolder::Serving);
    let hint = found
        .read_text(root, &RootPath::fixed(HINT))
        .unwrap_or_default();
    let hint =
        find_variable(&hint, "NODEIP_HINT").or_else(|| find_variable(&hint, "KUBELET_NODEIP_HINT"));
    found.hint = hint.and_then(|hint| hint.parse().ok());
    found
}

impl NodeAddresses {
    fn read_text(&mut self, root: &Root, path: &RootPath) -> Option<String> {
        match root.read_small(path) {
            Ok(bytes) => Some(String::from_utf8_lossy(&bytes?).into_owned()),
            Err(error) => {
                self.unseen.push(error.to_string());
                None
            }
        }
    }

    /// Adds the addresses in variables, in the order of the variables.
    fn add_variable(
        &mut self,
        root: &Root,
        file: &'static str,
        holder: AddressHolder,
        keys: &[&str],
    ) {
        let path = RootPath::fixed(file);
        let Some(text) = self.read_text(root, &path) else {
            return;
        };
        let values = keys.iter().filter_map(|key| find_variable(&text, key));
        let mut addresses = Vec::new();
        for address in values.flat_map(|value| parse_list(&value)) {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        let key = keys.first().copied().unwrap_or_default();
        self.add_addresses(path.to_string(), holder, key, addresses);
    }

    fn add_certificate(&mut self, root: &Root, path: &RootPath, holder: AddressHolder) {
        let Some(text) = self.read_text(root, path) else {
            return;
        };
        // The first certificate of the chain is the node's own.
        let chain = net::system_certificates(text.as_bytes());
        let addresses = chain.first().map(|der| net::read_addresses(der));
        let addresses = addresses.unwrap_or_default();
        self.add_addresses(path.to_string(), holder, "IP Address", addresses);
    }

    /// Adds addresses, except wildcard and loopback addresses, which do not identify the node.
    fn add_addresses(
        &mut self,
        place: String,
        holder: AddressHolder,
        key: &str,
        mut addresses: Vec<IpAddr>,
    ) {
        addresses.retain(|address| !address.is_unspecified() && !address.is_loopback());
        if !addresses.is_empty() {
            self.kept.push(KeptAddress {
                place,
                holder,
                key: key.to_owned(),
                addresses,
            });
        }
    }
}

fn parse_list(text: &str) -> Vec<IpAddr> {
    let parts = text
        .split(',')
        .map(|part| part.trim().trim_matches(['[', ']']));
    parts.filter_map(|part| part.parse().ok()).collect()
}
