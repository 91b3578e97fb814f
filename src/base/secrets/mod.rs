//! The one policy of secrets: which files, texts, settings, kernel arguments and addresses hold one, and how it is shown.
//!
//! Pure. Every output goes through it: screens, documents, differences, `keep`, the recorder and bundles. A file is
//! judged by [`reason_of_file`], foreign text by [`redacted`], kernel arguments by [`redacted_argument`], and sentences
//! that quote such values by [`redacted_words`]. A digest of a secret is shown only if a key was used for it: short
//! secrets are found by guessing otherwise.

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
pub use url::{login_of, redacted_url};

/// A secret within a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secret {
    /// Its bytes.
    pub at: Range<usize>,
    /// The reason, as the end of a sentence about the text.
    pub why: &'static str,
}

/// Returns the words that stand in place of a secret of this size.
pub fn hidden(bytes: usize) -> String {
    let plural = if bytes == 1 { "" } else { "s" };
    format!("(secret, {bytes} byte{plural})")
}

/// Returns true for a text in which a secret was hidden.
pub fn has_hidden(text: &str) -> bool {
    text.contains("(secret, ")
}

/// Returns a text from a file with the size in place of each secret.
pub fn redacted(text: &str) -> Cow<'_, str> {
    replaced(text, find_secrets(text), &|secret| hidden(secret.len()))
}

/// Returns the reason why a text may hold a secret.
pub fn reason_of_text(text: &str) -> Option<&'static str> {
    find_secrets(text).first().map(|secret| secret.why)
}

/// Returns a text in which other words stand in place of each secret. `secrets` are in order, and do not overlap.
pub fn replaced<'a>(
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

/// Returns a text line by line, each without its secrets: a secret of several lines is hidden in each of them. As many
/// lines as the text has, with their ends.
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
        let shown = replaced(line, here, &|secret| hidden(secret.len()));
        lines.push((line, shown));
        start = end;
    }
    lines
}

#[cfg(test)]
mod tests;
