//! FP-37: the boot loader on the EFI system partition is stale or incomplete, or zipl was not run. FP-11 is the same problem
//! from the victim's point of view.

use super::doors::judge_door;
use crate::diagnose::doctor::crossing::{CrossingEvidence, CrossingMoment};
use crate::diagnose::doctor::{CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence, WHAT};
use crate::judge::crossing::{CrossingFailure, CrossingFinding, CrossingSeverity};

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-37",
    title: "the boot loader is stale or incomplete",
    looks_at: "files on the EFI system partitions against those of the next OS, grub.cfg, bootupd's state; zipl in the repository's configuration",
    explain: "shim and GRUB are on the EFI system partition, outside of the deployments. An update of the OS does not \
replace them: the daemon does so only where Secure Boot is on, and bootupd compares versions in its state file, not the files. An old \
GRUB may not read what a newer system writes, and the machine stops at the prompt grub>. The same happens if grub.cfg beside \
the boot loader is missing.\n\n\
Each partition is compared with the deployment that the next boot enters, as mco-rescue preflight does (check \
boot-loader). If that is the running system, older files are a notice: they have just booted it. Partitions of other disks than \
that of /boot are ignored.\n\n\
On IBM Z zipl writes a list of blocks by which the machine starts. OSTree runs it after a change of the boot entries only if \
/ostree/repo/config has bootloader=zipl below [sysroot]. Without it everything is staged without an error, and never boots.\n\n\
The commands copy the old files first, and then those of the OS, to every such partition. At the prompt grub>: configfile \
(hd0,gpt3)/grub2/grub.cfg, with the partition of /boot.",
    judge: judge_boot_loader,
};

fn judge_boot_loader(evidence: &DoctorEvidence) -> CheckVerdict {
    judge_door(evidence, CHECK.id, |finding, seen| {
        if is_foreign(seen, &finding.subject) {
            return None;
        }
        if finding.check == "boot-entries" {
            let what = "a change of the boot entries is lost: zipl is not run";
            return Some((CheckSeverity::Warning, what.to_owned()));
        }
        let is_present = seen.moment == CrossingMoment::Present;
        Some((severity_of(finding, is_present), what_of(finding)))
    })
}

fn severity_of(finding: &CrossingFinding, is_present: bool) -> CheckSeverity {
    match finding.severity {
        CrossingSeverity::Inhibitor | CrossingSeverity::Cured => CheckSeverity::Critical,
        // It has just booted this system.
        _ if is_present => CheckSeverity::Notice,
        _ => CheckSeverity::Warning,
    }
}

fn what_of(finding: &CrossingFinding) -> String {
    let subject = &finding.subject;
    let what = match finding.failure {
        Some(CrossingFailure::OldGrubConfig) => "GRUB's configuration has an old format".to_owned(),
        Some(CrossingFailure::GrubPrompt) if finding.severity == CrossingSeverity::Inhibitor => {
            format!("no grub.cfg on {subject}: it stops at grub>")
        }
        Some(CrossingFailure::GrubPrompt) => {
            format!("the boot loader on {subject} is not the OS's")
        }
        Some(CrossingFailure::BootLoaderSpace) => {
            format!("an update of the boot loader on {subject} broke off")
        }
        _ => format!("the boot loader on {subject} finds /boot by label"),
    };
    if what.chars().count() <= WHAT {
        what
    } else {
        "the boot loader is stale or incomplete".to_owned()
    }
}

/// Returns true for a partition of a disk that has nothing of this system, such as an installation medium.
pub(super) fn is_foreign(seen: &CrossingEvidence, partition: &str) -> bool {
    let storage = &seen.node.storage;
    let mut devices = storage.devices.iter().flatten();
    let Some(device) = devices.find(|device| device.path() == partition) else {
        return false;
    };
    let points = ["/boot", "/sysroot", "/"];
    let own = points.iter().find_map(|point| storage.mounted_at(point));
    let own = own.map(|mount| storage.disks_of(&mount.number));
    own.is_some_and(|own| !own.is_empty() && own.is_disjoint(&storage.disks_of(&device.number)))
}
