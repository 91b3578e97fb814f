//! YAML as `oc` reads and writes it, converted to JSON values.
//!
//! Kubernetes tools parse YAML by Go's YAML 1.1 rules: `0644` is octal, `yes` is a boolean. A YAML 1.2 parser would read the
//! mode 0644 as decimal 644, so plain scalars are resolved here, from the events of a YAML parser.

use std::collections::BTreeMap;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput};
use serde_json::{Map, Number, Value};

use super::finding::{Finding, IF_CUT_SHORT};

/// The reason why a YAML text could not be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct YamlError {
    /// Line, from 1.
    pub line: usize,
    /// The defect and the advice.
    pub message: String,
}

/// Maximum nesting depth of a MachineConfig.
const MAX_DEPTH: usize = 64;

/// Line breaks in YAML 1.1, which Go uses for reading and writing, but ordinary characters in YAML 1.2.
const DISPUTED: [char; 3] = ['\u{85}', '\u{2028}', '\u{2029}'];

/// Parses one YAML document.
///
/// # Errors
/// The text is not YAML, has a value that JSON does not have, or is ambiguous between YAML versions.
pub fn parse_yaml(text: &str) -> Result<Value, YamlError> {
    refuse_disputed(text)?;
    Reader::new(text).read_document()
}

/// Parses every YAML document in a text; each has the line of its first value, counted from 1. Documents without a value are
/// left out.
///
/// # Errors
/// As for [`parse_yaml`], for the first invalid document.
pub fn parse_all(text: &str) -> Result<Vec<(usize, Value)>, YamlError> {
    refuse_disputed(text)?;
    let mut reader = Reader::new(text);
    let mut documents = Vec::new();
    while let Some((line, value)) = reader.read_next_document()? {
        if !value.is_null() {
            documents.push((line, value));
        }
    }
    Ok(documents)
}

fn refuse_disputed(text: &str) -> Result<(), YamlError> {
    let Some(at) = text.find(DISPUTED) else {
        return Ok(());
    };
    let before = text.get(..at).unwrap_or_default();
    Err(YamlError {
        line: 1 + before.matches('\n').count(),
        message: "a Unicode line separator, which not every reader treats as one; give JSON instead (`oc get -o json`)".to_owned(),
    })
}

struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    line: usize,
    /// The number of the last line.
    last: usize,
    /// Keys and indexes of the value that is being read.
    trail: Vec<String>,
    /// The paths whose lines are wanted, with the lines found so far.
    wanted: BTreeMap<Vec<String>, Option<usize>>,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str) -> Self {
        let parser = Parser::new_from_str(text);
        Self {
            parser,
            line: 1,
            last: text.lines().count(),
            trail: Vec::new(),
            wanted: BTreeMap::new(),
        }
    }

    fn read_document(&mut self) -> Result<Value, YamlError> {
        let Some((_, mut value)) = self.read_next_document()? else {
            return Err(self.error_here("the document is empty"));
        };
        while let Some(first) = self.read_start()? {
            let line = self.line;
            let next = self.read_value(first)?;
            // A document without a value, such as after a trailing `---`, does not count.
            if value.is_null() {
                value = next;
            } else if !next.is_null() {
                self.line = line;
                return Err(
                    self.error_here("more than one YAML document; give one config at a time")
                );
            }
        }
        Ok(value)
    }

    /// Reads the next document and the line of its first value; `None` at the end of the text.
    fn read_next_document(&mut self) -> Result<Option<(usize, Value)>, YamlError> {
        let Some(first) = self.read_start()? else {
            return Ok(None);
        };
        let line = self.line;
        Ok(Some((line, self.read_value(first)?)))
    }

    /// Advances to the first event of the next document's value.
    fn read_start(&mut self) -> Result<Option<Event<'a>>, YamlError> {
        loop {
            match self.next_event()? {
                Event::DocumentStart(_) => return self.next_event().map(Some),
                Event::StreamEnd => return Ok(None),
                _ => {}
            }
        }
    }

    fn next_event(&mut self) -> Result<Event<'a>, YamlError> {
        let next: Option<Result<(Event<'a>, Span), ScanError>> = self.parser.next_event();
        match next {
            Some(Ok((event, span))) => {
                self.line = span.start.line();
                Ok(event)
            }
            Some(Err(error)) => Err(self.syntax_error(error.marker().line(), error.info())),
            None => Ok(Event::StreamEnd),
        }
    }

    fn read_value(&mut self, event: Event<'a>) -> Result<Value, YamlError> {
        if let Some(line) = self.wanted.get_mut(&self.trail) {
            line.get_or_insert(self.line);
        }
        if self.trail.len() > MAX_DEPTH {
            return Err(self.error_here("nested too deeply"));
        }
        match event {
            Event::Scalar(text, style, _, tag) => {
                let forced = tag.map(|tag| tag.suffix.clone());
                self.read_scalar(&text, style, forced.as_deref())
            }
            Event::SequenceStart(_, Some(tag)) | Event::MappingStart(_, Some(tag)) => {
                Err(self.tag_error(&tag.suffix))
            }
            Event::SequenceStart(..) => self.read_sequence(),
            Event::MappingStart(..) => self.read_mapping(),
            Event::Alias(_) => {
                Err(self.error_here("YAML aliases are not supported; write the value out"))
            }
            other => Err(self.error_here(&format!("unexpected {other:?}"))),
        }
    }

    fn read_sequence(&mut self) -> Result<Value, YamlError> {
        let mut items = Vec::new();
        loop {
            match self.next_event()? {
                Event::SequenceEnd => return Ok(Value::Array(items)),
                event => {
                    self.trail.push(items.len().to_string());
                    items.push(self.read_value(event)?);
                    self.trail.pop();
                }
            }
        }
    }

    fn read_mapping(&mut self) -> Result<Value, YamlError> {
        let mut map = Map::new();
        loop {
            let key = match self.next_event()? {
                Event::MappingEnd => return Ok(Value::Object(map)),
                Event::Scalar(text, ..) => text.into_owned(),
                _ => return Err(self.error_here("only plain text can be a key")),
            };
            let line = self.line;
            let event = self.next_event()?;
            self.trail.push(key.clone());
            let value = self.read_value(event)?;
            self.trail.pop();
            if map.insert(key.clone(), value).is_some() {
                return Err(YamlError {
                    line,
                    message: format!("key {key:?} is given twice in one mapping"),
                });
            }
        }
    }

    fn read_scalar(
        &self,
        text: &str,
        style: ScalarStyle,
        tag: Option<&str>,
    ) -> Result<Value, YamlError> {
        match tag {
            Some("str") => Ok(text.into()),
            Some(other) => Err(self.tag_error(other)),
            None if style == ScalarStyle::Plain => Ok(resolve_scalar(text)),
            None => Ok(text.into()),
        }
    }

    /// Returns the error of the parser; at the end of a longer text, the rest is probably missing.
    fn syntax_error(&self, line: usize, reason: &str) -> YamlError {
        let beyond = line > self.last || self.last > 1 && line == self.last;
        let at_the_end = beyond || reason.contains("end of stream");
        let message = if at_the_end {
            format!("{reason}; {IF_CUT_SHORT}")
        } else {
            reason.to_owned()
        };
        YamlError { line, message }
    }

    fn tag_error(&self, suffix: &str) -> YamlError {
        self.error_here(&format!(
            "YAML tag {suffix:?} is not supported; write the value without it"
        ))
    }

    fn error_here(&self, message: &str) -> YamlError {
        YamlError {
            line: self.line,
            message: message.to_owned(),
        }
    }
}

/// Returns the value of a plain scalar by the rules of Go's YAML 1.1 parser. Timestamps remain text, in Go too.
fn resolve_scalar(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" | "true" | "True" | "TRUE" => {
            Value::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" | "false" | "False" | "FALSE" => {
            Value::Bool(false)
        }
        _ => parse_integer(text)
            .or_else(|| parse_float(text))
            .map_or_else(|| text.into(), Value::Number),
    }
}

fn parse_integer(text: &str) -> Option<Number> {
    if text.starts_with('_') {
        return None;
    }
    let plain = text.replace('_', "");
    let (negative, digits) = match plain.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, plain.strip_prefix('+').unwrap_or(&plain)),
    };
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let lower = digits.to_ascii_lowercase();
    let magnitude = match lower.as_bytes() {
        [b'0', b'x', ..] => u64::from_str_radix(lower.get(2..)?, 16),
        [b'0', b'b', ..] => u64::from_str_radix(lower.get(2..)?, 2),
        [b'0', b'o', ..] => u64::from_str_radix(lower.get(2..)?, 8),
        [b'0', _, ..] => u64::from_str_radix(lower.get(1..)?, 8),
        _ => lower.parse(),
    }
    .ok()?;
    if negative {
        Some(0i64.checked_sub_unsigned(magnitude)?.into())
    } else {
        Some(magnitude.into())
    }
}

fn parse_float(text: &str) -> Option<Number> {
    let body = text.strip_prefix(['-', '+']).unwrap_or(text);
    let numeric = body.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && body.contains(|c: char| c.is_ascii_digit())
        && body
            .chars()
            .all(|c| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '-' | '+'));
    if !numeric {
        return None;
    }
    Number::from_f64(text.parse().ok()?)
}

/// Adds the line of its value to the path of each finding, such as `spec.config.storage.files[3].mode`, if the text has that
/// value. All are found in one pass, because a document may have thousands of errors.
pub fn add_lines(text: &str, findings: &mut [Finding]) {
    add_lines_of(text, 0, findings);
}

