//! FP-21: the daemon keeps retrying a config that fails.

use serde_json::json;

use crate::base::invocation::shell_word;
use crate::base::paths;
use crate::base::time::format_utc;
use crate::change::transaction::RunOutcome;
use crate::diagnose::doctor::daemon::DaemonTroubles;
use crate::diagnose::doctor::{CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, messages};
use crate::judge::daemon::start::{PREFIX, State};

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-21",
    title: "the daemon retries a config that fails",
    looks_at: "failures in the daemon's log, the API's last answer, the record, and the last run",
    explain: "The daemon goes to the config in the annotation desiredConfig, and tries again after each failure, at \
least once a minute. If the config was bad, and its pool was reverted, the annotation of this node may stay: the controller does not touch a node \
that counts as unavailable. So the node retries a config that the pool no longer wants.\n\n\
If mco-rescue apply has put the node into a good config meanwhile, the daemon still returns to the bad one when it \
starts, until the annotation is corrected.\n\n\
First see which config the pool wants: oc get mcp. The printed patch sets desiredConfig to the recorded config, and ends a drain that was \
asked for the other one. mco-rescue status --for-cluster has all steps with a check before each.",
    judge: judge_target,
};

/// Failures that other checks report.
const OF_OTHERS: [&str; 6] = [
    messages::ON_DISK_STATE,
    messages::NOT_DRAINED,
    "not found",
    messages::NO_ANNOTATION,
    "extension",
    messages::NOT_RECONCILED,
];

fn judge_target(evidence: &DoctorEvidence) -> CheckVerdict {
    let seen = match evidence.daemon.seen() {
        Ok(seen) => seen,
        Err(why) => return CheckVerdict::not_seen(format!("the daemon's troubles: {why}")),
    };
    CheckVerdict::healthy().and_findings(find_retries(evidence, seen))
}

fn find_retries(evidence: &DoctorEvidence, seen: &DaemonTroubles) -> Option<DoctorFinding> {
    let record = evidence.recorded_name()?;
    let is_refused = |state| state == State::Unreconcilable;
    let forecast = evidence.forecast.as_ref()?;
    let first = forecast.branches.first();
    if first.is_some_and(|branch| branch.known && is_refused(branch.prediction.state)) {
        return None;
    }
    let complaint = seen
        .complaint
        .as_ref()
        .filter(|one| !OF_OTHERS.iter().any(|words| one.text.contains(words)))
        .filter(|one| !seen.is_done_after(one.last));
    let api = seen.api.as_ref();
    let is_degraded = api.is_some_and(|api| api.state.as_deref() == Some("Degraded"));
    let of_api = api.filter(|_| is_degraded && seen.complaint.is_none());
    let desired = match (complaint, of_api) {
        (Some(complaint), _) => {
            let known = api.and_then(|api| api.desired.clone());
            complaint.target.clone().or(known)?
        }
        (None, Some(api)) => api.desired.clone()?,
        (None, None) => return None,
    };
    // A single failure may be resolved by the next retry.
    let is_repeated = complaint.is_none_or(|one| one.times > 1 || is_degraded);
    if desired == record || !record.starts_with("rendered-") || !is_repeated {
        return None;
    }
    let when = complaint.map_or_else(|| api.map_or(0, |api| api.seen), |complaint| complaint.last);
    let run = evidence.last_run();
    let is_left = run.is_some_and(|run| {
        run.outcome == RunOutcome::Done && run.finished > when && run.config.name == record
    });
    let (what, means) = if is_left {
        (
            "the daemon will return to the config that failed",
            "A run has put this node into the recorded config since. While the Node still has the annotation, the daemon tries \
             the other config again when it starts.",
        )
    } else {
        (
            "the daemon tries a config again that fails each time",
            "It stays Degraded and applies no other config, even if the pool no longer wants this one.",
        )
    };
    let mut finding = DoctorFinding::warning(what, means);
    if let Some(complaint) = complaint {
        let said = format!(
            "{desired} failed {} times in a row, last at {}",
            complaint.times,
            format_utc(complaint.last)
        );
        finding = finding
            .with_evidence(&complaint.file, said)
            .with_message(Some(format!(
                "{} {}",
                messages::MARKED_DEGRADED,
                complaint.text
            )));
    }
    if let Some(api) = api {
        let said = format!(
            "desiredConfig {}, state {}, at {}",
            api.desired.as_deref().unwrap_or("missing"),
            api.state.as_deref().unwrap_or("missing"),
            format_utc(api.seen)
        );
        finding = finding.with_evidence(format!("/{}", paths::ANNOTATIONS), said);
    }
    Some(
        finding
            .with_evidence(format!("/{}", paths::CURRENT_CONFIG), &record)
            .next("oc get mcp")
            .next(patch_command(&seen.node, &record))
            .next(format!("oc adm uncordon {}", shell_word(&seen.node)))
            .next(evidence.own_command("status --for-cluster")),
    )
}

/// Returns the command that corrects the annotations: the config, and a drain requested for another config.
fn patch_command(node: &str, config: &str) -> String {
    let uncordon = format!("uncordon-{config}");
    let patch = json!({"metadata": {"annotations": {
        format!("{PREFIX}desiredConfig"): config,
        format!("{PREFIX}desiredDrain"): uncordon,
        format!("{PREFIX}lastAppliedDrain"): uncordon,
    }}});
    let patch = shell_word(&patch.to_string());
    format!("oc patch node {} --type merge -p {patch}", shell_word(node))
}
