//! `*.preset` files: which units a distribution wants to be enabled.
//!
//! Parsing, ordering and matching are here; `install` turns a decision into links.

use std::collections::BTreeMap;

use super::install_section::physical_lines;
use super::support::Support;
use super::unit_name::{UnitName, UnitNameKind};
use super::unit_tree::PresetDir;
use super::words::is_blank;

/// All preset rules of a root, in order of precedence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Presets {
    rules: Vec<PresetRule>,
}

/// The decision of presets about a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PresetDecision {
    /// Enable it. If the unit is a template and the rule lists instances, enable
    /// these units instead.
    Enable(Vec<String>),
    /// Disable it.
    Disable,
    /// Leave it as it is.
    Ignore,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct PresetRule {
    pattern: String,
    verb: Verb,
    instances: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Enable,
    Disable,
    Ignore,
}

impl Presets {
    /// Reads the files of these directories, highest priority first. A file hides those of the same name in later directories;
    /// the others apply in order of their names.
    pub fn from_dirs(dirs: &[PresetDir], support: &Support) -> Self {
        let mut files = BTreeMap::new();
        for (name, text) in dirs.iter().flat_map(|dir| &dir.files) {
            if name.ends_with(".preset") && !name.starts_with('.') {
                files.entry(name).or_insert(text);
            }
        }
        let lines = files.into_values().flat_map(|text| physical_lines(text));
        Presets {
            rules: lines
                .filter_map(|line| PresetRule::parse_line(line, support))
                .collect(),
        }
    }

    /// Returns the decision of the first rule for this unit; units without one are enabled.
    pub fn decision_for(&self, unit: &str) -> PresetDecision {
        self.rules
            .iter()
            .find_map(|rule| rule.decision_for(unit))
            .unwrap_or(PresetDecision::Enable(Vec::new()))
    }
}

impl PresetRule {
    /// Parses a line. Blank lines, comments and lines that systemd skips with a warning give no rule.
    fn parse_line(line: &str, support: &Support) -> Option<Self> {
        let line = line.trim_matches(is_blank);
        let (verb, rest) = line.split_once(is_blank)?;
        let rest = rest.trim_start_matches(is_blank);
        let verb = match verb {
            "enable" => return PresetRule::parse_enable(rest),
            "disable" => Verb::Disable,
            "ignore" if support.preset_ignore => Verb::Ignore,
            _ => return None,
        };
        Some(PresetRule {
            pattern: rest.to_owned(),
            verb,
            instances: Vec::new(),
        })
    }

    fn parse_enable(rest: &str) -> Option<Self> {
        let mut words = rest.split(is_blank).filter(|word| !word.is_empty());
        let pattern = words.next()?.to_owned();
        let instances: Vec<String> = words.map(str::to_owned).collect();
        let template =
            UnitName::parse(&pattern).is_some_and(|name| name.kind() == UnitNameKind::Template);
        let valid = instances.is_empty() || template;
        valid.then_some(PresetRule {
            pattern,
            verb: Verb::Enable,
            instances,
        })
    }

    fn decision_for(&self, unit: &str) -> Option<PresetDecision> {
        let instances = self.instances_for(unit);
        if instances.is_none() && !glob_matches(&self.pattern, unit) {
            return None;
        }
        Some(match self.verb {
            Verb::Enable => PresetDecision::Enable(instances.unwrap_or_default()),
            Verb::Disable => PresetDecision::Disable,
            Verb::Ignore => PresetDecision::Ignore,
        })
    }

    /// Returns the rule's instances if they cover this unit: all of them for the template itself,
    /// an empty list for one of the instances.
    fn instances_for(&self, unit: &str) -> Option<Vec<String>> {
        if self.instances.is_empty() {
            return None;
        }
        let name = UnitName::parse(unit)?;
        if name.template()? != self.pattern {
            return None;
        }
        match name.instance? {
            "" => self
                .instances
                .iter()
                .map(|instance| name.with_instance(instance))
                .collect(),
            instance => self.instances.iter().any(|i| i == instance).then(Vec::new),
        }
    }
}

