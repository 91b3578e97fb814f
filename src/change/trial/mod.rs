//! Trials (`--try`): a change that is reverted automatically unless it is confirmed (docs/explanation/trial.md). Values and judgements
//! only: `run/trial` acts on them, [`store`] stores the state, and [`on_disk`] says what another command finds of it.
//!
//! Times of a trial are milliseconds of CLOCK_BOOTTIME, which setting a clock does not affect. They belong to one boot, so the
//! boot is stored with them.

pub mod coverage;
pub mod facts;
pub mod on_disk;
pub mod store;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::reason::Reason;
use crate::change::probes::Probe;
use crate::node::boot::BootIdentity;
use crate::node::command::job::Job;
use crate::node::command::network_manager::NetworkCheckpoint;
use crate::node::login_session::LoginSession;

/// Version of the files.
pub const VERSION: u32 = 1;
/// Shortest time limit for a confirmation.
pub const SHORTEST: Duration = Duration::from_secs(5);
/// Longest time limit for a confirmation.
pub const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// Time limit for a requested reboot to begin; otherwise the trial is reverted.
pub const REBOOT_LIMIT: Duration = Duration::from_secs(30 * 60);
/// Time after which a failing revert is given up: longer than a boot needs to mount everything.
pub const GIVE_UP: Duration = Duration::from_secs(10 * 60);
/// Number of boots into the new deployment, despite the old one being the default, after which the boot loader is assumed never
/// to enter the old one.
pub const RETURNS: u32 = 3;

/// The phase of a trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "kebab-case")]
pub enum Phase {
    /// The change is being made.
    Applying,
    /// The change is in place, waiting for a confirmation.
    Waiting {
        /// Since when, in milliseconds.
        since: u64,
        /// Until when, in milliseconds.
        until: u64,
    },
    /// The change is in place, and the reboot that is part of the trial was requested.
    AwaitingBoot {
        /// Time by which the reboot has to have begun, in milliseconds.
        until: u64,
    },
    /// That boot is running but not yet complete.
    TrialBoot {
        /// Time by which it has to be complete, in milliseconds.
        until: u64,
    },
    /// The change is being reverted. No other phase follows.
    Reverting {
        /// The reason.
        why: String,
    },
}

impl Phase {
    /// Returns the word for scripts and for `status`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Applying => "applying",
            Self::Waiting { .. } => "waiting",
            Self::AwaitingBoot { .. } => "awaiting-boot",
            Self::TrialBoot { .. } => "trial-boot",
            Self::Reverting { .. } => "reverting",
        }
    }

    /// Returns true while the change is being reverted.
    pub fn is_reverting(&self) -> bool {
        matches!(self, Self::Reverting { .. })
    }

    /// Returns the end of this phase, in milliseconds.
    pub fn phase_end(&self) -> Option<u64> {
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
    /// `CHECKSUM.SERIAL` of the deployment before the trial, to which it reverts.
    pub from: String,
}

/// A trial, as stored in `trial.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// [`VERSION`].
    pub version: u32,
    /// Id of this trial: the time when it began, and the process.
    pub id: String,
    /// The change: the name of a config, of an image, or of a finding.
    pub what: String,
    /// Time when it began, in seconds since 1970.
    pub began: u64,
    /// Seconds that a confirmation has.
    pub window: u64,
    /// Time limit of the trial's boot, in seconds.
    pub boot_limit: u64,
    /// Its current phase.
    #[serde(flatten)]
    pub phase: Phase,
    /// The boot to which the times of the phase belong.
    pub boot: BootIdentity,
    /// The newest run in the history when it began, empty if there was none: later runs belong to the trial.
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
    /// Jobs that make the services reread the previous files.
    #[serde(default)]
    pub jobs_back: Vec<Job>,
    /// Runs to remove from the history once it is confirmed.
    #[serde(default)]
    pub forgets: Vec<String>,
    /// `kernel.panic` before the trial, if the trial changed it.
    #[serde(default)]
    pub panic: Option<i32>,
    /// Set if the revert is failing, in the boot of the phase.
    #[serde(default)]
    pub failing: Option<FailingWay>,
    /// Number of boots into the new deployment after the revert had left it.
    #[serde(default)]
    pub returns: u32,
}

/// A revert that keeps failing.
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
    /// It was confirmed, and the change is kept.
    Confirmed,
    /// Everything is restored.
    Reverted,
    /// Everything is restored, except for what the reason says.
    PartlyReverted,
    /// It could not be reverted. The change is kept until the user decides.
    NotReverted,
}

/// The end of the last trial, as stored in `trial-result.json`.
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
    /// Time when it began, in seconds since 1970.
    pub began: u64,
    /// Time when it ended, in seconds since 1970.
    pub ended: u64,
}

impl TrialResult {
    /// Returns true if a run that finished at this time (seconds since 1970) came after the trial. The run that reverts a
    /// change ends within the trial, possibly in its last second.
    pub fn is_before(&self, finished: u64) -> bool {
        finished > self.ended
    }
}

