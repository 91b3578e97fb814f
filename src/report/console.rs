//! All consoles of the machine, so that a message reaches every screen and serial line.

use crate::host::running;

/// Writes to each console that the kernel knows, such as a screen and a serial line.
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
