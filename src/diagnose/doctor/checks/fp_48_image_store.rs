//! FP-48: the container image store after an unclean shutdown.

use super::fp_10_power_cut::with_emptied_store;
use crate::base::text::count_noun;
use crate::diagnose::doctor::{
    CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, Fact, FixChange,
    messages,
};
use crate::node::command::systemctl::ActiveState;
use crate::node::crio_marks::{CLEAN, CrioMarks, SUPPORTED, WIPE};
use crate::node::images_on_disk::{ContainersStorage, STORE};

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-48",
    title: "the next boot removes all container images",
    looks_at: "CRI-O's marks of a clean shutdown, layers and data of the images, crio-wipe.service",
    explain: "CRI-O writes /var/lib/crio/clean.shutdown when it stops, and removes it when it starts. At a boot without this mark, \
crio-wipe.service removes the whole store below /var/lib/containers/storage, with the images of podman: after a power cut, and after \
a hang with a reset. Images that are in no registry are lost, and all others are pulled again. Without a registry that is \
the end of the static pods.\n\n\
Before such a boot, on a disk in another machine, in a live system or in the initramfs: if the store is sound, an empty \
clean.shutdown keeps it. Its contents are not proven then: files that were being written at the power cut may be damaged, and CRI-O \
does not repair them either, as it does so only without the mark.\n\n\
On a running node, a clean reboot keeps the images: systemctl reboot, not a reset.\n\n\
Layers are checked by their parents, by the files link and lower, and by marks of incomplete ones; data of images by its size. \
Contents of layers are not hashed.",
    judge: judge_image_store,
};

fn judge_image_store(evidence: &DoctorEvidence) -> CheckVerdict {
    let storage = match evidence.storage.seen() {
        Ok(storage) if storage.exists => storage,
        Ok(_) => return CheckVerdict::healthy(),
        Err(why) => return CheckVerdict::not_seen(format!("the store of images: {why}")),
    };
    let verdict = CheckVerdict::healthy().and_findings(find_damage(evidence, storage));
    let verdict = verdict.and_findings(find_failed_wipe(evidence));
    match evidence.crio_marks.seen() {
        Ok(marks) => verdict.and_findings(find_wipe(evidence, storage, *marks)),
        Err(why) => verdict.and_unseen(format!("the marks of CRI-O: {why}")),
    }
}

fn find_damage(evidence: &DoctorEvidence, storage: &ContainersStorage) -> Option<DoctorFinding> {
    if storage.damaged.is_empty() {
        return None;
    }
    let facts = storage.damaged.iter();
    let means = "Containers of these images do not start. After the store is emptied, every image is pulled again, which needs a \
                 registry.";
    let finding = DoctorFinding::warning("layers or data of container images are damaged", means);
    let finding = finding.seen_all(facts.map(|(path, why)| Fact::new(path, why)));
    Some(with_emptied_store(evidence, finding))
}

fn find_wipe(
    evidence: &DoctorEvidence,
    storage: &ContainersStorage,
    marks: CrioMarks,
) -> Option<DoctorFinding> {
    if !marks.is_supported || marks.is_clean || !marks.wipes_at_boot || storage.images == 0 {
        return None;
    }
    if evidence.live {
        price_of_a_power_cut(evidence, storage)
    } else {
        Some(wipe_at_next_boot(evidence, storage))
    }
}

fn wipe_at_next_boot(evidence: &DoctorEvidence, storage: &ContainersStorage) -> DoctorFinding {
    let is_sound =
        storage.damaged.is_empty() && storage.broken.is_empty() && storage.lacking.is_empty();
    let means = if is_sound {
        "All images are pulled again, which needs a registry. The lists and layers of the store are sound: an empty mark \
                 keeps the images, but files that were being written may be damaged, and CRI-O does not repair them then."
    } else {
        "All images are pulled again, which needs a registry. The store is damaged, so that is right."
    };
    let message = {
        let words = messages::fill_message(messages::WIPED, &format!("/{CLEAN}"));
        messages::fill_message(&words, &format!("/{STORE}"))
    };
    let severity = if storage.local_only.is_empty() {
        CheckSeverity::Warning
    } else {
        CheckSeverity::Critical
    };
    let finding = DoctorFinding::new(
        severity,
        "the next boot removes all container images",
        means,
    );
    let finding = with_size(finding, storage)
        .with_evidence(format!("/{CLEAN}"), "missing")
        .with_evidence(format!("/{SUPPORTED}"), "there")
        .with_message(Some(message));
    let clean = evidence.shell_path(&format!("/{CLEAN}"));
    if is_sound {
        finding
            .next(format!("install -m 0644 /dev/null {clean}"))
            .fixed_by([FixChange::create_file(format!("/{CLEAN}"), 0o644, "")])
    } else {
        finding.next(format!(
            "ls -l {}",
            evidence.shell_path(&format!("/{STORE}"))
        ))
    }
}

/// Reports on a running node that a power failure would lose the container images, if they may not be pulled again.
fn price_of_a_power_cut(
    evidence: &DoctorEvidence,
    storage: &ContainersStorage,
) -> Option<DoctorFinding> {
    let unreachable = evidence.clock.server_unseen.as_ref()?;
    let finding = DoctorFinding::notice(
        "a power cut would cost all container images",
        "The cluster does not answer, so images may not be pulled again. A clean reboot keeps them; a reset does not.",
    );
    Some(
        with_size(finding, storage)
            .with_evidence("the server of the last fetch", unreachable)
            .next("systemctl reboot"),
    )
}

fn with_size(finding: DoctorFinding, storage: &ContainersStorage) -> DoctorFinding {
    let gib = |bytes: u64| {
        let tenths = bytes / (1 << 30) * 10 + bytes % (1 << 30) * 10 / (1 << 30);
        format!("{}.{} GiB", tenths / 10, tenths % 10)
    };
    let said = format!(
        "{}, {}",
        count_noun(storage.images, "image"),
        gib(storage.bytes)
    );
    let finding = finding.with_evidence(format!("/{STORE}"), said);
    let local = storage.local_only.iter();
    finding.seen_all(local.map(|name| Fact::new(name, "is in no registry")))
}

fn find_failed_wipe(evidence: &DoctorEvidence) -> Option<DoctorFinding> {
    let units = evidence.units.get()?;
    let state = |name: &str| units.iter().find(|unit| unit.name == name);
    let failed = state(WIPE).filter(|unit| unit.active == ActiveState::Failed)?;
    let runs = state("crio.service").is_some_and(|unit| unit.active == ActiveState::Active);
    let severity = if runs {
        CheckSeverity::Warning
    } else {
        CheckSeverity::Critical
    };
    let means = "The store could not be emptied after an unclean stop: a container of podman or a mount holds it.";
    let finding = DoctorFinding::new(severity, "crio-wipe.service failed", means)
        .with_evidence(WIPE, format!("{} ({})", failed.active, failed.sub))
        .next(format!("journalctl -b -u {WIPE} -n 20 --no-pager"))
        .next("podman ps -a")
        .next("findmnt -R /var/lib/containers");
    Some(with_emptied_store(evidence, finding))
}
