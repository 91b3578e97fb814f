//! `apply`: lock, recover, observe, plan, ask, transact, verify, report.

use super::diffs;
use crate::change::session::RunOptions;
use crate::change::staging::state;
use crate::cli::args::AFTER;
use crate::cli::ui::Ui;
use crate::report::plan::Heading;
use crate::run::front::Front;
use crate::run::front::RunNews;
use crate::run::trial::running;
use crate::run::work::LATER_IN_TRIAL;
use std::cell::RefCell;

use anyhow::{Context, Result, bail};

use super::Output;
use super::fetch;
use crate::base::error::ExitCode;
use crate::base::invocation::{mco_rescue, reboot, remember_soft_reboot, shell_word};
use crate::base::paths;
use crate::base::text::count_noun;
use crate::change::install::completion::Beforehand;
use crate::change::plan::{After, Force, Plan, PlanOptions, TrialReboot};
use crate::change::session::policies;
use crate::change::session::predict;
use crate::change::session::{Session, Unnamed, choose_config, open_root};
use crate::change::source::{Chosen, LATEST};
use crate::change::staging::deployments;
use crate::change::staging::image_source::ImageSource;
use crate::change::staging::quorum;
use crate::change::staging::reboots;
use crate::change::staging::stage::{Over, Staging};
use crate::change::transaction;
use crate::change::workloads;
use crate::change::workloads::Stopped;
use crate::cli::args::GuardArgs;
use crate::cli::args::PlanArgs;
use crate::cli::firstboot::FirstbootArgs;
use crate::host::root::Root;
use crate::host::sys::memory::RunStage;
use crate::host::sys::privileges::Capability;
use crate::judge::daemon::forecast::Forecast;
use crate::node::Records;
use crate::node::boot::is_soft_prepared;
use crate::node::command::job::{Done, Job};
use crate::node::host::systemd_runs;
use crate::report;
use crate::report::after::JobsDone;
use crate::report::question;
use crate::report::verify::VerifyFindings;
use crate::run::ending::Ending;
use crate::run::first_boot_units::stop_service;
use crate::run::node_change::NodeChange;
use crate::run::opening::{Needs, Opening};
use crate::run::trial::running::{RunningTrial, TrialRequest};
use crate::run::work::RunWork;
use clap::Args;

/// Which config, what is allowed, and what comes after.
#[derive(Debug, Args)]
pub struct ApplyArgs {
    /// Which config, and what is allowed.
    #[command(flatten)]
    pub plan: PlanArgs,

    /// Show the plan, and change nothing
    #[arg(
        short = 'n',
        long,
        alias = "check",
        conflicts_with = "key",
        display_order = 0
    )]
    pub dry_run: bool,

    /// Reboot at the end, if that is needed
    ///
    /// Reboots where something is staged for the next boot, or a policy asks for it
    /// [default: name the reboot]
    #[arg(long, help_heading = AFTER)]
    pub reboot: bool,

    /// Reload and restart nothing after the files; the jobs that remain are listed
    #[arg(long, hide_short_help = true, help_heading = AFTER)]
    pub no_actions: bool,

    /// Where the daemon would have drained the node: stop the kubelet and every pod before
    /// the files change. Pods are not moved elsewhere first. Needs crictl
    #[arg(long, hide_short_help = true, help_heading = AFTER)]
    pub stop_workloads: bool,

    /// Only add this SSH key for core, as no login works
    ///
    /// Changes nothing else: adds the one public SSH key in FILE for core, such as
    /// ~/.ssh/id_ed25519.pub, when no login works; `-` for standard input. verify
    /// reports it as a difference; the next apply removes it, and so does rollback
    #[arg(long, value_name = "FILE", conflicts_with_all = ["config", "latest", "reboot", "stop_workloads", "window"])]
    pub key: Option<String>,
}

