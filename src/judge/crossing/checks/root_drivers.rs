//! Can the image's initramfs reach the root disk, and its system `/boot`?

use std::collections::BTreeSet;

use super::interface_drivers::{lists_missing, lost_device};
use crate::judge::crossing::{CrossingCheck, CrossingFinding, Target};
use crate::node::platform::{DeviceLevel, DiskDevices, Platform};

/// The check.
pub(super) const CHECK: CrossingCheck = CrossingCheck::of_image("root-drivers", judge);

const WORDS: &str = "dracut: Timed out waiting for device, then the emergency shell";

fn judge(target: &Target, node: &Platform) -> Vec<CrossingFinding> {
    let disks = match &node.disks {
        Ok(disks) => disks,
        Err(reason) => {
            return vec![
                CrossingFinding::unknown("root disk",
                    "the devices of the root disk are not known, so its drivers in the image cannot be judged",
                )
                .with_evidence("/proc/self/mountinfo, /sys", reason.to_string())
                .next("Run the same command on the node while it runs."),
            ];
        }
    };
    if let Some(finding) = lists_missing(target) {
        return vec![finding];
    }
    let mut found = Vec::new();
    let initramfs = target.tree.initramfs.as_ref();
    let problem = match initramfs {
        None => Some("the image has no initramfs"),
        Some(initramfs) => initramfs.problem.as_deref(),
    };
    if let Some(problem) = problem {
        found.push(report_initramfs(target, problem));
    }
    let inside = initramfs
        .filter(|_| problem.is_none())
        .map(|one| &one.modules);
    for disk in disks {
        let place = Place {
            target,
            node,
            disk,
            // `/boot` is mounted later, by the full system.
            inside: inside.filter(|_| disk.mount != "/boot"),
        };
        found.extend(place.judge_disk());
        if disk.levels.is_empty() {
            found.push(report_no_device(disk));
        }
    }
    found
}

fn report_initramfs(target: &Target, problem: &str) -> CrossingFinding {
    let image = target.kernel_file("initramfs.img").unwrap_or_default();
    CrossingFinding::unknown(
        "initramfs",
        "the modules in the image's initramfs are not known",
    )
    .with_evidence(&image, problem)
    .next(format!(
        "lsinitrd /{image} | grep -F .ko # in a container of the image"
    ))
}

fn report_no_device(disk: &DiskDevices) -> CrossingFinding {
    let what = "no device on any bus is known below this disk, so its drivers in the image cannot be judged";
    CrossingFinding::unknown(&disk.source, what)
        .with_evidence(
            "/proc/self/mountinfo",
            format!("{} on {}", disk.source, disk.mount),
        )
        .next(format!(
            "lsblk --inverse {}; udevadm info --attribute-walk {}",
            disk.source, disk.source
        ))
}

/// Values that are the same for every device of a disk.
struct Place<'a> {
    target: &'a Target,
    node: &'a Platform,
    disk: &'a DiskDevices,
    /// Modules in the initramfs, if the disk is needed there.
    inside: Option<&'a BTreeSet<String>>,
}

impl Place<'_> {
    fn judge_disk(&self) -> Vec<CrossingFinding> {
        let levels = self
            .disk
            .levels
            .iter()
            .filter_map(|level| self.judge_level(level));
        let mut found: Vec<CrossingFinding> = levels.collect();
        let kind = (self.disk.kind.clone(), "/proc/self/mountinfo".to_owned());
        for (module, place) in self.disk.layers.iter().chain([&kind]) {
            found.extend(self.judge_module(module, place));
        }
        found
    }

    fn judge_level(&self, level: &DeviceLevel) -> Option<CrossingFinding> {
        if let Some(what) = lost_device(level, self.target, self.node) {
            let finding = self.inhibitor_finding(level, what);
            return Some(
                finding.with_evidence("modules.alias of the image", "no module for this device"),
            );
        }
        let inside = self.inside?;
        let mut modules = self.target.modules.modules_of(&level.modalias);
        // Several modules may drive the device; the current one is known to work.
        if modules.contains(level.module.as_str()) {
            modules.retain(|module| *module == level.module);
        }
        let missing = modules.iter().map(|module| self.missing_in(inside, module));
        // One that is present with all its dependencies is enough.
        let missing = missing.min_by_key(Vec::len)?;
        if missing.is_empty() {
            return None;
        }
        let what = format!(
            "the driver of this device is not in the image's initramfs: {}",
            missing.join(", ")
        );
        Some(
            self.inhibitor_finding(level, what)
                .with_evidence("initramfs.img of the image", "module missing"),
        )
    }

    /// Returns the modules that are missing in the initramfs for this one.
    fn missing_in<'a>(&'a self, inside: &BTreeSet<String>, module: &'a str) -> Vec<&'a str> {
        let needed = self.target.modules.with_needs(module).into_iter();
        needed.filter(|module| !inside.contains(*module)).collect()
    }

    /// Judges a module that no device requests: for a file system, an array, or encryption.
    fn judge_module(&self, module: &str, place: &str) -> Option<CrossingFinding> {
        let lists = &self.target.modules;
        let missing = match self.inside {
            Some(inside) if lists.knows(module) => {
                let missing = self.missing_in(inside, module);
                (!missing.is_empty())
                    .then(|| format!("not in the image's initramfs: {}", missing.join(", ")))
            }
            _ => (!lists.knows(module)).then(|| "missing in the image".to_owned()),
        }?;
        // A name that the node's own kernel does not know either is not a module.
        let own = &self.node.modules;
        if !own.is_empty() && !own.knows(module) {
            return None;
        }
        let what = format!(
            "{} needs the module {module}, which is {missing}",
            self.disk.mount
        );
        let finding = CrossingFinding::inhibitor(&self.disk.source, what);
        let look = format!(
            "modinfo -k {} {module} # in a container of the image",
            self.kernel_version()
        );
        Some(
            self.finish_finding(finding.with_evidence(place, module))
                .next(look),
        )
    }

    fn inhibitor_finding(&self, level: &DeviceLevel, what: String) -> CrossingFinding {
        let finding = CrossingFinding::inhibitor(&self.disk.source, what);
        let finding = finding.with_evidence(&level.path, format!("modalias {}", level.modalias));
        let finding = finding.with_evidence(format!("{}/driver", level.path), &level.module);
        let look = format!(
            "modprobe -S {} -R '{}'",
            self.kernel_version(),
            level.modalias
        );
        self.finish_finding(finding).next(format!(
            "{look} # names its modules, in a container of the image"
        ))
    }

    fn kernel_version(&self) -> &str {
        self.target.kernel.as_deref().unwrap_or("VERSION")
    }

    fn finish_finding(&self, finding: CrossingFinding) -> CrossingFinding {
        finding
            .with_evidence("/proc/self/mountinfo", format!("{} on {}", self.disk.source, self.disk.mount))
            .with_prevented(WORDS)
            .next("Take an image whose kernel has this driver, or move the disk to a controller that it knows.")
    }
}
