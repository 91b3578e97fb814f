//! The enablement links that a config results in: the daemon's sequence of systemctl calls (docs/develop/agreement.md: Units),
//! simulated on a [`UnitTree`].
//!
//! Deliberate differences from the daemon:
//! - an instance of an existing template is enabled although systemd lists no file of that name;
//! - stale drop-ins are removed before units are switched, not afterwards, so links follow from the remaining files;
//! - removed units are preset before the others are switched, not afterwards, so their `Also=` undoes nothing;
//! - a mask that is removed with the links of its template, when that is disabled, is restored;
//! - the links of a removed unit are removed together with its last file instead of dangling;
//! - a unit that is to be disabled also loses its runtime links, which systemctl leaves until the next boot.

mod switch;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use crate::base::order::StableOrder;
use crate::base::paths;
use crate::config::document::Desired;
use crate::config::document::ignition::Unit;
use crate::formats::systemd::{
    self, CONFIG_DIR, Fault, LINK_DIRS, LinkChange, PRESET_PATH, RUNTIME_CONFIG_DIR, Support,
    UNIT_SEARCH_PATH, UnitDir, UnitEntry, UnitFileState, UnitTree, Unresolved, unit_name,
    unit_text,
};
use crate::host::root::RootPath;
use crate::node::neighbours::is_fenced;
use crate::node::originals::OriginalPaths;
use crate::node::{NodeState, is_source_path};

use super::unit_path;

/// A link that is created (with its target) or removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkStep {
    /// Path of the link.
    pub path: RootPath,
    /// Target of the link; `None` if it is removed.
    pub target: Option<String>,
}

/// The tree of units after an update.
#[derive(Debug, Clone)]
pub struct Simulated {
    /// Tree with all files and links.
    pub tree: UnitTree,
    /// Units that systemctl refuses to enable or disable for the daemon: the update would fail.
    pub failures: Vec<String>,
    /// Names of units that should be switched but have neither contents nor a file; they are skipped.
    pub missing: Vec<String>,
    /// Units with files that were not read.
    pub unjudged: Vec<String>,
    /// Units that the daemon, or systemd's first boot, would silently skip.
    pub notices: Vec<String>,
}

/// The simulation of an update from a config to itself. The first call of [`Self::simulate_units`] computes it; later calls share the
/// result, on any thread.
#[derive(Debug, Default)]
pub struct UnchangedUnits(OnceLock<Simulated>);

impl UnchangedUnits {
    /// Returns the simulation. `desired` and `node` must be the same in every call.
    pub fn simulate_units(&self, desired: &Desired, node: &NodeState) -> &Simulated {
        self.0
            .get_or_init(|| simulate_update(desired, Some(desired), node))
    }
}

/// Target of a link that masks a unit.
pub const DEV_NULL: &str = "/dev/null";

/// Returns the unit files, drop-ins, masks and presets that a config brings, by absolute path.
pub fn unit_entries(desired: &Desired) -> Vec<(String, UnitEntry)> {
    let mut entries = files_among_units(desired);
    for unit in &desired.units {
        entries.extend(dropin_entries(unit));
        if unit.mask == Some(true) {
            entries.push((unit_file(&unit.name), UnitEntry::Link(DEV_NULL.to_owned())));
        } else if let Some(text) = unit.text() {
            entries.push((
                unit_file(&unit.name),
                UnitEntry::File(Some(text.to_owned())),
            ));
        }
    }
    entries
}

/// Returns the unit files and presets that the config has as plain files.
fn files_among_units(desired: &Desired) -> Vec<(String, UnitEntry)> {
    let mut entries = Vec::new();
    for file in &desired.files {
        let of_interest = UNIT_SEARCH_PATH
            .iter()
            .chain(&PRESET_PATH)
            .any(|dir| file.path.is_in(dir.trim_start_matches('/')));
        if of_interest {
            let bytes = file.contents.bytes().unwrap_or_default();
            entries.push((
                file.path.to_string(),
                UnitEntry::File(Some(unit_text(&bytes))),
            ));
        }
    }
    entries
}

fn dropin_entries(unit: &Unit) -> impl Iterator<Item = (String, UnitEntry)> {
    unit.dropins.iter().filter_map(|dropin| {
        let path = format!("{CONFIG_DIR}/{}.d/{}", unit.name, dropin.name);
        Some((path, UnitEntry::File(Some(dropin.text()?.to_owned()))))
    })
}

