//! `apply`: brings a node to the state of a config.
//!
//! [`ApplyRun::make_plan`] makes the plan, which a front end shows. [`ApplyRun::carry_out`] carries it out; [`ApplyRun::leave_unchanged`]
//! is for a plan without steps. Both return an [`Applied`], which a front end shows before [`Applied::finish_run`] ends the run.

use std::cell::RefCell;

use anyhow::Result;
use serde::Serialize;

use super::cache::keep_config;
use super::ending::Ending;
use super::first_boot_units::stop_service;
use super::front::RunNews;
use super::node_change::NodeChange;
use super::trial::running::{self, RunningTrial, TrialOptions, TrialRequest};
use super::work::{LATER_IN_TRIAL, RunWork, expect_no_blockers};
use crate::base::error::ExitCode;
use crate::base::invocation::{mco_rescue, shell_word};
use crate::base::paths;
use crate::base::text::count_noun;
use crate::change::install::completion::Beforehand;
use crate::change::plan::{After, Force, Plan, PlanOptions};
use crate::change::session::{RunOptions, Session, Unnamed};
use crate::change::source::Chosen;
use crate::change::source::gate::ConfigRequest;
use crate::change::staging::stage::{Over, Staging};
use crate::change::staging::{deployments, quorum, reboots, state};
use crate::change::workloads::Stopped;
use crate::change::{transaction, workloads};
use crate::host::sys::memory::RunStage;
use crate::host::sys::privileges::Capability;
use crate::judge::drift::Drift;
use crate::node::command::job::{Done, Job};
use crate::node::host::systemd_runs;
use crate::node::system::SystemFacts;
use crate::run::capsule::remember_capsule;

/// Capabilities that are needed after the files are in place: to discard a staged deployment, and to reboot.
const LATER: [Capability; 4] = [
    Capability::CAP_SYS_ADMIN,
    Capability::CAP_SYS_PTRACE,
    Capability::CAP_LINUX_IMMUTABLE,
    Capability::CAP_SYS_BOOT,
];

/// The options of `apply`.
#[derive(Debug, Clone)]
pub struct ApplyOptions<'a> {
    /// The config, and what the user says about capsules.
    pub config: ConfigRequest<'a>,
    /// The options of the plan.
    pub run: RunOptions<'a>,
    /// The options of a trial.
    pub trial: TrialOptions,
    /// No service is reloaded or restarted.
    pub no_actions: bool,
    /// Capabilities that the front end needs before the run is finished.
    pub keeps: &'a [Capability],
}

/// The results of the actions after the files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct JobsDone {
    /// Finished actions on the running system, with their results.
    pub done: Vec<(Job, Done)>,
    /// Actions that were skipped on request.
    pub left: Vec<Job>,
}

/// One run of `apply`, planned.
#[allow(missing_debug_implementations, reason = "it borrows a front end")]
pub struct ApplyRun<'a> {
    options: &'a ApplyOptions<'a>,
    /// The config and the node.
    pub session: Session<'a>,
    /// The plan.
    pub plan: Plan,
    /// The units to install before the first step.
    beforehand: Option<Beforehand>,
}

impl<'a> ApplyRun<'a> {
    /// Observes the node and makes the plan. `given` is the config, if it was already read.
    ///
    /// # Errors
    /// The config or the node cannot be read.
    pub fn make_plan(
        change: &NodeChange<'a>,
        options: &'a ApplyOptions<'a>,
        given: Option<Chosen>,
    ) -> Result<Self> {
        let (root, runner) = (change.root.open_again()?, change.runner());
        let mut session = match given {
            Some(given) => Session::observe_for(root, runner, given)?,
            None => Session::observe(root, runner, options.config, Unnamed::Wanted)?,
        };
        let beforehand = session.missing_beforehand();
        let plan = session.plan_run(&options.run, beforehand.as_ref())?;
        Ok(Self {
            options,
            session,
            plan,
            beforehand,
        })
    }