impl ApplyArgs {
    /// Returns the arguments to apply the config that the node chooses itself, in place of the first-boot service.
    pub(super) fn of_first_boot(args: &FirstbootArgs) -> Self {
        let plan = PlanArgs {
            bits: args.bits.clone(),
            guards: GuardArgs {
                first_boot: true,
                ..args.guards.clone()
            },
            doubts: args.doubts.clone(),
            ..PlanArgs::default()
        };
        Self {
            plan,
            dry_run: args.dry_run,
            reboot: args.reboot,
            no_actions: false,
            stop_workloads: false,
            key: None,
        }
    }
}

/// Capabilities that are needed after the files are in place: to discard a staged deployment, and to reboot.
const LATER: [Capability; 4] = [
    Capability::CAP_SYS_ADMIN,
    Capability::CAP_SYS_PTRACE,
    Capability::CAP_LINUX_IMMUTABLE,
    Capability::CAP_SYS_BOOT,
];

/// Runs `apply`.
pub(super) fn run(ui: &Ui<'_>, apply: &ApplyArgs) -> Result<ExitCode> {
    if apply.dry_run {
        return super::plan::run(ui, &apply.plan);
    }
    let root = open_root(&ui.root)?;
    if apply.stop_workloads && !root.is_live() {
        bail!("--stop-workloads is for the node that runs; leave it out for another root");
    }
    let needs = Needs::APPLY.meant(apply.plan.guards.not_a_node);
    let opening = Opening::of(ui, root, &needs)?;
    let given = opening.read_first(|root, _| read_given(root, &apply.plan))?;
    let change = opening.begin()?;
    let mut run = ApplyRun::plan(ui, &change, apply, given.flatten())?;
    run.show()?;
    if run.plan.is_empty() {
        return run.end_unchanged(change);
    }
    ui.confirm(&question(apply, &run.session, &run.plan))?;
    run.install_units(&change)?;
    let tried = run.begin_trial(&change)?;
    let told = match run.carry_out(&change) {
        Ok(told) => told,
        Err(error) => return Err(running::fail(tried, change, error)),
    };
    force(&run.session, &run.plan);
    // The guard of a trial reverts its changes.
    let unverified = tried.is_none().then(RunStage::changed);
    let verified = run.verify(&told);
    drop(unverified);
    match verified {
        Ok((code, is_inhibited)) => change.finish(Ending {
            tried,
            is_inhibited,
            reboot: run.reboots().then_some(apply.plan.guards.ignore_quorum),
            code,
        }),
        Err(error) => Err(running::refuse(tried, change, error)),
    }
}

/// Reads the inputs that the command line names. Returns the config, unless the choice depends on the records of the node.
fn read_given(root: &Root, args: &PlanArgs) -> Result<Option<Chosen>> {
    args.risks.accepted()?;
    policies::cluster(root, args.policy.as_deref())?;
    let Some(config) = args.config.choice() else {
        return Ok(None);
    };
    let records = Records::read(root).context("reading the daemon's records")?;
    let chosen = choose_config(root, Some(config), Unnamed::Wanted, &records)?;
    Ok((config != LATEST).then_some(chosen))
}

/// One run of `apply`.
struct ApplyRun<'a> {
    ui: &'a Ui<'a>,
    apply: &'a ApplyArgs,
    session: Session<'a>,
    plan: Plan,
    /// The units to install before the first step.
    beforehand: Option<Beforehand>,
}

impl<'a> ApplyRun<'a> {
    /// Observes the node and makes the plan. `given` is the config, if it was already read.
    fn plan(
        ui: &'a Ui<'a>,
        change: &NodeChange<'a>,
        apply: &'a ApplyArgs,
        given: Option<Chosen>,
    ) -> Result<Self> {
        let args = &apply.plan;
        let (root, runner) = (change.root.again()?, change.runner());
        let mut session = match given {
            Some(given) => Session::observe_for(root, runner, given)?,
            None => Session::observe(root, runner, args.config.choice(), Unnamed::Wanted)?,
        };
        let beforehand = session.beforehand();
        let options = RunOptions {
            reboots: apply.reboot,
            stops_workloads: apply.stop_workloads,
            trial: args
                .trial
                .planned(TrialReboot::when(apply.reboot), !apply.no_actions),
            ..args.run_options()?
        };
        let plan = session.plan_run(&options, beforehand.as_ref())?;
        Ok(Self {
            ui,
            apply,
            session,
            plan,
            beforehand,
        })
    }

