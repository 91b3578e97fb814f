//! FP-24: files that the daemon expects, or does not, from whoever writes to a node.

use crate::doctor::{Check, Evidence, Fact, Finding, Severity, Verdict};
use crate::node::stamps::Stamps;
use crate::paths;
use crate::root::RootPath;

/// The check.
pub const CHECK: Check = Check {
    id: "FP-24",
    title: "the daemon's own files are not in order",
    looks_at: "the encapsulated config, and the daemon's copies and stamps (orig, noorig)",
    explain: "Before it writes over a file of the OS the daemon keeps a copy (orig/PATH.mcdorig); where nothing was, a \
stamp (noorig/PATH.mcdnoorig). They decide what becomes of a file that a later config drops: the copy comes back, or \
the file is deleted. A stamp for a file that the OS ships makes it go; a tool that writes files without either makes \
the daemon keep garbage.\n\n\
The encapsulated config (/etc/ignition-machine-config-encapsulated.json) ends as .bak. As long as it is there, the \
kubelet does not start and the first-boot service runs again.\n\n\
mco-rescue apply keeps copies and stamps as the daemon does.",
    judge,
};

fn judge(evidence: &Evidence) -> Verdict {
    let verdict = Verdict::healthy().and(first_boot_again(evidence));
    match evidence.upkeep.stamps.seen() {
        Ok(stamps) => verdict.and(in_disorder(evidence, stamps)),
        Err(why) => verdict.and_unseen(format!("the daemon's copies and stamps: {why}")),
    }
}

/// One that is not over yet is told as FP-10.
fn first_boot_again(evidence: &Evidence) -> Option<Finding> {
    let records = evidence.records.get()?;
    let means = "The kubelet does not start while this file is there, and the first-boot service runs again at every \
boot. The node's first boot is over: somebody put it back.";
    (records.encapsulated && records.first_boot_over).then(|| {
        let (file, kept) = (paths::ENCAPSULATED, paths::ENCAPSULATED_KEPT);
        Finding::new(
            Severity::Critical,
            "the trigger of the first boot is back",
            means,
        )
        .seen(format!("/{file}"), "there")
        .seen(
            format!("/{}", paths::NODE_ANNOTATIONS_KEPT),
            "the first boot is over",
        )
        .next(format!("mco-rescue verify{}", evidence.at_root()))
        .next(format!(
            "mv {} {}",
            evidence.path(file),
            evidence.path(kept)
        ))
    })
}

fn in_disorder(evidence: &Evidence, stamps: &Stamps) -> Option<Finding> {
    let both = stamps.copies.intersection(&stamps.stamps);
    let of = |path: &RootPath, said: &str| Fact::new(path.to_string(), said);
    let both = both.map(|path| of(path, "has a copy and a stamp that there was nothing"));
    let shipped = stamps.shipped.difference(&stamps.copies);
    let shipped =
        shipped.map(|path| of(path, "is stamped as new, but the OS ships it in /usr/etc"));
    let foreign = stamps
        .foreign
        .iter()
        .map(|path| of(path, "is neither copy nor stamp"));
    let facts: Vec<Fact> = both.chain(shipped).chain(foreign).collect();
    let means = "When a later config drops such a file, the daemon deletes it, or keeps what it should not.";
    (!facts.is_empty()).then(|| {
        Finding::new(
            Severity::Notice,
            "stamps of the daemon contradict the disk",
            means,
        )
        .seen_all(facts)
        .next(format!(
            "ls -R {} {}",
            evidence.path(paths::ORIG),
            evidence.path(paths::NOORIG)
        ))
    })
}
