//! The guard of a trial: reverts the change when the time is over. It runs outside of every login.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};

use crate::change::probes::{ProbeContext, ProbeRounds, run_round};
use crate::change::staging::state;
use crate::change::transaction;
use crate::change::trial::on_disk::remove_reserve;
use crate::change::trial::store::{read_trial, store_trial};
use crate::change::trial::{GuardScene, GuardStep, Phase, Trial, TrialPlace, judge_guard};
use crate::host::net::NameSources;
use crate::host::root::Root;
use crate::host::sys::notify::feed_watchdog;
use crate::node::Host;
use crate::node::boot::BootIdentity;
use crate::node::command::{systemctl, wall};
use crate::node::login_session::milliseconds_since_boot;
use crate::run::front::Front;
use crate::run::node_change::NodeChange;
use crate::run::opening::{Needs, Opening, is_held};
use crate::run::trial::announce::{announce_waiting, way_back};
use crate::run::trial::checkpoint::end_checkpoint;
use crate::run::trial::confirm::confirm_trial;
use crate::run::trial::guards::end_guards;
use crate::run::trial::{boot, notice, revert};

/// Pause between two checks.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Pause between two checks while the node boots: each one queries the service manager, which is busy then.
const LOOK_AGAIN_AT_BOOT: Duration = Duration::from_secs(3);
/// Pause after a failed revert.
const TRY_AGAIN: Duration = Duration::from_secs(5);
/// Delay in milliseconds after which the second guard acts in place of the first.
const LATER: u64 = 10_000;

/// Runs the guard until no trial is left. `once`: this is the second guard, which checks only once.
///
/// # Errors
/// The root is not that of the running system, or, with `once`, the trial cannot be judged.
pub fn run_guard(front: &dyn Front, root: &Root, once: bool) -> Result<()> {
    if !root.is_live() {
        bail!("a guard is for the node that runs");
    }
    let mut guard = Guard {
        front,
        root,
        once,
        here: None,
        pause: LOOK_AGAIN,
        has_warned: false,
        rounds: ProbeRounds::default(),
        failed: None,
    };
    loop {
        // A guard that hangs is killed and restarted.
        if let Err(error) = feed_watchdog() {
            log::info!("the watchdog of the manager: {error}");
        }
        match guard.check_trial() {
            Ok(Look::Ended) => {
                // The lock is held for this, as another trial may begin now.
                let held = begin_change(front, root);
                let is_next = !matches!(read_trial(root), Ok(None));
                if is_next || matches!(held, Ok(None)) {
                    thread::sleep(LOOK_AGAIN);
                    continue;
                }
                remove_reserve(root);
                end_guards(root, front.runner(), once);
                return Ok(());
            }
            Ok(Look::Wait) if once => return Ok(()),
            Ok(Look::Wait) => thread::sleep(guard.pause),
            Err(error) if once => return Err(error),
            Err(error) => {
                log::error!("{error:#}");
                thread::sleep(TRY_AGAIN);
            }
        }
    }
}

enum Look {
    /// No trial is left.
    Ended,
    /// No action is necessary.
    Wait,
}

struct Guard<'a> {
    front: &'a dyn Front,
    root: &'a Root,
    once: bool,
    /// This boot and its deployment. Neither changes while the process runs, and querying them starts a process.
    here: Option<BootIdentity>,
    /// Pause until the next check.
    pause: Duration,
    /// True if the terminals have been warned.
    has_warned: bool,
    /// The rounds of the probes so far.
    rounds: ProbeRounds,
    /// The probe that failed in the last round.
    failed: Option<String>,
}

