//! JSON values as Go's yaml.v2 v2.4.0 writes them. The name of a rendered config is a digest of this text, so every blank
//! counts, while readability does not.
//!
//! Only block style, two blanks per level, lists at the level of their key, keys in natural order, text folded beyond column 80
//! (docs/develop/agreement.md: Rendering).

mod base_60;
mod node;
mod resolve;

use std::cmp::Ordering;

use serde_json::Number;

pub use base_60::is_base_60;
pub use node::YamlNode;

use crate::base::text::is_invisible;
use resolve::is_text;

/// Text is folded at the first single blank after this column.
const BEST_WIDTH: usize = 80;
/// Blanks per level.
const STEP: usize = 2;
/// Keys longer than this many bytes are written after a question mark.
const LONGEST_KEY: usize = 128;

/// Number of bytes of the document that are collected before they are passed on.
const PIECE: usize = 16 << 10;

/// Writes an object with these entries as a YAML document, piece by piece: like Go does with the object's JSON, which it first
/// parses as YAML.
pub fn write_yaml<'n, 't: 'n>(
    entries: impl Iterator<Item = (&'n str, &'n YamlNode<'t>)>,
    sink: &mut dyn FnMut(&str),
) {
    let mut writer = Writer::new(sink, is_printable);
    writer.folds = true;
    writer.write_mapping(entries);
    writer.end();
}

/// Writes the same document for display: characters that hide or reverse text are escaped, and the parsed value is the same.
pub fn write_shown_yaml<'n, 't: 'n>(
    entries: impl Iterator<Item = (&'n str, &'n YamlNode<'t>)>,
    sink: &mut dyn FnMut(&str),
) {
    let mut writer = Writer::new(sink, |c| is_printable(c) && !is_invisible(c));
    writer.write_mapping(entries);
    writer.end();
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScalarStyle {
    Plain,
    Single,
    Double,
    Literal,
}

/// The state of yaml.v2's emitter, under its own names.
struct Writer<'s> {
    /// Text that has not been passed on yet.
    out: String,
    sink: &'s mut dyn FnMut(&str),
    /// Returns true for characters that are written as they are.
    printable: fn(char) -> bool,
    /// Inside quotes, line breaks that YAML recognizes and JSON does not are folded.
    folds: bool,
    /// Characters in the current line.
    column: usize,
    /// True if the last character was a blank (or if there was none).
    whitespace: bool,
    /// True if the line contains only indentation, dashes and question marks.
    indention: bool,
    /// Indentation of the current block; `None` outside the first one.
    indent: Option<usize>,
}

impl<'s> Writer<'s> {
    fn new(sink: &'s mut dyn FnMut(&str), printable: fn(char) -> bool) -> Self {
        Self {
            out: String::new(),
            sink,
            printable,
            folds: false,
            column: 0,
            whitespace: true,
            indention: true,
            indent: None,
        }
    }

    fn end(mut self) {
        self.new_line();
        self.hand_on();
    }

    fn write_node(&mut self, value: &YamlNode<'_>, in_mapping: bool) {
        if self.out.len() > PIECE {
            self.hand_on();
        }
        match value {
            YamlNode::Null => self.write_plain("null"),
            YamlNode::Bool(value) => self.write_plain(&value.to_string()),
            YamlNode::Number(number) => self.write_plain(&number_text(number)),
            YamlNode::Text(text) => self.write_text(text, false),
            YamlNode::List(items) => self.write_sequence(items, in_mapping),
            YamlNode::Object(entries) => {
                self.write_mapping(entries.iter().map(|(key, value)| (&**key, value)));
            }
        }
    }

    fn hand_on(&mut self) {
        (self.sink)(&self.out);
        self.out.clear();
    }

