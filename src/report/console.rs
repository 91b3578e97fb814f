//! Every console of the machine: a message reaches all of its screens and serial lines.

use crate::host::running;

/// Writes to each console that the kernel has, such as a screen and a serial line.
///
/// A console that accepts no data is skipped: the journal has the text too.
pub fn tell(text: &str) {
    for name in active() {
        if let Err(error) = running::write_to_device(format!("/dev/{name}"), text) {
            log::info!("console {name}: {error}");
        }
    }
}

fn active() -> Vec<String> {
    let text = running::read_text("/sys/class/tty/console/active").unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}
