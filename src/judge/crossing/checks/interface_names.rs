//! Do the interfaces that the configuration names keep their names?
//!
//! Names depend on the system and on the driver, and both change with the major version. Before that, the daemon's helper pins
//! every name to its permanent address with a systemd `.link` file each; the run does the same, with the same bytes.

use crate::base::kargs::Kargs;
use crate::base::order::StableOrder;
use crate::formats::systemd::glob_matches;
use crate::host::root::RootPath;
use crate::judge::crossing::{
    CrossingCheck, CrossingFinding, CrossingSeverity, Cure, Evidence, Target,
};
use crate::node::platform::{
    Applies, Interface, LinkDropIn, LinkFile, Mac, NameUse, PERSIST_STAMP, Platform, add_drop_in,
    pinned_by_arguments,
};

/// The check.
pub(super) const CHECK: CrossingCheck = CrossingCheck::of_image("interface-names", judge);

/// The failure: a connection stays inactive if no interface has the name.
const LOST: &str =
    "lost network configs: the connection of the old name is never started, and no log says so";
/// Directories of the image whose `.link` files the next system reads, in order of precedence.
const OF_IMAGE: [&str; 2] = ["usr/etc/systemd/network", "usr/lib/systemd/network"];

fn judge(target: &Target, node: &Platform) -> Vec<CrossingFinding> {
    let majors = (node.os_release.el_major(), target.os_release.el_major());
    if majors.0 == majors.1 {
        return Vec::new();
    }
    let (arguments, uses) = node.used_names();
    let links = links_after(target, node);
    let place = Place {
        target,
        node,
        arguments: &arguments,
        links: &links,
        majors: format!("{} and {}", name_of(majors.0), name_of(majors.1)),
    };
    let mut found = Vec::new();
    let mut unknown: Vec<&NameUse> = Vec::new();
    let guessed = guessed_interfaces(&uses);
    let interfaces = node.interfaces.as_ref().unwrap_or(&guessed);
    let several = has_several(interfaces);
    for interface in interfaces {
        let of_it = uses
            .iter()
            .filter(|one| glob_matches(&one.name, &interface.name));
        let of_it: Vec<&NameUse> = of_it.collect();
        let Some(first) = of_it.first() else {
            continue;
        };
        match place.judge_one(interface, interfaces, &of_it, several) {
            Some(finding) if interface.mac.is_none() && node.interfaces.is_err() => {
                drop(finding);
                unknown.push(first);
            }
            finding => found.extend(finding),
        }
    }
    place.add_stamp(interfaces, &mut found);
    found.extend(not_seen(node, &unknown));
    found
}

/// Values that are the same for every interface.
struct Place<'a> {
    target: &'a Target,
    node: &'a Platform,
    arguments: &'a Kargs,
    links: &'a [LinkFile],
    majors: String,
}

/// An interface that the configuration names.
struct NamedInterface<'a> {
    interface: &'a Interface,
    uses: &'a [&'a NameUse],
    /// The kernel command line turns the naming of systemd off.
    no_policy: bool,
}

/// The `Driver=` line of a pin.
enum DriverLine {
    /// The current driver, as the helper writes it.
    Same(Option<String>),
    /// The image uses another driver for this device.
    Other {
        /// The module of that driver.
        next: String,
    },
}

/// The name that the next system's files give an interface.
enum Pin<'a> {
    /// It keeps its name.
    Holds,
    /// A file applies before ours would, and gives no name or another one.
    Taken(&'a LinkFile),
    /// No file decides.
    Missing,
}

