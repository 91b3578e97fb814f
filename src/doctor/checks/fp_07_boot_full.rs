//! FP-07: no room for another kernel on `/boot`.

use crate::doctor::evidence::BootEvidence;
use crate::doctor::{
    CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, Fact,
};
use crate::node::bootloader::{BootEntry, KernelDirectory};
use crate::node::space::{Fit, kernel_room};

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-07",
    title: "/boot is too full for the next OS",
    looks_at: "room on /boot, kernels there, and the boot entries that need them",
    explain: "The kernel and initramfs of a new deployment are copied to /boot while the node shuts down. If \
they do not fit, the shutdown cannot finish the update, no message appears, and the node boots the old OS again: see FP-01.\n\n\
It is filled by kernels of kept deployments: the rollback deployment, pinned ones, and directories below \
/boot/ostree that no boot entry names any more. df misleads there: it leaves out the blocks reserved for root.\n\n\
rpm-ostree cleanup -r drops the rollback deployment and its kernel, and ostree removes kernels without an entry. What \
mco-rescue pinned is released by mco-rescue rollback --forget.",
    judge: judge_boot_full,
};

const MIB: u64 = 1 << 20;

/// Returns the verdict for a `/boot` without kernels; a system that does not boot images needs none.
fn not_mounted(evidence: &DoctorEvidence) -> CheckVerdict {
    if !evidence.boots_images {
        return CheckVerdict::healthy();
    }
    CheckVerdict::unseen(format!(
        "/boot: no kernel of ostree is there. If its partition is not mounted: mount -o ro /dev/disk/by-label/boot {}, \
         then mco-rescue doctor{} again; lsblk -f shows the label",
        evidence.path("/boot"),
        evidence.at_root()
    ))
}

fn judge_boot_full(evidence: &DoctorEvidence) -> CheckVerdict {
    let boot = match evidence.boot.seen() {
        Ok(boot) => boot,
        Err(why) => return CheckVerdict::unseen(format!("/boot: {why}")),
    };
    if boot.kernels.is_empty() {
        return not_mounted(evidence);
    }
    let keep = |entry: &BootEntry| {
        boot.entries
            .first()
            .is_some_and(|first| first.file == entry.file)
    };
    let room = boot
        .room
        .unwrap_or_else(|| kernel_room(&boot.kernels, &boot.entries, None, None, keep));
    let staged = evidence
        .facts()
        .is_ok_and(|facts| facts.deployments.staged().is_some());
    match boot.space.fit_kernel(room) {
        Fit::Fits => CheckVerdict::healthy().and(find_orphaned_kernels(evidence, boot)),
        Fit::AfterPruning { pruned } => {
            let what = "/boot has room for the next OS only after a clean-up";
            let means = "Newer versions of ostree clean up first by themselves. Older ones fail at the shutdown.";
            CheckVerdict::found(
                finding(
                    evidence,
                    CheckSeverity::Notice,
                    what,
                    means,
                    boot,
                    room.needed,
                )
                .seen("can be removed", mib(pruned)),
            )
        }
        Fit::TooSmall { missing } => {
            let severity = if staged {
                CheckSeverity::Critical
            } else {
                CheckSeverity::Warning
            };
            let what = format!("/boot lacks {} for the next OS", mib(missing));
            let means = match staged {
                true => {
                    "An OS is staged, and the next shutdown cannot write it: the node would boot the old one."
                }
                false => "The next OS update will be staged, but lost at the shutdown.",
            };
            CheckVerdict::found(finding(evidence, severity, what, means, boot, room.needed))
        }
    }
}

fn finding(
    evidence: &DoctorEvidence,
    severity: CheckSeverity,
    what: impl Into<String>,
    means: &str,
    boot: &BootEvidence,
    needed: u64,
) -> DoctorFinding {
    let free = format!(
        "{} free of {}, {} needed",
        mib(boot.space.free),
        mib(boot.space.total),
        mib(needed)
    );
    let facts = boot.kernels.iter().map(|kernel| {
        let by = boot
            .entries
            .iter()
            .filter(|entry| entry.kernel_directory() == Some(&kernel.name));
        let by: Vec<&str> = by.map(|entry| entry.file.as_str()).collect();
        let by = if by.is_empty() {
            "no boot entry".to_owned()
        } else {
            by.join(", ")
        };
        Fact::new(
            format!("/boot/ostree/{}", kernel.name),
            format!("{}, for {by}", mib(kernel.bytes)),
        )
    });
    let finding = DoctorFinding::new(severity, what, means)
        .seen("/boot", free)
        .seen_all(facts)
        .daemon(Some("regfile copy: No space left on device".to_owned()));
    match evidence.live {
        true => finding
            .next("rpm-ostree cleanup -r")
            .next("mco-rescue rollback --forget"),
        // rpm-ostree does not answer there, and only the running node releases its pins.
        false => finding
            .next(format!("ostree admin status --sysroot={}", evidence.root))
            .next(evidence.cleanup()),
    }
}

fn find_orphaned_kernels(evidence: &DoctorEvidence, boot: &BootEvidence) -> Option<DoctorFinding> {
    let orphan = |kernel: &&KernelDirectory| {
        let mut entries = boot.entries.iter();
        !entries.any(|entry| entry.kernel_directory() == Some(&kernel.name))
    };
    let orphans: Vec<&KernelDirectory> = boot.kernels.iter().filter(orphan).collect();
    if orphans.is_empty() || boot.entries.is_empty() {
        return None;
    }
    let facts = orphans
        .iter()
        .map(|kernel| Fact::new(format!("/boot/ostree/{}", kernel.name), mib(kernel.bytes)));
    let means = "They only use space. ostree removes them at its next clean-up.";
    Some(
        DoctorFinding::new(
            CheckSeverity::Notice,
            "kernels on /boot that no entry names",
            means,
        )
        .seen_all(facts)
        .next(evidence.cleanup()),
    )
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(MIB))
}
