//! Ignition's own rules, applied to the output, with Ignition's messages.
//!
//! Only some rules about disks are included: a disk layout is only used at first boot, where Ignition checks it again.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::go_quote::quote_go;
use crate::config::document::data_url;
use crate::formats::systemd::unit_file::{UnitOption, parse_options};
use crate::formats::systemd::unit_name::has_ignition_suffix;

use super::out::{Out, OutValue, key_of};
use super::report::Report;
use super::version::SchemaLevel;

/// Lists that may contain duplicates.
const REPEATABLE: [&str; 4] = ["append", "options", "openOptions", "mountOptions"];
/// Lists that share a namespace of keys, and the name of that namespace.
const SHARED: [(&str, &str); 5] = [
    ("directories", "nodes"),
    ("files", "nodes"),
    ("links", "nodes"),
    ("shouldExist", "arguments"),
    ("shouldNotExist", "arguments"),
];

/// Finds duplicate list items.
pub(super) fn check_duplicates(value: &Out, report: &mut Report) {
    let OutValue::Map(entries) = &value.value else {
        return;
    };
    let mut seen: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (key, list) in entries {
        let OutValue::List(items) = &list.value else {
            continue;
        };
        if REPEATABLE.contains(&key.as_str()) {
            continue;
        }
        let shared = SHARED.iter().find(|row| row.0 == key);
        let known = seen
            .entry(shared.map_or(key.as_str(), |row| row.1))
            .or_default();
        for item in items {
            if !known.insert(key_of(key, item)) {
                report.error(item.from.clone(), "duplicate entry defined");
            }
        }
    }
    for (_, below) in entries {
        match &below.value {
            OutValue::Map(_) => check_duplicates(below, report),
            OutValue::List(items) => {
                for item in items {
                    check_duplicates(item, report);
                }
            }
            OutValue::Leaf(_) => {}
        }
    }
}

/// Checks an Ignition config.
pub(super) fn check_ignition(config: &Out, level: SchemaLevel, report: &mut Report) {
    let mut checker = Checker { level, report };
    checker.check_conflicts(config);
    checker.check_references(config);
    if let Some(storage) = config.get("storage") {
        checker.check_storage(storage);
    }
    if let Some(systemd) = config.get("systemd") {
        checker.check_units(systemd.items("units"));
    }
}

struct Checker<'r> {
    level: SchemaLevel,
    report: &'r mut Report,
}

