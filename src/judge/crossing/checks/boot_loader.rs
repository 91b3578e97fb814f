//! Does the boot loader on the EFI system partitions suit the image?

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use sha2::{Digest, Sha512};

use super::boot_filesystem::labelled_devices;
use super::faults;
use crate::host::root::to_hex;
use crate::judge::crossing::{
    CrossingCheck, CrossingFailure, CrossingFinding, CrossingSeverity, Target,
};
use crate::node::images::tree::ImageTree;
use crate::node::platform::{Platform, SystemPartition};

/// The check.
pub(super) const CHECK: CrossingCheck = CrossingCheck::of_image("boot-loader", judge);

const UPDATES: &str = "usr/lib/bootupd/updates";
const STUB: &str = "grub.cfg";

fn judge(target: &Target, node: &Platform) -> Vec<CrossingFinding> {
    let mut findings = Vec::new();
    findings.extend(judge_style(node));
    // A BIOS machine does not read the partition.
    if node.firmware.is_efi == Ok(false) {
        return findings;
    }
    let partitions = &node.firmware.partitions;
    if partitions.is_empty() {
        let what = "no EFI system partition is known, so the boot loader is not judged";
        let finding = CrossingFinding::unknown("boot loader", what);
        findings.push(finding.next("lsblk -o NAME,PARTTYPENAME,MOUNTPOINTS"));
        return findings;
    }
    let payload = payload_of(&target.tree);
    if payload.is_empty() {
        let what = "the image brings no boot loader, so the node's own is not judged";
        let finding = CrossingFinding::unknown("boot loader", what);
        findings.push(finding.with_evidence(&target.tree.source, format!("/{UPDATES} is empty")));
        return findings;
    }
    for partition in partitions {
        match &partition.files {
            Ok(files) => {
                findings.extend(judge_partition(target, node, partition, files, &payload));
            }
            Err(reason) => {
                let what = format!("its boot loader is not known: {reason}");
                findings.push(
                    CrossingFinding::unknown(&partition.place, what)
                        .next(format!("mount -o ro {} /boot/efi", partition.place)),
                );
            }
        }
    }
    findings
}

/// Returns the image's files for the partition, by path below `EFI` in lower case. The newer layout has a directory for each
/// package and version.
pub(super) fn payload_of(tree: &ImageTree) -> BTreeMap<String, &[u8]> {
    let newer = tree.files_below("usr/lib/efi").filter_map(|path| {
        let (_, rest) = path.strip_prefix("usr/lib/efi/")?.split_once('/')?;
        let (_, rest) = rest.split_once('/')?;
        Some((
            rest.strip_prefix("EFI/")?.to_ascii_lowercase(),
            tree.bytes_of(path)?,
        ))
    });
    let newer: BTreeMap<String, &[u8]> = newer.collect();
    if !newer.is_empty() {
        return newer;
    }
    let older = tree.files_below(UPDATES).filter_map(|path| {
        let rest = path.strip_prefix(UPDATES)?.strip_prefix("/EFI/")?;
        Some((rest.to_ascii_lowercase(), tree.bytes_of(path)?))
    });
    older.collect()
}

fn judge_partition(
    target: &Target,
    node: &Platform,
    partition: &SystemPartition,
    files: &BTreeMap<String, Vec<u8>>,
    payload: &BTreeMap<String, &[u8]>,
) -> Vec<CrossingFinding> {
    let place = &partition.place;
    let mut findings = Vec::new();
    let stale: Vec<&str> = payload
        .iter()
        .filter(|(path, bytes)| files.get(*path).map(Vec::as_slice) != Some(**bytes))
        .map(|(path, _)| path.as_str())
        .collect();
    if !stale.is_empty() {
        let what = format!(
            "{} of {} files of the boot loader are not the image's; an old boot loader may not start a newer system",
            stale.len(),
            payload.len()
        );
        let missing = stale
            .iter()
            .filter(|path| !files.contains_key(**path))
            .count();
        let mut finding = CrossingFinding::warning(place, what)
            .with_evidence(
                place,
                format!("EFI/{} ({missing} missing)", stale.join(", EFI/")),
            )
            .with_failure(CrossingFailure::GrubPrompt)
            .with_prevented("grub>");
        finding = state_words(target, node, files, finding);
        for command in update_commands(target, node, place) {
            finding = finding.next(command);
        }
        findings.push(finding);
    }
    findings.extend(judge_stubs(node, place, files, payload));
    findings.extend(judge_leftovers(place, files));
    findings
}

