//! `render`: the MachineConfigs of a pool become the config that the operator would render.

use std::io::Read;

use anyhow::Result;

use super::RenderArgs;
use crate::error::{ExitCode, Reason};
use crate::render::{self, Input, Pool};
use crate::report;
use crate::source::SourceError;

/// A file may not be larger than this (64 MiB), as for every other document.
const MAX_DOCUMENT: u64 = 64 << 20;

/// Runs `render`. What is printed is a document in any case, so there is one form of it.
pub fn run(args: &RenderArgs) -> Result<ExitCode> {
    let mut inputs = Vec::new();
    for file in &args.files {
        inputs.extend(render::read(&read(file)?, file)?);
    }
    let pool = Pool {
        name: args.pool.clone(),
        os_image: args.os_image.clone(),
        extensions_image: args.extensions_image.clone(),
        controller_version: args.controller_version.clone(),
    };
    warn(&inputs, &pool.name);
    let rendered = render::render(inputs, &pool)?;
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
    report::print(text.as_bytes())?;
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
            || pool == "master" && input.role != pool
        {
            log::warn!(
                "{origin}: {name} has the role {}; is it one of pool {pool}?",
                input.role
            );
        }
    }
}

fn read(name: &str) -> Result<Vec<u8>, SourceError> {
    let failed = |e: std::io::Error| SourceError::Read(name.to_owned(), Reason::from(e));
    let mut bytes = Vec::new();
    if name == "-" {
        std::io::stdin()
            .take(MAX_DOCUMENT + 1)
            .read_to_end(&mut bytes)
    } else {
        open(name)
            .map_err(failed)?
            .take(MAX_DOCUMENT + 1)
            .read_to_end(&mut bytes)
    }
    .map_err(failed)?;
    if bytes.len() as u64 > MAX_DOCUMENT {
        return Err(SourceError::TooLarge(name.to_owned()));
    }
    Ok(bytes)
}

#[allow(
    clippy::disallowed_methods,
    reason = "a path of the caller, not of the node's root"
)]
fn open(path: &str) -> std::io::Result<std::fs::File> {
    std::fs::File::open(path)
}
