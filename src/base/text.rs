//! Makes foreign text safe for a terminal, and builds small parts of sentences.

/// Makes text from a config or a file safe for a terminal: control characters are escaped.
pub fn make_printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => out.push(c),
            c if c.is_control() => out.extend(c.escape_default()),
            c if is_invisible(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

/// Returns true for characters without width, or that turn the direction of the text after them: they disguise a text.
pub fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Escapes every such character like JSON does, which is valid in text and in JSON.
pub fn spelled_out(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_invisible(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// Makes a text safe that must stay on one line, such as a path: it cannot forge another line.
pub fn make_inline(text: &str) -> String {
    let escaped = text.chars().map(|c| match c {
        '\n' | '\t' => c.escape_default().to_string(),
        c => c.to_string(),
    });
    make_printable(&escaped.collect::<String>())
}

/// Joins a message of several lines: each line break becomes a semicolon, or a blank after `:`, `;` or `,`.
///
/// For sentences; use [`make_inline`] for a name, which escapes its line breaks.
pub fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let joined = lines.fold(String::new(), |mut out, line| {
        if out.ends_with([':', ';', ',']) {
            out.push(' ');
        } else if !out.is_empty() {
            out.push_str("; ");
        }
        out + line
    });
    make_inline(&joined)
}

/// Returns a number with its noun: `1 step`, `2 steps`.
pub fn count_noun(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_do_not_reach_the_terminal() {
        assert_eq!(make_printable("a\x1b[31mb\r\n\tc"), "a\\u{1b}[31mb\\r\n\tc");
    }

    #[test]
    fn what_turns_or_hides_text_is_spelled_out() {
        assert_eq!(
            make_printable("a\u{202e}b\u{200b}\u{2066}"),
            "a\\u{202e}b\\u{200b}\\u{2066}"
        );
        assert_eq!(spelled_out("é\u{202e}\u{e0041}"), "é\\u202e\\udb40\\udc41");
        // Letters of right-to-left languages are ordinary text.
        assert_eq!(make_printable("שלום سلام é 中"), "שלום سلام é 中");
    }
}
