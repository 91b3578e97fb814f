//! `status`: the record, the last run, and what is pending.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use clap::Args;

use super::Output;
use super::handover::{self, HandoverRequest};
use crate::base::error::ExitCode;
use crate::change::session::access::{self, AccessNeed};
use crate::change::session::own_state::expect_known_state;
use crate::change::session::{machine, open_root};
use crate::change::source::cache;
use crate::change::transaction;
use crate::cli::args::DaemonArgs;
use crate::cli::ui::Ui;
use crate::host::root::Root;
use crate::report;
use crate::report::metrics::{is_metrics, to_metrics};
use crate::run::status::NodeStatus;

/// What to show of the node.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Print the steps for oc, for when the API is back
    ///
    /// What an admin does then: the annotations of this node and the objects that the daemon
    /// needs, as commands, with what to check before each
    #[arg(long)]
    pub for_cluster: bool,

    /// With --for-cluster: print this MachineConfig for `oc create -f -`
    ///
    /// It holds secrets, so it goes to a file or a pipe only
    #[arg(long, value_name = "NAME", requires = "for_cluster")]
    pub object: Option<String>,

    /// With --for-cluster: print the objects of `change` for `oc apply -f -`
    ///
    /// They are those of the change that was made on this node, as YAML
    #[arg(long, requires = "for_cluster", conflicts_with = "object")]
    pub changes: bool,

    /// Write the state as metrics for Prometheus
    ///
    /// For the textfile collector of node_exporter: whole, in one rename, readable by all. Only a
    /// file of this option is replaced
    #[arg(long, value_name = "FILE", conflicts_with = "for_cluster")]
    pub metrics: Option<PathBuf>,

    /// The daemon that starts next.
    #[command(flatten)]
    pub daemon: DaemonArgs,
}

/// Runs `status`.
pub(super) fn run(ui: &Ui<'_>, args: &StatusArgs) -> Result<ExitCode> {
    let root = open_root(&ui.root)?;
    machine::expect_system(&root)?;
    access::expect_access(&root, AccessNeed::Read)?;
    match expect_known_state(&root) {
        // If the files of a run cannot be read, nothing is certain; otherwise record and last run still are.
        Err(error) if transaction::find_pending(&root).is_err() => return Err(error),
        Err(error) => log::warn!("{error:#}"),
        Ok(()) => {}
    }
    if args.for_cluster {
        let request = HandoverRequest {
            object: args.object.as_deref(),
            changes: args.changes,
            daemon: args.daemon.given(),
        };
        return handover::run(ui, request, &root);
    }
    let report = NodeStatus::observe(&root, ui.runner, args.daemon.given())?;
    if let Some(path) = &args.metrics {
        write_metrics(&root, &report, path)?;
        return Ok(ExitCode::Done);
    }
    let text = match ui.output {
        Output::Json => report::status::to_json(&report)?,
        Output::Text => report::status::to_text(&report),
    };
    report::print(text.as_bytes())?;
    Ok(ExitCode::Done)
}

/// Writes the metrics. A file that does not contain metrics is not replaced.
fn write_metrics(root: &Root, report: &NodeStatus, path: &Path) -> Result<()> {
    let cached = cache::read_cache(root).context("reading the cache")?;
    let times: Vec<u64> = cache::whole_entries(&cached)
        .map(|entry| entry.fetched)
        .collect();
    let text = to_metrics(report, &times);
    transaction::write_readable_output(path, text.as_bytes(), is_metrics).map_err(|why| {
        anyhow!(
            "writing {}: {why}; give another file with --metrics. Only metrics of mco-rescue are replaced",
            path.display()
        )
    })
}
