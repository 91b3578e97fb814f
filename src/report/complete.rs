//! The result of the boot that a run was waiting for, as text and as JSON (`mco-rescue/complete/v1`).

use serde::Serialize;

use super::wrap;
use crate::base::invocation::{mco_rescue, reboot};
use crate::base::secrets::redacted_arguments;
use crate::change::staging::awaited::{Awaited, Way};

/// The result of the awaited boot.
#[derive(Debug, Clone, Serialize)]
pub struct Completed {
    schema: &'static str,
    /// `nothing`, `not-yet`, `arrived`, `back`, `settled` or `failed`.
    pub outcome: &'static str,
    /// Name of the config.
    pub config: Option<String>,
    /// The reason, if the node is not in the awaited state.
    pub failed: Option<String>,
    /// The direction of the boot, if one was awaited.
    pub way: Option<Way>,
    /// True if the operating system and the files belong to different configs.
    half: bool,
    /// The reason why a boot is no longer awaited.
    why: Option<String>,
    /// Kernel arguments that the running image sets itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub image_arguments: Vec<String>,
    /// Files of runs were restored.
    #[serde(skip)]
    restored: bool,
    #[serde(skip)]
    apply: String,
}

impl Completed {
    fn of(outcome: &'static str, awaited: Option<&Awaited>) -> Self {
        Self {
            schema: "mco-rescue/complete/v1",
            outcome,
            config: awaited.map(|awaited| awaited.config.name.clone()),
            failed: awaited.and_then(|awaited| awaited.failed.clone()),
            way: awaited.map(|awaited| awaited.way),
            why: None,
            half: awaited.is_some_and(|awaited| awaited.half),
            image_arguments: Vec::new(),
            restored: false,
            apply: awaited.map(Awaited::apply_command).unwrap_or_default(),
        }
    }

    /// Returns the result for a node that is not waiting for a boot.
    pub fn nothing() -> Self {
        Self::of("nothing", None)
    }

    /// Returns the result for a boot that is still to come.
    pub fn not_yet(awaited: &Awaited) -> Self {
        Self::of("not-yet", Some(awaited))
    }

    /// Returns the result while the guard of a trial is leaving the running deployment.
    pub fn leaves(awaited: &Awaited) -> Self {
        Self {
            way: Some(Way::Back),
            failed: None,
            half: false,
            ..Self::of("not-yet", Some(awaited))
        }
    }

    /// Returns true if the operating system and the files belong to different configs.
    pub fn is_half(&self) -> bool {
        self.half
    }

    /// Returns the result if the staged deployment is running.
    pub fn arrived(awaited: &Awaited) -> Self {
        Self::of("arrived", Some(awaited))
    }

    /// Returns the result if the previous deployment is running, as requested, with its files.
    pub fn back(awaited: &Awaited) -> Self {
        Self::of("back", Some(awaited))
    }

    /// Returns the result if the staged deployment is running, but its run is incomplete.
    pub fn half(awaited: &Awaited) -> Self {
        Self::of("arrived", Some(awaited))
    }

    /// Returns the result if the staged deployment was not entered, but the running one is complete.
    pub fn settled(awaited: &Awaited, why: &str) -> Self {
        Self {
            failed: None,
            half: false,
            why: Some(why.to_owned()),
            ..Self::of("settled", Some(awaited))
        }
    }

    /// Adds whether files of runs were restored.
    #[must_use]
    pub fn with_restored(self, restored: bool) -> Self {
        Self { restored, ..self }
    }

    /// Returns the result if another deployment booted.
    pub fn failed(awaited: &Awaited) -> Self {
        Self::of("failed", Some(awaited))
    }
}

/// Returns the result as JSON.
pub fn to_json(completed: &Completed) -> serde_json::Result<String> {
    super::pretty(completed)
}

/// Returns the result as text.
pub fn to_text(completed: &Completed) -> String {
    let name = completed.config.as_deref().unwrap_or_default();
    let failed = completed.failed.as_deref().unwrap_or_default();
    let next = match (completed.outcome, completed.way) {
        ("not-yet", _) => format!("Next: {}\n", reboot()),
        (_, Some(Way::Forward)) if completed.half => format!(
            "Next: {} # all of it\nor: {} # back to before it\n",
            completed.apply,
            mco_rescue("rollback")
        ),
        ("arrived", _) if !failed.is_empty() => {
            format!(
                "Next: {}\nthen: {}\n",
                mco_rescue("verify"),
                mco_rescue("apply")
            )
        }
        ("failed", Some(Way::Forward)) => format!("Next: {}\n", completed.apply),
        ("failed", _) if completed.half => format!("Next: {}\n", mco_rescue("apply")),
        ("failed", _) => format!("Next: {}\n", mco_rescue("rollback")),
        _ => String::new(),
    };
    let restored = match completed.restored {
        true => "The old files are restored",
        false => "No file had to be restored",
    };
    let said = match (completed.outcome, completed.way) {
        ("nothing", _) => "No boot is awaited.".to_owned(),
        ("not-yet", Some(Way::Back)) => format!("The way back from {name} ends with a reboot."),
        ("not-yet", _) => format!("{name} is staged, and runs after a reboot."),
        ("arrived", _) if failed.is_empty() => {
            let own = match completed.image_arguments.as_slice() {
                [] => String::new(),
                all => format!(
                    " The image brings kernel arguments of its own: {}.",
                    redacted_arguments(&all.join(" "))
                ),
            };
            format!("{name} runs: image, kernel arguments, files and units are as wanted.{own}")
        }
        ("arrived", _) if completed.half => {
            format!("The OS staged for {name} runs, but the node is incomplete: {failed}.")
        }
        ("arrived", _) => format!("{name} runs, but the node differs from it: {failed}."),
        ("settled", _) => format!(
            "{name} is not awaited any more: {}. The running OS is the recorded one.",
            completed.why.as_deref().unwrap_or_default()
        ),
        ("back", _) => format!("The deployment from before {name} runs. {restored}."),
        (_, Some(Way::Forward)) if completed.half => {
            format!("{name} did not come up completely, and the node is incomplete: {failed}.")
        }
        (_, Some(Way::Forward)) => format!("{name} did not come up: {failed}. {restored}."),
        (_, _) => format!("The way back from {name} was not taken: {failed}."),
    };
    wrap(&said, 0) + &next
}
