//! `registries.conf`, version 2: the locations that are tried for an image, in order (containers-registries.conf(5)).

use std::collections::BTreeMap;

use serde::Deserialize;

use super::ImageName;
use crate::base::paths;
use crate::host::root::{EntryType, Root, RootError, RootPath};

/// All tables of the file and its drop-ins.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Registries {
    tables: Vec<Registry>,
    hidden: Vec<HiddenMirrors>,
}

/// A table with mirrors that a later file replaced by one without mirrors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HiddenMirrors {
    /// The prefix of both.
    pub prefix: String,
    /// The file with the mirrors.
    pub file: String,
    /// The later file.
    pub by: String,
}

/// One `[[registry]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registry {
    /// Prefix of the names to which it applies; may begin with `*.`.
    pub prefix: String,
    /// Replacement of the prefix; if it is empty, the name is unchanged.
    pub location: String,
    /// TLS is not used, or any certificate is accepted.
    pub insecure: bool,
    /// Names that resolve to it cannot be pulled.
    pub blocked: bool,
    /// Its mirrors, in order.
    pub mirrors: Vec<Mirror>,
    /// The file that it comes from.
    pub file: String,
}

/// One `[[registry.mirror]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    /// Replacement of the prefix.
    pub location: String,
    /// TLS is not used, or any certificate is accepted.
    pub insecure: bool,
    /// The names for which it is tried.
    pub pull: Pull,
}

/// The names for which a mirror is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pull {
    /// All.
    All,
    /// With a digest.
    Digest,
    /// Without one.
    Tag,
}

/// The reason why files cannot be used; the containers tools then refuse every pull.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistriesError {
    /// It is not TOML, or has an unexpected structure.
    #[error("reading {0}: {1}; correct it, nothing can be pulled until then")]
    Form(String, String),
    /// It is in the old format, in a file that has to be in the new one.
    #[error(
        "reading {0}: it uses version 1, which is allowed only in registries.conf and only on its own; write it in version 2"
    )]
    Old(String),
    /// A table has neither prefix nor location.
    #[error("reading {0}: a [[registry]] has neither prefix nor location; give it one")]
    Nameless(String),
}

impl RegistriesError {
    /// Returns the path of the file.
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
    unqualified_search_registries: Option<Vec<String>>,
    #[serde(default)]
    credential_helpers: Option<Vec<String>>,
    #[serde(default)]
    short_name_mode: String,
    #[serde(default)]
    aliases: Option<BTreeMap<String, String>>,
    #[serde(default)]
    registries: Option<OldTables>,
}

/// The tables of version 1.
#[derive(Deserialize, Default)]
struct OldTables {
    #[serde(default)]
    search: OldTable,
    #[serde(default)]
    insecure: OldTable,
    #[serde(default)]
    block: OldTable,
}

#[derive(Deserialize, Default)]
struct OldTable {
    #[serde(default)]
    registries: Option<Vec<String>>,
}

impl OldTables {
    fn is_set(&self) -> bool {
        let all = [&self.search, &self.insecure, &self.block];
        all.iter().any(|table| table.registries.is_some())
    }

    /// Returns the same tables in the format of version 2.
    fn into_registries(self) -> Vec<RawRegistry> {
        let mut all: BTreeMap<String, RawRegistry> = BTreeMap::new();
        let mut table = |name: String, change: fn(&mut RawRegistry)| {
            let table = all.entry(name.clone()).or_default();
            table.location = name;
            change(table);
        };
        for name in self.insecure.registries.into_iter().flatten() {
            table(name, |table| table.insecure = true);
        }
        for name in self.block.registries.into_iter().flatten() {
            table(name, |table| table.blocked = true);
        }
        all.into_values().collect()
    }
}

#[derive(Deserialize, Default)]
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
    pull_from_mirror: String,
    #[serde(default)]
    mirror: Vec<RawMirror>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RawMirror {
    #[serde(default)]
    location: String,
    #[serde(default)]
    insecure: bool,
    #[serde(default)]
    pull_from_mirror: String,
}

