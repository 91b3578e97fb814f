//! `rollback`: the last finished run taken back, through the same transaction.

use crate::change::staging::state;
use crate::cli::ui::Ui;

use anyhow::{Context, Result, anyhow, bail};

use super::install::refuse_without_completion;
use super::kept;
use super::node_change::{Ending, Needs, NodeChange, Opening};
use super::recover::recover_first;
use super::session::open_root;
use super::taking_back::{TakeBack, TakingBack, before, observe_run, origin};
use super::trial::{self, RunningTrial, TrialRequest};
use super::{Output, RollbackArgs, keys, machine, policies};
use crate::base::error::{self, Changed, ExitCode, RunError};
use crate::base::invocation::{mco_rescue, whole_command};
use crate::base::notice::Notice;
use crate::base::text::count_noun;
use crate::change::plan::{Allowed, ChangedSince, FinishedRun, Plan};
use crate::change::staging::awaited::{Awaited, Leaving, OsRun, Ran};
use crate::change::staging::deployments::{self, WayBack};
use crate::change::staging::pins;
use crate::change::staging::reboots;
use crate::change::transaction::{self, Direction, Pending};
use crate::change::trial::store::read_trial;
use crate::formats::checkpoint::kubernetes_minor;
use crate::host::root::Root;
use crate::host::sys::signals::DeferredSignals;
use crate::judge::daemon::annotations;
use crate::node::boot::BootIdentity;
use crate::node::command::CommandRunner;
use crate::node::command::job::Job;
use crate::node::host::systemd_runs;
use crate::node::{Host, OsRelease, Records};
use crate::node::{deploy_directories, kubelet_state};
use crate::report;
use crate::report::plan::Heading;
use crate::report::question;
use crate::report::reboot::RebootReport;
use crate::report::rollback::RollbackEnd;

/// Refusal of a trial that is more than that.
const ONE_RUN: &str = "--try takes back one run of files alone: add --files-only, or leave --to out. Nothing was changed";

/// Runs `rollback`.
pub(super) fn run(ui: &Ui<'_>, args: &RollbackArgs) -> Result<ExitCode> {
    let root = open_root(ui)?;
    if args.list {
        return kept::list(ui, &root);
    }
    let meant = args.guards.not_a_node;
    if read_trial(&root)?.is_some() {
        let needs = Needs::ROLLBACK_OF_TRIAL.meant(meant);
        let change = Opening::of(ui, root.again()?, &needs)?.begin()?;
        if let Some(code) = take_trial_back(change, args)? {
            return Ok(code);
        }
    }
    if args.if_done && transaction::find_pending(&root)? != Pending::Nothing {
        // A later start of the service finds it ended.
        return Ok(ExitCode::Done);
    }
    let opening = Opening::of(ui, root, &Needs::ROLLBACK.meant(meant))?;
    opening.read_first(|root, _| {
        let history = transaction::read_history(root)?;
        kept::up_to(root, &history, args.to.as_deref())
    })?;
    let change = opening.begin()?;
    if change.was_taken_back && args.to.is_none() && !args.forget {
        // That was what is left to take back.
        return change.finish(Ending::of(ExitCode::Done));
    }
    if args.forget {
        return forget(ui, &change.root, args.if_done);
    }
    let whole = !args.files_only && change.root.is_live();
    if whole && let Some((awaited, leaving)) = unfinished(&change.root, ui.runner)? {
        return leave_staged(change, args, awaited, leaving);
    }
    let mut back = GoingBack::choose(&change, args, whole)?;
    let heading = heading(&change.root, &back.back.run)?;
    back.show_and_ask(&change, args, &heading)?;
    back.carry_out(change, args)
}

/// Takes the trial that runs back; `None` if it has ended meanwhile.
fn take_trial_back(change: NodeChange<'_>, args: &RollbackArgs) -> Result<Option<ExitCode>> {
    if read_trial(&change.root)?.is_none() {
        return Ok(None);
    }
    if args.if_done {
        return Ok(Some(ExitCode::Done));
    }
    if args.trial.window.is_some() || args.forget || args.to.is_some() {
        trial::refuse_during_trial(&change.root)?;
    }
    trial::take_back_now(change)
}

