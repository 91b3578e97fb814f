//! Texts for people who did not start a change: about a trial, on all terminals and at each new login; about a node that needs
//! attention, at each new login.

use std::time::Duration;

use crate::base::invocation::mco_rescue;
use crate::base::text::{count_noun, one_line};
use crate::base::time::format_utc;
use crate::base::wrap::wrap_text;

/// Maximum time before the end of a trial at which the terminals get a warning.
const WARNING: Duration = Duration::from_secs(60);

/// Returns the time before the end of a trial at which the terminals get a warning: one minute, or a quarter of a short trial.
pub fn warning_time(limit: Duration) -> Duration {
    WARNING.min(limit / 4)
}

/// What happens to a trial that is not confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrialWayBack {
    /// Files are reverted, and services read them again.
    Files,
    /// The node also reboots.
    Reboot,
}

impl TrialWayBack {
    fn words(self) -> &'static str {
        match self {
            Self::Files => "its changes are reverted",
            Self::Reboot => "its changes are reverted and this node reboots",
        }
    }
}

/// Returns the login message while a trial waits. `ends`: its end, in seconds since 1970 by the node's clock.
pub fn announce_waiting(ends: u64, way_back: TrialWayBack) -> String {
    wrap_text(
        &format!(
            "mco-rescue: a change of this node is on trial until {}. If it is not confirmed, {}. If this ssh connection is new, it \
             can confirm: `{}`. Details: `{}`",
            format_utc(ends),
            way_back.words(),
            mco_rescue("confirm"),
            mco_rescue("status")
        ),
        0,
    )
}

/// Returns the warning for the terminals before the end of a trial.
pub fn warn_before_end(left: Duration, way_back: TrialWayBack) -> String {
    let seconds = usize::try_from(left.as_secs()).unwrap_or(usize::MAX);
    wrap_text(
        &format!(
            "mco-rescue: the trial on this node ends in {}, and {}. To keep the changes: open a new ssh connection and run `{}` \
             there.",
            count_noun(seconds, "second"),
            way_back.words(),
            mco_rescue("confirm")
        ),
        0,
    )
}

/// Returns the text for terminals and logins after a trial was reverted. `reason`: a clause, such as `nothing confirmed it in
/// time`.
pub fn announce_reverted(at: u64, reason: &str) -> String {
    wrap_text(
        &format!(
            "mco-rescue: the changes on trial were reverted at {}: {reason}. Details: `{}`",
            format_utc(at),
            mco_rescue("status")
        ),
        0,
    )
}

/// Returns the text for terminals and logins if a trial could not be reverted. `reason`: the error, as a clause.
pub fn announce_stuck(at: u64, reason: &str) -> String {
    wrap_text(
        &format!(
            "mco-rescue: the changes on trial could NOT be reverted at {}: {reason}. Run `{}`, which finishes or undoes the run",
            format_utc(at),
            mco_rescue("recover")
        ),
        0,
    )
}

/// Returns the text for terminals and logins if reverting a trial was given up. `reason`: the error, as a clause.
pub fn announce_kept(at: u64, reason: &str) -> String {
    wrap_text(
        &format!(
            "mco-rescue: the changes on trial could NOT be reverted, and stay since {}: {reason}. The commands that lead out: `{}`",
            format_utc(at),
            mco_rescue("status")
        ),
        0,
    )
}

/// Returns the login message while a run is unfinished.
pub fn announce_unfinished(config: &str) -> String {
    wrap_text(
        &format!(
            "mco-rescue: the run for {} is UNFINISHED: some files of this node are new, others are old. The next command \
             finishes or undoes it. Next: {}",
            one_line(config),
            mco_rescue("recover")
        ),
        0,
    )
}

/// Returns the login message after a boot that did not enter the staged deployment.
pub fn announce_failed_boot(config: &str) -> String {
    wrap_text(
        &format!(
            "mco-rescue: the last boot did not bring {} as a whole. The reason and the next command: `{}`",
            one_line(config),
            mco_rescue("status")
        ),
        0,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_trial_warns_late() {
        for (limit, warning) in [(5, 1.25), (60, 15.0), (240, 60.0), (86_400, 60.0)] {
            let found = warning_time(Duration::from_secs(limit)).as_secs_f64();
            assert!((found - warning).abs() < 1e-9, "{limit}: {found}");
        }
    }

    #[test]
    fn each_text_names_what_comes_and_a_command() {
        let all = [
            (
                announce_waiting(0, TrialWayBack::Files),
                "mco-rescue confirm",
            ),
            (
                warn_before_end(Duration::from_secs(60), TrialWayBack::Reboot),
                "this node reboots",
            ),
            (
                announce_reverted(0, "nothing confirmed it in time"),
                "mco-rescue status",
            ),
            (announce_stuck(0, "the disk is full"), "mco-rescue recover"),
            (announce_kept(0, "it is gone"), "mco-rescue status"),
            (announce_unfinished("rendered-x"), "mco-rescue recover"),
            (announce_failed_boot("rendered-x"), "mco-rescue status"),
        ];
        for (text, words) in all {
            assert!(text.replace('\n', " ").contains(words), "{text}");
            assert!(text.ends_with('\n'), "{text}");
            assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        }
        let one = warn_before_end(Duration::from_millis(1250), TrialWayBack::Files);
        assert!(one.contains("ends in 1 second,"), "{one}");
    }
}
