//! FP-28: a node that was provisioned from an old image.

use crate::base::invocation::on_node;
use crate::diagnose::doctor::{
    CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding,
};
use crate::node::builds::Build;
use crate::node::engine::Engine;

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-28",
    title: "the boot image is old",
    looks_at: "the image that the disk was provisioned from, and rpm-ostree's features",
    explain: "A node is provisioned from a boot image and updates itself to the image of the cluster. An old boot image has an \
Ignition that does not support new configs (\"unsupported config version\"), a podman or rpm-ostree that cannot read new \
images, and a boot loader that no update of the OS replaces.\n\n\
Where rpm-ostree is too old for the image the daemon updates through a container and reboots twice. mco-rescue plan \
shows the required steps. The boot loader is updated by hand: bootupctl status, bootupctl update. A stale one can stop at \
grub> after an update (FP-11).\n\n\
For new nodes: use a newer boot image, and in the pointer config an Ignition version that it supports.",
    judge: judge_boot_image,
};

/// Days after which an image counts as old: boot loaders and config formats have changed by then.
const OLD: u64 = 730;
const DAY: u64 = 86_400;

fn judge_boot_image(evidence: &DoctorEvidence) -> CheckVerdict {
    let verdict = CheckVerdict::healthy().and_findings(without_containers(evidence));
    match evidence.upkeep.builds.seen() {
        Err(why) => verdict.and_unseen(format!("the boot image: {why}")),
        Ok(builds) => match (&builds.boot_image, &builds.os) {
            (Some(born), Some(os)) => verdict.and_findings(find_old_image(evidence, born, os)),
            _ => verdict.and_unseen(format!(
                "the boot image: no file has its date; {}",
                on_node("bootupctl status")
            )),
        },
    }
}

fn find_old_image(evidence: &DoctorEvidence, born: &Build, os: &Build) -> Option<DoctorFinding> {
    let days = os.day.saturating_sub(born.day) / DAY;
    let first = evidence.first_boot_files.is_waiting();
    let (severity, means) = if first {
        (
            CheckSeverity::Warning,
            "This first boot may fail on a config or an image that the old programs do not support.",
        )
    } else {
        (
            CheckSeverity::Notice,
            "The boot loader may be that old too: OS updates do not update it.",
        )
    };
    (days > OLD).then(|| {
        let what = format!("the disk was written {} years before its OS", days / 365);
        DoctorFinding::new(severity, what, means)
            .with_evidence(&born.place, &born.version)
            .with_evidence(&os.place, &os.version)
            .next("bootupctl status")
    })
}

fn without_containers(evidence: &DoctorEvidence) -> Option<DoctorFinding> {
    let facts = evidence.facts().ok()?;
    if facts.engine != Engine::RpmOstree {
        return None;
    }
    let means = "It cannot rebase to an image of the cluster. The daemon updates through a container, with two reboots.";
    (!facts.version.has_containers()).then(|| {
        DoctorFinding::warning("rpm-ostree is too old for container images", means)
            .with_evidence("rpm-ostree --version", "has no feature container")
            .next(evidence.own_command("plan"))
    })
}
