//! Files, directories and links: V1 to V5 for each, V23 to V27 between them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Arguments;

use super::resources::ResourcePlace;
use super::{Checker, with_hint};
use crate::config::document::ignition::{Ignition, Link, NodeOwner, Storage, Unit};
use crate::config::document::modes::octal_hint;

/// Set-user-id, set-group-id and sticky bit.
const SPECIAL_BITS: i64 = 0o7000;

impl Checker<'_> {
    pub(super) fn check_storage(&mut self, storage: &Storage) {
        for (i, file) in storage.files.iter().enumerate() {
            let at = format_args!("storage.files[{i}]");
            self.check_path(at, &file.path);
            self.check_mode(at, file.mode, false);
            self.check_owners(at, &file.user, &file.group);
            self.check_resource(
                format_args!("{at}.contents"),
                &file.contents,
                ResourcePlace::Contents,
            );
            for (j, part) in file.append.iter().enumerate() {
                self.check_resource(
                    format_args!("{at}.append[{j}]"),
                    part,
                    ResourcePlace::Fragment,
                );
            }
            if file.overwrite == Some(true) && file.contents.source.is_none() {
                self.add_error(
                    at,
                    "overwrite is true but there is no contents.source; give one (\"data:,\" is an empty file) or leave overwrite out",
                );
            }
        }
        for (i, directory) in storage.directories.iter().enumerate() {
            let at = format_args!("storage.directories[{i}]");
            self.check_path(at, &directory.path);
            self.check_mode(at, directory.mode, true);
            self.check_owners(at, &directory.user, &directory.group);
        }
        for (i, link) in storage.links.iter().enumerate() {
            let at = format_args!("storage.links[{i}]");
            self.check_path(at, &link.path);
            self.check_owners(at, &link.user, &link.group);
            // Before 3.3, Ignition finds this only after merging, but also refuses it.
            if link_target(link).is_empty() {
                self.add_error(
                    format_args!("{at}.target"),
                    "missing; a link needs a target",
                );
            }
        }
    }

    fn check_path(&mut self, at: Arguments<'_>, path: &str) {
        if let Some(problem) = path_problem(path) {
            self.add_error(format_args!("{at}.path"), format!("{path:?} {problem}"));
        }
    }

    fn check_mode(&mut self, at: Arguments<'_>, mode: Option<i64>, is_directory: bool) {
        let Some(mode) = mode else {
            return;
        };
        let at = format_args!("{at}.mode");
        let hint = octal_hint(mode, is_directory);
        if !(0..=0o7777).contains(&mode) {
            let message = "illegal file mode; modes are decimal numbers from 0 to 4095";
            self.add_error(at, with_hint(message, hint));
        } else if let Some(hint) = hint {
            self.add_warning(at, hint);
        } else if mode & SPECIAL_BITS != 0 && self.minor < 6 {
            let message = format!(
                "{mode:05o} has special bits, which take effect from spec 3.6 on; {:04o} is used. Raise ignition.version or leave them out",
                mode & !SPECIAL_BITS
            );
            self.add_warning(at, message);
        }
    }

    fn check_owners(&mut self, at: Arguments<'_>, user: &NodeOwner, group: &NodeOwner) {
        for (owner, key) in [(user, "user"), (group, "group")] {
            if owner.id.is_some() && has_name(owner) {
                self.add_error(format_args!("{at}.{key}"), "has both id and name; keep one");
            }
            // The kernel takes the highest id for "leave unchanged".
            let is_id = |id: i64| u32::try_from(id).is_ok_and(|id| id != u32::MAX);
            if owner.id.is_some_and(|id| !is_id(id)) {
                self.add_error(
                    format_args!("{at}.{key}.id"),
                    "is not a 32-bit user or group id; give a number from 0 to 4294967294",
                );
            }
        }
    }

    /// V23 and V27: entries that would be written over or through each other.
    pub(super) fn check_conflicts(&mut self, config: &Ignition) {
        let links = config.storage.links.iter();
        let links: Vec<&str> = links.map(|link| link.path.as_str()).collect();
        let nodes = node_paths(&config.storage);
        let is_of_units = |node: &NodePlace<'_>| node.path.starts_with(UNITS);
        let units = if nodes.iter().any(is_of_units) {
            unit_paths(&config.systemd.units)
        } else {
            BTreeMap::new()
        };
        for NodePlace { list, index, path } in nodes {
            let at = format_args!("storage.{list}[{index}]");
            if let Some(unit) = units.get(path) {
                self.add_error(at, format!("{path} is also written as {unit}; keep one"));
            }
            let below = |link: &&&str| {
                let rest = path.strip_prefix(**link);
                rest.is_some_and(|rest| rest.starts_with('/'))
            };
            if let Some(link) = links.iter().find(below) {
                let message = format!(
                    "{path} lies below the link {link} of the same config; write the path that the link leads to"
                );
                self.add_error(at, message);
            }
        }
    }

    /// V25 and V26.
    pub(super) fn check_hard_links(&mut self, storage: &Storage) {
        let directories = storage.directories.iter();
        let directories: BTreeSet<&str> = directories.map(|d| d.path.as_str()).collect();
        let links = storage.links.iter().enumerate();
        for (i, link) in links.filter(|(_, link)| link.hard == Some(true)) {
            let at = format_args!("storage.links[{i}]");
            if directories.contains(checked_target(link).as_str()) {
                self.add_error(
                    at,
                    "a hard link cannot lead to a directory; make it a soft link",
                );
            }
            if [&link.user, &link.group]
                .into_iter()
                .any(|owner| owner.id.is_some() || has_name(owner))
            {
                self.add_warning(
                    at,
                    "the owner of a hard link is ignored; give it to the file that it leads to",
                );
            }
        }
    }
}

