//! FP-62: network configuration that exists on the node but is not in effect.

use crate::base::kargs::Kargs;
use crate::diagnose::doctor::{CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, Fact};
use crate::node::fault_group::FaultGroup;
use crate::node::network::{DISABLED_IPV6, WITHOUT_IPV6, disables_ipv6, needs_ipv6};
use crate::node::network_faults::NetworkFaultKind;

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-62",
    title: "network configuration that is not in force",
    looks_at: "names and places of the files of NetworkManager and nmstate, their settings, connections beside each other, and ipv6.disable",
    explain: "A file that no program reads looks like any other. nmstate-configuration.sh takes \
/etc/nmstate/openshift/NAME.yml, with the host's name without its domain, else cluster.yml, and nothing else: .yaml is passed \
over, and the bridge or bond is missing. nmstate itself reads /etc/nmstate/*.yml. NetworkManager reads connections in the one \
directory that [keyfile] path= names, else in /etc/NetworkManager/system-connections, and those of /run and /usr/lib that end \
in .nmconnection. It does not start with a fault in its own configuration, leaves alone what unmanaged-devices or managed=0 \
name, and the last file of /etc/NetworkManager/conf.d wins.\n\n\
Of two connections for one interface with the same priority NetworkManager takes the one that was used last: a backup copy \
named x.bak is a connection, too. A port without its controller, and a connection for a name that a .link file changes, \
never start. FP-08 judges the syntax and the mode of each file.\n\n\
OVN-Kubernetes does not run with the kernel argument ipv6.disable=1: its pods restart again and again, and the node stays \
NotReady.\n\n\
Rename or move what should take effect, and remove the rest: in the MachineConfig if the file comes from there, else on the \
node. Have a console before NetworkManager is restarted over ssh.",
    judge: judge_unread_network,
};

fn judge_unread_network(evidence: &DoctorEvidence) -> CheckVerdict {
    let verdict = CheckVerdict::healthy().and_findings(find_disabled_ipv6(evidence));
    let faults = match evidence.network_faults.seen() {
        Ok(faults) => faults,
        Err(why) => return verdict.and_unseen(format!("network configuration: {why}")),
    };
    let groups = faults.group_faults(evidence.config());
    let mut verdict = verdict.and_findings(groups.iter().map(|group| find_kind(evidence, group)));
    for why in &faults.unseen {
        verdict = verdict.and_unseen(format!("network configuration: {why}"));
    }
    verdict
}

fn find_kind(evidence: &DoctorEvidence, group: &FaultGroup<NetworkFaultKind>) -> DoctorFinding {
    let finding = DoctorFinding::of_group(group).next(find_next(evidence, group));
    if evidence.live && group.kind == NetworkFaultKind::NotStarted {
        finding.next("NetworkManager --print-config")
    } else {
        finding
    }
}

/// Returns the first command for a person to run.
fn find_next(evidence: &DoctorEvidence, group: &FaultGroup<NetworkFaultKind>) -> String {
    let place = group.place();
    if evidence.is_of_config(place) {
        return evidence.own_command(&format!("show {place}"));
    }
    let file = evidence.shell_path(place);
    match group.kind {
        NetworkFaultKind::NotStarted | NetworkFaultKind::BadState => format!("vi {file}"),
        _ => format!("cat {file}"),
    }
}

fn find_disabled_ipv6(evidence: &DoctorEvidence) -> Option<DoctorFinding> {
    let recorded = evidence.config();
    if !needs_ipv6(recorded, evidence.network.get()) {
        return None;
    }
    let config = recorded.map(|config| Kargs::from_entries(&config.kernel_arguments));
    let in_config = config.as_ref().is_some_and(disables_ipv6);
    let booted = evidence.boot_arguments().is_ok_and(disables_ipv6);
    if !in_config && !booted {
        return None;
    }
    let mut facts = Vec::new();
    if booted {
        facts.push(Fact::new("kernel command line", DISABLED_IPV6));
    }
    if in_config {
        facts.push(Fact::new("spec.kernelArguments", DISABLED_IPV6));
    }
    let means = "The pods of OVN-Kubernetes end in CrashLoopBackOff on this node, which stays NotReady, and the next update of \
the cluster is Degraded.";
    let finding = DoctorFinding::critical(WITHOUT_IPV6, means).seen_all(facts);
    let finding = if in_config {
        finding.next("oc edit mc NAME")
    } else {
        finding
    };
    Some(match evidence.live {
        true => finding.next(format!(
            "rpm-ostree kargs --delete-if-present={DISABLED_IPV6}"
        )),
        false if in_config => finding,
        false => finding.next(format!(
            "cat {}/*.conf",
            evidence.shell_path("boot/loader/entries")
        )),
    })
}
