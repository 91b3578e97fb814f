//! The runs that the history keeps: `rollback --list`, and the choice of `rollback --to`.

use crate::change::staging::state;
use crate::cli::ui::Ui;
use anyhow::{Result, bail};

use super::Output;
use super::machine;
use crate::base::error::ExitCode;
use crate::base::invocation::{mco_rescue, reboot, whole_command};
use crate::base::text::count_noun;
use crate::base::time::now;
use crate::change::plan::{FinishedRun, RecordBefore};
use crate::change::transaction;
use crate::host::root::{Root, RootPath};
use crate::report;
use crate::report::kept::{Before, KeptRun, RunsDocument};

/// Runs `rollback --list`.
pub(super) fn list(ui: &Ui<'_>, root: &Root) -> Result<ExitCode> {
    machine::expect_system(root)?;
    let history = transaction::read_history(root)?;
    let kept = |run: &FinishedRun| {
        Ok(KeptRun {
            id: run.id.clone(),
            config: run.config.clone(),
            began: run.began(),
            before: before(root, run),
            steps: run.steps.len(),
            operating_system: state::find_os_run(root, &run.id)?.and_then(|one| one.from),
        })
    };
    let runs = history.iter().map(kept).collect::<Result<Vec<_>>>()?;
    let waits = state::read_awaited(root)?.filter(|one| one.failed.is_none());
    let list = RunsDocument {
        schema: "mco-rescue/rollback-list/v1",
        now: now(),
        root: root.shown().display().to_string(),
        staged: waits.map(|one| one.config.name),
        runs,
    };
    let text = match ui.output {
        Output::Json => report::kept::to_json(&list)?,
        Output::Text => report::kept::to_text(&list),
    };
    report::print(text.as_bytes())?;
    Ok(ExitCode::Done)
}

/// The bytes of a kept record; one that cannot be read is logged.
fn read_kept(root: &Root, path: &RootPath) -> Option<Vec<u8>> {
    let read = root.read_file(path);
    let read = read.inspect_err(|error| log::warn!("{error}"));
    read.ok().flatten()
}

/// The config that the node was recorded to be in before a run.
fn before(root: &Root, run: &FinishedRun) -> Before {
    let name = |text: Vec<u8>| {
        let record: serde_json::Value = serde_json::from_slice(&text).ok()?;
        Some(record.get("metadata")?.get("name")?.as_str()?.to_owned())
    };
    match run.record_before() {
        RecordBefore::Unchanged => Before::Unchanged,
        RecordBefore::None => Before::NoRecord,
        RecordBefore::Kept(path) => match read_kept(root, &path).and_then(name) {
            Some(name) => Before::Config(name),
            None => Before::Unreadable,
        },
    }
}

/// The number of runs before the newest one that go back with it.
pub(super) fn up_to(root: &Root, runs: &[FinishedRun], to: Option<&str>) -> Result<usize> {
    let Some(to) = to else { return Ok(0) };
    let by_id = runs.iter().position(|run| run.id == to);
    let befores = runs.iter().map(|run| before(root, run));
    let is_meant = |found: &Before| *found == Before::Config(to.to_owned());
    let mut befores = befores
        .enumerate()
        .filter(|(_, found)| is_meant(found) || *found == Before::Unreadable);
    match by_id
        .map(|at| (at, Before::Unchanged))
        .or_else(|| befores.next())
    {
        Some((at, Before::Unreadable)) => bail!(
            "it cannot be read in which config the node was before run {}, so {to} may be that. Nothing was changed. Name \
             the run by its id: mco-rescue rollback --list",
            runs.get(at).map_or("", |run| run.id.as_str())
        ),
        Some((at, _)) => Ok(at),
        None => bail!(
            "no run {to} is kept, and no run that began in a config of this name; nothing was changed. \
             The list shows what is kept. Next: {}",
            mco_rescue("rollback --list")
        ),
    }
}

/// Refuses to go over a boundary where the operating system changed: its files go back at a boot of their own.
/// `together`: the number of older runs that go back with the operating system of the newest one.
pub(super) fn separate_systems(
    root: &Root,
    newest: &FinishedRun,
    older: &[FinishedRun],
    together: usize,
    whole: bool,
) -> Result<()> {
    if !whole {
        return Ok(());
    }
    if older.len() < together {
        bail!(
            "run {} goes back together with the {} before it, whose operating system never ran. Nothing was changed. \
             Next: {}",
            newest.id,
            count_noun(together, "run"),
            mco_rescue("rollback")
        );
    }
    let changed_system = |id: &str| -> Result<bool> {
        let run = state::find_os_run(root, id)?;
        Ok(run.is_some_and(|run| run.from.is_some()))
    };
    if changed_system(&newest.id)? && older.len() != together {
        bail!(
            "run {} changed the operating system too, so it goes back by itself, with a reboot. Nothing was changed. \
             Next: {}, then {}, then {}",
            newest.id,
            mco_rescue("rollback"),
            reboot(),
            whole_command()
        );
    }
    let mut later = newest;
    for run in older.iter().skip(together) {
        if changed_system(&run.id)? {
            bail!(
                "run {} changed the operating system too, so it goes back by itself, with a reboot. Nothing was \
                 changed. Next: {}, then {}",
                run.id,
                mco_rescue(&format!("rollback --to {}", later.id)),
                mco_rescue("rollback")
            );
        }
        later = run;
    }
    Ok(())
}