/// Which deployment is running, relative to a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrialPlace {
    /// The trial does not change the operating system.
    Same,
    /// The previous deployment is running.
    Old,
    /// Another one is running.
    New,
}

impl Trial {
    /// Returns which deployment of the trial is running.
    pub fn place_of(&self, deployment: Option<&str>) -> TrialPlace {
        match &self.system {
            None => TrialPlace::Same,
            Some(system) if deployment == Some(system.from.as_str()) => TrialPlace::Old,
            Some(_) => TrialPlace::New,
        }
    }

    /// Returns the seconds until the phase ends, at a given time in milliseconds.
    pub fn seconds_left(&self, now: u64) -> Option<u64> {
        let until = self.phase.phase_end()?;
        Some(until.saturating_sub(now).div_ceil(1000))
    }

    /// Returns true if the revert has been failing for so long that it is given up.
    pub fn is_given_up(&self, now: u64) -> bool {
        let limit = u64::try_from(GIVE_UP.as_millis()).unwrap_or(u64::MAX);
        let failing = self.failing.as_ref();
        failing.is_some_and(|failing| now >= failing.since.saturating_add(limit))
    }

    /// Returns the time limit for a confirmation in words.
    pub fn window_words(&self) -> String {
        duration_words(self.window)
    }
}

/// What the early unit has to do at a boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BootStep {
    /// Nothing: the boot is known.
    None,
    /// This is the trial's boot: its time limit begins.
    BeginBoot,
    /// The files are reverted now, before anything reads them.
    RevertFiles(String),
    /// The guard reverts the trial, once the previous deployment is running or can be entered.
    Revert(String),
}

/// Judges a boot, which may differ from the one to which a trial's times belong.
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
            revert("the previous deployment was booted instead of the new one")
        }
        Phase::AwaitingBoot { .. } => BootStep::BeginBoot,
        Phase::TrialBoot { .. } if place == TrialPlace::Old => {
            revert("the boot with the change did not finish")
        }
        Phase::TrialBoot { .. } => {
            revert("the node was rebooted before the boot with the change had finished")
        }
        Phase::Reverting { why } => revert(why),
    }
}

/// The node's state during a trial, as seen by the guard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardScene {
    /// Milliseconds of CLOCK_BOOTTIME.
    pub now: u64,
    /// The command that makes the change holds the lock.
    pub is_applying: bool,
    /// The boot is complete: every unit has started or failed, and no run is waiting for this boot.
    pub is_booted: bool,
    /// The reason why the boot with the change failed.
    pub boot_failure: Option<String>,
}

/// The next action of the guard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuardStep {
    /// Nothing now.
    Wait,
    /// The boot is complete: the time limit for a confirmation begins.
    BeginWaiting,
    /// The trial is reverted.
    Revert(String),
}

/// Judges the next action of the guard, in the boot to which the trial's times belong.
///
/// A failed probe never reverts a trial: it only keeps the guard from confirming it before the time limit.
pub fn judge_guard(trial: &Trial, scene: GuardScene) -> GuardStep {
    if let (Phase::TrialBoot { .. }, Some(why)) = (&trial.phase, scene.boot_failure) {
        return GuardStep::Revert(why);
    }
    let is_over = trial
        .phase
        .phase_end()
        .is_some_and(|until| scene.now >= until);
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
            "the boot with the change had not finished after {}",
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

/// Parses a time such as `90s`, `10m`, `1h` or `90` (seconds).
///
/// # Errors
/// The text is not such a time, or is outside of [`SHORTEST`] to [`LONGEST`].
pub fn parse_time(text: &str) -> Result<Duration, Reason> {
    let form = || "is not a time such as 90s, 10m or 1h".to_owned();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| form())?;
    let unit = match text.get(digits.len()..).unwrap_or_default() {
        "" | "s" | "sec" => 1,
        "m" | "min" => 60,
        "h" => 3600,
        _ => return Err(form().into()),
    };
    let time = Duration::from_secs(number.saturating_mul(unit));
    if time < SHORTEST || time > LONGEST {
        return Err(format!(
            "is outside of {} to {}",
            duration_words(SHORTEST.as_secs()),
            duration_words(LONGEST.as_secs())
        )
        .into());
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
            boot_failure: None,
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
        // A boot that completes late did not hang.
        assert_eq!(
            judge(boot.clone(), scene(900_000, false, true)),
            GuardStep::BeginWaiting
        );
        assert!(reverts(judge(boot.clone(), scene(900_000, false, false))));
        let failed = GuardScene {
            boot_failure: Some("kubelet.service failed".to_owned()),
            ..scene(5, false, false)
        };
        assert_eq!(
            judge(boot, failed),
            GuardStep::Revert("kubelet.service failed".to_owned())
        );
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
