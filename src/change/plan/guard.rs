//! Guards around a run: what stands against carrying a plan out on this node as it is now. No part of the
//! comparison with a config; `verify` does not ask.

use super::staged::SOFT_REBOOT;
use super::{OsStep, Plan, at_work, capabilities, held};
use crate::base::notice::Notice;
use crate::node::{Activity, NodeState};

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
    /// What the next boot drops is changed all the same.
    pub until_reboot: bool,
    /// A run of ours staged what is staged.
    pub ours: bool,
    /// A foreign staged deployment is left alone: only files are asked for.
    pub leaves_staged: bool,
    /// The command has an option for files alone.
    pub has_files_only: bool,
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
    let facts = node.system.facts();
    let scene = at_work::StagedScene {
        facts,
        wanted: plan.os.is_staged() || allowed.staged,
        ours: allowed.ours,
        files_only: allowed.has_files_only && !allowed.ours,
        stages: plan.os.steps.iter().any(OsStep::is_staging),
        drops: plan.os.drops(),
        stays: plan.os.stays(),
    };
    if scene.stages {
        plan.notices.extend(at_work::stagers(activity, facts));
        plan.notices.extend(at_work::queued(scene));
    }
    if plan.os.is_staged() && !allowed.ours {
        plan.notices
            .extend(at_work::note_staged_by_others(activity, facts));
    }
    if scene.wanted && activity.soft_reboot {
        plan.notices.push(Notice {
            subject: "/run/nextroot".to_owned(),
            message: SOFT_REBOOT.to_owned(),
        });
    }
    for evidence in at_work::find_activity(activity, scene) {
        if allowed.first_boot && evidence.first_boot {
            plan.notices.push(at_work::stood_in_for(evidence));
        } else if allowed.leaves_staged && evidence.ways.is_some() {
            plan.notices.push(at_work::left_alone(evidence));
        } else if allowed.takeover {
            plan.notices.push(at_work::taken_over(evidence));
        } else {
            plan.blockers.push(at_work::refused(evidence));
        }
    }
    freeze(plan, activity);
    held::hold_flags(plan, node, allowed.clear_immutable);
    capabilities::judge_capabilities(plan, node);
}

/// The daemon watches files: it must not judge a half.
fn freeze(plan: &mut Plan, activity: &Activity) {
    plan.freeze = at_work::daemon_containers(activity);
    plan.notices.extend(at_work::watching(activity));
}
