//! Trials (`--try`): a change that goes back by itself unless it is confirmed (docs/trial.md). Values and judgements
//! only: `cli/trial` acts, and [`store`] keeps the state.
//!
//! Times of a trial are milliseconds of CLOCK_BOOTTIME: no clock that is set changes them. They belong to one boot, so
//! the boot is kept with them.

pub mod coverage;
pub mod store;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::change::probes::Probe;
use crate::node::boot::BootIdentity;
use crate::node::command::job::Job;
use crate::node::command::network_manager::NetworkCheckpoint;
use crate::node::login_session::LoginSession;

/// Version of the files.
pub const VERSION: u32 = 1;
/// Shortest and longest time for a confirmation.
pub const SHORTEST: Duration = Duration::from_secs(5);
/// See [`SHORTEST`].
pub const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// Time after which a reboot that was asked for has not begun: the trial goes back.
pub const REBOOT_LIMIT: Duration = Duration::from_secs(30 * 60);
/// Time after which a way back that fails is given up. Longer than a boot takes to mount everything.
pub const GIVE_UP: Duration = Duration::from_secs(10 * 60);
/// A boot loader that enters the new deployment so many times, although the old one is the default, will not enter the old one.
pub const RETURNS: u32 = 3;

/// The step of its way that a trial has reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "kebab-case")]
pub enum Phase {
    /// The change is being made.
    Applying,
    /// The change is in place; a confirmation is awaited.
    Waiting {
        /// Since when, in milliseconds.
        since: u64,
        /// Until when, in milliseconds.
        until: u64,
    },
    /// The change is in place, and the reboot that is part of the trial was asked for.
    AwaitingBoot {
        /// Until when the reboot has to have begun, in milliseconds.
        until: u64,
    },
    /// That boot runs, and has not reached its end.
    TrialBoot {
        /// Until when it has to have reached its end, in milliseconds.
        until: u64,
    },
    /// The change goes back. No way leads back from here.
    Reverting {
        /// The reason.
        why: String,
    },
}

impl Phase {
    /// Returns the word for programs and for `status`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Applying => "applying",
            Self::Waiting { .. } => "waiting",
            Self::AwaitingBoot { .. } => "awaiting-boot",
            Self::TrialBoot { .. } => "trial-boot",
            Self::Reverting { .. } => "reverting",
        }
    }

    /// Returns true while the change goes back.
    pub fn reverts(&self) -> bool {
        matches!(self, Self::Reverting { .. })
    }

    /// Returns the moment at which the time of this phase ends, in milliseconds.
    pub fn until(&self) -> Option<u64> {
        match self {
            Self::Waiting { until, .. }
            | Self::AwaitingBoot { until }
            | Self::TrialBoot { until } => Some(*until),
            Self::Applying | Self::Reverting { .. } => None,
        }
    }
}

/// The operating system of a trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialSystem {
    /// `CHECKSUM.SERIAL` of the deployment that ran before: the trial goes back there.
    pub from: String,
}

/// A trial, as `trial.json` keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// [`VERSION`].
    pub version: u32,
    /// A name for this trial: the time at which it began and the process.
    pub id: String,
    /// The change: the name of a config, an image, or of a finding.
    pub what: String,
    /// Seconds since 1970 at which it began.
    pub began: u64,
    /// Seconds that a confirmation has.
    pub window: u64,
    /// Seconds that the boot of the trial has.
    pub boot_limit: u64,
    /// The step that it has reached.
    #[serde(flatten)]
    pub phase: Phase,
    /// The boot to which the times of the phase belong.
    pub boot: BootIdentity,
    /// The newest run of the history when it began, empty without one: later runs are the trial's.
    pub head: String,
    /// A reboot is part of the trial.
    pub reboots: bool,
    /// That reboot came about.
    #[serde(default)]
    pub booted: bool,
    /// The operating system, if it changes.
    #[serde(default)]
    pub system: Option<TrialSystem>,
    /// The login that began it.
    pub login: LoginSession,
    /// Probes that confirm it.
    #[serde(default)]
    pub probes: Vec<Probe>,
    /// The checkpoint of NetworkManager.
    #[serde(default)]
    pub checkpoint: Option<NetworkCheckpoint>,
    /// Jobs that make the services read the files of before.
    #[serde(default)]
    pub jobs_back: Vec<Job>,
    /// Runs that leave the history once it is confirmed.
    #[serde(default)]
    pub forgets: Vec<String>,
    /// `kernel.panic` before the trial, if the trial changed it.
    #[serde(default)]
    pub panic: Option<i32>,
    /// The way back fails, in the boot of the phase.
    #[serde(default)]
    pub failing: Option<FailingWay>,
    /// Number of boots into the new deployment after the way back had left it.
    #[serde(default)]
    pub returns: u32,
}

