//! The output for people and programs: text for 80 columns and serial consoles, JSON with versioned schemas.
//!
//! Values in, strings out: one file for each command that has a report, and [`html`] for pages. Start with the file of the command;
//! [`heading`] is the beginning that most reports share. Only [`print()`] prints. Nothing is read of a node, except for the
//! files of a [`bundle`].

pub mod after;
pub mod butane;
pub mod capsule;
pub mod change;
pub mod colour;
pub mod complete;
pub mod console;
pub mod daemon;
pub mod digests;
pub mod doctor;
pub mod fetch;
pub mod firstboot;
pub mod fix;
pub mod fleet;
pub mod handover;
pub mod heading;
pub mod history;
pub mod html;
pub mod image;
pub mod install;
pub mod keep;
pub mod kept;
pub mod key;
pub mod metrics;
pub mod outlook;
pub mod plan;
pub mod preflight;
pub mod question;
pub mod reboot;
pub mod recover;
pub mod rehearse;
pub mod rollback;
pub mod show;
pub mod status;
pub mod trial;
pub mod verify;
pub mod watch;

pub mod bundle;

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use serde_json::Value;

use self::watch::ScreenSize;
use crate::base::invocation::as_typed;
use crate::base::object::{Object, ObjectKind};
use crate::base::paths;
use crate::base::reason::Reason;
use crate::base::secrets::{self, redacted_words, secret_placeholder};
use crate::base::text::{is_invisible, make_printable, spelled_out};
pub use crate::base::wrap::{WIDTH, line_width, wrap_text};
use crate::change::plan::{PlannedStep, Section, Step};
use crate::formats::go_yaml::{YamlNode, write_shown_yaml};
use crate::host::progress;
use crate::host::root::RootPath;
use crate::node::command::pager::{find_pager, show_in_pager};

/// True if documents are printed as YAML.
static AS_YAML: AtomicBool = AtomicBool::new(false);
/// True if a text that is longer than the terminal is shown in a pager.
static IN_PAGER: AtomicBool = AtomicBool::new(false);

/// Prints documents as YAML from here on, in place of JSON.
pub fn print_yaml() {
    AS_YAML.store(true, Ordering::Relaxed);
}

/// Shows what is longer than the terminal in a pager from here on.
pub fn show_long_text_in_pager() {
    IN_PAGER.store(true, Ordering::Relaxed);
}

/// Returns true if a text has more lines than a terminal of this size, where long lines need several.
fn is_longer_than(text: &[u8], columns: usize, rows: usize) -> bool {
    let needed = |line: &[u8]| {
        let count = String::from_utf8_lossy(line).chars().count();
        count.div_ceil(columns.max(1)).max(1)
    };
    let lines = text
        .strip_suffix(b"\n")
        .unwrap_or(text)
        .split(|byte| *byte == b'\n');
    // The last row is for the prompt.
    lines.map(needed).sum::<usize>() >= rows
}

/// Shows a text in the pager. Returns false if it fits the terminal, or if there is no terminal or pager.
fn is_shown_in_pager(text: &[u8]) -> bool {
    let out = io::stdout();
    if !IN_PAGER.load(Ordering::Relaxed) || !out.is_terminal() {
        return false;
    }
    let size = terminal_size::terminal_size_of(&out);
    let (columns, rows) = size.map_or((0, 0), |(width, height)| (width.0.into(), height.0.into()));
    if rows == 0 || !is_longer_than(text, columns, rows) {
        return false;
    }
    let variable = std::env::var("PAGER").ok();
    find_pager(variable.as_deref()).is_some_and(|pager| show_in_pager(pager, text))
}

