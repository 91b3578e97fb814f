//! The boots and runs of a node in chronological order, of its snapshots and of its other records.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Serialize;

use crate::base::order::StableOrder;
use crate::base::paths;
use crate::base::time::current_time;
use crate::change::transaction::{self, RunOutcome};
use crate::diagnose::recorder::look::{boot_id, find_shelf};
use crate::diagnose::recorder::shelf::{Damaged, Shelf};
use crate::diagnose::recorder::timeline::{
    self, HistoryEntry, HistorySources, KnownBoot, KnownRun,
};
use crate::diagnose::recorder::{Event, Outcome, Snapshot, SnapshotRecord, compare_snapshots};
use crate::host::root::Root;
use crate::node::boot_log;
use crate::node::kernel::read_uptime;

/// The history of a node.
#[derive(Debug, Clone, Serialize)]
pub struct History {
    /// Time by the clock of this machine; seconds since 1970.
    pub now: u64,
    /// Path of the root; `None` for a directory of snapshots.
    pub root: Option<String>,
    /// The directory of the snapshots; `None` if there are none.
    pub store: Option<String>,
    /// Boots and runs, newest first.
    pub entries: Vec<HistoryEntry>,
    /// Files that cannot be used.
    pub damaged: Vec<Damaged>,
}

/// Opens a directory of snapshots that the user named.
///
/// # Errors
/// It cannot be read, or holds no snapshots.
pub fn open_store(store: &Path) -> Result<Shelf> {
    let directory = Root::open(store).context("opening the directory of snapshots")?;
    let place = store.display().to_string();
    let mut shelf = Shelf::open(directory, place.clone()).context("reading the snapshots")?;
    if shelf.records.is_empty() && shelf.damaged.is_empty() {
        // It may be the file system of /boot, or a root.
        let root = Root::open(store)?;
        if let Some(found) = Shelf::find(&root)? {
            shelf = found;
            shelf.place = format!("{}{}", place.trim_end_matches('/'), shelf.place);
        }
    }
    if shelf.records.is_empty() && shelf.damaged.is_empty() {
        bail!(
            "{place} holds no snapshots. They are in /{} of a node, and in mco-rescue on the file system of its /boot",
            paths::RECORDER
        );
    }
    Ok(shelf)
}

impl History {
    /// Reads the history of a root, including its snapshots.
    ///
    /// # Errors
    /// The snapshots cannot be read.
    pub fn of_root(root: &Root) -> Result<Self> {
        let shelf = find_shelf(root)?;
        Ok(Self::read_history(Some(root), shelf.as_ref()))
    }

    /// Returns the history of a root and of a directory of snapshots.
    pub fn read_history(root: Option<&Root>, shelf: Option<&Shelf>) -> Self {
        let records = shelf.map_or(&[][..], |shelf| &shelf.records);
        let (differences, mut damaged) = shelf.map_or_else(Default::default, count_differences);
        damaged.extend(shelf.into_iter().flat_map(|shelf| shelf.damaged.clone()));
        let live = root.filter(|root| root.is_live());
        let running = live.and_then(|root| {
            let began = current_time().checked_sub(read_uptime()?)?;
            Some((boot_id(root)?, began))
        });
        let sources = HistorySources {
            records,
            differences,
            runs: root.map(known_runs).unwrap_or_default(),
            boots: root.map(known_boots).unwrap_or_default(),
            running,
        };
        let mut entries = timeline::make_history(&sources);
        entries.reverse();
        Self {
            now: current_time(),
            root: root.map(|root| root.shown().display().to_string()),
            store: shelf.map(|shelf| shelf.place.clone()),
            entries,
            damaged,
        }
    }
}

/// Returns the number of differences between each snapshot and the previous one.
fn count_differences(shelf: &Shelf) -> (Vec<Option<usize>>, Vec<Damaged>) {
    let (mut all, mut damaged): (Vec<_>, Vec<Damaged>) = (Vec::new(), Vec::new());
    let mut before: Option<(&SnapshotRecord, Snapshot, bool)> = None;
    for record in &shelf.records {
        if let Some((last, _, is_whole)) = &before
            && last.parts == record.parts
        {
            all.push(is_whole.then_some(0));
            continue;
        }
        let (snapshot, bad) = shelf.read_snapshot(record);
        let is_whole = bad.is_empty();
        damaged.extend(
            bad.into_iter()
                .filter(|bad| !damaged.contains(bad))
                .collect::<Vec<_>>(),
        );
        let number = before.as_ref().and_then(|(last, before, was_whole)| {
            let same_key = last.key == record.key;
            let found = compare_snapshots(before, &snapshot, same_key)
                .differences
                .len();
            (is_whole && *was_whole).then_some(found)
        });
        all.push(number);
        before = Some((record, snapshot, is_whole));
    }
    (all, damaged)
}

/// Returns the boots that the node knows.
fn known_boots(root: &Root) -> Vec<KnownBoot> {
    let all = boot_log::read_boot_log(root).unwrap_or_else(|error| {
        log::warn!("boots without a snapshot are not listed: {error}");
        Vec::new()
    });
    let all = all.into_iter().map(|start| KnownBoot {
        at: start.at,
        kernel: Some(start.kernel).filter(|kernel| !kernel.is_empty()),
    });
    all.collect()
}

/// Returns the runs that the node knows besides those in its snapshots.
fn known_runs(root: &Root) -> Vec<KnownRun> {
    let history = transaction::read_history(root).unwrap_or_else(|error| {
        log::warn!("the runs that can be reverted are not listed: {error}");
        Vec::new()
    });
    let mut all: Vec<KnownRun> = history
        .iter()
        .map(|run| KnownRun {
            id: run.id.clone(),
            at: run.start_time(),
            event: Event::Apply,
            outcome: Outcome::Done,
            config: Some(run.config.clone()),
            by: run.by.clone(),
            can_go_back: true,
        })
        .collect();
    let last = transaction::last_run(root).unwrap_or_else(|error| {
        log::warn!("the last run is not listed: {error}");
        None
    });
    if let Some(last) = last.filter(|last| all.iter().all(|run| run.id != last.id)) {
        let outcome = match last.outcome {
            RunOutcome::Done | RunOutcome::Recovered => Outcome::Done,
            RunOutcome::RolledBack | RunOutcome::Undone => Outcome::RolledBack,
            RunOutcome::Incomplete => Outcome::Incomplete,
        };
        // A rollback removes two runs from the history: itself and the one that it reverts.
        let event = match (last.outcome, last.id.is_empty()) {
            (RunOutcome::Done, false) => Event::Rollback,
            _ => Event::Apply,
        };
        all.push(KnownRun {
            id: last.id,
            at: last.finished,
            event,
            outcome,
            config: Some(last.config.name),
            by: last.by,
            can_go_back: false,
        });
    }
    all.order_by_key(|run| run.at);
    all
}
