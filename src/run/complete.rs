//! `complete`: after the boot that a run waits for, checks that the staged deployment is running. If another deployment came up,
//! restores the files that belong to it before anything reads them.

use crate::change::trial::on_disk;
use crate::run::work::LATER_IN_TRIAL;
use std::thread;
use std::time::{Duration, Instant};

use crate::change::staging::state;
use crate::run::front::Front;
use anyhow::{Context, Result, bail};
use serde::Serialize;

use crate::base::invocation::mco_rescue;
use crate::base::text::count_noun;
use crate::change::plan::{ChangedSince, FinishedRun, PlanOptions, PlanRequest, Step};
use crate::change::session::{Session, Unnamed};
use crate::change::staging::awaited::{Arrival, Awaited, Booted, GoesBack, Scene, Verdict, Way};
use crate::change::staging::deployments;
use crate::change::staging::next_boot::observe_next_boot;
use crate::change::transaction::{self, Direction};
use crate::change::trial::on_disk::UnderWay;
use crate::host::root::{Root, RootPath};
use crate::judge::drift::Drift;
use crate::node::boot::BootIdentity;
use crate::node::command::CommandRunner;
use crate::node::command::rpm_ostree::arguments::finalize_journal;
use crate::node::command::rpm_ostree::status::finalize_failure;
use crate::node::{Host, System};
use crate::run::events::{self, NodeEvent};
use crate::run::interrupted::{StartedUnits, at_boot, recover_first};
use crate::run::node_change::NodeChange;
use crate::run::opening::{Needs, Opening, is_held};
use crate::run::reverting::{RevertRequest, RunRevert};
use crate::run::work::RunWork;

/// Maximum wait for the guard of a trial. The timeout of the unit is one minute longer.
const LET_GUARD_END: Duration = Duration::from_secs(2 * 60);
/// Pause between two attempts.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// The end of a boot that a run waited for.
#[derive(Debug, Clone)]
pub struct BootEnd {
    /// The result.
    pub completed: Completed,
    /// The previous deployment is running again because of a trial, which reports the reason itself.
    pub is_arriving: bool,
}

impl BootEnd {
    fn from_completed(completed: Completed) -> Self {
        Self {
            completed,
            is_arriving: false,
        }
    }
}

/// How the awaited boot ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AwaitedOutcome {
    /// No boot was awaited.
    Nothing,
    /// It has not happened.
    NotYet,
    /// The staged deployment runs.
    Arrived,
    /// The previous deployment is running, as requested.
    Back,
    /// It no longer waits for a reboot.
    Settled,
    /// Another deployment runs than the wanted one.
    Failed,
}

/// The result of the awaited boot.
#[derive(Debug, Clone, Serialize)]
pub struct Completed {
    schema: &'static str,
    /// How it ended.
    pub outcome: AwaitedOutcome,
    /// Name of the config.
    pub config: Option<String>,
    /// The reason, if the node is not in the awaited state.
    pub failed: Option<String>,
    /// The direction of the boot, if one was awaited.
    pub way: Option<Way>,
    /// True if the operating system and the files belong to different configs.
    pub half: bool,
    /// The reason why a boot is no longer awaited.
    pub why: Option<String>,
    /// Kernel arguments that the running image sets itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub image_arguments: Vec<String>,
    /// Files of runs were restored.
    #[serde(skip)]
    pub restored: bool,
    /// The command that applies the config.
    #[serde(skip)]
    pub apply: String,
}

impl Completed {
    fn from_outcome(outcome: AwaitedOutcome, awaited: Option<&Awaited>) -> Self {
        Self {
            schema: "mco-rescue/complete/v1",
            outcome,
            config: awaited.map(|awaited| awaited.config.name.clone()),
            failed: awaited.and_then(|awaited| awaited.failed.clone()),
            way: awaited.map(|awaited| awaited.way),
            why: None,
            half: awaited.is_some_and(|awaited| awaited.half),
            image_arguments: Vec::new(),
            restored: false,
            apply: awaited.map(Awaited::apply_command).unwrap_or_default(),
        }
    }

    /// Returns the result for a node that is not waiting for a boot.
    pub fn nothing_awaited() -> Self {
        Self::from_outcome(AwaitedOutcome::Nothing, None)
    }

