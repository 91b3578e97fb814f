//! What `rollback` did, as text and as JSON (`mco-rescue/rollback/v1`).

use serde::Serialize;

use super::wrap;
use crate::command::rpm_ostree::status::Deployment;
use crate::invocation::mco_rescue;
use crate::staging::awaited::Ran;
use crate::text::count;

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
    run: &Ran,
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

/// Deployments that are not kept any more, for programs.
pub fn forgotten_json(gone: &[Deployment]) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Document {
        schema: &'static str,
        /// `CHECKSUM.SERIAL` of each.
        unpinned: Vec<String>,
    }
    let document = Document {
        schema: "mco-rescue/forget/v1",
        unpinned: gone.iter().map(Deployment::name).collect(),
    };
    serde_json::to_string_pretty(&document).map(|text| text + "\n")
}

/// For people.
pub fn forgotten(gone: &[Deployment]) -> String {
    if gone.is_empty() {
        return "Nothing that was pinned as a way back is kept, so there is nothing to let go.\n"
            .to_owned();
    }
    let lines: Vec<String> = gone
        .iter()
        .map(|one| format!("Unpinned: {} {}\n", one.name(), one.image()))
        .collect();
    lines.concat()
        + "Next: rpm-ostree cleanup -r frees their room; until then they can still be booted.\n"
}

/// For people, where the files go back at the next boot only.
pub fn awaits(run: &Ran) -> String {
    let said = format!(
        "The deployment that ran before {} is the next one. Its files are put back when it runs \
         (mco-rescue-complete.service).",
        run.config
    );
    wrap(&said, 0) + "Next: systemctl reboot\n"
}

/// For people.
pub fn text(run: &Ran, recorded: &Option<String>, steps: usize, left: usize) -> String {
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
        "Taken back: {}\n{}; recorded is {recorded} now. {next}\nNext: {}\n",
        run.config,
        count(steps, "step"),
        mco_rescue(then),
    )
}
