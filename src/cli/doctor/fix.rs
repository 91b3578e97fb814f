//! `doctor --fix`: arguments, the plan on the screen, the question, and the result.

use anyhow::{Context, Result, bail};
use clap::Args;

use super::{find_check, is_denied, style};
use crate::base::diff::unified_between;
use crate::base::error::ExitCode;
use crate::base::object::ObjectKind;
use crate::change::plan::{Allowed, PlannedStep, Step};
use crate::change::session::{machine, open_root, with_disk};
use crate::cli::Output;
use crate::cli::args::{OVERRIDES, TryArgs};
use crate::cli::diffs::{self, payload_bytes};
use crate::cli::doctor::DoctorArgs;
use crate::cli::ui::Ui;
use crate::diagnose::doctor::{Diagnosis, DoctorFinding};
use crate::host::root::Root;
use crate::node::Records;
use crate::report::fix::FixResult;
use crate::report::plan::{Diffs, Heading, refuse_with};
use crate::report::{self, is_secret_step, question};
use crate::run::fix::{CureSearch, FixOptions, FixOutcome, FixRun, without_cure};
use crate::run::front::Front;
use crate::run::opening::{Needs, Opening};

/// Which finding is cured, and what may be skipped.
#[derive(Debug, Args)]
pub struct FixArgs {
    /// Cure the finding of this check; asks first
    ///
    /// Shows the changes as a plan, asks, and makes them in one transaction, which rollback
    /// reverts
    #[arg(long, value_name = "ID", conflicts_with_all = ["id", "bundle"])]
    pub fix: Option<String>,

    /// With --fix: show the changes, and make none
    #[arg(short = 'n', long, requires = "fix")]
    pub dry_run: bool,

    /// With --fix: which finding of the check, where it has several
    #[arg(long, value_name = "N", requires = "fix", hide_short_help = true)]
    pub finding: Option<usize>,

    /// With --fix: clear the flags immutable and append-only (chattr +i, +a) where they
    /// stand in the way, right before the renames, and set them again afterwards
    #[arg(long, requires = "fix", hide_short_help = true, help_heading = OVERRIDES)]
    pub clear_immutable: bool,

    /// With --fix: go on while an update of this node seems to be under way
    /// [default: refuse]
    #[arg(long, requires = "fix", hide_short_help = true, help_heading = OVERRIDES)]
    pub takeover: bool,

    /// With --fix: go on although every boot of this system recreates /etc or the root
    /// [default: refuse]
    #[arg(long, requires = "fix", hide_short_help = true, help_heading = OVERRIDES)]
    pub until_reboot: bool,

    /// With --fix: go on although this machine is not a node of a cluster [default: refuse]
    #[arg(long, requires = "fix", hide_short_help = true, help_heading = OVERRIDES)]
    pub not_a_node: bool,

    /// A change that is reverted unless it is confirmed.
    #[command(flatten)]
    pub trial: TryArgs,
}

impl FixArgs {
    /// Returns the options of the run.
    fn options(&self) -> FixOptions {
        FixOptions {
            allowed: Allowed {
                clear_immutable: self.clear_immutable,
                takeover: self.takeover,
                until_reboot: self.until_reboot,
                ..Allowed::default()
            },
            trial: self.trial.options(),
        }
    }
}

/// Maximum size for a diff; larger files are shown by digest.
const MAX_DIFF: u64 = 1 << 20;

/// Runs `doctor --fix`.
pub(super) fn run(ui: &Ui<'_>, args: &DoctorArgs, id: &str) -> Result<ExitCode> {
    let check = find_check(id)?;
    let root = with_disk(open_root(&ui.root)?, &ui.root)?;
    machine::expect_system(&root)?;
    let search = CureSearch {
        check,
        root: &root,
        runner: ui.runner,
        given: &ui.root,
        look: args.gather_options(),
    };
    let before = search.examine_node()?;
    if let Some(outcome) = without_cure(&before) {
        return tell_no_cure(ui, check.id, outcome, &before);
    }
    let finding = search.choose_finding(&before, args.cure.finding)?;
    let needs = Needs::FIX
        .if_meant(args.cure.not_a_node)
        .for_dry_run(args.cure.dry_run);
    let change = Opening::check_needs(ui, root.open_again()?, &needs)?.begin_change()?;
    let options = args.cure.options();
    let run = FixRun::plan_cure(&change, &search, finding, &options)?;
    let shown = show(ui, &root, &run)?;
    ask(ui, &root, &run, &shown)?;
    let cured = run.carry_out(change)?;
    let told = match cured.look_again(&before) {
        Some((outcome, now)) => {
            let steps = cured.run.plan.steps.len();
            tell_result(ui, check.id, outcome, (finding, steps), &now)
        }
        None => Ok(ExitCode::Drift),
    };
    cured.finish_run(told)
}

