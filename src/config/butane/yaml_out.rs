//! The output as YAML, as Go's yaml.v3 writes it.

use std::cmp::Ordering;

use serde_json::{Number, Value};

use super::scalar::needs_quotes;
use crate::base::order::StableOrder;

/// Blanks of a level.
const STEP: usize = 2;
/// Longer keys (in bytes) are written after a question mark.
const LONGEST_KEY: usize = 128;

/// Returns a value as YAML: keys sorted, dashes indented, no folded lines, no trailing newline.
pub(super) fn to_yaml(value: &Value) -> String {
    let mut out = String::new();
    write_value(&mut out, value, 0);
    out.trim_matches('\n').to_owned()
}

/// Writes a value that begins on its own line, or after `- `.
fn write_value(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(entries) if !entries.is_empty() => {
            let mut keys: Vec<&String> = entries.keys().collect();
            keys.order_by(|a, b| compare_keys(a, b));
            for (index, key) in keys.into_iter().enumerate() {
                if index > 0 {
                    push_indent(out, indent);
                }
                write_key(out, key, indent);
                write_after_key(out, entries.get(key).unwrap_or(&Value::Null), indent);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    push_indent(out, indent);
                }
                out.push_str("- ");
                write_value(out, item, indent + STEP);
            }
        }
        scalar => {
            write_scalar(out, scalar, indent);
            out.push('\n');
        }
    }
}

fn write_key(out: &mut String, key: &str, indent: usize) {
    let is_simple = key.len() <= LONGEST_KEY && !key.contains(['\n', '\r']);
    let written = match (Style::for_text(key), is_simple) {
        (Style::Block, _) | (_, false) if key.contains('\n') => double_quoted(key),
        (Style::Plain, _) => key.to_owned(),
        (Style::Single, _) => single_quoted(key),
        (Style::Double | Style::Block, _) => double_quoted(key),
    };
    if is_simple {
        out.push_str(&written);
    } else {
        out.push_str("? ");
        out.push_str(&written);
        out.push('\n');
        push_indent(out, indent);
    }
    out.push(':');
}

fn write_after_key(out: &mut String, value: &Value, indent: usize) {
    let is_block = match value {
        Value::Object(entries) => !entries.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    };
    if is_block {
        out.push('\n');
        push_indent(out, indent + STEP);
    } else {
        out.push(' ');
    }
    if is_block {
        write_value(out, value, indent + STEP);
    } else {
        write_scalar(out, value, indent + STEP);
        out.push('\n');
    }
}

fn push_indent(out: &mut String, indent: usize) {
    out.extend(std::iter::repeat_n(' ', indent));
}

fn write_scalar(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::String(text) => match Style::for_text(text) {
            Style::Plain => out.push_str(text),
            Style::Single => out.push_str(&single_quoted(text)),
            Style::Double => out.push_str(&double_quoted(text)),
            Style::Block => write_block(out, text, indent),
        },
        Value::Number(number) => out.push_str(&float_text(number)),
        Value::Object(_) => out.push_str("{}"),
        Value::Array(_) => out.push_str("[]"),
        other => out.push_str(&other.to_string()),
    }
}

/// Formats a number, which passes through Go's `float64`: from a million on it has an exponent.
fn float_text(number: &Number) -> String {
    let Some(whole) = number.as_i64() else {
        return number.to_string();
    };
    if whole.unsigned_abs() < 1_000_000 {
        return whole.to_string();
    }
    #[allow(clippy::cast_precision_loss, reason = "the loss is Butane's own")]
    let text = format!("{:e}", whole as f64);
    match text.split_once('e') {
        Some((mantissa, exponent)) => format!("{mantissa}e+{exponent:0>2}"),
        None => text,
    }
}

/// The style in which a text is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    Plain,
    Single,
    Double,
    Block,
}

impl Style {
    /// Returns the style that yaml.v3 selects.
    fn for_text(text: &str) -> Self {
        let facts = Facts::from_text(text);
        if text.contains('\n') {
            return if facts.block_allowed {
                Self::Block
            } else {
                Self::Double
            };
        }
        if needs_quotes(text) {
            return Self::Double;
        }
        match (facts.plain_allowed, facts.single_allowed) {
            (true, _) => Self::Plain,
            (false, true) => Self::Single,
            (false, false) => Self::Double,
        }
    }
}

