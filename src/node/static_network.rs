//! The addresses that a node's configuration assigns to its interfaces: NetworkManager connections, nmstate files, and kernel
//! arguments. Secrets in them are never kept.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value;

use super::network_manager::{self, KeyfileRefusal};
use crate::base::kargs::Kargs;
use crate::config::document::yaml;
use crate::host::root::{Root, RootPath};

/// Directory of nmstate files, and of those that the daemon applies.
const NMSTATE: [&str; 2] = ["etc/nmstate", "etc/nmstate/openshift"];
/// NetworkManager's own configuration.
const SETTINGS: &str = "etc/NetworkManager/conf.d";
/// Maximum number of files that are read of one directory.
const MAX_FILES: usize = 256;

/// The addresses of a node's configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StaticAddresses {
    /// The configured interfaces.
    pub profiles: Vec<Profile>,
    /// NetworkManager has global name servers for all connections.
    pub global_servers: bool,
    /// Connection files that NetworkManager rejects, each with the reason.
    pub refused: Vec<(String, KeyfileRefusal)>,
    /// Files that could not be read, with the reason.
    pub unseen: Vec<String>,
}

/// A configured interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profile {
    /// Path of its file.
    pub place: String,
    /// Name of its interface, if it has one.
    pub interface: Option<String>,
    /// Interfaces below it: ports of a bond, the parent of a VLAN.
    pub below: Vec<String>,
    /// IPv4 and IPv6.
    pub families: [Family; 2],
    /// It names a name server.
    pub servers: bool,
}

/// The setting of one family of addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Family {
    /// Addresses come from a server or router.
    pub automatic: bool,
    /// Static addresses with their prefix lengths.
    pub addresses: Vec<(IpAddr, u8)>,
    /// It has a gateway.
    pub gateway: bool,
}

impl StaticAddresses {
    /// Returns the static addresses, each with its profile.
    pub fn addresses(&self) -> impl Iterator<Item = (&Profile, IpAddr, u8)> {
        self.profiles.iter().flat_map(|profile| {
            let all = profile.families.iter().flat_map(|family| &family.addresses);
            all.map(move |(address, prefix)| (profile, *address, *prefix))
        })
    }

    /// Returns true if an address is one of the static ones.
    pub fn has_address(&self, address: IpAddr) -> bool {
        self.addresses().any(|(_, fixed, _)| fixed == address)
    }

    /// Returns true if a profile gets addresses of this address's family automatically.
    pub fn is_automatic(&self, address: IpAddr) -> bool {
        self.profiles
            .iter()
            .any(|profile| profile.family_of(address).automatic)
    }

    /// Returns true if an interface of this name is configured.
    pub fn has_interface(&self, interface: &str) -> bool {
        self.profiles
            .iter()
            .any(|one| one.interface.as_deref() == Some(interface))
    }
}

impl Profile {
    /// Returns the setting for an address's family.
    pub fn family_of(&self, address: IpAddr) -> &Family {
        let [four, six] = &self.families;
        match address {
            IpAddr::V4(_) => four,
            IpAddr::V6(_) => six,
        }
    }
}

/// Returns true if the address is in the network.
pub fn is_in(address: IpAddr, network: IpAddr, prefix: u8) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(four) => (u128::from(u32::from(four)), 32),
        IpAddr::V6(six) => (u128::from(six), 128),
    };
    let ((one, width), (other, other_width)) = (bits(address), bits(network));
    let rest = u32::from(width.max(prefix) - prefix);
    width == other_width && one.checked_shr(rest) == other.checked_shr(rest)
}

