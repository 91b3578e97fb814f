//! `status`: the record, the last run, and what is pending.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;

use super::Output;
use super::handover::{self, HandoverRequest};
use crate::base::error::ExitCode;
use crate::base::invocation::mco_rescue;
use crate::base::time::{current_time, format_utc};
use crate::change::session::access::{self, AccessNeed};
use crate::change::session::own_state::expect_known_state;
use crate::change::session::{machine, open_root, with_disk};
use crate::change::source::cache;
use crate::change::transaction;
use crate::cli::args::DaemonArgs;
use crate::cli::ui::Ui;
use crate::host::root::Root;
use crate::host::sys::signals::{self, SignalAnswer};
use crate::report;
use crate::report::metrics::{is_metrics, to_metrics};
use crate::report::watch::ScreenSize;
use crate::report::wrap_text;
use crate::run::status::NodeStatus;

/// The time between two screens of `--watch`.
const INTERVAL: Duration = Duration::from_secs(2);

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

    /// Show it again every two seconds, until Ctrl-C
    ///
    /// On a terminal, a serial console too. It is cut to the height of the terminal
    #[arg(short, long, conflicts_with_all = ["for_cluster", "metrics"])]
    pub watch: bool,

    /// The daemon that starts next.
    #[command(flatten)]
    pub daemon: DaemonArgs,
}

/// Runs `status`.
pub(super) fn run(ui: &Ui<'_>, args: &StatusArgs) -> Result<ExitCode> {
    if args.watch {
        return watch(ui, args);
    }
    let (root, doubt) = open(ui)?;
    if let Some(doubt) = doubt {
        log::warn!("{doubt:#}");
    }
    machine::warn_without_traces(&root);
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
    ui.print(
        || report::status::to_json(&report),
        || report::status::to_text(&report, ui.verbose > 0),
    )?;
    Ok(ExitCode::Done)
}

/// Opens the root. Returns it with what cannot be read of this program's own state, if that leaves enough to report.
fn open(ui: &Ui<'_>) -> Result<(Root, Option<anyhow::Error>)> {
    let root = with_disk(open_root(&ui.root)?, &ui.root)?;
    machine::expect_system(&root)?;
    access::expect_access(&root, AccessNeed::Read)?;
    match expect_known_state(&root) {
        // If the files of a run cannot be read, nothing is certain; otherwise record and last run still are.
        Err(error) if transaction::find_pending(&root).is_err() => Err(error),
        Err(error) => Ok((root, Some(error))),
        Ok(()) => Ok((root, None)),
    }
}

/// Shows the state on the terminal every two seconds, until a signal ends the program.
fn watch(ui: &Ui<'_>, args: &StatusArgs) -> Result<ExitCode> {
    let out = std::io::stdout();
    if ui.output != Output::Text || !out.is_terminal() {
        bail!(
            "--watch redraws a terminal, and there is none here. Next: {} # as often as you need it",
            mco_rescue("status --output json")
        );
    }
    // Ctrl-C is how it ends.
    signals::set_answer(SignalAnswer::Said);
    loop {
        let read = open(ui).and_then(|(root, doubt)| {
            let report = NodeStatus::observe(&root, ui.runner, args.daemon.given())?;
            Ok((report, doubt))
        });
        let in_words = |error: anyhow::Error| wrap_text(&format!("{error:#}"), 0);
        let text = match read {
            // It may pass, so that the next screen is whole.
            Err(error) => in_words(error),
            Ok((report, doubt)) => {
                doubt.map(in_words).unwrap_or_default()
                    + &report::status::to_text(&report, ui.verbose > 0)
            }
        };
        let size = terminal_size::terminal_size_of(&out).map(|(width, height)| ScreenSize {
            columns: width.0.into(),
            rows: height.0.into(),
        });
        let title = format!(
            "mco-rescue status, {}; Ctrl-C ends it",
            format_utc(current_time())
        );
        let size = size.filter(|size| size.rows > 0).unwrap_or_default();
        report::print_frame(&title, &text, size)?;
        thread::sleep(INTERVAL);
    }
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
