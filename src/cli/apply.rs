//! `apply`: arguments, the plan on the screen, the question, and the result.

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;

use super::rehearse::PartRehearsal;
use super::{Output, diffs};
use crate::base::error::ExitCode;
use crate::base::invocation::{ON_THE_NODE, mco_rescue, reboot_command, remember_soft_reboot};
use crate::base::paths;
use crate::base::text::count_noun;
use crate::change::plan::{Force, Plan, TrialReboot};
use crate::change::session::{
    RunOptions, Session, Unnamed, choose_config, open_root, policies, predict, with_disk,
};
use crate::change::source::{Chosen, LATEST};
use crate::cli::args::{
    AFTER, ConfigArgs, GuardArgs, PlanArgs, expect_local_bits, expect_running_node,
};
use crate::cli::firstboot::FirstbootArgs;
use crate::cli::ui::Ui;
use crate::host::root::Root;
use crate::judge::daemon::forecast::Forecast;
use crate::node::Records;
use crate::node::boot::is_soft_prepared;
use crate::node::command::rehearsal_unit::ENTER;
use crate::rehearse::rehearsal::{RehearsalSubject, expect_possible_rehearsal};
use crate::report::plan::Heading;
use crate::report::verify::VerifyFindings;
use crate::report::{self, question};
use crate::run::apply::{Applied, ApplyOptions, ApplyRun, JobsDone};
use crate::run::front::Front;
use crate::run::node_change::NodeChange;
use crate::run::opening::{Needs, Opening};

/// Which config, what is allowed, and what comes after.
#[derive(Debug, Args)]
pub struct ApplyArgs {
    /// Which config, and what is allowed.
    #[command(flatten)]
    pub plan: PlanArgs,

    /// Show the plan, and change nothing
    #[arg(
        short = 'n',
        long,
        alias = "check",
        conflicts_with = "key",
        display_order = 0
    )]
    pub dry_run: bool,

    /// Reboot at the end, if that is needed
    ///
    /// Reboots where something is staged for the next boot, or a policy asks for it
    /// [default: name the reboot]
    #[arg(long, help_heading = AFTER)]
    pub reboot: bool,

    /// Reload and restart nothing after the files; the jobs that remain are listed
    #[arg(long, hide_short_help = true, help_heading = AFTER)]
    pub no_actions: bool,

    /// Where the daemon would have drained the node: stop the kubelet and every pod before
    /// the files change. Pods are not moved elsewhere first. Needs crictl
    #[arg(long, hide_short_help = true, help_heading = AFTER)]
    pub stop_workloads: bool,

    /// Only add this SSH key for core, when no login works
    ///
    /// Changes nothing else: adds the one public SSH key in FILE for core, such as
    /// ~/.ssh/id_ed25519.pub, when no login works; `-` for standard input. Creates core
    /// if that user is missing. verify reports the key as a difference; the next apply
    /// removes it, and so does rollback
    #[arg(long, value_name = "FILE", conflicts_with_all = ["config", "filename", "latest", "reboot", "stop_workloads", "window"])]
    pub key: Option<String>,
}

impl ApplyArgs {
    /// Returns the arguments to apply the config that the node chooses itself, in place of the first-boot service.
    pub(super) fn of_first_boot(args: &FirstbootArgs) -> Self {
        let plan = PlanArgs {
            config: ConfigArgs {
                capsule: args.capsule.clone(),
                ..ConfigArgs::default()
            },
            bits: args.bits.clone(),
            guards: GuardArgs {
                first_boot: true,
                ..args.guards.clone()
            },
            doubts: args.doubts.clone(),
            ..PlanArgs::default()
        };
        Self {
            plan,
            dry_run: args.dry_run,
            reboot: args.reboot,
            no_actions: false,
            stop_workloads: false,
            key: None,
        }
    }

