//! Findings on faults in the node's files, judged by the rules of `doctor`.

use crate::base::invocation::node_path;
use crate::judge::crossing::{CrossingFinding, CrossingSeverity};
use crate::node::fault_group::{FaultGroup, FaultWeight};
use crate::node::platform::Platform;

/// Number of faults of one kind that are listed; the others are only counted.
const SHOWN: usize = 5;

/// Returns the severity of a fault; `None` for one that may be intended.
pub(super) fn severity_of(weight: FaultWeight) -> Option<CrossingSeverity> {
    match weight {
        FaultWeight::Fatal => Some(CrossingSeverity::Inhibitor),
        FaultWeight::Partial => Some(CrossingSeverity::Warning),
        FaultWeight::Harmless => None,
    }
}

/// Returns a finding for each kind of fault that is not harmless, with the place to look at.
pub(super) fn of_groups<K>(node: &Platform, groups: &[FaultGroup<K>]) -> Vec<CrossingFinding> {
    let found = groups.iter().filter_map(|group| {
        let severity = severity_of(group.weight)?;
        Some(look_at(node, group.place(), of_group(severity, group)))
    });
    found.collect()
}

/// Returns the finding for faults of one kind.
pub(super) fn of_group<K>(severity: CrossingSeverity, group: &FaultGroup<K>) -> CrossingFinding {
    let what = to_sentences(group.what, group.means);
    let finding = CrossingFinding::new(severity, group.place(), what);
    let listed = group.faults.iter().take(SHOWN);
    let mut finding = listed.fold(finding, |finding, (place, said)| {
        finding.with_evidence(place, said)
    });
    let more = group.faults.len().saturating_sub(SHOWN);
    if more > 0 {
        finding = finding.with_evidence(group.place(), format!("and {more} more of this kind"));
    }
    CrossingFinding {
        prevents: group.words.clone(),
        ..finding
    }
}

/// Returns what is wrong, and its consequence, as sentences.
pub(super) fn to_sentences(what: &str, means: &str) -> String {
    format!("{what}. {}", means.trim_end_matches('.'))
}

/// Adds the first step for a person to take.
pub(super) fn look_at(node: &Platform, place: &str, finding: CrossingFinding) -> CrossingFinding {
    if node.record.files.contains(place) {
        finding.next("Correct the file in its MachineConfig. Then apply the new rendered config.")
    } else {
        finding.next(format!("ls -l {}", node_path(place)))
    }
}

/// Returns a finding for files that could not be read. Each reason begins with the path.
pub(super) fn note_unseen(
    subject: &str,
    reasons: &[impl std::fmt::Display],
) -> Option<CrossingFinding> {
    let (first, rest) = reasons.split_first()?;
    let first = first.to_string();
    let more = match rest.len() {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let what = format!("not all of it can be read, so it is not judged as a whole: {first}{more}");
    let finding = CrossingFinding::unknown(subject, what);
    let path = first.split_once(": ").map(|(path, _)| path);
    Some(match path.filter(|path| path.starts_with('/')) {
        Some(path) => finding.next(format!("ls -ld {}", node_path(path))),
        None => finding,
    })
}
