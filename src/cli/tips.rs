//! Tips for options and commands that people type out of habit, from other tools.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Error, FromArgMatches};

use super::Cli;
use super::short_help;
use super::version::{describe_build, is_verbose};
use crate::report::{self, wrap_text};

/// Indentation of the text of a tip.
const INDENT: usize = "  tip: ".len();

/// Names of options, and the tip for each group of them.
const OPTIONS: [(&[&str], &str); 13] = [
    (
        &["--json", "-j"],
        "for JSON, add '--output json', or '-o json' in short",
    ),
    (
        &["--force"],
        "each refusal names the one option that overrides it, such as '--allow-removals'; \
         'mco-rescue plan' lists the refusals",
    ),
    (
        &["-f", "--file", "--filename", "--config"],
        "the file is given without an option: 'mco-rescue apply FILE'",
    ),
    (
        &[
            "--assume-yes",
            "--assumeyes",
            "--non-interactive",
            "--noconfirm",
            "--auto-approve",
        ],
        "to answer yes beforehand, add '--yes', or '-y' in short",
    ),
    (
        &["--debug", "--log-level", "--trace"],
        "to see every step, add '-vv'",
    ),
    (
        &["--silent", "-s"],
        "to see no progress, add '--quiet', or '-q' in short",
    ),
    (
        &["--no-reboot", "--noreboot", "--skip-reboot"],
        "nothing reboots unless '--reboot' is given",
    ),
    (
        &["--sysroot", "--chroot", "-r", "--installroot"],
        "another root is given with '--root DIR'",
    ),
    (
        &[
            "--node",
            "--nodename",
            "--host",
            "--kubeconfig",
            "--context",
            "--as",
        ],
        "this program works on the machine on which it runs, without the cluster's API: copy it to the node, and \
         run it there",
    ),
    (
        &["--undo", "--revert"],
        "'mco-rescue rollback' reverts the last run",
    ),
    (
        &["--offline", "--local", "--no-network"],
        "no option is needed: 'plan' and 'apply' take configs that are on the node",
    ),
    (
        &["--remove", "--prune", "--delete"],
        "no option is needed: 'apply' removes what the config no longer has",
    ),
    (
        &["--to", "--list"],
        "'mco-rescue rollback --list' and 'mco-rescue cache list' show what is kept",
    ),
];

/// Option names for a run that changes nothing.
const DRY: [&str; 8] = [
    "--dry-run",
    "-n",
    "--check",
    "--noop",
    "--no-op",
    "--what-if",
    "--preview",
    "--diff",
];

/// Names of commands, and the tip for each group of them.
const COMMANDS: [(&[&str], &str); 13] = [
    (
        &["compare", "drift"],
        "'mco-rescue verify' shows the differences, 'mco-rescue plan' what apply would do about them",
    ),
    (
        &["dry-run", "preview", "check-plan", "simulate"],
        "'mco-rescue plan' shows what apply would do",
    ),
    (
        &["check", "validate", "test", "audit"],
        "'mco-rescue verify' compares the node with its config, 'mco-rescue doctor' looks for what is wrong",
    ),
    (
        &["undo", "revert", "restore", "back", "downgrade"],
        "'mco-rescue rollback' reverts the last run, 'mco-rescue recover --back' an interrupted one",
    ),
    (
        &[
            "resume", "continue", "finish", "repair", "fix", "abort", "cancel",
        ],
        "'mco-rescue recover' finishes or undoes an interrupted run, 'mco-rescue apply' repairs a node that differs",
    ),
    (
        &["upgrade", "update", "rebase", "deploy", "switch"],
        "'mco-rescue apply' brings a whole config, 'mco-rescue pivot' its OS image alone",
    ),
    (
        &["list", "ls", "log", "logs"],
        "'mco-rescue rollback --list' shows the runs, 'mco-rescue cache list' the configs, 'mco-rescue status' the last run",
    ),
    (
        &["get", "cat", "describe", "view", "print"],
        "'mco-rescue show' lists what is in a config, or prints one of its files",
    ),
    (
        &["download", "pull", "refresh"],
        "'mco-rescue fetch' brings a config into the cache of the node",
    ),
    (
        &["diagnose", "health", "debug", "why", "analyze"],
        "'mco-rescue doctor' says what is wrong with the node",
    ),
    (
        &["merge", "build", "generate"],
        "'mco-rescue render' merges the MachineConfigs of a pool",
    ),
    (
        &["info", "state", "whoami", "current"],
        "'mco-rescue status' shows the recorded config and the last run",
    ),
    (
        &["uninstall", "remove", "purge"],
        "'mco-rescue install --remove' takes this program off the node",
    ),
];

/// Commands that change nothing except their own cache.
const LOOKING: [&str; 8] = [
    "plan", "verify", "show", "doctor", "status", "fetch", "cache", "render",
];

/// Reads the command line. If it is wrong, ends the program with an error and a tip.
pub fn parse() -> Cli {
    let words: Vec<String> = std::env::args_os()
        .skip(1)
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let mut command = short_help::prepare(Cli::command(), &words);
    let parsed = command
        .try_get_matches_from_mut(std::env::args_os())
        .and_then(|matches| Cli::from_arg_matches(&matches));
    parsed.unwrap_or_else(|error| {
        let error = error.format(&mut command);
        if error.kind() == ErrorKind::DisplayVersion && is_verbose(&words) {
            print_build();
        }
        advised(error, &words).exit()
    })
}

