//! The user interface of one command: the global options, the programs of the host, and the prompt.

use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::base::error::RunError;
use crate::host::progress;
use crate::host::sys::signals;
use crate::node::command::CommandRunner;
use crate::report::plan::Detail;
use crate::report::{self, console, firstboot};
use crate::run::front::{Front, InterruptedAnswer, RunNews};

/// The form of the output: text, or a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Lines for people.
    Text,
    /// One JSON document.
    Json,
}

/// The end of a dry run, where the command would ask.
#[derive(Debug, thiserror::Error)]
#[error("a dry run changes nothing")]
pub(super) struct DryRunEnd;

/// The global options of a command, and the runner for programs.
pub(super) struct Ui<'a> {
    /// The directory that is treated as `/`.
    pub root: PathBuf,
    /// The form of the output.
    pub output: Output,
    /// How often `--verbose` was given.
    pub verbose: u8,
    /// True with `--quiet`.
    pub quiet: bool,
    /// True with `--yes`: the prompt is skipped.
    pub yes: bool,
    /// True with `--dry-run`: the command ends where it would ask.
    pub dry_run: bool,
    /// The runner that starts programs.
    pub runner: &'a dyn CommandRunner,
}

impl Ui<'_> {
    /// Returns how much of a plan to show.
    pub(super) fn detail(&self, summary: bool) -> Detail {
        match (summary, self.verbose) {
            (true, _) => Detail::Counts,
            (false, 0) => Detail::Changes,
            (false, _) => Detail::All,
        }
    }

    /// Asks a question that `--yes` does not answer. Without a terminal the answer is no.
    ///
    /// # Errors
    /// The terminal cannot be read or written.
    pub(super) fn ask(&self, question: &str) -> Result<bool> {
        if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
            return Ok(false);
        }
        ask(question)
    }

    /// Prints a report in the requested form; the other form is not made.
    ///
    /// # Errors
    /// The document cannot be made, or standard output cannot be written.
    pub(super) fn print<E: Into<anyhow::Error>>(
        &self,
        json: impl FnOnce() -> Result<String, E>,
        text: impl FnOnce() -> String,
    ) -> Result<()> {
        Ok(report::print(self.shape(json, text)?.as_bytes())?)
    }

    /// Prints the result of a change in the requested form. A failed write is a warning.
    ///
    /// # Errors
    /// The document cannot be made.
    pub(super) fn print_result<E: Into<anyhow::Error>>(
        &self,
        json: impl FnOnce() -> Result<String, E>,
        text: impl FnOnce() -> String,
    ) -> Result<()> {
        report::print_result(self.shape(json, text)?.as_bytes());
        Ok(())
    }

    /// Returns a report in the requested form; the other form is not made.
    ///
    /// # Errors
    /// The document cannot be made.
    pub(super) fn shape<E: Into<anyhow::Error>>(
        &self,
        json: impl FnOnce() -> Result<String, E>,
        text: impl FnOnce() -> String,
    ) -> Result<String> {
        match self.output {
            Output::Json => json().map_err(Into::into),
            Output::Text => Ok(text()),
        }
    }

    /// Prints a line about the progress of a run; JSON output has no such lines.
    pub(super) fn print_progress(&self, line: &str) {
        if self.output == Output::Text {
            report::print_result(line.as_bytes());
        }
    }
}

impl Front for Ui<'_> {
    fn runner(&self) -> &dyn CommandRunner {
        self.runner
    }

    fn confirm(&self, question: &str) -> Result<()> {
        if self.dry_run {
            return Err(DryRunEnd.into());
        }
        if self.yes {
            signals::set_answer(signals::SignalAnswer::SeeStatus);
            return Ok(());
        }
        if !std::io::stdin().is_terminal() {
            bail!(
                "standard input is not a terminal, so there is no prompt; add --yes to carry out this plan. Nothing was changed"
            );
        }
        if ask(question)? {
            signals::set_answer(signals::SignalAnswer::SeeStatus);
            Ok(())
        } else {
            Err(RunError::Declined.into())
        }
    }

    fn ask_about_interrupted(&self, stopped: &str) -> Result<InterruptedAnswer> {
        if self.yes {
            log::warn!("{stopped}. It is finished first");
            return Ok(InterruptedAnswer::Finish);
        }
        if !std::io::stdin().is_terminal() {
            return Ok(InterruptedAnswer::Stop);
        }
        let question = format!("{stopped}: [f]inish it, take it [b]ack, or [S]top?");
        let answer = match read_answer(&question)?.as_str() {
            "f" | "finish" => InterruptedAnswer::Finish,
            "b" | "back" => InterruptedAnswer::Undo,
            _ => InterruptedAnswer::Stop,
        };
        if answer != InterruptedAnswer::Stop {
            signals::set_answer(signals::SignalAnswer::SeeStatus);
        }
        Ok(answer)
    }

    fn tell(&self, news: RunNews<'_>) {
        match news {
            RunNews::Staging(line) => self.print_progress(line),
            RunNews::TrialWaits(trial) => self.print_progress(&report::trial::waiting_line(trial)),
            RunNews::TrialReboots(trial) => {
                self.print_progress(&report::trial::rebooting_line(trial))
            }
            RunNews::TrialEnded(result) => self.print_progress(&report::trial::ended_text(result)),
            RunNews::MediumAwaited { seconds } => {
                console::tell(&firstboot::awaiting_text(seconds));
            }
            RunNews::IgnitionGiven { config, why } => console::tell(&firstboot::success_text(
                &format!("Ignition was given {config}"),
                why,
            )),
            RunNews::IgnitionWaits {
                cause,
                seconds,
                next,
            } => console::tell(&firstboot::waiting_text(cause, seconds, next)),
        }
    }
}

fn ask(question: &str) -> Result<bool> {
    let answer = read_answer(&format!("{question} [y/N]"))?;
    Ok(matches!(answer.as_str(), "y" | "Y" | "yes"))
}

fn read_answer(question: &str) -> Result<String> {
    progress::clear_line();
    let mut error = std::io::stderr();
    let asked = report::wrap_text(question, 0);
    write!(error, "{} ", asked.trim_end())
        .and_then(|()| error.flush())
        .context("asking")?;
    let mut answer = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut answer)
        .context("reading the answer")?;
    Ok(answer.trim().to_owned())
}
