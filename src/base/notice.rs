//! A notice: a subject and a message for the user.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::text::make_inline;

/// Something that the user has to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// A JSON path, a node path or a unit.
    pub subject: String,
    /// What it is, and what to do next. If it begins with a verb, such as "is missing", subject and message form one sentence.
    pub message: String,
}

impl Notice {
    /// Creates a notice.
    pub fn new(subject: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            subject: subject.into(),
            message: message.into(),
        }
    }
}

/// Words with which a predicate begins, for one subject and for several.
const PREDICATES: [(&str, &str); 13] = [
    ("is", "are"),
    ("was", "were"),
    ("has", "have"),
    ("stays", "stay"),
    ("gets", "get"),
    ("cannot", "cannot"),
    ("may", "may"),
    ("would", "would"),
    ("will", "will"),
    ("belongs", "belong"),
    ("exists", "exist"),
    ("exists,", "exist,"),
    ("still", "still"),
];

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (subject, message) = (make_inline(&self.subject), &self.message);
        if subject.is_empty() {
            return write!(f, "{message}");
        }
        let parts = message.split_once(' ').and_then(|(first, rest)| {
            let known = PREDICATES.iter().find(|(one, _)| *one == first)?;
            Some((known, rest))
        });
        match parts {
            // Several subjects with the same message.
            Some(((_, several), rest)) if subject.ends_with(" more") => {
                write!(f, "{subject} {several} {rest}")
            }
            Some(_) => write!(f, "{subject} {message}"),
            None => write!(f, "{subject}: {message}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_predicate_follows_its_subject_and_other_words_a_colon() {
        for (subject, message, said) in [
            ("/etc/a", "is missing. Look", "/etc/a is missing. Look"),
            (
                "/etc/a and 2 more",
                "was changed",
                "/etc/a and 2 more were changed",
            ),
            ("/etc/a", "exists, so look", "/etc/a exists, so look"),
            ("/etc/a", "still exists: look", "/etc/a still exists: look"),
            ("/etc/a", "no room", "/etc/a: no room"),
            ("/etc/a", "isolated", "/etc/a: isolated"),
            ("", "is missing", "is missing"),
        ] {
            assert_eq!(Notice::new(subject, message).to_string(), said);
        }
    }
}
