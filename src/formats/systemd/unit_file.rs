//! The grammar of unit files by which Ignition accepts or refuses a unit.
//!
//! It is that of go-systemd, with its quirks, including its limit on long lines. It does not know the meaning of a setting;
//! `install_section` parses `[Install]` as systemd itself does.

/// Size in bytes of the buffer in the reference implementation.
const BUFFER: usize = 4096;
/// Number of buffered bytes without a line break that are an error.
const LINE_MAX: usize = 2048;

/// One `name=value` of a unit file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitOption {
    /// Name of its section.
    pub section: String,
    /// The part before the `=`, without surrounding blanks.
    pub name: String,
    /// The part after the `=`, without surrounding blanks but with its continuations.
    pub value: String,
}

/// The reason why Ignition refuses a unit file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {kind}")]
pub struct UnitFileError {
    /// Number of the line, counted from one.
    pub line: usize,
    /// The mistake on it.
    pub kind: UnitFileErrorKind,
}

/// A mistake in a unit file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitFileErrorKind {
    /// A `[` without a `]` anywhere after it.
    #[error("unable to find end of section")]
    EndOfSection,
    /// Something after the `]` of a section header.
    #[error("found garbage after section name: {0:?}")]
    Garbage(String),
    /// A line that is neither blank nor a comment nor has a `=`.
    #[error("unexpected end of line while parsing option name {0:?}")]
    NoEquals(String),
    /// A line that is too long for the reference implementation.
    #[error("line too long (max {LINE_MAX} bytes)")]
    TooLong,
}

/// The lexer state of the reference implementation.
enum LexerState {
    BeforeSections,
    Options,
}

/// Parses a unit file as Ignition validates it. Text before the first `[` is skipped.
pub fn parse_options(text: &str) -> Result<Vec<UnitOption>, UnitFileError> {
    let mut lexer = Lexer {
        text,
        at: 0,
        filled: 0,
        section: String::new(),
        options: Vec::new(),
    };
    match lexer.read_tokens() {
        Ok(()) => Ok(lexer.options),
        Err((at, kind)) => {
            let before = text.as_bytes().iter().take(at);
            Err(UnitFileError {
                line: 1 + before.filter(|b| **b == b'\n').count(),
                kind,
            })
        }
    }
}

/// A result, or an error with its byte offset.
type Lexed<T> = Result<T, (usize, UnitFileErrorKind)>;

struct Lexer<'t> {
    text: &'t str,
    at: usize,
    /// End of the reference's buffer in the text; only the line limit depends on it.
    filled: usize,
    section: String,
    options: Vec<UnitOption>,
}

impl<'t> Lexer<'t> {
    fn read_tokens(&mut self) -> Lexed<()> {
        let mut state = LexerState::BeforeSections;
        loop {
            self.check_line_length()?;
            let start = self.at;
            let Some(c) = self.next_char() else {
                return Ok(());
            };
            match (c, &state) {
                ('[', _) => {
                    self.section_header(start)?;
                    state = LexerState::Options;
                }
                ('#' | ';', _) => self.skip_comment()?,
                (_, LexerState::BeforeSections) => (),
                (c, LexerState::Options) if c.is_whitespace() => (),
                (_, LexerState::Options) => self.read_option(start)?,
            }
        }
    }

    fn section_header(&mut self, start: usize) -> Lexed<()> {
        self.check_line_length()?;
        let name = self.take_through(']');
        let Some(name) = name.strip_suffix(']') else {
            return Err((start, UnitFileErrorKind::EndOfSection));
        };
        self.check_line_length()?;
        let line = self.at;
        let garbage = self.take_line().0.trim();
        if !garbage.is_empty() {
            return Err((line, UnitFileErrorKind::Garbage(garbage.to_owned())));
        }
        self.section = name.to_owned();
        Ok(())
    }

    /// Skips a comment. It continues after a backslash, even one followed by a blank.
    fn skip_comment(&mut self) -> Lexed<()> {
        self.check_line_length()?;
        loop {
            let (line, eof) = self.take_line();
            if eof || !line.strip_suffix(' ').unwrap_or(line).ends_with('\\') {
                return Ok(());
            }
        }
    }

    fn read_option(&mut self, start: usize) -> Lexed<()> {
        self.at = start;
        self.check_line_length()?;
        let mut name = String::new();
        loop {
            match self.next_char() {
                Some('=') => break,
                None | Some('\n' | '\r') => return Err((start, UnitFileErrorKind::NoEquals(name))),
                Some(c) => name.push(c),
            }
        }
        let value = self.read_value()?;
        let option = UnitOption {
            section: self.section.clone(),
            name: name.trim().to_owned(),
            value,
        };
        self.options.push(option);
        Ok(())
    }

    /// Reads the rest of the line and its continuations, including their backslashes and line breaks.
    fn read_value(&mut self) -> Lexed<String> {
        let mut value = String::new();
        loop {
            self.check_line_length()?;
            let (line, eof) = self.take_line();
            let continued = !line.trim().is_empty() && line.ends_with('\\');
            if !line.trim().is_empty() {
                value.push_str(line);
            }
            if !continued {
                break;
            }
            if !eof {
                value.push('\n');
            }
        }
        let open_end = if value.ends_with('\n') { "\n" } else { "" };
        Ok(value.trim().to_owned() + open_end)
    }

    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn next_char(&mut self) -> Option<char> {
        let c = self.rest().chars().next()?;
        if self.at + c.len_utf8() > self.filled {
            self.fill_buffer();
        }
        self.at += c.len_utf8();
        Some(c)
    }

