//! Pull secrets: the file and the entry that a pull would use. The secrets themselves are never kept.

use std::fmt;

use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;

use crate::paths;
use crate::root::{Root, RootError, RootPath};

/// The keys of a node's credentials, without the secrets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Secrets {
    /// The file in use; `None` if there is none.
    pub file: Option<String>,
    /// The reason why it cannot be used.
    pub problem: Option<String>,
    /// The keys of its entries.
    entries: Vec<String>,
}

/// The credentials that a pull would use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credentials {
    /// An entry of the file, for this key.
    Entry(String),
    /// The file has none for this name: the registry is asked without.
    None,
}

#[derive(Deserialize)]
struct RawSecrets {
    #[serde(default)]
    auths: BTreeMap<String, IgnoredAny>,
    #[serde(default, rename = "credHelpers")]
    helpers: BTreeMap<String, IgnoredAny>,
}

impl Secrets {
    /// Reads the keys of a file's entries.
    pub fn parse(file: &str, text: &[u8]) -> Self {
        let file = Some(file.to_owned());
        match serde_json::from_slice::<RawSecrets>(text) {
            Ok(raw) => Self {
                file,
                problem: None,
                entries: raw
                    .auths
                    .into_keys()
                    .chain(raw.helpers.into_keys())
                    .collect(),
            },
            // The parser's own words may quote the text.
            Err(error) => Self {
                file,
                problem: Some(format!(
                    "it is no JSON of that form (line {})",
                    error.line()
                )),
                entries: Vec::new(),
            },
        }
    }

    /// The first file of a root that exists, in rpm-ostree's order (docs/agreement.md: Files on a node). The daemon makes the first two
    /// links to the last, or to the secret of its own registry.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn read(root: &Root) -> Result<Self, RootError> {
        for file in paths::PULL_SECRETS {
            let path = RootPath::fixed(file);
            if let Some(bytes) = root.read(&path)? {
                return Ok(Self::parse(&path.to_string(), &bytes));
            }
        }
        Ok(Self::default())
    }

    /// Returns true if it has no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the credentials for `HOST/PATH`: the entry of the longest path, then of the host.
    pub fn of(&self, repository: &str) -> Credentials {
        let mut names = std::iter::successors(Some(repository), |name| {
            name.rsplit_once('/').map(|(above, _)| above)
        });
        let entry = |name: &str| {
            self.entries
                .iter()
                .find(|entry| strip_scheme(entry) == name)
        };
        match names.find_map(entry) {
            Some(entry) => Credentials::Entry(entry.clone()),
            None => Credentials::None,
        }
    }
}

/// Strips the scheme and path of a key: Docker wrote URLs.
fn strip_scheme(entry: &str) -> &str {
    let rest = entry
        .strip_prefix("https://")
        .or_else(|| entry.strip_prefix("http://"));
    let rest = rest.map(|rest| rest.split('/').next().unwrap_or(rest));
    rest.unwrap_or(entry)
}

impl fmt::Display for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entry(key) => write!(f, "with the credentials for {key}"),
            Self::None => f.write_str("without credentials"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = r#"{"auths": {"quay.example": {"auth": "c2VjcmV0"}, "quay.example/release": {"auth": "c2VjcmV0"},
        "https://index.docker.example/v1/": {"auth": "c2VjcmV0"}}, "credHelpers": {"helped.example": "x"}}"#;

    #[test]
    fn the_longest_path_counts_then_the_host() {
        let secrets = Secrets::parse("/f", SECRET.as_bytes());
        let entry = |name: &str| match secrets.of(name) {
            Credentials::Entry(key) => key,
            Credentials::None => String::new(),
        };
        assert_eq!(entry("quay.example/release/os"), "quay.example/release");
        assert_eq!(entry("quay.example/released"), "quay.example");
        assert_eq!(
            entry("index.docker.example/os"),
            "https://index.docker.example/v1/"
        );
        assert_eq!(entry("helped.example/os"), "helped.example");
        assert_eq!(secrets.of("mirror.local/os"), Credentials::None);
    }

    #[test]
    fn nothing_of_a_secret_is_kept_or_printed() {
        let broken = SECRET.replace("\"quay.example\":", "c2VjcmV0");
        for text in [SECRET, broken.as_str(), "c2VjcmV0"] {
            let shown = format!("{:?}", Secrets::parse("/f", text.as_bytes()));
            assert!(!shown.contains("c2VjcmV0"), "{shown}");
        }
        assert!(Secrets::parse("/f", b"c2VjcmV0").problem.is_some());
    }
}
