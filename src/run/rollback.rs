//! `rollback`: reverts finished runs, through the same transaction.

use super::kept_runs::{self, Before, config_before};
use crate::base::error::{self, Changed, RunError};
use crate::base::invocation::{mco_rescue, whole_command};
use crate::base::notice::Notice;
use crate::change::install::completion::refuse_without_completion;
use crate::change::plan::{Allowed, ChangedSince, FinishedRun, PlannedTrial, TrialReboot};
use crate::change::staging::awaited::{Awaited, Leaving, OsRun, Ran};
use crate::change::staging::deployments::{self, WayBack};
use crate::change::staging::reboots::{self, RebootNeed};
use crate::change::staging::{pins, state};
use crate::change::transaction::{self, Direction};
use crate::formats::checkpoint::kubernetes_minor;
use crate::host::root::Root;
use crate::host::sys::signals::DeferredSignals;
use crate::judge::daemon::annotations;
use crate::node::boot::BootIdentity;
use crate::node::command::CommandRunner;
use crate::node::command::job::Job;
use crate::node::command::rpm_ostree::status::Deployment;
use crate::node::host::systemd_runs;
use crate::node::{Host, OsRelease, Records, deploy_directories, kubelet_state};
use crate::run::interrupted::recover_first;
use crate::run::node_change::NodeChange;
use crate::run::reverting::{RevertRequest, RunRevert, observe_run};
use crate::run::trial::running::{self, RunningTrial, TrialOptions, TrialRequest};
use anyhow::{Context, Result, anyhow, bail};

/// The refusal of a trial that is not limited to one run of files.
pub const ONE_RUN: &str = "--try reverts one run of files alone: add --files-only, or leave --to out. Nothing was changed";

/// The options of `rollback`.
#[derive(Debug, Clone)]
pub struct RollbackOptions<'a> {
    /// The oldest run to revert, or the name of the config to return to; all newer runs are reverted too. `None` reverts only the
    /// last run.
    pub to: Option<&'a str>,
    /// Paths that were changed since are left as they are.
    pub leave_changed: bool,
    /// The operating system is left as it is.
    pub files_only: bool,
    /// No service is reloaded or restarted.
    pub no_actions: bool,
    /// The user completes the rollback by hand after the reboot.
    pub complete_by_hand: bool,
    /// Guards of the node to override.
    pub allowed: Allowed,
    /// The options of a trial.
    pub trial: TrialOptions,
}

/// The result of a rollback.
#[derive(Debug)]
pub struct RevertResult {
    /// The reverted run, or the oldest of several.
    pub run: Ran,
    /// Name of the config that is recorded now.
    pub recorded: Option<String>,
    /// Number of steps.
    pub steps: usize,
    /// Number of runs that can still be reverted; `None` if this is unknown.
    pub left: Option<usize>,
    /// The reasons why the node needs a reboot.
    pub reboot: Vec<RebootNeed>,
    /// Names of the unreadable facts, as in the document. Nothing is claimed about them.
    pub unreadable: Vec<&'static str>,
}

impl RevertResult {
    /// Reads the facts of the report. The rollback is complete, so read errors are only logged.
    fn observe(root: &Root, runner: &dyn CommandRunner, run: Ran, steps: usize) -> Self {
        let mut unreadable = Vec::new();
        let left = transaction::read_history(root).map(|all| all.len());
        let left = or_unreadable(left, "left", &mut unreadable);
        let recorded = or_unreadable(recorded_name(root), "recorded", &mut unreadable);
        let reboot = reboots::read_needs(root, runner);
        let reboot = or_unreadable(reboot, "reboot", &mut unreadable);
        Self {
            run,
            recorded: recorded.flatten(),
            steps,
            left,
            reboot: reboot.unwrap_or_default(),
            unreadable,
        }
    }
}

/// How far the rollback has come.
#[allow(missing_debug_implementations, reason = "it borrows a front end")]
pub enum HowBack<'a> {
    /// The files are reverted at the next boot, once their deployment is running again; the current files belong to the deployment
    /// that the node leaves.
    NextBoot(Ran),
    /// The files are reverted, and the rollback is on trial.
    Tried(Box<RunningTrial<'a>>),
    /// The files are reverted.
    Done(RevertResult),
}

