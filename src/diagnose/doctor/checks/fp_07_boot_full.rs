//! FP-07: not enough space for another kernel on `/boot`.

use crate::base::invocation::shell_word;
use crate::diagnose::doctor::evidence::BootEvidence;
use crate::diagnose::doctor::{
    CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, Fact, messages,
};
use crate::node::bootloader::{BootEntry, KernelDirectory};
use crate::node::engine::Engine;
use crate::node::space::{Fit, KernelRoom, Largest, kernel_room};

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-07",
    title: "/boot is too full for the next OS",
    looks_at: "room on /boot, kernels there, and the boot entries that need them",
    explain: "The kernel and initramfs of a new deployment are copied to /boot while the node shuts down. If \
they do not fit, the shutdown cannot finish the update, no message appears, and the node boots the old OS again: see FP-01.\n\n\
It is filled by kernels of kept deployments: the rollback deployment, pinned ones, and directories below \
/boot/ostree that no boot entry names any more. df misleads there: it leaves out the blocks reserved for root.\n\n\
rpm-ostree cleanup -r drops the rollback deployment and its kernel, and ostree removes kernels without an entry. What \
mco-rescue pinned is released by mco-rescue rollback --forget. The largest files there that belong to no deployment are \
named: no clean-up removes them.",
    judge: judge_boot_full,
};

const MIB: u64 = 1 << 20;

/// Returns the verdict for a `/boot` without kernels; a system that does not boot images needs none.
fn not_mounted(evidence: &DoctorEvidence) -> CheckVerdict {
    if !evidence.boots_images {
        return CheckVerdict::healthy();
    }
    CheckVerdict::not_seen(format!(
        "/boot: no kernel of ostree is there. If its partition is not mounted: `mount -o ro /dev/disk/by-label/boot {}`, \
         then `{}`; `lsblk -f` shows the label",
        evidence.shell_path("/boot"),
        evidence.own_command("doctor")
    ))
}

fn judge_boot_full(evidence: &DoctorEvidence) -> CheckVerdict {
    let boot = match evidence.boot.seen() {
        Ok(boot) => boot,
        Err(why) => return CheckVerdict::not_seen(format!("/boot: {why}")),
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
        Fit::Fits => CheckVerdict::healthy().and_findings(find_orphaned_kernels(evidence, boot)),
        Fit::AfterPruning { pruned } => {
            let what = "/boot has room for the next OS only after a clean-up";
            let means = "Newer versions of ostree clean up first by themselves. Older ones fail at the shutdown.";
            CheckVerdict::one_finding(
                boot_finding(evidence, CheckSeverity::Notice, what, means, boot, room)
                    .with_evidence("can be removed", format_mib(pruned)),
            )
        }
        Fit::TooSmall { missing } => {
            let severity = if staged {
                CheckSeverity::Critical
            } else {
                CheckSeverity::Warning
            };
            let what = format!("/boot lacks {} for the next OS", format_mib(missing));
            let means = if staged {
                "An OS is staged, and the next shutdown cannot write it: the node would boot the old one."
            } else {
                "The next OS update will be staged, but lost at the shutdown."
            };
            CheckVerdict::one_finding(boot_finding(evidence, severity, what, means, boot, room))
        }
    }
}

fn boot_finding(
    evidence: &DoctorEvidence,
    severity: CheckSeverity,
    what: impl Into<String>,
    means: &str,
    boot: &BootEvidence,
    room: KernelRoom,
) -> DoctorFinding {
    let free = format!(
        "{} free of {}, {} needed",
        format_mib(boot.space.free),
        format_mib(boot.space.total),
        format_mib(room.needed)
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
            format!("{}, for {by}", format_mib(kernel.bytes)),
        )
    });
    let finding = DoctorFinding::new(severity, what, means)
        .with_evidence("/boot", free)
        .seen_all(facts)
        .with_message(Some(messages::NO_SPACE_FOR_KERNEL.to_owned()));
    let finding = if evidence.live {
        clean_running(evidence, finding, room)
    } else {
        clean_root(evidence, finding, boot)
    };
    name_foreign(evidence, finding, boot)
}

