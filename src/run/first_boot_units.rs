//! The first-boot units, which a run replaces when it stages.

use anyhow::{Context, Result};

use crate::base::paths;
use crate::change::staging::state;
use crate::host::root::{Root, RootPath};
use crate::node::command::systemctl::UnitActivity;
use crate::node::command::{CommandError, CommandRunner, systemctl};
use crate::node::host::systemd_runs;
use crate::node::{FIRST_BOOT_PULL, FIRST_BOOT_SERVICE};

/// Stops the first-boot service, as two programs that stage at the same time would discard each other's deployments. Must be called
/// before anything is changed. If the root is not that of the running systemd, nothing is stopped: the service name would refer to
/// the host.
///
/// # Errors
/// The error of systemd.
pub fn stop_service(root: &Root, runner: &dyn CommandRunner) -> Result<()> {
    let units = [FIRST_BOOT_SERVICE];
    if systemd_runs(root) && is_any_at_work(runner, &units)? {
        end_units(runner, &units)
            .context("stopping the first-boot service, which stages too; nothing was changed")?;
        log::warn!("{FIRST_BOOT_SERVICE} is stopped; what waited for it starts now");
    }
    Ok(())
}

/// Stops the units of the first boot, so that what waits for them starts, if nothing is left for them to do. Returns true if some
/// were stopped.
///
/// # Errors
/// The node cannot be read, or the error of systemd.
pub fn continue_boot(root: &Root, runner: &dyn CommandRunner) -> Result<bool> {
    let units = [FIRST_BOOT_PULL, FIRST_BOOT_SERVICE];
    if !systemd_runs(root) || !is_completed(root)? || !is_any_at_work(runner, &units)? {
        return Ok(false);
    }
    end_units(runner, &units).context("stopping the units of the first boot")?;
    Ok(true)
}

/// Returns true if nothing waits for a reboot, and nothing starts the service at the next one.
///
/// # Errors
/// The node cannot be read.
pub fn is_completed(root: &Root) -> Result<bool> {
    let called = root.exists(&RootPath::fixed(paths::ENCAPSULATED))?;
    let awaited = state::read_awaited(root)?.is_some_and(|awaited| awaited.failed.is_none());
    Ok(!called && !awaited)
}

/// Stops units. A unit that is stopped while it starts counts as failed; that state is reset.
///
/// # Errors
/// The error of systemd.
fn end_units(runner: &dyn CommandRunner, units: &[&str]) -> Result<(), CommandError> {
    systemctl::stop_units(runner, units)?;
    // A unit that systemd has unloaded in the meantime has no failed state to reset.
    if let Err(error) = systemctl::reset_failed(runner, units) {
        log::info!("{error}");
    }
    Ok(())
}

/// Returns true if any of these units is active.
///
/// # Errors
/// systemd cannot be queried.
fn is_any_at_work(runner: &dyn CommandRunner, units: &[&str]) -> Result<bool> {
    let found = systemctl::query_activity(runner, units);
    let found = found.context("asking systemd for the units of the first boot")?;
    Ok(found.iter().any(UnitActivity::is_at_work))
}
