//! FP-25: units that cannot be loaded or enabled, and needed services that failed.

use crate::base::invocation::shell_word;
use crate::base::order::StableOrder;
use crate::base::paths;
use crate::diagnose::doctor::{
    CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, Fact, FixChange,
    messages,
};
use crate::formats::systemd::{JudgedUnit, Objection};
use crate::judge::drift::{Drift, DriftKind};
use crate::node::command::systemctl::ActiveState;
use crate::node::unit_links::{UnitLink, Wrong};

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-25",
    title: "units that cannot be loaded or enabled",
    looks_at: "links, units and drop-ins in /etc/systemd/system; kubelet, crio, NetworkManager",
    explain: "The daemon enables all units of an update with one systemctl enable. It stops at a unit whose link leads \
nowhere, at links that lead to each other, and at a file in place of a link. Then no unit of the update is enabled (\"error enabling units\").\n\n\
Units and enablement that differ from the config are reported as FP-03: mco-rescue apply corrects both with \
links alone, also on a disk whose systemd does not run. The files reported here belong to no config: check and remove \
them, then systemctl daemon-reload.\n\n\
A unit that systemd refuses never starts: a mount whose name does not fit its Where=, a service without ExecStart= or with two, a \
timer without a time, a unit that requires one that does not exist, a mount below a directory that / of an OSTree system lacks. The daemon applies it and calls the node up to date. If local-fs.target requires it, \
the next boot ends in emergency mode; if another target of the boot does, it does not come up. Disable the unit before the reboot, and correct it in its MachineConfig. The rules are those of systemd; \
systemd-analyze verify FILE gives its own words.",
    judge: judge_units,
};

/// systemctl's message for a cycle of links.
const ELOOP: &str = "Too many levels of symbolic links";
/// Services that the node cannot work without.
const NEEDED: [&str; 3] = ["kubelet.service", "crio.service", "NetworkManager.service"];

fn judge_units(evidence: &DoctorEvidence) -> CheckVerdict {
    let verdict = CheckVerdict::healthy()
        .and_findings(find_failed_units(evidence))
        .and_findings(find_disabled_kubelet(evidence))
        .and_findings(find_stopped_kubelet(evidence));
    let verdict = match evidence.upkeep.judged_units.seen() {
        Ok(units) => verdict
            .and_findings(find_refused_units(evidence, units))
            .and_findings(find_ignored_settings(evidence, units)),
        Err(why) => verdict.and_unseen(format!("units that systemd refuses: {why}")),
    };
    match evidence.upkeep.unit_links.seen() {
        Ok(links) => verdict
            .and_findings(in_the_way(evidence, links))
            .and_findings(find_idle_units(evidence, links)),
        Err(why) => verdict.and_unseen(format!("links of units: {why}")),
    }
}

/// Returns facts about these units, with the paths that an admin looks at.
fn as_facts(units: &[&JudgedUnit]) -> Vec<Fact> {
    let facts = units.iter().map(|unit| {
        let (Objection::Refused(said) | Objection::Ignored(said)) = &unit.objection;
        Fact::new(&unit.name, said)
    });
    facts.collect()
}

/// Returns the subject of a finding about these units.
fn name_units(units: &[&JudgedUnit]) -> String {
    match units {
        [] => String::new(),
        [one] => one.name.clone(),
        [first, rest @ ..] => format!("{} and {} more", first.name, rest.len()),
    }
}

fn find_refused_units(evidence: &DoctorEvidence, units: &[JudgedUnit]) -> Option<DoctorFinding> {
    let refused = |unit: &&JudgedUnit| matches!(unit.objection, Objection::Refused(_));
    let mut all: Vec<&JudgedUnit> = units.iter().filter(refused).collect();
    all.order_by_key(|unit| unit.required.is_none());
    let first = all.first()?;
    let (severity, means) = match first.describe_consequence() {
        Some(boot) => (CheckSeverity::Critical, format!("{boot}.")),
        None if NEEDED.contains(&first.name.as_str()) => (
            CheckSeverity::Critical,
            "It does not start at the next boot, and the node does not join.".to_owned(),
        ),
        None => (
            CheckSeverity::Warning,
            "A refused unit never starts. The daemon applies it and does not report it.".to_owned(),
        ),
    };
    let what = format!("systemd refuses {}", name_units(&all));
    let finding = DoctorFinding::new(severity, what, means).seen_all(as_facts(&all));
    let finding = match &first.required {
        Some(required) => finding.next(disable_command(evidence, &required.unit)),
        None => finding.next(look_at(evidence, &first.name)),
    };
    Some(finding.next(correct_command(evidence, &first.name)))
}

