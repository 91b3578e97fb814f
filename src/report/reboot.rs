//! The reboot that a running node needs because of changed files.

use crate::base::invocation::reboot_command;
use crate::run::status::RebootReport;

impl RebootReport {
    /// Returns the configs and the causes, with the next command.
    pub fn words(&self) -> String {
        format!(
            "files of {} were changed ({}), and running programs use the old ones. Next: {}",
            self.configs.join(", "),
            self.causes.join(", "),
            reboot_command()
        )
    }
}
