//! Trials (`--try`): the texts about them.

use serde::Serialize;

use super::wrap_text;
use crate::base::invocation::{mco_rescue, reboot_command};
use crate::base::time::format_utc;
use crate::change::trial::{GIVE_UP, Phase, Trial, TrialOutcome, TrialResult, duration_words};
use crate::run::status::TrialReport;

impl TrialReport {
    /// Says that the rollback is failing, and how long it will be retried.
    fn failing_words(&self) -> String {
        let words = |why: &String| {
            let limit = duration_words(GIVE_UP.as_secs());
            format!(
                ". It FAILS: {why}. It is tried again until it has failed for {limit}; then the trial ends, and the change stays"
            )
        };
        self.failing.as_ref().map(words).unwrap_or_default()
    }

    /// Returns the state in one sentence, with the next command.
    pub fn words(&self) -> String {
        let what = &self.what;
        let left = self.remaining.map(duration_words).unwrap_or_default();
        let guard = match self.guarded {
            Some(true) => "",
            Some(false) => ". NO GUARD RUNS: the change is reverted only at the next boot",
            None => ". It is unknown whether a guard is running: systemd does not report it",
        };
        let next = mco_rescue("confirm");
        let back = mco_rescue("rollback");
        if self.elsewhere {
            let when = match self.guarded {
                Some(true) => "the guard reverts it now",
                Some(false) | None => "the next boot reverts it",
            };
            return match &self.phase {
                Phase::AwaitingBoot { .. } => format!(
                    "{what} is staged, and its trial begins at the next boot. Next: {}, or {back} # reverts it now",
                    reboot_command()
                ),
                _ => format!("{what} was not confirmed, and {when}; or now: {back}"),
            };
        }
        match &self.phase {
            Phase::Applying => format!("{what} is being applied{guard}"),
            Phase::Waiting { .. } => format!(
                "{what} is reverted in {left} unless it is confirmed{guard}. Log in again before you confirm it. Next: {next}, or {back} # reverts it now"
            ),
            Phase::AwaitingBoot { .. } => {
                format!("{what} is staged, and the node is about to reboot into it{guard}")
            }
            Phase::TrialBoot { .. } => format!(
                "this is the first boot with {what}; it is reverted if the boot has not finished in {left}{guard}"
            ),
            Phase::Reverting { why } => {
                format!("{what} is reverted: {why}{guard}{}", self.failing_words())
            }
        }
    }
}

/// Returns the text after a change that waits for its confirmation.
pub fn waiting_line(trial: &Trial) -> String {
    let probes = if trial.probes.is_empty() {
        String::new()
    } else {
        let all: Vec<String> = trial.probes.iter().map(ToString::to_string).collect();
        format!(", or succeeds in {}", all.join(", "))
    };
    wrap_text(
        &format!(
            "Trial: everything is reverted in {} unless it is confirmed{probes}.",
            trial.window_words()
        ),
        0,
    ) + &wrap_text(
        &format!(
            "Confirm it from a new ssh login to this node. Next: {}",
            mco_rescue("confirm")
        ),
        0,
    )
}

/// Returns the text before the reboot of a trial.
pub fn rebooting_line(trial: &Trial) -> String {
    wrap_text(
        &format!(
            "Trial: the node reboots now. Once it is up, log in and confirm within {}: `{}`. Else everything is reverted, \
             with one more reboot.",
            trial.window_words(),
            mco_rescue("confirm")
        ),
        0,
    )
}

/// Returns the text after requesting the rollback of a trial with an operating system, on the disk of a node that is not
/// running.
pub fn goes_back_at_boot() -> String {
    wrap_text(
        "The trial is reverted at the next boot of this disk, files and operating system together. If the new system does not \
         start, choose the old entry in the boot menu.",
        0,
    )
}

/// Returns the end of a trial in words.
pub fn ended_text(result: &TrialResult) -> String {
    wrap_text(&result.words(), 0)
}

impl TrialResult {
    /// Returns the end in one or two sentences.
    pub fn words(&self) -> String {
        let (what, why) = (&self.what, &self.why);
        let when = format_utc(self.ended);
        match self.outcome {
            TrialOutcome::Confirmed => {
                format!("The trial of {what} is {why} ({when}). The change stays.")
            }
            TrialOutcome::Reverted => {
                format!(
                    "The trial of {what} was reverted ({when}): {why}. Everything is as it was before."
                )
            }
            TrialOutcome::NotReverted => format!(
                "The trial of {what} could NOT be reverted ({when}), and has ended: {why}. The change stays. Next: {} # if it \
                 is good, or {} # reverts only its files",
                mco_rescue("confirm"),
                mco_rescue("rollback --files-only")
            ),
            TrialOutcome::PartlyReverted => format!(
                "The trial of {what} was reverted ({when}), but not all of it: {why}. Next: {}",
                mco_rescue("verify")
            ),
        }
    }
}

/// Returns the end of a trial as JSON.
///
/// # Errors
/// None that a value of this type can have.
pub fn result_json(result: &TrialResult) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Document<'a> {
        schema: &'static str,
        what: &'a str,
        outcome: TrialOutcome,
        why: &'a str,
        began: u64,
        ended: u64,
    }
    let document = Document {
        schema: "mco-rescue/trial/v1",
        what: &result.what,
        outcome: result.outcome,
        why: &result.why,
        began: result.began,
        ended: result.ended,
    };
    super::pretty(&document)
}