/// Prints the facts of the build, and ends the program.
fn print_build() -> ! {
    let printed = report::print(describe_build().as_bytes());
    std::process::exit(i32::from(printed.is_err()))
}

/// Returns the error, with a tip if the name is one that people type out of habit.
fn advised(mut error: Error, words: &[String]) -> Error {
    let name = |error: &Error, kind| match error.get(kind) {
        Some(ContextValue::String(name)) => Some(name.clone()),
        _ => None,
    };
    if error.kind() == ErrorKind::MissingSubcommand {
        remove_hidden_commands(&mut error);
    }
    let tip = match error.kind() {
        ErrorKind::UnknownArgument => name(&error, ContextKind::InvalidArg)
            .and_then(|option| for_option(&option, command_of(words).as_deref())),
        ErrorKind::InvalidSubcommand => {
            name(&error, ContextKind::InvalidSubcommand).and_then(|word| for_command(&word))
        }
        _ => None,
    };
    if let Some(tip) = tip {
        error.remove(ContextKind::SuggestedArg);
        error.remove(ContextKind::SuggestedSubcommand);
        // Lines are aligned with the text, not with `tip:`.
        let tip = wrap_text(&tip, INDENT).trim().to_owned();
        let tip = ContextValue::StyledStrs(vec![StyledStr::from(tip)]);
        error.insert(ContextKind::Suggested, tip);
    }
    error
}

/// Removes the commands that only units run from the list of an error.
fn remove_hidden_commands(error: &mut Error) {
    let Some(ContextValue::Strings(names)) = error.remove(ContextKind::ValidSubcommand) else {
        return;
    };
    let all = Cli::command();
    let is_hidden = |name: &String| {
        let command = all.find_subcommand(name);
        command.is_some_and(clap::Command::is_hide_set)
    };
    let shown = names.into_iter().filter(|name| !is_hidden(name)).collect();
    error.insert(ContextKind::ValidSubcommand, ContextValue::Strings(shown));
}

/// Returns the command among the words of a command line.
fn command_of(words: &[String]) -> Option<String> {
    let all = Cli::command();
    let mut words = words.iter();
    words
        .find(|word| all.find_subcommand(word).is_some())
        .cloned()
}

fn for_option(option: &str, command: Option<&str>) -> Option<String> {
    let name = option.split('=').next().unwrap_or(option);
    if DRY.contains(&name) {
        return Some(match command {
            Some(command) if LOOKING.contains(&command) => {
                format!(
                    "no option is needed: '{command}' changes nothing on the node but its own cache"
                )
            }
            Some(command @ ("install" | "pivot" | "recover" | "rollback")) => {
                format!("'mco-rescue {command} --dry-run' changes nothing")
            }
            _ => "'mco-rescue plan' and 'mco-rescue apply --dry-run' change nothing".to_owned(),
        });
    }
    in_table(&OPTIONS, name)
}

fn for_command(word: &str) -> Option<String> {
    let is_file = word.contains(['/', '.', ':']);
    if word.starts_with("rendered-") && !is_file {
        return Some(format!(
            "a config comes after a command: 'mco-rescue plan cached:{word}'"
        ));
    }
    if is_file {
        return Some(format!(
            "a config comes after a command: 'mco-rescue plan {word}'"
        ));
    }
    in_table(&COMMANDS, word)
}

fn in_table(table: &[(&[&str], &str)], name: &str) -> Option<String> {
    let mut rows = table.iter();
    let row = rows.find(|(names, _)| names.contains(&name));
    row.map(|(_, tip)| (*tip).to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn no_tip_stands_for_a_name_that_exists() {
        let all = Cli::command();
        for (names, tip) in COMMANDS {
            for name in names {
                assert!(all.find_subcommand(name).is_none(), "{name}: {tip}");
            }
        }
        let everywhere: Vec<&str> = all
            .get_arguments()
            .filter(|argument| argument.is_global_set())
            .filter_map(|argument| argument.get_long())
            .collect();
        let options = OPTIONS.iter().flat_map(|(names, _)| names.iter());
        for name in options.chain(&DRY) {
            assert!(
                !everywhere.contains(&name.trim_start_matches('-')),
                "{name}"
            );
        }
    }

    #[test]
    fn commands_in_tips_exist() {
        let tips = OPTIONS.iter().chain(&COMMANDS).map(|(_, tip)| tip);
        for tip in tips {
            let commands = tip.split("'mco-rescue ").skip(1);
            for words in commands.filter_map(|rest| rest.split('\'').next()) {
                let line = std::iter::once("mco-rescue").chain(words.split(' '));
                let kind = Cli::try_parse_from(line).err().map(|error| error.kind());
                let is_there = matches!(
                    kind,
                    // The tip names the command without its pool.
                    None | Some(ErrorKind::DisplayVersion | ErrorKind::MissingRequiredArgument)
                );
                assert!(is_there, "{words}: {kind:?}");
            }
        }
    }
}
