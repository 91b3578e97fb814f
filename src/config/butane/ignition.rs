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
                report.add_error(item.from.clone(), "duplicate entry defined");
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
        checker.check_units(systemd.items_at("units"));
    }
}

struct Checker<'r> {
    level: SchemaLevel,
    report: &'r mut Report,
}

impl Checker<'_> {
    fn add_error(&mut self, value: &Out, keys: &[&str], message: &str) {
        self.report.add_error(value.place_of(keys), message);
    }

    fn check_value(&mut self, value: &Out, keys: &[&str], message: Option<String>) {
        if let Some(message) = message {
            self.report.add_error(value.place_of(keys), message);
        }
    }

    /// Checks that no file has the path of a unit or a drop-in.
    fn check_conflicts(&mut self, config: &Out) {
        let mut written = BTreeSet::new();
        let has_text = |value: &Out| {
            value
                .text_at("contents")
                .is_some_and(|text| !text.is_empty())
        };
        let units = config
            .get("systemd")
            .map(|systemd| systemd.items_at("units"));
        for unit in units.unwrap_or_default() {
            let path = format!(
                "/etc/systemd/system/{}",
                unit.text_at("name").unwrap_or_default()
            );
            for dropin in unit
                .items_at("dropins")
                .iter()
                .filter(|dropin| has_text(dropin))
            {
                let name = dropin.text_at("name").unwrap_or_default();
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
            for node in storage.items_at(list) {
                if node
                    .text_at("path")
                    .is_some_and(|path| written.contains(path))
                {
                    self.add_error(
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
            for reference in references.items_at("merge") {
                self.check_needed_source(reference);
                self.check_resource(reference);
            }
            if let Some(replace) = references.get("replace") {
                self.check_resource(replace);
            }
        }
        if let Some(tls) = ignition.value_at(&["security", "tls"]) {
            for authority in tls.items_at("certificateAuthorities") {
                self.check_needed_source(authority);
                self.check_resource(authority);
            }
        }
    }

    fn check_needed_source(&mut self, resource: &Out) {
        if resource.text_at("source").unwrap_or_default().is_empty() {
            self.add_error(resource, &["source"], "source is required");
        }
    }

    fn check_storage(&mut self, storage: &Out) {
        for directory in storage.items_at("directories") {
            self.check_node(directory);
            self.check_owners(directory);
        }
        for disk in storage.items_at("disks") {
            self.check_disk(disk);
        }
        for file in storage.items_at("files") {
            self.check_node(file);
            if file.is_true("overwrite") && file.value_at(&["contents", "source"]).is_none() {
                let message = "overwrite must be false if source is unspecified";
                self.add_error(file, &["overwrite"], message);
            }
            self.check_owners(file);
            for part in file.items_at("append") {
                self.check_resource(part);
            }
            if let Some(contents) = file.get("contents") {
                self.check_resource(contents);
            }
        }
        for filesystem in storage.items_at("filesystems") {
            self.check_filesystem(filesystem);
        }
        for link in storage.items_at("links") {
            self.check_value(
                link,
                &["path"],
                bad_path(link.text_at("path").unwrap_or_default()),
            );
            if link.text_at("target").unwrap_or_default().is_empty()
                && self.level >= SchemaLevel::V5
            {
                self.add_error(link, &["target"], "link target is required");
            }
            self.check_owners(link);
        }
        for volume in storage.items_at("luks") {
            self.check_luks(volume);
        }
        for raid in storage.items_at("raid") {
            self.check_raid(raid);
        }
    }

    /// Checks the path and mode of a file or directory.
    fn check_node(&mut self, node: &Out) {
        self.check_value(
            node,
            &["path"],
            bad_path(node.text_at("path").unwrap_or_default()),
        );
        let mode = node.number_at("mode").unwrap_or_default();
        if !(0..=0o7777).contains(&mode) {
            self.add_error(node, &["mode"], "illegal file mode");
        }
        if mode & 0o7000 != 0 && self.level < SchemaLevel::V8 {
            let message = "setuid/setgid/sticky bits are not supported or functional in spec versions older than 3.6.0";
            self.report.add_warning(node.place_of(&["mode"]), message);
        }
    }

    fn check_owners(&mut self, node: &Out) {
        for key in ["group", "user"] {
            let Some(owner) = node.get(key) else { continue };
            let named = owner.text_at("name").is_some_and(|name| !name.is_empty());
            if named && owner.get("id").is_some() {
                self.add_error(owner, &[], "cannot set both id and name");
            }
        }
    }

    fn check_resource(&mut self, resource: &Out) {
        let compression = resource.text_at("compression").unwrap_or_default();
        if !["", "gzip"].contains(&compression) {
            self.add_error(resource, &["compression"], "invalid compression method");
        }
        let source = resource.text_at("source");
        let hash = resource
            .get("verification")
            .and_then(|one| one.text_at("hash"));
        if hash.is_some() && source.is_none() {
            let message = "source must be specified if verification is specified";
            self.add_error(resource, &["verification", "hash"], message);
        }
        let problem = source
            .filter(|source| !source.is_empty())
            .and_then(|source| bad_url(source, self.level));
        self.check_value(resource, &["source"], problem);
        if !resource.items_at("httpHeaders").is_empty() {
            let problem = match source.and_then(|source| source.split_once(':')) {
                Some(("http" | "https", _)) => None,
                Some(_) => Some("cannot use HTTP headers with this source scheme".to_owned()),
                None => Some("unable to parse url".to_owned()),
            };
            self.check_value(resource, &["httpHeaders"], problem);
        }
        self.check_value(resource, &["verification", "hash"], hash.and_then(bad_hash));
    }

    fn check_disk(&mut self, disk: &Out) {
        let device = disk.text_at("device").unwrap_or_default();
        if device.is_empty() {
            return self.add_error(disk, &["device"], "disk device is required");
        }
        self.check_value(disk, &["device"], bad_path(device));
        for partition in disk.items_at("partitions") {
            let label = partition.text_at("label").unwrap_or_default();
            if label.is_empty() && partition.number_at("number").unwrap_or_default() == 0 {
                let message = "a partition number >= 1 or a label must be specified";
                self.add_error(partition, &[], message);
            }
            if label.chars().count() > 36 {
                self.add_error(
                    partition,
                    &["label"],
                    "partition labels may not exceed 36 characters",
                );
            }
            if label.contains(':') {
                let message = "partition label will be truncated to text before the colon";
                self.report
                    .add_warning(partition.place_of(&["label"]), message);
            }
        }
    }

    fn check_filesystem(&mut self, filesystem: &Out) {
        let text = |key| filesystem.text_at(key).unwrap_or_default();
        let path = Some(text("path")).filter(|path| !path.is_empty());
        self.check_value(filesystem, &["path"], path.and_then(bad_path));
        self.check_value(filesystem, &["device"], bad_path(text("device")));
        let format = text("format");
        let others = ["path", "label", "uuid"]
            .iter()
            .any(|key| !text(key).is_empty())
            || filesystem.is_true("wipeFilesystem")
            || ["options", "mountOptions"]
                .iter()
                .any(|key| !filesystem.items_at(key).is_empty());
        let known = ["ext4", "btrfs", "xfs", "vfat", "swap"];
        if format.is_empty() && others {
            let message = "format cannot be empty when path, label, uuid, wipeFilesystem, options, or mountOptions is specified";
            self.add_error(filesystem, &["format"], message);
        } else if !format.is_empty() && !known.contains(&format) {
            self.add_error(filesystem, &["format"], "invalid filesystem format");
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
        self.check_value(filesystem, &["label"], problem);
    }

    fn check_luks(&mut self, volume: &Out) {
        if volume
            .text_at("name")
            .is_some_and(|name| name.contains('/'))
        {
            self.add_error(volume, &["name"], "device names cannot contain slashes");
        }
        if volume
            .text_at("label")
            .is_some_and(|label| label.len() > 47)
        {
            let message = "luks device labels cannot be longer than 47 characters";
            self.add_error(volume, &["label"], message);
        }
        let problem = match volume.text_at("device").unwrap_or_default() {
            "" => Some("disk device is required".to_owned()),
            device => bad_path(device),
        };
        self.check_value(volume, &["device"], problem);
        if let Some(clevis) = volume.get("clevis") {
            for server in clevis.items_at("tang") {
                if server.text_at("thumbprint").unwrap_or_default().is_empty() {
                    self.add_error(server, &["thumbprint"], "thumbprint is required");
                }
            }
        }
        if let Some(key_file) = volume.get("keyFile") {
            self.check_resource(key_file);
        }
    }

    fn check_raid(&mut self, raid: &Out) {
        let level = raid.text_at("level").unwrap_or_default();
        let striped = ["linear", "raid0", "0", "stripe"].contains(&level);
        let known = [
            "linear", "raid0", "0", "stripe", "raid1", "1", "mirror", "raid4", "4", "raid5", "5",
            "raid6", "6", "raid10", "10",
        ];
        let problem = match level {
            "" if self.level >= SchemaLevel::V5 => Some("raid level is required"),
            level if !known.contains(&level) => Some("unrecognized raid level"),
            _ if striped && raid.number_at("spares").unwrap_or_default() != 0 => {
                Some("spares unsupported for linear and raid0 arrays")
            }
            _ => None,
        };
        self.check_value(raid, &["level"], problem.map(str::to_owned));
        if raid.items_at("devices").is_empty() {
            self.add_error(raid, &["devices"], "raid devices required");
        }
    }

    fn check_units(&mut self, units: &[Out]) {
        for unit in units {
            self.check_instance(unit, units);
        }
        for unit in units {
            let name = unit.text_at("name").unwrap_or_default();
            if !has_ignition_suffix(name) {
                self.add_error(unit, &["name"], "invalid systemd unit extension");
            }
            let contents = unit.text_at("contents").unwrap_or_default();
            let options = parse_options(contents);
            if let Err(error) = &options {
                let message = format!("invalid unit content: {}", error.kind);
                self.add_error(unit, &["contents"], &message);
            }
            if unit.is_true("enabled")
                && !contents.is_empty()
                && !has_install(&options.unwrap_or_default())
            {
                let name = quote_go(name);
                let message = format!(
                    "unit {name} is enabled, but has no install section so enable does nothing"
                );
                self.report
                    .add_warning(unit.place_of(&["contents"]), message);
            }
            for dropin in unit.items_at("dropins") {
                if !dropin
                    .text_at("name")
                    .unwrap_or_default()
                    .ends_with(".conf")
                {
                    self.add_error(dropin, &["name"], "invalid systemd drop-in extension");
                }
                if let Err(error) = parse_options(dropin.text_at("contents").unwrap_or_default()) {
                    let message = format!("invalid unit content: {}", error.kind);
                    self.add_error(dropin, &["contents"], &message);
                }
            }
        }
    }

    /// Checks the section [Install] for an instance, which comes from its template.
    fn check_instance(&mut self, unit: &Out, units: &[Out]) {
        let name = unit.text_at("name").unwrap_or_default();
        let parts = name
            .strip_suffix(".service")
            .and_then(|name| name.split_once('@'));
        let Some((base, _)) = parts.filter(|parts| !parts.0.is_empty() && !parts.1.is_empty())
        else {
            return;
        };
        let template = format!("{base}@.service");
        let mut others = units.iter().rev();
        let other = others.find(|other| other.text_at("name") == Some(&template));
        let contents = other
            .and_then(|other| other.text_at("contents"))
            .filter(|text| !text.is_empty());
        let Some(contents) = contents.filter(|_| unit.is_true("enabled")) else {
            return;
        };
        if parse_options(contents).is_ok_and(|options| !has_install(&options)) {
            let (template, name) = (quote_go(&template), quote_go(name));
            let message =
                format!("template unit {template} for {name} doesn't have Install section");
            self.report
                .add_warning(unit.place_of(&["contents"]), message);
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
