//! The results of `rollback`, as text and as JSON (`mco-rescue/rollback/v1`).

use serde::Serialize;

use super::status::UNREADABLE;
use super::wrap_text;
use crate::base::invocation::{mco_rescue, on_node, reboot_command};
use crate::base::text::count_noun;
use crate::change::staging::awaited::Ran;
use crate::node::command::rpm_ostree::status::Deployment;
use crate::node::engine::Engine;
use crate::run::status::RebootReport;

#[derive(Serialize)]
struct RollbackDocument<'a> {
    schema: &'static str,
    /// Id of the reverted transaction.
    undone: &'a str,
    /// Name of the config that it applied.
    config: &'a str,
    /// Name of the node's recorded config after the rollback.
    recorded: Option<&'a str>,
    steps: usize,
    /// Number of runs that can still be reverted.
    left: Option<usize>,
    /// The reboot that the node needs.
    reboot: Option<&'a RebootReport>,
    unreadable: &'a [&'static str],
}

/// The end of a rollback.
#[derive(Debug, Clone)]
pub struct RollbackEnd<'a> {
    /// The run that was reverted.
    pub run: &'a Ran,
    /// Name of the node's recorded config after the rollback.
    pub recorded: Option<&'a str>,
    /// Number of steps.
    pub steps: usize,
    /// Number of runs that can still be reverted; `None` if this is unknown.
    pub left: Option<usize>,
    /// The reboot that the node needs.
    pub reboot: Option<RebootReport>,
    /// Keys of the document about which nothing is known, because the node cannot be read.
    pub unreadable: &'a [&'static str],
    /// The cache has the reverted config.
    pub is_cached: bool,
}

/// Returns the result as JSON.
pub fn to_json(end: &RollbackEnd<'_>) -> serde_json::Result<String> {
    let document = RollbackDocument {
        schema: "mco-rescue/rollback/v1",
        undone: &end.run.id,
        config: &end.run.config,
        recorded: end.recorded,
        steps: end.steps,
        left: end.left,
        reboot: end.reboot.as_ref(),
        unreadable: end.unreadable,
    };
    super::pretty(&document)
}

/// Returns unpinned deployments as JSON.
pub fn forgotten_json(gone: &[Deployment]) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct ForgottenDocument {
        schema: &'static str,
        /// `CHECKSUM.SERIAL` of each.
        unpinned: Vec<String>,
    }
    let document = ForgottenDocument {
        schema: "mco-rescue/forget/v1",
        unpinned: gone.iter().map(Deployment::name).collect(),
    };
    super::pretty(&document)
}

/// Returns unpinned deployments as text, in this engine's terms.
pub fn forgotten_text(gone: &[Deployment], engine: Engine) -> String {
    if gone.is_empty() {
        return "No deployment is pinned for a rollback, so there is nothing to unpin.\n"
            .to_owned();
    }
    let lines: Vec<String> = gone
        .iter()
        .map(|one| format!("Unpinned: {} {}\n", one.name(), one.image()))
        .collect();
    lines.concat()
        + "The next command frees their space; until then they can still be booted.\n"
        + &format!("Next: {}\n", on_node(engine.spell("rpm-ostree cleanup -r")))
}

/// Returns the result as text if the files are restored only at the next boot.
pub fn awaits_text(run: &Ran) -> String {
    let said = format!(
        "The deployment that ran before {} boots next. Its files are restored when it runs \
         (mco-rescue-complete.service).",
        run.config
    );
    wrap_text(&said, 0) + &format!("Next: {}\n", reboot_command())
}

/// Returns the result as text.
pub fn to_text(end: &RollbackEnd<'_>) -> String {
    let then = match end.recorded {
        Some(_) => "verify",
        // Without a record there is no config to compare with.
        None => "status",
    };
    let is_unreadable = |key| end.unreadable.contains(&key);
    let recorded = match end.recorded {
        None if is_unreadable("recorded") => UNREADABLE,
        recorded => recorded.unwrap_or("(no config)"),
    };
    let next = match end.left {
        None => format!("Older runs that can be reverted: {UNREADABLE}"),
        Some(0) => "No older run is kept.".to_owned(),
        Some(left) => format!(
            "{} can still be reverted, by ID: {}",
            count_noun(left, "older run"),
            mco_rescue("rollback --list")
        ),
    };
    let reboot = match &end.reboot {
        Some(reboot) => wrap_text(&format!("Reboot needed: {}", reboot.words()), 0),
        None if is_unreadable("reboot") => format!("Reboot needed: {UNREADABLE}\n"),
        None => String::new(),
    };
    let name = &end.run.config;
    let again = match end.recorded {
        // The run changed files and no record.
        Some(recorded) if recorded == name => Some("apply".to_owned()),
        _ => end.is_cached.then(|| format!("apply cached:{name}")),
    };
    let again = again.map(|again| format!("To apply it again: {}\n", mco_rescue(&again)));
    let again = again.unwrap_or_default();
    format!(
        "Reverted: {}\n{}; recorded is {recorded} now.\n{next}\n{again}{}Next: {}\n",
        end.run.config,
        count_noun(end.steps, "step"),
        reboot,
        mco_rescue(then),
    )
}
