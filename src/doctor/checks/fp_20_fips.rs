//! FP-20: FIPS mode, and what else a node is born with and never changes.

use crate::daemon::start::State;
use crate::doctor::{Check, Evidence, Finding, Severity, Verdict};
use crate::node::Records;

/// The check.
pub const CHECK: Check = Check {
    id: "FP-20",
    title: "a config that the node cannot be brought to",
    looks_at: "spec.fips beside the kernel, and whether the wanted config can be reconciled",
    explain: "FIPS mode, disks, file systems and users other than core are set up once, at the first boot. A config that \
wants them otherwise is refused (\"can't reconcile config\"), and the node is Unreconcilable until the cluster wants \
another one, or the node is provisioned anew.\n\n\
mco-rescue plan CONFIG lists every part that stands against it with its place in the config; the daemon stops at the \
first. FIPS mode is never changed here.",
    judge,
};

fn judge(evidence: &Evidence) -> Verdict {
    let verdict = Verdict::healthy().and(unreconcilable(evidence));
    let Some(config) = evidence.records.get().and_then(Records::recorded) else {
        return verdict;
    };
    match fips(evidence) {
        Ok((place, is)) => verdict.and((is != config.fips).then(|| differs(evidence, place, is))),
        Err(why) => verdict.and_unseen(format!("FIPS mode: {why}")),
    }
}

/// Of the kernel; else as the boot entry asks for it.
fn fips(evidence: &Evidence) -> Result<(&'static str, bool), &str> {
    if let Some(is) = evidence.upkeep.fips {
        return Ok(("/proc/sys/crypto/fips_enabled", is));
    }
    let arguments = evidence.arguments_on_disk.seen()?;
    Ok((
        "the boot entry",
        arguments.tokens().iter().any(|one| one == "fips=1"),
    ))
}

fn differs(evidence: &Evidence, place: &str, is: bool) -> Finding {
    let word = |on: bool| if on { "on" } else { "off" };
    let what = format!(
        "FIPS mode is {}, the config wants it {}",
        word(is),
        word(!is)
    );
    let means = "The daemon refuses every update of this node. FIPS mode is set when a node is provisioned, and not \
afterwards.";
    let says = "detected change to FIPS flag; refusing to modify FIPS on a running cluster";
    Finding::new(Severity::Warning, what, means)
        .seen(place, word(is))
        .seen("the recorded config", format!("spec.fips: {}", !is))
        .daemon(Some(says.to_owned()))
        .next(format!("mco-rescue plan{}", evidence.at_root()))
}

fn unreconcilable(evidence: &Evidence) -> Option<Finding> {
    let branch = evidence.forecast.as_ref()?.branches.first()?;
    let seen = &branch.prediction;
    let desired = branch.desired.as_deref().unwrap_or("another config");
    let means = "The daemon refuses to go there and says so for ever. The cluster has to want another config for this \
node, or the node has to be provisioned anew.";
    (branch.known && seen.state == State::Unreconcilable).then(|| {
        let what = "the cluster wants a config that is refused";
        let finding = Finding::new(Severity::Warning, what, means)
            .seen("desiredConfig", desired)
            .daemon(seen.error.clone());
        finding.next(format!(
            "mco-rescue plan{} cached:{desired}",
            evidence.at_root()
        ))
    })
}
