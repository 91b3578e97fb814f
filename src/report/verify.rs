//! The result of `verify` as text and as JSON (`mco-rescue/verify/v1`).

use serde::Serialize;

use super::daemon::described;
use super::plan::{Diffs, Heading};
use super::wrap_text;
use crate::base::invocation::mco_rescue;
use crate::base::paths;
use crate::base::text::make_inline;
use crate::judge::daemon::forecast::Forecast;
use crate::judge::drift::{Drift, DriftKind};
use crate::run::apply::JobsDone;

#[derive(Serialize)]
struct VerifyDocument<'a> {
    schema: &'static str,
    #[serde(flatten)]
    heading: &'a Heading,
    /// True if there is no difference.
    clean: bool,
    /// The daemon's message; `null` if it finds no difference.
    verdict: Option<&'a str>,
    drifts: Vec<DriftEntry<'a>>,
    not_looked_at: &'a [String],
    /// The reason why the daemon cannot read its record.
    record_problem: Option<&'a str>,
    #[serde(serialize_with = "described")]
    daemon: &'a Option<Forecast>,
    /// After `apply`: the actions on the running system.
    #[serde(skip_serializing_if = "Option::is_none")]
    told: Option<&'a JobsDone>,
}

#[derive(Serialize)]
struct DriftEntry<'a> {
    kind: DriftKind,
    subject: &'a str,
    detail: &'a str,
    /// The daemon checks this.
    checked_by_daemon: bool,
    daemon: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    diff: Option<&'a str>,
}

/// The results of `verify`.
#[derive(Debug, Clone, Copy)]
pub struct VerifyFindings<'a> {
    /// The differences, in the daemon's order.
    pub drifts: &'a [Drift],
    /// The daemon's message.
    pub verdict: Option<&'a str>,
    /// Diffs of text files.
    pub diffs: &'a Diffs,
    /// Evidence that was missing in this run.
    pub not_looked_at: &'a [String],
    /// The root has the user core, or the config says nothing about it.
    pub has_core: bool,
    /// The daemon's behaviour at its next start, if requested.
    pub daemon: &'a Option<Forecast>,
    /// The actions on the running system that preceded this.
    pub told: Option<&'a JobsDone>,
    /// The reason why the daemon cannot read its record.
    pub record_problem: Option<&'a str>,
}

impl<'a> VerifyFindings<'a> {
    /// Returns why the daemon would be Degraded. Its message stays on one line, so that it can be searched for and copied.
    fn degraded(&self) -> String {
        let record = self.record_problem.map(|why| {
            let path = paths::CURRENT_CONFIG;
            wrap_text(
                &format!(
                    "The daemon cannot read its record /{path}: {}.",
                    make_inline(why)
                ),
                0,
            )
        });
        let said = self
            .verdict
            .map(make_inline)
            .map(|verdict| format!("The daemon would go Degraded and report:\n  {verdict}\n"));
        match (record, said) {
            (None, None) => String::new(),
            (record, said) => record.unwrap_or_default() + &said.unwrap_or_default() + "\n",
        }
    }

    fn diff(&self, drift: &Drift) -> Option<&'a str> {
        let found = self
            .diffs
            .iter()
            .find(|(path, _)| path.to_string() == drift.subject);
        found
            .filter(|_| {
                matches!(
                    drift.kind,
                    DriftKind::Content | DriftKind::Keys | DriftKind::KeyAttributes
                )
            })
            .map(|(_, diff)| diff.as_str())
    }
}

/// Returns the results as JSON.
pub fn to_json(heading: &Heading, findings: VerifyFindings<'_>) -> serde_json::Result<String> {
    document(heading, findings, findings.drifts.is_empty())
}

fn document(
    heading: &Heading,
    findings: VerifyFindings<'_>,
    clean: bool,
) -> serde_json::Result<String> {
    let entry = |drift| -> DriftEntry<'_> {
        let drift: &Drift = drift;
        DriftEntry {
            kind: drift.kind,
            subject: &drift.subject,
            detail: &drift.detail,
            checked_by_daemon: drift.daemon.is_some(),
            daemon: drift.daemon.as_deref(),
            diff: findings.diff(drift),
        }
    };
    let document = VerifyDocument {
        schema: "mco-rescue/verify/v1",
        heading,
        clean,
        verdict: findings.verdict,
        drifts: findings.drifts.iter().map(entry).collect(),
        not_looked_at: findings.not_looked_at,
        record_problem: findings.record_problem,
        daemon: findings.daemon,
        told: findings.told,
    };
    super::pretty(&document)
}

/// Says that nothing is compared because a run to `config` is unfinished.
fn not_compared(config: &str) -> String {
    format!(
        "A run to {config} is unfinished: some files are from before it, and some from it. Nothing was compared, as its files \
         are not changes by hand"
    )
}

/// Returns the result as JSON while a run to `config` is unfinished: there is no comparison.
pub fn unfinished_json(heading: &Heading, config: &str) -> serde_json::Result<String> {
    let findings = VerifyFindings {
        drifts: &[],
        verdict: None,
        diffs: &Diffs::new(),
        not_looked_at: &[format!(
            "{}. Next: {}",
            not_compared(config),
            mco_rescue("recover")
        )],
        has_core: true,
        daemon: &None,
        told: None,
        record_problem: None,
    };
    document(heading, findings, false)
}

/// Returns the result as text while a run to `config` is unfinished: there is no comparison.
pub fn unfinished_text(heading: &Heading, config: &str) -> String {
    let said = format!(
        "{}.\nNext: {}, then {}\n",
        not_compared(config),
        mco_rescue("recover"),
        mco_rescue("verify")
    );
    format!(
        "Config    {}\nRoot      {}\n\n{}",
        make_inline(&heading.config),
        make_inline(&heading.root),
        wrap_text(&said, 0)
    )
}

/// Returns the results as text.
pub fn to_text(heading: &Heading, findings: VerifyFindings<'_>) -> String {
    let mut out = format!(
        "Config    {}\nRoot      {}\n\n",
        make_inline(&heading.config),
        make_inline(&heading.root)
    );
    if findings.drifts.is_empty() {
        out.push_str(&findings.degraded());
        out.push_str(if findings.has_core {
            "Clean: files, units, enablement, keys and password match the config.\n"
        } else {
            "Clean: files, units and enablement match the config.\n"
        });
    } else {
        out.push_str(&differences(findings));
    }
    if !findings.not_looked_at.is_empty() {
        out.push_str(&wrap_text(
            &format!("Not checked: {}.", findings.not_looked_at.join("; ")),
            0,
        ));
    }
    out
}

fn differences(findings: VerifyFindings<'_>) -> String {
    let mut out = findings.degraded();
    if out.is_empty() {
        out = "The daemon would find nothing. It does not check these:\n\n".to_owned();
    }
    out.push_str(&format!("Differences ({}):\n", findings.drifts.len()));
    for drift in findings.drifts {
        out.push_str(&format!(
            "  {}\n{}",
            make_inline(&drift.subject),
            wrap_text(&drift.detail, 4)
        ));
        match &drift.daemon {
            Some(message) => out.push_str(&format!("    daemon: {}\n", make_inline(message))),
            None => out.push_str("    the daemon does not check this\n"),
        }
        let lines = findings.diff(drift).into_iter().flat_map(str::lines);
        lines.for_each(|line| out.push_str(&format!("      {line}\n")));
    }
    out.push('\n');
    out
}