/// A way back that fails again and again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailingWay {
    /// Since when, in milliseconds.
    pub since: u64,
    /// The last error.
    pub why: String,
}

/// The end of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrialOutcome {
    /// It was confirmed, and the change stays.
    Confirmed,
    /// Everything is as it was before.
    Reverted,
    /// Everything is as it was before, but for what the reason says.
    PartlyReverted,
    /// It could not be taken back. The change stays until a person decides.
    NotReverted,
}

/// The end of the last trial, as `trial-result.json` keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialResult {
    /// [`VERSION`].
    pub version: u32,
    /// The trial.
    pub id: String,
    /// The change.
    pub what: String,
    /// Its end.
    pub outcome: TrialOutcome,
    /// The reason, or what confirmed it.
    pub why: String,
    /// Seconds since 1970 at which it began.
    pub began: u64,
    /// Seconds since 1970 at which it ended.
    pub ended: u64,
}

impl TrialResult {
    /// Returns true if a run that finished at this time, in seconds since 1970, came after the trial. The run that takes a change
    /// back ends within the trial, and may do so in its last second.
    pub fn is_before(&self, finished: u64) -> bool {
        finished > self.ended
    }
}

/// The deployment that runs, beside a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrialPlace {
    /// The trial changes no operating system.
    Same,
    /// The deployment from before runs.
    Old,
    /// Another one runs.
    New,
}

impl Trial {
    /// Returns the place of the node in the trial.
    pub fn place(&self, deployment: Option<&str>) -> TrialPlace {
        match &self.system {
            None => TrialPlace::Same,
            Some(system) if deployment == Some(system.from.as_str()) => TrialPlace::Old,
            Some(_) => TrialPlace::New,
        }
    }

    /// Returns the seconds until the time of the phase ends, seen from a moment in milliseconds.
    pub fn remaining(&self, now: u64) -> Option<u64> {
        let until = self.phase.until()?;
        Some(until.saturating_sub(now).div_ceil(1000))
    }

    /// Returns true if the way back has failed for so long that it is given up.
    pub fn is_given_up(&self, now: u64) -> bool {
        let limit = u64::try_from(GIVE_UP.as_millis()).unwrap_or(u64::MAX);
        let failing = self.failing.as_ref();
        failing.is_some_and(|failing| now >= failing.since.saturating_add(limit))
    }

    /// Returns the time for a confirmation in words.
    pub fn window_words(&self) -> String {
        duration_words(self.window)
    }
}

/// The step of the early unit at a boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BootStep {
    /// Nothing: the boot is known.
    None,
    /// This is the boot of the trial: its time begins.
    BeginBoot,
    /// The files go back now, before anything reads them.
    RevertFiles(String),
    /// The guard takes the trial back, once the deployment from before runs or can be entered.
    Revert(String),
}

/// Judges a boot that may not be the one to which the times of a trial belong.
pub fn judge_boot(trial: &Trial, is_same_boot: bool, place: TrialPlace) -> BootStep {
    let revert = |why: &str| match place {
        TrialPlace::Same => BootStep::RevertFiles(why.to_owned()),
        TrialPlace::Old | TrialPlace::New => BootStep::Revert(why.to_owned()),
    };
    match &trial.phase {
        _ if is_same_boot => BootStep::None,
        Phase::Applying => revert("the node was rebooted while the change was made"),
        Phase::Waiting { .. } => revert("the node was rebooted before the change was confirmed"),
        Phase::AwaitingBoot { .. } if place == TrialPlace::Old => {
            revert("the deployment from before was booted instead of the new one")
        }
        Phase::AwaitingBoot { .. } => BootStep::BeginBoot,
        Phase::TrialBoot { .. } if place == TrialPlace::Old => {
            revert("the boot with the change did not reach its end")
        }
        Phase::TrialBoot { .. } => {
            revert("the node was rebooted before the boot with the change reached its end")
        }
        Phase::Reverting { why } => revert(why),
    }
}

