//! The places in a node's configuration that name an interface.

use super::interfaces::{Interface, parse_mac};
use super::link_files::{self, LinkDropIn, LinkFile};
use super::node_files::NodeFiles;
use super::note_unseen;
use super::sections::parse_assignments;
use crate::base::kargs::Kargs;
use crate::host::root::{EntryType, RootPath};
use crate::node::network_manager::read_in_force;

/// Files, and directories of files, in which any word may be the name of an interface.
const TEXTS: [&str; 4] = ["etc/nmstate", "etc/ovnk", "var/lib/ovnk", "etc/keepalived"];
/// Maximum depth of directories in one of these.
const MAX_DEPTH: usize = 4;
/// Keys of a keyfile that contain an interface name, by section.
const KEYS: [(&str, &str); 9] = [
    ("connection", "interface-name"),
    ("connection", "master"),
    ("connection", "controller"),
    ("vlan", "parent"),
    ("macvlan", "parent"),
    ("vxlan", "parent"),
    ("ip-tunnel", "parent"),
    ("macsec", "parent"),
    ("bond", "primary"),
];

/// A place that names an interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameUse {
    /// The name or a pattern of names; empty if the interface is only selected by address.
    pub name: String,
    /// The file, or the kernel command line.
    pub place: String,
    /// The words there.
    pub said: String,
    /// The permanent MAC address in the same place, in upper case.
    pub mac: Option<String>,
    /// It is known to be an Ethernet interface that no other configuration creates.
    pub is_ethernet: bool,
}

/// The mark of the daemon's helper: it has run and will not run again.
pub const PERSIST_STAMP: &str = "etc/systemd/network/.nmstate-persist.stamp";

/// The interface names in the configuration of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InterfaceNames {
    /// The places that name an interface, except kernel arguments.
    pub uses: Vec<NameUse>,
    /// The node's `.link` files that the next system reads.
    pub link_files: Vec<LinkFile>,
    /// Their drop-ins, which also apply to files of the image.
    pub link_drop_ins: Vec<LinkDropIn>,
    /// Names that udev rules assign by address: name and address.
    pub rules: Vec<(String, String)>,
    /// The daemon's helper has run.
    pub stamp: bool,
    /// Files and directories that could not be read.
    pub unseen: Vec<String>,
}

impl InterfaceNames {
    /// Reads all places and pins.
    pub(super) fn observe(files: &NodeFiles<'_>, interfaces: &[Interface]) -> Self {
        let known: Vec<&str> = interfaces.iter().map(|one| one.name.as_str()).collect();
        let mut unseen = Vec::new();
        let stamp = note_unseen(files.exists(&RootPath::fixed(PERSIST_STAMP)), &mut unseen);
        let uses = read_interface_names(files, &known, &mut unseen);
        let (link_files, link_drop_ins) = link_files::read_link_files(files, &mut unseen);
        Self {
            uses,
            link_files,
            link_drop_ins,
            rules: pinned_by_rules(files, &mut unseen),
            stamp,
            unseen,
        }
    }
}

/// Reads all places. `known` are the names of the machine's interfaces, for texts in which only words can be compared.
fn read_interface_names(
    files: &NodeFiles<'_>,
    known: &[&str],
    unseen: &mut Vec<String>,
) -> Vec<NameUse> {
    let mut all = Vec::new();
    let mut unread = Vec::new();
    let keyfiles = read_in_force(files, &mut unread);
    unseen.extend(unread.iter().map(ToString::to_string));
    for (path, text) in keyfiles {
        all.extend(of_keyfile(&path.to_string(), &text));
    }
    for place in TEXTS.map(RootPath::fixed) {
        all.extend(read_texts(files, &place, MAX_DEPTH, known, unseen));
    }
    all
}

fn read_texts(
    files: &NodeFiles<'_>,
    at: &RootPath,
    depth: usize,
    known: &[&str],
    unseen: &mut Vec<String>,
) -> Vec<NameUse> {
    let mut all = Vec::new();
    for (name, kind) in note_unseen(files.list_types(at), unseen) {
        let Ok(path) = at.join(&name) else {
            continue;
        };
        match kind {
            EntryType::Directory if depth > 0 => {
                all.extend(read_texts(files, &path, depth - 1, known, unseen));
            }
            EntryType::File => {
                let text = note_unseen(files.read_text(&path), unseen).unwrap_or_default();
                all.extend(of_words(&path.to_string(), &text, known));
            }
            _ => {}
        }
    }
    all
}

