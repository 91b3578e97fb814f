//! The reason for a failure: the end of an error message.

use nix::errno::Errno;

/// Why something failed, in words for a person. Where a caller tells failures apart, they are an enum instead.
///
/// A system error's text is in lower case and without numbers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Reason(String);

impl Reason {
    /// Returns the words of an error of another kind.
    pub fn from_error(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

impl From<Errno> for Reason {
    fn from(errno: Errno) -> Self {
        let text = errno.desc();
        // Descriptions that begin with an acronym, such as "I/O error", are unchanged.
        if !text.chars().nth(1).is_some_and(char::is_lowercase) {
            return Self(text.to_owned());
        }
        let mut letters = text.chars();
        let first = letters.next().map(|c| c.to_ascii_lowercase());
        Self(first.into_iter().chain(letters).collect())
    }
}

impl From<std::io::Error> for Reason {
    fn from(error: std::io::Error) -> Self {
        match error.raw_os_error() {
            Some(number) => Errno::from_raw(number).into(),
            None => Self(error.to_string()),
        }
    }
}

impl From<serde_json::Error> for Reason {
    fn from(error: serde_json::Error) -> Self {
        Self(error.to_string())
    }
}

impl From<String> for Reason {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Reason {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_read_as_the_end_of_a_sentence() {
        assert_eq!(
            Reason::from(Errno::ENOSPC).to_string(),
            "no space left on device"
        );
        let error = std::io::Error::from_raw_os_error(libc::EACCES);
        assert_eq!(Reason::from(error).to_string(), "permission denied");
        assert_eq!(Reason::from(Errno::EIO).to_string(), "I/O error");
    }
}
