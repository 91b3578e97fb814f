//! Carrying a plan out: asking, the transaction, and what `status` will say of it.

use std::io::{BufRead, IsTerminal, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use super::Cli;
use crate::error::RunError;
use crate::node::NodeState;
use crate::plan::{self, Plan};
use crate::privileges::{self, Capability};
use crate::report::count;
use crate::report::status::{LastRun, Outcome, Phase};
use crate::root::Root;
use crate::transaction::journal::ConfigRef;
use crate::transaction::{self, Failure, Lock, Request};

/// Asks on a terminal; elsewhere `--yes` has to say it.
pub fn confirm(cli: &Cli, question: &str) -> Result<()> {
    if cli.yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        bail!(
            "standard input is no terminal, so nobody can be asked; add --yes to carry this plan out. Nothing was changed"
        );
    }
    let mut error = std::io::stderr();
    write!(error, "{question} [y/N] ")
        .and_then(|()| error.flush())
        .context("asking")?;
    let mut answer = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut answer)
        .context("reading the answer")?;
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        Ok(())
    } else {
        bail!("not confirmed; nothing was changed")
    }
}

/// A plan with everything that carrying it out needs.
pub struct Work<'a> {
    /// The root.
    pub root: &'a Root,
    /// Proof that nobody else is at it.
    pub lock: &'a Lock,
    /// The node as the plan saw it.
    pub node: &'a NodeState,
    /// The plan.
    pub plan: &'a Plan,
    /// What the node is to be in afterwards.
    pub config: ConfigRef,
    /// The finished run that is taken back.
    pub undoes: Option<String>,
    /// Seconds since 1970.
    pub started: u64,
}

impl Work<'_> {
    /// Carries the plan out, all of it or nothing, and keeps what came of it for `status`.
    pub fn transact(&self) -> Result<()> {
        let request = Request {
            root: self.root,
            lock: self.lock,
            steps: &self.plan.steps,
            held: &self.plan.held,
            freeze: &self.plan.freeze,
            seen: &self.node.stamps,
            config: self.config.clone(),
            deployment: self.node.host.deployment.clone(),
            separate_var: self.node.host.separate_var,
            undoes: self.undoes.clone(),
        };
        let record = |result: &Result<String, Failure>| {
            let run = last_run(&self.config, self.plan, self.started, result);
            if let Err(error) = transaction::write_last_run(self.root, self.lock, &run) {
                log::warn!("writing the status: {error}");
            }
        };
        self.limit();
        match transaction::run(&request, record) {
            Ok(_) => Ok(()),
            Err(Failure::NothingChanged(said)) => bail!("{said}; nothing was changed"),
            Err(Failure::RolledBack(said)) => Err(RunError::RolledBack(said).into()),
            Err(Failure::Incomplete(said)) => {
                Err(RunError::Incomplete(format!("{said}. Next: mco-rescue recover")).into())
            }
        }
    }
}

impl Work<'_> {
    /// Of what root may do, only what this plan needs is kept; labels may be of a policy that is not loaded.
    fn limit(&self) {
        let needs = plan::needs(self.plan, self.node).into_iter();
        let mut kept: Vec<Capability> = needs.map(|need| need.capability).collect();
        if kept.contains(&Capability::CAP_SYS_ADMIN) {
            kept.push(Capability::CAP_MAC_ADMIN);
        }
        privileges::keep_needed(&kept);
    }
}

/// What `status` will say of this run.
fn last_run(
    config: &ConfigRef,
    plan: &Plan,
    started: u64,
    result: &Result<String, Failure>,
) -> LastRun {
    let steps = count(plan.steps.len(), "step");
    let (outcome, said) = match result {
        Ok(_) => (Outcome::Done, format!("{steps}, all in place")),
        Err(error @ Failure::Incomplete(_)) => (Outcome::Incomplete, error.to_string()),
        Err(error) => (Outcome::RolledBack, error.to_string()),
    };
    let phases = vec![
        Phase {
            name: "plan".into(),
            result: steps,
        },
        Phase {
            name: "transaction".into(),
            result: said,
        },
    ];
    LastRun {
        version: LastRun::VERSION,
        id: result.as_ref().cloned().unwrap_or_default(),
        config: config.clone(),
        started,
        finished: now(),
        outcome,
        phases,
        steps: plan.steps.len(),
        notices: plan.notices.clone(),
    }
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}
