//! FP-46: the address that the node has stored is not, or no longer, an address of its interface.

use std::net::IpAddr;

use crate::diagnose::doctor::{
    CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, Fact,
};
use crate::node::node_address::{AddressHolder, KeptAddress, NodeAddresses};
use crate::node::static_network::{is_in, parse_arguments};

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-46",
    title: "the address of the node has changed",
    looks_at: "addresses kept for kubelet, CRI-O and etcd, and those of the interfaces or of their configuration",
    explain: "nodeip-configuration.service chooses the address of the node once in a boot, and keeps it in drop-ins \
(20-nodenet.conf) of kubelet and CRI-O. The files stay: until that service has run, they name the address of the boot \
before. etcd keeps its address for good, in its certificates and in etcd.env. When the address moves to another \
interface, or DHCP gives another one, the kubelet goes on and the node looks Ready, but etcd does not start.\n\n\
The best cure is to give the address back: a DHCP reservation, or the old keyfile. A node with several networks needs \
a hint: NODEIP_HINT=ADDRESS in /etc/default/nodeip-configuration, with any address of the wanted network, and a \
reboot. On a control plane a hint is not enough: etcd's peer URL, certificates and variables have the old address \
too.\n\n\
A running node is compared with ip addr. On a disk, only fixed addresses of keyfiles, nmstate and kernel arguments \
can be compared: what DHCP will give is unknown. Virtual addresses (label vip) are not the node's.",
    judge: judge_address,
};

/// Maximum number of addresses that are listed.
const SHOWN: usize = 8;

fn judge_address(evidence: &DoctorEvidence) -> CheckVerdict {
    let kept = match evidence.node_addresses.seen() {
        Ok(kept) => kept,
        Err(why) => return CheckVerdict::not_seen(format!("kept addresses: {why}")),
    };
    let unseen = kept.unseen.iter();
    let verdict = unseen.fold(CheckVerdict::healthy(), |verdict, why| {
        verdict.and_unseen(format!("kept addresses: {why}"))
    });
    if kept.kept.is_empty() {
        return verdict;
    }
    if let (true, Err(why)) = (evidence.live, evidence.interfaces.seen()) {
        return verdict.and_unseen(format!("the addresses of the interfaces: {why}"));
    }
    let present = |address: &IpAddr| is_present(evidence, *address);
    let is_gone = |one: &&KeptAddress| match one.holder {
        // In a dual stack, the other addresses depend on the first.
        AddressHolder::Kubelet | AddressHolder::Crio | AddressHolder::Etcd => {
            one.addresses.first().and_then(present) == Some(false)
        }
        AddressHolder::EtcdCertificate | AddressHolder::Serving => one
            .addresses
            .iter()
            .all(|address| present(address) == Some(false)),
    };
    let gone: Vec<&KeptAddress> = kept.kept.iter().filter(is_gone).collect();
    if !gone.is_empty() {
        return verdict.and_findings(Some(find_gone(evidence, kept, &gone)));
    }
    if let Some(finding) = find_two(evidence, kept) {
        return verdict.and_findings(Some(finding));
    }
    if let Some(finding) = find_past_hint(evidence, kept) {
        return verdict.and_findings(Some(finding));
    }
    let all = kept.kept.iter().flat_map(|one| &one.addresses);
    if all.into_iter().any(|address| present(address).is_some()) {
        verdict
    } else {
        verdict.and_unseen(
            "the addresses of the interfaces: no file fixes them, and DHCP gives them at boot",
        )
    }
}

