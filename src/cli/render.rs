//! `render`: merges the MachineConfigs of a pool into the config that the operator would render.

use anyhow::Result;
use serde_json::{Value, json};

use crate::base::error::ExitCode;
use crate::change::source::{self, objects};
use crate::config::controllers::derive::{Derived, Request, derive_config};
use crate::config::controllers::{ApiObject, read_objects};
use crate::config::render::{self, Input, Pool};
use crate::report;
use clap::Args;

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

    /// The same as FILE, as with oc
    #[arg(
        short = 'f',
        long = "filename",
        value_name = "FILE",
        hide_short_help = true
    )]
    pub filenames: Vec<String>,

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
    let pool = Pool {
        name: args.pool.clone(),
        os_image: args.os_image.clone(),
        extensions_image: args.extensions_image.clone(),
        controller_version: args.controller_version.clone(),
    };
    let mut files = Vec::new();
    for file in args.files.iter().chain(&args.filenames) {
        files.push((file.as_str(), source::read_named(file)?));
    }
    let derived = if args.parts.is_empty() && args.base.is_none() && !has_objects(&files) {
        let mut inputs = Vec::new();
        for (file, bytes) in &files {
            inputs.extend(render::read_inputs(bytes, file)?);
        }
        warn(&inputs, &pool.name);
        Derived {
            rendered: render::render_pool(inputs, &pool)?,
            generated: Vec::new(),
            notes: Vec::new(),
        }
    } else {
        derive_config(gather(args, &files, pool)?)?
    };
    for note in &derived.notes {
        log::warn!("{note}");
    }
    warn_of_images(&derived.rendered);
    let shown = if args.generated {
        json!({"apiVersion": "v1", "kind": "List", "items": derived.generated})
    } else {
        derived.rendered
    };
    let text = format!("{}\n", serde_json::to_string_pretty(&shown)?);
    report::print_document(&text)?;
    Ok(ExitCode::Done)
}

/// Returns true if a file contains an object that a controller reads.
fn has_objects(files: &[(&str, Vec<u8>)]) -> bool {
    files.iter().any(|(file, bytes)| {
        objects::butane_text(bytes).is_some()
            || read_objects(bytes, file).is_ok_and(|all| all.iter().any(ApiObject::is_read))
    })
}

/// Gathers the objects and MachineConfigs of files, parts and base.
fn gather(args: &RenderArgs, files: &[(&str, Vec<u8>)], pool: Pool) -> Result<Request> {
    let mut given = Vec::new();
    for (file, bytes) in files {
        given.extend(objects::read_given(bytes, file)?);
    }
    let mut known = Vec::new();
    for parts in &args.parts {
        known.extend(objects::read_parts(parts)?);
    }
    let base = args.base.as_deref().map(objects::read_base).transpose()?;
    let mut configs = Vec::new();
    let in_pool = |object: &ApiObject| objects::has_role_of(object, &pool.name);
    let parts: Vec<ApiObject> = known
        .extract_if(.., |object| object.is_machine_config())
        .collect();
    let own: Vec<ApiObject> = given
        .extract_if(.., |object| object.is_machine_config())
        .collect();
    for object in own.iter().filter(|object| !in_pool(object)) {
        log::warn!(
            "{}: {} is of another pool than {}, and is left out",
            object.origin,
            object.name,
            pool.name
        );
    }
    let (all, others): (Vec<ApiObject>, Vec<ApiObject>) =
        parts.into_iter().chain(own).partition(in_pool);
    for object in all {
        let input = objects::read_config(&object)?;
        configs.push((object, input));
    }
    for (_, input) in &configs {
        warn_of(input, &pool.name);
    }
    Ok(Request {
        pool,
        configs,
        others,
        known,
        given,
        base,
        release_image: args.release_image.clone(),
    })
}

fn warn_of_images(rendered: &Value) {
    for (key, option) in [
        ("osImageURL", "--os-image"),
        ("baseOSExtensionsContainerImage", "--extensions-image"),
    ] {
        if rendered
            .pointer(&format!("/spec/{key}"))
            .is_some_and(|image| image == "")
        {
            log::warn!("spec.{key} is empty, so the name is not the cluster's; give {option}");
        }
    }
}

fn warn(inputs: &[Input], pool: &str) {
    for input in inputs {
        warn_of(input, pool);
    }
}

/// Warns about findings in a MachineConfig, and about one that seems to belong to another pool.
fn warn_of(input: &Input, pool: &str) {
    let (origin, name) = (&input.config.origin, &input.config.name);
    for finding in &input.config.warnings {
        log::warn!("{origin}: {name}: {finding}");
    }
    if ![pool, "worker"].contains(&input.role.as_str())
        || objects::HAS_NO_WORKERS.contains(&pool) && input.role != pool
    {
        log::warn!(
            "{origin}: {name} has the role {}; is it one of pool {pool}?",
            input.role
        );
    }
}
