//! FP-42: the mounted `/boot` is not the one of this system.

use super::doors::judge_door;
use crate::diagnose::doctor::{CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence};
use crate::judge::crossing::{CrossingFailure, CrossingSeverity};

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-42",
    title: "/boot is another disk's",
    looks_at: "mounts, labels of file systems, boot=, /boot/.root_uuid, the running kernel in /boot",
    explain: "Without the kernel argument boot= the node finds /boot by the label boot. An old disk with the same label, \
a clone, or a second path to the disk may be mounted in its place. Then every update writes kernels and boot entries to a disk that \
does not boot this node, and the daemon cannot read the state of the OS.\n\n\
Proofs: the running kernel is not below the mounted /boot/ostree; /boot/.root_uuid names another root file system; boot= names \
another file system. mco-rescue preflight judges the same (check boot-filesystem). Below --root the mounts of the node are not \
visible.\n\n\
boot=UUID=... on the boot entry names the right one. The stale label goes with e2label DEVICE ''.",
    judge: judge_boot_filesystem,
};

fn judge_boot_filesystem(evidence: &DoctorEvidence) -> CheckVerdict {
    judge_door(evidence, CHECK.id, |finding, _| {
        let what = if finding.failure == Some(CrossingFailure::BootLabel) {
            "several file systems have the label boot"
        } else {
            "the mounted /boot is not that of this system"
        };
        let severity = match finding.severity {
            CrossingSeverity::Inhibitor => CheckSeverity::Critical,
            // The right one is mounted now.
            _ => CheckSeverity::Warning,
        };
        Some((severity, what.to_owned()))
    })
}
