//! Quantities of the API, such as `1.5Gi`, in their canonical form.

const WRONG_FORMAT: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const WRONG_SUFFIX: &str = "unable to parse quantity's suffix";
const WRONG_NUMBER: &str = "unable to parse numeric part of quantity";

/// Suffixes of powers of ten.
const DECIMAL: [(&str, i32); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];
/// Suffixes of powers of 1024.
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// Finer amounts than this part of one are rounded up.
const NANO: i128 = 1_000_000_000;

#[derive(Debug, Clone, Copy)]
enum Form {
    Decimal(i32),
    Exponent(i32),
    Binary(u32),
}

/// Returns the canonical form of a quantity.
///
/// # Errors
/// The API's words for a text that is no quantity.
pub(super) fn canonical(text: &str) -> Result<String, &'static str> {
    let (number, suffix) = split(text)?;
    let form = form_of(suffix).ok_or(WRONG_SUFFIX)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let negative = whole.starts_with('-');
    let whole = whole.trim_start_matches(['-', '+']);
    let nanos = nanos(whole, fraction, form).ok_or(WRONG_NUMBER)?;
    Ok(write(if negative { -nanos } else { nanos }, form))
}

/// Splits a text into number and suffix; the suffix is letters, a sign, digits.
fn split(text: &str) -> Result<(&str, &str), &'static str> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let number_end = unsigned
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(unsigned.len());
    let (_, behind) = unsigned.split_at(number_end);
    let fraction = behind.strip_prefix('.');
    let fraction_end = fraction.map_or(0, |fraction| {
        let end = fraction.find(|c: char| !c.is_ascii_digit());
        end.unwrap_or(fraction.len()) + 1
    });
    let start = text.len() - behind.len() + fraction_end;
    let (number, suffix) = text.split_at(start);
    let letters = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let digits = letters.strip_prefix(['-', '+']).unwrap_or(letters);
    if text.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(WRONG_FORMAT);
    }
    Ok((number, suffix))
}

fn form_of(suffix: &str) -> Option<Form> {
    if let Some((_, power)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Some(Form::Decimal(*power));
    }
    if let Some(index) = BINARY.iter().position(|name| *name == suffix) {
        return Some(Form::Binary(10 * (u32::try_from(index).ok()? + 1)));
    }
    let power = suffix.strip_prefix(['e', 'E'])?;
    power.parse().ok().map(Form::Exponent)
}

/// The amount in billionths, rounded away from zero; the largest that the API holds if it is larger.
fn nanos(whole: &str, fraction: &str, form: Form) -> Option<i128> {
    let largest = i128::from(i64::MAX) * NANO;
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Some(0);
    }
    let scale = i32::try_from(fraction.len()).ok()?;
    // The power of ten that the digits are multiplied with, to be billionths.
    let power = match form {
        Form::Decimal(power) => power - scale + 9,
        Form::Exponent(power) => power.saturating_sub(scale).saturating_add(9),
        Form::Binary(_) => 9 - scale,
    };
    let mut kept = i32::try_from(digits.len()).ok()?;
    if kept.saturating_add(power) > 30 {
        return Some(largest);
    }
    if kept.saturating_add(power) < -20 {
        return Some(1);
    }
    // More digits than these are below the smallest amount, and round it up.
    kept = kept.min(if matches!(form, Form::Binary(_)) {
        18
    } else {
        28
    });
    let (head, tail) = digits.split_at(usize::try_from(kept).ok()?);
    let power = power + i32::try_from(tail.len()).ok()?;
    let mut value: i128 = head.parse().ok()?;
    let mut is_rest = tail.bytes().any(|b| b != b'0');
    if let Form::Binary(bits) = form {
        value = value
            .checked_mul(1 << bits.min(60))
            .unwrap_or(i128::MAX / 10);
    }
    for _ in 0..power.max(0) {
        value = value.checked_mul(10).unwrap_or(i128::MAX / 10);
    }
    for _ in 0..(-power).max(0) {
        is_rest |= value % 10 != 0;
        value /= 10;
    }
    Some((value + i128::from(is_rest)).min(largest))
}

fn write(nanos: i128, form: Form) -> String {
    if nanos == 0 {
        return "0".to_owned();
    }
    let whole = nanos / NANO;
    if let Form::Binary(_) = form
        && nanos % NANO == 0
        && whole.unsigned_abs() >= 1024
    {
        let (mut value, mut index) = (whole, 0);
        while value % 1024 == 0 && index < BINARY.len() {
            value /= 1024;
            index += 1;
        }
        let suffix = index.checked_sub(1).and_then(|index| BINARY.get(index));
        return format!("{value}{}", suffix.copied().unwrap_or_default());
    }
    let (mut value, mut power) = (nanos, -9);
    while value % 1000 == 0 && power < 18 {
        value /= 1000;
        power += 3;
    }
    if let Form::Exponent(_) = form {
        while value % 1000 == 0 {
            value /= 1000;
            power += 3;
        }
        return match power {
            0 => value.to_string(),
            _ => format!("{value}e{power}"),
        };
    }
    let suffix = DECIMAL.iter().find(|(_, known)| *known == power);
    format!("{value}{}", suffix.map_or("", |(name, _)| name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantities_are_canonical() {
        for (text, written) in [
            ("1.5Gi", "1536Mi"),
            ("1124Mi", "1124Mi"),
            ("0.5", "500m"),
            ("0", "0"),
            ("0Gi", "0"),
            ("-0", "0"),
            ("1000m", "1"),
            ("1500M", "1500M"),
            ("2000M", "2G"),
            ("1024", "1024"),
            ("1Ki", "1Ki"),
            ("0.5Ki", "512"),
            ("1023Ki", "1023Ki"),
            ("2048Mi", "2Gi"),
            ("1e3", "1e3"),
            ("12e5", "1200e3"),
            ("1E", "1E"),
            ("1n", "1n"),
            ("0.1n", "1n"),
            ("+5", "5"),
            ("-1.5Gi", "-1536Mi"),
            ("1.", "1"),
            ("007", "7"),
        ] {
            assert_eq!(canonical(text).as_deref(), Ok(written), "{text}");
        }
    }

    #[test]
    fn no_quantity_is_refused_in_the_words_of_the_api() {
        for (text, error) in [
            ("", WRONG_FORMAT),
            ("abc", WRONG_FORMAT),
            ("1 Gi", WRONG_FORMAT),
            ("1GiB", WRONG_FORMAT),
            ("1gi", WRONG_FORMAT),
            ("1KM", WRONG_SUFFIX),
            ("1K", WRONG_SUFFIX),
        ] {
            assert_eq!(canonical(text), Err(error), "{text}");
        }
    }

    proptest! {
        #[test]
        fn the_canonical_form_is_its_own(text in "[-+]?[0-9]{0,40}\\.?[0-9]{0,40}([kMGTPEnum]i?|e-?[0-9]{1,9})?") {
            if let Ok(written) = canonical(&text) {
                prop_assert_eq!(canonical(&written), Ok(written));
            }
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,20}") {
            let _ = canonical(&text);
        }
    }
}
