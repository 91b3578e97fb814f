//! Findings about a document: place, severity, and advice.

use std::fmt;

use serde::Serialize;

/// The end of a message on a document that ends too early.
pub const CUT_SHORT: &str = "the document is cut short, copy it again";

/// The same where it may have another cause.
pub(super) const IF_CUT_SHORT: &str = "if the document is cut short, copy it again";

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The document is refused.
    Error,
    /// The document is used; the user should know.
    Warning,
}

/// A defect of a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Error or warning.
    pub severity: Severity,
    /// The JSON path, as in `spec.config.storage.files[3].mode`; empty for the document as a whole.
    pub path: String,
    /// The defect and the advice.
    pub message: String,
}

impl Finding {
    /// A finding that makes the document unusable.
    pub fn error(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            path: path.into(),
            message: message.into(),
        }
    }

    /// A finding that the user should know.
    pub fn warning(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            path: path.into(),
            message: message.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            return write!(f, "{}", self.message);
        }
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// Returns a path below the place `at` of the config; a bare config is at the top, with an empty place.
pub(super) fn path_below(at: &str, path: &str) -> String {
    if at.is_empty() {
        path.to_owned()
    } else {
        format!("{at}.{path}")
    }
}

/// A document that cannot be used, with every error found in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct DocumentError {
    /// The source of the document.
    pub origin: String,
    /// At least one error; warnings may stand between them.
    pub findings: Vec<Finding>,
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errors: Vec<_> = self
            .findings
            .iter()
            .filter(|x| x.severity == Severity::Error)
            .collect();
        match errors.as_slice() {
            [one] => write!(f, "{}: {one}", self.origin),
            many => {
                write!(f, "{}: {} errors", self.origin, many.len())?;
                many.iter()
                    .try_for_each(|finding| write!(f, "\n  {finding}"))
            }
        }
    }
}
