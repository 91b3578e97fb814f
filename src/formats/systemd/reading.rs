//! Reads everything that operations on some units may need, once and before the first of them.
//!
//! The config is applied later, on the tree only: files, links and masks appear, and what they used to hide becomes visible. So
//! every file of a unit is read, hidden or not, and names are followed wherever they lead, including from files that have not
//! been written yet. That is more than any single operation needs, but sufficient for all of them.

use std::collections::{BTreeMap, BTreeSet};

use super::install_section::InstallSection;
use super::lookup::{FOLLOW_MAX, config_links, file_name, join_target};
use super::preset::{PresetDecision, Presets};
use super::refused::dropin_names;
use super::support::Support;
use super::unit_name::{self, UnitName};
use super::unit_tree::{CONFIG_DIR, NULL_DEVICE, UnitEntry, UnitTree, path_below};
use super::view::View;

/// Reads everything that is needed before these units can be enabled, disabled, preset and queried.
///
/// The entries of the search path have to be in the tree already, without the contents of files. `written`: what is about to be
/// written. `read` returns the object at a path, with the contents of a file, or the names in a directory.
///
/// # Errors
/// The first error of `read`.
pub fn read_units<E>(
    tree: &mut UnitTree,
    units: &[&str],
    written: &[(String, UnitEntry)],
    support: &Support,
    read: &mut dyn FnMut(&str) -> Result<UnitEntry, E>,
) -> Result<(), E> {
    let mut reading = Reading {
        presets: Presets::from_dirs(&tree.presets, support),
        written: texts_by_unit(tree, written),
        tree,
        support,
        read,
        linked: Vec::new(),
        met: BTreeSet::new(),
        queue: Vec::new(),
    };
    reading.follow_directories()?;
    reading.follow_links(written)?;
    reading.add_names(units.iter().map(|unit| (*unit).to_owned()));
    while let Some(unit) = reading.queue.pop() {
        reading.read_unit(&unit)?;
    }
    Ok(())
}

/// Returns the texts that are about to be written, by unit.
fn texts_by_unit<'w>(
    tree: &UnitTree,
    written: &'w [(String, UnitEntry)],
) -> BTreeMap<&'w str, Vec<&'w str>> {
    let mut texts: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (path, entry) in written {
        let below = tree.dirs.iter().find_map(|dir| path_below(path, &dir.path));
        if let (Some(below), UnitEntry::File(Some(text))) = (below, entry) {
            let (first, dropin) = below.split_once('/').unwrap_or((below, ""));
            let unit = first.strip_suffix(".d").filter(|_| !dropin.is_empty());
            texts
                .entry(unit.unwrap_or(first))
                .or_default()
                .push(text.as_str());
        }
    }
    texts
}

struct Reading<'a, E> {
    tree: &'a mut UnitTree,
    written: BTreeMap<&'a str, Vec<&'a str>>,
    presets: Presets,
    support: &'a Support,
    read: &'a mut dyn FnMut(&str) -> Result<UnitEntry, E>,
    /// Directories outside the search path that contain links of enabled units.
    linked: Vec<String>,
    /// Names that are or were in the queue.
    met: BTreeSet<String>,
    queue: Vec<String>,
}