    /// Shows the plan, and refuses one with blockers.
    fn show(&self) -> Result<()> {
        show_plan(self.ui, &self.apply.plan, &self.session, &self.plan)?;
        if self.plan.blockers.is_empty() {
            return Ok(());
        }
        bail!(
            "refusing to apply {}: see the blockers above; nothing was changed{}",
            self.session.chosen.config.name,
            report::plan::blockers_again(&self.plan)
        )
    }

    /// Returns true if the node will reboot at the end.
    fn reboots(&self) -> bool {
        self.apply.reboot && self.plan.reboots()
    }

    /// Ends a run without any steps.
    fn end_unchanged(self, change: NodeChange<'_>) -> Result<ExitCode> {
        let (session, plan, args) = (&self.session, &self.plan, &self.apply.plan);
        change.lock().keep_parents();
        if plan.force != Force::Left {
            let question = format!("/{}: see the notice above. Do that?", paths::FORCE);
            self.ui.confirm(&question)?;
            force(session, plan);
        }
        let code = verify(self.ui, args, session, plan, &JobsDone::default())?;
        if code == ExitCode::Done && plan.os.is_empty() && !args.files_only {
            state::forget_failure(&session.root)?;
            deployments::settle_awaited(&session.root, session.runner);
        }
        change.finish(Ending {
            is_inhibited: session.judge_staged(plan, args.risks.accepted()?)?,
            reboot: self.reboots().then_some(args.guards.ignore_quorum),
            ..Ending::of(code)
        })
    }

    /// Installs the units that complete the run at a boot. The plan already counts on their directories.
    fn install_units(&self, change: &NodeChange<'_>) -> Result<()> {
        let guards = &self.apply.plan.guards;
        if guards.first_boot {
            stop_service(&self.session.root, change.runner())?;
        }
        match &self.beforehand {
            Some(due) => change.install_completion(&guards.completion(), &self.plan, due),
            None => Ok(()),
        }
    }