/// Like [`add_lines`], for the document with this index in a text of several; documents without a value are not counted.
pub fn add_lines_of(text: &str, index: usize, findings: &mut [Finding]) {
    let mut reader = Reader::new(text);
    for _ in 0..index {
        while let Ok(Some((_, Value::Null))) = reader.read_next_document() {}
    }
    let trails = findings
        .iter()
        .map(|finding| (split_path(&finding.path), None));
    reader.wanted = trails.collect();
    // A later syntax error does not matter: the lines may have been found before it.
    while let Ok(Some((_, Value::Null))) = reader.read_next_document() {}
    for finding in findings.iter_mut().filter(|f| !f.path.is_empty()) {
        if let Some(Some(line)) = reader.wanted.get(&split_path(&finding.path)) {
            finding.path = format!("{} (line {line})", finding.path);
        }
    }
}

/// Splits a JSON path into keys and indexes.
fn split_path(path: &str) -> Vec<String> {
    let parts = path.split(['.', '[', ']']);
    parts
        .filter(|part| !part.is_empty())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn a_document_without_a_value_is_none() {
        for text in [
            "a: 1\n---\n",
            "a: 1\n---\n# words\n",
            "---\n---\na: 1\n...\n---\n",
        ] {
            assert_eq!(parse_yaml(text).unwrap(), json!({"a": 1}), "{text:?}");
        }
        let error = parse_yaml("a: 1\n---\n---\nb: 2\n")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("line 4: more than one YAML document"),
            "{error}"
        );
    }

    #[test]
    fn plain_scalars_mean_what_go_makes_of_them() {
        let table = [
            ("0644", json!(420)),
            ("420", json!(420)),
            ("0o644", json!(420)),
            ("0x1F", json!(31)),
            ("-7", json!(-7)),
            ("1_000", json!(1000)),
            ("_0", json!("_0")),
            ("yes", json!(true)),
            ("off", json!(false)),
            ("~", json!(null)),
            ("", json!(null)),
            ("1.5", json!(1.5)),
            ("1e3", json!(1000.0)),
            ("2001-01-01", json!("2001-01-01")),
            ("0888", json!(888.0)),
            ("a: b", json!({"a": "b"})),
            ("'0644'", json!("0644")),
            ("\"yes\"", json!("yes")),
            ("!!str 12", json!("12")),
            ("12:30:45", json!("12:30:45")),
            ("-", json!([null])),
            ("3.5.0", json!("3.5.0")),
        ];
        for (text, wanted) in table {
            assert_eq!(
                parse_yaml(&format!("{text}\n")).unwrap_or(json!(null)),
                wanted,
                "{text:?}"
            );
        }
    }

    #[test]
    fn block_scalars_keep_their_line_ends() {
        let value = parse_yaml("a: |\n  one\n    two\n\nb: |-\n  x\n").unwrap();
        assert_eq!(value, json!({"a": "one\n  two\n", "b": "x"}));
    }

    #[test]
    fn refusals_name_the_line() {
        assert_eq!(parse_yaml("a: 1\nb: 2\na: 3\n").unwrap_err().line, 3);
        assert_eq!(parse_yaml("a: &x 1\nb: *x\n").unwrap_err().line, 2);
        assert!(
            parse_yaml("a: 1\n---\nb: 2\n")
                .unwrap_err()
                .message
                .contains("more than one")
        );
    }

    #[test]
    fn text_that_readers_take_differently_is_refused() {
        for separator in DISPUTED {
            let text = format!("a: 1\nb: 'x{separator}  y'\n");
            assert_eq!(parse_yaml(&text).unwrap_err().line, 2);
            // In escaped form it is unambiguous.
            let escaped = format!("b: \"x\\u{:04x}y\"\n", u32::from(separator));
            assert_eq!(parse_yaml(&escaped).unwrap()["b"], format!("x{separator}y"));
        }
    }

    #[test]
    fn a_json_path_leads_to_its_line() {
        let text = "spec:\n  list:\n  - name: a\n    mode: 1\n  - name: b\n    mode: 2\n";
        let paths = ["spec.list[1].mode", "spec.list[0]", "spec.nothing", ""];
        let mut findings = paths.map(|path| Finding::error(path, ""));
        add_lines(text, &mut findings);
        let wanted = [
            "spec.list[1].mode (line 6)",
            "spec.list[0] (line 3)",
            "spec.nothing",
            "",
        ];
        assert_eq!(findings.map(|finding| finding.path), wanted);
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "\\PC{0,60}") {
            let _ = parse_yaml(&text);
            add_lines(&text, &mut [Finding::error("a.b[0]", "")]);
        }
    }
}
