//! FP-29: the initramfs uses another network than the booted system.

use std::net::IpAddr;

use crate::diagnose::doctor::{CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, Fact};
use crate::node::static_network::{InitramfsNetwork, Profile, StaticAddresses, parse_arguments};

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-29",
    title: "the network of the first boot did not stay",
    looks_at: "ip=, bond=, vlan= and nameserver= of the kernel, keyfiles, and files of nmstate",
    explain: "The initramfs gets its network from kernel arguments; the booted system from keyfiles of NetworkManager and \
from /etc/nmstate/openshift. At the first boot the initramfs passes its keyfiles on if the system has none of its own. \
A config with keyfiles of its own, or an installer that was called without --copy-network, can leave an address, a \
bond, a VLAN or a name server in only one of the two: the node is then reachable in the initramfs and unreachable \
afterwards, or the other way round.\n\n\
Add the part that is missing: a keyfile (mode 0600) below /etc/NetworkManager/system-connections, or \
rpm-ostree kargs --append=ip=ADDRESS::GATEWAY:MASK:HOST:INTERFACE:none. ip=dhcp in the arguments does not contradict \
fixed addresses: installers add it, and it applies only to the initramfs.\n\n\
mco-rescue preflight checks the names of interfaces after an OS upgrade, and FP-12 reports a keyfile for an interface \
that is missing.",
    judge: judge_first_boot_network,
};

fn judge_first_boot_network(evidence: &DoctorEvidence) -> CheckVerdict {
    let arguments = match evidence.boot_arguments() {
        Ok(arguments) => parse_arguments(arguments),
        // A root that does not boot images has no entry to read.
        Err(_) if !evidence.boots_images => return CheckVerdict::healthy(),
        Err(why) => return CheckVerdict::not_seen(format!("kernel arguments: {why}")),
    };
    let fixed = match evidence.static_network.seen() {
        Ok(fixed) => fixed,
        Err(why) => return CheckVerdict::not_seen(format!("network configuration: {why}")),
    };
    let has_arguments =
        !arguments.fixed.is_empty() || !arguments.made.is_empty() || arguments.needed;
    if !has_arguments {
        return CheckVerdict::healthy();
    }
    if let Some(why) = fixed.unseen.first() {
        return CheckVerdict::not_seen(format!("network configuration: {why}"));
    }
    // The first boot passes on the network of the initramfs; before its end there is nothing to compare.
    let is_first = evidence.in_initramfs || evidence.never_booted;
    if is_first && fixed.profiles.is_empty() {
        return CheckVerdict::healthy();
    }
    let mut verdict = CheckVerdict::healthy();
    let lost = find_lost(evidence, &arguments, fixed);
    let nothing_lost = lost.is_none();
    verdict = verdict.and_findings(lost);
    if nothing_lost {
        verdict = verdict
            .and_findings(find_other_interface(evidence, &arguments, fixed))
            .and_findings(find_no_server(evidence, &arguments, fixed));
    }
    verdict.and_findings(find_dhcp_only(evidence, &arguments, fixed))
}

/// Returns true if the running node has the address, from wherever.
fn is_up(evidence: &DoctorEvidence, address: IpAddr) -> bool {
    let all = evidence.interfaces.get().filter(|_| evidence.live);
    let mut all = all
        .iter()
        .flat_map(|all| all.iter())
        .flat_map(|one| &one.addresses);
    all.any(|one| one.local == address)
}

/// Returns true if the running node has an interface of this name.
fn has_interface(evidence: &DoctorEvidence, name: &str) -> bool {
    let all = evidence.interfaces.get().filter(|_| evidence.live);
    all.is_some_and(|all| all.iter().any(|one| one.name == name))
}

/// Reports settings that only the kernel arguments have.
fn find_lost(
    evidence: &DoctorEvidence,
    arguments: &InitramfsNetwork,
    fixed: &StaticAddresses,
) -> Option<DoctorFinding> {
    let addresses = arguments
        .fixed
        .iter()
        .filter(|(_, address, _)| !fixed.has_address(*address) && !is_up(evidence, *address))
        .map(|(token, address, _)| (token, format!("{address} is in no keyfile")));
    let made = arguments
        .made
        .iter()
        .filter(|(_, name)| !fixed.has_interface(name) && !has_interface(evidence, name))
        .map(|(token, name)| (token, format!("{name} is in no keyfile")));
    let mut lost = addresses.chain(made).peekable();
    lost.peek()?;
    let facts = lost.map(|(token, why)| Fact::new(token, why));
    let means = "The initramfs has this network, and the booted system does not: the node is not reachable at this address \
                 after the boot, or gets another one from DHCP.";
    let finding = DoctorFinding::warning("the network is in the kernel arguments only", means)
        .seen_all(facts)
        .seen_all(list_profiles(fixed))
        .seen_all(
            fixed
                .refused
                .iter()
                .map(|(path, why)| Fact::new(path, format!("NetworkManager rejects it: {why}"))),
        );
    Some(show_connections(evidence, finding))
}