/// Goes back from what was staged, where the files of that run did not come, or it has none.
fn leave_staged(
    change: NodeChange<'_>,
    args: &RollbackArgs,
    awaited: Awaited,
    leaving: Leaving,
) -> Result<ExitCode> {
    if args.to.is_some() {
        bail!(
            "what was staged for {} has to go first. Nothing was changed. Next: {}, then {}",
            awaited.config.name,
            mco_rescue("rollback"),
            whole_command()
        );
    }
    if args.trial.window.is_some() {
        bail!("{ONE_RUN}");
    }
    let way = Together {
        run: Ran {
            id: String::new(),
            config: awaited.config.name,
        },
        leaving,
    };
    if change.ui.output == Output::Text {
        let what = leaves(&way.run.config, &way.leaving);
        report::print(format!("Operating system:\n  - {what}\n\n").as_bytes())?;
    }
    way.ensure_completion(change.runner(), &change.root, args)?;
    change.ui.confirm("Go back to before it?")?;
    way.leave(change, args)
}

/// The runs that go back, and what that takes.
struct GoingBack {
    /// The newest of them.
    back: TakingBack,
    /// Those before it that were asked for, the newest first.
    older: Vec<FinishedRun>,
    /// The operating system that goes back with them.
    way: Option<Together>,
    /// The jobs of the running system.
    jobs: Vec<Job>,
}

impl GoingBack {
    /// Chooses the runs, and plans.
    fn choose(change: &NodeChange<'_>, args: &RollbackArgs, whole: bool) -> Result<Self> {
        let (root, runner) = (&change.root, change.runner());
        let (run, older) = choose_runs(root, args)?;
        let is_tried = args.trial.window.is_some();
        let os_run = state::find_os_run(root, &run.id)?.filter(|_| whole);
        if is_tried && (os_run.is_some() || !older.is_empty()) {
            bail!("{ONE_RUN}");
        }
        let way = os_run.map(|os_run| Together::of(root, runner, &run, os_run));
        let way = way.transpose()?;
        let together = way.as_ref().map_or(0, |way| way.earlier().len());
        if args.to.is_some() {
            kept::separate_systems(root, &run, &older, together, whole)?;
        }
        let mut older_runs = Vec::new();
        if older.len() > together {
            for run in &older {
                older_runs.push((run.clone(), observe_run(root, runner, run)?));
            }
        }
        let mut jobs = match args.no_actions || !systemd_runs(root) {
            true => Vec::new(),
            false => run.jobs_back(),
        };
        let wanted = TakeBack {
            changed: changed_since(args),
            allowed: allowed(change, args, &run)?,
            older: &older_runs,
            together,
            jobs: &jobs,
            keeps_history: is_tried,
        };
        let mut back = TakingBack::prepare(root, runner, run, &wanted)?;
        if let Some(way) = &way {
            let notices = kubelet_notices(root, &way.leaving.to).unwrap_or_default();
            back.plan.notices.extend(notices);
        }
        if is_tried {
            jobs = jobs_of_trial(change, args, &mut back.plan, jobs)?;
        }
        Ok(Self {
            back,
            older,
            way,
            jobs,
        })
    }

    fn show_and_ask(
        &mut self,
        change: &NodeChange<'_>,
        args: &RollbackArgs,
        heading: &Heading,
    ) -> Result<()> {
        let (ui, run, plan) = (change.ui, &self.back.run, &self.back.plan);
        if ui.output == Output::Text || !plan.blockers.is_empty() {
            show(ui, &change.root, heading, plan)?;
        }
        if !plan.blockers.is_empty() {
            bail!(
                "refusing to take {} back: see the blockers above; nothing was changed{}",
                run.config,
                report::plan::blockers_again(plan)
            );
        }
        if let Some(way) = &self.way {
            way.ensure_completion(change.runner(), &change.root, args)?;
        }
        ui.confirm(&format!(
            "{}: back to before {}: {}{}. Take {} back?",
            question::ask_for_node(heading),
            self.older.last().unwrap_or(run).config,
            question::ask_for_changes(plan),
            match self.older.len() {
                0 => String::new(),
                more => format!(", and {} before it", count_noun(more, "run")),
            },
            if self.older.is_empty() {
                "this run"
            } else {
                "these runs"
            },
        ))
    }

