//! Can the image's kubelet read the checkpoint files that the node's kubelet wrote?

use super::kubelet_skew::{kubelet_of, own_release};
use crate::judge::crossing::{CrossingCheck, CrossingFinding, Target};
use crate::node::platform::Platform;

/// The check.
pub(super) const CHECK: CrossingCheck = CrossingCheck::of_image("kubelet-checkpoints", judge);

fn judge(target: &Target, node: &Platform) -> Vec<CrossingFinding> {
    let kept = match &node.kubelet_files {
        Ok(kept) => kept,
        Err(reason) => {
            let what = format!("the kubelet's checkpoint files are not known: {reason}");
            let finding = CrossingFinding::unknown("kubelet", what);
            return vec![finding.next("ls -l /var/lib/kubelet")];
        }
    };
    let (Some((place, said, version)), Some((own_place, own, own_said))) =
        (kubelet_of(target), own_release(node))
    else {
        return Vec::new();
    };
    let (Some(from), Some(to)) = (own.kubernetes_minor(), version.kubernetes_minor()) else {
        return Vec::new();
    };
    let broken = kept.iter().filter(|file| file.breaks_between(from, to));
    let finding = broken.map(|file| {
        let what = file.describe_break(from, to, "the image");
        CrossingFinding::warning("kubelet", what)
            .with_evidence(&place, &said)
            .with_evidence(own_place, own_said)
            .with_prevented(file.kubelet_message("checkpoint is corrupted"))
            .next(file.advise_after_break())
    });
    finding.collect()
}
