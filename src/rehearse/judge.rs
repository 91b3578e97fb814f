//! Compares the rehearsal of the next boot with one of what runs now: only what is new is a finding. Pure.

use std::collections::BTreeMap;

use super::facts::{RehearsalEnd, RehearsedBoot, UnitFacts, place_of_fault};
use super::scene::WRITABLE;
use crate::base::order::StableOrder;
use crate::judge::crossing::{CrossingFinding, CrossingSeverity};
use crate::node::fault_group::FaultWeight;
use crate::node::service_configs::BrokenConfig;

/// Units without which the node is unreachable, or not a node of its cluster.
pub const VITAL: [&str; 17] = [
    "sysinit.target",
    "basic.target",
    "local-fs.target",
    "multi-user.target",
    "network.target",
    "network-online.target",
    "sshd.service",
    "ssh.service",
    "sshd.socket",
    "kubelet.service",
    "crio.service",
    "NetworkManager.service",
    "dbus.service",
    "dbus-broker.service",
    "systemd-logind.service",
    "systemd-journald.service",
    "systemd-user-sessions.service",
];
/// Questions whose failure leaves the node out of reach, or without containers.
const VITAL_PROBES: [&str; 3] = ["sshd", "login", "crio"];

/// Judges the boot. `baseline` is the rehearsal of what runs now.
pub fn judge_boot(baseline: &RehearsedBoot, next: &RehearsedBoot) -> Vec<CrossingFinding> {
    let mut findings = Vec::new();
    findings.extend(judge_end(baseline, next));
    findings.extend(judge_space(baseline, next));
    findings.extend(judge_units(baseline, next));
    findings.extend(judge_missing(baseline, next));
    findings.extend(judge_probes(baseline, next));
    findings.extend(judge_files(baseline, next));
    findings.extend(judge_complaints(baseline, next, &findings));
    findings.order_by_key(|finding| finding.severity);
    findings
}

fn is_vital(name: &str) -> bool {
    VITAL.contains(&name)
}

/// Returns a finding of a check of the rehearsal.
pub(super) fn rehearsal_finding(
    check: &'static str,
    severity: CrossingSeverity,
    subject: &str,
    what: impl Into<String>,
) -> CrossingFinding {
    CrossingFinding {
        check,
        ..CrossingFinding::new(severity, subject, what)
    }
}

fn judge_end(baseline: &RehearsedBoot, next: &RehearsedBoot) -> Option<CrossingFinding> {
    use CrossingSeverity::{Inhibitor, Unknown};
    let waits_for_network = |name: &String| {
        let unit = next.units.get(name);
        unit.is_some_and(|unit| unit.needs_network)
    };
    let (what, units) = match &next.end {
        RehearsalEnd::Started => return None,
        RehearsalEnd::Emergency => (
            "it ends in emergency mode, without a login by ssh".to_owned(),
            &[][..],
        ),
        RehearsalEnd::StillStarting(units) if units.is_empty() => {
            ("it does not finish in time".to_owned(), &[][..])
        }
        RehearsalEnd::StillStarting(units) => (
            format!(
                "it does not finish in time: it waits for {}",
                units.join(", ")
            ),
            units.as_slice(),
        ),
        RehearsalEnd::Ended => ("systemd ends, or cannot begin".to_owned(), &[][..]),
    };
    let (severity, why) = if baseline.end != RehearsalEnd::Started {
        (
            Unknown,
            ". What runs now does not finish its rehearsal either, so this shows little",
        )
    } else if !units.is_empty() && units.iter().all(waits_for_network) {
        (
            Unknown,
            ". It asks for the network, which a rehearsal does not have",
        )
    } else {
        (Inhibitor, "")
    };
    let mut found = rehearsal_finding("boot", severity, "the boot", what + why);
    for line in next.complaints.difference(&baseline.complaints).take(5) {
        found = found.with_evidence("console", line);
    }
    Some(units.iter().take(3).fold(found, |found, unit| {
        found.next(format!("systemctl cat {unit}"))
    }))
}

/// Says that a boot wrote more than there is memory for. A real disk has more.
fn judge_space(baseline: &RehearsedBoot, next: &RehearsedBoot) -> Option<CrossingFinding> {
    let boot = match (baseline.is_full, next.is_full) {
        (_, true) => "the boot",
        (true, false) => "the current boot",
        (false, false) => return None,
    };
    let what = format!(
        "it writes more than the {} MiB that a rehearsal holds: what fails may fail because of that",
        WRITABLE >> 20
    );
    Some(rehearsal_finding(
        "boot",
        CrossingSeverity::Unknown,
        boot,
        what,
    ))
}

