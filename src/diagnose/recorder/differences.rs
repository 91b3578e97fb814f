//! The differences between two snapshots.

use std::collections::BTreeMap;

use serde::Serialize;

use super::bounds::align_facts;
use super::harm::harm_of;
use super::{Area, AreaFacts, Snapshot};
use crate::base::order::StableOrder;
use crate::base::text::count_noun;

/// The kind of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FactChange {
    /// It exists only in the later snapshot.
    Added,
    /// It existed only in the earlier snapshot.
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
    pub change: FactChange,
    /// The fact before.
    pub before: Option<String>,
    /// The fact now.
    pub after: Option<String>,
    /// The rank of harm; 1 is the most frequent cause of failures.
    pub harm: u8,
    /// The difference of the text, if a copy of the file is kept.
    pub text: Option<String>,
}

/// Suffix of the fact about an object that could not be read completely.
pub const UNREADABLE: &str = ", unreadable";

/// The differences between two snapshots.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comparison {
    /// The differences: most harmful first, then by area and subject.
    pub differences: Vec<Difference>,
    /// The areas that could not be compared, with the reason.
    pub not_compared: BTreeMap<Area, String>,
}

/// Compares two snapshots. `same_key`: their digests were made with the same key; otherwise only size, mode and owner of files
/// are compared.
pub fn compare_snapshots(before: &Snapshot, after: &Snapshot, same_key: bool) -> Comparison {
    let mut all = Comparison::default();
    for area in Area::ALL {
        match (before.facts.get(&area), after.facts.get(&area)) {
            (Some(before), Some(after)) => {
                let unread = Unread::find_unread(before, after);
                let found = compare_area(area, before, after, same_key).into_iter();
                all.differences
                    .extend(found.filter(|one| !unread.may_hide(one)));
                all.not_compared
                    .extend(unread.describe_unread().map(|words| (area, words)));
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
        .order_by(|a, b| (a.harm, a.area, &a.subject).cmp(&(b.harm, b.area, &b.subject)));
    all
}

/// The objects that were read on one side only.
struct Unread<'a> {
    now: Vec<&'a str>,
    before: Vec<&'a str>,
}

impl<'a> Unread<'a> {
    fn find_unread(before: &'a AreaFacts, after: &'a AreaFacts) -> Self {
        let of = |facts: &'a AreaFacts| {
            let unread = facts
                .iter()
                .filter(|(_, value)| value.ends_with(UNREADABLE));
            unread.map(|(subject, _)| subject.as_str()).collect()
        };
        Self {
            now: of(after),
            before: of(before),
        }
    }

    /// Returns true for a difference that may be apparent only, because it concerns something that was not read.
    fn may_hide(&self, one: &Difference) -> bool {
        let is_in = |unread: &&&str| {
            let below = one.subject.strip_prefix(**unread);
            below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
        };
        let Some(unread) = self.now.iter().chain(&self.before).find(is_in) else {
            return false;
        };
        let known = |value: &Option<String>| {
            let value = value.as_deref().unwrap_or_default();
            let value = value.strip_suffix(UNREADABLE).unwrap_or(value);
            let known = value.rsplit_once(" #").map_or(value, |(known, _)| known);
            known.to_owned()
        };
        let (before, after) = (known(&one.before), known(&one.after));
        let is_alike = before.starts_with(&after) || after.starts_with(&before);
        one.subject != **unread || is_alike || before == "object" || after == "object"
    }

    fn describe_unread(&self) -> Option<String> {
        let side = |when: &str, unread: &[&str]| match unread {
            [] => None,
            [one] => Some(format!("{when}: {one} could not be read")),
            [one, rest @ ..] => Some(format!(
                "{when}: {one} and {} could not be read",
                count_noun(rest.len(), "other")
            )),
        };
        let sides = [side("now", &self.now), side("before", &self.before)];
        let sides: Vec<String> = sides.into_iter().flatten().collect();
        (!sides.is_empty()).then(|| sides.join("; "))
    }
}

fn compare_area(
    area: Area,
    before: &AreaFacts,
    after: &AreaFacts,
    same_key: bool,
) -> Vec<Difference> {
    let (before, after) = (
        without_digests(before, same_key),
        without_digests(after, same_key),
    );
    let (before, after) = match area {
        Area::Etc => align_facts(before, after),
        _ => (before, after),
    };
    let difference = |subject: &String, before: Option<&String>, after: Option<&String>| {
        let change = match (before, after) {
            (None, _) => FactChange::Added,
            (_, None) => FactChange::Removed,
            _ => FactChange::Changed,
        };
        Difference {
            area,
            subject: subject.clone(),
            change,
            before: before.cloned(),
            after: after.cloned(),
            harm: harm_of(area, subject),
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
fn without_digests(facts: &AreaFacts, same_key: bool) -> AreaFacts {
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
        let all = compare_snapshots(&before, &after, true).differences;
        let short: Vec<_> = all
            .iter()
            .map(|one| (one.subject.as_str(), one.change))
            .collect();
        assert_eq!(
            short,
            [
                ("eth0 driver", FactChange::Changed),
                ("/etc/gone", FactChange::Removed),
                ("/etc/motd", FactChange::Changed),
                ("/etc/new", FactChange::Added),
            ]
        );
        assert_eq!(
            compare_snapshots(&before, &before, true),
            Comparison::default()
        );
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
        let all = compare_snapshots(&before, &after, false).differences;
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].after.as_deref(), Some("0600 5 bytes"));
    }

    #[test]
    fn what_could_not_be_read_is_not_a_difference() {
        let before = snapshot(&[
            (Area::Etc, "/etc/a", "0644 5 bytes #a"),
            (Area::Etc, "/etc/b", "0644 5 bytes #a"),
            (Area::Etc, "/etc/d", "directory 0755"),
            (Area::Etc, "/etc/d/x", "0644 5 bytes #a"),
        ]);
        let after = snapshot(&[
            (Area::Etc, "/etc/a", "0644 5 bytes, unreadable"),
            (Area::Etc, "/etc/b", "0600 5 bytes, unreadable"),
            (Area::Etc, "/etc/d", "directory, unreadable"),
        ]);
        let all = compare_snapshots(&before, &after, true);
        let subjects: Vec<_> = all
            .differences
            .iter()
            .map(|one| one.subject.as_str())
            .collect();
        assert_eq!(subjects, ["/etc/b"], "its mode is another one");
        assert_eq!(
            all.not_compared[&Area::Etc],
            "now: /etc/a and 2 others could not be read"
        );
    }

    #[test]
    fn an_area_of_one_side_alone_is_not_compared() {
        let before = snapshot(&[(Area::Units, "kubelet.service", "running")]);
        let mut after = Snapshot::default();
        after.put_area(Area::Units, Err("systemd does not run".into()));
        let all = compare_snapshots(&before, &after, true);
        assert_eq!(all.differences, []);
        assert_eq!(all.not_compared[&Area::Units], "now: systemd does not run");
    }
}
