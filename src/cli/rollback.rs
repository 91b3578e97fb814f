//! `rollback`: reverts the last finished run, through the same transaction.

use super::diffs;
use crate::change::trial::on_disk;
use crate::change::trial::{TrialOutcome, TrialResult};
use crate::cli::args::{AFTER, expect_running_node};
use crate::cli::ui::{DryRunEnd, Ui};
use crate::run::front::Front;
use crate::run::trial::running;
use crate::run::trial::running::TrialRevert;

use anyhow::{Result, bail};

use super::Output;
use super::kept;
use crate::base::error::{ExitCode, RunError};
use crate::base::text::count_noun;
use crate::change::plan::{FinishedRun, Plan};
use crate::change::session::{machine, open_root};
use crate::change::source::cache::{read_cache, whole_entries};
use crate::change::staging::awaited::{Awaited, Leaving};
use crate::change::transaction::{self, Pending};
use crate::change::trial::store::read_trial;
use crate::cli::args::GuardArgs;
use crate::cli::args::TryArgs;
use crate::host::root::Root;
use crate::node::Host;
use crate::report;
use crate::report::plan::Heading;
use crate::report::question;
use crate::report::rollback::RollbackEnd;
use crate::run::ending::Ending;
use crate::run::kept_runs::{self, Before, config_before};
use crate::run::node_change::NodeChange;
use crate::run::opening::{Needs, Opening};
use crate::run::reverting::{name_before, revert_origin};
use crate::run::rollback::{
    GoingBack, HowBack, RollbackOptions, Together, WentBack, find_unfinished, forget_deployments,
    recorded_name,
};
use crate::run::status::RebootReport;
use clap::Args;

/// What rollback may pass over.
#[derive(Debug, Args)]
pub struct RollbackArgs {
    /// Show what would be done, and change nothing
    #[arg(short = 'n', long, display_order = 0, conflicts_with_all = ["forget", "list"])]
    pub dry_run: bool,

    /// Only unpin the deployments that were kept for a rollback
    ///
    /// Reverts nothing: the next clean-up removes those deployments. The service that
    /// fetches does this once the daemon is done
    #[arg(long, conflicts_with_all = ["leave_changed", "files_only", "reboot"], hide_short_help = true)]
    pub forget: bool,

    /// With --forget: only if the API has said since the node booted that the daemon is done
    /// with the recorded config, and its image runs
    #[arg(long, requires = "forget", hide_short_help = true)]
    pub if_done: bool,

    /// List the runs that can be reverted, and change nothing
    #[arg(long, conflicts_with_all = ["forget", "to", "leave_changed", "files_only", "no_actions", "reboot"])]
    pub list: bool,

    /// Revert this run of --list, and all later ones
    ///
    /// The name of the config that was recorded before the run will do, too
    /// [default: the last run alone]
    #[arg(long, value_name = "ID", conflicts_with = "forget")]
    pub to: Option<String>,

    /// Leave paths that were changed since as they are
    #[arg(long)]
    pub leave_changed: bool,

    /// Leave the OS image and kernel arguments as they are
    #[arg(long)]
    pub files_only: bool,

    /// Reload and restart nothing of what the run did, after the files
    #[arg(long, hide_short_help = true, help_heading = AFTER)]
    pub no_actions: bool,

    /// Reboot at the end, if that is needed
    ///
    /// Reboots if the next boot enters the previous deployment
    #[arg(long)]
    pub reboot: bool,

    /// A change that is reverted unless it is confirmed.
    #[command(flatten)]
    pub trial: TryArgs,

    /// What may be accepted on the node.
    #[command(flatten)]
    pub guards: GuardArgs,
}

impl RollbackArgs {
    /// Returns the options of the rollback.
    pub(super) fn options(&self) -> RollbackOptions<'_> {
        RollbackOptions {
            to: self.to.as_deref(),
            leave_changed: self.leave_changed,
            files_only: self.files_only,
            no_actions: self.no_actions,
            complete_by_hand: self.guards.complete_by_hand,
            allowed: self.guards.allowed(),
            trial: self.trial.options(),
        }
    }
}

