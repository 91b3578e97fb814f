//! `show`: what is in a config, or one of its files, decoded.

use crate::cli::ui::Ui;
use anyhow::{Context, Result, bail};

use super::session::{Unnamed, choose_config, open_root};
use super::{Output, ShowArgs};
use crate::document::Desired;
use crate::drift::{dropin_path, unit_path};
use crate::error::ExitCode;
use crate::invocation::mco_rescue;
use crate::node::Records;
use crate::report;

/// Runs `show`. One argument that is a path or unit of the recorded config means that file.
pub(super) fn run(ui: &Ui<'_>, args: &ShowArgs) -> Result<ExitCode> {
    let root = open_root(ui)?;
    let records = Records::read(&root).context("reading the daemon's records")?;
    if let (Some(path), None) = (&args.config, &args.path)
        && let Some(recorded) = records.baseline().config()
        && let Ok(bytes) = contents(&Desired::from_config(recorded), path)
    {
        report::print_bytes(&bytes)?;
        return Ok(ExitCode::Done);
    }
    let config = choose_config(&root, args.config.as_deref(), Unnamed::Recorded, &records)?.config;
    let desired = Desired::from_config(&config);
    match (&args.path, ui.output) {
        (Some(path), _) => report::print_bytes(&contents(&desired, path)?)?,
        (None, Output::Json) => {
            report::print(report::show::to_json(&config, &desired)?.as_bytes())?
        }
        (None, Output::Text) => report::print(report::show::to_text(&config, &desired).as_bytes())?,
    }
    Ok(ExitCode::Done)
}

/// The bytes of the file, unit or drop-in at `path`.
fn contents(desired: &Desired, path: &str) -> Result<Vec<u8>> {
    if let Some(file) = desired
        .files
        .iter()
        .find(|file| file.path.to_string() == path)
    {
        return file
            .contents
            .bytes()
            .with_context(|| format!("decoding {path}"));
    }
    for unit in &desired.units {
        let at = |place: Option<crate::root::RootPath>| {
            place.is_some_and(|place| place.to_string() == path)
        };
        if let Some(text) = unit
            .text()
            .filter(|_| unit.name == path || at(unit_path(&unit.name)))
        {
            return Ok(text.as_bytes().to_vec());
        }
        let dropin = unit
            .dropins
            .iter()
            .find(|dropin| at(dropin_path(&unit.name, &dropin.name)));
        if let Some(text) = dropin.and_then(|dropin| dropin.text()) {
            return Ok(text.as_bytes().to_vec());
        }
    }
    bail!(
        "the config brings no file or unit {path:?}; `{}` lists what it has",
        mco_rescue("show CONFIG")
    )
}
