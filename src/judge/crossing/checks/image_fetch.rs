//! Can the node's tools fetch the image, or does the signature policy or a blocked registry refuse it?

use crate::judge::crossing::{CrossingCheck, CrossingFinding, CrossingSeverity, Target};
use crate::node::platform::Platform;

/// The check.
pub(super) const CHECK: CrossingCheck = CrossingCheck::of_image("image-fetch", judge);

fn judge(_: &Target, node: &Platform) -> Vec<CrossingFinding> {
    let (severity, what) = match &node.refused_fetch {
        Ok(None) => return Vec::new(),
        Ok(Some(why)) => (
            CrossingSeverity::Inhibitor,
            format!("the image would not be fetched: {why}"),
        ),
        Err(why) => (
            CrossingSeverity::Unknown,
            format!("it is unknown whether the image would be fetched: {why}"),
        ),
    };
    let next = "Look at /etc/containers/policy.json and registries.conf; what a MachineConfig has written is corrected there.";
    let finding = CrossingFinding::new(severity, "fetching the image", what)
        .with_prevented("Running image is rejected by policy.");
    vec![finding.next(next)]
}
