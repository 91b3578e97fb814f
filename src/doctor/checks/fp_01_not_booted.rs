//! FP-01: the recorded OS image or kernel arguments are not in force.

use crate::doctor::{
    CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, Fact,
};
use crate::document::MachineConfig;
use crate::drift::{self, Drift, DriftKind};
use crate::invocation::reboot;
use crate::node::{Recorded, Records};
use crate::staging::awaited::Way;

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-01",
    title: "the recorded OS or kernel arguments are not booted",
    looks_at: "booted image and kernel arguments against the record; errors of the last shutdown; files that wait for a reboot",
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
    let verdict = left_by_shutdown(evidence).and(find_needed_reboot(evidence));
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
    let Some(config) = records
        .recorded()
        .filter(|_| !evidence.first_boot_files.encapsulated)
    else {
        return verdict;
    };
    if evidence.deployment.is_none() && evidence.facts().is_err() {
        return verdict.and_unseen(match evidence.live {
            true => "image and kernel arguments: this system was not booted by ostree",
            false => "image and kernel arguments: this root is not an ostree deployment; on the node, run: mco-rescue doctor",
        });
    }
    let layered = records.current_image.as_deref();
    let image = image(evidence, config, layered);
    let arguments = arguments(evidence, config);
    let verdict = match &image {
        Err(why) => verdict.and_unseen(why.clone()),
        Ok(_) => verdict,
    };
    let verdict = match &arguments {
        Err(why) => verdict.and_unseen(why.clone()),
        Ok(_) => verdict,
    };
    let drifts: Vec<Drift> = [image, arguments].into_iter().flatten().flatten().collect();
    if drifts.is_empty() {
        return verdict;
    }
    verdict.and([gap(evidence, config, &drifts)])
}

fn image(
    evidence: &DoctorEvidence,
    config: &MachineConfig,
    layered: Option<&str>,
) -> Result<Option<Drift>, String> {
    let runs = evidence
        .image()
        .ok_or("the booted image: no origin file is visible; rpm-ostree status shows it")?;
    Ok(drift::image_drift(config, layered, &runs))
}

/// Returns the kernel arguments: of a live node from rpm-ostree, else from the default boot entry.
fn arguments(evidence: &DoctorEvidence, config: &MachineConfig) -> Result<Option<Drift>, String> {
    let present = match evidence.facts() {
        Ok(facts) => &facts.arguments,
        Err(_) => evidence
            .arguments_on_disk
            .seen()
            .map_err(|why| format!("kernel arguments: {why}"))?,
    };
    Ok(drift::absent_arguments(config, present))
}

fn gap(evidence: &DoctorEvidence, config: &MachineConfig, drifts: &[Drift]) -> DoctorFinding {
    let staged = evidence
        .facts()
        .ok()
        .and_then(|facts| facts.deployments.staged());
    let wants_image = drifts.iter().any(|drift| drift.kind == DriftKind::Image);
    let waits = staged.is_some_and(|staged| !wants_image || staged.image() == config.os_image_url);
    let what = match (waits, wants_image) {
        (true, _) => "the recorded OS waits for a reboot",
        (false, true) => "the recorded OS image is not running",
        (false, false) => "recorded kernel arguments are not in force",
    };
    let severity = if waits {
        CheckSeverity::Warning
    } else {
        CheckSeverity::Critical
    };
    let means = match (waits, evidence.live) {
        (true, _) => {
            "It takes effect at the next clean shutdown. A power cut before that loses it."
        }
        (false, true) => {
            "The daemon stays Degraded. It compares records, finds nothing to do, and never stages this again."
        }
        (false, false) => {
            "The daemon will be Degraded. Only the booted node can stage an OS: boot it, then run this there."
        }
    };
    let mut finding = DoctorFinding::new(severity, what, means);
    for drift in drifts {
        finding = finding.seen(drift.subject.clone(), drift.detail.clone());
    }
    if let Ok(Some(awaited)) = evidence.awaited.seen()
        && let Some(why) = &awaited.failed
    {
        finding = finding.seen("the boot that mco-rescue waited for", why.clone());
    }
    let finding = finding.daemon(evidence.daemon_verdict(&config.name, drifts));
    if waits {
        return finding.next(reboot());
    }
    finding
        .next(evidence.command("plan"))
        .next(evidence.command("apply --reboot"))
}

/// Reports files that were changed in this boot, and that are read only at a reboot.
fn find_needed_reboot(evidence: &DoctorEvidence) -> Option<DoctorFinding> {
    let needs = evidence.reboots.get()?;
    if needs.is_empty() {
        return None;
    }
    let means = "The files are in place, and what runs still has the old ones: it goes on as before until a reboot.";
    let facts = needs
        .iter()
        .map(|need| Fact::new(&need.config, need.causes.join(", ")));
    Some(
        DoctorFinding::new(
            CheckSeverity::Warning,
            "changed files wait for a reboot",
            means,
        )
        .seen_all(facts)
        .next(reboot()),
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
    let finding = DoctorFinding::new(
        CheckSeverity::Critical,
        "the last shutdown could not write the new OS",
        means,
    )
    .seen(place, words)
    .next("mco-rescue doctor FP-07");
    CheckVerdict::found(stage_again(evidence, finding))
}

/// Adds the commands that stage what was lost: where its files are restored, the recorded config is not the one that was staged.
fn stage_again(evidence: &DoctorEvidence, finding: DoctorFinding) -> DoctorFinding {
    let awaited = evidence.awaited.get().and_then(Option::as_ref);
    let lost = awaited.filter(|awaited| awaited.way == Way::Forward && awaited.failed.is_some());
    if let Some(lost) = lost {
        return finding.next(lost.apply_command() + " --reboot");
    }
    let config = evidence.records.get().and_then(Records::recorded);
    let is_recorded = config.is_some_and(|config| {
        let layered = evidence
            .records
            .get()
            .and_then(|records| records.current_image.as_deref());
        let drifts = [
            image(evidence, config, layered),
            arguments(evidence, config),
        ];
        drifts.iter().any(|drift| !matches!(drift, Ok(None)))
    });
    if is_recorded {
        return finding.next(evidence.command("apply --reboot"));
    }
    finding
        .next(evidence.command("cache list"))
        .next(evidence.command("apply --reboot cached:NAME"))
}
