//! Kernel arguments as a value: an ordered list in which duplicates count.
//!
//! Pure. Tokens are cut as the daemon and the kernel cut them (mcd-contract 8.4), and a change is what libostree
//! makes of it: a deletion takes the first equal argument, an addition comes last.

use std::collections::BTreeMap;
use std::fmt;

/// Kernel arguments in order; quotes are kept as they were written.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct Kargs(Vec<String>);

/// One option of `rpm-ostree kargs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// `--delete-if-present`: without the first argument that is exactly this one.
    Delete(String),
    /// `--append`: one more at the end, even where there are equal ones.
    Append(String),
    /// `--append-if-missing`: only where nothing of this key is there, so that it can be said twice.
    AppendIfMissing(String),
}

/// Why libostree does not make a change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KargsError {
    /// The key is there with another value.
    #[error(
        "deleting kernel argument {0}: its key is there with another value only; read the arguments again"
    )]
    OtherValue(String),
    /// The key alone was given, and it is there with several values.
    #[error("deleting kernel argument {0}: it is there with several values; name the value too")]
    Several(String),
}

impl Kargs {
    /// Cuts a command line: blanks separate, except between double quotes, which cannot be escaped.
    pub fn parse(line: &str) -> Self {
        let (mut tokens, mut token, mut quoted) = (Vec::new(), String::new(), false);
        for letter in line.chars() {
            if is_blank(letter) && !quoted {
                tokens.push(std::mem::take(&mut token));
                continue;
            }
            quoted ^= letter == '"';
            token.push(letter);
        }
        tokens.push(token);
        // What is blank to Unicode only is cut from the ends, as the daemon does.
        let tokens = tokens.iter().map(|token| token.trim().to_owned());
        Self(tokens.filter(|token| !token.is_empty()).collect())
    }

    /// The tokens of `spec.kernelArguments`, whose entries may hold several each.
    pub fn of_entries<S: AsRef<str>>(entries: &[S]) -> Self {
        let each = entries.iter().map(|entry| Self::parse(entry.as_ref()).0);
        Self(each.flatten().collect())
    }

    /// What the daemon takes for the old arguments on a first boot (mcd-contract 8.4): the booted ones that are
    /// exactly an entry of the config. An entry of several tokens is never among them.
    pub fn first_boot<S: AsRef<str>>(booted: &Self, entries: &[S]) -> Self {
        let requested = |token: &&String| entries.iter().any(|entry| entry.as_ref() == **token);
        Self(booted.0.iter().filter(requested).cloned().collect())
    }

