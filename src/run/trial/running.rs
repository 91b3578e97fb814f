//! A trial that a command begins, watches, and ends or hands over to the guard.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::base::error::{ExitCode, RunError};
use crate::base::invocation::mco_rescue;
use crate::base::paths;
use crate::base::time::current_time;
use crate::change::plan::{Plan, PlannedStep, PlannedTrial, TrialReboot, activation};
use crate::change::probes::{Probe, list_probes};
use crate::change::staging::{deployments, state};
use crate::change::transaction::{self, Lock, Pending, open_store};
use crate::change::trial::on_disk::remove_reserve;
use crate::change::trial::store::{end_trial, read_result, read_trial, store_trial};
use crate::change::trial::{
    Phase, REBOOT_LIMIT, Trial, TrialOutcome, TrialResult, TrialSystem, VERSION, duration_words,
};
use crate::host::progress::{self, Work};
use crate::host::root::{Root, RootPath};
use crate::host::sys::signals::{self, SignalAnswer};
use crate::node::Host;
use crate::node::boot::BootIdentity;
use crate::node::boot_counter::{self, Counting};
use crate::node::command::job::Job;
use crate::node::command::network_manager::{self};
use crate::node::command::{CommandRunner, guard_unit, systemctl};
use crate::node::login_session::{milliseconds_since_boot, observe_session};
use crate::run::events::{self, NodeEvent};
use crate::run::front::{Front, RunNews};
use crate::run::node_change::NodeChange;
use crate::run::opening::{Needs, Opening};
use crate::run::trial::announce::announce_waiting;
use crate::run::trial::boot_loader::open_with_writable_boot;
use crate::run::trial::checkpoint::{MARGIN, begin_checkpoint, end_checkpoint};
use crate::run::trial::guards::{is_guarded, require_units, start_guard, stop_guard};
use crate::run::trial::revert;

/// Services that are started after the revert if they were running before the trial.
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
/// Time limit for the guard to revert a change, including the services that read the old files.
const LET_GUARD_END: Duration = Duration::from_secs(10 * 60);
/// Pause between two checks of a trial.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// The reason if `rollback` reverts the trial.
const ASKED: &str = "rollback was asked for";
/// Minimum space to reserve for reverting, in bytes.
const RESERVE: u64 = 4 << 20;

/// The options of a trial.
#[derive(Debug, Clone)]
pub struct TrialOptions {
    /// The time limit for a confirmation; `None` if the change is not a trial.
    pub window: Option<Duration>,
    /// The probes that confirm the trial.
    pub probe: Vec<Probe>,
    /// The command exits as soon as the change is in place.
    pub detach: bool,
    /// The time limit for a boot.
    pub boot_limit: Duration,
}

impl TrialOptions {
    /// Returns the trial for which a plan is made; `None` if the change is not a trial.
    pub fn plan_trial(&self, reboot: TrialReboot, activates: bool) -> Option<PlannedTrial> {
        self.window.map(|_| PlannedTrial { reboot, activates })
    }
}

/// The input of a trial.
#[derive(Debug)]
pub struct TrialRequest<'a> {
    /// The options.
    pub args: &'a TrialOptions,
    /// A description of the change.
    pub what: String,
    /// The trial includes a reboot.
    pub reboots: bool,
    /// `CHECKSUM.SERIAL` of the running deployment, if the operating system changes.
    pub from: Option<String>,
    /// Size of the old contents to restore, in bytes.
    pub old_bytes: u64,
    /// Runs to remove from the history once the trial is confirmed.
    pub forgets: Vec<String>,
    /// The jobs after which the services use the new files.
    pub jobs: Vec<Job>,
    /// True if connections of NetworkManager change.
    pub network: bool,
}

impl<'a> TrialRequest<'a> {
    /// Returns the trial of a plan.
    pub fn of_plan(args: &'a TrialOptions, what: &str, plan: &Plan, reboots: bool) -> Self {
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

    /// Adds the jobs after which the services use the new files.
    #[must_use]
    pub fn with_jobs(self, jobs: Vec<Job>) -> Self {
        Self { jobs, ..self }
    }
}

/// Handles a failed change: reverts a trial, as far as something of it is left. Returns the error of the command.
pub fn fail_change(
    tried: Option<RunningTrial<'_>>,
    change: NodeChange<'_>,
    error: anyhow::Error,
) -> anyhow::Error {
    match tried {
        Some(tried) => tried.fail_change(change, error),
        None => error,
    }
}

/// Handles an error after the change was made: reverts a trial. Returns the error of the command.
pub fn refuse_change(
    tried: Option<RunningTrial<'_>>,
    change: NodeChange<'_>,
    error: anyhow::Error,
) -> anyhow::Error {
    match tried {
        Some(tried) => tried.refuse_change(change, &format!("{error:#}")),
        None => error,
    }
}

/// A trial that this command has begun.
#[allow(missing_debug_implementations, reason = "it borrows a front end")]
pub struct RunningTrial<'a> {
    front: &'a dyn Front,
    root: Root,
    trial: Trial,
    detach: bool,
}

