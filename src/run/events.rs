//! Events for the system journal: id, priority, text and fields. `systemd/mco-rescue.catalog` explains each id in `journalctl -x`.
//!
//! The texts are fixed and contain only names: no error's reason and no program's output, which could contain a secret.

use crate::base::invocation::{self, mco_rescue};
use crate::base::text::{count_noun, one_line};
use crate::change::staging::awaited::Way;
use crate::change::trial::TrialOutcome;
use crate::host::root::Root;
use crate::host::sys::journal::{self, JournalEntry, Priority};

/// The end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnd {
    /// Everything is in place.
    Finished,
    /// An interrupted run was finished.
    Recovered,
    /// The run failed and was undone.
    PutBack,
    /// An interrupted run was undone.
    Undone,
    /// The run is incomplete.
    Incomplete,
}

/// An event in the life of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeEvent<'a> {
    /// A run begins to change files.
    RunBegan,
    /// A run has ended.
    RunEnded(RunEnd),
    /// A trial has begun, with this many seconds for a confirmation.
    TrialBegan(u64),
    /// A trial has ended.
    TrialEnded(TrialOutcome),
    /// The awaited deployment is running.
    BootCompleted(Option<Way>),
    /// The awaited deployment is not running, or not completely.
    BootFailed(Option<Way>),
    /// `verify` found this many differences.
    Drift(usize),
    /// `doctor` found something critical, in these checks.
    Critical(&'a [&'a str]),
    /// A run takes a config or an image from a capsule: who signed it.
    CapsuleAccepted(&'a str),
}

