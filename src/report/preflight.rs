//! The findings before a crossing, as text and as JSON (`mco-rescue/preflight/v1`).

use serde::Serialize;

use super::plan::{Heading, machine_line};
use super::wrap_text;
use crate::base::invocation::{PrintedCommand, on_node};
use crate::base::text::make_inline;
use crate::judge::crossing::checks::ALL;
use crate::judge::crossing::{CrossingFinding, CrossingSeverity, Evidence, Target};

#[derive(Serialize)]
struct PreflightDocument<'a> {
    schema: &'static str,
    node: &'a str,
    system: &'a str,
    root: &'a str,
    target: TargetEntry<'a>,
    findings: Vec<FindingEntry<'a>>,
}

#[derive(Serialize)]
struct TargetEntry<'a> {
    source: &'a str,
    system: &'a str,
    kernel: Option<&'a str>,
    architecture: Option<&'a str>,
}

/// A finding in a document.
#[derive(Debug, Serialize)]
pub(super) struct FindingEntry<'a> {
    check: &'static str,
    severity: CrossingSeverity,
    subject: &'a str,
    what: &'a str,
    evidence: &'a [Evidence],
    prevents: Option<&'a str>,
    next: &'a [String],
}

impl<'a> FindingEntry<'a> {
    pub(super) fn of(finding: &'a CrossingFinding) -> Self {
        Self {
            check: finding.check,
            severity: finding.severity,
            subject: &finding.subject,
            what: &finding.what,
            evidence: &finding.evidence,
            prevents: finding.prevents.as_deref(),
            next: &finding.next,
        }
    }
}

/// Returns the document.
///
/// # Errors
/// The serializer's error.
pub fn to_json(
    heading: &Heading,
    target: &Target,
    findings: &[CrossingFinding],
) -> serde_json::Result<String> {
    let document = PreflightDocument {
        schema: "mco-rescue/preflight/v1",
        node: &heading.node,
        system: &heading.system,
        root: &heading.root,
        target: TargetEntry {
            source: &target.tree.source,
            system: target.os_release.name(),
            kernel: target.kernel.as_deref(),
            architecture: target.tree.architecture.as_deref(),
        },
        findings: findings.iter().map(FindingEntry::of).collect(),
    };
    super::pretty(&document)
}

/// Returns the text.
pub fn to_text(heading: &Heading, target: &Target, findings: &[CrossingFinding]) -> String {
    let name = match target.os_release.name() {
        "" => "an unknown system",
        name => name,
    };
    let mut text = machine_line(heading);
    text += &format!("Image     {} ({})\n", make_inline(name), target.tree.source);
    text += &format!("Result    {}\n", conclude(findings));
    text + &findings_text(findings)
}

/// Returns the findings under the titles of their severities.
pub(super) fn findings_text(findings: &[CrossingFinding]) -> String {
    let mut text = String::new();
    for (severity, title) in [
        (CrossingSeverity::Inhibitor, "Inhibitors"),
        (CrossingSeverity::Cured, "Cured by the run"),
        (CrossingSeverity::Warning, "Warnings"),
        (CrossingSeverity::Unknown, "Not known"),
    ] {
        let of_it: Vec<_> = findings
            .iter()
            .filter(|one| one.severity == severity)
            .collect();
        if of_it.is_empty() {
            continue;
        }
        text += &format!("\n{title}:\n");
        for finding in of_it {
            text += &finding_text(finding);
        }
    }
    text
}

/// Returns the result in a sentence. Findings that only concern the node's files do not stop a run.
fn conclude(findings: &[CrossingFinding]) -> &'static str {
    let mut inhibitors = findings
        .iter()
        .filter(|one| one.severity == CrossingSeverity::Inhibitor)
        .peekable();
    let is_of_image = |one: &CrossingFinding| {
        let mut all = ALL.iter();
        all.any(|check| check.id == one.check && check.is_of_image)
    };
    if findings.is_empty() {
        "No problem was found with this image."
    } else if inhibitors.peek().is_none() {
        "Nothing stops this image."
    } else if inhibitors.any(is_of_image) {
        "The image is not staged until the inhibitors are gone."
    } else {
        "Do not boot this image until the inhibitors are gone."
    }
}

fn finding_text(finding: &CrossingFinding) -> String {
    let mut text = wrap_text(
        &format!(
            "{}: {} [{}]",
            make_inline(&finding.subject),
            make_inline(&finding.what),
            finding.check
        ),
        2,
    );
    for evidence in &finding.evidence {
        let line = format!(
            "{}: {}",
            make_inline(&evidence.place),
            make_inline(&evidence.said)
        );
        text += &wrap_text(&line, 6);
    }
    if let Some(words) = &finding.prevents {
        text += &wrap_text(&format!("Otherwise: {}", make_inline(words)), 6);
    }
    // What is to be done by hand comes first: the last line is a command.
    let steps = finding.next.iter().map(on_node);
    let (by_hand, commands): (Vec<String>, Vec<String>) =
        steps.partition(|step| PrintedCommand::new(step).is_instruction());
    for step in by_hand {
        text += &wrap_text(&step, 6);
    }
    for command in commands {
        text += &format!("{}Next: {}\n", " ".repeat(6), make_inline(&command));
    }
    text
}
