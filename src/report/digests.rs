//! Digests on a screen: whole where they are shown first, and 12 digits after that.

use std::collections::HashSet;

/// Digits of a SHA-256.
const WHOLE: usize = 64;
/// What stands before a digest.
const ALGORITHM: &str = "sha256:";
/// Digits that are enough to recognise a digest.
const SHORT: usize = 12;
/// Parts of a line that stays whole, because a command has to work as it is printed.
const VERBATIM: [&str; 15] = [
    "Next:",
    "then:",
    "or:",
    "Undo:",
    "  Next  ",
    "  then  ",
    "  Fix  ",
    "`",
    "mco-rescue ",
    "rpm-ostree ",
    "bootc ",
    "oc ",
    "podman ",
    "skopeo ",
    "://",
];

/// The digests that a screen has shown.
#[derive(Debug, Default)]
pub struct ShownDigests {
    whole: HashSet<String>,
}

impl ShownDigests {
    /// Returns the next part of the screen, with 12 digits of each digest that was shown before. Commands stay whole.
    pub fn shorten(&mut self, text: &str) -> String {
        let lines = text.split_inclusive('\n');
        lines.map(|line| self.shorten_line(line)).collect()
    }

    fn shorten_line(&mut self, line: &str) -> String {
        let is_verbatim = VERBATIM.iter().any(|part| line.contains(part));
        let mut out = String::with_capacity(line.len());
        let mut is_named = false;
        for word in line.split_inclusive(|c: char| !c.is_ascii_alphanumeric()) {
            let digits = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
            let is_hex = digits.len() == WHOLE && digits.bytes().all(|b| b.is_ascii_hexdigit());
            // The checksum of a commit is the name of a deployment, and stays.
            let is_digest = is_named && is_hex;
            is_named = word == ALGORITHM;
            if !is_digest || self.whole.insert(digits.to_owned()) || is_verbatim {
                out.push_str(word);
                continue;
            }
            out.push_str(digits.get(..SHORT).unwrap_or(digits));
            out.push_str(word.get(digits.len()..).unwrap_or_default());
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_shown_whole_once() {
        let (a, b) = ("a".repeat(64), "b".repeat(64));
        let mut shown = ShownDigests::default();
        let first = format!("os@sha256:{a} -> os@sha256:{b}:\n");
        assert_eq!(shown.shorten(&first), first);
        let again = format!("Staged os@sha256:{a} (runs), sha256:{b}, {b}.0\n");
        let short = "Staged os@sha256:aaaaaaaaaaaa (runs), sha256:bbbbbbbbbbbb";
        assert_eq!(shown.shorten(&again), format!("{short}, {b}.0\n"));
    }

    #[test]
    fn a_command_and_other_words_stay_whole() {
        let digest = "c".repeat(64);
        let mut shown = ShownDigests::default();
        for line in [
            format!("sha256:{digest}\nNext: mco-rescue pivot os@sha256:{digest}\n"),
            format!("docker://os@sha256:{digest}\n"),
            format!("  Next     podman pull os@sha256:{digest}\n"),
        ] {
            assert_eq!(shown.shorten(&line), line);
        }
        for other in ["d".repeat(63), "d".repeat(65), "g".repeat(64)] {
            let twice = format!("sha256:{other} sha256:{other}\n");
            assert_eq!(shown.shorten(&twice), twice);
        }
    }
}
