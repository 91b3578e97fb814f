//! `render`: the MachineConfigs of a pool become the config that the operator would render.

use anyhow::Result;

use super::RenderArgs;
use crate::error::ExitCode;
use crate::render::{self, Input, Pool};
use crate::report;
use crate::source;

/// Pools to which no MachineConfig of role worker belongs.
const HAS_NO_WORKERS: [&str; 2] = ["master", "arbiter"];

/// Runs `render`. What is printed is a document in any case, so there is one form of it.
pub(super) fn run(args: &RenderArgs) -> Result<ExitCode> {
    let mut inputs = Vec::new();
    for file in &args.files {
        inputs.extend(render::read_inputs(&source::read_named(file)?, file)?);
    }
    let pool = Pool {
        name: args.pool.clone(),
        os_image: args.os_image.clone(),
        extensions_image: args.extensions_image.clone(),
        controller_version: args.controller_version.clone(),
    };
    warn(&inputs, &pool.name);
    let rendered = render::render_pool(inputs, &pool)?;
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
    let text = format!("{}\n", serde_json::to_string_pretty(&rendered)?);
    report::print_bytes(text.as_bytes())?;
    Ok(ExitCode::Done)
}

/// What was found in the documents, and documents that look like another pool's.
fn warn(inputs: &[Input], pool: &str) {
    for input in inputs {
        let (origin, name) = (&input.config.origin, &input.config.name);
        for finding in &input.config.warnings {
            log::warn!("{origin}: {name}: {finding}");
        }
        if ![pool, "worker"].contains(&input.role.as_str())
            || HAS_NO_WORKERS.contains(&pool) && input.role != pool
        {
            log::warn!(
                "{origin}: {name} has the role {}; is it one of pool {pool}?",
                input.role
            );
        }
    }
}
