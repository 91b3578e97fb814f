//! FP-60: the recorded config is incomplete.

use crate::base::paths;
use crate::config::document::brings_kubelet;
use crate::diagnose::doctor::{CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding};
use crate::node::Records;

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-60",
    title: "the recorded config is incomplete",
    looks_at: "if the recorded config has the kubelet, and is a rendered one",
    explain: "Every rendered config has kubelet.service. A record without it comes from a single MachineConfig, such \
as 99-worker-ssh, that was applied as if it were the rendered one. Everything else of the node's config was removed \
with it, and the node matches the rest.\n\n\
mco-rescue rollback reverts that run. If the run is too old, apply the rendered config of the pool: from the \
cache, from another node of the pool, or made with mco-rescue render POOL FILES...",
    judge: judge_no_kubelet,
};

fn judge_no_kubelet(evidence: &DoctorEvidence) -> CheckVerdict {
    let Some(records) = evidence.records.get() else {
        return CheckVerdict::not_seen("the recorded config: the records cannot be read");
    };
    let recorded = records.baseline().config().or(records.recorded_config());
    let Some(config) = recorded.filter(|config| !config.emptied) else {
        return CheckVerdict::healthy();
    };
    let foreign = config
        .why_not_rendered(false)
        .filter(|_| !config.has_rendered_name());
    if brings_kubelet(&config.ignition) && foreign.is_none() {
        return CheckVerdict::healthy();
    }
    let means = "A node's files and units are not in it. The node may not join the cluster, or not start again.";
    let mut finding = DoctorFinding::critical("the recorded config is incomplete", means);
    if !brings_kubelet(&config.ignition) {
        finding =
            finding.with_evidence(format!("/{}", paths::CURRENT_CONFIG), "no kubelet.service");
    }
    if let Some(why) = foreign {
        finding = finding.with_evidence(config.name.clone(), why);
    }
    CheckVerdict::one_finding(next(evidence, records, finding))
}

fn next(evidence: &DoctorEvidence, records: &Records, finding: DoctorFinding) -> DoctorFinding {
    let last = evidence.last_run().map(|run| run.config.name.clone());
    let is_last = last.is_some() && last == records.name();
    let finding = if is_last {
        finding.next(format!("mco-rescue rollback{}", evidence.at_root()))
    } else {
        finding
    };
    finding
        .next(format!("mco-rescue cache list{}", evidence.at_root()))
        .next(format!("mco-rescue plan{} CONFIG", evidence.at_root()))
}
