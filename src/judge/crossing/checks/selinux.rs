//! Does the SELinux policy fit the image?

use super::faults;
use crate::base::invocation::node_path;
use crate::judge::crossing::{CrossingCheck, CrossingFinding, CrossingSeverity, Target};
use crate::node::fault_group::FaultGroup;
use crate::node::platform::Platform;
use crate::node::selinux_state::SelinuxFaultKind;

/// The check.
pub(super) const CHECK: CrossingCheck = CrossingCheck::of_node("selinux", judge);

fn judge(_: &Target, node: &Platform) -> Vec<CrossingFinding> {
    match node.file_faults.as_ref().map(|found| &found.selinux) {
        None => Vec::new(),
        Some(Ok(groups)) => groups
            .iter()
            .filter_map(|group| describe_group(node, group))
            .collect(),
        Some(Err(why)) => faults::note_unseen("SELinux", std::slice::from_ref(why))
            .into_iter()
            .collect(),
    }
}

fn describe_group(
    node: &Platform,
    group: &FaultGroup<SelinuxFaultKind>,
) -> Option<CrossingFinding> {
    let severity = match group.kind {
        // The image is never booted.
        SelinuxFaultKind::Incomplete => CrossingSeverity::Inhibitor,
        // What is only a notice on the current OS matters with the next one.
        SelinuxFaultKind::OtherPolicy => CrossingSeverity::Warning,
        _ => faults::severity_of(group.weight)?,
    };
    let finding = faults::of_group(severity, group);
    let place = group.place();
    Some(match group.kind {
        SelinuxFaultKind::OtherPolicy => finding
            .next("cp -aT /usr/etc/selinux /etc/selinux")
            .next("Set booleans and install modules again after it, then reboot."),
        SelinuxFaultKind::Incomplete => {
            let name = place.rsplit('/').next().unwrap_or(place);
            let aside = format!("/etc/selinux/{name}.mco-rescue-aside");
            finding.next(format!("mv {} {}", node_path(place), node_path(&aside)))
        }
        _ => faults::look_at(node, place, finding),
    })
}
