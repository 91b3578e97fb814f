//! Validation: Ignition's rules (numbered as in ignition-contract 1.4) and the
//! operator's own (mcd-contract 1.1). Every error is found, not the first.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256, Sha512};

use super::finding::Finding;
use super::ignition::{File, Ignition, NodeOwner, Resource, Unit};
use super::resource::{Contents, ContentsError};
use crate::root::hex;
use crate::systemd::unit_file;
use crate::systemd::unit_name::template_of;

/// Checks a config that was parsed from the place `at`.
pub fn ignition(config: &Ignition, at: &str) -> Vec<Finding> {
    let mut check = Check {
        at,
        minor: config.minor(),
        findings: Vec::new(),
    };
    check.proxy(config);
    check.storage(config);
    check.units(&config.systemd.units);
    check.conflicts(config);
    check.duplicates(config);
    check.findings
}

/// The operator's rule on modes: special bits are refused in a MachineConfig.
pub fn machine_config(config: &Ignition, at: &str) -> Vec<Finding> {
    let special = |(index, file): (usize, &File)| {
        let mode = file.mode.filter(|mode| (0o1000..=0o7777).contains(mode))?;
        let message = format!(
            "invalid mode 0{mode:o} for {}, cannot exceed 0777",
            file.path
        );
        Some(Finding::error(
            format!("{at}.storage.files[{index}].mode"),
            message,
        ))
    };
    config
        .storage
        .files
        .iter()
        .enumerate()
        .filter_map(special)
        .collect()
}

/// A path below the place where the config stands; a bare config stands at the top.
pub fn place(at: &str, path: &str) -> String {
    if at.is_empty() {
        path.to_owned()
    } else {
        format!("{at}.{path}")
    }
}

struct Check<'a> {
    at: &'a str,
    minor: u64,
    findings: Vec<Finding>,
}

const UNIT_SUFFIXES: [&str; 12] = [
    ".service",
    ".socket",
    ".device",
    ".mount",
    ".automount",
    ".swap",
    ".target",
    ".path",
    ".timer",
    ".snapshot",
    ".slice",
    ".scope",
];

