//! Remembers runs after which the node has to be rebooted, because services continue with the previous files. The need belongs
//! to one boot, so it ends with the next one. What needs a reboot is decided in `judge/daemon/update.rs`.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::base::paths;
use crate::base::time::current_time;
use crate::change::plan::FinishedRun;
use crate::change::transaction::{self, id_order, store_value};
use crate::host::root::Root;
use crate::host::state_file;
use crate::node::Host;
use crate::node::boot::BootIdentity;
use crate::node::command::CommandRunner;

/// Version of the file.
pub const VERSION: u32 = 1;

/// The needs; kept in `/var/lib/mco-rescue/reboots.json`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct RebootNeeds {
    version: u32,
    runs: Vec<RebootNeed>,
}

/// A run whose change needs a reboot. It is recorded before the run, and takes effect once the history shows that the run
/// happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RebootNeed {
    /// The newest run in the history before this one, empty if there was none.
    after: String,
    /// The run, once it is known.
    #[serde(default)]
    run: Option<String>,
    /// The older run that it reverts.
    #[serde(default)]
    undoes: Option<String>,
    /// The config.
    pub config: String,
    /// The reasons for a reboot, in words.
    pub causes: Vec<String>,
    /// Seconds since 1970.
    pub since: u64,
    /// The boot in which the files were changed.
    #[serde(flatten)]
    boot: BootIdentity,
}

impl RebootNeed {
    /// Returns the run that made the change.
    fn find_run<'a>(&'a self, history: &'a [FinishedRun]) -> Option<&'a str> {
        // The oldest one after it: the history has the newest first.
        let is_own = |run: &&FinishedRun| {
            id_order(&run.id) > id_order(&self.after) && run.config == self.config
        };
        let found = || history.iter().rev().find(is_own);
        self.run
            .as_deref()
            .or_else(|| found().map(|run| run.id.as_str()))
    }

    /// Returns true if this run made the change, as far as the run is known.
    pub fn is_of_run(&self, id: &str) -> bool {
        self.run.as_deref() == Some(id)
    }

    /// Returns true if its change is on the node: the run is in the history, or is so old that the history dropped it.
    fn is_in_place(&self, history: &[FinishedRun]) -> bool {
        let is_there = |id: &str| history.iter().any(|run| run.id == id);
        if let Some(undone) = &self.undoes {
            return !is_there(undone);
        }
        let oldest = history.last();
        self.find_run(history).is_some_and(|run| {
            is_there(run) || oldest.is_some_and(|oldest| id_order(run) < id_order(&oldest.id))
        })
    }
}

fn read_stored(root: &Root) -> Result<Vec<RebootNeed>> {
    let version = |kept: &RebootNeeds| kept.version;
    let kept = state_file::read_remembered(root, paths::REBOOTS, VERSION, version)
        .context("reading which runs need a reboot")?;
    Ok(kept.map(|kept| kept.runs).unwrap_or_default())
}

/// Returns the needs of the current boot, oldest first; empty for a root that is not running.
pub fn read_needs(root: &Root, runner: &dyn CommandRunner) -> Result<Vec<RebootNeed>> {
    let mut all = read_stored(root)?;
    if all.is_empty() {
        return Ok(all);
    }
    let history = transaction::read_history(root)?;
    let boot = BootIdentity::observe(root, Host::observe(root)?.deployment, runner);
    all.retain(|need| {
        boot.as_ref().is_some_and(|boot| boot.is_same(&need.boot)) && need.is_in_place(&history)
    });
    Ok(all)
}

/// Records before a run why its change needs a reboot; nothing if `causes` is empty.
pub fn note_run(
    root: &Root,
    runner: &dyn CommandRunner,
    config: &str,
    causes: Vec<String>,
) -> Result<()> {
    add_need(root, runner, |after, boot, _| {
        (!causes.is_empty()).then(|| RebootNeed {
            after,
            run: None,
            undoes: None,
            config: config.to_owned(),
            causes,
            since: current_time(),
            boot,
        })
    })
}

/// Records, before a run is reverted, that services continue with its files, if they have read them since: the node was
/// rebooted for these files.
pub fn note_undone(root: &Root, runner: &dyn CommandRunner, undone: &FinishedRun) -> Result<()> {
    add_need(root, runner, |after, boot, known| {
        let its = known
            .iter()
            .find(|need| need.run.as_deref() == Some(&undone.id))?;
        (!its.boot.is_same(&boot)).then(|| RebootNeed {
            after,
            run: None,
            undoes: Some(undone.id.clone()),
            since: current_time(),
            boot,
            ..its.clone()
        })
    })
}

/// Adds a need, and drops those that belong to no current boot or run in the history.
fn add_need(
    root: &Root,
    runner: &dyn CommandRunner,
    need: impl FnOnce(String, BootIdentity, &[RebootNeed]) -> Option<RebootNeed>,
) -> Result<()> {
    let Some(boot) = BootIdentity::observe(root, Host::observe(root)?.deployment, runner) else {
        return Ok(());
    };
    let history = transaction::read_history(root)?;
    let before = read_stored(root)?;
    let mut runs: Vec<RebootNeed> = before
        .iter()
        .filter(|need| need.is_in_place(&history))
        .map(|need| RebootNeed {
            run: need.find_run(&history).map(str::to_owned),
            ..need.clone()
        })
        .filter(|need| {
            let is_kept = |run: &FinishedRun| need.run.as_ref() == Some(&run.id);
            need.boot.is_same(&boot) || history.iter().any(is_kept)
        })
        .collect();
    let head = history.first().map(|run| run.id.clone());
    runs.extend(need(head.unwrap_or_default(), boot, &runs));
    if runs != before {
        let version = VERSION;
        store_value(root, paths::REBOOTS, &RebootNeeds { version, runs })
            .context("remembering that a reboot is needed; nothing was changed")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::root::RootPath;

    fn history(ids: &[&str]) -> Vec<FinishedRun> {
        let run = |id: &&str| FinishedRun {
            id: (*id).to_owned(),
            config: "b".to_owned(),
            by: None,
            objects: RootPath::fixed(paths::STATE),
            steps: Vec::new(),
            held: Vec::new(),
            jobs: Vec::new(),
        };
        ids.iter().map(run).collect()
    }

    fn need(after: &str, run: Option<&str>, undoes: Option<&str>) -> RebootNeed {
        RebootNeed {
            after: after.to_owned(),
            run: run.map(str::to_owned),
            undoes: undoes.map(str::to_owned),
            config: "b".to_owned(),
            causes: Vec::new(),
            since: 0,
            boot: BootIdentity::default(),
        }
    }

    #[test]
    fn a_need_counts_while_its_change_is_on_the_node() {
        for (need, ids, counts) in [
            // The run failed, or was killed before its files.
            (need("", None, None), &[][..], false),
            (need("5-1", None, None), &["5-1"], false),
            (need("5-1", None, None), &["6-1", "5-1"], true),
            // It was taken back.
            (need("5-1", Some("6-1"), None), &["5-1"], false),
            // The history, which keeps only some runs, has dropped it.
            (need("5-1", Some("6-1"), None), &["9-1", "8-1", "7-1"], true),
            (need("6-1", None, Some("6-1")), &["6-1"], false),
            (need("6-1", None, Some("6-1")), &["5-1"], true),
        ] {
            let found = need.is_in_place(&history(ids));
            assert_eq!(found, counts, "{need:?} {ids:?}");
        }
    }
}
