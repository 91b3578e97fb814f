//! Is the mounted `/boot` the one that the next boot uses?

use super::faults;
use crate::base::invocation::kargs_command;
use crate::base::kargs::{Kargs, KargsChange};
use crate::base::reason::Reason;
use crate::judge::crossing::{
    CrossingCheck, CrossingFailure, CrossingFinding, CrossingSeverity, Cure, Target,
};
use crate::node::platform::{BlockDevice, BlockStorage, MountedFileSystem, Platform};

/// The check.
pub(super) const CHECK: CrossingCheck = CrossingCheck::of_image("boot-filesystem", judge);

fn judge(_: &Target, node: &Platform) -> Vec<CrossingFinding> {
    let mut findings = Vec::new();
    let wrong = find_wrong(node);
    if wrong.is_empty() {
        findings.extend(judge_labels(node));
    } else {
        findings.push(report_wrong(node, wrong));
    }
    if let Some(reason) = missing_evidence(node) {
        let what = format!("it is not known which file system is /boot: {reason}");
        findings.push(
            CrossingFinding::unknown("/boot", what).next("lsblk -o NAME,LABEL,UUID,MOUNTPOINTS"),
        );
    }
    findings
}

fn missing_evidence(node: &Platform) -> Option<Reason> {
    let mounts = node.storage.mounts.as_ref().err();
    let devices = node.storage.devices.as_ref().err();
    let entries = node.boot.entries.as_ref().err();
    let none = || {
        let entries = node.boot.entries.as_ref().ok()?;
        let words = "/boot/loader/entries is empty; mount /boot";
        entries.is_empty().then(|| words.into())
    };
    mounts.or(devices).or(entries).cloned().or_else(none)
}

/// Proof that the mounted `/boot` is not the one of this system: place, text, and reason.
type Proof = (String, String, &'static str);

fn find_wrong(node: &Platform) -> Vec<Proof> {
    let mut proofs = Vec::new();
    if let Some(directory) = booted_kernel(node)
        && let Ok(kernels) = &node.boot.kernels
        && has_entries(node)
        && !kernels.iter().any(|kernel| kernel.name == directory)
    {
        proofs.push((
            format!("/boot/ostree/{directory}"),
            "missing, and it is the running kernel".to_owned(),
            "the running kernel is not in /boot, so another /boot was used to boot",
        ));
    }
    let storage = &node.storage;
    let uuid = |point: &str| {
        Some(
            storage
                .find_device(&find_mount(storage, point)?.number)?
                .get("ID_FS_UUID"),
        )
    };
    if let (Some(root), Some(wanted)) =
        (uuid("/sysroot").or_else(|| uuid("/")), &node.boot.root_uuid)
        && !root.is_empty()
        && !wanted.eq_ignore_ascii_case(root)
    {
        proofs.push((
            "/boot/.root_uuid".to_owned(),
            format!("{wanted}; the root file system is {root}"),
            "/boot belongs to another root file system",
        ));
    }
    if let (Some(own), Some(wanted)) = (uuid("/boot"), boot_argument(node))
        && let Some(wanted) = wanted.strip_prefix("UUID=")
        && !own.is_empty()
        && !wanted.eq_ignore_ascii_case(own)
    {
        proofs.push((
            "boot= of the next boot".to_owned(),
            format!("UUID={wanted}; /boot is {own}"),
            "the next boot mounts another /boot than the one that is written now",
        ));
    }
    proofs
}

fn has_entries(node: &Platform) -> bool {
    node.boot
        .entries
        .as_ref()
        .is_ok_and(|entries| !entries.is_empty())
}

/// Returns the directory of the running kernel below `boot/ostree`.
fn booted_kernel(node: &Platform) -> Option<String> {
    let line = node.command_line.as_ref().ok()?;
    let mut tokens = line.tokens().iter();
    let link = tokens.find_map(|token| token.strip_prefix("ostree="))?;
    let mut parts = link.split('/').skip(3);
    Some(format!("{}-{}", parts.next()?, parts.next()?))
}

fn find_mount<'a>(storage: &'a BlockStorage, point: &str) -> Option<&'a MountedFileSystem> {
    storage.mounted_at(point)
}

fn report_wrong(node: &Platform, proofs: Vec<Proof>) -> CrossingFinding {
    let what = proofs.first().map_or("", |(_, _, what)| *what);
    let mut finding = CrossingFinding::inhibitor("/boot", what).with_prevented(
        "Failed to initialize single run daemon: error reading osImageURL from rpm-ostree: exit status 1",
    );
    for (place, said, _) in proofs {
        finding = finding.with_evidence(place, said);
    }
    if let Some(mounted) = node.storage.mounted_at("/boot") {
        finding = finding.with_evidence("mount of /boot", &mounted.source);
    }
    let labelled = labelled_devices(&node.storage);
    for device in &labelled {
        finding = finding.with_evidence(device.path(), label_words(device));
    }
    let root = root_disks(&node.storage);
    let on_root =
        |device: &&&BlockDevice| !node.storage.disks_of(&device.number).is_disjoint(&root);
    let finding = match labelled.iter().find(on_root) {
        Some(right) => finding.next(format!(
            "If {} is the right one: {}",
            right.path(),
            kargs_command(&[
                KargsChange::Delete(
                    boot_argument(node)
                        .map_or_else(|| "boot".to_owned(), |value| format!("boot={value}")),
                ),
                KargsChange::Append(format!("boot=UUID={}", right.get("ID_FS_UUID"))),
            ])
        )),
        None => finding.next("Find the right one: lsblk -o NAME,LABEL,UUID,MOUNTPOINTS"),
    };
    finding.next("Mount it at /boot, then run preflight again.")
}

