//! `--try`: a change that goes back by itself unless it is confirmed (docs/explanation/trial.md).
//!
//! The command that makes the change writes the trial down, starts the guard outside of its login, makes the change, and
//! then only watches. [`guard`] decides at the end of the time, [`boot`] at a boot, [`confirm`] before.

pub(super) mod boot;
pub(super) mod confirm;
pub(super) mod facts;
pub(super) mod guard;
mod revert;

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::node_change::{Needs, NodeChange, Opening};
use super::{Output, TryArgs};
use crate::base::error::{ExitCode, RunError};
use crate::base::invocation::mco_rescue;
use crate::base::object::ObjectKind;
use crate::base::paths;
use crate::base::time::now;
use crate::change::install;
use crate::change::plan::{Plan, PlannedStep, activation};
use crate::change::probes::{Probe, list_probes};
use crate::change::staging::{deployments, state};
use crate::change::transaction::place::{self, Placement};
use crate::change::transaction::{self, Lock, Pending, open_store};
use crate::change::trial::store::{end_trial, read_result, read_trial, store_trial};
use crate::change::trial::{
    Phase, REBOOT_LIMIT, Trial, TrialOutcome, TrialPlace, TrialResult, TrialSystem, VERSION,
    duration_words,
};
use crate::cli::events;
use crate::cli::ui::Ui;
use crate::formats::grub::CounterState;
use crate::host::progress::{self, Work};
use crate::host::root::{Root, RootPath};
use crate::host::sys::privileges::Capability;
use crate::host::sys::runtime;
use crate::host::sys::signals::{self, SignalAnswer};
use crate::judge::drift::text_object;
use crate::node::boot::BootIdentity;
use crate::node::boot_counter::{self, Counting};
use crate::node::command::job::Job;
use crate::node::command::network_manager::{self, Begun, NetworkCheckpoint};
use crate::node::command::{CommandError, CommandRunner, guard_unit, systemctl};
use crate::node::login_session::{milliseconds_since_boot, observe_session};
use crate::node::mounts;
use crate::node::space::MountState;
use crate::node::{Host, Labels};
use crate::report;
use crate::report::events::NodeEvent;
use crate::report::trial_notice::{self, TrialWayBack};

/// Capabilities that a trial needs after the files are in place: for the boot loader, services, the reboot.
pub(super) const LATER: [Capability; 10] = [
    Capability::CAP_SYS_ADMIN,
    Capability::CAP_SYS_PTRACE,
    Capability::CAP_SYS_BOOT,
    Capability::CAP_LINUX_IMMUTABLE,
    Capability::CAP_CHOWN,
    Capability::CAP_DAC_OVERRIDE,
    Capability::CAP_DAC_READ_SEARCH,
    Capability::CAP_FOWNER,
    Capability::CAP_FSETID,
    Capability::CAP_KILL,
];
/// Services that run after the way back if they ran before the trial.
const KEPT_RUNNING: [&str; 11] = [
    "NetworkManager.service",
    "systemd-networkd.service",
    "systemd-resolved.service",
    "firewalld.service",
    "nftables.service",
    "iptables.service",
    "sshd.service",
    "sshd.socket",
    "chronyd.service",
    "crio.service",
    "kubelet.service",
];
/// Time for the guard to take a change back, with every service that reads the old files.
const LET_GUARD_END: Duration = Duration::from_secs(10 * 60);
/// Pause between two looks at a trial.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// Seconds after the guard at which NetworkManager goes back by itself.
const MARGIN: u32 = 60;
/// Files that belong to a trial that runs, and to nothing else.
const LEFTOVERS: [&str; 2] = [paths::TRIAL_RESERVE, paths::GUARD_PROGRAM_KEPT];
/// Reason of a way back that `rollback` began.
const ASKED: &str = "rollback was asked for";
/// Least size of the space that is kept for the way back, in bytes.
const RESERVE: u64 = 4 << 20;

/// The way back of a trial with another operating system, as the command that completes a boot finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum UnderWay {
    /// No such trial runs.
    None,
    /// A trial runs here, and its guard may have the lock for moments.
    Here,
    /// Its guard leaves the deployment that runs, and has the lock until the node reboots.
    Leaving,
    /// The deployment from before runs: its guard brings back what is left.
    Arriving,
}

