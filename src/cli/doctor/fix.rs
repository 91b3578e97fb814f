//! `doctor --fix`: fixes one finding by changing files in the ordinary transaction.

use crate::cli::args::OVERRIDES;
use crate::run::front::Front;
use crate::run::trial::running;
use crate::run::work::LATER_IN_TRIAL;
use anyhow::{Context, Result, bail};

use super::{engine_of, find_check, is_denied, style};
use crate::base::diff::unified_between;
use crate::base::error::ExitCode;
use crate::base::invocation::mco_rescue;
use crate::base::object::ObjectKind;
use crate::change::plan::{
    self, Allowed, FixInputs, Plan, PlanInputs, PlanRequest, PlannedStep, Step, Task, TrialReboot,
};
use crate::change::session::evidence::NodeEvidence;
use crate::change::session::machine;
use crate::change::session::{open_root, with_disk};
use crate::change::transaction::Finished;
use crate::change::transaction::journal::ConfigRef;
use crate::cli::Output;
use crate::cli::args::TryArgs;
use crate::cli::diffs;
use crate::cli::diffs::payload_bytes;
use crate::cli::doctor::DoctorArgs;
use crate::cli::ui::Ui;
use crate::config::document::{self, Desired};
use crate::diagnose::doctor::gather;
use crate::diagnose::doctor::{self, Diagnosis, DoctorCheck, DoctorFinding, Fix};
use crate::host::root::Root;
use crate::node::{self, NodeState, Records};
use crate::report::fix::{FixOutcome, FixResult};
use crate::report::plan::{Diffs, Heading};
use crate::report::{self, is_secret_step, question};
use crate::run::ending::Ending;
use crate::run::node_change::NodeChange;
use crate::run::opening::{Needs, Opening};
use crate::run::trial::running::{RunningTrial, TrialRequest};
use crate::run::work::RunWork;
use clap::Args;

/// Which finding is cured, and what may be passed over.
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

    /// With --fix: go on although every boot of this system makes /etc or the root anew
    /// [default: refuse]
    #[arg(long, requires = "fix", hide_short_help = true, help_heading = OVERRIDES)]
    pub until_reboot: bool,

    /// With --fix: go on although this machine is not a node of a cluster [default: refuse]
    #[arg(long, requires = "fix", hide_short_help = true, help_heading = OVERRIDES)]
    pub not_a_node: bool,

    /// A change that goes back by itself.
    #[command(flatten)]
    pub trial: TryArgs,
}

/// An empty config.
const NOTHING: &[u8] = br#"{"ignition":{"version":"3.4.0"}}"#;
/// Maximum size for a diff; larger files are shown by digest.
const MAX_DIFF: u64 = 1 << 20;

/// Runs `doctor --fix`.
pub(super) fn run(ui: &Ui<'_>, args: &DoctorArgs, id: &str) -> Result<ExitCode> {
    let check = find_check(id, engine_of(ui))?;
    let root = with_disk(open_root(&ui.root)?, &ui.root)?;
    let looking = Looking {
        ui,
        args,
        check,
        root: &root,
    };
    let found = looking.examine()?;
    if let Some(code) = looking.without_cure(&found)? {
        return Ok(code);
    }
    let finding = choose(check, &found, &args.cure)?;
    let fix = fix_of(finding)?;

    let needs = Needs::FIX
        .meant(args.cure.not_a_node)
        .for_dry_run(args.cure.dry_run);
    let change = Opening::of(ui, root.again()?, &needs)?.begin()?;
    let work = FixInputs {
        changes: &fix.changes,
        time: change.started,
    };
    // The transaction detects changes after this observation; the second examination detects earlier ones.
    let node =
        node::observe_node(&root, work.interest(), ui.runner).context("looking at the node")?;
    if !looking.finds_again(finding)? {
        bail!(
            "what {} found has changed meanwhile; nothing was changed. Look again: {}",
            check.id,
            mco_rescue("doctor")
        );
    }
    let cure = Cure {
        looking: &looking,
        finding,
        node: &node,
    };
    let plan = cure.plan(work)?;
    cure.show(&plan)?;
    cure.ask(&plan)?;
    let options = args.cure.trial.options();
    let request = TrialRequest::of_plan(&options, &cure.name(), &plan, false);
    let tried = RunningTrial::begin(&change, request.with_jobs(plan.trial_jobs.clone()))?;
    if let Err(error) = cure.carry_out(&change, &plan) {
        return Err(running::fail(tried, change, error));
    }
    match looking.tell_result(&found, finding, plan.steps.len()) {
        Ok(code) => change.finish(Ending {
            tried,
            ..Ending::of(code)
        }),
        Err(error) => Err(running::refuse(tried, change, error)),
    }
}

