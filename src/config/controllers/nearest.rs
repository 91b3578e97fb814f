//! Suggestions for misspelled names.

/// Returns the known names that are closest to a word, at most three: few letters differ, or one is a prefix of the other.
pub(super) fn find_nearest<'n>(word: &str, known: impl Iterator<Item = &'n str>) -> Vec<&'n str> {
    let lower = word.to_ascii_lowercase();
    let rate = |name: &'n str| {
        let other = name.to_ascii_lowercase();
        let steps = steps_between(&lower, &other);
        let begins = lower.len() > 3 && (other.starts_with(&lower) || lower.starts_with(&other));
        let allowed = 1 + lower.chars().count() / 4;
        (steps <= allowed || begins).then_some((steps, name))
    };
    let mut rated: Vec<(usize, &str)> = known.filter_map(rate).collect();
    rated.sort_unstable();
    rated.dedup();
    rated.into_iter().take(3).map(|(_, name)| name).collect()
}

/// Returns the edit distance of two words.
fn steps_between(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(100).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().take(100).enumerate() {
        let mut next = vec![i + 1];
        for ((to, above), (left_above, index)) in
            b.iter().zip(row.iter().skip(1)).zip(row.iter().zip(0..))
        {
            let replace = left_above + usize::from(from != *to);
            let left: usize = next.get(index).copied().unwrap_or(usize::MAX - 1);
            next.push(replace.min(above + 1).min(left + 1));
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

/// Returns `; did you mean A, B?`, or nothing.
pub(super) fn hint_nearest<'n>(word: &str, known: impl Iterator<Item = &'n str>) -> String {
    match find_nearest(word, known).as_slice() {
        [] => String::new(),
        all => format!("; did you mean {}?", all.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_names_are_found() {
        let known = ["maxPods", "maxOpenFiles", "podPidsLimit", "podsPerCore"];
        for (word, names) in [
            ("maxpod", vec!["maxPods"]),
            ("maxPds", vec!["maxPods"]),
            ("podPidLimit", vec!["podPidsLimit"]),
            ("pods", vec!["podsPerCore"]),
            ("swap", vec![]),
        ] {
            assert_eq!(find_nearest(word, known.into_iter()), names, "{word}");
        }
        assert_eq!(steps_between("kitten", "sitting"), 3);
        assert_eq!(steps_between("", "abc"), 3);
    }
}
