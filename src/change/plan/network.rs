//! Network configuration in a config that will have no effect. The config is applied nevertheless, as by the daemon: `doctor`
//! reports the same finding afterwards.

use anyhow::Result;

use super::{LiveEvidence, Plan, PlanInputs};
use crate::base::kargs::Kargs;
use crate::base::notice::Notice;
use crate::node::network::{DISABLED_IPV6, disables_ipv6, needs_ipv6};
use crate::node::network_faults::{NetworkFault, NetworkFaultKind};

/// Adds a notice for each fault that the plan introduces.
pub(super) fn add_network(
    plan: &mut Plan,
    inputs: &PlanInputs<'_>,
    evidence: &dyn LiveEvidence,
) -> Result<()> {
    if plan.is_empty() {
        return Ok(());
    }
    plan.notices.extend(judge_ipv6(inputs));
    if !plan.steps.is_empty() {
        let faults = evidence.network_faults()?;
        plan.notices.extend(faults.iter().map(fault_notice));
    }
    Ok(())
}

/// Returns a notice if IPv6 is disabled in the kernel: OVN-Kubernetes does not run without it.
fn judge_ipv6(inputs: &PlanInputs<'_>) -> Option<Notice> {
    let config = inputs.config;
    let arguments = Kargs::from_entries(&config.kernel_arguments);
    let is_bad = needs_ipv6(Some(config), None) && disables_ipv6(&arguments);
    is_bad.then(|| Notice::new(
        DISABLED_IPV6,
        "OVN-Kubernetes does not run with this kernel argument: after the reboot its pods end in CrashLoopBackOff, \
         the node stays NotReady, and the cluster network is gone. Take it out of the MachineConfig first",
    ))
}

fn fault_notice(fault: &NetworkFault) -> Notice {
    let consequence = match fault.kind {
        NetworkFaultKind::NotStarted => "NetworkManager does not start with this file: ",
        NetworkFaultKind::BadState => "nmstate rejects this file: ",
        NetworkFaultKind::TwoConnections => "NetworkManager uses one of two connections: ",
        NetworkFaultKind::Apart | NetworkFaultKind::Renamed => "this connection does not start: ",
        NetworkFaultKind::Bridge => "configure-ovs.sh fails with this file: ",
        _ => "",
    };
    Notice::new(fault.place.clone(), format!("{consequence}{}", fault.said))
}