    fn take_line(&mut self) -> (&'t str, bool) {
        let line = self.take_through('\n');
        match line.strip_suffix('\n') {
            Some(line) => (line, false),
            None => (line.strip_suffix('\r').unwrap_or(line), true),
        }
    }

    /// Takes everything up to and including this character, or the rest.
    fn take_through(&mut self, end: char) -> &'t str {
        let rest = self.rest();
        let length = rest.find(end).map_or(rest.len(), |at| at + end.len_utf8());
        let target = self.at + length;
        while self.filled < target {
            // A full buffer without the end is consumed as a whole.
            if self.filled - self.at >= BUFFER {
                self.at = self.filled;
            }
            self.fill_buffer();
        }
        self.at = target;
        rest.get(..length).unwrap_or_default()
    }

    /// Fills the buffer: the reference moves unused bytes to the front and reads until it is full.
    fn fill_buffer(&mut self) {
        self.filled = self.text.len().min(self.at + BUFFER);
    }

    fn check_line_length(&self) -> Lexed<()> {
        if self.filled.saturating_sub(self.at) < LINE_MAX {
            return Ok(());
        }
        let window = self.text.as_bytes().iter().skip(self.at).take(LINE_MAX);
        let short = window.clone().any(|b| matches!(b, b'\n' | b'\r'));
        if short {
            Ok(())
        } else {
            Err((self.at, UnitFileErrorKind::TooLong))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn values(text: &str) -> Vec<String> {
        parse_options(text)
            .unwrap()
            .into_iter()
            .map(|o| o.value)
            .collect()
    }

    fn error(text: &str) -> String {
        parse_options(text).unwrap_err().to_string()
    }

    #[test]
    fn options_belong_to_their_sections() {
        let options =
            parse_options("[Unit]\nDescription = a b \n\n[Install]\nWantedBy=c=d\nX=").unwrap();
        let flat: Vec<_> = options
            .iter()
            .map(|o| (o.section.as_str(), o.name.as_str(), o.value.as_str()))
            .collect();
        assert_eq!(
            flat,
            [
                ("Unit", "Description", "a b"),
                ("Install", "WantedBy", "c=d"),
                ("Install", "X", "")
            ]
        );
    }

    #[test]
    fn text_before_the_first_section_is_skipped() {
        assert_eq!(values("no equals here\nA=1\n[S]\nB=2\n"), ["2"]);
        assert_eq!(parse_options("nothing at all"), Ok(Vec::new()));
    }

    #[test]
    fn comments_are_skipped_and_may_be_continued() {
        assert_eq!(values("[S]\n# x \\\nA=1\n; y\\ \nB=2\n  # z\nC=3\n"), ["3"]);
    }

    #[test]
    fn continued_values_keep_backslash_and_newline() {
        assert_eq!(values("[S]\nA=x \\\n  y\nB=1\n"), ["x \\\n  y", "1"]);
    }

    #[test]
    fn a_blank_line_ends_a_continuation() {
        assert_eq!(values("[S]\nA=x \\\n\nB=1\n"), ["x \\\n", "1"]);
    }

    #[test]
    fn a_file_may_end_in_a_backslash() {
        assert_eq!(values("[S]\nA=x\\"), ["x\\"]);
        assert_eq!(values("[S]\nA=x\\\n"), ["x\\\n"]);
    }

    #[test]
    fn a_carriage_return_hides_a_continuation() {
        assert_eq!(values("[S]\r\nA=x\\\r\nB=1\r\n"), ["x\\", "1"]);
    }

    #[test]
    fn a_section_without_end_is_an_error() {
        assert_eq!(
            error("[A]\nB=1\n[C\n"),
            "line 3: unable to find end of section"
        );
    }

    #[test]
    fn text_after_a_section_header_is_an_error() {
        assert_eq!(
            error("\n[A] # x\n"),
            "line 2: found garbage after section name: \"# x\""
        );
    }

    #[test]
    fn a_line_without_equals_is_an_error() {
        let message = "line 3: unexpected end of line while parsing option name \"ExecStart\"";
        assert_eq!(error("[S]\nA=1\nExecStart\nB=2\n"), message);
        assert_eq!(error("[S]\nA=1\nExecStart"), message);
    }

    #[test]
    fn a_long_line_within_the_buffer_is_an_error() {
        let long = format!("[S]\nA={}\n", "x".repeat(LINE_MAX));
        assert_eq!(
            error(&long),
            format!("line 2: line too long (max {LINE_MAX} bytes)")
        );
        assert_eq!(
            values(&format!("[S]\nA={}\n", "x".repeat(LINE_MAX - 3))).len(),
            1
        );
    }

    #[test]
    fn a_long_line_at_the_end_of_the_buffer_is_not_seen() {
        let filler = format!("[S]\n{}", "#xxxxxx\n".repeat(500));
        assert_eq!(
            values(&format!("{filler}A={}\n", "x".repeat(LINE_MAX))).len(),
            1
        );
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in any::<String>()) {
            let lines = text.matches('\n').count() + 1;
            if let Err(error) = parse_options(&text) {
                prop_assert!((1..=lines).contains(&error.line));
            }
        }

        #[test]
        fn likely_text_is_parsed_or_refused(text in "[\\[\\]A=#; \\\\\r\né]{0,60}") {
            for option in parse_options(&text).unwrap_or_default() {
                prop_assert_eq!(option.name.trim(), &option.name);
                prop_assert!(!option.name.contains('\n'));
            }
        }
    }
}
