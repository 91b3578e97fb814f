//! `rollback`: the last finished run taken back, through the same transaction.

use crate::cli::ui::Ui;
use crate::staging::state;

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

use super::access::{self, AccessNeed};
use super::evidence::NodeEvidence;
use super::install::refuse_without_completion;
use super::kept;
use super::own_state::expect_known_state;
use super::recorder::record_run;
use super::recover::recover_first;
use super::session::open_root;
use super::trial::{self, RunningTrial, TrialRequest};
use super::work::RunWork;
use super::{Output, RollbackArgs, keys, machine, policies};
use crate::checkpoint::kubernetes_minor;
use crate::command::CommandRunner;
use crate::command::job::Job;
use crate::daemon::annotations;
use crate::error::ExitCode;
use crate::invocation::mco_rescue;
use crate::node::boot::BootIdentity;
use crate::node::host::systemd_runs;
use crate::node::{self, Host, Interest, NodeState, OsRelease, Records};
use crate::node::{deploy_directories, kubelet_state};
use crate::notice::Notice;
use crate::paths;
use crate::plan::{
    self, Allowed, ChangedSince, FinishedRun, Plan, PlanRequest, RollbackInputs, Task,
};
use crate::recorder::Event;
use crate::report;
use crate::report::plan::Heading;
use crate::report::question;
use crate::root::{Root, RootPath};
use crate::staging::awaited::{Awaited, Leaving, OsRun, Ran};
use crate::staging::deployments::{self, WayBack};
use crate::staging::pins;
use crate::sys::privileges::Capability;
use crate::text::count;
use crate::time::now;
use crate::transaction::journal::ConfigRef;
use crate::transaction::{self, Lock};
use crate::trial::store::read_trial;

/// As long is waited for a command that begins a trial; NetworkManager alone may take a minute for a connection.
const LET_APPLY_END: Duration = Duration::from_secs(90);

/// Refusal of a trial that is more than that.
const ONE_RUN: &str = "--try takes back one run of files alone: add --files-only, or leave --to out. Nothing was changed";

