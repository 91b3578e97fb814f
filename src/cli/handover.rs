//! `status --for-cluster`: how the node can rejoin the cluster, and the objects that it can contribute.

use std::io::IsTerminal;

use anyhow::{Context, Result, bail};

use super::Output;
use crate::base::error::ExitCode;
use crate::change::session::predict::GivenDaemon;
use crate::cli::ui::Ui;
use crate::config::document::MachineConfig;
use crate::host::root::Root;
use crate::node::Records;
use crate::report;
use crate::run::handover::{find_change, find_config, find_configs, plan_handover, to_object};

/// What `status --for-cluster` is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct HandoverRequest<'a> {
    /// The MachineConfig to print as an object.
    pub object: Option<&'a str>,
    /// The objects of the change that was made on the node are printed.
    pub changes: bool,
    /// What the user knows about the daemon.
    pub daemon: GivenDaemon<'a>,
}

/// Runs `status --for-cluster`.
pub(super) fn run(ui: &Ui<'_>, request: HandoverRequest<'_>, root: &Root) -> Result<ExitCode> {
    let records = Records::read(root).context("reading the daemon's records")?;
    let kept = find_configs(root, &records)?;
    let text = match request.object {
        Some(name) => object_text(&kept, name)?,
        None if request.changes => {
            report::change::objects_text(&find_change(root, &records, &kept)?)
        }
        None => {
            let handover = plan_handover(root, ui.runner, request.daemon, &records, &kept)?;
            match ui.output {
                Output::Json => report::handover::to_json(&handover)?,
                Output::Text => report::handover::to_text(&handover),
            }
        }
    };
    report::print_whole(text.as_bytes())?;
    Ok(ExitCode::Done)
}

/// Returns one object for `oc create`. It contains secrets, so it is not printed on a terminal.
fn object_text(kept: &[MachineConfig], name: &str) -> Result<String> {
    let config = find_config(kept, name)?;
    if std::io::stdout().is_terminal() {
        bail!(
            "{name} holds secrets, and standard output is a terminal. Write it to a file: ... > {name}.json"
        );
    }
    to_object(config)
}
