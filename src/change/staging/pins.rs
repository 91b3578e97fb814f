//! Deployments that this program pinned for a rollback. They are stored by name, so that only these are ever unpinned, and only
//! once the daemon is done or the user requests it (docs/explanation/operating-system.md).

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::deployments::{explain_cause, read_deployments};
use crate::base::paths;
use crate::change::transaction::{open_store, store_value};
use crate::host::root::{Root, RootError, RootPath};
use crate::host::state_file;
use crate::judge::daemon::annotations::Annotations;
use crate::node::Records;
use crate::node::command::CommandRunner;
use crate::node::command::rpm_ostree::arguments;
use crate::node::command::rpm_ostree::cause::RpmOstreeError;
use crate::node::command::rpm_ostree::status::{Deployment, Deployments};
use crate::node::system::ask_rpm_ostree;

/// Version of the file.
pub const VERSION: u32 = 1;

/// Kept in `/var/lib/mco-rescue/pins.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Pins {
    version: u32,
    /// `CHECKSUM.SERIAL` of each.
    deployments: Vec<String>,
}

/// Returns the deployments that this program pinned.
pub fn read_pins(root: &Root) -> Result<Vec<String>, RootError> {
    let pins = state_file::read_remembered(root, paths::PINS, VERSION, |pins: &Pins| pins.version)?;
    Ok(pins.map(|pins| pins.deployments).unwrap_or_default())
}

/// Records a pin, before it is made.
pub fn remember_pin(root: &Root, deployment: &str) -> Result<()> {
    let mut deployments = read_pins(root)?;
    if !deployments.iter().any(|known| known == deployment) {
        deployments.push(deployment.to_owned());
        store_pins(root, deployments)?;
    }
    Ok(())
}

/// Stores the pins. Without pins the file is removed, so that a failed run leaves the node as it was.
fn store_pins(root: &Root, deployments: Vec<String>) -> Result<()> {
    if deployments.is_empty() {
        let store = open_store(root, paths::STATE)?;
        return Ok(store.remove_file(RootPath::fixed(paths::PINS).name())?);
    }
    let version = VERSION;
    Ok(store_value(
        root,
        paths::PINS,
        &Pins {
            version,
            deployments,
        },
    )?)
}

/// Unpins our deployments for which `wanted` returns true; returns those that were unpinned. The index of a deployment changes
/// with the others, so it is queried for each.
pub fn unpin_deployments(
    root: &Root,
    runner: &dyn CommandRunner,
    wanted: impl Fn(&Deployment) -> bool,
) -> Result<Vec<Deployment>> {
    let failed = |cause: RpmOstreeError| explain_cause(root, &cause);
    let mut kept = read_pins(root)?;
    let mut gone = Vec::new();
    for name in kept.clone() {
        let all = read_deployments(root, runner).map_err(failed)?;
        match all.find_named(&name) {
            Some(deployment) if !wanted(deployment) => continue,
            Some(deployment) if deployment.pinned => {
                ask_rpm_ostree(runner, &arguments::unpin_deployment(deployment.index))
                    .map_err(failed)?;
                gone.push(deployment.clone());
            }
            // Another program has unpinned or removed it.
            _ => {}
        }
        kept.retain(|other| *other != name);
        store_pins(root, kept.clone())?;
    }
    Ok(gone)
}

/// Returns true if the daemon has taken over the running state: it is done with exactly the recorded config, whose image is
/// running.
pub fn is_done(annotations: &Annotations, records: &Records, all: &Deployments) -> bool {
    let name = records.name();
    let is = |config: &Option<String>| config.is_some() && *config == name;
    let image = records
        .recorded_config()
        .map(|config| config.os_image_url.as_str());
    let runs = all.booted().map(Deployment::image);
    annotations.state.as_deref() == Some("Done")
        && is(&annotations.current)
        && is(&annotations.desired)
        && all.staged().is_none()
        && runs.as_deref() == image
}
