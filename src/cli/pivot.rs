//! `pivot`: the OS image alone.

use crate::cli::ui::Ui;
use crate::staging::state;
use std::cell::RefCell;

use anyhow::{Result, bail};

use super::access::{self, AccessNeed};
use super::evidence::NodeEvidence;
use super::install::Beforehand;
use super::recover::recover_first;
use super::session::open_root;
use crate::staging::deployments;
use crate::staging::stage::{Over, Staging};

use super::trial::{self, RunningTrial, TrialRequest};
use super::{Output, PivotArgs, machine, preflight};
use crate::command::rpm_ostree::status::Deployment;
use crate::error::ExitCode;
use crate::invocation::{mco_rescue, reboot, remember_soft_reboot};
use crate::node::boot::is_soft_prepared;
use crate::node::system::System;
use crate::node::{self, Host, Interest, Records};
use crate::plan::fit::Accepted;
use crate::plan::{self, Plan, PlanRequest, PlanScope, Task};
use crate::report;
use crate::report::plan::{machine as of_machine, notices, operating_system};
use crate::root::Root;
use crate::staging::awaited::PIVOT;
use crate::transaction;
use crate::transaction::journal::ConfigRef;

/// Runs `pivot`.
pub(super) fn run(ui: &Ui<'_>, args: &PivotArgs) -> Result<ExitCode> {
    let root = open_root(ui)?;
    if !Host::observe(&root)?.live {
        bail!(
            "the operating system is staged on the running node only; with --root nothing can be. Boot the node first"
        );
    }
    machine::expect_node(&root, args.guards.not_a_node)?;
    access::expect_access(&root, AccessNeed::Write)?;
    let records = Records::read(&root)?;
    let image = wanted(args, &records)?;
    let lock = transaction::acquire_lock(&root)?;
    trial::refuse_during_trial(&root)?;
    recover_first(&root, ui.runner, &lock)?;
    let interest = Interest {
        system: true,
        ..Interest::default()
    };
    let node = node::observe(&root, interest, ui.runner)?;
    let facts = match &node.system {
        System::Known(facts) => facts,
        System::Silent(why) => bail!("{why}"),
        System::NotAsked | System::Composefs(_) => {
            bail!("this system was not booted by OSTree, so there is no image to change")
        }
    };
    let mut allowed = args.guards.allowed();
    allowed.ours = deployments::is_staged_by_us(&root, ui.runner)?;
    allowed.staged = allowed.ours;
    let request = PlanRequest {
        allowed,
        accepted: Accepted {
            other_architecture: args.other_architecture,
            ..Accepted::default()
        },
        scope: PlanScope::Run,
        risks: args.risks.accepted()?,
        reboots: true,
        ignores_quorum: args.guards.ignore_quorum,
        ..PlanRequest::default()
    };
    let beforehand = Beforehand::of_recorded(&root, &records);
    let completion = args.guards.completion();
    let evidence = NodeEvidence {
        source: args.bits.options(),
        beforehand: beforehand.as_ref(),
        completion,
        ..NodeEvidence::of_node(&root, &node, ui.runner)
    };
    let runs = facts.deployments.booted().map(Deployment::image);
    let crossing = match runs.as_deref() == Some(image.as_str()) {
        true => Vec::new(),
        false => preflight::judge_image(&root, &image, &args.bits.options(), None)?,
    };
    let task = Task::Image {
        node: &node,
        facts,
        image: &image,
        crossing: &crossing,
    };
    let mut plan = plan::plan(&task, &request, &evidence)?;
    trial::facts::add_to_plan(&root, &args.trial, &mut plan, args.reboot)?;
    show(ui, &root, &image, &plan)?;
    if !plan.blockers.is_empty() {
        bail!("refusing to stage {image}: see the blockers above; nothing was changed");
    }
    let mut tried = None;
    if !plan.os.steps.is_empty() {
        ui.confirm("Stage this image?")?;
        if let Some(beforehand) = beforehand {
            completion.install(&root, ui.runner, &lock, &plan, &beforehand)?;
        }
        let print = |line: &str| ui.print_progress(line);
        let staging = staging(ui, &print, (&root, &lock), &plan, &records, args)?;
        let reboots = args.reboot && plan.os.needs_reboot();
        let request = TrialRequest::of_plan(&args.trial, &image, &plan, reboots);
        tried = RunningTrial::begin(ui, &root, &lock, request)?;
        if let Err(error) = staging.stage_all(facts) {
            return Err(trial::fail(tried, lock, error));
        }
        if !plan.os.needs_reboot() {
            deployments::settle_awaited(&root, ui.runner);
        }
    }
    let judged = match plan.os.changes_image() {
        true => args
            .risks
            .accepted()
            .and_then(|risks| preflight::judge_staged(&root, &image, &crossing, None, risks)),
        false => Ok(false),
    };
    let is_inhibited = match judged {
        Ok(is_inhibited) => is_inhibited,
        Err(error) => {
            return Err(trial::refuse(tried, lock, error));
        }
    };
    if let Some(tried) = tried {
        return match is_inhibited {
            true => Err(tried.refuse(lock, "preflight found an inhibitor in the staged image")),
            false => tried.reboot(lock, args.guards.ignore_quorum),
        };
    }
    if is_inhibited {
        return Ok(ExitCode::Drift);
    }
    end(ui, &root, &plan, args)
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

fn staging<'a>(
    ui: &'a Ui<'a>,
    print: &'a dyn Fn(&str),
    (root, lock): (&'a Root, &'a transaction::Lock),
    plan: &'a Plan,
    records: &Records,
    args: &PivotArgs,
) -> Result<Staging<'a>> {
    let recorded = records.recorded();
    Ok(Staging {
        runner: ui.runner,
        print,
        root,
        lock,
        plan: &plan.os,
        config: ConfigRef {
            name: records.name().unwrap_or_default(),
            digest: recorded
                .map(|config| config.digest.clone())
                .unwrap_or_default(),
            origin: PIVOT.to_owned(),
        },
        source: args.bits.options().source_of(&plan.os),
        files: None,
        over: Over::read_over(root, &state::read_booted(root, ui.runner)?)?,
        expected: RefCell::default(),
        staged: RefCell::default(),
    })
}

