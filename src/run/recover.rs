//! `recover`: during a boot judges a trial first; then recovers an interrupted run, and finds units that read the old files.

use anyhow::Result;

use super::front::Front;
use super::interrupted::{StartedUnits, at_boot, keep_result, recover_run, recovery_error};
use super::opening::{Needs, Opening};
use super::trial;
use crate::change::session::own_state::expect_known_state;
use crate::change::transaction::{self, Direction, Leave, Pending, Recovered};
use crate::change::workloads;
use crate::host::root::{Root, RootPath};
use crate::node::host::systemd_runs;

/// The options of `recover`.
#[derive(Debug, Clone, Default)]
pub struct RecoverOptions {
    /// Undo an interrupted run even if it could be finished.
    pub back: bool,
    /// Paths that may be left as they are.
    pub leave: Leave,
    /// Forget a run whose journal is damaged.
    pub give_up: bool,
    /// The caller is a unit early in a boot.
    pub at_boot: bool,
}

/// The result of a recovery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovery {
    /// The result for the run.
    pub recovered: Recovered,
    /// During a boot: the affected units.
    pub units: Option<StartedUnits>,
}

/// Recovers a root. Returns `None` if there was nothing to recover during a boot.
///
/// # Errors
/// The run can be neither finished nor undone, or a trial cannot be reverted during this boot.
pub fn recover_root(
    front: &dyn Front,
    root: Root,
    options: &RecoverOptions,
) -> Result<Option<Recovery>> {
    // The unit may be started without need, as `install` does to test it. Another process may hold the lock then.
    let is_idle = || -> Result<bool> {
        let nothing = transaction::find_pending(&root)? == Pending::Nothing;
        Ok(nothing && transaction::find_strays(&root).is_empty())
    };
    if options.at_boot {
        expect_known_state(&root)?;
        // Reverting a trial first undoes an interrupted run, as only complete runs can be reverted. If this fails, that run is
        // still recovered below.
        let tried = trial::boot::judge_trial_boot(front, &root, true);
        if let Err(error) = &tried {
            log::error!("{error:#}. The guard tries again");
        }
        if is_idle()? {
            return tried.map(|()| None);
        }
    }
    let needs = if options.give_up {
        &Needs::GIVE_UP
    } else {
        &Needs::RECOVER
    };
    let change = Opening::check_needs(front, root, needs)?.begin_change()?;
    let (root, runner) = (&change.root, change.runner());
    let direction = if options.back {
        Direction::Back
    } else {
        Direction::Forward
    };
    let recovered = if options.give_up {
        transaction::give_up_run(root, change.lock()).map_err(|error| recovery_error(&error))?
    } else {
        recover_run(&change, direction, &options.leave)?
    };
    // The recovery is complete, even if the kubelet does not start: an error would claim that nothing was changed.
    if let Err(error) = workloads::start_again(root, runner) {
        log::warn!("{error:#}");
    }
    let is_there = |path: &RootPath| !matches!(root.exists(path), Ok(false));
    let units = (options.at_boot && systemd_runs(root))
        .then(|| at_boot(recovered.changed_paths(), &is_there, runner));
    if let Some(units) = &units {
        keep_result(&change, &recovered, units);
    }
    Ok(Some(Recovery { recovered, units }))
}