/// Reads the configuration. `names` are the host names, by which the nmstate file is selected.
pub fn read_static_addresses(root: &Root, names: &[&str]) -> StaticAddresses {
    let mut found = StaticAddresses::default();
    let mut unread = Vec::new();
    let connections = network_manager::read_connections(root, &mut unread);
    found.unseen.extend(unread.iter().map(ToString::to_string));
    for one in connections {
        let path = one.path.to_string();
        match one.refused {
            Some(why) => found.refused.push((path, why)),
            None => found.profiles.push(parse_keyfile(&path, &one.text)),
        }
    }
    let [own, chosen] = NMSTATE.map(RootPath::fixed);
    let mut states = read_directory(root, &own, &mut found.unseen);
    let mut of_daemon = read_directory(root, &chosen, &mut found.unseen);
    // Selected as in nmstate-configuration.sh: this host's file, or else the one for all hosts.
    let short = |name: &&str| format!("{}.yml", name.split('.').next().unwrap_or_default());
    let wanted: BTreeSet<String> = names.iter().map(short).collect();
    let is_own = |path: &str| wanted.contains(path.rsplit('/').next().unwrap_or_default());
    let has_own = of_daemon.iter().any(|(path, _)| is_own(path));
    of_daemon.retain(|(path, _)| {
        if has_own {
            is_own(path)
        } else {
            path.ends_with("/cluster.yml")
        }
    });
    let applied: Vec<String> = states.iter().map(|(path, _)| path.clone()).collect();
    // Old versions of nmstate do not read the second extension; other versions leave a mark.
    let is_applied = |stem: &str| applied.contains(&format!("{stem}.applied"));
    states.retain(|(path, _)| {
        path.ends_with(".yml") || path.strip_suffix(".yaml").is_some_and(is_applied)
    });
    for (path, text) in states.into_iter().chain(of_daemon) {
        match yaml::parse_yaml(&text) {
            Ok(state) => found.profiles.extend(parse_nmstate(&path, &state)),
            Err(error) => found.unseen.push(format!("{path}: {error}")),
        }
    }
    let settings = read_directory(root, &RootPath::fixed(SETTINGS), &mut found.unseen);
    found.global_servers = settings
        .iter()
        .any(|(_, text)| text.contains("[global-dns-domain-"));
    found
}

/// Reads the files of a directory, in order.
fn read_directory(
    root: &Root,
    folder: &RootPath,
    unseen: &mut Vec<String>,
) -> Vec<(String, String)> {
    let names = root.list(folder).unwrap_or_else(|error| {
        unseen.push(error.to_string());
        Vec::new()
    });
    let paths = names.iter().filter_map(|name| folder.join(name).ok());
    read_texts(root, paths.collect(), unseen)
}

fn read_texts(
    root: &Root,
    paths: Vec<RootPath>,
    unseen: &mut Vec<String>,
) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for path in paths {
        if all.len() == MAX_FILES {
            unseen.push(format!("{path}: more than {MAX_FILES} files are before it"));
            break;
        }
        match root.read_small(&path) {
            Ok(Some(bytes)) => {
                all.push((
                    path.to_string(),
                    String::from_utf8_lossy(&bytes).into_owned(),
                ));
            }
            Ok(None) => {}
            // A subdirectory.
            Err(_)
                if root
                    .open_directory(&path)
                    .is_ok_and(|there| there.is_some()) => {}
            Err(error) => unseen.push(error.to_string()),
        }
    }
    all
}

/// Parses a connection of NetworkManager.
fn parse_keyfile(place: &str, text: &str) -> Profile {
    let mut found = Profile {
        place: place.to_owned(),
        ..Profile::default()
    };
    let mut section = "";
    for line in text.lines().map(str::trim) {
        if line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
            continue;
        }
        let Some((key, value)) = line.split_once('=') else {
            continue;
        };
        let (key, value) = (key.trim(), value.trim());
        let [four, six] = &mut found.families;
        let family = match section {
            "ipv4" => four,
            "ipv6" => six,
            "connection" if key == "interface-name" => {
                found.interface = Some(value.to_owned());
                continue;
            }
            "vlan" if key == "parent" => {
                found.below.push(value.to_owned());
                continue;
            }
            _ => continue,
        };
        match key {
            "method" => family.automatic = matches!(value, "auto" | "dhcp"),
            "gateway" => family.gateway = true,
            "dns" => found.servers |= !value.is_empty(),
            _ if is_address_key(key) => family.add_addresses(value),
            _ => {}
        }
    }
    found
}

/// Returns true for `addresses`, `address1` and so on.
fn is_address_key(key: &str) -> bool {
    let rest = key
        .strip_prefix("addresses")
        .or_else(|| key.strip_prefix("address"));
    rest.is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
}

impl Family {
    /// Adds the addresses in a keyfile's list: `ADDRESS/PREFIX,GATEWAY;...`.
    fn add_addresses(&mut self, value: &str) {
        for one in value.split(';') {
            let mut parts = one.split(',').map(str::trim);
            self.addresses
                .extend(parts.next().and_then(parse_with_prefix));
            self.gateway |= parts.next().is_some_and(|gateway| !gateway.is_empty());
        }
    }
}

