//! What else changes this node, in words: for a plan, and for `status`.

use super::Plan;
use crate::invocation::soft_reboot_words;
use crate::node::boot::NEXT_ROOT;
use crate::node::neighbours::Neighbours;
use crate::notice::Notice;

/// Returns a notice for each of them.
pub fn describe_neighbours(neighbours: &Neighbours) -> Vec<Notice> {
    let mut all = Vec::new();
    if neighbours.soft_prepared {
        all.push(Notice {
            subject: "soft reboot".to_owned(),
            message: soft_reboot_words(),
        });
    }
    all
}

/// Adds those that concern a plan.
pub(super) fn add(plan: &mut Plan, neighbours: &Neighbours) {
    let is_told = |notice: &Notice| notice.subject == NEXT_ROOT;
    let concerned = Neighbours {
        soft_prepared: neighbours.soft_prepared
            && plan.reboots()
            && !plan.blockers.iter().any(is_told),
    };
    plan.notices.extend(describe_neighbours(&concerned));
}
