//! `pivot`: changes only the OS image.

use crate::change::session::crossing::{judge_image, judge_staged};
use crate::change::staging::state;
use crate::cli::args::OVERRIDES;
use crate::cli::ui::{DryRunEnd, Ui};
use crate::report::plan::Heading;
use crate::run::front::Front;
use crate::run::front::RunNews;
use crate::run::trial::running;
use std::cell::RefCell;

use anyhow::{Context, Result, bail};

use crate::change::install::completion::Beforehand;
use crate::change::session::evidence::NodeEvidence;
use crate::change::session::open_root;
use crate::change::staging::deployments;
use crate::change::staging::stage::{Over, Staging};
use crate::run::ending::Ending;
use crate::run::node_change::NodeChange;
use crate::run::opening::{Needs, Opening};

use super::Output;
use crate::base::error::ExitCode;
use crate::base::invocation::{mco_rescue, reboot, remember_soft_reboot};
use crate::change::plan::fit::Accepted;
use crate::change::plan::{self, Allowed, Plan, PlanRequest, PlanScope, Task, TrialReboot};
use crate::change::session::machine;
use crate::change::staging::awaited::{PIVOT, Verdict};
use crate::change::staging::next_boot::{Author, find_next_boot};
use crate::change::staging::target::find_target;
use crate::change::transaction::journal::ConfigRef;
use crate::cli::args::BitsArgs;
use crate::cli::args::GuardArgs;
use crate::cli::args::RiskArgs;
use crate::cli::args::TryArgs;
use crate::host::root::Root;
use crate::judge::crossing::CrossingFinding;
use crate::node::boot::is_soft_prepared;
use crate::node::command::rpm_ostree::status::Deployment;
use crate::node::images::ImageName;
use crate::node::system::{System, SystemFacts};
use crate::node::{self, Host, Interest, NodeState, Records};
use crate::report;
use crate::report::plan::{machine_line as of_machine, notices_text, operating_system};
use crate::report::wrap;
use crate::run::trial::running::{RunningTrial, TrialRequest};
use clap::Args;

/// Which image.
#[derive(Debug, Args)]
pub struct PivotArgs {
    /// NAME@sha256:DIGEST, as `osImageURL` has it [default: that of the recorded config]
    #[arg(value_name = "IMAGE")]
    pub image: Option<String>,

    /// Show what would be staged, and change nothing
    #[arg(short = 'n', long, display_order = 0)]
    pub dry_run: bool,

    /// How it is had.
    #[command(flatten)]
    pub bits: BitsArgs,

    /// What may be passed over in the image.
    #[command(flatten)]
    pub risks: RiskArgs,

    /// Reboot at the end, if that is needed
    ///
    /// Reboots where the image is staged for the next boot
    #[arg(long)]
    pub reboot: bool,

    /// Stage an image for another architecture than this machine's [default: refuse]
    #[arg(long, hide_short_help = true, help_heading = OVERRIDES)]
    pub other_architecture: bool,

    /// A change that goes back by itself.
    #[command(flatten)]
    pub trial: TryArgs,

    /// What may be passed over on the node.
    #[command(flatten)]
    pub guards: GuardArgs,
}

/// Runs `pivot`.
pub(super) fn run(ui: &Ui<'_>, args: &PivotArgs) -> Result<ExitCode> {
    let root = open_root(&ui.root)?;
    if !Host::observe(&root)?.live {
        bail!(
            "the operating system is staged on the running node only; with --root nothing can be. Boot the node first"
        );
    }
    let needs = Needs::PIVOT
        .meant(args.guards.not_a_node)
        .for_dry_run(args.dry_run);
    let opening = Opening::of(ui, root, &needs)?;
    opening.read_first(|root, _| match &args.image {
        Some(image) => {
            ImageName::parse(image)?;
            args.risks.accepted().map(drop)
        }
        None => wanted(args, &Records::read(root)?).map(drop),
    })?;
    let change = opening.begin()?;
    let run = PivotRun::plan(&change, args)?;
    show(ui, &change.root, &run.image, &run.plan)?;
    if !run.plan.blockers.is_empty() {
        bail!(
            "refusing to stage {}: see the blockers above; nothing was changed",
            run.image
        );
    }
    if args.dry_run {
        return Err(DryRunEnd.into());
    }
    let mut tried = None;
    if !run.plan.os.steps.is_empty() {
        ui.confirm("Stage this image?")?;
        let (trial, staged) = run.stage(&change)?;
        if let Err(error) = staged {
            return Err(running::fail(trial, change, error));
        }
        tried = trial;
    }
    match run.judge_staged(&change.root) {
        Ok(is_inhibited) => {
            if tried.is_none() && !is_inhibited {
                say_end(ui, &change.root, &run)?;
            }
            change.finish(Ending {
                tried,
                is_inhibited,
                reboot: run.reboots().then_some(args.guards.ignore_quorum),
                code: ExitCode::Done,
            })
        }
        Err(error) => Err(running::refuse(tried, change, error)),
    }
}

