//! `diff`: the differences between two snapshots, or between the last good boot and now.

use crate::diagnose::recorder::look::{add_texts, observe_now};
use anyhow::{Context, Result, anyhow, bail};

use super::history::open_store;
use crate::base::error::ExitCode;
use crate::base::invocation::{mco_rescue, shell_word};
use crate::base::time::now;
use crate::change::session::access;
use crate::change::session::access::AccessNeed;
use crate::change::session::{open_root, with_disk};
use crate::cli::ui::{Output, Ui};
use crate::diagnose::recorder::look::find_shelf;
use crate::diagnose::recorder::shelf::{Damaged, Shelf};
use crate::diagnose::recorder::timeline::TimelineMoment;
use crate::diagnose::recorder::{Snapshot, SnapshotRecord, compare_snapshots};
use crate::host::root::Root;
use crate::node::command::CommandRunner;
use crate::report;
use crate::report::history::DiffDocument;
use clap::Args;
use std::path::PathBuf;

/// The two sides of the comparison.
#[derive(Debug, Default, Args)]
pub struct DiffArgs {
    /// Number of a snapshot, or `good`: the last good boot [default: good]
    ///
    /// history lists the snapshots
    #[arg(value_name = "A")]
    pub from: Option<String>,

    /// The same, or `now` [default: now]
    ///
    /// Without a node, the newest snapshot is the default
    #[arg(value_name = "B")]
    pub to: Option<String>,

    /// Read the snapshots in DIR [default: those of the root]
    ///
    /// The directory mco-rescue on the file system of a node's /boot, or that file system
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
}

/// Runs `diff`.
pub(in crate::cli) fn run(ui: &Ui<'_>, args: &DiffArgs) -> Result<ExitCode> {
    let (root, shelf) = match &args.store {
        Some(store) => (None, open_store(store)?),
        None => {
            let root = with_disk(open_root(&ui.root)?, &ui.root)?;
            access::expect_access(&root, AccessNeed::Read)?;
            let shelf = find_shelf(&root)?;
            let shelf = shelf.with_context(|| {
                format!(
                    "this root has no snapshots: the recorder of mco-rescue was never installed there, or has not run. \
                     Next: {}, or {}",
                    mco_rescue("install"),
                    mco_rescue("record")
                )
            })?;
            // A file system with only /boot has no current facts.
            (Some(root).filter(has_system), shelf)
        }
    };
    let (from, to) = choose(&shelf, root.is_some(), args)?;
    let document = document(ui.runner, root.as_ref(), &shelf, from, to);
    let text = match ui.output {
        Output::Json => report::history::diff_json(&document)?,
        Output::Text => report::history::diff_text(&document),
    };
    report::print(text.as_bytes())?;
    Ok(match document.differences.is_empty() {
        true => ExitCode::Done,
        false => ExitCode::Drift,
    })
}

/// Returns the differences between the last good boot and now.
///
/// # Errors
/// There are no snapshots, or none of a boot that finished.
pub(in crate::cli) fn since_last_good(
    runner: &dyn CommandRunner,
    root: &Root,
) -> Result<DiffDocument> {
    let shelf = find_shelf(root)?;
    let shelf = shelf.context("there are no snapshots: the recorder has not run here")?;
    let good = shelf.last_good();
    let good = good.context("no snapshot is of a boot that reached its end")?;
    Ok(document(runner, Some(root), &shelf, Some(good), None))
}

fn has_system(root: &Root) -> bool {
    let exists = |path| {
        root.exists(&crate::host::root::RootPath::fixed(path))
            .unwrap_or_default()
    };
    exists("etc")
}

/// One side of a comparison; `None` means now.
pub(in crate::cli) type Side<'a> = Option<&'a SnapshotRecord>;

fn choose<'a>(shelf: &'a Shelf, has_now: bool, args: &DiffArgs) -> Result<(Side<'a>, Side<'a>)> {
    let of_store = |command: &str| match &args.store {
        Some(store) => format!(
            "mco-rescue {command} --store {}",
            shell_word(&store.display().to_string())
        ),
        None => mco_rescue(command),
    };
    let good = || {
        shelf.last_good().ok_or_else(|| {
            let newest = shelf.records.last().map(|record| record.number);
            let next = match args.store.is_some() {
                true => format!("Name two snapshots (all of them: {})", of_store("history")),
                false => format!(
                    "Compare another one with now: {} (all of them: {})",
                    mco_rescue(&format!("diff {}", newest.unwrap_or_default())),
                    mco_rescue("history")
                ),
            };
            anyhow!(
                "no snapshot in {} is of a boot that reached its end. {next}",
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
    let from = match &args.from {
        Some(word) => named(word)?,
        None => Some(good()?),
    };
    let to = match (&args.to, has_now) {
        (Some(word), _) => named(word)?,
        (None, true) => None,
        (None, false) => Some(shelf.records.last().context("there is no whole snapshot")?),
    };
    Ok((from, to))
}

fn document(
    runner: &dyn CommandRunner,
    root: Option<&Root>,
    shelf: &Shelf,
    from: Side<'_>,
    to: Side<'_>,
) -> DiffDocument {
    let now = now();
    let mut damaged: Vec<Damaged> = Vec::new();
    let mut read = |side: Side<'_>, before: &Snapshot| match (side, root) {
        (Some(record), _) => {
            let (snapshot, bad) = shelf.snapshot(record);
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
    DiffDocument::new(
        root.map(|root| root.shown().display().to_string()),
        shelf.place.clone(),
        (from, to),
        now,
        comparison,
        (!same_key).then_some("the digests of the two are of different keys; of files only size, mode and owner are compared"),
        damaged,
    )
}