    fn write_sequence(&mut self, items: &[YamlNode<'_>], in_mapping: bool) {
        if items.is_empty() {
            return self.write_indicator("[]", true, false);
        }
        let outer = self.indent;
        // Below a key, the list starts in the column of the key.
        if !(in_mapping && !self.indention && outer.is_some()) {
            self.indent = Some(outer.map_or(0, |indent| indent + STEP));
        }
        for item in items {
            self.new_line();
            self.write_indicator("-", true, true);
            self.write_node(item, false);
        }
        self.indent = outer;
    }

    fn write_mapping<'n, 't: 'n>(
        &mut self,
        entries: impl Iterator<Item = (&'n str, &'n YamlNode<'t>)>,
    ) {
        let entries = in_natural_order(entries);
        if entries.is_empty() {
            return self.write_indicator("{}", true, false);
        }
        let outer = self.indent;
        self.indent = Some(outer.map_or(0, |indent| indent + STEP));
        for (key, value) in entries {
            self.new_line();
            self.write_key(key);
            self.write_node(value, true);
        }
        self.indent = outer;
    }

    fn write_key(&mut self, key: &str) {
        if key.len() <= LONGEST_KEY && !key.contains(is_break) {
            self.write_text(key, true);
            self.write_indicator(":", false, false);
            return;
        }
        self.write_indicator("?", true, true);
        self.write_text(key, false);
        self.new_line();
        self.write_indicator(":", true, true);
    }

    fn write_plain(&mut self, text: &str) {
        self.write_scalar(text, ScalarStyle::Plain, false);
    }

    fn write_text(&mut self, text: &str, is_key: bool) {
        if self.folds && text.contains(NEXT_LINE) {
            return self.write_scalar_text(&fold_breaks(text), is_key);
        }
        self.write_scalar_text(text, is_key);
    }

    fn write_scalar_text(&mut self, text: &str, is_key: bool) {
        if is_one_word(text) && is_text(text) {
            return self.write_word(text);
        }
        let wanted = if text.contains('\n') {
            ScalarStyle::Literal
        } else if is_text(text) {
            ScalarStyle::Plain
        } else {
            ScalarStyle::Double
        };
        self.write_scalar(
            text,
            allowed_style(text, wanted, is_key, self.printable),
            is_key,
        );
    }

    /// Writes plain text without blanks, unchanged, which is nearly everything in a config.
    fn write_word(&mut self, text: &str) {
        if !self.whitespace {
            self.put_char(' ');
        }
        if text.len() > PIECE {
            self.hand_on();
            (self.sink)(text);
        } else {
            self.out.push_str(text);
        }
        self.column += text.len();
        self.whitespace = false;
        self.indention = false;
    }

    fn write_scalar(&mut self, text: &str, style: ScalarStyle, is_key: bool) {
        let outer = self.indent;
        self.indent = Some(outer.map_or(STEP, |indent| indent + STEP));
        let chars = || text.chars().collect::<Vec<char>>();
        match style {
            ScalarStyle::Plain => self.plain_text(&chars(), !is_key),
            ScalarStyle::Single => self.single_quoted(&chars(), !is_key),
            ScalarStyle::Double => self.double_quoted(&chars(), !is_key),
            ScalarStyle::Literal => self.write_literal(text),
        }
        self.indent = outer;
    }

    fn plain_text(&mut self, chars: &[char], may_fold: bool) {
        if !self.whitespace {
            self.put_char(' ');
        }
        let mut spaces = false;
        for (i, &c) in chars.iter().enumerate() {
            let single = !spaces && chars.get(i + 1) != Some(&' ');
            if c == ' ' && may_fold && single && self.column > BEST_WIDTH {
                self.new_line();
            } else {
                self.put_char(c);
            }
            if c != ' ' {
                self.indention = false;
            }
            spaces = c == ' ';
        }
        self.whitespace = false;
        self.indention = false;
    }

    fn single_quoted(&mut self, chars: &[char], may_fold: bool) {
        self.write_indicator("'", true, false);
        let (mut spaces, mut breaks) = (false, false);
        for (i, &c) in chars.iter().enumerate() {
            let next = chars.get(i + 1);
            let inside = i > 0 && next.is_some_and(|next| *next != ' ');
            if c == ' ' {
                if may_fold && !spaces && inside && self.column > BEST_WIDTH {
                    self.new_line();
                } else {
                    self.put_char(c);
                }
                spaces = true;
            } else if is_break(c) {
                self.put_break(c);
                self.indention = true;
                breaks = true;
            } else {
                if breaks {
                    self.new_line();
                }
                if c == '\'' {
                    self.put_char('\'');
                }
                self.put_char(c);
                self.indention = false;
                (spaces, breaks) = (false, false);
            }
        }
        self.write_indicator("'", false, false);
    }

    fn double_quoted(&mut self, chars: &[char], may_fold: bool) {
        self.write_indicator("\"", true, false);
        // yaml.v2 takes every character of such a text for the byte order mark at its beginning.
        let is_marked = chars.first() == Some(&BYTE_ORDER_MARK);
        let mut spaces = false;
        for (i, &c) in chars.iter().enumerate() {
            let next = chars.get(i + 1);
            if is_marked {
                self.put_escape(c);
            } else if c != ' ' {
                self.put_escaped(c);
            } else if may_fold && !spaces && self.column > BEST_WIDTH && i > 0 && next.is_some() {
                self.new_line();
                if next == Some(&' ') {
                    self.put_char('\\');
                }
            } else {
                self.put_char(c);
            }
            spaces = c == ' ';
        }
        self.write_indicator("\"", false, false);
    }

    fn write_literal(&mut self, text: &str) {
        self.write_indicator(&format!("|{}", block_hints(text)), true, false);
        self.put_break('\n');
        self.indention = true;
        self.whitespace = true;
        let mut breaks = true;
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            if is_break(first) {
                self.put_break(first);
                self.indention = true;
                breaks = true;
                rest = rest.strip_prefix(first).unwrap_or_default();
                continue;
            }
            if breaks {
                self.new_line();
            }
            let (line, behind) = rest.split_at(rest.find(is_break).unwrap_or(rest.len()));
            self.out.push_str(line);
            self.column += line.chars().count();
            self.indention = false;
            breaks = false;
            rest = behind;
        }
    }

