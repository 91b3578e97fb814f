//! Every console of the machine: a message reaches all of its screens and serial lines.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

/// Writes to each console that the kernel has, such as a screen and a serial line.
///
/// A console that accepts no data is skipped: the journal has the text too.
#[allow(
    clippy::disallowed_methods,
    reason = "devices of the running system, not a path of the node's root"
)]
pub fn tell(text: &str) {
    for name in active() {
        let opened = OpenOptions::new()
            .write(true)
            .custom_flags(libc::O_NOCTTY | libc::O_NONBLOCK)
            .open(format!("/dev/{name}"));
        let written = opened.and_then(|mut console| console.write_all(text.as_bytes()));
        if let Err(error) = written {
            log::info!("console {name}: {error}");
        }
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "sysfs of the running kernel, not a path of the node's root"
)]
fn active() -> Vec<String> {
    let text = std::fs::read_to_string("/sys/class/tty/console/active").unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}