    /// The arguments in order.
    pub fn tokens(&self) -> &[String] {
        &self.0
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Without the arguments of these keys, such as `ostree` and `BOOT_IMAGE`, which belong to one boot entry.
    #[must_use]
    pub fn without(&self, keys: &[&str]) -> Self {
        let kept = self.0.iter().filter(|token| !keys.contains(&key(token)));
        Self(kept.cloned().collect())
    }

    /// What the daemon would say is missing (mcd-contract 7): presence counts, not number or order.
    pub fn missing_from(&self, present: &Self) -> Vec<&str> {
        let absent = |token: &&String| !present.0.contains(token);
        self.0.iter().filter(absent).map(String::as_str).collect()
    }

    /// Arguments with a blank between quotes: the daemon splits what it reads back at every blank, so it never finds
    /// them and stays Degraded (mcd-contract 11, 26).
    pub fn never_found(&self) -> Vec<&str> {
        let blank = |token: &&String| token.contains(' ');
        self.0.iter().filter(blank).map(String::as_str).collect()
    }

    /// Arguments with a quote that is never closed: put on a command line they swallow whatever follows.
    pub fn unclosed(&self) -> Vec<&str> {
        let odd = |token: &&String| token.matches('"').count() % 2 == 1;
        self.0.iter().filter(odd).map(String::as_str).collect()
    }

    /// What the arguments come to be when a config that asks for `new` follows one that asked for `old`.
    ///
    /// The arguments of the daemon's sequence, but what is there already stays in its place and is not asked for
    /// twice. The values of one key come in the order of the config: of most keys the kernel takes the last.
    #[must_use]
    pub fn towards(&self, old: &Self, new: &Self) -> Self {
        let (old_by_key, new_by_key) = (old.by_key(), new.by_key());
        let changed = |key: &str| old_by_key.get(key) != new_by_key.get(key);
        let mut result = self.clone();
        for token in old.0.iter().filter(|token| changed(key(token))) {
            result.remove(token);
        }
        let kept = result.clone();
        let (mut equal, kept_by_key) = (kept.counts(), kept.by_key());
        let leading = |key: &str, values: &[&str]| {
            leading_within(values, kept_by_key.get(key).map_or(&[], Vec::as_slice))
        };
        let mut in_order: BTreeMap<&str, usize> = new_by_key
            .iter()
            .filter(|(key, _)| changed(key))
            .map(|(key, values)| (*key, leading(key, values)))
            .collect();
        for token in &new.0 {
            let there = match in_order.get_mut(key(token)) {
                Some(there) => there,
                None => equal.entry(token).or_default(),
            };
            match there.checked_sub(1) {
                Some(fewer) => *there = fewer,
                None => result.0.push(token.clone()),
            }
        }
        result
    }

    /// The fewest changes after which the values of every key are those of `wanted`, in its order; none where they
    /// are so already.
    ///
    /// Only what is really there is deleted, so it does not matter whether rpm-ostree deletes or appends first.
    pub fn changes_to(&self, wanted: &Self) -> Vec<Change> {
        let (present, target) = (self.by_key(), wanted.by_key());
        let (mut changes, mut skipped) = (Vec::new(), BTreeMap::new());
        for (key, values) in &present {
            let target = target.get(key).map_or(&[][..], Vec::as_slice);
            let (deleted, kept) = leftover(values, target);
            changes.extend(deleted.into_iter().map(Change::Delete));
            skipped.insert(*key, kept);
        }
        for token in &wanted.0 {
            let key = key(token);
            match skipped.get_mut(key) {
                Some(kept) if *kept > 0 => *kept -= 1,
                None if target.get(key).is_some_and(|values| values.len() == 1) => {
                    changes.push(Change::AppendIfMissing(token.clone()));
                }
                _ => changes.push(Change::Append(token.clone())),
            }
        }
        changes
    }

    /// What libostree makes of these changes.
    ///
    /// # Errors
    /// A deletion that it refuses.
    pub fn apply(&self, changes: &[Change]) -> Result<Self, KargsError> {
        let mut result = self.clone();
        for change in changes {
            match change {
                Change::Delete(token) => result.delete(token)?,
                Change::Append(token) => result.0.push(token.clone()),
                Change::AppendIfMissing(token) => {
                    if !result.0.iter().any(|there| key(there) == key(token)) {
                        result.0.push(token.clone());
                    }
                }
            }
        }
        Ok(result)
    }

    /// A deletion as libostree has it: a key alone deletes its only value, whatever that is.
    fn delete(&mut self, token: &str) -> Result<(), KargsError> {
        let of_key: Vec<&str> = self.of_key(key(token)).collect();
        let bare = !token.contains('=');
        match of_key.as_slice() {
            [] => {}
            [only] if bare || *only == token => {
                let only = (*only).to_owned();
                self.remove(&only);
            }
            several if several.contains(&token) => self.remove(token),
            [_] => return Err(KargsError::OtherValue(token.to_owned())),
            _ if bare => return Err(KargsError::Several(token.to_owned())),
            _ => return Err(KargsError::OtherValue(token.to_owned())),
        }
        Ok(())
    }

    fn remove(&mut self, token: &str) {
        if let Some(index) = self.0.iter().position(|there| there == token) {
            self.0.remove(index);
        }
    }

    fn of_key<'a>(&'a self, wanted: &'a str) -> impl Iterator<Item = &'a str> {
        let tokens = self.0.iter().map(String::as_str);
        tokens.filter(move |token| key(token) == wanted)
    }

    fn by_key(&self) -> BTreeMap<&str, Vec<&str>> {
        let mut all: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for token in &self.0 {
            all.entry(key(token)).or_default().push(token);
        }
        all
    }

    fn counts(&self) -> BTreeMap<&String, usize> {
        let mut all = BTreeMap::new();
        for token in &self.0 {
            *all.entry(token).or_default() += 1;
        }
        all
    }
}

impl fmt::Display for Kargs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(" "))
    }
}

impl Change {
    /// The option of `rpm-ostree kargs`.
    pub fn option(&self) -> String {
        match self {
            Self::Delete(token) => format!("--delete-if-present={token}"),
            Self::Append(token) => format!("--append={token}"),
            Self::AppendIfMissing(token) => format!("--append-if-missing={token}"),
        }
    }
}

