//! Settings of the running kernel.

use std::fs;
use std::io;

/// Seconds after which a panic reboots; 0: never.
const PANIC: &str = "/proc/sys/kernel/panic";

/// Reads the seconds after which a panic reboots the machine: 0 never, negative at once; `None` if that is not known.
#[allow(
    clippy::disallowed_methods,
    reason = "procfs of the running kernel, not a path of the node's root"
)]
pub fn read_panic_timeout() -> Option<i32> {
    fs::read_to_string(PANIC).ok()?.trim().parse().ok()
}

/// Sets the seconds after which a panic reboots the machine, until the next boot.
///
/// # Errors
/// The kernel's error.
#[allow(
    clippy::disallowed_methods,
    reason = "procfs of the running kernel, not a path of the node's root"
)]
pub fn write_panic_timeout(seconds: i32) -> io::Result<()> {
    fs::write(PANIC, seconds.to_string())
}

/// Returns true if the kernel has a watchdog device.
#[allow(
    clippy::disallowed_methods,
    reason = "device of the running system, not a path of the node's root"
)]
pub fn has_watchdog() -> bool {
    fs::metadata("/dev/watchdog0").is_ok()
}
