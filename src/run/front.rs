//! What a run asks of the front end that began it, and tells it while it works.
//!
//! The engine prints nothing and reads no terminal. What it returns is for the front end to show; what has to be said or asked
//! before its end goes through [`Front`]. Warnings go to the log.

use anyhow::Result;

use crate::change::trial::{Trial, TrialResult};
use crate::node::command::CommandRunner;

/// The answer for a run that stopped half-way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HalfWayAnswer {
    /// It is finished.
    Finish,
    /// It is taken back.
    TakeBack,
    /// It stays as it is.
    Stop,
}

/// Something to be said while a run works.
#[derive(Debug, Clone, Copy)]
pub enum RunNews<'a> {
    /// A line on the progress of what is staged.
    Staging(&'a str),
    /// The change is in place, and its trial waits for a confirmation.
    TrialWaits(&'a Trial),
    /// The node reboots for a trial.
    TrialReboots(&'a Trial),
    /// A trial was confirmed while its command watched.
    TrialEnded(&'a TrialResult),
}

/// A front end of runs.
pub trait Front {
    /// Starts programs.
    fn runner(&self) -> &dyn CommandRunner;

    /// Asks if the change may begin.
    ///
    /// # Errors
    /// Not confirmed, or there is nobody to ask: nothing is changed then.
    fn confirm(&self, question: &str) -> Result<()>;

    /// Asks what becomes of a run that stopped half-way. `stopped`: which one, and how far it came.
    ///
    /// # Errors
    /// The answer cannot be read.
    fn ask_half_way(&self, stopped: &str) -> Result<HalfWayAnswer>;

    /// Says something while the run works.
    fn tell(&self, news: RunNews<'_>);
}
