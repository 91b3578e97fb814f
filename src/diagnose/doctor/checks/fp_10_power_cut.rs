//! FP-10: work that a power failure left unfinished.

use crate::base::paths;
use crate::change::transaction::Pending;
use crate::change::trial::TrialOutcome;
use crate::diagnose::doctor::{
    CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, Fact, messages,
};
use crate::node::{RecordReader, Recorded, Records, images_on_disk};

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-10",
    title: "something was interrupted",
    looks_at: "interrupted runs, trials that were not reverted, state of other versions, empty files, files that cannot be read, the record, an unfinished first boot, the store of images",
    explain: "When the power fails, files that were being written are empty or incomplete, and changes that belong \
together are half done.\n\n\
A run of mco-rescue: its journal lists what was done. mco-rescue recover finishes or undoes it, and the unit that \
mco-rescue install adds does so at boot. If reverting a trial fails, it is retried for ten minutes, then the trial ends with the change in place: \
mco-rescue confirm accepts the change, and mco-rescue rollback --files-only takes its files back. State that a newer version of mco-rescue wrote: only that version knows what it \
means, and this one refuses to change the node until it is settled. Files of the config: mco-rescue apply rewrites the incomplete ones. The \
daemon's record: mco-rescue apply CONFIG rewrites it. A file that exists and cannot be read is reported with the cause: \
\"is a directory\" is a mistake, an input/output error a failing disk or a damaged file system.\n\n\
The first boot is over when its input file was renamed to .bak. Until then the first-boot service runs at every boot, and \
the kubelet waits: mco-rescue firstboot --complete does its work from local files.\n\n\
The store of container images: the message \"layer not known\" means missing layers. crio wipe empties the store, and every image has to \
be pulled again. Its layers are judged by FP-48, and objects of the booted commit by FP-50.",
    judge: judge_power_cut,
};

fn judge_power_cut(evidence: &DoctorEvidence) -> CheckVerdict {
    let mut verdict = CheckVerdict::healthy()
        .and_findings(find_interrupted_run(evidence))
        .and_findings(find_failing_trial(evidence))
        .and_findings(find_kept_trial(evidence))
        .and_findings(find_other_versions(evidence))
        .and_findings(find_stray_files(evidence))
        .and_findings(find_damaged_record(evidence))
        .and_findings(find_empty_files(evidence))
        .and_findings(first_boot(evidence))
        .and_findings(find_storage_damage(evidence));
    if let Err(why) = evidence.pending.seen() {
        verdict = verdict.and_unseen(format!("interrupted runs: {why}"));
    } else if let Err(why) = evidence.other_versions.seen() {
        verdict = verdict.and_unseen(format!("files of other versions: {why}"));
    }
    if let Err(why) = evidence.trial.seen() {
        verdict = verdict.and_unseen(format!("the trial that runs: {why}"));
    }
    if let Err(why) = evidence.last_trial.seen() {
        verdict = verdict.and_unseen(format!("the end of the last trial: {why}"));
    }
    if let Err(why) = evidence.last_run.seen() {
        verdict = verdict.and_unseen(format!("the last run: {why}"));
    }
    if let Err(why) = evidence.first_boot.seen() {
        verdict = verdict.and_unseen(format!("the run in the initramfs of this boot: {why}"));
    }
    if let Err(why) = evidence.first_boot_files.encapsulated.seen() {
        verdict = verdict.and_unseen(format!("the input of the first boot: {why}"));
    }
    if let Err(why) = evidence.storage.seen() {
        verdict = verdict.and_unseen(format!("the store of images: {why}"));
    }
    verdict
}

fn find_interrupted_run(evidence: &DoctorEvidence) -> Option<DoctorFinding> {
    let (severity, what, config) = match evidence.pending.get()? {
        Pending::Nothing => return None,
        Pending::Unfinished(config, _) => (
            CheckSeverity::Critical,
            "a run of mco-rescue is unfinished",
            config,
        ),
        Pending::Staged(config) => (
            CheckSeverity::Warning,
            "a run was interrupted before it changed anything",
            config,
        ),
        Pending::Committed(config) => (
            CheckSeverity::Warning,
            "a finished run was not cleaned up",
            config,
        ),
    };
    let means = match severity {
        CheckSeverity::Critical => "Some files are from the old config and some from the new one.",
        _ => "The files of the node are complete. Only the run's own files are left.",
    };
    Some(
        DoctorFinding::new(severity, what, means)
            .with_evidence(
                format!("/{}", paths::STATE),
                format!("applying {}", config.name),
            )
            .next(format!("mco-rescue recover{}", evidence.at_root())),
    )
}

