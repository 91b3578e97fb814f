//! Network configuration on a node that has no effect: files that no program reads, connections that NetworkManager ignores,
//! and connections that contradict each other.
//!
//! Only names and addresses of a connection are kept, because a keyfile may contain secrets.

mod connection;
mod states;

use std::collections::BTreeMap;

use crate::base::order::StableOrder;
use crate::config::document::MachineConfig;
use crate::host::root::{EntryType, Root, RootPath};

use super::fault_group::{FaultEffect, FaultGroup, FaultWeight, group_faults};
use super::network_manager::{
    self, KEYFILE_ENDING, KEYFILES, NetworkManagerSettings, is_copy_name, is_keyfile_name,
};
use super::platform::node_files::NodeFiles;
use super::platform::sections::parse_assignments;
use super::platform::{NextConfig, link_files};
use connection::ConnectionProfile;

/// Directory whose subdirectories are searched for connections that are not read.
const NETWORK_MANAGER: &str = "etc/NetworkManager";

/// Files with the interfaces for br-ex and br-ex1, from which configure-ovs.sh creates the bridges.
const BRIDGES: [&str; 2] = ["etc/ovnk/default_bridge", "etc/ovnk/extra_bridge"];

/// The kind of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NetworkFaultKind {
    /// A configuration file keeps NetworkManager from starting.
    NotStarted,
    /// A setting moves the directory of connections, so that existing files are not read.
    OtherDirectory,
    /// NetworkManager does not manage the interface of a connection.
    Unmanaged,
    /// A settings file has a name or a directory that is not read.
    UnreadSettings,
    /// The same of a connection.
    UnreadConnection,
    /// The same for an nmstate state.
    UnreadState,
    /// The nmstate states are only for other hosts.
    StateOfOthers,
    /// nmstate rejects a state.
    BadState,
    /// Two connections want the same interface.
    TwoConnections,
    /// A port whose controller is missing or of the wrong type, or a bond without ports.
    Apart,
    /// A connection for an interface that another file renames.
    Renamed,
    /// The two bridges of OVN-Kubernetes use the same interface, or one that is missing.
    Bridge,
}

/// A fault in the network configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkFault {
    /// Its kind.
    pub kind: NetworkFaultKind,
    /// Path of the file.
    pub place: String,
    /// What is wrong with it.
    pub said: String,
}

/// The faults of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkFaults {
    /// The faults, by kind and place.
    pub all: Vec<NetworkFault>,
    /// Files that could not be read, with the reason.
    pub unseen: Vec<String>,
}

impl NetworkFaults {
    /// Returns the faults, grouped by kind. `config` is the one that the node is in.
    pub fn group_faults(
        &self,
        config: Option<&MachineConfig>,
    ) -> Vec<FaultGroup<NetworkFaultKind>> {
        let of_kind = |kind| {
            let all = self.all.iter().filter(|one| one.kind == kind);
            all.map(|one| (one.place.clone(), one.said.clone()))
                .collect()
        };
        let brings = |place: &str| config.is_some_and(|config| config.contains_file(place));
        // Files that a person left next to the config may be out of use on purpose.
        let is_left = |kind, faults: &[(String, String)]| {
            let may_be_left = matches!(
                kind,
                NetworkFaultKind::UnreadConnection | NetworkFaultKind::UnreadSettings
            );
            may_be_left && !faults.iter().any(|(place, _)| brings(place))
        };
        group_faults(&EFFECTS, of_kind, is_left)
    }
}