    fn carry_out(self, change: NodeChange<'_>, args: &RollbackArgs) -> Result<ExitCode> {
        let Some(way) = &self.way else {
            return self.take_files_back(change, args);
        };
        let (root, config) = (&change.root, self.back.run.config.clone());
        match deployments::go_back(root, change.runner(), &way.leaving, &config)? {
            WayBack::NextBoot => next_boot(change, &way.run, args),
            WayBack::StillHere => {
                error::note_changed(Changed::Part);
                let taken = self.take_files_back(change, args);
                taken.map_err(|error| without_staged(error, &config))
            }
        }
    }

    /// Takes the files back while the node runs.
    fn take_files_back(self, change: NodeChange<'_>, args: &RollbackArgs) -> Result<ExitCode> {
        let (root, runner, run) = (&change.root, change.runner(), &self.back.run);
        let request = TrialRequest {
            forgets: vec![run.id.clone()],
            jobs: self.jobs.clone(),
            ..TrialRequest::of_plan(
                &args.trial,
                &format!("rollback of {}", run.config),
                &self.back.plan,
                false,
            )
        };
        let earlier = self.earlier(root)?;
        // Between two runs a signal must not end the program without a word on what went back.
        let mut signals = (!earlier.is_empty()).then(DeferredSignals::new);
        reboots::note_undone(root, change.runner(), run)?;
        let tried = RunningTrial::begin(&change, request)?;
        if let Err(error) = self.back.carry_out(&change, &self.jobs) {
            hold_signals(signals.as_mut());
            return Err(trial::fail(tried, change, error));
        }
        if tried.is_some() {
            return change.finish(Ending {
                tried,
                ..Ending::of(ExitCode::Done)
            });
        }
        let gone = vec![run.config.clone()];
        let more = take_back(&change, args, gone, &earlier);
        let more = more.inspect_err(|_| hold_signals(signals.as_mut()))?;
        match &self.way {
            // What was staged is dropped, and its files are back: nothing of it can come any more, whatever an engine says.
            Some(_) => state::forget_awaited(root)?,
            None => deployments::settle_awaited(root, runner),
        }
        let last = self.older.last().unwrap_or(run);
        let ran = Ran {
            id: last.id.clone(),
            config: last.config.clone(),
        };
        end(change, &ran, self.back.plan.steps.len() + more)
    }

    /// The runs that go back after the newest one.
    fn earlier(&self, root: &Root) -> Result<Vec<Ran>> {
        let together = self.way.as_ref().map_or(&[][..], |way| way.earlier());
        let mut all = find_runs(root, together)?;
        let asked_for = self.older.iter().skip(together.len());
        all.extend(asked_for.map(|run| Ran {
            id: run.id.clone(),
            config: run.config.clone(),
        }));
        Ok(all)
    }
}

/// The error of files that did not go back, after what was staged with them is gone.
fn without_staged(error: anyhow::Error, config: &str) -> anyhow::Error {
    let gone = format!("what was staged for {config} is dropped, but its files are still in place");
    match format!("{error:#}") {
        said if said.contains("Next: ") => error.context(gone),
        said => anyhow!("{gone}: {said}. Next: {}", mco_rescue("rollback")),
    }
}

/// The newest run, and those before it that were asked for.
fn choose_runs(root: &Root, args: &RollbackArgs) -> Result<(FinishedRun, Vec<FinishedRun>)> {
    let mut runs = transaction::read_history(root)?;
    if runs.is_empty() {
        bail!(
            "no finished run is in the history, so there is nothing to go back to. \
             Apply the config that the node should be in: {}",
            mco_rescue("apply CONFIG")
        );
    }
    let older = kept::up_to(root, &runs, args.to.as_deref())?;
    let run = runs.remove(0);
    runs.truncate(older);
    Ok((run, runs))
}

/// What may be passed over.
fn allowed(change: &NodeChange<'_>, args: &RollbackArgs, run: &FinishedRun) -> Result<Allowed> {
    let (root, runner) = (&change.root, change.runner());
    let ours = deployments::is_staged_by_us(root, runner)?;
    Ok(Allowed {
        ours,
        leaves_staged: args.files_only && !ours,
        has_files_only: true,
        staged: !args.files_only && deployments::is_staged_by_run(root, runner, &run.id)?,
        ..args.guards.allowed()
    })
}

