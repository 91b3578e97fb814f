//! Checks that delegate to the checks of `preflight`, which make the judgment; here it only gets a severity and a name.

use crate::diagnose::doctor::crossing::{CrossingEvidence, CrossingMoment};
use crate::diagnose::doctor::{
    CheckSeverity, CheckVerdict, DoctorEvidence, DoctorFinding, Fact, WHAT,
};
use crate::judge::crossing::{self, CrossingFinding, CrossingSeverity};

/// A check of `doctor` with the checks of `preflight` that do its work.
struct Door {
    id: &'static str,
    checks: &'static [&'static str],
    /// True if it also judges the running system, so that missing evidence matters even if no other system is staged.
    of_present: bool,
}

/// The `preflight` checks behind each `doctor` check.
const DOORS: [Door; 10] = [
    door("FP-08", &["container-runtime"], false),
    door("FP-35", &["interface-names", "legacy-connections"], false),
    door("FP-36", &["container-runtime"], false),
    door("FP-37", &["boot-loader", "boot-entries"], true),
    door("FP-38", &["cpu-level"], false),
    door("FP-42", &["boot-filesystem"], true),
    door("FP-43", &["kernel-arguments"], false),
    door("FP-56", &["secure-boot"], true),
    door("FP-57", &["encrypted-root"], true),
    door("FP-58", &["multipath"], true),
];

const fn door(id: &'static str, checks: &'static [&'static str], of_present: bool) -> Door {
    Door {
        id,
        checks,
        of_present,
    }
}

/// The severity and the name that a check gives a finding of `preflight`; `None` if the finding is not a problem of the node.
pub(super) type Weighed = Option<(CheckSeverity, String)>;

/// Returns the verdict of a delegating check. `weigh` gets each finding of its checks that is not
/// [`CrossingSeverity::Unknown`].
pub(super) fn judge_door(
    evidence: &DoctorEvidence,
    id: &str,
    weigh: impl Fn(&CrossingFinding, &CrossingEvidence) -> Weighed,
) -> CheckVerdict {
    let seen = match evidence.crossing.seen() {
        Ok(Some(seen)) => seen,
        Ok(None) => return CheckVerdict::healthy(),
        Err(why) => return CheckVerdict::not_seen(format!("the next operating system: {why}")),
    };
    let Some(door) = DOORS.iter().find(|door| door.id == id) else {
        return CheckVerdict::healthy();
    };
    let found = crossing::judge_some(&seen.target, &seen.node, |check| {
        door.checks.contains(&check)
    });
    let mut verdict = CheckVerdict::healthy();
    for finding in &found {
        if finding.severity == CrossingSeverity::Unknown {
            if door.of_present || seen.moment != CrossingMoment::Present {
                verdict = verdict.and_unseen(format!("{}: {}", finding.subject, finding.what));
            }
        } else if let Some((severity, what)) = weigh(finding, seen) {
            verdict = verdict.and_findings([as_finding(finding, seen, severity, what)]);
        }
    }
    verdict
}

fn as_finding(
    finding: &CrossingFinding,
    seen: &CrossingEvidence,
    severity: CheckSeverity,
    what: String,
) -> DoctorFinding {
    let facts = finding.evidence.iter();
    let facts = facts.map(|one| Fact::new(one.place.clone(), one.said.clone()));
    let mut made = DoctorFinding::new(severity, what, as_sentence(&finding.what)).seen_all(facts);
    if let CrossingMoment::Next { name, .. } = &seen.moment {
        made = made.with_evidence("the deployment of the next boot", name);
    }
    made = made.with_message(finding.prevents.clone());
    made.next = finding.next.clone();
    // A way to boot if the node has to be rebooted before the cure.
    if severity == CheckSeverity::Critical
        && matches!(seen.moment, CrossingMoment::Next { staged: true, .. })
    {
        made = made.next("rpm-ostree cleanup --pending");
    }
    made
}

/// Returns the text as a sentence.
fn as_sentence(words: &str) -> String {
    let mut letters = words.chars();
    let first = letters.next().map(|letter| letter.to_uppercase());
    let rest = letters.as_str().trim_end_matches('.');
    format!(
        "{}{rest}.",
        first.map(String::from_iter).unwrap_or_default()
    )
}

/// Returns `SUBJECT: TEXT` if that fits on a line, otherwise only the text.
pub(super) fn with_subject(subject: &str, words: &str) -> String {
    let whole = format!("{subject}: {words}");
    if whole.chars().count() <= WHAT {
        whole
    } else {
        words.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::DOORS;
    use crate::diagnose::doctor::checks::CHECKS;
    use crate::judge::crossing::checks::ALL;

    #[test]
    fn both_sides_of_each_door_exist() {
        for door in &DOORS {
            assert!(
                CHECKS.iter().any(|check| check.id == door.id),
                "{}",
                door.id
            );
            for id in door.checks {
                assert!(ALL.iter().any(|check| check.id == *id), "{id}");
            }
        }
    }
}
