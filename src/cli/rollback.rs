//! `rollback`: the last finished run taken back, through the same transaction.

use anyhow::{Context, Result, bail};

use super::complete;
use super::install::systemd_runs;
use super::os::{self, WayBack};
use super::recover::recover_first;
use super::session::{guard, open_root};
use super::work::{Work, confirm, now};
use super::{Cli, Output, RollbackArgs};
use crate::command::HostRunner;
use crate::command::job::Job;
use crate::error::ExitCode;
use crate::node::{self, Interest, NodeState, Records};
use crate::paths;
use crate::plan::{self, Allowed, FinishedRun, Notice, Plan};
use crate::report;
use crate::report::plan::{Diffs, Heading};
use crate::root::{Root, RootPath};
use crate::transaction::journal::ConfigRef;
use crate::transaction::{self, Lock};

/// Runs `rollback`.
pub fn run(cli: &Cli, args: &RollbackArgs) -> Result<ExitCode> {
    let started = now();
    let root = open_root(cli)?;
    let lock = transaction::acquire(&root)?;
    recover_first(&root, &lock)?;
    let Some(run) = transaction::history(&root)?.into_iter().next() else {
        bail!(
            "no finished run is in the history, so there is nothing to go back to. \
             Apply the config that the node should be in: mco-rescue apply CONFIG"
        );
    };
    let mut back = TakingBack::prepare(&root, run, args.leave_changed, args.guards.allowed())?;
    let jobs = if args.no_actions {
        Vec::new()
    } else {
        back.announce_jobs(&root)
    };
    let heading = heading(&root, &back.run)?;
    let (run, plan) = (&back.run, &back.plan);
    if cli.output == Output::Text || !plan.blockers.is_empty() {
        show(cli, &heading, plan)?;
    }
    if !plan.blockers.is_empty() {
        bail!(
            "refusing to take {} back: see the blockers above; nothing was changed",
            run.config
        );
    }
    confirm(cli, "Take this run back?")?;
    let of_the_os =
        complete::os_run(&root, &run.id)?.filter(|_| !args.files_only && root.is_live());
    if let Some(os_run) = of_the_os
        && let WayBack::NextBoot = os::go_back(&root, &os_run, &run.config)?
    {
        return next_boot(cli, run, args.reboot);
    }
    back.carry_out(&root, &lock, started, &jobs)?;
    let left = transaction::history(&root)?.len();
    let recorded = recorded(&root)?;
    let text = match cli.output {
        Output::Json => report::rollback::json(run, &recorded, plan.steps.len(), left)?,
        Output::Text => report::rollback::text(run, &recorded, plan.steps.len(), left),
    };
    report::print_result(text.as_bytes());
    Ok(ExitCode::Done)
}

/// The files go back where their deployment runs again; here they belong to what is left.
fn next_boot(cli: &Cli, run: &FinishedRun, reboot: bool) -> Result<ExitCode> {
    let text = match cli.output {
        Output::Json => report::rollback::json(run, &None, 0, 0)?,
        Output::Text => report::rollback::awaits(run),
    };
    report::print_result(text.as_bytes());
    if reboot {
        os::reboot()?;
    }
    Ok(ExitCode::Done)
}

/// A finished run, and what taking it back takes.
pub struct TakingBack {
    /// The run.
    pub run: FinishedRun,
    /// The node as the plan saw it.
    node: NodeState,
    /// The plan.
    pub plan: Plan,
}

impl TakingBack {
    /// Looks at the node and plans.
    pub fn prepare(
        root: &Root,
        run: FinishedRun,
        leave_changed: bool,
        allowed: Allowed,
    ) -> Result<Self> {
        let node = observe(root, &run)?;
        let mut plan = plan::rollback(&run, &node, leave_changed);
        guard(&mut plan, root, &node, allowed)?;
        Ok(Self { run, node, plan })
    }

    /// What the running system is told between files and records; the plan says it.
    fn announce_jobs(&mut self, root: &Root) -> Vec<Job> {
        if !systemd_runs(root) || self.plan.steps.is_empty() {
            return Vec::new();
        }
        let jobs = self.run.jobs_back();
        let said: Vec<String> = jobs.iter().map(ToString::to_string).collect();
        if !said.is_empty() {
            self.plan.notices.push(Notice {
                subject: "after the files".to_owned(),
                message: format!("{}, as the run did", said.join(", ")),
            });
        }
        jobs
    }

    /// Carries the plan out.
    pub fn carry_out(&self, root: &Root, lock: &Lock, started: u64, jobs: &[Job]) -> Result<()> {
        let config = ConfigRef {
            name: before(&self.run),
            digest: String::new(),
            origin: origin(&self.run),
        };
        let work = Work {
            root,
            lock,
            node: &self.node,
            plan: &self.plan,
            config,
            undoes: Some(self.run.id.clone()),
            started,
            more: &[],
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

fn observe(root: &Root, run: &FinishedRun) -> Result<NodeState> {
    let paths = run.steps.iter().map(|(step, _)| step.path().clone());
    let exchanged = run.steps.iter().filter(|(step, _)| step.exchanges());
    let exchanged = exchanged.map(|(step, _)| step.path().clone());
    let interest = Interest {
        paths: paths.chain([RootPath::fixed(paths::STATUS)]).collect(),
        in_the_way: exchanged.collect(),
        ..Interest::default()
    };
    node::observe(root, &interest, &HostRunner).context("looking at the node")
}

fn show(cli: &Cli, heading: &Heading, plan: &Plan) -> Result<()> {
    let text = match cli.output {
        Output::Json => report::plan::json(heading, plan, &Diffs::new(), &None)?,
        Output::Text => report::plan::text(heading, plan, &Diffs::new(), cli.verbose > 0),
    };
    Ok(report::print(text.as_bytes())?)
}

fn heading(root: &Root, run: &FinishedRun) -> Result<Heading> {
    Ok(Heading {
        config: before(run),
        digest: String::new(),
        origin: origin(run),
        chosen: "the last run that can be taken back".to_owned(),
        root: root.shown().display().to_string(),
        recorded: recorded(root)?.unwrap_or_else(|| "(no record)".to_owned()),
        others: Vec::new(),
    })
}

fn recorded(root: &Root) -> Result<Option<String>> {
    let records = Records::read(root).context("reading the daemon's records")?;
    Ok(records.name())
}
