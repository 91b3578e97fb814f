//! Quantities as in Kubernetes' `resource.Quantity`: `1.5Gi` becomes `1536Mi`, `1000M` becomes `1G`.

use num_bigint::BigInt;

use crate::base::reason::Reason;

/// Kubernetes' error for a text that is not a number with a suffix.
pub const WRONG_FORMAT: &str = "quantities must match the regular expression \
     '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
/// Kubernetes' error for an unknown suffix.
pub const WRONG_SUFFIX: &str = "unable to parse quantity's suffix";
/// Kubernetes' error for an invalid number.
pub const WRONG_NUMBER: &str = "unable to parse numeric part of quantity";

/// Maximum number of digits and power of ten; no real quantity exceeds it.
const BOUND: usize = 400;

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
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// The family of suffixes of a quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Decimal,
    Exponent,
    Binary,
}

/// A number of bytes, processors and so on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quantity {
    /// The value is `unscaled` times ten to the power of `scale`.
    unscaled: BigInt,
    scale: i32,
    form: Form,
    /// The text, if Kubernetes keeps it as written.
    kept: Option<String>,
}

impl Quantity {
    /// Parses a quantity.
    ///
    /// # Errors
    /// Kubernetes' message about an invalid quantity.
    pub fn parse(text: &str) -> Result<Self, Reason> {
        let parts = split_parts(text)?;
        let (base, exponent, form) = interpret_suffix(parts.suffix).ok_or(WRONG_SUFFIX)?;
        let digits = format!("{}{}", parts.whole, parts.fraction);
        if digits.len() > BOUND {
            return Err(WRONG_NUMBER.into());
        }
        let number: BigInt = digits.parse().map_err(|_| WRONG_NUMBER)?;
        let fraction = i32::try_from(parts.fraction.len()).unwrap_or(i32::MAX);
        let mut found = Self {
            unscaled: if parts.negative {
                -&number
            } else {
                number.clone()
            },
            scale: if base == 10 { exponent } else { 0 } - fraction,
            form,
            kept: None,
        };
        let is_canonical = match form {
            Form::Binary => fraction == 0 && number % 8 != BigInt::ZERO,
            _ => found.scale % 3 == 0 && !digits.ends_with("000") && !digits.starts_with('0'),
        };
        if base == 2 {
            found.unscaled *= BigInt::from(2).pow(exponent.unsigned_abs());
        }
        let is_large = form == Form::Binary && found.magnitude_at_least(&BigInt::from(i64::MAX));
        if is_canonical && found.scale >= -9 && digits.len() <= 18 && !is_large {
            found.kept = Some(text.to_owned());
        }
        found.round_up(-9);
        if is_large {
            let negative = found.unscaled < BigInt::ZERO;
            let most = BigInt::from(i64::MAX);
            found.unscaled = if negative { -most } else { most };
            found.scale = 0;
        }
        let positive = found.unscaled > BigInt::ZERO || parts.negative;
        if form == Form::Binary && positive && !found.magnitude_at_least(&BigInt::from(1)) {
            found.form = Form::Decimal;
        }
        Ok(found)
    }

    /// Parses a quantity in an object: a string or a number.
    ///
    /// # Errors
    /// Kubernetes' message about an invalid quantity.
    pub fn from_value(value: &serde_json::Value) -> Result<Self, Reason> {
        match value {
            serde_json::Value::String(text) => Self::parse(text.trim()),
            serde_json::Value::Number(number) => Self::parse(&number.to_string()),
            _ => Err(WRONG_FORMAT.into()),
        }
    }

    /// Returns the value as an integer, rounded away from zero and clamped to the range of the type.
    pub fn value(&self) -> i64 {
        self.in_units(0)
    }

    /// Returns the value in thousandths, rounded in the same way.
    pub fn thousandths(&self) -> i64 {
        self.in_units(-3)
    }

    /// Returns true for a value below zero.
    pub fn is_negative(&self) -> bool {
        self.unscaled < BigInt::ZERO
    }

    /// Returns true for a value above zero.
    pub fn is_positive(&self) -> bool {
        self.unscaled > BigInt::ZERO
    }

    /// Returns the value in units of ten to the power of `scale`.
    fn in_units(&self, scale: i32) -> i64 {
        let mut whole = self.clone();
        whole.round_up(scale);
        let number = &whole.unscaled * power_of_ten(whole.scale - scale);
        let limit = if number < BigInt::ZERO {
            i64::MIN
        } else {
            i64::MAX
        };
        i64::try_from(number).unwrap_or(limit)
    }

    /// Rounds away from zero to a multiple of ten to the power of `scale`.
    fn round_up(&mut self, scale: i32) {
        if self.scale >= scale {
            return;
        }
        let divisor = power_of_ten(scale - self.scale);
        let rest = &self.unscaled % &divisor;
        let mut rounded = &self.unscaled / &divisor;
        if rest > BigInt::ZERO {
            rounded += 1;
        } else if rest < BigInt::ZERO {
            rounded -= 1;
        }
        self.unscaled = rounded;
        self.scale = scale;
        self.kept = None;
    }

    fn magnitude_at_least(&self, limit: &BigInt) -> bool {
        let size = BigInt::from(self.unscaled.magnitude().clone());
        if self.scale >= 0 {
            size * power_of_ten(self.scale) >= *limit
        } else {
            size >= limit * power_of_ten(-self.scale)
        }
    }

