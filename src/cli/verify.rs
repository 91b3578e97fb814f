//! `verify`: the differences, in the daemon's order and words.

use super::diffs;
use crate::cli::ui::Ui;
use anyhow::{Context, Result};

use super::Output;
use crate::base::error::ExitCode;
use crate::base::invocation::{STAGE_OS, mco_rescue, on_booted_node};
use crate::change::session::access::{self, AccessNeed};
use crate::change::session::{Session, Unnamed, choose_config, machine, open_root, with_disk};
use crate::change::transaction::journal::ConfigRef;
use crate::change::transaction::{self, Pending};
use crate::cli::args::ConfigArgs;
use crate::host::root::Root;
use crate::node::{RecordReader, Records};
use crate::report;
use crate::report::plan::Heading;
use crate::report::verify::VerifyFindings;
use crate::run::events::{self, NodeEvent};

/// Reports an incomplete run instead of differences. Its files belong to two configs; compared with either one, some would look
/// like changes by hand.
fn tell_unfinished(
    ui: &Ui<'_>,
    root: &Root,
    args: &ConfigArgs,
    interrupted: &ConfigRef,
) -> Result<ExitCode> {
    let records = Records::read(root).context("reading the daemon's records")?;
    let config = choose_config(root, args.request(), Unnamed::Recorded, &records)?.config;
    let heading = Heading {
        config: config.name,
        digest: config.digest,
        origin: config.origin,
        recorded: records.name().unwrap_or_else(|| "(no record)".to_owned()),
        ..Heading::of_machine(&machine::observe_machine(root)?)
    };
    ui.print(
        || report::verify::unfinished_json(&heading, &interrupted.name),
        || report::verify::unfinished_text(&heading, &interrupted.name),
    )?;
    Ok(ExitCode::Drift)
}

/// Returns the reason why the daemon cannot read its record, and its message if that is known. This comes before any comparison. On
/// a first boot the daemon ignores the record.
fn unread(records: &Records) -> (Option<String>, Option<String>) {
    match &records.reader {
        _ if records.node_annotations => (None, None),
        RecordReader::Says(said) => (Some(said.clone()), Some(said.clone())),
        RecordReader::Fails(why) => (Some(why.to_string()), None),
        RecordReader::Same | RecordReader::Reads(_) => (None, None),
    }
}

/// Runs `verify`.
pub(super) fn run(ui: &Ui<'_>, args: &ConfigArgs) -> Result<ExitCode> {
    let root = with_disk(open_root(&ui.root)?, &ui.root)?;
    machine::expect_system(&root)?;
    access::expect_access(&root, AccessNeed::Read)?;
    if let Pending::Unfinished(interrupted, _) = transaction::find_pending(&root)? {
        return tell_unfinished(ui, &root, args, &interrupted);
    }
    let session = Session::observe(root, ui.runner, args.request(), Unnamed::Recorded)?;
    // The plan knows both sides of every difference.
    let (plan, mut drifts) = session.compare_node();
    let of_disk = session.disk_drifts();
    // A plan for a disk has no step for them.
    let is_os_alone = drifts.is_empty() && !of_disk.is_empty();
    drifts.extend(of_disk);
    let (record_problem, said) = unread(&session.records);
    let verdict = match &record_problem {
        Some(_) => said,
        None => session.daemon_verdict(&drifts, None),
    };
    let diffs = diffs::of_session(&session, &plan, args.show_secrets);
    let findings = VerifyFindings {
        drifts: &drifts,
        verdict: verdict.as_deref(),
        diffs: &diffs,
        not_looked_at: &session.not_looked_at(),
        has_core: session.has_core(),
        daemon: &None,
        told: None,
        record_problem: record_problem.as_deref(),
    };
    let heading = Heading::of_session(&session);
    let text = match ui.output {
        Output::Json => report::verify::to_json(&heading, findings)?,
        Output::Text if drifts.is_empty() && record_problem.is_none() => {
            report::verify::to_text(&heading, findings)
        }
        Output::Text => {
            let next = if is_os_alone {
                format!("Next: {}", on_booted_node(STAGE_OS))
            } else {
                format!("Next: {}, then {}", mco_rescue("plan"), mco_rescue("apply"))
            };
            report::verify::to_text(&heading, findings) + &report::wrap_text(&next, 0)
        }
    };
    if !drifts.is_empty() {
        let config = &session.chosen.config.name;
        events::send_event(&session.root, &NodeEvent::Drift(drifts.len()), config);
    }
    report::print_asked(&text, args.show_secrets)?;
    // The kernel reclaims the memory of a large config faster than it could be freed piece by piece.
    std::mem::forget(session);
    Ok(
        if drifts.is_empty() && verdict.is_none() && record_problem.is_none() {
            ExitCode::Done
        } else {
            ExitCode::Drift
        },
    )
}