/// Looks for the way back of a trial with another operating system. A trial that cannot be read does not go back.
///
/// # Errors
/// The node cannot be read.
pub(super) fn find_way_back(root: &Root) -> Result<UnderWay> {
    let trial = read_trial(root).unwrap_or_else(|error| {
        log::warn!("{error}");
        None
    });
    let Some(trial) = trial.filter(|trial| trial.system.is_some()) else {
        return Ok(UnderWay::None);
    };
    let deployment = Host::observe(root)?.deployment;
    let reverts = matches!(trial.phase, Phase::Reverting { .. });
    Ok(match (&trial.phase, trial.place(deployment.as_deref())) {
        (Phase::Applying, _) => UnderWay::None,
        (_, TrialPlace::New) if reverts => UnderWay::Leaving,
        (_, TrialPlace::Old) if reverts => UnderWay::Arriving,
        _ => UnderWay::Here,
    })
}

/// Refuses a command that changes the node while a trial runs. Without a trial, what one has left is removed; so the lock
/// has to be held.
///
/// # Errors
/// A trial runs, or its file is damaged.
pub(super) fn refuse_during_trial(root: &Root) -> Result<()> {
    let Some(trial) = read_trial(root)? else {
        sweep_leftovers(root);
        return Ok(());
    };
    if !root.is_live() {
        bail!(
            "the trial of {} was not confirmed, and a second change would stand in its way back. Take it back first: {}. \
             Nothing was changed",
            trial.what,
            mco_rescue("rollback")
        );
    }
    bail!(
        "a trial of {} runs, and a second change would stand in its way back. Confirm it from a new login: {}; or take it \
         back now: {}. Nothing was changed",
        trial.what,
        mco_rescue("confirm"),
        mco_rescue("rollback")
    )
}

/// Names a trial on the disk of a node that does not run. A file that cannot be read is named, too.
pub(super) fn name_unconfirmed(root: &Root) {
    match read_trial(root) {
        Ok(Some(trial)) if !root.is_live() => log::warn!(
            "the trial of {} was not confirmed: the next boot takes it back; or take it back now: {}",
            trial.what,
            mco_rescue("rollback")
        ),
        Ok(_) => {}
        Err(error) => log::warn!("{error}"),
    }
}

/// The input of a trial.
pub(super) struct TrialRequest<'a> {
    /// The options.
    pub args: &'a TryArgs,
    /// The change in words.
    pub what: String,
    /// A reboot is part of it.
    pub reboots: bool,
    /// `CHECKSUM.SERIAL` of the deployment that runs, if the operating system changes.
    pub from: Option<String>,
    /// Bytes of the old contents that come back.
    pub old_bytes: u64,
    /// Runs that leave the history once it is confirmed.
    pub forgets: Vec<String>,
    /// The jobs after which the services use the new files.
    pub jobs: Vec<Job>,
    /// Connections of NetworkManager change.
    pub network: bool,
}

impl<'a> TrialRequest<'a> {
    /// The trial of a plan.
    pub(super) fn of_plan(args: &'a TryArgs, what: &str, plan: &Plan, reboots: bool) -> Self {
        let system = plan.os.needs_reboot();
        Self {
            args,
            what: what.to_owned(),
            reboots,
            from: system.then(|| plan.os.booted.clone()),
            old_bytes: plan
                .steps
                .iter()
                .map(|planned| planned.step.old_size())
                .sum(),
            forgets: Vec::new(),
            jobs: Vec::new(),
            network: !reboots && plan.steps.iter().any(is_of_the_network),
        }
    }

    /// With the jobs after which the services use the new files.
    #[must_use]
    pub(super) fn with_jobs(self, jobs: Vec<Job>) -> Self {
        Self { jobs, ..self }
    }
}

/// The change failed: what is left of a trial goes back first. Returns the error of the command.
pub(super) fn fail(
    tried: Option<RunningTrial<'_>>,
    change: NodeChange<'_>,
    error: anyhow::Error,
) -> anyhow::Error {
    match tried {
        Some(tried) => tried.fail(change, error),
        None => error,
    }
}

