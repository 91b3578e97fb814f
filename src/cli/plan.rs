//! `plan`: everything that `apply` would do, and nothing done.

use crate::cli::ui::Ui;
use anyhow::Result;

use super::access::{self, AccessNeed};
use super::install::Beforehand;
use super::own_state::expect_known_state;
use super::predict;
use super::session::{Session, Unnamed, open_root};
use super::{Output, PlanArgs, machine, trial};
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
pub(super) fn run(ui: &Ui<'_>, args: &PlanArgs) -> Result<ExitCode> {
    let root = open_root(ui)?;
    let machine = machine::observe_machine(&root)?;
    if let Some(against) = wrong_machine(&machine, args.guards.not_a_node) {
        return refuse(ui, &machine, against);
    }
    access::expect_access(&root, AccessNeed::Write)?;
    expect_known_state(&root)?;
    let pending = transaction::find_pending(&root)?;
    let mut session = Session::observe(root, ui.runner, args.config.choice(), Unnamed::Wanted)?;
    let beforehand = Beforehand::of(&session);
    let mut plan = session.plan_run(args, beforehand.as_ref(), (false, false))?;
    // The reboot is an option of apply: it is taken as given where it is needed.
    let reboots = plan.os.needs_reboot();
    trial::facts::add_to_plan(&session.root, &args.trial, &mut plan, reboots)?;
    let diffs = session.diffs(&plan, args.config.show_secrets);
    let heading = session.heading();
    let daemon = predict::of_plan(&session, &plan, args);
    let text = match ui.output {
        Output::Json => report::plan::to_json(&heading, &plan, &diffs, &daemon)?,
        Output::Text => {
            let mut text = String::new();
            if let (word, Some(config)) = pending_words(&pending) {
                let said = format!(
                    "An earlier run ({}) is {word}; apply takes care of it first.",
                    config.name
                );
                text.push_str(&(report::wrap(&said, 0) + "\n"));
            }
            text + &report::plan::to_text(&heading, &plan, &diffs, ui.detail(args.summary))
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
fn refuse(ui: &Ui<'_>, machine: &Machine, against: Notice) -> Result<ExitCode> {
    let heading = machine::heading(machine);
    let plan = Plan::refused(against);
    let text = match ui.output {
        Output::Json => report::plan::to_json(&heading, &plan, &Diffs::new(), &None)?,
        Output::Text => report::plan::refused(&heading, &plan.blockers) + &next(&plan, None),
    };
    report::print(text.as_bytes())?;
    Ok(ExitCode::Error)
}

/// When the daemon is told of.
pub(super) fn begin(plan: &Plan, daemon: &Forecast) -> &'static str {
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