/// The node beside a trial, as the guard sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuardScene {
    /// Milliseconds of CLOCK_BOOTTIME.
    pub now: u64,
    /// The command that makes the change has the lock.
    pub is_applying: bool,
    /// The boot has reached its end: every unit has started or failed, and no run waits for this boot any more.
    pub is_booted: bool,
}

/// The next step of the guard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuardStep {
    /// Nothing now.
    Wait,
    /// The boot has reached its end: the time for a confirmation begins.
    BeginWaiting,
    /// The trial goes back.
    Revert(String),
}

/// Judges the next step of the guard, in the boot to which the times of the trial belong.
pub fn judge_guard(trial: &Trial, scene: GuardScene) -> GuardStep {
    let is_over = trial.phase.until().is_some_and(|until| scene.now >= until);
    match &trial.phase {
        Phase::Applying if scene.is_applying => GuardStep::Wait,
        Phase::Applying => {
            GuardStep::Revert("the command that made the change was cut off".to_owned())
        }
        Phase::TrialBoot { .. } if scene.is_booted => GuardStep::BeginWaiting,
        Phase::Waiting { .. } if is_over => GuardStep::Revert(format!(
            "no confirmation came within {}",
            trial.window_words()
        )),
        Phase::AwaitingBoot { .. } if is_over => GuardStep::Revert(format!(
            "the reboot had not begun after {}",
            duration_words(REBOOT_LIMIT.as_secs())
        )),
        Phase::TrialBoot { .. } if is_over => GuardStep::Revert(format!(
            "the boot with the change had not reached its end after {}",
            duration_words(trial.boot_limit)
        )),
        Phase::Reverting { why } => GuardStep::Revert(why.clone()),
        Phase::Waiting { .. } | Phase::AwaitingBoot { .. } | Phase::TrialBoot { .. } => {
            GuardStep::Wait
        }
    }
}

/// Returns a time in words: `90 s`, `10 min`, `2 h`.
pub fn duration_words(seconds: u64) -> String {
    match seconds {
        s if s >= 3600 && s % 3600 == 0 => format!("{} h", s / 3600),
        s if s >= 120 && s % 60 == 0 => format!("{} min", s / 60),
        s => format!("{s} s"),
    }
}