impl Place<'_> {
    /// Judges an interface that the configuration names.
    fn judge_one(
        &self,
        interface: &Interface,
        all: &[Interface],
        uses: &[&NameUse],
        several: bool,
    ) -> Option<CrossingFinding> {
        let name = interface.name.as_str();
        // Where the machine does not show the address, the one in a connection is used.
        let of_connection = uses.iter().filter(|one| one.name == name).find_map(|one| {
            let address = one.mac.clone()?;
            let place = one.place.clone();
            Some(Mac { address, place })
        });
        let mac = interface.mac.clone().or(of_connection);
        let address = mac.as_ref().map(|mac| mac.address.as_str());
        let driver = self.driver_line(interface);
        let pin = self.find_pin(interface, address, &driver);
        let is_given = |pairs: &[(String, String)]| {
            let mut of_it = pairs.iter().filter(|(known, _)| known == name);
            of_it.any(|(_, known)| address.is_none_or(|address| address == known))
        };
        let by_argument = is_given(&pinned_by_arguments(self.arguments));
        let is_kernels = is_kernel_name(name);
        if matches!(pin, Pin::Holds)
            || is_given(&self.node.interface_names.rules)
            || (by_argument && !(is_kernels && several))
        {
            return None;
        }
        let no_policy = self
            .arguments
            .tokens()
            .iter()
            .any(|token| token == "net.ifnames=0");
        if is_kernels && !several && no_policy {
            return None;
        }
        let named = NamedInterface {
            interface,
            uses,
            no_policy,
        };
        if is_kernels && several {
            let what = "the kernel gives this name in the order in which it finds the interfaces, and the next kernel may \
                        find another one first";
            let bound = address.unwrap_or("ADDRESS");
            return Some(self.inhibitor_finding(&named, what).next(format!(
                "nmcli connection modify CONNECTION connection.interface-name '' 802-3-ethernet.mac-address {bound}"
            )));
        }
        if let Pin::Taken(file) = pin {
            let what = "a file of systemd takes this interface before a pin would, and gives it no name or another one";
            let said = file
                .new_name
                .as_ref()
                .map_or_else(|| "no Name=".to_owned(), |name| format!("Name={name}"));
            let next = format!("Put Name={name} below [Link] in {}.", file.path);
            return Some(
                self.inhibitor_finding(&named, what)
                    .with_evidence(&file.path, said)
                    .next(next),
            );
        }
        Some(self.judge_unpinned(&named, all, mac.as_ref(), &driver))
    }

    fn inhibitor_finding(&self, named: &NamedInterface<'_>, what: &str) -> CrossingFinding {
        let name = named.interface.name.as_str();
        let finding = CrossingFinding::inhibitor(name, what);
        self.with_evidence(finding, named.uses, named.no_policy)
            .with_prevented(LOST)
    }

    /// Judges whether a pin can keep the name of an interface that no file pins.
    fn judge_unpinned(
        &self,
        named: &NamedInterface<'_>,
        all: &[Interface],
        mac: Option<&Mac>,
        driver: &DriverLine,
    ) -> CrossingFinding {
        let interface = named.interface;
        let name = interface.name.as_str();
        let path = link_path(name);
        let Some(mac) = mac else {
            let what = "the configuration uses this name, and the permanent address by which it could be pinned is unknown";
            return self
                .inhibitor_finding(named, what)
                .next(format!("ethtool -P {name}"))
                .next(format!(
                    "printf '[Match]\\nMACAddress=ADDRESS\\n\\n[Link]\\nName={name}\\n' > /{path}"
                ));
        };
        let line = match driver {
            DriverLine::Same(driver) => driver.as_deref(),
            DriverLine::Other { .. } => None,
        };
        let mut others = all.iter();
        if let Some(twin) = others.find(|other| is_twin(interface, other, mac, line)) {
            let what = format!(
                "{} has the same address, so that a pin would take both",
                twin.name
            );
            let by_path = interface
                .path
                .as_deref()
                .unwrap_or("ID_PATH of udevadm info");
            let finding = self.inhibitor_finding(named, &what);
            return finding.with_evidence(&mac.place, &mac.address).next(format!(
                "printf '[Match]\\nPath={by_path}\\n\\n[Link]\\nName={name}\\n' > /etc/systemd/network/70-{name}.link"
            ));
        }
        let existing = self.node.interface_names.link_files.iter();
        let mut existing = existing.filter(|file| file.path == format!("/{path}"));
        if let Some(file) = existing.find(|file| !file.generated) {
            let what = "the file that would pin this name already exists, but it does not apply to this interface";
            let next = format!("Correct {}, or remove it: rm {}", file.path, file.path);
            let finding = self.inhibitor_finding(named, what);
            return finding
                .with_evidence(&file.path, "not by nmstate")
                .next(next);
        }
        self.cured_finding(interface, named.uses, mac, driver, named.no_policy)
    }

    /// Returns the finding that the run cures.
    fn cured_finding(
        &self,
        interface: &Interface,
        uses: &[&NameUse],
        mac: &Mac,
        driver: &DriverLine,
        no_policy: bool,
    ) -> CrossingFinding {
        let name = interface.name.as_str();
        let what = "the configuration uses this name, and the next system may give the interface another one";
        let finding = CrossingFinding::new(CrossingSeverity::Cured, name, what);
        let mut finding = self
            .with_evidence(finding, uses, no_policy)
            .with_evidence(&mac.place, format!("permanent address {}", mac.address))
            .with_prevented(LOST);
        let line = match driver {
            DriverLine::Same(driver) => driver.as_deref(),
            DriverLine::Other { next } => {
                let now = interface
                    .levels
                    .first()
                    .map_or("another one", |level| &level.module);
                let said =
                    format!("the driver is {next} and no longer {now}, so the pin has no Driver=");
                finding = finding.with_evidence("modules.alias of the image", said);
                None
            }
        };
        let path = link_path(name);
        let next = format!(
            "The run writes /{path}. Before a crossing without it: nmstatectl persist-nic-names --root /"
        );
        finding = finding.next(next);
        if let Ok(path) = RootPath::parse(&format!("/{path}")) {
            finding = finding.with_cure(Cure::PutFile {
                path,
                mode: 0o644,
                bytes: link_bytes(name, &mac.address, line),
            });
        }
        self.name_in_initramfs(finding, name, mac)
    }

    /// Adds the arguments that give the interface its name in the initramfs, if the initramfs needs the network.
    fn name_in_initramfs(
        &self,
        finding: CrossingFinding,
        name: &str,
        mac: &Mac,
    ) -> CrossingFinding {
        let tokens = self.arguments.tokens();
        let asks = |token: &String| matches!(token.as_str(), "rd.neednet" | "rd.neednet=1");
        if !tokens.iter().any(asks) {
            return finding;
        }
        let prefix = format!("ifname={name}:");
        let stale = tokens.iter().filter(|token| token.starts_with(&prefix));
        let stale: Vec<String> = stale.cloned().collect();
        let wanted = format!("{prefix}{}", mac.address);
        let finding = if stale.is_empty() {
            finding
        } else {
            finding.with_cure(Cure::DeleteArguments(stale))
        };
        finding
            .with_evidence(
                "kernel command line",
                "rd.neednet: the initramfs needs the name too",
            )
            .with_cure(Cure::AppendArguments(vec![wanted]))
    }

    fn with_evidence(
        &self,
        mut finding: CrossingFinding,
        uses: &[&NameUse],
        no_policy: bool,
    ) -> CrossingFinding {
        for one in uses.iter().take(3) {
            finding = finding.with_evidence(&one.place, &one.said);
        }
        if uses.len() > 3 {
            finding = finding.with_evidence("other places", format!("{} more", uses.len() - 3));
        }
        finding = finding.with_evidence("os-release of node and image", &self.majors);
        let scheme = self
            .arguments
            .tokens()
            .iter()
            .find(|token| token.replace('_', "-").starts_with("net.naming-scheme="));
        if let Some(scheme) = scheme {
            let said = format!("{scheme}: the endings that come from a driver may still change");
            finding = finding.with_evidence("kernel command line", said);
        }
        if no_policy {
            finding = finding.with_evidence("kernel command line", "net.ifnames=0");
        }
        if self.node.interface_names.stamp {
            let said = "the helper has run, but no file of it pins this name";
            finding = finding.with_evidence(format!("/{PERSIST_STAMP}"), said);
        }
        finding
    }

    /// Adds the stamp together with the first file. The stamp keeps the daemon's helper from ever pinning the other interfaces,
    /// which the cluster may name in places the node cannot see; so those are pinned as well.
    fn add_stamp(&self, interfaces: &[Interface], found: &mut [CrossingFinding]) {
        if self.node.interface_names.stamp {
            return;
        }
        let named: Vec<String> = found.iter().map(|one| one.subject.clone()).collect();
        let Some(first) = found.iter_mut().find(|one| !one.cures.is_empty()) else {
            return;
        };
        let others = interfaces
            .iter()
            .filter(|one| !one.is_function && !named.contains(&one.name));
        let pins = others
            .filter_map(|one| Some((one.name.as_str(), self.pin_of_unused(one, interfaces)?)));
        let (names, pins): (Vec<&str>, Vec<Cure>) = pins.unzip();
        if !names.is_empty() {
            let said = format!(
                "{} too, as the helper does; after the stamp it pins nothing more",
                names.join(", ")
            );
            first.evidence.push(Evidence {
                place: "interfaces that the node does not name".to_owned(),
                said,
            });
        }
        first.cures.extend(pins);
        first.cures.push(Cure::PutFile {
            path: RootPath::fixed(PERSIST_STAMP),
            mode: 0o644,
            bytes: Vec::new(),
        });
    }

    /// Returns the pin of an interface that the configuration does not name; `None` if it already has one, or if none can be
    /// made.
    fn pin_of_unused(&self, interface: &Interface, all: &[Interface]) -> Option<Cure> {
        let mac = interface.mac.as_ref()?;
        let driver = self.driver_line(interface);
        let line = match &driver {
            DriverLine::Same(driver) => driver.as_deref(),
            DriverLine::Other { .. } => None,
        };
        let path = format!("/{}", link_path(&interface.name));
        let files = &self.node.interface_names.link_files;
        let is_free = matches!(
            self.find_pin(interface, Some(&mac.address), &driver),
            Pin::Missing
        ) && !files.iter().any(|file| file.path == path)
            && !is_kernel_name(&interface.name)
            && !all.iter().any(|other| is_twin(interface, other, mac, line));
        let path = RootPath::parse(&path).ok().filter(|_| is_free)?;
        Some(Cure::PutFile {
            path,
            mode: 0o644,
            bytes: link_bytes(&interface.name, &mac.address, line),
        })
    }

    fn driver_line(&self, interface: &Interface) -> DriverLine {
        let device = interface.levels.first();
        let next = device.map(|level| (level, self.target.modules.modules_of(&level.modalias)));
        match next {
            Some((level, modules)) if !modules.contains(level.module.as_str()) => {
                match modules.first() {
                    Some(next) => DriverLine::Other {
                        next: (*next).to_owned(),
                    },
                    None => DriverLine::Same(interface.driver.clone()),
                }
            }
            _ => DriverLine::Same(interface.driver.clone()),
        }
    }

    fn find_pin(&self, interface: &Interface, mac: Option<&str>, driver: &DriverLine) -> Pin<'_> {
        let next = match driver {
            DriverLine::Same(driver) => driver.as_deref(),
            DriverLine::Other { next } => Some(next.as_str()),
        };
        let own = format!("98-nmstate-{}.link", interface.name);
        for file in self.links.iter().filter(|file| !file.masked) {
            let gives_name = file.new_name.as_deref() == Some(interface.name.as_str());
            match file.applies_to(interface, mac, next) {
                Applies::Yes if gives_name => return Pin::Holds,
                // The files are sorted: this one is read first.
                Applies::Yes if file.name < own => return Pin::Taken(file),
                Applies::Yes => return Pin::Missing,
                // Without an address, a file that gives this very name has to be trusted.
                Applies::Unknown if gives_name && mac.is_none() => return Pin::Holds,
                _ => {}
            }
        }
        Pin::Missing
    }
}

