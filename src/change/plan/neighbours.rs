//! Other influences on this node, in words: for a plan, and for `status`.

use super::{Plan, PlanRequest};
use crate::base::invocation::soft_reboot_words;
use crate::base::notice::Notice;
use crate::base::text::count_noun;
use crate::node::boot::NEXT_ROOT;
use crate::node::neighbours::{ImageBased, MONITOR, Monitor, Neighbours};

/// The message about a service that only Pacemaker may start and stop.
pub(super) const BY_PACEMAKER: &str = "Pacemaker manages kubelet and etcd here (two nodes with fencing), so neither is started, stopped, restarted or enabled. \
     After the other node's etcd votes: pcs node standby NODE, then pcs node unstandby NODE";

/// The message about a leftover marker.
const LEFT_OVER: &str = "/run/ostree/nextroot-booted is left over: the soft reboot into the running system succeeded, but \
     ostree-boot-complete.service failed, usually because /boot was not mounted, and ostree stages nothing until it has run. Mount \
     /boot, then: systemctl restart ostree-boot-complete.service";

/// Returns a notice for each influence.
pub fn describe_neighbours(neighbours: &Neighbours) -> Vec<Notice> {
    let notice = |subject: &str, message: String| Notice::new(subject, message);
    let mut all = Vec::new();
    if neighbours.soft_prepared {
        all.push(notice("soft reboot", soft_reboot_words()));
    }
    if neighbours.soft_left_over {
        all.push(notice("soft reboot", LEFT_OVER.to_owned()));
    }
    if let Some(image_based) = &neighbours.image_based {
        all.push(notice("seed image", seed_words(image_based)));
        let words = match &image_based.monitor {
            Ok(monitor) => monitor.as_ref().map(monitor_words),
            Err(why) => Some(format!(
                "whether it runs is unknown: {why}. If it does, it may boot the other stateroot. See: systemctl status {MONITOR}"
            )),
        };
        all.extend(words.map(|words| notice(MONITOR, words)));
    }
    if neighbours.fencing {
        all.push(notice(
            "Pacemaker",
            format!("{BY_PACEMAKER}. See: pcs status"),
        ));
    }
    all
}

fn seed_words(node: &ImageBased) -> String {
    let others = match node.stateroots.as_slice() {
        [] => String::new(),
        all => format!(
            "; the other {} ({}) and its deployments are left alone: do not remove them while the upgrade can be reverted",
            match all.len() {
                1 => "stateroot",
                _ => "stateroots",
            },
            all.join(", ")
        ),
    };
    format!(
        "this node comes from a seed image ({}), and recert rewrote the contents of its config in place, so the hash in the name of \
         a config proves nothing here{others}",
        node.evidence
    )
}

fn monitor_words(monitor: &Monitor) -> String {
    let minutes = |seconds: u64| {
        count_noun(
            usize::try_from(seconds.div_ceil(60)).unwrap_or(usize::MAX),
            "minute",
        )
    };
    let when = match monitor.left {
        Some(left) => format!("in {} (of {})", minutes(left), minutes(monitor.timeout)),
        None => format!("{} after its start", minutes(monitor.timeout)),
    };
    format!(
        "it boots the other stateroot {when} if the upgrade is not complete by then, and everything that is done here is gone \
         with this one. A run with a reboot, or a repair that takes longer, is undone. It is left alone; ending it is your decision: \
         systemctl stop {MONITOR}"
    )
}

/// Adds the notices that concern a plan.
pub(super) fn add_neighbours(plan: &mut Plan, neighbours: &Neighbours, request: &PlanRequest) {
    if neighbours.fencing && request.stops_workloads && plan.needs_drain() {
        plan.blockers.push(Notice::new(
            "--stop-workloads",
            "Pacemaker manages the kubelet here (two nodes with fencing): a kubelet that is stopped by others counts as \
             failed, and the node may be power-cycled in the middle of the run. Leave the option out, and run before it: pcs \
             node standby $(hostname)",
        ));
    }
    if plan.is_empty() && !plan.os.needs_reboot() {
        return;
    }
    let is_told = |notice: &Notice| notice.subject == NEXT_ROOT;
    let concerned = Neighbours {
        soft_prepared: neighbours.soft_prepared
            && plan.needs_reboot()
            && !plan.blockers.iter().any(is_told),
        ..neighbours.clone()
    };
    plan.notices.extend(describe_neighbours(&concerned));
}
