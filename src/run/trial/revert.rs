//! Reverting a trial: the ordinary transaction, the services, the deployment. Each part can be repeated, so the guard starts over
//! after a failure or a power failure.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::base::invocation::mco_rescue;
use crate::base::paths;
use crate::base::time::current_time;
use crate::change::plan::{Allowed, ChangedSince, FinishedRun};
use crate::change::staging::awaited::Leaving;
use crate::change::staging::deployments::{self, DeploymentMissing, WayBack};
use crate::change::staging::{pins, state};
use crate::change::transaction::{self, id_order, open_store};
use crate::change::trial::on_disk::remove_reserve;
use crate::change::trial::store::{end_trial, read_result, read_trial, store_trial};
use crate::change::trial::{
    FailingWay, Phase, Trial, TrialOutcome, TrialPlace, TrialResult, VERSION,
};
use crate::formats::grub::CounterState;
use crate::formats::systemd::changed::is_read_by_manager;
use crate::host::root::{Root, RootPath};
use crate::host::sys::{kernel, runtime};
use crate::node::command::job::{self, Job};
use crate::node::command::network_manager::{self, RolledBack};
use crate::node::command::{CommandRunner, motd, systemctl, wall};
use crate::node::login_session::milliseconds_since_boot;
use crate::node::{Host, boot_counter};
use crate::run::events::{self, NodeEvent};
use crate::run::interrupted::undo_interrupted;
use crate::run::node_change::NodeChange;
use crate::run::reverting::{RevertRequest, RunRevert};
use crate::run::trial::boot_loader::disarm_boot_counter;
use crate::run::trial::notice;

/// Seconds until a kernel panic reboots the node during the boot of a trial.
const PANIC: i32 = 10;
/// How long logins show that a change was reverted.
const SHOWN: Duration = Duration::from_secs(24 * 60 * 60);
/// Time limit for an orderly reboot, before it is forced.
const ORDERLY: Duration = Duration::from_secs(3 * 60);
/// Time since boot, in milliseconds, during which the guard lets `complete` go first.
const COMPLETES: u64 = 5 * 60 * 1000;

/// Makes a kernel panic reboot the node during the trial. Returns the previous value, if it was changed.
pub(super) fn begin_boot_guards() -> Option<i32> {
    match kernel::read_panic_timeout() {
        Some(0) => match kernel::write_panic_timeout(PANIC) {
            Ok(()) => Some(0),
            Err(error) => {
                log::warn!("kernel.panic: {error}");
                None
            }
        },
        _ => None,
    }
}

/// Restores the kernel's setting.
pub(super) fn end_boot_guards(trial: &Trial) {
    if let Some(before) = trial.panic
        && kernel::read_panic_timeout() == Some(PANIC)
        && let Err(error) = kernel::write_panic_timeout(before)
    {
        log::warn!("kernel.panic: {error}");
    }
}

/// Reverts the change. If no later attempt can succeed, or attempts have failed for a long time, ends the trial with the change in
/// place.
pub(super) fn revert_or_give_up(change: &NodeChange<'_>, trial: Trial, why: &str) -> Result<()> {
    let Err(error) = revert_change(change, trial, why) else {
        return Ok(());
    };
    let root = &change.root;
    let Some(trial) = read_trial(root)? else {
        return Err(error);
    };
    let now = milliseconds_since_boot();
    let is_hopeless = error.downcast_ref::<DeploymentMissing>().is_some();
    if is_hopeless || trial.is_given_up(now) {
        return give_up(change, &trial, why, &error);
    }
    let since = trial.failing.as_ref().map_or(now, |failing| failing.since);
    let failing = Some(FailingWay {
        since,
        why: format!("{error:#}"),
    });
    store_trial(root, &Trial { failing, ..trial })?;
    Err(error)
}

/// Ends a trial that cannot be reverted, with the change in place.
pub(super) fn give_up(
    change: &NodeChange<'_>,
    trial: &Trial,
    why: &str,
    error: &anyhow::Error,
) -> Result<()> {
    log::error!("the trial of {} cannot be reverted: {error:#}", trial.what);
    if trial.system.is_some()
        && let Err(error) = disarm_boot_counter(&change.root, change.lock())
    {
        log::warn!("the boot loader still counts: {error:#}");
    }
    let why = format!("{why}; {error:#}");
    end_reverted(change, trial, TrialOutcome::NotReverted, why)
}

