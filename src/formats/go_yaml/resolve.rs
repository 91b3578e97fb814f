//! How yaml.v2 resolves plain text: as text, or as something that has to be quoted to remain text.

use super::base_60::is_base_60;

/// Words for booleans, null, or non-finite numbers. `<<` and `=` stay plain in yaml.v2.
const WORDS: [&str; 39] = [
    "", "~", "null", "Null", "NULL", "y", "Y", "yes", "Yes", "YES", "n", "N", "no", "No", "NO",
    "true", "True", "TRUE", "false", "False", "FALSE", "on", "On", "ON", "off", "Off", "OFF",
    ".nan", ".NaN", ".NAN", ".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF", "-.inf", "-.Inf",
    "-.INF",
];

/// Returns true if unquoted `text` would be read as text.
pub(super) fn is_text(text: &str) -> bool {
    if WORDS.contains(&text) {
        return false;
    }
    match text.as_bytes().first() {
        Some(b'.') => !is_decimal(text),
        Some(b'+' | b'-' | b'0'..=b'9') => {
            let plain = text.replace('_', "");
            !(is_timestamp(text) || is_integer(&plain) || is_decimal(&plain) || is_base_60(text))
        }
        _ => true,
    }
}

/// Returns true for an integer by Go's `strconv.ParseInt` and `ParseUint` with base 0, and by yaml.v2's own handling of `0b`.
fn is_integer(plain: &str) -> bool {
    if let Some(bits) = plain.strip_prefix("0b")
        && in_range(bits, 2)
    {
        return true;
    }
    let digits = plain.trim_start_matches(['+', '-']);
    let sign = plain.get(..plain.len() - digits.len()).unwrap_or_default();
    if sign.len() > 1 {
        return false;
    }
    let lower = digits.to_ascii_lowercase();
    let (digits, radix) = match lower.as_bytes() {
        [b'0', b'x', ..] => (lower.get(2..), 16),
        [b'0', b'b', ..] => (lower.get(2..), 2),
        [b'0', b'o', ..] => (lower.get(2..), 8),
        [b'0', _, ..] => (lower.get(1..), 8),
        _ => (Some(lower.as_str()), 10),
    };
    let bare = |digits: &str| digits.starts_with(|c: char| c.is_ascii_hexdigit());
    digits.is_some_and(|digits| bare(digits) && in_range(&format!("{sign}{digits}"), radix))
}

/// Returns true if the digits fit: signed numbers have 63 bits, unsigned ones 64.
fn in_range(digits: &str, radix: u32) -> bool {
    let unsigned = digits.starts_with(|c: char| c.is_ascii_hexdigit());
    i64::from_str_radix(digits, radix).is_ok()
        || unsigned && u64::from_str_radix(digits, radix).is_ok()
}

/// Returns true for a decimal number with optional fraction and exponent that a float can represent.
fn is_decimal(plain: &str) -> bool {
    let body = plain.strip_prefix(['+', '-']).unwrap_or(plain);
    let legal = |c: char| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-');
    body.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && body.chars().all(legal)
        && body.parse::<f64>().is_ok_and(f64::is_finite)
}

/// Returns true for the four formats of yaml.v2: a date, or a date with a time after `T`, `t` (then with a zone) or blanks.
fn is_timestamp(text: &str) -> bool {
    let mut rest = Digits(text);
    let Some(date) = rest.parse_date() else {
        return false;
    };
    date && match rest.0.as_bytes().first() {
        None => true,
        Some(b'T' | b't') => rest.skip_digits(1) && rest.parse_time() && rest.parse_zone(),
        Some(b' ') => {
            rest.0 = rest.0.trim_start_matches(' ');
            rest.parse_time() && rest.0.is_empty()
        }
        Some(_) => false,
    }
}

/// The rest of a timestamp.
struct Digits<'a>(&'a str);