/// A rollback that is in place, but not ended yet.
#[allow(missing_debug_implementations, reason = "it borrows a front end")]
pub struct WentBack<'a> {
    /// The change.
    pub change: NodeChange<'a>,
    /// How far it has come.
    pub how: HowBack<'a>,
    /// Holds back a signal that arrived between two runs until the result is reported.
    pub signals: Option<DeferredSignals>,
}

impl<'a> WentBack<'a> {
    fn at_next_boot(change: NodeChange<'a>, run: &Ran) -> Self {
        Self {
            change,
            how: HowBack::NextBoot(run.clone()),
            signals: None,
        }
    }
}

/// The runs to revert, with the plan for it.
#[derive(Debug)]
pub struct GoingBack {
    /// The newest run.
    pub back: RunRevert,
    /// The requested older runs, the newest first.
    pub older: Vec<FinishedRun>,
    /// The operating system that is reverted with them.
    way: Option<Together>,
    /// The jobs for the running system.
    jobs: Vec<Job>,
}

impl GoingBack {
    /// Chooses the runs and plans the rollback. With `whole`, an operating system that a run changed is reverted too.
    ///
    /// # Errors
    /// The history contains no such run, or the node cannot be read.
    pub fn choose_runs(
        change: &NodeChange<'_>,
        options: &RollbackOptions<'_>,
        whole: bool,
    ) -> Result<Self> {
        let (root, runner) = (&change.root, change.runner());
        let (run, older) = choose_runs(root, options)?;
        let is_tried = options.trial.window.is_some();
        let os_run = state::find_os_run(root, &run.id)?.filter(|_| whole);
        if is_tried && (os_run.is_some() || !older.is_empty()) {
            bail!("{ONE_RUN}");
        }
        let way = os_run.map(|os_run| Together::combine_runs(root, runner, &run, os_run));
        let way = way.transpose()?;
        let together = way.as_ref().map_or(0, |way| way.earlier_ids().len());
        if options.to.is_some() {
            kept_runs::separate_systems(root, &run, &older, together, whole)?;
        }
        let mut older_runs = Vec::new();
        if older.len() > together {
            for run in &older {
                older_runs.push((run.clone(), observe_run(root, runner, run)?));
            }
        }
        let jobs = if options.no_actions || !systemd_runs(root) {
            Vec::new()
        } else {
            run.jobs_back()
        };
        let wanted = RevertRequest {
            changed: changed_since(options),
            allowed: allowed_guards(change, options, &run)?,
            older: &older_runs,
            together,
            jobs: &jobs,
            keeps_history: is_tried,
            trial: is_tried.then_some(PlannedTrial {
                reboot: TrialReboot::Never,
                activates: !options.no_actions,
            }),
        };
        let mut back = RunRevert::prepare_revert(root, runner, run, &wanted)?;
        if let Some(way) = &way {
            let notices = kubelet_notices(root, &way.leaving.to).unwrap_or_else(|error| {
                log::warn!("whether the older kubelet suits the cluster is not known: {error:#}");
                Vec::new()
            });
            back.plan.notices.extend(notices);
        }
        Ok(Self {
            jobs: back.plan.all_jobs(jobs),
            back,
            older,
            way,
        })
    }

    /// Refuses if nothing would complete the rollback at the next boot.
    ///
    /// # Errors
    /// Nothing would complete it.
    pub fn ensure_completion(
        &self,
        change: &NodeChange<'_>,
        options: &RollbackOptions<'_>,
    ) -> Result<()> {
        match &self.way {
            Some(way) => way.ensure_completion(change.runner(), &change.root, options),
            None => Ok(()),
        }
    }

