//! Parse, start the logger, run, turn the result into an exit code.

use std::process::ExitCode;

use clap::Parser;
use mco_rescue::cli::{Cli, run};
use mco_rescue::error;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let level = match cli.verbose {
        0 => log::LevelFilter::Warn,
        1 => log::LevelFilter::Info,
        _ => log::LevelFilter::Debug,
    };
    // No timestamps: the system journal has them.
    env_logger::Builder::new()
        .filter_level(level)
        .format_timestamp(None)
        .format_target(false)
        .init();
    match run(&cli) {
        Ok(code) => code.into(),
        Err(problem) => {
            eprintln!(
                "error: {}",
                mco_rescue::report::printable(&format!("{problem:#}"))
            );
            error::exit_code(&problem).into()
        }
    }
}
