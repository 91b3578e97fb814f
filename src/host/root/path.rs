//! [`RootPath`]: the only form in which a path reaches the file system.
//!
//! Created by parsing, never by joining strings: absolute in the document, without `..` and NUL, normalized, stored relative to
//! the root.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A path inside the root, without a leading slash and without `.`, `..` or doubled slashes. Printed as the absolute path that
/// a document would use. Clones share the text, because paths are keys of many tables.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RootPath(Arc<str>);

/// The reason why a string is not a path inside the root.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RootPathError {
    /// The path does not begin with a slash.
    #[error("path {0:?} is not absolute")]
    NotAbsolute(String),
    /// A component is `..`.
    #[error("path {0:?} contains `..`")]
    Climbing(String),
    /// The path contains a NUL byte, which no file system accepts.
    #[error("path {0:?} contains a NUL byte")]
    Nul(String),
    /// The path names the root itself.
    #[error("path {0:?} names the root directory itself")]
    IsRoot(String),
}

impl RootPath {
    /// Parses an absolute path as documents write it.
    pub fn parse(text: &str) -> Result<Self, RootPathError> {
        let Some(relative) = text.strip_prefix('/') else {
            return Err(RootPathError::NotAbsolute(text.into()));
        };
        Self::normalise_path(relative, text)
    }

    /// Returns a path known at compile time, written relative to the root.
    ///
    /// A test checks the constants of [`crate::base::paths`], so this cannot fail.
    pub fn fixed(text: &'static str) -> Self {
        Self(text.into())
    }

    fn normalise_path(relative: &str, original: &str) -> Result<Self, RootPathError> {
        if original.contains('\0') {
            return Err(RootPathError::Nul(original.into()));
        }
        let nothing = |part: &&str| matches!(*part, "" | ".");
        if relative.split('/').any(|part| part == "..") {
            return Err(RootPathError::Climbing(original.into()));
        }
        // Most paths are already normalized.
        if !relative.split('/').any(|part| nothing(&part)) {
            return Ok(Self(relative.into()));
        }
        let parts = relative.split('/').filter(|part| !nothing(part));
        let parts: Vec<&str> = parts.collect();
        if parts.is_empty() {
            return Err(RootPathError::IsRoot(original.into()));
        }
        Ok(Self(parts.join("/").into()))
    }

    /// Returns the path without a leading slash, for the `*at` calls.
    pub fn relative(&self) -> &str {
        &self.0
    }

    /// Returns the last component.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }

    /// Returns the directory above; `None` if that is the root itself.
    pub fn parent(&self) -> Option<Self> {
        self.parent_text().map(|parent| Self(parent.into()))
    }

    /// Returns the text of the directory above, without a leading slash.
    pub fn parent_text(&self) -> Option<&str> {
        self.0.rsplit_once('/').map(|(parent, _)| parent)
    }

    /// Returns this path and every directory above it except the root, nearest first.
    pub fn ancestors(&self) -> impl Iterator<Item = Self> {
        std::iter::successors(Some(self.clone()), Self::parent)
    }

    /// Returns a path below this one. `below` may have several components.
    pub fn join(&self, below: &str) -> Result<Self, RootPathError> {
        let joined = format!("/{}/{below}", self.0);
        Self::parse(&joined)
    }

    /// Returns the path with the same name below another directory, with `suffix` appended.
    ///
    /// Like [`RootPath::fixed`], for a directory known at compile time.
    pub fn moved_below(&self, directory: &'static str, suffix: &'static str) -> Self {
        let parts = [directory, "/", &self.0, suffix];
        Self(parts.concat().into())
    }

    /// Returns true if this path is `directory` or is below it, compared by component.
    pub fn is_in(&self, directory: &str) -> bool {
        *self.0 == *directory
            || self
                .0
                .strip_prefix(directory)
                .is_some_and(|rest| rest.starts_with('/'))
    }
}

/// A directory found by following links: the root itself, or one below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RealPath {
    /// The root itself.
    Root,
    /// A directory below it.
    Below(RootPath),
}

impl RealPath {
    /// Returns the path without a leading slash; empty for the root.
    pub fn relative(&self) -> &str {
        match self {
            Self::Root => "",
            Self::Below(path) => path.relative(),
        }
    }

    /// Returns a path below this directory. `below` may have several components.
    ///
    /// # Errors
    /// `below` is not a path, such as an empty one below the root.
    pub fn join(&self, below: &str) -> Result<RootPath, RootPathError> {
        RootPath::parse(&format!("/{}/{below}", self.relative()))
    }
}

impl fmt::Display for RealPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", self.relative())
    }
}

impl fmt::Display for RootPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", self.0)
    }
}

impl fmt::Debug for RootPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", self.0)
    }
}

impl TryFrom<String> for RootPath {
    type Error = RootPathError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

impl From<RootPath> for String {
    fn from(path: RootPath) -> Self {
        path.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn unclean_but_harmless_paths_are_normalised() {
        assert_eq!(RootPath::parse("/etc//./a/").unwrap().relative(), "etc/a");
    }

    #[test]
    fn climbing_relative_root_and_nul_are_refused() {
        for bad in ["/etc/../x", "/..", "etc/x", "", "/", "//", "/a\0b"] {
            assert!(RootPath::parse(bad).is_err(), "{bad:?} was taken");
        }
    }

    #[test]
    fn containment_is_by_component() {
        let path = RootPath::parse("/etc/docker/certs.d/x").unwrap();
        assert!(path.is_in("etc/docker/certs.d"));
        assert!(!path.is_in("etc/docker/cert"));
    }

    #[test]
    fn ancestors_end_below_the_root() {
        let path = RootPath::parse("/a/b/c").unwrap();
        let all: Vec<_> = path.ancestors().map(|p| p.to_string()).collect();
        assert_eq!(all, ["/a/b/c", "/a/b", "/a"]);
    }

    proptest! {
        #[test]
        fn parsing_what_was_printed_is_the_identity(text in "/[a-z./\\PC]{0,40}") {
            if let Ok(path) = RootPath::parse(&text) {
                prop_assert_eq!(RootPath::parse(&path.to_string()).unwrap(), path.clone());
                prop_assert!(!path.relative().split('/').any(|c| c == ".." || c.is_empty()));
            }
        }
    }
}
