//! Reduces paths, units and users to one entry each: the operator's rule up to 2.2, an error from 2.3 on.

use std::collections::{BTreeMap, BTreeSet};

use super::model::{
    DAEMON_MINOR, Spec2Config, Spec2Dropin, Spec2File, Spec2Meta, Spec2Passwd, Spec2Storage,
    Spec2Systemd, Spec2Unit, Spec2User,
};
use crate::config::document::contents::data_url;
use crate::config::document::finding::{Finding, path_below};

/// An entry of a list with its path in the document.
pub(super) struct Placed<T> {
    /// The JSON path as written.
    pub at: String,
    /// The entry.
    pub entry: T,
}

/// A unit whose drop-ins may come from several entries.
pub(super) struct PlacedUnit {
    /// The JSON path of the effective entry.
    pub at: String,
    /// The entry, without its drop-ins.
    pub unit: Spec2Unit,
    /// The drop-ins, starting with those of the effective entry.
    pub dropins: Vec<Placed<Spec2Dropin>>,
}

/// A user whose keys may come from several entries.
pub(super) struct PlacedUser {
    /// The JSON path of the effective entry.
    pub at: String,
    /// The entry, without its keys.
    pub user: Spec2User,
    /// The keys, starting with those of the effective entry.
    pub keys: Vec<Placed<String>>,
}

/// A config with one entry for each path, unit and user. Other lists are empty.
pub(super) struct Reduced {
    /// The `ignition` section.
    pub ignition: Spec2Meta,
    /// Groups only.
    pub passwd: Spec2Passwd,
    /// Everything except files. Paths are clean.
    pub storage: Spec2Storage,
    /// Files. Paths are clean.
    pub files: Vec<Placed<Spec2File>>,
    /// Units.
    pub units: Vec<PlacedUnit>,
    /// Users.
    pub users: Vec<PlacedUser>,
}

/// The result of reducing a config.
pub(super) struct Reduction {
    /// The config; only usable if no finding is an error.
    pub config: Reduced,
    /// Clean paths of files, each with the path as written; only those that differ.
    pub cleaned: BTreeMap<String, String>,
    /// Shadowed entries as warnings, contradictions as errors.
    pub findings: Vec<Finding>,
}

/// Reduces a checked config of this minor version.
pub(super) fn reduce_config(mut config: Spec2Config, minor: u64, at: &str) -> Reduction {
    let mut findings = Vec::new();
    let files = std::mem::take(&mut config.storage.files);
    let mut files = with_places(files, &path_below(at, "storage.files"));
    let Spec2Systemd { units } = config.systemd;
    let units = with_places(units, &path_below(at, "systemd.units"));
    let mut units: Vec<_> = units.into_iter().map(with_dropins).collect();
    let users = std::mem::take(&mut config.passwd.users);
    let users = with_places(users, &path_below(at, "passwd.users"));
    let mut users: Vec<_> = users.into_iter().map(with_keys).collect();
    if minor <= DAEMON_MINOR {
        files = last_files(files, &mut findings);
        units = last_units(units, &mut findings);
        only_core(&users, at, &mut findings);
        users = last_users(users, &mut findings);
    }
    let mut reduced = Reduced {
        ignition: config.ignition,
        passwd: config.passwd,
        storage: config.storage,
        files,
        units,
        users,
    };
    let cleaned = reduced.clean_paths();
    reduced.node_conflicts(at, &mut findings);
    reduced.unit_conflicts(&mut findings);
    Reduction {
        config: reduced,
        cleaned,
        findings,
    }
}

fn with_places<T>(entries: Vec<T>, list: &str) -> Vec<Placed<T>> {
    let entries = entries.into_iter().enumerate();
    entries
        .map(|(index, entry)| Placed {
            at: format!("{list}[{index}]"),
            entry,
        })
        .collect()
}

fn with_dropins(mut placed_unit: Placed<Spec2Unit>) -> PlacedUnit {
    let dropins = std::mem::take(&mut placed_unit.entry.dropins);
    PlacedUnit {
        dropins: with_places(dropins, &format!("{}.dropins", placed_unit.at)),
        at: placed_unit.at,
        unit: placed_unit.entry,
    }
}

