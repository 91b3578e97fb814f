//! FP-01: the node does not run the recorded OS image or kernel arguments.

use super::fp_19_extensions::explain_no_deployment;
use crate::base::invocation::{STAGE_OS, reboot_command};
use crate::base::kargs::Kargs;
use crate::base::reason::Reason;
use crate::change::staging::awaited::Way;
use crate::change::staging::next_boot::{BootWay, NextBoot};
use crate::config::document::MachineConfig;
use crate::diagnose::doctor::{CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, Fact};
use crate::judge::drift::{self, Drift, DriftKind};
use crate::node::{Recorded, Records};

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-01",
    title: "the recorded OS or kernel arguments are not booted",
    looks_at: "image and kernel arguments of this boot and of the next against the record; errors of the last shutdown; files that wait for a reboot",
    explain: "The daemon writes its record before the reboot. The staged deployment becomes \
a real one only while the node shuts down. If the power fails then, or the shutdown cannot write it, the node \
boots the old OS, and the record does not match it. The daemon is Degraded from then on.\n\n\
The force file does not help: the daemon compares the recorded config with the desired one, finds them equal, and \
stages nothing.\n\n\
mco-rescue apply looks at the running OS, not at the record. It stages the image and the arguments again, pins the \
running deployment, and checks at the next boot that the new one came up. Without a registry: mco-rescue pivot --os-from PATH takes \
the image from a medium.",
    judge: judge_not_booted,
};

fn judge_not_booted(evidence: &DoctorEvidence) -> CheckVerdict {
    let verdict = left_by_shutdown(evidence).and_findings(find_needed_reboot(evidence));
    let verdict = match evidence.reboots.seen() {
        Ok(_) => verdict,
        Err(why) => verdict.and_unseen(format!("files that need a reboot: {why}")),
    };
    let Some(records) = evidence.records.get() else {
        return verdict.and_unseen("the record cannot be read");
    };
    if matches!(records.current_config, Recorded::Broken(_)) {
        return verdict.and_unseen("the record cannot be read");
    }
    let Some(config) = records.recorded_config() else {
        return verdict;
    };
    match evidence.first_boot_files.encapsulated.seen() {
        Ok(false) => {}
        Ok(true) => return verdict,
        Err(why) => {
            return verdict.and_unseen(format!(
                "image and kernel arguments: the input of the first boot: {why}"
            ));
        }
    }
    if evidence.deployment.is_none() && evidence.facts().is_err() {
        if let Err(why) = evidence.os.seen() {
            return verdict.and_unseen(format!("image and kernel arguments: {why}"));
        }
        return verdict.and_unseen(if evidence.live {
"image and kernel arguments: this system was not booted by ostree"
} else {
"image and kernel arguments: this root is not an ostree deployment; on the node, run: mco-rescue doctor"
});
    }
    let layered = records.current_image.as_deref();
    let image = image_drift(evidence, config, layered);
    let arguments = arguments_drift(evidence, config);
    let verdict = match &image {
        Err(why) => verdict.and_unseen(why.to_string()),
        Ok(_) => verdict,
    };
    let verdict = match &arguments {
        Err(why) => verdict.and_unseen(why.to_string()),
        Ok(_) => verdict,
    };
    let drifts: Vec<Drift> = [image, arguments].into_iter().flatten().flatten().collect();
    let next = match evidence.next_boot.seen() {
        Ok(next) => next.as_ref(),
        // For a root that is not running, the default boot entry decides.
        Err(_) if !evidence.live => None,
        Err(why) => return verdict.and_unseen(format!("the next boot: {why}")),
    };
    let other = next.filter(|next| next.way != BootWay::Stays);
    let lacks = other.map(|next| lacks_of(next, config, layered));
    match (drifts.is_empty(), other.zip(lacks)) {
        (true, Some((next, lacks))) if !lacks.is_empty() => {
            verdict.and_findings(report_leaving(evidence, config, next, &lacks))
        }
        (true, _) => verdict,
        (false, Some((next, lacks))) if lacks.is_empty() => {
            verdict.and_findings([report_waiting(evidence, config, &drifts, next)])
        }
        (false, other) => verdict.and_findings([report_gap(
            evidence,
            config,
            &drifts,
            other.map(|(next, _)| next),
        )]),
    }
}