fn sha512_hex(bytes: &[u8]) -> String {
    to_hex(&Sha512::digest(bytes))
}

fn payload_version(target: &Target) -> String {
    let meta = target.tree.bytes_of(&format!("{UPDATES}/EFI.json"));
    let meta = meta.and_then(|bytes| serde_json::from_slice::<Value>(bytes).ok());
    let version = meta.and_then(|meta| Some(meta["version"].as_str()?.to_owned()));
    version.unwrap_or_default()
}

fn state_words(
    target: &Target,
    node: &Platform,
    files: &BTreeMap<String, Vec<u8>>,
    finding: CrossingFinding,
) -> CrossingFinding {
    let said = match &node.firmware.state {
        Ok(Some(state)) if state.is_pending => "an update of bootupd was interrupted".to_owned(),
        Ok(Some(state)) => format!("bootupd installed {}", state.version),
        Ok(None) => "missing: bootupd does not know this boot loader".to_owned(),
        Err(reason) => reason.to_string(),
    };
    let mut finding = finding.with_evidence("/boot/bootupd-state.json", said);
    let state = node.firmware.state.as_ref().ok().and_then(Option::as_ref);
    let installed = state.iter().flat_map(|state| &state.files);
    let changed: Vec<&str> = installed
        .filter(|(path, digest)| {
            files.get(*path).map(|bytes| sha512_hex(bytes)).as_ref() != Some(*digest)
        })
        .map(|(path, _)| path.as_str())
        .collect();
    if !changed.is_empty() {
        let said = format!("not what bootupd installed: EFI/{}", changed.join(", EFI/"));
        finding = finding.with_evidence("/boot/bootupd-state.json", said);
    }
    match payload_version(target).as_str() {
        "" => finding,
        version => finding.with_evidence(&target.tree.source, version),
    }
}

/// Judges the copy next to a directory by which bootupd replaces it, and which remains if the update is interrupted.
fn judge_leftovers(place: &str, files: &BTreeMap<String, Vec<u8>>) -> Option<CrossingFinding> {
    let names = files.keys().filter_map(|path| path.split_once('/'));
    let names = names
        .map(|(name, _)| name)
        .filter(|name| name.starts_with(".btmp."));
    let names: BTreeSet<&str> = names.collect();
    let first = names.first()?;
    let all: Vec<String> = names
        .iter()
        .map(|name| format!("/boot/efi/EFI/{name}"))
        .collect();
    let what = "an update of the boot loader was interrupted on this partition, and its copy takes the room of the next one";
    Some(
        CrossingFinding::warning(place, what)
            .with_evidence(place, format!("EFI/{first}"))
            .with_failure(CrossingFailure::BootLoaderSpace)
            .with_prevented("No space left on device")
            .next(format!("mount {place} /boot/efi"))
            .next(format!("rm -r {}", all.join(" ")))
            .next("umount /boot/efi"),
    )
}

/// Returns the commands that update a partition. bootupd compares only versions: it does nothing if it knows no boot loader, or
/// if its state already has the image's version.
fn update_commands(target: &Target, node: &Platform, place: &str) -> Vec<String> {
    let version = payload_version(target);
    let state = node.firmware.state.as_ref().ok().and_then(Option::as_ref);
    let is_known = state.is_some_and(|state| !state.version.is_empty() && state.version != version);
    let is_directory = target.tree.source.starts_with('/');
    let source = &target.tree.source;
    let image = match source.strip_prefix("containers-storage:") {
        Some(name) => name.to_owned(),
        None => format!("$(podman pull -q {source})"),
    };
    if is_known && !is_directory {
        return vec![format!(
            "podman run --env INVOCATION_ID=1 --privileged --pid=host --net=host --rm -v /boot:/boot:rslave -v /dev:/dev \
             {image} bootupctl update"
        )];
    }
    let is_new = target.tree.files_below("usr/lib/efi").next().is_some();
    let below = if is_new {
        "usr/lib/efi/*/*/EFI"
    } else {
        "usr/lib/bootupd/updates/EFI"
    };
    let from = if is_directory {
        format!("{}/{below}", target.tree.source.trim_end_matches('/'))
    } else {
        format!("$(podman image mount {image})/{below}")
    };
    let name = place.trim_start_matches('/').replace('/', "-");
    let copy = [
        format!("cp -rp /boot/efi/EFI /var/tmp/EFI-{name}"),
        format!("for d in {from}; do cp -rp $d /boot/efi/; done"),
    ];
    match place {
        "/boot/efi" => [&copy[..], &["sync".to_owned()]].concat(),
        _ => {
            let mount = format!("mount {place} /boot/efi");
            [&[mount], &copy[..], &["umount /boot/efi".to_owned()]].concat()
        }
    }
}