fn show(ui: &Ui<'_>, root: &Root, image: &str, plan: &Plan) -> Result<()> {
    if ui.output == Output::Json {
        return Ok(());
    }
    let mut text = of_machine(&machine::heading(&machine::observe_machine(root)?)) + "\n";
    text += &notices("Blockers", &plan.blockers);
    text += &operating_system(&plan.os);
    text += &notices("Notices", &plan.notices);
    if plan.os.is_empty() && plan.blockers.is_empty() {
        text += &format!("Nothing to do: {image} runs.\n");
    }
    Ok(report::print(text.as_bytes())?)
}

fn end(ui: &Ui<'_>, root: &Root, plan: &Plan, args: &PivotArgs) -> Result<ExitCode> {
    if ui.output == Output::Json {
        let text = report::plan::os_json(&plan.os)?;
        report::print_result(text.as_bytes());
    }
    // Staging undoes a prepared soft reboot.
    remember_soft_reboot(is_soft_prepared(root));
    if plan.os.needs_reboot() && args.reboot {
        deployments::reboot_node(root, ui.runner, args.guards.ignore_quorum)?;
    } else if plan.os.needs_reboot() && ui.output == Output::Text {
        report::print_result(format!("Staged.\nNext: {}\n", reboot()).as_bytes());
    } else if !plan.os.is_empty() && ui.output == Output::Text {
        report::print_result(b"What was staged is dropped; what runs stays.\n");
    }
    Ok(ExitCode::Done)
}
