//! Kernel arguments as a value: an ordered list in which duplicates count.
//!
//! Pure. Tokens are split like the daemon and the kernel split them (docs/develop/agreement.md: Kernel arguments), and a change has the
//! same effect as in libostree: a deletion removes the first equal argument, an addition goes to the end.

use std::collections::BTreeMap;
use std::fmt;

/// Kernel arguments in order; quotes are preserved.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct Kargs(Vec<String>);

/// One option of `rpm-ostree kargs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KargsChange {
    /// `--delete-if-present`: removes the first argument that is exactly this one.
    Delete(String),
    /// `--append`: adds one at the end, even if there are equal ones.
    Append(String),
}

/// Keys whose arguments the kernel, or systemd, reads as one list, so that their relative order matters. `hugepages` belongs to
/// the size right before it; for the others the last one wins.
const FAMILIES: [&[&str]; 5] = [
    &HUGE_PAGES,
    &["rw", "ro"],
    &["loglevel", "quiet", "debug"],
    &["nmi_watchdog", "nowatchdog"],
    &[
        "systemd.unit",
        "emergency",
        "rescue",
        "single",
        "s",
        "S",
        "1",
        "2",
        "3",
        "4",
        "5",
    ],
];

/// Keys whose meaning changes if another argument is inserted between them.
const HUGE_PAGES: [&str; 3] = ["hugepages", "hugepagesz", "default_hugepagesz"];