fn unit_file(name: &str) -> String {
    format!("{CONFIG_DIR}/{name}")
}

/// Simulates the update from `old` to `desired`; without `old`, everything is new.
pub fn simulate_update(desired: &Desired, old: Option<&Desired>, node: &NodeState) -> Simulated {
    let mut play = Play {
        tree: node.units.clone(),
        support: node.systemd,
        changed: changed_units(desired, old),
        first_boot: desired.bare || node.host.never_booted,
        fencing: node.neighbours.fencing,
        failures: Vec::new(),
        missing: Vec::new(),
        unjudged: Vec::new(),
        notices: Vec::new(),
    };
    let mut files = desired.files.iter();
    play.tree.has_sources |= files.any(|file| is_source_path(&file.path));
    play.remove_stale_dropins(desired, old);
    play.write_files(desired, old);
    let listed = play.listed_units(&desired.units);
    for unit in &desired.units {
        play.write_unit(unit, desired.bare);
        if unit.enabled.is_none() && play.is_changed(unit) && !play.is_managed(&unit.name) {
            play.preset_unit(&unit.name);
        }
    }
    play.renew_masks(&desired.units);
    for unit in old
        .map(|old| removed_units(old, desired))
        .unwrap_or_default()
    {
        play.remove_unit(unit, comes_back(unit, node));
    }
    play.renew_masks(&desired.units);
    play.switch_units(&desired.units, &listed, true);
    play.switch_units(&desired.units, &listed, false);
    play.renew_masks(&desired.units);
    if !desired.bare {
        play.remove_leaked_links(&desired.units);
    }
    Simulated {
        tree: play.tree,
        failures: play.failures,
        missing: play.missing,
        unjudged: play.unjudged,
        notices: play.notices,
    }
}

/// Returns the names of the units that are new or changed.
fn changed_units<'d>(desired: &'d Desired, old: Option<&Desired>) -> BTreeSet<&'d str> {
    let known = match old {
        Some(old) if std::ptr::eq(old, desired) => return BTreeSet::new(),
        Some(old) => units_by_name(old),
        None => BTreeMap::new(),
    };
    let is_known = |unit: &Unit| {
        let known = known.get(unit.name.as_str());
        known.is_some_and(|known| known.contains(&unit))
    };
    let changed = desired.units.iter().filter(|unit| !is_known(unit));
    changed.map(|unit| unit.name.as_str()).collect()
}

fn units_by_name(config: &Desired) -> BTreeMap<&str, Vec<&Unit>> {
    let mut units: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for unit in &config.units {
        units.entry(unit.name.as_str()).or_default().push(unit);
    }
    units
}

/// Returns true for a unit whose original OS file is restored.
fn comes_back(unit: &Unit, node: &NodeState) -> bool {
    let Some(path) = unit_path(&unit.name) else {
        return false;
    };
    let keeping = OriginalPaths::of_path(&path);
    node.object(&keeping.orig).is_some() && node.object(&keeping.noorig).is_none()
}

/// Returns the units of `old` that are missing in `new`.
pub fn removed_units<'a>(old: &'a Desired, new: &Desired) -> Vec<&'a Unit> {
    let kept: BTreeSet<&str> = new.units.iter().map(|unit| unit.name.as_str()).collect();
    old.units
        .iter()
        .filter(|unit| !kept.contains(unit.name.as_str()))
        .collect()
}

struct Play<'d> {
    tree: UnitTree,
    support: Support,
    /// Units that are new or changed; the daemon neither writes nor switches the others.
    changed: BTreeSet<&'d str>,
    /// True if presets decide, as on the first boot: a unit cannot make that fail.
    first_boot: bool,
    /// True if Pacemaker starts and stops some units: those are not switched.
    fencing: bool,
    failures: Vec<String>,
    missing: Vec<String>,
    unjudged: Vec<String>,
    notices: Vec<String>,
}

