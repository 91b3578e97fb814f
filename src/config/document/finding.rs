//! Findings about a document: path, severity, and advice.

use std::fmt;

use serde::Serialize;

/// The end of a message about a truncated document.
pub const CUT_SHORT: &str = "the document is cut short, copy it again";

/// The same for an error that may have another cause.
pub(super) const IF_CUT_SHORT: &str = "if the document is cut short, copy it again";

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The document is refused.
    Error,
    /// The document is usable, but the user should know about this.
    Warning,
}

/// A defect of a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Error or warning.
    pub severity: Severity,
    /// The JSON path, such as `spec.config.storage.files[3].mode`; empty for the document as a whole.
    pub path: String,
    /// The defect and the advice.
    pub message: String,
}

impl Finding {
    /// Creates a finding that makes the document unusable.
    pub fn error(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            path: path.into(),
            message: message.into(),
        }
    }

    /// Creates a finding that the user should know about.
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

/// Returns a path below the path `at` of the config, which is empty for a bare config.
pub(super) fn path_below(at: &str, path: &str) -> String {
    if at.is_empty() {
        path.to_owned()
    } else {
        format!("{at}.{path}")
    }
}

/// The errors that make a document unusable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct DocumentError {
    /// The source of the document.
    pub origin: String,
    /// The findings: at least one error, possibly mixed with warnings.
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