/// An error came after the change was made: a trial goes back for it. Returns the error of the command.
pub(super) fn refuse(
    tried: Option<RunningTrial<'_>>,
    change: NodeChange<'_>,
    error: anyhow::Error,
) -> anyhow::Error {
    match tried {
        Some(tried) => tried.refuse(change, &format!("{error:#}")),
        None => error,
    }
}

/// A trial that this command has begun.
pub(super) struct RunningTrial<'a> {
    ui: &'a Ui<'a>,
    root: Root,
    trial: Trial,
    detach: bool,
}

impl<'a> RunningTrial<'a> {
    /// Writes the trial down and starts the guard, before anything is changed.
    ///
    /// # Errors
    /// The guard cannot be started; nothing was changed.
    pub(super) fn begin(
        change: &NodeChange<'a>,
        request: TrialRequest<'_>,
    ) -> Result<Option<Self>> {
        let (ui, root) = (change.ui, &change.root);
        let Some(window) = request.args.window else {
            return Ok(None);
        };
        require_units(root)?;
        // One that is left over would take the new files of this trial for its own.
        stop_guard(ui.runner);
        let deployment = Host::observe(root)?.deployment;
        let boot = BootIdentity::observe(root, deployment, ui.runner)
            .context("the kernel tells no boot id")?;
        let history = transaction::read_history(root)?;
        let jobs_back = list_jobs_back(ui.runner, &request);
        let trial = Trial {
            version: VERSION,
            id: format!("{}-{}", now(), std::process::id()),
            what: request.what,
            began: now(),
            window: window.as_secs(),
            boot_limit: request.args.boot_limit.as_secs(),
            phase: Phase::Applying,
            boot,
            head: history
                .first()
                .map(|run| run.id.clone())
                .unwrap_or_default(),
            reboots: request.reboots,
            booted: false,
            system: request.from.map(|from| TrialSystem { from }),
            login: observe_session(),
            probes: all_probes(root, request.args)?,
            checkpoint: None,
            jobs_back,
            forgets: request.forgets,
            panic: None,
            failing: None,
            returns: 0,
        };
        let mut running = Self {
            ui,
            root: root.again()?,
            trial,
            detach: request.args.detach,
        };
        if request.network {
            running.trial.checkpoint = begin_checkpoint(ui.runner, window);
        }
        let begun = running
            .reserve(request.old_bytes)
            .and_then(|()| Ok(store_trial(root, &running.trial)?))
            .and_then(|()| start_guard(change));
        if let Err(error) = begun {
            running.forget(None);
            bail!("the trial cannot be guarded: {error:#}. Nothing was changed");
        }
        let begun = NodeEvent::TrialBegan(running.trial.window);
        events::send(root, &begun, &running.trial.what);
        Ok(Some(running))
    }

    /// Keeps space for the way back: a full disk must not stop it.
    fn reserve(&self, old_bytes: u64) -> Result<()> {
        let bytes = usize::try_from(old_bytes.saturating_add(RESERVE))?;
        let store = open_store(&self.root, paths::STATE)?;
        let name = RootPath::fixed(paths::TRIAL_RESERVE);
        store
            .put_file(name.name(), &vec![0; bytes])
            .context("keeping space for the way back")
    }

    /// The command failed, and nothing of the change is left: no trial is left either.
    fn forget(&self, result: Option<&TrialResult>) {
        end_checkpoint(self.ui.runner, &self.trial);
        remove_reserve(&self.root);
        if let Err(error) = end_trial(&self.root, result) {
            log::warn!(
                "{error}. The guard ends the trial; or end it now: {}",
                mco_rescue("rollback")
            );
            return;
        }
        stop_guard(self.ui.runner);
    }

