//! `show`: prints what is in a config, or one of its files, decoded.

use crate::cli::ui::Ui;
use crate::host::caller;

use anyhow::{Context, Result, anyhow};

use super::Output;
use crate::base::error::ExitCode;
use crate::base::invocation::{mco_rescue, shell_word};
use crate::base::paths;
use crate::change::session::{Unnamed, choose_config, open_root};
use crate::change::transaction::{self, Pending};
use crate::config::document::Desired;
use crate::host::root::Root;
use crate::judge::drift::{dropin_path, unit_path};
use crate::node::{Baseline, Recorded, Records};
use crate::report;
use clap::Args;

/// What to show.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// A rendered MachineConfig; `-` for standard input [default: the recorded one]
    #[arg(value_name = "CONFIG")]
    pub config: Option<String>,

    /// Absolute path of a file, or name of a unit: print its decoded contents
    #[arg(value_name = "PATH")]
    pub path: Option<String>,
}

/// The kinds of units that a config can contain.
const UNITS: [&str; 9] = [
    "service",
    "socket",
    "device",
    "mount",
    "automount",
    "swap",
    "target",
    "path",
    "timer",
];

/// Runs `show`. A single argument that is a path or unit of the recorded config selects that file.
pub(super) fn run(ui: &Ui<'_>, args: &ShowArgs) -> Result<ExitCode> {
    let root = open_root(&ui.root)?;
    let records = Records::read(&root).context("reading the daemon's records")?;
    warn_of_half(&root)?;
    let config = match (&args.config, &args.path) {
        (Some(path), None) => {
            if let Some(recorded) = records.baseline().config()
                && let Some(bytes) = contents(&Desired::from_config(recorded), path)?
            {
                report::print_bytes(&bytes)?;
                return Ok(ExitCode::Done);
            }
            let chosen = choose_config(&root, Some(path), Unnamed::Recorded, &records);
            match is_of_a_config(path) {
                true => chosen.map_err(|_| not_there(&records, path))?,
                false => chosen?,
            }
        }
        (config, _) => choose_config(&root, config.as_deref(), Unnamed::Recorded, &records)?,
    };
    let config = config.config;
    let desired = Desired::from_config(&config);
    match (&args.path, ui.output) {
        (Some(path), _) => {
            let bytes = contents(&desired, path)?.with_context(|| {
                format!(
                    "the config brings no file or unit {path:?}. What it has: {}",
                    mco_rescue(&command_of(args.config.as_deref()))
                )
            })?;
            report::print_bytes(&bytes)?;
        }
        (None, Output::Json) => {
            report::print(report::show::to_json(&config, &desired, None)?.as_bytes())?
        }
        (None, Output::Text) => report::print(report::show::to_text(&config, &desired).as_bytes())?,
    }
    Ok(ExitCode::Done)
}

/// Warns about an incomplete run: its record is that of the previous config, or its own.
fn warn_of_half(root: &Root) -> Result<()> {
    if let Pending::Unfinished(config, _) = transaction::find_pending(root)? {
        log::warn!(
            "a run to {} is half-way, so the node is in neither config. Next: {}",
            config.name,
            mco_rescue("recover")
        );
    }
    Ok(())
}

fn command_of(config: Option<&str>) -> String {
    config.map_or_else(
        || "show".to_owned(),
        |config| format!("show {}", shell_word(config)),
    )
}

/// Returns true if the only argument is a path or a unit of a config, and not a file with a config.
fn is_of_a_config(word: &str) -> bool {
    let is_unit = || {
        word.rsplit_once('.')
            .is_some_and(|(_, kind)| UNITS.contains(&kind))
    };
    let is_path = word.starts_with('/') || is_unit() && !word.contains('/');
    is_path && matches!(caller::exists(word), Ok(false))
}

/// Returns the error if a path or unit of the recorded config cannot be shown, with the next step.
fn not_there(records: &Records, path: &str) -> anyhow::Error {
    let record = format!("/{}", paths::CURRENT_CONFIG);
    let file = format!("and there is no file {path:?} to read a config from");
    let of_another = mco_rescue(&format!("show CONFIG {}", shell_word(path)));
    let again = mco_rescue("apply CONFIG");
    match (&records.current_config, records.baseline()) {
        (Recorded::Missing, _) => {
            anyhow!("the node has no record ({record}), {file}. Give the config: {of_another}")
        }
        (Recorded::Broken(problem), _) => anyhow!(
            "the node's record cannot be used ({problem}), {file}. Give the config: {of_another}; or write the record again: \
             {again}"
        ),
        (Recorded::Present(_), Baseline::Unknown(why)) => {
            anyhow!("{why}, {file}. Give the config: {of_another}")
        }
        (Recorded::Present(config), Baseline::Known(_)) => anyhow!(
            "the recorded config {} brings no file or unit {path:?}, {file}. What it has: {}",
            config.name,
            mco_rescue("show")
        ),
    }
}

/// Returns the contents of the file, unit or drop-in at `path`; `None` if it is not in the config.
fn contents(desired: &Desired, path: &str) -> Result<Option<Vec<u8>>> {
    if let Some(file) = desired
        .files
        .iter()
        .find(|file| file.path.to_string() == path)
    {
        let bytes = file.contents.bytes();
        return bytes.map(Some).with_context(|| format!("decoding {path}"));
    }
    for unit in &desired.units {
        let at = |place: Option<crate::host::root::RootPath>| {
            place.is_some_and(|place| place.to_string() == path)
        };
        if let Some(text) = unit
            .text()
            .filter(|_| unit.name == path || at(unit_path(&unit.name)))
        {
            return Ok(Some(text.as_bytes().to_vec()));
        }
        let dropin = unit
            .dropins
            .iter()
            .find(|dropin| at(dropin_path(&unit.name, &dropin.name)));
        if let Some(text) = dropin.and_then(|dropin| dropin.text()) {
            return Ok(Some(text.as_bytes().to_vec()));
        }
    }
    Ok(None)
}