/// Runs `rollback`.
pub(super) fn run(ui: &Ui<'_>, args: &RollbackArgs) -> Result<ExitCode> {
    let root = open_root(&ui.root)?;
    if args.list {
        return kept::list(ui, &root);
    }
    expect_running_node(&root, "--reboot", args.reboot)?;
    let meant = args.guards.not_a_node;
    if let Some(trial) = read_trial(&root)? {
        if args.dry_run {
            let said = format!(
                "{} is on trial: rollback reverts it at once, without a question.",
                trial.what
            );
            report::print(report::wrap_text(&said, 0).as_bytes())?;
            return Err(DryRunEnd.into());
        }
        let needs = Needs::ROLLBACK_OF_TRIAL.if_meant(meant);
        let change = Opening::check_needs(ui, root.open_again()?, &needs)?.begin_change()?;
        if let Some(code) = take_trial_back(ui, change, args)? {
            return Ok(code);
        }
    }
    if args.if_done && transaction::find_pending(&root)? != Pending::Nothing {
        // The service will start again after that run has ended.
        return Ok(ExitCode::Done);
    }
    let needs = Needs::ROLLBACK.if_meant(meant).for_dry_run(args.dry_run);
    let opening = Opening::check_needs(ui, root, &needs)?;
    opening.read_first(|root, _| {
        let history = transaction::read_history(root)?;
        kept_runs::up_to(root, &history, args.to.as_deref())
    })?;
    let change = opening.begin_change()?;
    if change.was_undone && args.to.is_none() && !args.forget {
        // The interrupted run was the one to revert.
        return change.finish_change(Ending::from_code(ExitCode::Done));
    }
    if args.forget {
        return forget(ui, &change.root, args.if_done);
    }
    let whole = !args.files_only && change.root.is_live();
    if whole && let Some((awaited, leaving)) = find_unfinished(&change.root, ui.runner)? {
        return leave_staged(ui, change, args, awaited, leaving);
    }
    let options = args.options();
    let back = GoingBack::choose_runs(&change, &options, whole)?;
    let heading = heading(&change.root, &back.back.run)?;
    show_and_ask(ui, &change, args, &heading, &back)?;
    tell_and_end(ui, args, back.carry_out(change, &options)?)
}

/// Reverts the current trial; returns `None` if it has ended in the meantime.
fn take_trial_back(
    ui: &Ui<'_>,
    change: NodeChange<'_>,
    args: &RollbackArgs,
) -> Result<Option<ExitCode>> {
    if read_trial(&change.root)?.is_none() {
        return Ok(None);
    }
    if args.if_done {
        return Ok(Some(ExitCode::Done));
    }
    if args.trial.window.is_some() || args.forget || args.to.is_some() {
        on_disk::refuse_during_trial(&change.root)?;
    }
    let Some(back) = running::revert_now(change)? else {
        return Ok(None);
    };
    match back {
        TrialRevert::AtNextBoot => {
            report::print_result(report::trial::goes_back_at_boot().as_bytes());
        }
        TrialRevert::Ended(result) => tell_end(ui, &result)?,
    }
    Ok(Some(ExitCode::Done))
}

/// Prints how a reverted trial has ended.
fn tell_end(ui: &Ui<'_>, result: &TrialResult) -> Result<()> {
    ui.print_result(
        || report::trial::result_json(result),
        || report::trial::ended_text(result),
    )?;
    match result.outcome {
        TrialOutcome::PartlyReverted => {
            Err(RunError::Incomplete("the trial was reverted, but not all of it".to_owned()).into())
        }
        TrialOutcome::NotReverted => Err(RunError::Incomplete(
            "the trial could not be reverted, and has ended: the change stays".to_owned(),
        )
        .into()),
        TrialOutcome::Reverted | TrialOutcome::Confirmed => Ok(()),
    }
}

/// Reverts a staged change whose files were not written, or that has no files.
fn leave_staged(
    ui: &Ui<'_>,
    change: NodeChange<'_>,
    args: &RollbackArgs,
    awaited: Awaited,
    leaving: Leaving,
) -> Result<ExitCode> {
    let options = args.options();
    let way = Together::of_staged(awaited, leaving, &options)?;
    if ui.output == Output::Text {
        let what = leaves(&way.run.config, &way.leaving);
        report::print(format!("Operating system:\n  - {what}\n\n").as_bytes())?;
    }
    way.ensure_completion(change.runner(), &change.root, &options)?;
    ui.confirm("Go back to before it?")?;
    tell_and_end(ui, args, way.leave_deployment(change, &options)?)
}

