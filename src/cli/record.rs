//! `record`: takes a snapshot of the node's facts, at the end of a boot and of a run (docs/explanation/recorder.md).

use crate::diagnose::recorder::look::boot_id;
use crate::run::snapshot::{SnapshotRequest, take_snapshot};
use std::path::Path;
use std::time::Instant;

use anyhow::{Result, bail};

use super::Output;
use crate::base::error::ExitCode;
use crate::change::session::machine::expect_traces;
use crate::change::session::open_root;
use crate::cli::ui::Ui;
use crate::diagnose::recorder::Event;
use crate::node::mounts;
use crate::report;
use crate::run::opening::{Needs, Opening, is_held};
use clap::Args;

/// How to record.
#[derive(Debug, Args)]
pub struct RecordArgs {
    /// Run by a unit at the end of a boot: its result is recorded too
    #[arg(long, hide = true)]
    pub at_boot: bool,
}

/// Runs `record`.
pub(super) fn run(ui: &Ui<'_>, args: &RecordArgs) -> Result<ExitCode> {
    let began = Instant::now();
    if ui.root == Path::new("/")
        && let Err(error) = mounts::make_writable(Path::new("/boot"))
    {
        log::info!("{error}");
    }
    let root = open_root(&ui.root)?;
    expect_traces(&root)?;
    let event = if args.at_boot {
        Event::Boot
    } else {
        Event::ByHand
    };
    if event == Event::Boot && boot_id(&root).is_none() {
        bail!(
            "this root is not a running system: there is no /proc below it. Leave --at-boot out to record its facts"
        );
    }
    let needs = match event {
        Event::Boot => &Needs::RECORD_BOOT,
        _ => &Needs::RECORD,
    };
    let change = match Opening::check_needs(ui, root, needs).and_then(Opening::begin_change) {
        Ok(change) => change,
        Err(error) if event == Event::Boot && is_held(&error) => {
            log::warn!("{error:#}. That run records its end; nothing was recorded");
            return Ok(ExitCode::Done);
        }
        Err(error) => return Err(error),
    };
    let request = SnapshotRequest {
        event,
        run: None,
        config: None,
    };
    let mut taken = take_snapshot(&change, &request)?;
    taken.milliseconds = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let text = match ui.output {
        Output::Json => report::history::record_json(&taken)?,
        Output::Text if ui.quiet => String::new(),
        Output::Text => report::history::record_text(&taken),
    };
    report::print_result(text.as_bytes());
    Ok(ExitCode::Done)
}
