//! All consoles of the machine, so that a message reaches every screen and serial line.

use super::print_result;
use crate::host::running;

/// Writes to each console that the kernel knows, such as a screen and a serial line; to standard output too if a person runs the
/// command, and no service.
///
/// A console that accepts no data is skipped: the journal has the text too.
pub fn tell(text: &str) {
    tell_caller(text);
    for name in active() {
        if let Err(error) = running::write_to_device(format!("/dev/{name}"), text) {
            log::info!("console {name}: {error}");
        }
    }
}

/// Writes to standard output if it is not the journal, which has the messages of a unit already.
pub fn tell_caller(text: &str) {
    // systemd sets it for a service whose output the journal reads.
    if std::env::var_os("JOURNAL_STREAM").is_none() {
        print_result(text.as_bytes());
    }
}

fn active() -> Vec<String> {
    let text = running::read_text("/sys/class/tty/console/active").unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}