/// Runs `rollback`.
pub(super) fn run(ui: &Ui<'_>, args: &RollbackArgs) -> Result<ExitCode> {
    let started = now();
    let root = open_root(ui)?;
    if args.list {
        return kept::list(ui, &root);
    }
    machine::expect_node(&root, args.guards.not_a_node)?;
    access::expect_access(&root, AccessNeed::Write)?;
    expect_known_state(&root)?;
    let is_tried = args.trial.window.is_some();
    // A trial goes back at once, also while its command still makes services read the new files.
    let lock = match read_trial(&root)? {
        Some(_) => trial::wait_for_lock(&root, LET_APPLY_END)?,
        None => transaction::acquire_lock(&root)?,
    };
    if read_trial(&root)?.is_some() {
        if args.if_done {
            return Ok(ExitCode::Done);
        }
        if is_tried || args.forget || args.to.is_some() {
            trial::refuse_during_trial(&root)?;
        }
        let end = trial::take_back_now(ui, &root, lock)?;
        return Ok(end.unwrap_or(ExitCode::Done));
    }
    trial::sweep_leftovers(&root);
    recover_first(&root, ui.runner, &lock)?;
    if args.forget {
        return forget(ui, &root, args.if_done);
    }
    let whole = !args.files_only && root.is_live();
    if whole && let Some((awaited, leaving)) = unfinished(&root, ui.runner)? {
        if args.to.is_some() {
            bail!(
                "what was staged for {} has to go first: {}; then run this again. Nothing was changed",
                awaited.config.name,
                mco_rescue("rollback")
            );
        }
        if is_tried {
            bail!("{ONE_RUN}");
        }
        let way = Together {
            run: Ran {
                id: String::new(),
                config: awaited.config.name,
            },
            leaving,
        };
        let words = format!(
            "Operating system:\n  - {}\n\n",
            leaves(&way.run.config, &way.leaving)
        );
        if ui.output == Output::Text {
            report::print(words.as_bytes())?;
        }
        way.is_completed(ui, &root, args)?;
        ui.confirm("Go back to before it?")?;
        return way.leave(ui, &root, &lock, args);
    }
    let mut runs = transaction::read_history(&root)?;
    if runs.is_empty() {
        bail!(
            "no finished run is in the history, so there is nothing to go back to. \
             Apply the config that the node should be in: {}",
            mco_rescue("apply CONFIG")
        );
    }
    let older = kept::up_to(&root, &runs, args.to.as_deref())?;
    let run = runs.remove(0);
    runs.truncate(older);
    let older = runs;
    let ours = deployments::is_staged_by_us(&root, ui.runner)?;
    let allowed = Allowed {
        ours,
        leaves_staged: args.files_only && !ours,
        has_files_only: true,
        staged: !args.files_only && deployments::is_staged_by_run(&root, ui.runner, &run.id)?,
        ..args.guards.allowed()
    };
    let jobs = match args.no_actions || !systemd_runs(&root) {
        true => Vec::new(),
        false => run.jobs_back(),
    };
    let os_run = state::find_os_run(&root, &run.id)?.filter(|_| whole);
    if is_tried && (os_run.is_some() || !older.is_empty()) {
        bail!("{ONE_RUN}");
    }
    let way = os_run
        .map(|os_run| Together::of(&root, &run, &os_run))
        .transpose()?;
    let together = way.as_ref().map_or(0, |way| way.earlier().len());
    if args.to.is_some() {
        kept::separate_systems(&root, &run, &older, together, whole)?;
    }
    let mut older_runs = Vec::new();
    if older.len() > together {
        for run in &older {
            older_runs.push((run.clone(), observe(&root, ui.runner, run)?));
        }
    }
    let wanted = TakeBack {
        changed: changed_since(args),
        allowed,
        older: &older_runs,
        together: way
            .as_ref()
            .map_or(0, |way| way.leaving.runs.len().saturating_sub(1)),
        jobs: &jobs,
        more: if is_tried { &trial::LATER } else { &[] },
        keeps_history: is_tried,
    };
    let mut back = TakingBack::prepare(&root, ui.runner, run, &wanted)?;
    if let Some(way) = &way {
        let notices = kubelet_notices(&root, &way.leaving.to).unwrap_or_default();
        back.plan.notices.extend(notices);
    }
    let mut jobs = jobs.clone();
    if is_tried {
        trial::facts::add_to_plan(&root, &args.trial, &mut back.plan, false)?;
        let policies = policies::cluster(&root, None)?.policies;
        let activated = match args.no_actions {
            true => Vec::new(),
            false => {
                trial::facts::activate(ui, &root, &args.trial, &policies, &mut back.plan, false)?
            }
        };
        let others = jobs.into_iter().filter(|job| !activated.contains(job));
        jobs = activated.iter().cloned().chain(others).collect();
    }
    let heading = heading(&root, &back.run)?;
    let (run, plan) = (&back.run, &back.plan);
    if ui.output == Output::Text || !plan.blockers.is_empty() {
        show(ui, &root, &heading, plan)?;
    }
    if !plan.blockers.is_empty() {
        bail!(
            "refusing to take {} back: see the blockers above; nothing was changed{}",
            run.config,
            report::plan::blockers_again(plan)
        );
    }
    if let Some(way) = &way {
        way.is_completed(ui, &root, args)?;
    }
    let oldest = older.last().unwrap_or(run);
    let asked = format!(
        "{}: back to before {}: {}{}. Take {} back?",
        question::node(&heading),
        oldest.config,
        question::changes(plan),
        match older.len() {
            0 => String::new(),
            more => format!(", and {}", count(more, "run") + " before it"),
        },
        if older.is_empty() {
            "this run"
        } else {
            "these runs"
        },
    );
    ui.confirm(&asked)?;
    let steps = plan.steps.len();
    if let Some(way) = &way
        && let WayBack::NextBoot =
            deployments::go_back(&root, ui.runner, &way.leaving, &run.config)?
    {
        return next_boot(ui, &root, &way.run, args);
    }
    let what = format!("rollback of {}", run.config);
    let request = TrialRequest {
        forgets: vec![run.id.clone()],
        jobs: jobs.clone(),
        ..TrialRequest::of_plan(&args.trial, &what, plan, false)
    };
    let tried = RunningTrial::begin(ui, &root, &lock, request)?;
    let done = back.carry_out(&root, ui.runner, &lock, started, &jobs);
    if let Some(tried) = tried {
        return match done {
            Ok(()) => tried.wait_for_confirmation(lock, ExitCode::Done),
            Err(error) => Err(trial::fail(Some(tried), lock, error)),
        };
    }
    done?;
    let mut earlier = way.as_ref().map_or(&[][..], |way| way.earlier()).to_vec();
    let asked_for = older.iter().map(|run| run.id.clone());
    earlier.extend(asked_for.skip(together));
    let more = take_back(&root, ui.runner, &lock, args, &earlier)?;
    deployments::settle_awaited(&root, ui.runner);
    let last = older.last().unwrap_or(run);
    let ran = Ran {
        id: last.id.clone(),
        config: last.config.clone(),
    };
    end(ui, &root, &lock, &ran, steps + more)
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
    let mut all = deploy_directories::list(root)?.into_iter();
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
fn end(ui: &Ui<'_>, root: &Root, lock: &Lock, run: &Ran, steps: usize) -> Result<ExitCode> {
    // All is in place: what cannot be read now does not change that.
    let left =
        transaction::read_history(root).map_or_else(|error| said(&error, 0), |all| all.len());
    let recorded = recorded(root).unwrap_or_else(|error| said(&error, None));
    let text = match ui.output {
        Output::Json => report::rollback::to_json(run, &recorded, steps, left)?,
        Output::Text => report::rollback::to_text(run, &recorded, steps, left),
    };
    report::print_result(text.as_bytes());
    record_run(root, ui.runner, lock, Event::Rollback, &run.config);
    Ok(ExitCode::Done)
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
        number => format!("the files of {} go back with it", count(number, "run")),
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
    fn of(root: &Root, run: &FinishedRun, os_run: &OsRun) -> Result<Self> {
        let history = transaction::read_history(root)?;
        let belongs = |run: &&FinishedRun| run.id == os_run.run || os_run.earlier.contains(&run.id);
        let runs = history.iter().take_while(belongs);
        Ok(Self {
            run: Ran {
                id: run.id.clone(),
                config: run.config.clone(),
            },
            leaving: Leaving {
                to: os_run.from.clone(),
                runs: runs.map(|run| run.id.clone()).collect(),
            },
        })
    }

    /// Files that go back at the next boot need the unit that completes.
    fn is_completed(&self, ui: &Ui<'_>, root: &Root, args: &RollbackArgs) -> Result<()> {
        let runs = state::read_booted(root, ui.runner)?.deployment;
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
    fn leave(
        &self,
        ui: &Ui<'_>,
        root: &Root,
        lock: &Lock,
        args: &RollbackArgs,
    ) -> Result<ExitCode> {
        if let WayBack::NextBoot =
            deployments::go_back(root, ui.runner, &self.leaving, &self.run.config)?
        {
            return next_boot(ui, root, &self.run, args);
        }
        let steps = take_back(root, ui.runner, lock, args, &self.leaving.runs)?;
        deployments::settle_awaited(root, ui.runner);
        end(ui, root, lock, &self.run, steps)
    }
}

/// Takes runs back, the newest first; gives the number of steps.
fn take_back(
    root: &Root,
    runner: &dyn CommandRunner,
    lock: &Lock,
    args: &RollbackArgs,
    runs: &[String],
) -> Result<usize> {
    let mut steps = 0;
    for id in runs {
        let mut history = transaction::read_history(root)?.into_iter();
        let Some(run) = history.next().filter(|run| run.id == *id) else {
            break;
        };
        let wanted = TakeBack {
            changed: changed_since(args),
            allowed: args.guards.allowed(),
            ..TakeBack::default()
        };
        let back = TakingBack::prepare(root, runner, run, &wanted)?;
        if let Some(blocker) = back.plan.blockers.first() {
            bail!(
                "{} cannot be taken back: {}: {}. Next: {}",
                back.run.config,
                blocker.subject,
                blocker.message,
                mco_rescue("rollback")
            );
        }
        back.carry_out(root, runner, lock, now(), &[])?;
        steps += back.plan.steps.len();
    }
    Ok(steps)
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
        Output::Text => report::rollback::forgotten(&gone),
    };
    report::print_result(text.as_bytes());
    Ok(ExitCode::Done)
}

/// What the service that fetches has heard is of this boot, or too old.
fn is_done(root: &Root, runner: &dyn CommandRunner) -> Result<bool> {
    let Some(annotations) = annotations::remembered(root)? else {
        return Ok(false);
    };
    let records = Records::read(root).context("reading the daemon's records")?;
    let deployments =
        deployments::read_deployments(root, runner).map_err(|cause| anyhow!(cause.to_line()))?;
    // A soft reboot keeps the time at which the kernel began.
    let kernel = sysinfo::System::boot_time().unwrap_or(u64::MAX);
    let boot = BootIdentity::observe(root, Host::observe(root)?.deployment, runner);
    let since = boot.map_or(kernel, |boot| boot.began(kernel));
    Ok(annotations.seen > since && pins::is_done(&annotations, &records, &deployments))
}

/// The files go back where their deployment runs again; here they belong to what is left.
fn next_boot(ui: &Ui<'_>, root: &Root, run: &Ran, args: &RollbackArgs) -> Result<ExitCode> {
    let text = match ui.output {
        Output::Json => report::rollback::to_json(run, &None, 0, 0)?,
        Output::Text => report::rollback::awaits(run),
    };
    report::print_result(text.as_bytes());
    if args.reboot {
        deployments::reboot_node(root, ui.runner, args.guards.ignore_quorum)?;
    }
    Ok(ExitCode::Done)
}

/// The options of taking a run back.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TakeBack<'a> {
    /// The treatment of paths that were changed since.
    pub changed: ChangedSince,
    /// Guards that are passed over.
    pub allowed: Allowed,
    /// Older runs that are taken back after it, each with the node at its paths.
    pub older: &'a [(FinishedRun, NodeState)],
    /// Number of runs before it whose operating system never ran.
    pub together: usize,
    /// The jobs of the running system between files and records.
    pub jobs: &'a [Job],
    /// Capabilities that are needed after the run.
    pub more: &'a [Capability],
    /// The run that is taken back stays in the history, and this one comes before it: it can be taken back, too.
    pub keeps_history: bool,
}

