//! The units of a root that systemd refuses, and the part of the boot that requires them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::chase::PathNodes;
use super::install_section::logical_lines;
use super::lookup::file_name;
use super::refused::{Objection, dropin_names, judge_unit};
use super::unit_entry::TreeNode;
use super::unit_name::{self, UnitName};
use super::unit_tree::{CONFIG_DIR, UnitEntry, UnitTree};
use super::view::View;
use super::words::is_blank;

/// Targets that every boot has to reach: the units they require have to be loadable.
const BOOT_TARGETS: [&str; 5] = [
    "local-fs.target",
    "sysinit.target",
    "basic.target",
    "multi-user.target",
    "default.target",
];

/// A unit that systemd objects to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JudgedUnit {
    /// Its name.
    pub name: String,
    /// The objection.
    pub objection: Objection,
    /// How the boot requires it; only for a refused unit.
    pub required: Option<UnitRequirement>,
    /// True if another OS image can resolve the objection.
    pub is_of_image: bool,
}

/// A unit that a boot target requires: the judged one, or one that needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitRequirement {
    /// The target.
    pub target: &'static str,
    /// The unit.
    pub unit: String,
}

impl JudgedUnit {
    /// Returns the sentence about the next boot, without a full stop; `None` if no boot requires the unit.
    pub fn describe_consequence(&self) -> Option<String> {
        let UnitRequirement { target, unit } = self.required.as_ref()?;
        let boot = match *target {
            "local-fs.target" => "the next boot ends in emergency mode",
            _ => "the next boot does not come up",
        };
        Some(if *unit == self.name {
            format!("{target} requires {unit}: {boot}")
        } else {
            format!(
                "{target} requires {unit}, which needs {}: {boot}",
                self.name
            )
        })
    }
}

impl fmt::Display for JudgedUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.objection {
            Objection::Refused(why) => write!(f, "systemd refuses {}: {why}", self.name),
            Objection::Ignored(what) => write!(f, "{}: systemd ignores {what}", self.name),
        }
    }
}

/// Returns the objections to the units that have a file or drop-in in [`CONFIG_DIR`], by name. Units with a file that was not
/// read are omitted.
pub fn judge_units(tree: &UnitTree) -> Vec<JudgedUnit> {
    let entries = tree.entries_of(CONFIG_DIR).into_iter().flatten();
    let names: BTreeSet<&str> = entries
        .filter_map(|(name, entry)| match entry {
            UnitEntry::Directory(_) | UnitEntry::Link(_) if name.ends_with(".d") => {
                name.strip_suffix(".d")
            }
            UnitEntry::File(_) | UnitEntry::Link(_) => Some(name.as_str()),
            _ => None,
        })
        .filter(|name| unit_name::has_ignition_suffix(name))
        .collect();
    let view = View::new(tree);
    let mut judged = Vec::new();
    for name in names {
        let Some((fragment, dropins)) = read_unit(&view, name) else {
            continue;
        };
        let mut objections = judge_unit(name, fragment, &dropins);
        let is_refused = |one: &Objection| matches!(one, Objection::Refused(_));
        if !objections.iter().any(is_refused) {
            objections.extend(judge_mount_point(&view, name));
        }
        let of_image = if objections.iter().any(is_refused) {
            None
        } else {
            let texts = std::iter::once(fragment).chain(dropins.iter().copied());
            judge_fixed_root(&view, name).or_else(|| judge_requirements(&view, name, texts))
        };
        let objections = objections.into_iter().map(|one| (one, false));
        for (objection, is_of_image) in objections.chain(of_image.map(|one| (one, true))) {
            let refused = is_refused(&objection);
            judged.push(JudgedUnit {
                name: name.to_owned(),
                objection,
                required: refused.then(|| find_requirement(&view, name)).flatten(),
                is_of_image,
            });
        }
    }
    judged
}

/// Objects to a mount point behind a link, which the manager refuses when mounting (`unit_fail_if_noncanonical` in systemd).
fn judge_mount_point(view: &View<'_>, unit: &str) -> Option<Objection> {
    let place = unit_name::mount_point_of(unit)?;
    let end = view.chase_path(&place, true).ok()?;
    let (_, suffix) = unit.rsplit_once('.')?;
    (end != place).then(|| {
        Objection::Refused(format!(
            "{place} leads through a link to {end}, and nothing is mounted behind a link; name it {}.{suffix}, with Where={end}",
            unit_name::from_path(&end)
        ))
    })
}

