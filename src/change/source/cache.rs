//! Rendered configs that the node stores for times without a network.
//!
//! One file for each config, named after the digest of the MachineConfig: the same config is stored once, however often it is
//! fetched. A file that does not match its own digests is never used. This module only reads; the writer is
//! [`crate::change::transaction::open_store`].

use serde::{Deserialize, Serialize};

use crate::base::order::StableOrder;
use crate::base::paths;
use crate::base::reason::Reason;
use crate::config::document::{self, DocumentError, MachineConfig};
use crate::config::render;
use crate::host::root::{Root, RootError, RootPath, sha256_hex};

/// Version of the files; files with any other version are ignored.
const VERSION: u32 = 1;
/// Number of configs that are kept for each pool.
pub const GENERATIONS: usize = 5;

/// A config in the cache.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheEntry {
    version: u32,
    /// `metadata.name`.
    pub name: String,
    /// The pool, if the config names it.
    pub pool: Option<String>,
    /// Lower-case hex SHA-256 of the MachineConfig as received.
    pub digest: String,
    /// The source.
    pub origin: String,
    /// Time of the fetch by the node's clock, in seconds since 1970.
    pub fetched: u64,
    /// The contents match the hash in the name; `None` if the name has no hash.
    pub name_matches: Option<bool>,
    /// Sequence number of the fetch, which orders entries independently of the clock; 0 in older files.
    #[serde(default)]
    order: u64,
    /// Lower-case hex SHA-256 of `document`.
    sha256: String,
    /// The document as received.
    document: String,
}

/// Shows no contents, because they contain secrets.
impl std::fmt::Debug for CacheEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Entry({}, fetched {})", self.name, self.fetched)
    }
}

/// A file of the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cached {
    /// An intact config.
    Whole(Box<CacheEntry>),
    /// The file and its error.
    Damaged(RootPath, String),
}

impl CacheEntry {
    /// Creates the entry of a fetched config.
    pub fn new(config: &MachineConfig, document: String, origin: String, fetched: u64) -> Self {
        Self {
            version: VERSION,
            name: config.name.clone(),
            pool: pool_of(config),
            digest: config.digest.clone(),
            origin,
            fetched,
            name_matches: render::name_matches(&config.record),
            order: 0,
            sha256: sha256_hex(document.as_bytes()),
            document,
        }
    }

    /// Returns the entry with a sequence number after all entries of the cache.
    pub fn after_all(self, all: &[Cached]) -> Self {
        let last = whole_entries(all).map(|entry| entry.order).max();
        Self {
            order: last.unwrap_or_default().saturating_add(1),
            ..self
        }
    }

    /// Returns the order of the entry; a later fetch is greater. The clock may be wrong, so it is only used without sequence
    /// numbers.
    fn entry_age(&self) -> (u64, u64) {
        (self.order, self.fetched)
    }

    /// Returns the name of its file.
    pub fn file_name(&self) -> String {
        format!("{}.json", self.digest)
    }

    /// Returns the text of its file.
    pub fn to_text(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(self)
    }

    /// Returns the document as received.
    pub fn document(&self) -> &str {
        &self.document
    }

    /// Parses the config.
    pub fn config(&self) -> Result<MachineConfig, DocumentError> {
        document::parse_document(self.document.as_bytes(), &format!("cached:{}", self.name))
    }

    fn parse_checked(bytes: &[u8], file: &str) -> Result<Self, Reason> {
        let entry: Self =
            serde_json::from_slice(bytes).map_err(|e| format!("cannot be read: {e}"))?;
        if entry.version != VERSION {
            return Err(format!(
                "has version {}, this program supports {VERSION}",
                entry.version
            )
            .into());
        }
        if sha256_hex(entry.document.as_bytes()) != entry.sha256 {
            return Err("has different contents than were written".into());
        }
        let config = entry.config().map_err(Reason::from_error)?;
        let same = config.digest == entry.digest && config.name == entry.name;
        if same && file == entry.file_name() {
            Ok(entry)
        } else {
            Err("does not contain the config in its name".into())
        }
    }
}

/// Returns the pool of a config: its owner, or else the middle of its rendered name.
pub fn pool_of(config: &MachineConfig) -> Option<String> {
    let of_name = || document::pool_in(&config.name).map(str::to_owned);
    config.pool.clone().or_else(of_name)
}

/// Reads all files of the cache, newest config first, damaged files last.
pub fn read_cache(root: &Root) -> Result<Vec<Cached>, RootError> {
    let directory = RootPath::fixed(paths::CACHE);
    let mut all = Vec::new();
    for name in root.list(&directory)? {
        // Remains of an interrupted write are ignored.
        let Some(path) = directory
            .join(&name)
            .ok()
            .filter(|_| name.ends_with(".json"))
        else {
            continue;
        };
        let Some(bytes) = root.read(&path)? else {
            continue;
        };
        all.push(match CacheEntry::parse_checked(&bytes, &name) {
            Ok(entry) => Cached::Whole(Box::new(entry)),
            Err(problem) => Cached::Damaged(path, problem.to_string()),
        });
    }
    all.order_by_key(|cached| match cached {
        Cached::Whole(entry) => std::cmp::Reverse(Some(entry.entry_age())),
        Cached::Damaged(..) => std::cmp::Reverse(None),
    });
    Ok(all)
}

