//! Does the next boot open encrypted disks of the system?

use crate::crossing::{CrossingCheck, CrossingFinding, CrossingSeverity, Target};
use crate::node::platform::{Encrypted, Pin, Platform};

/// The check.
pub(super) const CHECK: CrossingCheck = CrossingCheck {
    id: "encrypted-root",
    title: "encrypted disks of the system open at the next boot",
    judge,
};

/// Registers of the TPM that another boot loader, kernel or kernel argument changes.
const OF_BOOT: [u32; 3] = [4, 8, 9];
/// Registers that other firmware, keys or options may change, which may come with another boot loader.
const OF_FIRMWARE: [u32; 8] = [0, 1, 2, 3, 5, 6, 7, 14];

fn judge(_: &Target, node: &Platform) -> Vec<CrossingFinding> {
    let all = node.encrypted.iter();
    all.flat_map(|device| judge_device(node, device)).collect()
}

fn judge_device(node: &Platform, device: &Encrypted) -> Vec<CrossingFinding> {
    let source = &device.source;
    let pins = match &device.tokens {
        Ok(pins) => pins,
        Err(reason) => {
            let what = format!("it is not known what opens this encrypted disk: {reason}");
            let finding = CrossingFinding::new(CrossingSeverity::Unknown, source, what);
            return vec![finding.next(format!("clevis luks list -d {source}"))];
        }
    };
    // Without clevis a person or a key file opens it, as before.
    if pins.is_empty() {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let fails = |breaks: &[u32]| pins.iter().all(|pin| !opens(pin, breaks));
    let severity = if fails(&OF_BOOT) {
        Some(CrossingSeverity::Inhibitor)
    } else if fails(&[&OF_BOOT[..], &OF_FIRMWARE[..]].concat()) {
        Some(CrossingSeverity::Warning)
    } else {
        None
    };
    if let Some(severity) = severity {
        let what = match severity {
            CrossingSeverity::Inhibitor => {
                "the TPM opens this disk only for this boot loader and kernel, and the image brings others"
            }
            _ => "the TPM may not open this disk if the boot loader or its keys are updated",
        };
        findings.push(
            CrossingFinding::new(severity, source, what)
                .seen(
                    format!("LUKS header of {source}"),
                    describe(pins, device.other_slots),
                )
                .prevents("Unsealing jwk from TPM failed")
                .next(format!(
                    "Add a passphrase for this boot: cryptsetup luksAddKey {source}"
                ))
                .next(format!(
                    "After the boot, bind the TPM again: clevis luks regen -d {source} -s SLOT"
                )),
        );
    }
    let arguments = node.boot.inherited_arguments(&node.command_line);
    if let Ok((place, arguments)) = arguments {
        let asks = |token: &String| token == "rd.neednet" || token == "rd.neednet=1";
        let has_network = arguments.tokens().iter().any(asks);
        let needs_tang = pins.iter().all(needs_network);
        // The network of the running system opens other disks.
        if device.is_root && needs_tang && !has_network {
            let what = "Tang opens the root disk, and no kernel argument asks for a network in the initramfs";
            findings.push(
                CrossingFinding::new(CrossingSeverity::Warning, source, what)
                    .seen(format!("LUKS header of {source}"), describe(pins, device.other_slots))
                    .seen(place, arguments.to_string())
                    .prevents("Error communicating with server")
                    .next("rpm-ostree kargs --append-if-missing=rd.neednet=1")
                    .next(
                        "The initramfs does not read the node's network files. Without DHCP, add ip= and nameserver= too.",
                    ),
            );
        }
    }
    findings
}

/// Returns true if a pin still opens after these registers have changed.
fn opens(pin: &Pin, changed: &[u32]) -> bool {
    match pin {
        Pin::Tpm2(registers) => !registers.iter().any(|one| changed.contains(one)),
        Pin::Shared(needed, pins) => {
            let open = pins.iter().filter(|pin| opens(pin, changed)).count();
            open as u64 >= *needed
        }
        Pin::Tang(_) | Pin::Other(_) => true,
    }
}

/// Returns true if a pin does not open without a network.
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

fn describe(pins: &[Pin], other_slots: usize) -> String {
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
