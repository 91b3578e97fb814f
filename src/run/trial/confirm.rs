//! The confirmation of a trial: the change is kept.

use anyhow::{Context, Result, anyhow, bail};

use crate::base::invocation::mco_rescue;
use crate::base::time::current_time;
use crate::change::transaction;
use crate::change::trial::on_disk::remove_reserve;
use crate::change::trial::store::{end_trial, read_result, read_trial, store_result, store_trial};
use crate::change::trial::{Phase, Trial, TrialOutcome, TrialResult, VERSION};
use crate::host::root::Root;
use crate::host::sys::runtime;
use crate::node::Host;
use crate::node::boot::BootIdentity;
use crate::node::login_session::{judge_confirmation, observe_session};
use crate::run::events::{self, NodeEvent};
use crate::run::front::Front;
use crate::run::node_change::NodeChange;
use crate::run::opening::{Needs, Opening};
use crate::run::trial::boot_loader::disarm_boot_counter;
use crate::run::trial::checkpoint::end_checkpoint;
use crate::run::trial::guards::stop_guard;
use crate::run::trial::revert;

/// Confirms the waiting trial from the login of this process, or `from_console`, which proves nothing about the network.
///
/// # Errors
/// No trial is waiting, or this login does not count; the trial continues.
pub fn confirm_waiting(front: &dyn Front, root: Root, from_console: bool) -> Result<TrialResult> {
    let login = observe_session();
    Needs::CONFIRM.expect_root(&root)?;
    if !root.is_live() {
        return Err(refuse_other_root(&root)?);
    }
    if read_trial(&root)?.is_none() && find_kept(&root)?.is_none() {
        return Err(no_trial(&root)?);
    }
    let change = Opening::check_needs(front, root, &Needs::CONFIRM)?.begin_change()?;
    let root = &change.root;
    let Some(trial) = read_trial(root)? else {
        return accept_kept(&change);
    };
    let Phase::Waiting { since, .. } = trial.phase else {
        bail!("{}", not_waiting(&trial));
    };
    let deployment = Host::observe(root)?.deployment;
    let boot = BootIdentity::observe(root, deployment, front.runner())
        .context("the kernel reports no boot ID")?;
    if !boot.is_same(&trial.boot) {
        bail!(
            "this is not the boot of the trial, so the change is reverted. Next: {}",
            mco_rescue("status")
        );
    }
    let by = if from_console {
        format!("confirmed from {login}, by --from-console")
    } else {
        judge_confirmation(&trial.login, &login, since)
            .map_err(|refusal| anyhow!("{refusal}. The trial goes on"))?;
        format!("confirmed from {login}")
    };
    // This comes first: NetworkManager must never revert a confirmed change, while the guard would still revert an unconfirmed one.
    end_checkpoint(front.runner(), &trial);
    let result = confirm_trial(&change, &trial, by)?;
    // The lock is still held, so that this cannot stop the guard of a new trial.
    stop_guard(front.runner());
    Ok(result)
}

/// Confirms a trial: first disarms the boot loader, so that no later boot reverts the change; then commits.
pub fn confirm_trial(change: &NodeChange<'_>, trial: &Trial, by: String) -> Result<TrialResult> {
    let (root, lock) = (&change.root, change.lock());
    if trial.system.is_some() {
        disarm_boot_counter(root, lock)
            .context("the boot loader would still revert the change; nothing is confirmed")?;
    }
    let result = TrialResult {
        version: VERSION,
        id: trial.id.clone(),
        what: trial.what.clone(),
        outcome: TrialOutcome::Confirmed,
        why: by,
        began: trial.began,
        ended: current_time(),
    };
    if let Err(error) = end_trial(root, Some(&result)) {
        // The file is gone from the directory, but perhaps not from the disk: a removal that a power failure could undo is not a
        // confirmation.
        if !matches!(read_trial(root), Ok(Some(_))) {
            store_trial(root, trial)?;
        }
        return Err(anyhow!("{error}. Nothing is confirmed; the trial goes on"));
    }
    // The trial is confirmed now: later failures are only logged.
    events::send_event(root, &NodeEvent::TrialEnded(result.outcome), &result.what);
    revert::end_boot_guards(trial);
    remove_reserve(root);
    for run in &trial.forgets {
        if let Err(error) = transaction::forget_run(root, lock, run) {
            log::warn!("{error}");
        }
    }
    if let Err(error) = runtime::withdraw_announcement() {
        log::info!("{error}");
    }
    Ok(result)
}

/// Returns the result of the last trial, if its change was kept because it could not be reverted, and no run followed.
fn find_kept(root: &Root) -> Result<Option<TrialResult>> {
    let is_kept = |last: &TrialResult| last.outcome == TrialOutcome::NotReverted;
    let Some(kept) = read_result(root)?.filter(is_kept) else {
        return Ok(None);
    };
    let later = transaction::last_run(root)?;
    Ok(later
        .is_none_or(|run| !kept.is_before(run.finished))
        .then_some(kept))
}

/// Accepts the change of a trial that could not be reverted.
fn accept_kept(change: &NodeChange<'_>) -> Result<TrialResult> {
    let root = &change.root;
    let Some(kept) = find_kept(root)? else {
        return Err(no_trial(root)?);
    };
    let result = TrialResult {
        outcome: TrialOutcome::Confirmed,
        why: "accepted, as it could not be reverted".to_owned(),
        ended: current_time(),
        ..kept
    };
    store_result(root, &result)?;
    if let Err(error) = runtime::withdraw_announcement() {
        log::info!("{error}");
    }
    Ok(result)
}

/// Returns the refusal for the disk of another node: a login there proves nothing, so that its trial can only be reverted.
fn refuse_other_root(root: &Root) -> Result<anyhow::Error> {
    if read_trial(root)?.is_none() {
        return no_trial(root);
    }
    Ok(anyhow!(
        "a trial is confirmed on the running node only; on a mounted disk it can be reverted. Next: {}",
        mco_rescue("rollback")
    ))
}

fn no_trial(root: &Root) -> Result<anyhow::Error> {
    Ok(match read_result(root)? {
        Some(last) => anyhow!(
            "no trial runs, so there is nothing to confirm. {} Next: {}",
            last.words(),
            mco_rescue("status")
        ),
        None => anyhow!(
            "no trial runs, so there is nothing to confirm. Next: {}",
            mco_rescue("status")
        ),
    })
}

fn not_waiting(trial: &Trial) -> String {
    let what = &trial.what;
    match &trial.phase {
        Phase::Applying => {
            format!("{what} is still being applied. Try again once that command has ended")
        }
        Phase::AwaitingBoot { .. } => {
            format!("the node has not rebooted into {what} yet. Try again after the reboot")
        }
        Phase::TrialBoot { .. } => {
            "the boot has not finished yet. Try again in a moment".to_owned()
        }
        Phase::Reverting { why } => format!(
            "{what} is being reverted: {why}. It is too late to confirm it. Next: {}",
            mco_rescue("status")
        ),
        Phase::Waiting { .. } => String::new(),
    }
}
