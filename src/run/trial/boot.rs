//! A trial during a boot: the early unit reverts files before anything reads them, or starts the time limit of the trial's boot.

use anyhow::{Context, Result, anyhow};

use crate::base::text::count_noun;
use crate::change::trial::on_disk::{has_leftovers, sweep_leftovers};
use crate::change::trial::store::{read_trial, store_trial};
use crate::change::trial::{BootStep, Phase, RETURNS, Trial, TrialPlace, judge_boot};
use crate::formats::grub::CounterState;
use crate::host::root::Root;
use crate::node::boot::BootIdentity;
use crate::node::login_session::milliseconds_since_boot;
use crate::node::{Host, boot_counter};
use crate::run::front::Front;
use crate::run::opening::{Needs, Opening};
use crate::run::trial::revert;

/// Judges the boot, if there is a trial, and takes the necessary action. `early`: no service is running yet.
///
/// # Errors
/// The trial cannot be read, or its files cannot be reverted; the guard tries again.
pub fn judge_trial_boot(front: &dyn Front, root: &Root, early: bool) -> Result<()> {
    if !root.is_live() || read_trial(root)?.is_none() && !has_leftovers(root) {
        return Ok(());
    }
    let change = Opening::check_needs(front, root.open_again()?, &Needs::GUARD)?.begin_change()?;
    let Some(trial) = read_trial(root)? else {
        sweep_leftovers(root);
        return Ok(());
    };
    let deployment = Host::observe(root)?.deployment;
    let place = trial.place_of(deployment.as_deref());
    let boot = BootIdentity::observe(root, deployment, front.runner())
        .context("the kernel reports no boot ID")?;
    let is_same = boot.is_same(&trial.boot);
    let is_back_again = !is_same && place == TrialPlace::New && trial.phase.is_reverting();
    let trial = if is_same {
        trial
    } else {
        // Its times refer to another boot.
        Trial {
            failing: None,
            returns: trial.returns + u32::from(is_back_again),
            ..trial
        }
    };
    match judge_boot(&trial, is_same, place) {
        BootStep::Revert(why) if trial.returns >= RETURNS => {
            let times = count_noun(trial.returns as usize, "time");
            let error = anyhow!(
                "the new deployment was booted {times} after the old one had become the default"
            );
            revert::give_up(&change, &trial, &why, &error)?;
        }
        BootStep::None => {}
        BootStep::BeginBoot => {
            let phase = Phase::TrialBoot {
                until: milliseconds_since_boot() + trial.boot_limit * 1000,
            };
            match boot_counter::read_counter_state(root) {
                Ok(CounterState::Armed { .. }) => log::warn!(
                    "GRUB did not count this boot: should it die, the old entry has to be chosen in the boot menu by hand"
                ),
                Ok(_) => {}
                Err(error) => log::warn!("whether GRUB counted this boot is not known: {error}"),
            }
            let panic = revert::begin_boot_guards();
            store_trial(
                root,
                &Trial {
                    phase,
                    boot,
                    panic,
                    booted: true,
                    ..trial
                },
            )?;
        }
        BootStep::RevertFiles(why) => {
            log::warn!("the trial of {} is reverted: {why}", trial.what);
            let trial = Trial { boot, ..trial };
            revert::revert_files_at_boot(&change, trial, &why, early)?;
        }
        // The old deployment contains the changed files.
        BootStep::Revert(why) if early && place == TrialPlace::Old => {
            log::warn!("the trial of {} is reverted: {why}", trial.what);
            let trial = Trial { boot, ..trial };
            revert::revert_files_before_guard(&change, trial, &why)?;
        }
        BootStep::Revert(why) => {
            log::warn!("the trial of {} is reverted: {why}", trial.what);
            let phase = Phase::Reverting { why };
            store_trial(
                root,
                &Trial {
                    phase,
                    boot,
                    ..trial
                },
            )?;
        }
    }
    Ok(())
}
