//! FP-34: the node cannot be drained, or was changed without a drain.

use serde_json::json;

use crate::base::invocation::shell_word;
use crate::base::paths;
use crate::base::time::format_utc;
use crate::diagnose::doctor::daemon::DaemonTroubles;
use crate::diagnose::doctor::{CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, messages};
use crate::judge::daemon::start::PREFIX;

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-34",
    title: "the node cannot be drained, or was not",
    looks_at: "drains in the daemon's log, the last run and its awaited boot, a kubelet left stopped",
    explain: "Before an update that reboots the daemon has the node drained, and waits up to an hour. A PodDisruptionBudget \
without room, a pod without a controller or a lack of capacity stops the drain, and the daemon is Degraded: failed to drain \
node.\n\n\
mco-rescue never drains. After a run without a drain pods run on until the reboot, and a volume may stay attached to this node. --stop-workloads \
stops kubelet and pods around a run; a run that was killed may leave the kubelet stopped.\n\n\
oc get pdb -A shows the budgets; oc adm drain NODE --ignore-daemonsets --delete-emptydir-data --force --disable-eviction \
passes over them. The annotation lastAppliedDrain confirms a drain by hand.",
    judge: judge_drain,
};

/// The daemon's messages for a drain that did not finish.
const WORDS: [&str; 2] = [messages::NOT_DRAINED, messages::DRAIN_TIMEOUT];

fn judge_drain(evidence: &DoctorEvidence) -> CheckVerdict {
    let seen = match evidence.daemon.seen() {
        Ok(seen) => seen,
        Err(why) => return CheckVerdict::not_seen(format!("the daemon's troubles: {why}")),
    };
    let mut verdict = CheckVerdict::healthy()
        .and_findings(find_failed_drain(evidence, seen))
        .and_findings(find_stopped_kubelet(evidence, seen))
        .and_findings(find_reboot_without_drain(evidence, seen));
    for why in &seen.unread_log {
        verdict = verdict.and_unseen(format!("the daemon's log: {why}"));
    }
    match evidence.last_run.seen() {
        Ok(_) => verdict,
        Err(why) => verdict.and_unseen(format!("the last run: {why}")),
    }
}

fn find_failed_drain(evidence: &DoctorEvidence, seen: &DaemonTroubles) -> Option<DoctorFinding> {
    let complaint = seen.complaint.as_ref()?;
    let is_drain = WORDS.iter().any(|words| complaint.text.contains(words));
    let run = evidence.last_run();
    let is_over = seen.is_done_after(complaint.last)
        || run.is_some_and(|run| run.finished > complaint.last)
        || complaint.target.is_some() && complaint.target == evidence.recorded_name();
    if !is_drain || is_over {
        return None;
    }
    let node = shell_word(&seen.node);
    let means = "The daemon has written nothing yet, and waits for an hour each time. Something on the node may not leave it.";
    let said = format!(
        "{}, last at {}",
        crate::base::text::count_noun(complaint.times, "failed drain"),
        format_utc(complaint.last)
    );
    let finding = DoctorFinding::warning("the node cannot be drained, and its update waits",
        means,
    )
    .with_evidence(&complaint.file, said)
    .with_message(Some(complaint.text.clone()))
    .next("oc get pdb -A")
    .next(format!(
        "oc adm drain {node} --ignore-daemonsets --delete-emptydir-data --force --disable-eviction"
    ));
    let Some(target) = &complaint.target else {
        return Some(finding);
    };
    let patch = json!({"metadata": {"annotations": {
        format!("{PREFIX}lastAppliedDrain"): format!("drain-{target}"),
    }}});
    Some(finding.next(format!(
        "oc patch node {node} --type merge -p {}",
        shell_word(&patch.to_string())
    )))
}

fn find_stopped_kubelet(evidence: &DoctorEvidence, seen: &DaemonTroubles) -> Option<DoctorFinding> {
    let means = "A run with --stop-workloads was killed before it started the kubelet again. The node is NotReady until then.";
    seen.kubelet_stopped.then(|| {
        DoctorFinding::warning("a run that was killed left the kubelet stopped", means)
            .with_evidence(format!("/{}", paths::STOPPED), "of this boot")
            .next(evidence.own_command("recover"))
            .next("systemctl start kubelet")
    })
}

fn find_reboot_without_drain(
    evidence: &DoctorEvidence,
    seen: &DaemonTroubles,
) -> Option<DoctorFinding> {
    let awaited = evidence.awaited.get()?.as_ref()?;
    let notices = evidence.last_run()?.notices.iter();
    let was_told = notices.filter(|notice| notice.subject == "drain").count() > 0;
    let means = "The pods run until the shutdown ends them. Volumes may stay attached to this node until it is back.";
    (was_told && awaited.failed.is_none() && evidence.live).then(|| {
        DoctorFinding::notice("the node reboots into another OS without a drain", means)
            .with_evidence("the last run", "the daemon would have drained the node")
            .next(format!(
                "oc adm drain {} --ignore-daemonsets --delete-emptydir-data",
                shell_word(&seen.node)
            ))
    })
}
