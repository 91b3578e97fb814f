//! Network configuration in obsolete forms: files below `network-scripts`, and NetworkManager options that were removed.

use super::interfaces::parse_mac;
use super::node_files::NodeFiles;
use super::note_unseen;
use super::sections::parse_assignments;
use crate::host::root::RootPath;
use crate::node::network_manager::read_in_force;

const SCRIPTS: &str = "etc/sysconfig/network-scripts";
/// Suffixes of copies, which NetworkManager skips.
const COPIES: [&str; 10] = [
    "~", ".bak", ".orig", ".rej", ".rpmnew", ".rpmsave", ".rpmorig", ".augnew", ".augtmp", ".swp",
];

/// The old configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LegacyNetwork {
    /// Connections.
    pub connections: Vec<LegacyConnection>,
    /// Files with policy routing rules, each with the interface in its name.
    pub rules: Vec<(String, String)>,
    /// Files that choose `dhclient`.
    pub dhclient: Vec<String>,
    /// Files and directories that could not be read.
    pub unseen: Vec<String>,
}

/// A connection in an `ifcfg-` file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LegacyConnection {
    /// Path of its file.
    pub path: String,
    /// The part of its name after `ifcfg-`.
    pub name: String,
    /// `DEVICE`, or the part of the name if it is missing.
    pub device: String,
    /// `HWADDR`, in upper case.
    pub mac: Option<String>,
    /// It is started at boot.
    pub on_boot: bool,
    /// It is a single Ethernet interface with DHCP or static addresses.
    pub is_simple: bool,
    /// The connection that replaces it: a keyfile for the same device or with the same `uuid`.
    pub replaced_by: Option<String>,
}

/// Reads the old configuration.
pub(super) fn read_legacy_network(root: &NodeFiles<'_>) -> LegacyNetwork {
    let mut found = LegacyNetwork::default();
    let mut texts = Vec::new();
    for (path, name) in list_files(root, SCRIPTS, &mut found.unseen) {
        if COPIES.iter().any(|ending| name.ends_with(ending)) {
            continue;
        }
        if let Some(interface) = name
            .strip_prefix("rule-")
            .or_else(|| name.strip_prefix("rule6-"))
        {
            found.rules.push((path.to_string(), interface.to_owned()));
        } else if name.starts_with("ifcfg-") && name != "ifcfg-lo" {
            texts.push((path.to_string(), root.read_text(&path)));
        }
    }
    let mut unread = Vec::new();
    let keyfiles = read_in_force(root, &mut unread);
    found.unseen.extend(unread.iter().map(ToString::to_string));
    let keyfiles = keyfiles.into_iter();
    let keyfiles: Vec<(String, String)> = keyfiles
        .map(|(path, text)| (path.to_string(), text))
        .collect();
    for (path, text) in texts {
        match text {
            Ok(Some(text)) => found
                .connections
                .extend(parse_connection(&path, &text, &keyfiles)),
            Ok(None) => found.unseen.push(path),
            Err(error) => found.unseen.push(error.to_string()),
        }
    }
    found.dhclient = find_dhclient(root, &mut found.unseen);
    found
}

fn list_files(
    root: &NodeFiles<'_>,
    directory: &'static str,
    unseen: &mut Vec<String>,
) -> Vec<(RootPath, String)> {
    let directory = RootPath::fixed(directory);
    let files = note_unseen(root.list(&directory), unseen)
        .into_iter()
        .filter_map(|name| Some((directory.join(&name).ok()?, name)));
    files.collect()
}

/// Keys of a file for more than an Ethernet interface of its own.
const COMPOSED: [&str; 8] = [
    "MASTER",
    "BRIDGE",
    "TEAM_MASTER",
    "VLAN",
    "PHYSDEV",
    "OVS_BRIDGE",
    "KEY_MGMT",
    "BONDING_OPTS",
];