impl<E> Reading<'_, E> {
    /// Reads the targets of links in the configuration: `disable` needs those of all links, whatever the unit.
    fn follow_links(&mut self, written: &[(String, UnitEntry)]) -> Result<(), E> {
        let mut paths = BTreeSet::new();
        for dir in &self.tree.dirs {
            let is_below = |(path, _): &(String, UnitEntry)| path_below(path, &dir.path).is_some();
            if !dir.entries.is_empty() || written.iter().any(is_below) {
                paths.insert(format!("{}/unit", dir.path));
            }
        }
        for (path, entry) in written {
            if let UnitEntry::Link(target) = entry {
                paths.insert(join_target(path, target));
            }
        }
        paths.extend(config_links(self.tree).filter(|path| !self.leads_to_unit_file(path)));
        for path in paths {
            self.chase_path(&path, true)?;
        }
        Ok(())
    }

    /// Reads the targets of links that stand in for directories of enablement links.
    fn follow_directories(&mut self) -> Result<(), E> {
        let entries = self.tree.entries_of(CONFIG_DIR).into_iter().flatten();
        let is_linked = |(name, entry): &(&String, &UnitEntry)| {
            let kinds = [".wants", ".requires", ".upholds"];
            matches!(entry, UnitEntry::Link(_)) && kinds.iter().any(|kind| name.ends_with(kind))
        };
        let linked = entries.filter(is_linked);
        let linked: Vec<String> = linked
            .map(|(name, _)| format!("{CONFIG_DIR}/{name}"))
            .collect();
        for path in linked {
            if let Some(end) = self.chase_path(&path, true)? {
                self.linked.push(end);
            }
        }
        Ok(())
    }

    /// Returns true for a link directly to an object that is not a link, in a directory that is followed anyway.
    fn leads_to_unit_file(&self, path: &str) -> bool {
        let Some(UnitEntry::Link(target)) = self.tree.get_entry(path) else {
            return false;
        };
        let in_directory = target.rsplit_once('/').is_some_and(|(parent, name)| {
            let mut dirs = self.tree.dirs.iter();
            name != ".." && dirs.any(|dir| dir.path == parent && !dir.entries.is_empty())
        });
        in_directory && !matches!(self.tree.get_entry(target), Some(UnitEntry::Link(_)))
    }

    fn read_unit(&mut self, unit: &str) -> Result<(), E> {
        let template = unit_name::template_of(unit).filter(|template| template != unit);
        let is_template = UnitName::parse(unit).is_some_and(|name| name.instance == Some(""));
        if is_template && let PresetDecision::Enable(instances) = self.presets.decision_for(unit) {
            self.add_names(instances);
        }
        for end in self.linked.clone() {
            let end = if end == "/" { "" } else { &end };
            self.learn_path(&format!("{end}/{unit}"))?;
        }
        for name in std::iter::once(unit).chain(template.as_deref()) {
            for text in self.written.get(name).cloned().unwrap_or_default() {
                self.add_names(names_in(unit, text, self.support));
            }
            for path in self.files_of(name)? {
                self.read_file(unit, path)?;
            }
        }
        // The manager mounts nothing behind a link.
        if let Some(place) = unit_name::mount_point_of(unit) {
            self.chase_path(&place, true)?;
        }
        // The manager reads more drop-ins than `systemctl enable`.
        for name in dropin_names(unit) {
            for path in self.files_of(&name)? {
                self.learn_to_end(path)?;
            }
        }
        Ok(())
    }

    /// Returns the paths of all files of this name, and of all its drop-ins.
    fn files_of(&mut self, name: &str) -> Result<Vec<String>, E> {
        let dropins = format!("{name}.d");
        let mut files = Vec::new();
        let mut directories = Vec::new();
        for dir in &self.tree.dirs {
            if dir.entries.contains_key(name) {
                files.push(format!("{}/{name}", dir.path));
            }
            if dir.entries.contains_key(&dropins) {
                directories.push(format!("{}/{dropins}", dir.path));
            }
        }
        for directory in directories {
            let Some(directory) = self.chase_path(&directory, true)? else {
                continue;
            };
            if let Some(UnitEntry::Directory(entries)) = self.tree.get_entry(&directory) {
                let settings = entries.keys().filter(|name| name.ends_with(".conf"));
                files.extend(settings.map(|name| format!("{directory}/{name}")));
            }
        }
        Ok(files)
    }

    /// Reads a file of a unit, following links, and records the names that it leads to.
    fn read_file(&mut self, unit: &str, mut path: String) -> Result<(), E> {
        for _ in 0..FOLLOW_MAX {
            self.learn_path(&path)?;
            let target = match self.tree.get_entry(&path) {
                Some(UnitEntry::File(Some(text))) => {
                    let names = names_in(unit, text, self.support);
                    self.add_names(names);
                    return Ok(());
                }
                Some(UnitEntry::Link(target)) => join_target(&path, target),
                _ => return Ok(()),
            };
            // An empty file at the end masks the unit.
            if let Some(end) = self.chase_path(&target, true)? {
                self.learn_path(&end)?;
            }
            let Some(next) = self.chase_path(&target, false)? else {
                return Ok(());
            };
            self.add_names(other_names(unit, file_name(&next)));
            path = next;
        }
        Ok(())
    }

    /// Reads what a path leads to.
    fn learn_to_end(&mut self, path: String) -> Result<(), E> {
        match self.chase_path(&path, true)? {
            Some(end) => self.learn_path(&end),
            None => Ok(()),
        }
    }

    /// Returns the path with links resolved, all of which are read; `None` if it is dangling.
    fn chase_path(&mut self, path: &str, follow_last: bool) -> Result<Option<String>, E> {
        loop {
            let view = View::new(self.tree);
            let end = view.chase_path(path, follow_last);
            let (_, unread) = view.into_parts();
            if unread.is_empty() {
                return Ok(end.ok());
            }
            for path in unread {
                self.learn_path(&path)?;
            }
        }
    }

    /// Reads what is at a path, unless it is known.
    fn learn_path(&mut self, path: &str) -> Result<(), E> {
        let is_unknown = match self.tree.get_entry(path) {
            Some(UnitEntry::File(contents)) => contents.is_none(),
            Some(_) => false,
            None => !self.tree.covers_path(path) && path != NULL_DEVICE,
        };
        if is_unknown {
            let entry = (self.read)(path)?;
            self.tree.set_entry(path, entry);
        }
        Ok(())
    }

    fn add_names(&mut self, names: impl IntoIterator<Item = String>) {
        for name in names {
            if unit_name::is_valid(&name) && self.met.insert(name.clone()) {
                self.queue.push(name);
            }
        }
    }
}

