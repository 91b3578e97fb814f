//! `apply`: lock, recover, observe, plan, ask, transact, verify, report.

use std::io::{BufRead, IsTerminal, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use super::recover::recover;
use super::session::{Session, open_root};
use super::{Cli, Output, PlanArgs};
use crate::drift;
use crate::error::{ExitCode, RunError};
use crate::plan::{Options, Plan};
use crate::report::status::{LastRun, Outcome, Phase};
use crate::report::verify::Findings;
use crate::report::{self, count};
use crate::transaction::journal::ConfigRef;
use crate::transaction::{self, Direction, Failure, Lock, Recovered, Request};

/// Runs `apply`.
pub fn run(cli: &Cli, args: &PlanArgs) -> Result<ExitCode> {
    let started = now();
    let root = open_root(cli)?;
    let lock = transaction::acquire(&root)?;
    // An unfinished transaction comes first, always.
    let recovered = recover(&root, &lock, Direction::Forward)?;
    if recovered != Recovered::Nothing {
        log::warn!("{}", report::recover::sentence(&recovered));
    }
    let mut session = Session::observe(root, args.config.config.as_deref())?;
    let plan = session.plan(args.options());
    show_plan(cli, args, &session, &plan)?;
    if !plan.blockers.is_empty() {
        bail!(
            "refusing to apply {}: see the blockers above; nothing was changed",
            session.chosen.config.name
        );
    }
    if !plan.is_empty() {
        confirm(cli)?;
        transact(&session, &lock, &plan, started)?;
        session.observe_again()?;
    }
    verify(cli, &session, &plan)
}

fn show_plan(cli: &Cli, args: &PlanArgs, session: &Session, plan: &Plan) -> Result<()> {
    let diffs = session.diffs(plan, args.config.show_secrets);
    match cli.output {
        // One document a run: the plan is it, unless it is carried out; then the result follows alone.
        Output::Json if plan.blockers.is_empty() => Ok(()),
        Output::Json => Ok(report::print(
            report::plan::json(&session.heading(), plan, &diffs)?.as_bytes(),
        )?),
        Output::Text => {
            let text = report::plan::text(&session.heading(), plan, &diffs, cli.verbose > 0);
            Ok(report::print(text.as_bytes())?)
        }
    }
}

/// Asks on a terminal; elsewhere `--yes` has to say it.
fn confirm(cli: &Cli) -> Result<()> {
    if cli.yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        bail!(
            "standard input is no terminal, so nobody can be asked; add --yes to apply this plan. Nothing was changed"
        );
    }
    let mut error = std::io::stderr();
    write!(error, "Apply this plan? [y/N] ")
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

fn transact(session: &Session, lock: &Lock, plan: &Plan, started: u64) -> Result<()> {
    let config = ConfigRef {
        name: session.chosen.config.name.clone(),
        digest: session.chosen.config.digest.clone(),
        origin: session.chosen.config.origin.clone(),
    };
    let request = Request {
        root: &session.root,
        lock,
        steps: &plan.steps,
        seen: &session.node.stamps,
        config: config.clone(),
        deployment: session.node.host.deployment.clone(),
        initramfs: session.node.host.initramfs,
    };
    let record = |result: &Result<String, Failure>| {
        if let Err(error) = transaction::write_last_run(
            &session.root,
            lock,
            &last_run(&config, plan, started, result),
        ) {
            log::warn!("writing the status: {error}");
        }
    };
    match transaction::run(&request, record) {
        Ok(_) => Ok(()),
        Err(Failure::NothingChanged(said)) => bail!("{said}; nothing was changed"),
        Err(Failure::RolledBack(said)) => Err(RunError::RolledBack(said).into()),
        Err(Failure::Incomplete(said)) => {
            Err(RunError::Incomplete(format!("{said}. Next: mco-rescue recover")).into())
        }
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

/// The same comparison must come out empty afterwards.
fn verify(cli: &Cli, session: &Session, plan: &Plan) -> Result<ExitCode> {
    let drifts = session.drifts(&session.plan(Options::default()));
    let verdict = drift::verdict(&session.chosen.config.name, &drifts);
    let diffs = report::plan::Diffs::new();
    let findings = Findings {
        drifts: &drifts,
        verdict: verdict.as_deref(),
        diffs: &diffs,
        not_looked_at: &session.not_looked_at(),
    };
    let text = match cli.output {
        Output::Json => report::verify::json(&session.heading(), findings)?,
        Output::Text if drifts.is_empty() => done(session, plan),
        Output::Text => report::verify::text(&session.heading(), findings),
    };
    report::print(text.as_bytes())?;
    Ok(if drifts.is_empty() {
        ExitCode::Done
    } else {
        ExitCode::Drift
    })
}

fn done(session: &Session, plan: &Plan) -> String {
    if plan.is_empty() {
        return String::new();
    }
    let reload = if session.node.host.live {
        "Next: systemctl daemon-reload, then restart what changed, or reboot.\n"
    } else {
        ""
    };
    format!(
        "Applied {}\n{}, and verify finds no difference.\n{reload}",
        session.chosen.config.name,
        count(plan.steps.len(), "step"),
    )
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}
