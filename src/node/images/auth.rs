//! Pull secrets: the file and the entry that a pull would use. The secrets themselves are never kept in memory.

use std::fmt;

use base64::Engine;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;

use crate::base::paths;
use crate::host::root::{Root, RootError, RootPath};

/// The keys of a node's credentials file, without the secrets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Secrets {
    /// The file in use; `None` if there is none.
    pub file: Option<String>,
    /// The reason why the file cannot be used.
    pub problem: Option<String>,
    /// The keys of its entries.
    entries: Vec<String>,
    /// The entries that cannot be used.
    pub faults: Vec<EntryFault>,
}

/// An unusable entry. Its value is never kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryFault {
    /// Its key.
    pub key: String,
    /// What is wrong with it.
    pub said: &'static str,
    /// Because of it, the kubelet rejects the whole file.
    pub stops_kubelet: bool,
}

/// The credentials that a pull uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credentials {
    /// The entry with this key.
    Entry(String),
    /// The file has no entry for this name, so the pull is anonymous.
    None,
}

#[derive(Deserialize)]
struct RawSecrets {
    #[serde(default)]
    auths: Option<BTreeMap<String, Option<RawEntry>>>,
    #[serde(default, rename = "credHelpers")]
    helpers: BTreeMap<String, IgnoredAny>,
}

/// An entry. Its secrets are dropped with it.
#[derive(Deserialize)]
struct RawEntry {
    #[serde(default)]
    auth: Option<String>,
    #[serde(default)]
    username: Option<IgnoredAny>,
    #[serde(default)]
    identitytoken: Option<IgnoredAny>,
}

impl RawEntry {
    /// Returns what is wrong with the value, and whether the kubelet rejects the file because of it.
    fn fault(&self) -> Option<(&'static str, bool)> {
        let auth = self.auth.as_deref().unwrap_or_default();
        if auth.is_empty() {
            return match (&self.username, &self.identitytoken) {
                (Some(_), _) => Some((
                    "it has username and password, which the kubelet alone uses: auth is missing",
                    false,
                )),
                (None, Some(_)) => Some((
                    "it has an identity token alone, which is not used without auth",
                    false,
                )),
                // An entry for a credential helper.
                (None, None) => None,
            };
        }
        let config =
            GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
        let engine = GeneralPurpose::new(&base64::alphabet::STANDARD, config);
        // The tools ignore line breaks.
        let plain: String = auth
            .chars()
            .filter(|letter| !matches!(letter, '\n' | '\r'))
            .collect();
        let Ok(decoded) = engine.decode(&plain) else {
            return Some(("auth is not base64", true));
        };
        if !decoded.contains(&b':') {
            return Some(("auth is not the base64 of USER:PASSWORD", true));
        }
        // The kubelet also accepts it without padding.
        (!plain.len().is_multiple_of(4)).then_some((
            "auth lacks the = at its end, without which the containers tools fail",
            false,
        ))
    }
}

/// Returns what is wrong with a key that cannot match any registry.
fn key_fault(key: &str) -> Option<&'static str> {
    let rest = key
        .strip_prefix("https://")
        .or_else(|| key.strip_prefix("http://"));
    let name = rest.unwrap_or(key);
    let host = name.split('/').next().unwrap_or_default();
    if host.is_empty() || key.contains(char::is_whitespace) {
        Some("its key is not a name of a registry")
    } else if key.contains("://") && rest.is_none() {
        Some("its key begins with another scheme than https://")
    } else if host.contains('*') {
        Some("its key has a *, which the kubelet alone understands")
    } else if rest.is_none() && name.ends_with('/') {
        Some("its key ends with a slash, and only names without it are asked for")
    } else if rest.is_none()
        && (name.contains('@')
            || name
                .rsplit('/')
                .next()
                .is_some_and(|end| end != host && end.contains(':')))
    {
        Some("its key has a tag or digest, and only names without it are asked for")
    } else {
        None
    }
}

impl Secrets {
    /// Parses the keys of a file's entries.
    pub fn parse(file: &str, text: &[u8]) -> Self {
        let file = Some(file.to_owned());
        match serde_json::from_slice::<RawSecrets>(text) {
            Ok(raw) => {
                let auths = raw.auths.unwrap_or_default();
                let faults = auths.iter().filter_map(|(key, entry)| {
                    let of_value = entry.as_ref().and_then(RawEntry::fault);
                    let of_key = || key_fault(key).map(|said| (said, false));
                    let (said, stops_kubelet) = of_value.or_else(of_key)?;
                    Some(EntryFault {
                        key: key.clone(),
                        said,
                        stops_kubelet,
                    })
                });
                Self {
                    file,
                    problem: None,
                    faults: faults.collect(),
                    entries: auths.into_keys().chain(raw.helpers.into_keys()).collect(),
                }
            }
            // The parser's message may quote the text.
            Err(error) => Self {
                file,
                problem: Some(format!(
                    "it is not JSON of that form (line {})",
                    error.line()
                )),
                ..Self::default()
            },
        }
    }

    /// Reads the first existing file in rpm-ostree's order (docs/develop/agreement.md: Files on a node). The daemon makes the first two
    /// links to the last, or to the secret of its own registry.
    ///
    /// # Errors
    /// A file cannot be read.
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