impl Play<'_> {
    /// Returns true for a unit that Pacemaker starts, and has therefore disabled, whatever the config says.
    fn is_managed(&self, unit: &str) -> bool {
        self.fencing && is_fenced(unit)
    }

    fn is_changed(&self, unit: &Unit) -> bool {
        self.changed.contains(unit.name.as_str())
    }

    /// Removes drop-ins of the old config that are missing in the new one.
    fn remove_stale_dropins(&mut self, desired: &Desired, old: Option<&Desired>) {
        let Some(old) = old.filter(|old| !std::ptr::eq(*old, desired)) else {
            return;
        };
        let units = units_by_name(desired);
        for unit in &old.units {
            let now = units.get(unit.name.as_str()).and_then(|now| now.first());
            let kept =
                |name: &str| now.is_some_and(|now| now.dropins.iter().any(|d| d.name == name));
            for dropin in unit.dropins.iter().filter(|dropin| !kept(&dropin.name)) {
                self.remove_entry(&format!("{}.d/{}", unit_file(&unit.name), dropin.name));
            }
        }
    }

    /// Returns the units that systemd lists before any is written: the daemon switches these even if they have no contents.
    fn listed_units<'u>(&self, units: &'u [Unit]) -> BTreeSet<&'u str> {
        let names = units.iter().map(|unit| unit.name.as_str());
        names.filter(|name| self.is_listed(name)).collect()
    }

    /// Returns true for a unit that systemd lists: it has a file or a link, wherever that points.
    fn is_listed(&self, name: &str) -> bool {
        let is_file = |entry: &UnitEntry| matches!(entry, UnitEntry::File(_) | UnitEntry::Link(_));
        let mut dirs = self.tree.dirs.iter();
        unit_name::is_valid(name) && dirs.any(|dir| dir.entries.get(name).is_some_and(is_file))
    }

    /// Returns true if the unit's link resolves to `/dev/null`, however it is written.
    fn is_masked(&self, unit: &str) -> bool {
        systemd::eval_symlinks(&self.tree, &unit_file(unit)).is_ok_and(|end| end == DEV_NULL)
    }

    /// Writes the files: the daemon writes them before units, so units and presets among them count.
    fn write_files(&mut self, desired: &Desired, old: Option<&Desired>) {
        let written = files_among_units(desired);
        if let Some(old) = old.filter(|old| !std::ptr::eq(*old, desired)) {
            let kept: BTreeSet<&str> = written.iter().map(|(path, _)| path.as_str()).collect();
            for (path, _) in files_among_units(old) {
                if !kept.contains(path.as_str()) {
                    self.remove_entry(&path);
                }
            }
        }
        for (path, entry) in written {
            self.put_entry(&path, entry);
        }
    }

    fn put_entry(&mut self, path: &str, entry: UnitEntry) {
        for presets in &mut self.tree.presets {
            if let Some(name) = path
                .strip_prefix(&presets.path)
                .and_then(|rest| rest.strip_prefix('/'))
            {
                if let UnitEntry::File(Some(text)) = &entry {
                    presets.files.insert(name.to_owned(), text.clone());
                }
                return;
            }
        }
        self.tree.set_entry(path, entry);
    }

    fn remove_entry(&mut self, path: &str) {
        for presets in &mut self.tree.presets {
            if let Some(name) = path
                .strip_prefix(&presets.path)
                .and_then(|rest| rest.strip_prefix('/'))
            {
                presets.files.remove(name);
            }
        }
        self.tree.apply_change(&LinkChange::Remove {
            path: path.to_owned(),
        });
    }

    /// Writes one unit: drop-ins, then mask or file. An enabled unit is switched off before its file
    /// changes, so that links of the old [Install] section do not stay.
    fn write_unit(&mut self, unit: &Unit, bare: bool) {
        let changed = self.is_changed(unit);
        let path = unit_file(&unit.name);
        for dropin in unit.dropins.iter().filter(|dropin| dropin.text().is_none()) {
            let dropin = format!("{path}.d/{}", dropin.name);
            let end = systemd::eval_symlinks(&self.tree, &dropin);
            if !matches!(end, Err(Unresolved::Missing(_))) {
                self.remove_entry(&dropin);
            }
        }
        for (path, entry) in dropin_entries(unit) {
            self.put_entry(&path, entry);
        }
        if unit.mask == Some(true) {
            self.mask_unit(unit, changed);
        } else if let Some(text) = unit.text() {
            if changed
                && !self.is_managed(&unit.name)
                && !self.is_option(&unit.name)
                && self.state_of(&unit.name) == Some(UnitFileState::Enabled)
            {
                self.switch_off_before_writing(&unit.name);
            }
            self.put_entry(&path, UnitEntry::File(Some(text.to_owned())));
        } else if unit.mask == Some(false) && (!bare || self.is_masked_link(&unit.name)) {
            self.remove_entry(&path);
        }
    }

    fn switch_off_before_writing(&mut self, unit: &str) {
        let disabled = systemd::disable_units(&self.tree, &[unit], &self.support);
        let refused = self.carry_out(disabled);
        if let Some(reason) = refused.filter(|_| !self.first_boot) {
            self.failures.push(format!(
                "unit {unit} cannot be disabled before its file changes: {reason}"
            ));
        }
    }

    fn mask_unit(&mut self, unit: &Unit, anew: bool) {
        if anew || !self.is_masked(&unit.name) {
            let path = unit_file(&unit.name);
            self.remove_entry(&path);
            self.put_entry(&path, UnitEntry::Link(DEV_NULL.to_owned()));
        }
    }

    /// Writes the masks again: a mask may hide a file that was written after it, and the mask of an instance is removed when
    /// its template is disabled.
    fn renew_masks(&mut self, units: &[Unit]) {
        for unit in units.iter().filter(|unit| unit.mask == Some(true)) {
            self.mask_unit(unit, false);
        }
    }

    /// Returns true for a link to `/dev/null`.
    fn is_masked_link(&self, unit: &str) -> bool {
        let config = self.tree.dirs.iter().find(|dir| dir.path == CONFIG_DIR);
        let entry = config.and_then(|dir| dir.entries.get(unit));
        matches!(entry, Some(UnitEntry::Link(target)) if target == DEV_NULL)
    }

    /// Returns the state that systemctl reports; `None` if a file was not read, because then the state must not be guessed.
    fn state_of(&mut self, unit: &str) -> Option<UnitFileState> {
        match systemd::unit_file_state(&self.tree, unit, &self.support) {
            Ok(state) => Some(state),
            Err(problem) if problem.fault == Fault::NotRead => {
                self.unjudged
                    .push(format!("unit {unit} cannot be judged: {problem}"));
                None
            }
            Err(_) => None,
        }
    }

    /// Removes runtime links: systemctl leaves those below `/run` alone, and the daemon reports such a unit until the next
    /// boot.
    fn remove_runtime_links(&mut self, unit: &str) {
        if !matches!(self.state_of(unit), Some(UnitFileState::EnabledRuntime)) {
            return;
        }
        let runtime = self
            .tree
            .dirs
            .iter()
            .find(|dir| dir.path == RUNTIME_CONFIG_DIR);
        let links = runtime
            .iter()
            .flat_map(|dir| &dir.entries)
            .filter_map(|(name, entry)| {
                let UnitEntry::Directory(children) = entry else {
                    return None;
                };
                let is_link = matches!(children.get(unit), Some(UnitEntry::Link(_)));
                is_link.then(|| format!("{RUNTIME_CONFIG_DIR}/{name}/{unit}"))
            });
        let links: Vec<String> = links.collect();
        links.iter().for_each(|path| self.remove_entry(path));
    }

    fn remove_unit(&mut self, unit: &Unit, comes_back: bool) {
        if !self.is_managed(&unit.name) {
            self.preset_unit(&unit.name);
        }
        if comes_back {
            return;
        }
        self.remove_entry(&unit_file(&unit.name));
        if self.state_of(&unit.name) == Some(UnitFileState::NotFound) {
            self.remove_links(&unit.name);
        }
    }

    /// Removes the links that older releases left behind, as every daemon since 2024-06-21 does. An older config asks for them
    /// in `[Install]`, and its daemon leaves them.
    fn remove_leaked_links(&mut self, units: &[Unit]) {
        for link in paths::LEAKED_LINKS {
            let path = format!("/{link}");
            let name = path.rsplit('/').next().unwrap_or_default();
            // Most nodes have none, and copying the tree takes time.
            if self.tree.get_entry(&path).is_none() {
                continue;
            }
            let mut without = self.tree.clone();
            without.apply_change(&LinkChange::Remove { path: path.clone() });
            let is_on = |unit: &Unit| unit.name == name && unit.enabled == Some(true);
            let makes_it = |change: &LinkChange| matches!(change, LinkChange::Create { path: made, .. } if *made == path);
            let is_asked_for = units.iter().any(is_on)
                && systemd::enable_units(&without, &[name], &self.support)
                    .is_ok_and(|outcome| outcome.changes.iter().any(makes_it));
            if !is_asked_for {
                self.tree = without;
            }
        }
    }

    /// Removes the links of a removed unit, except those of instances that have a file of their own.
    fn remove_links(&mut self, unit: &str) {
        let disabled = systemd::disable_units(&self.tree, &[unit], &self.support);
        let changes = disabled.map_or_else(|error| error.partial, |outcome| outcome.changes);
        for change in changes {
            let (LinkChange::Create { path, .. } | LinkChange::Remove { path }) = &change;
            let name = path.rsplit('/').next().unwrap_or_default();
            let own = |dir: &UnitDir| {
                dir.entries.contains_key(name) && *path != format!("{}/{name}", dir.path)
            };
            if name == unit || !self.tree.dirs.iter().any(own) {
                self.tree.apply_change(&change);
            }
        }
    }
}

