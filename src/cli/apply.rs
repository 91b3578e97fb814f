//! `apply`: lock, recover, observe, plan, ask, transact, verify, report.

use anyhow::{Result, bail};

use super::recover::recover_first;
use super::session::{Session, open_root};
use super::work::{Work, confirm, now};
use super::{Cli, Output, PlanArgs};
use crate::drift;
use crate::error::ExitCode;
use crate::plan::{Options, Plan};
use crate::report::verify::Findings;
use crate::report::{self, count};
use crate::transaction;

/// Runs `apply`.
pub fn run(cli: &Cli, args: &PlanArgs) -> Result<ExitCode> {
    let started = now();
    let root = open_root(cli)?;
    let lock = transaction::acquire(&root)?;
    recover_first(&root, &lock)?;
    let mut session = Session::observe(root, args.config.choice())?;
    let plan = session.guarded_plan(args.options(), args.guards.allowed())?;
    show_plan(cli, args, &session, &plan)?;
    if !plan.blockers.is_empty() {
        bail!(
            "refusing to apply {}: see the blockers above; nothing was changed",
            session.chosen.config.name
        );
    }
    if !plan.is_empty() {
        confirm(cli, "Apply this plan?")?;
        let work = Work {
            root: &session.root,
            lock: &lock,
            node: &session.node,
            plan: &plan,
            config: session.config_ref(),
            undoes: None,
            started,
            more: &[],
        };
        work.transact()?;
        if let Err(error) = session.observe_again() {
            log::warn!(
                "{} is applied, but {error:#}. Next: mco-rescue verify",
                session.chosen.config.name
            );
            return Ok(ExitCode::Done);
        }
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