/// A finished run, and what taking it back takes.
pub(super) struct TakingBack {
    /// The run.
    pub run: FinishedRun,
    /// The node as the plan saw it.
    node: NodeState,
    /// The plan.
    pub plan: Plan,
    more: Vec<Capability>,
    keeps_history: bool,
}

impl TakingBack {
    /// Looks at the node and plans.
    pub(super) fn prepare(
        root: &Root,
        runner: &dyn CommandRunner,
        run: FinishedRun,
        wanted: &TakeBack<'_>,
    ) -> Result<Self> {
        let node = observe(root, runner, &run)?;
        let inputs = RollbackInputs {
            run: &run,
            node: &node,
            changed: wanted.changed,
            older: wanted.older,
            together: wanted.together,
            jobs: wanted.jobs,
        };
        let request = PlanRequest {
            allowed: wanted.allowed,
            ..PlanRequest::default()
        };
        let evidence = NodeEvidence::of_node(root, &node, runner);
        let plan = plan::plan(&Task::Rollback(inputs), &request, &evidence)?;
        Ok(Self {
            run,
            node,
            plan,
            more: wanted.more.to_vec(),
            keeps_history: wanted.keeps_history,
        })
    }

    /// Carries the plan out.
    pub(super) fn carry_out(
        &self,
        root: &Root,
        runner: &dyn CommandRunner,
        lock: &Lock,
        started: u64,
        jobs: &[Job],
    ) -> Result<()> {
        let config = ConfigRef {
            name: before(&self.run),
            digest: String::new(),
            origin: origin(&self.run),
        };
        let work = RunWork {
            root,
            runner,
            lock,
            node: &self.node,
            plan: &self.plan,
            config,
            undoes: (!self.keeps_history).then(|| self.run.id.clone()),
            started,
            more: &self.more,
            jobs,
        };
        work.transact().map(drop)
    }
}

fn before(run: &FinishedRun) -> String {
    format!("(before {})", run.config)
}

fn origin(run: &FinishedRun) -> String {
    format!("the history: {}", run.objects)
}

fn observe(root: &Root, runner: &dyn CommandRunner, run: &FinishedRun) -> Result<NodeState> {
    let paths = run.steps.iter().map(|(step, _)| step.path().clone());
    let exchanged = run.steps.iter().filter(|(step, _)| step.exchanges());
    let exchanged = exchanged.map(|(step, _)| step.path().clone());
    let interest = Interest {
        paths: paths.chain([RootPath::fixed(paths::STATUS)]).collect(),
        in_the_way: exchanged.collect(),
        ..Interest::default()
    };
    node::observe(root, interest, runner).context("looking at the node")
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