/// Matches by byte-wise shell globbing, with `*`, `?` and `[]`; a backslash is an ordinary character.
pub fn glob_matches(pattern: &str, text: &str) -> bool {
    let (mut pattern, mut text) = (pattern.as_bytes(), text.as_bytes());
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        if let Some(rest) = pattern.strip_prefix(b"*") {
            retry = Some((rest, text));
            pattern = rest;
        } else if let Some(rests) = match_one(pattern, text) {
            (pattern, text) = rests;
        } else if pattern.is_empty() && text.is_empty() {
            return true;
        } else {
            // Let the last star match one more byte.
            let Some((after_star, [_, rest @ ..])) = retry else {
                return false;
            };
            retry = Some((after_star, rest));
            (pattern, text) = (after_star, rest);
        }
    }
}

/// Matches one byte of the text; returns what remains of both.
fn match_one<'p, 't>(pattern: &'p [u8], text: &'t [u8]) -> Option<(&'p [u8], &'t [u8])> {
    let (&byte, text) = text.split_first()?;
    let (&first, rest) = pattern.split_first()?;
    if first == b'['
        && let Some((matches, rest)) = match_bracket(rest, byte)
    {
        return matches.then_some((rest, text));
    }
    (first == b'?' || first == byte).then_some((rest, text))
}

/// Matches a byte against what follows a `[`; returns `None` if there is no closing `]`.
fn match_bracket(pattern: &[u8], byte: u8) -> Option<(bool, &[u8])> {
    let negated = matches!(pattern.first()?, b'!' | b'^');
    let mut rest = pattern.get(usize::from(negated)..)?;
    let mut found = false;
    let mut first = true;
    loop {
        match rest {
            [b']', after @ ..] if !first => return Some((found != negated, after)),
            [b'[', b':', after @ ..] if let Some((class, after)) = split_class(after) => {
                found |= in_class(class, byte);
                rest = after;
            }
            [low, b'-', high, after @ ..] if *high != b']' => {
                found |= (*low..=*high).contains(&byte);
                rest = after;
            }
            [one, after @ ..] => {
                found |= *one == byte;
                rest = after;
            }
            [] => return None,
        }
        first = false;
    }
}

fn split_class(pattern: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = pattern.windows(2).position(|pair| pair == b":]")?;
    Some((pattern.get(..end)?, pattern.get(end + 2..)?))
}