fn judge_units(baseline: &RehearsedBoot, next: &RehearsedBoot) -> Vec<CrossingFinding> {
    let missing = UnitFacts::default();
    let mut findings = Vec::new();
    for (name, unit) in &next.units {
        let before = baseline.units.get(name).unwrap_or(&missing);
        if unit.has_failed() && !before.has_failed() {
            findings.push(judge_failed(name, unit, next));
        } else if unit.is_refused() && !before.is_refused() {
            let what = "systemd refuses this unit: it never starts";
            let mut found = rehearsal_finding("units", severity_of(name), name, what);
            for line in next
                .complaints
                .iter()
                .filter(|line| line.contains(name.as_str()))
                .take(3)
            {
                found = found.with_evidence("console", line);
            }
            findings.push(found.next(format!("systemd-analyze verify {name}")));
        }
    }
    // After an end before everything is started, a unit that was not started says nothing.
    let all = (next.end == RehearsalEnd::Started).then_some(&baseline.units);
    for (name, before) in all.into_iter().flatten() {
        let after = next.units.get(name).unwrap_or(&missing);
        let is_lost = before.is_active() && !after.is_active() && !after.has_failed();
        // A unit that is still starting is part of another finding.
        if is_lost && is_vital(name) && after.active != "activating" && !after.is_refused() {
            let what = "it is started today, and is not started in this boot";
            let state = match after.load.as_str() {
                "" | "not-found" => "there is no such unit".to_owned(),
                _ if after.is_skipped => "a condition of the unit is not met".to_owned(),
                load => format!("{load}, {}", after.active),
            };
            let found = rehearsal_finding("units", CrossingSeverity::Inhibitor, name, what);
            findings.push(
                found
                    .with_evidence("systemctl show", state)
                    .next(format!("systemctl cat {name}")),
            );
        }
    }
    findings
}

fn severity_of(name: &str) -> CrossingSeverity {
    if is_vital(name) {
        CrossingSeverity::Inhibitor
    } else {
        CrossingSeverity::Warning
    }
}

/// The system's words for a full file system.
const NO_SPACE: &str = "No space left on device";

fn judge_failed(name: &str, unit: &UnitFacts, next: &RehearsedBoot) -> CrossingFinding {
    let how = match unit.status.as_str() {
        "" | "0" => unit.result.clone(),
        status => format!("{}, status {status}", unit.result),
    };
    let vital = is_vital(name);
    let mut log = next.logs.get(name).into_iter().flatten();
    let (severity, what) = if log.any(|line| line.contains(NO_SPACE)) {
        let holds = WRITABLE >> 20;
        (
            CrossingSeverity::Unknown,
            format!(
                "it fails ({how}) for lack of space, and a rehearsal holds only {holds} MiB of files"
            ),
        )
    } else if unit.needs_network && !vital {
        (
            CrossingSeverity::Unknown,
            format!("it fails ({how}); it asks for the network, which a rehearsal does not have"),
        )
    } else {
        (severity_of(name), format!("it fails ({how})"))
    };
    let mut found = rehearsal_finding("units", severity, name, what);
    for line in next.logs.get(name).into_iter().flatten() {
        found = found.with_evidence("journal", line);
    }
    found.next(format!("systemctl cat {name}"))
}

fn judge_missing(baseline: &RehearsedBoot, next: &RehearsedBoot) -> Vec<CrossingFinding> {
    let new = next.missing.difference(&baseline.missing);
    let find = |(program, unit): &(String, String)| {
        let severity = severity_of(unit);
        rehearsal_finding(
            "programs",
            severity,
            unit,
            format!("it starts {program}, which is missing"),
        )
        .next(format!("systemctl cat {unit}"))
    };
    new.map(find).collect()
}