impl<'a> RunningTrial<'a> {
    /// Stores the trial and starts the guard, before anything is changed.
    ///
    /// # Errors
    /// The guard cannot be started; nothing was changed.
    pub fn begin_trial(change: &NodeChange<'a>, request: TrialRequest<'_>) -> Result<Option<Self>> {
        let (front, root) = (change.front, &change.root);
        let Some(window) = request.args.window else {
            return Ok(None);
        };
        require_units(root)?;
        // A leftover guard would treat the new trial's files as its own.
        stop_guard(front.runner());
        let deployment = Host::observe(root)?.deployment;
        let boot = BootIdentity::observe(root, deployment, front.runner())
            .context("the kernel reports no boot ID")?;
        let history = transaction::read_history(root)?;
        let jobs_back = list_jobs_back(front.runner(), &request);
        let trial = Trial {
            version: VERSION,
            id: format!("{}-{}", current_time(), std::process::id()),
            what: request.what,
            began: current_time(),
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
            front,
            root: root.open_again()?,
            trial,
            detach: request.args.detach,
        };
        if request.network {
            running.trial.checkpoint = begin_checkpoint(front.runner(), window);
        }
        let begun = running
            .reserve_space(request.old_bytes)
            .and_then(|()| Ok(store_trial(root, &running.trial)?))
            .and_then(|()| start_guard(change));
        if let Err(error) = begun {
            running.forget_trial(None);
            bail!("the trial cannot be guarded: {error:#}. Nothing was changed");
        }
        let begun = NodeEvent::TrialBegan(running.trial.window);
        events::send_event(root, &begun, &running.trial.what);
        Ok(Some(running))
    }

    /// Reserves space for reverting, so that a full disk cannot prevent it.
    fn reserve_space(&self, old_bytes: u64) -> Result<()> {
        let bytes = usize::try_from(old_bytes.saturating_add(RESERVE))?;
        let store = open_store(&self.root, paths::STATE)?;
        let name = RootPath::fixed(paths::TRIAL_RESERVE);
        store
            .put_file(name.name(), &vec![0; bytes])
            .context("reserving space for the revert")
    }

    /// Removes the trial after the command failed and left nothing of its change.
    fn forget_trial(&self, result: Option<&TrialResult>) {
        end_checkpoint(self.front.runner(), &self.trial);
        remove_reserve(&self.root);
        if let Err(error) = end_trial(&self.root, result) {
            log::warn!(
                "{error}. The guard ends the trial; or end it now: {}",
                mco_rescue("rollback")
            );
            return;
        }
        stop_guard(self.front.runner());
    }

    /// Handles a failed change. If something of it is left, the guard reverts that while this waits.
    fn fail_change(self, change: NodeChange<'_>, error: anyhow::Error) -> anyhow::Error {
        let is_incomplete = matches!(
            error.downcast_ref::<RunError>(),
            Some(RunError::Incomplete(_))
        );
        // If this cannot be read, something may be left.
        if !is_incomplete && !self.has_left_something().unwrap_or(true) {
            // If the login was lost in the meantime, the error is not seen.
            let result = matches!(
                error.downcast_ref::<RunError>(),
                Some(RunError::RolledBack(_))
            )
            .then(|| self.trial_result(TrialOutcome::Reverted, format!("{error:#}")));
            self.forget_trial(result.as_ref());
            if let Some(result) = &result {
                let ended = NodeEvent::TrialEnded(result.outcome);
                events::send_event(&self.root, &ended, &result.what);
                revert::announce_end(self.front.runner(), result);
            }
            return error;
        }
        match self.give_back(change, &format!("{error:#}")) {
            Ok(result) => gone_back(&result, &format!("{error:#}")),
            Err(second) => error.context(format!("{second:#}")),
        }
    }

