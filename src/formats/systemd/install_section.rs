//! The `[Install]` section of a unit file and its drop-ins, parsed as systemd does.
//!
//! This is laxer than the grammar in `unit_file`: what systemd skips with a warning is skipped here too. Each call parses the
//! text of one file; `lookup` finds the files.

use std::borrow::Cow;

use super::support::Support;
use super::unit_name::{self, SpecifierError, UnitName, UnitNameKind};
use super::words::{Backslash, is_blank, quoted_words};

/// The settings in the `[Install]` sections of a unit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InstallSection {
    /// `Alias=`, specifiers not expanded.
    pub alias: Vec<String>,
    /// `WantedBy=`, specifiers not expanded.
    pub wanted_by: Vec<String>,
    /// `RequiredBy=`, specifiers not expanded.
    pub required_by: Vec<String>,
    /// `UpheldBy=`, specifiers not expanded; empty if systemd does not know it.
    pub upheld_by: Vec<String>,
    /// `Also=`, specifiers expanded.
    pub also: Vec<String>,
    /// `DefaultInstance=`, specifiers expanded; only ever set for templates.
    pub default_instance: Option<String>,
}

/// The reason why systemd refuses to read a unit file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {kind}")]
pub struct SectionError {
    /// Number of the line, counted from one.
    pub line: usize,
    /// The mistake on it.
    pub kind: SectionErrorKind,
}

/// A mistake in a unit file that systemd refuses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SectionErrorKind {
    /// A line that is not UTF-8, or that contains a non-character.
    #[error("{0:?} is not UTF-8 text")]
    Text(String),
    /// A line that begins with `[` and is not a section header.
    #[error("{0:?} is not a section header")]
    Header(String),
    /// Words that cannot be separated.
    #[error("{0:?} ends in a backslash")]
    Words(String),
    /// An `Also=` that is not a unit name.
    #[error("{0:?} in Also= is not a valid unit name")]
    Also(String),
    /// A `DefaultInstance=` that cannot be an instance.
    #[error("{0:?} in DefaultInstance= is not a valid instance")]
    DefaultInstance(String),
    /// A specifier that cannot be expanded.
    #[error(transparent)]
    Specifier(#[from] SpecifierError),
}

impl InstallSection {
    /// Adds the settings of another file of the unit `name`. Settings before an error are kept.
    pub fn read_file(
        &mut self,
        name: &UnitName<'_>,
        text: &str,
        support: &Support,
    ) -> Result<(), SectionError> {
        // A unit is read many times, and most drop-ins contain nothing relevant.
        if is_without_install(text) {
            return Ok(());
        }
        self.read_lines(name, text, support)
    }

    fn read_lines(
        &mut self,
        name: &UnitName<'_>,
        text: &str,
        support: &Support,
    ) -> Result<(), SectionError> {
        let mut in_install = false;
        let all_ascii = text.is_ascii();
        for (line, text) in logical_lines(text) {
            let text = text.trim_matches(is_blank);
            if !all_ascii && text.contains(is_no_character) {
                let shown = text.replace(is_no_character, "\u{fffd}");
                let kind = SectionErrorKind::Text(shown);
                return Err(SectionError { line, kind });
            }
            if text.starts_with('[') {
                in_install =
                    section_name(text).map_err(|kind| SectionError { line, kind })? == "Install";
            } else if let (true, Some((key, value))) = (in_install, text.split_once('=')) {
                let (key, value) = (key.trim_matches(is_blank), value.trim_matches(is_blank));
                self.assign_setting(name, key, value, support)
                    .map_err(|kind| SectionError { line, kind })?;
            }
        }
        Ok(())
    }

    /// Returns true if enabling makes any link.
    pub fn has_rules(&self) -> bool {
        [
            &self.alias,
            &self.wanted_by,
            &self.required_by,
            &self.upheld_by,
        ]
        .iter()
        .any(|l| !l.is_empty())
    }

    fn assign_setting(
        &mut self,
        name: &UnitName<'_>,
        key: &str,
        value: &str,
        support: &Support,
    ) -> Result<(), SectionErrorKind> {
        match key {
            "Alias" if name.may_alias() => assign_list(&mut self.alias, value),
            "WantedBy" => assign_list(&mut self.wanted_by, value),
            "RequiredBy" => assign_list(&mut self.required_by, value),
            "UpheldBy" if support.upheld_by => assign_list(&mut self.upheld_by, value),
            "Also" => self.add_also(name, value)?,
            "DefaultInstance" => self.set_default_instance(name, value)?,
            _ => (),
        }
        Ok(())
    }

    fn add_also(&mut self, name: &UnitName<'_>, value: &str) -> Result<(), SectionErrorKind> {
        let words =
            escaped_words(value).ok_or_else(|| SectionErrorKind::Words(value.to_owned()))?;
        for word in words {
            let also = unit_name::expand_specifiers(&word, name, self.default_instance.as_deref())?;
            if !unit_name::is_valid(&also) {
                return Err(SectionErrorKind::Also(also));
            }
            self.also.push(also);
        }
        Ok(())
    }

