//! The reboot that a running node needs because of changed files.

use serde::Serialize;

use crate::base::invocation::reboot;
use crate::change::staging::reboots::RebootNeed;

/// The combined needs of the current boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RebootReport {
    /// Time at which the first of the files was changed; seconds since 1970.
    pub since: u64,
    /// Names of the configs that were applied or reverted.
    pub configs: Vec<String>,
    /// The reasons for a reboot, in words.
    pub causes: Vec<String>,
}

impl RebootReport {
    /// Creates the report; `None` if no reboot is needed.
    pub fn of(needs: &[RebootNeed]) -> Option<Self> {
        let first = needs.first()?;
        let (mut configs, mut causes) = (Vec::new(), Vec::new());
        for need in needs {
            add_new(&mut configs, std::slice::from_ref(&need.config));
            add_new(&mut causes, &need.causes);
        }
        Some(Self {
            since: first.since,
            configs,
            causes,
        })
    }

    /// Returns the configs and the causes, with the next command.
    pub fn words(&self) -> String {
        format!(
            "files of {} were changed ({}), and what runs has the old ones. Next: {}",
            self.configs.join(", "),
            self.causes.join(", "),
            reboot()
        )
    }
}

fn add_new(all: &mut Vec<String>, more: &[String]) {
    for one in more {
        if !all.contains(one) {
            all.push(one.clone());
        }
    }
}