/// Shows the plan, refuses it if it has blockers, and asks for confirmation.
fn show_and_ask(
    ui: &Ui<'_>,
    change: &NodeChange<'_>,
    args: &RollbackArgs,
    heading: &Heading,
    going: &GoingBack,
) -> Result<()> {
    let (run, plan) = (&going.back.run, &going.back.plan);
    let shown = if ui.output == Output::Text || !plan.blockers.is_empty() || args.dry_run {
        show(ui, &change.root, heading, plan)?
    } else {
        String::new()
    };
    if !plan.blockers.is_empty() {
        let refusal = format!("refusing to revert {}; nothing was changed", run.config);
        bail!(
            "{}",
            report::plan::refuse_with(&refusal, &plan.blockers, &shown)
        );
    }
    going.ensure_completion(change, &args.options())?;
    let oldest = going.older.last().unwrap_or(run);
    let loses_record = config_before(&change.root, oldest) == Before::NoRecord;
    ui.confirm(&format!(
        "{}: back to before {}{}: {}{}. Revert {}?",
        question::ask_for_node(heading),
        oldest.config,
        if loses_record {
            ", to a node without any config"
        } else {
            ""
        },
        question::ask_for_changes(plan),
        match going.older.len() {
            0 => String::new(),
            more => format!(", and {} before it", count_noun(more, "run")),
        },
        if going.older.is_empty() {
            "this run"
        } else {
            "these runs"
        },
    ))
}

fn leaves(config: &str, leaving: &Leaving) -> String {
    let short = leaving.to.get(..12).unwrap_or(&leaving.to);
    let files = match leaving.runs.len() {
        0 => "no file changes".to_owned(),
        number => format!(
            "the files of {} are reverted with it",
            count_noun(number, "run")
        ),
    };
    format!(
        "back from what was staged for {config}\n    to the previous deployment ({short}); {files}"
    )
}

/// Prints what was reverted, and ends the change.
fn tell_and_end(ui: &Ui<'_>, args: &RollbackArgs, went: WentBack<'_>) -> Result<ExitCode> {
    let WentBack {
        change,
        how,
        signals: _signals,
    } = went;
    match how {
        HowBack::Tried(tried) => change.finish_change(Ending {
            tried: Some(*tried),
            ..Ending::from_code(ExitCode::Done)
        }),
        HowBack::NextBoot(run) => {
            ui.print_result(
                || {
                    report::rollback::to_json(&RollbackEnd {
                        run: &run,
                        recorded: None,
                        steps: 0,
                        left: Some(0),
                        reboot: None,
                        unreadable: &[],
                        is_cached: false,
                    })
                },
                || report::rollback::awaits_text(&run),
            )?;
            change.finish_change(Ending {
                reboot: args.reboot.then_some(args.guards.ignore_quorum),
                ..Ending::from_code(ExitCode::Done)
            })
        }
        HowBack::Done(took) => {
            let end = RollbackEnd {
                run: &took.run,
                recorded: took.recorded.as_deref(),
                steps: took.steps,
                left: took.left,
                reboot: RebootReport::from_needs(&took.reboot),
                unreadable: &took.unreadable,
                is_cached: is_cached(&change.root, &took.run.config),
            };
            ui.print_result(
                || report::rollback::to_json(&end),
                || report::rollback::to_text(&end),
            )?;
            change.finish_change(Ending::from_code(ExitCode::Done))
        }
    }
}

/// Returns true if the cache has a config of this name, so that a command to apply it again can be named.
fn is_cached(root: &Root, config: &str) -> bool {
    read_cache(root).map_or_else(
        |error| {
            log::info!("reading the cache: {error}");
            false
        },
        |cached| whole_entries(&cached).any(|entry| entry.name == config),
    )
}

/// Gives up the ability to revert.
fn forget(ui: &Ui<'_>, root: &Root, if_done: bool) -> Result<ExitCode> {
    let Some(gone) = forget_deployments(root, ui.runner, if_done)? else {
        return Ok(ExitCode::Done);
    };
    let engine = Host::observe(root)?.engine;
    ui.print_result(
        || report::rollback::forgotten_json(&gone),
        || report::rollback::forgotten_text(&gone, engine),
    )?;
    Ok(ExitCode::Done)
}

/// Shows the plan. Returns what was shown.
fn show(ui: &Ui<'_>, root: &Root, heading: &Heading, plan: &Plan) -> Result<String> {
    let diffs = diffs::of_keys(root, plan);
    let text = ui.shape(
        || report::plan::to_json(heading, plan, &diffs, &None),
        || report::plan::to_text(heading, plan, &diffs, ui.detail(false)),
    )?;
    report::print(text.as_bytes())?;
    Ok(text)
}

fn heading(root: &Root, run: &FinishedRun) -> Result<Heading> {
    Ok(Heading {
        config: name_before(run),
        name_hash: None,
        digest: String::new(),
        origin: revert_origin(run),
        chosen: "the last run that can be reverted".to_owned(),
        recorded: recorded_name(root)?.unwrap_or_else(|| "(no record)".to_owned()),
        others: Vec::new(),
        ..Heading::of_machine(&machine::observe_machine(root)?)
    })
}
