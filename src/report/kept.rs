//! The runs that can be reverted, as text and as JSON (`mco-rescue/rollback-list/v1`).

use crate::run::kept_runs::Before;
use serde::{Serialize, Serializer};

use super::wrap_text;
use crate::base::invocation::mco_rescue;
use crate::base::text::{count_noun, make_inline};
use crate::base::time::{format_age, format_utc};

/// A run of the history.
#[derive(Debug, Clone, Serialize)]
pub struct KeptRun {
    /// Id of the transaction.
    pub id: String,
    /// Name of the config that it applied.
    pub config: String,
    /// Seconds since 1970.
    pub began: u64,
    /// The config before it; `null` if none was recorded.
    #[serde(rename = "recorded_before", serialize_with = "name")]
    pub before: Before,
    /// Number of steps.
    pub steps: usize,
    /// The deployment that ran before it, if the run also changed the operating system.
    pub operating_system: Option<String>,
}

/// All runs that can be reverted.
#[derive(Debug, Clone, Serialize)]
pub struct RunsDocument {
    /// `mco-rescue/rollback-list/v1`.
    pub schema: &'static str,
    /// Seconds since 1970.
    pub now: u64,
    /// Path of the root.
    pub root: String,
    /// The config whose operating system is staged and needs a reboot.
    pub staged: Option<String>,
    /// The runs, the newest first.
    pub runs: Vec<KeptRun>,
}

fn name<S: Serializer>(before: &Before, out: S) -> Result<S::Ok, S::Error> {
    match before {
        Before::Config(name) => out.serialize_some(name),
        Before::Unchanged => out.serialize_some("unchanged"),
        Before::NoRecord | Before::Unreadable => out.serialize_none(),
    }
}

/// Returns the runs as JSON.
pub fn to_json(list: &RunsDocument) -> serde_json::Result<String> {
    super::pretty(list)
}

/// Returns the runs as text.
pub fn to_text(list: &RunsDocument) -> String {
    let mut out = format!("{:<10}{}\n", "Root", make_inline(&list.root));
    if let Some(staged) = &list.staged {
        out.push_str(&format!(
            "{:<10}{} waits for a reboot\n",
            "Staged",
            make_inline(staged)
        ));
    }
    if list.runs.is_empty() {
        return out + "\nNo run is stored, so there is nothing to revert.\n";
    }
    out.push_str("\nRuns that can be reverted, the newest first:\n");
    for run in &list.runs {
        let (when, past) = (format_utc(run.began), format_age(run.began, list.now));
        out.push_str(&format!("  {}  {when} ({past})\n", make_inline(&run.id)));
        let steps = count_noun(run.steps, "step");
        out.push_str(&wrap_text(&format!("applied {}, {steps}", run.config), 6));
        let before = match &run.before {
            Before::Config(name) => format!("back to {name}"),
            Before::NoRecord => "back to a node without any config".to_owned(),
            Before::Unchanged => "the recorded config stays".to_owned(),
            Before::Unreadable => "the previous record cannot be read".to_owned(),
        };
        out.push_str(&wrap_text(&before, 6));
        if let Some(deployment) = &run.operating_system {
            let short = deployment.get(..12).unwrap_or(deployment);
            let words = format!("with the operating system ({short}), and a reboot");
            out.push_str(&wrap_text(&words, 6));
        }
    }
    let until = format!(
        "{} # that one and all above it",
        mco_rescue("rollback --to ID")
    );
    let leaves_a_config = list
        .runs
        .first()
        .is_some_and(|run| run.before != Before::NoRecord);
    let next = if leaves_a_config {
        format!(
            "Next: {} # the first one, or {until}",
            mco_rescue("rollback")
        )
    } else {
        format!("Next: {until}")
    };
    out + "\n" + &wrap_text(&next, 0)
}