    fn write_decimal(&self, form: Form) -> String {
        let (mut number, mut exponent) = (self.unscaled.clone(), self.scale);
        while &number % 10 == BigInt::ZERO {
            number /= 10;
            exponent += 1;
        }
        while exponent % 3 != 0 {
            number *= 10;
            exponent -= 1;
        }
        let suffix = DECIMAL.iter().find(|(_, power)| *power == exponent);
        match suffix {
            Some((suffix, _)) if form == Form::Decimal || exponent == 0 => {
                format!("{number}{suffix}")
            }
            _ => format!("{number}e{exponent}"),
        }
    }

    fn write_binary(&self) -> Option<String> {
        let is_whole =
            self.scale >= 0 || &self.unscaled % power_of_ten(-self.scale) == BigInt::ZERO;
        if !is_whole || !self.magnitude_at_least(&BigInt::from(1024)) {
            return None;
        }
        let mut number = if self.scale >= 0 {
            &self.unscaled * power_of_ten(self.scale)
        } else {
            &self.unscaled / power_of_ten(-self.scale)
        };
        let mut power = 0;
        while power + 1 < BINARY.len() && &number % 1024 == BigInt::ZERO {
            number /= 1024;
            power += 1;
        }
        Some(format!("{number}{}", BINARY[power]))
    }
}

impl std::fmt::Display for Quantity {
    /// Writes the quantity in Kubernetes' form.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(kept) = &self.kept {
            return f.write_str(kept);
        }
        if self.unscaled == BigInt::ZERO {
            return f.write_str("0");
        }
        let binary = (self.form == Form::Binary).then(|| self.write_binary());
        let form = if self.form == Form::Exponent {
            Form::Exponent
        } else {
            Form::Decimal
        };
        let text = binary.flatten().unwrap_or_else(|| self.write_decimal(form));
        f.write_str(&text)
    }
}

fn power_of_ten(exponent: i32) -> BigInt {
    BigInt::from(10).pow(exponent.unsigned_abs())
}

/// The parts of a quantity's text, without leading zeros.
struct Parts<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

fn split_parts(text: &str) -> Result<Parts<'_>, Reason> {
    if text.is_empty() {
        return Err(WRONG_FORMAT.into());
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let digits =
        |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (whole, rest) = unsigned.split_at(digits(unsigned));
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(digits(rest)),
        None => ("", rest),
    };
    let letters = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let exponent = letters.strip_prefix(['+', '-']).unwrap_or(letters);
    if !exponent.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(WRONG_FORMAT.into());
    }
    let whole = whole.trim_start_matches('0');
    Ok(Parts {
        negative: text.starts_with('-'),
        whole: if whole.is_empty() { "0" } else { whole },
        fraction,
        suffix,
    })
}

/// Returns base, exponent and form of a suffix.
fn interpret_suffix(suffix: &str) -> Option<(u32, i32, Form)> {
    if let Some((_, power)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Some((10, *power, Form::Decimal));
    }
    if let Some(power) = BINARY.iter().position(|name| *name == suffix) {
        return Some((2, i32::try_from(power).ok()? * 10, Form::Binary));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    let is_bounded = exponent.unsigned_abs() as usize <= BOUND;
    is_bounded.then_some((10, exponent, Form::Exponent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_quantities_as_kubernetes_does() {
        let table = [
            ("0", "0"),
            ("0Gi", "0"),
            ("1Ki", "1Ki"),
            ("1024Mi", "1Gi"),
            ("1000M", "1G"),
            ("1536Mi", "1536Mi"),
            ("0.5Gi", "512Mi"),
            ("1.5Gi", "1536Mi"),
            ("8G", "8G"),
            ("1.5G", "1500M"),
            ("1.500G", "1.500G"),
            ("+5Gi", "+5Gi"),
            ("-1", "-1"),
            ("100m", "100m"),
            ("1000m", "1"),
            (".001Ki", "1024m"),
            (".000001Ki", "1024u"),
            (".000000001Ki", "1024n"),
            (".000000000001Ki", "2n"),
            ("100.035Ki", "102435840m"),
            ("1e3", "1e3"),
            ("1E4", "10e3"),
            ("12E", "12E"),
            ("512Ki", "512Ki"),
            ("8Ki", "8Ki"),
            ("9223372036854775807Ki", "9223372036854775807"),
            ("1.", "1."),
            (".", "0"),
            ("3.001n", "4n"),
        ];
        for (text, expected) in table {
            let written = Quantity::parse(text).map(|found| found.to_string());
            assert_eq!(written, Ok(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn refuses_what_kubernetes_refuses() {
        for (text, expected) in [
            ("", WRONG_FORMAT),
            ("ten", WRONG_FORMAT),
            ("1Gib", WRONG_FORMAT),
            ("1 Gi", WRONG_FORMAT),
            ("1.2.3", WRONG_FORMAT),
            ("1K", WRONG_SUFFIX),
            ("1GiB", WRONG_FORMAT),
            ("1KK", WRONG_SUFFIX),
            ("1e99999999", WRONG_SUFFIX),
        ] {
            assert_eq!(Quantity::parse(text), Err(expected.into()), "{text}");
        }
    }

    #[test]
    fn gives_whole_numbers_rounded_away_from_zero() {
        for (text, expected) in [
            ("50Mi", 52_428_800),
            ("1G", 1_000_000_000),
            ("-1", -1),
            ("1m", 1),
            ("-1500m", -2),
            ("8k", 8000),
            ("1e300", i64::MAX),
            ("-1e300", i64::MIN),
        ] {
            assert_eq!(
                Quantity::parse(text).map(|found| found.value()),
                Ok(expected),
                "{text}"
            );
        }
        for (text, expected) in [("250m", 250), ("2", 2000), ("0.0001", 1), ("-1", -1000)] {
            let found = Quantity::parse(text).map(|found| found.thousandths());
            assert_eq!(found, Ok(expected), "{text}");
        }
    }
}