    /// The change failed. If it left something behind, the guard takes that back, and this waits for it.
    fn fail(self, change: NodeChange<'_>, error: anyhow::Error) -> anyhow::Error {
        let is_incomplete = matches!(
            error.downcast_ref::<RunError>(),
            Some(RunError::Incomplete(_))
        );
        // What cannot be read may be there.
        if !is_incomplete && !self.has_left_something().unwrap_or(true) {
            // A login that was lost meanwhile does not see the error.
            let result = matches!(
                error.downcast_ref::<RunError>(),
                Some(RunError::RolledBack(_))
            )
            .then(|| self.result(TrialOutcome::Reverted, format!("{error:#}")));
            self.forget(result.as_ref());
            if let Some(result) = &result {
                let ended = NodeEvent::TrialEnded(result.outcome);
                events::send(&self.root, &ended, &result.what);
                revert::announce_end(self.ui, result);
            }
            return error;
        }
        match self.give_back(change, &format!("{error:#}")) {
            Ok(result) => gone_back(&result, &format!("{error:#}")),
            Err(second) => error.context(format!("{second:#}")),
        }
    }

    /// Returns true if something of the change is on the node: an unfinished run, a finished one, or a staged system.
    fn has_left_something(&self) -> Result<bool> {
        let (root, trial) = (&self.root, &self.trial);
        Ok(transaction::find_pending(root)? != Pending::Nothing
            || !revert::runs_of(root, trial)?.is_empty()
            || trial.system.is_some() && state::read_awaited(root)?.is_some())
    }

    fn result(&self, outcome: TrialOutcome, why: String) -> TrialResult {
        TrialResult {
            version: VERSION,
            id: self.trial.id.clone(),
            what: self.trial.what.clone(),
            outcome,
            why,
            began: self.trial.began,
            ended: now(),
        }
    }

    /// Lets the guard take the change back, and waits for it.
    fn give_back(&self, change: NodeChange<'_>, why: &str) -> Result<TrialResult> {
        let phase = Phase::Reverting {
            why: why.to_owned(),
        };
        let trial = Trial {
            phase,
            ..self.trial.clone()
        };
        if let Err(error) = store_trial(&self.root, &trial) {
            // The guard takes a change back whose command has ended; one that waits would wait on.
            if self.trial.phase != Phase::Applying {
                return Err(error.into());
            }
            log::warn!("{error}");
        }
        drop(change);
        self.watch("Taking the trial back", LET_GUARD_END)
    }

    /// The change must not stay, for a reason that was found after it was made.
    pub(super) fn refuse(self, change: NodeChange<'_>, why: &str) -> anyhow::Error {
        match self.give_back(change, why) {
            Ok(result) => gone_back(&result, why),
            Err(error) => error,
        }
    }

    /// The change is in place: the time for a confirmation begins.
    pub(super) fn wait_for_confirmation(
        mut self,
        change: NodeChange<'_>,
        code: ExitCode,
    ) -> Result<ExitCode> {
        let since = milliseconds_since_boot();
        let phase = Phase::Waiting {
            since,
            until: since + self.trial.window * 1000,
        };
        let waiting = Trial {
            phase,
            ..self.trial.clone()
        };
        if let Err(error) = store_trial(&self.root, &waiting) {
            return Err(self.refuse(change, &error.to_string()));
        }
        self.trial = waiting;
        if let Some(checkpoint) = &self.trial.checkpoint {
            let seconds = u32::try_from(self.trial.window)
                .unwrap_or(u32::MAX)
                .saturating_add(MARGIN);
            match network_manager::extend_checkpoint(self.ui.runner, checkpoint, seconds) {
                Ok(true) => {}
                Ok(false) => {
                    log::info!("the checkpoint of NetworkManager is gone: it was restarted")
                }
                Err(error) => log::warn!("{error}"),
            }
        }
        announce_waiting(&self.trial);
        self.say(&report::trial::waiting_line(&self.trial));
        drop(change);
        if self.detach {
            return Ok(code);
        }
        let window = Duration::from_secs(self.trial.window);
        let result = self.watch("Waiting for a confirmation", window + LET_GUARD_END)?;
        self.end(&result, code)
    }

