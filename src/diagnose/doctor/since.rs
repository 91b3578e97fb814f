//! The changes since the last good boot: which findings' evidence changed, and which changes no check explains.

use serde::Serialize;

use super::{Diagnosis, DoctorFinding};
use crate::base::order::StableOrder;
use crate::diagnose::recorder::timeline::{TimelineMoment, mentions_name, name_of};
use crate::diagnose::recorder::{Area, Difference};

/// The changes since the last good boot, from the snapshots of the flight recorder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Since {
    /// The last good boot.
    pub good: TimelineMoment,
    /// The differences, most harmful first.
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
    /// The last moment at which it did not exist.
    pub from: TimelineMoment,
    /// The first moment with it.
    pub until: TimelineMoment,
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
    pub from: TimelineMoment,
    /// The first moment after it.
    pub until: TimelineMoment,
}

impl Diagnosis {
    /// Adds the changes since the last good boot. Among findings of equal severity, those with changed evidence move to the
    /// front.
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
        // A stable sort: the order is otherwise unchanged.
        self.findings
            .order_by_key(|finding| (finding.severity, finding.changed.is_none()));
        self.since = Some(since);
    }
}

impl Since {
    /// Returns the differences that no check explains.
    pub fn unexplained_differences(&self) -> impl Iterator<Item = &SinceDifference> {
        let all = self.differences.iter();
        all.filter(|one| one.explained_by.is_empty())
    }
}

/// Returns true if the evidence of a finding names the subject of a difference.
fn is_about(finding: &DoctorFinding, difference: &Difference) -> bool {
    let mut evidence = finding.evidence.iter();
    let names = names_of(difference);
    evidence.any(|fact| {
        let is_named =
            |name: &String| mentions_name(&fact.place, name) || mentions_name(&fact.said, name);
        names.iter().any(is_named)
    })
}

/// Shorter values, such as `1`, also occur in evidence about other things.
const MIN_VALUE: usize = 6;

/// Returns the words by which a check's evidence names a difference: its subject; for versions and configs, their values; for
/// kernel arguments, name and value together.
fn names_of(difference: &Difference) -> Vec<String> {
    let values = [&difference.before, &difference.after]
        .into_iter()
        .flatten();
    let values = values.flat_map(|value| value.split(' '));
    match difference.area {
        Area::CommandLine => values
            .filter(|value| !value.is_empty())
            .map(|value| format!("{}={value}", difference.subject))
            .collect(),
        Area::Versions | Area::Config => values
            .filter(|value| value.len() >= MIN_VALUE && !value.starts_with('#'))
            .map(str::to_owned)
            .collect(),
        area => name_of(area, &difference.subject)
            .map(str::to_owned)
            .into_iter()
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::doctor::{CheckSeverity, Diagnosis};
    use crate::diagnose::recorder::FactChange;

    fn difference(area: Area, subject: &str) -> SinceDifference {
        SinceDifference {
            difference: Difference {
                area,
                subject: subject.to_owned(),
                change: FactChange::Changed,
                before: None,
                after: None,
                harm: 1,
                text: None,
            },
            from: TimelineMoment::now(1),
            until: TimelineMoment::now(2),
            explained_by: Vec::new(),
        }
    }

    #[test]
    fn changed_evidence_comes_first_among_equals() {
        let finding = |id, severity, place: &str| {
            let finding = DoctorFinding::new(severity, "", "").with_evidence(place, "");
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
            good: TimelineMoment::now(0),
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
            .unexplained_differences()
            .map(|one| one.difference.subject.as_str())
            .collect();
        assert_eq!(left, ["/etc/motd"]);
    }

    #[test]
    fn kernel_arguments_versions_and_configs_are_found_by_their_values() {
        let changed = |area, subject: &str, before: &str, after: &str| {
            let mut one = difference(area, subject);
            one.difference.before = Some(before.to_owned());
            one.difference.after = Some(after.to_owned());
            one
        };
        let explained = |place: &str, said: &str, one: SinceDifference| {
            let finding = DoctorFinding::warning("", "").with_evidence(place, said);
            let mut diagnosis = Diagnosis {
                findings: vec![DoctorFinding {
                    id: "FP-18",
                    ..finding
                }],
                checks: Vec::new(),
                since: None,
            };
            diagnosis.put_since(Since {
                good: TimelineMoment::now(0),
                differences: vec![one],
                not_compared: 0,
            });
            diagnosis.findings[0].changed.is_some()
        };
        let pages = || changed(Area::CommandLine, "hugepages", "4", "4 8");
        assert!(explained("the command line", "rw hugepages=8", pages()));
        assert!(!explained("the command line", "rw hugepages=16", pages()));
        assert!(!explained("hugepages", "8", pages()));
        let root = || changed(Area::CommandLine, "root", "", "");
        assert!(!explained("/etc/passwd", "root has no password", root()));
        let wanted = || {
            changed(
                Area::Config,
                "wanted by the cluster",
                "rendered-a-1",
                "rendered-a-2",
            )
        };
        assert!(explained("annotations", "desired: rendered-a-2", wanted()));
        assert!(!explained(
            "annotations",
            "desired: rendered-a-21",
            wanted()
        ));
        let kernel = || changed(Area::Versions, "kernel", "5.14.0-1.el9", "5.14.0-2.el9");
        assert!(explained("/boot", "no modules of 5.14.0-2.el9", kernel()));
        let size = || changed(Area::Versions, "crio program", "1 bytes", "2 bytes");
        assert!(!explained("/usr/bin/crio", "2 bytes", size()));
    }
}