impl Guard<'_> {
    /// Returns the current boot, which is observed only once.
    fn observe_here(&mut self) -> Result<BootIdentity> {
        if self.here.is_none() {
            let deployment = Host::observe(self.root)?.deployment;
            self.here = BootIdentity::observe(self.root, deployment, self.front.runner());
        }
        let here = self.here.clone();
        here.ok_or_else(|| anyhow!("the kernel reports no boot ID"))
    }

    /// Checks the trial once, and takes the necessary action.
    fn check_trial(&mut self) -> Result<Look> {
        let (front, root) = (self.front, self.root);
        let Some(trial) = read_trial(root)? else {
            return Ok(Look::Ended);
        };
        let here = self.observe_here()?;
        if !here.is_same(&trial.boot) {
            // The recovery unit failed to do this.
            boot::judge_trial_boot(front, root, false)?;
            return Ok(Look::Wait);
        }
        let place = trial.place_of(here.boot_deployment.as_deref());
        self.pause = match trial.phase {
            Phase::TrialBoot { .. } => LOOK_AGAIN_AT_BOOT,
            _ => LOOK_AGAIN,
        };
        let mut scene = GuardScene {
            now: milliseconds_since_boot(),
            is_applying: trial.phase == Phase::Applying && transaction::is_held(root),
            is_booted: false,
            boot_failure: None,
        };
        if self.once {
            scene.now = scene.now.saturating_sub(LATER);
        }
        if matches!(trial.phase, Phase::TrialBoot { .. }) {
            // A read error must not extend the time limit of the boot.
            let state = boot_state(front, root).unwrap_or_else(|error| {
                log::warn!("{error:#}");
                BootState::UnderWay
            });
            match state {
                BootState::Failed(why) if place == TrialPlace::New => {
                    scene.boot_failure = Some(why);
                }
                BootState::Ended => scene.is_booted = true,
                BootState::Failed(_) | BootState::UnderWay => {}
            }
        }
        let now = scene.now;
        match judge_guard(&trial, scene) {
            GuardStep::Wait => {
                self.warn_terminals(&trial, now);
                self.run_probes(&trial)?;
                Ok(Look::Wait)
            }
            GuardStep::BeginWaiting => {
                let Some(_change) = begin_change(front, root)? else {
                    return Ok(Look::Wait);
                };
                if read_trial(root)?.as_ref() != Some(&trial) {
                    return Ok(Look::Wait);
                }
                let since = milliseconds_since_boot();
                let phase = Phase::Waiting {
                    since,
                    until: since + trial.window * 1000,
                };
                let trial = Trial { phase, ..trial };
                store_trial(root, &trial)?;
                announce_waiting(&trial);
                Ok(Look::Wait)
            }
            GuardStep::Revert(why) => {
                let failed = self.failed.as_ref().map(|words| format!("; probe {words}"));
                let why = why + &failed.unwrap_or_default();
                revert_trial(front, root, &trial, &why)
            }
        }
    }

    /// Runs the probes if they are due, and confirms the trial once they have succeeded twice.
    fn run_probes(&mut self, trial: &Trial) -> Result<()> {
        let Phase::Waiting { since, until } = trial.phase else {
            return Ok(());
        };
        let began = milliseconds_since_boot();
        if self.once || trial.probes.is_empty() || self.rounds.next_at(began) > began {
            return Ok(());
        }
        let left = Duration::from_millis(until.saturating_sub(began));
        let context = ProbeContext {
            root: self.root,
            runner: self.front.runner(),
            names: NameSources::default(),
            in_place_since: Some(since),
            until: Instant::now() + left,
            ended: &|| !matches!(read_trial(self.root), Ok(Some(_))),
        };
        let results = run_round(&trial.probes, &context);
        let bad = results.iter().find(|result| !result.good);
        let bad = bad.map(|result| format!("{}: {}", result.name, result.said));
        if bad != self.failed {
            if let Some(words) = &bad {
                log::warn!("probe {words}");
            }
            self.failed = bad;
        }
        if !self
            .rounds
            .add_round(began, milliseconds_since_boot(), &results)
        {
            return Ok(());
        }
        let Some(change) = begin_change(self.front, self.root)? else {
            return Ok(());
        };
        if read_trial(self.root)?.as_ref() == Some(trial) {
            let names: Vec<String> = results.into_iter().map(|result| result.name).collect();
            let by = format!("confirmed by probes ({})", names.join(", "));
            // This comes first: NetworkManager must never revert a confirmed change, while this guard would still revert an
            // unconfirmed one.
            end_checkpoint(self.front.runner(), trial);
            let result = confirm_trial(&change, trial, by)?;
            log::warn!("{}", result.words());
        }
        Ok(())
    }

    /// Warns all terminals before the trial ends.
    fn warn_terminals(&mut self, trial: &Trial, now: u64) {
        let Phase::Waiting { until, .. } = trial.phase else {
            return;
        };
        let left = Duration::from_millis(until.saturating_sub(now));
        let window = Duration::from_secs(trial.window);
        if self.once || self.has_warned || left > notice::warning_time(window) {
            return;
        }
        self.has_warned = true;
        let text = notice::warn_before_end(left, way_back(trial));
        wall::write_to_terminals(self.front.runner(), &text);
    }
}

fn revert_trial(front: &dyn Front, root: &Root, seen: &Trial, why: &str) -> Result<Look> {
    let Some(change) = begin_change(front, root)? else {
        return Ok(Look::Wait);
    };
    // A confirmation may have come first.
    if read_trial(root)?.as_ref() != Some(seen) {
        return Ok(Look::Wait);
    }
    log::warn!("the trial of {} is reverted: {why}", seen.what);
    revert::revert_or_give_up(&change, seen.clone(), why)?;
    Ok(Look::Wait)
}

/// Begins a change. Returns `None` while another process holds the lock.
fn begin_change<'a>(front: &'a dyn Front, root: &Root) -> Result<Option<NodeChange<'a>>> {
    match Opening::check_needs(front, root.open_again()?, &Needs::GUARD) {
        Ok(opening) => opening.begin_change().map(Some),
        Err(error) if is_held(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

enum BootState {
    UnderWay,
    Ended,
    /// The awaited deployment is not running, or not completely.
    Failed(String),
}

/// Returns whether the boot has finished: the units, and the command that completes a staged run.
fn boot_state(front: &dyn Front, root: &Root) -> Result<BootState> {
    if let Some(awaited) = state::read_awaited(root)? {
        return Ok(match awaited.failed {
            Some(why) => BootState::Failed(why),
            None => BootState::UnderWay,
        });
    }
    let ended = systemctl::query_system_state(front.runner());
    Ok(match ended.as_deref() {
        Some("running" | "degraded") => BootState::Ended,
        _ => BootState::UnderWay,
    })
}