    /// The change is staged: the boot loader is prepared, and the node reboots.
    pub(super) fn reboot(
        mut self,
        change: NodeChange<'_>,
        ignore_quorum: bool,
    ) -> Result<ExitCode> {
        let phase = Phase::AwaitingBoot {
            until: milliseconds_since_boot()
                + u64::try_from(REBOOT_LIMIT.as_millis()).unwrap_or_default(),
        };
        let awaiting = Trial {
            phase,
            ..self.trial.clone()
        };
        if let Err(error) = store_trial(&self.root, &awaiting) {
            return Err(self.refuse(change, &error.to_string()));
        }
        self.trial = awaiting;
        if let Err(error) = self.prepare_boot(change.lock()) {
            let why = format!("the trial boot cannot be prepared: {error:#}");
            return Err(self.refuse(change, &why));
        }
        self.say(&report::trial::rebooting_line(&self.trial));
        if let Err(error) = deployments::reboot_node(&self.root, self.ui.runner, ignore_quorum) {
            return Err(self.refuse(change, &format!("{error:#}")));
        }
        Ok(ExitCode::Done)
    }

    /// Finalizes the staged deployment, so that the boot entries are those of the next boot, and tells the boot loader
    /// which one is the old.
    fn prepare_boot(&self, lock: &Lock) -> Result<()> {
        let Some(system) = &self.trial.system else {
            return Ok(());
        };
        deployments::finalize_staged(&self.root, self.ui.runner)?;
        match boot_counter::observe_boot_counter(&self.root)?.counting {
            Counting::Impossible { .. } => Ok(()),
            Counting::Possible { .. } => {
                let entry = boot_counter::find_entry_id(&self.root, &system.from)?
                    .context("no boot entry leads to the deployment that runs")?;
                let root = open_with_writable_boot(&self.root)?;
                Ok(transaction::arm_boot_counter(&root, lock, &entry)?)
            }
        }
    }

    /// Watches the trial until its end, for `limit` at most; `what` is shown meanwhile.
    fn watch(&self, what: &str, limit: Duration) -> Result<TrialResult> {
        signals::set_answer(SignalAnswer::TrialGoesOn);
        let _phase = progress::begin_phase(Work::new(what).within(limit));
        // Looks are counted: a clock that jumps does not end it.
        for _ in 0..limit.as_millis() / LOOK_AGAIN.as_millis() {
            thread::sleep(LOOK_AGAIN);
            if read_trial(&self.root)?.is_some_and(|trial| trial.id == self.trial.id) {
                continue;
            }
            let result = read_result(&self.root)?.filter(|result| result.id == self.trial.id);
            return result.context("the trial was ended by hand: its file is gone");
        }
        Err(self.unguarded(limit))
    }

    /// The error where the guard did not end the trial in time: another process works on this root, or the guard does not.
    fn unguarded(&self, limit: Duration) -> anyhow::Error {
        let late = format!(
            "its guard did not take the trial of {} back within {}",
            self.trial.what,
            duration_words(limit.as_secs())
        );
        let again = mco_rescue("rollback");
        let root = self.root.again().map_err(anyhow::Error::from);
        let held = root.and_then(|root| Opening::of(self.ui, root, &Needs::GUARD).map(drop));
        let said = match held {
            Err(error) => format!("{late}: {error:#}. Next: {again}"),
            Ok(()) => format!(
                "{late}, although no other run holds the lock. See why: journalctl -b -u {}. Next: systemctl stop {}; then {again}",
                guard_unit::UNITS[0],
                guard_unit::UNITS.join(" "),
            ),
        };
        RunError::Incomplete(said).into()
    }

    fn end(&self, result: &TrialResult, code: ExitCode) -> Result<ExitCode> {
        match result.outcome {
            TrialOutcome::Confirmed => {
                self.say(&report::trial::ended_text(result));
                Ok(code)
            }
            TrialOutcome::Reverted => Err(RunError::RolledBack(format!(
                "the trial of {}: {}",
                result.what, result.why
            ))
            .into()),
            TrialOutcome::PartlyReverted => Err(RunError::Incomplete(format!(
                "the trial of {}: {}",
                result.what, result.why
            ))
            .into()),
            TrialOutcome::NotReverted => Err(RunError::Incomplete(result.words()).into()),
        }
    }

    fn say(&self, text: &str) {
        if self.ui.output == Output::Text {
            report::print_result(text.as_bytes());
        }
    }
}