impl Digits<'_> {
    fn skip_digits(&mut self, count: usize) -> bool {
        self.0 = self.0.get(count..).unwrap_or_default();
        true
    }

    /// Parses a number of `shortest` to `longest` digits.
    fn parse_number(&mut self, shortest: usize, longest: usize) -> Option<u32> {
        let digits = self.0.bytes().take_while(u8::is_ascii_digit).count();
        let taken = digits.min(longest);
        let number = self.0.get(..taken).filter(|_| taken >= shortest)?;
        self.skip_digits(taken);
        number.parse().ok()
    }

    fn parse_after(&mut self, sign: char, longest: usize) -> Option<u32> {
        self.0 = self.0.strip_prefix(sign)?;
        self.parse_number(1, longest)
    }

    /// Parses a date: true if it is valid in the calendar, `None` if no date comes next.
    fn parse_date(&mut self) -> Option<bool> {
        let digits = self.0.bytes().take_while(u8::is_ascii_digit).count();
        let year = self.parse_number(4, 4).filter(|_| digits == 4)?;
        let (month, day) = (self.parse_after('-', 2)?, self.parse_after('-', 2)?);
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let days = match month {
            4 | 6 | 9 | 11 => 30,
            2 if leap => 29,
            2 => 28,
            _ => 31,
        };
        Some((1..=12).contains(&month) && (1..=days).contains(&day))
    }

    fn parse_time(&mut self) -> bool {
        let parts = (
            self.parse_number(1, 2),
            self.parse_after(':', 2),
            self.parse_after(':', 2),
        );
        let (Some(hour), Some(minute), Some(second)) = parts else {
            return false;
        };
        if let Some(fraction) = self.0.strip_prefix(['.', ','])
            && fraction.starts_with(|c: char| c.is_ascii_digit())
        {
            self.0 = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
        }
        hour < 24 && minute < 60 && second < 60
    }

    fn parse_zone(&mut self) -> bool {
        if self.0 == "Z" {
            return true;
        }
        let Some(rest) = self.0.strip_prefix(['+', '-']) else {
            return false;
        };
        self.0 = rest;
        let hours = self.parse_number(2, 2).is_some_and(|hours| hours <= 24);
        let colon = self.0.starts_with(':') && self.skip_digits(1);
        let minutes = self.parse_number(2, 2).is_some_and(|minutes| minutes <= 60);
        hours && colon && minutes && self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_means_something_else_is_not_text() {
        let quoted = [
            "",
            "~",
            "Null",
            "y",
            "OFF",
            "1",
            "-1",
            "+1",
            "1_000",
            "0x1f",
            "0X1F",
            "0b11",
            "0b+1",
            "0o17",
            "017",
            "09",
            "1.",
            ".5",
            "1e3",
            "-1.5E-3",
            ".inf",
            "-.INF",
            ".nan",
            "12:30",
            "1:2.5",
            "2001-01-01",
            "2001-1-1 1:2:3",
            "2001-01-01T01:02:03Z",
            "2000-02-29",
            "2001-01-01t01:02:03.5+01:00",
            "18446744073709551615",
            "99999999999999999999",
        ];
        for text in quoted {
            assert!(!is_text(text), "{text}");
        }
    }

    #[test]
    fn what_only_looks_like_something_else_is_text() {
        let plain = [
            "O",
            "0x",
            "0b",
            "0b2",
            "NaN",
            "inf",
            "<<",
            "=",
            "yEs",
            "3.5.0",
            "1.2.3.4",
            "12:60",
            "2001-02-29",
            "2001-13-01",
            "2001-01-01T01:02:03",
            "1e999",
            "--1",
            "-",
            "+",
            ".",
            "...",
            "+0xFFFFFFFFFFFFFFFF",
            "1:",
            ":1",
            "2001-01-01 ",
            "0x1.8p1",
            "1e",
            "é",
        ];
        for text in plain {
            assert!(is_text(text), "{text}");
        }
    }
}
