//! The right machine, before anything else: nothing is locked, made or written on a root that is no node.

use anyhow::{Context, Result, bail};

use crate::base::notice::Notice;
use crate::change::plan::{no_system, wrong_machine};
use crate::host::root::Root;
use crate::node::{Machine, has_system};
use crate::report::plan::Heading;
use crate::report::wrap;

/// Looks at the machine.
pub(super) fn observe_machine(root: &Root) -> Result<Machine> {
    Machine::observe(root).context("looking at the machine")
}

/// Refuses a machine that is no node of a cluster, unless it is `meant`.
pub(super) fn expect_node(root: &Root, meant: bool) -> Result<()> {
    refuse(wrong_machine(&observe_machine(root)?, meant))
}

/// Refuses a directory that holds no system.
pub(super) fn expect_system(root: &Root) -> Result<()> {
    if has_system(root) {
        return Ok(());
    }
    refuse(no_system(&observe_machine(root)?))
}

fn refuse(against: Option<Notice>) -> Result<()> {
    match against {
        Some(Notice { subject, message }) => {
            let message = wrap(&format!("{message}. Nothing was changed."), 2);
            bail!("{subject}\n{}", message.trim_end())
        }
        None => Ok(()),
    }
}

/// What a plan is headed with where no config is looked at.
pub(super) fn heading(machine: &Machine) -> Heading {
    Heading {
        root: machine.root.clone(),
        node: name(machine),
        system: system(machine),
        short_system: machine.short_system.clone(),
        ..Heading::default()
    }
}

/// The host name, for people.
pub(super) fn name(machine: &Machine) -> String {
    let name = machine.name.clone();
    name.unwrap_or_else(|| "(no /etc/hostname)".to_owned())
}

/// The system, for people.
pub(super) fn system(machine: &Machine) -> String {
    match machine.system.as_str() {
        "" => "(no os-release)".to_owned(),
        name => name.to_owned(),
    }
}
