//! The changes since the last good boot: which finding's evidence changed, and which changes no check explains.

use serde::Serialize;

use super::{Diagnosis, DoctorFinding};
use crate::recorder::timeline::{Moment, mentions, name_of};
use crate::recorder::{Area, Difference};

/// The changes since the last good boot, from the snapshots of the flight recorder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Since {
    /// The last good boot.
    pub good: Moment,
    /// The differences: those that kill most often first.
    pub differences: Vec<SinceDifference>,
    /// Number of areas that could not be compared.
    pub not_compared: usize,
}

/// A difference from the last good boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SinceDifference {
    /// The difference.
    #[serde(flatten)]
    pub difference: Difference,
    /// The last moment without it.
    pub from: Moment,
    /// The first moment with it.
    pub until: Moment,
    /// The checks with a finding about it.
    pub explained_by: Vec<&'static str>,
}

/// The change of a finding's evidence since the last good boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EvidenceChange {
    /// The kind of the fact.
    pub area: Area,
    /// The subject, such as a path.
    pub subject: String,
    /// The last moment before the change.
    pub from: Moment,
    /// The first moment after it.
    pub until: Moment,
}

impl Diagnosis {
    /// Adds the changes since the last good boot. Among findings of one severity, those whose evidence changed come
    /// first.
    pub fn put_since(&mut self, mut since: Since) {
        for finding in &mut self.findings {
            let about = since
                .differences
                .iter_mut()
                .filter(|one| is_about(finding, &one.difference));
            let mut first = None;
            for one in about {
                if !one.explained_by.contains(&finding.id) {
                    one.explained_by.push(finding.id);
                }
                first.get_or_insert_with(|| EvidenceChange {
                    area: one.difference.area,
                    subject: one.difference.subject.clone(),
                    from: one.from.clone(),
                    until: one.until.clone(),
                });
            }
            finding.changed = first;
        }
        // Stable: the rest of the order stays.
        self.findings
            .sort_by_key(|finding| (finding.severity, finding.changed.is_none()));
        self.since = Some(since);
    }
}

impl Since {
    /// Returns the differences that no check explains.
    pub fn unexplained(&self) -> impl Iterator<Item = &SinceDifference> {
        let all = self.differences.iter();
        all.filter(|one| one.explained_by.is_empty())
    }
}

/// Returns true if the evidence of a finding names the subject of a difference.
fn is_about(finding: &DoctorFinding, difference: &Difference) -> bool {
    let Some(name) = name_of(difference.area, &difference.subject) else {
        return false;
    };
    let mut evidence = finding.evidence.iter();
    evidence.any(|fact| mentions(&fact.place, name) || mentions(&fact.said, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{CheckSeverity, Diagnosis};
    use crate::recorder::Change;

    fn difference(area: Area, subject: &str) -> SinceDifference {
        SinceDifference {
            difference: Difference {
                area,
                subject: subject.to_owned(),
                change: Change::Changed,
                before: None,
                after: None,
                harm: 1,
                text: None,
            },
            from: Moment::now(1),
            until: Moment::now(2),
            explained_by: Vec::new(),
        }
    }

    #[test]
    fn changed_evidence_comes_first_among_equals() {
        let finding = |id, severity, place: &str| {
            let finding = DoctorFinding::new(severity, "", "").seen(place, "");
            DoctorFinding { id, ..finding }
        };
        let mut diagnosis = Diagnosis {
            findings: vec![
                finding("FP-01", CheckSeverity::Critical, "/etc/a"),
                finding("FP-02", CheckSeverity::Critical, "/etc/fstab"),
                finding("FP-03", CheckSeverity::Warning, "/etc/fstab.d/a"),
                finding("FP-04", CheckSeverity::Warning, "kubelet.service"),
            ],
            checks: Vec::new(),
            since: None,
        };
        diagnosis.put_since(Since {
            good: Moment::now(0),
            differences: vec![
                difference(Area::Etc, "/etc/fstab"),
                difference(Area::Units, "kubelet.service"),
                difference(Area::Etc, "/etc/motd"),
            ],
            not_compared: 0,
        });
        let ids: Vec<&str> = diagnosis.findings.iter().map(|one| one.id).collect();
        assert_eq!(ids, ["FP-02", "FP-01", "FP-04", "FP-03"]);
        let since = diagnosis.since.unwrap();
        assert_eq!(since.differences[0].explained_by, ["FP-02"]);
        let left: Vec<&str> = since
            .unexplained()
            .map(|one| one.difference.subject.as_str())
            .collect();
        assert_eq!(left, ["/etc/motd"]);
    }
}
