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
use crate::host::root::{Root, RootPath};
use crate::judge::drift::{dropin_path, unit_path};
use crate::node::{Baseline, Recorded, Records};
use crate::report;
use crate::report::show::ShownFile;
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

    /// The same as CONFIG, as with oc
    #[arg(
        short = 'f',
        long = "filename",
        value_name = "CONFIG",
        conflicts_with = "path",
        hide_short_help = true
    )]
    pub filename: Option<String>,
}

impl ShowArgs {
    /// Returns the config and the path that were given.
    fn given(&self) -> (Option<&str>, Option<&str>) {
        match &self.filename {
            Some(config) => (Some(config), self.config.as_deref()),
            None => (self.config.as_deref(), self.path.as_deref()),
        }
    }
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
    let (named, path) = args.given();
    let config = match (named, path) {
        (Some(path), None) if args.filename.is_none() => {
            if let Some(recorded) = records.baseline().config()
                && let Some(file) = find_file(&Desired::from_config(recorded), path)?
            {
                print_file(ui, &recorded.name, &file)?;
                return Ok(ExitCode::Done);
            }
            let chosen = choose_config(&root, Some(path), Unnamed::Recorded, &records);
            if is_of_a_config(path) {
                chosen.map_err(|_| not_there(&records, path))?
            } else {
                chosen?
            }
        }
        (config, _) => choose_config(&root, config, Unnamed::Recorded, &records)?,
    };
    let config = config.config;
    let desired = Desired::from_config(&config);
    match (path, ui.output) {
        (Some(path), _) => {
            let file = find_file(&desired, path)?.with_context(|| {
                format!(
                    "the config brings no file or unit {path:?}. What it has: {}",
                    mco_rescue(&command_of(named))
                )
            })?;
            print_file(ui, &config.name, &file)?;
        }
        (None, Output::Json) => {
            report::print(report::show::to_json(&config, &desired, None)?.as_bytes())?
        }
        (None, Output::Text) => report::print(report::show::to_text(&config, &desired).as_bytes())?,
    }
    Ok(ExitCode::Done)
}

/// Prints a file: its bytes, or a document about it.
fn print_file(ui: &Ui<'_>, config: &str, file: &ShownFile) -> Result<()> {
    match ui.output {
        Output::Text => report::print_bytes(&file.bytes)?,
        Output::Json => report::print_document(&report::show::file_to_json(config, file)?)?,
    }
    Ok(())
}

/// Warns about an incomplete run: its record is that of the previous config, or its own.
fn warn_of_half(root: &Root) -> Result<()> {
    if let Pending::Unfinished(config, _) = transaction::find_pending(root)? {
        log::warn!(
            "a run to {} is unfinished, so the node is in neither config. Next: {}",
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

/// Returns the file, unit or drop-in at `path`; `None` if it is not in the config.
fn find_file(desired: &Desired, path: &str) -> Result<Option<ShownFile>> {
    if let Some(file) = desired
        .files
        .iter()
        .find(|file| file.path.to_string() == path)
    {
        let bytes = file.contents.bytes();
        return Ok(Some(ShownFile {
            path: path.to_owned(),
            mode: file.mode,
            bytes: bytes.with_context(|| format!("decoding {path}"))?,
        }));
    }
    for unit in &desired.units {
        let place = unit_path(&unit.name);
        let is_named = unit.name == path || is_at(place.as_ref(), path);
        if let Some(text) = unit.text().filter(|_| is_named) {
            return Ok(Some(of_unit(place, &unit.name, text)));
        }
        for dropin in &unit.dropins {
            let place = dropin_path(&unit.name, &dropin.name);
            if let Some(text) = dropin.text().filter(|_| is_at(place.as_ref(), path)) {
                return Ok(Some(of_unit(place, &dropin.name, text)));
            }
        }
    }
    Ok(None)
}

fn is_at(place: Option<&RootPath>, path: &str) -> bool {
    place.is_some_and(|place| place.to_string() == path)
}

/// Returns the file of a unit or drop-in, which the daemon writes with mode 0644.
fn of_unit(place: Option<RootPath>, name: &str, text: &str) -> ShownFile {
    ShownFile {
        path: place.map_or_else(|| name.to_owned(), |place| place.to_string()),
        mode: 0o644,
        bytes: text.as_bytes().to_vec(),
    }
}