    /// Returns the registries of its entries, as `HOST[:PORT]`.
    pub fn registry_hosts(&self) -> impl Iterator<Item = String> + use<'_> {
        let names = self.entries.iter().map(|entry| strip_scheme(entry));
        names.filter_map(|name| Some(name.split('/').next()?.to_owned()))
    }

    /// Returns the credentials for `HOST/PATH`: the entry with the longest matching path, or else the host's.
    pub fn credentials_for(&self, repository: &str) -> Credentials {
        let mut names = std::iter::successors(Some(repository), |name| {
            name.rsplit_once('/').map(|(above, _)| above)
        });
        let is_usable = |entry: &&String| !self.faults.iter().any(|fault| fault.key == **entry);
        let entry = |name: &str| {
            let mut entries = self.entries.iter().filter(is_usable);
            entries.find(|entry| plain_host(strip_scheme(entry)) == plain_host(name))
        };
        match names.find_map(entry) {
            Some(entry) => Credentials::Entry(entry.clone()),
            None => Credentials::None,
        }
    }
}

/// Strips the scheme and path from a key: Docker used to write URLs.
fn strip_scheme(entry: &str) -> &str {
    let rest = entry
        .strip_prefix("https://")
        .or_else(|| entry.strip_prefix("http://"));
    let rest = rest.map(|rest| rest.split('/').next().unwrap_or(rest));
    rest.unwrap_or(entry)
}

/// Returns the canonical name of a registry that has several.
fn plain_host(name: &str) -> &str {
    match name {
        "registry-1.docker.io" | "index.docker.io" => "docker.io",
        name => name,
    }
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

    const SECRET: &str = r#"{"auths": {"quay.example": {"auth": "c2VjcmV0OnNlY3JldA=="}, "quay.example/release": {"auth": "c2VjcmV0OnNlY3JldA=="},
        "https://index.docker.example/v1/": {"auth": "c2VjcmV0OnNlY3JldA=="}}, "credHelpers": {"helped.example": "x"}}"#;

    #[test]
    fn the_longest_path_counts_then_the_host() {
        let secrets = Secrets::parse("/f", SECRET.as_bytes());
        let entry = |name: &str| match secrets.credentials_for(name) {
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
        assert_eq!(
            secrets.credentials_for("mirror.local/os"),
            Credentials::None
        );
    }

    /// Entries, and what is said of them.
    const UNUSED: &[(&str, &str)] = &[
        (
            r#""a": {"auth": "nonsense!"}"#,
            "a: auth is not base64 true",
        ),
        (
            r#""a": {"auth": "YWJj"}"#,
            "a: auth is not the base64 of USER:PASSWORD true",
        ),
        (r#""a": {"auth": "YTpiYw"}"#, "auth lacks the = at its end"),
        (
            r#""a": {"username": "x", "password": "y"}"#,
            "auth is missing false",
        ),
        (r#""a": {"identitytoken": "x"}"#, "identity token alone"),
        (r#""quay.io/": {"auth": "YTpi"}"#, "ends with a slash"),
        (r#""*.quay.io": {"auth": "YTpi"}"#, "has a *"),
        (r#""quay.io/a:1": {"auth": "YTpi"}"#, "tag or digest"),
        (r#""docker://quay.io": {"auth": "YTpi"}"#, "another scheme"),
        (
            r#"" quay.io": {"auth": "YTpi"}"#,
            "not a name of a registry",
        ),
        (r#""": {"auth": "YTpi"}"#, "not a name of a registry"),
    ];

    #[test]
    fn entries_that_the_tools_do_not_use_are_named() {
        let faults = |entry: &str| {
            let text = format!(r#"{{"auths": {{{entry}}}}}"#);
            let secrets = Secrets::parse("/f", text.as_bytes());
            assert_eq!(secrets.problem, None, "{text}");
            let all = secrets.faults.iter();
            let all: Vec<String> = all
                .map(|one| format!("{}: {} {}", one.key, one.said, one.stops_kubelet))
                .collect();
            all.join(";")
        };
        for good in [
            r#""quay.io": {"auth": "YTpi"}"#,
            r#""quay.io/a/b": {"auth": "YTpiYw=="}"#,
            r#""quay.io:443/a": {"auth": "YTpi\nYTpi"}"#,
            r#""https://index.docker.io/v1/": {"auth": "YTpi", "email": "a"}"#,
            r#""quay.io": {}, "a.example": null"#,
            r#""quay.io": {"auth": ""}"#,
        ] {
            assert_eq!(faults(good), "", "{good}");
        }
        for &(entry, said) in UNUSED {
            assert!(faults(entry).contains(said), "{entry}: {}", faults(entry));
        }
        // An unusable entry matches no name.
        let secrets = Secrets::parse("/f", br#"{"auths": {"a.example": {"auth": "!"}}}"#);
        assert_eq!(secrets.credentials_for("a.example/x"), Credentials::None);
        for text in [
            "{\"auths\": [1]}",
            "{\"auths\": {\"a\": \"b\"}}",
            "{\"auths\": {\"a\": {\"auth\": 1}}}",
        ] {
            assert!(
                Secrets::parse("/f", text.as_bytes()).problem.is_some(),
                "{text}"
            );
        }
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