    /// Reverts the runs.
    ///
    /// # Errors
    /// Says which parts were reverted, and which were not.
    pub fn carry_out<'a>(
        self,
        change: NodeChange<'a>,
        options: &RollbackOptions<'_>,
    ) -> Result<WentBack<'a>> {
        let Some(way) = &self.way else {
            return self.take_files_back(change, options);
        };
        let (root, config) = (&change.root, self.back.run.config.clone());
        match deployments::go_back(root, change.runner(), &way.leaving, &config)? {
            WayBack::NextBoot => Ok(WentBack::at_next_boot(change, &way.run)),
            WayBack::StillHere => {
                error::note_changed(Changed::Part);
                let taken = self.take_files_back(change, options);
                taken.map_err(|error| without_staged(error, &config))
            }
        }
    }

    /// Reverts the files while the node is running.
    fn take_files_back<'a>(
        self,
        change: NodeChange<'a>,
        options: &RollbackOptions<'_>,
    ) -> Result<WentBack<'a>> {
        let (root, runner, run) = (&change.root, change.runner(), &self.back.run);
        let request = TrialRequest {
            forgets: vec![run.id.clone()],
            jobs: self.jobs.clone(),
            ..TrialRequest::of_plan(
                &options.trial,
                &format!("rollback of {}", run.config),
                &self.back.plan,
                false,
            )
        };
        let earlier = self.earlier_runs(root)?;
        // A signal between two runs must not end the program before it reports what was reverted.
        let mut signals = (!earlier.is_empty()).then(DeferredSignals::new);
        reboots::note_undone(root, change.runner(), run)?;
        let tried = RunningTrial::begin_trial(&change, request)?;
        if let Err(error) = self.back.carry_out(&change, &self.jobs) {
            hold_signals(signals.as_mut());
            return Err(running::fail_change(tried, change, error));
        }
        if let Some(tried) = tried {
            return Ok(WentBack {
                change,
                how: HowBack::Tried(Box::new(tried)),
                signals,
            });
        }
        let gone = vec![run.config.clone()];
        let more = revert_earlier(&change, options, gone, &earlier);
        let more = more.inspect_err(|_| hold_signals(signals.as_mut()))?;
        match &self.way {
            // The staged deployment is discarded and its files are reverted, so it can no longer boot, whatever the engine reports.
            Some(_) => state::forget_awaited(root)?,
            None => deployments::settle_awaited(root, runner),
        }
        let last = self.older.last().unwrap_or(run);
        let ran = Ran {
            id: last.id.clone(),
            config: last.config.clone(),
        };
        let steps = self.back.plan.steps.len() + more;
        let how = HowBack::Done(RevertResult::observe(root, change.runner(), ran, steps));
        Ok(WentBack {
            change,
            how,
            signals,
        })
    }

    /// Returns the runs that are reverted after the newest one.
    fn earlier_runs(&self, root: &Root) -> Result<Vec<Ran>> {
        let together = self.way.as_ref().map_or(&[][..], |way| way.earlier_ids());
        let mut all = find_runs(root, together)?;
        let asked_for = self.older.iter().skip(together.len());
        all.extend(asked_for.map(|run| Ran {
            id: run.id.clone(),
            config: run.config.clone(),
        }));
        Ok(all)
    }
}

/// Returns the error if the files were not reverted after the staged deployment was discarded.
fn without_staged(error: anyhow::Error, config: &str) -> anyhow::Error {
    let gone = format!("what was staged for {config} is dropped, but its files are still in place");
    match format!("{error:#}") {
        said if said.contains("Next: ") => error.context(gone),
        said => anyhow!("{gone}: {said}. Next: {}", mco_rescue("rollback")),
    }
}

/// Returns the newest run, and the requested older ones.
fn choose_runs(
    root: &Root,
    options: &RollbackOptions<'_>,
) -> Result<(FinishedRun, Vec<FinishedRun>)> {
    let mut runs = transaction::read_history(root)?;
    if runs.is_empty() {
        bail!(
            "no finished run is in the history, so there is nothing to go back to. \
             Apply the config that the node should be in: {}",
            mco_rescue("apply CONFIG")
        );
    }
    let older = kept_runs::up_to(root, &runs, options.to)?;
    let run = runs.remove(0);
    if options.to.is_none() {
        expect_named_run(root, &run)?;
    }
    runs.truncate(older);
    Ok((run, runs))
}

/// Refuses to revert the run that brought the node's first config unless it was the last run or is named with `--to`: the node would
/// lose all of its config.
fn expect_named_run(root: &Root, run: &FinishedRun) -> Result<()> {
    if config_before(root, run) != Before::NoRecord {
        return Ok(());
    }
    let why = match transaction::last_run(root) {
        Ok(None) => return Ok(()),
        Ok(Some(last)) if last.id.is_empty() || last.id == run.id => return Ok(()),
        Ok(Some(_)) => "a later run was reverted already".to_owned(),
        Err(error) => format!("it is not known what ran last ({error})"),
    };
    bail!(
        "{why}, and before {} this node had no config: everything would be removed, with its units and SSH keys. \
         If that is meant: {}",
        run.config,
        mco_rescue(&format!("rollback --to {}", run.id))
    )
}

