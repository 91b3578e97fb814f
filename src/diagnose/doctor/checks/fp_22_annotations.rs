//! FP-22: the node's annotations, or the file that they are created from, are lost or incomplete.

use crate::base::paths;
use crate::base::reason::Reason;
use crate::diagnose::doctor::{
    CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, FixChange, messages,
};
use crate::judge::daemon::start::{Annotation, PREFIX, StartAnnotations};
use crate::node::Recorded;

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-22",
    title: "the node's annotations are lost or incomplete",
    looks_at: "node-annotations.json, its backup copy, the record, and the API's last answer",
    explain: "The daemon uses annotations of the Node object: currentConfig, desiredConfig. A Node that was deleted \
and created again has none. Then the daemon reads them from /etc/machine-config-daemon/node-annotations.json, which it \
renamed after the first boot to node-annotation.json.bak (without the s); without it from currentconfig, which gives \
only some of them.\n\n\
While node-annotations.json exists the daemon treats every boot as the first one and ignores currentconfig.\n\n\
mco-rescue status --for-cluster prints the commands that correct the annotations once the API is back. mco-rescue \
apply rewrites the record.",
    judge: judge_annotations,
};

fn judge_annotations(evidence: &DoctorEvidence) -> CheckVerdict {
    let verdict = CheckVerdict::healthy().and_findings(find_predicted_stop(evidence));
    if !verdict.findings.is_empty() {
        return verdict;
    }
    match evidence.upkeep.annotations.seen() {
        Ok(Some(Ok(annotations))) => {
            verdict.and_findings(find_incomplete_annotations(evidence, annotations))
        }
        Ok(Some(Err(why))) => verdict.and_findings([report_unreadable(evidence, why)]),
        Ok(None) => verdict.and_findings(no_record(evidence)),
        Err(why) => verdict.and_unseen(format!("node-annotations.json: {why}")),
    }
}

fn annotations_file() -> String {
    format!("/{}", paths::NODE_ANNOTATIONS)
}

/// Returns the change that moves the file aside again, as the daemon did after the first boot: then it uses the record.
fn put_away(evidence: &DoctorEvidence) -> Option<FixChange> {
    let records = evidence.records.get()?;
    let is_over = records.first_boot_over && records.recorded_config().is_some();
    is_over.then(|| FixChange::move_aside(annotations_file()))
}

/// Reports missing annotations with the daemon's expected message, if the annotations are known.
fn find_predicted_stop(evidence: &DoctorEvidence) -> Option<DoctorFinding> {
    let branch = evidence.forecast.as_ref()?.branches.first()?;
    let says = branch.prediction.error.as_ref()?;
    let means = "The daemon does not know the node's config, and stays Degraded.";
    (branch.known && says.contains(messages::NO_ANNOTATION)).then(|| {
        DoctorFinding::critical("the Node lacks the daemon's annotations", means)
            .with_evidence("the Node, as far as known", says)
            .with_message(Some(says.clone()))
            .next(format!(
                "mco-rescue status{} --for-cluster",
                evidence.at_root()
            ))
            .fixed_by(put_away(evidence).filter(|_| lacks_annotations(evidence)))
    })
}

/// Returns true if the daemon would read its annotations from the file, and one is missing there.
fn lacks_annotations(evidence: &DoctorEvidence) -> bool {
    let file = evidence.upkeep.annotations.get();
    let file = file.and_then(|file| file.as_ref()?.as_ref().ok());
    file.is_some_and(|file| {
        [&file.current, &file.desired]
            .into_iter()
            .any(|one| *one == Annotation::Absent)
    })
}

fn report_unreadable(evidence: &DoctorEvidence, why: &Reason) -> DoctorFinding {
    let means = "The daemon treats this boot as the first one, but cannot read its annotations. It stays \
Degraded.";
    DoctorFinding::critical("node-annotations.json cannot be read", means)
        .with_evidence(annotations_file(), why.to_string())
        .next(format!(
            "cat {}",
            evidence.shell_path(paths::NODE_ANNOTATIONS)
        ))
        .next(format!(
            "mco-rescue status{} --for-cluster",
            evidence.at_root()
        ))
        .fixed_by(put_away(evidence))
}

fn find_incomplete_annotations(
    evidence: &DoctorEvidence,
    annotations: &StartAnnotations,
) -> Option<DoctorFinding> {
    let pairs = [
        ("currentConfig", &annotations.current),
        ("desiredConfig", &annotations.desired),
    ];
    let mut absent = pairs
        .iter()
        .filter(|(_, value)| **value == Annotation::Absent);
    if let Some((key, _)) = absent.next() {
        return Some(report_absent(evidence, key));
    }
    let record = evidence.recorded_name()?;
    let Annotation::Is(current) = &annotations.current else {
        return None;
    };
    let means = "While node-annotations.json exists the daemon ignores currentconfig and rewrites it from the API.";
    (record != *current).then(|| {
        DoctorFinding::warning("the record is ignored; another config is used", means)
            .with_evidence(annotations_file(), current)
            .with_evidence(format!("/{}", paths::CURRENT_CONFIG), &record)
            .next(format!("mco-rescue status{}", evidence.at_root()))
            .next(format!("mco-rescue apply{}", evidence.at_root()))
            .fixed_by(put_away(evidence))
    })
}

fn report_absent(evidence: &DoctorEvidence, key: &str) -> DoctorFinding {
    let means = "The daemon reads the annotations from this file, and this one is missing. It stays Degraded.";
    let finding = DoctorFinding::critical(format!("node-annotations.json has no {key}"), means);
    finding
        .with_evidence(
            annotations_file(),
            format!("{PREFIX}{key} is missing or empty"),
        )
        .with_message(Some(format!(
            "{PREFIX}{key} {} on node",
            messages::NO_ANNOTATION
        )))
        .next(format!(
            "mco-rescue status{} --for-cluster",
            evidence.at_root()
        ))
        .fixed_by(put_away(evidence))
}

fn no_record(evidence: &DoctorEvidence) -> Option<DoctorFinding> {
    let records = evidence.records.get()?;
    let gone = matches!(records.current_config, Recorded::Missing) && records.first_boot_over;
    let means = "No file on the disk names the node's config. The daemon uses the annotations of the Node \
object. If that object is created again, the config is unknown.";
    gone.then(|| {
        DoctorFinding::warning("the daemon's record is missing", means)
            .with_evidence(format!("/{}", paths::CURRENT_CONFIG), "missing")
            .with_evidence(
                format!("/{}", paths::NODE_ANNOTATIONS_KEPT),
                "the first boot is over",
            )
            .next(format!("mco-rescue plan{} CONFIG", evidence.at_root()))
            .next(format!("mco-rescue apply{} CONFIG", evidence.at_root()))
    })
}
