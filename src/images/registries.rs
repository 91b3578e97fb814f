//! `registries.conf`, version 2: the places that are asked for an image, in order (containers-registries.conf(5)).

use std::collections::BTreeMap;

use serde::Deserialize;

use super::ImageName;
use crate::paths;
use crate::root::{Root, RootError, RootPath};

/// All tables of the file and of those that add to it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Registries {
    tables: Vec<Registry>,
}

/// One `[[registry]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registry {
    /// Prefix of the names that it applies to; may begin with `*.`.
    pub prefix: String,
    /// Replacement of the prefix; empty: the name stays.
    pub location: String,
    /// Without TLS, or with any certificate.
    pub insecure: bool,
    /// Names that lead here may not be pulled.
    pub blocked: bool,
    /// Its mirrors, in order.
    pub mirrors: Vec<Mirror>,
    /// The file that it is from.
    pub file: String,
}

/// One `[[registry.mirror]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    /// Replacement of the prefix.
    pub location: String,
    /// Without TLS, or with any certificate.
    pub insecure: bool,
    /// For which names it is asked.
    pub pull: Pull,
}

/// For which names a mirror is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pull {
    /// All.
    All,
    /// With a digest.
    Digest,
    /// Without one.
    Tag,
}

/// Files that cannot be used. The containers tools refuse every pull then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistriesError {
    /// No TOML, or not of that form.
    #[error("reading {0}: {1}; correct it, nothing can be pulled until then")]
    Form(String, String),
    /// The old form.
    #[error("reading {0}: it is of version 1, which has no mirrors; write it in version 2")]
    Old(String),
    /// Neither prefix nor location.
    #[error("reading {0}: a [[registry]] has neither prefix nor location; give it one")]
    Nameless(String),
}