fn in_class(class: &[u8], byte: u8) -> bool {
    match class {
        b"alpha" => byte.is_ascii_alphabetic(),
        b"digit" => byte.is_ascii_digit(),
        b"alnum" => byte.is_ascii_alphanumeric(),
        b"upper" => byte.is_ascii_uppercase(),
        b"lower" => byte.is_ascii_lowercase(),
        b"xdigit" => byte.is_ascii_hexdigit(),
        b"punct" => byte.is_ascii_punctuation(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn dir(files: &[(&str, &str)]) -> PresetDir {
        let files = files
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
            .collect();
        PresetDir {
            path: String::new(),
            files,
        }
    }

    fn decide(text: &str, unit: &str) -> PresetDecision {
        Presets::from_dirs(&[dir(&[("a.preset", text)])], &Support::of_version(252))
            .decision_for(unit)
    }

    fn enable() -> PresetDecision {
        PresetDecision::Enable(Vec::new())
    }

    #[test]
    fn the_first_rule_that_matches_wins() {
        let text = "# comment\n; comment\n\nenable a.*\ndisable a.service\ndisable *\n";
        assert_eq!(decide(text, "a.service"), enable());
        assert_eq!(decide(text, "b.service"), PresetDecision::Disable);
    }

    #[test]
    fn a_unit_without_rule_is_enabled() {
        assert_eq!(decide("disable b.service\n", "a.service"), enable());
    }

    #[test]
    fn files_count_by_name_over_all_directories() {
        let dirs = [
            dir(&[("50-b.preset", "enable *")]),
            dir(&[("10-a.preset", "disable x.service")]),
        ];
        let presets = Presets::from_dirs(&dirs, &Support::of_version(252));
        assert_eq!(presets.decision_for("x.service"), PresetDecision::Disable);
        assert_eq!(presets.decision_for("y.service"), enable());
    }

    #[test]
    fn a_file_hides_its_namesakes_in_later_directories() {
        let dirs = [dir(&[("a.preset", "")]), dir(&[("a.preset", "disable *")])];
        assert_eq!(
            Presets::from_dirs(&dirs, &Support::of_version(252)).decision_for("x.service"),
            enable()
        );
    }

    #[test]
    fn only_visible_preset_files_are_read() {
        let dirs = [dir(&[(".a.preset", "disable *"), ("a.conf", "disable *")])];
        assert_eq!(
            Presets::from_dirs(&dirs, &Support::of_version(252)).decision_for("x.service"),
            enable()
        );
    }

    #[test]
    fn a_template_is_enabled_by_its_listed_instances() {
        let text = "enable a@.service x y\ndisable *\n";
        let instances = vec!["a@x.service".to_owned(), "a@y.service".to_owned()];
        assert_eq!(
            decide(text, "a@.service"),
            PresetDecision::Enable(instances)
        );
        assert_eq!(decide(text, "a@y.service"), enable());
        assert_eq!(decide(text, "a@z.service"), PresetDecision::Disable);
    }

    #[test]
    fn instances_need_a_template() {
        assert_eq!(
            decide("enable a.service x\ndisable *\n", "a.service"),
            PresetDecision::Disable
        );
    }

    #[test]
    fn a_comment_after_a_rule_spoils_it() {
        assert_eq!(decide("disable a.service # x\n", "a.service"), enable());
    }

    #[test]
    fn ignore_is_known_from_256_on() {
        let dirs = [dir(&[("a.preset", "ignore a.service\ndisable *\n")])];
        assert_eq!(
            Presets::from_dirs(&dirs, &Support::of_version(256)).decision_for("a.service"),
            PresetDecision::Ignore
        );
        assert_eq!(
            Presets::from_dirs(&dirs, &Support::of_version(255)).decision_for("a.service"),
            PresetDecision::Disable
        );
    }

    #[test]
    fn globs_match_as_in_a_shell() {
        for (pattern, text) in [
            ("*", ""),
            ("a*c*e", "abcde"),
            ("a?c", "abc"),
            ("[a-c]x", "bx"),
            ("[!a]", "b"),
            ("[^a]", "b"),
            ("[]a]", "]"),
            ("[a-]", "-"),
            ("[a", "[a"),
            ("[[:digit:]x]", "7"),
            ("\\*", "\\x"),
            ("**b", "ab"),
        ] {
            assert!(glob_matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("", "a"),
            ("a", ""),
            ("?", ""),
            ("[!a]", "a"),
            ("[a-c]", "d"),
            ("a*b", "abc"),
            ("[]", "a"),
        ] {
            assert!(!glob_matches(pattern, text), "{pattern} {text}");
        }
    }

    proptest! {
        #[test]
        fn any_preset_text_gives_a_decision(text in "[a-c@.*?\\[\\]! \nenabldisx]{0,80}", unit in any::<String>()) {
            let decision = decide(&format!("{text}\ndisable *"), &unit);
            prop_assert!(decision != PresetDecision::Ignore);
        }

        #[test]
        fn a_glob_of_the_text_itself_matches(text in "[a-z.@]{0,12}", cut in 0usize..12) {
            let cut = cut.min(text.len());
            let star = format!("{}*", &text[..cut]);
            prop_assert!(glob_matches(&text, &text));
            prop_assert!(glob_matches(&star, &text));
        }
    }
}