/// Returns true if an interface has the address now or after the next boot; `None` if that is unknown.
fn is_present(evidence: &DoctorEvidence, address: IpAddr) -> Option<bool> {
    if evidence.live {
        let all = evidence.interfaces.get()?.iter();
        let mut all = all.flat_map(|one| &one.addresses);
        return Some(all.any(|one| one.local == address && one.label != VIP));
    }
    let fixed = evidence.static_network.get()?;
    let arguments = evidence.arguments_on_disk.get().map(parse_arguments);
    let arguments = arguments.unwrap_or_default();
    let of_arguments = |(_, at, _): &(String, IpAddr, Option<String>)| *at == address;
    if fixed.has_address(address) || arguments.fixed.iter().any(of_arguments) {
        return Some(true);
    }
    // An unknown file could set it, and so could a server.
    if fixed.is_automatic(address) || !fixed.unseen.is_empty() {
        return None;
    }
    let mut others = fixed.addresses();
    let is_instead = others.any(|(profile, other, prefix)| {
        let family = profile.family_of(other);
        other.is_ipv4() == address.is_ipv4() && (family.gateway || is_in(address, other, prefix))
    });
    is_instead.then_some(false)
}

/// Label of an address that keepalived moves between nodes.
const VIP: &str = "vip";

/// Returns the addresses of the interfaces, or of their configuration.
fn found_addresses(evidence: &DoctorEvidence) -> Vec<Fact> {
    let lists = |address: &IpAddr| !address.is_loopback();
    if let Some(all) = evidence.interfaces.get().filter(|_| evidence.live) {
        let shown = all.iter().filter_map(|one| {
            let addresses = one.addresses.iter().map(|one| one.local).filter(lists);
            let addresses: Vec<String> = addresses.map(|at| at.to_string()).collect();
            (!addresses.is_empty())
                .then(|| Fact::new(format!("ip addr, {}", one.name), addresses.join(", ")))
        });
        return shown.take(SHOWN).collect();
    }
    let fixed = evidence.static_network.get();
    let fixed = fixed.iter().flat_map(|fixed| fixed.addresses());
    fixed
        .take(SHOWN)
        .map(|(profile, address, prefix)| Fact::new(&profile.place, format!("{address}/{prefix}")))
        .collect()
}

fn kept_facts<'a>(kept: impl IntoIterator<Item = &'a KeptAddress>) -> Vec<Fact> {
    let shown = |one: &KeptAddress| {
        let addresses: Vec<String> = one.addresses.iter().map(ToString::to_string).collect();
        Fact::new(&one.place, format!("{}: {}", one.key, addresses.join(", ")))
    };
    kept.into_iter().map(shown).collect()
}

fn judge_severity(kept: &NodeAddresses, touched: &[&KeptAddress]) -> CheckSeverity {
    let only_serving = touched
        .iter()
        .all(|one| one.holder == AddressHolder::Serving);
    if kept.control_plane && !only_serving {
        CheckSeverity::Critical
    } else {
        CheckSeverity::Warning
    }
}

fn find_gone(
    evidence: &DoctorEvidence,
    kept: &NodeAddresses,
    gone: &[&KeptAddress],
) -> DoctorFinding {
    let what = if evidence.live {
        "the node's address is on no interface"
    } else {
        "the configuration gives the node another address"
    };
    let of = |holder| gone.iter().find(|one| one.holder == holder);
    let etcd = of(AddressHolder::Etcd).or_else(|| of(AddressHolder::EtcdCertificate));
    let means = match (etcd, of(AddressHolder::Kubelet)) {
        (Some(_), _) => {
            "etcd's certificate and variables are for that address: its member here does not start. Give the address \
             back; a hint alone does not fix it."
        }
        (None, Some(_)) if kept.control_plane => {
            "The node is not reachable where the cluster looks for it. Give the address back: etcd keeps its address for \
             good."
        }
        (None, Some(_)) => {
            "The node is not reachable where the cluster looks for it. Give the address back, or let \
             nodeip-configuration choose again at the next boot."
        }
        (None, None) => "What was made for that address does not answer at another one.",
    };
    let first = |one: &&KeptAddress| one.addresses.first().map(ToString::to_string);
    let words = of(AddressHolder::Kubelet).and_then(first);
    let words = words
        .map(|address| format!("node IP: {address:?} not found in the host's network interfaces"));
    let finding = DoctorFinding::new(judge_severity(kept, gone), what, means)
        .seen_all(kept_facts(gone.iter().copied()))
        .seen_all(found_addresses(evidence))
        .with_message(words.filter(|_| evidence.live));
    add_advice(evidence, finding)
}