    /// Returns the options of the run.
    ///
    /// # Errors
    /// A check named by `--accept-risk` does not exist.
    fn options(&self) -> Result<ApplyOptions<'_>> {
        let args = &self.plan;
        let trial = args.trial.options();
        let reboot = TrialReboot::if_needed(self.reboot);
        Ok(ApplyOptions {
            config: args.config.request(),
            run: RunOptions {
                reboots: self.reboot,
                stops_workloads: self.stop_workloads,
                trial: trial.plan_trial(reboot, !self.no_actions),
                ..args.run_options()?
            },
            trial,
            no_actions: self.no_actions,
            keeps: if args.rehearse { &ENTER } else { &[] },
        })
    }
}

/// Runs `apply`.
pub(super) fn run(ui: &Ui<'_>, apply: &ApplyArgs) -> Result<ExitCode> {
    let root = with_disk(open_root(&ui.root)?, &ui.root)?;
    expect_running_node(&root, "--stop-workloads", apply.stop_workloads)?;
    expect_running_node(&root, "--reboot", apply.reboot)?;
    if apply.dry_run {
        return super::plan::run(ui, &apply.plan);
    }
    expect_local_bits(&root, &apply.plan.bits)?;
    if apply.plan.rehearse {
        expect_possible_rehearsal(ui.runner)
            .context("the next boot cannot be rehearsed; nothing was changed")?;
    }
    let needs = Needs::APPLY.if_meant(apply.plan.guards.not_a_node);
    let opening = Opening::check_needs(ui, root, &needs)?;
    let given = opening.read_first(|root, _| read_given(root, &apply.plan))?;
    carry_out(ui, apply, opening.begin_change()?, given.flatten())
}

/// Shows the plan of a change that has begun, and carries it out. `given` is the config, if it was already read.
pub(super) fn carry_out(
    ui: &Ui<'_>,
    apply: &ApplyArgs,
    change: NodeChange<'_>,
    given: Option<Chosen>,
) -> Result<ExitCode> {
    let options = apply.options()?;
    let run = ApplyRun::make_plan(&change, &options, given)?;
    show(ui, &apply.plan, &run)?;
    let applied = if run.plan.is_empty() {
        if run.plan.force != Force::Left {
            let question = format!("/{}: see the notice above. Do that?", paths::FORCE);
            ui.confirm(&question)?;
        }
        run.leave_unchanged(change)?
    } else {
        ui.confirm(&question(apply, &run.session, &run.plan))?;
        run.carry_out(change)?
    };
    let rehearsed = expect_good_rehearsal(ui, &apply.plan, &applied);
    let shown = rehearsed.and_then(|()| {
        if applied.is_seen {
            show_result(ui, &apply.plan, &applied)
        } else {
            Ok(ExitCode::Done)
        }
    });
    applied.finish_run(shown)
}

/// Rehearses the next boot, if that is asked for.
///
/// # Errors
/// It has an inhibitor, or nothing can be rehearsed. The config stays in place, but for a trial.
fn expect_good_rehearsal(ui: &Ui<'_>, args: &PlanArgs, applied: &Applied<'_>) -> Result<()> {
    if !args.rehearse {
        return Ok(());
    }
    let (root, config) = (
        &applied.run.session.root,
        &applied.run.session.chosen.config,
    );
    // The end of a trial is reported after its revert. Without a step there is no run to undo.
    let has_undo = args.trial.window.is_none() && !applied.run.plan.is_empty();
    let in_place = |error: anyhow::Error| {
        if !has_undo {
            return error;
        }
        anyhow!(
            "{error:#}. {} is in place, and the node was not rebooted. Undo: {}",
            config.name,
            mco_rescue("rollback")
        )
    };
    let rehearsal = PartRehearsal::carry_out(ui, root, RehearsalSubject::NextBoot);
    let rehearsal = rehearsal.context("the next boot cannot be rehearsed");
    let rehearsal = rehearsal.map_err(in_place)?;
    if ui.output == Output::Text {
        report::print_result(rehearsal.text().as_bytes());
    }
    if rehearsal.has_inhibitor() {
        return Err(in_place(anyhow!(
            "the rehearsal of the next boot has inhibitors"
        )));
    }
    Ok(())
}