    fn begin_trial(&self, change: &NodeChange<'a>) -> Result<Option<RunningTrial<'a>>> {
        let (args, config) = (&self.apply.plan.trial, &self.session.chosen.config.name);
        let options = args.options();
        let request = TrialRequest::of_plan(&options, config, &self.plan, self.reboots());
        let (jobs, _) = jobs(self.apply, &self.session, &self.plan);
        let jobs = self.plan.all_jobs(jobs);
        RunningTrial::begin(change, request.with_jobs(jobs))
    }

    /// Carries out the plan, with everything that comes before and after it on a running node.
    fn carry_out(&self, change: &NodeChange<'_>) -> Result<JobsDone> {
        let (apply, session, plan) = (self.apply, &self.session, &self.plan);
        // With a reboot, services need no jobs to use the new files. Only reverting a trial needs them then, as services may have
        // started with these files.
        let (mut jobs, left) = jobs(apply, session, plan);
        if !self.reboots() {
            jobs = plan.all_jobs(jobs);
        }
        let stopped = stop_workloads(apply, session, plan)?;
        let restarts = stopped.is_some() && !plan.reboots() && systemd_runs(&session.root);
        jobs.extend(restarts.then(Stopped::job));
        let work = RunWork {
            change,
            node: &session.node,
            plan,
            config: session.config_ref(),
            undoes: None,
            more: match apply.plan.trial.window {
                Some(_) => &LATER_IN_TRIAL,
                None if plan.reboots() => &LATER,
                None => &[],
            },
            jobs: &jobs,
        };
        let source = apply.plan.bits.options().source_of(&plan.os);
        let done = carry_out(session, &work, source);
        if let Some(stopped) = stopped {
            if done.is_ok() && (restarts || plan.reboots()) {
                stopped.end();
            } else {
                drop(stopped);
            }
            workloads::forget_stopped(&session.root);
        }
        Ok(JobsDone { done: done?, left })
    }

    /// Compares the node again after the change. Returns the exit code, and whether preflight found an inhibitor in the staged
    /// image.
    fn verify(&mut self, told: &JobsDone) -> Result<(ExitCode, bool)> {
        let args = &self.apply.plan;
        if let Err(error) = self.session.observe_applied() {
            log::warn!(
                "{} is applied, but {error:#}. Next: {}",
                self.session.chosen.config.name,
                mco_rescue("verify")
            );
            if args.trial.window.is_some() {
                bail!("the node cannot be read after the change");
            }
            return Ok((ExitCode::Done, false));
        }
        let (session, plan) = (&self.session, &self.plan);
        let code = verify(self.ui, args, session, plan, told)?;
        Ok((code, session.judge_staged(plan, args.risks.accepted()?)?))
    }
}

/// Returns the question that asks for confirmation, with all decisions in it.
fn question(apply: &ApplyArgs, session: &Session<'_>, plan: &Plan) -> String {
    let system = if apply.plan.files_only {
        question::SystemAnswer::LeftAlone
    } else if session.node.system.facts().is_some() {
        question::SystemAnswer::Compared
    } else {
        question::SystemAnswer::NotCompared
    };
    let boot = match (plan.reboots(), apply.reboot) {
        _ if !session.root.is_live() => question::RebootAnswer::Elsewhere,
        (true, true) => question::RebootAnswer::Now,
        (true, false) => question::RebootAnswer::Later,
        (false, _) if plan.force == Force::Requested => question::RebootAnswer::ByTheDaemon,
        (false, _) => question::RebootAnswer::None,
    };
    let node = question::ask_for_node(&Heading::of_session(session));
    let changes = question::ask_for_changes(plan);
    let rest = question::ask_for_system(plan, system, boot);
    format!("{node}: {changes}; {rest}. Apply?")
}

/// Creates or removes the daemon's force file. Everything else is already in place, so a failure here is only a warning.
fn force(session: &Session<'_>, plan: &Plan) {
    let (result, command) = match plan.force {
        Force::Left => return,
        Force::Requested => (transaction::request_force(&session.root), "touch"),
        Force::Withdrawn => (transaction::withdraw_force(&session.root), "rm"),
    };
    if let Err(error) = result {
        log::warn!(
            "all else is in place, but {error}. Next: {command} {}",
            shell_word(
                &session
                    .root
                    .shown()
                    .join(paths::FORCE)
                    .display()
                    .to_string()
            )
        );
    }
}

/// Returns the jobs to run on the running system, and those that are left out.
fn jobs(apply: &ApplyArgs, session: &Session<'_>, plan: &Plan) -> (Vec<Job>, Vec<Job>) {
    let all = plan.after.as_ref().map(After::jobs).unwrap_or_default();
    if apply.no_actions || !systemd_runs(&session.root) {
        (Vec::new(), all)
    } else {
        (all, Vec::new())
    }
}

/// Stops the kubelet and its pods if requested, in cases where the daemon would drain the node.
fn stop_workloads<'a>(
    apply: &ApplyArgs,
    session: &Session<'a>,
    plan: &Plan,
) -> Result<Option<Stopped<'a>>> {
    if !apply.stop_workloads {
        return Ok(None);
    }
    if !plan.drains() {
        log::warn!("the daemon would not drain the node for this; no workload is stopped");
        return Ok(None);
    }
    quorum::allow_stopping(&session.root, apply.plan.guards.ignore_quorum)?;
    workloads::ensure_possible(session.runner)?;
    workloads::note_stopped(&session.root, session.runner)?;
    let stopped = workloads::stop(session.runner)
        .inspect_err(|_| workloads::forget_stopped(&session.root))?;
    log::warn!(
        "the kubelet and {} are stopped",
        count_noun(stopped.pods, "pod")
    );
    Ok(Some(stopped))
}