/// Returns the intact configs.
pub fn whole_entries(all: &[Cached]) -> impl Iterator<Item = &CacheEntry> {
    all.iter().filter_map(|cached| match cached {
        Cached::Whole(entry) => Some(&**entry),
        Cached::Damaged(..) => None,
    })
}

/// Returns the entries to remove: the oldest of each pool beyond [`GENERATIONS`], except those in use.
pub fn find_surplus<'a>(entries: &[&'a CacheEntry], in_use: &[&str]) -> Vec<&'a CacheEntry> {
    let mut newest_first = entries.to_vec();
    newest_first.order_by_key(|entry| std::cmp::Reverse(entry.entry_age()));
    let kept_before = |index: usize, entry: &CacheEntry| {
        let before = newest_first.iter().take(index);
        before.filter(|other| other.pool == entry.pool).count()
    };
    newest_first
        .iter()
        .enumerate()
        .filter(|(index, entry)| kept_before(*index, entry) >= GENERATIONS)
        .filter(|(_, entry)| !in_use.contains(&entry.name.as_str()))
        .map(|(_, entry)| *entry)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, pool: &str, fetched: u64) -> CacheEntry {
        let text = format!(
            r#"{{"metadata":{{"name":"{name}","ownerReferences":[{{"name":"{pool}"}}]}},"spec":{{}}}}"#
        );
        let config = document::parse_document(text.as_bytes(), "test").unwrap();
        CacheEntry::new(&config, text, "a test".into(), fetched)
    }

    #[test]
    fn an_entry_is_read_back_only_if_nothing_in_it_was_changed() {
        let entry = entry("rendered-worker-a", "worker", 1);
        let text = String::from_utf8(entry.to_text().unwrap()).unwrap();
        let name = entry.file_name();
        assert_eq!(
            CacheEntry::parse_checked(text.as_bytes(), &name),
            Ok(entry.clone())
        );
        for (changed, file) in [
            (
                text.replace("rendered-worker-a", "rendered-worker-b"),
                &name,
            ),
            (text.replace("\"version\":1", "\"version\":2"), &name),
            (text.replace(&entry.digest, &"0".repeat(64)), &name),
            (text[..text.len() - 1].to_owned(), &name),
            (text.clone(), &"0.json".to_owned()),
        ] {
            assert!(
                CacheEntry::parse_checked(changed.as_bytes(), file).is_err(),
                "{changed}"
            );
        }
    }

    #[test]
    fn the_oldest_of_each_pool_go_unless_they_are_in_use() {
        let all: Vec<CacheEntry> = (0..7)
            .map(|n| entry(&format!("rendered-worker-{n}"), "worker", n))
            .chain((0..5).map(|n| entry(&format!("rendered-master-{n}"), "master", n)))
            .collect();
        let all: Vec<&CacheEntry> = all.iter().collect();
        let names = |in_use: &[&str]| -> Vec<&str> {
            find_surplus(&all, in_use)
                .iter()
                .map(|entry| entry.name.as_str())
                .collect()
        };
        assert_eq!(names(&[]), ["rendered-worker-1", "rendered-worker-0"]);
        assert_eq!(names(&["rendered-worker-0"]), ["rendered-worker-1"]);
    }

    #[test]
    fn what_is_got_later_is_newer_whatever_the_clock_said() {
        let future = 4_000_000_000;
        // Files from before sequence numbers, fetched while the clock was years ahead.
        let mut all: Vec<Cached> = (0..GENERATIONS as u64)
            .map(|n| entry(&format!("rendered-worker-{n}"), "worker", future + n))
            .map(|entry| Cached::Whole(entry.into()))
            .collect();
        for n in 0..3 {
            let new = entry(
                &format!("rendered-worker-new-{n}"),
                "worker",
                1_800_000_000 - n,
            );
            let new = new.after_all(&all);
            all.push(Cached::Whole(new.into()));
            let entries: Vec<&CacheEntry> = whole_entries(&all).collect();
            let gone: Vec<String> = find_surplus(&entries, &[])
                .iter()
                .map(|e| e.name.clone())
                .collect();
            assert_eq!(gone, [format!("rendered-worker-{n}")]);
            all.retain(|one| !matches!(one, Cached::Whole(entry) if gone.contains(&entry.name)));
        }
    }

    #[test]
    fn the_pool_is_that_of_the_owner_or_of_the_name() {
        let config = |text: &str| document::parse_document(text.as_bytes(), "test").unwrap();
        let owned = config(
            r#"{"metadata":{"name":"rendered-a-b-0f","ownerReferences":[{"name":"x"}]},"spec":{}}"#,
        );
        assert_eq!(pool_of(&owned).as_deref(), Some("x"));
        let named = config(r#"{"metadata":{"name":"rendered-a-b-0f"},"spec":{}}"#);
        assert_eq!(pool_of(&named).as_deref(), Some("a-b"));
        assert_eq!(
            pool_of(&config(r#"{"metadata":{"name":"x"},"spec":{}}"#)),
            None
        );
    }
}