/// Returns true for a setting whose value only the host itself knows.
fn is_of_host(problem: &systemd::Problem) -> bool {
    matches!(problem.fault, Fault::Specifier(_))
}

/// Returns the links below [`LINK_DIRS`] that differ. The caller distinguishes links that become files, and files that become
/// links, by what is on disk.
pub fn link_changes(before: &UnitTree, after: &UnitTree) -> Vec<LinkStep> {
    let mut changes = LinkChanges::default();
    for dir in LINK_DIRS {
        let (before, after) = (entries_in(before, dir), entries_in(after, dir));
        changes.compare_directory(&mut vec![dir], before, after);
    }
    changes.compare_outside(before, after);
    changes.made.order_by(|a, b| a.path.cmp(&b.path));
    changes.removed.order_by(|a, b| a.path.cmp(&b.path));
    changes.made.append(&mut changes.removed);
    changes.made
}

/// What is in a directory.
type Entries = BTreeMap<String, UnitEntry>;

fn entries_in<'t>(tree: &'t UnitTree, dir: &str) -> Option<&'t Entries> {
    let found = tree.dirs.iter().find(|found| found.path == dir);
    found.map(|found| &found.entries)
}

#[derive(Default)]
struct LinkChanges {
    made: Vec<LinkStep>,
    removed: Vec<LinkStep>,
}

