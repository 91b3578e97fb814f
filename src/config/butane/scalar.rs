//! How Go's yaml.v3 interprets a plain scalar.

use crate::formats::go_yaml::is_base_60;

/// A resolved scalar.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Resolved {
    /// Nothing.
    Null,
    /// A boolean.
    Flag(bool),
    /// A whole number of 64 bits.
    Integer(i64),
    /// A larger unsigned integer.
    Unsigned(u64),
    /// Any other number.
    Float(f64),
    /// A date.
    Timestamp,
    /// `<<`.
    Merge,
    /// Text.
    Text,
}

impl Resolved {
    /// Returns the short tag, such as `!!int`.
    pub(super) fn tag(self) -> &'static str {
        match self {
            Self::Null => "!!null",
            Self::Flag(_) => "!!bool",
            Self::Integer(_) | Self::Unsigned(_) => "!!int",
            Self::Float(_) => "!!float",
            Self::Timestamp => "!!timestamp",
            Self::Merge => "!!merge",
            Self::Text => "!!str",
        }
    }
}

/// Resolves a plain scalar.
pub(super) fn resolve_plain(text: &str) -> Resolved {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Resolved::Null,
        "true" | "True" | "TRUE" => Resolved::Flag(true),
        "false" | "False" | "FALSE" => Resolved::Flag(false),
        "<<" => Resolved::Merge,
        ".nan" | ".NaN" | ".NAN" => Resolved::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Resolved::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Resolved::Float(f64::NEG_INFINITY),
        _ if text.starts_with('.') => {
            parse_decimal(&text.replace('_', "")).map_or(Resolved::Text, Resolved::Float)
        }
        _ if text.starts_with(['+', '-']) || text.starts_with(|c: char| c.is_ascii_digit()) => {
            resolve_number(text)
        }
        _ => Resolved::Text,
    }
}

fn resolve_number(text: &str) -> Resolved {
    if is_timestamp(text) {
        return Resolved::Timestamp;
    }
    let plain = text.replace('_', "");
    let (sign, digits) = match plain.as_bytes().first() {
        Some(b'+') => ("", plain.get(1..).unwrap_or_default()),
        Some(b'-') => ("-", plain.get(1..).unwrap_or_default()),
        _ => ("", plain.as_str()),
    };
    if let Some((digits, radix)) = radix_of(digits)
        && digits.bytes().all(|b| b.is_ascii_hexdigit())
    {
        if let Ok(number) = i64::from_str_radix(&format!("{sign}{digits}"), radix) {
            return Resolved::Integer(number);
        }
        if plain.starts_with(|c: char| c.is_ascii_digit())
            && let Ok(number) = u64::from_str_radix(digits, radix)
        {
            return Resolved::Unsigned(number);
        }
    }
    parse_decimal(&plain).map_or(Resolved::Text, Resolved::Float)
}

/// Returns the digits of a number and their base, as Go's `ParseInt` accepts them with base 0.
fn radix_of(digits: &str) -> Option<(&str, u32)> {
    let after = |count| digits.get(count..).filter(|rest| !rest.is_empty());
    match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => Some((after(2)?, 16)),
        [b'0', b'b' | b'B', ..] => Some((after(2)?, 2)),
        [b'0', b'o' | b'O', ..] => Some((after(2)?, 8)),
        [b'0', _, ..] => Some((after(1)?, 8)),
        [] => None,
        _ => Some((digits, 10)),
    }
}

/// Parses `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn parse_decimal(text: &str) -> Option<f64> {
    let body = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match body.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (body, None),
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let is_mantissa = match mantissa.split_once('.') {
        Some(("", fraction)) => digits(fraction),
        Some((whole, fraction)) => digits(whole) && (fraction.is_empty() || digits(fraction)),
        None => digits(mantissa),
    };
    let is_exponent = exponent
        .is_none_or(|exponent| digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent)));
    if !is_mantissa || !is_exponent {
        return None;
    }
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

/// Returns true if a text needs quotes to remain text, either for yaml.v3 or for YAML 1.1 parsers.
pub(super) fn needs_quotes(text: &str) -> bool {
    resolve_plain(text) != Resolved::Text || is_old_flag(text) || is_base_60(text)
}

fn is_old_flag(text: &str) -> bool {
    const WORDS: [&str; 16] = [
        "y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "n", "N", "no", "No", "NO", "off", "Off",
        "OFF",
    ];
    WORDS.contains(&text)
}

