//! SELinux faults in a config. The config is applied nevertheless, as by the daemon: `doctor` reports the same finding
//! afterwards.

use super::{LiveEvidence, Plan};
use crate::base::notice::Notice;
use crate::host::root::RootPath;
use crate::node::fault_group::FaultGroup;
use crate::node::selinux_state::{AUTORELABEL, SelinuxFaultKind};

/// Adds a notice for each fault that the plan introduces.
pub(super) fn add_selinux(plan: &mut Plan, evidence: &dyn LiveEvidence) {
    let is_judged = |path: &RootPath| path.is_in("etc/selinux") || path.is_in(AUTORELABEL);
    if !plan.steps.iter().any(|one| is_judged(one.step.path())) {
        return;
    }
    match evidence.selinux_faults() {
        Ok(faults) => plan.notices.extend(faults.iter().map(group_notice)),
        Err(error) => plan.notices.push(Notice::new(
            "SELinux",
            format!("what its files lead to is not known: {error:#}"),
        )),
    }
}

fn group_notice(group: &FaultGroup<SelinuxFaultKind>) -> Notice {
    let said: Vec<&str> = group.faults.iter().map(|(_, said)| &**said).collect();
    Notice::new(
        group.place().to_owned(),
        format!(
            "{} ({}). {}",
            group.what,
            said.join("; "),
            group.means.trim_end_matches('.')
        ),
    )
}