/// One run of `pivot`.
struct PivotRun<'a> {
    args: &'a PivotArgs,
    records: Records,
    image: String,
    node: NodeState,
    /// The units to install before anything is staged.
    beforehand: Option<Beforehand>,
    /// The findings about the image.
    crossing: Vec<CrossingFinding>,
    plan: Plan,
}

impl<'a> PivotRun<'a> {
    /// Observes the node and the image, and makes the plan.
    fn plan(change: &NodeChange<'_>, args: &'a PivotArgs) -> Result<Self> {
        let (root, runner) = (&change.root, change.runner());
        let records = Records::read(root)?;
        let image = wanted(args, &records)?;
        let interest = Interest {
            system: true,
            ..Interest::default()
        };
        let node = node::observe_node(root, interest, runner)?;
        let facts = facts_of(&node)?;
        let beforehand = Beforehand::of_recorded(root, &records);
        let evidence = NodeEvidence {
            source: args.bits.options(),
            beforehand: beforehand.as_ref(),
            completion: args.guards.completion(),
            ..NodeEvidence::of_node(root, &node, runner)
        };
        let runs = facts.deployments.booted().map(Deployment::image);
        let crossing = match runs.as_deref() == Some(image.as_str()) {
            true => {
                expect_on_medium(root, &image, args)?;
                Vec::new()
            }
            false => judge_image(root, &image, &args.bits.options(), None)?,
        };
        let task = Task::Image {
            node: &node,
            facts,
            image: &image,
            crossing: &crossing,
        };
        let plan = plan::plan_whole(&task, &request(change, args)?, &evidence)?;
        Ok(Self {
            args,
            records,
            image,
            node,
            beforehand,
            crossing,
            plan,
        })
    }

    /// Returns true if the node will reboot at the end.
    fn reboots(&self) -> bool {
        self.args.reboot && self.plan.os.needs_reboot()
    }

    /// Stages the image. Returns the trial, and the result of staging.
    fn stage<'u>(&self, change: &NodeChange<'u>) -> Result<(Option<RunningTrial<'u>>, Result<()>)> {
        if let Some(beforehand) = &self.beforehand {
            let completion = self.args.guards.completion();
            change.install_completion(&completion, &self.plan, beforehand)?;
        }
        let print = |line: &str| change.front.tell(RunNews::Staging(line));
        let staging = self.staging(change, &print)?;
        let (args, os) = (&self.args.trial, &self.plan.os);
        let options = args.options();
        let request = TrialRequest::of_plan(&options, &self.image, &self.plan, self.reboots());
        let tried = RunningTrial::begin(change, request)?;
        let staged = staging.stage_all(facts_of(&self.node)?);
        if staged.is_ok() && !os.needs_reboot() {
            deployments::settle_awaited(&change.root, change.runner());
        }
        Ok((tried, staged))
    }

    fn staging<'b>(
        &'b self,
        change: &'b NodeChange<'_>,
        print: &'b dyn Fn(&str),
    ) -> Result<Staging<'b>> {
        let (root, runner) = (&change.root, change.runner());
        let digest = self.records.recorded().map(|config| config.digest.clone());
        Ok(Staging {
            runner,
            print,
            root,
            lock: change.lock(),
            plan: &self.plan.os,
            config: ConfigRef {
                name: self.records.name().unwrap_or_default(),
                digest: digest.unwrap_or_default(),
                origin: PIVOT.to_owned(),
            },
            source: self.args.bits.options().source_of(&self.plan.os),
            files: None,
            over: Over::read_over(root, &state::read_booted(root, runner)?)?,
            expected: RefCell::default(),
            staged: RefCell::default(),
        })
    }

    /// Returns true if preflight finds an inhibitor in the staged image.
    fn judge_staged(&self, root: &Root) -> Result<bool> {
        match self.plan.os.changes_image() {
            true => {
                let risks = self.args.risks.accepted()?;
                judge_staged(root, &self.image, &self.crossing, None, risks)
            }
            false => Ok(false),
        }
    }
}