fn with_keys(mut placed_user: Placed<Spec2User>) -> PlacedUser {
    let keys = std::mem::take(&mut placed_user.entry.ssh_authorized_keys);
    PlacedUser {
        keys: with_places(keys, &format!("{}.sshAuthorizedKeys", placed_user.at)),
        at: placed_user.at,
        user: placed_user.entry,
    }
}

/// Returns the last file of each path, from last to first. The operator compares paths as written.
fn last_files(
    files: Vec<Placed<Spec2File>>,
    findings: &mut Vec<Finding>,
) -> Vec<Placed<Spec2File>> {
    let mut seen = BTreeMap::new();
    let mut kept: Vec<Placed<Spec2File>> = Vec::new();
    for file in files.into_iter().rev() {
        if let Some(winner) = seen.get(&file.entry.path) {
            let message = format!(
                "{winner} has the same path and comes later: it is used, and this one is dropped"
            );
            findings.extend(shadowed_problems(&file));
            findings.push(Finding::warning(file.at, message));
            continue;
        }
        seen.insert(file.entry.path.clone(), file.at.clone());
        kept.push(file);
    }
    kept
}

/// Returns the errors in a shadowed file: the operator checks the config before it drops entries.
fn shadowed_problems(file: &Placed<Spec2File>) -> Vec<Finding> {
    let Placed { at, entry } = file;
    let most = if at.contains("spec.config.") {
        0o777
    } else {
        0o7777
    };
    let mode = entry.mode.filter(|mode| !(0..=most).contains(mode));
    let mode = mode.map(|mode| {
        let message = format!(
            "invalid mode {mode:#o} for {}, cannot exceed {most:#o}",
            entry.path
        );
        Finding::error(format!("{at}.mode"), message)
    });
    let source = entry.contents.source.as_str();
    let broken = source
        .strip_prefix("data:")
        .and_then(|_| data_url(source).err());
    let source =
        broken.map(|error| Finding::error(format!("{at}.contents.source"), error.to_string()));
    mode.into_iter().chain(source).collect()
}

/// Returns the last unit of each name, from last to first, including drop-ins of earlier entries that it does not have itself.
fn last_units(units: Vec<PlacedUnit>, findings: &mut Vec<Finding>) -> Vec<PlacedUnit> {
    let mut kept: Vec<PlacedUnit> = Vec::new();
    for unit in units.into_iter().rev() {
        let winner = kept
            .iter_mut()
            .find(|winner| winner.unit.name == unit.unit.name);
        let Some(winner) = winner else {
            kept.push(unit);
            continue;
        };
        let message = format!(
            "{} is the same unit and comes later: it is used, and only new drop-ins are taken from this one. \
             The Machine Config Daemon verifies both and would find a mismatch where they differ",
            winner.at
        );
        findings.push(Finding::warning(unit.at, message));
        for dropin in unit.dropins {
            let known = |other: &Placed<Spec2Dropin>| other.entry.name == dropin.entry.name;
            if !winner.dropins.iter().any(known) {
                winner.dropins.push(dropin);
            }
        }
    }
    kept
}

/// Refuses users other than `core`, like the operator. Applies only to a MachineConfig, recognised by the path of its config.
fn only_core(users: &[PlacedUser], at: &str, findings: &mut Vec<Finding>) {
    let foreign = users.iter().filter(|user| user.user.name != "core");
    for user in foreign.filter(|_| at.ends_with("spec.config")) {
        let message = format!(
            "unexpected user with name: {}. Only core user is supported",
            user.user.name
        );
        findings.push(Finding::error(format!("{}.name", user.at), message));
    }
}

/// Returns the last entry of every user, with the keys of all its entries, each once. Like all lists, the result is reversed.
fn last_users(users: Vec<PlacedUser>, findings: &mut Vec<Finding>) -> Vec<PlacedUser> {
    let mut kept: Vec<PlacedUser> = Vec::new();
    for earlier in users.into_iter().rev() {
        let same = |later: &&mut PlacedUser| later.user.name == earlier.user.name;
        let Some(last) = kept.iter_mut().find(same) else {
            kept.push(earlier);
            continue;
        };
        let message = format!(
            "{} is the same user and comes later: it is used, and only the keys are taken from this one",
            last.at
        );
        findings.push(Finding::warning(earlier.at, message));
        last.keys.extend(earlier.keys);
    }
    for user in &mut kept {
        let mut seen = BTreeSet::new();
        user.keys.retain(|key| seen.insert(key.entry.clone()));
    }
    kept
}