    /// Starts a new line, unless this one contains only indentation, and indents it.
    fn new_line(&mut self) {
        let indent = self.indent.unwrap_or(0);
        let full = self.column > indent || self.column == indent && !self.whitespace;
        if !self.indention || full {
            self.put_break('\n');
        }
        while self.column < indent {
            self.put_char(' ');
        }
        self.whitespace = true;
        self.indention = true;
    }

    fn write_indicator(&mut self, text: &str, after_blank: bool, keeps_indention: bool) {
        if after_blank && !self.whitespace {
            self.put_char(' ');
        }
        text.chars().for_each(|c| self.put_char(c));
        self.whitespace = false;
        self.indention &= keeps_indention;
    }

    fn put_char(&mut self, c: char) {
        self.out.push(c);
        self.column += 1;
    }

    fn put_break(&mut self, c: char) {
        self.out.push(c);
        self.column = 0;
    }

    /// Writes a character inside double quotes, escaped if necessary.
    fn put_escaped(&mut self, c: char) {
        if (self.printable)(c) && !is_break(c) && !matches!(c, '"' | '\\') {
            self.put_char(c)
        } else {
            self.put_escape(c)
        }
    }

    fn put_escape(&mut self, c: char) {
        let short = match c {
            '\0' => '0',
            '\x07' => 'a',
            '\x08' => 'b',
            '\t' => 't',
            '\n' => 'n',
            '\x0b' => 'v',
            '\x0c' => 'f',
            '\r' => 'r',
            '\x1b' => 'e',
            '"' | '\\' => c,
            NEXT_LINE => 'N',
            '\u{2028}' => 'L',
            '\u{2029}' => 'P',
            _ => return self.put_number(u32::from(c)),
        };
        self.put_char('\\');
        self.put_char(short);
    }

    fn put_number(&mut self, code: u32) {
        let escape = match code {
            0..=0xff => format!("\\x{code:02X}"),
            0x100..=0xffff => format!("\\u{code:04X}"),
            _ => format!("\\U{code:08X}"),
        };
        escape.chars().for_each(|c| self.put_char(c));
    }
}

/// U+0085, which is a line break in YAML.
const NEXT_LINE: char = '\u{85}';
/// U+FEFF, which some editors insert before a text.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Folds line breaks that only YAML recognizes: a single one becomes a blank, of several all but one remain as line feeds, and
/// adjacent blanks are removed.
fn fold_breaks(text: &str) -> String {
    let mut out = String::new();
    let mut ends = 0;
    for (i, line) in text.split(NEXT_LINE).enumerate() {
        let is_first = i == 0;
        let begin = if is_first {
            line
        } else {
            line.trim_start_matches([' ', '\t'])
        };
        if !is_first {
            out.truncate(out.trim_end_matches([' ', '\t']).len());
            ends += 1;
        }
        if begin.is_empty() && !is_first {
            continue;
        }
        push_ends(&mut out, ends);
        ends = 0;
        out.push_str(begin);
    }
    push_ends(&mut out, ends);
    out
}