impl Checker<'_> {
    fn error(&mut self, value: &Out, keys: &[&str], message: &str) {
        self.report.error(value.place_of(keys), message);
    }

    fn check(&mut self, value: &Out, keys: &[&str], message: Option<String>) {
        if let Some(message) = message {
            self.report.error(value.place_of(keys), message);
        }
    }

    /// Checks that no file has the path of a unit or a drop-in.
    fn check_conflicts(&mut self, config: &Out) {
        let mut written = BTreeSet::new();
        let has_text = |value: &Out| value.text("contents").is_some_and(|text| !text.is_empty());
        let units = config.get("systemd").map(|systemd| systemd.items("units"));
        for unit in units.unwrap_or_default() {
            let path = format!(
                "/etc/systemd/system/{}",
                unit.text("name").unwrap_or_default()
            );
            for dropin in unit
                .items("dropins")
                .iter()
                .filter(|dropin| has_text(dropin))
            {
                let name = dropin.text("name").unwrap_or_default();
                written.insert(format!("{path}.d/{name}"));
            }
            if has_text(unit) {
                written.insert(path);
            }
        }
        let Some(storage) = config.get("storage") else {
            return;
        };
        for list in ["files", "directories", "links"] {
            for node in storage.items(list) {
                if node.text("path").is_some_and(|path| written.contains(path)) {
                    self.error(
                        node,
                        &["path"],
                        "path conflicts with systemd unit or dropin",
                    );
                }
            }
        }
    }

    fn check_references(&mut self, config: &Out) {
        let Some(ignition) = config.get("ignition") else {
            return;
        };
        if let Some(references) = ignition.get("config") {
            for reference in references.items("merge") {
                self.check_needed_source(reference);
                self.check_resource(reference);
            }
            if let Some(replace) = references.get("replace") {
                self.check_resource(replace);
            }
        }
        if let Some(tls) = ignition.at(&["security", "tls"]) {
            for authority in tls.items("certificateAuthorities") {
                self.check_needed_source(authority);
                self.check_resource(authority);
            }
        }
    }

    fn check_needed_source(&mut self, resource: &Out) {
        if resource.text("source").unwrap_or_default().is_empty() {
            self.error(resource, &["source"], "source is required");
        }
    }

    fn check_storage(&mut self, storage: &Out) {
        for directory in storage.items("directories") {
            self.check_node(directory);
            self.check_owners(directory);
        }
        for disk in storage.items("disks") {
            self.check_disk(disk);
        }
        for file in storage.items("files") {
            self.check_node(file);
            if file.is_true("overwrite") && file.at(&["contents", "source"]).is_none() {
                let message = "overwrite must be false if source is unspecified";
                self.error(file, &["overwrite"], message);
            }
            self.check_owners(file);
            for part in file.items("append") {
                self.check_resource(part);
            }
            if let Some(contents) = file.get("contents") {
                self.check_resource(contents);
            }
        }
        for filesystem in storage.items("filesystems") {
            self.check_filesystem(filesystem);
        }
        for link in storage.items("links") {
            self.check(
                link,
                &["path"],
                bad_path(link.text("path").unwrap_or_default()),
            );
            if link.text("target").unwrap_or_default().is_empty() && self.level >= SchemaLevel::V5 {
                self.error(link, &["target"], "link target is required");
            }
            self.check_owners(link);
        }
        for volume in storage.items("luks") {
            self.check_luks(volume);
        }
        for raid in storage.items("raid") {
            self.check_raid(raid);
        }
    }

    /// Checks the path and mode of a file or directory.
    fn check_node(&mut self, node: &Out) {
        self.check(
            node,
            &["path"],
            bad_path(node.text("path").unwrap_or_default()),
        );
        let mode = node.number("mode").unwrap_or_default();
        if !(0..=0o7777).contains(&mode) {
            self.error(node, &["mode"], "illegal file mode");
        }
        if mode & 0o7000 != 0 && self.level < SchemaLevel::V8 {
            let message = "setuid/setgid/sticky bits are not supported or functional in spec versions older than 3.6.0";
            self.report.warning(node.place_of(&["mode"]), message);
        }
    }

    fn check_owners(&mut self, node: &Out) {
        for key in ["group", "user"] {
            let Some(owner) = node.get(key) else { continue };
            let named = owner.text("name").is_some_and(|name| !name.is_empty());
            if named && owner.get("id").is_some() {
                self.error(owner, &[], "cannot set both id and name");
            }
        }
    }

    fn check_resource(&mut self, resource: &Out) {
        let compression = resource.text("compression").unwrap_or_default();
        if !["", "gzip"].contains(&compression) {
            self.error(resource, &["compression"], "invalid compression method");
        }
        let source = resource.text("source");
        let hash = resource
            .get("verification")
            .and_then(|one| one.text("hash"));
        if hash.is_some() && source.is_none() {
            let message = "source must be specified if verification is specified";
            self.error(resource, &["verification", "hash"], message);
        }
        let problem = source
            .filter(|source| !source.is_empty())
            .and_then(|source| bad_url(source, self.level));
        self.check(resource, &["source"], problem);
        if !resource.items("httpHeaders").is_empty() {
            let problem = match source.and_then(|source| source.split_once(':')) {
                Some(("http" | "https", _)) => None,
                Some(_) => Some("cannot use HTTP headers with this source scheme".to_owned()),
                None => Some("unable to parse url".to_owned()),
            };
            self.check(resource, &["httpHeaders"], problem);
        }
        self.check(resource, &["verification", "hash"], hash.and_then(bad_hash));
    }

    fn check_disk(&mut self, disk: &Out) {
        let device = disk.text("device").unwrap_or_default();
        if device.is_empty() {
            return self.error(disk, &["device"], "disk device is required");
        }
        self.check(disk, &["device"], bad_path(device));
        for partition in disk.items("partitions") {
            let label = partition.text("label").unwrap_or_default();
            if label.is_empty() && partition.number("number").unwrap_or_default() == 0 {
                let message = "a partition number >= 1 or a label must be specified";
                self.error(partition, &[], message);
            }
            if label.chars().count() > 36 {
                self.error(
                    partition,
                    &["label"],
                    "partition labels may not exceed 36 characters",
                );
            }
            if label.contains(':') {
                let message = "partition label will be truncated to text before the colon";
                self.report.warning(partition.place_of(&["label"]), message);
            }
        }
    }

    fn check_filesystem(&mut self, filesystem: &Out) {
        let text = |key| filesystem.text(key).unwrap_or_default();
        let path = Some(text("path")).filter(|path| !path.is_empty());
        self.check(filesystem, &["path"], path.and_then(bad_path));
        self.check(filesystem, &["device"], bad_path(text("device")));
        let format = text("format");
        let others = ["path", "label", "uuid"]
            .iter()
            .any(|key| !text(key).is_empty())
            || filesystem.is_true("wipeFilesystem")
            || ["options", "mountOptions"]
                .iter()
                .any(|key| !filesystem.items(key).is_empty());
        let known = ["ext4", "btrfs", "xfs", "vfat", "swap"];
        if format.is_empty() && others {
            let message = "format cannot be empty when path, label, uuid, wipeFilesystem, options, or mountOptions is specified";
            self.error(filesystem, &["format"], message);
        } else if !format.is_empty() && !known.contains(&format) {
            self.error(filesystem, &["format"], "invalid filesystem format");
        }
        let longest = [
            ("ext4", 16),
            ("btrfs", 256),
            ("xfs", 12),
            ("swap", 15),
            ("vfat", 11),
        ];
        let longest = longest.iter().find(|row| row.0 == format).map(|row| row.1);
        let problem = longest.filter(|longest| text("label").len() > *longest).map(|longest| {
            format!("filesystem labels cannot be longer than {longest} characters when using {format}")
        });
        self.check(filesystem, &["label"], problem);
    }

    fn check_luks(&mut self, volume: &Out) {
        if volume.text("name").is_some_and(|name| name.contains('/')) {
            self.error(volume, &["name"], "device names cannot contain slashes");
        }
        if volume.text("label").is_some_and(|label| label.len() > 47) {
            let message = "luks device labels cannot be longer than 47 characters";
            self.error(volume, &["label"], message);
        }
        let problem = match volume.text("device").unwrap_or_default() {
            "" => Some("disk device is required".to_owned()),
            device => bad_path(device),
        };
        self.check(volume, &["device"], problem);
        if let Some(clevis) = volume.get("clevis") {
            for server in clevis.items("tang") {
                if server.text("thumbprint").unwrap_or_default().is_empty() {
                    self.error(server, &["thumbprint"], "thumbprint is required");
                }
            }
        }
        if let Some(key_file) = volume.get("keyFile") {
            self.check_resource(key_file);
        }
    }

    fn check_raid(&mut self, raid: &Out) {
        let level = raid.text("level").unwrap_or_default();
        let striped = ["linear", "raid0", "0", "stripe"].contains(&level);
        let known = [
            "linear", "raid0", "0", "stripe", "raid1", "1", "mirror", "raid4", "4", "raid5", "5",
            "raid6", "6", "raid10", "10",
        ];
        let problem = match level {
            "" if self.level >= SchemaLevel::V5 => Some("raid level is required"),
            level if !known.contains(&level) => Some("unrecognized raid level"),
            _ if striped && raid.number("spares").unwrap_or_default() != 0 => {
                Some("spares unsupported for linear and raid0 arrays")
            }
            _ => None,
        };
        self.check(raid, &["level"], problem.map(str::to_owned));
        if raid.items("devices").is_empty() {
            self.error(raid, &["devices"], "raid devices required");
        }
    }

    fn check_units(&mut self, units: &[Out]) {
        for unit in units {
            self.check_instance(unit, units);
        }
        for unit in units {
            let name = unit.text("name").unwrap_or_default();
            if !has_ignition_suffix(name) {
                self.error(unit, &["name"], "invalid systemd unit extension");
            }
            let contents = unit.text("contents").unwrap_or_default();
            let options = parse_options(contents);
            if let Err(error) = &options {
                let message = format!("invalid unit content: {}", error.kind);
                self.error(unit, &["contents"], &message);
            }
            if unit.is_true("enabled")
                && !contents.is_empty()
                && !has_install(&options.unwrap_or_default())
            {
                let name = quote_go(name);
                let message = format!(
                    "unit {name} is enabled, but has no install section so enable does nothing"
                );
                self.report.warning(unit.place_of(&["contents"]), message);
            }
            for dropin in unit.items("dropins") {
                if !dropin.text("name").unwrap_or_default().ends_with(".conf") {
                    self.error(dropin, &["name"], "invalid systemd drop-in extension");
                }
                if let Err(error) = parse_options(dropin.text("contents").unwrap_or_default()) {
                    let message = format!("invalid unit content: {}", error.kind);
                    self.error(dropin, &["contents"], &message);
                }
            }
        }
    }

    /// Checks the section [Install] for an instance, which comes from its template.
    fn check_instance(&mut self, unit: &Out, units: &[Out]) {
        let name = unit.text("name").unwrap_or_default();
        let parts = name
            .strip_suffix(".service")
            .and_then(|name| name.split_once('@'));
        let Some((base, _)) = parts.filter(|parts| !parts.0.is_empty() && !parts.1.is_empty())
        else {
            return;
        };
        let template = format!("{base}@.service");
        let mut others = units.iter().rev();
        let other = others.find(|other| other.text("name") == Some(&template));
        let contents = other
            .and_then(|other| other.text("contents"))
            .filter(|text| !text.is_empty());
        let Some(contents) = contents.filter(|_| unit.is_true("enabled")) else {
            return;
        };
        if parse_options(contents).is_ok_and(|options| !has_install(&options)) {
            let (template, name) = (quote_go(&template), quote_go(name));
            let message =
                format!("template unit {template} for {name} doesn't have Install section");
            self.report.warning(unit.place_of(&["contents"]), message);
        }
    }
}

