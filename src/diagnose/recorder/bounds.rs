//! The limit on the number of facts about `/etc`: above it, each of the directories with the most entries becomes one fact.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};

use super::AreaFacts;
use crate::host::root::to_hex;

/// Suffix of the subject of a directory that is kept as one fact.
const WHOLE: &str = "/**";

/// Returns the facts with at most about `limit` entries.
pub fn bound_facts(mut facts: AreaFacts, limit: usize) -> AreaFacts {
    while facts.len() > limit {
        let mut entries: BTreeMap<String, usize> = BTreeMap::new();
        for path in facts.keys() {
            for above in path_and_parents(path).skip(1) {
                *entries.entry(above.to_owned()).or_default() += 1;
            }
        }
        // The smallest directory that is sufficient; otherwise the largest one below the top.
        let surplus = facts.len() - limit;
        let below_top = || {
            entries
                .iter()
                .filter(|(path, _)| path.matches('/').count() > 1)
        };
        let enough = below_top().filter(|(_, count)| **count > surplus);
        let chosen = enough.min_by_key(|(path, count)| (**count, Reverse(path.len())));
        let chosen = chosen.or_else(|| below_top().max_by_key(|(_, count)| **count));
        let Some((directory, 2..)) = chosen.map(|(path, count)| (path.clone(), *count)) else {
            break;
        };
        facts = merge_directory(facts, &directory);
    }
    facts
}

/// Returns the facts with those of one directory merged into one.
fn merge_directory(facts: AreaFacts, directory: &str) -> AreaFacts {
    let (inside, mut others): (AreaFacts, AreaFacts) = facts
        .into_iter()
        .partition(|(path, _)| is_below(path, directory));
    let mut hash = Sha256::new();
    for (path, value) in &inside {
        hash.update(format!("{path}\0{value}\n"));
    }
    let digest = to_hex(&hash.finalize());
    let digest = digest.get(..12).unwrap_or_default();
    others.insert(
        format!("{directory}{WHOLE}"),
        format!("{} entries #{digest}", inside.len()),
    );
    others
}

/// Merges the same directories on both sides, so that the facts can be compared.
pub fn align_facts(mut one: AreaFacts, mut other: AreaFacts) -> (AreaFacts, AreaFacts) {
    let directories = |facts: &AreaFacts| -> BTreeSet<String> {
        let all = facts.keys().filter_map(|path| path.strip_suffix(WHOLE));
        all.map(str::to_owned).collect()
    };
    let all: BTreeSet<String> = directories(&one)
        .union(&directories(&other))
        .cloned()
        .collect();
    // Deeper ones first, in the order in which they were merged.
    for directory in all.iter().rev() {
        for facts in [&mut one, &mut other] {
            let whole = format!("{directory}{WHOLE}");
            let has_entries = facts.keys().any(|path| is_below(path, directory));
            if !facts.contains_key(&whole) && has_entries {
                *facts = merge_directory(std::mem::take(facts), directory);
            }
        }
    }
    (one, other)
}

fn is_below(path: &str, directory: &str) -> bool {
    let rest = path.strip_prefix(directory);
    rest.is_some_and(|rest| rest.starts_with('/'))
}

/// Returns a path and the directories above it.
fn path_and_parents(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| Some(path.rsplit_once('/')?.0))
        .filter(|path| !path.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(number: usize, changed: usize) -> AreaFacts {
        let mut all = AreaFacts::new();
        all.insert("/etc/fstab".to_owned(), "0644 1 bytes".to_owned());
        for n in 0..number {
            let value = if n == changed { "x" } else { "y" };
            all.insert(format!("/etc/kubernetes/pods/{n}"), value.to_owned());
        }
        all
    }

    #[test]
    fn a_large_directory_becomes_one_fact_that_still_tells_of_a_change() {
        let small = bound_facts(facts(5, 9), 10);
        assert_eq!(small.len(), 6);
        let (before, after) = (
            bound_facts(facts(50, 99), 10),
            bound_facts(facts(50, 7), 10),
        );
        assert_eq!(before.len(), 2);
        assert!(before.contains_key("/etc/fstab"));
        assert_ne!(
            before["/etc/kubernetes/pods/**"],
            after["/etc/kubernetes/pods/**"]
        );
    }

    #[test]
    fn two_sides_with_other_bounds_are_compared() {
        let (one, other) = align_facts(bound_facts(facts(50, 99), 10), facts(50, 99));
        assert_eq!(one, other);
        let (one, other) = align_facts(facts(50, 7), bound_facts(facts(50, 99), 10));
        assert_ne!(one, other);
        assert_eq!(
            one.keys().collect::<Vec<_>>(),
            other.keys().collect::<Vec<_>>()
        );
    }

    #[test]
    fn what_cannot_be_gathered_stays() {
        let top: AreaFacts = (0..9)
            .map(|n| (format!("/etc/{n}"), String::new()))
            .collect();
        assert_eq!(bound_facts(top.clone(), 3), top);
    }
}