impl Registries {
    /// Parses files, given by name and text, in the order in which they are loaded, the main file first. Within one file the
    /// first table of a prefix applies, and a later file replaces the tables of an earlier one.
    ///
    /// # Errors
    /// The first file that the containers tools would refuse.
    pub fn parse(files: &[(String, String)]) -> Result<Self, RegistriesError> {
        let mut by_prefix: BTreeMap<String, Registry> = BTreeMap::new();
        let mut hidden = Vec::new();
        for (index, (file, text)) in files.iter().enumerate() {
            let form = |words: String| RegistriesError::Form(file.clone(), words);
            let mut raw: RawFile =
                toml::from_str(text).map_err(|error| form(error.message().to_owned()))?;
            if let Some(old) = raw.registries.take().filter(OldTables::is_set) {
                let is_part = index > 0 || file.contains(".conf.d/");
                if is_part || raw.is_set() {
                    return Err(RegistriesError::Old(file.clone()));
                }
                raw.registry = old.into_registries();
            }
            let mut own: BTreeMap<String, Registry> = BTreeMap::new();
            for registry in raw.check_tables(file)? {
                own.entry(registry.prefix.clone()).or_insert(registry);
            }
            for (prefix, table) in own {
                let by = table.file.clone();
                let earlier = by_prefix.insert(prefix.clone(), table);
                let is_bare = by_prefix
                    .get(&prefix)
                    .is_some_and(|table| table.mirrors.is_empty());
                let lost = earlier.filter(|earlier| is_bare && !earlier.mirrors.is_empty());
                hidden.extend(lost.map(|earlier| HiddenMirrors {
                    prefix,
                    file: earlier.file,
                    by,
                }));
            }
        }
        Ok(Self {
            tables: by_prefix.into_values().collect(),
            hidden,
        })
    }

    /// Returns the files of a root in the order in which they are loaded.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn read_files(root: &Root) -> Result<Vec<(String, String)>, RootError> {
        let mut fragments = BTreeMap::new();
        // Files of `/etc` are loaded last and replace those of the image.
        for folder in [paths::REGISTRIES_D_OF_IMAGE, paths::REGISTRIES_D] {
            let folder = RootPath::fixed(folder);
            for (name, kind) in root.list_types(&folder)? {
                let path = folder.join(&name).ok();
                let is_read = name.ends_with(".conf") && kind != EntryType::Directory;
                let path = path.filter(|_| is_read);
                fragments.extend(path.map(|path| (name, path)));
            }
        }
        let own = RootPath::fixed(paths::REGISTRIES);
        let first = if root.exists(&own)? {
            own
        } else {
            RootPath::fixed(paths::REGISTRIES_OF_IMAGE)
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

    /// Returns the table for a name `HOST/PATH[:TAG|@DIGEST]`: the one with the longest matching prefix.
    pub fn find_table(&self, name: &str) -> Option<&Registry> {
        let fitting = self
            .tables
            .iter()
            .filter(|table| prefix_length(&table.prefix, name).is_some());
        fitting.max_by_key(|table| table.prefix.len())
    }

    /// Returns the tables with mirrors that a later file replaced by one without mirrors.
    pub fn hidden(&self) -> &[HiddenMirrors] {
        &self.hidden
    }

    /// Returns the tables.
    pub fn tables(&self) -> &[Registry] {
        &self.tables
    }
}

impl Registry {
    /// Returns the name with its prefix replaced by this location.
    pub fn relocate_name(&self, location: &str, image: &ImageName) -> String {
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
    /// Returns the reason why a mirror is not tried for this image; `None` if it is tried.
    pub fn skip_reason(self, image: &ImageName) -> Option<&'static str> {
        match (self, image.digest.is_some()) {
            (Self::Digest, false) => Some("only names with a digest are asked for there"),
            (Self::Tag, true) => Some("only names without a digest are asked for there"),
            _ => None,
        }
    }
}

/// Returns the normalised name. A name with a scheme is refused.
fn parse_location(file: &str, text: &str) -> Result<String, RegistriesError> {
    if text.starts_with("http://") || text.starts_with("https://") {
        let words = format!("{text:?} has a scheme, and names of registries have none");
        return Err(RegistriesError::Form(file.to_owned(), words));
    }
    Ok(text.trim_end_matches('/').to_owned())
}

/// Returns true for `HOST[:PORT]`.
fn is_host(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port),
        _ => (text, "1"),
    };
    let is_part = |part: &str| {
        let ends = !part.starts_with('-') && !part.ends_with('-') && !part.is_empty();
        ends && part
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let is_port = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let is_six = host.starts_with('[') && host.ends_with(']');
    is_port && (is_six || host.split('.').all(is_part))
}

fn place_of(table: &Registry) -> &str {
    if table.location.is_empty() {
        &table.prefix
    } else {
        &table.location
    }
}

impl RawFile {
    /// Returns true if any key of version 2 is set.
    fn is_set(&self) -> bool {
        let lists = [
            &self.unqualified_search_registries,
            &self.credential_helpers,
        ];
        let has_list = lists.iter().any(|list| list.is_some());
        has_list
            || !self.registry.is_empty()
            || !self.short_name_mode.is_empty()
            || self.aliases.is_some()
    }