/// Adds to the plan what a trial of it means, and returns the jobs: those of the trial come first.
fn jobs_of_trial(
    change: &NodeChange<'_>,
    args: &RollbackArgs,
    plan: &mut Plan,
    jobs: Vec<Job>,
) -> Result<Vec<Job>> {
    let root = &change.root;
    trial::facts::add_to_plan(root, &args.trial, plan, false)?;
    let policies = policies::cluster(root, None)?.policies;
    let activated = match args.no_actions {
        true => Vec::new(),
        false => trial::facts::activate(change.ui, root, &args.trial, &policies, plan, false)?,
    };
    let others = jobs.into_iter().filter(|job| !activated.contains(job));
    Ok(activated.iter().cloned().chain(others).collect())
}

fn changed_since(args: &RollbackArgs) -> ChangedSince {
    match args.leave_changed {
        true => ChangedSince::Leave,
        false => ChangedSince::Refuse,
    }
}

/// Returns a notice for each checkpoint file that the kubelet of the deployment from before may refuse. It is a warning only:
/// nothing that cannot be read stands against going back.
fn kubelet_notices(root: &Root, deployment: &str) -> Result<Vec<Notice>> {
    let minor = |root: &Root| -> Result<Option<u32>> {
        let release = OsRelease::read(root)?;
        Ok(kubernetes_minor(release.get("OPENSHIFT_VERSION")))
    };
    let mut all = deploy_directories::list_deploy_directories(root)?.into_iter();
    let Some(directory) = all.find(|directory| directory.name == deployment) else {
        return Ok(Vec::new());
    };
    let (Some(from), Some(to)) = (minor(root)?, minor(&root.within(&directory.path)?)?) else {
        return Ok(Vec::new());
    };
    let kept = kubelet_state::kept_over_a_boot(root)?.into_iter();
    let broken = kept.filter(|file| file.breaks_between(from, to));
    let notices = broken.map(|file| Notice {
        subject: "kubelet".to_owned(),
        message: format!(
            "{}. {}",
            file.describe_break(from, to, "the deployment from before"),
            file.advise_after_break()
        ),
    });
    Ok(notices.collect())
}

fn said<T>(error: &dyn std::fmt::Display, instead: T) -> T {
    log::warn!(
        "the run is taken back, but {error:#}. Next: {}",
        mco_rescue("status")
    );
    instead
}

/// Says what was taken back.
fn end(change: NodeChange<'_>, run: &Ran, steps: usize) -> Result<ExitCode> {
    let (ui, root) = (change.ui, &change.root);
    // All is in place: what cannot be read now does not change that.
    let left =
        transaction::read_history(root).map_or_else(|error| said(&error, 0), |all| all.len());
    let recorded = recorded(root).unwrap_or_else(|error| said(&error, None));
    let reboot =
        reboots::read_needs(root, ui.runner).unwrap_or_else(|error| said(&error, Vec::new()));
    let end = RollbackEnd {
        run,
        recorded: recorded.as_deref(),
        steps,
        left,
        reboot: RebootReport::of(&reboot),
    };
    let text = match ui.output {
        Output::Json => report::rollback::to_json(&end)?,
        Output::Text => report::rollback::to_text(&end),
    };
    report::print_result(text.as_bytes());
    change.finish(Ending::of(ExitCode::Done))
}

/// The last thing that was done, where that staged something and its files did not come, or it has none.
fn unfinished(root: &Root, runner: &dyn CommandRunner) -> Result<Option<(Awaited, Leaving)>> {
    let Some(awaited) = state::read_awaited(root)? else {
        return Ok(None);
    };
    let history = state::summarise_runs(&transaction::read_history(root)?);
    let leaving = awaited.leaving(&state::read_booted(root, runner)?, &history);
    Ok(leaving.map(|leaving| (awaited, leaving)))
}

fn leaves(config: &str, leaving: &Leaving) -> String {
    let short = leaving.to.get(..12).unwrap_or(&leaving.to);
    let files = match leaving.runs.len() {
        0 => "no file changes".to_owned(),
        number => format!("the files of {} go back with it", count_noun(number, "run")),
    };
    format!(
        "back from what was staged for {config}\n    to the deployment from before ({short}); {files}"
    )
}

