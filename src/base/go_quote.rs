//! Texts in double quotes, as Go's `%q` writes them: the daemon quotes paths and names this way.

/// Returns `text` in double quotes, with escapes for unprintable characters.
pub fn quote_go(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x0b' => out.push_str("\\v"),
            c if is_printable(c) => out.push(c),
            c if c < ' ' || c == '\x7f' => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c if u32::from(c) < 0x10000 => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push_str(&format!("\\U{:08x}", u32::from(c))),
        }
    }
    out.push('"');
    out
}

/// Returns a byte in single quotes, as errors of `encoding/json` print it: as the character with that number.
pub fn quote_character(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        byte => {
            let text = quote_go(&char::from(byte).to_string());
            format!("'{}'", text.trim_matches('"'))
        }
    }
}

/// Returns true for letters, marks, numbers, punctuation, symbols and the blank. Rust escapes the characters that Go does not
/// print, and also a mark without a character before it.
fn is_printable(c: char) -> bool {
    c == '\'' || c.is_ascii_graphic() || c == ' ' || {
        !c.is_ascii() && format!("a{c}").escape_debug().count() == 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted_as_go_quotes_them() {
        for (text, wanted) in [
            ("/etc/a", "\"/etc/a\""),
            ("", "\"\""),
            (r"var-my\x2ddata.mount", r#""var-my\\x2ddata.mount""#),
            ("a\"b'c", r#""a\"b'c""#),
            ("\x07\x08\x0c\n\r\t\x0b", r#""\a\b\f\n\r\t\v""#),
            ("\0\x1b\x7f", r#""\x00\x1b\x7f""#),
            ("é ü €", "\"é ü €\""),
            ("e\u{301}", "\"e\u{301}\""),
            (
                "\u{85}\u{a0}\u{200b}\u{feff}",
                r#""\u0085\u00a0\u200b\ufeff""#,
            ),
            ("😀\u{e0001}", r#""😀\U000e0001""#),
            ("\u{fffd}", "\"\u{fffd}\""),
        ] {
            assert_eq!(quote_go(text), wanted);
        }
    }
}