/// Returns the guards to override.
fn allowed_guards(
    change: &NodeChange<'_>,
    options: &RollbackOptions<'_>,
    run: &FinishedRun,
) -> Result<Allowed> {
    let (root, runner) = (&change.root, change.runner());
    let ours = deployments::is_staged_by_us(root, runner)?;
    Ok(Allowed {
        ours,
        leaves_staged: options.files_only && !ours,
        has_files_only: true,
        staged: !options.files_only && deployments::is_staged_by_run(root, runner, &run.id)?,
        ..options.allowed
    })
}

fn changed_since(options: &RollbackOptions<'_>) -> ChangedSince {
    if options.leave_changed {
        ChangedSince::Leave
    } else {
        ChangedSince::Refuse
    }
}

/// Returns a notice for each checkpoint file that the kubelet of the previous deployment may refuse. It is only a warning: an
/// unreadable file does not prevent the rollback.
fn kubelet_notices(root: &Root, deployment: &str) -> Result<Vec<Notice>> {
    let minor = |root: &Root| -> Result<Option<u32>> {
        let release = OsRelease::read(root)?;
        Ok(kubernetes_minor(release.get("OPENSHIFT_VERSION")))
    };
    let mut all = deploy_directories::list_deploy_directories(root)?.into_iter();
    let Some(directory) = all.find(|directory| directory.name == deployment) else {
        return Ok(Vec::new());
    };
    let (Some(from), Some(to)) = (minor(root)?, minor(&root.open_within(&directory.path)?)?) else {
        return Ok(Vec::new());
    };
    let kept = kubelet_state::kept_over_a_boot(root)?.into_iter();
    let broken = kept.filter(|file| file.breaks_between(from, to));
    let notices = broken.map(|file| {
        Notice::new(
            "kubelet",
            format!(
                "{}. {}",
                file.describe_break(from, to, "the previous deployment"),
                file.advise_after_break()
            ),
        )
    });
    Ok(notices.collect())
}

/// Returns a fact of the report. An unreadable one is logged and added to the list.
fn or_unreadable<T, E: std::fmt::Display>(
    read: Result<T, E>,
    fact: &'static str,
    unreadable: &mut Vec<&'static str>,
) -> Option<T> {
    let logged = read.inspect_err(|error| {
        log::warn!(
            "the run is reverted, but {error:#}. Next: {}",
            mco_rescue("status")
        );
        unreadable.push(fact);
    });
    logged.ok()
}

/// Returns the last staged change if its files were not written, or if it has no files.
///
/// # Errors
/// The node cannot be read.
pub fn find_unfinished(
    root: &Root,
    runner: &dyn CommandRunner,
) -> Result<Option<(Awaited, Leaving)>> {
    let Some(awaited) = state::read_awaited(root)? else {
        return Ok(None);
    };
    let history = state::summarise_runs(&transaction::read_history(root)?);
    let leaving = awaited.plan_leaving(&state::read_booted(root, runner)?, &history);
    Ok(leaving.map(|leaving| (awaited, leaving)))
}

/// An operating system and runs of files that are reverted together.
#[derive(Debug)]
pub struct Together {
    /// The newest run.
    pub run: Ran,
    /// The deployment to return to, and the runs to revert.
    pub leaving: Leaving,
}

impl Together {
    /// Combines the newest run with the older ones whose operating system never ran.
    fn combine_runs(
        root: &Root,
        runner: &dyn CommandRunner,
        run: &FinishedRun,
        os_run: OsRun,
    ) -> Result<Self> {
        let OsRun { from, earlier, .. } = os_run;
        let runs_now = || -> Result<String> {
            let booted = state::read_booted(root, runner)?;
            booted
                .deployment
                .context("the deployment that runs is not known; look: ostree admin status")
        };
        let to = from.map_or_else(runs_now, Ok)?;
        let history = transaction::read_history(root)?;
        let belongs = |other: &&FinishedRun| other.id == run.id || earlier.contains(&other.id);
        let runs = history.iter().take_while(belongs);
        Ok(Self {
            run: Ran {
                id: run.id.clone(),
                config: run.config.clone(),
            },
            leaving: Leaving {
                to,
                runs: runs.map(|run| run.id.clone()).collect(),
            },
        })
    }

