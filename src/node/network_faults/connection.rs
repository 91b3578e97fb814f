//! A connection profile of NetworkManager, as far as its faults can be judged.

use crate::host::root::RootPath;
use crate::node::network_manager::KEYFILE_ENDING;
use crate::node::platform::sections::parse_assignments;

/// The plain fields of a connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ConnectionProfile {
    pub(super) path: String,
    pub(super) directory: String,
    pub(super) id: String,
    pub(super) uuid: Option<String>,
    pub(super) kind: String,
    pub(super) interface: Option<String>,
    /// The permanent MAC address that it is bound to, in upper case.
    pub(super) mac: Option<String>,
    pub(super) controller: Option<String>,
    pub(super) port_type: Option<String>,
    /// The parent of a VLAN.
    pub(super) parent: Option<String>,
    /// It starts by itself.
    pub(super) starts: bool,
    pub(super) priority: String,
    /// It is limited to some users, or to more than interface and address.
    pub(super) is_narrow: bool,
    /// Its addresses and methods.
    pub(super) addresses: Vec<(String, String)>,
}

impl ConnectionProfile {
    /// Parses a keyfile; `None` if it has no type.
    pub(super) fn parse(path: RootPath, text: &str) -> Option<Self> {
        let mut found = Self {
            id: path.name().trim_end_matches(KEYFILE_ENDING).to_owned(),
            directory: path
                .parent()
                .map(|path| path.to_string())
                .unwrap_or_default(),
            path: path.to_string(),
            starts: true,
            priority: "0".to_owned(),
            ..Self::default()
        };
        for one in parse_assignments(text) {
            let value = one.value.to_owned();
            let some = || Some(value.clone()).filter(|value| !value.is_empty());
            match (one.section, one.key) {
                ("connection", "id") => found.id = value,
                ("connection", "uuid") => found.uuid = some(),
                ("connection", "type") => found.kind = plain_kind(&value).to_owned(),
                ("connection", "interface-name") => found.interface = some(),
                ("connection", "master" | "controller") => found.controller = some(),
                ("connection", "slave-type" | "port-type") => found.port_type = some(),
                ("connection", "autoconnect") => found.starts = value != "false" && value != "0",
                ("connection", "autoconnect-priority") => found.priority = value,
                ("connection", "permissions") | ("match", _) => {
                    found.is_narrow |= !value.is_empty()
                }
                ("ethernet" | "802-3-ethernet", "mac-address") => {
                    found.mac = some().map(|mac| mac.to_ascii_uppercase().replace('-', ":"));
                }
                ("vlan", "parent") => found.parent = some(),
                ("ipv4" | "ipv6", key) if key == "method" || key.starts_with("address") => {
                    found
                        .addresses
                        .push((format!("{}.{key}", one.section), value));
                }
                _ => {}
            }
        }
        (!found.kind.is_empty()).then_some(found)
    }

    /// Returns true for connections of Open vSwitch, which configure-ovs.sh generates.
    pub(super) fn is_ovs(&self) -> bool {
        let of_ovs = |kind: &String| kind.starts_with("ovs-");
        of_ovs(&self.kind)
            || self.port_type.as_ref().is_some_and(of_ovs)
            || self.id.starts_with("ovs-")
    }

    /// Returns true if a port can refer to this connection by this name.
    pub(super) fn is_named(&self, name: &str) -> bool {
        [&self.interface, &self.uuid]
            .into_iter()
            .flatten()
            .any(|own| own == name)
    }

    /// Returns what the two have in common, if NetworkManager uses only one of them and they differ.
    pub(super) fn stands_against(&self, other: &Self) -> Option<String> {
        if self.uuid.is_some() && self.uuid == other.uuid && self.directory == other.directory {
            let differ = (&self.id, &self.interface, &self.addresses)
                != (&other.id, &other.interface, &other.addresses);
            return differ.then(|| "it has the same uuid".to_owned());
        }
        let starts = |one: &Self| one.starts && !one.is_narrow && !one.is_ovs();
        let alike = self.kind == other.kind && self.priority == other.priority;
        let differ = (&self.addresses, &self.controller) != (&other.addresses, &other.controller);
        if !(starts(self) && starts(other) && alike && differ) {
            return None;
        }
        let shares = |one: &Option<String>, other: &Option<String>| {
            one.as_ref()
                .filter(|one| Some(*one) == other.as_ref())
                .cloned()
        };
        let name =
            shares(&self.interface, &other.interface).or_else(|| shares(&self.mac, &other.mac))?;
        Some(format!("it is for {name}, with the same priority"))
    }
}

/// Returns the current name of a connection type.
fn plain_kind(kind: &str) -> &str {
    match kind {
        "802-3-ethernet" => "ethernet",
        other => other,
    }
}