/// Returns the command that leads to a unit's text: its MachineConfig, or its file.
fn correct_command(evidence: &DoctorEvidence, unit: &str) -> String {
    let records = evidence.records.get();
    let config = records.and_then(|records| records.recorded_config());
    let mut units = config
        .into_iter()
        .flat_map(|config| &config.ignition.systemd.units);
    let path = format!("/{}/{unit}", paths::UNITS);
    match evidence.live {
        _ if evidence.is_of_config(&path) || units.any(|one| one.name == unit) => {
            format!("oc get mc -o name   # the MachineConfig with {unit} has to change")
        }
        true => format!("systemctl edit --full -- {}", shell_word(unit)),
        false => format!("vi {}", evidence.shell_path(&path)),
    }
}

fn find_ignored_settings(evidence: &DoctorEvidence, units: &[JudgedUnit]) -> Option<DoctorFinding> {
    let ignored = |unit: &&JudgedUnit| matches!(unit.objection, Objection::Ignored(_));
    let all: Vec<&JudgedUnit> = units.iter().filter(ignored).collect();
    let first = all.first()?;
    let means = "The unit is loaded without the setting, and may do something else than is meant.";
    let what = format!("systemd ignores settings of {}", name_units(&all));
    let finding = DoctorFinding::warning(what, means).seen_all(as_facts(&all));
    Some(finding.next(look_at(evidence, &first.name)))
}

/// Returns the command that detaches a unit from the target that requires it.
fn disable_command(evidence: &DoctorEvidence, unit: &str) -> String {
    format!(
        "systemctl{} disable -- {}",
        at_root(evidence),
        shell_word(unit)
    )
}

/// Returns the command that shows the files of a unit.
fn look_at(evidence: &DoctorEvidence, unit: &str) -> String {
    if evidence.live {
        format!("systemctl cat -- {}", shell_word(unit))
    } else {
        format!("ls -l {}", evidence.shell_path(paths::UNITS))
    }
}

fn at_root(evidence: &DoctorEvidence) -> String {
    if evidence.live {
        String::new()
    } else {
        format!(" --root={}", evidence.upkeep.directory)
    }
}

fn as_fact(link: &UnitLink) -> Fact {
    let said = match &link.wrong {
        Wrong::NoFile { target } => format!("leads to {target}, which is missing"),
        Wrong::NoUnit { target } => format!("leads to {target}, and there is no such unit"),
        Wrong::NoLink { .. } => "is a file instead of a link".to_owned(),
        Wrong::Circle { target } => {
            format!("leads to {target}, which leads back to it: systemctl ends here in \"{ELOOP}\"")
        }
        // FP-72 reports those that matter.
        Wrong::Masked => "is masked".to_owned(),
    };
    Fact::new(link.path.to_string(), said)
}

/// Returns the changes that move entries aside. A link takes the place of a file so that its unit stays enabled.
fn put_right(evidence: &DoctorEvidence, links: &[&UnitLink]) -> Vec<FixChange> {
    let of_config = |link: &&UnitLink| evidence.is_of_config(&link.path.to_string());
    let is_circle = |link: &&UnitLink| matches!(link.wrong, Wrong::Circle { .. });
    // It is not known which link in a cycle is the wrong one.
    if links.iter().any(|link| of_config(link) || is_circle(link)) {
        return Vec::new();
    }
    let changes = links.iter().flat_map(|link| {
        let path = link.path.to_string();
        let made = match &link.wrong {
            Wrong::NoLink { unit } => unit.as_ref(),
            Wrong::NoFile { .. } | Wrong::NoUnit { .. } | Wrong::Circle { .. } | Wrong::Masked => {
                None
            }
        };
        let made = made.map(|unit| FixChange::make_link(&path, unit.to_string()));
        [Some(FixChange::move_aside(&path)), made]
    });
    changes.flatten().collect()
}

/// Adds the cure, and the reload that a running manager needs.
fn with_fix(
    evidence: &DoctorEvidence,
    finding: DoctorFinding,
    links: &[&UnitLink],
) -> DoctorFinding {
    let finding = finding.fixed_by(put_right(evidence, links));
    if evidence.live {
        finding.after_fix("systemctl daemon-reload")
    } else {
        finding
    }
}

fn in_the_way(evidence: &DoctorEvidence, links: &[UnitLink]) -> Option<DoctorFinding> {
    let all: Vec<&UnitLink> = links
        .iter()
        .filter(|link| !matches!(link.wrong, Wrong::NoUnit { .. } | Wrong::Masked))
        .collect();
    let first = all.first()?;
    let path = evidence.shell_path(&first.path.to_string());
    let means = "The daemon enables all units of an update with one command, and goes Degraded if one of these is \
in its way.";
    let finding = DoctorFinding::warning("files in the way of enabling units", means)
        .seen_all(all.iter().map(|link| as_fact(link)))
        .with_message(Some(messages::NOT_ENABLED.to_owned()))
        .next(format!("ls -l {path}"))
        .next(evidence.command_to_move_aside(&first.path.to_string(), "/etc/systemd"));
    Some(with_fix(evidence, finding, &all))
}

