//! Plans that remove much of the recorded config, or something that a node needs to run or to be reachable.

use std::collections::BTreeSet;

use super::fit::{Doubt, Doubtful};
use super::{Plan, Step};
use crate::base::object::ObjectKind;
use crate::base::paths;
use crate::base::text::count_noun;
use crate::config::document::Desired;
use crate::formats::systemd::{UnitEntry, UnitTree};
use crate::host::root::RootPath;
use crate::judge::drift::enablement::{DEV_NULL, removed_units};
use crate::judge::drift::{dropin_path, unit_path};

/// Units that the node needs to run pods or to be reachable.
const UNITS: [&str; 6] = [
    "kubelet.service",
    "crio.service",
    "NetworkManager.service",
    "nodeip-configuration.service",
    "ovs-configuration.service",
    "sshd.service",
];
/// Their configuration.
const FILES: [&str; 5] = [
    "etc/kubernetes/kubelet.conf",
    "etc/crio/crio.conf.d/00-default",
    "etc/containers/policy.json",
    "var/lib/kubelet/config.json",
    "etc/ssh/sshd_config",
];
/// The connections of the node's own network.
const CONNECTIONS: &str = "etc/NetworkManager/system-connections";
/// Number of paths that may always be removed: one MachineConfig of an admin can have as many.
const FEW: usize = 10;
/// Removing more than one path out of this many is a lot.
const SHARE: usize = 10;
/// Maximum number of essential objects that are named.
const NAMED: usize = 5;

/// Returns a doubt if much of what the recorded config manages is removed, or anything essential.
pub(super) fn find_removals(
    plan: &Plan,
    old: &Desired,
    new: &Desired,
    units: &UnitTree,
) -> Option<Doubtful> {
    let (mut before, after) = (managed_paths(old), managed_paths(new));
    let touched: BTreeSet<&RootPath> = plan.steps.iter().map(|one| one.step.path()).collect();
    // The file of a unit without contents stays until the unit itself is removed.
    let left = removed_units(old, new).into_iter();
    let left = left.filter_map(|unit| unit_path(&unit.name));
    before.extend(left.filter(|path| touched.contains(path)));
    let gone = before
        .difference(&after)
        .filter(|path| touched.contains(path));
    let gone: Vec<&RootPath> = gone.collect();
    let mut essential: Vec<String> = gone
        .iter()
        .filter_map(|path| essential_name(path))
        .collect();
    let off = plan.steps.iter().filter_map(|one| switched_off(&one.step));
    essential.extend(off.filter_map(|(unit, how)| {
        match how {
            Off::Masked => Some(format!("{unit} (masked)")),
            Off::NotStarted if is_wanted_off(unit, old, new) => None,
            Off::NotStarted if is_linked_after(unit, plan, units) => None,
            // Its file goes, which says it already.
            Off::NotStarted
                if gone
                    .iter()
                    .any(|path| path.name() == unit && path.is_in(paths::UNITS)) =>
            {
                None
            }
            Off::NotStarted => Some(format!("{unit} (not started at boot)")),
        }
    }));
    essential.sort();
    essential.dedup();
    if essential.is_empty() && !is_much(gone.len(), before.len()) {
        return None;
    }
    let said = format!(
        "{} of {} of the recorded config would be removed{}",
        gone.len(),
        count_noun(before.len(), "path"),
        list_essential(&essential)
    );
    Some(Doubtful::new(
        Doubt::Removals,
        "removals",
        said,
        "Check whether this is the right config",
    ))
}

fn is_much(gone: usize, before: usize) -> bool {
    gone >= FEW && gone * SHARE > before
}

/// Returns every file, unit and drop-in.
fn managed_paths(desired: &Desired) -> BTreeSet<RootPath> {
    let mut all: BTreeSet<RootPath> = desired.files.iter().map(|file| file.path.clone()).collect();
    for unit in &desired.units {
        let has_file = unit.text().is_some() || unit.mask == Some(true);
        all.extend(unit_path(&unit.name).filter(|_| has_file));
        let dropins = unit.dropins.iter();
        all.extend(dropins.filter_map(|dropin| dropin_path(&unit.name, &dropin.name)));
    }
    all
}

/// Returns the name of an essential object: units by name, files by path.
fn essential_name(path: &RootPath) -> Option<String> {
    let at = path.relative();
    let unit = UNITS
        .into_iter()
        .find(|unit| at == format!("{}/{unit}", paths::UNITS));
    if let Some(unit) = unit {
        return Some(unit.to_owned());
    }
    let is_file = FILES.contains(&at) || path.is_in(CONNECTIONS);
    is_file.then(|| path.to_string())
}

/// How a plan prevents a unit from starting at boot.
enum Off {
    Masked,
    /// A link that starts it at boot is removed.
    NotStarted,
}

/// Returns the essential unit that a step prevents from starting.
fn switched_off(step: &Step) -> Option<(&'static str, Off)> {
    let path = step.path();
    let unit = UNITS.into_iter().find(|unit| *unit == path.name())?;
    match step {
        Step::Put { new, .. } => {
            let masked = matches!(&new.kind, ObjectKind::Symlink { target } if target == DEV_NULL);
            masked.then_some((unit, Off::Masked))
        }
        Step::Remove { .. } if path.is_in(paths::UNITS) => {
            let own = format!("{}/{unit}", paths::UNITS);
            (path.relative() != own).then_some((unit, Off::NotStarted))
        }
        _ => None,
    }
}

/// Units that are off on some platforms, according to the config.
const OFF_ON_SOME_PLATFORMS: [&str; 2] =
    ["nodeip-configuration.service", "ovs-configuration.service"];

