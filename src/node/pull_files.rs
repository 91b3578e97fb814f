//! Files for image pulls that no program reads, or that make a registry unusable: names and locations below `/etc/containers`
//! and `/etc/docker`. Contents of keys are never kept.
//!
//! The rules are those of the containers tools: `sysregistriesv2`, `registries_d.go`, `dockerCertDir` and `tlsclientconfig`.

use std::collections::BTreeSet;

use super::fault_group::{FaultEffect, FaultGroup, FaultWeight, group_faults};
use super::network_manager::is_copy_name;
use super::platform::NextConfig;
use super::platform::node_files::NodeFiles;
use crate::base::order::StableOrder;
use crate::base::paths;
use crate::config::document::MachineConfig;
use crate::host::root::{EntryType, Root, RootError, RootPath};
use crate::node::images::auth::Secrets;
use crate::node::images::lookaside::{self, LOOKASIDE_ENDING};
use crate::node::images::policy::SignaturePolicy;
use crate::node::images::registries::Registries;

/// Directories of certificates; the first takes precedence.
const CERTIFICATES: [&str; 2] = ["etc/containers/certs.d", "etc/docker/certs.d"];
/// Files that programs of other systems read, each with the file that is used here.
const ELSEWHERE: [(&str, &str); 4] = [
    ("etc/containers/auth.json", "/var/lib/kubelet/config.json"),
    ("etc/docker/config.json", "/var/lib/kubelet/config.json"),
    ("etc/docker/daemon.json", "/etc/containers/registries.conf"),
    (
        "etc/containers/registries.yaml",
        "/etc/containers/registries.conf",
    ),
];
/// Directory of files that programs of root read first.
const OF_ROOT: &str = "root/.config/containers";
/// Names in it that replace those below `/etc/containers`.
const REPLACING: [&str; 3] = ["registries.conf", "registries.d", "policy.json"];
/// Begin of a certificate.
const PEM: &str = "-----BEGIN ";

/// The kind of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PullFaultKind {
    /// It makes all pulls fail.
    Stops,
    /// It makes pulls from one registry fail.
    StopsRegistry,
    /// It is read instead of the file that other users get.
    Instead,
    /// No program reads it.
    Unread,
}

/// A fault of a file for pulls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullFault {
    /// Its kind.
    pub kind: PullFaultKind,
    /// Path of the file or directory.
    pub place: String,
    /// What is wrong with it.
    pub said: String,
}

/// The faults of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PullFaults {
    /// The faults, by kind and place.
    pub all: Vec<PullFault>,
    /// Files that could not be read, with the reason.
    pub unseen: Vec<String>,
}

impl PullFaults {
    /// Returns the faults, grouped by kind. `config` is the one that the node is in.
    pub fn group_faults(&self, config: Option<&MachineConfig>) -> Vec<FaultGroup<PullFaultKind>> {
        let of_kind = |kind| {
            let all = self.all.iter().filter(|one| one.kind == kind);
            all.map(|one| (one.place.clone(), one.said.clone()))
                .collect()
        };
        let brings = |place: &str| {
            config.is_some_and(|config| config.contains_file(place) || config.brings_below(place))
        };
        // Files that a person left next to the config may be out of use on purpose.
        let is_left = |kind, faults: &[(String, String)]| {
            kind == PullFaultKind::Unread && !faults.iter().any(|(place, _)| brings(place))
        };
        group_faults(&EFFECTS, of_kind, is_left)
    }
}

/// The effect of each kind: weight, what is wrong, and the consequence.
const EFFECTS: [FaultEffect<PullFaultKind>; 4] = [
    (
        PullFaultKind::Stops,
        FaultWeight::Partial,
        "no image can be pulled",
        "Podman, CRI-O and rpm-ostree refuse every pull with this file: no new pod starts here.",
    ),
    (
        PullFaultKind::StopsRegistry,
        FaultWeight::Partial,
        "no image can be pulled from a registry",
        "The connection to the registry is not even tried.",
    ),
    (
        PullFaultKind::Instead,
        FaultWeight::Partial,
        "root has files for pulls of its own",
        "Podman, skopeo and CRI-O run as root: what the cluster writes below /etc/containers has no effect on them.",
    ),
    (
        PullFaultKind::Unread,
        FaultWeight::Partial,
        "a file for pulls is not read",
        "Mirrors, authorities or places of signatures in it have no effect.",
    ),
];

