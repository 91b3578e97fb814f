//! The interface between a run and the front end that started it.
//!
//! The engine neither prints nor reads a terminal. The front end displays its results; messages and questions during a run go
//! through [`Front`], and warnings go to the log.

use anyhow::Result;

use crate::change::trial::{Trial, TrialResult};
use crate::node::command::CommandRunner;

/// What to do with an interrupted run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InterruptedAnswer {
    /// Finish it.
    Finish,
    /// Undo it.
    Undo,
    /// Leave it as it is, and stop.
    Stop,
}

/// A message during a run.
#[derive(Debug, Clone, Copy)]
pub enum RunNews<'a> {
    /// A line about the progress of staging.
    Staging(&'a str),
    /// The change is in place, and its trial waits for a confirmation.
    TrialWaits(&'a Trial),
    /// The node reboots for a trial.
    TrialReboots(&'a Trial),
    /// A trial was confirmed while its command watched.
    TrialEnded(&'a TrialResult),
    /// A first boot waits for a medium with a config.
    MediumAwaited {
        /// The longest time, in seconds.
        seconds: u64,
    },
    /// Ignition was given a config, as its own server did not answer.
    IgnitionGiven {
        /// The config, with its place.
        config: &'a str,
        /// Why Ignition had none.
        why: &'a str,
    },
    /// Ignition still waits for its config.
    IgnitionWaits {
        /// The cause.
        cause: &'a str,
        /// The time that it waits.
        seconds: u64,
        /// What to do.
        next: &'a str,
    },
}

/// A front end of runs.
pub trait Front {
    /// Returns the runner that starts programs.
    fn runner(&self) -> &dyn CommandRunner;

    /// Asks whether the change may begin.
    ///
    /// # Errors
    /// The change was not confirmed, or there is no prompt. Nothing is changed in that case.
    fn confirm(&self, question: &str) -> Result<()>;

    /// Asks what to do with an interrupted run. `stopped` describes the run and its progress.
    ///
    /// # Errors
    /// The answer cannot be read.
    fn ask_about_interrupted(&self, stopped: &str) -> Result<InterruptedAnswer>;

    /// Shows a message during the run.
    fn tell(&self, news: RunNews<'_>);
}
