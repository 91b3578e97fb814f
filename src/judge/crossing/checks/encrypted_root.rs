//! Can the next boot unlock the system's encrypted disks?

use crate::base::kargs::Kargs;
use crate::judge::crossing::{
    CrossingCheck, CrossingFailure, CrossingFinding, CrossingSeverity, Target,
};
use crate::node::platform::{Encrypted, LuksFault, LuksHeader, Pin, Platform, StaticNetwork};

/// The check.
pub(super) const CHECK: CrossingCheck = CrossingCheck::of_image("encrypted-root", judge);

/// TPM registers that change with another boot loader, kernel or kernel argument.
const OF_BOOT: [u32; 3] = [4, 8, 9];
/// TPM registers that may change with firmware, keys or options, which may come with another boot loader.
const OF_FIRMWARE: [u32; 8] = [0, 1, 2, 3, 5, 6, 7, 14];

fn judge(_: &Target, node: &Platform) -> Vec<CrossingFinding> {
    let all = node.encrypted.iter();
    all.flat_map(|device| judge_device(node, device)).collect()
}

fn judge_device(node: &Platform, device: &Encrypted) -> Vec<CrossingFinding> {
    let source = &device.source;
    let header = match &device.header {
        Ok(Ok(header)) => header,
        Ok(Err(fault @ LuksFault::Damaged(_))) => return vec![judge_damaged(source, fault)],
        Ok(Err(fault)) => return vec![unknown_source(source, fault)],
        Err(reason) => return vec![unknown_source(source, reason)],
    };
    let pins = &header.pins;
    let mut findings = Vec::new();
    findings.extend(judge_copy(source, header));
    // Without clevis, a person or a key file unlocks it, as before.
    if pins.is_empty() {
        return findings;
    }
    findings.extend(judge_tpm(source, header));
    // Other disks are unlocked with the network of the running system.
    if device.is_root && pins.iter().all(needs_network) {
        findings.extend(judge_network(node, source, header));
    }
    findings
}

/// Judges whether the TPM still opens a disk for the next boot.
fn judge_tpm(source: &str, header: &LuksHeader) -> Option<CrossingFinding> {
    let pins = &header.pins;
    let fails = |breaks: &[u32]| pins.iter().all(|pin| !still_unlocks(pin, breaks));
    let (severity, what) = if fails(&OF_BOOT) {
        let what = "the TPM opens this disk only for this boot loader and kernel, and the image brings others";
        (CrossingSeverity::Inhibitor, what)
    } else if fails(&[&OF_BOOT[..], &OF_FIRMWARE[..]].concat()) {
        let what = "the TPM may not open this disk if the boot loader or its keys are updated";
        (CrossingSeverity::Warning, what)
    } else {
        return None;
    };
    let finding = CrossingFinding::new(severity, source, what)
        .with_evidence(
            format!("LUKS header of {source}"),
            describe_pins(pins, header.other_slots),
        )
        .with_failure(CrossingFailure::Tpm)
        .with_prevented("Unsealing jwk from TPM failed")
        .next(format!(
            "Add a passphrase for this boot: cryptsetup luksAddKey {source}"
        ))
        .next(format!(
            "After the boot, bind the TPM again: clevis luks regen -d {source} -s SLOT"
        ));
    Some(finding)
}

fn unknown_source(source: &str, reason: impl std::fmt::Display) -> CrossingFinding {
    let what = format!("it is not known what opens this encrypted disk: {reason}");
    let finding = CrossingFinding::unknown(source, what);
    finding.next(format!("clevis luks list -d {source}"))
}