/// Returns true if the unit is already off in the recorded config, or may be off in the new one.
fn is_wanted_off(unit: &str, old: &Desired, new: &Desired) -> bool {
    let state = |config: &Desired| {
        let mut of_name = config.units.iter().filter(|one| one.name == unit);
        of_name.find_map(|one| one.enabled)
    };
    state(new) == Some(false)
        && (state(old) == Some(false) || OFF_ON_SOME_PLATFORMS.contains(&unit))
}

/// Returns true if a link that starts the unit at boot remains or is created.
fn is_linked_after(unit: &str, plan: &Plan, units: &UnitTree) -> bool {
    let directories = units.dirs.iter().flat_map(|dir| {
        let names = dir.entries.iter();
        names.map(move |(name, entry)| (format!("{}/{name}/{unit}", dir.path), entry))
    });
    let present = directories.filter_map(|(path, entry)| match entry {
        UnitEntry::Directory(links) if starts_units(&path) => {
            matches!(links.get(unit), Some(UnitEntry::Link(_))).then_some(path)
        }
        _ => None,
    });
    let mut links: BTreeSet<String> = present.collect();
    for planned in &plan.steps {
        let path = planned.step.path().to_string();
        match &planned.step {
            Step::Remove { .. } => {
                links.remove(&path);
            }
            Step::Put { .. } if planned.step.path().name() == unit && starts_units(&path) => {
                links.insert(path);
            }
            _ => {}
        }
    }
    !links.is_empty()
}

/// Returns true for a link in a directory that makes units start together with another one.
fn starts_units(path: &str) -> bool {
    let directory = path.rsplit('/').nth(1).unwrap_or_default();
    let ends = [".wants", ".requires", ".upholds"];
    ends.iter().any(|end| directory.ends_with(end))
}

fn list_essential(essential: &[String]) -> String {
    if essential.is_empty() {
        return String::new();
    }
    let named: Vec<&str> = essential.iter().take(NAMED).map(String::as_str).collect();
    let more = match essential.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        ", with {}{more}, which the node needs to run or to be reached",
        named.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::object::Object;
    use crate::change::plan::{Payload, PlannedStep, Section};
    use crate::config::document;
    use serde_json::{Value, json};

    fn desired(files: usize, units: &Value) -> Desired {
        let files: Vec<Value> = (0..files)
            .map(|number| json!({"path": format!("/etc/site/{number}")}))
            .collect();
        let text = json!({"metadata": {"name": "rendered-worker-a"}, "spec": {"config": {
            "ignition": {"version": "3.4.0"}, "storage": {"files": files}, "systemd": {"units": units}}}});
        Desired::from_config(
            &document::parse_document(text.to_string().as_bytes(), "test").unwrap(),
        )
    }

    fn step(step: Step) -> PlannedStep {
        PlannedStep {
            step,
            payload: Payload::None,
            section: Section::Stale,
            why: "".into(),
            label: None,
        }
    }

    fn object(kind: ObjectKind) -> Object {
        Object::new(kind, 0o644, (0, 0))
    }

    fn remove(path: &str) -> PlannedStep {
        step(Step::Remove {
            path: RootPath::parse(path).unwrap(),
            old: object(ObjectKind::Symlink { target: "x".into() }),
        })
    }

    fn plan(steps: impl IntoIterator<Item = PlannedStep>) -> Plan {
        Plan {
            steps: steps.into_iter().collect(),
            ..Plan::default()
        }
    }

    #[test]
    fn much_is_a_share_and_a_number() {
        for (gone, before, much) in [
            (3, 5, false),
            (9, 9, false),
            (10, 10, true),
            (10, 99, true),
            (10, 100, false),
            (157, 160, true),
        ] {
            assert_eq!(is_much(gone, before), much, "{gone} of {before}");
        }
    }

    #[test]
    fn only_what_the_plan_really_takes_away_counts() {
        let (old, new) = (desired(40, &json!([])), desired(20, &json!([])));
        let all = (20..40).map(|number| remove(&format!("/etc/site/{number}")));
        let found = find_removals(&plan(all), &old, &new, &UnitTree::default()).unwrap();
        assert!(found.why.starts_with("20 of 40 paths"), "{}", found.why);
        let few = (20..25).map(|number| remove(&format!("/etc/site/{number}")));
        assert_eq!(
            find_removals(&plan(few), &old, &new, &UnitTree::default()),
            None
        );
    }

    #[test]
    fn essentials_count_one_by_one() {
        let kubelet = json!([{"name": "kubelet.service", "contents": "[Unit]\n"}]);
        let (old, new) = (desired(3, &kubelet), desired(3, &json!([])));
        let units = "/etc/systemd/system";
        let mask = step(Step::Put {
            path: RootPath::parse(&format!("{units}/sshd.service")).unwrap(),
            new: object(ObjectKind::Symlink {
                target: DEV_NULL.into(),
            }),
            old: None,
        });
        for (taken, said) in [
            (
                remove(&format!("{units}/kubelet.service")),
                "with kubelet.service,",
            ),
            (
                remove(&format!("{units}/multi-user.target.wants/crio.service")),
                "crio.service (not started at boot)",
            ),
            (mask, "sshd.service (masked)"),
        ] {
            let found = find_removals(&plan([taken]), &old, &new, &UnitTree::default()).unwrap();
            assert!(found.why.contains(said), "{}", found.why);
        }
        let other = remove(&format!("{units}/multi-user.target.wants/site.service"));
        assert_eq!(
            find_removals(&plan([other]), &old, &new, &UnitTree::default()),
            None
        );
    }
}