impl NodeEvent<'_> {
    /// Returns the id in the message catalog.
    pub fn catalog_id(&self) -> &'static str {
        match self {
            Self::RunBegan => "532bce17fe8b4cfe895fdbad4a0bd7d2",
            Self::RunEnded(RunEnd::Finished | RunEnd::Recovered) => {
                "cf3733eff3e2497299deef868b48ad74"
            }
            Self::RunEnded(RunEnd::PutBack | RunEnd::Undone) => "5c0f468648374a92a1156446d9b0931f",
            Self::RunEnded(RunEnd::Incomplete) => "97f4d27900f246389711593210cd3d30",
            Self::TrialBegan(_) => "644f1c37eb0b4430a30d1633a11f71f1",
            Self::TrialEnded(TrialOutcome::Confirmed) => "293e1481e93045cb99d8e44b3b1f5982",
            Self::TrialEnded(_) => "9665f2bd0d49474292605f607bcfbce4",
            Self::BootCompleted(_) => "fc9613e1c7e84f88a2d5a349b9886566",
            Self::BootFailed(_) => "a4eda40cf2234bfca88fab847a1881f2",
            Self::Drift(_) => "9a7c42ee44e2467a855401896a2f1a82",
            Self::Critical(_) => "488eead00967426c85e77fff1976fad5",
            Self::CapsuleAccepted(_) => "0c9f6f0f4a5d4c5c8f5b2f6f1d7b3e21",
        }
    }

    fn priority(&self) -> Priority {
        match self {
            Self::RunBegan
            | Self::RunEnded(RunEnd::Finished | RunEnd::Recovered)
            | Self::TrialBegan(_)
            | Self::TrialEnded(TrialOutcome::Confirmed)
            | Self::CapsuleAccepted(_)
            | Self::BootCompleted(_) => Priority::Notice,
            Self::RunEnded(RunEnd::Undone)
            | Self::TrialEnded(TrialOutcome::Reverted)
            | Self::Drift(_) => Priority::Warning,
            Self::RunEnded(RunEnd::PutBack) | Self::BootFailed(_) => Priority::Error,
            Self::RunEnded(RunEnd::Incomplete)
            | Self::TrialEnded(TrialOutcome::PartlyReverted | TrialOutcome::NotReverted)
            | Self::Critical(_) => Priority::Critical,
        }
    }

    /// Returns the word in the field `MCO_RESCUE_RESULT`.
    fn result_word(&self) -> String {
        match self {
            Self::RunBegan => "began".to_owned(),
            Self::RunEnded(RunEnd::Finished) => "done".to_owned(),
            Self::RunEnded(RunEnd::Recovered) => "recovered".to_owned(),
            Self::RunEnded(RunEnd::PutBack) => "rolled-back".to_owned(),
            Self::RunEnded(RunEnd::Undone) => "undone".to_owned(),
            Self::RunEnded(RunEnd::Incomplete) => "incomplete".to_owned(),
            Self::TrialBegan(_) => "trial".to_owned(),
            Self::TrialEnded(TrialOutcome::Confirmed) => "confirmed".to_owned(),
            Self::TrialEnded(TrialOutcome::Reverted) => "reverted".to_owned(),
            Self::TrialEnded(TrialOutcome::PartlyReverted) => "partly-reverted".to_owned(),
            Self::TrialEnded(TrialOutcome::NotReverted) => "not-reverted".to_owned(),
            Self::BootCompleted(_) => "arrived".to_owned(),
            Self::BootFailed(_) => "failed".to_owned(),
            Self::Drift(number) => count_noun(*number, "difference"),
            Self::Critical(checks) => checks.join(", "),
            Self::CapsuleAccepted(signer) => (*signer).to_owned(),
        }
    }

    fn message(&self, config: &str) -> String {
        match self {
            Self::RunBegan => format!("A run for {config} has begun"),
            Self::RunEnded(RunEnd::Finished) => format!("{config} is in place"),
            Self::RunEnded(RunEnd::Recovered) => {
                format!("An interrupted run for {config} was finished")
            }
            Self::RunEnded(RunEnd::PutBack) => {
                format!("The run for {config} failed, and everything was restored")
            }
            Self::RunEnded(RunEnd::Undone) => format!("An interrupted run for {config} was undone"),
            Self::RunEnded(RunEnd::Incomplete) => {
                format!(
                    "The run for {config} is unfinished. Next: {recover}",
                    recover = mco_rescue("recover")
                )
            }
            Self::TrialBegan(seconds) => format!(
                "{config} is on trial, and is reverted unless it is confirmed within {seconds} seconds"
            ),
            Self::TrialEnded(TrialOutcome::Confirmed) => {
                format!("The trial of {config} was confirmed")
            }
            Self::TrialEnded(TrialOutcome::Reverted) => {
                format!("The trial of {config} was reverted")
            }
            Self::TrialEnded(TrialOutcome::NotReverted) => format!(
                "The trial of {config} could not be reverted, and the change stays. Next: mco-rescue status"
            ),
            Self::TrialEnded(TrialOutcome::PartlyReverted) => format!(
                "The trial of {config} was reverted in part only. Next: {status}",
                status = mco_rescue("status")
            ),
            Self::BootCompleted(Some(Way::Back)) => {
                format!("The rollback from {config} is complete")
            }
            Self::BootCompleted(_) => format!("The boot into {config} is complete"),
            Self::BootFailed(Some(Way::Back)) => {
                format!(
                    "The rollback from {config} did not happen. Next: {status}",
                    status = mco_rescue("status")
                )
            }
            Self::BootFailed(_) => {
                format!(
                    "The boot did not bring {config} as a whole. Next: {status}",
                    status = mco_rescue("status")
                )
            }
            Self::Drift(number) => format!(
                "{} from {config}. Next: {verify}",
                count_noun(*number, "difference"),
                verify = mco_rescue("verify")
            ),
            Self::CapsuleAccepted(signer) => format!("{config} was signed by {signer}"),
            Self::Critical(checks) => format!(
                "doctor found something critical: {}. Next: {doctor}",
                checks.join(", "),
                doctor = mco_rescue("doctor")
            ),
        }
    }

    /// Returns the entry for the journal. `config` is empty if the event belongs to no config.
    pub fn to_entry(&self, command: &str, config: &str) -> JournalEntry<'static> {
        let config = one_line(config);
        JournalEntry {
            id: self.catalog_id(),
            priority: self.priority(),
            message: self.message(&config),
            fields: vec![
                ("MCO_RESCUE_COMMAND", command.to_owned()),
                ("MCO_RESCUE_CONFIG", config),
                ("MCO_RESCUE_RESULT", self.result_word()),
            ],
        }
    }
}

