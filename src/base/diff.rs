//! Unified diffs of text files.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::{Result, Write};

use imara_diff::{
    Algorithm, Diff, InternedInput, Interner, Token, UnifiedDiffConfig, UnifiedDiffPrinter,
};

use crate::base::secrets::redacted_lines;
use crate::base::text::make_printable;

/// Maximum number of lines of a diff; `show` prints the whole file.
const MAX_LINES: usize = 60;

/// The secrets of two texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretLines {
    /// Replaced by their sizes.
    Hidden,
    /// They were asked for.
    Shown,
}

/// Returns the difference between the file on disk and the one in the config; `None` if one of them is not text.
pub fn unified_diff(on_disk: &[u8], wanted: &[u8], secrets: SecretLines) -> Option<String> {
    unified_named(on_disk, wanted, ("on disk", "in the config"), secrets)
}

/// Returns the difference between two states of a file, without secrets; `None` if one of them is not text.
pub fn unified_between(before: &[u8], after: &[u8]) -> Option<String> {
    unified_named(before, after, ("before", "after"), SecretLines::Hidden)
}

fn unified_named(
    old: &[u8],
    new: &[u8],
    names: (&str, &str),
    secrets: SecretLines,
) -> Option<String> {
    let (old, new) = (as_text(old)?, as_text(new)?);
    // The original lines are compared, so a changed secret is a changed line.
    let hidden: HashMap<&str, String> = match secrets {
        SecretLines::Shown => HashMap::new(),
        SecretLines::Hidden => [old, new].into_iter().flat_map(hidden_lines).collect(),
    };
    let input = InternedInput::new(old, new);
    let mut diff = Diff::compute(Algorithm::Histogram, &input);
    diff.postprocess_lines(&input);
    let mut config = UnifiedDiffConfig::default();
    config.context_len(2);
    let printer = Lines(&input.interner, &hidden);
    let hunks = diff.unified_diff(&printer, config, &input);
    let unified = format!("--- {}\n+++ {}\n{hunks}", names.0, names.1);
    let mut lines: Vec<&str> = unified.lines().collect();
    let cut = lines.len().saturating_sub(MAX_LINES);
    lines.truncate(MAX_LINES);
    let mut out: String = lines
        .iter()
        .map(|line| format!("{}\n", make_printable(line)))
        .collect();
    if cut > 0 {
        out.push_str(&format!("... {cut} more lines\n"));
    }
    Some(out)
}

/// Returns the lines that contain a secret, with their redacted form.
fn hidden_lines(text: &str) -> impl Iterator<Item = (&str, String)> {
    let lines = redacted_lines(text).into_iter();
    lines.filter_map(|(line, shown)| match shown {
        Cow::Owned(shown) => Some((line, shown)),
        Cow::Borrowed(_) => None,
    })
}

/// Prints lines like `diff -u`, including the marker for a missing final newline; some lines are replaced.
struct Lines<'a>(&'a Interner<&'a str>, &'a HashMap<&'a str, String>);

impl Lines<'_> {
    fn write_line(&self, mut f: impl Write, sign: char, token: Token) -> Result {
        let line = self.0[token];
        let line = self.1.get(line).map_or(line, String::as_str);
        write!(f, "{sign}{line}")?;
        if line.ends_with('\n') {
            return Ok(());
        }
        f.write_str("\n\\ No newline at end of file\n")
    }
}

impl UnifiedDiffPrinter for Lines<'_> {
    fn display_header(
        &self,
        mut f: impl Write,
        old_start: u32,
        new_start: u32,
        old: u32,
        new: u32,
    ) -> Result {
        let (old_start, new_start) = (old_start + 1, new_start + 1);
        writeln!(f, "@@ -{old_start},{old} +{new_start},{new} @@")
    }

    fn display_context_token(&self, f: impl Write, token: Token) -> Result {
        self.write_line(f, ' ', token)
    }

    fn display_hunk(&self, mut f: impl Write, old: &[Token], new: &[Token]) -> Result {
        for &token in old {
            self.write_line(&mut f, '-', token)?;
        }
        for &token in new {
            self.write_line(&mut f, '+', token)?;
        }
        Ok(())
    }
}

fn as_text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes)
        .ok()
        .filter(|text| !text.contains('\0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_line_shows_both_sides() {
        let diff = unified_diff(b"a\nb\nc\n", b"a\nB\nc\n", SecretLines::Hidden).unwrap();
        assert_eq!(
            diff,
            "--- on disk\n+++ in the config\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"
        );
    }

    #[test]
    fn a_secret_that_changed_is_a_changed_line_without_it() {
        let old =
            b"a\n-----BEGIN PRIVATE KEY-----\nMIIA\nsame\n-----END PRIVATE KEY-----\npsk=old\n";
        let new =
            b"a\n-----BEGIN PRIVATE KEY-----\nMIIB\nsame\n-----END PRIVATE KEY-----\npsk=new\n";
        let diff = unified_diff(old, new, SecretLines::Hidden).unwrap();
        for line in [
            "-(secret, 4 bytes)",
            "+(secret, 4 bytes)",
            "-psk=(secret, 3 bytes)",
            "+psk=(secret, 3 bytes)",
        ] {
            assert!(diff.lines().any(|one| one == line), "{line}: {diff}");
        }
        assert!(
            !["MII", "same", "=old", "=new"]
                .iter()
                .any(|part| diff.contains(part)),
            "{diff}"
        );
        assert!(
            unified_diff(old, new, SecretLines::Shown)
                .unwrap()
                .contains("psk=new")
        );
    }

    #[test]
    fn a_line_that_does_not_end_differs_from_one_that_does() {
        let diff = unified_diff(b"a\nb", b"a\nb\n", SecretLines::Hidden).unwrap();
        let wanted = "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+b\n";
        assert!(diff.ends_with(wanted), "{diff}");
    }

    #[test]
    fn binary_files_have_no_diff_and_long_ones_are_cut() {
        assert_eq!(unified_diff(b"\x00", b"a", SecretLines::Hidden), None);
        assert_eq!(unified_diff(b"\xff", b"a", SecretLines::Hidden), None);
        let long: String = (0..500).map(|n| format!("{n}\n")).collect();
        assert!(
            unified_diff(b"", long.as_bytes(), SecretLines::Hidden)
                .unwrap()
                .ends_with("more lines\n")
        );
    }
}
