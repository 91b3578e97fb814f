//! `capsule.json`.

use std::collections::BTreeSet;

use serde::{Deserialize, Deserializer, Serialize};

use super::{CAPSULE, SIGNATURE};
use crate::base::time::parse_day_or_time;
use crate::node::images::ImageName;

/// Version of the document.
pub const VERSION: u32 = 1;
/// Maximum size of the document, in bytes (16 MiB).
pub const MAX_CAPSULE: u64 = 16 << 20;
/// The largest sequence number: that of JSON numbers which every reader knows exactly.
pub const MAX_SEQUENCE: u64 = 1 << 53;

/// What is on a medium, and for whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapsuleDocument {
    /// Version of the document.
    pub version: u32,
    /// Name and domain of the cluster; `None` for any.
    #[serde(deserialize_with = "require_field")]
    pub cluster: Option<String>,
    /// Pools; empty for any.
    pub pools: Vec<String>,
    /// Names of nodes; empty for any.
    pub nodes: Vec<String>,
    /// Its end in RFC 3339; `None` if it has none.
    #[serde(deserialize_with = "require_field")]
    pub not_after: Option<String>,
    /// Number that is larger than that of every earlier capsule.
    pub sequence: u64,
    /// Files, sorted by path.
    pub files: Vec<CapsuleFile>,
    /// MachineConfigs among the files, sorted by name.
    pub configs: Vec<CapsuleConfig>,
    /// OS images, sorted by reference.
    pub images: Vec<CapsuleImage>,
}

/// A file of a capsule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapsuleFile {
    /// Path below the directory of the capsule.
    pub path: String,
    /// Size in bytes.
    pub size: u64,
    /// SHA-256 in lower-case hex.
    pub sha256: String,
}

/// A config of a capsule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapsuleConfig {
    /// `metadata.name`.
    pub name: String,
    /// SHA-256 of its file.
    pub sha256: String,
}

/// An OS image, as a statement of who signed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapsuleImage {
    /// `NAME@sha256:DIGEST`.
    pub reference: String,
    /// Checksum of the tree in OSTree; `None` for an image that its digest proves, such as an OCI archive.
    #[serde(deserialize_with = "require_field")]
    pub content_checksum: Option<String>,
    /// Checksum of the layers in OSTree, as `image list` prints it; `None` if `content_checksum` is `None`.
    #[serde(deserialize_with = "require_field")]
    pub layers_checksum: Option<String>,
}

/// The reason why a text is not a capsule; its text is the end of a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentFault {
    /// It is not JSON of this form.
    #[error("is not a capsule: {0}")]
    Form(String),
    /// Its version is not known.
    #[error("has version {0}; this program knows version {VERSION}")]
    Version(u32),
    /// A value is not allowed.
    #[error("has {0}")]
    Value(String),
}

fn require_field<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Option::deserialize(from)
}

impl CapsuleDocument {
    /// Parses a document, and checks every value.
    ///
    /// # Errors
    /// It has another form, or a value that is not allowed.
    pub fn parse(bytes: &[u8]) -> Result<Self, DocumentFault> {
        let parsed: Self = serde_json::from_slice(bytes)
            .map_err(|error| DocumentFault::Form(error.to_string()))?;
        parsed.check_values()?;
        Ok(parsed)
    }

    /// Returns the text of the document.
    ///
    /// # Errors
    /// It cannot be written as JSON, or a value is not allowed.
    pub fn to_text(&self) -> Result<String, DocumentFault> {
        self.check_values()?;
        let text = serde_json::to_string_pretty(self);
        let text = text.map_err(|error| DocumentFault::Form(error.to_string()))?;
        Ok(text + "\n")
    }

    /// Returns the end in seconds since 1970.
    pub fn end_time(&self) -> Option<u64> {
        parse_day_or_time(self.not_after.as_deref()?).ok()
    }

    /// Returns the file with this path.
    pub fn find_file(&self, path: &str) -> Option<&CapsuleFile> {
        self.files.iter().find(|file| file.path == path)
    }

    fn check_values(&self) -> Result<(), DocumentFault> {
        let value = |what: String| Err(DocumentFault::Value(what));
        if self.version != VERSION {
            return Err(DocumentFault::Version(self.version));
        }
        if self.sequence > MAX_SEQUENCE {
            return value(format!("a sequence number above {MAX_SEQUENCE}"));
        }
        let scope = self.cluster.iter().chain(&self.pools).chain(&self.nodes);
        for name in scope.chain(self.configs.iter().map(|config| &config.name)) {
            if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
                return value(format!("the name {name:?}"));
            }
        }
        if let Some(text) = &self.not_after
            && (!text.contains('T') || parse_day_or_time(text).is_err())
        {
            return value(format!(
                "not_after {text:?}, which is not a time in RFC 3339"
            ));
        }
        self.check_files()?;
        let names: Vec<&str> = self.configs.iter().map(|one| one.name.as_str()).collect();
        let references: Vec<&str> = self
            .images
            .iter()
            .map(|one| one.reference.as_str())
            .collect();
        for list in [names, references] {
            if !list.is_sorted_by(|a, b| a < b) {
                return value("an unsorted list, or a duplicate entry".to_owned());
            }
        }
        for config in &self.configs {
            if !self.files.iter().any(|file| file.sha256 == config.sha256) {
                return value(format!("the config {} without its file", config.name));
            }
        }
        self.check_images()
    }

    fn check_images(&self) -> Result<(), DocumentFault> {
        for image in &self.images {
            let name = ImageName::parse(&image.reference);
            let has_digest = name.is_ok_and(|name| name.digest.is_some());
            let checksums = (&image.content_checksum, &image.layers_checksum);
            let is_complete = match checksums {
                (None, None) => true,
                (Some(content), Some(layers)) => is_digest(content) && is_digest(layers),
                _ => false,
            };
            if !has_digest || !is_complete {
                let what = format!("the image {:?} without digests", image.reference);
                return Err(DocumentFault::Value(what));
            }
        }
        Ok(())
    }

    fn check_files(&self) -> Result<(), DocumentFault> {
        let value = |what: String| Err(DocumentFault::Value(what));
        if !self.files.is_sorted_by(|a, b| a.path < b.path) {
            return value("unsorted files, or a duplicate path".to_owned());
        }
        let mut known = BTreeSet::new();
        for file in &self.files {
            if let Some(why) = why_not_path(&file.path) {
                return value(format!("the path {:?}: {why}", file.path));
            }
            if !is_digest(&file.sha256) {
                return value(format!("no SHA-256 of {}", file.path));
            }
            if !known.insert(file.path.to_ascii_lowercase()) {
                return value(format!("two paths that differ in case only: {}", file.path));
            }
        }
        Ok(())
    }
}

