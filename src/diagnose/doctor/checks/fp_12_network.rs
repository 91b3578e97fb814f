//! FP-12: the network of the host, or the node's part of the cluster network, does not match its config.

use crate::base::invocation::reboot_command;
use crate::diagnose::doctor::evidence::NamedConfig;
use crate::diagnose::doctor::{
    CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, Fact, FixChange,
};
use crate::node::network::{Keyfile, Network, OVN};
use crate::node::network_manager::KeyfileRefusal;

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-12",
    title: "the network configuration is incomplete",
    looks_at: "connections of NetworkManager, the bridge br-ex, and the config's cluster network",
    explain: "This check finds two problems. First, an interrupted change from one cluster network to another: the new \
network runs, or tries to, but the node still has the files of the old one. No pod gets a network, so \
the controller cannot reach the API, and the files never arrive. Second, connections that configure-ovs.sh \
generated only in part: without all five of them neither br-ex nor the address of the node comes up.\n\n\
The right config brings the files: mco-rescue apply cached:NAME, or apply FILE from a stick, on each node, without the \
API. mco-rescue status --for-cluster prints the commands to run in the cluster afterwards.\n\n\
Generated connections may be moved away: the next boot generates them again from the node's own. Have a console \
before touching the network over ssh. Links, routes and the switch are not checked: ip addr, ip route, nmcli.",
    judge: judge_network,
};

/// Connections that configure-ovs.sh generates for br-ex; it needs all of them.
const BRIDGE: [&str; 5] = [
    "br-ex",
    "ovs-if-br-ex",
    "ovs-port-br-ex",
    "ovs-if-phys0",
    "ovs-port-phys0",
];

fn judge_network(evidence: &DoctorEvidence) -> CheckVerdict {
    let network = match evidence.network.seen() {
        Ok(network) => network,
        Err(why) => return CheckVerdict::not_seen(format!("network configuration: {why}")),
    };
    let mut verdict = CheckVerdict::healthy()
        .and_findings(cut_off(evidence, network))
        .and_findings(half_a_bridge(evidence, network))
        .and_findings(find_empty_profile(evidence, network))
        .and_findings(find_absent_profile(network));
    for why in &network.unseen {
        verdict = verdict.and_unseen(format!("connections: {why}"));
    }
    verdict
}

/// Reports a running cluster network other than the one in the recorded config.
fn cut_off(evidence: &DoctorEvidence, network: &Network) -> Option<DoctorFinding> {
    let configs = evidence.configs.get()?;
    let recorded = evidence.recorded_name()?;
    let is_recorded = |one: &&NamedConfig| one.name == recorded;
    let prepared = configs.available.iter().find(is_recorded)?.network?;
    let runs = |whose: &str| network.cluster.iter().any(|(_, of)| *of == whose);
    if runs(prepared) {
        return None;
    }
    let (place, other) = match network.cluster.first() {
        Some((place, other)) => (place.clone(), *other),
        None => return find_interface_down(evidence, prepared),
    };
    let fits = |one: &&NamedConfig| one.network == Some(other) && one.fetched.is_some();
    // The cache lists the newest first; clocks are less reliable.
    let ready = configs.available.iter().find(fits);
    let source = ready.map_or("FILE".to_owned(), |one| one.at.clone());
    let means = format!(
        "A change of the cluster network was interrupted: {other} runs, but the node is prepared for {prepared}. No pod \
         on it gets a network until the node has the files of the newer config."
    );
    let finding = DoctorFinding::critical("the cluster network is not that of the config", means)
        .with_evidence(place, format!("written by {other}"))
        .with_evidence(recorded, format!("is for {prepared}"));
    let finding = match ready {
        Some(one) => finding.with_evidence(one.at.clone(), format!("is for {other}")),
        None => finding.with_evidence("cache", format!("no config for {other}")),
    };
    Some(
        finding
            .next(format!("mco-rescue plan {source}{}", evidence.at_root()))
            .next(format!("mco-rescue apply {source}{}", evidence.at_root())),
    )
}

/// Reports that the cluster network is not up. Its config is below /run, so only a running node can have one.
fn find_interface_down(evidence: &DoctorEvidence, prepared: &'static str) -> Option<DoctorFinding> {
    let means =
        "No pod gets an address on this node. In the first minutes after a boot that is normal.";
    (evidence.live && prepared == OVN).then(|| {
        DoctorFinding::warning("the cluster network has not come up", means)
            .with_evidence("/run/multus/cni/net.d", format!("nothing of {prepared}"))
            .next("systemctl status ovs-configuration kubelet")
            .next("crictl ps -a --name ovnkube")
    })
}

/// Returns the command that moves a connection aside.
fn find_away_name(evidence: &DoctorEvidence, one: &Keyfile) -> String {
    evidence.command_to_move_aside(&one.path, "/etc/NetworkManager")
}

/// Returns the changes that move connections aside, except those of the config, which must not be moved.
fn moved_aside<'a>(
    evidence: &DoctorEvidence,
    files: impl Iterator<Item = &'a Keyfile>,
) -> Vec<FixChange> {
    let paths: Vec<&String> = files.map(|one| &one.path).collect();
    if paths.iter().any(|path| evidence.is_of_config(path)) {
        Vec::new()
    } else {
        paths.into_iter().map(FixChange::move_aside).collect()
    }
}

