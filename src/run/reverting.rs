//! Reverting one finished run, through the same transaction: for `rollback`, `complete` and the end of a trial.

use anyhow::{Context, Result};

use crate::base::paths;
use crate::change::plan::{
    self, Allowed, ChangedSince, FinishedRun, Plan, PlanRequest, PlannedTrial, RollbackInputs, Task,
};
use crate::change::session::evidence::NodeEvidence;
use crate::change::source::cache;
use crate::change::transaction::journal::ConfigRef;
use crate::diagnose::recorder::Event;
use crate::host::root::{Root, RootPath};
use crate::node::command::CommandRunner;
use crate::node::command::job::Job;
use crate::node::{self, Interest, NodeState, Records};
use crate::run::cache::keep_config;
use crate::run::node_change::NodeChange;
use crate::run::work::{LATER_IN_TRIAL, RunWork};

/// The options for reverting a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct RevertRequest<'a> {
    /// What happens to paths that were changed since.
    pub changed: ChangedSince,
    /// Guards to override.
    pub allowed: Allowed,
    /// Older runs that are reverted afterwards, each with the state of the node at its paths.
    pub older: &'a [(FinishedRun, NodeState)],
    /// Number of runs before it whose operating system never ran.
    pub together: usize,
    /// The jobs for the running system, between files and records.
    pub jobs: &'a [Job],
    /// The reverted run stays in the history, with this one before it, so that the revert can itself be reverted.
    pub keeps_history: bool,
    /// The trial that the revert is part of.
    pub trial: Option<PlannedTrial>,
}

/// A finished run, with the plan to revert it.
#[derive(Debug)]
pub struct RunRevert {
    /// The run.
    pub run: FinishedRun,
    /// The state of the node that the plan is based on.
    node: NodeState,
    /// The plan.
    pub plan: Plan,
    keeps_history: bool,
}

impl RunRevert {
    /// Observes the node and plans the revert.
    pub fn prepare_revert(
        root: &Root,
        runner: &dyn CommandRunner,
        run: FinishedRun,
        wanted: &RevertRequest<'_>,
    ) -> Result<Self> {
        let node = observe_run(root, runner, &run)?;
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
            trial: wanted.trial,
            ..PlanRequest::default()
        };
        let evidence = NodeEvidence::of_node(root, &node, runner);
        let plan = plan::plan_whole(&Task::Rollback(inputs), &request, &evidence)?;
        Ok(Self {
            run,
            node,
            plan,
            keeps_history: wanted.keeps_history,
        })
    }

    /// Carries out the plan.
    pub fn carry_out(&self, change: &NodeChange<'_>, jobs: &[Job]) -> Result<()> {
        if let Err(error) = keep_reverted(&change.root, &self.run.config) {
            log::warn!("{} is not kept in the cache: {error:#}", self.run.config);
        }
        let config = ConfigRef {
            name: name_before(&self.run),
            digest: String::new(),
            origin: revert_origin(&self.run),
        };
        let work = RunWork {
            undoes: (!self.keeps_history).then(|| self.run.id.clone()),
            // More runs, queries about the deployments or a reboot may follow.
            more: &LATER_IN_TRIAL,
            jobs,
            ..RunWork::new(change, &self.node, &self.plan, config)
        };
        work.carry_out()?;
        change.note_run(Event::Rollback, &self.run.config);
        Ok(())
    }
}

/// Keeps the recorded config in the cache if it is that of the run, so that it can be applied again.
fn keep_reverted(root: &Root, config: &str) -> Result<()> {
    let records = Records::read(root).context("reading the daemon's records")?;
    let recorded = records.recorded_config();
    let Some(recorded) = recorded.filter(|one| one.name == config && !one.bare && !one.emptied)
    else {
        return Ok(());
    };
    let cached = cache::read_cache(root).context("reading the cache")?;
    if !cache::whole_entries(&cached).any(|entry| entry.name == config) {
        let text = recorded.record.to_string();
        keep_config(
            root,
            &records,
            recorded,
            text,
            "the record, before a rollback",
        )?;
    }
    Ok(())
}

/// Returns a name for the state of the node before a run.
pub fn name_before(run: &FinishedRun) -> String {
    format!("before {}", run.config)
}

/// Returns the origin of a run that is being reverted.
pub fn revert_origin(run: &FinishedRun) -> String {
    format!("the history: {}", run.objects)
}

/// Observes the node at the paths of a run.
pub fn observe_run(
    root: &Root,
    runner: &dyn CommandRunner,
    run: &FinishedRun,
) -> Result<NodeState> {
    let paths = run.steps.iter().map(|(step, _)| step.path().clone());
    let exchanged = run
        .steps
        .iter()
        .filter(|(step, _)| step.exchanges_directory());
    let exchanged = exchanged.map(|(step, _)| step.path().clone());
    let interest = Interest {
        paths: paths.chain([RootPath::fixed(paths::STATUS)]).collect(),
        in_the_way: exchanged.collect(),
        ..Interest::default()
    };
    node::observe_node(root, interest, runner).context("looking at the node")
}
