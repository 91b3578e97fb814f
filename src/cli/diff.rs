//! `diff`: the differences between two snapshots, or between the last good boot and now.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;

use super::ui::Ui;
use crate::base::error::ExitCode;
use crate::base::invocation::mco_rescue;
use crate::change::session::access::{self, AccessNeed};
use crate::change::session::{open_root, with_disk};
use crate::diagnose::recorder::look::find_shelf;
use crate::node::has_system;
use crate::report;
use crate::run::compared::{DiffRequest, compare_sides};
use crate::run::history::open_store;

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
pub(super) fn run(ui: &Ui<'_>, args: &DiffArgs) -> Result<ExitCode> {
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
    let request = DiffRequest {
        from: args.from.as_deref(),
        to: args.to.as_deref(),
        store: args.store.as_deref(),
    };
    let compared = compare_sides(ui.runner, root.as_ref(), &shelf, request)?;
    ui.print(
        || report::history::diff_json(&compared),
        || report::history::diff_text(&compared),
    )?;
    Ok(if compared.differences.is_empty() {
        ExitCode::Done
    } else {
        ExitCode::Drift
    })
}