impl RegistriesError {
    /// Path of the file.
    pub fn file(&self) -> &str {
        match self {
            Self::Form(file, _) | Self::Old(file) | Self::Nameless(file) => file,
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
struct RawFile {
    #[serde(default)]
    registry: Vec<RawRegistry>,
    #[serde(default)]
    registries: Option<toml::Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RawRegistry {
    #[serde(default)]
    prefix: String,
    #[serde(default)]
    location: String,
    #[serde(default)]
    insecure: bool,
    #[serde(default)]
    blocked: bool,
    #[serde(default)]
    mirror_by_digest_only: bool,
    #[serde(default)]
    mirror: Vec<RawMirror>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RawMirror {
    location: String,
    #[serde(default)]
    insecure: bool,
    #[serde(default)]
    pull_from_mirror: String,
}

impl Registries {
    /// Reads files, by name and text, in the order in which they are loaded. A later table of the same prefix takes
    /// the place of an earlier one.
    ///
    /// # Errors
    /// The first file that the containers tools would refuse.
    pub fn parse(files: &[(String, String)]) -> Result<Self, RegistriesError> {
        let mut by_prefix: BTreeMap<String, Registry> = BTreeMap::new();
        for (file, text) in files {
            let form = |words: String| RegistriesError::Form(file.clone(), words);
            let raw: RawFile =
                toml::from_str(text).map_err(|error| form(error.message().to_owned()))?;
            if raw.registries.is_some() {
                return Err(RegistriesError::Old(file.clone()));
            }
            for registry in raw.registry {
                let registry = registry.checked(file)?;
                by_prefix.insert(registry.prefix.clone(), registry);
            }
        }
        Ok(Self {
            tables: by_prefix.into_values().collect(),
        })
    }

    /// The files of a root, in their order.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn files(root: &Root) -> Result<Vec<(String, String)>, RootError> {
        let mut fragments = BTreeMap::new();
        // What `/etc` has comes last, and takes the place of what the image has.
        for folder in [paths::REGISTRIES_D_OF_IMAGE, paths::REGISTRIES_D] {
            let folder = RootPath::fixed(folder);
            for name in root.list(&folder)? {
                let path = folder.join(&name).ok();
                let path = path.filter(|_| name.ends_with(".conf"));
                fragments.extend(path.map(|path| (name, path)));
            }
        }
        let own = RootPath::fixed(paths::REGISTRIES);
        let first = match root.exists(&own)? {
            true => own,
            false => RootPath::fixed(paths::REGISTRIES_OF_IMAGE),
        };
        let mut files = Vec::new();
        for path in std::iter::once(first).chain(fragments.into_values()) {
            if let Some(bytes) = root.read(&path)? {
                files.push((
                    path.to_string(),
                    String::from_utf8_lossy(&bytes).into_owned(),
                ));
            }
        }
        Ok(files)
    }

    /// Returns the table for a name `HOST/PATH[:TAG|@DIGEST]`: the one with the longest prefix.
    pub fn of(&self, name: &str) -> Option<&Registry> {
        let fitting = self
            .tables
            .iter()
            .filter(|table| prefix_length(&table.prefix, name).is_some());
        fitting.max_by_key(|table| table.prefix.len())
    }

    /// The tables.
    pub fn tables(&self) -> &[Registry] {
        &self.tables
    }
}

impl Registry {
    /// Returns a name with this location in place of the prefix.
    pub fn relocated(&self, location: &str, image: &ImageName) -> String {
        let name = image.to_string();
        match prefix_length(&self.prefix, &name) {
            Some(length) if !location.is_empty() => {
                format!("{location}{}", name.get(length..).unwrap_or_default())
            }
            _ => name,
        }
    }
}

impl Pull {
    /// Returns the reason why a mirror is not asked for this image; `None` if it is asked.
    pub fn skips(self, image: &ImageName) -> Option<&'static str> {
        match (self, image.digest.is_some()) {
            (Self::Digest, false) => Some("only names with a digest are asked for there"),
            (Self::Tag, true) => Some("only names without a digest are asked for there"),
            _ => None,
        }
    }
}

impl RawRegistry {
    fn checked(self, file: &str) -> Result<Registry, RegistriesError> {
        let clean = |text: &str| text.trim_end_matches('/').to_owned();
        let (prefix, location) = (clean(&self.prefix), clean(&self.location));
        let prefix = if prefix.is_empty() {
            location.clone()
        } else {
            prefix
        };
        if prefix.is_empty() {
            return Err(RegistriesError::Nameless(file.to_owned()));
        }
        let by_digest = self.mirror_by_digest_only;
        let mirrors = self
            .mirror
            .into_iter()
            .map(|mirror| mirror.checked(by_digest, file));
        Ok(Registry {
            // Without a location names stay as they are, but under a wildcard there is nothing else to do.
            location: if location.is_empty() && !prefix.starts_with("*.") {
                prefix.clone()
            } else {
                location
            },
            mirrors: mirrors.collect::<Result<_, _>>()?,
            prefix,
            insecure: self.insecure,
            blocked: self.blocked,
            file: file.to_owned(),
        })
    }
}

impl RawMirror {
    fn checked(self, by_digest: bool, file: &str) -> Result<Mirror, RegistriesError> {
        let pull = match self.pull_from_mirror.as_str() {
            "" | "all" if by_digest => Pull::Digest,
            "" | "all" => Pull::All,
            "digest-only" => Pull::Digest,
            "tag-only" => Pull::Tag,
            other => {
                let words =
                    format!("pull-from-mirror {other:?} is none of all, digest-only, tag-only");
                return Err(RegistriesError::Form(file.to_owned(), words));
            }
        };
        Ok(Mirror {
            location: self.location.trim_end_matches('/').to_owned(),
            insecure: self.insecure,
            pull,
        })
    }
}

/// Returns the bytes of a name that a prefix covers; `None` if it does not end at a separator of the name.
fn prefix_length(prefix: &str, name: &str) -> Option<usize> {
    if let Some(domain) = prefix.strip_prefix('*') {
        let host = name.split('/').next().unwrap_or(name);
        let bare = host.split(':').next().unwrap_or(host);
        return bare.ends_with(domain).then_some(host.len());
    }
    let rest = name.strip_prefix(prefix)?;
    let separated = rest.is_empty() || rest.starts_with(['/', ':', '@']);
    separated.then_some(prefix.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registries(text: &str) -> Registries {
        Registries::parse(&[("a.conf".to_owned(), text.to_owned())]).unwrap()
    }

    const MIRRORED: &str = r#"
        unqualified-search-registries = ["registry.example"]
        [[registry]]
        prefix = "quay.example/release"
        mirror-by-digest-only = true
        [[registry.mirror]]
        location = "mirror.local:5000/release/"
        insecure = true
        [[registry.mirror]]
        location = "other.local"
        pull-from-mirror = "digest-only"
        [[registry]]
        location = "quay.example"
        blocked = true
        [[registry]]
        prefix = "*.example.net"
    "#;

    #[test]
    fn the_longest_prefix_counts_and_ends_at_a_separator() {
        let all = registries(MIRRORED);
        let prefix = |name: &str| all.of(name).map(|table| table.prefix.as_str());
        assert_eq!(
            prefix("quay.example/release/os@sha256:1"),
            Some("quay.example/release")
        );
        assert_eq!(prefix("quay.example/released/os:1"), Some("quay.example"));
        assert_eq!(
            prefix("quay.example:443/os"),
            Some("quay.example"),
            "a port is a separator too"
        );
        assert_eq!(prefix("quay.examples/os:1"), None);
        assert_eq!(prefix("a.b.example.net:5000/os"), Some("*.example.net"));
        assert_eq!(prefix("example.net/os"), None);
    }

    #[test]
    fn a_location_stands_in_place_of_the_prefix() {
        let all = registries(MIRRORED);
        let image = ImageName::parse("quay.example/release/os:1").unwrap();
        let table = all.of(&image.to_string()).unwrap();
        let mirrors: Vec<String> = table
            .mirrors
            .iter()
            .map(|m| table.relocated(&m.location, &image))
            .collect();
        assert_eq!(
            mirrors,
            ["mirror.local:5000/release/os:1", "other.local/os:1"]
        );
        assert!(
            table
                .mirrors
                .iter()
                .all(|mirror| mirror.pull.skips(&image).is_some())
        );
        let wild = ImageName::parse("a.example.net/os:1").unwrap();
        let table = all.of("a.example.net/os:1").unwrap();
        assert_eq!(
            table.relocated(&table.location, &wild),
            "a.example.net/os:1"
        );
    }

    #[test]
    fn a_later_file_takes_the_place_of_an_equal_prefix() {
        let file = |name: &str, blocked: bool| {
            (
                name.to_owned(),
                format!("[[registry]]\nlocation = \"quay.example\"\nblocked = {blocked}\n"),
            )
        };
        let all = Registries::parse(&[file("a", true), file("b", false)]).unwrap();
        assert_eq!(all.tables().len(), 1);
        assert_eq!(
            (all.tables()[0].blocked, all.tables()[0].file.as_str()),
            (false, "b")
        );
    }

    #[test]
    fn a_file_that_the_tools_refuse_is_named() {
        for (text, words) in [
            ("[[registry]", "reading a.conf"),
            ("[registries.search]\nregistries = []", "version 1"),
            (
                "[[registry]]\nblocked = true",
                "neither prefix nor location",
            ),
            (
                "[[registry]]\nlocation = \"a\"\n[[registry.mirror]]\nlocation = \"b\"\npull-from-mirror = \"x\"",
                "pull-from-mirror",
            ),
        ] {
            let error = Registries::parse(&[("a.conf".to_owned(), text.to_owned())])
                .unwrap_err()
                .to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