/// Stages the operating system, then writes the files, and the record with the last of them (docs/explanation/operating-system.md).
fn carry_out(
    session: &Session<'_>,
    work: &RunWork<'_>,
    source: ImageSource,
) -> Result<Vec<(Job, Done)>> {
    let Some(facts) = session
        .node
        .system
        .facts()
        .filter(|_| !work.plan.os.is_empty())
    else {
        note_reboot(session, work.plan)?;
        let finished = work.transact()?;
        deployments::settle_after_run(&session.root, session.runner, &finished.id);
        return Ok(finished.told);
    };
    let files = !work.plan.steps.is_empty();
    let files = files.then(|| transaction::next_run_id(&session.root, work.change.lock()));
    let files = files.transpose()?;
    let staging = Staging {
        runner: session.runner,
        print: &|line| work.change.front.tell(RunNews::Staging(line)),
        root: &session.root,
        lock: work.change.lock(),
        plan: &work.plan.os,
        config: session.config_ref(),
        source,
        files: files.clone(),
        over: Over::read_over(
            &session.root,
            &state::read_booted(&session.root, session.runner)?,
        )?,
        expected: RefCell::default(),
        staged: RefCell::default(),
    };
    // If the next boot does not enter it, the config is available to be applied again.
    let config = &session.chosen.config;
    let text = config.record.to_string();
    fetch::keep_config(
        &session.root,
        &session.records,
        config,
        text,
        &config.origin,
    )?;
    staging.stage_all(facts)?;
    let Some(id) = files else {
        if !work.plan.os.needs_reboot() {
            deployments::settle_awaited(&session.root, session.runner);
        }
        return Ok(Vec::new());
    };
    match work.transact_as(id) {
        Ok(run) => {
            staging.files_came();
            Ok(run.told)
        }
        Err(error) => Err(match staging.take_back() {
            Ok(()) => error.context("what was staged for the next boot is dropped again"),
            Err(second) => error.context(format!("{second:#}")),
        }),
    }
}

/// Notes that services keep using the old files until a reboot. A reboot into another operating system has its own note.
fn note_reboot(session: &Session<'_>, plan: &Plan) -> Result<()> {
    let after = plan.after.as_ref().filter(|after| after.reboots());
    let causes = after.map_or_else(Vec::new, After::causes);
    let config = &session.chosen.config.name;
    reboots::note_run(&session.root, session.runner, config, causes)
}

fn show_plan(ui: &Ui<'_>, args: &PlanArgs, session: &Session<'_>, plan: &Plan) -> Result<()> {
    let diffs = diffs::of_session(session, plan, args.config.show_secrets);
    match ui.output {
        // There is only one document per run: the plan if it is refused, otherwise the result.
        Output::Json if plan.blockers.is_empty() => Ok(()),
        Output::Json => {
            let daemon =
                predict::of_plan(session, plan, args.policy.as_deref(), args.daemon.given());
            let text = report::plan::to_json(&Heading::of_session(session), plan, &diffs, &daemon)?;
            Ok(report::print_asked(&text, args.config.show_secrets)?)
        }
        Output::Text => {
            let mut text = report::plan::to_text(
                &Heading::of_session(session),
                plan,
                &diffs,
                ui.detail(args.summary),
            );
            // The user should see the forecast before answering.
            if !ui.yes && !plan.is_empty() {
                let daemon =
                    predict::of_plan(session, plan, args.policy.as_deref(), args.daemon.given());
                let said = daemon.map(|daemon| daemon.text(super::plan::begin(plan, &daemon)));
                text.push_str(&said.unwrap_or_default());
            }
            Ok(report::print_asked(&text, args.config.show_secrets)?)
        }
    }
}

