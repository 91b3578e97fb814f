//! The result of the boot that a run was waiting for, as text and as JSON (`mco-rescue/complete/v1`).

use super::wrap_text;
use crate::base::invocation::{mco_rescue, reboot_command};
use crate::base::secrets::redacted_arguments;
use crate::change::staging::awaited::Way;
use crate::run::complete::{AwaitedOutcome, Completed};

/// Returns the result as JSON.
pub fn to_json(completed: &Completed) -> serde_json::Result<String> {
    super::pretty(completed)
}

/// Returns the result as text.
pub fn to_text(completed: &Completed) -> String {
    let name = completed.config.as_deref().unwrap_or_default();
    let failed = completed.failed.as_deref().unwrap_or_default();
    let next = next_text(completed);
    let restored = if completed.restored {
        "The old files are restored"
    } else {
        "No file had to be restored"
    };
    let said = match (completed.outcome, completed.way) {
        (AwaitedOutcome::Nothing, _) => "No run is waiting for a reboot.".to_owned(),
        (AwaitedOutcome::NotYet, Some(Way::Back)) => {
            format!("The rollback from {name} is completed by a reboot.")
        }
        (AwaitedOutcome::NotYet, _) => format!("{name} is staged, and runs after a reboot."),
        (AwaitedOutcome::Arrived, _) if failed.is_empty() => {
            let own = match completed.image_arguments.as_slice() {
                [] => String::new(),
                all => format!(
                    " The image brings kernel arguments of its own: {}.",
                    redacted_arguments(&all.join(" "))
                ),
            };
            format!(
                "{name} is running: image, kernel arguments, files and units are as wanted.{own}"
            )
        }
        (AwaitedOutcome::Arrived, _) if completed.half => {
            format!("The OS staged for {name} runs, but the node is incomplete: {failed}.")
        }
        (AwaitedOutcome::Arrived, _) => {
            format!("{name} is running, but the node differs from it: {failed}.")
        }
        (AwaitedOutcome::Settled, _) => format!(
            "{name} no longer waits for a reboot: {}. The running OS is the recorded one.",
            completed.why.as_deref().unwrap_or_default()
        ),
        (AwaitedOutcome::Back, _) => {
            format!("The deployment from before {name} is running. {restored}.")
        }
        (_, Some(Way::Forward)) if completed.half => {
            format!("{name} did not come up completely, and the node is incomplete: {failed}.")
        }
        (_, Some(Way::Forward)) => format!("{name} did not come up: {failed}. {restored}."),
        (_, _) => format!("The rollback from {name} did not happen: {failed}."),
    };
    wrap_text(&said, 0) + &next
}

/// Returns the next commands, one a line.
fn next_text(completed: &Completed) -> String {
    let failed = completed.failed.as_deref().unwrap_or_default();
    match (completed.outcome, completed.way) {
        (AwaitedOutcome::NotYet, _) => format!("Next: {}\n", reboot_command()),
        (_, Some(Way::Forward)) if completed.half => format!(
            "Next: {} # all of it\nor: {} # back to before it\n",
            completed.apply,
            mco_rescue("rollback")
        ),
        (AwaitedOutcome::Arrived, _) if !failed.is_empty() => {
            format!(
                "Next: {}\nthen: {}\n",
                mco_rescue("verify"),
                mco_rescue("apply")
            )
        }
        (AwaitedOutcome::Failed, Some(Way::Forward)) => format!("Next: {}\n", completed.apply),
        (AwaitedOutcome::Failed, _) if completed.half => format!("Next: {}\n", mco_rescue("apply")),
        (AwaitedOutcome::Failed, _) => format!("Next: {}\n", mco_rescue("rollback")),
        _ => String::new(),
    }
}
