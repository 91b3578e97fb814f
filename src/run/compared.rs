//! The differences between two snapshots, or between a snapshot and now.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use serde::Serialize;

use crate::base::invocation::{mco_rescue, shell_word};
use crate::base::time::current_time;
use crate::diagnose::recorder::look::{add_texts, find_shelf, observe_now};
use crate::diagnose::recorder::shelf::{Damaged, Shelf};
use crate::diagnose::recorder::timeline::TimelineMoment;
use crate::diagnose::recorder::{Area, Difference, Snapshot, SnapshotRecord, compare_snapshots};
use crate::host::root::Root;
use crate::node::command::CommandRunner;

/// What is compared.
#[derive(Debug, Clone, Copy, Default)]
pub struct DiffRequest<'a> {
    /// The earlier side: a number, `good` or `now`; `None` for the last good boot.
    pub from: Option<&'a str>,
    /// The later side; `None` for now, or the newest snapshot if there is no node.
    pub to: Option<&'a str>,
    /// The directory of the snapshots, if the user named it.
    pub store: Option<&'a Path>,
}

/// An area that could not be compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NotCompared {
    /// The area.
    pub area: Area,
    /// The side and the reason.
    pub why: String,
}

/// The differences between two snapshots, or between a snapshot and now.
#[derive(Debug, Clone, Serialize)]
pub struct SnapshotDiff {
    /// Time by the clock of this machine; seconds since 1970.
    pub now: u64,
    /// Path of the root; `None` for a directory of snapshots.
    pub root: Option<String>,
    /// The directory of the snapshots.
    pub store: String,
    /// The earlier side.
    pub from: TimelineMoment,
    /// The later side.
    pub to: TimelineMoment,
    /// The differences, most harmful first.
    pub differences: Vec<Difference>,
    /// Areas that could not be compared.
    pub not_compared: Vec<NotCompared>,
    /// A limit of the whole comparison.
    pub limit: Option<&'static str>,
    /// Files that cannot be used.
    pub damaged: Vec<Damaged>,
}

/// Compares two sides. `root` is `None` if there is no node to compare with.
///
/// # Errors
/// The snapshots do not have a requested side.
pub fn compare_sides(
    runner: &dyn CommandRunner,
    root: Option<&Root>,
    shelf: &Shelf,
    request: DiffRequest<'_>,
) -> Result<SnapshotDiff> {
    let (from, to) = choose_sides(shelf, root.is_some(), request)?;
    Ok(compare_given(runner, root, shelf, from, to))
}

/// Returns the differences between the last good boot and now.
///
/// # Errors
/// There are no snapshots, or none of a boot that finished.
pub fn compare_last_good(runner: &dyn CommandRunner, root: &Root) -> Result<SnapshotDiff> {
    let shelf = find_shelf(root)?;
    let shelf = shelf.context("there are no snapshots: the recorder has not run here")?;
    let good = shelf.last_good();
    let good = good.context("no snapshot is from a boot that finished")?;
    Ok(compare_given(runner, Some(root), &shelf, Some(good), None))
}

/// One side of a comparison; `None` means now.
type Side<'a> = Option<&'a SnapshotRecord>;

fn choose_sides<'a>(
    shelf: &'a Shelf,
    has_now: bool,
    request: DiffRequest<'_>,
) -> Result<(Side<'a>, Side<'a>)> {
    let of_store = |command: &str| match request.store {
        Some(store) => format!(
            "mco-rescue {command} --store {}",
            shell_word(&store.display().to_string())
        ),
        None => mco_rescue(command),
    };
    let good = || {
        shelf.last_good().ok_or_else(|| {
            let newest = shelf.records.last().map(|record| record.number);
            let next = if request.store.is_some() {
                format!("Name two snapshots (all of them: {})", of_store("history"))
            } else {
                format!(
                    "Compare another one with now: {} (all of them: {})",
                    mco_rescue(&format!("diff {}", newest.unwrap_or_default())),
                    mco_rescue("history")
                )
            };
            anyhow!(
                "no snapshot in {} is from a boot that finished. {next}",
                shelf.place
            )
        })
    };
    let named = |word: &str| -> Result<Side<'a>> {
        match word {
            "now" if has_now => Ok(None),
            "now" => bail!("there is no node below this root to compare with; name two snapshots"),
            "good" => Ok(Some(good()?)),
            number => {
                let wanted = number.trim_start_matches('#').parse::<u64>().ok();
                let found = shelf.records.iter().find(|one| Some(one.number) == wanted);
                let found = found.ok_or_else(|| {
                    let list = of_store("history");
                    let now = if has_now { "good or now" } else { "or good" };
                    anyhow!(
                        "there is no snapshot {number:?} in {}. Give a number of {list}, {now}",
                        shelf.place
                    )
                });
                Ok(Some(found?))
            }
        }
    };
    let from = match request.from {
        Some(word) => named(word)?,
        None => Some(good()?),
    };
    let to = match (request.to, has_now) {
        (Some(word), _) => named(word)?,
        (None, true) => None,
        (None, false) => Some(shelf.records.last().context("no snapshot is complete")?),
    };
    Ok((from, to))
}

fn compare_given(
    runner: &dyn CommandRunner,
    root: Option<&Root>,
    shelf: &Shelf,
    from: Side<'_>,
    to: Side<'_>,
) -> SnapshotDiff {
    let now = current_time();
    let mut damaged: Vec<Damaged> = Vec::new();
    let mut read = |side: Side<'_>, before: &Snapshot| match (side, root) {
        (Some(record), _) => {
            let (snapshot, bad) = shelf.read_snapshot(record);
            damaged.extend(bad);
            (snapshot, record.key.clone(), TimelineMoment::from(record))
        }
        (None, Some(root)) => {
            let (snapshot, key) = observe_now(runner, root, shelf, before);
            (snapshot, key, TimelineMoment::now(now))
        }
        (None, None) => (Snapshot::default(), String::new(), TimelineMoment::now(now)),
    };
    let (before, before_key, from) = read(from, &Snapshot::default());
    let (after, after_key, to) = read(to, &before);
    let same_key = before_key == after_key;
    let mut comparison = compare_snapshots(&before, &after, same_key);
    add_texts(&mut comparison, &before, &after);
    let not_compared = comparison.not_compared.into_iter();
    SnapshotDiff {
        now,
        root: root.map(|root| root.shown().display().to_string()),
        store: shelf.place.clone(),
        from,
        to,
        differences: comparison.differences,
        not_compared: not_compared
            .map(|(area, why)| NotCompared { area, why })
            .collect(),
        limit: (!same_key).then_some(
            "the digests of the two are of different keys; of files only size, mode and owner are compared",
        ),
        damaged,
    }
}
