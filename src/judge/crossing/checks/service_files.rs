//! Do the kubelet, CRI-O and NetworkManager accept their files?

use super::faults;
use crate::base::invocation::node_path;
use crate::judge::crossing::{CrossingCheck, CrossingFinding, Target};
use crate::node::platform::Platform;
use crate::node::service_configs::BrokenConfig;

/// The check.
pub(super) const CHECK: CrossingCheck = CrossingCheck::of_node("service-files", judge);

fn judge(_: &Target, node: &Platform) -> Vec<CrossingFinding> {
    match node.file_faults.as_ref().map(|found| &found.services) {
        None => Vec::new(),
        Some(Ok(broken)) => broken
            .iter()
            .filter_map(|one| describe_config(node, one))
            .collect(),
        Some(Err(why)) => {
            faults::note_unseen("configuration of services", std::slice::from_ref(why))
                .into_iter()
                .collect()
        }
    }
}

fn describe_config(node: &Platform, one: &BrokenConfig) -> Option<CrossingFinding> {
    let effect = one.service.reject_effect();
    let severity = faults::severity_of(effect.weight)?;
    let what = faults::to_sentences(effect.what, effect.means);
    let finding = CrossingFinding::new(severity, &one.place, what)
        .with_evidence(&one.place, &one.said)
        .with_prevented(&one.words);
    Some(
        if one.only_mode && !node.record.files.contains(&one.place) {
            finding
                .next(format!("chown root:root {}", node_path(&one.place)))
                .next(format!("chmod 0600 {}", node_path(&one.place)))
        } else {
            faults::look_at(node, &one.place, finding)
        },
    )
}