/// Returns the `.link` files that the next system reads, in its order, with their drop-ins.
fn links_after(target: &Target, node: &Platform) -> Vec<LinkFile> {
    let mut all = node.interface_names.link_files.clone();
    let mut drop_ins = node.interface_names.link_drop_ins.clone();
    for directory in OF_IMAGE {
        for path in target.tree.files_below(directory) {
            let text = || target.tree.text_of(path).unwrap_or_default();
            if path.ends_with(".conf") {
                if let Some(drop_in) = LinkDropIn::parse(path, &text()) {
                    add_drop_in(&mut drop_ins, drop_in);
                }
                continue;
            }
            let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
            let is_known = all.iter().any(|file| file.name == name);
            if !path.ends_with(".link") || is_known {
                continue;
            }
            let shown = format!("/{}", path.replacen("usr/etc/", "etc/", 1));
            all.push(LinkFile::parse(&shown, &text()));
        }
    }
    for file in all.iter_mut().filter(|file| !file.masked) {
        file.add_drop_ins(&drop_ins);
    }
    all.order_by(|one, other| one.name.cmp(&other.name));
    all
}

/// Returns the interfaces that the configuration certainly names, for a root without `/sys`.
fn guessed_interfaces(uses: &[NameUse]) -> Vec<Interface> {
    let mut names: Vec<&NameUse> = uses.iter().filter(|one| one.is_ethernet).collect();
    names.order_by_key(|one| (&one.name, one.mac.is_none()));
    names.dedup_by_key(|one| &one.name);
    let all = names.into_iter().map(|one| Interface {
        name: one.name.clone(),
        mac: one.mac.clone().map(|address| Mac {
            address,
            place: one.place.clone(),
        }),
        ..Interface::default()
    });
    all.collect()
}

