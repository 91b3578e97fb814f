//! FP-61: the bootstrap kubeconfig is missing.

use crate::base::paths;
use crate::diagnose::doctor::evidence::Kubeconfig;
use crate::diagnose::doctor::{CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding};
use crate::node::Records;

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-61",
    title: "the bootstrap kubeconfig is missing",
    looks_at: "/etc/kubernetes/kubeconfig",
    explain: "The kubelet joined the cluster with /etc/kubernetes/kubeconfig, and uses it again once its own \
certificate has expired. The daemon sets its mode in every update: without the file the update fails, the daemon reverts \
its files and goes Degraded.\n\n\
No rendered config contains it. It comes from the Machine Config Server at the first boot. It is the same on every \
node of the cluster, so a copy from another node works: owner root, mode 0600. It contains a token: protect it like a \
password.\n\n\
The daemon does not compare it with anything, so a copy is not drift.",
    judge: judge_kubeconfig,
};

/// The daemon's message, for a node without a forecast.
const SAYS: &str = "cannot stat /etc/kubernetes/kubeconfig: stat /etc/kubernetes/kubeconfig: no such file or directory";

fn judge_kubeconfig(evidence: &DoctorEvidence) -> CheckVerdict {
    let recorded = evidence.records.get().and_then(Records::recorded_config);
    // The first boot creates it.
    if recorded.is_none() {
        return CheckVerdict::healthy();
    }
    match evidence.kubeconfig.seen() {
        Ok(Kubeconfig::There) => CheckVerdict::healthy(),
        Ok(Kubeconfig::Missing) => CheckVerdict::one_finding(report_missing(evidence)),
        Ok(Kubeconfig::Empty) => CheckVerdict::one_finding(report_empty(evidence)),
        Err(why) => CheckVerdict::not_seen(format!("the bootstrap kubeconfig: {why}")),
    }
}

fn report_missing(evidence: &DoctorEvidence) -> DoctorFinding {
    let means = "The daemon's next update fails without it, after the files were written, and reverts them. The kubelet \
needs it too, once its own certificate has expired.";
    let forecast = evidence.forecast.iter();
    let mut branches = forecast.flat_map(|forecast| &forecast.branches);
    let said = branches.find_map(|branch| {
        let error = branch.prediction.error.as_ref();
        error.filter(|error| error.contains(paths::KUBECONFIG))
    });
    let daemon = said.map_or(SAYS, String::as_str);
    let what = "the bootstrap kubeconfig is missing";
    let finding = DoctorFinding::warning(what, means)
        .with_evidence(format!("/{}", paths::KUBECONFIG), "missing")
        .with_message(Some(daemon.to_owned()));
    add_copy(evidence, finding)
}

fn report_empty(evidence: &DoctorEvidence) -> DoctorFinding {
    let means = "The kubelet cannot request a certificate with it once its own has expired.";
    let what = "the bootstrap kubeconfig is empty";
    let finding = DoctorFinding::warning(what, means)
        .with_evidence(format!("/{}", paths::KUBECONFIG), "0 bytes");
    add_copy(evidence, finding)
}

/// Adds the commands that copy it from another node, where it also belongs to root.
fn add_copy(evidence: &DoctorEvidence, finding: DoctorFinding) -> DoctorFinding {
    let path = evidence.shell_path(paths::KUBECONFIG);
    finding
        .next(format!(
            "ssh core@OTHER-NODE sudo cat /{} > {path}",
            paths::KUBECONFIG
        ))
        .next(format!("chmod 0600 {path}"))
}