/// Sends an event to the journal, if the root is that of the running system. The event is not essential, so a failure is only
/// logged.
pub fn send_event(root: &Root, event: &NodeEvent<'_>, config: &str) {
    if !root.is_live() {
        return;
    }
    match journal::send_entry(&event.to_entry(invocation::command_name(), config)) {
        Ok(true) => {}
        Ok(false) => log::debug!("there is no journal here"),
        Err(error) => log::info!("the journal: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const CATALOGUE: &str = include_str!("../../systemd/mco-rescue.catalog");

    fn all() -> Vec<NodeEvent<'static>> {
        use NodeEvent::{
            BootCompleted, BootFailed, CapsuleAccepted, Critical, Drift, RunBegan, RunEnded,
            TrialBegan, TrialEnded,
        };
        vec![
            RunBegan,
            RunEnded(RunEnd::Finished),
            RunEnded(RunEnd::Recovered),
            RunEnded(RunEnd::PutBack),
            RunEnded(RunEnd::Undone),
            RunEnded(RunEnd::Incomplete),
            TrialBegan(300),
            TrialEnded(TrialOutcome::Confirmed),
            TrialEnded(TrialOutcome::Reverted),
            TrialEnded(TrialOutcome::PartlyReverted),
            TrialEnded(TrialOutcome::NotReverted),
            BootCompleted(Some(Way::Forward)),
            BootCompleted(Some(Way::Back)),
            BootFailed(Some(Way::Forward)),
            BootFailed(Some(Way::Back)),
            Drift(2),
            Critical(&["FP-02", "FP-09"]),
            CapsuleAccepted("alice (SHA256:x), capsule 7"),
        ]
    }

    #[test]
    fn the_catalogue_explains_every_event_and_nothing_else() {
        let explained: Vec<&str> = CATALOGUE
            .lines()
            .filter_map(|line| line.strip_prefix("-- "))
            .collect();
        let events: BTreeSet<&str> = all().iter().map(NodeEvent::catalog_id).collect();
        assert_eq!(explained.iter().copied().collect::<BTreeSet<_>>(), events);
        assert_eq!(explained.len(), events.len());
        for id in explained {
            let (_, text) = CATALOGUE.split_once(&format!("-- {id}\n")).unwrap();
            let text = text.split("\n-- ").next().unwrap();
            assert!(text.starts_with("Subject: "), "{text}");
            assert!(
                text.contains("mco-rescue ") && text.contains('`'),
                "no next step: {text}"
            );
            assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        }
    }

    #[test]
    fn the_catalogue_names_no_field_that_no_entry_has() {
        let fields = [
            "MCO_RESCUE_COMMAND",
            "MCO_RESCUE_CONFIG",
            "MCO_RESCUE_RESULT",
        ];
        for (number, name) in CATALOGUE.split('@').enumerate() {
            assert!(number % 2 == 0 || fields.contains(&name), "{name}");
        }
    }

    #[test]
    fn an_entry_has_one_line_with_the_config_and_its_result() {
        for event in all() {
            let entry = event.to_entry("apply", "rendered-worker-1");
            assert!(!entry.message.contains('\n'), "{entry:?}");
            let result = entry
                .fields
                .iter()
                .find(|(name, _)| *name == "MCO_RESCUE_RESULT");
            assert!(!result.unwrap().1.is_empty(), "{entry:?}");
            let is_critical = matches!(event, NodeEvent::Critical(_));
            assert!(
                is_critical || entry.message.contains("rendered-worker-1"),
                "{entry:?}"
            );
        }
    }
}
