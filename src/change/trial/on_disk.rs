//! A trial on the disk of a node: its way back as another command finds it, what it refuses, and what it has left.

use anyhow::{Result, bail};

use super::store::read_trial;
use super::{Phase, TrialPlace};
use crate::base::invocation::mco_rescue;
use crate::base::paths;
use crate::change::transaction::open_store;
use crate::host::root::{Root, RootPath};
use crate::node::Host;

/// Files that belong to a trial that runs, and to nothing else.
const LEFTOVERS: [&str; 2] = [paths::TRIAL_RESERVE, paths::GUARD_PROGRAM_KEPT];
/// The way back of a trial with another operating system, as the command that completes a boot finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnderWay {
    /// No such trial is running.
    None,
    /// A trial is running here, and its guard may have the lock for moments.
    Here,
    /// Its guard leaves the deployment that runs, and has the lock until the node reboots.
    Leaving,
    /// The previous deployment is running: its guard restores what is left.
    Arriving,
}

/// Looks for the way back of a trial with another operating system. A trial that cannot be read is not reverted.
///
/// # Errors
/// The node cannot be read.
pub fn find_way_back(root: &Root) -> Result<UnderWay> {
    let trial = read_trial(root).unwrap_or_else(|error| {
        log::warn!("{error}");
        None
    });
    let Some(trial) = trial.filter(|trial| trial.system.is_some()) else {
        return Ok(UnderWay::None);
    };
    let deployment = Host::observe(root)?.deployment;
    let reverts = matches!(trial.phase, Phase::Reverting { .. });
    Ok(
        match (&trial.phase, trial.place_of(deployment.as_deref())) {
            (Phase::Applying, _) => UnderWay::None,
            (_, TrialPlace::New) if reverts => UnderWay::Leaving,
            (_, TrialPlace::Old) if reverts => UnderWay::Arriving,
            _ => UnderWay::Here,
        },
    )
}

/// Refuses a command that changes the node during a trial. Without one, what one has left is removed; so the lock
/// has to be held.
///
/// # Errors
/// A trial is running, or its file is damaged.
pub fn refuse_during_trial(root: &Root) -> Result<()> {
    let Some(trial) = read_trial(root)? else {
        sweep_leftovers(root);
        return Ok(());
    };
    if !root.is_live() {
        bail!(
            "the trial of {} was not confirmed, and a second change would keep it from being reverted. Revert it first: {}. \
             Nothing was changed",
            trial.what,
            mco_rescue("rollback")
        );
    }
    bail!(
        "a trial of {} runs, and a second change would keep it from being reverted. Confirm it from a new login: {}; or revert it now: {}. Nothing was changed",
        trial.what,
        mco_rescue("confirm"),
        mco_rescue("rollback")
    )
}

/// Names a trial on the disk of a node that does not run. A file that cannot be read is named, too.
pub fn name_unconfirmed(root: &Root) {
    match read_trial(root) {
        Ok(Some(trial)) if !root.is_live() => log::warn!(
            "the trial of {} was not confirmed: the next boot reverts it; or revert it now: {}",
            trial.what,
            mco_rescue("rollback")
        ),
        Ok(_) => {}
        Err(error) => log::warn!("{error}"),
    }
}

/// Removes what a trial has left that has ended: a power cut may have come before it could.
pub fn sweep_leftovers(root: &Root) {
    for path in LEFTOVERS.map(RootPath::fixed) {
        // One that cannot be looked at is removed, too: the trial has ended.
        if !matches!(root.exists(&path), Ok(false))
            && let Err(error) =
                open_store(root, paths::STATE).and_then(|store| store.remove_file(path.name()))
        {
            log::warn!("{error}");
        }
    }
}

/// Returns true if a trial has left something.
pub fn has_leftovers(root: &Root) -> bool {
    let mut all = LEFTOVERS.map(RootPath::fixed).into_iter();
    all.any(|path| !matches!(root.exists(&path), Ok(false)))
}

/// Gives the space back that was kept for the way back. After an error it is tried once more, as nothing else would remove it.
pub fn remove_reserve(root: &Root) {
    let remove = || {
        let store = open_store(root, paths::STATE)?;
        store.remove_spare(RootPath::fixed(paths::TRIAL_RESERVE).name())
    };
    if let Err(error) = remove().or_else(|_| remove()) {
        log::warn!("{error}");
    }
}