/// Returns the jobs after which the services use the old files. A unit of the change may have stopped one of the services by
/// which the node is reached and used: those that run now are started then.
fn list_jobs_back(runner: &dyn CommandRunner, request: &TrialRequest<'_>) -> Vec<Job> {
    let mut jobs = activation::revert_jobs(&request.jobs);
    if request.reboots {
        return jobs;
    }
    let known = systemctl::query_activity(runner, &KEPT_RUNNING).unwrap_or_else(|error| {
        log::warn!("it is not known which services are to run after the way back: {error}");
        Vec::new()
    });
    let running = known
        .into_iter()
        .filter(systemctl::UnitActivity::is_running);
    jobs.extend(running.map(|one| Job::Start(one.name)));
    jobs
}

/// Takes the trial that runs back at once, as `rollback` was asked for. Returns nothing if none runs.
///
/// # Errors
/// The trial cannot be read or taken back.
pub(super) fn take_back_now(change: NodeChange<'_>) -> Result<Option<ExitCode>> {
    let (ui, root) = (change.ui, &change.root);
    let Some(trial) = read_trial(root)? else {
        return Ok(None);
    };
    let question = match root.is_live() {
        true => format!("A trial of {} runs. Take it back now?", trial.what),
        false => format!(
            "The trial of {} was not confirmed. Take it back now?",
            trial.what
        ),
    };
    ui.confirm(&question)?;
    if !root.is_live() {
        let Some(result) = revert::revert_on_disk(&change, trial, ASKED)? else {
            report::print_result(report::trial::goes_back_at_boot().as_bytes());
            return Ok(Some(ExitCode::Done));
        };
        running_end(ui, &result)?;
        return Ok(Some(ExitCode::Done));
    }
    let running = RunningTrial {
        ui,
        root: root.again()?,
        trial,
        detach: false,
    };
    // Without an answer it is started anew.
    let guarded = match is_guarded(ui.runner) {
        Ok(true) => Ok(()),
        Ok(false) | Err(_) => {
            stop_guard(ui.runner);
            start_guard(&change)
        }
    };
    let result = match guarded {
        Ok(()) => running.give_back(change, ASKED)?,
        // Then nothing is left but this command.
        Err(error) => {
            log::warn!(
                "no guard can be started: {error:#}. This command takes the trial back itself"
            );
            revert::revert_or_give_up(&change, running.trial, ASKED)?;
            let result = read_result(&change.root)?;
            result.context("the end of the trial was not kept")?
        }
    };
    running_end(ui, &result)?;
    Ok(Some(ExitCode::Done))
}

fn running_end(ui: &Ui<'_>, result: &TrialResult) -> Result<()> {
    let text = match ui.output {
        Output::Json => report::trial::result_json(result)?,
        Output::Text => report::trial::ended_text(result),
    };
    report::print_result(text.as_bytes());
    match result.outcome {
        TrialOutcome::PartlyReverted => {
            Err(RunError::Incomplete("the trial went back, but not all of it".to_owned()).into())
        }
        TrialOutcome::NotReverted => Err(RunError::Incomplete(
            "the trial could not be taken back, and has ended: the change stays".to_owned(),
        )
        .into()),
        TrialOutcome::Reverted | TrialOutcome::Confirmed => Ok(()),
    }
}

/// Returns true if a guard is at work.
///
/// # Errors
/// systemd gives no answer.
pub(super) fn is_guarded(runner: &dyn CommandRunner) -> Result<bool, CommandError> {
    let units = [guard_unit::UNITS[0], guard_unit::UNITS[1], install::TRIAL];
    let known = systemctl::query_activity(runner, &units)?;
    Ok(known.iter().any(systemctl::UnitActivity::is_running))
}

