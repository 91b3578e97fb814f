//! FP-36: the OS lacks CRI-O's default runtime.

use super::doors::{judge_door, with_subject};
use crate::diagnose::doctor::crossing::CrossingMoment;
use crate::diagnose::doctor::{CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence};

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-36",
    title: "the container runtime is not in the OS",
    looks_at: "CRI-O's default_runtime in all its files, and the programs of the next OS",
    explain: "CRI-O does not start if the program of its default runtime is missing, and without CRI-O no pod starts, not even \
the daemon's. EL 10 has no runc: a file that sets default_runtime = \"runc\" stops the node there. Tables of other \
runtimes whose program is missing do no harm.\n\n\
The files below /etc/crio are read in CRI-O's order and as the next boot has them, as mco-rescue preflight reads them (check \
container-runtime).\n\n\
The ContainerRuntimeConfig that sets defaultRuntime has to be removed in the cluster, or the daemon brings the file back.",
    judge: judge_runtime,
};

/// The evidence of a default that no file sets. Without a package list, the version of the running CRI-O is a guess.
const COMPILED: &str = "CRI-O's own default";

fn judge_runtime(evidence: &DoctorEvidence) -> CheckVerdict {
    judge_door(evidence, CHECK.id, |finding, seen| {
        // FP-08 reports a file with an error.
        let is_file = finding.subject.starts_with('/');
        let is_guess = seen.moment == CrossingMoment::Present
            && finding.evidence.iter().any(|one| one.place == COMPILED);
        let has_crio = seen.target.tree.exists("usr/bin/crio");
        (has_crio && !is_file && !is_guess).then(|| {
            let words = "CRI-O's default runtime is missing in the OS";
            (
                CheckSeverity::Critical,
                with_subject(&finding.subject, words),
            )
        })
    })
}
