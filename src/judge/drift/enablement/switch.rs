//! What `systemctl enable`, `disable` and `preset` are asked for in one update, and what each call changes.

use std::collections::BTreeSet;

use crate::config::document::ignition::Unit;
use crate::formats::systemd::{self, Fault, UnitEntry, UnitTree, unit_name};

use super::{Play, is_of_host};

type SwitchResult = Result<systemd::InstallOutcome, systemd::InstallError>;

fn switch_verb(on: bool) -> &'static str {
    if on { "enabled" } else { "disabled" }
}

/// Returns the files and drop-ins of a unit, or of its template.
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
    /// Presets a unit. Failures are ignored, as by the daemon.
    pub(super) fn preset_unit(&mut self, unit: &str) {
        if self.is_option(unit) {
            return;
        }
        let preset = systemd::preset_units(&self.tree, &[unit], &self.support);
        self.carry_out(preset);
    }

    /// Enables or disables units; a unit that has neither contents nor a file anywhere is skipped.
    pub(super) fn switch_units(&mut self, units: &[Unit], listed: &BTreeSet<&str>, on: bool) {
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
                    switch_verb(on),
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
    pub(super) fn is_option(&self, name: &str) -> bool {
        name.starts_with('-') && !self.first_boot
    }

    /// Returns the result of `systemctl enable UNIT...` or `disable`.
    pub(super) fn simulate_switch(
        &self,
        tree: &UnitTree,
        names: &[&str],
        on: bool,
    ) -> SwitchResult {
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
        match self.simulate_switch(&self.tree, names, on) {
            Ok(outcome) if outcome.problems.is_empty() => {
                let changes = outcome.changes.iter();
                changes.for_each(|change| self.tree.apply_change(change));
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
            let switched = if alone && has_also(&self.tree, name) {
                self.simulate_switch(&without_also(&self.tree, name), &[name], on)
            } else {
                self.simulate_switch(&self.tree, &[name], on)
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
                switch_verb(on),
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

    /// Applies the changes of an operation and returns its error, if any.
    pub(super) fn carry_out(&mut self, result: SwitchResult) -> Option<String> {
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
        changes
            .iter()
            .for_each(|change| self.tree.apply_change(change));
        reason
    }
}
