//! `trial`: parts of a trial that are run by units and tests.

use std::path::Path;

use anyhow::Result;

use crate::base::error::ExitCode;
use crate::change::session::open_root;
use crate::change::transaction::{arm_boot_counter, disarm_boot_counter};
use crate::cli::ui::Ui;
use crate::formats::grub::CounterState;
use crate::host::root::Root;
use crate::node::boot_counter::{Counting, find_entry_id, observe_boot_counter};
use crate::node::{login_session, mounts};
use crate::report;
use crate::run::node_change::NodeChange;
use crate::run::opening::{Needs, Opening};
use crate::run::trial::guard;
use clap::Subcommand;

/// A part of a trial.
#[derive(Debug, Clone, Subcommand)]
pub enum TrialCommand {
    /// Print the login of this process as JSON
    Session,
    /// Revert the change at the end of the time
    Guard {
        /// Look once: the second guard
        #[arg(long)]
        once: bool,
    },
    /// Let GRUB count the next start, or look at its counter
    #[command(subcommand)]
    BootCounter(BootCounterCommand),
}

/// An operation on the counter of GRUB.
#[derive(Debug, Clone, Subcommand)]
pub enum BootCounterCommand {
    /// Print if GRUB can count here, its state, and the boot entries in its order
    Show,
    /// Print the id of the boot entry of a deployment
    Find {
        /// The deployment
        #[arg(value_name = "CHECKSUM.SERIAL")]
        deployment: String,
    },
    /// Let the start after the next one take this boot entry
    Arm {
        /// Name of its file in /boot/loader/entries, without .conf
        entry: String,
    },
    /// Undo that
    Disarm,
}

/// Runs `trial guard`.
pub(super) fn guard(ui: &Ui<'_>, once: bool) -> Result<ExitCode> {
    let root = open_root(&ui.root)?;
    guard::run_guard(ui, &root, once)?;
    Ok(ExitCode::Done)
}

/// Runs `trial session`: prints the login of this process, as a trial judges it.
pub(super) fn session() -> Result<ExitCode> {
    let mut text = serde_json::to_vec_pretty(&login_session::observe_session())?;
    text.push(b'\n');
    report::print(&text)?;
    Ok(ExitCode::Done)
}

/// Runs `trial boot-counter`: GRUB's part in a trial, by hand and for tests (docs/develop/boot-counter.md).
pub(super) fn boot_counter(ui: &Ui<'_>, command: &BootCounterCommand) -> Result<ExitCode> {
    let text = match command {
        BootCounterCommand::Show => show(&open_root(&ui.root)?)?,
        BootCounterCommand::Find { deployment } => {
            match find_entry_id(&open_root(&ui.root)?, deployment)? {
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
            if disarm_boot_counter(&change.root, change.lock())? {
                "disarmed\n".to_owned()
            } else {
                "was not armed\n".to_owned()
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
    Opening::check_needs(ui, open_root(&ui.root)?, &Needs::BOOT_COUNTER)?.begin_change()
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
    let mark = if found.has_mark { "there" } else { "missing" };
    Ok(format!(
        "counting: {counting}\nstate: {state}\nmark: {mark}\nentries: {}\n",
        found.order.join(" ")
    ))
}