/// A check, and the node to examine.
struct Looking<'a> {
    ui: &'a Ui<'a>,
    args: &'a DoctorArgs,
    check: &'static DoctorCheck,
    root: &'a Root,
}

impl Looking<'_> {
    /// Gathers the evidence and runs the check.
    fn examine(&self) -> Result<Diagnosis> {
        let root = self.root.again()?;
        let evidence = gather::all(
            root,
            self.ui.runner,
            &self.ui.root,
            self.args.gather_options(),
        );
        Ok(doctor::examine(&[*self.check], &evidence))
    }

    /// Returns true if the check finds the same problem again, with the same cure.
    fn finds_again(&self, finding: &DoctorFinding) -> Result<bool> {
        let changes = |one: &DoctorFinding| one.fix.as_ref().map(|fix| fix.changes.clone());
        let again = self.examine()?.findings;
        Ok(again
            .iter()
            .any(|one| one.what == finding.what && changes(one) == changes(finding)))
    }

    fn print(&self, result: FixResult<'_>, is_result: bool) -> Result<()> {
        let text = match self.ui.output {
            Output::Json => report::fix::to_json(result)?,
            Output::Text => report::fix::to_text(result, style()),
        };
        if is_result {
            report::print_result(text.as_bytes());
        } else {
            report::print(text.as_bytes())?;
        }
        Ok(())
    }

    /// Reports a healthy check, or findings that cannot be fixed by changing files. Returns `None` if there is a cure.
    fn without_cure(&self, diagnosis: &Diagnosis) -> Result<Option<ExitCode>> {
        let findings = &diagnosis.findings;
        if findings.iter().any(|finding| finding.fix.is_some()) {
            return Ok(None);
        }
        let (outcome, code) = match findings.is_empty() {
            true if is_denied(diagnosis) => (FixOutcome::Healthy, ExitCode::Error),
            true => (FixOutcome::Healthy, ExitCode::Done),
            false => (FixOutcome::NoFix, ExitCode::Drift),
        };
        let root = self.ui.root.display().to_string();
        let result = FixResult {
            id: self.check.id,
            root: &root,
            outcome,
            cured: None,
            steps: 0,
            diagnosis,
        };
        self.print(result, false)?;
        if code == ExitCode::Error {
            log::warn!("some files can be read by root alone, as listed. Run it with sudo");
        }
        Ok(Some(code))
    }

    /// Runs the check again, and reports whether the finding is gone.
    fn tell_result(
        &self,
        before: &Diagnosis,
        finding: &DoctorFinding,
        steps: usize,
    ) -> Result<ExitCode> {
        let now = match self.examine() {
            Ok(now) => now,
            // The changes are in place; an error would claim that they are not.
            Err(error) => {
                log::warn!(
                    "the changes are in place, but {error:#}. Next: {}",
                    mco_rescue("doctor")
                );
                return Ok(ExitCode::Drift);
            }
        };
        let like = |one: &&DoctorFinding| one.what == finding.what;
        let number = |diagnosis: &Diagnosis| diagnosis.findings.iter().filter(like).count();
        let (outcome, code) = match number(&now) < number(before) {
            true => (FixOutcome::Fixed, ExitCode::Done),
            false => (FixOutcome::StillFound, ExitCode::Drift),
        };
        let root = self.ui.root.display().to_string();
        let result = FixResult {
            id: self.check.id,
            root: &root,
            outcome,
            cured: Some(finding),
            steps,
            diagnosis: &now,
        };
        self.print(result, true)?;
        Ok(code)
    }
}

