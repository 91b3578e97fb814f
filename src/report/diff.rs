//! Unified diffs of text files.

use similar::TextDiff;

use super::printable;

/// Longer diffs are cut; the whole file is there with `show`.
const MAX_LINES: usize = 60;

/// The difference between what is on disk and what the config has; `None` when either is no text.
pub fn unified(on_disk: &[u8], wanted: &[u8]) -> Option<String> {
    let (old, new) = (text(on_disk)?, text(wanted)?);
    let diff = TextDiff::from_lines(old, new);
    let unified = diff
        .unified_diff()
        .context_radius(2)
        .header("on disk", "in the config")
        .to_string();
    let mut lines: Vec<&str> = unified.lines().collect();
    let cut = lines.len().saturating_sub(MAX_LINES);
    lines.truncate(MAX_LINES);
    let mut out: String = lines
        .iter()
        .map(|line| format!("{}\n", printable(line)))
        .collect();
    if cut > 0 {
        out.push_str(&format!("... {cut} more lines\n"));
    }
    Some(out)
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes)
        .ok()
        .filter(|text| !text.contains('\0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_line_shows_both_sides() {
        let diff = unified(b"a\nb\nc\n", b"a\nB\nc\n").unwrap();
        assert_eq!(
            diff,
            "--- on disk\n+++ in the config\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"
        );
    }

    #[test]
    fn binary_files_have_no_diff_and_long_ones_are_cut() {
        assert_eq!(unified(b"\x00", b"a"), None);
        assert_eq!(unified(b"\xff", b"a"), None);
        let long: String = (0..500).map(|n| format!("{n}\n")).collect();
        assert!(
            unified(b"", long.as_bytes())
                .unwrap()
                .ends_with("more lines\n")
        );
    }
}