    fn set_default_instance(
        &mut self,
        name: &UnitName<'_>,
        value: &str,
    ) -> Result<(), SectionErrorKind> {
        if name.kind() != UnitNameKind::Template {
            return Ok(());
        }
        let instance = unit_name::expand_specifiers(value, name, self.default_instance.as_deref())?;
        if !instance.is_empty() && !unit_name::is_valid_instance(&instance) {
            return Err(SectionErrorKind::DefaultInstance(instance));
        }
        self.default_instance = Some(instance).filter(|i| !i.is_empty());
        Ok(())
    }
}

/// Adds the words of a value. An empty value resets the list; a value with an open quote is ignored.
fn assign_list(list: &mut Vec<String>, value: &str) {
    if value.is_empty() {
        list.clear();
    } else {
        list.extend(quoted_words(value, Backslash::Ordinary).0);
    }
}

pub(super) fn section_name(header: &str) -> Result<&str, SectionErrorKind> {
    let unsafe_char = |c: char| c.is_ascii_control() || matches!(c, '"' | '\'' | '\\');
    header
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .filter(|name| !name.contains(unsafe_char))
        .ok_or_else(|| SectionErrorKind::Header(header.to_owned()))
}

/// Returns the text of a unit file. Invalid UTF-8 becomes U+FFFF, which systemd rejects too.
pub fn unit_text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        if !chunk.invalid().is_empty() {
            text.push('\u{ffff}');
        }
    }
    text
}

/// Returns true for the code points that Unicode reserves as non-characters; systemd refuses them like invalid UTF-8.
pub(super) fn is_no_character(c: char) -> bool {
    matches!(c, '\u{fdd0}'..='\u{fdef}') || u32::from(c) & 0xfffe == 0xfffe
}

/// Returns true for a text that clearly has no `[Install]` section and no line that systemd refuses.
fn is_without_install(text: &str) -> bool {
    let is_fine = |(at, _): (usize, &str)| {
        let (before, from) = text.split_at(at);
        let before = before.trim_end_matches([' ', '\t']);
        let begins_line = before.is_empty() || before.ends_with(is_line_end);
        let line = from
            .find(is_line_end)
            .map_or(from, |end| from.split_at(end).0);
        !begins_line || section_name(line.trim_end_matches(is_blank)).is_ok()
    };
    !text.contains("[Install]")
        && (text.is_ascii() || !text.contains(|c| c == '\u{feff}' || is_no_character(c)))
        && text.match_indices('[').all(is_fine)
}

/// Returns the lines with continuations joined by a blank and comments omitted, each with the number of its last line.
pub(super) fn logical_lines(text: &str) -> impl Iterator<Item = (usize, Cow<'_, str>)> {
    let mut lines = physical_lines(text).enumerate();
    let mut bom_seen = false;
    std::iter::from_fn(move || {
        let mut pending: Option<(usize, Cow<'_, str>)> = None;
        for (index, line) in lines.by_ref() {
            if line.trim_start_matches(is_blank).starts_with(['#', ';']) {
                continue;
            }
            let without_bom = line.strip_prefix('\u{feff}').filter(|_| !bom_seen);
            bom_seen |= without_bom.is_some();
            let line = without_bom.unwrap_or(line);
            let mut joined = match pending.take() {
                None => Cow::Borrowed(line),
                Some((_, begun)) => begun + line,
            };
            if !ends_in_escape(&joined) {
                return Some((index + 1, joined));
            }
            let joined_text = joined.to_mut();
            joined_text.pop();
            joined_text.push(' ');
            pending = Some((index + 1, joined));
        }
        pending
    })
}

fn ends_in_escape(line: &str) -> bool {
    line.chars().rev().take_while(|c| *c == '\\').count() % 2 == 1
}

/// Returns the physical lines. They end at any run of different end characters (`\n`, `\r\n`, `\n\r`, …); NUL ends one
/// immediately.
pub(super) fn physical_lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = rest.bytes().position(|byte| is_line_end(char::from(byte)));
        let (line, ends) = rest.split_at(end.unwrap_or(rest.len()));
        rest = after_line_end(ends);
        Some(line)
    })
}

fn is_line_end(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\0')
}

fn after_line_end(ends: &str) -> &str {
    let length = match ends.as_bytes() {
        [b'\0', ..] => 1,
        [b'\n', b'\r', b'\0', ..] | [b'\r', b'\n', b'\0', ..] => 3,
        [b'\n', b'\r' | b'\0', ..] | [b'\r', b'\n' | b'\0', ..] => 2,
        [b'\n' | b'\r', ..] => 1,
        _ => 0,
    };
    ends.get(length..).unwrap_or_default()
}