/// Returns what the next boot lacks of the recorded config. Unknown arguments do not count as missing.
fn lacks_of(next: &NextBoot, config: &MachineConfig, layered: Option<&str>) -> Vec<Drift> {
    let image = next.enters.image.as_deref().unwrap_or_default();
    let present = next.enters.kernel_arguments.as_ref();
    let present = present.map(|words| Kargs::from_entries(words));
    let missing = present.and_then(|present| drift::missing_arguments(config, Some(&present)));
    drift::image_drift(config, layered, image)
        .into_iter()
        .chain(missing)
        .collect()
}

/// Returns the system that the next boot enters, and the program that selected it, as evidence.
fn next_fact(next: &NextBoot) -> Fact {
    let image = next.enters.image.as_deref().unwrap_or_default();
    let deployment = next.enters.deployment.as_deref().unwrap_or_default();
    let what = if image.is_empty() { deployment } else { image };
    let by = next.foreign_author().unwrap_or("mco-rescue");
    Fact::new(
        "the next boot",
        format!("{what} ({}), by {by}", next.way.word()),
    )
}

/// Reports that the recorded OS is running, but another program made the next boot enter a different one. What our own runs
/// staged is reported by other findings.
fn report_leaving(
    evidence: &DoctorEvidence,
    config: &MachineConfig,
    next: &NextBoot,
    lacks: &[Drift],
) -> Option<DoctorFinding> {
    next.foreign_author()?;
    let means = "The running system is as recorded. The next reboot ends that, and the daemon is Degraded from then on.";
    let mut finding = DoctorFinding::warning("the next boot leaves the recorded OS", means)
        .seen_all([next_fact(next)]);
    for drift in lacks {
        finding = finding.with_evidence(drift.subject.clone(), drift.detail.clone());
    }
    let finding = finding.with_message(evidence.daemon_verdict(&config.name, lacks));
    let finding = match &next.stay {
        Some(stay) => finding.next(stay.clone()),
        None => finding,
    };
    Some(finding.next(evidence.own_command("status")))
}

/// Reports that the recorded OS is not running yet, but the next boot enters it.
fn report_waiting(
    evidence: &DoctorEvidence,
    config: &MachineConfig,
    drifts: &[Drift],
    next: &NextBoot,
) -> DoctorFinding {
    let means = match next.way {
        BootWay::Staged => {
            "It takes effect at the next clean shutdown. A power cut before that loses it."
        }
        BootWay::Queued | BootWay::Stays => "The next boot of any kind enters it.",
    };
    let title = "the recorded OS waits for a reboot";
    let finding = DoctorFinding::warning(title, means);
    seen_drifts(evidence, config, drifts, finding).next(reboot_command())
}

fn seen_drifts(
    evidence: &DoctorEvidence,
    config: &MachineConfig,
    drifts: &[Drift],
    mut finding: DoctorFinding,
) -> DoctorFinding {
    for drift in drifts {
        finding = finding.with_evidence(drift.subject.clone(), drift.detail.clone());
    }
    if let Ok(Some(awaited)) = evidence.awaited.seen()
        && let Some(why) = &awaited.failed
    {
        finding = finding.with_evidence("the boot that mco-rescue waited for", why.clone());
    }
    finding.with_message(evidence.daemon_verdict(&config.name, drifts))
}

fn image_drift(
    evidence: &DoctorEvidence,
    config: &MachineConfig,
    layered: Option<&str>,
) -> Result<Option<Drift>, Reason> {
    let runs = evidence
        .running_image()
        .ok_or_else(|| format!("the booted image: {}", explain_no_deployment(evidence)))?;
    Ok(if evidence.live {
        drift::image_drift(config, layered, &runs)
    } else {
        drift::disk_image_drift(config, layered, &runs)
    })
}

/// Returns the difference of the kernel arguments: on a live node, those of the current boot, or those of the next boot if it
/// enters the same deployment; otherwise those of the default boot entry.
fn arguments_drift(
    evidence: &DoctorEvidence,
    config: &MachineConfig,
) -> Result<Option<Drift>, Reason> {
    let present = match evidence.facts() {
        Ok(facts) if another_is_next(evidence) => &facts.booted_arguments,
        Ok(facts) => &facts.arguments,
        Err(_) => evidence
            .arguments_on_disk
            .seen()
            .map_err(|why| format!("kernel arguments: {why}"))?,
    };
    Ok(drift::absent_arguments(config, present))
}