/// Refuses where no unit would take the change back at a boot.
fn require_units(root: &Root) -> Result<()> {
    let places = [
        [paths::TRIAL_UNIT, paths::TRIAL_LINK],
        [paths::IMAGE_TRIAL_UNIT, paths::IMAGE_TRIAL_LINK],
    ];
    let exists = |path: &'static str| root.exists(&RootPath::fixed(path));
    let mut is_enabled = false;
    for [unit, link] in places {
        is_enabled |= exists(unit)? && exists(link)?;
    }
    // A unit of an older version knows no trials.
    let recover = match exists(paths::RECOVER_UNIT)? {
        true => paths::RECOVER_UNIT,
        false => paths::IMAGE_RECOVER_UNIT,
    };
    let text = root
        .read_small(&RootPath::fixed(recover))?
        .unwrap_or_default();
    let knows = String::from_utf8_lossy(&text).contains(paths::TRIAL);
    if is_enabled && knows {
        return Ok(());
    }
    bail!(
        "no unit would take the change back after a reboot or a power cut: {} is missing, not enabled, or {} is of an \
         older version. Nothing was changed. Next: {}",
        install::TRIAL,
        install::RECOVER,
        mco_rescue("install")
    )
}

/// Starts the guard, outside of this login, with a copy of the program; and the timer that looks after it.
fn start_guard(change: &NodeChange<'_>) -> Result<()> {
    let program = copy_program(&change.root, change.lock())?;
    for line in [
        guard_unit::start_guard(&program),
        guard_unit::start_second_guard(&program),
    ] {
        let answer = change.runner().run(&line)?;
        if answer.status != Some(0) {
            bail!("{}: {}", line.program, answer.stderr.trim());
        }
    }
    Ok(())
}

/// Stops both. What is missing is no error: the guard may have ended.
fn stop_guard(runner: &dyn CommandRunner) {
    for unit in guard_unit::UNITS {
        if let Err(error) = systemctl::stop_units(runner, &[unit]) {
            log::info!("{error}");
        }
        if let Err(error) = systemctl::reset_failed(runner, &[unit]) {
            log::info!("{error}");
        }
    }
}

/// The probes that confirm the trial: those that were asked for, and with them those of the site.
fn all_probes(root: &Root, args: &TryArgs) -> Result<Vec<Probe>> {
    let mut all = args.probe.clone();
    if !all.is_empty() {
        let own = list_probes(root)?;
        all.extend(own.into_iter().filter(|probe| !args.probe.contains(probe)));
    }
    Ok(all)
}

/// Returns true for a step that changes a connection of NetworkManager.
fn is_of_the_network(planned: &PlannedStep) -> bool {
    activation::is_connection(planned.step.path())
}

/// NetworkManager goes back by itself a little later than the guard: a second owner of the way back.
fn begin_checkpoint(runner: &dyn CommandRunner, window: Duration) -> Option<NetworkCheckpoint> {
    let seconds = u32::try_from(window.as_secs()).unwrap_or(u32::MAX);
    match network_manager::begin_checkpoint(runner, seconds.saturating_add(2 * MARGIN)) {
        Ok(Begun::Armed(checkpoint)) => Some(checkpoint),
        Ok(Begun::NotRunning) => None,
        Ok(Begun::Held(words)) => {
            log::warn!(
                "another program holds a checkpoint of NetworkManager ({words}); it stays, and the guard alone takes the \
                 connections back"
            );
            None
        }
        Err(error) => {
            log::warn!(
                "no checkpoint of NetworkManager: {error}; the guard alone takes the connections back"
            );
            None
        }
    }
}

/// Ends the checkpoint without a rollback.
fn end_checkpoint(runner: &dyn CommandRunner, trial: &Trial) {
    if let Some(checkpoint) = &trial.checkpoint
        && let Err(error) = network_manager::commit_checkpoint(runner, checkpoint)
    {
        log::warn!("the checkpoint of NetworkManager: {error}");
    }
}

/// How the trial goes back, for people who did not begin it.
fn way_back(trial: &Trial) -> TrialWayBack {
    match trial.reboots {
        true => TrialWayBack::Reboot,
        false => TrialWayBack::Files,
    }
}

/// Makes every later login show that a trial waits. A failure stops nothing.
fn announce_waiting(trial: &Trial) {
    let text = trial_notice::announce_waiting(now() + trial.window, way_back(trial));
    if let Err(error) = runtime::announce_at_login(&text) {
        log::info!("no text at logins: {error}");
    }
}

