//! Guards around a run: what stands against carrying a plan out on this node as it is now. No part of the
//! comparison with a config; `verify` does not ask.

use super::{Plan, at_work, capabilities, held};
use crate::node::{Activity, NodeState};
use crate::notice::Notice;

/// What the person allowed on this node.
#[derive(Debug, Clone, Copy, Default)]
pub struct Allowed {
    /// Flags in the way are cleared for the renames, and set again.
    pub clear_immutable: bool,
    /// An update that is under way does not matter.
    pub takeover: bool,
    /// The first-boot service and its pull do not matter: the run does their work.
    pub first_boot: bool,
    /// What is staged does not matter: the run drops it.
    pub staged: bool,
}

/// Adds to a plan what stands against it. A plan without steps changes nothing, so nothing does.
pub(super) fn guard(plan: &mut Plan, node: &NodeState, activity: &Activity, allowed: Allowed) {
    capabilities::closed(plan, node);
    if plan.is_empty() {
        return;
    }
    if node.host.var_missing {
        let message =
            "of the root is empty here: the real one is not mounted. Mount it below the root first";
        plan.blockers.push(Notice {
            subject: "/var".to_owned(),
            message: message.to_owned(),
        });
    }
    for evidence in at_work::find_activity(activity, plan.os.is_staged() || allowed.staged) {
        if allowed.first_boot && evidence.first_boot {
            plan.notices.push(at_work::stood_in_for(evidence));
        } else if allowed.takeover {
            plan.notices.push(at_work::taken_over(evidence));
        } else {
            plan.blockers.push(at_work::refused(evidence));
        }
    }
    freeze(plan, activity);
    held::hold_flags(plan, node, allowed.clear_immutable);
    capabilities::preflight(plan, node);
}

/// The daemon watches files: it must not judge a half.
fn freeze(plan: &mut Plan, activity: &Activity) {
    plan.freeze = at_work::daemon_containers(activity);
    plan.notices.extend(at_work::watching(activity));
}