/// Reads the inputs that the command line names. Returns the config, unless the choice depends on the records of the node.
fn read_given(root: &Root, args: &PlanArgs) -> Result<Option<Chosen>> {
    args.risks.accepted()?;
    policies::read_cluster(root, args.policy.as_deref())?;
    let Some(config) = args.config.choice() else {
        return Ok(None);
    };
    let records = Records::read(root).context("reading the daemon's records")?;
    let chosen = choose_config(root, args.config.request(), Unnamed::Wanted, &records)?;
    Ok((config != LATEST).then_some(chosen))
}

/// Returns the question that asks for confirmation, with all decisions in it.
fn question(apply: &ApplyArgs, session: &Session<'_>, plan: &Plan) -> String {
    let system = if apply.plan.files_only {
        question::SystemAnswer::LeftAlone
    } else if session.node.system.facts().is_some() {
        question::SystemAnswer::Compared
    } else {
        question::SystemAnswer::NotCompared
    };
    let boot = match (plan.needs_reboot(), apply.reboot) {
        _ if !session.root.is_live() => question::RebootAnswer::Elsewhere,
        (true, true) => question::RebootAnswer::Now,
        (true, false) => question::RebootAnswer::Later,
        (false, _) if plan.force == Force::Requested => question::RebootAnswer::ByTheDaemon,
        (false, _) => question::RebootAnswer::None,
    };
    let node = question::ask_for_node(&Heading::of_session(session));
    let changes = question::ask_for_changes(plan);
    let rest = question::ask_for_system(plan, system, boot);
    format!("{node}: {changes}; {rest}. Apply?")
}

/// Shows the plan, and refuses one with blockers.
fn show(ui: &Ui<'_>, args: &PlanArgs, run: &ApplyRun<'_>) -> Result<()> {
    let shown = show_plan(ui, args, &run.session, &run.plan)?;
    if run.plan.blockers.is_empty() {
        return Ok(());
    }
    let refusal = format!(
        "refusing to apply {}; nothing was changed",
        run.session.chosen.config.name
    );
    bail!(
        "{}",
        report::plan::refuse_with(&refusal, &run.plan.blockers, &shown)
    )
}

/// Shows the plan. Returns what was shown.
fn show_plan(ui: &Ui<'_>, args: &PlanArgs, session: &Session<'_>, plan: &Plan) -> Result<String> {
    let diffs = diffs::of_session(session, plan, args.config.show_secrets);
    let text = match ui.output {
        // There is only one document per run: the plan if it is refused, otherwise the result.
        Output::Json if plan.blockers.is_empty() => return Ok(String::new()),
        Output::Json => {
            let daemon =
                predict::of_plan(session, plan, args.policy.as_deref(), args.daemon.given());
            report::plan::to_json(&Heading::of_session(session), plan, &diffs, &daemon)?
        }
        Output::Text => {
            let mut text = report::plan::to_text(
                &Heading::of_session(session),
                plan,
                &diffs,
                ui.detail(args.summary),
            );
            // The user should see the forecast before answering.
            if !ui.yes && !plan.is_empty() && plan.blockers.is_empty() {
                let daemon =
                    predict::of_plan(session, plan, args.policy.as_deref(), args.daemon.given());
                let said = daemon.map(|daemon| daemon.text(super::plan::begin(plan, &daemon)));
                text.push_str(&said.unwrap_or_default());
            }
            text
        }
    };
    report::print_asked(&text, args.config.show_secrets)?;
    Ok(text)
}