fn judge_probes(baseline: &RehearsedBoot, next: &RehearsedBoot) -> Vec<CrossingFinding> {
    let mut findings = Vec::new();
    for probe in &next.probes {
        let Some(said) = &probe.failed else { continue };
        let was_bad = |one: &super::facts::ProbeFacts| one.id == probe.id && one.failed.is_some();
        if baseline.probes.iter().any(was_bad) {
            continue;
        }
        let severity = if VITAL_PROBES.contains(&probe.id) {
            CrossingSeverity::Inhibitor
        } else {
            CrossingSeverity::Warning
        };
        let (what, next) = match probe.id {
            "sshd" => ("sshd refuses its configuration: no login by ssh", "sshd -t"),
            "login" => (
                "a session of core cannot be opened: no login by ssh",
                "getent passwd core",
            ),
            "sudo" => (
                "sudo refuses its configuration: core cannot become root",
                "visudo -c",
            ),
            "chrony" => ("chronyd refuses its configuration", "chronyd -p"),
            "network-manager" => (
                "NetworkManager refuses its configuration",
                "NetworkManager --print-config",
            ),
            _ => (
                "CRI-O refuses its configuration: no pod starts",
                "crio config",
            ),
        };
        let mut found = rehearsal_finding("configuration", severity, probe.id, what);
        for line in said
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .take(4)
        {
            found = found.with_evidence(next, line);
        }
        findings.push(found.next(next));
    }
    findings
}

/// Judges the files of services that do not really run.
fn judge_files(baseline: &RehearsedBoot, next: &RehearsedBoot) -> Vec<CrossingFinding> {
    let all = next.refused_files.iter();
    let new = all.filter(|one| !baseline.refused_files.contains(one));
    let find = |one: &BrokenConfig| {
        let effect = one.service.reject_effect();
        let severity = match effect.weight {
            FaultWeight::Fatal => CrossingSeverity::Inhibitor,
            FaultWeight::Partial | FaultWeight::Harmless => CrossingSeverity::Warning,
        };
        rehearsal_finding("configuration", severity, &one.place, effect.what)
            .with_evidence(&one.place, &one.said)
            .next(CORRECT)
    };
    new.map(find).collect()
}

/// The next step for a file that its service rejects.
const CORRECT: &str = "Correct the file in its MachineConfig.";

/// Judges what systemd says beyond the states of units. Messages about a unit that has a finding are evidence of that.
fn judge_complaints(
    baseline: &RehearsedBoot,
    next: &RehearsedBoot,
    found: &[CrossingFinding],
) -> Vec<CrossingFinding> {
    let is_told = |line: &str| found.iter().any(|one| line.contains(&one.subject));
    let is_kept = |line: &&String| !is_told(line) && !line.contains("Found ordering cycle");
    let new = next.complaints.difference(&baseline.complaints);
    let mut by_unit: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for line in new.filter(is_kept) {
        by_unit.entry(unit_of(line)).or_default().push(line);
    }
    let judge = |(unit, lines): (String, Vec<&str>)| {
        let has = |words: &str| lines.iter().any(|line| line.contains(words));
        let (check, severity, what) = if has("deleted to break ordering cycle") {
            let what = "its start is dropped, because units wait for each other in a cycle";
            ("units", severity_of(&unit), what)
        } else if has("bad unit file setting") || has("Refusing") || has("refusing") {
            let what = "systemd refuses this unit: it never starts";
            ("units", severity_of(&unit), what)
        } else {
            let what = "a message that does not appear today";
            ("messages", CrossingSeverity::Warning, what)
        };
        let mut found = rehearsal_finding(check, severity, &unit, what);
        for line in lines.into_iter().take(4) {
            found = found.with_evidence("console", line);
        }
        match unit.as_str() {
            SYSTEMD => found,
            file if file.starts_with('/') => found.next(CORRECT),
            unit => found.next(format!("systemd-analyze verify {unit}")),
        }
    };
    by_unit.into_iter().map(judge).collect()
}

/// The subject of a message about no unit.
const SYSTEMD: &str = "systemd";

/// Returns the unit of a message: of the dropped job, else the one that the message begins with, as a name or as the path of its
/// file. For a line of another file it is the path of that.
fn unit_of(line: &str) -> String {
    if line.contains("deleted to break ordering cycle") {
        let job = line.split("Job ").nth(1).unwrap_or_default();
        return job.split('/').next().unwrap_or_default().to_owned();
    }
    let subject = line.split(':').next().unwrap_or_default();
    let name = subject.rsplit('/').next().unwrap_or_default();
    let is_unit = KINDS.iter().any(|kind| name.ends_with(kind));
    let other = place_of_fault(line).unwrap_or(SYSTEMD);
    if is_unit { name } else { other }.to_owned()
}

