//! The network configuration of a node, from files: connections of NetworkManager, and the configs of the cluster
//! network.

use sysinfo::Networks;

use super::network_manager::{self, KeyfileRefusal};
use crate::base::kargs::Kargs;
use crate::config::document::MachineConfig;
use crate::host::root::{Root, RootPath};

/// Directories of multus and the cluster network; the second does not survive a reboot.
const CLUSTER: [&str; 3] = [
    "etc/kubernetes/cni/net.d",
    "run/multus/cni/net.d",
    "etc/cni/net.d",
];
/// The unit that creates the node's bridge, with the cluster network as its argument.
const BRIDGE_UNIT: &str = "ovs-configuration.service";

/// The network configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Network {
    /// Connections.
    pub keyfiles: Vec<Keyfile>,
    /// Directories that could not be read, with the reason.
    pub unseen: Vec<String>,
    /// Configs of the cluster network: path and owner.
    pub cluster: Vec<(String, &'static str)>,
    /// The network interfaces of the machine; only for a running system.
    pub interfaces: Option<Vec<String>>,
}

/// A connection of NetworkManager.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keyfile {
    /// Path of its file.
    pub path: String,
    /// `id`, or the file name if there is none.
    pub id: String,
    /// Type, such as `ethernet`, `ovs-bridge`.
    pub kind: String,
    /// The interface that it is bound to.
    pub interface: Option<String>,
    /// The connection that it is a port of.
    pub controller: Option<String>,
    /// The file is empty.
    pub empty: bool,
    /// The reason why NetworkManager rejects the file.
    pub refused: Option<KeyfileRefusal>,
}

impl Keyfile {
    /// Returns true if NetworkManager accepts the file.
    pub fn is_in_force(&self) -> bool {
        !self.empty && self.refused.is_none()
    }
}

/// Reads the network configuration.
pub fn read_network(root: &Root) -> Network {
    let mut network = Network::default();
    let mut unread = Vec::new();
    let connections = network_manager::read_connections(root, &mut unread);
    network
        .unseen
        .extend(unread.iter().map(ToString::to_string));
    let keyfiles = connections.into_iter().map(|one| Keyfile {
        refused: one.refused,
        ..parse_keyfile(&one.path, &one.text)
    });
    network.keyfiles = keyfiles.collect();
    for folder in CLUSTER.map(RootPath::fixed) {
        for path in list_names(root, &folder, &mut network.unseen) {
            let whose = cluster_network_of(path.name());
            network
                .cluster
                .extend(whose.map(|whose| (path.to_string(), whose)));
        }
    }
    network.interfaces = root.is_live().then(list_interfaces).flatten();
    network
}

fn list_names(root: &Root, folder: &RootPath, unseen: &mut Vec<String>) -> Vec<RootPath> {
    let names = root.list(folder).unwrap_or_else(|error| {
        unseen.push(error.to_string());
        Vec::new()
    });
    names
        .into_iter()
        .filter_map(|name| folder.join(&name).ok())
        .collect()
}

fn list_interfaces() -> Option<Vec<String>> {
    let all = Networks::new_with_refreshed_list().ok()?;
    let mut names: Vec<String> = all
        .keys()
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    names.sort();
    // Every system has an interface; without /sys they are unknown.
    Some(names).filter(|names| !names.is_empty())
}

/// Returns the cluster network that writes a config with this file name.
fn cluster_network_of(name: &str) -> Option<&'static str> {
    match name {
        "10-ovn-kubernetes.conf" => Some(OVN),
        "80-openshift-network.conf" => Some(SDN),
        _ => None,
    }
}

/// Name of OVN-Kubernetes in configs.
pub const OVN: &str = "OVNKubernetes";
/// Name of OpenShift SDN in configs.
pub const SDN: &str = "OpenShiftSDN";

/// Returns true if these arguments disable IPv6 in the kernel; OVN-Kubernetes does not run without it.
pub fn disables_ipv6(arguments: &Kargs) -> bool {
    let values = arguments.tokens().iter();
    let mut values = values.filter_map(|token| token.strip_prefix("ipv6.disable="));
    values.next_back().is_some_and(|value| value != "0")
}

/// The kernel argument that keeps OVN-Kubernetes from running.
pub const DISABLED_IPV6: &str = "ipv6.disable=1";
/// The message about it.
pub const WITHOUT_IPV6: &str = "OVN-Kubernetes does not run with ipv6.disable=1";

/// Returns true if the cluster network is OVN-Kubernetes, which needs IPv6 in the kernel. Decided by the node's config, or else
/// by the existing configs of the cluster network.
pub fn needs_ipv6(config: Option<&MachineConfig>, network: Option<&Network>) -> bool {
    let runs = |network: &Network| network.cluster.iter().any(|(_, whose)| *whose == OVN);
    match config.and_then(of_config) {
        Some(prepared) => prepared == OVN,
        None => network.is_some_and(runs),
    }
}

/// Returns the cluster network that a config sets up, if it names one.
pub fn of_config(config: &MachineConfig) -> Option<&'static str> {
    let units = &config.ignition.systemd.units;
    let unit = units.iter().find(|unit| unit.name == BRIDGE_UNIT)?;
    let text = unit.contents.as_deref()?;
    let starts = text.lines().filter(|line| line.starts_with("ExecStart="));
    let words: Vec<&str> = starts.flat_map(str::split_whitespace).collect();
    [OVN, SDN].into_iter().find(|name| words.contains(name))
}

/// Parses the plain fields of a keyfile, never its secrets.
fn parse_keyfile(path: &RootPath, text: &str) -> Keyfile {
    let mut section = "";
    let mut found = Keyfile {
        path: path.to_string(),
        id: path.name().trim_end_matches(".nmconnection").to_owned(),
        empty: text
            .trim_matches(|c: char| c.is_whitespace() || c == '\0')
            .is_empty(),
        ..Keyfile::default()
    };
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
        }
        let Some((key, value)) = line.split_once('=').filter(|_| section == "connection") else {
            continue;
        };
        let value = value.trim().to_owned();
        match key.trim() {
            "id" => found.id = value,
            "type" => found.kind = value,
            "interface-name" => found.interface = Some(value),
            "master" | "controller" => found.controller = Some(value),
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keyfile_is_known_by_its_connection_section_alone() {
        let path = RootPath::parse("/etc/x/a.nmconnection").unwrap();
        let text = "[connection]\nid=br-ex\ntype=ovs-bridge\ninterface-name=br-ex\n[wifi-security]\npsk=x\nid=no\n";
        let found = parse_keyfile(&path, text);
        assert_eq!(
            (found.id.as_str(), found.kind.as_str()),
            ("br-ex", "ovs-bridge")
        );
        assert_eq!(found.interface.as_deref(), Some("br-ex"));
        assert!(!found.empty);
        let gone = parse_keyfile(&path, &"\0".repeat(12));
        assert!(gone.empty);
        assert_eq!(gone.id, "a");
    }
}