    /// Returns the result for a boot that has not happened yet.
    pub fn not_yet(awaited: &Awaited) -> Self {
        Self::from_outcome(AwaitedOutcome::NotYet, Some(awaited))
    }

    /// Returns the result while the guard of a trial is leaving the running deployment.
    pub fn leaving_trial(awaited: &Awaited) -> Self {
        Self {
            way: Some(Way::Back),
            failed: None,
            half: false,
            ..Self::from_outcome(AwaitedOutcome::NotYet, Some(awaited))
        }
    }

    /// Returns true if the operating system and the files belong to different configs.
    pub fn is_half(&self) -> bool {
        self.half
    }

    /// Returns the result if the staged deployment is running.
    pub fn boot_arrived(awaited: &Awaited) -> Self {
        Self::from_outcome(AwaitedOutcome::Arrived, Some(awaited))
    }

    /// Returns the result if the previous deployment is running, as requested, with its files.
    pub fn boot_returned(awaited: &Awaited) -> Self {
        Self::from_outcome(AwaitedOutcome::Back, Some(awaited))
    }

    /// Returns the result if the staged deployment is running, but its run is incomplete.
    pub fn boot_unfinished(awaited: &Awaited) -> Self {
        Self::from_outcome(AwaitedOutcome::Arrived, Some(awaited))
    }

    /// Returns the result if the staged deployment was not entered, but the running one is complete.
    pub fn boot_settled(awaited: &Awaited, why: &str) -> Self {
        Self {
            failed: None,
            half: false,
            why: Some(why.to_owned()),
            ..Self::from_outcome(AwaitedOutcome::Settled, Some(awaited))
        }
    }

    /// Adds whether files of runs were restored.
    #[must_use]
    pub fn with_restored(self, restored: bool) -> Self {
        Self { restored, ..self }
    }

    /// Returns the result if another deployment booted.
    pub fn boot_failed(awaited: &Awaited) -> Self {
        Self::from_outcome(AwaitedOutcome::Failed, Some(awaited))
    }
}

/// Judges the boot that a run waits for, and takes the necessary action.
///
/// # Errors
/// The node cannot be read, or the action fails.
pub fn complete_boot(front: &dyn Front, root: &Root) -> Result<BootEnd> {
    Needs::COMPLETE.expect_root(root)?;
    let Some(awaited) = state::read_awaited(root)? else {
        return Ok(BootEnd::from_completed(Completed::nothing_awaited()));
    };
    let Some(opening) = wait_for_guard(front, root)? else {
        log::warn!("a trial is being reverted: its guard has the lock, and reboots the node");
        return Ok(BootEnd::from_completed(Completed::leaving_trial(&awaited)));
    };
    let way_back = on_disk::find_way_back(root)?;
    let change = opening.begin_change()?;
    // The guard may have completed it in the meantime.
    let Some(awaited) = state::read_awaited(root)? else {
        return Ok(BootEnd::from_completed(Completed::nothing_awaited()));
    };
    let booted = state::read_booted(root, change.runner())?;
    let boot = JudgedBoot {
        change: &change,
        boot: &booted.boot,
    };
    let completed = match (awaited.judge_boot(&booted), awaited.way) {
        (Arrival::NotYet, _) => not_yet(root, change.runner(), &awaited, &booted)?,
        (Arrival::Arrived, Way::Forward) => boot.complete_arrival(awaited)?,
        (Arrival::Arrived, Way::Back) => boot.complete_return(awaited)?,
        (Arrival::Stayed, Way::Forward) => boot.handle_return(awaited)?,
        (Arrival::Stayed, Way::Back) => {
            let why = boot.why_stayed(&awaited);
            boot.not_taken(awaited, why)?
        }
        (Arrival::Elsewhere(what), _) => boot.not_taken(awaited, what)?,
    };
    tell_journal(root, &completed);
    Ok(BootEnd {
        completed,
        is_arriving: way_back == UnderWay::Arriving,
    })
}