fn has_install(options: &[UnitOption]) -> bool {
    options.iter().any(|option| option.section == "Install")
}

fn bad_path(path: &str) -> Option<String> {
    let message = if path.is_empty() {
        "path not specified"
    } else if !path.starts_with('/') {
        "path not absolute"
    } else if path != "/"
        && path
            .split('/')
            .skip(1)
            .any(|part| ["", ".", ".."].contains(&part))
    {
        "path is not fully simplified"
    } else {
        return None;
    };
    Some(message.to_owned())
}

fn bad_url(source: &str, level: SchemaLevel) -> Option<String> {
    if source.starts_with([':', ' ']) || source.chars().any(|c| c.is_ascii_control()) {
        return Some("unable to parse url".to_owned());
    }
    let scheme = source
        .split_once(':')
        .map(|(scheme, _)| scheme.to_ascii_lowercase());
    match scheme.as_deref() {
        Some("data") => data_url(source).err().map(|error| error.to_string()),
        Some("http" | "https" | "tftp" | "s3" | "gs") => None,
        Some("arn") if level >= SchemaLevel::V5 => None,
        _ => Some("invalid url scheme".to_owned()),
    }
}

fn bad_hash(hash: &str) -> Option<String> {
    let message = match hash.split_once('-') {
        None => "malformed hash specifier",
        Some(("sha512", sum)) if sum.len() == 128 => return None,
        Some(("sha256", sum)) if sum.len() == 64 => return None,
        Some(("sha512" | "sha256", _)) => "incorrect size for hash sum",
        Some(_) => "unrecognized hash function",
    };
    Some(message.to_owned())
}