impl Reduced {
    /// Makes paths clean: spec 2 does not require that, but the conversion does it. Returns the files whose paths were changed.
    fn clean_paths(&mut self) -> BTreeMap<String, String> {
        let directories = self.storage.directories.iter_mut().map(|d| &mut d.path);
        let links = self.storage.links.iter_mut().map(|link| &mut link.path);
        for path in directories.chain(links) {
            *path = clean_path(path);
        }
        let mut cleaned = BTreeMap::new();
        for path in self.files.iter_mut().map(|file| &mut file.entry.path) {
            let clean = clean_path(path);
            if clean != *path {
                let written = std::mem::replace(path, clean.clone());
                cleaned.insert(clean, written);
            }
        }
        cleaned
    }

    /// Returns every node with its place and path.
    fn placed_nodes(&self, at: &str) -> Vec<(String, &str)> {
        let files = self.files.iter();
        let files = files.map(|file| (file.at.clone(), file.entry.path.as_str()));
        let storage = &self.storage;
        let directories = storage.directories.iter().enumerate();
        let directories = directories.map(|(index, directory)| {
            let path = format!("storage.directories[{index}]");
            (path_below(at, &path), directory.path.as_str())
        });
        let links = storage.links.iter().enumerate();
        let links = links.map(|(index, link)| {
            let path = format!("storage.links[{index}]");
            (path_below(at, &path), link.path.as_str())
        });
        files.chain(directories).chain(links).collect()
    }

    /// Reports two nodes with one path, and nodes that the converter takes to be below a link of the config.
    fn node_conflicts(&self, at: &str, findings: &mut Vec<Finding>) {
        let mut seen: BTreeMap<&str, String> = BTreeMap::new();
        for (node, path) in self.placed_nodes(at) {
            let links = self.storage.links.iter().map(|link| link.path.as_str());
            // The prefix needs no slash: a link /foo excludes a file /foobar, as in the operator's converter.
            let mut above = links.filter(|link| path.starts_with(link) && *link != path);
            if let Some(link) = above.next() {
                let message = format!(
                    "{path} begins with the path of the link {link} of the same config, which the conversion refuses"
                );
                findings.push(Finding::error(format!("{node}.path"), message));
            }
            if let Some(first) = seen.get(path) {
                let message = format!("{path} is also the path of {first}; keep one");
                findings.push(Finding::error(format!("{node}.path"), message));
                continue;
            }
            seen.insert(path, node);
        }
    }

    fn unit_conflicts(&self, findings: &mut Vec<Finding>) {
        let units = self.units.iter();
        find_duplicates(
            units.map(|unit| (unit.at.as_str(), unit.unit.name.as_str())),
            findings,
        );
        for unit in &self.units {
            let dropins = unit.dropins.iter();
            find_duplicates(
                dropins.map(|dropin| (dropin.at.as_str(), dropin.entry.name.as_str())),
                findings,
            );
        }
    }
}

fn find_duplicates<'a>(
    entries: impl Iterator<Item = (&'a str, &'a str)>,
    findings: &mut Vec<Finding>,
) {
    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    for (at, name) in entries {
        if let Some(first) = seen.get(name) {
            let message = format!("{name:?} is also the name of {first}; keep one");
            findings.push(Finding::error(format!("{at}.name"), message));
            continue;
        }
        seen.insert(name, at);
    }
}

/// Returns an absolute path without `.`, `..`, double and trailing slashes; it never leaves the root.
fn clean_path(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::clean_path;

    #[test]
    fn paths_become_clean() {
        for (path, wanted) in [
            ("/", "/"),
            ("/etc/a", "/etc/a"),
            ("//etc/./a/", "/etc/a"),
            ("/etc/../../a", "/a"),
            ("/..", "/"),
        ] {
            assert_eq!(clean_path(path), wanted, "{path}");
        }
    }
}
