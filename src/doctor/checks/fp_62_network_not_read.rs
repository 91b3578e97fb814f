//! FP-62: network configuration that is on the node and not in force.

use crate::doctor::{
    CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, Fact,
};
use crate::kargs::Kargs;
use crate::node::network::disables_ipv6;
use crate::node::network::{Network, OVN};
use crate::node::network_faults::{NetworkFault, NetworkFaultKind, NetworkFaults};
use crate::node::{Records, network};

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
Rename or move what is meant to count, and remove the rest: in the MachineConfig if the file comes from there, else on the \
node. Have a console before NetworkManager is restarted over ssh.",
    judge: judge_unread_network,
};

fn judge_unread_network(evidence: &DoctorEvidence) -> CheckVerdict {
    let verdict = CheckVerdict::healthy().and(find_disabled_ipv6(evidence));
    let faults = match evidence.network_faults.seen() {
        Ok(faults) => faults,
        Err(why) => return verdict.and_unseen(format!("network configuration: {why}")),
    };
    let found = KINDS
        .iter()
        .filter_map(|kind| find_kind(evidence, faults, kind));
    let mut verdict = verdict.and(found);
    for why in &faults.unseen {
        verdict = verdict.and_unseen(format!("network configuration: {why}"));
    }
    verdict
}

/// A kind of fault, and what it means.
struct Kind {
    kind: NetworkFaultKind,
    severity: CheckSeverity,
    what: &'static str,
    means: &'static str,
}

const KINDS: [Kind; 12] = [
    Kind {
        kind: NetworkFaultKind::NotStarted,
        severity: CheckSeverity::Critical,
        what: "NetworkManager does not start with its configuration",
        means: "Without NetworkManager the node has no network from its next start on.",
    },
    Kind {
        kind: NetworkFaultKind::OtherDirectory,
        severity: CheckSeverity::Critical,
        what: "NetworkManager reads another directory of connections",
        means: "The connections here have no effect: their addresses, bonds and routes are missing after the next boot.",
    },
    Kind {
        kind: NetworkFaultKind::Unmanaged,
        severity: CheckSeverity::Warning,
        what: "NetworkManager leaves a connection's interface alone",
        means: "The connection is read and never started.",
    },
    Kind {
        kind: NetworkFaultKind::UnreadState,
        severity: CheckSeverity::Warning,
        what: "a file of nmstate is not read",
        means: "The interfaces, bonds or bridges that it describes are not made, and no log says so.",
    },
    Kind {
        kind: NetworkFaultKind::BadState,
        severity: CheckSeverity::Warning,
        what: "nmstate does not take a file",
        means: "nmstate.service fails with it, and the interfaces that it describes are not made.",
    },
    Kind {
        kind: NetworkFaultKind::UnreadConnection,
        severity: CheckSeverity::Warning,
        what: "NetworkManager does not read a connection's file",
        means: "The connection has no effect.",
    },
    Kind {
        kind: NetworkFaultKind::UnreadSettings,
        severity: CheckSeverity::Warning,
        what: "NetworkManager does not read a file of settings",
        means: "The settings have no effect.",
    },
    Kind {
        kind: NetworkFaultKind::TwoConnections,
        severity: CheckSeverity::Warning,
        what: "two connections contradict each other",
        means: "NetworkManager uses one of them: after a reboot it may be the other one.",
    },
    Kind {
        kind: NetworkFaultKind::Apart,
        severity: CheckSeverity::Warning,
        what: "ports and their controller do not fit together",
        means: "The bond, bridge or VLAN stays without its port, and without a network.",
    },
    Kind {
        kind: NetworkFaultKind::Renamed,
        severity: CheckSeverity::Warning,
        what: "a connection is for a name that is changed",
        means: "The interface has another name after a boot, and the connection does not start.",
    },
    Kind {
        kind: NetworkFaultKind::Bridge,
        severity: CheckSeverity::Warning,
        what: "configure-ovs.sh cannot use the interface of a bridge",
        means: "ovs-configuration.service fails at the next boot, and the node has no br-ex.",
    },
    Kind {
        kind: NetworkFaultKind::StateOfOthers,
        severity: CheckSeverity::Notice,
        what: "no file of nmstate is for this host",
        means: "Nothing is applied here. That is right if the files are for other nodes of the pool.",
    },
];

fn find_kind(
    evidence: &DoctorEvidence,
    faults: &NetworkFaults,
    kind: &Kind,
) -> Option<DoctorFinding> {
    let all: Vec<&NetworkFault> = faults
        .all
        .iter()
        .filter(|one| one.kind == kind.kind)
        .collect();
    let first = all.first()?;
    // What a person left beside the config may be meant to be out of use.
    let is_left = !all.iter().any(|one| evidence.is_of_config(&one.place));
    let may_be_left = matches!(
        kind.kind,
        NetworkFaultKind::UnreadConnection | NetworkFaultKind::UnreadSettings
    );
    let severity = match is_left && may_be_left {
        true => CheckSeverity::Notice,
        false => kind.severity,
    };
    let facts = all.iter().map(|one| Fact::new(&one.place, &one.said));
    let finding = DoctorFinding::new(severity, kind.what, kind.means)
        .seen_all(facts)
        .next(find_next(evidence, first));
    Some(
        match evidence.live && kind.kind == NetworkFaultKind::NotStarted {
            true => finding.next("NetworkManager --print-config"),
            false => finding,
        },
    )
}

/// Returns the command with which a person begins.
fn find_next(evidence: &DoctorEvidence, fault: &NetworkFault) -> String {
    if evidence.is_of_config(&fault.place) {
        return evidence.command(&format!("show {}", fault.place));
    }
    let file = evidence.path(&fault.place);
    match fault.kind {
        NetworkFaultKind::NotStarted | NetworkFaultKind::BadState => format!("vi {file}"),
        _ => format!("cat {file}"),
    }
}

/// The kernel argument with which OVN-Kubernetes does not run.
const DISABLED_IPV6: &str = "ipv6.disable=1";

fn find_disabled_ipv6(evidence: &DoctorEvidence) -> Option<DoctorFinding> {
    let recorded = evidence.records.get().and_then(Records::recorded);
    let prepared = recorded.and_then(network::of_config);
    let runs = evidence.network.get().is_some_and(runs_ovn);
    if prepared != Some(OVN) && !(prepared.is_none() && runs) {
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
    let what = "OVN-Kubernetes does not run with ipv6.disable=1";
    let finding = DoctorFinding::new(CheckSeverity::Critical, what, means).seen_all(facts);
    let finding = match in_config {
        true => finding.next("oc edit mc NAME"),
        false => finding,
    };
    Some(match evidence.live {
        true => finding.next(format!(
            "rpm-ostree kargs --delete-if-present={DISABLED_IPV6}"
        )),
        false if in_config => finding,
        false => finding.next(format!(
            "cat {}/*.conf",
            evidence.path("boot/loader/entries")
        )),
    })
}

fn runs_ovn(network: &Network) -> bool {
    network.cluster.iter().any(|(_, whose)| *whose == OVN)
}
