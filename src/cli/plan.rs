//! `plan`: shows everything that `apply` would do, without doing it.

use super::diffs;
use crate::cli::ui::Ui;
use anyhow::{Context, Result};

use super::Output;
use super::rehearse::PartRehearsal;
use crate::base::error::ExitCode;
use crate::base::invocation::{self, STAGE_OS, again_as, mco_rescue, on_booted_node, shell_word};
use crate::base::notice::Notice;
use crate::base::paths;
use crate::base::reason::Reason;
use crate::base::text::count_noun;
use crate::change::plan::{Plan, wrong_machine};
use crate::change::session::access;
use crate::change::session::access::AccessNeed;
use crate::change::session::machine;
use crate::change::session::own_state::expect_known_state;
use crate::change::session::predict;
use crate::change::session::{Session, Unnamed, choose_config, open_root, with_disk};
use crate::change::transaction::journal::ConfigRef;
use crate::change::transaction::{self, Direction, Pending, RecoveryOutlook};
use crate::cli::args::{PlanArgs, expect_local_bits};
use crate::config::document;
use crate::host::root::{Root, RootPath};
use crate::judge::daemon::forecast::Forecast;
use crate::node::{Machine, RecordReader, Recorded, Records};
use crate::rehearse::rehearsal::RehearsalSubject;
use crate::report;
use crate::report::plan::{Diffs, Heading};

/// Runs `plan`.
pub(super) fn run(ui: &Ui<'_>, args: &PlanArgs) -> Result<ExitCode> {
    let root = with_disk(open_root(&ui.root)?, &ui.root)?;
    expect_local_bits(&root, &args.bits)?;
    let machine = machine::observe_machine(&root)?;
    if let Some(against) = wrong_machine(&machine, args.guards.not_a_node) {
        return refuse(ui, &machine, against);
    }
    access::expect_access(&root, AccessNeed::Write)?;
    expect_known_state(&root)?;
    let pending = transaction::find_pending(&root)?;
    if let Pending::Unfinished(interrupted, _) = &pending {
        return plan_after_interrupted(ui, root, &machine, args, interrupted);
    }
    let session = Session::observe(root, ui.runner, args.config.request(), Unnamed::Wanted)?;
    let before = match pending.state() {
        (state, Some(config)) => {
            let config = &config.name;
            format!("An earlier run ({config}) is {state}; apply tidies up after it first.")
        }
        _ => String::new(),
    };
    plan_session(ui, session, args, &before, &[])
}

/// Makes and shows the plan. `before` is printed first. Paths in `foreseen` still have other contents on the disk, so they get no
/// diff.
fn plan_session(
    ui: &Ui<'_>,
    mut session: Session<'_>,
    args: &PlanArgs,
    before: &str,
    foreseen: &[RootPath],
) -> Result<ExitCode> {
    let beforehand = session.missing_beforehand();
    let plan = session.plan_run(&args.run_options()?, beforehand.as_ref())?;
    let mut diffs = diffs::of_session(&session, &plan, args.config.show_secrets);
    diffs.retain(|path, _| !foreseen.contains(path));
    let heading = Heading::of_session(&session);
    let daemon = predict::of_plan(&session, &plan, args.policy.as_deref(), args.daemon.given());
    let rehearsal = rehearse_plan(ui, &session, &plan, args)?;
    let text = match ui.output {
        Output::Json => report::plan::to_json(&heading, &plan, &diffs, &daemon)?,
        Output::Text => {
            let text = if before.is_empty() {
                String::new()
            } else {
                report::wrap_text(before, 0) + "\n"
            };
            let text =
                text + &report::plan::to_text(&heading, &plan, &diffs, ui.detail(args.summary));
            // What is refused has no result to predict.
            let daemon = daemon.filter(|_| plan.blockers.is_empty());
            let said = daemon.as_ref();
            let said = said.map(|daemon| daemon.text(begin(&plan, daemon)));
            let next = if plan.is_empty() && !session.disk_drifts().is_empty() {
                format!("Next: {}\n", on_booted_node(STAGE_OS))
            } else {
                next(&plan, daemon.as_ref(), args.config.choice(), &text)
            };
            text + &said.unwrap_or_default() + &next
        }
    };
    let text = match &rehearsal {
        Some(rehearsal) => rehearsal.append_to(ui, text)?,
        None => text,
    };
    report::print_asked(&text, args.config.show_secrets)?;
    let is_inhibited = rehearsal.is_some_and(|rehearsal| rehearsal.has_inhibitor());
    Ok(if plan.blockers.is_empty() && !is_inhibited {
        ExitCode::Done
    } else {
        ExitCode::Error
    })
}

/// Rehearses the boot with the config, if that is asked for and `apply` would not refuse.
fn rehearse_plan(
    ui: &Ui<'_>,
    session: &Session<'_>,
    plan: &Plan,
    args: &PlanArgs,
) -> Result<Option<PartRehearsal>> {
    if !args.rehearse {
        return Ok(None);
    }
    if !plan.blockers.is_empty() {
        log::warn!("nothing is rehearsed, as apply would refuse");
        return Ok(None);
    }
    let subject = RehearsalSubject::Chosen(&session.chosen.config);
    Ok(Some(PartRehearsal::carry_out(ui, &session.root, subject)?))
}

/// Prints the refusal of a wrong machine. No config is read for it, as its changes would not belong to this plan.
fn refuse(ui: &Ui<'_>, machine: &Machine, against: Notice) -> Result<ExitCode> {
    let heading = Heading::of_machine(machine);
    let plan = Plan::refuse_all(against);
    ui.print(
        || report::plan::to_json(&heading, &plan, &Diffs::new(), &None),
        || {
            let text = report::plan::refused_text(&heading, &plan.blockers);
            let next = next(&plan, None, None, &text);
            text + &next
        },
    )?;
    Ok(ExitCode::Error)
}