    /// Returns true if something of the change is on the node: an unfinished run, a finished one, or a staged operating system.
    fn has_left_something(&self) -> Result<bool> {
        let (root, trial) = (&self.root, &self.trial);
        Ok(transaction::find_pending(root)? != Pending::Nothing
            || !revert::runs_of(root, trial)?.is_empty()
            || trial.system.is_some() && state::read_awaited(root)?.is_some())
    }

    fn trial_result(&self, outcome: TrialOutcome, why: String) -> TrialResult {
        TrialResult {
            version: VERSION,
            id: self.trial.id.clone(),
            what: self.trial.what.clone(),
            outcome,
            why,
            began: self.trial.began,
            ended: current_time(),
        }
    }

    /// Lets the guard revert the change, and waits for it.
    fn give_back(&self, change: NodeChange<'_>, why: &str) -> Result<TrialResult> {
        let phase = Phase::Reverting {
            why: why.to_owned(),
        };
        let trial = Trial {
            phase,
            ..self.trial.clone()
        };
        if let Err(error) = store_trial(&self.root, &trial) {
            // If the command has ended during `Applying`, the guard reverts the change anyway; in another phase it would keep
            // waiting.
            if self.trial.phase != Phase::Applying {
                return Err(error.into());
            }
            log::warn!("{error}");
        }
        drop(change);
        self.watch_trial("Reverting the trial", LET_GUARD_END)
    }

    /// Reverts the change for a reason that was found after it was made.
    pub fn refuse_change(self, change: NodeChange<'_>, why: &str) -> anyhow::Error {
        match self.give_back(change, why) {
            Ok(result) => gone_back(&result, why),
            Err(error) => error,
        }
    }