/// Takes the lock, and waits while the guard of a reverting trial holds it. In the previous deployment the guard holds it only
/// briefly, so the files of the other deployment must not be left in place because of that. Returns `None` if the guard holds the
/// lock until it has left the running deployment.
fn wait_for_guard<'a>(front: &'a dyn Front, root: &Root) -> Result<Option<Opening<'a>>> {
    let until = Instant::now() + LET_GUARD_END;
    let mut was_held_by_guard = false;
    loop {
        let held = match Opening::check_needs(front, root.open_again()?, &Needs::COMPLETE) {
            Err(error) if is_held(&error) => error,
            other => return other.map(Some),
        };
        match on_disk::find_way_back(root)? {
            UnderWay::Leaving => return Ok(None),
            UnderWay::None if !was_held_by_guard => return Err(held),
            _ if Instant::now() >= until => return Err(held),
            _ => {}
        }
        was_held_by_guard = true;
        thread::sleep(LOOK_AGAIN);
    }
}

/// Sends the result of an awaited boot to the journal.
fn tell_journal(root: &Root, completed: &Completed) {
    let event = match (completed.outcome, &completed.failed) {
        (AwaitedOutcome::Arrived | AwaitedOutcome::Back, None) => {
            NodeEvent::BootCompleted(completed.way)
        }
        (AwaitedOutcome::NotYet, _) => return,
        _ => NodeEvent::BootFailed(completed.way),
    };
    let config = completed.config.as_deref().unwrap_or_default();
    events::send_event(root, &event, config);
}

/// Returns the result before the boot: nothing is changed, only obstacles are reported.
fn not_yet(
    root: &Root,
    runner: &dyn CommandRunner,
    awaited: &Awaited,
    booted: &Booted,
) -> Result<Completed> {
    let history = state::summarise_runs(&transaction::read_history(root)?);
    let system = System::observe(root, &Host::observe(root)?, runner)?;
    if let System::Silent(why) = &system {
        log::warn!("it is unknown whether the next boot enters it: {why}");
    }
    let next = match system.facts() {
        Some(facts) => observe_next_boot(root, runner, facts, Some(awaited))?,
        None => None,
    };
    let scene = Scene {
        booted,
        next: next.as_ref().map(|next| &next.enters),
        history: &history,
        at_work: false,
    };
    let verdict = awaited.judge_scene(&scene);
    Ok(match verdict {
        Verdict::Failed => Completed::boot_failed(awaited),
        Verdict::CutOff | Verdict::Dropped | Verdict::Replaced(_) => {
            Completed::boot_failed(&Awaited {
                failed: Some(awaited.describe_boot(&verdict)),
                half: true,
                ..awaited.clone()
            })
        }
        _ => Completed::not_yet(awaited),
    })
}

/// Completes a run that was interrupted between the operating system and its files: the files are now written from the cache,
/// before anything reads the old ones (docs/explanation/operating-system.md).
fn bring_files(change: &NodeChange<'_>, awaited: &mut Awaited) -> Result<()> {
    let (root, runner) = (&change.root, change.runner());
    if !awaited.lacks_files(&state::summarise_runs(&transaction::read_history(root)?)) {
        return Ok(());
    }
    let name = awaited.config.name.clone();
    let again = mco_rescue(&format!("apply cached:{name}"));
    log::warn!("the files of {name} were not applied before the reboot; they are applied now");
    let cached = Some(format!("cached:{name}"));
    let session = Session::observe(
        root.open_again()?,
        runner,
        cached.as_deref(),
        Unnamed::Wanted,
    )?;
    let plan = session.plan_files(&PlanRequest {
        options: PlanOptions {
            files_only: true,
            ..PlanOptions::default()
        },
        ..PlanRequest::default()
    })?;
    if let Some(blocker) = plan.blockers.first() {
        bail!("the files of {name} cannot be applied: {blocker}. Next: {again}");
    }
    // Without jobs: the services start later.
    let work = RunWork {
        more: &LATER_IN_TRIAL,
        ..RunWork::new(change, &session.node, &plan, session.config_ref())
    };
    let id = transaction::next_run_id(root, change.lock())?;
    awaited.run = Some(id.clone());
    state::store_awaited(root, awaited)?;
    let done = work.transact_as(id);
    done.with_context(|| format!("next: {again}"))?;
    state::settle_files(root);
    tell_the_boot(root, runner, plan.steps.iter().map(|planned| &planned.step));
    Ok(())
}

/// Makes systemd reload unit files that it read before the change, and logs the affected units.
fn tell_the_boot<'a>(
    root: &Root,
    runner: &dyn CommandRunner,
    steps: impl Iterator<Item = &'a Step>,
) {
    let changed: Vec<RootPath> = steps.map(|step| step.path().clone()).collect();
    let is_there = |path: &RootPath| !matches!(root.exists(path), Ok(false));
    let started = at_boot(&changed, &is_there, runner);
    if started != StartedUnits::Unconcerned {
        log::warn!("{}", started.describe_units());
    }
}

