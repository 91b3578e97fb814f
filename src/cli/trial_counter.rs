//! `trial boot-counter`: GRUB's half of a trial by hand and for tests (docs/develop/boot-counter.md).

use std::path::Path;

use anyhow::Result;

use super::BootCounterCommand;
use super::node_change::{Needs, NodeChange, Opening};
use super::session::open_root;
use crate::base::error::ExitCode;
use crate::change::transaction::{arm_boot_counter, disarm_boot_counter};
use crate::cli::ui::Ui;
use crate::formats::grub::CounterState;
use crate::host::root::Root;
use crate::node::boot_counter::{Counting, find_entry_id, observe_boot_counter};
use crate::node::mounts;
use crate::report;

/// Runs `trial boot-counter`.
pub(super) fn run(ui: &Ui<'_>, command: &BootCounterCommand) -> Result<ExitCode> {
    let text = match command {
        BootCounterCommand::Show => show(&open_root(ui)?)?,
        BootCounterCommand::Find { deployment } => {
            match find_entry_id(&open_root(ui)?, deployment)? {
                Some(id) => format!("{id}\n"),
                None => "none\n".to_owned(),
            }
        }
        BootCounterCommand::Arm { entry } => {
            let change = open_to_write(ui)?;
            arm_boot_counter(&change.root, change.lock(), entry)?;
            format!("armed {entry}\n")
        }
        BootCounterCommand::Disarm => {
            let change = open_to_write(ui)?;
            match disarm_boot_counter(&change.root, change.lock())? {
                true => "disarmed\n".to_owned(),
                false => "was not armed\n".to_owned(),
            }
        }
    };
    report::print_result(text.as_bytes());
    Ok(ExitCode::Done)
}

fn open_to_write<'a>(ui: &'a Ui<'a>) -> Result<NodeChange<'a>> {
    if ui.root == Path::new("/")
        && let Err(error) = mounts::make_writable(Path::new("/boot"))
    {
        log::info!("{error}");
    }
    Opening::of(ui, open_root(ui)?, &Needs::BOOT_COUNTER)?.begin()
}

fn show(root: &Root) -> Result<String> {
    let found = observe_boot_counter(root)?;
    let counting = match &found.counting {
        Counting::Possible { directory, script } => {
            format!("possible, with {directory}/{}", script.name())
        }
        Counting::Impossible { reason } => format!("impossible: {reason}"),
    };
    let state = match &found.state {
        CounterState::Missing => "missing".to_owned(),
        CounterState::Armed { entry } => format!("armed, back to {entry}"),
        CounterState::Fired { entry } => format!("fired, back to {entry}"),
    };
    let mark = match found.has_mark {
        true => "there",
        false => "missing",
    };
    Ok(format!(
        "counting: {counting}\nstate: {state}\nmark: {mark}\nentries: {}\n",
        found.order.join(" ")
    ))
}
