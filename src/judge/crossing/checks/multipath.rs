//! Does the next boot find a root disk that has several paths?

use super::faults;
use crate::base::invocation::shell_word;
use crate::base::kargs::Kargs;
use crate::judge::crossing::{CrossingCheck, CrossingFinding, CrossingSeverity, Target};
use crate::node::platform::{BlockDevice, BlockStorage, Platform};

/// The check.
pub(super) const CHECK: CrossingCheck = CrossingCheck::of_image("multipath", judge);

/// Settings for files that EL 10 always keeps below `/etc/multipath`.
const FIXED: [&str; 3] = ["bindings_file", "wwids_file", "prkeys_file"];
const ARGUMENTS: &str = "rd.multipath=default root=/dev/disk/by-label/dm-mpath-root rw";

fn judge(target: &Target, node: &Platform) -> Vec<CrossingFinding> {
    let storage = &node.storage;
    let root = storage
        .mounted_at("/sysroot")
        .or_else(|| storage.mounted_at("/"));
    let Some(root) = root else {
        return Vec::new();
    };
    let chain = storage.chain_of(&root.number);
    let devices: Vec<&BlockDevice> = chain
        .iter()
        .filter_map(|one| storage.find_device(one))
        .collect();
    let map = devices
        .iter()
        .find(|device| device.get("DM_UUID").contains("mpath-"));
    let mut findings = Vec::new();
    match map {
        Some(map) => {
            findings.extend(judge_arguments(node, map));
            if target
                .os_release
                .el_major()
                .is_some_and(|major| major >= 10)
            {
                findings.extend(judge_settings(node));
            }
        }
        None => findings.extend(judge_paths(storage, &devices)),
    }
    findings
}

fn judge_arguments(node: &Platform, map: &BlockDevice) -> Option<CrossingFinding> {
    let (place, arguments) = node.boot.inherited_arguments(&node.command_line).ok()?;
    let value = |key: &str| {
        let mut tokens = arguments.tokens().iter().rev();
        tokens.find_map(|token| match token.split_once('=') {
            Some((name, value)) if name == key => Some(value),
            None if token == key => Some(""),
            _ => None,
        })
    };
    let root = value("root").unwrap_or_default();
    let is_on = value("rd.multipath").is_some_and(|value| value != "0");
    let is_one_path = ["/dev/sd", "/dev/vd", "/dev/nvme"]
        .iter()
        .any(|name| root.starts_with(name));
    let is_by_map = root.contains("mpath") || root.starts_with("/dev/mapper/");
    let (severity, what) = if !is_on {
        (
            CrossingSeverity::Inhibitor,
            "the root disk has several paths, and the next boot does not look for its map",
        )
    } else if is_one_path {
        (
            CrossingSeverity::Inhibitor,
            "the root disk has several paths, and root= names one of them",
        )
    } else if !is_by_map {
        (
            CrossingSeverity::Warning,
            "the root disk has several paths, and root= may find one of them before the map",
        )
    } else {
        return None;
    };
    let said = format!("{} is {}", map.path(), map.get("DM_UUID"));

    Some(
        CrossingFinding::new(severity, "root disk", what)
            .with_evidence(place, arguments.to_string())
            .with_evidence("/run/udev/data", said)
            .with_prevented("/dev/sdd4: Can't open blockdev")
            .next(command_for_map(&arguments, root)),
    )
}

/// Returns the command with whose arguments the boot waits for the map.
fn command_for_map(arguments: &Kargs, root: &str) -> String {
    let old = [format!("root={root}"), "rd.multipath=0".to_owned()];
    let old = old.iter().filter(|one| arguments.tokens().contains(one));
    let old: String = old
        .map(|one| " ".to_owned() + &shell_word(&format!("--delete-if-present={one}")))
        .collect();
    let new: String = ARGUMENTS
        .split(' ')
        .map(|one| format!(" --append-if-missing={one}"))
        .collect();
    format!("rpm-ostree kargs{old}{new}")
}

/// Judges settings that EL 10 refuses or ignores.
fn judge_settings(node: &Platform) -> Vec<CrossingFinding> {
    let settings = match &node.multipath_settings {
        Ok(settings) => settings,
        Err(why) => {
            let unseen = faults::note_unseen("settings of multipath", std::slice::from_ref(why));
            return unseen.into_iter().collect();
        }
    };
    let mut findings = Vec::new();
    for (place, text) in settings {
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            let (key, value) = line.split_once([' ', '\t']).unwrap_or((line, ""));
            let value = value.trim().trim_matches('"');
            let at = format!("{place}:{}", index + 1);
            let finding = match key {
                "getuid_callout" => CrossingFinding::inhibitor(
                    key,
                    "the multipath of EL 10 has no getuid_callout, and does not read this file",
                )
                .next(format!("sed -i {}d {place}", index + 1)),
                "config_dir" if value != "/etc/multipath/conf.d" => CrossingFinding::warning(
                    key,
                    "EL 10 reads /etc/multipath/conf.d, whatever this line says",
                )
                .next(format!("cp -a {value}/. /etc/multipath/conf.d/")),
                key if FIXED.contains(&key) && !value.starts_with("/etc/multipath/") => {
                    CrossingFinding::warning(
                        key,
                        "EL 10 keeps this file below /etc/multipath, whatever this line says",
                    )
                    .next(format!("cp -a {value} /etc/multipath/"))
                }
                _ => continue,
            };
            findings.push(finding.with_evidence(at, line));
        }
    }
    findings
}

/// Reports a second path without a map: another device with the root's file system and the same serial number.
fn judge_paths(storage: &BlockStorage, chain: &[&BlockDevice]) -> Option<CrossingFinding> {
    let root = chain
        .iter()
        .find(|device| !device.get("ID_FS_UUID").is_empty())?;
    let serial = root.get("ID_SERIAL");
    if serial.is_empty() || root.get("ID_FS_TYPE").ends_with("_member") {
        return None;
    }
    let is_same = |device: &&BlockDevice| {
        device.get("ID_FS_UUID") == root.get("ID_FS_UUID") && device.get("ID_SERIAL") == serial
    };
    let same = storage.devices.iter().flatten().filter(is_same);
    let mut paths: Vec<String> = same.map(BlockDevice::path).collect();
    paths.sort();
    if paths.len() < 2 {
        return None;
    }
    let what = "the root disk has several paths, and the node uses one of them without a map";
    let new: String = ARGUMENTS
        .split(' ')
        .map(|one| format!(" --append-if-missing={one}"))
        .collect();
    Some(
        CrossingFinding::warning("root disk", what)
            .with_evidence(
                "/run/udev/data",
                format!("{} have serial {serial}", paths.join(", ")),
            )
            .with_prevented("/dev/sdd4: Can't open blockdev")
            .next(format!("rpm-ostree kargs{new}")),
    )
}
