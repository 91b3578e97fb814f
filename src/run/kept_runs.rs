//! The runs in the history, and the selection among them.

use anyhow::{Result, bail};

use crate::base::invocation::{mco_rescue, reboot_command, whole_command};
use crate::base::text::count_noun;
use crate::change::plan::{FinishedRun, RecordBefore};
use crate::change::staging::state;
use crate::host::root::{Root, RootPath};

/// The config that was recorded before a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Before {
    /// The same config as after the run.
    Unchanged,
    /// There was no record.
    NoRecord,
    /// Name of the config.
    Config(String),
    /// The earlier record cannot be read.
    Unreadable,
}

/// Returns the bytes of a kept record. A read error is logged.
fn read_kept(root: &Root, path: &RootPath) -> Option<Vec<u8>> {
    let read = root.read_file(path);
    let read = read.inspect_err(|error| log::warn!("{error}"));
    read.ok().flatten()
}

/// Returns the config that was recorded before a run.
pub fn config_before(root: &Root, run: &FinishedRun) -> Before {
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

/// Returns the number of older runs that are reverted together with the newest one.
///
/// # Errors
/// The history contains no such run.
pub fn up_to(root: &Root, runs: &[FinishedRun], to: Option<&str>) -> Result<usize> {
    let Some(to) = to else { return Ok(0) };
    let by_id = runs.iter().position(|run| run.id == to);
    let befores = runs.iter().map(|run| config_before(root, run));
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

/// Refuses to revert past a run that changed the operating system: its files are reverted at a boot of their own. `together` is the
/// number of older runs that are reverted with the operating system of the newest one.
///
/// # Errors
/// The runs cannot be reverted together.
pub fn separate_systems(
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
            "run {} is reverted together with the {} before it, whose operating system never ran. Nothing was changed. \
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
            "run {} changed the operating system too, so it is reverted alone, with a reboot. Nothing was changed. \
             Next: {}, then {}, then {}",
            newest.id,
            mco_rescue("rollback"),
            reboot_command(),
            whole_command()
        );
    }
    let mut later = newest;
    for run in older.iter().skip(together) {
        if changed_system(&run.id)? {
            bail!(
                "run {} changed the operating system too, so it is reverted alone, with a reboot. Nothing was \
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
