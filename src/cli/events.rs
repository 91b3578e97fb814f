//! Output on a running node besides that of the command: journal entries, and a login message while the node needs attention.

use super::{Cli, Command};
use crate::base::invocation;
use crate::cli::trial::TrialCommand;
use crate::host::root::Root;
use crate::run::logins::show_trouble;

/// Remembers the name of the command for [`send`](crate::run::events::send).
pub(super) fn remember_command(command: &Command) {
    invocation::remember_command(name(command));
}

/// Updates the login message after a command that may have changed the node: shows that it needs attention, or withdraws the
/// message.
pub(super) fn update_logins(cli: &Cli) {
    if !changes_nodes(&cli.command) {
        return;
    }
    if let Ok(root) = Root::open(&cli.root) {
        show_trouble(&root);
    }
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

/// Returns the name of a command on the command line.
fn name(command: &Command) -> &'static str {
    match command {
        Command::Apply(_) => "apply",
        Command::Plan(_) => "plan",
        Command::Verify(_) => "verify",
        Command::Pivot(_) => "pivot",
        Command::Preflight(_) => "preflight",
        Command::Rehearse(_) => "rehearse",
        Command::Show(_) => "show",
        Command::Doctor(_) => "doctor",
        Command::Record(_) => "record",
        Command::History(_) => "history",
        Command::Diff(_) => "diff",
        Command::Status(_) => "status",
        Command::Fetch(_) => "fetch",
        Command::Image(_) => "image",
        Command::Capsule(_) => "capsule",
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
        Command::Version => "version",
        Command::Completions(_) => "completions",
        Command::Names(_) => "names",
        Command::Man(_) => "man",
        Command::Trial(_) => "trial",
    }
}