/// Returns true for a date, or a date and time separated by `T` or `t` (then with a zone) or by one blank.
fn is_timestamp(text: &str) -> bool {
    let mut rest = text;
    let year = take_digits(&mut rest, 4, 4);
    let month = take_sign(&mut rest, '-').and_then(|()| take_digits(&mut rest, 1, 2));
    let day = take_sign(&mut rest, '-').and_then(|()| take_digits(&mut rest, 1, 2));
    let (Some(year), Some(month), Some(day)) = (year, month, day) else {
        return false;
    };
    if day == 0 || day > days_of(year, month) {
        return false;
    }
    match rest.as_bytes().first() {
        None => true,
        Some(b'T' | b't') => {
            rest = rest.get(1..).unwrap_or_default();
            take_time(&mut rest) && is_zone(rest)
        }
        Some(b' ') => {
            rest = rest.get(1..).unwrap_or_default();
            take_time(&mut rest) && rest.is_empty()
        }
        Some(_) => false,
    }
}

fn days_of(year: u32, month: u32) -> u32 {
    match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => {
            29
        }
        2 => 28,
        _ => 0,
    }
}

fn take_sign(rest: &mut &str, sign: char) -> Option<()> {
    *rest = rest.strip_prefix(sign)?;
    Some(())
}

fn take_digits(rest: &mut &str, shortest: usize, longest: usize) -> Option<u32> {
    let count = rest
        .bytes()
        .take_while(u8::is_ascii_digit)
        .count()
        .min(longest);
    let number = rest.get(..count).filter(|_| count >= shortest)?;
    *rest = rest.get(count..)?;
    number.parse().ok()
}

/// Takes `H:M:S` with a fraction; returns true if it is there.
fn take_time(rest: &mut &str) -> bool {
    let mut part = |limit: u32, sign: bool| {
        if sign {
            take_sign(rest, ':')?;
        }
        take_digits(rest, 1, 2).filter(|number| *number < limit)
    };
    let all = part(24, false)
        .and_then(|_| part(60, true))
        .and_then(|_| part(60, true));
    if all.is_none() {
        return false;
    }
    if let Some(fraction) = rest.strip_prefix('.') {
        let count = fraction.bytes().take_while(u8::is_ascii_digit).count();
        *rest = fraction.get(count..).unwrap_or_default();
        return count > 0;
    }
    true
}

/// Returns true for `Z` or `+hh:mm`.
fn is_zone(text: &str) -> bool {
    if text == "Z" {
        return true;
    }
    let Some(mut rest) = text.strip_prefix(['+', '-']) else {
        return false;
    };
    let hours = take_digits(&mut rest, 2, 2);
    let minutes = take_sign(&mut rest, ':').and_then(|()| take_digits(&mut rest, 2, 2));
    hours.is_some() && minutes.is_some() && rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars_are_resolved_as_yaml_v3_does() {
        let table = [
            ("", Resolved::Null),
            ("yes", Resolved::Text),
            ("True", Resolved::Flag(true)),
            ("0644", Resolved::Integer(0o644)),
            ("0o644", Resolved::Integer(0o644)),
            ("644", Resolved::Integer(644)),
            ("0888", Resolved::Float(888.0)),
            ("1_000", Resolved::Integer(1000)),
            ("-0x1F", Resolved::Integer(-31)),
            ("18446744073709551615", Resolved::Unsigned(u64::MAX)),
            ("1e3", Resolved::Float(1000.0)),
            (".5", Resolved::Float(0.5)),
            ("2001-01-01", Resolved::Timestamp),
            ("2001-02-30", Resolved::Text),
            ("2001-01-01T10:00:00Z", Resolved::Timestamp),
            ("4.22.0", Resolved::Text),
            ("12:30:45", Resolved::Text),
            ("<<", Resolved::Merge),
            ("-", Resolved::Text),
        ];
        for (text, wanted) in table {
            assert_eq!(resolve_plain(text), wanted, "{text:?}");
        }
    }

    #[test]
    fn what_older_readers_take_for_more_than_text_is_quoted() {
        for text in ["yes", "Off", "12:30:45", "1:20", "~", "0x10", "2001-01-01"] {
            assert!(needs_quotes(text), "{text:?}");
        }
        for text in ["maybe", "a:b", "12:99", "10%", "$6$abc"] {
            assert!(!needs_quotes(text), "{text:?}");
        }
    }
}
