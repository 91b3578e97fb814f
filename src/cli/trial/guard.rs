//! The guard of a trial: it takes the change back at the end of the time. It runs outside of every login.

use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};

use super::{boot, end_guards, remove_reserve, revert};
use crate::cli::session::open_root;
use crate::cli::ui::Ui;
use crate::command::systemctl;
use crate::error::ExitCode;
use crate::node::Host;
use crate::node::boot::BootIdentity;
use crate::node::login_session::milliseconds_since_boot;
use crate::root::Root;
use crate::staging::state;
use crate::transaction::{self, Lock, LockError};
use crate::trial::store::{read_trial, store_trial};
use crate::trial::{GuardScene, GuardStep, Phase, Place, Trial, judge_guard};

/// Pause between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// Pause after a way back that failed.
const TRY_AGAIN: Duration = Duration::from_secs(5);
/// The second guard acts this many milliseconds after the first one should have.
const LATER: u64 = 10_000;

/// Runs the guard until no trial is left; `once`: the second guard, which looks once.
pub(in crate::cli) fn run(ui: &Ui<'_>, once: bool) -> Result<ExitCode> {
    let root = open_root(ui)?;
    loop {
        match look(ui, &root, once) {
            Ok(Look::Ended) => {
                remove_reserve(&root);
                end_guards(&root, ui.runner, once);
                return Ok(ExitCode::Done);
            }
            Ok(Look::Wait) if once => return Ok(ExitCode::Done),
            Ok(Look::Wait) => thread::sleep(LOOK_AGAIN),
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
    /// Nothing is due.
    Wait,
}

/// Looks at the trial once, and does what is due.
fn look(ui: &Ui<'_>, root: &Root, once: bool) -> Result<Look> {
    let Some(trial) = read_trial(root)? else {
        return Ok(Look::Ended);
    };
    let deployment = Host::observe(root)?.deployment;
    let Some(now) = BootIdentity::observe(root, deployment.clone(), ui.runner) else {
        return Err(anyhow!("the kernel tells no boot id"));
    };
    if !now.is_same(&trial.boot) {
        // The unit that recovers could not do it.
        boot::judge(ui, root, false)?;
        return Ok(Look::Wait);
    }
    let place = trial.place(deployment.as_deref());
    let mut scene = GuardScene {
        now: milliseconds_since_boot(),
        is_applying: trial.phase == Phase::Applying && transaction::is_held(root),
        is_booted: false,
    };
    if once {
        scene.now = scene.now.saturating_sub(LATER);
    }
    if matches!(trial.phase, Phase::TrialBoot { .. }) {
        match boot_state(ui, root)? {
            BootState::Failed(why) if place == Place::New => {
                return take_back(ui, root, &trial, &why);
            }
            BootState::Ended => scene.is_booted = true,
            BootState::Failed(_) | BootState::UnderWay => {}
        }
    }
    match judge_guard(&trial, scene) {
        GuardStep::Wait => Ok(Look::Wait),
        GuardStep::BeginWaiting => {
            let Some(_lock) = lock(root)? else {
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
            store_trial(root, &Trial { phase, ..trial })?;
            Ok(Look::Wait)
        }
        GuardStep::Revert(why) => take_back(ui, root, &trial, &why),
    }
}

fn take_back(ui: &Ui<'_>, root: &Root, seen: &Trial, why: &str) -> Result<Look> {
    let Some(lock) = lock(root)? else {
        return Ok(Look::Wait);
    };
    // A confirmation may have come first.
    if read_trial(root)?.as_ref() != Some(seen) {
        return Ok(Look::Wait);
    }
    log::warn!("the trial of {} goes back: {why}", seen.what);
    revert::revert(ui, root, &lock, seen.clone(), why)?;
    Ok(Look::Wait)
}

/// Takes the lock; `None` while another run has it.
fn lock(root: &Root) -> Result<Option<Lock>> {
    match transaction::acquire_lock(root) {
        Ok(lock) => Ok(Some(lock)),
        Err(LockError::Held(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

enum BootState {
    UnderWay,
    Ended,
    /// The awaited deployment did not arrive as a whole.
    Failed(String),
}

/// Looks if the boot has reached its end: units, and the command that completes a staged run.
fn boot_state(ui: &Ui<'_>, root: &Root) -> Result<BootState> {
    if let Some(awaited) = state::read_awaited(root)? {
        return Ok(match awaited.failed {
            Some(why) => BootState::Failed(why),
            None => BootState::UnderWay,
        });
    }
    let ended = systemctl::query_system_state(ui.runner);
    Ok(match ended.as_deref() {
        Some("running" | "degraded") => BootState::Ended,
        _ => BootState::UnderWay,
    })
}
