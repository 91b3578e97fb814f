//! A screen that is redrawn, as a frame for a terminal.

/// Moves to the first row and column.
const HOME: &str = "\u{1b}[H";
/// Clears the rest of a row.
const CLEAR_ROW: &str = "\u{1b}[K";
/// Clears everything below.
const CLEAR_BELOW: &str = "\u{1b}[J";

/// The size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScreenSize {
    /// Columns.
    pub columns: usize,
    /// Rows.
    pub rows: usize,
}

impl Default for ScreenSize {
    /// A terminal whose size is not known, such as a serial console.
    fn default() -> Self {
        Self {
            columns: 80,
            rows: 24,
        }
    }
}

/// Returns what redraws a terminal with a title and as much of a text as fits. The last row says what is missing.
pub fn draw_frame(title: &str, text: &str, size: ScreenSize) -> String {
    let columns = size.columns.max(1);
    // The title, and the row of the cursor.
    let room = size.rows.saturating_sub(2).max(1);
    let needed = |line: &str| line.chars().count().div_ceil(columns).max(1);
    let lines: Vec<&str> = text.lines().collect();
    let fits = lines.iter().map(|line| needed(line)).sum::<usize>() <= room;
    let room = if fits { room } else { room - 1 };
    let mut used = 0;
    let shown = lines.iter().take_while(|line| {
        used += needed(line);
        used <= room
    });
    let shown: Vec<&str> = shown.copied().collect();
    let mut out = format!("{HOME}{title}{CLEAR_ROW}\n");
    for line in &shown {
        out += &format!("{line}{CLEAR_ROW}\n");
    }
    if let more @ 1.. = lines.len() - shown.len() {
        out += &format!("... {more} more lines{CLEAR_ROW}\n");
    }
    out + CLEAR_BELOW
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(title: &str, text: &str, rows: usize) -> Vec<String> {
        let size = ScreenSize { columns: 10, rows };
        let frame = draw_frame(title, text, size);
        let plain = frame.replace(HOME, "").replace(CLEAR_ROW, "");
        let plain = plain.replace(CLEAR_BELOW, "");
        plain.lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_text_that_fits_is_shown_whole() {
        assert_eq!(rows("t", "a\nb\n", 4), ["t", "a", "b"]);
    }

    #[test]
    fn a_longer_text_is_cut_and_says_so() {
        assert_eq!(rows("t", "a\nb\nc\n", 4), ["t", "a", "... 2 more lines"]);
        let long = "0123456789x\nb\n";
        assert_eq!(rows("t", long, 5), ["t", "0123456789x", "b"]);
        assert_eq!(rows("t", long, 4), ["t", "... 2 more lines"]);
        assert_eq!(rows("t", "a\nb\n", 0), ["t", "... 2 more lines"]);
    }
}
