//! The root that the command line names.

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::base::invocation;
use crate::host::root::{Root, RootPath};
use crate::node::boot::is_soft_prepared;
use crate::node::{mounts, sysroot};

/// Opens the root of the command line; of the disk of an OSTree system, the deployment that it would boot, with its
/// `var` (docs/how-to/fetch-and-cache.md).
///
/// # Errors
/// It cannot be opened, or is the disk of the system that runs.
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
    // For the commands that are printed: the paths of this disk are others than those of the node.
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

/// Of a mounted disk, the deployment does not show the disk itself: for this run it does, where the running one has
/// it, so that boot entries, kernels and the other deployments are seen.
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
