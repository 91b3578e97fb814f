//! The result of `doctor --fix`, as text and as JSON (`mco-rescue/doctor-fix/v1`).

use serde::Serialize;

use super::doctor::{Style, of_finding, to_ascii};
use super::wrap_text;
use crate::base::invocation::mco_rescue;
use crate::base::text::count_noun;
use crate::diagnose::doctor::{Diagnosis, DoctorFinding};
use crate::run::fix::FixOutcome;

/// Everything that is printed at the end.
#[derive(Debug, Clone, Copy)]
pub struct FixResult<'a> {
    /// The id of the check.
    pub id: &'a str,
    /// The root.
    pub root: &'a str,
    /// The outcome.
    pub outcome: FixOutcome,
    /// The finding that was cured.
    pub cured: Option<&'a DoctorFinding>,
    /// Number of changes that were made.
    pub steps: usize,
    /// The current result of the check.
    pub diagnosis: &'a Diagnosis,
}

#[derive(Serialize)]
struct FixDocument<'a> {
    schema: &'static str,
    id: &'a str,
    root: &'a str,
    outcome: FixOutcome,
    what: Option<&'a str>,
    steps: usize,
    next: Vec<String>,
    findings: &'a [DoctorFinding],
    not_checked: Vec<&'a str>,
}

impl FixResult<'_> {
    fn not_checked(&self) -> Vec<&str> {
        let checks = self.diagnosis.checks.iter();
        let unseen = checks.flat_map(|check| &check.unseen);
        unseen.map(String::as_str).collect()
    }

    /// Returns the commands to run next: those that belong to the cure, and those of remaining findings.
    fn next(&self) -> Vec<String> {
        let fix = self.cured.and_then(|finding| finding.fix.as_ref());
        let mut all = fix.map(|fix| fix.then.clone()).unwrap_or_default();
        if self.outcome != FixOutcome::Fixed {
            let findings = self.diagnosis.findings.iter();
            for command in findings.flat_map(|finding| &finding.next) {
                if !all.contains(command) {
                    all.push(command.clone());
                }
            }
        }
        all
    }
}

/// Returns the result as JSON.
///
/// # Errors
/// The serializer's error.
pub fn to_json(result: FixResult<'_>) -> serde_json::Result<String> {
    let document = FixDocument {
        schema: "mco-rescue/doctor-fix/v1",
        id: result.id,
        root: result.root,
        outcome: result.outcome,
        what: result.cured.map(|finding| finding.what.as_str()),
        steps: result.steps,
        next: result.next(),
        findings: &result.diagnosis.findings,
        not_checked: result.not_checked(),
    };
    super::pretty(&document)
}

/// Returns the result as text.
pub fn to_text(result: FixResult<'_>, style: Style) -> String {
    let FixResult { id, root, .. } = result;
    let what = result.cured.map(|finding| finding.what.as_str());
    let what = what.unwrap_or_default();
    let steps = count_noun(result.steps, "step");
    let head = match result.outcome {
        FixOutcome::Healthy if !result.not_checked().is_empty() => format!(
            "{id} finds nothing wrong with what it could check of {root}, but not all of it could be checked. Nothing was changed."
        ),
        FixOutcome::Healthy => {
            format!("{id} finds nothing wrong with {root}. Nothing was changed.")
        }
        FixOutcome::NoFix => format!(
            "doctor --fix does not cover what {id} finds: a command has to be run, or a choice is needed. Nothing was changed."
        ),
        FixOutcome::Fixed => {
            format!("Fixed: {id} no longer finds \"{what}\" ({steps}, all in place).")
        }
        FixOutcome::StillFound => format!(
            "{steps}, all in place, but {id} still finds \"{what}\". Some services have to be restarted first, or something \
             else is wrong as well."
        ),
    };
    let mut out = wrap_text(&head, 0);
    if result.outcome == FixOutcome::Fixed {
        for (index, command) in result.next().iter().enumerate() {
            let label = if index == 0 { "Next:" } else { "then:" };
            out.push_str(&format!("{label} {command}\n"));
        }
    }
    if result.steps > 0 {
        out.push_str(&format!("Undo: {}\n", mco_rescue("rollback")));
    }
    for finding in &result.diagnosis.findings {
        out.push('\n');
        out.push_str(&of_finding(finding, style));
    }
    let not_checked = result.not_checked();
    if !not_checked.is_empty() {
        out.push_str("Not checked:\n");
        out.extend(
            not_checked
                .iter()
                .map(|why| wrap_text(&format!("- {why}"), 2)),
        );
    }
    to_ascii(out, style)
}
