//! `keep`: writes the changes made by hand on the node as one MachineConfig.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use clap::Args;

use super::Output;
use crate::base::error::ExitCode;
use crate::change::session::access::{self, AccessNeed};
use crate::change::session::{machine, open_root};
use crate::change::transaction;
use crate::cli::ui::Ui;
use crate::diagnose::keep::Kept;
use crate::judge::drift::Drift;
use crate::report;
use crate::report::keep::KeepReport;
use crate::run::keep::{KeepOptions, KeepRun};

/// What is kept, and where it is written.
#[derive(Debug, Args)]
pub struct KeepArgs {
    /// Files and directories of the node [default: everything that verify finds]
    #[arg(value_name = "PATH")]
    pub paths: Vec<String>,

    /// Its name [default: 99-POOL-zz-kept]
    ///
    /// Of two MachineConfigs with one path the later name wins
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// Write it to a new file [default: print it]
    ///
    /// Only its owner can read the file
    #[arg(long, value_name = "FILE")]
    pub to: Option<PathBuf>,

    /// Keep this kernel argument, too
    #[arg(long, value_name = "ARGUMENT")]
    pub argument: Vec<String>,

    /// Include contents that may be secret
    ///
    /// Everyone who may read MachineConfigs can then read them
    #[arg(long)]
    pub with_secrets: bool,
}

/// Runs `keep`.
pub(super) fn run(ui: &Ui<'_>, args: &KeepArgs) -> Result<ExitCode> {
    let root = open_root(&ui.root)?;
    machine::expect_system(&root)?;
    access::expect_access(&root, AccessNeed::Read)?;
    let options = KeepOptions {
        paths: &args.paths,
        name: args.name.as_deref(),
        arguments: &args.argument,
    };
    let run = KeepRun::observe_node(root, ui.runner, options)?;
    let (kept, with_secrets) = take_secrets(ui, args, &run)?;
    let (kept, left) = run.prove_config(kept, with_secrets)?;
    print(ui, args, &run, &kept, &left)?;
    let is_whole = kept.unkept.is_empty() && left.is_empty();
    Ok(if is_whole {
        ExitCode::Done
    } else {
        ExitCode::Drift
    })
}

/// Makes the MachineConfig, first without secrets. Secrets are added after a question, or with the option. Also returns whether
/// they were added.
fn take_secrets(ui: &Ui<'_>, args: &KeepArgs, run: &KeepRun<'_>) -> Result<(Kept, bool)> {
    let shows = args.to.is_none() && std::io::stdout().is_terminal();
    let mut with_secrets = args.with_secrets;
    let mut kept = run.make_config(with_secrets);
    let withheld = kept.unkept.iter().filter(|one| one.secret);
    let withheld: Vec<&str> = withheld.map(|one| one.subject.as_str()).collect();
    if !withheld.is_empty() && !shows {
        let question = format!(
            "{} may be secret. Put them into the MachineConfig?",
            withheld.join(", ")
        );
        if ui.ask(&question)? {
            with_secrets = true;
            kept = run.make_config(with_secrets);
        }
    }
    if kept.has_secrets && shows {
        bail!(
            "the MachineConfig has contents that may be secret, and standard output is a terminal; add --to FILE"
        );
    }
    Ok((kept, with_secrets))
}

fn print(
    ui: &Ui<'_>,
    args: &KeepArgs,
    run: &KeepRun<'_>,
    kept: &Kept,
    left: &[Drift],
) -> Result<()> {
    let yaml = kept.config.as_ref().map(report::keep::to_yaml);
    if let (Some(path), Some(yaml)) = (&args.to, &yaml) {
        write(path, yaml)?;
    }
    let written = args.to.as_ref().filter(|_| yaml.is_some());
    let shown = written.map(|path| path.display().to_string());
    let report = KeepReport {
        name: &run.name,
        recorded: &run.session.chosen.config.name,
        to: shown.as_deref(),
        is_limited: !args.paths.is_empty(),
        kept,
        left,
    };
    let has_written = written.is_some();
    match (ui.output, &yaml, written) {
        (Output::Json, ..) => {
            report::print_whole_report(report::keep::to_json(&report)?.as_bytes(), has_written)?;
        }
        (Output::Text, Some(yaml), None) => {
            report::print_bytes(yaml.as_bytes())?;
            report::print_aside(&report::keep::to_text(&report));
        }
        (Output::Text, ..) => {
            report::print_report(report::keep::to_text(&report).as_bytes(), has_written)?;
        }
    }
    Ok(())
}

fn write(path: &Path, yaml: &str) -> Result<()> {
    transaction::write_output(path, yaml.as_bytes(), |_| false).map_err(|why| {
        anyhow!(
            "writing {}: {why}; give another file with --to. Nothing was written",
            path.display()
        )
    })
}