/// Returns true if the kernel may find the interfaces in another order. On some clouds a virtual function shares the address of
/// the interface in front of it, and does not count as one of its own.
fn has_several(interfaces: &[Interface]) -> bool {
    let all = interfaces.iter().filter(|one| !one.is_function);
    let mut addresses: Vec<Option<&str>> = all
        .map(|one| one.mac.as_ref().map(|mac| mac.address.as_str()))
        .collect();
    addresses.sort_unstable();
    addresses.dedup_by(|one, other| one.is_some() && one == other);
    addresses.len() > 1
}

/// Returns the findings about missing evidence.
fn not_seen(node: &Platform, names: &[&NameUse]) -> Vec<CrossingFinding> {
    let mut found = Vec::new();
    if let (Err(reason), Some(first)) = (&node.interfaces, names.first()) {
        let list: Vec<&str> = names.iter().map(|one| one.name.as_str()).collect();
        let what = format!(
            "the configuration uses {}, and the permanent addresses by which they could be pinned are unknown",
            list.join(", ")
        );
        found.push(
            CrossingFinding::unknown("network interfaces", what)
                .with_evidence("/sys/class/net", reason.to_string())
                .with_evidence(&first.place, &first.said)
                .with_prevented(LOST)
                .next("Run the same command on the node while it runs.")
                .next(format!(
                    "On another system: ip -br link, and for each one: printf '[Match]\\nMACAddress=ADDRESS\\n\\n[Link]\\n\
                     Name={}\\n' > ROOT/{}",
                    first.name,
                    link_path(&first.name)
                )),
        );
    }
    if !node.interface_names.unseen.is_empty() {
        let what = "a part of the network configuration cannot be read, so that the names in it are unknown";
        let finding = CrossingFinding::unknown("network configuration", what);
        let all = node.interface_names.unseen.iter().take(3);
        let finding = all.fold(finding, |finding, reason| {
            finding.with_evidence("not read", reason)
        });
        found.push(
            finding.next("ls -l /etc/NetworkManager/system-connections /etc/systemd/network"),
        );
    }
    found
}

