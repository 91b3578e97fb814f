//! Does shim still start every boot loader after the image's shim has raised the revocation level?

use std::collections::BTreeMap;

use super::boot_loader::payload_of;
use crate::crossing::sbat::{Level, level_of_shim};
use crate::crossing::{CrossingCheck, CrossingFinding, CrossingSeverity, Target};
use crate::node::platform::Platform;

/// The check.
pub(super) const CHECK: CrossingCheck = CrossingCheck {
    id: "secure-boot",
    title: "Secure Boot starts the boot loader of each EFI system partition",
    judge,
};

const WORDS: &str = "Verification failed: (0x1A) Security Violation";
const LEVEL: &str = "SbatLevelRT";

fn judge(target: &Target, node: &Platform) -> Vec<CrossingFinding> {
    let firmware = &node.firmware;
    if firmware.is_efi == Ok(false) || firmware.secure_boot == Ok(false) {
        return Vec::new();
    }
    let payload: BTreeMap<String, Vec<u8>> = payload_of(&target.tree)
        .into_iter()
        .map(|(path, bytes)| (path, bytes.to_vec()))
        .collect();
    if let Err(reason) = &firmware.secure_boot {
        // Without a partition or a payload there is nothing that could be refused.
        if firmware.partitions.is_empty() || payload.is_empty() {
            return Vec::new();
        }
        let what = format!("it is not known if Secure Boot is on: {reason}");
        let finding = CrossingFinding::new(CrossingSeverity::Unknown, "Secure Boot", what);
        return vec![finding.next("mokutil --sb-state")];
    }
    let current = Level::parse(&firmware.sbat_level);
    let mut findings = Vec::new();
    // Shims that may boot next, and the level that each of them sets.
    let mut highest = (current.clone(), LEVEL.to_owned());
    let mut raise = |place: &str, files: &BTreeMap<String, Vec<u8>>| {
        for (path, bytes) in files.iter().filter(|(path, _)| is_shim(path)) {
            if let Some(level) = level_of_shim(bytes).filter(|level| level.date > highest.0.date) {
                highest = (
                    highest.0.clone().newer(level),
                    format!("{place} EFI/{path}"),
                );
            }
        }
    };
    for partition in &firmware.partitions {
        if let Ok(files) = &partition.files {
            raise(&partition.place, files);
        }
    }
    raise(&target.tree.source, &payload);
    let (level, raised_by) = highest;
    for partition in &firmware.partitions {
        let Ok(files) = &partition.files else {
            continue;
        };
        let refused = first_refused(files, &level);
        let Some((path, reason)) = refused else {
            continue;
        };
        let is_now = first_refused(files, &current).is_some();
        let what = match is_now {
            true => format!("shim refuses EFI/{path} on this partition already"),
            false => format!(
                "shim refuses EFI/{path} on this partition once the newer shim has booted and raised the level"
            ),
        };
        findings.push(
            CrossingFinding::new(CrossingSeverity::Inhibitor, &partition.place, what)
                .seen(format!("{} EFI/{path}", partition.place), reason)
                .seen(&raised_by, format!("level {}", level.date))
                .prevents(WORDS)
                .next(
                    "Update shim and grub together on every EFI system partition, before the image is staged; boot-loader \
                     has the commands.",
                ),
        );
    }
    if let Some((path, reason)) = first_refused(&payload, &current) {
        let what = format!(
            "the image's EFI/{path} is below the level of this machine; once it is installed it does not start"
        );
        findings.push(
            CrossingFinding::new(CrossingSeverity::Inhibitor, "image", what)
                .seen(format!("{} EFI/{path}", target.tree.source), reason)
                .seen(LEVEL, format!("level {}", current.date))
                .prevents("Something has gone seriously wrong: SBAT self-check failed")
                .next("Take a newer image; do not install this one's boot loader."),
        );
    }
    findings
}

/// The programs that shim starts, and shim itself, which checks its own generation.
fn is_loader(path: &str) -> bool {
    let (_, name) = path.rsplit_once('/').unwrap_or(("", path));
    is_shim(path) || name.starts_with("grub") && name.ends_with(".efi")
}

fn is_shim(path: &str) -> bool {
    let (_, name) = path.rsplit_once('/').unwrap_or(("", path));
    (name.starts_with("shim") && name.ends_with(".efi"))
        || ["bootx64.efi", "bootaa64.efi"].contains(&name)
}

fn first_refused(files: &BTreeMap<String, Vec<u8>>, level: &Level) -> Option<(String, String)> {
    let mut loaders = files.iter().filter(|(path, _)| is_loader(path));
    loaders.find_map(|(path, bytes)| Some((path.clone(), level.refuses(bytes)?)))
}