/// Returns the names in a NetworkManager connection.
fn of_keyfile(place: &str, text: &str) -> Vec<NameUse> {
    let all = parse_assignments(text);
    let value = |section: &str, key: &str| {
        let mut found = all
            .iter()
            .filter(|one| (one.section, one.key) == (section, key));
        found
            .next()
            .map(|one| one.value)
            .filter(|value| !value.is_empty())
    };
    let ethernet = ["ethernet", "802-3-ethernet"];
    let mac = ethernet
        .iter()
        .find_map(|section| value(section, "mac-address"));
    let is_ethernet = value("connection", "type").is_some_and(|kind| ethernet.contains(&kind));
    let entry = |name: &str, section: &str, key: &str, value: &str| NameUse {
        name: name.to_owned(),
        place: place.to_owned(),
        said: format!("[{section}] {key}={value}"),
        mac: mac.and_then(parse_mac),
        is_ethernet: is_ethernet && key == "interface-name",
    };
    let mut uses = Vec::new();
    for (section, key) in KEYS {
        uses.extend(value(section, key).map(|name| entry(name, section, key, name)));
    }
    // `eno*;!eno3;`
    let patterns = value("match", "interface-name").unwrap_or_default();
    let several = patterns
        .split([';', ',', ' '])
        .map(|one| one.trim_start_matches(['|', '&']));
    // `*` matches the interface under any name.
    let several = several.filter(|one| !one.is_empty() && !one.starts_with('!') && *one != "*");
    uses.extend(several.map(|one| entry(one, "match", "interface-name", patterns)));
    // It selects an interface by address, whatever its name.
    if uses.is_empty() {
        uses.extend(mac.map(|mac| entry("", "ethernet", "mac-address", mac)));
    }
    uses
}

/// Returns the known names that occur as words in a text.
fn of_words(place: &str, text: &str, known: &[&str]) -> Vec<NameUse> {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-');
    let mut words: Vec<&str> = text
        .split(|c| !is_part(c))
        .filter(|word| known.contains(word))
        .collect();
    words.sort_unstable();
    words.dedup();
    let uses = words.into_iter().map(|name| NameUse {
        name: name.to_owned(),
        place: place.to_owned(),
        said: name.to_owned(),
        ..NameUse::default()
    });
    uses.collect()
}

/// Returns the names in kernel arguments for the initramfs network.
pub fn of_arguments(arguments: &Kargs) -> Vec<NameUse> {
    let mut uses = Vec::new();
    let makes = |token: &str, name: &str| {
        let made = ["bond=", "team=", "bridge=", "vlan="].iter();
        let mut made = made.filter_map(|key| token.strip_prefix(key)?.split(':').next());
        made.any(|made| made == name)
    };
    let is_made = |name: &str| arguments.tokens().iter().any(|token| makes(token, name));
    for token in arguments.tokens() {
        let Some((key, value)) = token.split_once('=') else {
            continue;
        };
        let parts = split_outside_brackets(value.trim_matches('"'));
        let part = |index: usize| parts.get(index).copied().unwrap_or_default();
        let names: Vec<&str> = match key {
            // `ip=ADDRESS:PEER:GATEWAY:MASK:HOST:INTERFACE:METHOD`, or `ip=INTERFACE:METHOD`
            "ip" if parts.len() >= 6 => vec![part(5)],
            "ip" if parts.len() >= 2 => vec![part(0)],
            "bootdev" => vec![part(0)],
            "bond" | "team" | "bridge" => part(1).split(',').collect(),
            "vlan" => vec![part(1)],
            _ => continue,
        };
        let names = names.into_iter().filter(|name| !name.is_empty());
        uses.extend(names.map(|name| NameUse {
            name: name.to_owned(),
            place: "kernel command line".to_owned(),
            said: token.clone(),
            mac: None,
            is_ethernet: !is_made(name),
        }));
    }
    uses
}

/// Returns the interfaces in `ifname=NAME:ADDRESS` arguments, each with its address in upper case.
pub fn pinned_by_arguments(arguments: &Kargs) -> Vec<(String, String)> {
    let values = arguments
        .tokens()
        .iter()
        .filter_map(|token| token.strip_prefix("ifname="));
    let pairs = values.filter_map(|value| {
        let (name, mac) = value.split_once(':')?;
        Some((name.to_owned(), parse_mac(mac)?))
    });
    pairs.collect()
}

/// Returns the interfaces that udev rules name by address, each with its address in upper case.
fn pinned_by_rules(files: &NodeFiles<'_>, unseen: &mut Vec<String>) -> Vec<(String, String)> {
    let directory = RootPath::fixed("etc/udev/rules.d");
    let names = note_unseen(files.list(&directory), unseen);
    let rules = names.iter().filter(|name| name.ends_with(".rules"));
    let rules = rules.filter_map(|name| directory.join(name).ok());
    let texts = rules.filter_map(|path| note_unseen(files.read_text(&path), unseen));
    texts.flat_map(|text| of_rules(&text)).collect()
}

