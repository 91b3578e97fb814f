//! The changes since the last good boot, for `doctor`.

use crate::base::time::current_time;
use crate::diagnose::doctor::since::{Since, SinceDifference};
use crate::diagnose::recorder::look::{add_texts, find_shelf, observe_now};
use crate::diagnose::recorder::shelf::Shelf;
use crate::diagnose::recorder::timeline::{TimelineMoment, came_between};
use crate::diagnose::recorder::{Snapshot, SnapshotRecord, compare_snapshots};
use crate::host::root::Root;
use crate::node::command::CommandRunner;

/// Maximum number of snapshots that are read to find the time of a change.
const MOST: usize = 24;

/// Compares a root with its last good boot; `None` if there is no snapshot of one.
pub fn since_good(root: &Root, runner: &dyn CommandRunner) -> Option<Since> {
    let shelf = match find_shelf(root) {
        Ok(shelf) => shelf?,
        Err(error) => {
            log::warn!("{error:#}");
            return None;
        }
    };
    for one in &shelf.damaged {
        log::warn!("{} is skipped: {}", one.path, one.why);
    }
    let good = shelf.last_good()?;
    let (before, damaged) = shelf.read_snapshot(good);
    for one in &damaged {
        log::warn!("{} is skipped: {}", one.path, one.why);
    }
    let (after, key) = observe_now(runner, root, &shelf, &before);
    let mut comparison = compare_snapshots(&before, &after, good.key == key);
    add_texts(&mut comparison, &before, &after);
    let now = current_time();
    let sequence = if comparison.differences.is_empty() || good.key != key {
        vec![(good.clone(), before)]
    } else {
        read_later(&shelf, good, before)
    };
    let differences = comparison.differences.into_iter().map(|difference| {
        let (from, until) = came_between(&difference, &sequence, now);
        SinceDifference {
            difference,
            from,
            until,
            explained_by: Vec::new(),
        }
    });
    Some(Since {
        good: TimelineMoment::from(good),
        differences: differences.collect(),
        not_compared: comparison.not_compared.len(),
    })
}

/// Returns the good snapshot and the newest of those after it whose digests are comparable.
fn read_later(
    shelf: &Shelf,
    good: &SnapshotRecord,
    before: Snapshot,
) -> Vec<(SnapshotRecord, Snapshot)> {
    let later = shelf.records.iter().filter(|one| one.number > good.number);
    let later: Vec<&SnapshotRecord> = later.filter(|one| one.key == good.key).collect();
    let newest = later.len().saturating_sub(MOST);
    let mut all: Vec<(SnapshotRecord, Snapshot)> = vec![(good.clone(), before)];
    for record in later.into_iter().skip(newest) {
        let same = all.last().filter(|(last, _)| last.parts == record.parts);
        let snapshot = match same {
            Some((_, snapshot)) => snapshot.clone(),
            None => shelf.read_snapshot(record).0,
        };
        all.push((record.clone(), snapshot));
    }
    all
}