/// Reports that kubelet and etcd have stored different addresses.
fn find_two(evidence: &DoctorEvidence, kept: &NodeAddresses) -> Option<DoctorFinding> {
    let kubelet = kept.addresses_of(AddressHolder::Kubelet)?;
    let etcd = kept.addresses_of(AddressHolder::Etcd);
    let etcd = etcd.or_else(|| kept.addresses_of(AddressHolder::EtcdCertificate))?;
    let shared = etcd
        .addresses
        .iter()
        .any(|address| kubelet.addresses.contains(address));
    if !kept.control_plane || shared {
        return None;
    }
    let words = match (
        etcd.holder,
        etcd.addresses.first(),
        kubelet.addresses.first(),
    ) {
        (AddressHolder::Etcd, Some(wanted), Some(is)) => {
            Some(format!("expected {} to be {is}, got {wanted}", etcd.key))
        }
        _ => None,
    };
    let means = "The choice of the address took another interface than before. etcd's certificate and variables are for \
                 the old one: its member here does not start.";
    let finding = DoctorFinding::critical("kubelet and etcd have different addresses", means)
        .seen_all(kept_facts([kubelet, etcd]))
        .seen_all(found_addresses(evidence))
        .with_message(words);
    Some(add_advice(evidence, finding))
}

/// Reports an address outside the network of the hint.
fn find_past_hint(evidence: &DoctorEvidence, kept: &NodeAddresses) -> Option<DoctorFinding> {
    let hint = kept.hint?;
    let kubelet = kept.addresses_of(AddressHolder::Kubelet)?;
    let networks = list_networks(evidence)?;
    let mut wanted = networks
        .iter()
        .filter(|(network, prefix)| is_in(hint, *network, *prefix))
        .peekable();
    wanted.peek()?;
    let mut of_family = kubelet
        .addresses
        .iter()
        .filter(|address| address.is_ipv4() == hint.is_ipv4())
        .peekable();
    of_family.peek()?;
    let fits = |address: &IpAddr| {
        wanted
            .clone()
            .any(|(network, prefix)| is_in(*address, *network, *prefix))
    };
    if of_family.any(fits) {
        return None;
    }
    let means = "The choice of the address was made before the hint, or the network of the hint had no address then.";
    let finding = DoctorFinding::warning("the node's address is not in the hint's network", means)
        .with_evidence("/etc/default/nodeip-configuration", hint.to_string())
        .seen_all(kept_facts([kubelet]))
        .seen_all(found_addresses(evidence));
    Some(if evidence.live {
        finding
            .next("journalctl -b -u nodeip-configuration -n 20")
            .next(crate::base::invocation::reboot_command())
    } else {
        finding.next(format!(
            "cat {}",
            evidence.shell_path("etc/default/nodeip-configuration")
        ))
    })
}

/// Returns the addresses of the node with their prefixes, or those that its configuration gives it.
fn list_networks(evidence: &DoctorEvidence) -> Option<Vec<(IpAddr, u8)>> {
    if evidence.live {
        let all = evidence.interfaces.get()?.iter();
        let all = all.flat_map(|one| &one.addresses);
        return Some(all.map(|one| (one.local, one.prefix)).collect());
    }
    let all = evidence.static_network.get()?.addresses();
    Some(all.map(|(_, address, prefix)| (address, prefix)).collect())
}

fn add_advice(evidence: &DoctorEvidence, finding: DoctorFinding) -> DoctorFinding {
    if evidence.live {
        finding
            .next("ip -br addr")
            .next("nmcli connection show")
            .next("journalctl -b -u nodeip-configuration -n 20")
    } else {
        finding.next(format!(
            "ls -l {}",
            evidence.shell_path("etc/NetworkManager/system-connections")
        ))
    }
}