/// Judges the file next to the boot loader that points it to `/boot`.
fn judge_stubs(
    node: &Platform,
    place: &str,
    files: &BTreeMap<String, Vec<u8>>,
    payload: &BTreeMap<String, &[u8]>,
) -> Vec<CrossingFinding> {
    let mut findings = Vec::new();
    let stub_of = |path: &str| path.strip_suffix(&format!("/{STUB}")).map(str::to_owned);
    let with_stub: Vec<String> = files.keys().filter_map(|path| stub_of(path)).collect();
    let directories = payload.keys().filter_map(|path| path.split_once('/'));
    let vendors: BTreeSet<&str> = directories
        .map(|(name, _)| name)
        .filter(|name| *name != "boot")
        .collect();
    let missing = vendors
        .iter()
        .filter(|vendor| !with_stub.iter().any(|have| have == *vendor));
    for vendor in missing {
        let at = format!("EFI/{vendor}/{STUB}");
        let (severity, what) = match with_stub.first() {
            None => (
                CrossingSeverity::Inhibitor,
                format!(
                    "{at} is missing, and so is every other: the boot loader does not find /boot"
                ),
            ),
            Some(_) => (
                CrossingSeverity::Warning,
                format!(
                    "the image's boot loader reads {at}, which is missing: once it is installed it does not find /boot"
                ),
            ),
        };
        let finding = CrossingFinding::new(severity, place, what)
            .with_evidence(place, format!("{at} is missing"))
            .with_failure(CrossingFailure::GrubPrompt)
            .with_prevented("grub>");
        let from = match with_stub.first() {
            Some(other) => format!("/boot/efi/EFI/{other}/{STUB}"),
            None => "/usr/lib/bootupd/grub2-static/grub-static-efi.cfg".to_owned(),
        };
        findings.push(
            finding
                .next(format!("mount {place} /boot/efi"))
                .next(format!("cp {from} /boot/efi/EFI/{vendor}/{STUB}"))
                .next("umount /boot/efi"),
        );
    }
    let many = labelled_devices(&node.storage);
    for directory in with_stub.iter().filter(|_| many.len() > 1) {
        let path = format!("{directory}/{STUB}");
        let text = String::from_utf8_lossy(files.get(&path).map_or(&[][..], Vec::as_slice));
        if text.contains("--label") && !text.contains("uuid") {
            let what = format!(
                "EFI/{path} looks for /boot by its label, and {} file systems have it",
                many.len()
            );
            findings.push(
                CrossingFinding::warning(place, what)
                    .with_evidence(format!("{place} EFI/{path}"), "search --label boot")
                    .with_prevented("the kernels of another disk are in the boot menu")
                    .next("Take the label off the other one, see boot-filesystem."),
            );
        }
    }
    findings
}

/// Reports a GRUB configuration that is generated from the boot entries.
fn judge_style(node: &Platform) -> Option<CrossingFinding> {
    let text = match &node.firmware.grub_config {
        Ok(text) => text,
        Err(why) => return faults::note_unseen("grub.cfg", std::slice::from_ref(why)),
    };
    if !text.contains("### BEGIN /etc/grub.d/15_ostree ###") {
        return None;
    }
    let lines = || text.lines().map(str::trim);
    let has_both = lines().any(|line| line == "blscfg");
    let what = if has_both {
        "GRUB's configuration lists the boot entries twice"
    } else {
        "GRUB's configuration is generated at each change of the boot entries, which fails on newer systems"
    };
    Some(
        CrossingFinding::warning("grub.cfg", what)
            .with_evidence(
                "/boot/grub2/grub.cfg",
                "### BEGIN /etc/grub.d/15_ostree ###",
            )
            .with_failure(CrossingFailure::OldGrubConfig)
            .with_prevented(
                "Bootloader write config: grub2-mkconfig: Child process exited with code 1",
            )
            .next("bootupctl migrate-static-grub-config"),
    )
}
