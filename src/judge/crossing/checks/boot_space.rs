//! Is there enough space for the image: for its kernel on `/boot`, and for its content on `/sysroot`?

use crate::judge::crossing::{CrossingCheck, CrossingFinding, CrossingSeverity, Target};
use crate::node::bootloader::BootEntry;
use crate::node::platform::Platform;
use crate::node::space::{Fit, MIN_FREE_PERCENT, Space, kernel_room};

/// The check of `/boot`.
pub(super) const CHECK: CrossingCheck = CrossingCheck::of_image("boot-space", judge_boot);

/// The check of `/sysroot`.
pub(super) const SYSROOT: CrossingCheck = CrossingCheck::of_image("sysroot-space", judge_sysroot);

const BLOCK: u64 = 4096;

fn judge_boot(target: &Target, node: &Platform) -> Vec<CrossingFinding> {
    let size = |name: &str| {
        let path = target.kernel_file(name)?;
        Some(target.tree.find_file(&path)?.size.next_multiple_of(BLOCK))
    };
    let Some(kernel) = size("vmlinuz") else {
        return Vec::new();
    };
    let bytes = kernel + size("initramfs.img").unwrap_or(0) + size(".vmlinuz.hmac").unwrap_or(0);
    let (space, entries, kernels) = match (&node.boot.space, &node.boot.entries, &node.boot.kernels)
    {
        (Ok(Some(space)), Ok(entries), Ok(kernels)) => (space, entries, kernels),
        (Ok(None), ..) => return vec![unknown_space("/boot", "/boot is missing below this root")],
        (Err(reason), ..) | (_, Err(reason), _) | (.., Err(reason)) => {
            return vec![unknown_space("/boot", reason)];
        }
    };
    let booted = node.boot.booted_entry(&node.command_line);
    let stays = |entry: &BootEntry| Some(entry) == booted;
    let room = kernel_room(kernels, entries, Some(bytes), None, stays);
    let Some(finding) = judge_fit(space.fit_kernel(room)) else {
        return Vec::new();
    };
    vec![
        finding
            .with_evidence(
                "/boot",
                format!(
                    "{} free of {}",
                    format_mib(space.free),
                    format_mib(space.total)
                ),
            )
            .with_evidence(
                &target.tree.source,
                format!("kernel and initramfs {}", format_mib(bytes)),
            ),
    ]
}

fn judge_fit(fit: Fit) -> Option<CrossingFinding> {
    match fit {
        Fit::Fits => None,
        Fit::AfterPruning { pruned } => {
            let what = format!(
                "the image's kernel fits only after {} of kernels that the running system does not need are removed; \
                 until the next boot there is no older system to go back to",
                format_mib(pruned)
            );
            Some(CrossingFinding::warning("/boot", what).with_prevented(
                "Insufficient space left in bootfs; updating bootloader in two steps",
            ))
        }
        Fit::TooSmall { missing } => {
            let what = format!("/boot lacks {} for the image's kernel", format_mib(missing));
            Some(
                CrossingFinding::inhibitor("/boot", what)
                    .with_prevented("error: Installing kernel: No space left on device")
                    .next("rpm-ostree cleanup --pending --rollback")
                    .next(
                        "Look for files that are not of the system: du -ah /boot | sort -h | tail",
                    ),
            )
        }
    }
}

fn judge_sysroot(target: &Target, node: &Platform) -> Vec<CrossingFinding> {
    let space = match &node.sysroot_space {
        Ok(Some(space)) => space,
        Ok(None) => {
            return vec![unknown_space(
                "/sysroot",
                "/sysroot is missing below this root",
            )];
        }
        Err(reason) => return vec![unknown_space("/sysroot", reason)],
    };
    let bytes = target.tree.content_bytes.unwrap_or_default();
    let missing = |bytes: u64| match space.fit_import(bytes, MIN_FREE_PERCENT) {
        Fit::TooSmall { missing } => Some(missing),
        _ => None,
    };
    let Some(lacking) = missing(bytes) else {
        return Vec::new();
    };
    // Content that the node already has is not imported again; without the reserve nothing is imported.
    let severity = match missing(0) {
        Some(_) => CrossingSeverity::Inhibitor,
        None => CrossingSeverity::Warning,
    };
    let what = format!(
        "/sysroot lacks {} for the image; ostree leaves {MIN_FREE_PERCENT} % free",
        format_mib(lacking)
    );
    vec![
        CrossingFinding::new(severity, "/sysroot", what)
            .with_evidence("/sysroot", free_words(space))
            .with_evidence(&target.tree.source, size_words(target))
            .with_prevented("error: min-free-space-percent '3%' would be exceeded")
            .next("rpm-ostree cleanup --base --pending --rollback")
            .next("crictl rmi --prune"),
    ]
}

fn free_words(space: &Space) -> String {
    format!(
        "{} free of {}",
        format_mib(space.free),
        format_mib(space.total)
    )
}

fn size_words(target: &Target) -> String {
    match target.tree.content_bytes {
        Some(bytes) => format!("content {}", format_mib(bytes)),
        None => "its size is not known".to_owned(),
    }
}

fn unknown_space(place: &str, reason: impl std::fmt::Display) -> CrossingFinding {
    let what = format!("the free space of {place} is not known: {reason}");
    let finding = CrossingFinding::unknown(place, what);
    finding.next(format!("df -h {place}"))
}

fn format_mib(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}