/// An operating system, and runs of files, that are taken back together.
struct Together {
    run: Ran,
    leaving: Leaving,
}

impl Together {
    /// The newest run, with those before it whose operating system never ran.
    fn of(
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

    /// Files that go back at the next boot need the unit that completes.
    fn ensure_completion(
        &self,
        runner: &dyn CommandRunner,
        root: &Root,
        args: &RollbackArgs,
    ) -> Result<()> {
        let runs = state::read_booted(root, runner)?.deployment;
        if runs.as_ref() == Some(&self.leaving.to) {
            return Ok(());
        }
        refuse_without_completion(root, args.guards.complete_by_hand)
    }

    /// Those before the newest.
    fn earlier(&self) -> &[String] {
        self.leaving.runs.get(1..).unwrap_or_default()
    }

    /// Goes back where the last run has no files of its own.
    fn leave(&self, change: NodeChange<'_>, args: &RollbackArgs) -> Result<ExitCode> {
        let (root, runner) = (&change.root, change.runner());
        if let WayBack::NextBoot =
            deployments::go_back(root, runner, &self.leaving, &self.run.config)?
        {
            return next_boot(change, &self.run, args);
        }
        error::note_changed(Changed::Part);
        let runs = find_runs(root, &self.leaving.runs)?;
        let mut signals = DeferredSignals::new();
        let gone = vec![format!("the operating system of {}", self.run.config)];
        let steps = take_back(&change, args, gone, &runs);
        let steps = steps.inspect_err(|_| hold_signals(Some(&mut signals)))?;
        // Nothing of it can come any more, whatever an engine says.
        state::forget_awaited(root)?;
        end(change, &self.run, steps)
    }
}

/// The runs of the history with these ids, in their order; a run that is not kept any more has nothing to take back.
fn find_runs(root: &Root, ids: &[String]) -> Result<Vec<Ran>> {
    let history = transaction::read_history(root)?;
    let find = |id: &String| history.iter().find(|run| run.id == *id);
    let found = ids.iter().filter_map(find).map(|run| Ran {
        id: run.id.clone(),
        config: run.config.clone(),
    });
    Ok(found.collect())
}

/// A signal that waits does not end the program before its error is printed.
fn hold_signals(signals: Option<&mut DeferredSignals>) {
    if let Some(signals) = signals
        && signals.waiting().is_some()
    {
        signals.hold_to_the_end();
    }
}

/// Takes runs back after what has `gone` back already, the newest first; returns the number of steps. Each run is whole by
/// itself, so an error says what went back and what did not.
fn take_back(
    change: &NodeChange<'_>,
    args: &RollbackArgs,
    mut gone: Vec<String>,
    runs: &[Ran],
) -> Result<usize> {
    let signals = DeferredSignals::new();
    let mut steps = 0;
    for (index, run) in runs.iter().enumerate() {
        let taken = match signals.waiting() {
            Some(signal) => Err(anyhow!("ended by {signal}")),
            None => take_one_back(change, args, run),
        };
        let left = runs.get(index..).unwrap_or_default();
        steps += taken.map_err(|error| stopped_between(args, &error, &gone, left))?;
        gone.push(run.config.clone());
    }
    Ok(steps)
}

fn take_one_back(change: &NodeChange<'_>, args: &RollbackArgs, run: &Ran) -> Result<usize> {
    let (root, runner) = (&change.root, change.runner());
    // What the run before left behind would still be the newest of the history.
    recover_first(change, Direction::Forward)?;
    let mut history = transaction::read_history(root)?.into_iter();
    let Some(found) = history.next().filter(|found| found.id == run.id) else {
        bail!("the run to {} is not the newest of the history", run.config);
    };
    let wanted = TakeBack {
        changed: changed_since(args),
        allowed: args.guards.allowed(),
        ..TakeBack::default()
    };
    let back = TakingBack::prepare(root, runner, found, &wanted)?;
    if let Some(blocker) = back.plan.blockers.first() {
        bail!("{}: {}", blocker.subject, blocker.message);
    }
    reboots::note_undone(root, runner, &back.run)?;
    back.carry_out(change, &[])?;
    Ok(back.plan.steps.len())
}

/// The error between two runs that go back: what went back, what did not, and the command that goes on.
fn stopped_between(
    args: &RollbackArgs,
    error: &anyhow::Error,
    gone: &[String],
    left: &[Ran],
) -> anyhow::Error {
    let mut next = format!(
        "rollback --to {}",
        left.last().map(|run| run.id.as_str()).unwrap_or_default()
    );
    for (is_given, option) in [
        (args.files_only, " --files-only"),
        (args.leave_changed, " --leave-changed"),
    ] {
        next += if is_given { option } else { "" };
    }
    let names: Vec<&str> = left.iter().map(|run| run.config.as_str()).collect();
    let then = match error.downcast_ref() {
        Some(RunError::Incomplete(_)) => "Then",
        _ => "Next",
    };
    let said = format!(
        "{} went back, {} did not: {error:#}. {then}: {}",
        gone.join(", "),
        names.join(", "),
        mco_rescue(&next)
    );
    RunError::Incomplete(said).into()
}

/// Nothing goes back any more; the room is free for others.
fn forget(ui: &Ui<'_>, root: &Root, if_done: bool) -> Result<ExitCode> {
    if !root.is_live() {
        bail!("only the running node can let its deployments go; run this on it");
    }
    if if_done && (pins::read_pins(root)?.is_empty() || !is_done(root, ui.runner)?) {
        return Ok(ExitCode::Done);
    }
    let gone = pins::unpin_deployments(root, ui.runner, |_| true)?;
    state::forget_failure(root)?;
    let text = match ui.output {
        Output::Json => report::rollback::forgotten_json(&gone)?,
        Output::Text => report::rollback::forgotten_text(&gone, Host::observe(root)?.engine),
    };
    report::print_result(text.as_bytes());
    Ok(ExitCode::Done)
}

/// What the service that fetches has heard is of this boot, or too old.
fn is_done(root: &Root, runner: &dyn CommandRunner) -> Result<bool> {
    let Some(annotations) = annotations::read_annotations(root)? else {
        return Ok(false);
    };
    let records = Records::read(root).context("reading the daemon's records")?;
    let deployments = deployments::read_deployments(root, runner);
    let deployments = deployments.map_err(|cause| deployments::said(root, &cause))?;
    // A soft reboot keeps the time at which the kernel began.
    let kernel = sysinfo::System::boot_time().unwrap_or(u64::MAX);
    let boot = BootIdentity::observe(root, Host::observe(root)?.deployment, runner);
    let since = boot.map_or(kernel, |boot| boot.began(kernel));
    Ok(annotations.seen > since && pins::is_done(&annotations, &records, &deployments))
}

/// The files go back where their deployment runs again; here they belong to what is left.
fn next_boot(change: NodeChange<'_>, run: &Ran, args: &RollbackArgs) -> Result<ExitCode> {
    let text = match change.ui.output {
        Output::Json => report::rollback::to_json(&RollbackEnd {
            run,
            recorded: None,
            steps: 0,
            left: 0,
            reboot: None,
        })?,
        Output::Text => report::rollback::awaits_text(run),
    };
    report::print_result(text.as_bytes());
    change.finish(Ending {
        reboot: args.reboot.then_some(args.guards.ignore_quorum),
        ..Ending::of(ExitCode::Done)
    })
}

fn show(ui: &Ui<'_>, root: &Root, heading: &Heading, plan: &Plan) -> Result<()> {
    let diffs = keys::diffs(root, plan);
    let text = match ui.output {
        Output::Json => report::plan::to_json(heading, plan, &diffs, &None)?,
        Output::Text => report::plan::to_text(heading, plan, &diffs, ui.detail(false)),
    };
    Ok(report::print(text.as_bytes())?)
}

fn heading(root: &Root, run: &FinishedRun) -> Result<Heading> {
    Ok(Heading {
        config: before(run),
        name_hash: None,
        digest: String::new(),
        origin: origin(run),
        chosen: "the last run that can be taken back".to_owned(),
        recorded: recorded(root)?.unwrap_or_else(|| "(no record)".to_owned()),
        others: Vec::new(),
        ..machine::heading(&machine::observe_machine(root)?)
    })
}

fn recorded(root: &Root) -> Result<Option<String>> {
    let records = Records::read(root).context("reading the daemon's records")?;
    Ok(records.name())
}
