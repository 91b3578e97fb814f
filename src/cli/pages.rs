//! `completions` and `man`: shell completions and man pages, generated from the same types as the help.

use std::io::IsTerminal;
use std::path::Path;

use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use clap_complete::generate;
use clap_complete::shells::{Bash, Fish, Zsh};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use super::Cli;
use super::deferred::at_once;
use crate::base::error::ExitCode;
use crate::change::transaction;
use crate::node::command::pager::show_man_page;
use crate::report;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// The shells that completions are for.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Shell {
    /// bash
    Bash,
    /// zsh
    Zsh,
    /// fish
    Fish,
}

/// For which shell.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: Shell,
}

/// Where the pages go.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// A directory, where each command gets a page of its own
    /// [default: show the first page; without a terminal, print its source]
    #[arg(value_name = "DIR")]
    pub directory: Option<PathBuf>,

    /// Print one page for a browser instead: the known errors of a node's programs, to search
    #[arg(long, conflicts_with = "directory")]
    pub errors: bool,
}

const NAME: &str = env!("CARGO_PKG_NAME");
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The date of this version in CHANGELOG.md.
const DATE: &str = "2026-11-23";
/// Section of the manual for administration commands.
const SECTION: &str = "8";

/// Runs `completions`.
pub(super) fn completions(args: &CompletionsArgs) -> Result<ExitCode> {
    let mut script = Vec::new();
    let mut command = shown(at_once(Cli::command));
    match args.shell {
        Shell::Bash => generate(Bash, &mut command, NAME, &mut script),
        Shell::Zsh => generate(Zsh, &mut command, NAME, &mut script),
        Shell::Fish => generate(Fish, &mut command, NAME, &mut script),
    }
    let script = mended(&String::from_utf8(script)?);
    let script = match args.shell {
        Shell::Bash => for_bash(&script, &flags(&command)),
        Shell::Zsh => for_zsh(&script),
        Shell::Fish => script + include_str!("completions/names.fish"),
    };
    report::print(script.as_bytes())?;
    Ok(ExitCode::Done)
}

/// Returns every option without a value, of all commands.
fn flags(command: &Command) -> String {
    let own = command.get_arguments();
    let own = own.filter(|one| !one.is_positional() && !one.get_action().takes_values());
    let names = own.flat_map(|one| {
        let long = one.get_long().map(|long| format!("--{long}"));
        long.into_iter()
            .chain(one.get_short().map(|short| format!("-{short}")))
    });
    let below = command.get_subcommands().map(flags);
    names.chain(below).collect::<Vec<String>>().join(" ")
}

/// Returns the script for bash: the generated function, called by one that adds names.
fn for_bash(script: &str, flags: &str) -> String {
    let names = include_str!("completions/names.bash").replace("@FLAGS@", flags);
    let registered = "\nif [[ \"${BASH_VERSINFO[0]}\" -eq 4 &&";
    let (function, register) = script.rsplit_once(registered).unwrap_or((script, ""));
    let register = register.replace(
        "complete -F _mco__rescue ",
        "complete -F _mco_rescue_named ",
    );
    format!("{function}{names}{registered}{register}")
}

/// Returns the script for zsh, with names in place of the generator's default, which is files.
fn for_zsh(script: &str) -> String {
    let kinds = [
        ("'::config -- ", "configs"),
        ("'::id -- ", "checks"),
        ("':name -- ", "cached"),
        ("'--desired=", "cached"),
        ("'--object=", "cached"),
        ("':pool -- ", "pools"),
        ("'--pool=", "pools"),
        ("'--to=", "runs"),
        ("'*--accept-risk=", "risks"),
        ("'::from -- ", "snapshots"),
        ("'::to -- ", "snapshots"),
    ];
    let line = |line: &str| {
        let kind = kinds.iter().find(|(begins, _)| line.starts_with(begins));
        match kind.zip(line.strip_suffix(":_default' \\")) {
            Some(((_, kind), rest)) => format!("{rest}:_mco_rescue_{kind}' \\\n"),
            None => format!("{line}\n"),
        }
    };
    let script: String = script.lines().map(line).collect();
    let names = include_str!("completions/names.zsh");
    script.replacen("_mco-rescue() {", &format!("{names}_mco-rescue() {{"), 1)
}