    /// Returns the reverting of what is staged and has not run.
    ///
    /// # Errors
    /// The options ask for older runs, or for a trial.
    pub fn of_staged(
        awaited: Awaited,
        leaving: Leaving,
        options: &RollbackOptions<'_>,
    ) -> Result<Self> {
        let config = awaited.config.name;
        if options.to.is_some() {
            bail!(
                "what was staged for {config} has to go first. Nothing was changed. Next: {}, then {}",
                mco_rescue("rollback"),
                whole_command()
            );
        }
        if options.trial.window.is_some() {
            bail!("{ONE_RUN}");
        }
        let run = Ran {
            id: String::new(),
            config,
        };
        Ok(Self { run, leaving })
    }

    /// Refuses if the files are reverted at the next boot and no unit would complete that.
    ///
    /// # Errors
    /// No unit would complete the rollback.
    pub fn ensure_completion(
        &self,
        runner: &dyn CommandRunner,
        root: &Root,
        options: &RollbackOptions<'_>,
    ) -> Result<()> {
        let runs = state::read_booted(root, runner)?.deployment;
        if runs.as_ref() == Some(&self.leaving.to) {
            return Ok(());
        }
        refuse_without_completion(root, options.complete_by_hand)
    }

    /// Returns the ids of the older runs.
    fn earlier_ids(&self) -> &[String] {
        self.leaving.runs.get(1..).unwrap_or_default()
    }

    /// Reverts the operating system if the last run has no files of its own.
    ///
    /// # Errors
    /// Says which parts were reverted, and which were not.
    pub fn leave_deployment<'a>(
        &self,
        change: NodeChange<'a>,
        options: &RollbackOptions<'_>,
    ) -> Result<WentBack<'a>> {
        let (root, runner) = (&change.root, change.runner());
        if let WayBack::NextBoot =
            deployments::go_back(root, runner, &self.leaving, &self.run.config)?
        {
            return Ok(WentBack::at_next_boot(change, &self.run));
        }
        error::note_changed(Changed::Part);
        let runs = find_runs(root, &self.leaving.runs)?;
        let mut signals = DeferredSignals::new();
        let gone = vec![format!("the operating system of {}", self.run.config)];
        let steps = revert_earlier(&change, options, gone, &runs);
        let steps = steps.inspect_err(|_| hold_signals(Some(&mut signals)))?;
        // The staged deployment can no longer boot, whatever the engine reports.
        state::forget_awaited(root)?;
        let how = HowBack::Done(RevertResult::observe(root, runner, self.run.clone(), steps));
        Ok(WentBack {
            change,
            how,
            signals: Some(signals),
        })
    }
}

/// Returns the runs with these ids that are in the history, in this order. A run that is no longer in the history cannot be
/// reverted.
fn find_runs(root: &Root, ids: &[String]) -> Result<Vec<Ran>> {
    let history = transaction::read_history(root)?;
    let find = |id: &String| history.iter().find(|run| run.id == *id);
    let found = ids.iter().filter_map(find).map(|run| Ran {
        id: run.id.clone(),
        config: run.config.clone(),
    });
    Ok(found.collect())
}

/// Keeps a pending signal from ending the program before its error is printed.
fn hold_signals(signals: Option<&mut DeferredSignals>) {
    if let Some(signals) = signals
        && signals.waiting_signal().is_some()
    {
        signals.hold_to_the_end();
    }
}

/// Reverts runs, the newest first, and returns the number of steps. `gone` names what was already reverted. Each run is reverted as
/// a whole, so an error says what was reverted and what was not.
fn revert_earlier(
    change: &NodeChange<'_>,
    options: &RollbackOptions<'_>,
    mut gone: Vec<String>,
    runs: &[Ran],
) -> Result<usize> {
    let signals = DeferredSignals::new();
    let mut steps = 0;
    for (index, run) in runs.iter().enumerate() {
        let taken = match signals.waiting_signal() {
            Some(signal) => Err(anyhow!("ended by {signal}")),
            None => take_one_back(change, options, run),
        };
        let left = runs.get(index..).unwrap_or_default();
        steps += taken.map_err(|error| stopped_between(options, &error, &gone, left))?;
        gone.push(run.config.clone());
    }
    Ok(steps)
}

