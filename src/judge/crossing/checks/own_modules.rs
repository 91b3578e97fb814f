//! Does the node use kernel modules that the image does not have, or an initramfs that it builds itself?

use super::faults;
use crate::judge::crossing::{CrossingCheck, CrossingFinding, Target};
use crate::node::engine::Engine;
use crate::node::platform::Platform;

/// The check.
pub(super) const CHECK: CrossingCheck = CrossingCheck::of_image("own-modules", judge);

fn judge(target: &Target, node: &Platform) -> Vec<CrossingFinding> {
    let mut found = Vec::new();
    if !target.modules.is_empty() {
        found.extend(judge_wanted(target, node));
    }
    if let Some((first, rest)) = node.own_modules.added.split_first() {
        let more = match rest.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        found.push(
            CrossingFinding::warning("added modules",
                "kernel modules were added to the current kernel, and the image's kernel does not have them",
            )
            .with_evidence(first, format!("a module file{more}"))
            .with_prevented("modprobe: FATAL: Module NAME not found in directory /lib/modules/VERSION")
            .next("Build the modules for the image's kernel, or into the image (a Containerfile on top of it)."),
        );
    }
    found.extend(faults::note_unseen("own modules", &node.own_modules.unseen));
    let origin = node
        .origin
        .as_ref()
        .ok()
        .filter(|origin| origin.own_initramfs && node.engine != Ok(Engine::Bootc));
    if let Some(origin) = origin {
        found.push(
            CrossingFinding::warning(
                "initramfs",
                "the node builds its own initramfs, so that of the image is not the one that boots",
            )
            .with_evidence(&origin.place, "[rpmostree] regenerate-initramfs=true")
            .with_prevented(
                "dracut: Timed out waiting for device, if the one built here lacks a driver",
            )
            .next("rpm-ostree initramfs --disable"),
        );
    }
    found
}

/// Judges the modules that are loaded at every boot.
fn judge_wanted(target: &Target, node: &Platform) -> Vec<CrossingFinding> {
    let own = &node.modules;
    let wanted = node.own_modules.wanted.iter();
    let lost = wanted.filter(|(module, _)| {
        // A module that the current kernel does not have either is not lost.
        !target.modules.knows(module) && (own.is_empty() || own.knows(module))
    });
    let each = lost.map(|(module, file)| {
        CrossingFinding::warning(
            module,
            "this module is loaded at every boot, and the image does not have it",
        )
        .with_evidence(file, module)
        .with_prevented(format!(
            "systemd-modules-load: Failed to find module '{module}'"
        ))
        .next(format!(
            "Build it for the kernel {} or take the line out of {file}.",
            target.kernel.as_deref().unwrap_or("of the image")
        ))
    });
    each.collect()
}
