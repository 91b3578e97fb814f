//! FP-03: files and units that differ from the recorded config.

use crate::base::text::count_noun;
use crate::base::time::format_utc;
use crate::change::transaction::Pending;
use crate::diagnose::doctor::evidence::ConfigComparison;
use crate::diagnose::doctor::{CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, Fact};
use crate::formats::systemd::needed;
use crate::judge::drift::Drift;

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-03",
    title: "the disk differs from the recorded config",
    looks_at: "files, units, keys and links of the recorded config",
    explain: "The daemon compares the disk with the config that the node is recorded to be in, before every update \
and whenever a file changes. A single file edited by hand makes the node Degraded, and its pool stops updating.\n\n\
mco-rescue verify shows every difference with its diff; mco-rescue apply writes back what differs and nothing else. \
If the edit was right, put it into a MachineConfig; otherwise the cluster reverts it at the next update.\n\n\
The daemon's own remedy, /run/machine-config-daemon-force, rewrites everything and always reboots.",
    judge: judge_drift,
};

fn judge_drift(evidence: &DoctorEvidence) -> CheckVerdict {
    if let Some(Pending::Unfinished(config, _)) = evidence.pending.get() {
        // FP-10 reports this, with the next step.
        return CheckVerdict::not_seen(format!(
            "files against the recorded config: a run to {} is unfinished, so some are from before it and some from it",
            config.name
        ));
    }
    let compared = match evidence.compared.seen() {
        Ok(compared) => compared,
        Err(why) => {
            return CheckVerdict::not_seen(format!("files against the recorded config: {why}"));
        }
    };
    let (seen, unseen): (Vec<&Drift>, Vec<&Drift>) = compared
        .drifts
        .iter()
        .filter(|drift| !drift.is_of_the_os())
        .partition(|drift| drift.daemon.is_some());
    let verdict = CheckVerdict::healthy();
    if !seen.is_empty() {
        return verdict.and_findings([degraded_finding(evidence, compared, &seen)]);
    }
    verdict.and_findings((!unseen.is_empty()).then(|| unnoticed_finding(evidence, &unseen)))
}

/// Longest path that a title names whole.
const LONG: usize = 40;

fn degraded_finding(
    evidence: &DoctorEvidence,
    compared: &ConfigComparison,
    seen: &[&Drift],
) -> DoctorFinding {
    let needed = needed_units(seen);
    let what = match (seen, needed.first()) {
        ([one], _) => format!("{} is not as recorded", short_name(&one.subject)),
        (_, Some((unit, _))) => format!(
            "{} recorded files or units differ, including {unit}",
            seen.len()
        ),
        (_, None) => format!("{} files or units are not as recorded", seen.len()),
    };
    let stops: String = needed
        .iter()
        .map(|(unit, stops)| format!(" If {unit} does not work, {stops}."))
        .collect();
    let means = format!(
        "The daemon goes Degraded over the first of these and applies no update until it is fixed.{stops}"
    );
    let own: Vec<Drift> = seen.iter().map(|drift| (*drift).clone()).collect();
    DoctorFinding::warning(what, means)
        .seen_all(seen.iter().map(|drift| as_fact(compared, drift)))
        .with_message(evidence.daemon_verdict(&compared.config, &own))
        .next(format!("mco-rescue verify{}", evidence.at_root()))
        .next(format!("mco-rescue apply{}", evidence.at_root()))
}

/// Returns the differing units that the node needs, each once, with what depends on them.
fn needed_units<'a>(seen: &[&'a Drift]) -> Vec<(&'a str, &'static str)> {
    let mut all: Vec<(&str, &str)> = Vec::new();
    for drift in seen {
        let unit = needed::unit_at(&drift.subject).or(Some(drift.subject.as_str()));
        let needed = unit.and_then(|unit| Some((unit, needed::describe_loss(unit)?)));
        all.extend(needed.filter(|one| !all.contains(one)));
    }
    all
}

/// Returns the name of a unit, or else a path; of a long one the end, from a `/` on.
fn short_name(subject: &str) -> String {
    if let Some(unit) = needed::unit_at(subject) {
        return if subject.ends_with(&format!("/{unit}")) {
            unit.to_owned()
        } else {
            format!("a drop-in of {unit}")
        };
    }
    if subject.len() <= LONG {
        return subject.to_owned();
    }
    let mut ends = subject.match_indices('/').map(|(at, _)| &subject[at..]);
    let end = ends.clone().find(|end| end.len() + 3 <= LONG);
    let end = end.or(ends.next_back());
    format!("...{}", end.unwrap_or(subject))
}

fn unnoticed_finding(evidence: &DoctorEvidence, unseen: &[&Drift]) -> DoctorFinding {
    let what = format!(
        "{} that the daemon does not see",
        count_noun(unseen.len(), "difference")
    );
    let means = "The daemon does not check these, but the node differs from its config.";
    let facts = unseen
        .iter()
        .map(|drift| Fact::new(&drift.subject, &drift.detail));
    DoctorFinding::notice(what, means)
        .seen_all(facts)
        .next(format!("mco-rescue verify{}", evidence.at_root()))
}

fn as_fact(compared: &ConfigComparison, drift: &Drift) -> Fact {
    let changed = compared.changed.iter();
    let at = changed.filter(|(path, _)| path.to_string() == drift.subject);
    let when = at.map(|(_, at)| format!("; changed {}", format_utc(*at)));
    Fact::new(
        &drift.subject,
        format!("{}{}", drift.detail, when.collect::<String>()),
    )
}