/// Shows what is left of the differences, or the result if nothing is. Returns the exit code.
fn show_result(ui: &Ui<'_>, args: &PlanArgs, applied: &Applied<'_>) -> Result<ExitCode> {
    let (session, plan, told) = (&applied.run.session, &applied.run.plan, &applied.jobs);
    let drifts = applied.remaining_drifts();
    let verdict = session.daemon_verdict(&drifts, args.daemon.daemon_version);
    let diffs = report::plan::Diffs::new();
    let daemon = predict::of_plan(session, plan, args.policy.as_deref(), args.daemon.given());
    let findings = VerifyFindings {
        drifts: &drifts,
        verdict: verdict.as_deref(),
        diffs: &diffs,
        not_looked_at: &session.not_looked_at(),
        has_core: session.has_core(),
        daemon: &daemon,
        told: plan.after.is_some().then_some(told),
        // The record was just written.
        record_problem: None,
    };
    let text = match ui.output {
        Output::Json => report::verify::to_json(&Heading::of_session(session), findings)?,
        Output::Text if drifts.is_empty() => {
            let ending = EndOptions {
                by_hand: args.guards.complete_by_hand,
                is_tried: args.trial.window.is_some(),
            };
            // The same forecast was printed before the question.
            let was_printed = !ui.yes && !plan.is_empty();
            let daemon = daemon.as_ref();
            let daemon = daemon.filter(|daemon| !(was_printed && daemon.depends_on_desired()));
            done(session, plan, told, daemon, ending)
        }
        Output::Text => {
            let said = daemon.as_ref().map(Forecast::text_with_next);
            report::verify::to_text(&Heading::of_session(session), findings)
                + &said.unwrap_or_default()
        }
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

/// The options that decide what is printed at the end.
#[derive(Debug, Clone, Copy)]
struct EndOptions {
    /// The user runs `complete` by hand.
    by_hand: bool,
    /// The run is a trial.
    is_tried: bool,
}

/// Returns the report: what was done, what the daemon will do, and the next step, which is that of the run if it has one, otherwise
/// that of the forecast.
fn done(
    session: &Session<'_>,
    plan: &Plan,
    told: &JobsDone,
    daemon: Option<&Forecast>,
    ending: EndOptions,
) -> String {
    if plan.is_empty() {
        return daemon.map(Forecast::text_with_next).unwrap_or_default();
    }
    // Staging cancels a prepared soft reboot.
    remember_soft_reboot(is_soft_prepared(&session.root));
    let next = format!("Next: {}\n", reboot_command());
    let after = match &plan.after {
        // The trial names the next step.
        _ if ending.is_tried && plan.os.needs_reboot() => String::new(),
        Some(after) if ending.is_tried => report::after::tried_text(after, told),
        _ if plan.os.needs_reboot() && ending.by_hand => {
            format!(
                "Reboot needed: the operating system is staged. No unit completes the run: after it run\n`{}` by hand, before the \
                 kubelet starts.\n{next}",
                mco_rescue("complete")
            )
        }
        _ if plan.os.needs_reboot() => {
            "Reboot needed: the operating system is staged, and mco-rescue-complete does the\n\
             rest at the next boot.\n"
                .to_owned()
                + &next
        }
        Some(after) => report::after::done_text(after, told),
        None => String::new(),
    };
    let undo = if ending.is_tried {
        // A trial is reverted by itself.
        String::new()
    } else {
        format!("Undo: {}\n", mco_rescue("rollback"))
    };
    let daemon = daemon.map(|daemon| {
        if after.contains("Next: ") {
            daemon.text(daemon.begin())
        } else {
            daemon.text_with_next()
        }
    });
    format!(
        "Applied {}\n{}, and verify finds no difference.\n{undo}{}{}{after}",
        session.chosen.config.name,
        count_noun(plan.steps.len(), "step"),
        left_to_the_node(session),
        daemon.unwrap_or_default(),
    )
}

/// Returns what a run on a mounted disk cannot do; empty for the running node.
fn left_to_the_node(session: &Session<'_>) -> String {
    if session.root.is_live() || session.node.host.in_initramfs {
        return String::new();
    }
    let os = session.describe_disk();
    let first_boot = if session.records.encapsulated {
        format!(
            " The first-boot service still runs at the next boot. If it waits for a registry, bring the image on a medium. \
             Next: {ON_THE_NODE}mco-rescue firstboot --complete --os-from DIR"
        )
    } else {
        String::new()
    };
    report::wrap_text(&(os + &first_boot), 0)
}