/// No trial is left: the guards end, each but the one that asks; a guard that has ended by itself is not started again.
fn end_guards(root: &Root, runner: &dyn CommandRunner, is_second: bool) {
    let [first, timer, second] = guard_unit::UNITS;
    let others = if is_second {
        [first, timer]
    } else {
        [timer, second]
    };
    for unit in others {
        if let Err(error) = systemctl::stop_units(runner, &[unit]) {
            log::info!("{error}");
        }
    }
    for path in [paths::GUARD_PROGRAM, paths::GUARD_PROGRAM_KEPT] {
        let removed = root
            .exists(&RootPath::fixed(path))
            .is_ok_and(|exists| exists);
        if removed && let Err(error) = runtime::take_back(&format!("/{path}")) {
            log::info!("/{path}: {error}");
        }
    }
}

/// Disarms the boot counter, if GRUB has one.
///
/// # Errors
/// GRUB's environment cannot be written.
fn disarm_boot_counter(root: &Root, lock: &Lock) -> Result<()> {
    let counter = boot_counter::observe_boot_counter(root)?;
    // Lines alone do nothing; a mark is left over from a disarming that was cut off.
    if counter.state == CounterState::Missing && !counter.has_mark {
        return Ok(());
    }
    transaction::disarm_boot_counter(&open_with_writable_boot(root)?, lock)?;
    Ok(())
}

/// Opens the root again, with a `/boot` that this program can write. What was opened before keeps the read-only mount.
fn open_with_writable_boot(root: &Root) -> Result<Root> {
    if !root.is_live() {
        return Ok(root.again()?);
    }
    mounts::make_writable(Path::new("/boot"))?;
    Ok(Root::open(Path::new("/"))?)
}

/// Copies the running program to where the change cannot reach it. Returns its path.
fn copy_program(root: &Root, lock: &Lock) -> Result<String> {
    let run = RootPath::fixed(paths::GUARD_PROGRAM);
    let directory = run.parent().context("the path has no directory")?;
    runtime::make_directory(&directory.to_string())
        .with_context(|| format!("making {directory}"))?;
    let path = match MountState::of(root, &directory)?.no_exec {
        true => RootPath::fixed(paths::GUARD_PROGRAM_KEPT),
        false => run,
    };
    let bytes = install::read_program().context("reading the running program")?;
    let host = Host::observe(root)?;
    let object = text_object(&bytes, 0o700, host.attainable((0, 0)));
    // The label with which systemd may run it.
    let installed = RootPath::fixed(paths::PROGRAM);
    let label = Labels::read(root).wanted(
        &installed,
        &ObjectKind::File {
            size: 0,
            sha256: String::new().into(),
        },
    );
    let placement = Placement {
        path: &path,
        object: &object,
        bytes: &bytes,
        label: label.as_deref(),
    };
    place::put_file(root, lock, &placement)?;
    Ok(path.to_string())
}

/// Removes what a trial has left that has ended: a power cut may have come before it could.
pub(super) fn sweep_leftovers(root: &Root) {
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
fn has_leftovers(root: &Root) -> bool {
    let mut all = LEFTOVERS.map(RootPath::fixed).into_iter();
    all.any(|path| !matches!(root.exists(&path), Ok(false)))
}

/// The error of a command whose change went back.
fn gone_back(result: &TrialResult, why: &str) -> anyhow::Error {
    match result.outcome {
        TrialOutcome::PartlyReverted => RunError::Incomplete(result.why.clone()).into(),
        TrialOutcome::NotReverted => RunError::Incomplete(result.words()).into(),
        TrialOutcome::Reverted | TrialOutcome::Confirmed => {
            RunError::RolledBack(why.to_owned()).into()
        }
    }
}

/// Gives the space back that was kept for the way back. After an error it is tried once more, as nothing else would remove it.
fn remove_reserve(root: &Root) {
    let remove = || {
        let store = open_store(root, paths::STATE)?;
        store.remove_spare(RootPath::fixed(paths::TRIAL_RESERVE).name())
    };
    if let Err(error) = remove().or_else(|_| remove()) {
        log::warn!("{error}");
    }
}