/// Plans for a node with an interrupted run, whose files belong to two configs. `apply` asks about that run first, so the plan
/// starts from the node after it. If the node then has the wanted config, the plan is the rest of that run.
fn plan_after_interrupted(
    ui: &Ui<'_>,
    root: Root,
    machine: &Machine,
    args: &PlanArgs,
    interrupted: &ConfigRef,
) -> Result<ExitCode> {
    let mut records = Records::read(&root).context("reading the daemon's records")?;
    let recorded = records.name();
    let outlook = transaction::foresee_recovery(&root);
    if let Ok(Some(RecoveryOutlook {
        record: Some(text), ..
    })) = &outlook
    {
        let origin = format!("/{}", paths::CURRENT_CONFIG);
        let record = document::parse_document(text.clone(), &origin);
        records.current_config = match record {
            Ok(config) => Recorded::Present(Box::new(config)),
            Err(error) => Recorded::Broken(Reason::from_error(error)),
        };
        records.reader = RecordReader::Same;
    }
    let chosen = choose_config(&root, args.config.request(), Unnamed::Wanted, &records)?;
    if let Ok(None) = &outlook {
        // All of its files are in place, or none of them.
        let before = format!(
            "A run to {} stopped before its end, and no file of it is left to change; apply tidies up after it first.",
            interrupted.name
        );
        let session = Session::for_chosen(root, ui.runner, records, chosen)?;
        return plan_session(ui, session, args, &before, &[]);
    }
    if chosen.config.digest != interrupted.digest
        && let Ok(Some(outlook)) = &outlook
        && outlook.direction == Direction::Forward
    {
        let before = format!(
            "A run to {} is unfinished. This is planned from the node after that run is finished, with {} left: apply asks about it \
             first. Next: {} # finishes it, or {} # reverts it",
            interrupted.name,
            count_noun(outlook.left.len(), "path"),
            mco_rescue("recover"),
            mco_rescue("recover --back")
        );
        let mut session = Session::for_chosen(root, ui.runner, records, chosen)?;
        session.foresee_steps(&outlook.steps);
        return plan_session(ui, session, args, &before, &outlook.left);
    }
    let wanted = &chosen.config.name;
    let after = match outlook {
        Err(error) => Err(error.to_string()),
        Ok(Some(outlook)) if outlook.direction == Direction::Back => Err(format!(
            "is unfinished, and can only be undone. What {wanted} needs is planned from the node after that. Next: {}",
            mco_rescue("recover")
        )),
        Ok(outlook) => Ok(outlook.map_or_else(Vec::new, |outlook| outlook.left)),
    };
    let subject = format!("the run to {}", interrupted.name);
    let heading = Heading {
        config: wanted.clone(),
        digest: chosen.config.digest.clone(),
        origin: chosen.config.origin.clone(),
        chosen: chosen.why.clone(),
        recorded: recorded.unwrap_or_else(|| "(no record)".to_owned()),
        ..Heading::of_machine(machine)
    };
    let plan = match &after {
        Err(message) => Plan::refuse_all(Notice::new(subject, message.clone())),
        Ok(left) => Plan {
            notices: vec![Notice::new(
                subject,
                format!(
                    "is unfinished, with {} left. Once it is finished, there is nothing to do. Next: {}",
                    count_noun(left.len(), "path"),
                    mco_rescue("recover")
                ),
            )],
            ..Plan::default()
        },
    };
    ui.print(
        || report::plan::to_json(&heading, &plan, &Diffs::new(), &None),
        || {
            let left = after.as_deref().unwrap_or_default();
            let text = report::plan::unfinished_text(&heading, &plan, left);
            let next = next(&plan, None, args.config.choice(), &text);
            text + &next
        },
    )?;
    Ok(match after {
        Ok(_) => ExitCode::Done,
        Err(_) => ExitCode::Error,
    })
}

/// Returns the beginning of the forecast: the time that it is about.
pub(super) fn begin(plan: &Plan, daemon: &Forecast) -> &'static str {
    if plan.is_empty() {
        daemon.begin()
    } else if daemon.after_reboot {
        "Once this is applied and the node rebooted, when the daemon starts"
    } else {
        "Once this is applied, when the daemon starts"
    }
}

/// Returns the command that carries out the plan: this command line with `apply`, or, if another command shows the plan, `apply`
/// with the config by name.
fn apply_next(config: Option<&str>) -> String {
    let command = match (invocation::command_name(), config) {
        ("plan" | "apply", _) => again_as("apply", &["--dry-run", "-n", "--check", "--yes", "-y"]),
        (_, Some(config)) => mco_rescue(&format!("apply {}", shell_word(config))),
        (_, None) => mco_rescue("apply"),
    };
    match config {
        Some("-") => format!("Give the same document on standard input. Next: {command}"),
        _ => format!("Next: {command}"),
    }
}

/// Returns the end of the output, below the text that was `shown`: the next command, or the refusal.
fn next(plan: &Plan, daemon: Option<&Forecast>, config: Option<&str>, shown: &str) -> String {
    if !plan.blockers.is_empty() {
        return report::plan::refuse_with("apply would refuse", &plan.blockers, shown) + "\n";
    }
    if plan.is_empty() {
        return String::new();
    }
    let instead = daemon
        .filter(|daemon| daemon.stops())
        .and_then(Forecast::next);
    match instead {
        Some(next) => report::wrap_text(
            &format!(
                "Even after this plan the daemon would not go on, as said above. Next: {next}"
            ),
            0,
        ),
        None => report::wrap_text(&apply_next(config), 0),
    }
}
