//! FP-20: FIPS mode, and other settings that are fixed when a node is provisioned.

use crate::diagnose::doctor::{CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, messages};
use crate::judge::daemon::start::State;
use crate::node::Records;

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-20",
    title: "a config that this node can never reach",
    looks_at: "spec.fips against the kernel, and if the desired config can be reconciled",
    explain: "FIPS mode, disks, file systems and users other than core are set up once, at the first boot. A config that \
changes them is refused (\"can't reconcile config\"), and the node is Unreconcilable until the cluster desires \
another config, or the node is provisioned again.\n\n\
mco-rescue plan CONFIG lists every part that prevents it, with its place in the config. The daemon stops at the \
first one. mco-rescue never changes FIPS mode.",
    judge: judge_fips,
};

fn judge_fips(evidence: &DoctorEvidence) -> CheckVerdict {
    let verdict = CheckVerdict::healthy().and_findings(find_unreconcilable_fips(evidence));
    let Some(config) = evidence.records.get().and_then(Records::recorded_config) else {
        return verdict;
    };
    match find_fips(evidence) {
        Ok((place, is)) => verdict
            .and_findings((is != config.fips).then(|| report_difference(evidence, place, is))),
        Err(why) => verdict.and_unseen(format!("FIPS mode: {why}")),
    }
}

/// Returns FIPS mode of the kernel, or else of the boot entry, with its source.
fn find_fips(evidence: &DoctorEvidence) -> Result<(&'static str, bool), &str> {
    if let Some(is) = evidence.upkeep.fips {
        return Ok(("/proc/sys/crypto/fips_enabled", is));
    }
    let arguments = evidence.arguments_on_disk.seen()?;
    Ok((
        "the boot entry",
        arguments.tokens().iter().any(|one| one == "fips=1"),
    ))
}

fn report_difference(evidence: &DoctorEvidence, place: &str, is: bool) -> DoctorFinding {
    let word = |on: bool| if on { "on" } else { "off" };
    let what = format!(
        "FIPS mode is {}, the config wants it {}",
        word(is),
        word(!is)
    );
    let means = "The daemon refuses every update of this node. FIPS mode is set when a node is provisioned, and cannot be changed \
afterwards.";
    DoctorFinding::warning(what, means)
        .with_evidence(place, word(is))
        .with_evidence("the recorded config", format!("spec.fips: {}", !is))
        .with_message(Some(messages::FIPS_CHANGE.to_owned()))
        .next(format!("mco-rescue plan{}", evidence.at_root()))
}

fn find_unreconcilable_fips(evidence: &DoctorEvidence) -> Option<DoctorFinding> {
    let branch = evidence.forecast.as_ref()?.branches.first()?;
    let seen = &branch.prediction;
    let desired = branch.desired.as_deref().unwrap_or("another config");
    let means = "The daemon refuses this config and repeats the error. Either the cluster has to desire another config for this \
node, or the node has to be provisioned again.";
    (branch.known && seen.state == State::Unreconcilable).then(|| {
        let what = "the desired config will be refused";
        let finding = DoctorFinding::warning(what, means)
            .with_evidence("desiredConfig", desired)
            .with_message(seen.error.clone());
        finding.next(format!(
            "mco-rescue plan{} cached:{desired}",
            evidence.at_root()
        ))
    })
}