/// Verifies that the same comparison now finds no differences.
fn verify(
    ui: &Ui<'_>,
    args: &PlanArgs,
    session: &Session<'_>,
    plan: &Plan,
    told: &JobsDone,
) -> Result<ExitCode> {
    let is_current = plan.is_empty() && args.options() == PlanOptions::default();
    let mut drifts = match is_current {
        true => session.drifts(plan),
        false => session.compare().1,
    };
    if plan.os.needs_reboot() {
        // These differences end with the next boot.
        drifts.retain(|drift| !drift.is_of_the_os());
    }
    let verdict = session.daemon_verdict(&drifts, args.daemon.daemon_version);
    let diffs = report::plan::Diffs::new();
    let daemon = predict::of_plan(session, plan, args.policy.as_deref(), args.daemon.given());
    let findings = VerifyFindings {
        drifts: &drifts,
        verdict: verdict.as_deref(),
        diffs: &diffs,
        not_looked_at: &session.not_looked_at(),
        daemon: &daemon,
        told: plan.after.is_some().then_some(told),
        // The record was just written.
        record_problem: None,
    };
    let text = match ui.output {
        Output::Json => report::verify::to_json(&Heading::of_session(session), findings)?,
        Output::Text if drifts.is_empty() => {
            let ending = EndOptions {
                by_hand: args.guards.complete_by_hand,
                is_tried: args.trial.window.is_some(),
            };
            done(session, plan, told, daemon.as_ref(), ending)
        }
        Output::Text => {
            let said = daemon.as_ref().map(Forecast::text_with_next);
            report::verify::to_text(&Heading::of_session(session), findings)
                + &said.unwrap_or_default()
        }
    };
    if plan.is_empty() {
        report::print(text.as_bytes())?;
    } else {
        report::print_result(text.as_bytes());
    }
    Ok(if drifts.is_empty() {
        ExitCode::Done
    } else {
        ExitCode::Drift
    })
}

/// The options that decide what is printed at the end.
#[derive(Debug, Clone, Copy)]
struct EndOptions {
    /// The user runs `complete` by hand.
    by_hand: bool,
    /// The run is a trial.
    is_tried: bool,
}

/// Returns the report: what was done, what the daemon will do, and the next step, which is that of the run if it has one, otherwise
/// that of the forecast.
fn done(
    session: &Session<'_>,
    plan: &Plan,
    told: &JobsDone,
    daemon: Option<&Forecast>,
    ending: EndOptions,
) -> String {
    if plan.is_empty() {
        return daemon.map(Forecast::text_with_next).unwrap_or_default();
    }
    // Staging cancels a prepared soft reboot.
    remember_soft_reboot(is_soft_prepared(&session.root));
    let next = format!("Next: {}\n", reboot());
    let after = match &plan.after {
        // The trial names the next step.
        _ if ending.is_tried && plan.os.needs_reboot() => String::new(),
        Some(after) if ending.is_tried => report::after::tried_text(after, told),
        _ if plan.os.needs_reboot() && ending.by_hand => {
            format!(
                "The operating system is staged. No unit completes the run: after the reboot run\n`{}` by hand, before the \
                 kubelet starts.\n{next}",
                mco_rescue("complete")
            )
        }
        _ if plan.os.needs_reboot() => {
            "The operating system is staged; the rest is done by mco-rescue-complete at the\n\
             next boot.\n"
                .to_owned()
                + &next
        }
        Some(after) => report::after::done_text(after, told),
        None => String::new(),
    };
    let daemon = daemon.map(|daemon| match after.contains("Next: ") {
        true => daemon.text(daemon.begin()),
        false => daemon.text_with_next(),
    });
    format!(
        "Applied {}\n{}, and verify finds no difference.\n{}{after}",
        session.chosen.config.name,
        count_noun(plan.steps.len(), "step"),
        daemon.unwrap_or_default(),
    )
}
