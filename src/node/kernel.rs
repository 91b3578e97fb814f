//! The running kernel: its command line, its boot, and its FIPS mode.

use crate::host::running;

/// Returns the command line of the running kernel.
pub fn kernel_command_line() -> Option<String> {
    running::read_text("/proc/cmdline").ok()
}

/// Returns the id of the running boot.
pub fn boot_id() -> Option<String> {
    let text = running::read_text("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned())
}

/// Returns the seconds since the kernel started.
pub fn read_uptime() -> Option<u64> {
    let text = running::read_text("/proc/uptime").ok()?;
    text.split('.').next()?.parse().ok()
}

pub(super) fn read_fips() -> Option<bool> {
    let text = running::read_text("/proc/sys/crypto/fips_enabled").ok()?;
    Some(text.trim() == "1")
}