/// Reverts the change: files, services, deployment; then reboots if that is necessary.
fn revert_change(change: &NodeChange<'_>, trial: Trial, why: &str) -> Result<()> {
    let (root, runner) = (&change.root, change.runner());
    let trial = begin_reverting(root, trial, why)?;
    let deployment = Host::observe(root)?.deployment;
    match trial.place_of(deployment.as_deref()) {
        TrialPlace::Same => {
            let left = take_files_back(change, &trial, !trial.booted)?;
            if !trial.booted {
                return finish_revert(change, &trial, why, &left);
            }
            // The next boot ends the trial, so that the logins of that boot show it.
            let rest = Trial {
                booted: false,
                ..trial
            };
            store_trial(root, &rest)?;
            reboot_node(runner, root)
        }
        TrialPlace::Old => {
            wait_for_completion(root, &trial)?;
            go_back(runner, root, &trial)?;
            let left = take_files_back(change, &trial, true)?;
            state::forget_awaited(root)?;
            finish_revert(change, &trial, why, &left)
        }
        TrialPlace::New => {
            match go_back(runner, root, &trial) {
                Err(error) if error.is::<DeploymentMissing>() => return Err(error),
                Err(error) => {
                    log::error!("{error:#}");
                    enter_old(runner, root, &trial)?;
                }
                Ok(_) => {}
            }
            reboot_node(runner, root)
        }
    }
}

/// Makes the previous deployment the default without rpm-ostree, which cannot be started in an emergency target. If OSTree is too
/// old for that, it is not an error if GRUB's counter has fired: GRUB boots the old entry next.
fn enter_old(runner: &dyn CommandRunner, root: &Root, trial: &Trial) -> Result<()> {
    let Err(error) = deployments::enter_without_daemon(runner, from(trial)?) else {
        return Ok(());
    };
    match boot_counter::read_counter_state(root)? {
        CounterState::Fired { entry } if !error.is::<DeploymentMissing>() => {
            log::error!("{error:#}. The boot loader starts {entry} next");
            Ok(())
        }
        CounterState::Missing | CounterState::Armed { .. } | CounterState::Fired { .. } => {
            Err(error)
        }
    }
}

/// Reverts the files during a boot, before anything reads them.
pub(super) fn revert_files_at_boot(
    change: &NodeChange<'_>,
    trial: Trial,
    why: &str,
    early: bool,
) -> Result<()> {
    let trial = begin_reverting(&change.root, trial, why)?;
    let left = take_files_back(change, &trial, !early)?;
    if early {
        boot_with_old_units(change.runner());
    }
    finish_revert(change, &trial, why, &left)
}

/// Reverts the files of the old deployment during a boot into it, before anything reads them; the guard does the rest.
pub(super) fn revert_files_before_guard(
    change: &NodeChange<'_>,
    trial: Trial,
    why: &str,
) -> Result<()> {
    let trial = begin_reverting(&change.root, trial, why)?;
    let left = take_files_back(change, &trial, false)?;
    for words in &left.files {
        log::warn!("not restored: {words}");
    }
    // The old files are in place, so `complete` has nothing to restore.
    state::forget_awaited(&change.root)?;
    boot_with_old_units(change.runner());
    Ok(())
}

/// Makes the boot continue with the reverted unit files. The manager created its jobs from those of the change; a unit that they
/// kept from starting, such as sshd, gets its job now.
fn boot_with_old_units(runner: &dyn CommandRunner) {
    let read = systemctl::daemon_reload(runner);
    if let Err(error) = read.and_then(|()| systemctl::add_jobs_of_boot(runner)) {
        log::warn!("{error}. Next: systemctl daemon-reload && systemctl start default.target");
    }
}

/// Reverts the files on the disk of a node that is not running. Returns `None` if the trial includes an operating system: the next
/// boot reverts that.
pub(super) fn revert_on_disk(
    change: &NodeChange<'_>,
    trial: Trial,
    why: &str,
) -> Result<Option<TrialResult>> {
    let root = &change.root;
    let trial = begin_reverting(root, trial, why)?;
    if trial.system.is_some() {
        return Ok(None);
    }
    // No guard would try again, so this attempt is final.
    match take_files_back(change, &trial, false) {
        Ok(left) => finish_revert(change, &trial, why, &left)?,
        Err(error) => give_up(change, &trial, why, &error)?,
    }
    read_result(root).map_err(Into::into)
}

