//! Opening the root that the command line names.

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::base::invocation;
use crate::host::root::{Root, RootPath};
use crate::node::boot::is_soft_prepared;
use crate::node::{mounts, sysroot};

/// Opens the root of the command line. For the disk of an OSTree system, this is the deployment that it would boot, with its `var`
/// (docs/reference/fetch.md).
///
/// # Errors
/// The root cannot be opened, or is the disk of the running system.
pub fn open_root(given: &Path) -> Result<Root> {
    let root = Root::open(given).context("opening the root")?;
    invocation::remember_soft_reboot(is_soft_prepared(&root));
    if !sysroot::is_physical(&root)? {
        if !root.is_live() {
            invocation::remember_places(given.to_owned(), given.join("var"));
        }
        return Ok(root);
    }
    let disk = given.display();
    let deployed = sysroot::default_deployment(&root)
        .with_context(|| format!("{disk} is the disk of an OSTree system"))?;
    // Printed commands need this, as paths on this disk differ from those on the node.
    invocation::remember_places(
        given.join(deployed.path.relative()),
        given.join(deployed.var.relative()),
    );
    let root = mounts::enter_deployment(given, &deployed);
    let root = root.with_context(|| format!("{disk} is the disk of an OSTree system"))?;
    if root.is_live() {
        bail!("{disk} is the disk that this system runs from; leave --root out");
    }
    Ok(root)
}

/// Shows the disk itself in a deployment of a mounted disk, at the place where the running system has it, so that boot entries,
/// kernels and the other deployments are visible during this run.
///
/// # Errors
/// The disk cannot be mounted there.
pub fn with_disk(root: Root, disk: &Path) -> Result<Root> {
    let below = root.shown().strip_prefix(disk).ok();
    match below.and_then(Path::to_str) {
        None | Some("") => Ok(root),
        Some(deployment) => {
            let deployment = RootPath::parse(&format!("/{deployment}"))?;
            Ok(mounts::show_disk(disk, &deployment)?)
        }
    }
}
