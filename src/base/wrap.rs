//! Lines that fit the terminal; without one, 80 columns.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::invocation::set_commands_apart;
use super::text::one_line;

/// Width of text output without a terminal.
pub const WIDTH: usize = 80;
/// Narrowest and widest lines at a terminal: longer ones are hard to read.
const LIMITS: (usize, usize) = (40, 120);

/// The width of this run.
static COLUMNS: AtomicUsize = AtomicUsize::new(WIDTH);

/// Stores the width of the terminal that text is printed on.
pub fn remember_width(columns: usize) {
    COLUMNS.store(columns.clamp(LIMITS.0, LIMITS.1), Ordering::Relaxed);
}

/// Returns the width of text output.
pub fn line_width() -> usize {
    COLUMNS.load(Ordering::Relaxed)
}

/// Wraps a text into lines of at most [`line_width`] columns, each indented by `indent` blanks. Words are not broken, nor are
/// commands: those after `Next: ` get lines of their own.
pub fn wrap_text(text: &str, indent: usize) -> String {
    let text = one_line(text);
    let (said, commands) = set_commands_apart(&text);
    let commands = commands.iter();
    let commands = commands.map(|line| format!("{}{line}\n", " ".repeat(indent)));
    let commands: String = commands.collect();
    if said.is_empty() && !commands.is_empty() {
        commands
    } else {
        wrap_words(said, indent) + &commands
    }
}

/// Wraps every line that is longer than [`line_width`]. The last line ends without a newline.
pub fn wrap_lines(text: &str) -> String {
    let wrapped = |line: &str| {
        if line.chars().count() > line_width() {
            wrap_text(line, 0).trim_end().to_owned()
        } else {
            line.to_owned()
        }
    };
    let lines: Vec<String> = text.lines().map(wrapped).collect();
    lines.join("\n")
}

fn wrap_words(text: &str, indent: usize) -> String {
    let mut out = String::new();
    let mut width = 0;
    for word in split_words(text) {
        let long = word.chars().count();
        if width == 0 || width + 1 + long > line_width() {
            out.push_str(if width == 0 { "" } else { "\n" });
            out.push_str(&" ".repeat(indent));
            width = indent + long;
        } else {
            out.push(' ');
            width += 1 + long;
        }
        out.push_str(&word);
    }
    out.push('\n');
    out
}

/// Splits a text at blanks. A quoted path is one word, as for the shell, and so is a command between backticks.
fn split_words(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let blank = |text: &str| text.find(char::is_whitespace).unwrap_or(text.len());
        let quoted = rest
            .strip_prefix('\'')
            .filter(|quoted| quoted.starts_with('/'))
            .and_then(|quoted| quoted.find('\'').map(|end| end + 2));
        let command = rest
            .strip_prefix('`')
            .and_then(|command| command.find('`').map(|end| end + 2));
        let end = quoted
            .or(command)
            .map_or_else(|| blank(rest), |end| end + blank(&rest[end..]));
        all.push(rest[..end].to_owned());
        rest = rest[end..].trim_start();
    }
    all
}