/// Reports a disk that stays readable only while it is open.
fn judge_damaged(source: &str, fault: &LuksFault) -> CrossingFinding {
    let what =
        "no boot opens this disk any more: the header with its keys is damaged, in both copies";
    CrossingFinding::inhibitor(source, what)
        .with_evidence(format!("LUKS header of {source}"), fault.to_string())
        .with_failure(CrossingFailure::LuksHeader)
        .with_prevented(format!("Device {source} is not a valid LUKS device."))
        .next(format!(
            "cryptsetup luksHeaderRestore {source} --header-backup-file FILE"
        ))
        .next("Without a backup, do not reboot: copy the data off while the disk is open.")
}

fn judge_copy(source: &str, header: &LuksHeader) -> Option<CrossingFinding> {
    let copy = header.damaged?;
    let what = format!(
        "the {copy} copy of the header is damaged; the disk opens by the other one, and its loss takes all data"
    );
    Some(
        CrossingFinding::warning(source, what)
            .with_evidence(
                format!("LUKS header of {source}"),
                format!("{copy} copy: damaged"),
            )
            .with_failure(CrossingFailure::LuksHeader)
            .with_prevented(format!("Device {source} is not a valid LUKS device."))
            .next(format!(
                "cryptsetup luksHeaderBackup {source} --header-backup-file FILE"
            ))
            .next(format!("cryptsetup repair {source}")),
    )
}

/// Judges the network of the initramfs, without which Tang cannot unlock a disk.
fn judge_network(node: &Platform, source: &str, header: &LuksHeader) -> Option<CrossingFinding> {
    let (place, arguments) = node.boot.inherited_arguments(&node.command_line).ok()?;
    let tokens = arguments.tokens();
    let warn = |what: &str| {
        CrossingFinding::warning(source, what)
            .with_evidence(
                format!("LUKS header of {source}"),
                describe_pins(&header.pins, header.other_slots),
            )
            .with_evidence(&place, arguments.to_string())
            .with_prevented("Error communicating with server")
    };
    let asks = |token: &String| token == "rd.neednet" || token == "rd.neednet=1";
    if !tokens.iter().any(asks) {
        let what =
            "Tang opens the root disk, and no kernel argument asks for a network in the initramfs";
        return Some(
            warn(what)
                .next("rpm-ostree kargs --append-if-missing=rd.neednet=1")
                .next(
                    "The initramfs does not read the node's network files. Without DHCP, add ip= and nameserver= too.",
                ),
        );
    }
    let value = |key: &str| {
        let mut all = tokens.iter();
        all.any(|token| {
            token
                .strip_prefix(key)
                .is_some_and(|value| !value.is_empty())
        })
    };
    let hosts = tang_hosts(&header.pins);
    // Automatic IPv6 addresses reach only hosts that have one too.
    let suits = |network: &&StaticNetwork| {
        let is_v4 = |host: &String| host.parse::<std::net::Ipv4Addr>().is_ok();
        !network.has_automatic_v6 || hosts.iter().all(is_v4)
    };
    if let (false, Some(network)) = (value("ip="), node.static_network.as_ref().filter(suits)) {
        let what = "Tang opens the root disk, and the initramfs asks DHCP for the network, which the node itself does not use";
        let address = argument_of(network);
        return Some(
            warn(what)
                .with_evidence(&network.place, &network.said)
                .next(format!(
                    "rpm-ostree kargs --append-if-missing={address}{}",
                    servers_of(network)
                ))
                .next(format!(
                    "Add a passphrase for the next boot: cryptsetup luksAddKey {source}"
                )),
        );
    }
    let is_static = tokens.iter().any(|token| is_static_address(token));
    let name = hosts
        .into_iter()
        .find(|host| host.parse::<std::net::IpAddr>().is_err());
    if let (true, false, Some(host)) = (is_static, has_name_server(&arguments), name) {
        let what = format!(
            "Tang opens the root disk by the name {host}, and no kernel argument gives the initramfs a name server"
        );
        return Some(warn(&what).next("rpm-ostree kargs --append-if-missing=nameserver=ADDRESS"));
    }
    None
}