/// Returns a JSON document as YAML; `None` if documents are printed as JSON, or if the text is not a document.
fn in_yaml(text: &str) -> Option<String> {
    if !AS_YAML.load(Ordering::Relaxed) {
        return None;
    }
    let Ok(Value::Object(document)) = serde_json::from_str(text) else {
        return None;
    };
    let nodes: Vec<(&str, YamlNode<'_>)> = document
        .iter()
        .map(|(key, value)| (key.as_str(), YamlNode::from(value)))
        .collect();
    let mut yaml = String::new();
    let entries = nodes.iter().map(|(key, node)| (*key, node));
    write_shown_yaml(entries, &mut |piece| yaml.push_str(piece));
    Some(yaml)
}

/// Returns a document as `--output json` prints it: the name of its schema, then the fields of `body`.
fn to_document<T: Serialize>(schema: &'static str, body: &T) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Document<'a, T> {
        schema: &'static str,
        #[serde(flatten)]
        body: &'a T,
    }
    pretty(&Document { schema, body })
}

/// Returns a document of a schema as `--output json` prints it.
fn pretty(document: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string_pretty(document).map(|text| text + "\n")
}

/// Writes a report to standard output, with secrets in quoted text redacted and invisible characters escaped. A reader that
/// has closed the pipe (`| head`) is not an error.
///
/// # Errors
/// The system's error, as the end of a sentence.
pub fn print(text: &[u8]) -> io::Result<()> {
    match std::str::from_utf8(text) {
        Ok(text) => print_whole(redacted_words(text).as_bytes()),
        Err(_) => print_bytes(text),
    }
}

/// Writes a report, with secrets if they were requested.
///
/// # Errors
/// The system's error, as the end of a sentence.
pub fn print_asked(text: &str, show_secrets: bool) -> io::Result<()> {
    if show_secrets {
        print_whole(text.as_bytes())
    } else {
        print(text.as_bytes())
    }
}

/// Writes a report, including secrets that the caller requested, such as objects for the API.
///
/// # Errors
/// The system's error, as the end of a sentence.
pub fn print_whole(text: &[u8]) -> io::Result<()> {
    let Ok(text) = std::str::from_utf8(text) else {
        return print_bytes(text);
    };
    if let Some(yaml) = in_yaml(text) {
        return print_bytes(yaml.as_bytes());
    }
    let text = if text.starts_with('{') {
        Cow::Borrowed(text)
    } else {
        as_typed(text)
    };
    let shown = if text.contains(is_invisible) {
        Cow::Owned(spelled_out(&text))
    } else {
        text
    };
    if colour::is_coloured() && !shown.starts_with('{') {
        print_bytes(colour::paint(&shown).as_bytes())
    } else {
        print_bytes(shown.as_bytes())
    }
}

/// Redraws the terminal with a title and a report, with secrets in quoted text redacted.
///
/// # Errors
/// The system's error, as the end of a sentence.
pub fn print_frame(title: &str, text: &str, size: ScreenSize) -> io::Result<()> {
    let text = spelled_out(&as_typed(&redacted_words(text)));
    print_bytes(watch::draw_frame(title, &text, size).as_bytes())
}

/// Writes a document for other programs, as YAML if that was requested, else unchanged.
///
/// # Errors
/// The system's error, as the end of a sentence.
pub fn print_document(text: &str) -> io::Result<()> {
    match in_yaml(text) {
        Some(yaml) => print_bytes(yaml.as_bytes()),
        None => print_bytes(text.as_bytes()),
    }
}

/// Writes requested bytes unchanged, such as the contents of a file.
///
/// # Errors
/// The system's error, as the end of a sentence.
pub fn print_bytes(text: &[u8]) -> io::Result<()> {
    let _held = progress::hold_line();
    if is_shown_in_pager(text) {
        return Ok(());
    }
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(e) => {
            let said = format!("writing to standard output: {}", Reason::from(e));
            Err(io::Error::other(said))
        }
        Ok(()) => Ok(()),
    }
}

/// Writes the result of a run that has changed something. The exit code reports the state of the node, so a failed
/// write is a warning only.
pub fn print_result(text: &[u8]) {
    if let Err(error) = print(text) {
        log::warn!("{error}");
    }
}

/// Writes the report of a command, which may be the result of one that `has_changed` something.
///
/// # Errors
/// The system's error, if nothing was changed.
pub fn print_report(text: &[u8], has_changed: bool) -> io::Result<()> {
    warn_after(print(text), has_changed)
}