impl Kargs {
    /// Parses a command line: arguments are separated by blanks, except between double quotes, which cannot be escaped.
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
        // Blanks that only Unicode defines are trimmed from the ends, like the daemon does.
        let tokens = tokens.iter().map(|token| token.trim().to_owned());
        Self(tokens.filter(|token| !token.is_empty()).collect())
    }

    /// Returns the tokens of `spec.kernelArguments`; each entry may hold several.
    pub fn from_entries<S: AsRef<str>>(entries: &[S]) -> Self {
        let each = entries.iter().map(|entry| Self::parse(entry.as_ref()).0);
        Self(each.flatten().collect())
    }

    /// Returns the old arguments of a first boot by the daemon's rule (docs/develop/agreement.md: Kernel arguments): the booted ones
    /// that exactly match an entry of the config. An entry of several tokens never matches.
    pub fn first_boot<S: AsRef<str>>(booted: &Self, entries: &[S]) -> Self {
        let requested = |token: &&String| entries.iter().any(|entry| entry.as_ref() == **token);
        Self(booted.0.iter().filter(requested).cloned().collect())
    }

    /// Returns the arguments in order.
    pub fn tokens(&self) -> &[String] {
        &self.0
    }

    /// Returns true if there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the arguments without those of the given keys, such as `ostree` and `BOOT_IMAGE`, which belong to one boot
    /// entry.
    #[must_use]
    pub fn without(&self, keys: &[&str]) -> Self {
        let kept = self.0.iter().filter(|token| !keys.contains(&key_of(token)));
        Self(kept.cloned().collect())
    }

    /// Returns the arguments without variables of the boot loader, such as `$ignition_firstboot`, which never reach a kernel's
    /// command line.
    #[must_use]
    pub fn without_variables(&self) -> Self {
        let kept = self.0.iter().filter(|token| !token.starts_with('$'));
        Self(kept.cloned().collect())
    }

    /// Returns the arguments that the daemon would report as missing (docs/develop/agreement.md: Validation): only presence counts, not
    /// number or order.
    pub fn missing_from(&self, present: &Self) -> Vec<&str> {
        let absent = |token: &&String| !present.0.contains(token);
        self.0.iter().filter(absent).map(String::as_str).collect()
    }

    /// Returns the arguments with the quoting of `known` where the kernel reads the same key and value from both. A kernel's
    /// command line has the quotes of the boot loader: GRUB removes those of `key="a value"`, and quotes the whole argument.
    #[must_use]
    pub fn written_as(&self, known: &Self) -> Self {
        let known: BTreeMap<_, _> = known.0.iter().map(|one| (meaning_of(one), one)).collect();
        let written = |token: &String| match known.get(&meaning_of(token)) {
            Some(written) => (*written).clone(),
            None => token.clone(),
        };
        Self(self.0.iter().map(written).collect())
    }

    /// Returns arguments with a quoted blank: the daemon splits what it reads back at every blank, so it never finds them and
    /// stays Degraded (docs/develop/agreement.md: Validation).
    pub fn never_found(&self) -> Vec<&str> {
        let blank = |token: &&String| token.contains(' ');
        self.0.iter().filter(blank).map(String::as_str).collect()
    }

    /// Returns arguments with an unclosed quote, which swallow the rest of a command line.
    pub fn unclosed_quotes(&self) -> Vec<&str> {
        let odd = |token: &&String| token.matches('"').count() % 2 == 1;
        self.0.iter().filter(odd).map(String::as_str).collect()
    }

    /// Returns arguments that are all `present`, but in the wrong order, if the order matters.
    pub fn out_of_order(&self, present: &Self) -> Vec<&str> {
        let (wanted, there) = (self.by_family(), present.by_family());
        let mut all = Vec::new();
        for (family, wanted) in wanted {
            let there = there.get(&family).map_or(&[][..], Vec::as_slice);
            let in_order = if HUGE_PAGES.contains(&family.as_str()) {
                there.windows(wanted.len()).any(|some| some == wanted)
            } else {
                leading_within(&wanted, there) == wanted.len()
            };
            if !in_order && wanted.iter().all(|token| there.contains(token)) {
                all.extend(wanted);
            }
        }
        all
    }

    /// Returns the arguments after a change from a config that asked for `old` to one that asks for `new`.
    ///
    /// Unchanged if all are present, and in order where that matters. Otherwise the result of the daemon's sequence, except
    /// that arguments already present stay in place and are not added twice, unless that changes an order that matters.
    #[must_use]
    pub fn after_change(&self, old: &Self, new: &Self) -> Self {
        if self.is_settled(old, new) {
            return self.clone();
        }
        let in_place = self.in_place(old, new);
        if in_place.ends_with(new) {
            in_place
        } else {
            self.as_the_daemon(old, new)
        }
    }

    /// Returns the arguments of `old` that occur more often than `new` asks for.
    pub fn left_over<'a>(&self, old: &'a Self, new: &Self) -> Vec<&'a str> {
        let (here, wanted) = (self.token_counts(), new.token_counts());
        let of = |counts: &BTreeMap<&String, usize>, token: &String| {
            counts.get(token).copied().unwrap_or_default()
        };
        let counts = old.token_counts().into_iter();
        let left = counts.filter(|(token, count)| {
            *count > of(&wanted, token) && of(&here, token) > of(&wanted, token)
        });
        left.map(|(token, _)| token.as_str()).collect()
    }

    /// Returns true if nothing has to be done: all of `new` is present, in order, and nothing else of `old`.
    fn is_settled(&self, old: &Self, new: &Self) -> bool {
        let here = self.token_counts();
        let lacks =
            |(token, count): (&&String, &usize)| here.get(*token).is_none_or(|there| there < count);
        self.left_over(old, new).is_empty()
            && !new.token_counts().iter().any(lacks)
            && new.out_of_order(self).is_empty()
            && self.ends_with_changed(old, new)
    }

    /// Returns true if no foreign argument follows the `new` ones of any key for which `new` differs from `old`.
    fn ends_with_changed(&self, old: &Self, new: &Self) -> bool {
        let (here, old) = (self.by_family(), old.by_family());
        new.by_family().into_iter().all(|(family, wanted)| {
            let all = here.get(&family).map_or(&[][..], Vec::as_slice);
            old.get(&family) == Some(&wanted) || all.ends_with(&wanted)
        })
    }

    /// Keeps present arguments in place and appends the rest. The values of one key are in the order of the config.
    fn in_place(&self, old: &Self, new: &Self) -> Self {
        let (old_by_key, new_by_key) = (old.by_key(), new.by_key());
        let changed = |key: &str| old_by_key.get(key) != new_by_key.get(key);
        let mut result = self.clone();
        for token in old.0.iter().filter(|token| changed(key_of(token))) {
            result.remove_token(token);
        }
        let kept = result.clone();
        let (mut equal, kept_by_key) = (kept.token_counts(), kept.by_key());
        let leading = |key: &str, values: &[&str]| {
            leading_within(values, kept_by_key.get(key).map_or(&[], Vec::as_slice))
        };
        let mut in_order: BTreeMap<&str, usize> = new_by_key
            .iter()
            .filter(|(key, _)| changed(key))
            .map(|(key, values)| (*key, leading(key, values)))
            .collect();
        for token in &new.0 {
            let there = match in_order.get_mut(key_of(token)) {
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

    /// Returns true if these arguments are in the order of `new`, and no foreign argument follows where that matters.
    fn ends_with(&self, new: &Self) -> bool {
        let mut rest = self.0.iter();
        new.0.iter().all(|token| rest.any(|one| one == token))
            && self.ends_with_changed(&Self::default(), new)
    }

    /// Removes all old arguments and appends all new ones. An argument that is already present is moved instead of duplicated,
    /// if nothing else with its key is present.
    fn as_the_daemon(&self, old: &Self, new: &Self) -> Self {
        let mut result = self.clone();
        for token in &old.0 {
            result.remove_token(token);
        }
        let kept = result.clone();
        let mut kept = kept.by_family();
        for (family, wanted) in new.by_family() {
            let kept = in_sorted_order(kept.remove(&family).unwrap_or_default());
            if kept == in_sorted_order(wanted) {
                kept.iter().for_each(|token| result.remove_token(token));
            }
        }
        result.0.extend(new.0.iter().cloned());
        result
    }

    /// Returns the fewest changes that lead to exactly `wanted`; none if that is already the case.
    ///
    /// Arguments are deleted only if present, and only as often as they occur, so rpm-ostree may delete or append first.
    pub fn changes_to(&self, wanted: &Self) -> Vec<KargsChange> {
        let longest = self.0.len().min(wanted.0.len());
        let kept = (0..=longest).rev().find_map(|count| {
            let (kept, added) = wanted.0.split_at_checked(count)?;
            Some((self.deletions_to(kept)?, added))
        });
        let (deleted, added) = kept.unwrap_or_else(|| (self.0.clone(), wanted.0.as_slice()));
        let away = deleted.into_iter().map(KargsChange::Delete);
        away.chain(added.iter().cloned().map(KargsChange::Append))
            .collect()
    }

    /// Returns the deletions after which exactly `kept` remains; `None` if deletions alone are not enough.
    fn deletions_to(&self, kept: &[String]) -> Option<Vec<String>> {
        let mut surplus = self.clone();
        for token in kept {
            let index = surplus.0.iter().position(|there| there == token)?;
            surplus.0.remove(index);
        }
        let mut rest = self.clone();
        for token in &surplus.0 {
            rest.remove_token(token);
        }
        (rest.0 == kept).then_some(surplus.0)
    }

    /// Returns the arguments without any of the deleted ones, and with the appended ones that are not there yet.
    #[must_use]
    pub fn cured_by(&self, cures: &[KargsChange]) -> Self {
        let mut result = self.clone();
        for cure in cures {
            match cure {
                KargsChange::Delete(token) => result.0.retain(|there| there != token),
                KargsChange::Append(token) if result.0.contains(token) => {}
                KargsChange::Append(token) => result.0.push(token.clone()),
            }
        }
        result
    }

    fn remove_token(&mut self, token: &str) {
        if let Some(index) = self.0.iter().position(|there| there == token) {
            self.0.remove(index);
        }
    }

    fn by_key(&self) -> BTreeMap<&str, Vec<&str>> {
        let mut all: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for token in &self.0 {
            all.entry(key_of(token)).or_default().push(token);
        }
        all
    }

    fn by_family(&self) -> BTreeMap<String, Vec<&str>> {
        let mut all: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for token in &self.0 {
            all.entry(family_of(token)).or_default().push(token);
        }
        all
    }

    fn token_counts(&self) -> BTreeMap<&String, usize> {
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

impl KargsChange {
    /// Returns the option for `rpm-ostree kargs`, as the program receives it; a shell needs quotes around it.
    pub fn command_option(&self) -> String {
        match self {
            Self::Delete(token) => format!("--delete-if-present={token}"),
            Self::Append(token) => format!("--append={token}"),
        }
    }
}

fn is_blank(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}

/// Returns the key and the value, if any, as the kernel's `next_arg` parses them: quotes around the argument or its value are
/// removed.
fn meaning_of(token: &str) -> (&str, Option<&str>) {
    let (is_enclosed, inner) = match token.strip_prefix('"') {
        Some(inner) => (true, inner),
        None => (false, token),
    };
    let equals = inner.char_indices().find(|(at, c)| *at > 0 && *c == '=');
    let (key, value) = match equals {
        Some((at, _)) => (inner.get(..at), inner.get(at + 1..)),
        None => (Some(inner), None),
    };
    let unquoted = |text| if is_enclosed { without_end(text) } else { text };
    let key = key.unwrap_or_default();
    match value {
        Some(value) => (
            key,
            Some(match value.strip_prefix('"') {
                Some(value) => without_end(value),
                None => unquoted(value),
            }),
        ),
        None => (unquoted(key), None),
    }
}

/// Returns the text without a trailing quote.
fn without_end(text: &str) -> &str {
    text.strip_suffix('"').unwrap_or(text)
}

/// Returns the text before the first `=`.
fn key_of(token: &str) -> &str {
    token.split_once('=').map_or(token, |(key, _)| key)
}

/// Returns the key that represents all keys whose relative order matters. The kernel treats `-` and `_` as the same letter.
fn family_of(token: &str) -> String {
    let key = key_of(token).replace('-', "_");
    let family = FAMILIES.iter().find(|keys| keys.contains(&key.as_str()));
    let first = family.and_then(|keys| keys.first());
    first.map_or(key, |first| (*first).to_owned())
}

fn in_sorted_order(mut tokens: Vec<&str>) -> Vec<&str> {
    tokens.sort_unstable();
    tokens
}

/// Returns how many of the first `values` occur in `all` in the same order.
fn leading_within(values: &[&str], all: &[&str]) -> usize {
    let mut found = 0;
    for token in all {
        if values.get(found) == Some(token) {
            found += 1;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kargs(line: &str) -> Kargs {
        Kargs::parse(line)
    }

    fn options(changes: &[KargsChange]) -> Vec<String> {
        changes.iter().map(KargsChange::command_option).collect()
    }

    #[test]
    fn blanks_separate_except_between_quotes() {
        let line = " root=LABEL=root  dyndbg=\"file x +p\" \tquiet\n";
        assert_eq!(
            kargs(line).tokens(),
            ["root=LABEL=root", "dyndbg=\"file x +p\"", "quiet"]
        );
        let entries = Kargs::from_entries(&["a=1 b", "\"c d\"", ""]);
        assert_eq!(entries.tokens(), ["a=1", "b", "\"c d\""]);
        assert_eq!(entries.never_found(), ["\"c d\""]);
        assert_eq!(
            Kargs::from_entries(&["a=\"1", "b"]).unclosed_quotes(),
            ["a=\"1"]
        );
    }

    #[test]
    fn quotes_around_an_argument_or_its_value_have_one_meaning() {
        for (booted, known, written) in [
            // As GRUB passes it on.
            (
                r#"rw "dyndbg=file x +p" quiet"#,
                r#"dyndbg="file x +p""#,
                r#"rw dyndbg="file x +p" quiet"#,
            ),
            // Quotes without a blank inside are lost.
            (r"a=b", r#"a="b""#, r#"a="b""#),
            (r#""a b""#, r#""a b""#, r#""a b""#),
            (r#"a="b"#, r#"a="b c""#, r#"a="b"#),
            ("a=1", "a=2 a", "a=1"),
            ("a", "a=", "a"),
            ("=", "=a", "="),
        ] {
            let found = kargs(booted).written_as(&kargs(known)).to_string();
            assert_eq!(found, written, "{booted} as {known}");
        }
    }

    #[test]
    fn on_a_first_boot_the_old_ones_are_the_booted_ones_that_are_asked_for() {
        let booted = kargs("root=x a b=1 a");
        assert_eq!(Kargs::first_boot(&booted, &["a", "b=1 c"]), kargs("a a"));
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
            let wanted = present.after_change(&kargs(old), &kargs(new));
            assert_eq!(present.changes_to(&wanted), [], "{present}: {old} -> {new}");
        }
    }

    /// Arguments that are present, of the old and of the new config, and the changes.
    const SEQUENCES: &[(&str, &str, &str, &str)] = &[
        (
            "root=x a b",
            "a b",
            "b c",
            "--delete-if-present=a --append=c",
        ),
        // Removed by hand: it comes back.
        ("root=x", "a", "a", "--append=a"),
        // Two equal ones are wanted.
        ("root=x a", "a", "a a", "--append=a"),
        ("root=x a a", "a a", "a", "--delete-if-present=a"),
        // The last console is the main one; the earlier one is not ours.
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
        // A number of pages belongs to the preceding size.
        (
            "root=x hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=4",
            "hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=4",
            "hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=6",
            "--delete-if-present=hugepagesz=2M --delete-if-present=hugepages=4 --append=hugepagesz=2M \
                 --append=hugepages=6",
        ),
        // An argument added by hand after ours is overridden, as with the daemon.
        (
            "k=1 k=by-hand",
            "k=1",
            "k=1 z",
            "--delete-if-present=k=1 --append=k=1 --append=z",
        ),
        // All are present, but the order matters.
        (
            "hugepages=4 hugepagesz=1G",
            "",
            "hugepagesz=1G hugepages=4",
            "--delete-if-present=hugepages=4 --append=hugepages=4",
        ),
        (
            "ro rw",
            "rw ro",
            "rw ro",
            "--delete-if-present=ro --append=ro",
        ),
    ];

    #[test]
    fn the_shortest_sequence_leaves_common_arguments_alone() {
        for &(present, old, new, changes) in SEQUENCES {
            let present = kargs(present);
            let wanted = present.after_change(&kargs(old), &kargs(new));
            let found = present.changes_to(&wanted);
            assert_eq!(
                options(&found).join(" "),
                changes,
                "{present}: {old} -> {new}"
            );
        }
    }

    #[test]
    fn order_counts_within_a_key_and_within_some_families() {
        let disordered =
            |wanted: &str, present: &str| kargs(wanted).out_of_order(&kargs(present)).join(" ");
        for (wanted, present) in [
            ("a b", "b a"),
            ("k=1 k=2", "k=1 x k=by-hand k=2"),
            (
                "hugepagesz=1G hugepages=4",
                "hugepagesz=2M hugepages=1 x hugepagesz=1G y hugepages=4",
            ),
            ("k=1 k=2", "k=2"),
        ] {
            assert_eq!(disordered(wanted, present), "", "{wanted}: {present}");
        }
        for (wanted, present) in [
            ("k=1 k=2", "k=2 k=1"),
            ("a-b=1 a_b=2", "a_b=2 a-b=1"),
            (
                "hugepagesz=1G hugepages=4",
                "hugepagesz=1G hugepagesz=2M hugepages=4",
            ),
            ("quiet debug", "debug quiet"),
        ] {
            assert_eq!(disordered(wanted, present), wanted, "{present}");
        }
    }

    #[test]
    fn arguments_of_one_boot_entry_can_be_left_out() {
        let line = "BOOT_IMAGE=(hd0)/vmlinuz root=x ostree=/ostree/boot.1/x/y/0 ostreefoo";
        let rest = kargs(line).without(&["ostree", "BOOT_IMAGE"]);
        assert_eq!(rest, kargs("root=x ostreefoo"));
    }

    proptest! {
        #[test]
        fn printed_arguments_read_as_themselves(line in "[ab=\" \t\n]{0,40}|.{0,40}") {
            let read = kargs(&line);
            prop_assert_eq!(Kargs::parse(&read.to_string()), read);
        }
    }
}
