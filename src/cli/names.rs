//! `names`: words for shell completion that only the program or the node knows. Only reads, and prints nothing if it cannot read.

use crate::cli::ui::Ui;
use std::collections::BTreeSet;

use anyhow::Result;

use crate::base::error::ExitCode;
use crate::base::text;
use crate::change::session::open_root;
use crate::change::source::CACHED;
use crate::change::source::cache::{self, CacheEntry};
use crate::diagnose::doctor::checks::CHECKS;
use crate::node::Records;
use crate::report;
use clap::Args;
use clap::ValueEnum;

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
        NamesOf::Configs => cached(ui)
            .into_iter()
            .map(|name| format!("{CACHED}{name}"))
            .collect(),
        NamesOf::Cached => cached(ui),
        NamesOf::Pools => pools(ui),
    };
    let text: String = names.iter().map(|name| text::inline(name) + "\n").collect();
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

fn pools(ui: &Ui<'_>) -> BTreeSet<String> {
    let mut all = of_cache(ui, |entry| entry.pool.clone());
    all.extend(POOLS.map(str::to_owned));
    let records = open_root(&ui.root).and_then(|root| Ok(Records::read(&root)?));
    let recorded = records.ok();
    let recorded = recorded.as_ref().and_then(Records::recorded);
    all.extend(recorded.and_then(|config| config.pool.clone()));
    all
}
