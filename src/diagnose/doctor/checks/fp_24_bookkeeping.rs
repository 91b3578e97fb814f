//! FP-24: the daemon's own files (backup copies, stamps, triggers) are missing or contradict the disk.

use crate::base::paths;
use crate::diagnose::doctor::{
    CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, Fact, FixChange,
};
use crate::host::root::RootPath;
use crate::node::stamps::Stamps;

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-24",
    title: "the daemon's own files are not in order",
    looks_at: "the encapsulated config, and the daemon's copies and stamps (orig, noorig)",
    explain: "Before the daemon replaces a file of the OS it keeps a backup copy (orig/PATH.mcdorig). If there was no file, it keeps a \
stamp (noorig/PATH.mcdnoorig). They decide about a file that a later config drops: the copy is restored, or \
the file is deleted. A stamp for a file that the OS ships gets it deleted. If a tool writes files without either, \
the daemon leaves them behind.\n\n\
The encapsulated config (/etc/ignition-machine-config-encapsulated.json) is renamed to .bak in the end. While it exists, the \
kubelet does not start and the first-boot service runs again.\n\n\
mco-rescue apply keeps the same copies and stamps as the daemon.",
    judge: judge_bookkeeping,
};

fn judge_bookkeeping(evidence: &DoctorEvidence) -> CheckVerdict {
    let verdict = CheckVerdict::healthy().and_findings(first_boot_again(evidence));
    match evidence.upkeep.stamps.seen() {
        Ok(stamps) => verdict.and_findings(in_disorder(evidence, stamps)),
        Err(why) => verdict.and_unseen(format!("the daemon's copies and stamps: {why}")),
    }
}

/// Reports a first boot that starts again; an unfinished one is reported as FP-10.
fn first_boot_again(evidence: &DoctorEvidence) -> Option<DoctorFinding> {
    let records = evidence.records.get()?;
    let means = "The kubelet does not start while this file exists, and the first-boot service runs again at every \
boot. The node's first boot is over, so the file was restored later.";
    (records.encapsulated && records.first_boot_over).then(|| {
        let (file, kept) = (paths::ENCAPSULATED, paths::ENCAPSULATED_KEPT);
        DoctorFinding::critical("the trigger of the first boot is back", means)
            .with_evidence(format!("/{file}"), "present")
            .with_evidence(
                format!("/{}", paths::NODE_ANNOTATIONS_KEPT),
                "the first boot is over",
            )
            .next(format!("mco-rescue verify{}", evidence.at_root()))
            .next(format!(
                "mv {} {}",
                evidence.shell_path(file),
                evidence.shell_path(kept)
            ))
            .fixed_by([FixChange::move_aside(format!("/{file}"))])
    })
}

fn in_disorder(evidence: &DoctorEvidence, stamps: &Stamps) -> Option<DoctorFinding> {
    let both = stamps.copies.intersection(&stamps.stamps);
    let of = |path: &RootPath, said: &str| Fact::new(path.to_string(), said);
    let both = both.map(|path| of(path, "has both a copy and a stamp for a new file"));
    let shipped = stamps.shipped.difference(&stamps.copies);
    let shipped =
        shipped.map(|path| of(path, "is stamped as new, but the OS ships it in /usr/etc"));
    let foreign = stamps
        .foreign
        .iter()
        .map(|path| of(path, "is neither a copy nor a stamp"));
    let foreign: Vec<Fact> = foreign.collect();
    let facts: Vec<Fact> = both.chain(shipped).chain(foreign.clone()).collect();
    // It is not known which of copy and stamp is correct.
    let is_foreign = facts.len() == foreign.len();
    let strays = foreign.iter().filter(|_| is_foreign);
    let moved = strays.map(|fact| FixChange::move_aside(&fact.place));
    let means = "When a later config drops such a file, the daemon deletes it by mistake, or leaves it behind.";
    (!facts.is_empty()).then(|| {
        DoctorFinding::notice("stamps of the daemon contradict the disk", means)
            .seen_all(facts)
            .next(format!(
                "ls -R {} {}",
                evidence.shell_path(paths::ORIG),
                evidence.shell_path(paths::NOORIG)
            ))
            .fixed_by(moved)
    })
}
