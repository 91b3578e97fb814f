//! `rollback --list`: the runs in the history.

use crate::change::staging::state;
use crate::cli::ui::Ui;
use anyhow::Result;

use crate::base::error::ExitCode;
use crate::base::time::current_time;
use crate::change::plan::FinishedRun;
use crate::change::session::machine;
use crate::change::transaction;
use crate::host::root::Root;
use crate::report;
use crate::report::kept::{KeptRun, RunsDocument};
use crate::run::kept_runs::config_before;

/// Runs `rollback --list`.
pub(super) fn list(ui: &Ui<'_>, root: &Root) -> Result<ExitCode> {
    machine::expect_system(root)?;
    let history = transaction::read_history(root)?;
    let kept = |run: &FinishedRun| {
        Ok(KeptRun {
            id: run.id.clone(),
            config: run.config.clone(),
            began: run.start_time(),
            before: config_before(root, run),
            steps: run.steps.len(),
            operating_system: state::find_os_run(root, &run.id)?.and_then(|one| one.from),
        })
    };
    let runs = history.iter().map(kept).collect::<Result<Vec<_>>>()?;
    let waits = state::read_awaited(root)?.filter(|one| one.failed.is_none());
    let list = RunsDocument {
        schema: "mco-rescue/rollback-list/v1",
        now: current_time(),
        root: root.shown().display().to_string(),
        staged: waits.map(|one| one.config.name),
        runs,
    };
    ui.print(
        || report::kept::to_json(&list),
        || report::kept::to_text(&list),
    )?;
    Ok(ExitCode::Done)
}