impl Check<'_> {
    fn error(&mut self, path: &str, message: impl Into<String>) {
        self.findings
            .push(Finding::error(place(self.at, path), message));
    }

    fn warning(&mut self, path: &str, message: impl Into<String>) {
        self.findings
            .push(Finding::warning(place(self.at, path), message));
    }

    fn storage(&mut self, config: &Ignition) {
        for (i, file) in config.storage.files.iter().enumerate() {
            let at = format!("storage.files[{i}]");
            self.node(&at, &file.path, file.mode, &file.user, &file.group);
            self.contents(&format!("{at}.contents"), &file.contents);
            if file.overwrite == Some(true) && file.contents.source.is_none() {
                self.error(
                    &at,
                    "overwrite is true but there is no contents.source (V5)",
                );
            }
        }
        for (i, directory) in config.storage.directories.iter().enumerate() {
            let at = format!("storage.directories[{i}]");
            self.node(
                &at,
                &directory.path,
                directory.mode,
                &directory.user,
                &directory.group,
            );
        }
        for (i, link) in config.storage.links.iter().enumerate() {
            let at = format!("storage.links[{i}]");
            self.node(&at, &link.path, None, &link.user, &link.group);
            if link.target.as_deref().unwrap_or_default().is_empty() {
                self.error(
                    &format!("{at}.target"),
                    "missing; a link needs a target (V24)",
                );
            }
        }
    }

    fn node(
        &mut self,
        at: &str,
        path: &str,
        mode: Option<i64>,
        user: &NodeOwner,
        group: &NodeOwner,
    ) {
        if let Some(problem) = unclean(path) {
            self.error(&format!("{at}.path"), format!("{path:?} {problem} (V1)"));
        }
        if mode.is_some_and(|mode| !(0..=0o7777).contains(&mode)) {
            self.error(
                &format!("{at}.mode"),
                "illegal file mode; modes are decimal numbers from 0 to 4095 (V2)",
            );
        }
        for (owner, key) in [(user, "user"), (group, "group")] {
            if owner.id.is_some() && owner.name.as_deref().is_some_and(|name| !name.is_empty()) {
                self.error(
                    &format!("{at}.{key}"),
                    "has both id and name; keep one (V4)",
                );
            }
            if owner.id.is_some_and(|id| u32::try_from(id).is_err()) {
                self.error(&format!("{at}.{key}.id"), "is no 32-bit user or group id");
            }
        }
    }

    /// V15 and V16: proxies are http or https URLs.
    fn proxy(&mut self, config: &Ignition) {
        let proxy = &config.ignition.proxy;
        for (key, url) in [
            ("httpProxy", &proxy.http_proxy),
            ("httpsProxy", &proxy.https_proxy),
        ] {
            let Some(url) = url.as_deref().filter(|url| !url.is_empty()) else {
                continue;
            };
            let at = format!("ignition.proxy.{key}");
            if !(url.starts_with("http://") || url.starts_with("https://")) {
                self.error(&at, "is no http or https URL (V15)");
            } else if key == "httpsProxy" && url.starts_with("http://") {
                self.warning(
                    &at,
                    "is an http URL: requests to the proxy are not encrypted (V16)",
                );
            }
        }
    }

    fn contents(&mut self, at: &str, resource: &Resource) {
        if let Some(hash) = &resource.verification.hash {
            if resource.source.is_none() {
                self.error(
                    &format!("{at}.verification.hash"),
                    "there is no source to be verified (V6)",
                );
            }
            if let Some(problem) = malformed_hash(hash, self.minor) {
                self.error(
                    &format!("{at}.verification.hash"),
                    format!("{problem} (V7)"),
                );
            }
        }
        let contents = Contents::new(resource.source.as_deref(), resource.compression.as_deref());
        match contents.map(|contents| contents.bytes()) {
            Ok(Ok(bytes)) => self.hash(at, resource, &bytes),
            // A remote source is valid Ignition; whether it can be had is not a question of validity.
            Ok(Err(ContentsError::Remote(_))) => {}
            Err(error) => self.error(&format!("{at}.compression"), format!("{error} (V8)")),
            Ok(Err(error)) => self.error(&format!("{at}.source"), format!("{error} (V10)")),
        }
    }

    /// The daemon never compares the hash, so a wrong one is no reason to refuse what it would take.
    fn hash(&mut self, at: &str, resource: &Resource, bytes: &[u8]) {
        let Some((function, sum)) = resource
            .verification
            .hash
            .as_deref()
            .and_then(|hash| hash.split_once('-'))
        else {
            return;
        };
        let found = match function {
            "sha512" => hex(&Sha512::digest(bytes)),
            "sha256" => hex(&Sha256::digest(bytes)),
            _ => return,
        };
        if !found.eq_ignore_ascii_case(sum) {
            let message = "the contents have another hash; Ignition refuses that, the daemon does not compare it";
            self.warning(&format!("{at}.verification.hash"), message);
        }
    }

    fn units(&mut self, units: &[Unit]) {
        for (i, unit) in units.iter().enumerate() {
            let at = format!("systemd.units[{i}]");
            self.file_name(&format!("{at}.name"), &unit.name);
            if !UNIT_SUFFIXES
                .iter()
                .any(|suffix| unit.name.ends_with(suffix))
            {
                self.error(
                    &format!("{at}.name"),
                    format!(
                        "{:?} has no known unit suffix such as .service (V18)",
                        unit.name
                    ),
                );
            }
            self.unit_text(&format!("{at}.contents"), unit.contents.as_deref());
            if unit.enabled == Some(true) && unit.contents.as_deref().is_some_and(has_no_install) {
                self.warning(
                    &at,
                    format!(
                        "{} is to be enabled but has no [Install] section (V21)",
                        unit.name
                    ),
                );
            }
            self.instance(&at, unit, units);
            for (j, dropin) in unit.dropins.iter().enumerate() {
                let at = format!("{at}.dropins[{j}]");
                self.file_name(&format!("{at}.name"), &dropin.name);
                if !dropin.name.ends_with(".conf") {
                    self.error(
                        &format!("{at}.name"),
                        format!("{:?} does not end in .conf (V19)", dropin.name),
                    );
                }
                self.unit_text(&format!("{at}.contents"), dropin.contents.as_deref());
            }
        }
    }

    /// V22: an instance is enabled through the [Install] section of its template.
    fn instance(&mut self, at: &str, unit: &Unit, units: &[Unit]) {
        let template = template_of(&unit.name)
            .filter(|_| unit.enabled == Some(true) && unit.name.ends_with(".service"));
        let template = template.and_then(|name| {
            units
                .iter()
                .find(|other| other.name == name && other.name != unit.name)
        });
        if let Some(template) =
            template.filter(|t| t.contents.as_deref().is_some_and(has_no_install))
        {
            let message = format!(
                "{} is to be enabled but {} has no [Install] section (V22)",
                unit.name, template.name
            );
            self.warning(at, message);
        }
    }

    /// Ignition joins such names as paths; a name that leaves its directory is never meant.
    fn file_name(&mut self, at: &str, name: &str) {
        if name.contains('/') || name.contains('\0') {
            self.error(at, format!("{name:?} must be a file name without slashes"));
        }
    }

    fn unit_text(&mut self, at: &str, contents: Option<&str>) {
        if let Some(Err(error)) = contents.map(unit_file::parse) {
            self.error(at, format!("not a systemd unit file: {error} (V20)"));
        }
    }

    /// V23, V25, V27: entries that would write over or through each other.
    fn conflicts(&mut self, config: &Ignition) {
        let units = unit_paths(&config.systemd.units);
        let links: Vec<&str> = config
            .storage
            .links
            .iter()
            .map(|link| link.path.as_str())
            .collect();
        for (at, path) in nodes(config) {
            if let Some(unit) = units.get(path) {
                self.error(
                    &at,
                    format!("{path} is also written as {unit}; keep one (V27)"),
                );
            }
            let below = |link: &&&str| {
                path.strip_prefix(**link)
                    .is_some_and(|rest| rest.starts_with('/'))
            };
            if let Some(link) = links.iter().find(below) {
                self.error(
                    &at,
                    format!("{path} lies below the link {link} of the same config (V23)"),
                );
            }
        }
        let directories: BTreeSet<_> = config
            .storage
            .directories
            .iter()
            .map(|d| d.path.as_str())
            .collect();
        for (i, link) in config.storage.links.iter().enumerate() {
            let target = link.target.as_deref().unwrap_or_default();
            if link.hard == Some(true) && directories.contains(target) {
                self.error(
                    &format!("storage.links[{i}]"),
                    "a hard link cannot lead to a directory (V25)",
                );
            }
            if link.hard == Some(true)
                && (link.user != NodeOwner::default() || link.group != NodeOwner::default())
            {
                self.warning(
                    &format!("storage.links[{i}]"),
                    "the owner of a hard link is ignored (V26)",
                );
            }
        }
    }

    /// V28: two entries with one key.
    fn duplicates(&mut self, config: &Ignition) {
        self.unique(
            nodes(config)
                .into_iter()
                .map(|(at, path)| (format!("{at}.path"), path)),
        );
        let units = config.systemd.units.iter().enumerate();
        self.unique(
            units
                .clone()
                .map(|(i, unit)| (format!("systemd.units[{i}].name"), unit.name.as_str())),
        );
        for (i, unit) in units {
            let dropins = unit.dropins.iter().enumerate();
            self.unique(dropins.map(|(j, d)| {
                (
                    format!("systemd.units[{i}].dropins[{j}].name"),
                    d.name.as_str(),
                )
            }));
        }
        let users = config.passwd.users.iter().enumerate();
        self.unique(
            users
                .clone()
                .map(|(i, user)| (format!("passwd.users[{i}].name"), user.name.as_str())),
        );
        for (i, user) in users {
            let keys = user.ssh_authorized_keys.iter().enumerate();
            self.unique(keys.map(|(j, key)| {
                (
                    format!("passwd.users[{i}].sshAuthorizedKeys[{j}]"),
                    key.as_str(),
                )
            }));
        }
        let groups = config.passwd.groups.iter().enumerate();
        self.unique(
            groups.map(|(i, group)| (format!("passwd.groups[{i}].name"), group.name.as_str())),
        );
        let kargs = &config.kernel_arguments;
        let exist = kargs.should_exist.iter().enumerate();
        let absent = kargs.should_not_exist.iter().enumerate();
        self.unique(
            exist
                .map(|(i, arg)| (format!("kernelArguments.shouldExist[{i}]"), arg.as_str()))
                .chain(absent.map(|(i, arg)| {
                    (format!("kernelArguments.shouldNotExist[{i}]"), arg.as_str())
                })),
        );
    }

    fn unique<'k>(&mut self, keys: impl Iterator<Item = (String, &'k str)>) {
        let mut seen = BTreeMap::new();
        for (at, key) in keys {
            match seen.get(key) {
                Some(first) => self.error(&at, format!("stands already at {first} (V28)")),
                None => drop(seen.insert(key, at)),
            }
        }
    }
}

