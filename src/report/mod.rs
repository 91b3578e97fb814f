//! What people and programs are shown: text for 80 columns and serial consoles, JSON with versioned schemas.
//!
//! Values in, strings out; printing is in one function, [`print()`], alone.

pub mod after;
pub mod complete;
pub mod console;
pub mod daemon;
pub mod diff;
pub mod doctor;
pub mod fetch;
pub mod firstboot;
pub mod handover;
pub mod install;
pub mod kept;
pub mod key;
pub mod plan;
pub mod question;
pub mod recover;
pub mod rollback;
pub mod show;
pub mod status;
pub mod verify;

use std::io::{self, Write};

use crate::error::Reason;
use crate::object::{Kind, Object};
use crate::paths;
use crate::plan::{PlannedStep, Section, Step};
use crate::progress;
use crate::root::RootPath;

/// Width of text output.
pub const WIDTH: usize = 80;

/// Writes a report to standard output, with every character spelled out that a reader would not see. A reader that has
/// gone away (`| head`) is no error.
///
/// # Errors
/// What the system said, as the end of a sentence.
pub fn print(text: &[u8]) -> io::Result<()> {
    match std::str::from_utf8(text) {
        Ok(text) if text.contains(is_invisible) => print_bytes(spelled_out(text).as_bytes()),
        _ => print_bytes(text),
    }
}

/// Writes what was asked for by its name, byte for byte, such as the contents of a file.
///
/// # Errors
/// What the system said, as the end of a sentence.
pub fn print_bytes(text: &[u8]) -> io::Result<()> {
    let _held = progress::hold();
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

/// Writes what came of a run that has changed something. The exit code tells what became of the node, so words
/// that do not arrive are a warning only.
pub fn print_result(text: &[u8]) {
    if let Err(error) = print(text) {
        log::warn!("{error}");
    }
}

/// Text from a config or a file, made harmless for a terminal: control characters are spelled out.
pub fn printable(text: &str) -> String {
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

/// Characters that have no width, or turn the direction of what follows: with them a text reads as another one.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Every such character as JSON escapes it, which text and JSON can both hold.
fn spelled_out(text: &str) -> String {
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

/// The same for text that must stay on one line, such as a path: it cannot forge another one.
pub fn inline(text: &str) -> String {
    let escaped = text.chars().map(|c| match c {
        '\n' | '\t' => c.escape_default().to_string(),
        c => c.to_string(),
    });
    printable(&escaped.collect::<String>())
}

/// A message of several lines on one line: each line break becomes a semicolon, or a blank after `:`, `;` or `,`.
///
/// For sentences; a name keeps its line break, spelled out, by [`inline`].
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
    inline(&joined)
}

/// Breaks a text into lines of at most [`WIDTH`] columns, each led by `indent` blanks. Words stay whole.
pub fn wrap(text: &str, indent: usize) -> String {
    let mut out = String::new();
    let mut width = 0;
    for word in words(&one_line(text)) {
        let long = word.chars().count();
        if width == 0 || width + 1 + long > WIDTH {
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

/// Words between blanks. A path in quotes is one, as for the shell.
fn words(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let blank = |text: &str| text.find(char::is_whitespace).unwrap_or(text.len());
        let quoted = rest
            .strip_prefix('\'')
            .filter(|quoted| quoted.starts_with('/'))
            .and_then(|quoted| quoted.find('\'').map(|end| end + 2));
        let end = quoted.map_or_else(|| blank(rest), |end| end + blank(&rest[end..]));
        all.push(rest[..end].to_owned());
        rest = rest[end..].trim_start();
    }
    all
}

/// A number with its noun: `1 step`, `2 steps`.
pub fn count(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// Whether the content at a path must not be shown: by mode, by path, or as part of somebody's account.
pub fn is_secret(path: &RootPath, objects: &[Option<&Object>]) -> bool {
    let private =
        |object: &&Object| matches!(object.kind, Kind::File { .. }) && object.mode & 0o004 == 0;
    let account = path.is_in(paths::CORE_SSH) || path.is_in("root/.ssh");
    account || paths::SECRETS.contains(&path.relative()) || objects.iter().flatten().any(private)
}

/// Whether a step's content must not be shown.
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

/// Size and the beginning of the digest: enough to compare, nothing to read.
pub fn fingerprint(object: &Object) -> String {
    match &object.kind {
        Kind::File { size, .. } if object.kind.is_unread() => {
            format!("{size} bytes, too large to be read")
        }
        Kind::File { size, sha256 } => format!(
            "{size} bytes, sha256 {}",
            sha256.get(..12).unwrap_or(sha256)
        ),
        Kind::Symlink { target } => format!("link to {}", printable(target)),
        Kind::Directory => "directory".to_owned(),
        Kind::Special { .. } => "special file".to_owned(),
    }
}

/// A time as UTC text, from seconds since 1970.
pub fn utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    )
}

/// How long before `now` a moment was, in the largest unit that tells it: `12 minutes ago`.
pub fn ago(then: u64, now: u64) -> String {
    let Some(past) = now.checked_sub(then) else {
        return "ahead of this clock".to_owned();
    };
    let (number, unit) = match past {
        0..60 => return "just now".to_owned(),
        60..3600 => (past / 60, "minute"),
        3600..172_800 => (past / 3600, "hour"),
        _ => (past / 86_400, "day"),
    };
    let number = usize::try_from(number).unwrap_or(usize::MAX);
    format!("{} ago", count(number, unit))
}

/// Days since 1970 as a date of the proleptic Gregorian calendar.
fn civil(days: u64) -> (u64, u64, u64) {
    // Years are counted from March, in eras of 400 years, so that leap days come last.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_do_not_reach_the_terminal() {
        assert_eq!(printable("a\x1b[31mb\r\n\tc"), "a\\u{1b}[31mb\\r\n\tc");
    }

    #[test]
    fn what_turns_or_hides_text_is_spelled_out() {
        assert_eq!(
            printable("a\u{202e}b\u{200b}\u{2066}"),
            "a\\u{202e}b\\u{200b}\\u{2066}"
        );
        assert_eq!(spelled_out("é\u{202e}\u{e0041}"), "é\\u202e\\udb40\\udc41");
        // Letters of languages that are written from right to left are text like any other.
        assert_eq!(printable("שלום سلام é 中"), "שלום سلام é 中");
    }

    #[test]
    fn a_message_of_several_lines_shows_no_escape() {
        let said = "2 errors\n  a: x\n  b: y\n";
        assert_eq!(one_line(said), "2 errors; a: x; b: y");
        assert_eq!(
            wrap("exit status 1:\n  no room\n", 2),
            "  exit status 1: no room\n"
        );
    }

    #[test]
    fn wrapped_lines_fit() {
        let text = wrap(&"word ".repeat(60), 4);
        assert!(
            text.lines()
                .all(|line| line.len() <= WIDTH && line.starts_with("    word"))
        );
    }

    #[test]
    fn a_moment_is_so_long_ago_as_people_count() {
        for (then, wanted) in [
            (1_000_000, "just now"),
            (999_941, "just now"),
            (999_940, "1 minute ago"),
            (996_400, "1 hour ago"),
            (900_000, "27 hours ago"),
            (800_000, "2 days ago"),
            (1_000_001, "ahead of this clock"),
        ] {
            assert_eq!(ago(then, 1_000_000), wanted, "{then}");
        }
    }

    #[test]
    fn known_instants_print_as_utc() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(utc(1_709_210_096), "2024-02-29T12:34:56Z");
    }
}