/// Reports a trial whose rollback fails.
fn find_failing_trial(evidence: &DoctorEvidence) -> Option<DoctorFinding> {
    let trial = evidence.trial.get()?.as_ref()?;
    let failing = trial.failing.as_ref()?;
    let means = "The guard tries again. Once it has failed for ten minutes, the trial ends, and the change stays.";
    Some(
        DoctorFinding::critical("reverting a trial fails", means)
            .with_evidence(&trial.what, failing.why.clone())
            .next(evidence.own_command("status")),
    )
}

/// Reports a finished trial that left its change, or part of it, on the node. A later run supersedes it.
fn find_kept_trial(evidence: &DoctorEvidence) -> Option<DoctorFinding> {
    let last = evidence.last_trial.get()?.as_ref()?;
    let later = evidence.last_run();
    if later.is_some_and(|run| last.is_before(run.finished)) {
        return None;
    }
    let finding = |what: &str, means: &str| {
        DoctorFinding::critical(what, means).with_evidence(&last.what, last.why.clone())
    };
    match last.outcome {
        TrialOutcome::Confirmed | TrialOutcome::Reverted => None,
        TrialOutcome::PartlyReverted => Some(
            finding(
                "a trial was reverted, but not all of it",
                "Some files still have the change, and the rest of the node is as it was before.",
            )
            .next(evidence.own_command("verify")),
        ),
        TrialOutcome::NotReverted => Some(
            finding(
                "a trial could not be reverted",
                "The change stays, although nothing confirmed it.",
            )
            .next(evidence.own_command("confirm"))
            .next(evidence.own_command("rollback --files-only")),
        ),
    }
}

/// Reports files of other program versions, which make commands that change the node refuse to run.
fn find_other_versions(evidence: &DoctorEvidence) -> Option<DoctorFinding> {
    let others = evidence.other_versions.get()?;
    if others.is_empty() {
        return None;
    }
    let what = if others.iter().any(|(_, found, known)| found > known) {
        "a newer version of mco-rescue wrote state of this node"
    } else {
        "another version of mco-rescue wrote state of this node"
    };
    let means = "Only that version knows what it means. This one refuses to change the node beside it; its status names the \
                 ways out, with that version and without it.";
    let facts = others.iter().map(|(path, found, known)| {
        let said = format!("has version {found}, this program knows {known}");
        Fact::new(path.to_string(), said)
    });
    Some(
        DoctorFinding::warning(what, means)
            .seen_all(facts)
            .next(evidence.own_command("status")),
    )
}

fn find_stray_files(evidence: &DoctorEvidence) -> Option<DoctorFinding> {
    if evidence.strays.is_empty() {
        return None;
    }
    let means = "They contain earlier files, secrets among them, and are no longer needed.";
    let what = "staging directories of finished runs are left";
    let places = evidence.strays.iter();
    Some(
        DoctorFinding::warning(what, means)
            .seen_all(places.map(|path| Fact::new(path.to_string(), "left by mco-rescue")))
            .next(format!("mco-rescue recover{}", evidence.at_root())),
    )
}

