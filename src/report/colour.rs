//! Colours of the screens: diffs and headings of text that a person reads at a terminal.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

/// True if standard output is shown in colours.
static COLOURED: AtomicBool = AtomicBool::new(false);

const RED: &str = "\u{1b}[31m";
const GREEN: &str = "\u{1b}[32m";
const CYAN: &str = "\u{1b}[36m";
const BOLD_RED: &str = "\u{1b}[1;31m";
const RESET: &str = "\u{1b}[0m";

/// Shows standard output in colours, or without any.
pub fn set_coloured(coloured: bool) {
    COLOURED.store(coloured, Ordering::Relaxed);
}

/// Returns true if standard output is shown in colours.
pub fn is_coloured() -> bool {
    COLOURED.load(Ordering::Relaxed)
}

/// Returns a text in colours: the lines of its diffs, and the heading of blockers.
pub(super) fn paint(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut hunk = None;
    for line in text.split_inclusive('\n') {
        let words = line.trim_end_matches('\n');
        let indent = words.len() - words.trim_start_matches(' ').len();
        let rest = words.get(hunk.unwrap_or(indent)..).unwrap_or_default();
        let colour = if words.trim_start().starts_with("@@ -") {
            hunk = Some(indent);
            CYAN
        } else if words.starts_with("Blockers (") {
            hunk = None;
            BOLD_RED
        } else if hunk.is_none_or(|hunk| indent < hunk) {
            hunk = None;
            ""
        } else if rest.starts_with('+') {
            GREEN
        } else if rest.starts_with('-') {
            RED
        } else {
            hunk = hunk.filter(|_| rest.starts_with(' '));
            ""
        };
        if colour.is_empty() {
            out.push_str(line);
        } else {
            // Writing to a string cannot fail.
            let _ = write!(out, "{colour}{words}{RESET}{}", &line[words.len()..]);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_of_a_diff_are_painted() {
        let text = "Changes (2):\n  ~ /etc/a\n      @@ -1,1 +1,2 @@\n       kept\n      -old\n      +new\n  + /etc/b  missing\n- c\n";
        let painted = paint(text);
        let wanted = format!(
            "Changes (2):\n  ~ /etc/a\n{CYAN}      @@ -1,1 +1,2 @@{RESET}\n       kept\n{RED}      -old{RESET}\n\
             {GREEN}      +new{RESET}\n  + /etc/b  missing\n- c\n"
        );
        assert_eq!(painted, wanted);
    }
}
