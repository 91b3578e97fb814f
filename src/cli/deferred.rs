//! Options of a command that are only built when that command is used.
//!
//! A command line names one command. The options of all other commands are hundreds of values in memory that nothing reads, and
//! they cost more than everything else that `--version` does.

use std::cell::Cell;
use std::ops::Deref;

use super::short_help;
use clap::builder::Resettable;
use clap::{ArgMatches, Args, Command, Error, FromArgMatches, Subcommand};

/// The options `T` of a command, or its subcommands.
#[derive(Debug, Clone)]
pub struct Deferred<T>(T);

impl<T> Deref for Deferred<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

thread_local! {
    /// True while the options of all commands are built at once.
    static AT_ONCE: Cell<bool> = const { Cell::new(false) };
}

/// Calls `make` while the options of every command are built at once. The generator of completions needs that: it lists options in
/// the order in which they were added, and handles the commands below `help` before it asks for any deferred part.
pub(super) fn at_once<T>(make: impl FnOnce() -> T) -> T {
    AT_ONCE.set(true);
    let made = make();
    AT_ONCE.set(false);
    made
}

/// Adds parts to a command, now or when the command is used.
fn defer(command: Command, parts: fn(Command) -> Command) -> Command {
    if AT_ONCE.get() {
        parts(command)
    } else {
        command.defer(parts)
    }
}

/// Adds the parts of a command, and keeps its description, as `T` has one of its own.
fn add(command: Command, parts: impl FnOnce(Command) -> Command) -> Command {
    let about = command.get_about().cloned();
    let long_about = command.get_long_about().cloned();
    let kept = |text: Option<_>| text.map_or(Resettable::Reset, Resettable::Value);
    let global = command
        .get_arguments()
        .map(|option| option.get_id().to_string());
    let global: Vec<String> = global.collect();
    let command = parts(command)
        .about(kept(about))
        .long_about(kept(long_about));
    // Options of every command come last in the help.
    let command = global
        .iter()
        .fold(command, |command, id| command.mut_arg(id, |option| option));
    let name = command.get_name().to_owned();
    if short_help::is_asked() {
        short_help::shorten(command, &name)
    } else {
        command
    }
}

impl<T: FromArgMatches> FromArgMatches for Deferred<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        T::from_arg_matches(matches).map(Self)
    }

    fn from_arg_matches_mut(matches: &mut ArgMatches) -> Result<Self, Error> {
        T::from_arg_matches_mut(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl<T: Args> Args for Deferred<T> {
    fn augment_args(command: Command) -> Command {
        defer(command, |command| add(command, T::augment_args))
    }

    fn augment_args_for_update(command: Command) -> Command {
        defer(command, |command| add(command, T::augment_args_for_update))
    }
}

impl<T: Subcommand> Subcommand for Deferred<T> {
    fn augment_subcommands(command: Command) -> Command {
        defer(command, |command| add(command, T::augment_subcommands))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        defer(command, |command| {
            add(command, T::augment_subcommands_for_update)
        })
    }

    fn has_subcommand(name: &str) -> bool {
        T::has_subcommand(name)
    }
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory};

    use super::super::Cli;
    use super::at_once;

    /// Adds the help of a command and of all commands below it.
    fn add_helps(command: &Command, all: &mut Vec<String>) {
        all.push(command.clone().render_long_help().to_string());
        let below = command.get_subcommands();
        for one in below.filter(|one| one.get_name() != "help") {
            add_helps(one, all);
        }
    }

    #[test]
    fn help_is_the_same_however_the_options_came() {
        let all = |mut command: Command| {
            command.build();
            let mut all = Vec::new();
            add_helps(&command, &mut all);
            all
        };
        let later = all(Cli::command());
        assert!(later.len() > 30, "{}", later.len());
        assert_eq!(later, all(at_once(Cli::command)));
    }
}