fn push_ends(out: &mut String, ends: usize) {
    match ends {
        0 => {}
        1 => out.push(' '),
        more => (1..more).for_each(|_| out.push('\n')),
    }
}

/// Returns true if the text has only ASCII letters and symbols, no blanks, and needs no quotes because of them.
fn is_one_word(text: &str) -> bool {
    let opens = |c: char| "-?:#,[]{}&*!|>'\"%@`.".contains(c);
    !text.is_empty()
        && !text.ends_with(':')
        && !text.starts_with(opens)
        && is_graphic(text.as_bytes())
}

/// Returns true if all bytes are ASCII letters and symbols. Checks eight at once, because this runs for every byte of a config.
fn is_graphic(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<8>();
    words
        .iter()
        .all(|word| are_graphic(u64::from_ne_bytes(*word)))
        && rest.iter().all(u8::is_ascii_graphic)
}

/// Returns true if each of the eight bytes is in `!`..=`~`.
fn are_graphic(word: u64) -> bool {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH: u64 = ONES * 0x80;
    // Without the highest bit, no byte carries into the next one: the sums have it set where a byte is at least `!`, and where
    // it is above `~`.
    let low = word & !HIGH;
    let from_first = low + ONES * (0x80 - b'!' as u64);
    let above_last = low + ONES * (0x7f - b'~' as u64);
    from_first & !above_last & !word & HIGH == HIGH
}

/// Returns the wanted style, or the next one that can represent the text.
fn allowed_style(
    text: &str,
    wanted: ScalarStyle,
    is_key: bool,
    printable: fn(char) -> bool,
) -> ScalarStyle {
    let multiline = text.contains(is_break);
    let is_special = |c: char| !matches!(c, '\n' | ' '..='~') && !printable(c);
    let special =
        text.contains(is_special) || multiline && is_before(text, |a, b| a == ' ' && is_break(b));
    let unquotable = special || multiline && is_before(text, |a, b| is_break(a) && b == ' ');
    let mut style = wanted;
    if is_key && multiline {
        style = ScalarStyle::Double;
    }
    if style == ScalarStyle::Plain && (special || multiline || needs_quotes(text)) {
        style = ScalarStyle::Single;
    }
    if style == ScalarStyle::Single && unquotable {
        style = ScalarStyle::Double;
    }
    if style == ScalarStyle::Literal && (special || text.ends_with(' ')) {
        style = ScalarStyle::Double;
    }
    style
}

/// Returns true if a character and its neighbor pass the test.
fn is_before(text: &str, test: impl Fn(char, char) -> bool) -> bool {
    text.chars()
        .zip(text.chars().skip(1))
        .any(|(a, b)| test(a, b))
}

/// Returns true if one line of printable text would be parsed as structure or lose its ends.
fn needs_quotes(text: &str) -> bool {
    let blank_or_end = |c: Option<char>| c.is_none_or(|c| c == ' ');
    let mut start = text.chars();
    let first = start.next();
    let opens = match first {
        Some('-' | '?' | ':') => blank_or_end(start.next()),
        Some(c) => "#,[]{}&*!|>'\"%@`".contains(c),
        None => false,
    };
    opens
        || text.starts_with(' ')
        || text.ends_with([' ', ':'])
        || text.starts_with("---")
        || text.starts_with("...")
        || text.contains(": ")
        || text.contains(" #")
}

/// Returns the hints for indentation and line breaks of a literal block that the parser cannot infer.
fn block_hints(text: &str) -> String {
    let leading = text.starts_with(|c| c == ' ' || is_break(c));
    let mut last = text.chars().rev().map(is_break);
    let end = match (last.next(), last.next()) {
        (Some(true), Some(true) | None) => "+",
        (Some(true), Some(false)) => "",
        _ => "-",
    };
    format!("{}{end}", if leading { "2" } else { "" })
}

fn is_break(c: char) -> bool {
    matches!(c, '\r' | '\n' | NEXT_LINE | '\u{2028}' | '\u{2029}')
}

/// Returns true for a printable character; in yaml.v2, everything beyond the basic plane is unprintable.
fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}')
        && c != '\u{feff}'
}

