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
use crate::judge::drift::unit_path;
use crate::node::neighbours::is_fenced;
use crate::node::originals::OriginalPaths;
use crate::node::{NodeState, is_source_path};

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

/// The simulation of an update from a config to itself. The first call of [`Self::simulate`] computes it; later calls share the
/// result, on any thread.
#[derive(Debug, Default)]
pub struct UnchangedUnits(OnceLock<Simulated>);

impl UnchangedUnits {
    /// Returns the simulation. `desired` and `node` must be the same in every call.
    pub fn simulate(&self, desired: &Desired, node: &NodeState) -> &Simulated {
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

type SwitchResult = Result<systemd::InstallOutcome, systemd::InstallError>;

fn switched(on: bool) -> &'static str {
    if on { "enabled" } else { "disabled" }
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

/// The files and drop-ins of a unit, or of its template.
fn entries_of<'t>(tree: &'t UnitTree, name: &str) -> impl Iterator<Item = &'t UnitEntry> {
    let template = unit_name::template_of(name);
    let names: Vec<String> = std::iter::once(name.to_owned()).chain(template).collect();
    let dirs = tree.dirs.iter();
    dirs.flat_map(move |dir| {
        let found = names.iter().flat_map(|name| {
            let dropins = match dir.entries.get(&format!("{name}.d")) {
                Some(UnitEntry::Directory(dropins)) => Some(dropins.values()),
                _ => None,
            };
            dir.entries
                .get(name)
                .into_iter()
                .chain(dropins.into_iter().flatten())
        });
        found.collect::<Vec<_>>()
    })
}

fn has_also(tree: &UnitTree, name: &str) -> bool {
    entries_of(tree, name).any(|entry| !named_in_also(entry).is_empty())
}