/// Returns true if a pin of this interface would also match the other one.
fn is_twin(one: &Interface, other: &Interface, mac: &Mac, driver: Option<&str>) -> bool {
    let same = other
        .mac
        .as_ref()
        .is_some_and(|known| known.address == mac.address);
    let apart = driver.is_some() && other.driver.as_deref() != driver;
    one.name != other.name && same && !apart
}

fn link_path(name: &str) -> String {
    format!("etc/systemd/network/98-nmstate-{name}.link")
}

/// Returns the content of the file that pins a name, byte for byte as the daemon's helper writes it.
fn link_bytes(name: &str, mac: &str, driver: Option<&str>) -> Vec<u8> {
    let driver = driver.map_or_else(String::new, |driver| format!("Driver={driver}\n\n"));
    format!("# Generated by nmstate\n[Match]\nMACAddress={mac}\n\n{driver}[Link]\nName={name}\n")
        .into_bytes()
}

/// Returns true for `eth0` and the like, which the kernel numbers in the order of discovery.
fn is_kernel_name(name: &str) -> bool {
    let digits = name.strip_prefix("eth");
    digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
}

fn name_of(major: Option<u32>) -> String {
    major.map_or_else(
        || "another system".to_owned(),
        |major| format!("EL {major}"),
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::host::root::Root;
    use crate::node::OsRelease;
    use crate::node::images::tree::ImageTree;
    use crate::node::platform::DeviceLevel;

    /// A node of EL 9 that names `eno1` on its command line, and an image of EL 10.
    fn judged(command_line: &str, aliases: &str) -> Vec<CrossingFinding> {
        let empty = tempfile::tempdir().unwrap();
        let mut node = Platform::observe_next(&Root::open(Path::new(empty.path())).unwrap(), None);
        node.os_release = OsRelease::parse("ID=rhel\nRHEL_VERSION=9.6\n");
        node.command_line = Ok(Kargs::parse(command_line));
        let interface = |name: &str, digit: u8| Interface {
            name: name.to_owned(),
            mac: Some(Mac {
                address: format!("52:54:00:AA:BB:0{digit}"),
                place: "/sys".to_owned(),
            }),
            driver: Some("igb".to_owned()),
            levels: vec![DeviceLevel {
                path: "sys/devices/pci".to_owned(),
                modalias: "pci:v00008086d00001533".to_owned(),
                module: "igb".to_owned(),
            }],
            ..Interface::default()
        };
        node.interfaces = Ok(vec![interface("eno1", 1), interface("eno2", 2)]);
        let mut tree = ImageTree::default();
        let mut put = |path: &str, text: &str| {
            let file = crate::node::images::tree::TreeFile {
                bytes: Some(text.as_bytes().to_vec()),
                ..Default::default()
            };
            tree.files.insert(path.to_owned(), file);
        };
        put("usr/lib/os-release", "ID=rhel\nRHEL_VERSION=10.0\n");
        put("usr/lib/modules/6/vmlinuz", "");
        put("usr/lib/modules/6/modules.alias", aliases);
        put("usr/lib/modules/6/modules.dep", "kernel/igb.ko:\n");
        judge(&Target::from_tree(tree), &node)
    }

    fn file(path: &str, text: &str) -> Cure {
        Cure::PutFile {
            path: RootPath::parse(path).unwrap(),
            mode: 0o644,
            bytes: text.as_bytes().to_vec(),
        }
    }

    #[test]
    fn the_cure_is_the_helpers_files_with_one_stamp() {
        let found = judged("bond=bond0:eno1,eno2", "alias pci:v00008086* igb\n");
        let all: Vec<&[Cure]> = found.iter().map(|one| one.cures.as_slice()).collect();
        let first = file(
            "/etc/systemd/network/98-nmstate-eno1.link",
            "# Generated by nmstate\n[Match]\nMACAddress=52:54:00:AA:BB:01\n\nDriver=igb\n\n[Link]\nName=eno1\n",
        );
        let second = file(
            "/etc/systemd/network/98-nmstate-eno2.link",
            "# Generated by nmstate\n[Match]\nMACAddress=52:54:00:AA:BB:02\n\nDriver=igb\n\n[Link]\nName=eno2\n",
        );
        let stamp = file("/etc/systemd/network/.nmstate-persist.stamp", "");
        assert_eq!(all, [&[first, stamp][..], &[second][..]]);
    }

    #[test]
    fn the_stamp_comes_with_pins_of_all_interfaces() {
        let found = judged("ip=eno1:dhcp", "");
        let paths = found
            .iter()
            .flat_map(|one| &one.cures)
            .map(|cure| match cure {
                Cure::PutFile { path, .. } => path.name().to_owned(),
                other => format!("{other:?}"),
            });
        assert_eq!(
            paths.collect::<Vec<_>>(),
            [
                "98-nmstate-eno1.link",
                "98-nmstate-eno2.link",
                ".nmstate-persist.stamp"
            ]
        );
        assert_eq!(found.len(), 1);
        assert_eq!(judged("ip=dhcp", ""), []);
    }

    #[test]
    fn a_driver_of_another_name_is_left_out_of_the_pin() {
        let found = judged("bond=bond0:eno1", "alias pci:v00008086* igb_next\n");
        let pin = file(
            "/etc/systemd/network/98-nmstate-eno1.link",
            "# Generated by nmstate\n[Match]\nMACAddress=52:54:00:AA:BB:01\n\n[Link]\nName=eno1\n",
        );
        assert_eq!(found[0].cures[0], pin);
        let said = format!("{:?}", found[0].evidence);
        assert!(said.contains("igb_next and no longer igb"), "{said}");
    }

    #[test]
    fn the_initramfs_gets_an_argument_where_it_needs_the_network() {
        let arguments = |line: &str| -> Vec<Cure> {
            let found = judged(line, "").into_iter().flat_map(|one| one.cures);
            found
                .filter(|cure| !matches!(cure, Cure::PutFile { .. }))
                .collect()
        };
        let wanted = Cure::AppendArguments(vec!["ifname=eno1:52:54:00:AA:BB:01".to_owned()]);
        assert_eq!(arguments("ip=eno1:dhcp"), []);
        for word in ["rd.neednet", "rd.neednet=1"] {
            assert_eq!(
                arguments(&format!("ip=eno1:dhcp {word}")),
                std::slice::from_ref(&wanted)
            );
        }
        assert_eq!(arguments("ip=eno1:dhcp rd.neednet=0"), []);
        let stale = "ifname=eno1:52:54:00:aa:bb:09";
        assert_eq!(
            arguments(&format!("ip=eno1:dhcp rd.neednet=1 {stale}")),
            [Cure::DeleteArguments(vec![stale.to_owned()]), wanted]
        );
    }
}
