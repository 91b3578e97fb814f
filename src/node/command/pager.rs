//! The pager of a person at a terminal.

use std::io::Write;
use std::process::{Command, ExitStatus, Stdio};

use crate::host::sys::signals::InterruptIgnored;

/// The options of `less`: end if the text fits the screen, show colours, leave the text on the screen.
const LESS: &str = "FRXMK";

/// Returns the pager's command line: that of `PAGER`, else `less`; `None` if `PAGER` asks for none.
pub fn find_pager(variable: Option<&str>) -> Option<&str> {
    match variable.map(str::trim) {
        None => Some("less"),
        Some("" | "cat") => None,
        Some(pager) => Some(pager),
    }
}

/// Shows a text in a pager, and waits for its end. Returns false if the pager did not start, so that nothing was shown.
pub fn show_in_pager(pager: &str, text: &[u8]) -> bool {
    feed_program(pager, text).is_some_and(has_shown)
}

/// Shows a man page with `man` and its pager. Returns false if that did not work.
pub fn show_man_page(page: &[u8]) -> bool {
    feed_program("man -l -", page).is_some_and(|status| status.success())
}

/// Runs a person's program with a text as its input, and waits for its end. Returns `None` if it did not start.
#[allow(
    clippy::disallowed_methods,
    reason = "the pager belongs to the person at the terminal, and not to the node"
)]
fn feed_program(line: &str, text: &[u8]) -> Option<ExitStatus> {
    // `exec` makes the shell say with its status that the program is missing.
    let started = Command::new("/bin/sh")
        .args(["-c", &format!("exec {line}")])
        .env("LESS", LESS)
        // A pager that is started by root must not start other programs.
        .env("LESSSECURE", "1")
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = started.ok()?;
    let _ignored = InterruptIgnored::begin();
    if let Some(mut input) = child.stdin.take() {
        // A person who has read enough leaves the pager, which closes the pipe.
        let _ = input.write_all(text);
    }
    child.wait().ok()
}

/// Returns false for the statuses with which a shell says that it cannot start a program.
fn has_shown(status: ExitStatus) -> bool {
    !matches!(status.code(), Some(126 | 127))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_names_the_pager_or_none() {
        assert_eq!(find_pager(None), Some("less"));
        assert_eq!(find_pager(Some("more -s")), Some("more -s"));
        for none in ["", " ", "cat"] {
            assert_eq!(find_pager(Some(none)), None, "{none:?}");
        }
    }

    #[test]
    fn a_pager_that_is_missing_has_shown_nothing() {
        assert!(!show_in_pager("/missing/pager", b"text\n"));
        assert!(show_in_pager("true", b"text\n"));
    }
}
