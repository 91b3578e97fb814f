//! Files for pulls of a config that nothing will read, or that stop pulls. The config is carried out nevertheless, as the
//! daemon would: the same words are a finding of `doctor` afterwards.

use anyhow::Result;

use super::{LiveEvidence, Plan};
use crate::base::notice::Notice;
use crate::node::pull_files::{PullFault, PullFaultKind};

/// Adds a notice for each part that the plan brings.
pub(super) fn add(plan: &mut Plan, evidence: &dyn LiveEvidence) -> Result<()> {
    if !plan.steps.is_empty() {
        let faults = evidence.pull_faults()?;
        plan.notices.extend(faults.iter().map(notice));
    }
    Ok(())
}

fn notice(fault: &PullFault) -> Notice {
    let consequence = match fault.kind {
        PullFaultKind::Stops => "no image can be pulled with this file: ",
        PullFaultKind::StopsRegistry | PullFaultKind::Instead | PullFaultKind::Unread => "",
    };
    Notice {
        subject: fault.place.clone(),
        message: format!("{consequence}{}", fault.said),
    }
}