/// Finds the faults; with `next`, in the files as they will be after a run of that config.
pub fn find_pull_faults(root: &Root, next: Option<NextConfig<'_>>) -> PullFaults {
    let files = NodeFiles::new(root, next);
    let mut search = Search {
        files: &files,
        found: PullFaults::default(),
    };
    let asked = search.find_stops();
    search.find_unread_parts();
    search.find_elsewhere();
    search.find_own_of_root();
    search.judge_certificates(&asked);
    let key = |one: &PullFault| (one.kind, one.place.clone());
    search.found.all.order_by_key(key);
    search.found
}

struct Search<'a> {
    files: &'a NodeFiles<'a>,
    found: PullFaults,
}

impl Search<'_> {
    fn add_fault(&mut self, kind: PullFaultKind, place: impl ToString, said: impl Into<String>) {
        self.found.all.push(PullFault {
            kind,
            place: place.to_string(),
            said: said.into(),
        });
    }

    /// Returns the value; an error is recorded.
    fn note_error<T>(&mut self, result: Result<T, RootError>) -> Option<T> {
        result
            .map_err(|error| self.found.unseen.push(error.to_string()))
            .ok()
    }

    fn list_directory(&mut self, directory: &RootPath) -> Vec<(RootPath, EntryType)> {
        let listed = self.files.list_types(directory);
        let names = self.note_error(listed).unwrap_or_default().into_iter();
        names
            .filter_map(|(name, kind)| Some((directory.join(&name).ok()?, kind)))
            .collect()
    }

    fn read_text(&mut self, path: &RootPath) -> Option<String> {
        let read = self.files.read_small(path);
        let bytes = self.note_error(read).flatten();
        bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Returns the drop-ins of a configuration, with their texts: the files in a directory with this extension.
    fn read_dropins(&mut self, directory: &'static str, ending: &str) -> Vec<(String, String)> {
        let all = self.list_directory(&RootPath::fixed(directory)).into_iter();
        let is_part = |(path, kind): &(RootPath, EntryType)| {
            path.name().ends_with(ending) && *kind != EntryType::Directory
        };
        let paths: Vec<RootPath> = all.filter(is_part).map(|(path, _)| path).collect();
        let texts = paths.into_iter().filter_map(|path| {
            let text = self.read_text(&path)?;
            Some((path.to_string(), text))
        });
        texts.collect()
    }

    /// Reports the first file of each kind that makes every pull fail, and returns the registries named in the others.
    fn find_stops(&mut self) -> BTreeSet<String> {
        let mut asked = BTreeSet::new();
        let main = RootPath::fixed(paths::REGISTRIES);
        let mut all: Vec<(String, String)> = self
            .read_text(&main)
            .into_iter()
            .map(|text| (main.to_string(), text))
            .collect();
        all.extend(self.read_dropins(paths::REGISTRIES_D, ".conf"));
        match Registries::parse(&all) {
            Ok(registries) => {
                for one in registries.hidden() {
                    let said = format!(
                        "its [[registry]] {} takes the place of that in {}, whose mirrors are not asked any more",
                        one.prefix, one.file
                    );
                    self.add_fault(PullFaultKind::Unread, &one.by, said);
                }
                for table in registries.tables() {
                    let mirrors = table.mirrors.iter().map(|mirror| &mirror.location);
                    let names = mirrors.chain([&table.location, &table.prefix]);
                    asked.extend(names.map(|name| host_of(name)));
                }
            }
            Err(error) => self.add_fault(PullFaultKind::Stops, error.file(), error.to_string()),
        }
        let parts = self.read_dropins(paths::LOOKASIDE, LOOKASIDE_ENDING);
        if let Err(error) = lookaside::check_lookaside(&parts) {
            self.add_fault(PullFaultKind::Stops, error.file.clone(), error.to_string());
        }
        let policy = RootPath::fixed(paths::POLICY);
        if let Some(text) = self.read_text(&policy)
            && let Err(error) = SignaturePolicy::parse(&text)
        {
            self.add_fault(PullFaultKind::Stops, &policy, error.to_string());
        }
        for file in paths::PULL_SECRETS.map(RootPath::fixed) {
            if let Some(text) = self.read_text(&file) {
                let secrets = Secrets::parse(&file.to_string(), text.as_bytes());
                asked.extend(secrets.registry_hosts());
            }
        }
        asked
    }

    /// Finds unread files in the directories of drop-ins.
    fn find_unread_parts(&mut self) {
        for (directory, ending) in [
            (paths::REGISTRIES_D, ".conf"),
            (paths::LOOKASIDE, LOOKASIDE_ENDING),
        ] {
            for (path, kind) in self.list_directory(&RootPath::fixed(directory)) {
                let is_directory = kind == EntryType::Directory;
                let is_read = path.name().ends_with(ending) && !is_directory;
                if is_read || is_copy_name(path.name()) || path.name().starts_with("README") {
                    continue;
                }
                let said = if is_directory {
                    "not read: it is a directory".to_owned()
                } else {
                    format!("not read: only names that end in {ending} are")
                };
                self.add_fault(PullFaultKind::Unread, &path, said);
            }
        }
    }

    /// Finds files in locations that other systems use.
    fn find_elsewhere(&mut self) {
        for (path, instead) in ELSEWHERE {
            let path = RootPath::fixed(path);
            let there = self.files.exists(&path);
            if self.note_error(there) == Some(true) {
                self.add_fault(
                    PullFaultKind::Unread,
                    &path,
                    format!("not read here: {instead} is used"),
                );
            }
        }
    }

    /// Finds root's own files, which replace those of the node.
    fn find_own_of_root(&mut self) {
        let folder = RootPath::fixed(OF_ROOT);
        for (path, _) in self.list_directory(&folder) {
            let name = path.name().to_owned();
            if REPLACING.contains(&name.as_str()) {
                let said = format!("programs of root read it, and skip /etc/containers/{name}");
                self.add_fault(PullFaultKind::Instead, &path, said);
            }
        }
    }

    /// Judges the directories of certificates, one for each registry. `asked` are the registries named in other files.
    fn judge_certificates(&mut self, asked: &BTreeSet<String>) {
        let mut first: BTreeSet<String> = BTreeSet::new();
        let asked = self.without_directory(asked);
        for (index, place) in CERTIFICATES.into_iter().enumerate() {
            for (path, kind) in self.list_directory(&RootPath::fixed(place)) {
                let name = path.name().to_owned();
                if is_copy_name(&name) {
                    continue;
                }
                if kind == EntryType::File {
                    let said = "not read: certificates belong in a directory with the name of the registry";
                    self.add_fault(PullFaultKind::Unread, &path, said);
                    continue;
                }
                let inside = self.list_directory(&path);
                if index == 0 {
                    first.insert(name.clone());
                } else if first.contains(&name) && !inside.is_empty() {
                    let said = format!(
                        "not read: /{}/{name} exists, and comes first",
                        CERTIFICATES[0]
                    );
                    self.add_fault(PullFaultKind::Unread, &path, said);
                    continue;
                }
                if let Some(said) =
                    judge_registry_name(&name, &asked).filter(|_| !inside.is_empty())
                {
                    self.add_fault(PullFaultKind::Unread, &path, said);
                }
                self.judge_registry(&name, &inside);
            }
        }
    }

    /// Splits the registries into those with a certificate directory of exactly their name and those without.
    fn without_directory(&mut self, asked: &BTreeSet<String>) -> Asked {
        let mut directories = BTreeSet::new();
        for place in CERTIFICATES {
            let all = self.list_directory(&RootPath::fixed(place)).into_iter();
            directories.extend(all.map(|(path, _)| path.name().to_owned()));
        }
        let (with, without) = asked
            .iter()
            .cloned()
            .partition(|name| directories.contains(name));
        Asked { with, without }
    }

    /// Returns true for a broken link.
    fn is_dangling(&mut self, path: &RootPath) -> bool {
        let file = self.files.owner_and_mode(path);
        matches!(self.note_error(file), Some(None))
    }

    /// Adds a link that leads nowhere.
    fn add_dangling(&mut self, registry: &str, path: &RootPath, ending: &str) {
        if matches!(ending, "cert" | "key") {
            let said = format!("its link leads nowhere, and every pull from {registry} fails");
            self.add_fault(PullFaultKind::StopsRegistry, path, said);
        } else {
            let said = "not read: it is a dangling link";
            self.add_fault(PullFaultKind::Unread, path, said);
        }
    }

    /// Judges the certificate of a registry's authority.
    fn judge_authority(&mut self, path: &RootPath) {
        let text = self.read_text(path);
        let text = text.filter(|text| !text.contains("-----BEGIN CERTIFICATE-----"));
        if let Some(text) = text {
            let said = if text.contains(PEM) {
                "no certificate is in it: it is skipped"
            } else {
                "it is not PEM: it is skipped"
            };
            self.add_fault(PullFaultKind::Unread, path, said);
        }
    }

    /// Judges the files for one registry.
    fn judge_registry(&mut self, registry: &str, inside: &[(RootPath, EntryType)]) {
        let has = |name: String| inside.iter().any(|(path, _)| path.name() == name);
        for (path, kind) in inside {
            let name = path.name();
            let (stem, ending) = name.rsplit_once('.').unwrap_or((name, ""));
            if *kind == EntryType::Link && self.is_dangling(path) {
                self.add_dangling(registry, path, ending);
                continue;
            }
            if *kind == EntryType::Directory {
                self.add_fault(
                    PullFaultKind::Unread,
                    path,
                    "not read: certificates of a path of a registry do not exist",
                );
                continue;
            }
            match ending {
                "cert" if !has(format!("{stem}.key")) => {
                    let said = format!(
                        "{stem}.key is missing beside it, and every pull from {registry} fails; an authority has to end in .crt"
                    );
                    self.add_fault(PullFaultKind::StopsRegistry, path, said);
                }
                "key" if !has(format!("{stem}.cert")) => {
                    let said = format!(
                        "{stem}.cert is missing beside it, and every pull from {registry} fails"
                    );
                    self.add_fault(PullFaultKind::StopsRegistry, path, said);
                }
                "cert" | "key" => {}
                "crt" => self.judge_authority(path),
                _ if is_copy_name(name) => {}
                _ => self.add_fault(
                    PullFaultKind::Unread,
                    path,
                    "not read: an authority has to end in .crt",
                ),
            }
        }
    }
}

