//! FP-02: the first boot gets no config.

use crate::base::paths;
use crate::change::transaction::{LastRun, RunOutcome};
use crate::diagnose::doctor::{
    CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding,
};
use crate::diagnose::first_boot::FirstBootOutcome;
use crate::node::Recorded;

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-02",
    title: "no config has reached this node",
    looks_at: "traces of a first boot, and its result in the initramfs",
    explain: "A new node asks its Machine Config Server for its config before anything else. If there is no answer, Ignition \
retries forever: the console shows a start job without limit and hundreds of attempts. There is no ssh \
yet. [::1]:53 as name server in the messages means that the initramfs got no name server.\n\n\
Check in this order: link and address (ip addr), route, name server, the load balancer's port 22623, the \
certificate, the clock. mco-rescue fetch tries all of them and names the first that fails.\n\n\
Without the server: a config from a stick labelled MCO-RESCUE, or from another node of the pool, where \
/etc/machine-config-daemon/currentconfig holds it: mco-rescue apply FILE --root /sysroot. The state of a \
server cannot be seen from here.",
    judge: judge_no_config,
};

fn judge_no_config(evidence: &DoctorEvidence) -> CheckVerdict {
    let known = find_failed_apply(evidence).or_else(|| find_failed_pivot(evidence));
    match known {
        Some(finding) => CheckVerdict::one_finding(finding),
        None => judge_records(evidence),
    }
}

/// Reports a run in the initramfs of this boot that failed.
fn find_failed_apply(evidence: &DoctorEvidence) -> Option<DoctorFinding> {
    let boot = evidence.first_boot.get()?.as_ref()?;
    if boot.outcome != FirstBootOutcome::Failed || made_up_for(evidence) {
        return None;
    }
    let means = "The config was not applied in the initramfs. The node boots without it.";
    let mut finding = DoctorFinding::critical("this boot could not apply its config", means);
    if let (Some(phase), Some(cause)) = (&boot.phase, &boot.cause) {
        finding = finding.with_evidence(format!("while {phase}"), cause.clone());
    }
    Some(
        finding
            .next(fetch_command(evidence))
            .next(apply_command(evidence)),
    )
}

/// Reports an OS change of the daemon that failed at the first boot.
fn find_failed_pivot(evidence: &DoctorEvidence) -> Option<DoctorFinding> {
    let said = evidence.first_boot_files.pivot_failed.as_ref()?;
    let means = "The daemon's first boot stopped before the image and the arguments of the config were in force. The node \
                 does not join until that is done.";
    let finding = DoctorFinding::critical(
        "the first boot could not change the operating system",
        means,
    );
    Some(
        finding
            .with_evidence(format!("/{}", paths::FIRST_PIVOT_FAILED), said.clone())
            .next("journalctl -b -u machine-config-daemon-firstboot")
            .next(evidence.own_command("firstboot --complete")),
    )
}

/// Judges whether a config was ever recorded, or waits for the first boot.
fn judge_records(evidence: &DoctorEvidence) -> CheckVerdict {
    let unread = "whether a config was ever recorded: the records cannot be read";
    let records = match evidence.records.get() {
        Some(records) if !matches!(records.current_config, Recorded::Broken(_)) => records,
        _ => return CheckVerdict::not_seen(unread),
    };
    let is_nothing = matches!(
        (&records.current_config, &records.mcs_content),
        (Recorded::Missing, Recorded::Missing)
    );
    if !is_nothing {
        return CheckVerdict::healthy();
    }
    let files = &evidence.first_boot_files;
    match (files.encapsulated.seen(), files.encapsulated_kept.seen()) {
        (Ok(true), _) | (_, Ok(true)) => CheckVerdict::healthy(),
        (Err(why), _) | (_, Err(why)) => CheckVerdict::not_seen(format!(
            "whether a config came at the first boot: its input cannot be looked for: {why}"
        )),
        (Ok(false), Ok(false)) => report_no_config(evidence),
    }
}

fn report_no_config(evidence: &DoctorEvidence) -> CheckVerdict {
    let (severity, what, means) = if evidence.in_initramfs || evidence.never_booted {
        (
            CheckSeverity::Critical,
            "no config has reached this node yet",
            "Without a config the node has no kubelet, no keys and no network of the cluster: it never joins.",
        )
    } else {
        (
            CheckSeverity::Notice,
            "no MachineConfig is recorded here",
            "Either this is not a cluster node, or its records are lost. Nothing can be compared.",
        )
    };
    let ignition = match evidence.first_boot_files.ignition_result.seen() {
        Ok(true) => "Ignition has written a config".to_owned(),
        Ok(false) => "Ignition has written no config".to_owned(),
        Err(why) => format!("not known: {why}"),
    };
    let finding = DoctorFinding::new(severity, what, means)
        .with_evidence("/etc/machine-config-daemon/currentconfig", "missing")
        .with_evidence("/etc/.ignition-result.json", ignition);
    let server = evidence.server_name();
    CheckVerdict::one_finding(
        finding
            .next(fetch_command(evidence))
            .next(apply_command(evidence)),
    )
    .and_unseen(format!(
        "whether {server} answers: {} asks it",
        evidence.own_command("fetch")
    ))
}

/// Returns true if a later run applied a config. The cure of a finding is none, and has no digest.
fn made_up_for(evidence: &DoctorEvidence) -> bool {
    let after = |run: &LastRun| {
        matches!(run.outcome, RunOutcome::Done | RunOutcome::Recovered)
            && !run.config.digest.is_empty()
            && evidence
                .first_boot_ended
                .is_some_and(|ended| run.finished > ended)
    };
    evidence.last_run().is_some_and(after)
}

fn fetch_command(evidence: &DoctorEvidence) -> String {
    format!("mco-rescue fetch --from-media{}", evidence.at_root())
}

fn apply_command(evidence: &DoctorEvidence) -> String {
    format!("mco-rescue apply --latest{}", evidence.at_root())
}
