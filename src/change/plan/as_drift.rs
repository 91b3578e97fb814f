//! The parts of a plan that `verify` and `status` report as drift.

use super::{PlannedStep, Section, Step};
use crate::base::notice::Notice;
use crate::judge::drift::{Drift, DriftKind, unchecked_drift};

/// Returns drift in directories and links, which the daemon never checks, or for a bare config all drift.
pub fn step_drifts(steps: &[PlannedStep], all: bool) -> Vec<Drift> {
    let unseen = steps
        .iter()
        .filter(|planned| all || planned.section == Section::Nodes);
    unseen
        .map(|planned| {
            let kind = match planned.step {
                Step::MakeDirectory { .. } | Step::Put { old: None, .. } => DriftKind::Missing,
                Step::Metadata { .. } => DriftKind::Mode,
                Step::RemoveDirectory { .. } => DriftKind::Superfluous,
                Step::Put { .. } | Step::Remove { .. } => DriftKind::Content,
            };
            unchecked_drift(kind, planned.step.path(), planned.why.to_string())
        })
        .collect()
}

/// Returns drift for each path that blocks the plan and is not in a step.
pub fn blocked_drifts(blockers: &[Notice], known: &[Drift]) -> Vec<Drift> {
    let new = |blocker: &&Notice| {
        let path = &blocker.subject;
        path.starts_with('/') && known.iter().all(|drift| drift.subject != *path)
    };
    let drift = |blocker: &Notice| Drift {
        kind: DriftKind::Content,
        subject: blocker.subject.clone(),
        detail: blocker.message.clone(),
        daemon: None,
    };
    blockers.iter().filter(new).map(drift).collect()
}

/// Returns drift for an account that cannot be created as the config requires.
pub fn account_drift(problem: &Notice) -> Drift {
    Drift {
        kind: DriftKind::Missing,
        subject: problem.subject.clone(),
        detail: problem.message.clone(),
        daemon: None,
    }
}