/// Returns the units that a file names in `Also=`, without expanding specifiers.
fn named_in_also(entry: &UnitEntry) -> Vec<&str> {
    match entry {
        // Most files have none.
        UnitEntry::File(Some(text)) if text.contains("Also") => {
            let values = text.lines().filter_map(also_of);
            values.flat_map(str::split_whitespace).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the value of `Also=` in a line.
fn also_of(line: &str) -> Option<&str> {
    let (key, value) = line.split_once('=')?;
    (key.trim() == "Also").then_some(value)
}

/// Returns the tree with the `Also=` of one unit removed.
fn without_also(tree: &UnitTree, name: &str) -> UnitTree {
    let mut tree = tree.clone();
    let template = unit_name::template_of(name);
    for name in std::iter::once(name.to_owned()).chain(template) {
        for dir in &mut tree.dirs {
            if let Some(entry) = dir.entries.get_mut(&name) {
                strip_also(entry);
            }
            if let Some(UnitEntry::Directory(dropins)) = dir.entries.get_mut(&format!("{name}.d")) {
                dropins.values_mut().for_each(strip_also);
            }
        }
    }
    tree
}

fn strip_also(entry: &mut UnitEntry) {
    if let UnitEntry::File(Some(text)) = entry {
        let lines = text.lines().filter(|line| also_of(line).is_none());
        *text = lines.flat_map(|line| [line, "\n"]).collect();
    }
}

/// A refusal of systemctl.
#[derive(PartialEq, Eq)]
struct Refusal {
    reason: String,
    /// True if the daemon would have made the same request.
    by_daemon: bool,
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
        self.tree.apply(&LinkChange::Remove {
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

    /// Presets a unit. Failures are ignored, as by the daemon.
    fn preset_unit(&mut self, unit: &str) {
        if self.is_option(unit) {
            return;
        }
        let preset = systemd::preset_units(&self.tree, &[unit], &self.support);
        self.carry_out(preset);
    }

    /// Enables or disables units; a unit that has neither contents nor a file anywhere is skipped.
    fn switch_units(&mut self, units: &[Unit], listed: &BTreeSet<&str>, on: bool) {
        let mut names = Vec::new();
        let mut by_daemon = BTreeSet::new();
        for unit in units.iter().filter(|unit| unit.enabled == Some(on)) {
            let name = unit.name.as_str();
            if self.is_managed(name) {
                continue;
            }
            let listed = listed.contains(name);
            if unit.text().is_none() && !listed && !self.has_template(name) {
                self.missing.push(name.to_owned());
                self.notices.push(format!(
                    "unit {name} is to be {} but has no file on this node; skipped, as {}",
                    switched(on),
                    self.skipped_by(),
                ));
                continue;
            }
            if !self.first_boot && self.is_changed(unit) && (unit.text().is_some() || listed) {
                by_daemon.insert(name);
            }
            names.push(name);
        }
        let linked = self.linked_by_also();
        let (alone, together): (Vec<&str>, Vec<&str>) = names
            .iter()
            .partition(|name| !self.changed.contains(*name) && linked.contains(**name));
        if !self.switch_at_once(&together, on) {
            self.switch_one_by_one(&together, &by_daemon, on);
        }
        let alone: Vec<&str> = alone
            .into_iter()
            .filter(|name| !self.is_switched_by_another(name, units, on))
            .collect();
        self.switch_one_by_one(&alone, &by_daemon, on);
        if !on {
            names
                .iter()
                .for_each(|name| self.remove_runtime_links(name));
        }
    }

    /// Returns the units that name others in `Also=`, and those that are named. The daemon switches only changed units, so the
    /// `Also=` of an unchanged unit has no effect.
    fn linked_by_also(&self) -> BTreeSet<String> {
        let mut all = BTreeSet::new();
        let mut add = |unit: &str, entry: &UnitEntry| {
            let named = named_in_also(entry);
            if !named.is_empty() {
                all.insert(unit.to_owned());
                all.extend(named.into_iter().map(str::to_owned));
            }
        };
        for (name, entry) in self.tree.dirs.iter().flat_map(|dir| &dir.entries) {
            match entry {
                UnitEntry::Directory(dropins) => {
                    let unit = name.strip_suffix(".d").unwrap_or(name);
                    dropins.values().for_each(|dropin| add(unit, dropin));
                }
                entry => add(name, entry),
            }
        }
        all
    }

    /// Returns true for a unit that another unchanged unit of the config switches the opposite way with its `Also=`: both
    /// states are correct, because they depend on which of the two was changed last.
    fn is_switched_by_another(&self, name: &str, units: &[Unit], on: bool) -> bool {
        let others = units.iter().filter(|unit| unit.enabled == Some(!on));
        let mut others = others.filter(|unit| unit.name != name && !self.is_changed(unit));
        others.any(|unit| {
            let mut entries = entries_of(&self.tree, &unit.name);
            entries.any(|entry| named_in_also(entry).contains(&name))
        })
    }

    /// Returns true for an instance of a template that has a file.
    fn has_template(&self, name: &str) -> bool {
        unit_name::template_of(name).is_some_and(|template| self.is_listed(&template))
    }

    fn skipped_by(&self) -> &'static str {
        if self.first_boot {
            "systemd does at the first boot"
        } else {
            "the daemon does"
        }
    }

    /// Returns true for a name that systemctl takes for an option. systemd takes it as it is on the first boot.
    fn is_option(&self, name: &str) -> bool {
        name.starts_with('-') && !self.first_boot
    }

    /// Returns the result of `systemctl enable UNIT...` or `disable`.
    fn switch(&self, tree: &UnitTree, names: &[&str], on: bool) -> SwitchResult {
        if let Some(name) = names.iter().find(|name| self.is_option(name)) {
            let problem = systemd::Problem {
                subject: (*name).to_owned(),
                fault: Fault::TakenForOption,
            };
            return Err(systemd::InstallError {
                problems: vec![problem],
                partial: Vec::new(),
            });
        }
        if on {
            return systemd::enable_units(tree, names, &self.support);
        }
        let names: Vec<String> = names
            .iter()
            .map(|name| unit_name::escape_unit_name(name))
            .collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        systemd::disable_units(tree, &names, &self.support)
    }

    /// Switches all units in one operation, as the daemon calls systemctl, and returns true if there was no problem. Otherwise
    /// nothing is changed: switching units one by one then finds the unit of each problem.
    fn switch_at_once(&mut self, names: &[&str], on: bool) -> bool {
        match self.switch(&self.tree, names, on) {
            Ok(outcome) if outcome.problems.is_empty() => {
                let changes = outcome.changes.iter();
                changes.for_each(|change| self.tree.apply(change));
                true
            }
            Ok(_) | Err(_) => false,
        }
    }

    /// Switches units one by one. Units that systemctl refuses for the same reason are reported together.
    fn switch_one_by_one(&mut self, names: &[&str], by_daemon: &BTreeSet<&str>, on: bool) {
        let mut refusals: Vec<(Refusal, Vec<&str>)> = Vec::new();
        for name in names {
            let alone = !self.changed.contains(name);
            let switched = match alone && has_also(&self.tree, name) {
                true => self.switch(&without_also(&self.tree, name), &[name], on),
                false => self.switch(&self.tree, &[name], on),
            };
            let Some(reason) = self.carry_out(switched) else {
                continue;
            };
            let by_daemon = by_daemon.contains(name);
            let refusal = Refusal { reason, by_daemon };
            match refusals.iter_mut().find(|(known, _)| *known == refusal) {
                Some((_, units)) => units.push(name),
                None => refusals.push((refusal, vec![name])),
            }
        }
        for (refusal, units) in refusals {
            let message = format!(
                "unit{} {} cannot be {}: {}",
                if units.len() == 1 { "" } else { "s" },
                units.join(", "),
                switched(on),
                refusal.reason
            );
            if refusal.by_daemon {
                self.failures.push(message);
            } else {
                let like = self.skipped_by();
                self.notices.push(format!("{message}; skipped, as {like}"));
            }
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
            if self.tree.get(&path).is_none() {
                continue;
            }
            let mut without = self.tree.clone();
            without.apply(&LinkChange::Remove { path: path.clone() });
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
                self.tree.apply(&change);
            }
        }
    }

    /// Applies the changes of an operation and returns its error, if any.
    fn carry_out(&mut self, result: SwitchResult) -> Option<String> {
        let all_of = |problems: &[systemd::Problem]| {
            let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
            all.join("; ")
        };
        let (changes, reason) = match result {
            Ok(outcome) => {
                if !outcome.problems.is_empty() {
                    self.notices.push(format!(
                        "systemctl would report: {}",
                        all_of(&outcome.problems)
                    ));
                }
                (outcome.changes, None)
            }
            // systemctl on the node expands what depends on the host, so nothing fails there.
            Err(error) if error.problems.iter().all(is_of_host) => {
                self.unjudged.push(format!(
                    "a unit cannot be judged: {}",
                    all_of(&error.problems)
                ));
                (error.partial, None)
            }
            Err(error) => (error.partial, Some(all_of(&error.problems))),
        };
        changes.iter().for_each(|change| self.tree.apply(change));
        reason
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
        changes.compare(&mut vec![dir], before, after);
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
    fn compare<'t>(
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
                    self.compare(at, Some(before), Some(after));
                }
                (_, UnitEntry::Directory(after)) => self.compare(at, None, Some(after)),
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
                (UnitEntry::Directory(before), _) => self.compare(at, Some(before), None),
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
