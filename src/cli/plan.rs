//! `plan`: everything that `apply` would do, and nothing done.

use anyhow::Result;

use super::access::{self, Need};
use super::after;
use super::install::Beforehand;
use super::predict;
use super::quorum;
use super::session::{Session, Unnamed, open_root};
use super::{Cli, Output, PlanArgs, machine};
use crate::daemon::forecast::Forecast;
use crate::error::ExitCode;
use crate::invocation::mco_rescue;
use crate::node::Machine;
use crate::notice::Notice;
use crate::plan::{Plan, wrong_machine};
use crate::report;
use crate::report::plan::Diffs;
use crate::report::status::pending_words;
use crate::transaction;

/// Runs `plan`.
pub fn run(cli: &Cli, args: &PlanArgs) -> Result<ExitCode> {
    let root = open_root(cli)?;
    let machine = machine::observe(&root)?;
    if let Some(against) = wrong_machine(&machine, args.guards.not_a_node) {
        return refuse(cli, &machine, against);
    }
    access::expect(&root, Need::Write)?;
    let pending = transaction::find_pending(&root)?;
    let session = Session::observe(root, args.config.choice(), Unnamed::Wanted)?;
    let mut plan = session.whole_plan(args)?;
    after::look(&session, &mut plan, args.options(), args.policy.as_deref())?;
    if plan.reboots() {
        quorum::look(&session.root, &mut plan, false)?;
    }
    let beforehand = Beforehand::of(&session);
    let completion = args.guards.completion();
    completion.look(&session.root, &mut plan, beforehand.as_ref())?;
    if let Some(beforehand) = beforehand {
        beforehand.announce(&mut plan);
    }
    let diffs = session.diffs(&plan, args.config.show_secrets);
    let heading = session.heading();
    let daemon = predict::of_plan(&session, &plan, args);
    let text = match cli.output {
        Output::Json => report::plan::json(&heading, &plan, &diffs, &daemon)?,
        Output::Text => {
            let mut text = String::new();
            if let (word, Some(config)) = pending_words(&pending) {
                let said = format!(
                    "An earlier run ({}) is {word}; apply takes care of it first.",
                    config.name
                );
                text.push_str(&(report::wrap(&said, 0) + "\n"));
            }
            text + &report::plan::text(&heading, &plan, &diffs, cli.detail(args.summary))
                + &daemon
                    .as_ref()
                    .map_or_else(String::new, |daemon| daemon.text(begin(&plan, daemon)))
                + &next(&plan, daemon.as_ref())
        }
    };
    report::print(text.as_bytes())?;
    Ok(if plan.blockers.is_empty() {
        ExitCode::Done
    } else {
        ExitCode::Error
    })
}

/// No config is looked at for another machine: its changes are none of this plan.
fn refuse(cli: &Cli, machine: &Machine, against: Notice) -> Result<ExitCode> {
    let heading = machine::heading(machine);
    let plan = Plan {
        blockers: vec![against],
        ..Plan::default()
    };
    let text = match cli.output {
        Output::Json => report::plan::json(&heading, &plan, &Diffs::new(), &None)?,
        Output::Text => report::plan::refused(&heading, &plan.blockers) + &next(&plan, None),
    };
    report::print(text.as_bytes())?;
    Ok(ExitCode::Error)
}

/// When the daemon is told of.
pub fn begin(plan: &Plan, daemon: &Forecast) -> &'static str {
    if plan.is_empty() || !plan.blockers.is_empty() {
        daemon.begin()
    } else if daemon.after_reboot {
        "Once this is applied and the node rebooted, when the daemon starts"
    } else {
        "Once this is applied, when the daemon starts"
    }
}

fn next(plan: &Plan, daemon: Option<&Forecast>) -> String {
    if !plan.blockers.is_empty() {
        let again = report::plan::blockers_again(plan);
        return format!("apply would refuse. Next: see to the blockers above.{again}\n");
    }
    if plan.is_empty() {
        return String::new();
    }
    let instead = daemon
        .filter(|daemon| daemon.stops())
        .and_then(Forecast::next);
    match instead {
        Some(next) => report::wrap(
            &format!("The daemon would stop over this plan, as said above. Next: {next}"),
            0,
        ),
        None => report::wrap(
            &format!("Next: {}, with the same arguments.", mco_rescue("apply")),
            0,
        ),
    }
}