/// Parses `ADDRESS/PREFIX`; without a prefix, the network is the address alone.
pub(super) fn parse_with_prefix(text: &str) -> Option<(IpAddr, u8)> {
    let (address, prefix) = text.split_once('/').unwrap_or((text, ""));
    let address: IpAddr = address.trim_matches(['[', ']']).parse().ok()?;
    let whole = if address.is_ipv4() { 32 } else { 128 };
    let prefix = prefix.parse().ok().filter(|prefix| *prefix <= whole);
    Some((address, prefix.unwrap_or(whole)))
}

/// Parses a state of nmstate.
fn parse_nmstate(place: &str, state: &Value) -> Vec<Profile> {
    let list = |pointer: &str| {
        let list = state.pointer(pointer).and_then(Value::as_array);
        list.map(Vec::as_slice).unwrap_or_default()
    };
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let servers = !list("/dns-resolver/config/server").is_empty();
    let is_default = |route: &&Value| {
        matches!(
            route["destination"].as_str(),
            Some("0.0.0.0/0" | "::/0" | "default")
        )
    };
    let routes = list("/routes/config").iter().filter(is_default);
    let gateways: Vec<(Option<&str>, bool)> = routes
        .map(|route| {
            let six = route["destination"].as_str() == Some("::/0");
            (route["next-hop-interface"].as_str(), six)
        })
        .collect();
    let profile = |one: &Value| {
        let name = one["name"].as_str()?;
        let ports = ["/link-aggregation/port", "/link-aggregation/slaves"];
        let ports = ports.iter().filter_map(|at| one.pointer(at)?.as_array());
        let parent = one.pointer("/vlan/base-iface").and_then(text);
        let family = |key: &str| {
            let own = &one[key];
            let addresses = own["address"].as_array().into_iter().flatten();
            let addresses = addresses.filter_map(|address| {
                let prefix = &address["prefix-length"];
                parse_with_prefix(&format!("{}/{prefix}", address["ip"].as_str()?))
            });
            Family {
                automatic: own["dhcp"] == true || own["autoconf"] == true,
                addresses: addresses.collect(),
                gateway: gateways.contains(&(Some(name), key == "ipv6")),
            }
        };
        Some(Profile {
            place: place.to_owned(),
            interface: Some(name.to_owned()),
            below: ports.flatten().filter_map(text).chain(parent).collect(),
            families: [family("ipv4"), family("ipv6")],
            servers,
        })
    };
    list("/interfaces").iter().filter_map(profile).collect()
}

/// The network of the initramfs, from kernel arguments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InitramfsNetwork {
    /// Static addresses: the argument, the address, and the interface if it names one.
    pub fixed: Vec<(String, IpAddr, Option<String>)>,
    /// `ip=` requests addresses from a server or router.
    pub automatic: bool,
    /// Bonds, teams, bridges and VLANs: the argument, and the name.
    pub made: Vec<(String, String)>,
    /// `nameserver=`: the arguments.
    pub servers: Vec<String>,
    /// `rd.neednet=1`: the network is needed before the root is mounted.
    pub needed: bool,
}

/// Parses the arguments for the network according to dracut's documentation (`dracut.cmdline`).
pub fn parse_arguments(arguments: &Kargs) -> InitramfsNetwork {
    let mut found = InitramfsNetwork::default();
    for token in arguments.tokens() {
        let Some((key, value)) = token.split_once('=') else {
            found.needed |= token == "rd.neednet";
            continue;
        };
        let value = value.trim_matches('"');
        match key {
            "rd.neednet" => found.needed = value != "0",
            "nameserver" if !value.is_empty() => found.servers.push(token.clone()),
            "bond" | "team" | "bridge" | "vlan" => {
                let name = value.split(':').next().unwrap_or_default();
                if !name.is_empty() {
                    found.made.push((token.clone(), name.to_owned()));
                }
            }
            "ip" => {
                let parts = split_arguments(value);
                let part = |at: usize| parts.get(at).copied().unwrap_or_default();
                match parse_with_prefix(part(0)) {
                    Some((address, _)) if !address.is_unspecified() => {
                        let name = Some(part(5)).filter(|name| !name.is_empty());
                        let name = name.map(str::to_owned);
                        found.fixed.push((token.clone(), address, name));
                    }
                    _ => found.automatic = true,
                }
            }
            _ => {}
        }
    }
    found
}