/// The styles that the characters of a text allow.
struct Facts {
    plain_allowed: bool,
    single_allowed: bool,
    block_allowed: bool,
}

impl Facts {
    fn from_text(text: &str) -> Self {
        let mut facts = Self {
            plain_allowed: !has_indicators(text),
            single_allowed: true,
            block_allowed: true,
        };
        let edge = |c: Option<char>| c.is_some_and(|c| c == ' ' || is_break(c));
        if edge(text.chars().next()) || edge(text.chars().next_back()) {
            facts.plain_allowed = false;
        }
        if text.ends_with(' ') {
            facts.block_allowed = false;
        }
        let (mut after_space, mut after_break) = (false, false);
        for c in text.chars() {
            let special = c != '\t' && !is_printable(c);
            if special || c == '\t' {
                facts.plain_allowed = false;
                facts.single_allowed = false;
            }
            if is_break(c) {
                facts.plain_allowed = false;
            }
            if c == ' ' && after_break || is_break(c) && after_space {
                facts.plain_allowed = false;
                facts.single_allowed = false;
            }
            if special || is_break(c) && after_space {
                facts.block_allowed = false;
            }
            after_space = c == ' ';
            after_break = is_break(c);
        }
        facts
    }
}

/// Returns true if any character of a text would have a meaning outside of quotes.
fn has_indicators(text: &str) -> bool {
    let mut before: Option<char> = None;
    let mut rest = text.chars().peekable();
    let blank = |c: Option<char>| c.is_none_or(|c| matches!(c, ' ' | '\t' | '\0') || is_break(c));
    while let Some(c) = rest.next() {
        let blank_after = match rest.peek() {
            None => true,
            Some(next) => matches!(next, ' ' | '\t'),
        };
        let found = match c {
            '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%'
            | '@' | '`'
                if before.is_none() =>
            {
                true
            }
            '?' | '-' if before.is_none() => blank_after,
            ':' => blank_after,
            '#' => blank(before),
            _ => false,
        };
        if found {
            return true;
        }
        before = Some(c);
    }
    false
}

fn is_break(c: char) -> bool {
    matches!(c, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}')
        && c != '\u{feff}'
}

fn single_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn double_quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\0' => out.push_str("\\0"),
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\x0b' => out.push_str("\\v"),
            '\x0c' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            '\x1b' => out.push_str("\\e"),
            '\u{85}' => out.push_str("\\N"),
            '\u{2028}' => out.push_str("\\L"),
            '\u{2029}' => out.push_str("\\P"),
            c if is_printable(c) => out.push(c),
            c => match u32::from(c) {
                code @ 0..=0xff => out.push_str(&format!("\\x{code:02X}")),
                code @ 0x100..=0xffff => out.push_str(&format!("\\u{code:04X}")),
                code => out.push_str(&format!("\\U{code:08X}")),
            },
        }
    }
    out.push('"');
    out
}

/// Writes a multi-line text, without its trailing newline.
fn write_block(out: &mut String, text: &str, indent: usize) {
    out.push('|');
    if text.starts_with(|c| c == ' ' || is_break(c)) {
        out.push_str(&STEP.to_string());
    }
    let mut end = text.chars().rev();
    match (end.next(), end.next()) {
        (Some(last), _) if !is_break(last) => out.push('-'),
        (Some(_), None) => out.push('+'),
        (Some(_), Some(second)) if is_break(second) => out.push('+'),
        _ => {}
    }
    out.push('\n');
    let mut begins = true;
    for c in text.chars() {
        if !is_break(c) && begins {
            push_indent(out, indent);
        }
        out.push(c);
        begins = is_break(c);
    }
    if begins {
        out.pop();
    }
}

