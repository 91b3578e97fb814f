//! `complete`: after the boot that a run waits for, checks that the staged deployment is running.

use anyhow::Result;

use super::ui::Ui;
use crate::base::error::ExitCode;
use crate::change::session::open_root;
use crate::report;
use crate::run::complete::{Completed, complete_boot};

/// Runs `complete`.
pub(super) fn run(ui: &Ui<'_>) -> Result<ExitCode> {
    let end = complete_boot(ui, &open_root(&ui.root)?)?;
    let code = say(ui, &end.completed)?;
    // The trial reports why it was reverted; this command has done its part.
    Ok(if end.is_arriving && !end.completed.is_half() {
        ExitCode::Done
    } else {
        code
    })
}

fn say(ui: &Ui<'_>, completed: &Completed) -> Result<ExitCode> {
    ui.print_result(
        || report::complete::to_json(completed),
        || report::complete::to_text(completed),
    )?;
    Ok(if completed.failed.is_some() {
        ExitCode::Drift
    } else {
        ExitCode::Done
    })
}