/// Lists the connections in the configuration.
fn list_profiles(fixed: &StaticAddresses) -> Vec<Fact> {
    if fixed.profiles.is_empty() {
        let nothing = Fact::new("/etc/NetworkManager/system-connections", "no connection");
        return vec![nothing];
    }
    let shown = fixed.profiles.iter().map(|one| {
        let addresses = one.families.iter().flat_map(|family| &family.addresses);
        let addresses: Vec<String> = addresses.map(|(at, len)| format!("{at}/{len}")).collect();
        let name = one.interface.as_deref().unwrap_or("any interface");
        let said = if addresses.is_empty() {
            format!("{name}: no fixed address")
        } else {
            format!("{name}: {}", addresses.join(", "))
        };
        Fact::new(&one.place, said)
    });
    shown.collect()
}

/// Reports an address that the arguments give one interface and the configuration another.
fn find_other_interface(
    evidence: &DoctorEvidence,
    arguments: &InitramfsNetwork,
    fixed: &StaticAddresses,
) -> Option<DoctorFinding> {
    let mut facts = Vec::new();
    for (token, address, name) in &arguments.fixed {
        let Some(name) = name else { continue };
        let holders: Vec<_> = fixed
            .addresses()
            .filter(|(_, other, _)| other == address)
            .map(|(profile, _, _)| profile)
            .collect();
        // The bridge takes over the address of the interface below it, while its own connection keeps the name.
        let fits = |one: &&Profile| match &one.interface {
            None => true,
            Some(other) => other == name || other == BRIDGE || one.below.contains(name),
        };
        if holders.iter().any(fits) || fixed.has_interface(name) {
            continue;
        }
        facts.extend(holders.first().map(|one| {
            let other = one.interface.clone().unwrap_or_default();
            [
                Fact::new(token, format!("{address} is for {name}")),
                Fact::new(&one.place, format!("{address} is for {other}")),
            ]
        }));
    }
    if facts.is_empty() {
        return None;
    }
    let means = "The interface has one name in the initramfs and another one in the booted system, or the address is on \
                 another port. Where only one of the names exists, one of the two has no network.";
    let finding = DoctorFinding::warning("one address is for two interfaces", means)
        .seen_all(facts.into_iter().flatten());
    Some(show_connections(evidence, finding))
}

/// The bridge of OVN-Kubernetes.
const BRIDGE: &str = "br-ex";

/// Reports static addresses without a name server although the arguments have one.
fn find_no_server(
    evidence: &DoctorEvidence,
    arguments: &InitramfsNetwork,
    fixed: &StaticAddresses,
) -> Option<DoctorFinding> {
    let first = arguments.servers.first()?;
    let mut profiles = fixed.profiles.iter();
    let gives = |one: &Profile| one.servers || one.families.iter().any(|family| family.automatic);
    let is_fixed = fixed.addresses().next().is_some();
    if fixed.global_servers || !is_fixed || profiles.any(gives) {
        return None;
    }
    let means = "The initramfs resolves names, and the booted system has no server for them.";
    let finding = DoctorFinding::warning("name servers are in the kernel arguments only", means)
        .with_evidence("kernel command line", first.clone())
        .seen_all(profiles_without(fixed));
    Some(show_connections(evidence, finding))
}

fn profiles_without(fixed: &StaticAddresses) -> Vec<Fact> {
    let all = fixed.addresses();
    all.map(|(profile, address, _)| Fact::new(&profile.place, format!("{address}, without dns=")))
        .collect()
}

/// Reports an initramfs that needs the network and uses DHCP while the booted system has static addresses.
fn find_dhcp_only(
    evidence: &DoctorEvidence,
    arguments: &InitramfsNetwork,
    fixed: &StaticAddresses,
) -> Option<DoctorFinding> {
    let mut families = fixed.profiles.iter().flat_map(|one| &one.families);
    let any_automatic = families.any(|family| family.automatic);
    let gateway = fixed
        .profiles
        .iter()
        .find(|one| one.families.iter().any(|family| family.gateway))?;
    // ip=dhcp is a decision made by a person or by the installer.
    let decided = arguments.automatic || !arguments.fixed.is_empty() || !arguments.made.is_empty();
    if !arguments.needed || decided || any_automatic {
        return None;
    }
    let means = "The initramfs waits for the network before the root is mounted, and asks DHCP. Without a DHCP server in this \
                 network the node does not boot.";
    Some(
        DoctorFinding::notice("the initramfs has no fixed address", means)
            .with_evidence("kernel command line", "rd.neednet=1, without ip=")
            .seen_all(
                list_profiles(fixed)
                    .into_iter()
                    .filter(|fact| fact.place == gateway.place),
            )
            .next(if evidence.live {
                "rpm-ostree kargs".to_owned()
            } else {
                format!("cat {}/*.conf", evidence.shell_path("boot/loader/entries"))
            }),
    )
}

fn show_connections(evidence: &DoctorEvidence, finding: DoctorFinding) -> DoctorFinding {
    if evidence.live {
        finding
            .next("nmcli connection show")
            .next("ip -br addr")
            .next("rpm-ostree kargs")
    } else {
        finding.next(format!(
            "ls -l {}",
            evidence.shell_path("etc/NetworkManager/system-connections")
        ))
    }
}