/// The daemon's own sequence (mcd-contract 8.4): all old ones away, then all new ones, duplicates kept.
///
/// Empty where it runs no command.
pub fn daemon_sequence(old: &Kargs, new: &Kargs) -> Vec<Change> {
    let away = old.0.iter().cloned().map(Change::Delete);
    away.chain(new.0.iter().cloned().map(Change::Append))
        .collect()
}

fn is_blank(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}

/// What is before the first `=`.
fn key(token: &str) -> &str {
    token.split_once('=').map_or(token, |(key, _)| key)
}

/// How many of the first `values` are found in `all`, in their order.
fn leading_within(values: &[&str], all: &[&str]) -> usize {
    let mut found = 0;
    for token in all {
        if values.get(found) == Some(token) {
            found += 1;
        }
    }
    found
}

/// What has to be deleted of the values of a key, and how many of the wanted ones are then there already.
fn leftover(values: &[&str], wanted: &[&str]) -> (Vec<String>, usize) {
    let stay = wanted
        .get(..leading_within(wanted, values))
        .unwrap_or_default();
    let (mut unused, mut rest) = (stay.to_vec(), values.to_vec());
    let mut surplus = Vec::new();
    for token in values {
        match unused.iter().position(|other| other == token) {
            Some(index) => drop(unused.remove(index)),
            None => surplus.push(*token),
        }
    }
    for token in &surplus {
        if let Some(index) = rest.iter().position(|there| there == token) {
            rest.remove(index);
        }
    }
    let owned = |tokens: &[&str]| tokens.iter().map(|token| (*token).to_owned()).collect();
    if rest == stay {
        (owned(&surplus), stay.len())
    } else {
        (owned(values), 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kargs(line: &str) -> Kargs {
        Kargs::parse(line)
    }

    fn options(changes: &[Change]) -> Vec<String> {
        changes.iter().map(Change::option).collect()
    }

    #[test]
    fn blanks_separate_except_between_quotes() {
        let line = " root=LABEL=root  dyndbg=\"file x +p\" \tquiet\n";
        assert_eq!(
            kargs(line).tokens(),
            ["root=LABEL=root", "dyndbg=\"file x +p\"", "quiet"]
        );
        let entries = Kargs::of_entries(&["a=1 b", "\"c d\"", ""]);
        assert_eq!(entries.tokens(), ["a=1", "b", "\"c d\""]);
        assert_eq!(entries.never_found(), ["\"c d\""]);
        assert_eq!(Kargs::of_entries(&["a=\"1", "b"]).unclosed(), ["a=\"1"]);
    }

    #[test]
    fn the_daemon_deletes_all_old_ones_and_appends_all_new_ones() {
        let sequence = daemon_sequence(&kargs("a=1 b"), &kargs("a=1 a=1 c"));
        assert_eq!(
            options(&sequence),
            [
                "--delete-if-present=a=1",
                "--delete-if-present=b",
                "--append=a=1",
                "--append=a=1",
                "--append=c"
            ]
        );
        assert_eq!(daemon_sequence(&Kargs::default(), &Kargs::default()), []);
    }

    #[test]
    fn on_a_first_boot_the_old_ones_are_the_booted_ones_that_are_asked_for() {
        let booted = kargs("root=x a b=1 a");
        assert_eq!(Kargs::first_boot(&booted, &["a", "b=1 c"]), kargs("a a"));
        let sequence = daemon_sequence(&kargs("a"), &kargs("a b"));
        assert_eq!(
            options(&sequence),
            ["--delete-if-present=a", "--append=a", "--append=b"]
        );
    }

    #[test]
    fn what_is_there_already_makes_no_change() {
        for (present, old, new) in [
            ("root=x a b", "a b", "a b"),
            ("root=x a b", "", "b a"),
            ("root=x a b", "b a", "a b"),
            ("root=x a", "", ""),
            (
                "console=tty0 console=ttyS0",
                "",
                "console=tty0 console=ttyS0",
            ),
            ("k=1 k=by-hand", "k=1", "k=1"),
        ] {
            let present = kargs(present);
            let wanted = present.towards(&kargs(old), &kargs(new));
            assert_eq!(present.changes_to(&wanted), [], "{present}: {old} -> {new}");
        }
    }

    #[test]
    fn the_shortest_sequence_leaves_common_arguments_alone() {
        for (present, old, new, changes) in [
            (
                "root=x a b",
                "a b",
                "b c",
                "--delete-if-present=a --append-if-missing=c",
            ),
            // Lost by hand: it comes back.
            ("root=x", "a", "a", "--append-if-missing=a"),
            // Two of the same are wanted.
            ("root=x a", "a", "a a", "--append=a"),
            ("root=x a a", "a a", "a", "--delete-if-present=a"),
            // The last console is the main one.
            (
                "console=tty0",
                "",
                "console=ttyS0 console=tty0",
                "--append=console=ttyS0 --append=console=tty0",
            ),
            (
                "k=1 k=2",
                "k=1 k=2",
                "k=2 k=1",
                "--delete-if-present=k=1 --append=k=1",
            ),
            (
                "k=old",
                "k=old",
                "k=new",
                "--delete-if-present=k=old --append=k=new",
            ),
            ("nosmt=force", "", "nosmt", "--append=nosmt"),
        ] {
            let present = kargs(present);
            let wanted = present.towards(&kargs(old), &kargs(new));
            let found = present.changes_to(&wanted);
            assert_eq!(
                options(&found).join(" "),
                changes,
                "{present}: {old} -> {new}"
            );
            assert_eq!(
                kargs(new).missing_from(&present.apply(&found).unwrap()),
                [""; 0]
            );
        }
    }

    #[test]
    fn a_deletion_takes_what_libostree_takes() {
        let delete = |line: &str, token: &str| {
            let changed = kargs(line).apply(&[Change::Delete(token.to_owned())]);
            changed.map(|kargs| kargs.to_string())
        };
        assert_eq!(delete("a=1 b a=2", "a=1").unwrap(), "b a=2");
        assert_eq!(delete("a=1 b", "a").unwrap(), "b", "its only value");
        assert_eq!(delete("a=1 a a=2", "a").unwrap(), "a=1 a=2");
        assert_eq!(delete("a b", "c=1").unwrap(), "a b");
        assert!(matches!(
            delete("a=1", "a=2"),
            Err(KargsError::OtherValue(_))
        ));
        assert!(matches!(
            delete("a=1 a=2", "a"),
            Err(KargsError::Several(_))
        ));
    }

    #[test]
    fn arguments_of_one_boot_entry_can_be_left_out() {
        let line = "BOOT_IMAGE=(hd0)/vmlinuz root=x ostree=/ostree/boot.1/x/y/0 ostreefoo";
        let rest = kargs(line).without(&["ostree", "BOOT_IMAGE"]);
        assert_eq!(rest, kargs("root=x ostreefoo"));
    }

    fn sorted(kargs: &Kargs) -> Vec<String> {
        let mut tokens = kargs.tokens().to_vec();
        tokens.sort();
        tokens
    }

    proptest! {
        #[test]
        fn printed_arguments_read_as_themselves(line in "[ab=\" \t\n]{0,40}|.{0,40}") {
            let read = kargs(&line);
            prop_assert_eq!(Kargs::parse(&read.to_string()), read);
        }

        #[test]
        fn the_sequence_leads_to_the_wanted_ones(
            present in "([abc](=[12])? ){0,8}", wanted in "([abc](=[12])? ){0,8}",
        ) {
            let (present, wanted) = (kargs(&present), kargs(&wanted));
            let changed = present.apply(&present.changes_to(&wanted)).unwrap();
            prop_assert_eq!(sorted(&changed), sorted(&wanted));
            prop_assert_eq!(changed.by_key(), wanted.by_key());
            prop_assert_eq!(changed.changes_to(&wanted), []);
        }

        #[test]
        fn the_order_of_deleting_and_appending_does_not_matter(
            present in "([abc]=[12] ){0,8}", wanted in "([abc]=[12] ){0,8}",
        ) {
            let (present, wanted) = (kargs(&present), kargs(&wanted));
            let (away, added): (Vec<_>, Vec<_>) = present
                .changes_to(&wanted)
                .into_iter()
                .partition(|change| matches!(change, Change::Delete(_)));
            let appended_first: Vec<_> = added.into_iter().chain(away).collect();
            prop_assert_eq!(sorted(&present.apply(&appended_first).unwrap()), sorted(&wanted));
        }

        #[test]
        fn without_drift_the_daemons_sequence_gives_the_same_arguments(
            base in "(x=[12] |y ){0,4}", old in "([abc]=[12] ){0,5}", new in "([abc]=[12] ){0,5}",
        ) {
            let (old, new) = (kargs(&old), kargs(&new));
            let present = kargs(&format!("{base} {old}"));
            let daemon = present.apply(&daemon_sequence(&old, &new)).unwrap();
            prop_assert_eq!(sorted(&present.towards(&old, &new)), sorted(&daemon));
        }
    }
}