/// Top-level directories that exist during a boot, whatever the image has.
const MADE_AT_BOOT: [&str; 9] = [
    "/boot", "/dev", "/etc", "/proc", "/run", "/sys", "/sysroot", "/tmp", "/var",
];

/// Objects to a mount point whose directory is missing in a root in which none can be created.
fn judge_fixed_root(view: &View<'_>, unit: &str) -> Option<Objection> {
    let place = unit_name::mount_point_of(unit).filter(|_| view.tree().has_fixed_root)?;
    let (_, suffix) = unit.rsplit_once('.')?;
    let first = place.split('/').nth(1).filter(|first| !first.is_empty())?;
    let top = format!("/{first}");
    // Paths that were not read may exist.
    let is_missing = view.tree().outside.get(&top) == Some(&UnitEntry::Missing);
    (is_missing && !MADE_AT_BOOT.contains(&top.as_str())).then(|| {
        let below = format!("/var{place}");
        Objection::Refused(format!(
            "{top} is missing, and no directory can be made in the / of an OSTree system; name it {}.{suffix}, with Where={below}",
            unit_name::from_path(&below)
        ))
    })
}

/// Types of units that exist only as files: the manager or a generator derives the others from names and tables.
const OF_FILES: [&str; 5] = ["service", "socket", "target", "timer", "path"];

/// Objects to a unit that requires a missing one: the manager does not start it.
fn judge_requirements<'t>(
    view: &View<'_>,
    unit: &str,
    texts: impl Iterator<Item = &'t str>,
) -> Option<Objection> {
    let name = UnitName::parse(unit)?;
    // Without the units of the OS, or for a template, nothing is known.
    if find_file(view, "basic.target").is_none() || name.instance == Some("") {
        return None;
    }
    let lines = texts.flat_map(logical_lines);
    for (_, line) in lines {
        let Some((key, value)) = line.split_once('=') else {
            continue;
        };
        let key = key.trim_matches(is_blank);
        if !matches!(key, "Requires" | "BindsTo") {
            continue;
        }
        // Quotes are part of the name here, which makes it invalid.
        for wanted in value.split(is_blank) {
            if is_nowhere(view, wanted) {
                return Some(Objection::Refused(format!(
                    "it needs {wanted} ({key}=), and there is no such unit"
                )));
            }
        }
    }
    None
}

/// Returns true for the name of a unit that certainly does not exist.
fn is_nowhere(view: &View<'_>, name: &str) -> bool {
    let Some((_, suffix)) = name.rsplit_once('.') else {
        return false;
    };
    let is_certain = OF_FILES.contains(&suffix)
        && unit_name::is_valid(name)
        // Generators create instances of them, such as systemd-cryptsetup@data.service.
        && !name.starts_with("systemd-")
        && !(suffix == "service" && view.tree().has_sources);
    let template = unit_name::template_of(name);
    let mut names = std::iter::once(name).chain(template.as_deref());
    is_certain && names.all(|name| find_file(view, name).is_none())
}

/// Returns the names of the units that [`judge_units`] judges, and of those whose files it needs.
pub fn units_to_judge(tree: &UnitTree) -> Vec<String> {
    let entries = tree.entries_of(CONFIG_DIR).into_iter().flatten();
    let names = entries.map(|(name, _)| name.strip_suffix(".d").unwrap_or(name));
    names
        .filter(|name| unit_name::is_valid(name))
        .map(str::to_owned)
        .collect()
}