fn of_rules(text: &str) -> Vec<(String, String)> {
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'));
    let pairs = lines.filter_map(|line| {
        let value = |key: &str| {
            let (_, rest) = line.split_once(key)?;
            Some(rest.trim_start().strip_prefix('"')?.split_once('"')?.0)
        };
        let mac = value("ATTR{address}==").and_then(parse_mac)?;
        let name = value("NAME=").or_else(|| value("NAME:="))?;
        Some((name.to_owned(), mac))
    });
    pairs.collect()
}

/// Splits at colons, except within the brackets of an IPv6 address.
fn split_outside_brackets(text: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let parts = text.split(|c| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ':' && depth == 0
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(uses: &[NameUse]) -> Vec<&str> {
        uses.iter().map(|one| one.name.as_str()).collect()
    }

    #[test]
    fn a_connection_names_interfaces() {
        for (text, expected) in [
            (
                "[connection]\ntype=ethernet\ninterface-name=eno1\n",
                &["eno1"][..],
            ),
            (
                "[connection]\ntype=ethernet\n[ethernet]\nmac-address=52:54:00:aa:bb:cc\n",
                &[""],
            ),
            (
                "[connection]\ntype=vlan\ninterface-name=v1\n[vlan]\nparent=eno1\n",
                &["v1", "eno1"],
            ),
            (
                "[connection]\ninterface-name=eno1\nmaster=bond0\n",
                &["eno1", "bond0"],
            ),
            (
                "[match]\ninterface-name=eno*;!eno3;|ens1;\n",
                &["eno*", "ens1"],
            ),
            ("[match]\ninterface-name=*;\npath=pci-0000:01:00.0\n", &[]),
            (
                "# [connection]\n#interface-name=eno1\n[proxy]\ninterface-name=x\n",
                &[],
            ),
        ] {
            assert_eq!(names(&of_keyfile("x", text)), expected, "{text}");
        }
        let both = "[connection]\ntype=ethernet\ninterface-name=eno1\n[ethernet]\nmac-address=52:54:00:aa:bb:cc\n";
        let uses = of_keyfile("x", both);
        assert_eq!(uses[0].mac.as_deref(), Some("52:54:00:AA:BB:CC"));
        assert!(uses[0].is_ethernet);
    }

    #[test]
    fn arguments_name_interfaces() {
        for (line, expected) in [
            ("ip=dhcp", &[][..]),
            ("ip=eno1:dhcp", &["eno1"]),
            ("ip=eno1:dhcp,dhcp6:9000", &["eno1"]),
            ("ip=192.0.2.2::192.0.2.1:24:host:eno1:none", &["eno1"]),
            ("ip=192.0.2.2::192.0.2.1:24:host::none", &[]),
            (
                "ip=[2001:db8::2]::[2001:db8::1]:64:host:eno1:none",
                &["eno1"],
            ),
            (
                "bond=bond0:eno1,eno2:mode=1 vlan=v1:bond0 bridge=br0:eno3",
                &["eno1", "eno2", "bond0", "eno3"],
            ),
            (
                "team=team0:eno1 bootdev=eno2 ifname=eno3:52:54:00:aa:bb:cc",
                &["eno1", "eno2"],
            ),
            ("rw root=UUID=1", &[]),
        ] {
            assert_eq!(
                names(&of_arguments(&Kargs::parse(line))),
                expected,
                "{line}"
            );
        }
        let pinned = pinned_by_arguments(&Kargs::parse("ifname=eno3:52:54:00:aa:bb:cc ifname=bad"));
        assert_eq!(
            pinned,
            [("eno3".to_owned(), "52:54:00:AA:BB:CC".to_owned())]
        );
    }

    #[test]
    fn words_of_a_text_and_rules_name_interfaces() {
        let text = "interfaces:\n- name: bond0\n  ports: [eno1, eno10]\n- name: eno2.100\n";
        assert_eq!(names(&of_words("x", text, &["eno1", "eno2"])), ["eno1"]);
        let rule = "SUBSYSTEM==\"net\", ACTION==\"add\", ATTR{address}==\"52:54:00:aa:bb:cc\", NAME=\"lan0\"\n# NAME=\"x\"\n";
        assert_eq!(
            of_rules(rule),
            [("lan0".to_owned(), "52:54:00:AA:BB:CC".to_owned())]
        );
    }
}
