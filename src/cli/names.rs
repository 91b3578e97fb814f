//! `names`: words for shell completion that only the program or the node knows. Only reads, and prints nothing if it cannot read.

use crate::cli::ui::Ui;
use std::collections::BTreeSet;

use anyhow::Result;

use crate::base::error::ExitCode;
use crate::base::text;
use crate::change::session::open_root;
use crate::change::source::CACHED;
use crate::change::source::cache::{self, CacheEntry};
use crate::change::transaction;
use crate::config::document::Desired;
use crate::diagnose::doctor::checks::CHECKS;
use crate::diagnose::recorder::look::find_shelf;
use crate::judge::crossing::checks as risks;
use crate::node::Records;
use crate::report;
use clap::{Args, ValueEnum};

/// Names that completions offer.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum NamesOf {
    /// The checks of doctor
    Checks,
    /// The configs in the cache, as CONFIG
    Configs,
    /// The configs in the cache, by their names
    Cached,
    /// Pools
    Pools,
    /// The runs that rollback can revert
    Runs,
    /// The snapshots that diff can compare
    Snapshots,
    /// The checks of preflight that can be accepted
    Risks,
    /// The configs in the cache, and the paths of the recorded one
    Shown,
}

/// Which names.
#[derive(Debug, Args)]
pub struct NamesArgs {
    /// Of what
    #[arg(value_enum, value_name = "OF")]
    pub of: NamesOf,
}

/// Pools that every cluster has.
const POOLS: [&str; 2] = ["master", "worker"];

/// Runs `names`.
pub(super) fn run(ui: &Ui<'_>, args: &NamesArgs) -> Result<ExitCode> {
    let names = match args.of {
        NamesOf::Checks => CHECKS.iter().map(|check| check.id.to_owned()).collect(),
        NamesOf::Configs => configs(ui),
        NamesOf::Cached => cached(ui),
        NamesOf::Pools => pools(ui),
        NamesOf::Runs => runs(ui),
        NamesOf::Snapshots => snapshots(ui),
        NamesOf::Risks => {
            let of_image = risks::ALL.iter().filter(|one| one.is_of_image);
            of_image.map(|one| one.id.to_owned()).collect()
        }
        NamesOf::Shown => shown(ui),
    };
    let text: String = names
        .iter()
        .map(|name| text::make_inline(name) + "\n")
        .collect();
    report::print(text.as_bytes())?;
    Ok(ExitCode::Done)
}

/// Returns a part of every complete config in the cache, without duplicates.
fn of_cache(ui: &Ui<'_>, part: impl Fn(&CacheEntry) -> Option<String>) -> BTreeSet<String> {
    let all = open_root(&ui.root).and_then(|root| Ok(cache::read_cache(&root)?));
    let all = all.unwrap_or_default();
    cache::whole_entries(&all).filter_map(part).collect()
}

fn cached(ui: &Ui<'_>) -> BTreeSet<String> {
    of_cache(ui, |entry| Some(entry.name.clone()))
}

fn configs(ui: &Ui<'_>) -> BTreeSet<String> {
    let names = cached(ui).into_iter();
    names.map(|name| format!("{CACHED}{name}")).collect()
}

fn runs(ui: &Ui<'_>) -> BTreeSet<String> {
    let all = open_root(&ui.root).and_then(|root| Ok(transaction::read_history(&root)?));
    all.into_iter().flatten().map(|run| run.id).collect()
}

fn snapshots(ui: &Ui<'_>) -> BTreeSet<String> {
    let shelf = open_root(&ui.root).and_then(|root| find_shelf(&root));
    let records = shelf.ok().flatten().map(|shelf| shelf.records);
    let numbers = records.into_iter().flatten();
    let numbers = numbers.map(|record| record.number.to_string());
    numbers.chain(["good", "now"].map(str::to_owned)).collect()
}

fn shown(ui: &Ui<'_>) -> BTreeSet<String> {
    let records = open_root(&ui.root).and_then(|root| Ok(Records::read(&root)?));
    let records = records.ok();
    let recorded = records.as_ref().and_then(Records::recorded_config);
    let desired = recorded.map(Desired::from_config);
    let mut all = configs(ui);
    if let Some(desired) = &desired {
        all.extend(desired.files.iter().map(|file| file.path.to_string()));
        all.extend(desired.units.iter().map(|unit| unit.name.clone()));
    }
    all
}

fn pools(ui: &Ui<'_>) -> BTreeSet<String> {
    let mut all = of_cache(ui, |entry| entry.pool.clone());
    all.extend(POOLS.map(str::to_owned));
    let records = open_root(&ui.root).and_then(|root| Ok(Records::read(&root)?));
    let recorded = records.ok();
    let recorded = recorded.as_ref().and_then(Records::recorded_config);
    all.extend(recorded.and_then(|config| config.pool.clone()));
    all
}
