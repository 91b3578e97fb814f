//! The findings about another image, in the plan: those that the run fixes, blockers, and notices.

use std::borrow::Cow;

use super::{Builder, OsPlan, OsStep, Payload, Plan, Section};
use crate::base::invocation::{PrintedCommand, on_node};
use crate::base::kargs::{Kargs, KargsChange};
use crate::base::notice::Notice;
use crate::base::object::{Object, ObjectKind};
use crate::judge::crossing::checks::{self, ARCHITECTURE};
use crate::judge::crossing::{CrossingFinding, CrossingSeverity, Cure};

/// Checks whose inhibitors the user accepted by name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AcceptedRisks(u64);

impl AcceptedRisks {
    /// Adds a check; `None` if there is no check of this name.
    pub fn with_check(self, check: &str) -> Option<Self> {
        let mut all = checks::ALL.iter();
        let place = all.position(|one| one.id == check && one.is_of_image)?;
        Some(Self(self.0 | 1 << place))
    }

    /// Returns true if the inhibitors of a check are accepted.
    pub fn has_check(self, check: &str) -> bool {
        let place = checks::ALL.iter().position(|one| one.id == check);
        place.is_some_and(|place| self.0 & (1 << place) != 0)
    }
}

impl Builder<'_> {
    /// Plans the files that fix findings.
    pub(super) fn cure_files(&mut self) {
        let findings = self.inputs.crossing;
        for finding in findings {
            for cure in &finding.cures {
                let Cure::PutFile { path, mode, bytes } = cure else {
                    continue;
                };
                let (uid, gid) = self.node().host.attainable_owner((0, 0));
                let new = Object::new(
                    ObjectKind::File {
                        size: bytes.len() as u64,
                        sha256: crate::host::root::sha256_hex(bytes).into(),
                    },
                    *mode,
                    (uid, gid),
                );
                let payload = Payload::Bytes(bytes.clone());
                let why = format!("cures {}: {}", finding.check, finding.subject);
                self.put_object(path, new, payload, Section::Files, why);
            }
        }
    }
}

/// Returns the changes of kernel arguments that fix findings.
pub(super) fn cure_arguments(findings: &[CrossingFinding]) -> Vec<KargsChange> {
    let mut changes = Vec::new();
    for cure in findings.iter().flat_map(|finding| &finding.cures) {
        match cure {
            Cure::AppendArguments(words) => {
                changes.extend(words.iter().cloned().map(KargsChange::Append));
            }
            Cure::DeleteArguments(words) => {
                changes.extend(words.iter().cloned().map(KargsChange::Delete));
            }
            Cure::PutFile { .. } => {}
        }
    }
    changes
}

/// Adds the changes of kernel arguments that fix findings when an image is staged without a config.
pub(super) fn add_arguments(plan: &mut OsPlan, findings: &[CrossingFinding], present: &Kargs) {
    plan.cures = cure_arguments(findings);
    let changes = present.changes_to(&plan.wanted_arguments(present));
    if !changes.is_empty() {
        let changes = changes.iter().map(KargsChange::command_option).collect();
        plan.steps.push(OsStep::Arguments { changes });
    }
}

/// Adds the findings to a plan. Without `writes_files` the run cannot write files, so a finding that needs one becomes a
/// blocker.
pub(super) fn add_findings(
    plan: &mut Plan,
    findings: &[CrossingFinding],
    accepted: AcceptedRisks,
    writes_files: bool,
) {
    // Without any action there is nothing to refuse: the image is already staged.
    let acts = !plan.is_empty();
    for finding in findings {
        // The doubt about the architecture has its own option.
        if finding.check == ARCHITECTURE {
            continue;
        }
        let needs_file = |cure: &Cure| matches!(cure, Cure::PutFile { .. });
        let blocks = match finding.severity {
            CrossingSeverity::Inhibitor => true,
            CrossingSeverity::Cured => !writes_files && finding.cures.iter().any(needs_file),
            CrossingSeverity::Warning | CrossingSeverity::Unknown => false,
        };
        let blocks = blocks && acts;
        let waits = !acts && finding.severity <= CrossingSeverity::Cured;
        let message = describe_finding(finding, blocks || waits);
        let check = finding.check;
        if blocks && !accepted.has_check(check) {
            plan.blockers.push(Notice::new(
                finding.subject.clone(),
                format!("{message}. To continue anyway: --accept-risk {check}"),
            ));
        } else {
            let suffix = match (blocks, finding.severity) {
                (true, _) => Cow::Owned(format!(". Accepted (--accept-risk {check})")),
                _ if waits => Cow::Borrowed(". Reboot only after that"),
                (false, CrossingSeverity::Cured) => Cow::Borrowed(". This run cures it"),
                _ => Cow::Borrowed(""),
            };
            plan.notices.push(Notice::new(
                finding.subject.clone(),
                format!("{message}{suffix}"),
            ));
        }
    }
}

/// Returns the finding as sentences.
fn describe_finding(finding: &CrossingFinding, blocks: bool) -> String {
    let mut text = finding.what.trim_end_matches('.').to_owned();
    let evidence = finding.evidence.iter();
    let evidence: Vec<String> = evidence
        .map(|one| format!("{}: {}", one.place, one.said))
        .collect();
    if !evidence.is_empty() {
        text += &format!(" ({})", evidence.join("; "));
    }
    if let Some(words) = &finding.prevents {
        text += &format!(". Otherwise: {words}");
    }
    if blocks || finding.severity != CrossingSeverity::Cured {
        let next = finding.next.iter().map(|next| on_node(next.as_str()));
        let (words, commands): (Vec<_>, Vec<_>) =
            next.partition(|next| PrintedCommand::new(next.as_str()).is_instruction());
        for words in words {
            text += &format!(". {}", words.trim_end_matches('.'));
        }
        if !commands.is_empty() {
            text += &format!(". Next: {}", commands.join(", then "));
        }
    }
    text
}