/// Returns the operating system of the node, if it was booted by OSTree.
fn facts_of(node: &NodeState) -> Result<&SystemFacts> {
    match &node.system {
        System::Known(facts) => Ok(facts),
        System::Silent(why) => bail!("{why}"),
        System::NotAsked | System::Composefs(_) => {
            bail!("this system was not booted by OSTree, so there is no image to change")
        }
    }
}

fn request(change: &NodeChange<'_>, args: &PivotArgs) -> Result<PlanRequest> {
    let ours = deployments::is_staged_by_us(&change.root, change.runner())?;
    Ok(PlanRequest {
        allowed: Allowed {
            ours,
            staged: ours,
            ..args.guards.allowed()
        },
        accepted: Accepted {
            other_architecture: args.other_architecture,
            unproven_image: args.bits.unproven_image,
            ..Accepted::default()
        },
        scope: PlanScope::Run,
        risks: args.risks.accepted()?,
        reboots: true,
        ignores_quorum: args.guards.ignore_quorum,
        trial: args.trial.planned(TrialReboot::when(args.reboot), false),
        ..PlanRequest::default()
    })
}

/// Refuses a named medium that contains another image, as nothing would be read from it.
fn expect_on_medium(root: &Root, image: &str, args: &PivotArgs) -> Result<()> {
    let options = args.bits.options();
    let Some(medium) = options.os_from else {
        return Ok(());
    };
    let found = find_target(root, Some(image), &options);
    found.map(drop).with_context(|| {
        let medium = medium.display();
        let other = format!("pivot NAME@sha256:DIGEST --os-from {medium}");
        format!(
            "{image} runs already, and {medium} does not hold it. Name the image that is there: {}",
            mco_rescue(&other)
        )
    })
}

fn wanted(args: &PivotArgs, records: &Records) -> Result<String> {
    let recorded = records.recorded().map(|config| config.os_image_url.clone());
    let image = args
        .image
        .clone()
        .or(recorded)
        .filter(|image| !image.is_empty());
    match image {
        Some(image) => Ok(image),
        None => bail!(
            "no image was given, and no recorded config names one. Give it: {}",
            mco_rescue("pivot NAME@sha256:DIGEST")
        ),
    }
}

fn show(ui: &Ui<'_>, root: &Root, image: &str, plan: &Plan) -> Result<()> {
    if ui.output == Output::Json {
        // Without a dry run, the result is the only document.
        if ui.dry_run {
            report::print(report::plan::os_json(&plan.os)?.as_bytes())?;
        }
        return Ok(());
    }
    let mut text = of_machine(&Heading::of_machine(&machine::observe_machine(root)?)) + "\n";
    text += &notices_text("Blockers", &plan.blockers);
    text += &operating_system(&plan.os);
    text += &notices_text("Notices", &plan.notices_before());
    if plan.os.is_empty() && plan.blockers.is_empty() {
        text += &format!("Nothing to do: {image} runs.\n");
    }
    Ok(report::print(text.as_bytes())?)
}

fn say_end(ui: &Ui<'_>, root: &Root, run: &PivotRun<'_>) -> Result<()> {
    let (plan, reboots) = (&run.plan, run.reboots());
    if ui.output == Output::Json {
        let text = report::plan::os_json(&plan.os)?;
        report::print_result(text.as_bytes());
        return Ok(());
    }
    // Staging cancels a prepared soft reboot.
    remember_soft_reboot(is_soft_prepared(root));
    if plan.os.needs_reboot() && !reboots {
        let what = match plan.os.steps.is_empty() {
            true => describe_waiting(root, facts_of(&run.node)?)?,
            false => "Staged.\n".to_owned(),
        };
        report::print_result(format!("{what}Next: {}\n", reboot()).as_bytes());
    } else if !plan.os.is_empty() && !reboots {
        report::print_result(b"The next boot enters what runs.\n");
    }
    Ok(())
}

/// Returns what the next boot already enters, and what else comes with it.
fn describe_waiting(root: &Root, facts: &SystemFacts) -> Result<String> {
    let awaited = state::read_awaited(root)?;
    let next = find_next_boot(facts, awaited.as_ref(), String::new);
    let comes = match (&awaited, &next) {
        (Some(awaited), Some(next)) if next.by == Some(Author::Ours) => {
            format!(", by {}", awaited.words(&Verdict::Waits))
        }
        _ => String::new(),
    };
    let arguments = next.map_or_else(String::new, |next| next.arguments_words());
    let arguments = match arguments.is_empty() {
        true => arguments,
        false => format!(", {arguments}"),
    };
    Ok(wrap(
        &format!("Nothing more to stage: the next boot enters this image{comes}{arguments}."),
        0,
    ))
}
