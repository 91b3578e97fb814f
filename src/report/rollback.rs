//! What `rollback` did, as text and as JSON (`mco-rescue/rollback/v1`).

use serde::Serialize;

use super::count;
use crate::plan::FinishedRun;

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    /// Transaction that was taken back.
    undone: &'a str,
    /// Name of the config that it had applied.
    config: &'a str,
    /// Name of the config that the node is recorded to be in now.
    recorded: Option<&'a str>,
    steps: usize,
    /// How many runs can still be taken back.
    left: usize,
}

/// For programs.
pub fn json(
    run: &FinishedRun,
    recorded: &Option<String>,
    steps: usize,
    left: usize,
) -> serde_json::Result<String> {
    let document = Document {
        schema: "mco-rescue/rollback/v1",
        undone: &run.id,
        config: &run.config,
        recorded: recorded.as_deref(),
        steps,
        left,
    };
    serde_json::to_string_pretty(&document).map(|text| text + "\n")
}

/// For people, where the files go back at the next boot only.
pub fn awaits(run: &FinishedRun) -> String {
    format!(
        "The deployment that ran before {} is the next one. Its files are put back when it runs\n\
         (mco-rescue-complete.service).\nNext: systemctl reboot\n",
        run.config
    )
}

/// For people.
pub fn text(run: &FinishedRun, recorded: &Option<String>, steps: usize, left: usize) -> String {
    let then = match recorded {
        Some(_) => "verify",
        // Without a record there is no config to compare with.
        None => "status",
    };
    let recorded = recorded.as_deref().unwrap_or("(no config)");
    let next = match left {
        0 => "No older run is kept.".to_owned(),
        left => format!("{} can still be taken back.", count(left, "older run")),
    };
    format!(
        "Taken back: {}\n{}; recorded is {recorded} now. {next}\nNext: mco-rescue {then}\n",
        run.config,
        count(steps, "step"),
    )
}
