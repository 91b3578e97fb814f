//! `preflight`: checks if this node can run another OS image.

use crate::base::order::StableOrder;
use crate::report::plan::Heading;
use anyhow::{Context, Result, bail};

use super::rehearse::PartRehearsal;
use crate::base::error::ExitCode;
use crate::base::invocation::on_node;
use crate::change::plan::paths_of_interest;
use crate::change::session::access::{self, AccessNeed};
use crate::change::session::{Unnamed, choose_config, machine, open_root, with_disk};
use crate::change::source::gate::CapsuleOptions;
use crate::change::staging::image_source::{SourceOptions, foresee_refusal};
use crate::change::staging::target::{describe_missing, find_target};
use crate::cli::ui::Ui;
use crate::config::document::{Desired, MachineConfig};
use crate::formats::systemd::{CONFIG_DIR, JudgedUnit, Objection, judge_units as judge_units_of};
use crate::host::root::Root;
use crate::judge::crossing::{self, CrossingFinding, CrossingSeverity, Target};
use crate::judge::drift::enablement::simulate_update;
use crate::node::command::CommandRunner;
use crate::node::images::{ImageName, NameError};
use crate::node::judged_units::read_judged_units;
use crate::node::platform::{NextConfig, Platform};
use crate::node::{self, Records};
use crate::rehearse::rehearsal::RehearsalSubject;
use crate::report;
use clap::Args;
use std::path::PathBuf;

/// Which image is looked at before a crossing.
#[derive(Debug, Default, Args)]
pub struct PreflightArgs {
    /// A config as for apply, or an image [default: the one wanted last]
    ///
    /// An image is HOST/PATH@sha256:DIGEST
    /// [default: the image at --os-from, else that of the config which the cluster last wanted]
    #[arg(value_name = "CONFIG|IMAGE")]
    pub target: Option<String>,

    /// Read the image in an OCI directory or archive
    ///
    /// Or in a directory that holds its files
    /// [default: this node's deployments or repository, or containers-storage]
    #[arg(long, value_name = "PATH")]
    pub os_from: Option<PathBuf>,

    /// Read the image in containers-storage, by its name
    #[arg(long, conflicts_with = "os_from")]
    pub from_storage: bool,

    /// Boot the next system in memory too, as rehearse does
    ///
    /// With the config, if one is given. An image that is not staged is not booted
    #[arg(long)]
    pub rehearse: bool,
}

/// Runs `preflight`.
pub(super) fn run(ui: &Ui<'_>, args: &PreflightArgs) -> Result<ExitCode> {
    let root = with_disk(open_root(&ui.root)?, &ui.root)?;
    access::expect_access(&root, AccessNeed::Read)?;
    let (image, config) = find_image(&root, args)?;
    let options = SourceOptions {
        os_proofs: &[],
        capsule: CapsuleOptions::default(),
        os_from: args.os_from.as_deref(),
        from_storage: args.from_storage,
        extensions_from: None,
    };
    let Some(tree) = find_target(&root, image.as_deref(), &options)? else {
        let image = image.as_deref().unwrap_or("the image");
        bail!("{}", describe_missing(image, options.os_from));
    };
    let target = Target::from_tree(tree);
    let records = Records::read(&root)?;
    let old = records.baseline().config().map(Desired::from_config);
    let desired = config.as_ref().map(Desired::from_config);
    let next = config.as_ref().zip(desired.as_ref());
    let next = next.map(|(config, desired)| NextConfig {
        config,
        desired,
        old: old.as_ref(),
    });
    let mut node = Platform::observe_next(&root, next)
        .with_image(&root, next, &target.tree)
        .with_file_faults(&root, next, records.baseline().config());
    node.refused_fetch = foresee_refusal(&root, image.as_deref(), &options);
    let mut findings = crossing::judge_crossing(&target, &node);
    findings.extend(judge_units(
        &root,
        desired.as_ref(),
        old.as_ref(),
        ui.runner,
    )?);
    findings.order_by_key(|finding| finding.severity);
    for command in findings.iter_mut().flat_map(|finding| &mut finding.next) {
        *command = on_node(&*command);
    }
    let subject = match &config {
        Some(config) => RehearsalSubject::Chosen(config),
        None => RehearsalSubject::NextBoot,
    };
    let rehearsal = args
        .rehearse
        .then(|| PartRehearsal::carry_out(ui, &root, subject));
    let rehearsal = rehearsal.transpose()?;
    let heading = Heading::of_machine(&machine::observe_machine(&root)?);
    let text = ui.shape(
        || report::preflight::to_json(&heading, &target, &findings),
        || report::preflight::to_text(&heading, &target, &findings),
    )?;
    let text = match &rehearsal {
        Some(rehearsal) => rehearsal.append_to(ui, text)?,
        None => text,
    };
    report::print(text.as_bytes())?;
    let is_inhibited = rehearsal.is_some_and(|rehearsal| rehearsal.has_inhibitor());
    Ok(if is_inhibited || crossing::has_inhibitor(&findings) {
        ExitCode::Error
    } else {
        ExitCode::Done
    })
}

