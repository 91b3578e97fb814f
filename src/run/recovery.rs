//! `recover`: what is half-way comes first, then a trial at a boot, and the units that read the old files.

use anyhow::Result;

use super::front::Front;
use super::opening::{Needs, Opening};
use super::recover::{StartedUnits, at_boot, failed, keep, recover};
use super::trial;
use crate::change::session::own_state::expect_known_state;
use crate::change::transaction::{self, Direction, Leave, Pending, Recovered};
use crate::change::workloads;
use crate::host::root::{Root, RootPath};
use crate::node::host::systemd_runs;

/// What is asked for.
#[derive(Debug, Clone, Default)]
pub struct RecoverOptions {
    /// An interrupted run is undone, even if it could be finished.
    pub back: bool,
    /// What may stay as it is.
    pub leave: Leave,
    /// A run whose journal is damaged is forgotten.
    pub give_up: bool,
    /// A unit asks, early in a boot.
    pub at_boot: bool,
}

/// The result of a recovery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovery {
    /// What became of the run.
    pub recovered: Recovered,
    /// At a boot: the units that started from the old files.
    pub units: Option<StartedUnits>,
}

/// Recovers a root. `None`: at a boot there was nothing to recover.
///
/// # Errors
/// The run can neither be finished nor undone, or a trial cannot go back at this boot.
pub fn recover_root(
    front: &dyn Front,
    root: Root,
    options: &RecoverOptions,
) -> Result<Option<Recovery>> {
    // StartedUnits without need, as `install` does to see whether it can be: then another process may have the lock.
    let is_idle = || -> Result<bool> {
        let nothing = transaction::find_pending(&root)? == Pending::Nothing;
        Ok(nothing && transaction::find_strays(&root).is_empty())
    };
    if options.at_boot {
        expect_known_state(&root)?;
        // What is half-way comes first: a trial goes back from a whole run.
        let tried = trial::boot::judge(front, &root, true);
        if let Err(error) = &tried {
            log::error!("{error:#}. The guard tries again");
        }
        if is_idle()? {
            return tried.map(|()| None);
        }
    }
    let needs = match options.give_up {
        true => &Needs::GIVE_UP,
        false => &Needs::RECOVER,
    };
    let change = Opening::of(front, root, needs)?.begin()?;
    let (root, runner) = (&change.root, change.runner());
    let direction = if options.back {
        Direction::Back
    } else {
        Direction::Forward
    };
    let recovered = if options.give_up {
        transaction::give_up_run(root, change.lock()).map_err(|error| failed(&error))?
    } else {
        recover(&change, direction, &options.leave)?
    };
    // The recovery is done, whatever becomes of the kubelet: an error would say that nothing was changed.
    if let Err(error) = workloads::start_again(root, runner) {
        log::warn!("{error:#}");
    }
    let is_there = |path: &RootPath| !matches!(root.exists(path), Ok(false));
    let units = (options.at_boot && systemd_runs(root))
        .then(|| at_boot(recovered.changed(), &is_there, runner));
    if let Some(units) = &units {
        keep(&change, &recovered, units);
    }
    Ok(Some(Recovery { recovered, units }))
}
