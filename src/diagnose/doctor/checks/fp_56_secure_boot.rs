//! FP-56: shim refuses a boot loader that is still in use.

use super::doors::judge_door;
use super::fp_37_boot_loader::is_foreign;
use crate::diagnose::doctor::crossing::CrossingMoment;
use crate::diagnose::doctor::{CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence};
use crate::judge::crossing::CrossingSeverity;

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-56",
    title: "Secure Boot refuses a boot loader",
    looks_at: "SBAT levels of the machine and of each shim, and the generations of the boot loaders",
    explain: "A newer shim raises the revocation level (SBAT) of the machine when it boots, and the level stays. From then on an \
older GRUB is refused: on the other disk of a mirror, of another system, or on a recovery medium. So shim and GRUB have \
to be replaced together, on every EFI system partition.\n\n\
Each partition is judged at the level of the machine, of the shims there, and of the OS that the next boot enters, as \
mco-rescue preflight does (check secure-boot). A shim that is only in the running OS is not dangerous before it is installed.\n\n\
mokutil --sb-state shows if Secure Boot is on. The commands of FP-37 update a partition.",
    judge: judge_secure_boot,
};

fn judge_secure_boot(evidence: &DoctorEvidence) -> CheckVerdict {
    judge_door(evidence, CHECK.id, |finding, seen| {
        if is_foreign(seen, &finding.subject) {
            return None;
        }
        let of_the_os = format!("{} EFI/", seen.target.tree.source);
        let by_the_os = finding
            .evidence
            .iter()
            .any(|one| one.place.starts_with(&of_the_os));
        let is_present = seen.moment == CrossingMoment::Present;
        let severity = match finding.severity {
            CrossingSeverity::Inhibitor if by_the_os && is_present => CheckSeverity::Warning,
            CrossingSeverity::Inhibitor => CheckSeverity::Critical,
            _ if by_the_os && is_present => CheckSeverity::Notice,
            _ => CheckSeverity::Warning,
        };
        let what = match finding.subject.as_str() {
            "image" => "the OS brings a boot loader that shim refuses",
            _ => "shim refuses a boot loader that is still in use",
        };
        Some((severity, what.to_owned()))
    })
}