/// Parses a file of shell assignments; `None` if NetworkManager ignores it.
fn parse_connection(
    path: &str,
    text: &str,
    keyfiles: &[(String, String)],
) -> Option<LegacyConnection> {
    let value = |key: &str| {
        let mut lines = text.lines().filter_map(|line| line.trim().split_once('='));
        let (_, value) = lines.rfind(|(known, _)| *known == key)?;
        let value = value.trim().trim_matches(['"', '\'']);
        Some(value).filter(|value| !value.is_empty())
    };
    let is_no = |key: &str| {
        value(key).is_some_and(|value| {
            ["no", "false", "0", "n", "f"].contains(&value.to_ascii_lowercase().as_str())
        })
    };
    if is_no("NM_CONTROLLED") {
        return None;
    }
    let (_, name) = path.rsplit_once("ifcfg-")?;
    let device = value("DEVICE").unwrap_or(name).to_owned();
    let mac = value("HWADDR").and_then(parse_mac);
    let kind = value("TYPE").unwrap_or("Ethernet");
    let is_simple = kind == "Ethernet" && COMPOSED.iter().all(|key| value(key).is_none());
    let replaced = keyfiles.iter().find(|(_, keyfile)| {
        parse_assignments(keyfile)
            .iter()
            .any(|one| match (one.section, one.key) {
                ("connection", "interface-name") => one.value == device,
                ("connection", "uuid") => value("UUID") == Some(one.value),
                ("ethernet" | "802-3-ethernet", "mac-address") => {
                    mac.is_some() && parse_mac(one.value) == mac
                }
                _ => false,
            })
    });
    Some(LegacyConnection {
        path: path.to_owned(),
        name: name.to_owned(),
        on_boot: !is_no("ONBOOT"),
        replaced_by: replaced.map(|(path, _)| path.clone()),
        device,
        mac,
        is_simple,
    })
}

/// Returns the files that set `[main] dhcp=dhclient`.
fn find_dhclient(root: &NodeFiles<'_>, unseen: &mut Vec<String>) -> Vec<String> {
    let main = "etc/NetworkManager/NetworkManager.conf";
    let mut all = vec![(RootPath::fixed(main), "NetworkManager.conf".to_owned())];
    all.extend(list_files(root, "etc/NetworkManager/conf.d", unseen));
    let mut asks = |path: &RootPath| {
        let text = note_unseen(root.read_text(path), unseen).unwrap_or_default();
        let found = parse_assignments(&text);
        let mut main = found
            .iter()
            .filter(|one| one.section == "main" && one.key == "dhcp");
        main.any(|one| one.value == "dhclient")
    };
    let all = all
        .into_iter()
        .filter(|(path, name)| name.ends_with(".conf") && asks(path));
    all.map(|(path, _)| path.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_replaced_by_a_keyfile_for_the_same_device() {
        let text = "# x\nDEVICE=\"eno1\"\nUUID=u-1\nHWADDR=52:54:00:aa:bb:cc\nBOOTPROTO=dhcp\nONBOOT=yes\n";
        let of = |keyfile: &str| {
            let keyfiles = [("/k".to_owned(), keyfile.to_owned())];
            parse_connection("/x/ifcfg-lan", text, &keyfiles)
                .unwrap()
                .replaced_by
                .is_some()
        };
        assert!(of("[connection]\ninterface-name=eno1\n"));
        assert!(of("[connection]\nuuid=u-1\n"));
        assert!(of("[ethernet]\nmac-address=52:54:00:AA:BB:CC\n"));
        assert!(!of("[connection]\ninterface-name=eno2\nuuid=u-2\n"));
    }

    #[test]
    fn a_connection_is_simple_or_composed() {
        let read = |text: &str| parse_connection("/x/ifcfg-lan", text, &[]);
        let found = read("BOOTPROTO=none\nIPADDR=192.0.2.2\nONBOOT=no\n").unwrap();
        assert_eq!(
            (found.device.as_str(), found.is_simple, found.on_boot),
            ("lan", true, false)
        );
        assert!(
            !read("TYPE=Bond\nBONDING_OPTS='mode=1'\n")
                .unwrap()
                .is_simple
        );
        assert!(
            !read("DEVICE=eno1\nMASTER=bond0\nSLAVE=yes\n")
                .unwrap()
                .is_simple
        );
        assert_eq!(read("DEVICE=eno1\nNM_CONTROLLED=no\n"), None);
    }
}
