//! Guards of a run: reasons not to carry out a plan on this node now. They are not part of the comparison with a config, and
//! `verify` does not use them.

use super::staged::SOFT_REBOOT;
use super::{OsStep, Plan, at_work, capabilities, held};
use crate::base::notice::Notice;
use crate::node::{Activity, NodeState};

/// What the user allowed on this node.
#[derive(Debug, Clone, Copy, Default)]
pub struct Allowed {
    /// Immutable flags are cleared for the renames, and set again.
    pub clear_immutable: bool,
    /// An update in progress is ignored.
    pub takeover: bool,
    /// The first-boot service and its pull are ignored, because the run does their work.
    pub first_boot: bool,
    /// A staged deployment is ignored, because the run drops it.
    pub staged: bool,
    /// Paths that do not survive the next boot are changed nevertheless.
    pub until_reboot: bool,
    /// A run of this program staged the deployment.
    pub ours: bool,
    /// Another program's staged deployment is left alone: only files are requested.
    pub leaves_staged: bool,
    /// The command has an option for files alone.
    pub has_files_only: bool,
}

/// The refusal of a root whose `/var` is a mount of its own that is missing.
const VAR_MISSING: &str =
    "of the root is empty here: the real one is not mounted. Mount it below the root first";

/// Adds blockers to a plan. A plan without steps changes nothing, so it gets none.
pub(super) fn guard_plan(plan: &mut Plan, node: &NodeState, activity: &Activity, allowed: Allowed) {
    capabilities::block_unread(plan, node);
    if plan.is_empty() {
        return;
    }
    if node.host.var_missing {
        plan.blockers.push(Notice::new("/var", VAR_MISSING));
    }
    let facts = node.system.facts();
    let scene = at_work::StagedScene {
        facts,
        wanted: plan.os.is_staged() || allowed.staged,
        ours: allowed.ours,
        files_only: allowed.has_files_only && !allowed.ours,
        stages: plan.os.steps.iter().any(OsStep::is_staging),
        drops: plan.os.drops_staged(),
        stays: plan.os.replaces_queued(),
    };
    if scene.stages {
        plan.notices.extend(at_work::note_stagers(activity, facts));
        plan.notices.extend(at_work::note_queued(scene));
    }
    if plan.os.is_staged() && !allowed.ours {
        plan.notices
            .extend(at_work::note_staged_by_others(activity, facts));
    }
    if scene.wanted && activity.soft_reboot {
        plan.notices.push(Notice::new("/run/nextroot", SOFT_REBOOT));
    }
    for evidence in at_work::find_activity(activity, scene) {
        if allowed.first_boot && evidence.first_boot {
            plan.notices.push(at_work::stood_in_for(evidence));
        } else if allowed.leaves_staged && evidence.ways.is_some() {
            plan.notices.push(at_work::left_alone(evidence));
        } else if allowed.takeover {
            plan.notices.push(at_work::taken_over(evidence));
        } else {
            plan.blockers.push(at_work::refuse_activity(evidence));
        }
    }
    plan.notices.extend(at_work::note_silence(activity));
    freeze_daemon(plan, activity);
    held::hold_flags(plan, node, allowed.clear_immutable);
    capabilities::judge_capabilities(plan, node);
}

/// Freezes the daemon, which watches files and must not see a half-applied state.
fn freeze_daemon(plan: &mut Plan, activity: &Activity) {
    plan.freeze = at_work::daemon_containers(activity);
    plan.notices.extend(at_work::note_watching(activity));
}