/// Returns the texts of a unit: its file, then its drop-ins in order; `None` for one that is masked, has no file or another
/// name, or was not read.
fn read_unit<'v>(view: &'v View<'_>, name: &str) -> Option<(&'v str, Vec<&'v str>)> {
    let template = unit_name::template_of(name);
    let fragment = std::iter::once(name)
        .chain(template.as_deref())
        .find_map(|name| find_file(view, name))?;
    let end = view.chase_path(&fragment, true).ok()?;
    if file_name(&end) != file_name(&fragment) {
        return None;
    }
    let fragment = text_at(view, &end)?;
    let mut texts = Vec::new();
    for path in find_dropins(view, name) {
        // A dangling drop-in does not count.
        let Ok(end) = view.chase_path(&path, true) else {
            continue;
        };
        match view.node_at(&end) {
            TreeNode::Missing | TreeNode::Null => {}
            _ => texts.push(text_at(view, &end)?),
        }
    }
    Some((fragment, texts))
}

/// Returns the paths of a unit's drop-ins in the order in which they apply. Of two with the same name, the first hides the
/// other.
fn find_dropins(view: &View<'_>, unit: &str) -> Vec<String> {
    let mut dropins = BTreeMap::new();
    for name in dropin_names(unit) {
        let below = format!("{name}.d");
        let dirs = view.search_dirs().iter();
        for dir in dirs.filter(|dir| dir.entries.contains_key(&below)) {
            let Ok(directory) = view.chase_path(&format!("{}/{below}", dir.path), true) else {
                continue;
            };
            let TreeNode::Directory(files) = view.node_at(&directory) else {
                continue;
            };
            let is_dropin = |file: &&String| file.ends_with(".conf") && !file.starts_with('.');
            for file in files.keys().filter(is_dropin) {
                let path = || format!("{directory}/{file}");
                dropins.entry(file.clone()).or_insert_with(path);
            }
        }
    }
    dropins.into_values().collect()
}

/// Returns the path of the first file with this name.
fn find_file(view: &View<'_>, name: &str) -> Option<String> {
    let mut dirs = view.search_dirs().iter();
    let dir = dirs.find(|dir| dir.entries.contains_key(name))?;
    Some(format!("{}/{name}", dir.path))
}

/// Returns the text of a file that was read.
fn text_at<'v>(view: &'v View<'_>, path: &str) -> Option<&'v str> {
    match view.node_at(path) {
        TreeNode::File(text) => text,
        _ => None,
    }
}

/// Returns how the boot requires a unit, directly or by other units.
fn find_requirement(view: &View<'_>, unit: &str) -> Option<UnitRequirement> {
    let mut met = BTreeSet::from([unit.to_owned()]);
    let mut queue = vec![unit.to_owned()];
    while let Some(unit) = queue.pop() {
        for name in requirers_of(view, &unit) {
            if let Some(target) = BOOT_TARGETS.iter().find(|target| **target == name) {
                return Some(UnitRequirement { target, unit });
            }
            if met.insert(name.clone()) {
                queue.push(name);
            }
        }
    }
    None
}

/// Returns the units that require a unit: by a link, or by a setting in a file that was read.
fn requirers_of(view: &View<'_>, unit: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for dir in view.search_dirs() {
        for (name, entry) in &dir.entries {
            if let Some(requirer) = name.strip_suffix(".requires")
                && let Ok(end) = view.chase_path(&format!("{}/{name}", dir.path), true)
                && matches!(view.node_at(&format!("{end}/{unit}")), TreeNode::Link(_))
            {
                found.insert(requirer.to_owned());
            }
            let (owner, texts) = match entry {
                UnitEntry::File(text) => (Some(name.as_str()), vec![text.as_deref()]),
                UnitEntry::Directory(files) => {
                    let texts = files.values().map(|file| match file {
                        UnitEntry::File(text) => text.as_deref(),
                        _ => None,
                    });
                    (name.strip_suffix(".d"), texts.collect())
                }
                _ => continue,
            };
            let mut texts = texts.into_iter().flatten();
            if let Some(owner) = owner
                && texts.any(|text| requires_unit(text, unit))
            {
                found.insert(owner.to_owned());
            }
        }
    }
    found
}

/// Returns true for a text that requires a unit.
fn requires_unit(text: &str, unit: &str) -> bool {
    text.contains(unit)
        && logical_lines(text).any(|(_, line)| {
            let Some((key, value)) = line.split_once('=') else {
                return false;
            };
            let key = key.trim_matches(is_blank);
            matches!(key, "Requires" | "BindsTo" | "Requisite")
                && value.split(is_blank).any(|word| word == unit)
        })
}
