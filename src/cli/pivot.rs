//! `pivot`: arguments, the plan on the screen, the question, and the result.

use anyhow::{Result, bail};
use clap::Args;

use super::Output;
use crate::base::error::ExitCode;
use crate::base::invocation::{reboot_command, remember_soft_reboot};
use crate::change::plan::Plan;
use crate::change::plan::fit::Accepted;
use crate::change::session::{machine, open_root};
use crate::change::staging::awaited::Verdict;
use crate::change::staging::next_boot::{Author, find_next_boot};
use crate::change::staging::state;
use crate::cli::args::{BitsArgs, CapsuleArgs, GuardArgs, OVERRIDES, RiskArgs, TryArgs};
use crate::cli::ui::{DryRunEnd, Ui};
use crate::host::root::Root;
use crate::node::boot::is_soft_prepared;
use crate::node::images::ImageName;
use crate::node::system::SystemFacts;
use crate::node::{Host, Records};
use crate::report::digests::ShownDigests;
use crate::report::plan::{
    Heading, machine_line as of_machine, notices_text, operating_system, refuse_with,
};
use crate::report::{self, wrap_text};
use crate::run::front::Front;
use crate::run::opening::{Needs, Opening};
use crate::run::pivot::{PivotOptions, PivotRun, wanted_image};

/// Which image.
#[derive(Debug, Args)]
pub struct PivotArgs {
    /// NAME@sha256:DIGEST, as `osImageURL` has it [default: that of the recorded config]
    #[arg(value_name = "IMAGE")]
    pub image: Option<String>,

    /// Show what would be staged, and change nothing
    #[arg(short = 'n', long, display_order = 0)]
    pub dry_run: bool,

    /// Where it comes from.
    #[command(flatten)]
    pub bits: BitsArgs,

    /// The capsule that it is read through.
    #[command(flatten)]
    pub capsule: CapsuleArgs,

    /// What may be accepted in the image.
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

    /// A change that is reverted unless it is confirmed.
    #[command(flatten)]
    pub trial: TryArgs,

    /// What may be accepted on the node.
    #[command(flatten)]
    pub guards: GuardArgs,
}

impl PivotArgs {
    /// Returns the options of the run.
    ///
    /// # Errors
    /// A check named by `--accept-risk` does not exist.
    fn options(&self) -> Result<PivotOptions<'_>> {
        Ok(PivotOptions {
            image: self.image.as_deref(),
            source: self.bits.options(&self.capsule),
            risks: self.risks.accepted()?,
            reboots: self.reboot,
            accepted: Accepted {
                other_architecture: self.other_architecture,
                unproven_image: self.bits.unproven_image,
                ..Accepted::default()
            },
            trial: self.trial.options(),
            allowed: self.guards.allowed(),
            ignores_quorum: self.guards.ignore_quorum,
            completion: self.guards.completion(),
        })
    }
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
        .if_meant(args.guards.not_a_node)
        .for_dry_run(args.dry_run);
    let opening = Opening::check_needs(ui, root, &needs)?;
    opening.read_first(|root, _| match &args.image {
        Some(image) => {
            ImageName::parse(image)?;
            args.risks.accepted().map(drop)
        }
        None => wanted_image(None, &Records::read(root)?).map(drop),
    })?;
    let options = args.options()?;
    let change = opening.begin_change()?;
    let root = change.root.open_again()?;
    let run = PivotRun::plan_pivot(&change, &options)?;
    let shown = show(ui, &root, &run.image, &run.plan)?;
    if !run.plan.blockers.is_empty() {
        let refusal = format!("refusing to stage {}; nothing was changed", run.image);
        bail!("{}", refuse_with(&refusal, &run.plan.blockers, &shown));
    }
    if args.dry_run {
        return Err(DryRunEnd.into());
    }
    if !run.plan.os.steps.is_empty() {
        ui.confirm("Stage this image?")?;
    }
    let pivoted = run.carry_out(change)?;
    if pivoted.is_done() {
        say_end(ui, &root, &pivoted.run)?;
    }
    pivoted.finish_run()
}

/// Shows the plan. Returns what was shown.
fn show(ui: &Ui<'_>, root: &Root, image: &str, plan: &Plan) -> Result<String> {
    if ui.output == Output::Json {
        // Without a dry run, the result is the only document.
        if ui.dry_run {
            report::print(report::plan::os_json(&plan.os)?.as_bytes())?;
        }
        return Ok(String::new());
    }
    let mut text = of_machine(&Heading::of_machine(&machine::observe_machine(root)?)) + "\n";
    text += &notices_text("Blockers", &plan.blockers);
    text += &operating_system(&plan.os);
    text += &notices_text("Notices", &plan.notices_before());
    if plan.os.is_empty() && plan.blockers.is_empty() {
        text += &format!("Nothing to do: {image} is running.\n");
    }
    let text = ShownDigests::default().shorten(&text);
    report::print(text.as_bytes())?;
    Ok(text)
}

fn say_end(ui: &Ui<'_>, root: &Root, run: &PivotRun<'_>) -> Result<()> {
    let (plan, reboots) = (&run.plan, run.will_reboot());
    if ui.output == Output::Json {
        let text = report::plan::os_json(&plan.os)?;
        report::print_result(text.as_bytes());
        return Ok(());
    }
    // Staging cancels a prepared soft reboot.
    remember_soft_reboot(is_soft_prepared(root));
    if plan.os.needs_reboot() && !reboots {
        let what = if plan.os.steps.is_empty() {
            describe_waiting(root, run.facts()?)?
        } else {
            "Staged. The new image runs only after a reboot.\n".to_owned()
        };
        report::print_result(format!("{what}Next: {}\n", reboot_command()).as_bytes());
    } else if !plan.os.is_empty() && !reboots {
        report::print_result(b"The next boot enters the running deployment.\n");
    }
    Ok(())
}

/// Returns what the next boot already enters, and what else comes with it.
fn describe_waiting(root: &Root, facts: &SystemFacts) -> Result<String> {
    let awaited = state::read_awaited(root)?;
    let next = find_next_boot(facts, awaited.as_ref(), String::new);
    let comes = match (&awaited, &next) {
        (Some(awaited), Some(next)) if next.by == Some(Author::Ours) => {
            format!(", by {}", awaited.describe_boot(&Verdict::Waits))
        }
        _ => String::new(),
    };
    let arguments = next.map_or_else(String::new, |next| next.arguments_words());
    let arguments = if arguments.is_empty() {
        arguments
    } else {
        format!(", {arguments}")
    };
    Ok(wrap_text(
        &format!("Nothing more to stage: the next boot enters this image{comes}{arguments}."),
        0,
    ))
}