fn has_name(owner: &NodeOwner) -> bool {
    owner.name.as_deref().is_some_and(|name| !name.is_empty())
}

fn link_target(link: &Link) -> &str {
    link.target.as_deref().unwrap_or_default()
}

/// Returns the target of a hard link by Ignition's rule, which joins a relative target to the link's own path instead of its
/// parent. (When the link is created, the target is relative to the root.)
fn checked_target(link: &Link) -> String {
    match link_target(link) {
        absolute if absolute.starts_with('/') => clean_path(absolute),
        relative => clean_path(&format!("{}/{relative}", link.path)),
    }
}

/// Returns an absolute path without `.`, `..`, double and trailing slashes.
fn clean_path(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    format!("/{}", parts.join("/"))
}

/// The path of a file, directory or link, and its place below `storage`.
struct NodePlace<'c> {
    list: &'static str,
    index: usize,
    path: &'c str,
}

/// Returns every file, directory and link; their paths share one namespace.
fn node_paths(storage: &Storage) -> Vec<NodePlace<'_>> {
    let files = storage.files.iter().map(|n| n.path.as_str()).enumerate();
    let directories = storage.directories.iter();
    let directories = directories.map(|n| n.path.as_str()).enumerate();
    let links = storage.links.iter().map(|n| n.path.as_str()).enumerate();
    let in_list = |list| move |(index, path)| NodePlace { list, index, path };
    let files = files.map(in_list("files"));
    let others = directories.map(in_list("directories"));
    files
        .chain(others)
        .chain(links.map(in_list("links")))
        .collect()
}

/// The directory of units and drop-ins.
const UNITS: &str = "/etc/systemd/system/";

/// Returns the paths of units and drop-ins with contents.
fn unit_paths(units: &[Unit]) -> BTreeMap<String, String> {
    let mut paths = BTreeMap::new();
    for unit in units {
        if unit.text().is_some() {
            let path = format!("{UNITS}{}", unit.name);
            paths.insert(path, format!("unit {}", unit.name));
        }
        for dropin in unit.dropins.iter().filter(|d| d.text().is_some()) {
            let path = format!("{UNITS}{}.d/{}", unit.name, dropin.name);
            paths.insert(path, format!("drop-in {} of {}", dropin.name, unit.name));
        }
    }
    paths
}

fn path_problem(path: &str) -> Option<&'static str> {
    if !path.starts_with('/') {
        return Some("is not an absolute path; begin it with a slash");
    }
    let mut parts = path.split('/').skip(1);
    let clean = path == "/" || parts.all(|part| !matches!(part, "" | "." | ".."));
    (!clean).then_some("is not a clean path (no `.`, `..`, doubled or trailing slash)")
}