/// Writes such a report, including secrets that the caller requested, such as objects for the API.
///
/// # Errors
/// The system's error, if nothing was changed.
pub fn print_whole_report(text: &[u8], has_changed: bool) -> io::Result<()> {
    warn_after(print_whole(text), has_changed)
}

/// Turns a failed write into a warning if something was changed.
fn warn_after(printed: io::Result<()>, has_changed: bool) -> io::Result<()> {
    match printed {
        Err(error) if has_changed => {
            log::warn!("{error}");
            Ok(())
        }
        printed => printed,
    }
}

/// Writes a report to standard error, for when standard output carries a document.
pub fn print_aside(text: &str) {
    let _held = progress::hold_line();
    let text = spelled_out(&as_typed(&redacted_words(text)));
    // There is no other place for it.
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Returns true if the content at a path must not be shown: by mode, by path, or as part of an account.
pub fn is_secret(path: &RootPath, objects: &[Option<&Object>]) -> bool {
    let is_file = |object: &&Object| matches!(object.kind, ObjectKind::File { .. });
    let is_private = |object: &Object| secrets::is_private(object.mode);
    let account = path.is_in(paths::CORE_SSH) || path.is_in("root/.ssh");
    account
        || secrets::reason_of_file(path.relative(), None).is_some()
        || objects
            .iter()
            .copied()
            .flatten()
            .filter(is_file)
            .any(is_private)
}

/// Returns true if a step's content must not be shown.
pub fn is_secret_step(planned: &PlannedStep) -> bool {
    if planned.section == Section::Users {
        return true;
    }
    match &planned.step {
        Step::Put { path, new, old } => is_secret(path, &[Some(new), old.as_ref()]),
        Step::Remove { path, old } => is_secret(path, &[Some(old)]),
        _ => false,
    }
}

/// Returns what is said of a secret content: its size, as a short secret is found by its digest.
pub fn fingerprint(object: &Object) -> String {
    match &object.kind {
        ObjectKind::File { size, .. } if object.kind.is_unread() => {
            format!("{size} bytes, too large to be read")
        }
        ObjectKind::File { size, .. } => {
            secret_placeholder(usize::try_from(*size).unwrap_or(usize::MAX))
        }
        ObjectKind::Symlink { target } => format!("link to {}", make_printable(target)),
        ObjectKind::Directory => "directory".to_owned(),
        ObjectKind::Special { .. } => "special file".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_longer_than_a_terminal_by_its_wrapped_lines() {
        assert!(!is_longer_than(&b"a\n".repeat(23), 80, 24));
        assert!(is_longer_than(&b"a\n".repeat(24), 80, 24));
        let wide = format!("{}\n", "w".repeat(81));
        assert!(!is_longer_than(wide.repeat(11).as_bytes(), 80, 24));
        assert!(is_longer_than(wide.repeat(12).as_bytes(), 80, 24));
        assert!(!is_longer_than(b"", 80, 24));
    }

    #[test]
    fn a_message_of_several_lines_shows_no_escape() {
        let said = "2 errors\n  a: x\n  b: y\n";
        assert_eq!(crate::base::text::one_line(said), "2 errors; a: x; b: y");
        assert_eq!(
            wrap_text("exit status 1:\n  no room\n", 2),
            "  exit status 1: no room\n"
        );
    }

    #[test]
    fn commands_are_never_broken() {
        let command = format!("mco-rescue apply {}", "--option ".repeat(12));
        let command = command.trim_end();
        let text = format!("{} Next: {command}, then {command}", "word ".repeat(30));
        let wrapped = wrap_text(&text, 2);
        assert!(wrapped.contains(&format!("\n  Next: {command}\n  then: {command}\n")));
        assert_eq!(
            wrap_text(&format!("Next: {command}"), 0),
            format!("Next: {command}\n")
        );
        let text = format!("{} see `{command}`.", "word ".repeat(30));
        assert!(
            wrap_text(&text, 0).contains(&format!("`{command}`.")),
            "{text}"
        );
    }

    #[test]
    fn wrapped_lines_fit() {
        let text = wrap_text(&"word ".repeat(60), 4);
        assert!(
            text.lines()
                .all(|line| line.len() <= WIDTH && line.starts_with("    word"))
        );
    }
}