    /// Carries out the plan, with everything that comes before and after it on a running node. A trial that fails is reverted.
    ///
    /// # Errors
    /// The plan has blockers, or something failed; the message says what was changed.
    pub fn carry_out(mut self, change: NodeChange<'a>) -> Result<Applied<'a>> {
        self.expect_no_blockers()?;
        self.install_units(&change)?;
        let tried = self.begin_trial(&change)?;
        let jobs = match self.take_steps(&change) {
            Ok(jobs) => jobs,
            Err(error) => return Err(running::fail_change(tried, change, error)),
        };
        set_force(&self.session, &self.plan);
        // The guard of a trial reverts its changes.
        let unverified = tried.is_none().then(RunStage::enter_changed);
        let is_seen = match self.session.observe_applied() {
            Ok(()) => true,
            Err(error) => {
                log::warn!(
                    "{} is applied, but {error:#}. Next: {}",
                    self.session.chosen.config.name,
                    mco_rescue("verify")
                );
                if tried.is_some() {
                    let error = anyhow::anyhow!("the node cannot be read after the change");
                    return Err(running::refuse_change(tried, change, error));
                }
                false
            }
        };
        Ok(Applied {
            jobs,
            is_seen,
            change,
            tried,
            unverified,
            run: self,
        })
    }

    /// Leaves a node as it is that needs no step, except for the daemon's force file.
    ///
    /// # Errors
    /// The plan has blockers.
    pub fn leave_unchanged(self, change: NodeChange<'a>) -> Result<Applied<'a>> {
        self.expect_no_blockers()?;
        change.lock().keep_parents();
        set_force(&self.session, &self.plan);
        Ok(Applied {
            jobs: JobsDone::default(),
            is_seen: true,
            change,
            tried: None,
            unverified: None,
            run: self,
        })
    }

    fn expect_no_blockers(&self) -> Result<()> {
        let what = format!("apply {}", self.session.chosen.config.name);
        expect_no_blockers(&self.plan, &what)
    }

    /// Returns true if the node will reboot at the end.
    fn will_reboot(&self) -> bool {
        self.options.run.reboots && self.plan.needs_reboot()
    }

    /// Installs the units that complete the run at a boot. The plan already counts on their directories.
    fn install_units(&self, change: &NodeChange<'_>) -> Result<()> {
        if self.options.run.allowed.first_boot {
            stop_service(&self.session.root, change.runner())?;
        }
        let completion = &self.options.run.completion;
        match &self.beforehand {
            Some(due) => change.install_completion(completion, &self.plan, due),
            None => Ok(()),
        }
    }

    fn begin_trial(&self, change: &NodeChange<'a>) -> Result<Option<RunningTrial<'a>>> {
        let (options, config) = (&self.options.trial, &self.session.chosen.config.name);
        let request = TrialRequest::of_plan(options, config, &self.plan, self.will_reboot());
        let jobs = self.plan.all_jobs(self.split_jobs().0);
        RunningTrial::begin_trial(change, request.with_jobs(jobs))
    }

    /// Returns the jobs to run on the running system, and those that are left out.
    fn split_jobs(&self) -> (Vec<Job>, Vec<Job>) {
        let after = self.plan.after.as_ref();
        let all = after.map(After::jobs).unwrap_or_default();
        if self.options.no_actions || !systemd_runs(&self.session.root) {
            (Vec::new(), all)
        } else {
            (all, Vec::new())
        }
    }

    fn take_steps(&self, change: &NodeChange<'_>) -> Result<JobsDone> {
        let (session, plan) = (&self.session, &self.plan);
        // With a reboot, services need no jobs to use the new files. Only reverting a trial needs them then, as services may have
        // started with these files.
        let (mut jobs, left) = self.split_jobs();
        if !self.will_reboot() {
            jobs = plan.all_jobs(jobs);
        }
        let stopped = self.stop_workloads()?;
        let restarts = stopped.is_some() && !plan.needs_reboot() && systemd_runs(&session.root);
        jobs.extend(restarts.then(Stopped::start_job));
        let more: &[Capability] = match self.options.trial.window {
            Some(_) => &LATER_IN_TRIAL,
            None if plan.needs_reboot() => &LATER,
            None => &[],
        };
        let more = [more, self.options.keeps].concat();
        let work = RunWork {
            more: &more,
            jobs: &jobs,
            capsules: session
                .chosen
                .taken()
                .into_iter()
                .chain(plan.os.taken())
                .collect(),
            ..RunWork::new(change, &session.node, plan, session.config_ref())
        };
        let facts = session.node.system.facts();
        let done = match facts.filter(|_| !plan.os.is_empty()) {
            Some(facts) => self.stage_and_transact(&work, facts),
            None => self.write_changes(&work),
        };
        if let Some(stopped) = stopped {
            if done.is_ok() && (restarts || plan.needs_reboot()) {
                stopped.disarm();
            } else {
                drop(stopped);
            }
            workloads::forget_stopped(&session.root);
        }
        Ok(JobsDone { done: done?, left })
    }

    /// Stops the kubelet and its pods if requested, in cases where the daemon would drain the node.
    fn stop_workloads(&self) -> Result<Option<Stopped<'a>>> {
        let (run, root, runner) = (&self.options.run, &self.session.root, self.session.runner);
        if !run.stops_workloads {
            return Ok(None);
        }
        if !self.plan.needs_drain() {
            log::warn!("the daemon would not drain the node for this; no workload is stopped");
            return Ok(None);
        }
        quorum::allow_stopping(root, run.ignores_quorum)?;
        workloads::ensure_possible(runner)?;
        workloads::note_stopped(root, runner)?;
        let stopped =
            workloads::stop_workloads(runner).inspect_err(|_| workloads::forget_stopped(root))?;
        log::warn!(
            "the kubelet and {} are stopped",
            count_noun(stopped.pods, "pod")
        );
        Ok(Some(stopped))
    }

    /// Writes the files, and notes that services keep using the old ones until a reboot. A reboot into another operating system has
    /// its own note.
    fn write_changes(&self, work: &RunWork<'_>) -> Result<Vec<(Job, Done)>> {
        let (root, runner) = (&self.session.root, self.session.runner);
        let after = self
            .plan
            .after
            .as_ref()
            .filter(|after| after.needs_reboot());
        let causes = after.map_or_else(Vec::new, After::causes);
        reboots::note_run(root, runner, &self.session.chosen.config.name, causes)?;
        let finished = work.carry_out()?;
        deployments::settle_after_run(root, runner, &finished.id);
        Ok(finished.told)
    }

    /// Stages the operating system, then writes the files, and the record with the last of them
    /// (docs/explanation/operating-system.md).
    fn stage_and_transact(
        &self,
        work: &RunWork<'_>,
        facts: &SystemFacts,
    ) -> Result<Vec<(Job, Done)>> {
        let (session, os) = (&self.session, &self.plan.os);
        let (root, runner) = (&session.root, session.runner);
        let files = !self.plan.steps.is_empty();
        let files = files.then(|| transaction::next_run_id(root, work.change.lock()));
        let files = files.transpose()?;
        let staging = Staging {
            runner,
            print: &|line| work.change.front.tell(RunNews::Staging(line)),
            root,
            lock: work.change.lock(),
            plan: os,
            config: session.config_ref(),
            source: self.options.run.source.source_of(os),
            files: files.clone(),
            over: Over::read_over(root, &state::read_booted(root, runner)?)?,
            expected: RefCell::default(),
            staged: RefCell::default(),
        };
        // If the next boot does not enter it, the config is available to be applied again.
        let config = &session.chosen.config;
        let text = config.record.to_string();
        keep_config(root, &session.records, config, text, &config.origin)?;
        staging.stage_all(facts)?;
        let Some(id) = files else {
            for taken in &work.capsules {
                remember_capsule(root, taken)?;
            }
            if !os.needs_reboot() {
                deployments::settle_awaited(root, runner);
            }
            return Ok(Vec::new());
        };
        match work.transact_as(id) {
            Ok(run) => {
                staging.files_came();
                Ok(run.told)
            }
            Err(error) => Err(match staging.revert_staging() {
                Ok(()) => error.context("what was staged for the next boot is dropped again"),
                Err(second) => error.context(format!("{second:#}")),
            }),
        }
    }
}

/// A config that is in place, before its run ends.
#[allow(missing_debug_implementations, reason = "it borrows a front end")]
pub struct Applied<'a> {
    /// The results of the actions after the files.
    pub jobs: JobsDone,
    /// The node could be read after the change.
    pub is_seen: bool,
    /// The config, the node after the change, and the plan.
    pub run: ApplyRun<'a>,
    change: NodeChange<'a>,
    tried: Option<RunningTrial<'a>>,
    unverified: Option<RunStage>,
}

impl<'a> Applied<'a> {
    /// Returns the differences that are left between node and config. Those that end with the next boot are left out.
    pub fn remaining_drifts(&self) -> Vec<Drift> {
        let ApplyRun { session, plan, .. } = &self.run;
        let options = self.run.options.run.options;
        let mut drifts = if plan.is_empty() && options == PlanOptions::default() {
            session.find_drifts(plan)
        } else {
            session.compare_node().1
        };
        if plan.os.needs_reboot() {
            drifts.retain(|drift| !drift.is_of_the_os());
        }
        drifts
    }