/// The effect of each kind: weight, what is wrong, and the consequence.
const EFFECTS: [FaultEffect<NetworkFaultKind>; 12] = [
    (
        NetworkFaultKind::NotStarted,
        FaultWeight::Fatal,
        "NetworkManager does not start with its configuration",
        "Without NetworkManager the node has no network from its next start on.",
    ),
    (
        NetworkFaultKind::OtherDirectory,
        FaultWeight::Fatal,
        "NetworkManager reads another directory of connections",
        "The connections here have no effect: their addresses, bonds and routes are missing after the next boot.",
    ),
    (
        NetworkFaultKind::Unmanaged,
        FaultWeight::Partial,
        "NetworkManager leaves a connection's interface alone",
        "The connection is read and never started.",
    ),
    (
        NetworkFaultKind::UnreadState,
        FaultWeight::Partial,
        "a file of nmstate is not read",
        "The interfaces, bonds or bridges that it describes are not made, and no log says so.",
    ),
    (
        NetworkFaultKind::BadState,
        FaultWeight::Partial,
        "nmstate rejects a file",
        "nmstate.service fails with it, and the interfaces that it describes are not made.",
    ),
    (
        NetworkFaultKind::UnreadConnection,
        FaultWeight::Partial,
        "NetworkManager does not read a connection's file",
        "The connection has no effect.",
    ),
    (
        NetworkFaultKind::UnreadSettings,
        FaultWeight::Partial,
        "NetworkManager does not read a file of settings",
        "The settings have no effect.",
    ),
    (
        NetworkFaultKind::TwoConnections,
        FaultWeight::Partial,
        "two connections contradict each other",
        "NetworkManager uses one of them: after a reboot it may be the other one.",
    ),
    (
        NetworkFaultKind::Apart,
        FaultWeight::Partial,
        "ports and their controller do not fit together",
        "The bond, bridge or VLAN stays without its port, and without a network.",
    ),
    (
        NetworkFaultKind::Renamed,
        FaultWeight::Partial,
        "a connection is for a name that is changed",
        "The interface has another name after a boot, and the connection does not start.",
    ),
    (
        NetworkFaultKind::Bridge,
        FaultWeight::Partial,
        "configure-ovs.sh cannot use the interface of a bridge",
        "ovs-configuration.service fails at the next boot, and the node has no br-ex.",
    ),
    (
        NetworkFaultKind::StateOfOthers,
        FaultWeight::Harmless,
        "no file of nmstate is for this host",
        "Nothing is applied here. That is right if the files are for other nodes of the pool.",
    ),
];

/// Facts about the node that are not in its files.
#[derive(Debug, Clone, Copy, Default)]
pub struct NodeKnowledge<'a> {
    /// The names of the host; empty if they are unknown.
    pub hosts: &'a [&'a str],
    /// Interfaces that are created by something other than connections, such as kernel arguments.
    pub made: &'a [String],
    /// The interfaces of the running machine.
    pub interfaces: Option<&'a [String]>,
}

/// Finds the faults; with `next`, in the files as they will be after a run of that config.
pub fn find_network_faults(
    root: &Root,
    next: Option<NextConfig<'_>>,
    known: NodeKnowledge<'_>,
) -> NetworkFaults {
    let files = NodeFiles::new(root, next);
    let mut search = Search {
        files: &files,
        known,
        found: NetworkFaults::default(),
    };
    let settings = NetworkManagerSettings::read_files(&files);
    let unseen = settings.unseen.iter().map(ToString::to_string);
    search.found.unseen.extend(unseen);
    for (path, line, said) in &settings.faults {
        search.add_fault(
            NetworkFaultKind::NotStarted,
            path,
            format!("line {line}: {said}"),
        );
    }
    search.find_unread_settings();
    search.find_misplaced_connections(&settings);
    let states = search.find_states();
    search.judge_connections(&settings, &states);
    search.find_bridges();
    search
        .found
        .all
        .order_by(|one, other| (one.kind, &one.place).cmp(&(other.kind, &other.place)));
    search.found
}

struct Search<'a> {
    files: &'a NodeFiles<'a>,
    known: NodeKnowledge<'a>,
    found: NetworkFaults,
}

