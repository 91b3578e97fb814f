//! Taking one finished run back, through the same transaction: for `rollback`, `complete` and the end of a trial.

use anyhow::{Context, Result};

use crate::base::paths;
use crate::change::plan::{
    self, Allowed, ChangedSince, FinishedRun, Plan, PlanRequest, RollbackInputs, Task,
};
use crate::change::session::evidence::NodeEvidence;
use crate::change::transaction::journal::ConfigRef;
use crate::diagnose::recorder::Event;
use crate::host::root::{Root, RootPath};
use crate::node::command::CommandRunner;
use crate::node::command::job::Job;
use crate::node::{self, Interest, NodeState};
use crate::run::node_change::NodeChange;
use crate::run::work::{LATER_IN_TRIAL, RunWork};

/// The options of taking a run back.
#[derive(Debug, Clone, Copy, Default)]
pub struct TakeBack<'a> {
    /// What happens to paths that were changed since.
    pub changed: ChangedSince,
    /// Guards that are passed over.
    pub allowed: Allowed,
    /// Older runs that are taken back after it, each with the node at its paths.
    pub older: &'a [(FinishedRun, NodeState)],
    /// Number of runs before it whose operating system never ran.
    pub together: usize,
    /// The jobs of the running system, between files and records.
    pub jobs: &'a [Job],
    /// The run that is taken back stays in the history, and this one comes before it: it can be taken back, too.
    pub keeps_history: bool,
}

/// A finished run, and what taking it back takes.
#[derive(Debug)]
pub struct TakingBack {
    /// The run.
    pub run: FinishedRun,
    /// The node as the plan saw it.
    node: NodeState,
    /// The plan.
    pub plan: Plan,
    keeps_history: bool,
}

impl TakingBack {
    /// Looks at the node and plans.
    pub fn prepare(
        root: &Root,
        runner: &dyn CommandRunner,
        run: FinishedRun,
        wanted: &TakeBack<'_>,
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

    /// Carries the plan out.
    pub fn carry_out(&self, change: &NodeChange<'_>, jobs: &[Job]) -> Result<()> {
        let config = ConfigRef {
            name: before(&self.run),
            digest: String::new(),
            origin: origin(&self.run),
        };
        let work = RunWork {
            change,
            node: &self.node,
            plan: &self.plan,
            config,
            undoes: (!self.keeps_history).then(|| self.run.id.clone()),
            // More runs, questions about the deployments or a reboot may follow.
            more: &LATER_IN_TRIAL,
            jobs,
        };
        work.transact()?;
        change.note_run(Event::Rollback, &self.run.config);
        Ok(())
    }
}

/// The name of what the node is in before a run.
pub fn before(run: &FinishedRun) -> String {
    format!("(before {})", run.config)
}

/// Where a run that is taken back comes from.
pub fn origin(run: &FinishedRun) -> String {
    format!("the history: {}", run.objects)
}

/// Looks at the node at the paths of a run.
pub fn observe_run(
    root: &Root,
    runner: &dyn CommandRunner,
    run: &FinishedRun,
) -> Result<NodeState> {
    let paths = run.steps.iter().map(|(step, _)| step.path().clone());
    let exchanged = run.steps.iter().filter(|(step, _)| step.exchanges());
    let exchanged = exchanged.map(|(step, _)| step.path().clone());
    let interest = Interest {
        paths: paths.chain([RootPath::fixed(paths::STATUS)]).collect(),
        in_the_way: exchanged.collect(),
        ..Interest::default()
    };
    node::observe_node(root, interest, runner).context("looking at the node")
}
