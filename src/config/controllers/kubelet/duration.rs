//! Durations in Go's syntax.

use crate::base::reason::Reason;

/// Nanoseconds in a unit.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Parses a duration such as `1h30m`; returns nanoseconds.
///
/// # Errors
/// Go's message about an invalid duration.
pub(in crate::config::controllers) fn parse_duration(text: &str) -> Result<i64, Reason> {
    let invalid = || Reason::from(format!("time: invalid duration {}", quote_text(text)));
    let negative = text.starts_with('-');
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (whole, behind) = split_digits(rest);
        let (fraction, behind) = match behind.strip_prefix('.') {
            Some(behind) => split_digits(behind),
            None => ("", behind),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let end = behind.find(|c: char| c == '.' || c.is_ascii_digit());
        let (name, behind) = behind.split_at(end.unwrap_or(behind.len()));
        if name.is_empty() {
            return Err(format!("time: missing unit in duration {}", quote_text(text)).into());
        }
        let Some((_, unit)) = UNITS.iter().find(|(known, _)| *known == name) else {
            let (name, text) = (quote_text(name), quote_text(text));
            return Err(format!("time: unknown unit {name} in duration {text}").into());
        };
        let part = parse_amount(whole, fraction, *unit).ok_or_else(invalid)?;
        total = total.checked_add(part).ok_or_else(invalid)?;
        if total > 1 << 63 {
            return Err(invalid());
        }
        rest = behind;
    }
    match (negative, i64::try_from(total)) {
        (false, Ok(total)) => Ok(total),
        (true, Ok(total)) => Ok(-total),
        (true, Err(_)) => Ok(i64::MIN),
        (false, Err(_)) => Err(invalid()),
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit());
    text.split_at(end.unwrap_or(text.len()))
}

fn parse_amount(whole: &str, fraction: &str, unit: u64) -> Option<u64> {
    let whole: u64 = match whole {
        "" => 0,
        _ => whole.parse().ok()?,
    };
    let whole = whole.checked_mul(unit).filter(|whole| *whole <= 1 << 63)?;
    // Digits beyond a tenth of the smallest unit are ignored.
    let kept = fraction.get(..fraction.len().min(18)).unwrap_or_default();
    let numerator: u128 = match kept {
        "" => 0,
        _ => kept.parse().ok()?,
    };
    let scale = u32::try_from(kept.len()).ok()?;
    let part = numerator * u128::from(unit) / 10_u128.pow(scale);
    whole.checked_add(u64::try_from(part).ok()?)
}

/// Formats nanoseconds like Go's `Duration.String`: `1m30s`, `1.5ms`, `0s`.
pub(in crate::config::controllers) fn format_duration(nanoseconds: i64) -> String {
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let total = nanoseconds.unsigned_abs();
    let with_fraction = |value: u64, digits: usize| {
        let scale = 10_u64.pow(u32::try_from(digits).unwrap_or(0));
        let fraction = format!("{:0digits$}", value % scale);
        let fraction = fraction.trim_end_matches('0');
        let dot = if fraction.is_empty() || digits == 0 {
            ""
        } else {
            "."
        };
        let fraction = if digits == 0 { "" } else { fraction };
        format!("{}{dot}{fraction}", value / scale)
    };
    if total == 0 {
        return "0s".to_owned();
    }
    if total < 1_000 {
        return format!("{sign}{total}ns");
    }
    if total < 1_000_000 {
        return format!("{sign}{}\u{b5}s", with_fraction(total, 3));
    }
    if total < 1_000_000_000 {
        return format!("{sign}{}ms", with_fraction(total, 6));
    }
    let minute = 60_000_000_000;
    let seconds = with_fraction(total % minute, 9);
    let minutes = total / minute;
    match (minutes / 60, minutes % 60) {
        (0, 0) => format!("{sign}{seconds}s"),
        (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
        (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
    }
}

/// Quotes a text like Go's package `time`: bytes that are not plain ASCII become `\xNN`.
fn quote_text(text: &str) -> String {
    let mut out = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => {
                out.push('\\');
                out.push(char::from(byte));
            }
            b' '..=b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_are_written_as_go_writes_them() {
        for (text, written) in [
            ("90s", "1m30s"),
            ("300s", "5m0s"),
            ("1h", "1h0m0s"),
            ("48h", "48h0m0s"),
            ("1m0.5s", "1m0.5s"),
            ("0", "0s"),
            ("-0", "0s"),
            ("-1.5h", "-1h30m0s"),
            ("1500us", "1.5ms"),
            ("1500ns", "1.5\u{b5}s"),
            (".5s", "500ms"),
            ("1.s", "1s"),
            ("999ns", "999ns"),
            ("2540400h10m10.000000001s", "2540400h10m10.000000001s"),
        ] {
            assert_eq!(
                format_duration(parse_duration(text).unwrap()),
                written,
                "{text}"
            );
        }
    }

    #[test]
    fn refusals_are_in_the_words_of_go() {
        for (text, error) in [
            ("", "time: invalid duration \"\""),
            ("soon", "time: invalid duration \"soon\""),
            ("5", "time: missing unit in duration \"5\""),
            ("1d", "time: unknown unit \"d\" in duration \"1d\""),
            ("1h 5m", "time: unknown unit \"h \" in duration \"1h 5m\""),
            (".s", "time: invalid duration \".s\""),
            ("3000000h", "time: invalid duration \"3000000h\""),
            (
                "1\u{e4}",
                "time: unknown unit \"\\xc3\\xa4\" in duration \"1\\xc3\\xa4\"",
            ),
        ] {
            assert_eq!(parse_duration(text).unwrap_err(), error.into());
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(nanoseconds: i64) {
            prop_assert_eq!(parse_duration(&format_duration(nanoseconds)), Ok(nanoseconds));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[-+0-9.a-z \u{b5}]{0,30}") {
            if let Ok(nanoseconds) = parse_duration(&text) {
                prop_assert_eq!(parse_duration(&format_duration(nanoseconds)), Ok(nanoseconds));
            }
        }
    }
}
