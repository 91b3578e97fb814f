//! FP-17: a deployment whose `/etc` is of another time.

use crate::doctor::upkeep::Elsewhere;
use crate::doctor::{Check, Evidence, Fact, Finding, Severity, Verdict};
use crate::time::utc;

/// The check.
pub const CHECK: Check = Check {
    id: "FP-17",
    title: "/etc went back, or will, with a deployment",
    looks_at: "the daemon's records in /etc of every deployment, and the default one",
    explain: "Every deployment has an /etc of its own. rpm-ostree rollback brings the old one back with all that was \
in it: old passwords, old network, old certificates, and the daemon's record of an old config. Edits that were made \
since lie in the other deployment.\n\n\
The record in the other deployment is a whole MachineConfig: mco-rescue plan FILE shows what it would change, and \
apply brings /etc where it was. mco-rescue rollback takes files and deployment back together.\n\n\
Before it looks at anything else the daemon runs rpm-ostree cleanup -r, so the other deployment is gone once the \
node has met the API: a pinned one alone survives that. ostree admin pin INDEX, with the index of ostree admin status.",
    judge,
};

fn judge(evidence: &Evidence) -> Verdict {
    let elsewhere = match evidence.upkeep.elsewhere.seen() {
        Ok(elsewhere) => elsewhere,
        Err(why) => return Verdict::unseen(format!("records in other deployments: {why}")),
    };
    let Some(record) = evidence.recorded() else {
        return Verdict::healthy();
    };
    if let Some(next) = next_boot(evidence, elsewhere) {
        return Verdict::healthy()
            .and((next.config != record).then(|| will(evidence, next, &record)));
    }
    let written = evidence.upkeep.record_written.unwrap_or_default();
    let staged = evidence.facts().ok();
    let staged = staged.and_then(|facts| Some(facts.deployments.staged()?.name()));
    // A directory that is no deployment (its staging was lost) was never booted, and nothing enters it.
    let left_over = |other: &&Elsewhere| {
        let known = evidence
            .facts()
            .map(|facts| facts.deployments.named(&other.deployment));
        known.is_ok_and(|known| known.is_none())
    };
    let newer = elsewhere.iter().filter(|other| {
        other.config != record
            && other.written > written
            && staged.as_ref() != Some(&other.deployment)
            && !left_over(other)
    });
    let newest = newer.max_by_key(|other| other.written);
    Verdict::healthy().and(newest.map(|other| did(evidence, other, &record, written)))
}

/// The record of the deployment that the next boot enters, where that is neither booted nor staged.
fn next_boot<'a>(evidence: &Evidence, elsewhere: &'a [Elsewhere]) -> Option<&'a Elsewhere> {
    let facts = evidence.facts().ok()?;
    let next = facts.deployments.next_boot()?;
    let name = (!next.booted && !next.staged).then(|| next.name())?;
    elsewhere.iter().find(|other| other.deployment == name)
}

fn fact(other: &Elsewhere) -> Fact {
    Fact::new(
        &other.path,
        format!("{}, written {}", other.config, utc(other.written)),
    )
}

fn will(evidence: &Evidence, next: &Elsewhere, record: &str) -> Finding {
    let means = "The next boot takes /etc back to the state that it had in that deployment, with its users, network \
and certificates. What was changed here since does not come along.";
    Finding::new(Severity::Warning, "the next boot has another /etc", means)
        .seen_all([fact(next)])
        .seen("the record here", record)
        .next(evidence.command("status"))
        .next("rpm-ostree rollback")
}

fn did(evidence: &Evidence, other: &Elsewhere, record: &str, written: u64) -> Finding {
    let file = evidence.path(&other.path);
    let means = "/etc is of an earlier time than the other deployment's: passwords, network and certificates may be \
old ones. The daemon goes by the old record.";
    Finding::new(
        Severity::Warning,
        "/etc is older than another deployment's",
        means,
    )
    .seen_all([fact(other)])
    .seen(
        "the record here",
        format!("{record}, written {}", utc(written)),
    )
    .next(format!("mco-rescue plan{} {file}", evidence.at_root()))
    .next(format!("mco-rescue show{} {file}", evidence.at_root()))
}
