//! The network of a node without DHCP: the initramfs does not read the connections, so it needs the network as kernel
//! arguments.

use super::NodeFiles;
use super::sections::parse_assignments;
use crate::node::network_manager::read_in_force;

/// Types of connections that can have addresses before the cluster's network is up.
const TYPES: [&str; 8] = [
    "ethernet",
    "802-3-ethernet",
    "bond",
    "vlan",
    "team",
    "bridge",
    "infiniband",
    "wifi",
];

/// The first connection with a static IPv4 address, on a node whose connections do not use DHCPv4.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StaticNetwork {
    /// Path of its file.
    pub place: String,
    /// The words there.
    pub said: String,
    /// Its interface, if it names one.
    pub interface: Option<String>,
    /// Its address.
    pub address: String,
    /// Length of its prefix.
    pub prefix: String,
    /// Its gateway; empty if it has none.
    pub gateway: String,
    /// Its name servers.
    pub servers: Vec<String>,
    /// A connection gets IPv6 addresses automatically.
    pub has_automatic_v6: bool,
}

/// Reads the connections; `None` if one uses DHCPv4 or none has a static address.
pub(super) fn read_static_network(files: &NodeFiles<'_>) -> Option<StaticNetwork> {
    let mut unseen = Vec::new();
    let keyfiles = read_in_force(files, &mut unseen);
    // A connection that cannot be read may be the one that uses DHCP.
    if !unseen.is_empty() {
        return None;
    }
    let mut found: Option<StaticNetwork> = None;
    let mut has_automatic_v6 = false;
    for (path, text) in keyfiles {
        let keyfile = Connection::parse(&text);
        if !keyfile.counts {
            continue;
        }
        if keyfile.method4 == "auto" {
            return None;
        }
        has_automatic_v6 |= ["auto", "dhcp"].contains(&keyfile.method6.as_str());
        if found.is_none() && keyfile.method4 == "manual" && !keyfile.network.address.is_empty() {
            found = Some(StaticNetwork {
                place: path.to_string(),
                ..keyfile.network
            });
        }
    }
    found.map(|network| StaticNetwork {
        has_automatic_v6,
        ..network
    })
}

/// The parts of a keyfile that matter here.
#[derive(Debug)]
struct Connection {
    /// It is a connection of the machine that is activated automatically.
    counts: bool,
    method4: String,
    method6: String,
    network: StaticNetwork,
}

impl Connection {
    fn parse(text: &str) -> Self {
        let (mut kind, mut is_port, mut starts) = (String::new(), false, true);
        // NetworkManager's own defaults.
        let (mut method4, mut method6) = ("auto".to_owned(), "auto".to_owned());
        let mut network = StaticNetwork::default();
        for one in parse_assignments(text) {
            let value = one.value.to_owned();
            match (one.section, one.key) {
                ("connection", "type") => kind = value,
                ("connection", "interface-name") => network.interface = Some(value),
                ("connection", "master" | "controller") => is_port = true,
                ("connection", "autoconnect") => starts = value != "false",
                ("ipv4", "method") => method4 = value,
                ("ipv6", "method") => method6 = value,
                ("ipv4", "address1" | "addresses1") => {
                    network.said = format!("[ipv4] {}={}", one.key, one.value);
                    let (address, gateway) = value.split_once(',').unwrap_or((&value, ""));
                    let (address, prefix) = address.split_once('/').unwrap_or((address, "24"));
                    network.address = address.trim().to_owned();
                    network.prefix = prefix.trim().to_owned();
                    if !gateway.is_empty() {
                        network.gateway = gateway.trim().to_owned();
                    }
                }
                ("ipv4", "gateway") => network.gateway = value,
                ("ipv4", "dns") => {
                    let all = value.split([';', ',']).map(str::trim);
                    let all = all.filter(|one| !one.is_empty());
                    network.servers = all.map(str::to_owned).collect();
                }
                _ => {}
            }
        }
        Self {
            counts: starts && !is_port && TYPES.contains(&kind.as_str()),
            method4,
            method6,
            network,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_connection_are_read() {
        let text = "[connection]\ntype=ethernet\ninterface-name=eno1\n[ipv4]\nmethod=manual\naddress1=192.0.2.5/25,192.0.2.1\n\
                    dns=192.0.2.53;192.0.2.54;\n[ipv6]\nmethod=disabled\n";
        let read = Connection::parse(text);
        assert!(read.counts);
        let wanted = StaticNetwork {
            said: "[ipv4] address1=192.0.2.5/25,192.0.2.1".to_owned(),
            interface: Some("eno1".to_owned()),
            address: "192.0.2.5".to_owned(),
            prefix: "25".to_owned(),
            gateway: "192.0.2.1".to_owned(),
            servers: vec!["192.0.2.53".to_owned(), "192.0.2.54".to_owned()],
            ..StaticNetwork::default()
        };
        assert_eq!(read.network, wanted);
        for other in [
            "[connection]\ntype=ovs-bridge\n",
            "[connection]\ntype=ethernet\nmaster=bond0\n",
            "[connection]\ntype=ethernet\nautoconnect=false\n",
            "",
        ] {
            assert!(!Connection::parse(other).counts, "{other}");
        }
    }
}
