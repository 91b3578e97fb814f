//! Files for image pulls in a config that no program reads, or that make pulls fail. The config is applied nevertheless, as by
//! the daemon: `doctor` reports the same finding afterwards.

use anyhow::Result;

use super::{LiveEvidence, Plan};
use crate::base::notice::Notice;
use crate::node::pull_files::{PullFault, PullFaultKind};

/// Adds a notice for each fault that the plan introduces.
pub(super) fn add_pull_files(plan: &mut Plan, evidence: &dyn LiveEvidence) -> Result<()> {
    if !plan.steps.is_empty() {
        let faults = evidence.pull_faults()?;
        plan.notices.extend(faults.iter().map(fault_notice));
    }
    Ok(())
}

fn fault_notice(fault: &PullFault) -> Notice {
    let consequence = match fault.kind {
        PullFaultKind::Stops => "no image can be pulled with this file: ",
        PullFaultKind::StopsRegistry | PullFaultKind::Instead | PullFaultKind::Unread => "",
    };
    Notice::new(fault.place.clone(), format!("{consequence}{}", fault.said))
}