/// Returns the findings about units that systemd would refuse at the next boot: those of the new config if there is one, otherwise
/// those of the node.
fn judge_units(
    root: &Root,
    desired: Option<&Desired>,
    old: Option<&Desired>,
    runner: &dyn CommandRunner,
) -> Result<Vec<CrossingFinding>> {
    let judged = match desired {
        None => read_judged_units(root)?,
        Some(desired) => {
            let mut interest = paths_of_interest(desired, old, None);
            // Other checks judge the operating system.
            interest.system = false;
            let node = node::observe_node(root, interest, runner)?;
            judge_units_of(&simulate_update(desired, old, &node).tree)
        }
    };
    Ok(judged.iter().map(unit_finding).collect())
}

fn unit_finding(unit: &JudgedUnit) -> CrossingFinding {
    let (severity, what) = match (&unit.objection, unit.describe_consequence()) {
        // The image may contain the missing part.
        (Objection::Refused(_), Some(boot)) if unit.is_of_image => (
            CrossingSeverity::Warning,
            format!("systemd refuses this unit, unless the image has what is missing. {boot}"),
        ),
        (Objection::Refused(_), Some(boot)) => (
            CrossingSeverity::Inhibitor,
            format!("systemd refuses this unit. {boot}"),
        ),
        (Objection::Refused(_), None) => (
            CrossingSeverity::Warning,
            "systemd refuses this unit: it never starts".to_owned(),
        ),
        (Objection::Ignored(_), _) => (
            CrossingSeverity::Warning,
            "systemd ignores a setting of this unit".to_owned(),
        ),
    };
    let (Objection::Refused(said) | Objection::Ignored(said)) = &unit.objection;
    let finding = CrossingFinding::new(severity, &unit.name, what)
        .with_evidence(format!("{CONFIG_DIR}/{}", unit.name), said)
        .next("Correct the unit in its MachineConfig.");
    CrossingFinding {
        check: "units",
        ..finding
    }
}

/// Returns the image to check, and its config: the argument, or the image of the config in the argument, or the image that the node
/// should run. Without an argument but with a medium, it is the image on the medium.
fn find_image(
    root: &Root,
    args: &PreflightArgs,
) -> Result<(Option<String>, Option<MachineConfig>)> {
    let named = args.target.as_deref();
    if let Some(name) = named {
        match ImageName::parse(name) {
            Ok(_) => return Ok((Some(name.to_owned()), None)),
            // A file never has such a name.
            Err(error @ NameError::Digest(_)) => return Err(error.into()),
            Err(_) => {}
        }
    }
    if named.is_none() && args.os_from.is_some() {
        return Ok((None, None));
    }
    let records = Records::read(root)?;
    let chosen = choose_config(root, named, Unnamed::Wanted, &records);
    let chosen =
        chosen.context("finding the image; it can also be given: preflight --os-from PATH")?;
    let image = chosen.config.os_image_url.clone();
    if image.is_empty() {
        bail!("the config names no image. Give one: preflight IMAGE, or --os-from PATH");
    }
    Ok((Some(image), Some(chosen.config)))
}
