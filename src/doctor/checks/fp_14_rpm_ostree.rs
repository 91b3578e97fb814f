//! FP-14: rpm-ostree is busy, dead, or refuses.

use crate::command::systemctl::StartResult;
use crate::doctor::{Check, Evidence, Finding, Severity, Verdict};
use crate::node::System;

/// The check.
pub const CHECK: Check = Check {
    id: "FP-14",
    title: "rpm-ostree is busy or does not answer",
    looks_at: "answers of rpm-ostree, its running transaction, and how its daemon was started",
    explain: "One mutation of the OS is possible at a time. A client that died leaves a transaction that goes on; \
a daemon that does not start, or was killed for want of memory, answers nobody.\n\n\
Busy: rpm-ostree status names who began it. Wait; else rpm-ostree cancel, and wait until status says idle. Dead: \
systemctl status rpm-ostreed and journalctl -u rpm-ostreed; a drop-in of its unit, a full disk, or dbus is the cause as \
a rule. Out of memory (result oom-kill): stop what is large, the kubelet first, and try again.\n\n\
It cannot be asked on a mounted disk.",
    judge,
};

fn judge(evidence: &Evidence) -> Verdict {
    let verdict = Verdict::healthy().and(not_started(evidence));
    let why = match &evidence.system {
        System::Known(facts) => {
            let Some(transaction) = &facts.deployments.transaction else {
                return verdict;
            };
            let means = "Nothing else can be staged until it ends. If its client is gone, it ends by itself, or not.";
            let finding = Finding::new(Severity::Notice, "rpm-ostree is at work", means)
                .seen(
                    "rpm-ostree status",
                    format!("{} for {}", transaction.method, transaction.client),
                )
                .daemon(Some("Transaction in progress".to_owned()))
                .next("rpm-ostree status")
                .next("rpm-ostree cancel");
            return verdict.and([finding]);
        }
        System::Silent(why) => why,
        System::NotAsked if evidence.deployment.is_some() => {
            return verdict.and_unseen("rpm-ostree: it answers only on the booted node");
        }
        System::NotAsked => return verdict,
    };
    // One trouble, told once.
    if !verdict.findings.is_empty() {
        return verdict;
    }
    let means = "The OS can neither be changed nor be compared: no update of it goes on.";
    let finding = Finding::new(Severity::Warning, "rpm-ostree does not answer", means)
        .seen("rpm-ostree status", why.clone())
        .next("systemctl status rpm-ostreed dbus.socket")
        .next("journalctl -b -u rpm-ostreed -n 30");
    verdict.and([finding])
}

fn not_started(evidence: &Evidence) -> Option<Finding> {
    let (how, hint) = match evidence.rpm_ostreed.get()? {
        StartResult::Ran | StartResult::NotStarted => return None,
        StartResult::Masked => ("masked".to_owned(), "systemctl unmask rpm-ostreed"),
        StartResult::CannotRun => (
            "its program cannot be run".to_owned(),
            "journalctl -b -u rpm-ostreed -n 30",
        ),
        StartResult::Failed(how) if how.contains("oom") => (
            format!("{how}: out of memory"),
            "systemctl stop kubelet crio",
        ),
        StartResult::Failed(how) => (how.clone(), "journalctl -b -u rpm-ostreed -n 30"),
    };
    let means = "No update of the OS goes on, and the daemon cannot compare what runs.";
    Some(
        Finding::new(Severity::Warning, "rpm-ostreed did not start", means)
            .seen("rpm-ostreed.service", how)
            .daemon(Some("Bus owner changed, aborting".to_owned()))
            .next(hint)
            .next("systemctl restart rpm-ostreed"),
    )
}
