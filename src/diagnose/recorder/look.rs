//! Looking at a node for a snapshot: all its facts, and the copies of small files. Nothing is changed.

use anyhow::{Context, Result};

use super::Snapshot;
use super::differences::Comparison;
use super::digest::{DigestKey, KEY_BYTES};
pub use super::facts::MAX_LISTED;
use super::facts::{Observer, read_copies};
use super::known::KnownFiles;
use super::shelf::Shelf;
use crate::base::diff::unified_between;
use crate::base::paths;
use crate::base::time::current_time;
use crate::host::root::{Root, RootError, RootPath};
use crate::node::command::CommandRunner;

/// Returns the key of the node's digests; `None` if the recorder has not run, or only root may read it.
pub fn digest_key(root: &Root) -> Option<DigestKey> {
    let shelf = Shelf::open_at(root, &RootPath::fixed(paths::RECORDER));
    let key = shelf.ok().flatten().map(|shelf| shelf.read_key());
    key.and_then(Result::ok).flatten()
}

/// Returns true if a snapshot was recorded on this root before.
///
/// # Errors
/// The system's error.
pub fn is_set_up(root: &Root) -> Result<bool, RootError> {
    root.exists(&RootPath::fixed(paths::RECORDER))
}

/// Returns the id of the boot of a root that runs.
pub fn boot_id(root: &Root) -> Option<String> {
    let path = RootPath::fixed("proc/sys/kernel/random/boot_id");
    let bytes = root.read_within(&path, 4096).ok()??;
    let text = String::from_utf8_lossy(&bytes).trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// The result of looking at a node.
#[derive(Debug)]
pub struct SnapshotLook {
    /// The facts.
    pub snapshot: Snapshot,
    /// Digests of the files that were read.
    pub fresh: KnownFiles,
    /// Number of files that were read.
    pub files_read: usize,
    /// What is not copied, with the reason.
    pub refused: Vec<String>,
}

/// Reads the facts of a node. `before`: the last snapshot.
pub fn take_facts(
    root: &Root,
    runner: &dyn CommandRunner,
    key: &DigestKey,
    known: &KnownFiles,
    before: Option<&Snapshot>,
) -> SnapshotLook {
    let mut observer = Observer {
        root,
        runner,
        key,
        known,
        fresh: KnownFiles::default(),
        before,
        now: current_time(),
        files_read: 0,
        bytes_read: 0,
    };
    let mut snapshot = observer.observe();
    let (copies, refused) = read_copies(root);
    snapshot.copies = copies;
    SnapshotLook {
        snapshot,
        fresh: observer.fresh,
        files_read: observer.files_read,
        refused,
    }
}

/// Finds the snapshots of a root.
pub fn find_shelf(root: &Root) -> Result<Option<Shelf>> {
    Shelf::find(root).context("reading the recorder's snapshots")
}

/// Returns true if a directory of snapshots is that of a node, not a copy.
pub fn is_of_node(shelf: &Shelf) -> bool {
    shelf.place == RootPath::fixed(paths::RECORDER).to_string()
}

/// Returns the current facts, with the id of the key of their digests.
pub fn observe_now(
    runner: &dyn CommandRunner,
    root: &Root,
    shelf: &Shelf,
    before: &Snapshot,
) -> (Snapshot, String) {
    let own = if is_of_node(shelf) {
        shelf.read_key().unwrap_or_else(|why| {
            log::info!("{why}");
            None
        })
    } else {
        // The key is never copied; that of the node may be readable all the same.
        digest_key(root)
    };
    // Without the key only sizes, modes and owners are compared.
    let key = own.unwrap_or_else(|| DigestKey::new(&[0; KEY_BYTES]));
    let seen = take_facts(root, runner, &key, &shelf.read_known(&key), Some(before));
    (seen.snapshot, key.id())
}

/// Adds the difference of the texts of files of which both sides have a copy.
pub fn add_texts(comparison: &mut Comparison, before: &Snapshot, after: &Snapshot) {
    for difference in &mut comparison.differences {
        let texts = (
            before.copies.get(&difference.subject),
            after.copies.get(&difference.subject),
        );
        if let (Some(before), Some(after)) = texts {
            difference.text = unified_between(before.as_bytes(), after.as_bytes());
        }
    }
}