fn another_is_next(evidence: &DoctorEvidence) -> bool {
    let next = evidence.next_boot.get().and_then(Option::as_ref);
    next.is_some_and(|next| next.way != BootWay::Stays)
}

/// Reports that the recorded OS neither runs nor is entered by the next boot.
fn report_gap(
    evidence: &DoctorEvidence,
    config: &MachineConfig,
    drifts: &[Drift],
    next: Option<&NextBoot>,
) -> DoctorFinding {
    let what = if drifts.iter().any(|drift| drift.kind == DriftKind::Image) {
        "the recorded OS image is not running"
    } else {
        "recorded kernel arguments are not in force"
    };
    let means = if evidence.live {
        "The daemon stays Degraded. It compares records, finds nothing to do, and never stages this again."
    } else {
        "The daemon will be Degraded. Only the booted node can stage an OS: boot it, then run this there."
    };
    let finding = DoctorFinding::critical(what, means);
    let finding = seen_drifts(evidence, config, drifts, finding);
    let mut finding = match next.filter(|next| next.foreign_author().is_some()) {
        Some(next) => finding.seen_all([next_fact(next)]),
        None => finding,
    };
    if evidence.live {
        finding = finding.next(evidence.own_command("plan"));
    }
    finding.next(evidence.own_command(STAGE_OS))
}

/// Reports files changed during this boot that are read only at a reboot.
fn find_needed_reboot(evidence: &DoctorEvidence) -> Option<DoctorFinding> {
    let needs = evidence.reboots.get()?;
    if needs.is_empty() {
        return None;
    }
    let means = "The files are in place, but running programs use the old ones until a reboot.";
    let facts = needs
        .iter()
        .map(|need| Fact::new(&need.config, need.causes.join(", ")));
    Some(
        DoctorFinding::warning("changed files wait for a reboot", means)
            .seen_all(facts)
            .next(reboot_command()),
    )
}

/// Reports the error with which the last shutdown failed to write the staged deployment.
fn left_by_shutdown(evidence: &DoctorEvidence) -> CheckVerdict {
    let said = evidence
        .facts()
        .ok()
        .and_then(|facts| facts.finalize_error.clone());
    let said = said.map(|words| ("rpm-ostree status".to_owned(), words));
    let kept = evidence.finalize_failure.get().cloned().flatten();
    let Some((place, words)) = said.or(kept) else {
        return CheckVerdict::healthy();
    };
    let means = "The staged OS is lost, and the node booted the old one. Until the cause is removed, the \
                 next staged OS is lost as well.";
    let finding = DoctorFinding::critical("the last shutdown could not write the new OS", means)
        .with_evidence(place, words)
        .next("mco-rescue doctor FP-07");
    CheckVerdict::one_finding(stage_again(evidence, finding))
}

/// Adds the commands that stage the lost deployment again: if its files were restored, the recorded config is not the one that
/// was staged.
fn stage_again(evidence: &DoctorEvidence, finding: DoctorFinding) -> DoctorFinding {
    let awaited = evidence.awaited.get().and_then(Option::as_ref);
    let lost = awaited.filter(|awaited| awaited.way == Way::Forward && awaited.failed.is_some());
    if let Some(lost) = lost {
        return finding.next(lost.apply_command() + " --reboot");
    }
    let config = evidence.records.get().and_then(Records::recorded_config);
    let is_recorded = config.is_some_and(|config| {
        let layered = evidence
            .records
            .get()
            .and_then(|records| records.current_image.as_deref());
        let drifts = [
            image_drift(evidence, config, layered),
            arguments_drift(evidence, config),
        ];
        drifts.iter().any(|drift| !matches!(drift, Ok(None)))
    });
    if is_recorded {
        return finding.next(evidence.own_command("apply --reboot"));
    }
    finding
        .next(evidence.own_command("cache list"))
        .next(evidence.own_command("apply --reboot cached:NAME"))
}
