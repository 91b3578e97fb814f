//! The differences between two snapshots.

use std::collections::BTreeMap;

use serde::Serialize;

use super::bounds::aligned;
use super::harm::harm;
use super::{Area, Facts, Snapshot};

/// The kind of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// It exists only now.
    Added,
    /// It existed only before.
    Removed,
    /// It is different.
    Changed,
}

/// A fact that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The kind of the fact.
    pub area: Area,
    /// The subject, such as a path or the name of an interface.
    pub subject: String,
    /// The kind of the difference.
    pub change: Change,
    /// The fact before.
    pub before: Option<String>,
    /// The fact now.
    pub after: Option<String>,
    /// The position in the order of harm; 1 kills most often.
    pub harm: u8,
    /// The difference of the text, if a copy of the file is kept.
    pub text: Option<String>,
}

/// The differences between two snapshots.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comparison {
    /// The differences: those that kill most often first, then by area and subject.
    pub differences: Vec<Difference>,
    /// The areas that could not be compared, with the reason.
    pub not_compared: BTreeMap<Area, String>,
}

/// Compares two snapshots. `same_key`: their digests are of the same key; else only size, mode and owner of files are
/// compared.
pub fn compare(before: &Snapshot, after: &Snapshot, same_key: bool) -> Comparison {
    let mut all = Comparison::default();
    for area in Area::ALL {
        match (before.facts.get(&area), after.facts.get(&area)) {
            (Some(before), Some(after)) => {
                all.differences
                    .extend(compare_area(area, before, after, same_key));
            }
            (None, None) if !before.unseen.contains_key(&area) => {}
            (seen, _) => {
                let (side, when) = match seen {
                    Some(_) => (after, "now"),
                    None => (before, "before"),
                };
                let why = side
                    .unseen
                    .get(&area)
                    .map_or("not recorded", String::as_str);
                all.not_compared.insert(area, format!("{when}: {why}"));
            }
        }
    }
    all.differences
        .sort_by(|a, b| (a.harm, a.area, &a.subject).cmp(&(b.harm, b.area, &b.subject)));
    all
}

fn compare_area(area: Area, before: &Facts, after: &Facts, same_key: bool) -> Vec<Difference> {
    let (before, after) = (readable(before, same_key), readable(after, same_key));
    let (before, after) = match area {
        Area::Etc => aligned(before, after),
        _ => (before, after),
    };
    let difference = |subject: &String, before: Option<&String>, after: Option<&String>| {
        let change = match (before, after) {
            (None, _) => Change::Added,
            (_, None) => Change::Removed,
            _ => Change::Changed,
        };
        Difference {
            area,
            subject: subject.clone(),
            change,
            before: before.cloned(),
            after: after.cloned(),
            harm: harm(area, subject),
            text: None,
        }
    };
    let mut all: Vec<Difference> = before
        .iter()
        .filter(|(subject, value)| after.get(*subject) != Some(value))
        .map(|(subject, value)| difference(subject, Some(value), after.get(subject)))
        .collect();
    let added = after
        .iter()
        .filter(|(subject, _)| !before.contains_key(*subject));
    all.extend(added.map(|(subject, value)| difference(subject, None, Some(value))));
    all
}

/// Returns the facts without digests, if those cannot be compared.
fn readable(facts: &Facts, same_key: bool) -> Facts {
    if same_key {
        return facts.clone();
    }
    let without = |value: &String| match value.rsplit_once(" #") {
        Some((rest, _)) => rest.to_owned(),
        None => value.clone(),
    };
    let facts = facts.iter();
    facts
        .map(|(subject, value)| (subject.clone(), without(value)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(facts: &[(Area, &str, &str)]) -> Snapshot {
        let mut all = Snapshot::default();
        for (area, subject, value) in facts {
            let area = all.facts.entry(*area).or_default();
            area.insert((*subject).to_owned(), (*value).to_owned());
        }
        all
    }

    #[test]
    fn each_change_is_one_difference_and_the_deadliest_is_first() {
        let before = snapshot(&[
            (Area::Etc, "/etc/motd", "0644 5 bytes #a"),
            (Area::Etc, "/etc/gone", "0644 5 bytes #a"),
            (Area::Interfaces, "eth0 driver", "ixgbe"),
        ]);
        let after = snapshot(&[
            (Area::Etc, "/etc/motd", "0644 5 bytes #b"),
            (Area::Etc, "/etc/new", "0644 5 bytes #a"),
            (Area::Interfaces, "eth0 driver", "ice"),
        ]);
        let all = compare(&before, &after, true).differences;
        let short: Vec<_> = all
            .iter()
            .map(|one| (one.subject.as_str(), one.change))
            .collect();
        assert_eq!(
            short,
            [
                ("eth0 driver", Change::Changed),
                ("/etc/gone", Change::Removed),
                ("/etc/motd", Change::Changed),
                ("/etc/new", Change::Added),
            ]
        );
        assert_eq!(compare(&before, &before, true), Comparison::default());
    }

    #[test]
    fn digests_of_two_keys_are_no_difference() {
        let before = snapshot(&[
            (Area::Etc, "/etc/a", "0644 5 bytes #a"),
            (Area::Etc, "/etc/b", "0644 5 bytes #a"),
        ]);
        let after = snapshot(&[
            (Area::Etc, "/etc/a", "0644 5 bytes #b"),
            (Area::Etc, "/etc/b", "0600 5 bytes #b"),
        ]);
        let all = compare(&before, &after, false).differences;
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].after.as_deref(), Some("0600 5 bytes"));
    }

    #[test]
    fn an_area_of_one_side_alone_is_not_compared() {
        let before = snapshot(&[(Area::Units, "kubelet.service", "running")]);
        let mut after = Snapshot::default();
        after.put(Area::Units, Err("systemd does not run".to_owned()));
        let all = compare(&before, &after, true);
        assert_eq!(all.differences, []);
        assert_eq!(all.not_compared[&Area::Units], "now: systemd does not run");
    }
}
