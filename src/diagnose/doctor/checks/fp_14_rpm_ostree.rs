//! FP-14: rpm-ostree is busy, not running, or refuses.

use crate::diagnose::doctor::{CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, messages};
use crate::node::System;
use crate::node::command::systemctl::StartResult;
use crate::node::engine::Engine;

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-14",
    title: "rpm-ostree is busy or does not answer",
    looks_at: "answers of rpm-ostree, its running transaction, and the last start of its daemon",
    explain: "Only one change of the OS is possible at a time. A client that died leaves a transaction that goes on. \
rpm-ostreed that does not start, or was killed when memory ran out, does not answer.\n\n\
Busy: rpm-ostree status names the client. Wait, or run rpm-ostree cancel and wait until the status is idle. Dead: \
systemctl status rpm-ostreed and journalctl -u rpm-ostreed; a drop-in of its unit, a full disk, or dbus is usually \
the cause. Out of memory (result oom-kill): stop large services, the kubelet first, and try again.\n\n\
rpm-ostree cannot be queried for a mounted disk.",
    judge: judge_rpm_ostree,
};

fn judge_rpm_ostree(evidence: &DoctorEvidence) -> CheckVerdict {
    let verdict = CheckVerdict::healthy().and_findings(not_started(evidence));
    let why = match &evidence.system {
        System::Known(facts) => {
            let Some(transaction) = &facts.deployments.transaction else {
                return verdict;
            };
            let means =
                "Nothing else can be staged until it ends. If its client exited, it may never end.";
            let program = transaction.method.split_whitespace().next();
            let what = if program.is_some_and(|program| program.ends_with("/ostree")) {
                "ostree is busy"
            } else {
                "rpm-ostree is busy"
            };
            let finding = DoctorFinding::notice(what, means)
                .with_evidence(
                    "rpm-ostree status",
                    format!("{} for {}", transaction.method, transaction.client),
                )
                .with_message(engine_message(evidence, messages::BUSY))
                .next("rpm-ostree status")
                .next("rpm-ostree cancel");
            return verdict.and_findings([finding]);
        }
        System::Silent(why) => why,
        System::NotAsked if evidence.deployment.is_some() => {
            return verdict.and_unseen("rpm-ostree: it answers only on the booted node");
        }
        System::NotAsked | System::Composefs(_) => return verdict,
    };
    // Each cause is reported only once.
    if !verdict.findings.is_empty() {
        return verdict;
    }
    let means = "The OS can be neither changed nor compared. OS updates do not work.";
    let finding = DoctorFinding::warning("rpm-ostree does not answer", means)
        .with_evidence("rpm-ostree status", why.clone())
        .next("systemctl status rpm-ostreed dbus.socket")
        .next("journalctl -b -u rpm-ostreed -n 30");
    verdict.and_findings([finding])
}

/// Returns a message of rpm-ostree if that is the engine in use.
fn engine_message(evidence: &DoctorEvidence, words: &str) -> Option<String> {
    (evidence.engine == Engine::RpmOstree).then(|| words.to_owned())
}

fn not_started(evidence: &DoctorEvidence) -> Option<DoctorFinding> {
    let (how, hint) = match evidence.rpm_ostreed.get()? {
        StartResult::Ran | StartResult::NotStarted => return None,
        StartResult::Masked => ("masked".to_owned(), "systemctl unmask rpm-ostreed"),
        StartResult::CannotRun => (
            "its program cannot be run".to_owned(),
            "journalctl -b -u rpm-ostreed -n 30",
        ),
        StartResult::OutOfMemory(how) => (
            format!("{how}: out of memory"),
            evidence
                .stop_workloads()
                .first()
                .copied()
                .unwrap_or_default(),
        ),
        StartResult::Failed(how) => (how.clone(), "journalctl -b -u rpm-ostreed -n 30"),
    };
    let means = "OS updates do not work, and the daemon cannot compare the running OS.";
    Some(
        DoctorFinding::warning("rpm-ostreed did not start", means)
            .with_evidence("rpm-ostreed.service", how)
            .with_message(engine_message(evidence, messages::OWNER_CHANGED))
            .next(hint)
            .next("systemctl restart rpm-ostreed"),
    )
}
