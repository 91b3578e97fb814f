//! FP-57: an encrypted disk of the system will not open at the next boot.

use super::doors::judge_door;
use crate::diagnose::doctor::crossing::CrossingMoment;
use crate::diagnose::doctor::{CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence};
use crate::judge::crossing::{CrossingFailure, CrossingSeverity};

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-57",
    title: "an encrypted disk will not open at the next boot",
    looks_at: "both copies of the LUKS header, clevis tokens, arguments and network of the initramfs",
    explain: "clevis opens the disk in the initramfs with a Tang server, the TPM, or a number of such pins. Tang needs a network \
there, and the initramfs reads no network file of the node: a node without DHCP needs ip= and nameserver= among \
the kernel arguments, and rd.neednet=1. The TPM opens the disk only while the registers that it is bound to are the same: a new \
boot loader or kernel changes 4, 8 and 9, new firmware or keys change 7.\n\n\
The header of LUKS 2 has two copies with a checksum each. With one copy damaged the disk still opens. With both damaged \
nothing opens it any more, and the running system does not notice before its next boot. The header of LUKS 1 is not \
judged.\n\n\
The same is judged by mco-rescue preflight (check encrypted-root). No secret is read. Before the reboot: a passphrase for one boot, \
cryptsetup luksAddKey DEVICE; never remove a key slot. Whether Tang answers can be tested on the node: curl http://TANG/adv.",
    judge: judge_encrypted,
};

fn judge_encrypted(evidence: &DoctorEvidence) -> CheckVerdict {
    judge_door(evidence, CHECK.id, |finding, seen| {
        let is_of_tpm = finding.failure == Some(CrossingFailure::Tpm);
        // If no other system is staged, nothing changes the registers of the TPM.
        if is_of_tpm && seen.moment == CrossingMoment::Present {
            return None;
        }
        let is_header = finding.failure == Some(CrossingFailure::LuksHeader);
        Some(match (finding.severity, is_header) {
            (CrossingSeverity::Inhibitor, true) => (
                CheckSeverity::Critical,
                "the header of an encrypted disk is damaged".to_owned(),
            ),
            (CrossingSeverity::Inhibitor, false) => (
                CheckSeverity::Critical,
                "the TPM will not open an encrypted disk".to_owned(),
            ),
            (_, true) => (
                CheckSeverity::Warning,
                "one copy of the header of an encrypted disk is damaged".to_owned(),
            ),
            _ if is_of_tpm => (
                CheckSeverity::Warning,
                "the TPM may not open an encrypted disk".to_owned(),
            ),
            _ => (
                CheckSeverity::Warning,
                "Tang may not be reached when the root disk is opened".to_owned(),
            ),
        })
    })
}