    /// Returns an alias that does not lead to a whole name.
    fn find_bad_alias(&self) -> Option<&str> {
        let is_bad = |image: &str| {
            let host = image.split('/').next().unwrap_or_default();
            let is_whole =
                image.contains('/') && (host.contains(['.', ':']) || host == "localhost");
            !image.is_empty() && (!is_whole || image.contains('@'))
        };
        let mut aliases = self.aliases.iter().flatten();
        let bad = aliases.find(|(_, image)| is_bad(image))?;
        Some(bad.0.as_str())
    }

    /// Returns the tables of a file, after the checks of the containers tools.
    fn check_tables(self, file: &str) -> Result<Vec<Registry>, RegistriesError> {
        let form = |words: String| RegistriesError::Form(file.to_owned(), words);
        let names = self.unqualified_search_registries.iter().flatten();
        for name in names {
            if !is_host(&parse_location(file, name)?) {
                return Err(form(format!(
                    "unqualified-search-registries: {name:?} is not HOST[:PORT]"
                )));
            }
        }
        let modes = ["", "disabled", "enforcing", "permissive"];
        if !modes.contains(&self.short_name_mode.as_str()) {
            let words = format!(
                "short-name-mode {:?} is not one of disabled, enforcing, permissive",
                self.short_name_mode
            );
            return Err(form(words));
        }
        if let Some(name) = self.find_bad_alias() {
            return Err(form(format!(
                "the alias {name:?} has to name HOST/PATH without a tag"
            )));
        }
        let tables = self
            .registry
            .into_iter()
            .map(|registry| registry.check_table(file));
        let tables = tables.collect::<Result<Vec<Registry>, _>>()?;
        for one in &tables {
            let others = tables
                .iter()
                .filter(|other| place_of(other) == place_of(one));
            for other in others {
                let said = match (one.insecure != other.insecure, one.blocked != other.blocked) {
                    (true, _) => "insecure",
                    (_, true) => "blocked",
                    _ => continue,
                };
                return Err(form(format!(
                    "{} appears twice, with a different {said}",
                    place_of(one)
                )));
            }
        }
        Ok(tables)
    }
}

impl RawRegistry {
    fn check_table(self, file: &str) -> Result<Registry, RegistriesError> {
        let form = |words: String| Err(RegistriesError::Form(file.to_owned(), words));
        let prefix = parse_location(file, &self.prefix)?;
        let location = parse_location(file, &self.location)?;
        let prefix = if prefix.is_empty() {
            location.clone()
        } else {
            prefix
        };
        if prefix.is_empty() {
            return Err(RegistriesError::Nameless(file.to_owned()));
        }
        let is_wild = prefix.starts_with("*.");
        if location.is_empty() && !is_wild {
            return form(format!(
                "the [[registry]] {prefix} has no location; give it one"
            ));
        }
        if is_wild && prefix.contains(['/', '@', ':']) {
            return form(format!(
                "the prefix {prefix} has to be of the form *.example.com"
            ));
        }
        if !self.pull_from_mirror.is_empty() {
            return form(format!(
                "pull-from-mirror of {prefix} belongs in a [[registry.mirror]]"
            ));
        }
        let by_digest = self.mirror_by_digest_only;
        let mirrors = self
            .mirror
            .into_iter()
            .map(|mirror| mirror.check_mirror(by_digest, file));
        Ok(Registry {
            // Without a location, below a wildcard, names are unchanged.
            location,
            mirrors: mirrors.collect::<Result<_, _>>()?,
            prefix,
            insecure: self.insecure,
            blocked: self.blocked,
            file: file.to_owned(),
        })
    }
}

impl RawMirror {
    fn check_mirror(self, by_digest: bool, file: &str) -> Result<Mirror, RegistriesError> {
        let location = parse_location(file, &self.location)?;
        if location.is_empty() {
            let words = "a [[registry.mirror]] has no location; give it one".to_owned();
            return Err(RegistriesError::Form(file.to_owned(), words));
        }
        let pull = match self.pull_from_mirror.as_str() {
            "" if by_digest => Pull::Digest,
            _ if by_digest => {
                let words = format!(
                    "pull-from-mirror of {location} is set beside mirror-by-digest-only; only one may be"
                );
                return Err(RegistriesError::Form(file.to_owned(), words));
            }
            "" | "all" => Pull::All,
            "digest-only" => Pull::Digest,
            "tag-only" => Pull::Tag,
            other => {
                let words =
                    format!("pull-from-mirror {other:?} is not one of all, digest-only, tag-only");
                return Err(RegistriesError::Form(file.to_owned(), words));
            }
        };
        Ok(Mirror {
            location,
            insecure: self.insecure,
            pull,
        })
    }
}

