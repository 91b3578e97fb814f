//! Does the image contain everything that a node needs to deploy and start it?

use crate::judge::crossing::{CrossingCheck, CrossingFinding, Target};
use crate::node::platform::Platform;

/// The check.
pub(super) const CHECK: CrossingCheck = CrossingCheck::of_image("bootable", judge);

/// Labels, one of which an image needs to be deployed.
const LABELS: [&str; 2] = ["ostree.bootable", "containers.bootc"];

/// Programs, one of which the kernel or the initramfs starts.
const INITS: [&str; 2] = ["usr/lib/systemd/systemd", "usr/sbin/init"];

/// The next step for all of these findings.
pub(super) const NEXT: &str = "Take the node image of the cluster's release: oc adm release info --image-for=rhel-coreos RELEASE; or build the image again, \
     with bootc container lint as its last step.";

fn judge(target: &Target, _: &Platform) -> Vec<CrossingFinding> {
    let found = [
        judge_label(target),
        judge_kernel(target),
        judge_init(target),
    ];
    found.into_iter().flatten().collect()
}

fn inhibitor_finding(target: &Target, subject: &str, what: &str, seen: String) -> CrossingFinding {
    CrossingFinding::inhibitor(subject, what)
        .with_evidence(&target.tree.source, seen)
        .next(NEXT)
}

/// Judges the labels. A directory has none; an image has labels and an architecture.
fn judge_label(target: &Target) -> Option<CrossingFinding> {
    let labels = &target.tree.labels;
    target.tree.architecture.as_ref()?;
    if LABELS.iter().any(|label| labels.contains_key(*label)) {
        return None;
    }
    let what = "the image is not an OS image: it has none of the labels that a node asks for";
    let seen = format!("no label {}", LABELS.join(" or "));
    let finding = inhibitor_finding(target, "label", what, seen);
    Some(finding.with_prevented("Target image does not have ostree.bootable label"))
}

fn judge_kernel(target: &Target) -> Option<CrossingFinding> {
    let kernels = target.kernel_versions();
    let (what, seen, words) = match kernels.as_slice() {
        [_] => return None,
        [] => (
            "the image has no kernel, so nothing of it can be booted",
            "no usr/lib/modules/VERSION/vmlinuz".to_owned(),
            "Failed to find kernel in /usr/lib/modules, /usr/lib/ostree-boot or /boot",
        ),
        several => (
            "the image has several kernels, and it is not decided which one boots",
            format!("vmlinuz of {}", several.join(", ")),
            "Found multiple subdirectories in usr/lib/modules",
        ),
    };
    Some(inhibitor_finding(target, "kernel", what, seen).with_prevented(words))
}

fn judge_init(target: &Target) -> Option<CrossingFinding> {
    if INITS.iter().any(|path| target.tree.exists(path)) {
        return None;
    }
    let what = "the image has no init, so the kernel stops where it would start it";
    let seen = format!("no {}", INITS.join(" and no "));
    let finding = inhibitor_finding(target, "init", what, seen);
    Some(finding.with_prevented("No /sbin/init, trying fallback"))
}
