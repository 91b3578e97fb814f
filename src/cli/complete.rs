//! `complete`: after the boot that a run waits for, proves that what was staged runs; else brings the files back
//! to the deployment that came up instead, before anything reads them.

use std::thread;
use std::time::{Duration, Instant};

use crate::change::staging::state;
use crate::cli::ui::Ui;
use anyhow::{Context, Result, bail};

use super::Output;
use super::events;
use super::node_change::{Needs, NodeChange, Opening, is_held};
use super::recover::{at_boot, recover_first};
use super::session::{Session, Unnamed, open_root};
use super::taking_back::{TakeBack, TakingBack};
use super::trial::{self, UnderWay};
use super::work::RunWork;
use crate::base::error::ExitCode;
use crate::base::invocation::mco_rescue;
use crate::base::text::count_noun;
use crate::change::plan::{ChangedSince, FinishedRun, PlanOptions, PlanRequest, Step};
use crate::change::staging::awaited::{Arrival, Awaited, Booted, GoesBack, Scene, Verdict, Way};
use crate::change::staging::deployments;
use crate::change::staging::next_boot::observe_next_boot;
use crate::change::transaction::{self, Direction};
use crate::host::root::{Root, RootPath};
use crate::judge::drift::Drift;
use crate::node::boot::BootIdentity;
use crate::node::command::CommandRunner;
use crate::node::command::rpm_ostree::arguments::finalize_journal;
use crate::node::command::rpm_ostree::status::finalize_failure;
use crate::node::{Host, System};
use crate::report;
use crate::report::complete::{self, Completed};
use crate::report::events::NodeEvent;
use crate::report::recover::StartedUnits;
use crate::report::status::awaited_words;

/// Time for the guard of a trial. The unit has a minute more.
const LET_GUARD_END: Duration = Duration::from_secs(2 * 60);
/// Pause between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Runs `complete`.
pub(super) fn run(ui: &Ui<'_>) -> Result<ExitCode> {
    let root = open_root(ui)?;
    Needs::COMPLETE.expect_root(&root)?;
    let Some(awaited) = state::read_awaited(&root)? else {
        return say(ui, &Completed::nothing());
    };
    let Some(opening) = wait_for_guard(ui, &root)? else {
        log::warn!("a trial goes back: its guard has the lock, and reboots the node");
        return say(ui, &Completed::leaves(&awaited));
    };
    let way_back = trial::find_way_back(&root)?;
    let change = opening.begin()?;
    // The guard may have done it meanwhile.
    let Some(awaited) = state::read_awaited(&root)? else {
        return say(ui, &Completed::nothing());
    };
    let booted = state::read_booted(&root, ui.runner)?;
    let boot = JudgedBoot {
        change: &change,
        boot: &booted.boot,
    };
    let completed = match (awaited.judge_boot(&booted), awaited.way) {
        (Arrival::NotYet, _) => not_yet(&root, ui.runner, &awaited, &booted)?,
        (Arrival::Arrived, Way::Forward) => boot.arrived(awaited)?,
        (Arrival::Arrived, Way::Back) => boot.back(awaited)?,
        (Arrival::Stayed, Way::Forward) => boot.stayed(awaited)?,
        (Arrival::Stayed, Way::Back) => {
            let why = boot.why_stayed(&awaited);
            boot.not_taken(awaited, why)?
        }
        (Arrival::Elsewhere(what), _) => boot.not_taken(awaited, what)?,
    };
    tell_journal(&root, &completed);
    let code = say(ui, &completed)?;
    // The trial says why it went back; this command did its part.
    Ok(match way_back {
        UnderWay::Arriving if !completed.is_half() => ExitCode::Done,
        _ => code,
    })
}

/// Takes the lock. The guard of a trial that goes back may have it: for moments in the deployment from before, which is no
/// reason to leave files of the other one there. `None`: it has the lock until it has left the deployment that runs.
fn wait_for_guard<'a>(ui: &'a Ui<'a>, root: &Root) -> Result<Option<Opening<'a>>> {
    let until = Instant::now() + LET_GUARD_END;
    let mut was_held_by_guard = false;
    loop {
        let held = match Opening::of(ui, root.again()?, &Needs::COMPLETE) {
            Err(error) if is_held(&error) => error,
            other => return other.map(Some),
        };
        match trial::find_way_back(root)? {
            UnderWay::Leaving => return Ok(None),
            UnderWay::None if !was_held_by_guard => return Err(held),
            _ if Instant::now() >= until => return Err(held),
            _ => {}
        }
        was_held_by_guard = true;
        thread::sleep(LOOK_AGAIN);
    }
}