/// Returns the length of the prefix in a name, in bytes; `None` if it does not end at a separator.
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
        location = "quay.example/release"
        mirror-by-digest-only = true
        [[registry.mirror]]
        location = "mirror.local:5000/release/"
        insecure = true
        [[registry.mirror]]
        location = "other.local"
        [[registry]]
        location = "quay.example"
        blocked = true
        [[registry]]
        prefix = "*.example.net"
    "#;

    #[test]
    fn the_longest_prefix_counts_and_ends_at_a_separator() {
        let all = registries(MIRRORED);
        let prefix = |name: &str| all.find_table(name).map(|table| table.prefix.as_str());
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
        let table = all.find_table(&image.to_string()).unwrap();
        let mirrors: Vec<String> = table
            .mirrors
            .iter()
            .map(|m| table.relocate_name(&m.location, &image))
            .collect();
        assert_eq!(
            mirrors,
            ["mirror.local:5000/release/os:1", "other.local/os:1"]
        );
        assert!(
            table
                .mirrors
                .iter()
                .all(|mirror| mirror.pull.skip_reason(&image).is_some())
        );
        let wild = ImageName::parse("a.example.net/os:1").unwrap();
        let table = all.find_table("a.example.net/os:1").unwrap();
        assert_eq!(
            table.relocate_name(&table.location, &wild),
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
    fn the_main_file_may_be_of_version_1_alone() {
        let old = "[registries.search]\nregistries = ['a.example']\n[registries.insecure]\nregistries = ['b.example']\n";
        let all = registries(old);
        assert_eq!(
            all.find_table("b.example/x").map(|table| table.insecure),
            Some(true)
        );
        assert_eq!(all.find_table("a.example/x"), None);
        let mixed = format!("short-name-mode = 'disabled'\n{old}");
        let error = Registries::parse(&[("a.conf".to_owned(), mixed)]).unwrap_err();
        assert!(error.to_string().contains("on its own"), "{error}");
    }

    #[test]
    fn the_first_table_of_a_prefix_counts_in_one_file() {
        let all = registries(
            "[[registry]]\nprefix = \"a\"\nlocation = \"b\"\n[[registry]]\nprefix = \"a\"\nlocation = \"c\"\n",
        );
        assert_eq!(
            all.find_table("a/x").map(|table| table.location.as_str()),
            Some("b")
        );
    }

    #[test]
    fn a_file_that_the_tools_refuse_is_named() {
        for (text, words) in [
            ("[[registry]", "reading b.conf"),
            ("[registries.search]\nregistries = []", "version 1"),
            ("[[registry]]\nprefix = \"a\"", "no location"),
            ("[[registry]]\nlocation = \"https://a\"", "scheme"),
            ("[[registry]]\nprefix = \"*.a/b\"", "*.example.com"),
            (
                "[[registry]]\nlocation = \"a\"\npull-from-mirror = \"all\"",
                "belongs in",
            ),
            (
                "[[registry]]\nlocation = \"a\"\n[[registry.mirror]]\ninsecure = true",
                "no location",
            ),
            (
                "[[registry]]\nlocation = \"a\"\nmirror-by-digest-only = true\n[[registry.mirror]]\nlocation = \"b\"\npull-from-mirror = \"all\"",
                "only one may be",
            ),
            (
                "[[registry]]\nlocation = \"a\"\nblocked = true\n[[registry]]\nlocation = \"a\"\nprefix = \"b\"",
                "a different blocked",
            ),
            (
                "unqualified-search-registries = [\"a/b\"]",
                "not HOST[:PORT]",
            ),
            ("short-name-mode = \"on\"", "short-name-mode"),
            ("[aliases]\na = \"b\"", "alias"),
            (
                "[[registry]]\nblocked = true",
                "neither prefix nor location",
            ),
            (
                "[[registry]]\nlocation = \"a\"\n[[registry.mirror]]\nlocation = \"b\"\npull-from-mirror = \"x\"",
                "pull-from-mirror",
            ),
        ] {
            let main = ("a.conf".to_owned(), String::new());
            let error = Registries::parse(&[main, ("b.conf".to_owned(), text.to_owned())])
                .unwrap_err()
                .to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
