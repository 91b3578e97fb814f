//! Output of a running node that no command asks for: entries in its journal, and a text at logins while it needs a person.

use super::{Cli, Command, TrialCommand};
use crate::base::invocation;
use crate::change::staging::state;
use crate::change::transaction::{self, Pending};
use crate::host::root::Root;
use crate::host::sys::journal;
use crate::host::sys::runtime;
use crate::report::events::NodeEvent;
use crate::report::trial_notice;

/// Sends an event to the journal, if the root is that of the running system. It is only a help, so a failure is logged.
pub(super) fn send(root: &Root, event: &NodeEvent<'_>, config: &str) {
    if !root.is_live() {
        return;
    }
    match journal::send_entry(&event.to_entry(invocation::command_name(), config)) {
        Ok(true) => {}
        Ok(false) => log::debug!("there is no journal here"),
        Err(error) => log::info!("the journal: {error}"),
    }
}

/// Keeps the name of the command for [`send`].
pub(super) fn remember_command(command: &Command) {
    invocation::remember_command(name(command));
}

/// After a command that may have changed the node: logins show that it needs a person, or no longer do.
pub(super) fn update_logins(cli: &Cli) {
    if !changes_nodes(&cli.command) {
        return;
    }
    let Ok(root) = Root::open(&cli.root) else {
        return;
    };
    // Only root writes there.
    if !root.is_live() || !nix::unistd::geteuid().is_root() {
        return;
    }
    let text = trouble(&root);
    if let Err(error) = runtime::show_trouble_at_login(text.as_deref()) {
        log::info!("the text at logins: {error}");
    }
}

/// The text while a run is half-way or a boot has failed.
fn trouble(root: &Root) -> Option<String> {
    if let Ok(Pending::Unfinished(config, ..)) = transaction::find_pending(root)
        && !transaction::is_held(root)
    {
        return Some(trial_notice::announce_half_way(&config.name));
    }
    let awaited = state::read_awaited(root).ok().flatten()?;
    awaited
        .failed
        .is_some()
        .then(|| trial_notice::announce_failed_boot(&awaited.config.name))
}

fn changes_nodes(command: &Command) -> bool {
    match command {
        Command::Apply(_)
        | Command::Pivot(_)
        | Command::Rollback(_)
        | Command::Recover(_)
        | Command::Confirm(_)
        | Command::Complete => true,
        Command::Trial(part) => matches!(**part, TrialCommand::Guard { .. }),
        Command::Doctor(args) => args.cure.fix.is_some(),
        _ => false,
    }
}

/// The word of a command on the command line.
fn name(command: &Command) -> &'static str {
    match command {
        Command::Apply(_) => "apply",
        Command::Plan(_) => "plan",
        Command::Verify(_) => "verify",
        Command::Pivot(_) => "pivot",
        Command::Preflight(_) => "preflight",
        Command::Show(_) => "show",
        Command::Doctor(_) => "doctor",
        Command::Record(_) => "record",
        Command::History(_) => "history",
        Command::Diff(_) => "diff",
        Command::Status(_) => "status",
        Command::Fetch(_) => "fetch",
        Command::Cache(_) => "cache",
        Command::Render(_) => "render",
        Command::Butane(_) => "butane",
        Command::Change(_) => "change",
        Command::Keep(_) => "keep",
        Command::Report(_) => "report",
        Command::Rollback(_) => "rollback",
        Command::Confirm(_) => "confirm",
        Command::Recover(_) => "recover",
        Command::Install(_) => "install",
        Command::Complete => "complete",
        Command::Firstboot(_) => "firstboot",
        Command::Completions(_) => "completions",
        Command::Names(_) => "names",
        Command::Man(_) => "man",
        Command::Trial(_) => "trial",
    }
}
