//! `pivot`: the OS image alone.

use std::cell::RefCell;

use anyhow::{Result, bail};

use super::access::{self, Need};
use super::bits;
use super::complete;
use super::install::Beforehand;
use super::os::{self, Over, Staging};
use super::quorum;
use super::recover::recover_first;
use super::session::{guard, open_root};
use super::work::confirm;
use super::{Cli, Output, PivotArgs, machine};
use crate::command::HostRunner;
use crate::error::ExitCode;
use crate::invocation::mco_rescue;
use crate::node::system::System;
use crate::node::{self, Host, Interest, Records};
use crate::plan::fit::Accepted;
use crate::plan::{OsPlan, Plan};
use crate::report;
use crate::report::plan::{machine as of_machine, notices, operating_system};
use crate::root::Root;
use crate::staging::awaited::PIVOT;
use crate::transaction;
use crate::transaction::journal::ConfigRef;

/// Runs `pivot`.
pub fn run(cli: &Cli, args: &PivotArgs) -> Result<ExitCode> {
    let root = open_root(cli)?;
    if !Host::observe(&root)?.live {
        bail!(
            "the operating system is staged on the running node only; with --root nothing can be. Boot the node first"
        );
    }
    machine::expect_node(&root, args.guards.not_a_node)?;
    access::expect(&root, Need::Write)?;
    let records = Records::read(&root)?;
    let image = wanted(args, &records)?;
    let lock = transaction::acquire_lock(&root)?;
    recover_first(&root, &lock)?;
    let interest = Interest {
        system: true,
        ..Interest::default()
    };
    let node = node::observe(&root, &interest, &HostRunner)?;
    let facts = match &node.system {
        System::Known(facts) => facts,
        System::Silent(why) => bail!("{why}"),
        System::NotAsked => {
            bail!("this system was not booted by OSTree, so there is no image to change")
        }
    };
    let mut plan = Plan {
        os: OsPlan::of_image(facts, &image),
        ..Plan::default()
    };
    let mut allowed = args.guards.allowed();
    allowed.staged = os::is_staged_by_us(&root)?;
    guard(&mut plan, &root, &node, allowed)?;
    let accepted = Accepted {
        other_architecture: args.other_architecture,
        ..Accepted::default()
    };
    bits::look(&root, &mut plan, &args.bits, accepted, "")?;
    if plan.reboots() {
        quorum::look(&root, &mut plan, !args.guards.ignore_quorum)?;
    }
    let beforehand = Beforehand::of_recorded(&root, &records);
    let completion = args.guards.completion();
    completion.look(&root, &mut plan, beforehand.as_ref())?;
    if let Some(beforehand) = &beforehand {
        beforehand.announce(&mut plan);
    }
    show(cli, &root, &image, &plan)?;
    if !plan.blockers.is_empty() {
        bail!("refusing to stage {image}: see the blockers above; nothing was changed");
    }
    if !plan.os.steps.is_empty() {
        confirm(cli, "Stage this image?")?;
        if let Some(beforehand) = beforehand {
            completion.install(&root, &lock, &plan, &beforehand)?;
        }
        staging(cli, (&root, &lock), &plan, &records, args)?.stage(facts)?;
        if !plan.os.needs_reboot() {
            os::settle(&root);
        }
    }
    end(cli, &root, &plan, args)
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
    cli: &'a Cli,
    (root, lock): (&'a Root, &'a transaction::Lock),
    plan: &'a Plan,
    records: &Records,
    args: &PivotArgs,
) -> Result<Staging<'a>> {
    let recorded = records.recorded();
    Ok(Staging {
        cli,
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
        bits: args.bits.bits(),
        files: false,
        over: Over::look(root, &complete::booted(root)?)?,
        expected: RefCell::default(),
        staged: RefCell::default(),
    })
}

fn show(cli: &Cli, root: &Root, image: &str, plan: &Plan) -> Result<()> {
    if cli.output == Output::Json {
        return Ok(());
    }
    let mut text = of_machine(&machine::heading(&machine::observe(root)?)) + "\n";
    text += &notices("Blockers", &plan.blockers);
    text += &operating_system(&plan.os);
    text += &notices("Notices", &plan.notices);
    if plan.os.is_empty() && plan.blockers.is_empty() {
        text += &format!("Nothing to do: {image} runs.\n");
    }
    Ok(report::print(text.as_bytes())?)
}

fn end(cli: &Cli, root: &Root, plan: &Plan, args: &PivotArgs) -> Result<ExitCode> {
    if cli.output == Output::Json {
        let text = report::plan::os_json(&plan.os)?;
        report::print_result(text.as_bytes());
    }
    if plan.os.needs_reboot() && args.reboot {
        os::reboot(root, args.guards.ignore_quorum)?;
    } else if plan.os.needs_reboot() && cli.output == Output::Text {
        report::print_result(b"Staged.\nNext: systemctl reboot\n");
    } else if !plan.os.is_empty() && cli.output == Output::Text {
        report::print_result(b"What was staged is dropped; what runs stays.\n");
    }
    Ok(ExitCode::Done)
}