/// Every file, directory and link with its place; they share one key space.
fn nodes(config: &Ignition) -> Vec<(String, &str)> {
    let storage = &config.storage;
    let files = storage
        .files
        .iter()
        .enumerate()
        .map(|(i, n)| (format!("storage.files[{i}]"), n.path.as_str()));
    let dirs = storage
        .directories
        .iter()
        .enumerate()
        .map(|(i, n)| (format!("storage.directories[{i}]"), n.path.as_str()));
    let links = storage
        .links
        .iter()
        .enumerate()
        .map(|(i, n)| (format!("storage.links[{i}]"), n.path.as_str()));
    files.chain(dirs).chain(links).collect()
}

/// The paths that units and drop-ins with contents are written to.
fn unit_paths(units: &[Unit]) -> BTreeMap<String, String> {
    let filled =
        |contents: &Option<String>| contents.as_deref().is_some_and(|text| !text.is_empty());
    let mut paths = BTreeMap::new();
    for unit in units {
        if filled(&unit.contents) {
            paths.insert(
                format!("/etc/systemd/system/{}", unit.name),
                format!("unit {}", unit.name),
            );
        }
        for dropin in unit.dropins.iter().filter(|d| filled(&d.contents)) {
            let path = format!("/etc/systemd/system/{}.d/{}", unit.name, dropin.name);
            paths.insert(path, format!("drop-in {} of {}", dropin.name, unit.name));
        }
    }
    paths
}

fn unclean(path: &str) -> Option<&'static str> {
    if !path.starts_with('/') {
        return Some("is not an absolute path");
    }
    let clean = path == "/"
        || path
            .split('/')
            .skip(1)
            .all(|part| !matches!(part, "" | "." | ".."));
    (!clean).then_some("is not a clean path (no `.`, `..`, doubled or trailing slash)")
}

fn malformed_hash(hash: &str, minor: u64) -> Option<&'static str> {
    let Some((function, sum)) = hash.split_once('-') else {
        return Some("has no form `sha512-HEX`");
    };
    let wanted = match function {
        "sha512" => 128,
        "sha256" if minor >= 1 => 64,
        "sha256" => return Some("is sha256, which came with spec 3.1"),
        _ => return Some("is neither sha512 nor sha256"),
    };
    let hex = sum.len() == wanted && sum.bytes().all(|b| b.is_ascii_hexdigit());
    (!hex).then_some("has not as many hexadecimal digits as its function gives")
}

fn has_no_install(contents: &str) -> bool {
    let options = unit_file::parse(contents).unwrap_or_default();
    !contents.is_empty() && !options.iter().any(|option| option.section == "Install")
}
