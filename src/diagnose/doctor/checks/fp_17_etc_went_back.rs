//! FP-17: the `/etc` of a deployment is older than that of another one, or is recreated at every boot.

use crate::base::time::format_utc;
use crate::change::staging::next_boot::{BootWay, NextBoot};
use crate::diagnose::doctor::upkeep::Elsewhere;
use crate::diagnose::doctor::{CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, Fact};
use crate::node::lasting::Transient;

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-17",
    title: "/etc is older than in another deployment, or will be",
    looks_at: "the daemon's records in /etc of every deployment of this stateroot, the default deployment, and if /etc is transient",
    explain: "Every deployment has its own /etc. rpm-ostree rollback brings back the old one with all its contents: \
old passwords, old network, old certificates, and the daemon's record of an old config. Later edits stay \
in the other deployment. Only deployments of the same stateroot are compared: an image-based upgrade makes a new \
one, with its own /etc and /var.\n\n\
The record in the other deployment is a whole MachineConfig: mco-rescue plan FILE shows what it would change, and \
mco-rescue apply changes it. mco-rescue rollback reverts files and deployment together.\n\n\
The daemon starts with rpm-ostree cleanup -r, so the other deployment is removed once the \
node reaches the API. Only a pinned one survives: ostree admin pin INDEX, with the index from ostree admin status.\n\n\
An image with [etc] transient=true in prepare-root.conf begins every boot with its own /etc: whatever a config brought there \
is gone.",
    judge: judge_etc_went_back,
};

fn judge_etc_went_back(evidence: &DoctorEvidence) -> CheckVerdict {
    match evidence.upkeep.transient.seen() {
        Ok(Transient { etc: Some(why), .. }) => {
            return CheckVerdict::healthy().and_findings(Some(made_anew(why)));
        }
        Ok(_) => {}
        Err(why) => {
            return CheckVerdict::not_seen(format!("whether every boot recreates /etc: {why}"));
        }
    }
    let elsewhere = match evidence.upkeep.elsewhere.seen() {
        Ok(elsewhere) => elsewhere,
        Err(why) => return CheckVerdict::not_seen(format!("records in other deployments: {why}")),
    };
    let Some(record) = evidence.recorded_name() else {
        return CheckVerdict::healthy();
    };
    if let Some(finding) = find_other_stateroot(evidence) {
        return CheckVerdict::one_finding(finding);
    }
    if let Some((next, other)) = next_boot(evidence, elsewhere) {
        let is_told = next.foreign_author().is_some() && other.config != record;
        return CheckVerdict::healthy()
            .and_findings(is_told.then(|| report_future(evidence, next, other, &record)));
    }
    let written = evidence.upkeep.record_written.unwrap_or_default();
    let staged = evidence.facts().ok();
    let staged = staged.and_then(|facts| Some(facts.deployments.staged()?.name()));
    // A directory that is not a deployment (because its staging was lost) was never booted and never will be.
    let left_over = |other: &&Elsewhere| {
        let known = evidence
            .facts()
            .map(|facts| facts.deployments.find_named(&other.deployment));
        known.is_ok_and(|known| known.is_none())
    };
    let newer = elsewhere.iter().filter(|other| {
        other.config != record
            && other.written > written
            && staged.as_ref() != Some(&other.deployment)
            && !left_over(other)
    });
    let newest = newer.max_by_key(|other| other.written);
    CheckVerdict::healthy()
        .and_findings(newest.map(|other| report_past(evidence, other, &record, written)))
}

/// Reports a next boot into another stateroot, which is another installation.
fn find_other_stateroot(evidence: &DoctorEvidence) -> Option<DoctorFinding> {
    let next = evidence.next_boot.get()?.as_ref()?;
    let deployments = &evidence.facts().ok()?.deployments;
    let (booted, first) = (deployments.booted()?, deployments.next_boot()?);
    if first.osname == booted.osname || next.foreign_author().is_none() {
        return None;
    }
    let means = "It is another installation, with its own /etc, /var, certificates and record: an image-based upgrade goes there \
and back. Changes made here now are not there.";
    let what = "the next boot enters another stateroot";
    let finding = DoctorFinding::warning(what, means)
        .with_evidence(
            "rpm-ostree status",
            format!(
                "{} of the stateroot {} is the default",
                first.name(),
                first.osname
            ),
        )
        .with_evidence("the stateroot here", &booted.osname)
        .next(evidence.own_command("status"));
    Some(match &next.stay {
        Some(stay) => finding.next(stay.clone()),
        None => finding,
    })
}

/// Returns what is queued for the next boot, and the record there. After our own rollback, `complete` restores the files that
/// belong to it.
fn next_boot<'a>(
    evidence: &'a DoctorEvidence,
    elsewhere: &'a [Elsewhere],
) -> Option<(&'a NextBoot, &'a Elsewhere)> {
    let next = evidence.next_boot.get()?.as_ref()?;
    let name = next.enters.deployment.as_ref()?;
    let other = elsewhere.iter().find(|other| other.deployment == *name)?;
    (next.way == BootWay::Queued).then_some((next, other))
}

fn made_anew(why: &str) -> DoctorFinding {
    let means = "The next boot begins with the /etc of the image: the config's files, the users and the daemon's record are gone. \
A cluster node needs an image without it.";
    DoctorFinding::warning("every boot recreates /etc", means)
        .with_evidence("/etc is transient", why)
        .next("cat /usr/lib/ostree/prepare-root.conf")
}

fn as_fact(other: &Elsewhere) -> Fact {
    Fact::new(
        &other.path,
        format!("{}, written {}", other.config, format_utc(other.written)),
    )
}

fn report_future(
    evidence: &DoctorEvidence,
    next: &NextBoot,
    other: &Elsewhere,
    record: &str,
) -> DoctorFinding {
    let means = "The next boot uses the /etc of that deployment, with its users, network \
and certificates. Later changes of this /etc are not in it.";
    let finding = DoctorFinding::warning("the next boot uses another /etc", means)
        .seen_all([as_fact(other)])
        .with_evidence("the record here", record)
        .next(evidence.own_command("status"));
    match &next.stay {
        Some(stay) => finding.next(stay.clone()),
        None => finding,
    }
}

fn report_past(
    evidence: &DoctorEvidence,
    other: &Elsewhere,
    record: &str,
    written: u64,
) -> DoctorFinding {
    let file = evidence.shell_path(&other.path);
    let means = "/etc is older than the other deployment's. Passwords, network and certificates may be \
old. The daemon uses the old record.";
    DoctorFinding::warning("/etc is older than another deployment's", means)
        .seen_all([as_fact(other)])
        .with_evidence(
            "the record here",
            format!("{record}, written {}", format_utc(written)),
        )
        .next(format!("mco-rescue plan{} {file}", evidence.at_root()))
        .next(format!("mco-rescue show{} {file}", evidence.at_root()))
}
