//! `rehearse`: boots the next system in namespaces, before the node reboots into it.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;

use super::Output;
use crate::base::error::ExitCode;
use crate::change::session::{machine, open_root};
use crate::change::trial::parse_time;
use crate::cli::args::ConfigFileArgs;
use crate::cli::ui::Ui;
use crate::host::root::Root;
use crate::judge::crossing::has_inhibitor;
use crate::rehearse::rehearsal::{Rehearsal, RehearsalOptions, RehearsalSubject, rehearse_boot};
use crate::rehearse::stage_entry::boot_stage;
use crate::report;
use crate::report::plan::Heading;

/// What to rehearse.
#[derive(Debug, Args)]
pub struct RehearseArgs {
    /// A config as for apply, or the image that is staged [default: the next boot]
    ///
    /// [default: the next boot; if nothing has changed since the last one, a boot with the
    /// config wanted last]
    #[arg(value_name = "CONFIG|IMAGE")]
    pub config: Option<String>,

    /// The same as CONFIG.
    #[command(flatten)]
    pub named: ConfigFileArgs,

    /// Time for each of the two boots, such as 90s or 2m
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    pub limit: Duration,

    /// Be the first process of the namespaces
    #[arg(long, value_name = "SCENE", hide = true)]
    pub stage: Option<PathBuf>,
}

/// Time for each boot of a rehearsal that belongs to another command.
const LIMIT: Duration = Duration::from_secs(60);

/// A rehearsal that belongs to another command.
pub(super) struct PartRehearsal(Rehearsal);

impl PartRehearsal {
    /// Rehearses a boot of the root.
    ///
    /// # Errors
    /// Nothing can be rehearsed.
    pub(super) fn carry_out(
        ui: &Ui<'_>,
        root: &Root,
        subject: RehearsalSubject<'_>,
    ) -> Result<Self> {
        let limit = LIMIT;
        let options = RehearsalOptions { subject, limit };
        rehearse_boot(root, &ui.root, ui.runner, &options).map(Self)
    }

    /// Returns true if the next boot would leave the node out of reach.
    pub(super) fn has_inhibitor(&self) -> bool {
        has_inhibitor(&self.0.findings)
    }

    /// Returns the text.
    pub(super) fn text(&self) -> String {
        report::rehearse::to_part_text(&self.0)
    }

    /// Appends the rehearsal to the text or the document of the command.
    ///
    /// # Errors
    /// The serializer's error.
    pub(super) fn append_to(&self, ui: &Ui<'_>, output: String) -> Result<String> {
        Ok(match ui.output {
            Output::Json => report::rehearse::add_to_document(&output, &self.0)?,
            Output::Text => format!("{output}\n{}", self.text()),
        })
    }
}

/// Runs `rehearse`.
pub(super) fn run(ui: &Ui<'_>, args: &RehearseArgs) -> Result<ExitCode> {
    if let Some(scene) = &args.stage {
        match boot_stage(ui.runner, scene)? {}
    }
    let root = open_root(&ui.root)?;
    machine::expect_system(&root)?;
    let options = RehearsalOptions {
        subject: match args.config.as_deref().or(args.named.filename.as_deref()) {
            Some(config) => RehearsalSubject::Config(config),
            None => RehearsalSubject::NextBootOrWanted,
        },
        limit: args.limit,
    };
    let rehearsal = rehearse_boot(&root, &ui.root, ui.runner, &options)?;
    let heading = Heading::of_machine(&machine::observe_machine(&root)?);
    ui.print(
        || report::rehearse::to_json(&heading, &rehearsal),
        || report::rehearse::to_text(&heading, &rehearsal),
    )?;
    Ok(if has_inhibitor(&rehearsal.findings) {
        ExitCode::Error
    } else {
        ExitCode::Done
    })
}