fn keyfile_fact(one: &Keyfile) -> Fact {
    match &one.refused {
        Some(why) if !one.empty => {
            Fact::new(&one.path, format!("NetworkManager rejects it: {why}"))
        }
        _ => Fact::new(&one.path, "generated"),
    }
}

/// Adds the commands after which NetworkManager accepts the owner and mode of these files.
fn open_keyfiles<'a>(
    evidence: &DoctorEvidence,
    finding: DoctorFinding,
    files: impl Iterator<Item = &'a Keyfile>,
) -> DoctorFinding {
    let finding = files.fold(finding, |finding, one| {
        let path = evidence.shell_path(&one.path);
        finding.next(format!("chown root: {path} && chmod 0600 {path}"))
    });
    if evidence.live {
        finding.next("nmcli connection reload")
    } else {
        finding
    }
}

fn half_a_bridge(evidence: &DoctorEvidence, network: &Network) -> Option<DoctorFinding> {
    let there = |name: &&&str| {
        network
            .keyfiles
            .iter()
            .any(|one| one.id == **name && one.is_in_force())
    };
    let have: Vec<&&str> = BRIDGE.iter().filter(there).collect();
    if have.is_empty() || have.len() == BRIDGE.len() {
        return None;
    }
    let lacking = BRIDGE.iter().filter(|name| !have.contains(name)).copied();
    let lacking: Vec<&str> = lacking.collect();
    let files = network
        .keyfiles
        .iter()
        .filter(|one| BRIDGE.contains(&one.id.as_str()));
    let means = "br-ex needs all five connections; if some are missing, neither the bridge nor the interface below it \
                 comes up. The next boot generates them again once the rest is removed. Have a console.";
    let mut finding = DoctorFinding::critical("the bridge br-ex is incomplete", means)
        .with_evidence("missing", lacking.join(", "))
        .seen_all(files.clone().map(keyfile_fact));
    // A file rejected for its owner or mode needs nothing else; FP-08 has the fix.
    let of_mode =
        |one: &Keyfile| !one.empty && one.refused.as_ref().is_some_and(KeyfileRefusal::is_of_mode);
    let is_cured = |name: &str| files.clone().any(|one| one.id == name && of_mode(one));
    if lacking.iter().all(|name| is_cured(name)) {
        let shut = files.clone().filter(|one| of_mode(one));
        return Some(open_keyfiles(evidence, finding, shut));
    }
    for one in files.clone() {
        finding = finding.next(find_away_name(evidence, one));
    }
    let finding = finding.fixed_by(moved_aside(evidence, files));
    Some(if evidence.live {
        finding.next(reboot_command()).after_fix(reboot_command())
    } else {
        finding
    })
}

fn find_empty_profile(evidence: &DoctorEvidence, network: &Network) -> Option<DoctorFinding> {
    let empty: Vec<&Keyfile> = network.keyfiles.iter().filter(|one| one.empty).collect();
    let first = empty.first()?;
    let what = match empty.len() {
        1 => "1 connection of NetworkManager is empty".to_owned(),
        many => format!("{many} connections of NetworkManager are empty"),
    };
    let means = "NetworkManager ignores it: the interface gets no address from it.";
    let facts = empty.iter().map(|one| Fact::new(&one.path, "empty"));
    let finding = DoctorFinding::warning(what, means)
        .seen_all(facts)
        .next(find_away_name(evidence, first))
        .fixed_by(moved_aside(evidence, empty.iter().copied()));
    let reload = "nmcli connection reload";
    Some(if evidence.live {
        finding.next(reload).after_fix(reload)
    } else {
        finding
    })
}

/// Reports a connection whose interface is missing; only kinds of real interfaces count.
fn find_absent_profile(network: &Network) -> Option<DoctorFinding> {
    let interfaces = network.interfaces.as_ref()?;
    let is_real = |one: &&Keyfile| {
        matches!(
            one.kind.as_str(),
            "ethernet" | "802-3-ethernet" | "infiniband"
        )
    };
    let is_absent = |one: &&Keyfile| {
        let name = one.interface.as_ref();
        name.is_some_and(|name| !interfaces.contains(name))
    };
    let absent: Vec<&Keyfile> = network
        .keyfiles
        .iter()
        .filter(|one| one.is_in_force())
        .filter(is_real)
        .filter(is_absent)
        .collect();
    if absent.is_empty() {
        return None;
    }
    let facts = absent.iter().map(|one| {
        let name = one.interface.clone().unwrap_or_default();
        Fact::new(&one.path, format!("is for {name}, which is missing"))
    });
    let means = "An interface was renamed or removed. Its configuration has no effect.";
    Some(
        DoctorFinding::warning("a connection is for a missing interface", means)
            .seen_all(facts)
            .with_evidence("interfaces", interfaces.join(", "))
            .next("ip link")
            .next("nmcli connection show"),
    )
}