fn take_one_back(
    change: &NodeChange<'_>,
    options: &RollbackOptions<'_>,
    run: &Ran,
) -> Result<usize> {
    let (root, runner) = (&change.root, change.runner());
    // A run that the previous step left unfinished would still be the newest in the history.
    recover_first(change, Direction::Forward)?;
    let mut history = transaction::read_history(root)?.into_iter();
    let Some(found) = history.next().filter(|found| found.id == run.id) else {
        bail!("the run to {} is not the newest of the history", run.config);
    };
    let wanted = RevertRequest {
        changed: changed_since(options),
        allowed: options.allowed,
        ..RevertRequest::default()
    };
    let back = RunRevert::prepare_revert(root, runner, found, &wanted)?;
    if let Some(blocker) = back.plan.blockers.first() {
        bail!("{blocker}");
    }
    reboots::note_undone(root, runner, &back.run)?;
    back.carry_out(change, &[])?;
    Ok(back.plan.steps.len())
}

/// Returns the error between two runs: what was reverted, what was not, and the command to continue.
fn stopped_between(
    options: &RollbackOptions<'_>,
    error: &anyhow::Error,
    gone: &[String],
    left: &[Ran],
) -> anyhow::Error {
    let mut next = format!(
        "rollback --to {}",
        left.last().map(|run| run.id.as_str()).unwrap_or_default()
    );
    for (is_given, option) in [
        (options.files_only, " --files-only"),
        (options.leave_changed, " --leave-changed"),
    ] {
        next += if is_given { option } else { "" };
    }
    let names: Vec<&str> = left.iter().map(|run| run.config.as_str()).collect();
    let then = match error.downcast_ref() {
        Some(RunError::Incomplete(_)) => "Then",
        _ => "Next",
    };
    let said = format!(
        "{} was reverted, not {}: {error:#}. {then}: {}",
        gone.join(", "),
        names.join(", "),
        mco_rescue(&next)
    );
    RunError::Incomplete(said).into()
}

/// Returns true if the API has reported since this boot that the daemon is done. Reports that the fetch service kept from an
/// earlier boot are too old.
fn is_daemon_done(root: &Root, runner: &dyn CommandRunner) -> Result<bool> {
    let Some(annotations) = annotations::read_annotations(root)? else {
        return Ok(false);
    };
    let records = Records::read(root).context("reading the daemon's records")?;
    let deployments = deployments::read_deployments(root, runner);
    let deployments = deployments.map_err(|cause| deployments::explain_cause(root, &cause))?;
    // A soft reboot does not change the time at which the kernel started.
    let kernel = sysinfo::System::boot_time().unwrap_or(u64::MAX);
    let boot = BootIdentity::observe(root, Host::observe(root)?.deployment, runner);
    let since = boot.map_or(kernel, |boot| boot.start_time(kernel));
    Ok(annotations.seen > since && pins::is_done(&annotations, &records, &deployments))
}

/// Gives up the ability to revert, which frees the space of the old deployments. Returns them; `None` if `if_done` is set and the
/// daemon is not done, or nothing is kept.
///
/// # Errors
/// The node does not run, or a deployment cannot be unpinned.
pub fn forget_deployments(
    root: &Root,
    runner: &dyn CommandRunner,
    if_done: bool,
) -> Result<Option<Vec<Deployment>>> {
    if !root.is_live() {
        bail!("only the running node can release its deployments; run this on it");
    }
    if if_done && (pins::read_pins(root)?.is_empty() || !is_daemon_done(root, runner)?) {
        return Ok(None);
    }
    let gone = pins::unpin_deployments(root, runner, |_| true)?;
    state::forget_failure(root)?;
    Ok(Some(gone))
}

/// Returns the name of the recorded config.
///
/// # Errors
/// The records cannot be read.
pub fn recorded_name(root: &Root) -> Result<Option<String>> {
    let records = Records::read(root).context("reading the daemon's records")?;
    Ok(records.name())
}
