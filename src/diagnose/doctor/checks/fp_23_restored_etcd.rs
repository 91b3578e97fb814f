//! FP-23: etcd was restored, and the API may hold an older state than the disk.

use crate::base::invocation::shell_word;
use crate::base::paths;
use crate::base::time::format_utc;
use crate::diagnose::doctor::{
    CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, messages,
};

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-23",
    title: "etcd was restored to an older state than the disk",
    looks_at: "the data that a restore of etcd moved aside, the record, and the API's last answer",
    explain: "A restored etcd has the Node as it was when the backup was made. The annotation currentConfig can then name an older \
config than the one that is on this disk. The daemon trusts the disk and corrects the annotation. The annotation \
desiredConfig stays old until the controller renders the pool again: until then the daemon would go back to the old config.\n\n\
mco-rescue status --for-cluster says which annotations have to be corrected. If the old config is no longer in the API, import it \
from the node's cache first.\n\n\
A restore that is not finished, with static pods that are missing, is reported by FP-54; the data of etcd and its backups are judged \
by FP-40. This node knows of a restore only if it ran here: it moves the old data to /var/lib/etcd-backup.",
    judge: judge_restore,
};

fn judge_restore(evidence: &DoctorEvidence) -> CheckVerdict {
    let files = match evidence.etcd_files.seen() {
        Ok(files) => files,
        Err(why) => return CheckVerdict::not_seen(format!("the data of etcd: {why}")),
    };
    let Some(restored) = files.moved_aside else {
        return CheckVerdict::healthy();
    };
    match evidence.daemon.seen() {
        Ok(_) => CheckVerdict::healthy().and_findings(find_older_state(evidence, restored)),
        Err(why) => CheckVerdict::not_seen(format!("the API's last answer: {why}")),
    }
}

fn find_older_state(evidence: &DoctorEvidence, restored: u64) -> Option<DoctorFinding> {
    let seen = evidence.daemon.get()?;
    let (api, record) = (seen.api.as_ref()?, evidence.recorded_name()?);
    let current = api.current.as_deref()?;
    let answered = api.seen > restored;
    if answered && current == record {
        return None;
    }
    let (severity, what, means) = if answered {
        (
            CheckSeverity::Warning,
            "etcd was restored, and the API names another config",
            "The daemon corrects currentConfig by the disk. If desiredConfig is old too, the daemon returns to the old config.",
        )
    } else {
        (
            CheckSeverity::Notice,
            "etcd was restored after the API's last answer",
            "The annotations of this Node may be older than the disk. The last answer does not show it.",
        )
    };
    let node = shell_word(&seen.node);
    let name = |name: &Option<String>| name.clone().unwrap_or_else(|| "missing".to_owned());
    let said = format!(
        "currentConfig {current}, desiredConfig {}, at {}",
        name(&api.desired),
        format_utc(api.seen)
    );
    let words = {
        let words = messages::fill_message(messages::DISK_OVERRIDES, &record);
        messages::fill_message(&words, current)
    };
    Some(
        DoctorFinding::new(severity, what, means)
            .with_evidence(
                "/var/lib/etcd-backup/member",
                format!("moved there by a restore, at {}", format_utc(restored)),
            )
            .with_evidence(format!("/{}", paths::ANNOTATIONS), said)
            .with_evidence(format!("/{}", paths::CURRENT_CONFIG), record.clone())
            .with_message(answered.then_some(words))
            .next(format!(
                "oc get node {node} -o yaml | grep machineconfiguration"
            ))
            .next("oc get mcp")
            .next(evidence.own_command("status --for-cluster")),
    )
}