/// Reports a healthy check, or findings that cannot be fixed by changing files.
fn tell_no_cure(
    ui: &Ui<'_>,
    id: &str,
    outcome: FixOutcome,
    diagnosis: &Diagnosis,
) -> Result<ExitCode> {
    let result = FixResult {
        id,
        root: &ui.root.display().to_string(),
        outcome,
        cured: None,
        steps: 0,
        diagnosis,
    };
    report::print(text_of(ui, result)?.as_bytes())?;
    Ok(match outcome {
        FixOutcome::Healthy if is_denied(diagnosis) => {
            log::warn!("some files can be read by root alone, as listed. Run it with sudo");
            ExitCode::Error
        }
        FixOutcome::Healthy => ExitCode::Done,
        _ => ExitCode::Drift,
    })
}

/// Reports whether the finding is gone.
fn tell_result(
    ui: &Ui<'_>,
    id: &str,
    outcome: FixOutcome,
    (finding, steps): (&DoctorFinding, usize),
    diagnosis: &Diagnosis,
) -> Result<ExitCode> {
    let result = FixResult {
        id,
        root: &ui.root.display().to_string(),
        outcome,
        cured: Some(finding),
        steps,
        diagnosis,
    };
    report::print_result(text_of(ui, result)?.as_bytes());
    Ok(match outcome {
        FixOutcome::Fixed => ExitCode::Done,
        _ => ExitCode::Drift,
    })
}

fn text_of(ui: &Ui<'_>, result: FixResult<'_>) -> Result<String> {
    Ok(match ui.output {
        Output::Json => report::fix::to_json(result)?,
        Output::Text => report::fix::to_text(result, style()),
    })
}

/// Refuses a plan with blockers, which was `shown`; otherwise asks for confirmation.
fn ask(ui: &Ui<'_>, root: &Root, run: &FixRun<'_>, shown: &str) -> Result<()> {
    if !run.plan.blockers.is_empty() {
        let refusal = "refusing; nothing was changed";
        bail!("{}", refuse_with(refusal, &run.plan.blockers, shown));
    }
    ui.confirm(&format!(
        "{}: {}. Fix {}?",
        question::ask_for_node(&Heading::of_machine(&machine::observe_machine(root)?)),
        question::ask_for_changes(&run.plan),
        run.check().id
    ))
}

/// Shows the plan. Returns what was shown.
fn show(ui: &Ui<'_>, root: &Root, run: &FixRun<'_>) -> Result<String> {
    let records = Records::read(root).context("reading the daemon's records")?;
    let plan = &run.plan;
    let heading = Heading {
        config: run.name(),
        origin: run.finding.what.clone(),
        chosen: "the cure of this finding; nothing else is changed".to_owned(),
        recorded: records.name().unwrap_or_else(|| "(no record)".to_owned()),
        ..Heading::of_machine(&machine::observe_machine(root)?)
    };
    let steps = plan.steps.iter();
    let diffs: Diffs = steps
        .filter_map(|planned| Some((planned.step.path().clone(), diff(root, planned)?)))
        .collect();
    let text = match ui.output {
        // There is only one document per run: the result follows.
        Output::Json if plan.blockers.is_empty() && !ui.dry_run => return Ok(String::new()),
        Output::Json => report::plan::to_json(&heading, plan, &diffs, &None)?,
        Output::Text => report::plan::to_text(&heading, plan, &diffs, ui.detail(false)),
    };
    report::print(text.as_bytes())?;
    Ok(text)
}

/// Returns the diff of a step; `None` for secrets, and if the contents do not change.
fn diff(root: &Root, planned: &PlannedStep) -> Option<String> {
    if let Some(keys) = diffs::of_key(root, planned) {
        return Some(keys);
    }
    let Step::Put { path, new, old } = &planned.step else {
        return None;
    };
    let is_file = matches!(new.kind, ObjectKind::File { .. });
    let is_same = old.as_ref().is_some_and(|old| old.kind == new.kind);
    let is_large = new.size().max(old.as_ref().map_or(0, |old| old.size())) > MAX_DIFF;
    if !is_file || is_same || is_large || is_secret_step(planned) {
        return None;
    }
    let before = match old {
        Some(_) => root.read_file(path).ok()??,
        None => Vec::new(),
    };
    unified_between(&before, &payload_bytes(root, &planned.payload)?)
}