/// Splits at colons, except within the brackets of an IPv6 address.
fn split_arguments(text: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let parts = text.split(|letter| {
        match letter {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ':' && depth == 0
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(profile: &Profile) -> String {
        let addresses = profile.families.iter().flat_map(|family| &family.addresses);
        let addresses: Vec<String> = addresses.map(|(at, len)| format!("{at}/{len}")).collect();
        let [four, six] = &profile.families;
        format!(
            "{:?} {} {}{} {}{} {}",
            profile.interface,
            addresses.join(" "),
            four.automatic,
            four.gateway,
            six.automatic,
            six.gateway,
            profile.servers
        )
    }

    #[test]
    fn a_keyfile_gives_addresses_in_each_of_its_forms() {
        for (text, wanted) in [
            (
                "[connection]\ninterface-name=ens3\n[ipv4]\nmethod=manual\naddress1=192.0.2.10/24,192.0.2.1\ndns=192.0.2.1;\n[ipv6]\nmethod=disabled\n",
                "Some(\"ens3\") 192.0.2.10/24 falsetrue falsefalse true",
            ),
            (
                "[ipv4]\naddresses=192.0.2.10/24;192.0.2.11/24\ngateway=192.0.2.1\n[ipv6]\nmethod=auto\naddress=2001:db8::a/64\n",
                "None 192.0.2.10/24 192.0.2.11/24 2001:db8::a/64 falsetrue truefalse false",
            ),
            (
                "[ipv4]\naddress-data=x\naddress1=nonsense\nmethod=auto\n[wifi]\naddress1=192.0.2.1/24\n",
                "None  truefalse falsefalse false",
            ),
            ("", "None  falsefalse falsefalse false"),
        ] {
            assert_eq!(shown(&parse_keyfile("/x", text)), wanted, "{text}");
        }
    }

    #[test]
    fn nmstate_gives_addresses_by_interface() {
        let text = "interfaces:\n- name: bond0\n  type: bond\n  link-aggregation: {mode: active-backup, port: [eno1, eno2]}\n  \
                    ipv4: {enabled: true, dhcp: false, address: [{ip: 192.0.2.10, prefix-length: 24}]}\n- name: eno3\n  ipv4: {enabled: true, dhcp: true}\n\
                    routes: {config: [{destination: 0.0.0.0/0, next-hop-address: 192.0.2.1, next-hop-interface: bond0}]}\n\
                    dns-resolver: {config: {server: [192.0.2.1]}}\n";
        let all = parse_nmstate("/x", &yaml::parse_yaml(text).unwrap());
        let all: Vec<String> = all.iter().map(shown).collect();
        assert_eq!(
            all,
            [
                "Some(\"bond0\") 192.0.2.10/24 falsetrue falsefalse true",
                "Some(\"eno3\")  truefalse falsefalse true"
            ]
        );
        assert_eq!(parse_nmstate("/x", &Value::Null), []);
    }

    #[test]
    fn arguments_of_the_initramfs_are_told_apart() {
        let line = "ip=192.0.2.10::192.0.2.1:255.255.255.0:node:bond0:none ip=[2001:db8::a]::[2001:db8::1]:64::ens4:none \
                    bond=bond0:eno1,eno2:mode=active-backup vlan=bond0.7:bond0 nameserver=192.0.2.1 ip=ens5:dhcp rd.neednet=1";
        let found = parse_arguments(&Kargs::parse(line));
        let fixed: Vec<String> = found
            .fixed
            .iter()
            .map(|(_, address, name)| format!("{address} {name:?}"))
            .collect();
        assert_eq!(
            fixed,
            ["192.0.2.10 Some(\"bond0\")", "2001:db8::a Some(\"ens4\")"]
        );
        assert!(found.automatic && found.needed);
        let made: Vec<&str> = found.made.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(made, ["bond0", "bond0.7"]);
        assert_eq!(found.servers.len(), 1);
        let none = parse_arguments(&Kargs::parse("rw quiet rd.neednet=0 ip=dhcp"));
        assert!(none.fixed.is_empty() && none.automatic && !none.needed);
    }

    #[test]
    fn networks_hold_their_addresses() {
        let at = |text: &str| text.parse::<IpAddr>().unwrap();
        for (address, network, prefix, inside) in [
            ("192.0.2.10", "192.0.2.1", 24, true),
            ("192.0.3.10", "192.0.2.1", 24, false),
            ("192.0.3.10", "192.0.2.1", 0, true),
            ("2001:db8::1", "2001:db8::2", 64, true),
            ("2001:db8:1::1", "2001:db8::2", 64, false),
            ("2001:db8::1", "2001:db8::2", 0, true),
            ("2001:db8::1", "192.0.2.1", 0, false),
            ("192.0.2.1", "192.0.2.1", 32, true),
        ] {
            assert_eq!(
                is_in(at(address), at(network), prefix),
                inside,
                "{address} {network}/{prefix}"
            );
        }
    }
}
