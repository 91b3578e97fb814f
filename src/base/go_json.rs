//! JSON as Go's `encoding/json` has written it since Go 1.22: the controllers and Butane write documents with it, and documents
//! are compared byte for byte.
//!
//! The caller determines the order of keys.

use serde_json::Value;

/// Blanks of a level.
const STEP: usize = 2;

/// Returns a value on one line, as `json.Marshal` does.
pub fn to_compact_json(value: &Value) -> String {
    let mut out = String::new();
    write_value(value, None, &mut out);
    out
}

/// Returns a value with one entry per line, like `json.MarshalIndent` with two blanks, without a trailing newline.
pub fn to_indented_json(value: &Value) -> String {
    let mut out = String::new();
    write_value(value, Some(0), &mut out);
    out
}

/// Writes a value. `level`: its depth; `None` for a single line.
fn write_value(value: &Value, level: Option<usize>, out: &mut String) {
    let (open, close) = match value {
        Value::Object(_) => ('{', '}'),
        Value::Array(_) => ('[', ']'),
        Value::String(text) => return write_text(text, out),
        other => return out.push_str(&other.to_string()),
    };
    let inner = level.map(|level| level + 1);
    let mut count = 0;
    out.push(open);
    let mut begin = |out: &mut String| {
        if count > 0 {
            out.push(',');
        }
        count += 1;
        break_line(inner, out);
    };
    match value {
        Value::Object(entries) => {
            for (key, item) in entries {
                begin(out);
                write_text(key, out);
                out.push_str(if level.is_some() { ": " } else { ":" });
                write_value(item, inner, out);
            }
        }
        Value::Array(items) => {
            for item in items {
                begin(out);
                write_value(item, inner, out);
            }
        }
        _ => {}
    }
    if count > 0 {
        break_line(level, out);
    }
    out.push(close);
}

fn break_line(level: Option<usize>, out: &mut String) {
    if let Some(level) = level {
        out.push('\n');
        out.extend(std::iter::repeat_n(' ', level * STEP));
    }
}

fn write_text(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn texts_are_escaped_as_go_does() {
        assert_eq!(
            to_compact_json(&json!("a<b>&\"\\\n\x01\x7f\u{2028}ü\x08")),
            "\"a\\u003cb\\u003e\\u0026\\\"\\\\\\n\\u0001\x7f\\u2028ü\\b\""
        );
    }

    #[test]
    fn every_text_is_read_back_as_it_was() {
        for text in [
            "grep \\bword\\b",
            "C:\\fonts",
            "\x08\x0c",
            "\\\\b",
            "</script>",
        ] {
            let value = json!({ text: [text, {}, []], "n": 1.5, "t": null });
            for written in [to_compact_json(&value), to_indented_json(&value)] {
                let read: Value = serde_json::from_str(&written).unwrap();
                assert_eq!(read, value, "{written}");
            }
        }
    }

    #[test]
    fn lines_are_broken_only_where_asked() {
        let value = json!({"a": [1, {"b": {}}], "c": []});
        assert_eq!(to_compact_json(&value), r#"{"a":[1,{"b":{}}],"c":[]}"#);
        let wanted = "{\n  \"a\": [\n    1,\n    {\n      \"b\": {}\n    }\n  ],\n  \"c\": []\n}";
        assert_eq!(to_indented_json(&value), wanted);
    }
}