fn begin_reverting(root: &Root, trial: Trial, why: &str) -> Result<Trial> {
    let phase = Phase::Reverting {
        why: why.to_owned(),
    };
    // Reverting must not fail because of a full disk, or of a program that keeps filling it.
    let held = open_store(root, paths::STATE)
        .and_then(|store| store.hold_spare(RootPath::fixed(paths::TRIAL_RESERVE).name()));
    if let Err(error) = held {
        log::warn!("{error}");
        remove_reserve(root);
    }
    let trial = Trial { phase, ..trial };
    store_trial(root, &trial)?;
    Ok(trial)
}

fn from(trial: &Trial) -> Result<&str> {
    let system = trial.system.as_ref();
    let system = system.context("the trial changes no operating system")?;
    Ok(&system.from)
}

/// Returns the runs of the trial, the newest first.
pub(super) fn runs_of(root: &Root, trial: &Trial) -> Result<Vec<FinishedRun>> {
    let mut all = transaction::read_history(root)?;
    all.retain(|run| trial.head.is_empty() || id_order(&run.id) > id_order(&trial.head));
    Ok(all)
}

/// The parts that could not be reverted.
#[derive(Debug, Default)]
struct LeftOver {
    /// Files that were not restored.
    files: Vec<String>,
    /// Jobs that failed with the old files.
    jobs: Vec<String>,
}

/// Reverts the runs of the trial, and makes the services read the old files if `tells` is true. Returns what could not be reverted.
fn take_files_back(change: &NodeChange<'_>, trial: &Trial, tells: bool) -> Result<LeftOver> {
    let (root, runner) = (&change.root, change.runner());
    // NetworkManager comes first: it rewrites connection files, and the old contents must be written after that.
    if tells {
        roll_network_back(runner, trial);
    }
    let mut left = LeftOver {
        files: undo_interrupted(change)?,
        ..LeftOver::default()
    };
    let mut paths: Vec<RootPath> = Vec::new();
    let mut jobs: Vec<Job> = Vec::new();
    for run in runs_of(root, trial)? {
        jobs.extend(run.jobs_back());
        paths.extend(run.steps.iter().map(|(step, _)| step.path().clone()));
        let config = run.config.clone();
        let wanted = RevertRequest {
            changed: ChangedSince::Restore,
            allowed: Allowed {
                clear_immutable: true,
                takeover: true,
                staged: true,
                ..Allowed::default()
            },
            ..RevertRequest::default()
        };
        let back = RunRevert::prepare_revert(root, runner, run, &wanted)?;
        if let Some(blocker) = back.plan.blockers.first() {
            bail!("the files of {config} cannot be restored: {blocker}");
        }
        for notice in &back.plan.notices {
            log::warn!("{notice}");
        }
        let as_they_are = back.plan.left.iter();
        left.files.extend(as_they_are.map(ToString::to_string));
        back.carry_out(change, &[])?;
        // An unfinished run would still be the newest in the history.
        left.files.extend(undo_interrupted(change)?);
    }
    if tells {
        left.jobs = tell_services(runner, trial, &paths, jobs);
    }
    Ok(left)
}

/// Makes the services read the old files. A job that fails does not stop the others. Returns the failures.
fn tell_services(
    runner: &dyn CommandRunner,
    trial: &Trial,
    paths: &[RootPath],
    jobs: Vec<Job>,
) -> Vec<String> {
    let mut all = trial.jobs_back.clone();
    let new: Vec<Job> = jobs.into_iter().filter(|job| !all.contains(job)).collect();
    all.extend(new);
    if paths.iter().any(is_read_by_manager) && !all.contains(&Job::DaemonReload) {
        all.insert(0, Job::DaemonReload);
    }
    job::carry_out_all(runner, &all)
}

/// Makes NetworkManager roll back to its checkpoint. A failure is only logged: the files are reverted anyway.
fn roll_network_back(runner: &dyn CommandRunner, trial: &Trial) {
    let Some(checkpoint) = &trial.checkpoint else {
        return;
    };
    match network_manager::roll_back_checkpoint(runner, checkpoint) {
        Ok(RolledBack::Done(failed)) => failed.iter().for_each(|device| log::warn!("{device}")),
        Ok(RolledBack::Gone) => log::info!("the checkpoint of NetworkManager is gone"),
        Err(error) => log::warn!("{error}"),
    }
}

