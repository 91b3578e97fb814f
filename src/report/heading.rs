//! What stands above every report: the node, the config, and where that came from.

use super::plan::Heading;
use crate::change::session::Session;
use crate::node::{Machine, Recorded};

impl Heading {
    /// Returns the heading of a report about a session.
    pub fn of_session(session: &Session<'_>) -> Self {
        let recorded = match &session.records.current_config {
            Recorded::Missing => "(no record)".to_owned(),
            Recorded::Broken(problem) => format!("(unreadable: {problem})"),
            Recorded::Present(config) => config.name.clone(),
        };
        Self {
            node: name(&session.machine),
            system: system(&session.machine),
            short_system: session.machine.short_system.clone(),
            config: session.chosen.config.name.clone(),
            name_hash: (!session.desired.bare).then(|| session.name_hash().clone()),
            digest: session.chosen.config.digest.clone(),
            origin: session.chosen.config.origin.clone(),
            signed: session.chosen.signed.clone(),
            chosen: session.chosen.why.clone(),
            root: session.root.shown().display().to_string(),
            recorded,
            of_disk: if session.root.is_live() || session.node.host.in_initramfs {
                String::new()
            } else {
                session.describe_disk()
            },
            others: session.chosen.others.clone(),
        }
    }

    /// Returns the heading of a plan where no config is looked at.
    pub fn of_machine(machine: &Machine) -> Self {
        Self {
            root: machine.root.clone(),
            node: name(machine),
            system: system(machine),
            short_system: machine.short_system.clone(),
            ..Self::default()
        }
    }
}

/// Returns the host name, for people.
fn name(machine: &Machine) -> String {
    let name = machine.name.clone();
    name.unwrap_or_else(|| "(no /etc/hostname)".to_owned())
}

/// Returns the system, for people.
fn system(machine: &Machine) -> String {
    match machine.system.as_str() {
        "" => "(no os-release)".to_owned(),
        name => name.to_owned(),
    }
}
