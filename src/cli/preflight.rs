//! `preflight`: can this node run another OS image?

use std::path::Path;

use anyhow::{Result, bail};

use super::access::{self, AccessNeed};
use super::session::open_root;
use super::{Output, PreflightArgs, machine};
use crate::cli::ui::Ui;
use crate::crossing::{self, CrossingSeverity, Target};
use crate::error::ExitCode;
use crate::images::tree::{self, ImageTree};
use crate::node::platform::Platform;
use crate::report;
use crate::root::Root;

/// Runs `preflight`.
pub(super) fn run(ui: &Ui<'_>, args: &PreflightArgs) -> Result<ExitCode> {
    let root = open_root(ui)?;
    access::expect_access(&root, AccessNeed::Read)?;
    let Some(path) = &args.os_from else {
        bail!("no image was given. Give it: --os-from PATH");
    };
    let target = Target::of(read_tree(path)?);
    let node = Platform::observe(&root);
    let findings = crossing::judge(&target, &node);
    let heading = machine::heading(&machine::observe_machine(&root)?);
    let text = match ui.output {
        Output::Json => report::preflight::to_json(&heading, &target, &findings)?,
        Output::Text => report::preflight::to_text(&heading, &target, &findings),
    };
    report::print(text.as_bytes())?;
    let stops = |severity| severity == CrossingSeverity::Inhibitor;
    let stopped = findings.iter().any(|finding| stops(finding.severity));
    Ok(if stopped {
        ExitCode::Error
    } else {
        ExitCode::Done
    })
}

fn read_tree(path: &Path) -> Result<ImageTree> {
    let root = Root::open(path)?;
    let tree = tree::read_directory(&root, &path.display().to_string())?;
    if tree.files.is_empty() {
        bail!(
            "{} holds no image: neither oci-layout and index.json, nor usr/lib/os-release; give the path of an OCI \
             directory, of an OCI archive, or of a deployment",
            path.display()
        );
    }
    Ok(tree)
}
