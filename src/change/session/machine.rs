//! Checking for the right machine before anything else: nothing is locked, created or written on a root that is not a node.

use anyhow::{Context, Result, bail};

use crate::base::notice::Notice;
use crate::base::wrap::wrap_text;
use crate::change::plan::{no_system, no_trace, wrong_machine};
use crate::host::root::Root;
use crate::node::{Machine, has_system};

/// Observes the machine.
pub fn observe_machine(root: &Root) -> Result<Machine> {
    Machine::observe(root).context("looking at the machine")
}

/// Refuses a machine that is not a node of a cluster, unless the user insists (`meant`).
pub fn expect_node(root: &Root, meant: bool) -> Result<()> {
    refuse_machine(wrong_machine(&observe_machine(root)?, meant))
}

/// Refuses a directory that contains no operating system.
pub fn expect_system(root: &Root) -> Result<()> {
    if has_system(root) {
        return Ok(());
    }
    refuse_machine(no_system(&observe_machine(root)?))
}

/// Refuses a directory that contains a system and no trace of a node.
pub fn expect_traces(root: &Root) -> Result<()> {
    match no_trace(&observe_machine(root)?) {
        Some(doubt) => bail!("{doubt} Nothing was changed"),
        None => Ok(()),
    }
}

/// Warns about a directory that contains a system and no trace of a node.
pub fn warn_without_traces(root: &Root) {
    match observe_machine(root).map(|machine| no_trace(&machine)) {
        Ok(Some(doubt)) => log::warn!("{doubt}"),
        Ok(None) => {}
        Err(error) => log::warn!("it is unknown whether this is a node: {error:#}"),
    }
}

fn refuse_machine(against: Option<Notice>) -> Result<()> {
    match against {
        Some(Notice { subject, message }) => {
            let message = wrap_text(&format!("{message}. Nothing was changed."), 2);
            bail!("{subject}\n{}", message.trim_end())
        }
        None => Ok(()),
    }
}
