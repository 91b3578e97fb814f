//! Is the node's network configuration in effect after the boot?

use super::faults;
use crate::base::invocation::kargs_command;
use crate::base::kargs::KargsChange;
use crate::judge::crossing::{CrossingCheck, CrossingFinding, Target};
use crate::node::network::{DISABLED_IPV6, WITHOUT_IPV6, disables_ipv6};
use crate::node::platform::Platform;

/// The check.
pub(super) const CHECK: CrossingCheck = CrossingCheck::of_node("network-files", judge);

fn judge(_: &Target, node: &Platform) -> Vec<CrossingFinding> {
    let Some(found) = &node.file_faults else {
        return Vec::new();
    };
    let mut all = faults::of_groups(node, &found.network.groups);
    all.extend(faults::note_unseen(
        "network configuration",
        &found.network.unseen,
    ));
    if found.needs_ipv6 {
        all.extend(judge_ipv6(node));
    }
    all
}

fn judge_ipv6(node: &Platform) -> Option<CrossingFinding> {
    let (place, arguments) = match node.next_arguments() {
        Ok(found) => found,
        Err(why) => {
            let what = format!("it is unknown whether {DISABLED_IPV6} is among them: {why}");
            return Some(
                CrossingFinding::unknown("kernel arguments", what)
                    .next("Look at the options of the entries below /boot/loader/entries."),
            );
        }
    };
    if !disables_ipv6(&arguments) {
        return None;
    }
    let what =
        format!("{WITHOUT_IPV6}: its pods end in CrashLoopBackOff, and the node stays NotReady");
    let recorded = node.record.kernel_arguments.as_ref();
    let of_config = recorded.is_ok_and(disables_ipv6);
    let finding = CrossingFinding::inhibitor(DISABLED_IPV6, what);
    Some(if of_config {
        finding
            .with_evidence("spec.kernelArguments of the config", DISABLED_IPV6)
            .next("Take it out of the MachineConfig. Then apply the new rendered config.")
    } else {
        finding
            .with_evidence(place, DISABLED_IPV6)
            .next(kargs_command(&[KargsChange::Delete(
                DISABLED_IPV6.to_owned(),
            )]))
    })
}