/// Returns the kernel argument that gives the initramfs the address of a connection.
fn argument_of(network: &StaticNetwork) -> String {
    let StaticNetwork {
        address,
        prefix,
        gateway,
        interface,
        ..
    } = network;
    let interface = interface.as_deref().unwrap_or("INTERFACE");
    format!("ip={address}::{gateway}:{prefix}::{interface}:none")
}

fn servers_of(network: &StaticNetwork) -> String {
    let servers = network.servers.iter();
    let all = servers.map(|one| format!(" --append-if-missing=nameserver={one}"));
    all.collect()
}

/// Returns true for an `ip=` with a static address.
fn is_static_address(token: &str) -> bool {
    let value = token.strip_prefix("ip=").unwrap_or_default();
    value.contains("::") && value.ends_with(":none") || value.contains(":none:")
}

/// Returns true if an argument names a name server: `nameserver=`, or the fields of `ip=` after the configuration method.
fn has_name_server(arguments: &Kargs) -> bool {
    let mut tokens = arguments.tokens().iter();
    tokens.any(|token| {
        let after = token.strip_prefix("ip=").and_then(|value| {
            let (_, after) = value.split_once(":none:")?;
            Some(after.contains(['.', ':']))
        });
        token.starts_with("nameserver=") || after == Some(true)
    })
}

/// Returns the hosts of the Tang servers.
fn tang_hosts(pins: &[Pin]) -> Vec<String> {
    let mut hosts = Vec::new();
    for pin in pins {
        match pin {
            Pin::Tang(url) => {
                let rest = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
                let authority = rest.split('/').next().unwrap_or_default();
                let host = match authority.strip_prefix('[') {
                    Some(rest) => rest.split(']').next().unwrap_or_default(),
                    None => authority.split(':').next().unwrap_or_default(),
                };
                hosts.push(host.to_owned());
            }
            Pin::Shared(_, pins) => hosts.extend(tang_hosts(pins)),
            Pin::Tpm2(_) | Pin::Other(_) => {}
        }
    }
    hosts
}

/// Returns true if a pin still unlocks the disk after these registers have changed.
fn still_unlocks(pin: &Pin, changed: &[u32]) -> bool {
    match pin {
        Pin::Tpm2(registers) => !registers.iter().any(|one| changed.contains(one)),
        Pin::Shared(needed, pins) => {
            let open = pins
                .iter()
                .filter(|pin| still_unlocks(pin, changed))
                .count();
            open as u64 >= *needed
        }
        Pin::Tang(_) | Pin::Other(_) => true,
    }
}

/// Returns true if a pin needs a network.
fn needs_network(pin: &Pin) -> bool {
    match pin {
        Pin::Tang(_) => true,
        Pin::Shared(needed, pins) => {
            let open = pins.iter().filter(|pin| !needs_network(pin)).count();
            (open as u64) < *needed
        }
        Pin::Tpm2(_) | Pin::Other(_) => false,
    }
}

fn describe_pins(pins: &[Pin], other_slots: usize) -> String {
    let all: Vec<String> = pins.iter().map(describe_pin).collect();
    let slots = match other_slots {
        0 => "no other key slot".to_owned(),
        1 => "1 other key slot".to_owned(),
        several => format!("{several} other key slots"),
    };
    format!("{}; {slots}", all.join(", "))
}

fn describe_pin(pin: &Pin) -> String {
    match pin {
        Pin::Tang(url) => format!("tang {url}"),
        Pin::Tpm2(registers) if registers.is_empty() => "tpm2 without registers".to_owned(),
        Pin::Tpm2(registers) => {
            let all: Vec<String> = registers.iter().map(u32::to_string).collect();
            format!("tpm2 registers {}", all.join(","))
        }
        Pin::Shared(needed, pins) => {
            let all: Vec<String> = pins.iter().map(describe_pin).collect();
            format!("{needed} of ({})", all.join(", "))
        }
        Pin::Other(name) => name.clone(),
    }
}
