//! Units, drop-ins, masks and enablement links (docs/develop/agreement.md: Units).

use std::collections::{BTreeMap, BTreeSet};

use super::{Builder, Payload, Section, files};
use crate::base::object::{Object, ObjectKind};
use crate::base::paths;
use crate::config::document::ignition::Unit;
use crate::formats::systemd::{self, UnitTree, needed};
use crate::host::root::RootPath;
use crate::judge::drift::{dropin_path, enablement, look_at_end, text_object, unit_path};
use crate::node::originals::OriginalPaths;

impl Builder<'_> {
    /// Plans every unit, then the links that result from the whole sequence.
    pub(super) fn plan_units(&mut self) {
        let (desired, old) = (self.inputs.desired, self.inputs.old);
        for unit in &desired.units {
            self.plan_unit(unit);
        }
        // Ignition runs no presets and disables nothing, as if every unit were already known.
        let old = if desired.bare { Some(desired) } else { old };
        let is_unchanged = old.is_some_and(|old| std::ptr::eq(old, desired));
        let simulated = match self.inputs.unchanged.filter(|_| is_unchanged) {
            Some(unchanged) => unchanged.simulate_units(desired, self.inputs.node),
            None => &enablement::simulate_update(desired, old, self.node()),
        };
        let failures = simulated
            .failures
            .iter()
            .map(|failure| format!("{failure}. The daemon's update would fail on this too"));
        for problem in failures.chain(simulated.unjudged.iter().cloned()) {
            let message = format!("{problem}. Correct or remove it, then run again");
            self.add_blocker("spec.config.systemd.units", message);
        }
        for notice in &simulated.notices {
            self.add_notice("spec.config.systemd.units", notice);
        }
        self.check_units(&simulated.tree);
        for link in enablement::link_changes(&self.node().units, &simulated.tree) {
            self.plan_link(&link);
        }
        if self.node().host.never_booted || desired.bare {
            self.preset_lines();
        }
    }

    /// Reports the units that systemd will refuse. A new one that the boot requires is a blocker.
    fn check_units(&mut self, after: &UnitTree) {
        let before = systemd::judge_units(&self.node().units);
        let desired = self.inputs.desired;
        for unit in systemd::judge_units(after) {
            let is_new = !before.contains(&unit);
            let is_of_config = desired.units.iter().any(|one| one.name == unit.name);
            if !is_new && !is_of_config {
                continue;
            }
            let place = "spec.config.systemd.units";
            match unit.describe_consequence() {
                // Another image may come with it.
                Some(boot) if is_new && !unit.is_of_image => self.add_blocker(
                    place,
                    format!("{unit}. {boot}. Correct it in the config, then run again"),
                ),
                Some(boot) => self.add_notice(place, format!("{unit}. {boot}")),
                None if unit.is_of_image => self.add_notice(
                    place,
                    format!("{unit}, unless another image or an extension brings it"),
                ),
                None => self.add_notice(place, unit.to_string()),
            }
        }
    }

    fn plan_unit(&mut self, unit: &Unit) {
        if let (Some(true), Some(message)) = (unit.mask, needed::masked_by_config(&unit.name)) {
            self.add_notice(unit.name.clone(), message);
        }
        for dropin in &unit.dropins {
            let Some(path) = dropin_path(&unit.name, &dropin.name) else {
                continue;
            };
            match dropin.text() {
                Some(text) => self.unit_file(&path, text),
                // The daemon validates a config of spec 2 as if it wrote empty drop-ins.
                None if self.inputs.desired.spec2 => self.unit_file(&path, ""),
                // Ignition writes an empty drop-in as an empty file.
                None if self.inputs.desired.bare => {
                    if dropin.contents.is_some() {
                        self.unit_file(&path, "");
                    }
                }
                None => self.remove_dropin(&path),
            }
        }
        let Some(path) = unit_path(&unit.name) else {
            return;
        };
        match unit.text() {
            // The link to /dev/null is among the planned links.
            _ if unit.mask == Some(true) => self.unit_original(&path),
            Some(text) => self.unit_file(&path, text),
            None if unit.mask == Some(false) && !self.inputs.desired.bare => {
                self.remove_object(&path, Section::Units, "the config unmasks the unit")
            }
            None => {}
        }
    }

    /// Removes a drop-in that is empty in the config. Like the daemon, treats a broken link as a missing drop-in.
    fn remove_dropin(&mut self, path: &RootPath) {
        match look_at_end(path, self.node()) {
            Ok(false) => {}
            Err(why) if self.node().object(path).is_none() => self.add_blocker(
                path.to_string(),
                format!("cannot be examined: {why}. The daemon's update would fail on this too"),
            ),
            _ => self.remove_object(path, Section::Units, "the drop-in is empty in the config"),
        }
    }

    fn unit_file(&mut self, path: &RootPath, text: &str) {
        self.unit_original(path);
        let wanted = text_object(
            text.as_bytes(),
            0o644,
            self.node().host.attainable_owner((0, 0)),
        );
        let why = files::explain_difference(self.node().object(path), &wanted);
        self.put_object(
            path,
            wanted,
            Payload::Bytes(text.as_bytes().to_vec()),
            Section::Units,
            why,
        );
    }

    /// Keeps the original of a unit. Only units that the OS ships below `usr/etc` have one; others get no stamp.
    fn unit_original(&mut self, path: &RootPath) {
        if self.inputs.desired.bare {
            return;
        }
        let OriginalPaths {
            orig,
            twin: Some(twin),
            ..
        } = OriginalPaths::of_path(path)
        else {
            return;
        };
        if self.node().object(&orig).is_none() {
            self.plan_copy(&twin, &orig, Section::Originals, "the OS shipped this file");
        }
    }

    fn plan_link(&mut self, link: &enablement::LinkStep) {
        match &link.target {
            Some(target) => {
                let (uid, gid) = self.node().host.attainable_owner((0, 0));
                let object = Object::new(
                    ObjectKind::Symlink {
                        target: target.clone(),
                    },
                    0o777,
                    (uid, gid),
                );
                let (section, why) = match target.as_str() {
                    enablement::DEV_NULL => (Section::Units, "the config masks the unit"),
                    _ => (Section::Enablement, "the unit is to be enabled"),
                };
                self.put_object(&link.path, object, Payload::None, section, why);
            }
            None => self.remove_object(
                &link.path,
                Section::Enablement,
                "the unit is not to be enabled this way",
            ),
        }
    }

    /// Adds preset lines, because the first boot of a root presets all units and would otherwise remove links that no preset
    /// enables.
    fn preset_lines(&mut self) {
        let path = RootPath::fixed(paths::IGNITION_PRESET);
        let desired = self.inputs.desired;
        if desired.file_at(&path).is_some() {
            return;
        }
        let presets = self.node().units.presets.first();
        let before = presets
            .and_then(|dir| dir.files.get(path.name()))
            .map(String::as_str)
            .unwrap_or_default();
        let known = desired
            .units
            .iter()
            .chain(self.inputs.old.iter().flat_map(|old| &old.units));
        let known: BTreeSet<&str> = known.map(|unit| unit.name.as_str()).collect();
        let text = merged_presets(before, &known, &desired.units);
        if text.is_empty() {
            return;
        }
        let wanted = text_object(
            text.as_bytes(),
            0o644,
            self.node().host.attainable_owner((0, 0)),
        );
        let why = "systemd's first boot is still to come";
        self.put_object(
            &path,
            wanted,
            Payload::Bytes(text.into_bytes()),
            Section::Enablement,
            why,
        );
    }
}