fn find_idle_units(evidence: &DoctorEvidence, links: &[UnitLink]) -> Option<DoctorFinding> {
    let none = |link: &&UnitLink| matches!(link.wrong, Wrong::NoUnit { .. });
    let all: Vec<&UnitLink> = links.iter().filter(none).collect();
    let first = all.first()?;
    let at = at_root(evidence);
    let means = "These links start nothing. Their units no longer exist.";
    let finding = DoctorFinding::notice("missing units are enabled", means)
        .seen_all(all.iter().map(|link| as_fact(link)))
        .next(format!("systemctl{at} disable {}", first.path.name()));
    Some(with_fix(evidence, finding, &all))
}

/// Returns the kubelet's enablement links that the config asks for and that are missing.
fn missing_links(evidence: &DoctorEvidence) -> Vec<&Drift> {
    let drifts = evidence.compared.get().map(|compared| &compared.drifts);
    let is_link = |drift: &&Drift| {
        drift.kind == DriftKind::MissingLink && drift.subject.ends_with("/kubelet.service")
    };
    drifts.into_iter().flatten().filter(is_link).collect()
}

/// Reports a kubelet that the config enables but that is disabled on the node. Pacemaker disables it by design.
fn find_disabled_kubelet(evidence: &DoctorEvidence) -> Option<DoctorFinding> {
    let missing = missing_links(evidence);
    if missing.is_empty() || evidence.fencing {
        return None;
    }
    let means = "The next boot does not start it, and the node is not Ready. The daemon does not look at this.";
    let facts = missing
        .iter()
        .map(|drift| Fact::new(&drift.subject, &drift.detail));
    Some(
        DoctorFinding::critical("kubelet.service is not enabled", means)
            .seen_all(facts)
            .next(evidence.own_command("apply --files-only")),
    )
}

/// Reports a kubelet that is enabled but neither runs nor waits for anything.
fn find_stopped_kubelet(evidence: &DoctorEvidence) -> Option<DoctorFinding> {
    let config = evidence.records.get()?.recorded_config()?;
    let mut units = evidence.units.get()?.iter();
    let kubelet = units.find(|unit| unit.name == "kubelet.service")?;
    let has_job = evidence
        .jobs
        .get()?
        .iter()
        .any(|job| job.unit == kubelet.name);
    // FP-44 reports what it waits for.
    let waits = evidence
        .boot_waits
        .get()
        .is_none_or(|waits| waits.kubelet_waits);
    let mut configured = config.ignition.systemd.units.iter();
    let is_enabled = configured.any(|unit| unit.name == kubelet.name && unit.enabled == Some(true));
    let is_meant_to_run = is_enabled && missing_links(evidence).is_empty();
    if kubelet.active != ActiveState::Inactive
        || has_job
        || waits
        || !is_meant_to_run
        || evidence.fencing
    {
        return None;
    }
    let means = "It is enabled, and nothing is about to start it: it was stopped, or systemd left it out of the boot to break a \
cycle of units. The node is not Ready, and the daemon's pod does not run.";
    Some(
        DoctorFinding::critical("kubelet.service is not started", means)
            .with_evidence(
                &kubelet.name,
                format!("{} ({})", kubelet.active, kubelet.sub),
            )
            .next("journalctl -b -g 'ordering cycle' --no-pager")
            .next("systemctl start kubelet.service"),
    )
}

fn find_failed_units(evidence: &DoctorEvidence) -> Option<DoctorFinding> {
    let units = evidence.units.get()?.iter();
    let mut failed = units.filter(|unit| {
        let loops = unit.active == ActiveState::Activating && unit.sub == "auto-restart";
        NEEDED.contains(&unit.name.as_str()) && (unit.active == ActiveState::Failed || loops)
    });
    let first = failed.next()?;
    let facts = std::iter::once(first).chain(failed);
    let facts = facts.map(|unit| Fact::new(&unit.name, format!("{} ({})", unit.active, unit.sub)));
    let means = "Without it the node is not Ready, and the daemon's pod does not run.";
    Some(
        DoctorFinding::critical(format!("{} is not running", first.name), means)
            .seen_all(facts)
            .next(format!("journalctl -b -u {} -n 30 --no-pager", first.name))
            .next(evidence.own_command("verify")),
    )
}
