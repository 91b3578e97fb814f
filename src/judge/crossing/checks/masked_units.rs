//! Are units that the node needs masked?

use super::faults;
use crate::base::invocation::{mco_rescue, node_path};
use crate::judge::crossing::{CrossingCheck, CrossingFinding, Target};
use crate::node::platform::Platform;
use crate::node::unit_links::NeededMask;

/// The check.
pub(super) const CHECK: CrossingCheck = CrossingCheck::of_node("masked-units", judge);

fn judge(_: &Target, node: &Platform) -> Vec<CrossingFinding> {
    let Some(found) = &node.file_faults else {
        return Vec::new();
    };
    let of_config = found.masked_by_config.iter().map(|(unit, message)| {
        CrossingFinding::warning(unit, message)
            .with_evidence("spec.config.systemd.units", format!("{unit}: mask: true"))
            .next("Correct the unit in its MachineConfig.")
    });
    let of_config = of_config.collect::<Vec<_>>();
    let of_node: Vec<CrossingFinding> = match &found.masks {
        Ok(masks) => masks.iter().map(describe_mask).collect(),
        Err(why) => faults::note_unseen("units", std::slice::from_ref(why))
            .into_iter()
            .collect(),
    };
    of_config.into_iter().chain(of_node).collect()
}

fn describe_mask(mask: &NeededMask) -> CrossingFinding {
    let unit = mask.unit();
    let what = format!("the unit is masked: from the next boot on, {}", mask.stops);
    CrossingFinding::inhibitor(unit, what)
        .with_evidence(mask.path.to_string(), "a link to /dev/null")
        .with_prevented(format!("Unit {unit} is masked"))
        .next(if mask.of_config {
            mco_rescue("apply")
        } else {
            format!("rm {}", node_path(&mask.path.to_string()))
        })
}
