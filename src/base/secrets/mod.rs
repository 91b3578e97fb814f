//! The policy on secrets: which files, texts, settings, kernel arguments and addresses contain one, and how it is shown.
//!
//! Pure. All output passes through it: screens, documents, differences, `keep`, the recorder and bundles. A file is judged by
//! [`reason_of_file`], foreign text by [`redact_secrets`], kernel arguments by [`redacted_argument`], and sentences that quote such
//! values by [`redacted_words`]. A digest of a secret is shown only if it is keyed: otherwise short secrets can be guessed.

mod arguments;
mod files;
mod marks;
mod names;
mod text;
mod url;
mod values;

use std::borrow::Cow;
use std::ops::Range;

pub use arguments::{
    has_secret_argument, is_secret_name, redacted_argument, redacted_arguments, redacted_words,
    shown_argument, shown_arguments,
};
pub use files::{is_private, may_be_secret, reason_of_file};
pub use text::find_secrets;
pub use url::redacted_url;

/// A secret within a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secret {
    /// Its byte range.
    pub at: Range<usize>,
    /// The reason, as the end of a sentence about the text.
    pub why: &'static str,
}

/// Returns the placeholder for a secret of this size.
pub fn secret_placeholder(bytes: usize) -> String {
    let plural = if bytes == 1 { "" } else { "s" };
    format!("(secret, {bytes} byte{plural})")
}

/// Returns true for a text that contains a placeholder.
pub fn has_hidden(text: &str) -> bool {
    text.contains("(secret, ")
}

/// Returns a file's text with each secret replaced by its size.
pub fn redact_secrets(text: &str) -> Cow<'_, str> {
    replace_secrets(text, find_secrets(text), &|secret| {
        secret_placeholder(secret.len())
    })
}

/// Returns the reason why a text may contain a secret.
pub fn reason_of_text(text: &str) -> Option<&'static str> {
    find_secrets(text).first().map(|secret| secret.why)
}

/// Returns a text with each secret replaced. `secrets` are sorted and do not overlap.
pub fn replace_secrets<'a>(
    text: &'a str,
    secrets: Vec<Secret>,
    shown: &dyn Fn(&str) -> String,
) -> Cow<'a, str> {
    if secrets.is_empty() {
        return Cow::Borrowed(text);
    }
    let (mut out, mut done) = (String::with_capacity(text.len()), 0);
    for Secret { at, .. } in secrets {
        let (Some(before), Some(secret)) = (text.get(done..at.start), text.get(at.clone())) else {
            continue;
        };
        out.push_str(before);
        out.push_str(&shown(secret));
        done = at.end;
    }
    out.push_str(text.get(done..).unwrap_or_default());
    Cow::Owned(out)
}

/// Returns a text line by line, each without its secrets: a secret of several lines is hidden in each of them. The result has
/// as many lines as the text, with their line ends.
pub fn redacted_lines(text: &str) -> Vec<(&str, Cow<'_, str>)> {
    let secrets = find_secrets(text);
    let (mut lines, mut start, mut first) = (Vec::new(), 0, 0);
    for line in text.split_inclusive('\n') {
        let end = start + line.len();
        let body = start + line.trim_end_matches(['\n', '\r']).len();
        while secrets.get(first).is_some_and(|one| one.at.end <= start) {
            first += 1;
        }
        let here = secrets.iter().skip(first);
        let here = here
            .take_while(|one| one.at.start < body)
            .map(|one| Secret {
                at: one.at.start.max(start) - start..one.at.end.min(body) - start,
                why: one.why,
            });
        let here = here.filter(|one| !one.at.is_empty()).collect();
        let shown = replace_secrets(line, here, &|secret| secret_placeholder(secret.len()));
        lines.push((line, shown));
        start = end;
    }
    lines
}

#[cfg(test)]
mod tests;