/// Makes the previous deployment the default; if it is already running, discards the staged or queued deployment instead.
fn go_back(runner: &dyn CommandRunner, root: &Root, trial: &Trial) -> Result<WayBack> {
    let runs = runs_of(root, trial)?.into_iter().map(|run| run.id);
    let leaving = Leaving {
        to: from(trial)?.to_owned(),
        runs: runs.collect(),
    };
    deployments::go_back(root, runner, &leaving, &trial.what)
}

/// Fails while `complete` is still expected to restore the files in the previous deployment, so that it goes first.
fn wait_for_completion(root: &Root, trial: &Trial) -> Result<()> {
    let is_due = state::read_awaited(root)?
        .is_some_and(|awaited| awaited.failed.is_none() && !awaited.boot.is_same(&trial.boot));
    if is_due && milliseconds_since_boot() < COMPLETES {
        bail!(
            "the files are restored first. Next: {}",
            mco_rescue("complete")
        );
    }
    Ok(())
}

/// Ends a reverted trial and stores the result.
fn finish_revert(change: &NodeChange<'_>, trial: &Trial, why: &str, left: &LeftOver) -> Result<()> {
    let (root, runner, lock) = (&change.root, change.runner(), change.lock());
    if trial.system.is_some() {
        disarm_boot_counter(root, lock)?;
        let unpinned = pins::unpin_deployments(root, runner, |one| {
            trial
                .system
                .as_ref()
                .is_some_and(|system| system.from == one.name())
        });
        if let Err(error) = unpinned {
            log::warn!("{error:#}");
        }
    }
    let outcome = if left.files.is_empty() {
        TrialOutcome::Reverted
    } else {
        TrialOutcome::PartlyReverted
    };
    let mut why = why.to_owned();
    for (words, all) in [
        ("Not restored", &left.files),
        ("Failed with the old files", &left.jobs),
    ] {
        if !all.is_empty() {
            why += &format!(". {words}: {}", all.join("; "));
        }
    }
    end_reverted(change, trial, outcome, why)
}

/// Stores the result, and ends the trial.
fn end_reverted(
    change: &NodeChange<'_>,
    trial: &Trial,
    outcome: TrialOutcome,
    why: String,
) -> Result<()> {
    let (root, runner) = (&change.root, change.runner());
    // Kernel and logins belong to this machine, not to the root.
    if root.is_live() {
        end_boot_guards(trial);
    }
    let result = TrialResult {
        version: VERSION,
        id: trial.id.clone(),
        what: trial.what.clone(),
        outcome,
        why,
        began: trial.began,
        ended: current_time(),
    };
    let ended = end_trial(root, Some(&result));
    // After an error of the last flush the trial is over, too, and no guard comes back for the space.
    if ended.is_ok() || matches!(read_trial(root), Ok(None)) {
        remove_reserve(root);
    }
    ended?;
    events::send_event(root, &NodeEvent::TrialEnded(result.outcome), &result.what);
    log::warn!("{}", result.words());
    if root.is_live() {
        announce_end(runner, &result);
    }
    Ok(())
}

/// Shows on terminals and at later logins how the trial ended.
pub(super) fn announce_end(runner: &dyn CommandRunner, result: &TrialResult) {
    let text = match result.outcome {
        TrialOutcome::PartlyReverted => notice::announce_stuck(result.ended, &result.why),
        TrialOutcome::NotReverted => notice::announce_kept(result.ended, &result.why),
        _ => notice::announce_reverted(result.ended, &result.why),
    };
    wall::write_to_terminals(runner, &text);
    if let Err(error) = runtime::announce_at_login(&text) {
        log::info!("no text at logins: {error}");
    }
    if let Err(error) = motd::withdraw_after(runner, SHOWN) {
        log::info!("{error}");
    }
}

/// Reboots the node, by force if an orderly reboot does not happen.
fn reboot_node(runner: &dyn CommandRunner, root: &Root) -> Result<()> {
    if let Err(error) = deployments::reboot_node(root, runner, true) {
        log::error!("{error:#}");
    }
    thread::sleep(ORDERLY);
    for line in systemctl::force_reboot() {
        if let Err(error) = runner.run(&line) {
            log::error!("{error}");
        }
        thread::sleep(Duration::from_secs(60));
    }
    bail!("the node does not reboot")
}
