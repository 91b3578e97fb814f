//! Can images be pulled with the node's files?

use super::faults;
use crate::judge::crossing::{CrossingCheck, CrossingFinding, Target};
use crate::node::platform::Platform;

/// The check.
pub(super) const CHECK: CrossingCheck = CrossingCheck::of_node("pull-files", judge);

fn judge(_: &Target, node: &Platform) -> Vec<CrossingFinding> {
    let Some(found) = &node.file_faults else {
        return Vec::new();
    };
    let mut all = faults::of_groups(node, &found.pulls.groups);
    all.extend(faults::note_unseen("files for pulls", &found.pulls.unseen));
    all
}