    /// Ends the run, with the exit code that it has so far: its trial or the reboot begins. An error reverts a trial.
    ///
    /// # Errors
    /// That error, or the run cannot be ended.
    pub fn finish_run(self, code: Result<ExitCode>) -> Result<ExitCode> {
        let judged = code.and_then(|code| {
            self.settle_unchanged(code)?;
            Ok((code, self.is_inhibited()?))
        });
        let Self {
            run, change, tried, ..
        } = self;
        drop(self.unverified);
        match judged {
            Ok((code, is_inhibited)) => change.finish_change(Ending {
                tried,
                is_inhibited,
                reboot: run.will_reboot().then_some(run.options.run.ignores_quorum),
                code,
            }),
            Err(error) => Err(running::refuse_change(tried, change, error)),
        }
    }

    /// Settles what an earlier run awaited, if the node needed no step and has the config.
    fn settle_unchanged(&self, code: ExitCode) -> Result<()> {
        let ApplyRun { session, plan, .. } = &self.run;
        let is_whole = plan.is_empty() && plan.os.is_empty();
        if is_whole && code == ExitCode::Done && !self.run.options.run.options.files_only {
            state::forget_failure(&session.root)?;
            deployments::settle_awaited(&session.root, session.runner);
        }
        Ok(())
    }

    /// Returns true if preflight finds an inhibitor in the staged image.
    fn is_inhibited(&self) -> Result<bool> {
        let ApplyRun { session, plan, .. } = &self.run;
        if self.is_seen {
            session.judge_staged(plan, self.run.options.run.risks)
        } else {
            Ok(false)
        }
    }
}

/// Creates or removes the daemon's force file. Everything else is already in place, so a failure here is only a warning.
fn set_force(session: &Session<'_>, plan: &Plan) {
    let (result, command) = match plan.force {
        Force::Left => return,
        Force::Requested => (transaction::request_force(&session.root), "touch"),
        Force::Withdrawn => (transaction::withdraw_force(&session.root), "rm"),
    };
    if let Err(error) = result {
        let file = session.root.shown().join(paths::FORCE);
        log::warn!(
            "everything else is in place, but {error}. Next: {command} {}",
            shell_word(&file.display().to_string())
        );
    }
}