/// Returns the units that a file of `unit` leads to: those in `Also=`, and the default instance of a template.
fn names_in(unit: &str, text: &str, support: &Support) -> Vec<String> {
    let Some(name) = UnitName::parse(unit) else {
        return Vec::new();
    };
    let mut section = InstallSection::default();
    // Settings before an error count.
    let _ = section.read_file(&name, text, support);
    let instance = section.default_instance.as_deref();
    let instance = instance.and_then(|instance| name.with_instance(instance));
    section.also.into_iter().chain(instance).collect()
}

/// Returns the units of which `unit` may be another name if its link leads to a file of this name.
fn other_names(unit: &str, target: &str) -> Vec<String> {
    let instance = UnitName::parse(unit).and_then(|name| name.instance);
    let template = UnitName::parse(target);
    let instance = template.and_then(|template| template.with_instance(instance?));
    instance.into_iter().chain([target.to_owned()]).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::{enable_units, unit_file_state};
    use super::*;

    const VENDOR: &str = "/usr/lib/systemd/system";
    const CONFIG: &str = "/etc/systemd/system";

    /// Builds an entry: a link begins with `-> `, a directory is `/`.
    fn node(text: &str) -> UnitEntry {
        match text.strip_prefix("-> ") {
            Some(target) => UnitEntry::Link(target.to_owned()),
            None if text == "/" => UnitEntry::Directory(BTreeMap::new()),
            None => UnitEntry::File(Some(text.to_owned())),
        }
    }

    /// Reads these units of a root, and returns the tree with the paths that were read, in order.
    fn read(
        root: &[(&str, &str)],
        units: &[&str],
        written: &[(String, UnitEntry)],
    ) -> (UnitTree, Vec<String>) {
        let root: BTreeMap<&str, &str> = root.iter().copied().collect();
        let mut tree = UnitTree::new();
        for (path, text) in &root {
            if tree.covers_path(path) {
                let listed = match node(text) {
                    UnitEntry::File(_) => UnitEntry::File(None),
                    other => other,
                };
                tree.set_entry(path, listed);
            }
        }
        let mut paths = Vec::new();
        let mut read = |path: &str| -> Result<UnitEntry, std::convert::Infallible> {
            paths.push(path.to_owned());
            Ok(root.get(path).map_or(UnitEntry::Missing, |text| node(text)))
        };
        let support = Support::of_version(252);
        read_units(&mut tree, units, written, &support, &mut read).unwrap();
        (tree, paths)
    }

    fn unit_paths(paths: Vec<String>) -> Vec<String> {
        let mut paths = paths;
        paths.retain(|path| path.contains('.'));
        paths
    }

    #[test]
    fn names_lead_on_through_templates_and_links_out_of_the_tree() {
        let template = format!("{VENDOR}/a@.service");
        let socket = format!("{VENDOR}/b.socket");
        let link = format!("{CONFIG}/c.service");
        let unrelated = format!("{VENDOR}/z.service");
        let root = [
            (template.as_str(), "[Install]\nAlso=b.socket\n"),
            (&socket, "[Unit]\n"),
            (&link, "-> /opt/c.service"),
            ("/opt", "-> var/opt"),
            ("/var/opt/c.service", "[Install]\nAlso=a@y.service\n"),
            (&unrelated, "[Unit]\n"),
        ];
        let (tree, paths) = read(&root, &["c.service"], &[]);
        let mut files = unit_paths(paths);
        files.sort();
        // Until it is known that `/opt` is a link, the file may be there.
        let expected = ["/opt/c.service", &template, &socket, "/var/opt/c.service"];
        assert_eq!(files, expected);
        let support = Support::of_version(252);
        for unit in ["c.service", "a@x.service", "b.socket"] {
            assert!(unit_file_state(&tree, unit, &support).is_ok(), "{unit}");
        }
        assert!(unit_file_state(&tree, "z.service", &support).is_err());
    }

    #[test]
    fn each_path_is_read_once_and_hidden_files_are_read_too() {
        let (config, vendor) = (format!("{CONFIG}/a.service"), format!("{VENDOR}/a.service"));
        let wants = format!("{CONFIG}/x.target.wants/a.service");
        let dropin = format!("{VENDOR}/a.service.d/10.conf");
        let leads = format!("-> {config}");
        let root = [
            (config.as_str(), "[Install]\nWantedBy=x.target\n"),
            (&vendor, "[Install]\nAlso=a.service\n"),
            (&wants, leads.as_str()),
            (&dropin, "[Unit]\n"),
        ];
        let mut files = unit_paths(read(&root, &["a.service", "a.service"], &[]).1);
        files.sort();
        assert_eq!(files, [config, vendor, dropin]);
    }

    #[test]
    fn files_that_are_yet_to_be_written_lead_on() {
        let socket = format!("{VENDOR}/b.socket");
        let root = [(socket.as_str(), "[Install]\nWantedBy=sockets.target\n")];
        let text = "[Install]\nAlso=b.socket\n".to_owned();
        let dropin = format!("{CONFIG}/a.service.d/10.conf");
        let mask = format!("{CONFIG}/m.service");
        let written = [
            (dropin, UnitEntry::File(Some(text))),
            (mask, node("-> /dev/null")),
        ];
        let (mut tree, paths) = read(&root, &["a.service", "m.service"], &written);
        assert_eq!(unit_paths(paths), [socket]);
        for (path, entry) in written {
            tree.set_entry(&path, entry);
        }
        let file = format!("{CONFIG}/a.service");
        tree.set_entry(&file, UnitEntry::File(Some(String::from("[Unit]\n"))));
        let support = Support::of_version(252);
        let enabled = enable_units(&tree, &["a.service"], &support).unwrap();
        assert_eq!(enabled.changes.len(), 1);
        let masked = unit_file_state(&tree, "m.service", &support);
        assert_eq!(masked.unwrap().to_string(), "masked");
    }

    #[test]
    fn the_first_error_ends_it() {
        let mut tree = UnitTree::new();
        let path = format!("{VENDOR}/a.service");
        tree.set_entry(&path, UnitEntry::File(None));
        let support = Support::of_version(252);
        let mut refuse = |path: &str| {
            if path.contains('.') {
                Err(path.to_owned())
            } else {
                Ok(UnitEntry::Directory(BTreeMap::new()))
            }
        };
        let refused = read_units(&mut tree, &["a.service"], &[], &support, &mut refuse);
        assert_eq!(refused, Err(path));
    }
}