/// A boot to be judged.
struct JudgedBoot<'a> {
    change: &'a NodeChange<'a>,
    boot: &'a BootIdentity,
}

impl<'a> JudgedBoot<'a> {
    fn root(&self) -> &'a Root {
        &self.change.root
    }

    fn runner(&self) -> &'a dyn CommandRunner {
        self.change.runner()
    }

    /// Completes a boot into the staged deployment, whose files may be missing.
    fn complete_arrival(&self, mut awaited: Awaited) -> Result<Completed> {
        let brought = bring_files(self.change, &mut awaited);
        let session = Session::observe(
            self.root().open_again()?,
            self.runner(),
            None,
            Unnamed::Recorded,
        )?;
        if let System::Silent(why) = &session.node.system {
            bail!(
                "the running system cannot be compared with {}: {why}. Next: {}",
                awaited.config.name,
                mco_rescue("complete")
            );
        }
        let (_, mut drifts) = session.compare_node();
        // The operating system is judged by the running deployment, not by the daemon's opinion of it.
        drifts.retain(|drift| !drift.is_of_the_os());
        let recorded = &session.chosen.config.name;
        let half = match brought {
            Err(error) => Some(format!("{error:#}")),
            Ok(()) if *recorded != awaited.config.name => {
                Some(format!("the node is recorded to be in {recorded}"))
            }
            Ok(()) => deployments::describe_half(self.root(), self.runner())?,
        };
        if let Some(words) = half {
            let failed = self.give_up(awaited, words, true)?;
            return Ok(Completed::boot_unfinished(&failed));
        }
        state::forget_awaited(self.root())?;
        let mut completed = Completed::boot_arrived(&awaited);
        let brings = session
            .node
            .system
            .facts()
            .map(|facts| &facts.image_arguments);
        if let Some(Ok(brings)) = brings {
            completed.image_arguments = brings.tokens().to_vec();
        }
        completed.failed = drifts.first().map(|first| {
            let left = count_noun(drifts.len(), "difference");
            format!("{left}, the first at {}", describe_drift(first))
        });
        Ok(completed)
    }

    /// Completes a requested return to the previous deployment: its files are restored too.
    fn complete_return(&self, awaited: Awaited) -> Result<Completed> {
        let history = state::summarise_runs(&transaction::read_history(self.root())?);
        let restored = match awaited.goes_back(&history) {
            GoesBack::Runs(runs) => self.revert_runs(&awaited, &runs)?,
            GoesBack::Superseded(_) => false,
        };
        let half = deployments::describe_half(self.root(), self.runner());
        let half = half.inspect_err(|_| {
            // The files are restored: the next attempt must not look for their run.
            if let Err(error) = state::store_awaited(self.root(), &without_files(awaited.clone())) {
                log::warn!("{error:#}");
            }
        });
        let completed = match half? {
            Some(words) => {
                let failed = self.give_up(awaited, words, true)?;
                Completed::boot_failed(&failed)
            }
            None => {
                state::forget_awaited(self.root())?;
                Completed::boot_returned(&awaited)
            }
        };
        Ok(completed.with_restored(restored))
    }

    /// Handles an unrequested return to the previous deployment: the files of the other one are reverted.
    fn handle_return(&self, awaited: Awaited) -> Result<Completed> {
        let history = state::summarise_runs(&transaction::read_history(self.root())?);
        match awaited.goes_back(&history) {
            GoesBack::Runs(runs) if runs.is_empty() && awaited.has_files() => {
                let why = "its files were reverted since".to_owned();
                self.not_taken(awaited, why)
            }
            GoesBack::Runs(runs) => {
                let why = self.why_stayed(&awaited);
                let restored = self.revert_runs(&awaited, &runs)?;
                let completed = self.not_taken(without_files(awaited), why)?;
                Ok(completed.with_restored(restored))
            }
            GoesBack::Superseded(config) => {
                let why = format!("{config} was applied since, so nothing was reverted");
                self.not_taken(awaited, why)
            }
        }
    }

    /// Reports once that the awaited deployment is not running; again only as long as operating system and files belong to
    /// different configs.
    fn not_taken(&self, awaited: Awaited, why: String) -> Result<Completed> {
        let half = deployments::describe_half(self.root(), self.runner())?;
        let said = awaited.failed.is_some();
        let superseded = awaited.has_files() && half.is_none();
        if half.is_none() && (said || superseded) {
            state::forget_awaited(self.root())?;
            return Ok(Completed::boot_settled(&awaited, &why));
        }
        let is_half = half.is_some();
        let why = half.map_or(why.clone(), |words| format!("{why}; {words}"));
        let failed = self.give_up(awaited, why, is_half)?;
        Ok(Completed::boot_failed(&failed))
    }

    /// Returns the reason why the previous deployment is running.
    fn why_stayed(&self, awaited: &Awaited) -> String {
        why_stayed(self.runner(), self.boot.is_soft_after(&awaited.boot))
    }

    /// Reverts runs; returns true if there was one. Nobody can be asked during a boot, so paths that were changed since are left as
    /// they are, and reported.
    fn revert_runs(&self, awaited: &Awaited, runs: &[String]) -> Result<bool> {
        if let Some(id) = awaited
            .run
            .as_ref()
            .filter(|_| runs.is_empty() && awaited.has_files())
        {
            log::warn!("the run {id} is not in the history any more; its files stay as they are");
        }
        let mut restored = false;
        for id in runs {
            recover_first(self.change, Direction::Forward)?;
            let mut history = transaction::read_history(self.root())?.into_iter();
            if let Some(run) = history.find(|run| run.id == *id) {
                self.take_run_back(run)?;
                restored = true;
            }
        }
        Ok(restored)
    }

    fn take_run_back(&self, run: FinishedRun) -> Result<()> {
        let config = run.config.clone();
        let wanted = RevertRequest {
            changed: ChangedSince::Leave,
            ..RevertRequest::default()
        };
        let back = RunRevert::prepare_revert(self.root(), self.runner(), run, &wanted)?;
        for notice in &back.plan.notices {
            log::warn!("{notice}");
        }
        if let Some(blocker) = back.plan.blockers.first() {
            bail!(
                "the files of {config} cannot be reverted: {blocker}. Next: {}",
                mco_rescue("rollback")
            );
        }
        // Nothing that reads the files is running yet.
        back.carry_out(self.change, &[])?;
        tell_the_boot(
            self.root(),
            self.runner(),
            back.plan.steps.iter().map(|planned| &planned.step),
        );
        Ok(())
    }

    fn give_up(&self, awaited: Awaited, why: String, half: bool) -> Result<Awaited> {
        let newest = transaction::read_history(self.root())?.into_iter().next();
        let failed = Awaited {
            boot: self.boot.clone(),
            // Missing files can still be written later.
            head: awaited
                .head
                .clone()
                .map(|_| newest.map(|run| run.id).unwrap_or_default()),
            failed: Some(why),
            half,
            ..awaited
        };
        state::store_awaited(self.root(), &failed)?;
        Ok(failed)
    }
}

