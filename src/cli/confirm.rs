//! `confirm`: confirms a trial, so that its change is kept.

use anyhow::Result;

use super::ui::Ui;
use crate::base::error::ExitCode;
use crate::change::session::open_root;
use crate::report;
use crate::run::trial::confirm::confirm_waiting;
use clap::Args;

/// How a trial is confirmed.
#[derive(Debug, Args)]
pub struct ConfirmArgs {
    /// Confirm from a console, a BMC or a debug pod
    ///
    /// For a login that is not a new one of ssh. It proves nothing about network and sshd
    #[arg(long)]
    pub from_console: bool,
}

/// Runs `confirm`.
pub(super) fn run(ui: &Ui<'_>, args: &ConfirmArgs) -> Result<ExitCode> {
    let result = confirm_waiting(ui, open_root(&ui.root)?, args.from_console)?;
    ui.print_result(
        || report::trial::result_json(&result),
        || report::trial::ended_text(&result),
    )?;
    Ok(ExitCode::Done)
}