fn label_words(device: &BlockDevice) -> String {
    format!("LABEL=boot UUID={}", device.get("ID_FS_UUID"))
}

fn root_disks(storage: &BlockStorage) -> std::collections::BTreeSet<String> {
    let root = storage
        .mounted_at("/sysroot")
        .or_else(|| storage.mounted_at("/"));
    root.map(|mount| storage.disks_of(&mount.number))
        .unwrap_or_default()
}

/// Returns the value of `boot=` that the next boot inherits.
fn boot_argument(node: &Platform) -> Option<String> {
    let (_, arguments) = node.boot.inherited_arguments(&node.command_line).ok()?;
    value_of(&arguments, "boot=").map(str::to_owned)
}

fn value_of<'a>(arguments: &'a Kargs, key: &str) -> Option<&'a str> {
    let mut tokens = arguments.tokens().iter().rev();
    tokens.find_map(|token| token.strip_prefix(key))
}

/// Returns the file systems with the label by which `/boot` is found. Members of arrays and single paths of multipath do
/// not count, nor a second path to the same disk.
pub(super) fn labelled_devices(storage: &BlockStorage) -> Vec<&BlockDevice> {
    let mut found: Vec<&BlockDevice> = Vec::new();
    for device in storage.devices.iter().flatten() {
        let is_member = device.get("ID_FS_TYPE").ends_with("_member")
            || device.get("DM_MULTIPATH_DEVICE_PATH") == "1";
        let identity = |device: &BlockDevice| {
            let serial = device.get("ID_SERIAL").to_owned();
            (!serial.is_empty()).then(|| (serial, device.get("ID_FS_UUID").to_owned()))
        };
        let own = identity(device);
        let is_known = own.is_some() && found.iter().any(|other| identity(other) == own);
        if device.get("ID_FS_LABEL") == "boot" && !is_member && !is_known {
            found.push(device);
        }
    }
    found
}

/// Reports several file systems with the label if nothing else tells which one is used.
fn judge_labels(node: &Platform) -> Option<CrossingFinding> {
    let storage = &node.storage;
    let all = labelled_devices(storage);
    let (_, arguments) = node.boot.inherited_arguments(&node.command_line).ok()?;
    let multipath = value_of(&arguments, "rd.multipath=").is_some_and(|value| value != "0");
    if all.len() < 2 || value_of(&arguments, "boot=").is_some() || multipath {
        return None;
    }
    match &storage.fstab {
        Ok(points) if points.contains("/boot") => return None,
        Ok(_) => {}
        Err(why) => return faults::note_unseen("/boot", std::slice::from_ref(why)),
    }
    let own = storage
        .mounted_at("/boot")
        .and_then(|mount| storage.find_device(&mount.number));
    let own = own.filter(|device| !device.get("ID_FS_UUID").is_empty());
    // Without a file that ties it to this root, the running kernel and the disk are the only proof.
    let has_kernel = booted_kernel(node).is_some() && has_entries(node);
    let on_root = own.is_some_and(|own| {
        !storage
            .disks_of(&own.number)
            .is_disjoint(&root_disks(storage))
    });
    let right = own.filter(|_| has_kernel && (node.boot.root_uuid.is_some() || on_root));
    Some(report_labels(&all, right))
}

/// Reports file systems with the same label. `right` is the one of this system, if that is known.
fn report_labels(all: &[&BlockDevice], right: Option<&BlockDevice>) -> CrossingFinding {
    let severity = match right {
        Some(_) => CrossingSeverity::Cured,
        None => CrossingSeverity::Inhibitor,
    };
    let what = match right {
        Some(_) => format!(
            "{} file systems have the label by which the next boot finds /boot; the run names the right one",
            all.len()
        ),
        None => format!(
            "{} file systems have the label by which the next boot finds /boot, and it is not clear which one is right",
            all.len()
        ),
    };
    let finding = CrossingFinding::new(severity, "/boot", what);
    let mut finding = finding
        .with_failure(CrossingFailure::BootLabel)
        .with_prevented(format!(
            "System has {} devices with a filesystem labeled 'boot'",
            all.len()
        ));
    for device in all {
        finding = finding.with_evidence(device.path(), label_words(device));
    }
    if let Some(right) = right {
        let argument = format!("boot=UUID={}", right.get("ID_FS_UUID"));
        finding = finding
            .next(format!("rpm-ostree kargs --append-if-missing={argument}"))
            .with_cure(Cure::AppendArguments(vec![argument]));
    }
    for device in all {
        if right.is_some_and(|right| right.number != device.number) {
            finding = finding.next(format!(
                "Take the label off the other one: {}",
                unlabel_command(device)
            ));
        }
    }
    if right.is_none() {
        finding = finding.next(
            "Name the one that lsblk -o NAME,LABEL,UUID,MOUNTPOINTS shows to be right: rpm-ostree kargs \
             --append=boot=UUID=THE-RIGHT-ONE",
        );
    }
    finding
}

fn unlabel_command(device: &BlockDevice) -> String {
    match device.get("ID_FS_TYPE") {
        "xfs" => format!("xfs_admin -L -- {}", device.path()),
        _ => format!("e2label {} ''", device.path()),
    }
}
