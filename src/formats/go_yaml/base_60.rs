//! Numbers of YAML 1.1 with base 60.
//!
//! yaml.v2 and yaml.v3 read them as text, and quote them for readers of YAML 1.1.

/// Returns true for `12:30:45` and the like, with an optional sign and fraction.
pub fn is_base_60(text: &str) -> bool {
    let body = text.strip_prefix(['+', '-']).unwrap_or(text);
    let mut parts = body.split(':');
    let first = parts.next().unwrap_or_default();
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    if !first.starts_with(|c: char| c.is_ascii_digit()) || !digits(first) {
        return false;
    }
    let rest: Vec<&str> = parts.collect();
    let Some((last, middle)) = rest.split_last() else {
        return false;
    };
    let (last, fraction) = last.split_once('.').unwrap_or((last, ""));
    let sixty = |part: &str| matches!(part.as_bytes(), [b'0'..=b'9'] | [b'0'..=b'5', b'0'..=b'9']);
    middle.iter().all(|part| sixty(part)) && sixty(last) && digits(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_day_are_numbers_to_older_readers() {
        for text in ["12:30:45", "1:20", "-1:2.5", "1_0:00"] {
            assert!(is_base_60(text), "{text}");
        }
        for text in ["12", "12:60", "1:", ":1", "a:10", "1:2:", "12:30:045"] {
            assert!(!is_base_60(text), "{text}");
        }
    }
}