/// Endings of the names of units.
const KINDS: [&str; 8] = [
    ".service",
    ".socket",
    ".mount",
    ".automount",
    ".target",
    ".timer",
    ".path",
    ".slice",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rehearse::facts::ProbeFacts;

    fn boot(units: &[(&str, &str)]) -> RehearsedBoot {
        let unit = |active: &str| UnitFacts {
            load: "loaded".into(),
            active: active.into(),
            ..UnitFacts::default()
        };
        let units = units
            .iter()
            .map(|(name, active)| ((*name).to_owned(), unit(active)));
        RehearsedBoot {
            units: units.collect(),
            ..RehearsedBoot::without_units(RehearsalEnd::Started, Default::default())
        }
    }

    #[test]
    fn what_fails_today_too_is_not_a_finding() {
        let broken = boot(&[("a.service", "failed"), ("sshd.service", "active")]);
        assert_eq!(judge_boot(&broken, &broken), []);
    }

    #[test]
    fn a_login_that_is_lost_inhibits_and_another_failure_warns() {
        let now = boot(&[("a.service", "active"), ("sshd.service", "active")]);
        let next = boot(&[("a.service", "failed"), ("sshd.service", "inactive")]);
        let found = judge_boot(&now, &next);
        let seen: Vec<_> = found
            .iter()
            .map(|one| (one.severity, one.subject.as_str()))
            .collect();
        assert_eq!(
            seen,
            [
                (CrossingSeverity::Inhibitor, "sshd.service"),
                (CrossingSeverity::Warning, "a.service")
            ]
        );
    }

    #[test]
    fn a_service_that_asks_for_the_network_is_not_judged() {
        let now = boot(&[]);
        let mut next = boot(&[("a.service", "failed")]);
        next.units.get_mut("a.service").unwrap().needs_network = true;
        assert_eq!(
            judge_boot(&now, &next)[0].severity,
            CrossingSeverity::Unknown
        );
    }

    #[test]
    fn what_a_rehearsal_has_no_space_for_is_not_judged() {
        let mut next = boot(&[("a.service", "failed"), ("b.service", "failed")]);
        let said = "dd: error writing '/var/a': No space left on device".to_owned();
        next.logs.insert("a.service".to_owned(), vec![said]);
        next.is_full = true;
        let found = judge_boot(&boot(&[]), &next);
        let seen: Vec<_> = found
            .iter()
            .map(|one| (one.severity, one.subject.as_str()))
            .collect();
        assert_eq!(
            seen,
            [
                (CrossingSeverity::Warning, "b.service"),
                (CrossingSeverity::Unknown, "the boot"),
                (CrossingSeverity::Unknown, "a.service"),
            ]
        );
        assert_eq!(judge_boot(&next, &boot(&[]))[0].subject, "the current boot");
    }

    #[test]
    fn a_dropped_job_is_named_with_its_unit_and_the_cycle_only_once() {
        let mut next = boot(&[]);
        next.complaints = [
            "sysinit.target: Found ordering cycle on a.service/start",
            "sysinit.target: Job a.service/start deleted to break ordering cycle starting with sysinit.target/start",
        ]
        .map(str::to_owned)
        .into();
        let found = judge_boot(&boot(&[]), &next);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].subject, "a.service");
    }

    #[test]
    fn messages_about_a_unit_are_one_finding_of_that_unit() {
        let mut next = boot(&[]);
        next.complaints = [
            "data.mount: Where= setting doesn't match unit name. Refusing.",
            "data.mount: Cannot add dependency job, ignoring: Unit data.mount has a bad unit file setting.",
            "/etc/systemd/system/a.timer:2: Failed to parse calendar specification, ignoring: someday",
            "/etc/systemd/system-generators/60-site failed with exit status 1.",
            "/etc/tmpfiles.d/site.conf:1: Unknown command type '?'.",
        ]
        .map(str::to_owned)
        .into();
        let found = judge_boot(&boot(&[]), &next);
        let seen: Vec<_> = found
            .iter()
            .map(|one| (one.check, one.subject.as_str()))
            .collect();
        assert_eq!(
            seen,
            [
                ("messages", "/etc/tmpfiles.d/site.conf"),
                ("messages", "a.timer"),
                ("units", "data.mount"),
                ("messages", "systemd")
            ]
        );
    }

    #[test]
    fn a_probe_that_fails_only_in_the_next_boot_is_a_finding() {
        let probe = |failed: Option<&str>| ProbeFacts {
            id: "sshd",
            failed: failed.map(str::to_owned),
        };
        let (mut now, mut next) = (boot(&[]), boot(&[]));
        next.probes = vec![probe(Some("line 7: Bad configuration option"))];
        now.probes = vec![probe(None)];
        assert_eq!(
            judge_boot(&now, &next)[0].severity,
            CrossingSeverity::Inhibitor
        );
        now.probes = next.probes.clone();
        assert_eq!(judge_boot(&now, &next), []);
    }
}