fn find_damaged_record(evidence: &DoctorEvidence) -> Option<DoctorFinding> {
    let records = evidence.records.get()?;
    let (severity, what, means) = match &records.reader {
        RecordReader::Same => return None,
        RecordReader::Says(_) | RecordReader::Fails(_) => (
            CheckSeverity::Critical,
            "the daemon's record cannot be read",
            "The daemon is Degraded until it is rewritten.",
        ),
        RecordReader::Reads(_) => (
            CheckSeverity::Warning,
            "the daemon's record is refused here",
            "The daemon reads it, and its next update starts from it. Without it, stale files are not known.",
        ),
    };
    let says = match &records.reader {
        RecordReader::Says(said) => Some(said.clone()),
        RecordReader::Same | RecordReader::Fails(_) | RecordReader::Reads(_) => None,
    };
    let problem = match (&records.current_config, &records.reader) {
        (Recorded::Broken(why), _) | (_, RecordReader::Fails(why)) => why.to_string(),
        _ => "not JSON, as the daemon writes it".to_owned(),
    };
    Some(
        DoctorFinding::new(severity, what, means)
            .with_evidence(format!("/{}", paths::CURRENT_CONFIG), problem)
            .with_message(says)
            .next(evidence.own_command("cache list"))
            .next(format!(
                "mco-rescue apply cached:NAME{}",
                evidence.at_root()
            )),
    )
}

fn find_empty_files(evidence: &DoctorEvidence) -> Option<DoctorFinding> {
    let emptied = &evidence.compared.get()?.emptied;
    if emptied.is_empty() {
        return None;
    }
    let means = "A file that was not on the disk yet when the power failed is empty now. Programs that read it fail.";
    let what = match emptied.len() {
        1 => "1 file of the config is empty".to_owned(),
        many => format!("{many} files of the config are empty"),
    };
    Some(
        DoctorFinding::critical(what, means)
            .seen_all(
                emptied
                    .iter()
                    .map(|path| Fact::new(path.to_string(), "0 bytes")),
            )
            .next(format!("mco-rescue apply{}", evidence.at_root())),
    )
}

/// Reports an unfinished first boot; a finished one whose trigger file reappeared is reported as FP-24.
fn first_boot(evidence: &DoctorEvidence) -> Option<DoctorFinding> {
    let over = |records: &Records| records.first_boot_over;
    if !evidence.first_boot_files.is_waiting() || evidence.records.get().is_some_and(over) {
        return None;
    }
    let means = "The first-boot service has not done its work: image and kernel arguments may be those of the boot \
                 image, and the kubelet waits for it.";
    let finding = DoctorFinding::critical("the first boot is not finished", means)
        .with_evidence(format!("/{}", paths::ENCAPSULATED), "still there");
    let units = evidence.units.get().into_iter().flatten();
    let units = units.filter(|unit| unit.name.contains("firstboot"));
    let facts = units.map(|unit| Fact::new(&unit.name, format!("{} ({})", unit.active, unit.sub)));
    Some(
        finding
            .seen_all(facts)
            .next("journalctl -b -u machine-config-daemon-firstboot -n 20")
            .next(evidence.own_command("firstboot --complete")),
    )
}

fn find_storage_damage(evidence: &DoctorEvidence) -> Option<DoctorFinding> {
    let storage = evidence.storage.get()?;
    if storage.broken.is_empty() && storage.lacking.is_empty() {
        return None;
    }
    let broken = storage
        .broken
        .iter()
        .map(|(path, why)| Fact::new(path, why));
    let lacking = storage.lacking.iter().map(|(image, layer)| {
        let short = layer.get(..12).unwrap_or(layer);
        Fact::new(image, format!("its layer {short} is missing"))
    });
    let means = "Pods of these images do not start. After the store is emptied, every image is pulled again, which needs a \
                 registry.";
    let finding = DoctorFinding::warning("the store of container images is damaged", means)
        .seen_all(broken.chain(lacking))
        .with_message(Some(messages::LAYER_NOT_KNOWN.to_owned()));
    Some(with_emptied_store(evidence, finding))
}

/// Adds the commands that empty the image store.
pub(super) fn with_emptied_store(
    evidence: &DoctorEvidence,
    finding: DoctorFinding,
) -> DoctorFinding {
    let store = evidence.shell_path(&format!("/{}", images_on_disk::STORE));
    if evidence.live {
        finding
            .next_all(evidence.stop_workloads())
            .next("crio wipe --force")
            .next_all(evidence.start_workloads())
    } else {
        // The running system is another one; CRI-O recreates the directory.
        finding.next(format!("mv {store} {store}.damaged"))
    }
}