/// The registries named in other files.
struct Asked {
    /// Those with a certificate directory.
    with: BTreeSet<String>,
    /// Those without one.
    without: BTreeSet<String>,
}

/// Returns `HOST[:PORT]` of a registry, or of a name in it.
fn host_of(name: &str) -> String {
    name.split('/').next().unwrap_or_default().to_owned()
}

/// Returns the reason why no registry uses this directory, if that is certain.
fn judge_registry_name(name: &str, asked: &Asked) -> Option<String> {
    if let Some((host, port)) = name.split_once("..") {
        return Some(format!(
            "not read: the directory of the registry is {host}:{port}"
        ));
    }
    if asked.with.contains(name) {
        return None;
    }
    // The requested name has a port and the directory has none, or the other way round.
    let bare = |name: &str| match name.rsplit_once(':') {
        Some((host, port))
            if !host.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            host.to_owned()
        }
        _ => name.to_owned(),
    };
    let alike: Vec<&str> = asked
        .without
        .iter()
        .filter(|other| bare(other) == bare(name))
        .map(String::as_str)
        .collect();
    let lower = name.to_ascii_lowercase();
    match alike.as_slice() {
        [] if lower != name && asked.without.contains(&lower) => {
            Some(format!("not read: the registry is written {lower}"))
        }
        [] => None,
        alike => Some(format!(
            "not read for {}: the port belongs to the name",
            alike.join(", ")
        )),
    }
}
