//! Parse, start the logger, run, turn the result into an exit code.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use mco_rescue::base::error;
use mco_rescue::base::invocation::{
    Sudo, TypedProgram, as_typed, remember_typed, with_commands_apart,
};
use mco_rescue::base::reason::Reason;
use mco_rescue::base::secrets::redacted_words;
use mco_rescue::base::text::{make_printable, one_line};
use mco_rescue::base::wrap::{line_width, remember_width, wrap_lines};
use mco_rescue::cli::{parse, run};
use mco_rescue::host::progress;
use mco_rescue::host::sys::memory::{self, Memory};
use mco_rescue::host::sys::{limits, signals};
use terminal_size::terminal_size_of;

#[global_allocator]
static MEMORY: Memory = Memory;

/// Bold red, and bold yellow.
const ERROR: &str = "1;31";
const WARNING: &str = "1;33";

/// Returns a message for standard error with its commands apart, after a label in this colour if there is one.
fn lay_out_message(label: &str, colour: Option<&str>, text: &str) -> String {
    let text = with_commands_apart(&format!("{label}{text}"));
    let text = as_typed(&text).into_owned();
    // A log keeps one line for each message.
    let is_long = text.lines().any(|line| line.chars().count() > line_width());
    let text = if is_long && std::io::stderr().is_terminal() {
        wrap_lines(&text)
    } else {
        text
    };
    match (text.strip_prefix(label), colour) {
        (Some(rest), Some(colour)) if !label.is_empty() => {
            format!("\u{1b}[{colour}m{}\u{1b}[0m {rest}", label.trim_end())
        }
        _ => text,
    }
}

/// Stores how a person at a terminal called this program, and the width of the terminal that text is printed on.
fn remember_person() {
    let out = std::io::stdout();
    if let Some((columns, _)) = terminal_size_of(&out).filter(|(columns, _)| columns.0 > 0) {
        remember_width(columns.0.into());
    }
    let is_person =
        out.is_terminal() || std::io::stderr().is_terminal() || std::io::stdin().is_terminal();
    let program = std::env::args().next().filter(|_| is_person);
    let Some(program) = program.filter(|program| !program.is_empty()) else {
        return;
    };
    let sudo = match (
        nix::unistd::geteuid().is_root(),
        std::env::var_os("SUDO_UID"),
    ) {
        (false, _) => Sudo::Live,
        (true, Some(_)) => Sudo::Always,
        (true, None) => Sudo::Never,
    };
    remember_typed(TypedProgram { program, sudo });
}

fn main() -> ExitCode {
    limits::set_umask();
    let cli = parse();
    remember_person();
    let is_coloured = cli.is_coloured(&std::io::stderr());
    let level = match cli.verbose {
        0 => log::LevelFilter::Warn,
        1 => log::LevelFilter::Info,
        _ => log::LevelFilter::Debug,
    };
    // No timestamps: the system journal has them.
    env_logger::Builder::new()
        .filter_level(level)
        // It remarks on partitions that the firmware starts every day.
        .filter_module("fatfs", log::LevelFilter::Error)
        .format(move |out, record| {
            let text = record.args().to_string();
            let text = one_line(&redacted_words(&text));
            progress::clear_line();
            let word = record.level().as_str().to_lowercase();
            let colour = match record.level() {
                log::Level::Error => Some(ERROR),
                log::Level::Warn => Some(WARNING),
                _ => None,
            };
            let colour = colour.filter(|_| is_coloured);
            let message = lay_out_message(&format!("{word}: "), colour, &text);
            writeln!(out, "{message}")
        })
        .init();
    if let Err(errno) = memory::keep_private() {
        log::info!("turning core dumps off: {}", Reason::from(errno));
    }
    if let Err(errno) = signals::outlive_size_limit() {
        log::info!(
            "taking a limit for files as an error: {}",
            Reason::from(errno)
        );
    }
    if let Err(errno) = signals::answer_signals() {
        log::info!("answering signals: {}", Reason::from(errno));
    }
    if cli.shows_progress() {
        progress::show_progress();
    }
    match limits::allow_open_files()
        .map_err(Into::into)
        .and_then(|()| run(&cli))
    {
        Ok(code) => code.into(),
        Err(problem) => {
            progress::clear_line();
            let text = make_printable(&redacted_words(&error::error_words(&problem)));
            let label = if error::is_declined(&problem) {
                ""
            } else {
                "error: "
            };
            // Standard error may be closed; the exit code still tells.
            let message = lay_out_message(label, is_coloured.then_some(ERROR), &text);
            let _ = writeln!(std::io::stderr(), "{message}");
            error::exit_code(&problem).into()
        }
    }
}