/// Returns the awaited boot without its files: they are already reverted, and cannot be reverted again.
fn without_files(awaited: Awaited) -> Awaited {
    Awaited {
        run: None,
        files_after: None,
        earlier: Vec::new(),
        ..awaited
    }
}

fn describe_drift(drift: &Drift) -> String {
    format!("{}: {}", drift.subject, drift.detail)
}

/// Message if the deployment is still running because the reboot was a soft one.
const SOFT: &str = "the reboot was soft, so the previous kernel and deployment stayed; only a full reboot \
                    (SYSTEMCTL_SKIP_AUTO_SOFT_REBOOT=1 systemctl reboot) enters another boot entry";

/// Returns the reason why the previous deployment is running: ostree's message at shutdown, if the journal has it.
fn why_stayed(runner: &dyn CommandRunner, soft: bool) -> String {
    let answer = runner.run(&finalize_journal(soft));
    match answer.map(|answer| finalize_failure(&answer.stdout)) {
        Ok(Some(said)) => format!("the staged deployment was not finalized at shutdown: {said}"),
        _ if soft => SOFT.to_owned(),
        Ok(None) => "the previous deployment was booted again (the staged one was lost at a power cut, or another boot entry was chosen)".to_owned(),
        Err(error) => format!("the previous deployment was booted again; the reason is unknown ({error})"),
    }
}