/// Compares keys in yaml.v3's order: numbers in them by value.
fn compare_keys(a: &str, b: &str) -> Ordering {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut after_digit = false;
    for (index, (x, y)) in a.iter().zip(&b).enumerate() {
        if x == y {
            after_digit = x.is_numeric();
            continue;
        }
        return match (x.is_alphabetic(), y.is_alphabetic()) {
            (true, true) => x.cmp(y),
            (x_letter, y_letter) if x_letter || y_letter => {
                let first = if after_digit { x_letter } else { y_letter };
                if first {
                    Ordering::Less
                } else {
                    Ordering::Greater
                }
            }
            _ => compare_numbers(&a, &b, index),
        };
    }
    a.len().cmp(&b.len())
}

/// Compares two keys at their first difference, where neither has a letter.
fn compare_numbers(a: &[char], b: &[char], index: usize) -> Ordering {
    let at = |key: &[char]| key.get(index).copied().unwrap_or_default();
    let mut start: u64 = 0;
    if at(a) == '0' || at(b) == '0' {
        let before = a.get(..index).unwrap_or_default().iter().rev();
        let mut digits = before.take_while(|c| c.is_ascii_digit());
        start = u64::from(digits.any(|c| *c != '0'));
    }
    let number = |key: &[char]| {
        let rest = key.get(index..).unwrap_or_default();
        let digits = rest.iter().take_while(|c| c.is_ascii_digit());
        digits.fold((start, 0usize), |(number, count), c| {
            let digit = u64::from(c.to_digit(10).unwrap_or_default());
            (number.wrapping_mul(10).wrapping_add(digit), count + 1)
        })
    };
    let ((x, x_end), (y, y_end)) = (number(a), number(b));
    x.cmp(&y).then(x_end.cmp(&y_end)).then(at(a).cmp(&at(b)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn texts_are_quoted_as_yaml_v3_does() {
        let table = [
            ("plain", "plain"),
            ("", "\"\""),
            ("yes", "\"yes\""),
            ("12:30:45", "\"12:30:45\""),
            ("0644", "\"0644\""),
            ("a: b", "'a: b'"),
            ("it's", "it's"),
            ("'quoted'", "'''quoted'''"),
            (" lead", "' lead'"),
            ("x #y", "'x #y'"),
            ("x#y", "x#y"),
            ("%x", "'%x'"),
            ("- a", "'- a'"),
            ("-a", "-a"),
            ("a\tb", "\"a\\tb\""),
            ("grün", "grün"),
            ("\u{1f600}", "\"\\U0001F600\""),
            ("a\u{85}b", "\"a\\Nb\""),
            ("a\rb", "\"a\\rb\""),
            ("data:,a%20b", "data:,a%20b"),
        ];
        for (text, wanted) in table {
            assert_eq!(to_yaml(&json!(text)), wanted, "{text:?}");
        }
    }

    #[test]
    fn texts_of_several_lines_are_blocks() {
        let table = [
            ("a\nb\n", "k: |\n  a\n  b"),
            ("a\n\nb", "k: |-\n  a\n\n  b"),
            ("a\n\n", "k: |+\n  a\n\nl: 1"),
            ("  a\nb\n", "k: |2\n    a\n  b"),
            ("\na\n", "k: |2\n\n  a"),
            ("a \nb\n", "k: \"a \\nb\\n\""),
            ("a\tb\n", "k: |\n  a\tb"),
            ("a\n ", "k: \"a\\n \""),
        ];
        for (text, wanted) in table {
            let value = if wanted.contains("l: 1") {
                json!({"k": text, "l": 1})
            } else {
                json!({"k": text})
            };
            assert_eq!(to_yaml(&value), wanted, "{text:?}");
        }
    }

    #[test]
    fn large_numbers_have_the_exponent_that_butane_gives_them() {
        let value = json!([420, 999_999, 1_000_000, 1_234_567, 1_000_650_000]);
        let wanted = "- 420\n- 999999\n- 1e+06\n- 1.234567e+06\n- 1.00065e+09";
        assert_eq!(to_yaml(&value), wanted);
    }

    #[test]
    fn keys_are_sorted_with_their_numbers() {
        let value = json!({"a10": 1, "a2": 1, "a-b": 1, "ab": 1, "B": 1, "a/b": 1, "a": 1});
        let wanted = "B: 1\na: 1\na-b: 1\na/b: 1\na2: 1\na10: 1\nab: 1";
        assert_eq!(to_yaml(&value), wanted);
    }
}
