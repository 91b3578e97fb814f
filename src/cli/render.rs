//! `render`: merges the MachineConfigs of a pool into the config that the operator would render.

use anyhow::Result;
use clap::Args;
use serde_json::json;

use super::args::FilesArgs;
use crate::base::error::ExitCode;
use crate::change::source;
use crate::config::render::Pool;
use crate::report;
use crate::run::render::{RenderRequest, render_config};

/// What to render.
#[derive(Debug, Args)]
pub struct RenderArgs {
    /// Name of the pool, such as worker
    #[arg(value_name = "POOL")]
    pub pool: String,

    /// MachineConfigs of the pool, and objects that become some
    ///
    /// Every MachineConfig of the pool, JSON or YAML, single or as lists, in any order; and
    /// objects that become MachineConfigs, such as a KubeletConfig; `-` for standard input
    #[arg(value_name = "FILE", required_unless_present_any = ["parts", "filenames"])]
    pub files: Vec<String>,

    /// The same as FILE.
    #[command(flatten)]
    pub named: FilesArgs,

    /// File or directory with the cluster's MachineConfigs, such as a must-gather
    ///
    /// Those of other pools are skipped. Objects that MachineConfigs are made of are read, too;
    /// the output of `oc get -o yaml` will do
    #[arg(long, value_name = "PATH")]
    pub parts: Vec<String>,

    /// Rendered config of the node; FILE goes on top of it
    ///
    /// For a node whose parts are not available
    #[arg(long, value_name = "CONFIG", conflicts_with = "parts")]
    pub base: Option<String>,

    /// Image of the release that runs, for blocked and allowed registries, where no
    /// ClusterVersion is among the objects
    #[arg(long, value_name = "IMAGE", hide_short_help = true)]
    pub release_image: Option<String>,

    /// Print the MachineConfigs that the objects become
    #[arg(long)]
    pub generated: bool,

    /// OS image of the release, which a MachineConfig may override; without either, the
    /// name is not the cluster's
    #[arg(long, value_name = "URL", hide_short_help = true)]
    pub os_image: Option<String>,

    /// Image with the extensions of the release, which a MachineConfig may override;
    /// without either, the name is not the cluster's
    #[arg(long, value_name = "URL", hide_short_help = true)]
    pub extensions_image: Option<String>,

    /// Version of the operator, for the annotation generated-by-controller-version
    /// [default: that of the MachineConfigs which a controller made]
    #[arg(long, value_name = "VERSION", hide_short_help = true)]
    pub controller_version: Option<String>,
}

/// Runs `render`. The output is always a document, so there is only one form of it.
pub(super) fn run(args: &RenderArgs) -> Result<ExitCode> {
    let mut files = Vec::new();
    for file in args.files.iter().chain(&args.named.filenames) {
        files.push((file.as_str(), source::read_named(file)?));
    }
    let derived = render_config(RenderRequest {
        pool: Pool {
            name: args.pool.clone(),
            os_image: args.os_image.clone(),
            extensions_image: args.extensions_image.clone(),
            controller_version: args.controller_version.clone(),
        },
        files: &files,
        parts: &args.parts,
        base: args.base.as_deref(),
        release_image: args.release_image.as_deref(),
    })?;
    let shown = if args.generated {
        json!({"apiVersion": "v1", "kind": "List", "items": derived.generated})
    } else {
        derived.rendered
    };
    let text = format!("{}\n", serde_json::to_string_pretty(&shown)?);
    report::print_document(&text)?;
    Ok(ExitCode::Done)
}
