//! The units of the first boot, in whose place a run stages.

use anyhow::{Context, Result};

use crate::host::root::Root;
use crate::node::FIRST_BOOT_SERVICE;
use crate::node::command::systemctl::UnitActivity;
use crate::node::command::{CommandError, CommandRunner, systemctl};
use crate::node::host::systemd_runs;

/// Two that stage at the same time would drop each other's deployments. Nothing was changed before this. The service of
/// another root does not run: its name belongs to the machine that looks at that root.
///
/// # Errors
/// What systemd said.
pub fn stop_service(root: &Root, runner: &dyn CommandRunner) -> Result<()> {
    let units = [FIRST_BOOT_SERVICE];
    if systemd_runs(root) && is_any_at_work(runner, &units)? {
        end_units(runner, &units)
            .context("stopping the first-boot service, which stages too; nothing was changed")?;
        log::warn!("{FIRST_BOOT_SERVICE} is stopped; what waited for it starts now");
    }
    Ok(())
}

/// Stops units. A unit that is stopped while it starts counts as failed: that mark is taken off.
///
/// # Errors
/// What systemd said.
pub fn end_units(runner: &dyn CommandRunner, units: &[&str]) -> Result<(), CommandError> {
    systemctl::stop_units(runner, units)?;
    // One that systemd has let go of meanwhile is none of its units any more.
    if let Err(error) = systemctl::reset_failed(runner, units) {
        log::info!("{error}");
    }
    Ok(())
}

/// Returns true if one of these units is at work.
///
/// # Errors
/// systemd gives no answer.
pub fn is_any_at_work(runner: &dyn CommandRunner, units: &[&str]) -> Result<bool> {
    let found = systemctl::query_activity(runner, units);
    let found = found.context("asking systemd for the units of the first boot")?;
    Ok(found.iter().any(UnitActivity::is_at_work))
}
