//! The network configuration of a node, as files tell it: connections of NetworkManager, and the configs of the
//! cluster network.

use sysinfo::Networks;

use crate::document::MachineConfig;
use crate::root::{Root, RootPath};

/// Where NetworkManager has its connections.
const KEYFILES: [&str; 2] = [
    "etc/NetworkManager/system-connections",
    "run/NetworkManager/system-connections",
];
/// Where multus and the cluster network put their configs; the second one is gone with the boot.
const CLUSTER: [&str; 3] = [
    "etc/kubernetes/cni/net.d",
    "run/multus/cni/net.d",
    "etc/cni/net.d",
];
/// The unit that makes the node's bridge, with the cluster network as its argument.
const BRIDGE_UNIT: &str = "ovs-configuration.service";

/// The files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Network {
    /// Connections.
    pub keyfiles: Vec<Keyfile>,
    /// Directories that could not be read, with the reason.
    pub unseen: Vec<String>,
    /// Configs of the cluster network: where, and whose.
    pub cluster: Vec<(String, &'static str)>,
    /// The network interfaces that there are; of a running system only.
    pub interfaces: Option<Vec<String>>,
}

/// A connection of NetworkManager.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keyfile {
    /// Its file.
    pub path: String,
    /// `id`; else the name of the file.
    pub id: String,
    /// Such as `ethernet`, `ovs-bridge`.
    pub kind: String,
    /// The interface it is bound to.
    pub interface: Option<String>,
    /// The connection that it is a port of.
    pub controller: Option<String>,
    /// Its bytes are no keyfile, or there are none.
    pub empty: bool,
}

/// Reads them.
pub fn read(root: &Root) -> Network {
    let mut network = Network::default();
    for folder in KEYFILES.map(RootPath::fixed) {
        for path in names(root, &folder, &mut network.unseen) {
            match root.read(&path) {
                Ok(Some(bytes)) => network.keyfiles.push(keyfile(&path, &bytes)),
                Ok(None) => {}
                Err(error) => network.unseen.push(error.to_string()),
            }
        }
    }
    for folder in CLUSTER.map(RootPath::fixed) {
        for path in names(root, &folder, &mut network.unseen) {
            let whose = whose(path.name());
            network
                .cluster
                .extend(whose.map(|whose| (path.to_string(), whose)));
        }
    }
    network.interfaces = root.is_live().then(interfaces).flatten();
    network
}

fn names(root: &Root, folder: &RootPath, unseen: &mut Vec<String>) -> Vec<RootPath> {
    let names = root.list(folder).unwrap_or_else(|error| {
        unseen.push(error.to_string());
        Vec::new()
    });
    names
        .into_iter()
        .filter_map(|name| folder.join(&name).ok())
        .collect()
}

fn interfaces() -> Option<Vec<String>> {
    let all = Networks::new_with_refreshed_list().ok()?;
    let mut names: Vec<String> = all
        .keys()
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    names.sort();
    // Every system has one; without /sys nobody tells.
    Some(names).filter(|names| !names.is_empty())
}

/// Which cluster network writes a config of this name.
fn whose(name: &str) -> Option<&'static str> {
    match name {
        "10-ovn-kubernetes.conf" => Some(OVN),
        "80-openshift-network.conf" => Some(SDN),
        _ => None,
    }
}

/// OVN-Kubernetes, as configs name it.
pub const OVN: &str = "OVNKubernetes";
/// OpenShift SDN, as configs name it.
pub const SDN: &str = "OpenShiftSDN";

/// The cluster network that a config prepares the node for, where it says so.
pub fn of_config(config: &MachineConfig) -> Option<&'static str> {
    let units = &config.ignition.systemd.units;
    let unit = units.iter().find(|unit| unit.name == BRIDGE_UNIT)?;
    let text = unit.contents.as_deref()?;
    let starts = text.lines().filter(|line| line.starts_with("ExecStart="));
    let words: Vec<&str> = starts.flat_map(str::split_whitespace).collect();
    [OVN, SDN].into_iter().find(|name| words.contains(name))
}

/// What a keyfile says of itself; never its secrets.
fn keyfile(path: &RootPath, bytes: &[u8]) -> Keyfile {
    let text = String::from_utf8_lossy(bytes);
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
        let text = b"[connection]\nid=br-ex\ntype=ovs-bridge\ninterface-name=br-ex\n[wifi-security]\npsk=x\nid=no\n";
        let found = keyfile(&path, text);
        assert_eq!(
            (found.id.as_str(), found.kind.as_str()),
            ("br-ex", "ovs-bridge")
        );
        assert_eq!(found.interface.as_deref(), Some("br-ex"));
        assert!(!found.empty);
        let gone = keyfile(&path, &[0; 12]);
        assert!(gone.empty);
        assert_eq!(gone.id, "a");
    }
}