/// Returns the finding to fix.
fn choose<'a>(
    check: &DoctorCheck,
    diagnosis: &'a Diagnosis,
    args: &FixArgs,
) -> Result<&'a DoctorFinding> {
    let findings = diagnosis.findings.iter();
    let all: Vec<&DoctorFinding> = findings.filter(|one| one.fix.is_some()).collect();
    let number = match (args.finding, all.len()) {
        (None, 1) => 1,
        (None, _) => 0,
        (Some(number), _) => number,
    };
    let chosen = number.checked_sub(1).and_then(|index| all.get(index));
    if let Some(chosen) = chosen {
        return Ok(chosen);
    }
    let mut list = String::new();
    for (index, finding) in all.iter().enumerate() {
        list.push_str(&format!("\n  {}  {}", index + 1, finding.what));
        let facts = finding.evidence.first();
        list.push_str(&facts.map_or_else(String::new, |fact| format!(" ({})", fact.place)));
    }
    bail!(
        "choose one with --finding N; nothing was changed. {} finds, and files cure:{list}",
        check.id
    )
}

fn fix_of(finding: &DoctorFinding) -> Result<&Fix> {
    let fix = finding.fix.as_ref();
    fix.context("changes of files alone do not cure this finding. Nothing was changed")
}

/// The cure of a finding.
struct Cure<'a> {
    looking: &'a Looking<'a>,
    finding: &'a DoctorFinding,
    node: &'a NodeState,
}

impl Cure<'_> {
    /// Returns the name of the run for `status` and `rollback`.
    fn name(&self) -> String {
        format!("doctor --fix {}", self.looking.check.id)
    }

    /// Makes the plan.
    fn plan(&self, work: FixInputs<'_>) -> Result<Plan> {
        let Looking { ui, args, root, .. } = self.looking;
        let config = document::parse_document(NOTHING, &self.name())?;
        let desired = Desired::from_config(&config);
        let records = Records::read(root).context("reading the daemon's records")?;
        let old = records.recorded().map(Desired::from_config);
        let inputs = PlanInputs {
            crossing: &[],
            config: &config,
            desired: &desired,
            baseline: records.baseline(),
            old: old.as_ref(),
            records: &records,
            node: self.node,
            accounts: None,
            overrides: None,
            unchanged: None,
        };
        let request = PlanRequest {
            allowed: Allowed {
                clear_immutable: args.cure.clear_immutable,
                takeover: args.cure.takeover,
                until_reboot: args.cure.until_reboot,
                // The cure does not depend on a deployment.
                staged: true,
                ..Allowed::default()
            },
            trial: args.cure.trial.planned(TrialReboot::Never, true),
            ..PlanRequest::default()
        };
        let evidence = NodeEvidence::of_node(root, self.node, ui.runner);
        plan::plan_whole(&Task::Fix(inputs, work), &request, &evidence)
    }

    /// Refuses a plan with blockers; otherwise asks for confirmation.
    fn ask(&self, plan: &Plan) -> Result<()> {
        if !plan.blockers.is_empty() {
            bail!("refusing to change anything: see the blockers above; nothing was changed");
        }
        let machine = machine::observe_machine(self.looking.root)?;
        self.looking.ui.confirm(&format!(
            "{}: {}. Fix {}?",
            question::ask_for_node(&Heading::of_machine(&machine)),
            question::ask_for_changes(plan),
            self.looking.check.id
        ))
    }

    fn carry_out(&self, change: &NodeChange<'_>, plan: &Plan) -> Result<Finished> {
        let work = RunWork {
            change,
            node: self.node,
            plan,
            config: ConfigRef {
                name: self.name(),
                digest: String::new(),
                origin: self.finding.what.clone(),
            },
            undoes: None,
            more: match self.looking.args.cure.trial.window {
                Some(_) => &LATER_IN_TRIAL,
                None => &[],
            },
            jobs: &plan.trial_jobs,
        };
        work.transact()
    }

    fn show(&self, plan: &Plan) -> Result<()> {
        let Looking { ui, root, .. } = self.looking;
        let records = Records::read(root).context("reading the daemon's records")?;
        let heading = Heading {
            config: self.name(),
            origin: self.finding.what.clone(),
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
            Output::Json if plan.blockers.is_empty() && !ui.dry_run => return Ok(()),
            Output::Json => report::plan::to_json(&heading, plan, &diffs, &None)?,
            Output::Text => report::plan::to_text(&heading, plan, &diffs, ui.detail(false)),
        };
        Ok(report::print(text.as_bytes())?)
    }
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