/// Returns the text of a number: integers unchanged, others like Go's `%g` with the shortest digits that parse back.
fn number_text(number: &Number) -> String {
    let float = number.as_f64().filter(|_| number.is_f64());
    let Some(float) = float else {
        return number.to_string();
    };
    let shortest = format!("{float:e}");
    let Some((digits, exponent)) = shortest.split_once('e') else {
        return shortest;
    };
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        _ => float.to_string(),
    }
}

/// Sorts by insertion: the order is yaml.v2's, which may not be total.
fn in_natural_order<'n, 't: 'n>(
    entries: impl Iterator<Item = (&'n str, &'n YamlNode<'t>)>,
) -> Vec<(&'n str, &'n YamlNode<'t>)> {
    let mut sorted: Vec<(&str, &YamlNode<'_>)> = Vec::with_capacity(entries.size_hint().0);
    for (key, value) in entries {
        let at = sorted.partition_point(|(other, _)| compare_natural(other, key) == Ordering::Less);
        sorted.insert(at, (key, value));
    }
    sorted
}

/// Compares keys: numbers inside them by value, other characters before letters.
fn compare_natural(a: &str, b: &str) -> Ordering {
    // Most keys differ in a letter, or one is a prefix of the other.
    match a.bytes().zip(b.bytes()).find(|(a, b)| a != b) {
        None => return a.len().cmp(&b.len()),
        Some((x, y)) if x.is_ascii_alphabetic() && y.is_ascii_alphabetic() => return x.cmp(&y),
        Some(_) => {}
    }
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let differing = a.iter().zip(&b).position(|(a, b)| a != b);
    let Some(at) = differing else {
        return a.len().cmp(&b.len());
    };
    let (equal, rest_a) = a.split_at(at);
    let rest_b = b.get(at..).unwrap_or_default();
    let (Some(&x), Some(&y)) = (rest_a.first(), rest_b.first()) else {
        return Ordering::Equal;
    };
    match (x.is_alphabetic(), y.is_alphabetic()) {
        (true, true) => x.cmp(&y),
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
        (false, false) => {
            let start = i64::from((x == '0' || y == '0') && ends_in_number(equal));
            (leading_number(rest_a, start), x).cmp(&(leading_number(rest_b, start), y))
        }
    }
}

/// Returns true if the digits at the end are not all zeros.
fn ends_in_number(chars: &[char]) -> bool {
    let digits = chars.iter().rev().take_while(|c| c.is_ascii_digit());
    digits.into_iter().any(|c| *c != '0')
}

/// Returns the value of the leading digits, added to `start`, and their count.
fn leading_number(chars: &[char], start: i64) -> (i64, usize) {
    let digits = chars.iter().map_while(|c| c.to_digit(10));
    digits.fold((start, 0), |(value, count), digit| {
        // Go lets it overflow, too.
        let value = value.wrapping_mul(10).wrapping_add(i64::from(digit));
        (value, count + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::document::yaml;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn to_string(value: &Value) -> String {
        let mut text = String::new();
        let mut push = |piece: &str| text.push_str(piece);
        let mut writer = Writer::new(&mut push, is_printable);
        writer.write_node(&YamlNode::from(value), false);
        writer.end();
        text
    }

    #[test]
    fn each_byte_counts_wherever_it_is_among_the_eight() {
        for byte in 0..=u8::MAX {
            for at in 0..8 {
                for filling in [b'!', b'~'] {
                    let mut word = [filling; 8];
                    word[at] = byte;
                    let graphic = are_graphic(u64::from_ne_bytes(word));
                    assert_eq!(graphic, byte.is_ascii_graphic(), "{word:x?}");
                }
            }
        }
    }

    #[test]
    fn structure_is_written_as_yaml_v2_does() {
        let value = json!({"b": [1, [2, {"c": []}]], "a": {"y": {}, "x": null}, "": [[]]});
        let wanted = "\"\":\n- []\na:\n  x: null\n  \"y\": {}\nb:\n- 1\n- - 2\n  - c: []\n";
        assert_eq!(to_string(&value), wanted);
        assert_eq!(to_string(&json!("a\nb")), "|-\n  a\n  b\n");
    }

    #[test]
    fn numbers_are_written_as_go_does() {
        let table = [
            ("1e3", "1000"),
            ("1e6", "1e+06"),
            ("1234567.5", "1.2345675e+06"),
            ("0.0001", "0.0001"),
            ("0.00001", "1e-05"),
            ("18446744073709551615", "18446744073709551615"),
            ("-7", "-7"),
        ];
        for (text, wanted) in table {
            let value: Value = serde_json::from_str(text).unwrap();
            assert_eq!(to_string(&value), format!("{wanted}\n"));
        }
    }

    #[test]
    fn keys_stand_in_natural_order() {
        let sorted = [
            "1", "2", "10", "A", "a-b", "a.b", "a_b", "a9", "a10", "aB", "ab",
        ];
        for (a, b) in sorted.iter().zip(sorted.iter().skip(1)) {
            assert_eq!(compare_natural(a, b), Ordering::Less, "{a} {b}");
            assert_eq!(compare_natural(b, a), Ordering::Greater, "{b} {a}");
        }
        assert_eq!(compare_natural("a10", "a1"), Ordering::Greater);
    }

    #[test]
    fn long_keys_stand_after_a_question_mark() {
        let key = "k".repeat(129);
        let written = to_string(&json!({ &key: [1] }));
        assert_eq!(written, format!("? {key}\n: - 1\n"));
    }

    #[test]
    fn what_ends_a_line_for_yaml_alone_is_folded() {
        for (text, folded) in [
            ("one\u{85}two", "one two"),
            ("one \u{85} two", "one two"),
            ("one\u{85}\u{85}two", "one\ntwo"),
            ("one\u{85} \u{85}\t\u{85}two", "one\n\ntwo"),
            ("\u{85}one", " one"),
            ("one\u{85}", "one "),
        ] {
            assert_eq!(fold_breaks(text), folded, "{text:?}");
        }
        let mut text = String::new();
        let node = YamlNode::Text("x\u{85}y".into());
        write_yaml([("a", &node)].into_iter(), &mut |piece| text += piece);
        assert_eq!(text, "a: x y\n");
        assert_eq!(
            to_string(&json!({"a": "\u{feff}[U \"\n"})),
            "a: \"\\uFEFF\\x5B\\x55\\x20\\\"\\n\"\n"
        );
        assert_eq!(to_string(&json!({"a": "x\u{feff}y"})), "a: \"x\\uFEFFy\"\n");
    }

    #[test]
    fn text_is_quoted_where_it_must_be() {
        let table = [
            ("a b", "a b"),
            ("a: b", "'a: b'"),
            ("it's", "it's"),
            ("'", "''''"),
            ("no", "\"no\""),
            ("a\tb", "\"a\\tb\""),
            ("- x", "'- x'"),
            ("-x", "-x"),
            ("x #y", "'x #y'"),
            ("x#y", "x#y"),
            ("\u{1F600}", "\"\\U0001F600\""),
            ("a \nb", "\"a \\nb\""),
        ];
        for (text, wanted) in table {
            assert_eq!(to_string(&json!(text)), format!("{wanted}\n"));
        }
    }

    /// Text without what the parser used here reads differently: line breaks of YAML 1.1 only, and `_0` (a number to it).
    fn text() -> impl Strategy<Value = String> {
        let tricky = "[ab0-9~#:?.'\"\\\\\\-\\t\\n ,é_+x]{0,12}";
        let words = "((one|two|'s|#|-|:) {0,3}){0,40}";
        prop_oneof![tricky, words, "\\PC{0,40}"].prop_filter("read otherwise", |text| {
            !text.contains(['\r', '\u{85}', '\u{2028}', '\u{2029}'])
        })
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            text().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<bool>().prop_map(Value::from),
            Just(Value::Null),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            let map = prop::collection::vec((text(), inner.clone()), 0..6)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect()));
            prop_oneof![
                prop::collection::vec(inner, 0..6).prop_map(Value::from),
                map
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(value in value()) {
            let written = to_string(&value);
            prop_assert_eq!(yaml::parse_yaml(&written).map_err(|e| e.to_string()), Ok(value), "{}", written);
        }

        #[test]
        fn no_text_panics(text in any::<String>(), other in any::<String>()) {
            to_string(&json!({ &text: [&other, {&other: text}] }));
            prop_assert_eq!(compare_natural(&text, &text), Ordering::Equal);
            prop_assert_eq!(compare_natural(&text, &other), compare_natural(&other, &text).reverse());
        }
    }
}