impl Search<'_> {
    fn add_fault(&mut self, kind: NetworkFaultKind, place: impl ToString, said: impl Into<String>) {
        self.found.all.push(NetworkFault {
            kind,
            place: place.to_string(),
            said: said.into(),
        });
    }

    /// Returns the regular files and links of a directory, or its directories.
    fn list_directory(&mut self, directory: &RootPath, wanted: EntryType) -> Vec<RootPath> {
        let names = self.files.list_types(directory).unwrap_or_else(|error| {
            self.found.unseen.push(error.to_string());
            Vec::new()
        });
        let is_wanted = |kind: EntryType| match wanted {
            EntryType::Directory => kind == EntryType::Directory,
            _ => matches!(kind, EntryType::File | EntryType::Link),
        };
        let names = names.into_iter().filter(|(_, kind)| is_wanted(*kind));
        names
            .filter_map(|(name, _)| directory.join(&name).ok())
            .collect()
    }

    fn read_text(&mut self, path: &RootPath) -> Option<String> {
        match self.files.read_small(path) {
            Ok(bytes) => bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
            Err(error) => {
                self.found.unseen.push(error.to_string());
                None
            }
        }
    }

    fn has_section(&mut self, path: &RootPath, wanted: impl Fn(&str) -> bool) -> bool {
        let text = self.read_text(path).unwrap_or_default();
        parse_assignments(&text)
            .iter()
            .any(|one| wanted(one.section))
    }

    /// Finds settings files whose name or directory keeps them from being read.
    fn find_unread_settings(&mut self) {
        let folder = RootPath::fixed("etc/NetworkManager/conf.d");
        for path in self.list_directory(&folder, EntryType::File) {
            let name = path.name();
            let is_connection = name.ends_with(KEYFILE_ENDING);
            if name.ends_with(".conf") || is_connection || is_copy_name(name) {
                continue;
            }
            if self.has_section(&path, |section| !section.is_empty()) {
                let said = "not read: only names that end in .conf are";
                self.add_fault(NetworkFaultKind::UnreadSettings, &path, said);
            }
        }
        let above = RootPath::fixed(NETWORK_MANAGER);
        for path in self.list_directory(&above, EntryType::File) {
            let is_conf = path.name().ends_with(".conf") && path.name() != "NetworkManager.conf";
            // An old name of the main file, which is still read.
            if is_conf && path.name() != "nm-system-settings.conf" {
                let said = "not read: the directory for it is /etc/NetworkManager/conf.d";
                self.add_fault(NetworkFaultKind::UnreadSettings, &path, said);
            }
        }
    }

    /// Finds connections in directories that are not read, or with names that are not read.
    fn find_misplaced_connections(&mut self, settings: &NetworkManagerSettings) {
        let directories = settings.keyfile_directories();
        let reads = |path: &RootPath| directories.iter().any(|one| one.path == *path);
        let (chosen, by) = settings.keyfile_path();
        let default = RootPath::fixed(KEYFILES);
        let above = RootPath::fixed(NETWORK_MANAGER);
        let mut places = vec![above.clone()];
        places.extend(self.list_directory(&above, EntryType::Directory));
        places.extend(self.list_directory(&default, EntryType::Directory));
        for directory in places {
            if reads(&directory) {
                continue;
            }
            let is_default = directory == default;
            for path in self.list_directory(&directory, EntryType::File) {
                let is_meant = if is_default {
                    is_keyfile_name(path.name(), false) && !is_copy_name(path.name())
                } else {
                    path.name().ends_with(KEYFILE_ENDING)
                };
                if !is_meant || !self.has_section(&path, |section| section == "connection") {
                    continue;
                }
                match (is_default, by) {
                    (true, Some(by)) => {
                        let instead = match &chosen {
                            Some(chosen) => format!("NetworkManager reads {chosen} instead"),
                            None => "NetworkManager reads no directory below /etc".to_owned(),
                        };
                        let said = format!("not read: {instead}, by [keyfile] path= in {by}");
                        self.add_fault(NetworkFaultKind::OtherDirectory, &path, said);
                    }
                    _ => {
                        let said =
                            "not read: NetworkManager takes no connection from this directory";
                        self.add_fault(NetworkFaultKind::UnreadConnection, &path, said);
                    }
                }
            }
        }
        for directory in &directories {
            self.find_unread_names(&directory.path, directory.strict);
        }
    }

    fn find_unread_names(&mut self, directory: &RootPath, strict: bool) {
        for path in self.list_directory(directory, EntryType::Directory) {
            if path.name().ends_with(KEYFILE_ENDING) {
                let said = "not read: it is a directory";
                self.add_fault(NetworkFaultKind::UnreadConnection, &path, said);
            }
        }
        for path in self.list_directory(directory, EntryType::File) {
            let name = path.name();
            if is_keyfile_name(name, strict) || is_copy_name(name) {
                continue;
            }
            if self.has_section(&path, |section| section == "connection") {
                let said = "not read: its name is not that of a connection; it has to end in .nmconnection";
                self.add_fault(NetworkFaultKind::UnreadConnection, &path, said);
            }
        }
    }

    /// Judges the connections that NetworkManager reads.
    fn judge_connections(&mut self, settings: &NetworkManagerSettings, states: &[String]) {
        let mut unseen = Vec::new();
        let files = network_manager::read_by(self.files, settings, &mut unseen).into_iter();
        let unseen = unseen.iter().map(ToString::to_string);
        self.found.unseen.extend(unseen);
        // Rejected files are a separate finding.
        let taken = files.filter(|one| one.refused.is_none());
        let all: Vec<ConnectionProfile> = taken
            .filter_map(|one| ConnectionProfile::parse(one.path, &one.text))
            .collect();
        self.find_unmanaged(settings, &all);
        self.find_two(&all);
        // An applied state creates and changes connections of its own.
        if states.is_empty() {
            self.find_apart(&all);
        }
        self.find_renamed(&all);
    }

    /// Reports files with the interfaces for br-ex and br-ex1 that configure-ovs.sh cannot use.
    fn find_bridges(&mut self) {
        let mut named: Vec<(RootPath, String)> = Vec::new();
        for path in BRIDGES.map(RootPath::fixed) {
            let text = self.read_text(&path).unwrap_or_default();
            let name = text.lines().next().unwrap_or_default().trim().to_owned();
            if !name.is_empty() {
                named.push((path, name));
            }
        }
        for (path, name) in &named {
            let is_known = self.known.interfaces.is_none_or(|all| all.contains(name));
            if !is_known {
                self.add_fault(
                    NetworkFaultKind::Bridge,
                    path,
                    format!("it names {name}, which is missing"),
                );
            }
        }
        if let [(one, name), (other, second)] = named.as_slice()
            && name == second
        {
            let said =
                format!("it names {name}, and so does {other}: br-ex and br-ex1 need one each");
            self.add_fault(NetworkFaultKind::Bridge, one, said);
        }
    }

    fn find_unmanaged(&mut self, settings: &NetworkManagerSettings, all: &[ConnectionProfile]) {
        for one in all.iter().filter(|one| one.starts && !one.is_ovs()) {
            let Some(interface) = &one.interface else {
                continue;
            };
            if let Some((file, words)) = settings.unmanages(interface, &one.kind) {
                let said = format!(
                    "not used: NetworkManager leaves {interface} alone, by {words} in {file}"
                );
                self.add_fault(NetworkFaultKind::Unmanaged, &one.path, said);
            }
        }
    }

    /// Reports connections that differ although NetworkManager uses only one of them.
    fn find_two(&mut self, all: &[ConnectionProfile]) {
        for (index, one) in all.iter().enumerate() {
            for other in all.iter().skip(index + 1) {
                if let Some(why) = one.stands_against(other) {
                    self.add_fault(
                        NetworkFaultKind::TwoConnections,
                        &one.path,
                        format!("{why} as {}", other.path),
                    );
                }
            }
        }
    }

    /// Reports ports without their controller, VLANs without their parent, and bonds without ports.
    fn find_apart(&mut self, all: &[ConnectionProfile]) {
        for one in all.iter().filter(|one| one.starts && !one.is_ovs()) {
            let faults = [
                self.judge_controller(one, all),
                judge_parent(one, all),
                self.judge_ports(one, all),
            ];
            for said in faults.into_iter().flatten() {
                self.add_fault(NetworkFaultKind::Apart, &one.path, said);
            }
        }
    }

    /// Returns true for an interface that is created by something other than a connection.
    fn is_made(&self, name: &String) -> bool {
        let interfaces = self.known.interfaces.unwrap_or_default();
        self.known.made.contains(name) || interfaces.contains(name)
    }

    fn judge_controller(
        &self,
        one: &ConnectionProfile,
        all: &[ConnectionProfile],
    ) -> Option<String> {
        let name = one.controller.as_ref()?;
        let others = all.iter().filter(|other| other.path != one.path);
        let mut controllers = others.filter(|other| other.is_named(name)).peekable();
        let Some(first) = controllers.peek().copied() else {
            if self.is_made(name) {
                return None;
            }
            let by_id = all.iter().find(|other| other.id == *name);
            return Some(match by_id {
                Some(other) => format!(
                    "its controller {name} is only the id of {}; an interface or a uuid is needed",
                    other.path
                ),
                None => format!("its controller {name} is in no connection"),
            });
        };
        let port = one.port_type.as_ref()?;
        let fits = controllers.any(|other| other.kind == *port);
        let kind = &first.kind;
        (!fits).then(|| format!("it is a port of a {port}, but {} is a {kind}", first.path))
    }

    fn judge_ports(&self, one: &ConnectionProfile, all: &[ConnectionProfile]) -> Option<String> {
        let has_port = |name: &String| {
            let mut controllers = all.iter().map(|other| &other.controller);
            controllers.any(|controller| controller.as_ref() == Some(name))
        };
        let mut names = [&one.interface, &one.uuid].into_iter().flatten();
        let is_alone = names.all(|name| !has_port(name) && !self.is_made(name));
        let needs_ports = ["bond", "team"].contains(&one.kind.as_str());
        (needs_ports && is_alone).then(|| format!("no connection is a port of this {}", one.kind))
    }

    /// Reports connections that refer to an interface by its address, or by its name before it is renamed.
    fn find_renamed(&mut self, all: &[ConnectionProfile]) {
        let (mut links, drop_ins) = link_files::read_link_files(self.files, &mut self.found.unseen);
        links.order_by(|one, other| one.name.cmp(&other.name));
        let mut by_mac: BTreeMap<String, (String, String)> = BTreeMap::new();
        let mut by_name: BTreeMap<String, (String, String)> = BTreeMap::new();
        for mut link in links {
            link.add_drop_ins(&drop_ins);
            let Some(name) = link.new_name.clone().filter(|_| !link.masked) else {
                continue;
            };
            for key in ["MACAddress", "PermanentMACAddress"] {
                for mac in link.only_condition(key).unwrap_or_default() {
                    by_mac
                        .entry(mac.to_ascii_uppercase())
                        .or_insert((name.clone(), link.path.clone()));
                }
            }
            for old in link.only_condition("OriginalName").unwrap_or_default() {
                by_name
                    .entry(old.clone())
                    .or_insert((name.clone(), link.path.clone()));
            }
        }
        for one in all.iter().filter(|one| one.starts) {
            let Some(interface) = &one.interface else {
                continue;
            };
            let by_mac = one.mac.as_ref().and_then(|mac| by_mac.get(mac));
            let renamed =
                by_mac.or_else(|| by_name.get(interface).filter(|_| one.kind == "ethernet"));
            if let Some((name, link)) = renamed
                && name != interface
            {
                let said = format!("it is for {interface}, which {link} names {name}");
                self.add_fault(NetworkFaultKind::Renamed, &one.path, said);
            }
        }
    }
}

/// Returns the fault of a missing parent. Only a UUID is checked: a parent given as an interface may be a device without a
/// connection.
fn judge_parent(one: &ConnectionProfile, all: &[ConnectionProfile]) -> Option<String> {
    let parent = one.parent.as_ref().filter(|parent| is_uuid(parent))?;
    let mut uuids = all.iter().map(|other| &other.uuid);
    let has_parent = uuids.any(|uuid| uuid.as_ref() == Some(parent));
    (!has_parent).then(|| format!("its parent {parent} is in no connection"))
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text
            .bytes()
            .all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}