/// Adds the cleanups that free space on the running node.
fn clean_running(
    evidence: &DoctorEvidence,
    finding: DoctorFinding,
    room: KernelRoom,
) -> DoctorFinding {
    let rollback = evidence.facts().ok();
    let rollback = rollback.and_then(|facts| Some((facts.engine, facts.deployments.rollback()?)));
    let finding = match (room.prunable, rollback) {
        (0, _) => finding,
        (_, Some((Engine::Bootc, rollback))) => {
            finding.next(format!("ostree admin undeploy {}", rollback.index))
        }
        _ => finding.next("rpm-ostree cleanup -r"),
    };
    let is_pinned = evidence.facts().is_ok_and(|facts| {
        let mut all = facts.deployments.all.iter();
        all.any(|one| one.pinned && !one.booted)
    });
    if is_pinned {
        finding.next(evidence.own_command("rollback --forget"))
    } else {
        finding
    }
}

/// Adds the cleanups that free space on a mounted disk, where rpm-ostree is not available.
fn clean_root(
    evidence: &DoctorEvidence,
    finding: DoctorFinding,
    boot: &BootEvidence,
) -> DoctorFinding {
    let root = shell_word(&evidence.root);
    let mut finding = finding.next(format!("ostree admin status --sysroot={root}"));
    if !orphan_kernels(boot).is_empty() {
        finding = finding.next(evidence.cleanup_command());
    }
    match boot.entries.len() {
        0 | 1 => finding,
        // The entries are in the order of the deployments: the last one is the oldest.
        all => finding.next(format!(
            "ostree admin undeploy --sysroot={root} {}",
            all - 1
        )),
    }
}

/// Adds the largest files that belong to no deployment, which no cleanup removes.
fn name_foreign(
    evidence: &DoctorEvidence,
    finding: DoctorFinding,
    boot: &BootEvidence,
) -> DoctorFinding {
    let many = format!("du -xah {} | sort -h | tail", evidence.shell_path("/boot"));
    let largest = match boot.largest.seen() {
        Ok(largest) => largest,
        Err(why) => {
            return finding
                .with_evidence("the largest files beside the kernels", why)
                .next(many);
        }
    };
    let facts = as_facts(largest, "of no deployment");
    let finding = finding.seen_all(facts);
    match largest.occupants.first() {
        Some(first) => finding
            .next(format!(
                "ls -lh {}",
                evidence.shell_path(&first.path.to_string())
            ))
            .next(format!(
                "mv {} {}",
                evidence.shell_path(&first.path.to_string()),
                evidence.shell_path("/var/")
            )),
        None if finding.next.is_empty() => finding.next(many),
        None => finding,
    }
}

/// Returns the largest files and directories as evidence.
pub(super) fn as_facts(largest: &Largest, whose: &str) -> Vec<Fact> {
    let facts = largest.occupants.iter().map(|one| {
        let files = if one.is_directory {
            " in its own files"
        } else {
            ""
        };
        Fact::new(
            one.path.to_string(),
            format!("{}{files}, {whose}", format_mib(one.bytes)),
        )
    });
    let partial = largest.is_partial.then(|| {
        Fact::new(
            "there may be larger files",
            "the search ended early, as there are very many",
        )
    });
    facts.chain(partial).collect()
}

/// Returns the kernels that no boot entry names.
fn orphan_kernels(boot: &BootEvidence) -> Vec<&KernelDirectory> {
    let is_orphan = |kernel: &&KernelDirectory| {
        let mut entries = boot.entries.iter();
        !entries.any(|entry| entry.kernel_directory() == Some(&kernel.name))
    };
    boot.kernels.iter().filter(is_orphan).collect()
}

fn find_orphaned_kernels(evidence: &DoctorEvidence, boot: &BootEvidence) -> Option<DoctorFinding> {
    let orphans = orphan_kernels(boot);
    if orphans.is_empty() || boot.entries.is_empty() {
        return None;
    }
    let facts = orphans.iter().map(|kernel| {
        Fact::new(
            format!("/boot/ostree/{}", kernel.name),
            format_mib(kernel.bytes),
        )
    });
    let means = "They only use space. ostree removes them at its next clean-up.";
    Some(
        DoctorFinding::notice("kernels on /boot that no entry names", means)
            .seen_all(facts)
            .next(evidence.cleanup_command()),
    )
}

fn format_mib(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(MIB))
}
