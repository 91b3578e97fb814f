//! `recover`: finishes or undoes an interrupted run.

use anyhow::{Context, Result};

use super::Output;
use super::ui::Ui;
use crate::base::error::ExitCode;
use crate::change::session::open_root;
use crate::change::transaction::{Leave, Recovered};
use crate::change::trial::on_disk::name_unconfirmed;
use crate::host::root::RootPath;
use crate::report;
use crate::run::recovery::{RecoverOptions, recover_root};
use clap::Args;

/// How to recover.
#[derive(Debug, Args)]
pub struct RecoverArgs {
    /// Undo the interrupted run even if it could be finished
    #[arg(long)]
    pub back: bool,

    /// Leave PATH, and what is below it, as it is where it can be brought neither
    /// forward nor back; may be given more than once
    #[arg(long, value_name = "PATH")]
    pub leave: Vec<String>,

    /// Forget an interrupted run whose journal is damaged or of another version: every
    /// file stays as it is, and the exit code is 3
    #[arg(long, conflicts_with_all = ["back", "leave", "at_boot"])]
    pub give_up: bool,

    /// Run by a unit: no user watches, and systemd has read the unit files already
    #[arg(long, hide = true, conflicts_with = "back")]
    pub at_boot: bool,
}

/// Runs `recover`.
pub(super) fn run(ui: &Ui<'_>, args: &RecoverArgs) -> Result<ExitCode> {
    let root = open_root(&ui.root)?;
    let options = RecoverOptions {
        back: args.back,
        leave: leave(&args.leave)?,
        give_up: args.give_up,
        at_boot: args.at_boot,
    };
    let again = root.again()?;
    let Some(done) = recover_root(ui, root, &options)? else {
        return Ok(ExitCode::Done);
    };
    let units = done.units.as_ref();
    let text = match ui.output {
        Output::Json => report::recover::to_json(&done.recovered, units)?,
        Output::Text => report::recover::to_text(&done.recovered, units),
    };
    report::print_result(text.as_bytes());
    name_unconfirmed(&again);
    Ok(match done.recovered {
        // Old files and files of the run may be mixed.
        Recovered::GivenUp(..) => ExitCode::Drift,
        _ => ExitCode::Done,
    })
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
