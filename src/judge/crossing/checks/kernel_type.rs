//! Can the machine and the image provide the kernel that the config requests?

use crate::judge::crossing::{CrossingCheck, CrossingFinding, Target};
use crate::node::command::rpm_ostree::packages::find_lacking_kernel;
use crate::node::os_release::Class;
use crate::node::platform::Platform;

/// The check.
pub(super) const CHECK: CrossingCheck = CrossingCheck::of_node("kernel-type", judge);

/// The field of the config.
const FIELD: &str = "spec.kernelType";

fn judge(target: &Target, node: &Platform) -> Vec<CrossingFinding> {
    let Some(found) = &node.file_faults else {
        return Vec::new();
    };
    let kind = found.kernel_type;
    if kind == "default" {
        return Vec::new();
    }
    let Some(machine) = found.machine else {
        let what = "the architecture of the node is not known, so it is unknown whether this kernel exists for it";
        return vec![CrossingFinding::unknown(FIELD, what).with_evidence(FIELD, kind)];
    };
    let os = &target.os_release;
    let of_image = (os.class() == Class::Coreos)
        .then(|| format!("{} has no other kernels than its own", os.name()));
    let why = find_lacking_kernel(kind, machine).or(of_image);
    let finding = why.map(|why| {
        CrossingFinding::inhibitor(FIELD, why)
            .with_evidence(FIELD, kind)
            .next("Set spec.kernelType to default in the MachineConfig that asks for it.")
    });
    finding.into_iter().collect()
}
