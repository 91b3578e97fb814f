//! The part of a plan that a trial adds: the jobs after which services use the new files, and what the trial means on this node.

use anyhow::Result;

use super::{Findings, LiveEvidence, Plan};
use crate::node::command::job::Job;

/// When the trial of a plan includes a reboot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrialReboot {
    /// Never.
    Never,
    /// If something is staged for the next boot.
    IfStaged,
    /// If the plan needs one for any reason.
    IfNeeded,
}

/// A trial for which a plan is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedTrial {
    /// When the trial includes a reboot.
    pub reboot: TrialReboot,
    /// Jobs make the services use the new files.
    pub activates: bool,
}

impl TrialReboot {
    /// Returns when the trial reboots, if the run does so where its plan needs that.
    pub fn if_needed(reboots: bool) -> Self {
        if reboots { Self::IfNeeded } else { Self::Never }
    }
}

impl PlannedTrial {
    /// Returns true if the trial of this plan includes a reboot.
    pub fn reboots_with(self, plan: &Plan) -> bool {
        match self.reboot {
            TrialReboot::Never => false,
            TrialReboot::IfStaged => plan.os.needs_reboot(),
            TrialReboot::IfNeeded => plan.needs_reboot(),
        }
    }
}

/// The evidence about a trial of one plan.
#[derive(Debug, Clone, Default)]
pub struct TrialFindings {
    /// The reasons against it, and what it means on this node.
    pub findings: Findings,
    /// The jobs after which the services use the new files.
    pub jobs: Vec<Job>,
}

/// Adds what a trial of the plan needs and means. A plan without steps needs no trial.
///
/// # Errors
/// The node cannot be read.
pub(super) fn add_trial(
    plan: &mut Plan,
    trial: Option<PlannedTrial>,
    evidence: &dyn LiveEvidence,
) -> Result<()> {
    let Some(trial) = trial.filter(|_| !plan.is_empty()) else {
        return Ok(());
    };
    let found = evidence.check_trial(plan, trial)?;
    plan.blockers.extend(found.findings.blockers);
    plan.notices.extend(found.findings.notices);
    plan.trial_jobs = found.jobs;
    Ok(())
}