/// Parses a time such as `90s`, `10m`, `1h` or `90`, which is seconds.
///
/// # Errors
/// The text is no such time, or outside of [`SHORTEST`] to [`LONGEST`].
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let form = || "is not a time such as 90s, 10m or 1h".to_owned();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| form())?;
    let unit = match text.get(digits.len()..).unwrap_or_default() {
        "" | "s" | "sec" => 1,
        "m" | "min" => 60,
        "h" => 3600,
        _ => return Err(form()),
    };
    let time = Duration::from_secs(number.saturating_mul(unit));
    if time < SHORTEST || time > LONGEST {
        return Err(format!(
            "is outside of {} to {}",
            duration_words(SHORTEST.as_secs()),
            duration_words(LONGEST.as_secs())
        ));
    }
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(phase: Phase, system: bool) -> Trial {
        Trial {
            version: VERSION,
            id: "1-1".to_owned(),
            what: "rendered-worker-b".to_owned(),
            began: 0,
            window: 600,
            boot_limit: 900,
            phase,
            boot: BootIdentity::default(),
            head: String::new(),
            reboots: system,
            booted: false,
            system: system.then(|| TrialSystem {
                from: "aa.0".to_owned(),
            }),
            login: LoginSession::default(),
            probes: Vec::new(),
            checkpoint: None,
            jobs_back: Vec::new(),
            forgets: Vec::new(),
            panic: None,
            failing: None,
            returns: 0,
        }
    }

    fn phases() -> [Phase; 5] {
        [
            Phase::Applying,
            Phase::Waiting {
                since: 1000,
                until: 601_000,
            },
            Phase::AwaitingBoot { until: 5000 },
            Phase::TrialBoot { until: 900_000 },
            Phase::Reverting {
                why: "x".to_owned(),
            },
        ]
    }

    #[test]
    fn a_phase_reads_back_as_it_was_written() {
        for phase in phases() {
            for system in [false, true] {
                let one = trial(phase.clone(), system);
                let text = serde_json::to_string(&one).unwrap();
                assert_eq!(serde_json::from_str::<Trial>(&text).unwrap(), one, "{text}");
                assert!(text.contains(phase.word()), "{text}");
            }
        }
    }

    #[test]
    fn every_foreign_boot_takes_the_change_back_but_the_one_of_the_trial() {
        for phase in phases() {
            for (system, place) in [
                (false, TrialPlace::Same),
                (true, TrialPlace::Old),
                (true, TrialPlace::New),
            ] {
                let one = trial(phase.clone(), system);
                assert_eq!(judge_boot(&one, true, place), BootStep::None);
                let step = judge_boot(&one, false, place);
                let begins =
                    matches!(phase, Phase::AwaitingBoot { .. }) && place != TrialPlace::Old;
                match (begins, place) {
                    (true, _) => assert_eq!(step, BootStep::BeginBoot, "{phase:?}"),
                    (false, TrialPlace::Same) => {
                        assert!(matches!(step, BootStep::RevertFiles(_)), "{phase:?}");
                    }
                    (false, _) => assert!(matches!(step, BootStep::Revert(_)), "{phase:?}"),
                }
            }
        }
    }

    #[test]
    fn the_guard_acts_at_the_end_of_the_time_and_not_before() {
        let scene = |now, is_applying, is_booted| GuardScene {
            now,
            is_applying,
            is_booted,
        };
        let judge = |phase: Phase, scene| judge_guard(&trial(phase, true), scene);
        let [applying, waiting, awaiting, boot, reverting] = phases();
        assert_eq!(
            judge(applying.clone(), scene(9, true, false)),
            GuardStep::Wait
        );
        let reverts = |step: GuardStep| matches!(step, GuardStep::Revert(_));
        assert!(reverts(judge(applying, scene(9, false, false))));
        assert_eq!(
            judge(waiting.clone(), scene(600_999, false, true)),
            GuardStep::Wait
        );
        assert!(reverts(judge(waiting, scene(601_000, false, true))));
        assert_eq!(
            judge(awaiting.clone(), scene(4999, false, false)),
            GuardStep::Wait
        );
        assert!(reverts(judge(awaiting, scene(5000, false, false))));
        assert_eq!(judge(boot.clone(), scene(5, false, false)), GuardStep::Wait);
        assert_eq!(
            judge(boot.clone(), scene(5, false, true)),
            GuardStep::BeginWaiting
        );
        // A boot that ends late was no hang.
        assert_eq!(
            judge(boot.clone(), scene(900_000, false, true)),
            GuardStep::BeginWaiting
        );
        assert!(reverts(judge(boot, scene(900_000, false, false))));
        assert!(reverts(judge(reverting, scene(0, false, false))));
    }

    #[test]
    fn times_are_read_and_said() {
        for (text, seconds, words) in [
            ("90", 90, "90 s"),
            ("90s", 90, "90 s"),
            ("10m", 600, "10 min"),
            ("10min", 600, "10 min"),
            ("1h", 3600, "1 h"),
            ("90m", 5400, "90 min"),
            ("24h", 86_400, "24 h"),
        ] {
            let time = parse_time(text).unwrap();
            assert_eq!(time.as_secs(), seconds, "{text}");
            assert_eq!(duration_words(seconds), words);
        }
        for text in [
            "",
            "m",
            "10x",
            "-5",
            "1.5h",
            "4s",
            "25h",
            "99999999999999999999",
            "18446744073709551615h",
        ] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }
}
