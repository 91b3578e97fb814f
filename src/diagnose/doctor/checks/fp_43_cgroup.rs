//! FP-43: kernel arguments that the next OS does not accept, above all those for cgroup v1.

use super::doors::{judge_door, with_subject};
use crate::diagnose::doctor::{CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence};

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-43",
    title: "kernel arguments are left that the OS does not accept",
    looks_at: "arguments of the next boot, and the version of the OS that it enters",
    explain: "systemd of EL 10 has no cgroup v1. With systemd.unified_cgroup_hierarchy=0 it halts every boot for 30 seconds \
and then uses v2; if v1 is forced, the kubelet does not run. ifname=ethN: and biosdevname=1 do nothing, or something \
else, on the newer system.\n\n\
The arguments of the next boot are judged against the deployment that it enters, as mco-rescue preflight does \
(check kernel-arguments).\n\n\
rpm-ostree kargs --delete=ARGUMENT takes one off. If the config asks for them, set cgroupMode: v2 in nodes.config.openshift.io cluster first.",
    judge: judge_arguments,
};

/// The arguments that force cgroup v1, with which the kubelet does not run.
const FORCE: [&str; 2] = [
    "systemd_cgroup_enable_legacy_force",
    "SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE",
];

fn judge_arguments(evidence: &DoctorEvidence) -> CheckVerdict {
    judge_door(evidence, CHECK.id, |finding, _| {
        if finding.subject != "cgroup v1" {
            let what = with_subject(&finding.subject, "the OS does not accept this argument");
            return Some((CheckSeverity::Warning, what));
        }
        let mut said = finding.evidence.iter();
        let is_forced = said.any(|one| FORCE.iter().any(|word| one.said.contains(word)));
        Some(if is_forced {
            (
                CheckSeverity::Critical,
                "cgroup v1 is forced, and the kubelet does not run on it".to_owned(),
            )
        } else {
            (
                CheckSeverity::Warning,
                "arguments for cgroup v1 hold each boot for 30 seconds".to_owned(),
            )
        })
    })
}
