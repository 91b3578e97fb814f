//! Does shim still start every boot loader once the image's shim has raised the revocation level?

use std::collections::BTreeMap;

use super::boot_loader::payload_of;
use crate::judge::crossing::sbat::{RevocationLevel, level_of_shim};
use crate::judge::crossing::{CrossingCheck, CrossingFinding, CrossingSeverity, Target};
use crate::node::platform::Platform;

/// The check.
pub(super) const CHECK: CrossingCheck = CrossingCheck::of_image("secure-boot", judge);

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
        // Without a partition or a payload, nothing could be refused.
        if firmware.partitions.is_empty() || payload.is_empty() {
            return Vec::new();
        }
        let what = format!("it is unknown whether Secure Boot is on: {reason}");
        let finding = CrossingFinding::unknown("Secure Boot", what);
        return vec![finding.next("mokutil --sb-state")];
    }
    let current = RevocationLevel::parse_lines(&firmware.sbat_level);
    let mut findings = Vec::new();
    // Shims that boot next, and the level that each of them sets.
    let mut now = (current.clone(), LEVEL.to_owned());
    for partition in &firmware.partitions {
        if let Ok(files) = &partition.files {
            raise_level(&mut now, &partition.place, files);
        }
    }
    let mut later = now.clone();
    raise_level(&mut later, &target.tree.source, &payload);
    let is_single = firmware.partitions.len() == 1;
    for partition in &firmware.partitions {
        let Ok(files) = &partition.files else {
            continue;
        };
        let place = &partition.place;
        findings.extend(judge_partition(
            place, files, &current, &now, &later, is_single,
        ));
    }
    findings.extend(judge_payload(target, &payload, &current));
    findings
}

/// Reports a boot loader of the image that this machine refuses.
fn judge_payload(
    target: &Target,
    payload: &BTreeMap<String, Vec<u8>>,
    current: &RevocationLevel,
) -> Option<CrossingFinding> {
    let (path, reason) = first_refused(payload, current)?;
    let what = format!(
        "the image's EFI/{path} is below the level of this machine; once it is installed it does not start"
    );
    let finding = CrossingFinding::inhibitor("image", what)
        .with_evidence(format!("{} EFI/{path}", target.tree.source), reason)
        .with_evidence(LEVEL, format!("level {}", current.date))
        .with_prevented("Something has gone seriously wrong: SBAT self-check failed")
        .next("Take a newer image; do not install this one's boot loader.");
    Some(finding)
}

/// A level, and the place that it comes from.
type Raised = (RevocationLevel, String);

/// Raises a level to that of the newest shim among these files.
fn raise_level(level: &mut Raised, place: &str, files: &BTreeMap<String, Vec<u8>>) {
    for (path, bytes) in files.iter().filter(|(path, _)| is_shim(path)) {
        let own = level_of_shim(bytes);
        if let Some(own) = own.filter(|own| own.date > level.0.date) {
            *level = (own, format!("{place} EFI/{path}"));
        }
    }
}

/// Judges the programs of a partition at the level of the next boot, and at the level of the image's shim.
fn judge_partition(
    place: &str,
    files: &BTreeMap<String, Vec<u8>>,
    current: &RevocationLevel,
    now: &Raised,
    later: &Raised,
    is_single: bool,
) -> Option<CrossingFinding> {
    let (severity, (path, reason), (level, raised_by)) = match first_refused(files, &now.0) {
        Some(refused) => (CrossingSeverity::Inhibitor, refused, now),
        // An update installs shim and grub together, but not on each partition.
        None if is_single => (
            CrossingSeverity::Warning,
            first_refused(files, &later.0)?,
            later,
        ),
        None => (
            CrossingSeverity::Inhibitor,
            first_refused(files, &later.0)?,
            later,
        ),
    };
    let what = if first_refused(files, current).is_some() {
        format!("shim refuses EFI/{path} on this partition already")
    } else if is_single {
        format!("the newer shim refuses EFI/{path}: both have to be replaced in one step")
    } else {
        format!(
            "shim refuses EFI/{path} on this partition once the newer shim of another place has booted and raised the level"
        )
    };
    Some(
        CrossingFinding::new(severity, place, what)
            .with_evidence(format!("{place} EFI/{path}"), reason)
            .with_evidence(raised_by, format!("level {}", level.date))
            .with_prevented(WORDS)
            .next(
                "Update shim and grub together on every EFI system partition, before the image is staged; boot-loader \
                 has the commands.",
            ),
    )
}

/// Returns true for a program that shim starts, and for shim itself, which checks its own generation.
fn is_loader(path: &str) -> bool {
    let (_, name) = path.rsplit_once('/').unwrap_or(("", path));
    is_shim(path) || name.starts_with("grub") && name.ends_with(".efi")
}

fn is_shim(path: &str) -> bool {
    let (_, name) = path.rsplit_once('/').unwrap_or(("", path));
    (name.starts_with("shim") && name.ends_with(".efi"))
        || ["bootx64.efi", "bootaa64.efi"].contains(&name)
}

fn first_refused(
    files: &BTreeMap<String, Vec<u8>>,
    level: &RevocationLevel,
) -> Option<(String, String)> {
    let mut loaders = files.iter().filter(|(path, _)| is_loader(path));
    loaders.find_map(|(path, bytes)| Some((path.clone(), level.refusal_reason(bytes)?)))
}
