//! `recover`: finishes or undoes an interrupted run.

use anyhow::{Context, Result, bail};

use super::Output;
use super::ui::Ui;
use crate::base::error::ExitCode;
use crate::base::invocation::mco_rescue;
use crate::change::session::open_root;
use crate::change::transaction::{Leave, Recovered, find_pending, foresee_recovery};
use crate::change::trial::on_disk::name_unconfirmed;
use crate::host::root::{Root, RootPath};
use crate::node::{Recorded, Records};
use crate::report;
use crate::run::recover::{RecoverOptions, recover_root};
use clap::Args;

/// How to recover.
#[derive(Debug, Args)]
pub struct RecoverArgs {
    /// Say what would be done, and change nothing
    #[arg(short = 'n', long, conflicts_with_all = ["back", "leave", "give_up", "at_boot"])]
    pub dry_run: bool,

    /// Undo the interrupted run even if it could be finished
    #[arg(long)]
    pub back: bool,

    /// Leave PATH as it is; may be given several times
    ///
    /// PATH, and what is below it, stays as it is where it can be brought neither forward nor back
    #[arg(long, value_name = "PATH")]
    pub leave: Vec<String>,

    /// Forget a run whose journal is damaged; no file is changed
    ///
    /// For an interrupted run whose journal is damaged or of another version: every file stays as it
    /// is, and the exit code is 3
    #[arg(long, conflicts_with_all = ["back", "leave", "at_boot"])]
    pub give_up: bool,

    /// Run by a unit: no user watches, and systemd has read the unit files already
    #[arg(long, hide = true, conflicts_with = "back")]
    pub at_boot: bool,
}

/// Runs `recover`.
pub(super) fn run(ui: &Ui<'_>, args: &RecoverArgs) -> Result<ExitCode> {
    let root = open_root(&ui.root)?;
    if args.dry_run {
        return foresee(ui, &root);
    }
    let options = RecoverOptions {
        back: args.back,
        leave: leave(&args.leave)?,
        give_up: args.give_up,
        at_boot: args.at_boot,
    };
    let again = root.open_again()?;
    let Some(done) = recover_root(ui, root, &options)? else {
        return Ok(ExitCode::Done);
    };
    let units = done.units.as_ref();
    // If the records cannot be read, `verify` reports it.
    let has_record = Records::read(&again).map_or(true, |records| {
        !matches!(records.current_config, Recorded::Missing)
    });
    ui.print_result(
        || report::recover::to_json(&done.recovered, units),
        || report::recover::to_text(&done.recovered, units, has_record),
    )?;
    name_unconfirmed(&again);
    Ok(match done.recovered {
        // Old files and files of the run may be mixed.
        Recovered::GivenUp(..) => ExitCode::Drift,
        _ => ExitCode::Done,
    })
}

/// Prints what `recover` would do.
fn foresee(ui: &Ui<'_>, root: &Root) -> Result<ExitCode> {
    if ui.output == Output::Json {
        bail!(
            "recover --dry-run has no JSON form. Use: {}",
            mco_rescue("status -o json")
        );
    }
    let pending = find_pending(root).context("looking for an interrupted run")?;
    let outlook = foresee_recovery(root).context("looking at the interrupted run")?;
    report::print(report::recover::foreseen_text(&pending, outlook.as_ref()).as_bytes())?;
    Ok(ExitCode::Done)
}

/// Returns the paths that may be left as they are.
fn leave(paths: &[String]) -> Result<Leave> {
    let all = |path: &&String| path.trim_matches('/').is_empty() && path.starts_with('/');
    let named = paths.iter().filter(|path| !all(path));
    let named = named.map(|path| {
        RootPath::parse(path).context("--leave takes a path of the node, such as /etc/a.conf")
    });
    Ok(Leave {
        all: paths.iter().any(|path| all(&path)),
        paths: named.collect::<Result<_>>()?,
    })
}
