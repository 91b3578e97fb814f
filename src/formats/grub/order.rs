//! The order of boot entries in GRUB's menu. `blscfg` considers only file names, and the first entry is the default.
//!
//! A name is split at its last two `-` into name, version and release, and each part is compared like rpm compares versions. So
//! the order can differ from that of the `version` in the entries if the name of a stateroot contains `-`.

use std::cmp::Ordering;

use crate::base::order::StableOrder;

/// Sorts ids of boot entries (file names without `.conf`) like the menu does: default first.
pub fn menu_order(mut ids: Vec<String>) -> Vec<String> {
    ids.retain(|id| !id.is_empty() && !id.starts_with('.'));
    ids.order_by(|one, other| compare_names(other, one));
    ids
}

/// Compares two ids; the greater one is closer to the top. Of two equal ones GRUB shows only one.
pub fn compare_names(one: &str, other: &str) -> Ordering {
    let ((a, b, c), (x, y, z)) = (split_id(one), split_id(other));
    let by_version = compare_versions(a, x).then_with(|| compare_versions(b, y));
    by_version.then_with(|| compare_versions(c, z))
}

/// Returns name, version and release. A name with one `-` has a version and no release.
fn split_id(id: &str) -> (&str, &str, &str) {
    match id.rsplit_once('-') {
        None => (id, "", ""),
        Some((before, last)) => match before.rsplit_once('-') {
            None => (before, last, ""),
            Some((name, version)) => (name, version, last),
        },
    }
}

/// Compares versions like rpm does: runs of digits as numbers, runs of letters as text, `~` before everything, and `+` after
/// the end of the other one but before anything else.
fn compare_versions(one: &str, other: &str) -> Ordering {
    let counts = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'~' | b'+');
    let (mut one, mut other) = (one.as_bytes(), other.as_bytes());
    loop {
        one = skip_bytes(one, |byte| !counts(byte));
        other = skip_bytes(other, |byte| !counts(byte));
        match (one.first(), other.first()) {
            (None, None) => return Ordering::Equal,
            (Some(b'~'), Some(b'~')) | (Some(b'+'), Some(b'+')) => {
                one = one.get(1..).unwrap_or_default();
                other = other.get(1..).unwrap_or_default();
                continue;
            }
            (Some(b'~'), _) => return Ordering::Less,
            (_, Some(b'~')) => return Ordering::Greater,
            (None, _) => return Ordering::Less,
            (_, None) => return Ordering::Greater,
            (Some(b'+'), _) => return Ordering::Less,
            (_, Some(b'+')) => return Ordering::Greater,
            _ => {}
        }
        let is_number = one.first().is_some_and(u8::is_ascii_digit);
        let of_run = |byte: &u8| {
            if is_number {
                byte.is_ascii_digit()
            } else {
                byte.is_ascii_alphabetic()
            }
        };
        let (run, rest) = one.split_at(one.len() - skip_bytes(one, of_run).len());
        let (other_run, other_rest) = other.split_at(other.len() - skip_bytes(other, of_run).len());
        if other_run.is_empty() {
            // A number is newer than letters.
            return if is_number {
                Ordering::Greater
            } else {
                Ordering::Less
            };
        }
        let compared = if is_number {
            compare_numbers(run, other_run)
        } else {
            run.cmp(other_run)
        };
        if compared.is_ne() {
            return compared;
        }
        (one, other) = (rest, other_rest);
    }
}

/// Compares numbers of any length.
fn compare_numbers(one: &[u8], other: &[u8]) -> Ordering {
    let (a, b) = (
        skip_bytes(one, |byte| *byte == b'0'),
        skip_bytes(other, |byte| *byte == b'0'),
    );
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

fn skip_bytes(text: &[u8], which: impl Fn(&u8) -> bool) -> &[u8] {
    let count = text.iter().take_while(|byte| which(byte)).count();
    text.get(count..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs of which the first is closer to the top.
    const PAIRS: [(&str, &str); 22] = [
        // As ostree names them: the number is compared as a number.
        ("ostree-2", "ostree-1"),
        ("ostree-10", "ostree-9"),
        ("ostree-2-rhcos", "ostree-1-rhcos"),
        ("ostree-2-a", "ostree-1-z"),
        // A stateroot with a `-` makes the number part of the name, where it is still compared first.
        ("ostree-2-my-os", "ostree-1-my-os"),
        // Names are compared first: `ostree-1` is longer than `ostree`, whatever the number is.
        ("ostree-1-my-os", "ostree-2-rhcos"),
        ("ostree-1-my-os", "ostree-9"),
        // Entries of other programs.
        ("z-1", "ostree-9"),
        ("ostree-1", "fedora-9"),
        ("ostree-2-rhcos", "ostree-2"),
        // Numbers are newer than letters; leading zeros do not count.
        ("a-1", "a-x"),
        ("a-010", "a-9"),
        ("a-5.14.0-362.fc38", "a-5.14.0-70.fc38"),
        ("a-5.14.0", "a-5.9.0"),
        // A longer text is newer.
        ("a-1.1", "a-1"),
        ("a-1a", "a-1"),
        // `~` is older than the end, `+` newer than the end and older than anything else.
        ("a-1", "a-1~rc1"),
        ("a-1+1", "a-1"),
        ("a-1.1", "a-1+1"),
        ("ostree-2+3", "ostree-2"),
        ("ostree-3", "ostree-2+3"),
        ("ostree-2+3", "ostree-2+2-1"),
    ];

    #[test]
    fn the_order_is_that_of_file_names() {
        for (first, second) in PAIRS {
            assert_eq!(
                compare_names(first, second),
                Ordering::Greater,
                "{first} {second}"
            );
            assert_eq!(
                compare_names(second, first),
                Ordering::Less,
                "{first} {second}"
            );
        }
        for (one, other) in [
            ("ostree-2", "ostree-02"),
            ("a.b-1", "a_b-1"),
            ("a-1.", "a-1"),
        ] {
            assert_eq!(compare_names(one, other), Ordering::Equal, "{one} {other}");
        }
    }

    #[test]
    fn hidden_files_are_in_no_menu() {
        let ids = [".ostree-9", "ostree-1", "", "ostree-10", "ostree-2"].map(str::to_owned);
        assert_eq!(
            menu_order(ids.to_vec()),
            ["ostree-10", "ostree-2", "ostree-1"]
        );
    }
}