/// Fixes the script for bash: clap_complete 4.6 spells the `-` in a program's name in two ways, so that no option of a command is
/// ever found (clap-rs/clap#6421).
fn mended(script: &str) -> String {
    script.replace("mco__subcmd__rescue", "mco__rescue")
}

/// Runs `man`.
pub(super) fn man(args: &ManArgs) -> Result<ExitCode> {
    if args.errors {
        report::print(report::html::errors::to_html().as_bytes())?;
        return Ok(ExitCode::Done);
    }
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    match &args.directory {
        None => show_page(&mut command)?,
        Some(directory) => write_all(&command, directory)?,
    }
    Ok(ExitCode::Done)
}

/// Prints the main page; at a terminal as `man` shows it, or else as the long help.
fn show_page(command: &mut Command) -> Result<()> {
    let page = page(command)?;
    if !std::io::stdout().is_terminal() {
        report::print(&page)?;
    } else if !show_man_page(&page) {
        let help = command.render_long_help().to_string();
        report::print(help.as_bytes())?;
    }
    Ok(())
}

/// Returns the command without the hidden commands, which shells would offer.
fn shown(command: Command) -> Command {
    let subcommands: Vec<Command> = command.get_subcommands().cloned().collect();
    let bare = Command::new(NAME)
        .version(VERSION)
        .args(command.get_arguments().cloned());
    bare.subcommands(subcommands.into_iter().filter(|sub| !sub.is_hide_set()))
}

/// Writes a page for the command, and one for each command below it.
fn write_all(command: &Command, directory: &Path) -> Result<()> {
    let name = command.get_display_name().unwrap_or(NAME);
    let file = directory.join(format!("{name}.{SECTION}"));
    let is_page = |beginning: &[u8]| beginning.starts_with(b".TH ");
    transaction::write_readable_output(&file, &page(command)?, is_page).with_context(|| {
        let file = file.display();
        format!("writing {file}: give an existing directory without other files of these names")
    })?;
    let below = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    below
        .into_iter()
        .try_for_each(|sub| write_all(sub, directory))
}

/// Returns a page. It has the sections of the generator, except for the end, which the generator cannot give titles.
fn page(command: &Command) -> std::io::Result<Vec<u8>> {
    let command = command.clone().subcommand_value_name("command");
    let command = command.subcommand_help_heading("COMMANDS");
    let title = command.get_display_name().unwrap_or(NAME).to_uppercase();
    let mut page = format!(".TH {title} {SECTION} \"{DATE}\" \"{NAME} {VERSION}\"\n").into_bytes();
    let man = Man::new(command.clone()).section(SECTION);
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.get_subcommands().any(|sub| !sub.is_hide_set()) {
        man.render_subcommands_section(&mut page)?;
    }
    end(&command).to_writer(&mut page)?;
    Ok(page)
}

/// Returns the text after the help, in sections whose titles begin the paragraphs, and the reference to the main page.
fn end(command: &Command) -> Roff {
    let mut roff = Roff::new();
    let after = command.get_after_long_help().or(command.get_after_help());
    let after = after.map(ToString::to_string).unwrap_or_default();
    for paragraph in after.split("\n\n").filter(|text| !text.is_empty()) {
        let (title, lines) = paragraph.split_once('\n').unwrap_or((paragraph, ""));
        let title = title.trim_end_matches(':').to_uppercase();
        roff.control("SH", [title.as_str()]).control("nf", []);
        for line in lines.lines() {
            roff.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
        }
        roff.control("fi", []);
    }
    if command.get_display_name().is_some_and(|name| name != NAME) {
        roff.control("SH", ["SEE ALSO"]);
        roff.text([roman(format!("{NAME}({SECTION})"))]);
    }
    roff
}
