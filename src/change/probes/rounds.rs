//! Decides when probes confirm a trial: after two consecutive good rounds.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::ProbeResult;

/// Minimum time between the end of a good round and the start of the confirming one.
///
/// A service that was started with a file that it cannot use often answers for a moment before it exits, and the kernel waits
/// five seconds before it probes a silent router. A second round after this time detects both.
const ROUND_PAUSE: Duration = Duration::from_secs(5);

/// The rounds of a trial so far. Times are milliseconds of a monotonic clock.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeRounds {
    /// The end of the last round, if that was good.
    good_until: Option<u64>,
}

impl ProbeRounds {
    /// Returns the earliest time at which the next round counts.
    pub fn next_at(&self, now: u64) -> u64 {
        self.good_until
            .map_or(now, |end| end.saturating_add(random_pause()).max(now))
    }

    /// Adds a round of all probes. Returns true if it confirms the trial.
    pub fn add_round(&mut self, began: u64, ended: u64, results: &[ProbeResult]) -> bool {
        if results.is_empty() || results.iter().any(|result| !result.good) {
            self.good_until = None;
            return false;
        }
        match self.good_until {
            Some(before) if began >= before.saturating_add(random_pause()) => true,
            // A round that came too early proves no more than the previous one.
            Some(_) => false,
            None => {
                self.good_until = Some(ended);
                false
            }
        }
    }
}

fn random_pause() -> u64 {
    u64::try_from(ROUND_PAUSE.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(good: &[bool]) -> Vec<ProbeResult> {
        let result = |good: &bool| ProbeResult {
            name: "kubelet".to_owned(),
            good: *good,
            said: String::new(),
            took: Duration::ZERO,
        };
        good.iter().map(result).collect()
    }

    #[test]
    fn two_good_rounds_with_a_pause_confirm() {
        let (good, bad) = (results(&[true, true]), results(&[true, false]));
        let mut rounds = ProbeRounds::default();
        assert_eq!(rounds.next_at(7), 7);
        assert!(!rounds.add_round(0, 1_000, &good));
        assert_eq!(rounds.next_at(2_000), 6_000);
        assert_eq!(rounds.next_at(9_000), 9_000);
        assert!(!rounds.add_round(5_999, 6_000, &good), "too early");
        assert!(rounds.add_round(6_000, 6_500, &good));
        // A failed probe in between voids the first round.
        let mut rounds = ProbeRounds::default();
        assert!(!rounds.add_round(0, 1_000, &good));
        assert!(!rounds.add_round(6_000, 6_500, &bad));
        assert!(!rounds.add_round(12_000, 12_500, &good));
        assert!(rounds.add_round(18_000, 18_500, &good));
    }

    #[test]
    fn a_round_without_probes_confirms_nothing() {
        let mut rounds = ProbeRounds::default();
        for began in [0, 10_000, 20_000] {
            assert!(!rounds.add_round(began, began, &[]));
        }
    }
}