/// The journal gets the result of an awaited boot.
fn tell_journal(root: &Root, completed: &Completed) {
    let event = match (completed.outcome, &completed.failed) {
        ("arrived" | "back", None) => NodeEvent::BootCompleted(completed.way),
        ("not-yet", _) => return,
        _ => NodeEvent::BootFailed(completed.way),
    };
    let config = completed.config.as_deref().unwrap_or_default();
    events::send(root, &event, config);
}

/// Nothing is done before the boot; what stands in its way is said.
fn not_yet(
    root: &Root,
    runner: &dyn CommandRunner,
    awaited: &Awaited,
    booted: &Booted,
) -> Result<Completed> {
    let history = state::summarise_runs(&transaction::read_history(root)?);
    let system = System::observe(root, &Host::observe(root)?, runner)?;
    if let System::Silent(why) = &system {
        log::warn!("it is not known if the next boot enters it: {why}");
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
    let verdict = awaited.verdict(&scene);
    Ok(match verdict {
        Verdict::Failed => Completed::failed(awaited),
        Verdict::CutOff | Verdict::Dropped | Verdict::Replaced(_) => Completed::failed(&Awaited {
            failed: Some(awaited_words(awaited, &verdict)),
            half: true,
            ..awaited.clone()
        }),
        _ => Completed::not_yet(awaited),
    })
}

fn say(ui: &Ui<'_>, completed: &Completed) -> Result<ExitCode> {
    let text = match ui.output {
        Output::Json => complete::to_json(completed)?,
        Output::Text => complete::to_text(completed),
    };
    report::print_result(text.as_bytes());
    Ok(if completed.failed.is_some() {
        ExitCode::Drift
    } else {
        ExitCode::Done
    })
}

/// The run was cut off between the operating system and its files: they come now, out of the cache, before anything
/// reads those from before (docs/explanation/operating-system.md).
fn bring_files(change: &NodeChange<'_>, awaited: &mut Awaited) -> Result<()> {
    let (root, runner) = (&change.root, change.runner());
    if !awaited.lacks_files(&state::summarise_runs(&transaction::read_history(root)?)) {
        return Ok(());
    }
    let name = awaited.config.name.clone();
    let again = mco_rescue(&format!("apply cached:{name}"));
    log::warn!("the files of {name} did not come before the reboot; they come now");
    let cached = Some(format!("cached:{name}"));
    let session = Session::observe(root.again()?, runner, cached.as_deref(), Unnamed::Wanted)?;
    let plan = session.plan_files(&PlanRequest {
        options: PlanOptions {
            files_only: true,
            ..PlanOptions::default()
        },
        ..PlanRequest::default()
    })?;
    if let Some(blocker) = plan.blockers.first() {
        let (subject, why) = (&blocker.subject, &blocker.message);
        bail!("the files of {name} cannot come: {subject}: {why}. Next: {again}");
    }
    let work = RunWork {
        change,
        node: &session.node,
        plan: &plan,
        config: session.config_ref(),
        undoes: None,
        more: &trial::LATER,
        // The services start after this.
        jobs: &[],
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

/// systemd has read the units from before.
fn tell_the_boot<'a>(
    root: &Root,
    runner: &dyn CommandRunner,
    steps: impl Iterator<Item = &'a Step>,
) {
    let changed: Vec<RootPath> = steps.map(|step| step.path().clone()).collect();
    let is_there = |path: &RootPath| !matches!(root.exists(path), Ok(false));
    let started = at_boot(&changed, &is_there, runner);
    if started != StartedUnits::Unconcerned {
        log::warn!("{}", report::recover::units_text(&started));
    }
}

/// A boot that is judged.
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

    /// The deployment runs; the files have come along with it or not.
    fn arrived(&self, mut awaited: Awaited) -> Result<Completed> {
        let brought = bring_files(self.change, &mut awaited);
        let session =
            Session::observe(self.root().again()?, self.runner(), None, Unnamed::Recorded)?;
        if let System::Silent(why) = &session.node.system {
            bail!(
                "what runs cannot be compared with {}: {why}. Next: {}",
                awaited.config.name,
                mco_rescue("complete")
            );
        }
        let (_, mut drifts) = session.compare();
        // The operating system is judged by what runs, and not by what the daemon finds of it.
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
            return Ok(Completed::half(&failed));
        }
        state::forget_awaited(self.root())?;
        let mut completed = Completed::arrived(&awaited);
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
            format!("{left}, the first at {}", differs(first))
        });
        Ok(completed)
    }

    /// The deployment from before came up again, as asked: its files come back too.
    fn back(&self, awaited: Awaited) -> Result<Completed> {
        let history = state::summarise_runs(&transaction::read_history(self.root())?);
        let restored = match awaited.goes_back(&history) {
            GoesBack::Runs(runs) => self.take_back(&awaited, &runs)?,
            GoesBack::Superseded(_) => false,
        };
        let half = deployments::describe_half(self.root(), self.runner());
        let half = half.inspect_err(|_| {
            // The files are back: the next attempt must not look for their run.
            if let Err(error) = state::store_awaited(self.root(), &without_files(awaited.clone())) {
                log::warn!("{error:#}");
            }
        });
        let completed = match half? {
            Some(words) => {
                let failed = self.give_up(awaited, words, true)?;
                Completed::failed(&failed)
            }
            None => {
                state::forget_awaited(self.root())?;
                Completed::back(&awaited)
            }
        };
        Ok(completed.with_restored(restored))
    }

    /// The deployment from before came up, not as asked: files that came with the other one go back.
    fn stayed(&self, awaited: Awaited) -> Result<Completed> {
        let history = state::summarise_runs(&transaction::read_history(self.root())?);
        match awaited.goes_back(&history) {
            GoesBack::Runs(runs) if runs.is_empty() && awaited.has_files() => {
                let why = "its files were taken back since".to_owned();
                self.not_taken(awaited, why)
            }
            GoesBack::Runs(runs) => {
                let why = self.why_stayed(&awaited);
                let restored = self.take_back(&awaited, &runs)?;
                let completed = self.not_taken(without_files(awaited), why)?;
                Ok(completed.with_restored(restored))
            }
            GoesBack::Superseded(config) => {
                let why = format!("{config} was applied since, so nothing was taken back");
                self.not_taken(awaited, why)
            }
        }
    }

    /// Reports once that the awaited deployment does not run, and then only while the node is a half.
    fn not_taken(&self, awaited: Awaited, why: String) -> Result<Completed> {
        let half = deployments::describe_half(self.root(), self.runner())?;
        let said = awaited.failed.is_some();
        let superseded = awaited.has_files() && half.is_none();
        if half.is_none() && (said || superseded) {
            state::forget_awaited(self.root())?;
            return Ok(Completed::settled(&awaited, &why));
        }
        let is_half = half.is_some();
        let why = half.map_or(why.clone(), |words| format!("{why}; {words}"));
        let failed = self.give_up(awaited, why, is_half)?;
        Ok(Completed::failed(&failed))
    }

    /// Returns the reason why the deployment from before runs.
    fn why_stayed(&self, awaited: &Awaited) -> String {
        why_stayed(self.runner(), self.boot.is_soft_after(&awaited.boot))
    }

    /// Takes runs back; returns true if there was one. Asking is not possible at boot: what was changed since stays, and is said.
    fn take_back(&self, awaited: &Awaited, runs: &[String]) -> Result<bool> {
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
        let wanted = TakeBack {
            changed: ChangedSince::Leave,
            ..TakeBack::default()
        };
        let back = TakingBack::prepare(self.root(), self.runner(), run, &wanted)?;
        for notice in &back.plan.notices {
            log::warn!("{}: {}", notice.subject, notice.message);
        }
        if let Some(blocker) = back.plan.blockers.first() {
            bail!(
                "the files of {config} cannot be taken back: {}: {}. Next: {}",
                blocker.subject,
                blocker.message,
                mco_rescue("rollback")
            );
        }
        // Nothing that reads them runs yet.
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
            // Files that never came can still come.
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

/// What is awaited without its files: they are gone, and cannot be taken back again.
fn without_files(awaited: Awaited) -> Awaited {
    Awaited {
        run: None,
        files_after: None,
        earlier: Vec::new(),
        ..awaited
    }
}

fn differs(drift: &Drift) -> String {
    format!("{}: {}", drift.subject, drift.detail)
}

/// Said where a soft reboot did not leave the deployment.
const SOFT: &str = "the reboot was soft, so the kernel and the deployment from before stayed; only a full reboot \
                    (SYSTEMCTL_SKIP_AUTO_SOFT_REBOOT=1 systemctl reboot) enters another boot entry";

/// Why the deployment from before runs: what ostree said when the system went down, where the journal has it.
fn why_stayed(runner: &dyn CommandRunner, soft: bool) -> String {
    let answer = runner.run(&finalize_journal(soft));
    match answer.map(|answer| finalize_failure(&answer.stdout)) {
        Ok(Some(said)) => format!("the staged deployment was not finalized at shutdown: {said}"),
        _ if soft => SOFT.to_owned(),
        Ok(None) => "the deployment from before was booted again (the staged one was lost at a power cut, or another boot entry was chosen)".to_owned(),
        Err(error) => format!("the deployment from before was booted again; why is not known ({error})"),
    }
}
