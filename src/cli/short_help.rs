//! `-h`: help that fits a terminal of 24 lines of 80 characters. `--help` has everything, in groups.

use std::cell::Cell;

use clap::{Arg, Command};

/// The answer to `mco-rescue -h`, and to a command line without any command.
const FIRST_SCREEN: &str = "\
Makes a node match its rendered MachineConfig, without the cluster
network.

Usage: mco-rescue COMMAND [OPTIONS]

Look     doctor     what is wrong, worst first, with the next command
         status     recorded config, last run, what the daemon will do
         verify     what differs between node and config
         plan       what apply would do
Change   apply      make the node match its config, all of it or nothing
         recover    finish or undo an interrupted run
         rollback   revert the last run
         confirm    keep a change that was made with --try
System   pivot, preflight, rehearse: stage an OS image, judge it, try its boot
Configs  fetch, cache, show, render, butane, change, keep, capsule
History  record, history, diff, report
Setup    install, complete, firstboot, version, man

Options: --root DIR (a mounted disk), --output json|yaml, --yes
One command: mco-rescue COMMAND -h
More: mco-rescue --help
";

/// The commands that ask before they change a node.
const CHANGES_NODE: [&str; 8] = [
    "apply",
    "confirm",
    "doctor",
    "firstboot",
    "install",
    "pivot",
    "recover",
    "rollback",
];
/// The place of the options of every command, behind those of the command.
const LAST: usize = 900;

thread_local! {
    /// True if the command line asks for the short help.
    static ASKED: Cell<bool> = const { Cell::new(false) };
}

/// Returns the command of the program for these words of a command line, with the first screen if they ask for it.
pub(super) fn prepare(command: Command, words: &[String]) -> Command {
    let asked = words.is_empty() || words.iter().any(|word| word == "-h");
    ASKED.set(asked);
    if asked {
        command.override_help(FIRST_SCREEN)
    } else {
        command
    }
}

/// Returns true if the command line asks for the short help.
pub(super) fn is_asked() -> bool {
    ASKED.get()
}

/// Returns the command for its short help: its options are one list, and the last line names the long help.
pub(super) fn shorten(command: Command, name: &str) -> Command {
    let more = format!("More: mco-rescue {name} --help");
    let changes_node = CHANGES_NODE.contains(&name);
    let in_one_list = |option: Arg| {
        let option = option.help_heading(None::<&'static str>);
        match option.is_global_set() {
            true if !changes_node && option.get_id() == "yes" => option.hide_short_help(true),
            true => option.display_order(LAST),
            false => option,
        }
    };
    command
        .mut_args(in_one_list)
        .mut_subcommands(|below| {
            let name = format!("{name} {}", below.get_name());
            shorten(below, &name)
        })
        .after_help(more)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::super::Cli;
    use super::FIRST_SCREEN;

    #[test]
    fn the_first_screen_names_every_command() {
        let words: Vec<&str> = FIRST_SCREEN
            .split(|letter: char| letter.is_whitespace() || ",:".contains(letter))
            .collect();
        let all = Cli::command();
        for command in all.get_subcommands().filter(|one| !one.is_hide_set()) {
            let name = command.get_name();
            assert!(words.contains(&name), "{name}");
        }
    }
}