    /// Starts the time limit for a confirmation, as the change is in place.
    pub fn wait_for_confirmation(
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
            return Err(self.refuse_change(change, &error.to_string()));
        }
        self.trial = waiting;
        if let Some(checkpoint) = &self.trial.checkpoint {
            let seconds = u32::try_from(self.trial.window)
                .unwrap_or(u32::MAX)
                .saturating_add(MARGIN);
            match network_manager::extend_checkpoint(self.front.runner(), checkpoint, seconds) {
                Ok(true) => {}
                Ok(false) => {
                    log::info!("the checkpoint of NetworkManager is gone: it was restarted")
                }
                Err(error) => log::warn!("{error}"),
            }
        }
        announce_waiting(&self.trial);
        self.front.tell(RunNews::TrialWaits(&self.trial));
        drop(change);
        if self.detach {
            return Ok(code);
        }
        let window = Duration::from_secs(self.trial.window);
        let result = self.watch_trial("Waiting for a confirmation", window + LET_GUARD_END)?;
        self.end_trial(&result, code)
    }

    /// Prepares the boot loader for a staged change, and reboots the node.
    pub fn reboot_node(mut self, change: NodeChange<'_>, ignore_quorum: bool) -> Result<ExitCode> {
        let phase = Phase::AwaitingBoot {
            until: milliseconds_since_boot()
                + u64::try_from(REBOOT_LIMIT.as_millis()).unwrap_or_default(),
        };
        let awaiting = Trial {
            phase,
            ..self.trial.clone()
        };
        if let Err(error) = store_trial(&self.root, &awaiting) {
            return Err(self.refuse_change(change, &error.to_string()));
        }
        self.trial = awaiting;
        if let Err(error) = self.prepare_boot(change.lock()) {
            let why = format!("the trial boot cannot be prepared: {error:#}");
            return Err(self.refuse_change(change, &why));
        }
        self.front.tell(RunNews::TrialReboots(&self.trial));
        if let Err(error) = deployments::reboot_node(&self.root, self.front.runner(), ignore_quorum)
        {
            return Err(self.refuse_change(change, &format!("{error:#}")));
        }
        Ok(ExitCode::Done)
    }

    /// Finalizes the staged deployment, so that its boot entries are written now, and tells the boot loader which entry is the old
    /// one.
    fn prepare_boot(&self, lock: &Lock) -> Result<()> {
        let Some(system) = &self.trial.system else {
            return Ok(());
        };
        deployments::finalize_staged(&self.root, self.front.runner())?;
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

    /// Watches the trial until it ends, at most for `limit`; `what` is shown in the meantime.
    fn watch_trial(&self, what: &str, limit: Duration) -> Result<TrialResult> {
        signals::set_answer(SignalAnswer::TrialGoesOn);
        let _phase = progress::begin_phase(Work::new(what).with_deadline(limit));
        // The checks are counted, so that a clock that jumps does not end the loop.
        for _ in 0..limit.as_millis() / LOOK_AGAIN.as_millis() {
            thread::sleep(LOOK_AGAIN);
            if read_trial(&self.root)?.is_some_and(|trial| trial.id == self.trial.id) {
                continue;
            }
            let result = read_result(&self.root)?.filter(|result| result.id == self.trial.id);
            return result.context("the trial was ended by hand: its file is gone");
        }
        Err(self.unguarded_error(limit))
    }

    /// Returns the error if the guard did not end the trial in time: another process is working on this root, or the guard is not.
    fn unguarded_error(&self, limit: Duration) -> anyhow::Error {
        let late = format!(
            "its guard did not revert the trial of {} within {}",
            self.trial.what,
            duration_words(limit.as_secs())
        );
        let again = mco_rescue("rollback");
        let root = self.root.open_again().map_err(anyhow::Error::from);
        let held =
            root.and_then(|root| Opening::check_needs(self.front, root, &Needs::GUARD).map(drop));
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

    fn end_trial(&self, result: &TrialResult, code: ExitCode) -> Result<ExitCode> {
        match result.outcome {
            TrialOutcome::Confirmed => {
                self.front.tell(RunNews::TrialEnded(result));
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
}

/// Returns the jobs after which the services use the old files. A unit of the change may have stopped one of the services needed to
/// reach and use the node, so those that are running now are started again.
fn list_jobs_back(runner: &dyn CommandRunner, request: &TrialRequest<'_>) -> Vec<Job> {
    let mut jobs = activation::revert_jobs(&request.jobs);
    if request.reboots {
        return jobs;
    }
    let known = systemctl::query_activity(runner, &KEPT_RUNNING).unwrap_or_else(|error| {
        log::warn!("it is unknown which services should run after the revert: {error}");
        Vec::new()
    });
    let running = known
        .into_iter()
        .filter(systemctl::UnitActivity::is_running);
    jobs.extend(running.map(|one| Job::Start(one.name)));
    jobs
}

/// How `rollback` reverts a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrialRevert {
    /// The next boot reverts it.
    AtNextBoot,
    /// The trial ended with this result.
    Ended(TrialResult),
}

/// Reverts the current trial at once, as requested by `rollback`. Returns `None` if there is no trial.
///
/// # Errors
/// The trial cannot be read or reverted.
pub fn revert_now(change: NodeChange<'_>) -> Result<Option<TrialRevert>> {
    let (front, root) = (change.front, &change.root);
    let Some(trial) = read_trial(root)? else {
        return Ok(None);
    };
    let question = if root.is_live() {
        format!("A trial of {} runs. Revert it now?", trial.what)
    } else {
        format!(
            "The trial of {} was not confirmed. Revert it now?",
            trial.what
        )
    };
    front.confirm(&question)?;
    if !root.is_live() {
        let Some(result) = revert::revert_on_disk(&change, trial, ASKED)? else {
            return Ok(Some(TrialRevert::AtNextBoot));
        };
        return Ok(Some(TrialRevert::Ended(result)));
    }
    let running = RunningTrial {
        front,
        root: root.open_again()?,
        trial,
        detach: false,
    };
    // If systemd cannot be queried, a new guard is started.
    let guarded = match is_guarded(front.runner()) {
        Ok(true) => Ok(()),
        Ok(false) | Err(_) => {
            stop_guard(front.runner());
            start_guard(&change)
        }
    };
    let result = match guarded {
        Ok(()) => running.give_back(change, ASKED)?,
        // No guard can do it, so this command reverts the trial itself.
        Err(error) => {
            log::warn!("no guard can be started: {error:#}. This command reverts the trial itself");
            revert::revert_or_give_up(&change, running.trial, ASKED)?;
            let result = read_result(&change.root)?;
            result.context("the end of the trial was not kept")?
        }
    };
    Ok(Some(TrialRevert::Ended(result)))
}

/// Returns the error of a command whose change was reverted.
fn gone_back(result: &TrialResult, why: &str) -> anyhow::Error {
    match result.outcome {
        TrialOutcome::PartlyReverted => RunError::Incomplete(result.why.clone()).into(),
        TrialOutcome::NotReverted => RunError::Incomplete(result.words()).into(),
        TrialOutcome::Reverted | TrialOutcome::Confirmed => {
            RunError::RolledBack(why.to_owned()).into()
        }
    }
}

/// Returns the probes that confirm the trial: the requested ones, and with them those of the site.
fn all_probes(root: &Root, args: &TrialOptions) -> Result<Vec<Probe>> {
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
