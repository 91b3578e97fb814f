//! FP-38: the processor lacks a feature that the next OS is built for.

use super::doors::judge_door;
use crate::diagnose::doctor::crossing::CrossingMoment;
use crate::diagnose::doctor::{CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence};

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-38",
    title: "the processor is too old for the next OS",
    looks_at: "flags of every processor, and the level that the C library of the next OS asks for",
    explain: "EL 9 is built for x86-64-v2 and EL 10 for x86-64-v3. On a processor without these flags no program of the \
new system starts: the kernel boots, and the first process ends. A virtual machine often has an old processor model on a new \
machine, and a reboot of the guest keeps the model.\n\n\
Only a deployment that is not booted yet is judged, as mco-rescue preflight judges an image (check cpu-level).\n\n\
Raise the model (libvirt: host-passthrough; VMware: the EVC mode), then switch the virtual machine off and on again.",
    judge: judge_processor,
};

fn judge_processor(evidence: &DoctorEvidence) -> CheckVerdict {
    judge_door(evidence, CHECK.id, |_, seen| {
        // The running system obviously runs.
        (seen.moment != CrossingMoment::Present).then(|| {
            let what = "the next OS does not run on this processor".to_owned();
            (CheckSeverity::Critical, what)
        })
    })
}
