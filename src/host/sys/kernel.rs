//! Settings of the running kernel.

use std::io;

use crate::host::running;

/// Seconds after which a panic reboots; 0 for never.
const PANIC: &str = "/proc/sys/kernel/panic";

/// Reads the number of seconds after which a panic reboots the machine: 0 for never, negative for immediately; `None` if
/// unknown.
pub fn read_panic_timeout() -> Option<i32> {
    running::read_text(PANIC).ok()?.trim().parse().ok()
}

/// Sets the number of seconds after which a panic reboots the machine, until the next boot.
///
/// # Errors
/// The kernel's error.
pub fn write_panic_timeout(seconds: i32) -> io::Result<()> {
    running::write_setting(PANIC, &seconds.to_string())
}

/// Returns true if the kernel has a watchdog device.
pub fn has_watchdog() -> bool {
    running::exists("/dev/watchdog0")
}
