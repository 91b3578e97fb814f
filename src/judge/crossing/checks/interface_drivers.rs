//! Does the image have drivers for the network interfaces?

use crate::formats::systemd::glob_matches;
use crate::judge::crossing::{CrossingCheck, CrossingFinding, CrossingSeverity, Target};
use crate::node::platform::{DeviceLevel, Interface, NameUse, Platform};

/// The check.
pub(super) const CHECK: CrossingCheck = CrossingCheck::of_image("interface-drivers", judge);

/// Buses whose drivers list their devices by modalias pattern.
const BUSES: [&str; 9] = [
    "pci", "usb", "virtio", "scsi", "vmbus", "xen", "ccw", "vio", "mmc",
];

fn judge(target: &Target, node: &Platform) -> Vec<CrossingFinding> {
    let interfaces = match &node.interfaces {
        Ok(interfaces) => interfaces,
        Err(reason) => {
            let what = "the network interfaces are not known, so their drivers in the image cannot be judged";
            return vec![
                CrossingFinding::unknown("network interfaces", what)
                    .with_evidence("/sys/class/net", reason.to_string())
                    .next("Run the same command on the node while it runs."),
            ];
        }
    };
    if target.modules.is_empty() {
        // Reported with the root disk.
        return Vec::new();
    }
    let (arguments, uses) = node.used_names();
    let early = arguments
        .tokens()
        .iter()
        .any(|token| matches!(token.as_str(), "rd.neednet" | "rd.neednet=1"));
    let each = interfaces.iter();
    each.filter_map(|one| judge_one(target, node, one, &uses, early))
        .collect()
}

fn judge_one(
    target: &Target,
    node: &Platform,
    interface: &Interface,
    uses: &[NameUse],
    early: bool,
) -> Option<CrossingFinding> {
    let name = interface.name.as_str();
    let by_mac = |one: &NameUse| {
        let own = interface.mac.as_ref().map(|mac| &mac.address);
        one.mac.is_some() && one.mac.as_ref() == own
    };
    let carrier = uses
        .iter()
        .find(|one| glob_matches(&one.name, name) || by_mac(one));
    let carries = carrier.is_some() || interface.is_used;
    let lost = interface
        .levels
        .iter()
        .find_map(|level| Some((level, lost_device(level, target, node)?)));
    let (level, what) = match lost {
        Some(found) => found,
        None => missing_early(target, interface).filter(|_| early && carries)?,
    };
    let severity = if carries {
        CrossingSeverity::Inhibitor
    } else {
        CrossingSeverity::Warning
    };
    let mut finding = CrossingFinding::new(severity, name, what)
        .with_evidence(&level.path, format!("modalias {}", level.modalias))
        .with_evidence(format!("{}/driver", level.path), &level.module);
    if let Some(one) = carrier {
        finding = finding.with_evidence(&one.place, &one.said);
    } else if interface.is_used {
        finding = finding.with_evidence(
            format!("/sys/class/net/{name}/operstate"),
            "up, or a port of another interface",
        );
    }
    Some(
        finding
            .with_prevented("the interface is missing: Cannot find device")
            .next("Take an image whose kernel has this driver, or put in an interface that it knows.")
            .next(format!(
                "Put the configuration on another interface first: grep -rl {name} /etc/NetworkManager/system-connections"
            )),
    )
}

/// Returns the first device whose driver is not in the initramfs.
fn missing_early<'a>(
    target: &Target,
    interface: &'a Interface,
) -> Option<(&'a DeviceLevel, String)> {
    let initramfs = target.tree.initramfs.as_ref();
    let inside = &initramfs.filter(|one| one.problem.is_none())?.modules;
    interface.levels.iter().find_map(|level| {
        let modules = target.modules.modules_of(&level.modalias);
        let missing = modules.iter().map(|module| {
            let needed = target.modules.with_needs(module).into_iter();
            needed.filter(|module| !inside.contains(*module)).collect::<Vec<_>>()
        });
        let missing = missing.min_by_key(Vec::len).filter(|missing| !missing.is_empty())?;
        let list = missing.join(", ");
        let what = format!("the initramfs needs the network (rd.neednet), and its driver is not in the image's initramfs: {list}");
        Some((level, what))
    })
}

/// Returns a sentence about a device that no module of the image drives; `None` if one does, or if that cannot be judged.
pub(super) fn lost_device(level: &DeviceLevel, target: &Target, node: &Platform) -> Option<String> {
    let (bus, rest) = level.modalias.split_once(':')?;
    // The kernel itself drives bridges between buses, without a pattern.
    let is_bridge = bus == "pci" && rest.contains("bc06");
    let judged = BUSES.contains(&bus) && !is_bridge;
    let lists = &target.modules;
    if !judged || !lists.modules_of(&level.modalias).is_empty() {
        return None;
    }
    // A device that the running kernel's lists do not know either is not found by patterns.
    let own = &node.modules;
    if !own.is_empty() && own.modules_of(&level.modalias).is_empty() {
        return None;
    }
    let module = &level.module;
    Some(if lists.knows(module) {
        format!("the image has the driver {module}, but it no longer takes this device")
    } else {
        format!("the image has no driver for this device: {module} is gone")
    })
}

/// Returns the finding for an image without module lists.
pub(super) fn lists_missing(target: &Target) -> Option<CrossingFinding> {
    let place = target.kernel_file("modules.alias");
    let place = place.unwrap_or_else(|| "usr/lib/modules".to_owned());
    target.modules.is_empty().then(|| {
        CrossingFinding::unknown("drivers",
            "the image lists no kernel modules, so the drivers of disks and interfaces cannot be judged",
        )
        .with_evidence(&place, "missing or empty, or there is more than one kernel")
        .next(format!("ls {} # in a container of the image", place.rsplit_once('/').map_or("", |(above, _)| above)))
    })
}
