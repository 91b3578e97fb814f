//! Options and patterns of `allowed_signers`.

use crate::base::reason::Reason;
use crate::base::time::days_since_epoch;

/// What a line allows a key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SignerOptions {
    pub(super) is_authority: bool,
    /// Patterns.
    pub(super) namespaces: Option<String>,
    /// Seconds since 1970.
    pub(super) valid_after: Option<u64>,
    pub(super) valid_before: Option<u64>,
}

impl SignerOptions {
    /// Parses options, separated by commas. As in OpenSSH, an unknown one makes the line useless.
    pub(super) fn parse(mut text: &str) -> Result<Self, Reason> {
        let mut options = Self::default();
        loop {
            if let Some(rest) = strip_word(text, "cert-authority") {
                options.is_authority = true;
                text = rest;
            } else if let Some(rest) = strip_word(text, "namespaces=") {
                let (value, rest) = split_quoted(rest)?;
                set_once(&mut options.namespaces, value, "namespaces")?;
                text = rest;
            } else if let Some(rest) = strip_word(text, "valid-after=") {
                let (value, rest) = split_quoted(rest)?;
                set_once(&mut options.valid_after, parse_time(&value)?, "valid-after")?;
                text = rest;
            } else if let Some(rest) = strip_word(text, "valid-before=") {
                let (value, rest) = split_quoted(rest)?;
                set_once(
                    &mut options.valid_before,
                    parse_time(&value)?,
                    "valid-before",
                )?;
                text = rest;
            } else {
                return Err(format!("unknown option {text:?}").into());
            }
            match text.strip_prefix(',') {
                Some(rest) => text = rest,
                None if text.is_empty() => break,
                None => return Err(format!("unknown option {text:?}").into()),
            }
        }
        match (options.valid_after, options.valid_before) {
            (Some(after), Some(before)) if before <= after => {
                Err("valid-before is not later than valid-after".into())
            }
            _ => Ok(options),
        }
    }
}

fn strip_word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let (begin, rest) = text.split_at_checked(word.len())?;
    begin.eq_ignore_ascii_case(word).then_some(rest)
}

fn set_once<T>(place: &mut Option<T>, value: T, name: &str) -> Result<(), Reason> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("several {name}").into()),
    }
}

/// Splits a value in double quotes from what follows. `\"` is a quote.
fn split_quoted(text: &str) -> Result<(String, &str), Reason> {
    let rest = text.strip_prefix('"').ok_or("a value without quotes")?;
    let mut value = String::new();
    let mut letters = rest.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Ok((value, rest.get(at + 1..).unwrap_or_default())),
            '\\' if letters.next_if(|(_, next)| *next == '"').is_some() => value.push('"'),
            other => value.push(other),
        }
    }
    Err("a quote that does not end".into())
}

/// Parses `YYYYMMDD[HHMM[SS]]`, with or without `Z`, as UTC.
fn parse_time(text: &str) -> Result<u64, Reason> {
    let bad = || {
        let words = "is not a time: YYYYMMDD, YYYYMMDDHHMM or YYYYMMDDHHMMSS, with Z";
        Reason::from(format!("{text:?} {words}"))
    };
    let digits = text.strip_suffix(['Z', 'z']).unwrap_or(text);
    let are_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
    if !are_digits || !matches!(digits.len(), 8 | 12 | 14) {
        return Err(bad());
    }
    let number = |from: usize, to: usize| -> Result<i64, Reason> {
        match digits.get(from..to) {
            Some(part) => part.parse().map_err(|_| bad()),
            None => Ok(0),
        }
    };
    let (year, month, day) = (number(0, 4)?, number(4, 6)?, number(6, 8)?);
    let (hour, minute, second) = (number(8, 10)?, number(10, 12)?, number(12, 14)?);
    let next = match month {
        1..=11 => days_since_epoch(year, month + 1, 1),
        12 => days_since_epoch(year + 1, 1, 1),
        _ => return Err(bad()),
    };
    let found = days_since_epoch(year, month, day);
    if day < 1 || found >= next || hour > 23 || minute > 59 || second > 59 {
        return Err(bad());
    }
    let seconds = found * 86_400 + hour * 3600 + minute * 60 + second;
    u64::try_from(seconds).map_err(|_| bad())
}

/// Returns true if a text matches patterns, separated by commas. A pattern after `!` excludes what it matches.
pub(super) fn matches_patterns(text: &str, patterns: &str) -> bool {
    let mut is_matched = false;
    for pattern in patterns.split(',') {
        match pattern.strip_prefix('!') {
            Some(excluded) if matches_pattern(text.as_bytes(), excluded.as_bytes()) => {
                return false;
            }
            Some(_) => {}
            None => is_matched |= matches_pattern(text.as_bytes(), pattern.as_bytes()),
        }
    }
    is_matched
}

/// Returns true if a text matches a pattern with `*` and `?`.
fn matches_pattern(text: &[u8], pattern: &[u8]) -> bool {
    let (mut at, mut next) = (0, 0);
    // The last `*`, and how much of the text it has taken.
    let mut star = None;
    while at < text.len() {
        match pattern.get(next) {
            Some(b'*') => {
                star = Some((next, at));
                next += 1;
            }
            Some(letter) if *letter == b'?' || text.get(at) == Some(letter) => {
                at += 1;
                next += 1;
            }
            _ => match star {
                Some((place, taken)) => {
                    star = Some((place, taken + 1));
                    at = taken + 1;
                    next = place + 1;
                }
                None => return false,
            },
        }
    }
    let rest = pattern.get(next..).unwrap_or_default();
    rest.iter().all(|letter| *letter == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_parsed_or_the_line_is_useless() {
        let parsed = SignerOptions::parse(
            "NAMESPACES=\"mco-rescue-*,!x\\\"\",valid-after=\"20260101\",valid-before=\"202602020102Z\"",
        );
        let options = parsed.unwrap();
        assert_eq!(options.namespaces.as_deref(), Some("mco-rescue-*,!x\""));
        assert_eq!(options.valid_after, Some(1_767_225_600));
        assert_eq!(options.valid_before, Some(1_769_994_120));
        assert!(SignerOptions::parse("cert-authority").unwrap().is_authority);
        for text in [
            "",
            "no-touch-required",
            "namespaces=x",
            "namespaces=\"x",
            "namespaces=\"x\",",
            "namespaces=\"x\"y",
            "namespaces=\"x\",namespaces=\"y\"",
            "valid-after=\"2026\"",
            "valid-after=\"20260230\"",
            "valid-after=\"202601012400\"",
            "valid-after=\"20260101000000+1\"",
            "valid-after=\"20260102\",valid-before=\"20260101\"",
            "cert-authority2",
        ] {
            assert!(SignerOptions::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn patterns_match_as_in_openssh() {
        for (text, patterns, wanted) in [
            ("a", "a", true),
            ("a", "b,a", true),
            ("a", "!a,*", false),
            ("a", "*,!a", false),
            ("a", "!b", false),
            ("abcabd", "*ab?", true),
            ("abcabd", "a*c", false),
            ("", "*", true),
            ("", "?", false),
            ("A", "a", false),
            ("file", "f*i*e", true),
        ] {
            assert_eq!(
                matches_patterns(text, patterns),
                wanted,
                "{text} {patterns}"
            );
        }
    }
}
