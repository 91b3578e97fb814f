//! Configs that a run stores in the node's cache.

use anyhow::{Context, Result};
use serde::Serialize;

use crate::base::paths;
use crate::base::time::current_time;
use crate::change::source::cache;
use crate::change::source::identity::{Membership, NodeIdentity};
use crate::change::transaction::open_store;
use crate::config::document::MachineConfig;
use crate::host::root::Root;
use crate::node::Records;

/// A fetched config.
#[derive(Debug, Clone, Serialize)]
pub struct Fetched {
    /// `metadata.name`.
    pub name: String,
    /// Name of the pool.
    pub pool: Option<String>,
    /// SHA-256 of the MachineConfig as received.
    pub digest: String,
    /// The source.
    pub origin: String,
    /// True if the contents match the hash in the name; `None` if the name has no hash.
    pub name_matches: Option<bool>,
    /// True if the cache did not contain it before.
    pub new: bool,
    /// True if it is the node's recorded config.
    pub recorded: bool,
    /// True if its pool is the node's; `None` if the node's pool is unknown.
    pub own_pool: Option<bool>,
    /// Names of older configs that were removed to make space.
    pub forgotten: Vec<String>,
}

/// Stores a config in the cache, and removes surplus ones of its pool.
///
/// # Errors
/// The cache cannot be read or written, or the pool of the node is not known.
pub fn keep_config(
    root: &Root,
    records: &Records,
    config: &MachineConfig,
    text: String,
    origin: &str,
) -> Result<Fetched> {
    let store = open_store(root, paths::CACHE)?;
    let before = cache::read_cache(root).context("reading the cache")?;
    let entry =
        cache::CacheEntry::new(config, text, origin.to_owned(), current_time()).after_all(&before);
    let known = cache::whole_entries(&before).any(|old| old.digest == entry.digest);
    store.put_file(&entry.file_name(), &entry.to_text()?)?;
    let after = cache::read_cache(root).context("reading the cache again")?;
    let recorded = records.name();
    let in_use: Vec<&str> = recorded
        .as_deref()
        .into_iter()
        .chain([entry.name.as_str()])
        .collect();
    let entries: Vec<&cache::CacheEntry> = cache::whole_entries(&after).collect();
    let mut forgotten = Vec::new();
    for old in cache::find_surplus(&entries, &in_use) {
        store.remove_file(&old.file_name())?;
        forgotten.push(old.name.clone());
    }
    let node = NodeIdentity::observe(root, records, None)?;
    let own_pool = match entry.pool.as_deref().map(|pool| node.membership_of(pool)) {
        Some(Membership::Member) => Some(true),
        Some(Membership::Stranger(_)) => Some(false),
        Some(Membership::Unknown) | None => None,
    };
    Ok(Fetched {
        own_pool,
        name: entry.name.clone(),
        pool: entry.pool.clone(),
        digest: entry.digest.clone(),
        origin: entry.origin.clone(),
        name_matches: entry.name_matches,
        new: !known,
        recorded: recorded.as_deref() == Some(entry.name.as_str()),
        forgotten,
    })
}
