//! `history`: boots and runs of a node in chronological order.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use super::ui::Ui;
use crate::base::error::ExitCode;
use crate::change::session::{machine, open_root};
use crate::report;
use crate::run::history::{History, open_store};

/// Which history.
#[derive(Debug, Default, Args)]
pub struct HistoryArgs {
    /// Read the snapshots in DIR [default: those of the root]
    ///
    /// The directory mco-rescue on the file system of a node's /boot, or that file system
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
}

/// Runs `history`.
pub(super) fn run(ui: &Ui<'_>, args: &HistoryArgs) -> Result<ExitCode> {
    let history = match &args.store {
        Some(store) => History::read_history(None, Some(&open_store(store)?)),
        None => {
            let root = open_root(&ui.root)?;
            let history = History::of_root(&root)?;
            // The file system of /boot alone has snapshots too.
            if history.store.is_none() {
                machine::expect_system(&root)?;
            }
            history
        }
    };
    ui.print(
        || report::history::to_json(&history),
        || report::history::to_text(&history),
    )?;
    Ok(ExitCode::Done)
}
