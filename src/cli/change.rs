//! `change`: changes an object of the cluster on the node, and stores the resulting rendered config in the cache.

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

use super::args::FilesArgs;
use super::ui::Ui;
use super::{Cli, Command, Output, plan};
use crate::base::error::ExitCode;
use crate::base::invocation::mco_rescue;
use crate::change::session::access::{self, AccessNeed};
use crate::change::session::{machine, open_root};
use crate::report;
use crate::run::change::{ChangeOptions, ChangeRequest, MirrorRequest, make_change};

/// What to change.
#[derive(Debug, Subcommand)]
pub enum ChangeCommand {
    /// Pull the images of SOURCE from MIRROR
    Mirror(MirrorArgs),

    /// Set fields of the kubelet's configuration, such as maxPods=300
    Kubelet(SettingArgs),

    /// Set fields of the container runtime, such as pidsLimit=4096
    Runtime(SettingArgs),

    /// Take objects from files: MachineConfigs, and what the controllers read
    With(WithArgs),
}

/// A mirror.
#[derive(Debug, Args)]
pub struct MirrorArgs {
    /// Registry or repository that images name, such as quay.io/team or *.example.com
    #[arg(value_name = "SOURCE")]
    pub source: String,

    /// Where to pull them from, in order
    #[arg(value_name = "MIRROR", required = true)]
    pub mirrors: Vec<String>,

    /// For images named by tag [default: by digest]
    #[arg(long)]
    pub tags: bool,

    /// Never pull from SOURCE itself
    #[arg(long)]
    pub never_contact_source: bool,

    /// Remove these mirrors of SOURCE
    #[arg(long, conflicts_with = "never_contact_source")]
    pub remove: bool,

    /// What it is made from.
    #[command(flatten)]
    pub from: ChangeArgs,
}

/// Fields and values.
#[derive(Debug, Args)]
pub struct SettingArgs {
    /// Name of a field, and its value
    #[arg(value_name = "FIELD=VALUE", required = true)]
    pub settings: Vec<String>,

    /// What it is made from.
    #[command(flatten)]
    pub from: ChangeArgs,
}

/// Files with objects.
#[derive(Debug, Args)]
pub struct WithArgs {
    /// Objects, YAML or JSON; `-` for standard input
    #[arg(value_name = "FILE", required_unless_present = "filenames")]
    pub files: Vec<String>,

    /// The same as FILE.
    #[command(flatten)]
    pub named: FilesArgs,

    /// What it is made from.
    #[command(flatten)]
    pub from: ChangeArgs,
}

/// The config that a change is made from.
#[derive(Debug, Args)]
pub struct ChangeArgs {
    /// A rendered config [default: the recorded one]
    #[arg(long, value_name = "CONFIG")]
    pub from: Option<String>,

    /// File or directory with objects of the cluster
    ///
    /// A must-gather, for example. The MachineConfigs of the cluster, and the objects that made them: then the name is that of
    /// the cluster
    #[arg(long, value_name = "PATH")]
    pub parts: Vec<String>,

    /// Image of the release that runs, for blocked and allowed registries
    #[arg(long, value_name = "IMAGE", hide_short_help = true)]
    pub release_image: Option<String>,

    /// Show the change, and keep nothing
    ///
    /// Its objects are shown, too
    #[arg(short = 'n', long)]
    pub dry_run: bool,
}

impl ChangeCommand {
    /// Returns what to change, and the arguments that all commands have.
    fn request(&self) -> (ChangeRequest<'_>, &ChangeArgs) {
        match self {
            Self::Mirror(args) => (
                ChangeRequest::Mirror(MirrorRequest {
                    source: &args.source,
                    mirrors: &args.mirrors,
                    tags: args.tags,
                    never_contact_source: args.never_contact_source,
                    remove: args.remove,
                }),
                &args.from,
            ),
            Self::Kubelet(args) => (ChangeRequest::Kubelet(&args.settings), &args.from),
            Self::Runtime(args) => (ChangeRequest::Runtime(&args.settings), &args.from),
            Self::With(args) => {
                let files = args.files.iter().chain(&args.named.filenames);
                let files = files.map(String::as_str).collect();
                (ChangeRequest::With(files), &args.from)
            }
        }
    }
}

/// Runs `change`.
pub(super) fn run(ui: &Ui<'_>, command: &ChangeCommand) -> Result<ExitCode> {
    let (request, args) = command.request();
    let root = open_root(&ui.root)?;
    machine::expect_system(&root)?;
    let need = if args.dry_run {
        AccessNeed::Read
    } else {
        AccessNeed::Write
    };
    access::expect_access(&root, need)?;
    let options = ChangeOptions {
        from: args.from.as_deref(),
        parts: &args.parts,
        release_image: args.release_image.as_deref(),
        dry_run: args.dry_run,
    };
    let change = make_change(&root, &request, &options)?;
    match ui.output {
        Output::Json => {
            report::print_whole_report(report::change::to_json(&change)?.as_bytes(), change.kept)?;
        }
        Output::Text => {
            report::print_whole_report(report::change::to_text(&change).as_bytes(), change.kept)?;
            if change.kept {
                show_plan(ui, &change.config)?;
                report::print_result(report::change::objects_command().as_bytes());
            }
        }
    }
    Ok(ExitCode::Done)
}

/// Prints what `apply` would do with the new config: its diffs, and whether it reloads, drains or reboots.
fn show_plan(ui: &Ui<'_>, config: &str) -> Result<()> {
    let name = format!("cached:{config}");
    let line = Cli::try_parse_from(["mco-rescue", "plan", &name])?;
    report::print_result(b"\n");
    if let Command::Plan(args) = line.command
        && let Err(error) = plan::run(ui, &args)
    {
        let next = mco_rescue(&format!("plan {name}"));
        log::warn!("the plan cannot be shown: {error:#}. Next: {next}");
    }
    Ok(())
}