impl LinkChanges {
    /// Finds new links outside of the unit directories, at paths that links in those directories lead to.
    fn compare_outside(&mut self, before: &UnitTree, after: &UnitTree) {
        for (path, entry) in &after.outside {
            if let UnitEntry::Link(target) = entry
                && before.outside.get(path) != Some(entry)
            {
                self.made.extend(link_step(&[path], Some(target)));
            }
        }
    }

    /// Compares the directory at a path, before and after, with everything below it.
    fn compare_directory<'t>(
        &mut self,
        at: &mut Vec<&'t str>,
        before: Option<&'t Entries>,
        after: Option<&'t Entries>,
    ) {
        let was = |name: &str| before.and_then(|before| before.get(name));
        let is = |name: &str| after.and_then(|after| after.get(name));
        for (name, entry) in after.into_iter().flatten() {
            at.push(name);
            match (was(name), entry) {
                (Some(UnitEntry::Directory(before)), UnitEntry::Directory(after)) => {
                    self.compare_directory(at, Some(before), Some(after));
                }
                (_, UnitEntry::Directory(after)) => self.compare_directory(at, None, Some(after)),
                (Some(UnitEntry::Link(before)), UnitEntry::Link(after)) if before == after => {}
                (_, UnitEntry::Link(target)) => self.made.extend(link_step(at, Some(target))),
                _ => {}
            }
            at.pop();
        }
        for (name, entry) in before.into_iter().flatten() {
            at.push(name);
            match (entry, is(name)) {
                (UnitEntry::Link(_), None | Some(UnitEntry::Directory(_))) => {
                    self.removed.extend(link_step(at, None));
                }
                (UnitEntry::Directory(_), Some(UnitEntry::Directory(_))) => {}
                (UnitEntry::Directory(before), _) => self.compare_directory(at, Some(before), None),
                _ => {}
            }
            at.pop();
        }
    }
}

fn link_step(at: &[&str], target: Option<&str>) -> Option<LinkStep> {
    let path = RootPath::parse(&at.join("/")).ok()?;
    Some(LinkStep {
        path,
        target: target.map(str::to_owned),
    })
}
