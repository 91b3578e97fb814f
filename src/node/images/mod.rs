//! OS images: the content of a medium, and the decisions of a pull.
//!
//! Only a bit-exact copy can have the digest in a config, so this module only reads and compares; it unpacks and writes
//! nothing. All reads are bounded, because a medium may contain anything.

mod archive;
pub mod auth;
pub mod extensions;
pub mod lookaside;
pub mod manifest;
pub mod medium;
pub mod object_store;
pub mod ostree_objects;
pub mod policy;
pub mod pull;
pub mod registries;
pub mod storage;
pub mod tree;

use std::fmt;

pub use medium::{Form, Medium, MediumCheck, MediumError};

/// A digest `sha256:…`, in lower case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(String);

impl Digest {
    /// Parses `sha256:` and 64 hex digits. OS images use no other algorithm.
    pub fn parse(text: &str) -> Option<Self> {
        let hex = text.strip_prefix("sha256:")?;
        let valid = hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit());
        valid.then(|| Self(hex.to_ascii_lowercase()))
    }

    /// Returns the digest of some bytes.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self(crate::host::root::sha256_hex(bytes))
    }

    /// Returns the digits alone.
    pub fn hex(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.0)
    }
}

/// The full name of an image: `HOST[:PORT]/PATH[:TAG][@DIGEST]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageName {
    /// Host, with the port if there is one.
    pub host: String,
    /// Path below the host.
    pub path: String,
    /// Tag.
    pub tag: Option<String>,
    /// Digest.
    pub digest: Option<Digest>,
}

/// The reason why a text is not an image name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Without a host, it may mean different images on different nodes.
    #[error("image {0:?} names no registry; give it as HOST/PATH@sha256:DIGEST")]
    NoHost(String),
    /// The digest is not a complete SHA-256.
    #[error("image {0:?} has no digest of 64 hex digits after `@sha256:`; copy it again")]
    Digest(String),
    /// It contains something invalid.
    #[error("image {0:?} is not an image name; give it as HOST/PATH@sha256:DIGEST")]
    Form(String),
}

impl ImageName {
    /// Parses a full name.
    ///
    /// # Errors
    /// The name is short or invalid.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let owned = || text.to_owned();
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => {
                let digest = Digest::parse(digest).ok_or_else(|| NameError::Digest(owned()))?;
                (name, Some(digest))
            }
            None => (text, None),
        };
        let (host, rest) = name
            .split_once('/')
            .ok_or_else(|| NameError::NoHost(owned()))?;
        if !(host.contains(['.', ':']) || host == "localhost") {
            return Err(NameError::NoHost(owned()));
        }
        let (path, tag) = match rest.split_once(':') {
            Some((path, tag)) => (path, Some(tag.to_owned())),
            None => (rest, None),
        };
        let letter = |b: u8| b.is_ascii_alphanumeric() || b"._-/".contains(&b);
        let fits = |text: &str| !text.is_empty() && text.bytes().all(letter);
        let of_host = |b: u8| b.is_ascii_alphanumeric() || b"._-:[]".contains(&b);
        // A path such as ./config.yaml is not a host.
        if !host.bytes().all(of_host)
            || host.starts_with('.')
            || !fits(path)
            || !tag.as_deref().is_none_or(fits)
            || format!("/{path}/").contains("//")
        {
            return Err(NameError::Form(owned()));
        }
        Ok(Self {
            host: host.to_owned(),
            path: path.to_owned(),
            tag,
            digest,
        })
    }

    /// Returns `HOST/PATH`.
    pub fn repository(&self) -> String {
        format!("{}/{}", self.host, self.path)
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.host, self.path)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        match &self.digest {
            Some(digest) => write!(f, "@{digest}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_taken_apart_and_printed_again() {
        let hex = "ab".repeat(32);
        for text in [
            format!("quay.example:5000/a/os:1@sha256:{hex}"),
            format!("quay.example/os@sha256:{hex}"),
            "localhost/os:4.1".to_owned(),
        ] {
            let name = ImageName::parse(&text).unwrap();
            assert_eq!(name.to_string(), text);
        }
        let name = ImageName::parse("quay.example:5000/a/os:1").unwrap();
        assert_eq!(
            (name.host.as_str(), name.path.as_str()),
            ("quay.example:5000", "a/os")
        );
        assert_eq!(name.repository(), "quay.example:5000/a/os");
    }

    #[test]
    fn short_names_and_broken_digests_are_refused() {
        assert!(matches!(
            ImageName::parse("os:1"),
            Err(NameError::NoHost(_))
        ));
        assert!(matches!(
            ImageName::parse("library/os"),
            Err(NameError::NoHost(_))
        ));
        assert!(matches!(
            ImageName::parse("quay.example/os@sha256:12"),
            Err(NameError::Digest(_))
        ));
        for text in [
            "quay.example/",
            "quay.example/a b",
            "quay.example\n[x]/os",
            "quay .example/os",
            "quay.example//os",
            "quay.example/os:",
            "./config.yaml",
            "../configs/worker.yaml",
        ] {
            assert!(
                matches!(ImageName::parse(text), Err(NameError::Form(_))),
                "{text}"
            );
        }
    }
}
