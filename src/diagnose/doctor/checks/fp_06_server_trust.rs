//! FP-06: the certificate authorities with which the node verifies its Machine Config Server.

use crate::base::time::format_utc;
use crate::diagnose::doctor::{
    CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, Fact, messages,
};
use crate::node::certificates::{Certificate, CertificateRole};

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-06",
    title: "the authority of the cluster's servers is out of date",
    looks_at: "authorities in kubeconfigs, in the pointer config, and those stored for the server",
    explain: "A node verifies the Machine Config Server with an authority that it received when it was \
provisioned. Authorities are rotated, and the one that an installer writes into a pointer config may be valid for one day only: \
then a first boot reports forever: x509: certificate signed by unknown authority, or has expired.\n\n\
Only dates can be checked here. To see the server's current certificate, query it: mco-rescue fetch prints the chain, \
and which file on the node would verify it. It is never accepted without verification. Give the right authority with \
mco-rescue fetch --ca FILE, such as /etc/kubernetes/kubelet-ca.crt or ca.crt of a healthy node.\n\n\
A clock that is behind looks the same: see FP-15.",
    judge: judge_server_trust,
};

fn judge_server_trust(evidence: &DoctorEvidence) -> CheckVerdict {
    let certificates = match evidence.certificates.seen() {
        Ok(certificates) => certificates,
        Err(why) => return CheckVerdict::not_seen(format!("certificates: {why}")),
    };
    let now = evidence.clock.now;
    let of = |role: CertificateRole| certificates.iter().filter(move |one| one.role == role);
    let trusted: Vec<&Certificate> = of(CertificateRole::ServerAuthority).collect();
    let pointers: Vec<&Certificate> = of(CertificateRole::Pointer).collect();
    let first_boot = evidence.recorded_name().is_none();
    let mut verdict = CheckVerdict::healthy();
    for file in certificate_files(&trusted) {
        let all: Vec<&&Certificate> = trusted.iter().filter(|one| one.path == file).collect();
        if all.iter().all(|one| one.not_after < now) {
            verdict =
                verdict.and_findings([expired_finding(evidence, CheckSeverity::Critical, &all)]);
        }
    }
    let all: Vec<&&Certificate> = pointers.iter().collect();
    if first_boot && !all.is_empty() && all.iter().all(|one| one.not_after < now) {
        verdict = verdict.and_findings([expired_finding(evidence, CheckSeverity::Critical, &all)]);
    }
    let server = evidence.server_name();
    verdict.and_unseen(format!(
        "the certificate that {server} shows: {} asks for it",
        evidence.own_command("fetch")
    ))
}

fn certificate_files(all: &[&Certificate]) -> Vec<String> {
    let mut files: Vec<String> = all.iter().map(|one| one.path.clone()).collect();
    files.sort();
    files.dedup();
    files
}

fn expired_finding(
    evidence: &DoctorEvidence,
    severity: CheckSeverity,
    all: &[&&Certificate],
) -> DoctorFinding {
    let means = "Every connection that is verified with it fails. Either it was rotated while the node was off, or the \
                 clock is ahead.";
    let facts = all.iter().map(|one| {
        Fact::new(
            &one.path,
            format!("{} ended {}", one.subject, format_utc(one.not_after)),
        )
    });
    DoctorFinding::new(
        severity,
        "the authority of the cluster's servers has expired",
        means,
    )
    .seen_all(facts)
    .with_evidence("clock", format_utc(evidence.clock.now))
    .with_message(Some(messages::NOT_YET_VALID.to_owned()))
    .next("date -u")
    .next(format!("mco-rescue fetch --ca FILE{}", evidence.at_root()))
}