/// Returns true for 64 lower-case hex digits.
fn is_digest(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == 64 && text.bytes().all(is_digit)
}

/// Returns the reason why a path cannot be in a capsule. All file systems store the allowed ones in the same way, apart from case.
pub fn why_not_path(path: &str) -> Option<&'static str> {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+@=,~ /".contains(&byte);
    if path.is_empty() || path.len() > 1024 {
        return Some("it is empty or too long");
    }
    if !path.bytes().all(is_letter) {
        return Some(
            "file systems store its letters differently; use a-z, A-Z, 0-9, blanks and ._-+@=,~",
        );
    }
    let is_bad = |part: &str| {
        part.is_empty()
            || part == "."
            || part == ".."
            || part.ends_with(['.', ' '])
            || part.starts_with(' ')
    };
    if path.split('/').any(is_bad) {
        return Some(
            "a part of it is empty, is `.` or `..`, or begins or ends with a blank or a dot",
        );
    }
    let is_own = |name: &&str| path.eq_ignore_ascii_case(name);
    [CAPSULE, SIGNATURE]
        .iter()
        .any(is_own)
        .then_some("it is the capsule itself")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> CapsuleDocument {
        let file = |path: &str, digit: char| CapsuleFile {
            path: path.to_owned(),
            size: 1,
            sha256: digit.to_string().repeat(64),
        };
        CapsuleDocument {
            version: VERSION,
            cluster: None,
            pools: vec!["worker".to_owned()],
            nodes: Vec::new(),
            not_after: Some("2027-01-31T12:00:00Z".to_owned()),
            sequence: 7,
            files: vec![file("a/b.json", '0'), file("c.json", '1')],
            configs: vec![CapsuleConfig {
                name: "rendered-worker-1".to_owned(),
                sha256: "0".repeat(64),
            }],
            images: vec![CapsuleImage {
                reference: format!("quay.io/os@sha256:{}", "2".repeat(64)),
                content_checksum: Some("3".repeat(64)),
                layers_checksum: Some("4".repeat(64)),
            }],
        }
    }

    #[test]
    fn a_document_is_read_as_it_was_written() {
        let text = document().to_text().unwrap();
        assert_eq!(CapsuleDocument::parse(text.as_bytes()), Ok(document()));
        assert_eq!(document().end_time(), Some(1_801_396_800));
    }

    #[test]
    fn every_other_form_is_refused() {
        let text = document().to_text().unwrap();
        for (from, to) in [
            ("\"version\": 1", "\"version\": 2"),
            ("\"version\": 1", "\"version\": 1, \"version\": 1"),
            ("\"version\": 1", "\"version\": 1, \"more\": 1"),
            ("  \"cluster\": null,\n", ""),
            ("\"sequence\": 7", "\"sequence\": -7"),
            ("\"sequence\": 7", "\"sequence\": 7.0"),
            ("\"sequence\": 7", "\"sequence\": 9007199254740993"),
            ("2027-01-31T12:00:00Z", "2027-01-31"),
            ("2027-01-31T12:00:00Z", "2027-02-30T12:00:00Z"),
            ("\"worker\"", "\"\""),
            ("\"worker\"", "\"wor ker\""),
            ("a/b.json", "d.json"),
            ("a/b.json", "c.json"),
            ("a/b.json", "C.json"),
            ("a/b.json", "a/../b.json"),
            ("a/b.json", "/b.json"),
            ("a/b.json", "a//b.json"),
            ("a/b.json", "a/b.json."),
            ("a/b.json", "a\\\\b.json"),
            ("a/b.json", "a/\u{e9}.json"),
            ("a/b.json", "a/e\u{301}.json"),
            ("a/b.json", "Capsule.json"),
            ("a/b.json", "a\\u0000"),
            ("@sha256:", ":"),
            ("3333", "333"),
            ("3333", "AAAA"),
            ("\"size\": 1", "\"size\": 1, \"size\": 1"),
            ("rendered-worker-1", ""),
        ] {
            let other = text.replacen(from, to, 1);
            assert_ne!(other, text, "{from}");
            assert!(CapsuleDocument::parse(other.as_bytes()).is_err(), "{to}");
        }
        for end in [0, 1, text.len() / 2, text.len() - 3] {
            assert!(CapsuleDocument::parse(&text.as_bytes()[..end]).is_err());
        }
        let longer = format!("{text}{{}}");
        assert!(CapsuleDocument::parse(longer.as_bytes()).is_err());
        let orphan = text.replacen(&"0".repeat(64), &"9".repeat(64), 1);
        assert!(CapsuleDocument::parse(orphan.as_bytes()).is_err());
    }
}