/// Returns the words; a backslash escapes the next character, and quotes are ordinary characters. `None` if the value ends in a
/// backslash.
fn escaped_words(value: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => word.get_or_insert_default().push(chars.next()?),
            _ if is_blank(c) => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Some(words)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn read(name: &str, text: &str) -> Result<InstallSection, SectionError> {
        let mut section = InstallSection::default();
        section.read_file(
            &UnitName::parse(name).unwrap(),
            text,
            &Support::of_version(254),
        )?;
        Ok(section)
    }

    proptest! {
        #[test]
        fn what_is_passed_over_has_nothing_to_say(
            pieces in prop::collection::vec(
                prop::sample::select(vec![
                    "[Install]", "[Unit]", "[", "]", "Alias=b.service", "Also=", "\\", "\n", "\r", "\0", " ", "#", "\u{feff}",
                    "\u{ffff}", "é",
                ]),
                0..12,
            )
        ) {
            let text = pieces.concat();
            if is_without_install(&text) {
                let mut section = InstallSection::default();
                let name = UnitName::parse("a.service").unwrap();
                let read = section.read_lines(&name, &text, &Support::of_version(254));
                prop_assert_eq!(read, Ok(()));
                prop_assert_eq!(section, InstallSection::default());
            }
        }
    }

    #[test]
    fn only_the_install_section_counts() {
        let text = "WantedBy=x.target\n[Unit]\nWantedBy=y.target\n[Install]\nWantedBy=a.target\n[X]\nWantedBy=z.target\n";
        assert_eq!(read("u.service", text).unwrap().wanted_by, ["a.target"]);
    }

    #[test]
    fn lists_add_up_and_an_empty_value_resets_them() {
        let text = "[Install]\nWantedBy=a.target\nWantedBy=\nWantedBy=b.target \"c.target\"\nWantedBy = 'd.target'\n";
        assert_eq!(
            read("u.service", text).unwrap().wanted_by,
            ["b.target", "c.target", "d.target"]
        );
    }

    #[test]
    fn an_empty_also_resets_nothing() {
        let section = read(
            "u.service",
            "[Install]\nAlso=a.service\nAlso=\nAlso=%p.socket\n",
        )
        .unwrap();
        assert_eq!(section.also, ["a.service", "u.socket"]);
    }

    #[test]
    fn comments_may_stand_between_continued_lines() {
        let text = "[Install]\nWantedBy=a.target \\\n# no\n  ; no\nb.target\n";
        assert_eq!(
            read("u.service", text).unwrap().wanted_by,
            ["a.target", "b.target"]
        );
    }

    #[test]
    fn carriage_returns_end_lines_too() {
        let text = "[Install]\r\nWantedBy=a.target \\\r\nb.target\r\n";
        assert_eq!(
            read("u.service", text).unwrap().wanted_by,
            ["a.target", "b.target"]
        );
    }

    #[test]
    fn a_byte_order_mark_is_skipped() {
        assert_eq!(
            read("u.service", "\u{feff}[Install]\nWantedBy=a.target")
                .unwrap()
                .wanted_by,
            ["a.target"]
        );
    }

    #[test]
    fn only_one_byte_order_mark_is_skipped() {
        let text = "\u{feff}[Install]\n\u{feff}WantedBy=a.target";
        assert_eq!(read("u.service", text).unwrap(), InstallSection::default());
    }

    #[test]
    fn default_instance_is_for_templates_only() {
        let text = "[Install]\nDefaultInstance=one\n";
        assert_eq!(
            read("u@.service", text)
                .unwrap()
                .default_instance
                .as_deref(),
            Some("one")
        );
        assert_eq!(read("u@x.service", text).unwrap().default_instance, None);
        assert_eq!(read("u.service", text).unwrap().default_instance, None);
    }

    #[test]
    fn units_that_cannot_have_aliases_ignore_them() {
        assert_eq!(
            read("u.mount", "[Install]\nAlias=v.mount\n").unwrap(),
            InstallSection::default()
        );
    }

    #[test]
    fn upheld_by_is_ignored_before_254() {
        let mut section = InstallSection::default();
        let name = UnitName::parse("u.service").unwrap();
        section
            .read_file(
                &name,
                "[Install]\nUpheldBy=a.target\n",
                &Support::of_version(252),
            )
            .unwrap();
        assert_eq!(section, InstallSection::default());
        section
            .read_file(
                &name,
                "[Install]\nUpheldBy=a.target\n",
                &Support::of_version(254),
            )
            .unwrap();
        assert_eq!(section.upheld_by, ["a.target"]);
    }

    #[test]
    fn a_header_without_end_is_an_error_with_its_line() {
        let error = read("u.service", "[Unit]\n[Install\n").unwrap_err();
        assert_eq!(
            error.to_string(),
            "line 2: \"[Install\" is not a section header"
        );
    }

    proptest! {
        #[test]
        fn any_text_can_be_read(text in any::<String>(), body in "[\\[\\]a-zA-Z=#;%@. \\\\\"\r\n\u{0}]*") {
            let _ = read("u@.service", &text);
            let section = read("u@.service", &format!("[Install]\nAlso={body}")).unwrap_or_default();
            prop_assert!(section.also.iter().all(|also| unit_name::is_valid(also)));
        }

        #[test]
        fn no_line_holds_an_end_of_line(text in any::<String>()) {
            for line in physical_lines(&text) {
                prop_assert!(!line.contains(['\n', '\r', '\0']));
            }
        }
    }
}
