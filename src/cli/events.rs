//! Output of a running node that no command asks for: entries in its journal, and a text at logins while it needs a person.

use super::{Cli, Command, TrialCommand};
use crate::base::invocation;
use crate::host::root::Root;
use crate::run::logins::show_trouble;

/// Keeps the name of the command for [`send`].
pub(super) fn remember_command(command: &Command) {
    invocation::remember_command(name(command));
}

/// After a command that may have changed the node: logins show that it needs a person, or no longer do.
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