/// Returns the preset lines with those of the config rewritten, one unit a line, instances under their template. Lines about
/// other units are kept.
fn merged_presets(before: &str, known: &BTreeSet<&str>, units: &[Unit]) -> String {
    let ours = |line: &str| {
        let mut words = line.split_whitespace();
        let (_, Some(name)) = (words.next(), words.next()) else {
            return false;
        };
        let instances: Vec<String> = words
            .filter_map(|instance| {
                Some(name.replacen('@', &format!("@{instance}"), 1)).filter(|n| n != name)
            })
            .collect();
        if instances.is_empty() {
            known.contains(name)
        } else {
            instances.iter().any(|i| known.contains(i.as_str()))
        }
    };
    let mut text: String = before
        .lines()
        .filter(|line| !ours(line))
        .map(|line| format!("{line}\n"))
        .collect();
    // In Ignition's order: by name, then verb; instances of one template share a line.
    let mut lines: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for unit in units {
        let Some(enabled) = unit.enabled else {
            continue;
        };
        let (name, instance) = preset_subject(&unit.name);
        let verb = if enabled { "enable" } else { "disable" };
        lines
            .entry(format!("{name}-{verb}"))
            .or_default()
            .extend(instance);
    }
    for (key, instances) in lines {
        let (name, verb) = key.rsplit_once('-').unwrap_or((&key, "enable"));
        let words: Vec<&str> = [verb, name]
            .into_iter()
            .chain(instances.iter().map(String::as_str))
            .collect();
        text.push_str(&format!("{}\n", words.join(" ")));
    }
    text
}

/// Splits `foo@bar.service` as in presets: `foo@.service`, then `bar`.
fn preset_subject(name: &str) -> (String, Option<String>) {
    if let (Some((prefix, rest)), Some((_, suffix))) = (name.split_once('@'), name.rsplit_once('.'))
    {
        let instance = rest
            .strip_suffix(suffix)
            .and_then(|rest| rest.strip_suffix('.'))
            .unwrap_or_default();
        if !instance.is_empty() {
            return (format!("{prefix}@.{suffix}"), Some(instance.to_owned()));
        }
    }
    (name.to_owned(), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(name: &str, enabled: Option<bool>) -> Unit {
        Unit {
            name: name.into(),
            enabled,
            ..Unit::default()
        }
    }

    #[test]
    fn preset_lines_replace_only_what_is_ours() {
        let before =
            "enable foreign.service\nenable a.service\ndisable t@.service x\nenable t@.service y\n";
        let units = [
            unit("a.service", Some(false)),
            unit("t@x.service", Some(true)),
            unit("p.service", None),
        ];
        let known = BTreeSet::from(["a.service", "t@x.service", "p.service"]);
        let after = merged_presets(before, &known, &units);
        assert_eq!(
            after,
            "enable foreign.service\nenable t@.service y\ndisable a.service\nenable t@.service x\n"
        );
        assert_eq!(merged_presets(&after, &known, &units), after);
    }

    #[test]
    fn instances_are_named_after_their_template() {
        let subject =
            |name: &str, instance: Option<&str>| (name.to_owned(), instance.map(str::to_owned));
        assert_eq!(
            preset_subject("a@b.c.service"),
            subject("a@.service", Some("b.c"))
        );
        assert_eq!(preset_subject("a@.service"), subject("a@.service", None));
        assert_eq!(preset_subject("a.service"), subject("a.service", None));
    }

    #[test]
    fn instances_of_one_template_share_a_line() {
        let units = [
            unit("t@b.service", Some(true)),
            unit("t@a.service", Some(true)),
            unit("t@c.service", Some(false)),
        ];
        let known = BTreeSet::from(["t@a.service", "t@b.service", "t@c.service"]);
        let text = merged_presets("", &known, &units);
        assert_eq!(text, "disable t@.service c\nenable t@.service b a\n");
        assert_eq!(merged_presets(&text, &known, &units), text);
    }
}
