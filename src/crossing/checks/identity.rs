//! Is it an image for nodes, for this machine, and not older than the node's?

use super::ARCHITECTURE;
use crate::crossing::{CrossingCheck, CrossingFinding, CrossingSeverity, Target};
use crate::node::platform::Platform;

/// The check.
pub(super) const CHECK: CrossingCheck = CrossingCheck {
    id: ARCHITECTURE,
    title: "the image is for this machine's architecture",
    judge,
};

fn judge(target: &Target, node: &Platform) -> Vec<CrossingFinding> {
    let (Some(wanted), Ok(own)) = (&target.tree.architecture, &node.architecture) else {
        return Vec::new();
    };
    if wanted == own {
        return Vec::new();
    }
    let what = format!("the image is for {wanted}, and this machine is {own}");
    vec![
        CrossingFinding::new(CrossingSeverity::Inhibitor, "architecture", what)
            .seen(&target.tree.source, format!("architecture {wanted}"))
            .prevents("Exec format error")
            .next("Take the image of the same release for this architecture."),
    ]
}
