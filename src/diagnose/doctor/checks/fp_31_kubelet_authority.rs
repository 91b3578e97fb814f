//! FP-31: the kubelet no longer accepts the certificate used to request logs.

use crate::base::time::format_utc;
use crate::diagnose::doctor::{
    CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding,
};
use crate::node::certificates::{Certificate, CertificateRole};

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-31",
    title: "the kubelet's authority is out of date",
    looks_at: "the signers in /etc/kubernetes/kubelet-ca.crt",
    explain: "For logs or a shell (oc logs, exec, debug) the API shows the kubelet a certificate. The accepted \
signers are in /etc/kubernetes/kubelet-ca.crt. The signer is replaced after about 292 of its \
365 days; the new one reaches the node through the daemon. A long-paused pool or an offline node \
does not get it.\n\n\
Unpause the pool (oc patch mcp NAME --type merge -p '{\"spec\":{\"paused\":false}}'), or copy the file from a node that \
has it. It is not compared with the config, so a copy is not drift. The API's own certificate cannot be seen offline.",
    judge: judge_kubelet_authority,
};

/// Name of the signer as it occurs in its subject.
const SIGNER: &str = "kube-apiserver-to-kubelet-signer";

fn judge_kubelet_authority(evidence: &DoctorEvidence) -> CheckVerdict {
    let Ok(certificates) = evidence.certificates.seen() else {
        return CheckVerdict::not_seen("the kubelet's authority: no certificate could be read");
    };
    let all = certificates.iter();
    let all = all.filter(|one| one.role == CertificateRole::ClientAuthority);
    let all: Vec<&Certificate> = all.collect();
    if !all.is_empty() && all.iter().all(|one| one.not_after < evidence.clock.now) {
        // FP-09 reports it with the other expired certificates.
        return CheckVerdict::healthy();
    }
    let signers: Vec<&Certificate> = all
        .iter()
        .copied()
        .filter(|one| one.subject.contains(SIGNER))
        .collect();
    let all = if signers.is_empty() { all } else { signers };
    let Some(newest) = all.iter().max_by_key(|one| one.not_after) else {
        return CheckVerdict::not_seen(
            "the kubelet's authority: /etc/kubernetes/kubelet-ca.crt is missing, or holds no certificate",
        );
    };
    CheckVerdict::healthy().and_findings(find_stale_authority(evidence, newest))
}

fn find_stale_authority(evidence: &DoctorEvidence, newest: &Certificate) -> Option<DoctorFinding> {
    let now = evidence.clock.now;
    let life = newest.not_after.saturating_sub(newest.not_before);
    // Signers are replaced after four fifths of their lifetime.
    let replaced = newest.not_before.saturating_add(life / 5 * 4);
    let (severity, what, means) = if newest.not_after < now {
        let means = "The kubelet refuses all requests for logs or a shell: oc logs, exec and debug fail on this \
node, also for the daemon's log.";
        (
            CheckSeverity::Warning,
            "the kubelet's authority has expired",
            means,
        )
    } else if replaced < now {
        let means = "The cluster has a newer signer now or soon. If it does not reach the node, oc logs and exec \
fail here. Check if the pool is paused.";
        (
            CheckSeverity::Notice,
            "the kubelet's authority is due for replacement",
            means,
        )
    } else {
        return None;
    };
    Some(
        DoctorFinding::new(severity, what, means)
            .with_evidence(
                &newest.path,
                format!("{}, until {}", newest.subject, format_utc(newest.not_after)),
            )
            .next("oc get mcp")
            .next(format!(
                "scp core@OTHER-NODE:{} {}",
                newest.path,
                evidence.shell_path(&newest.path)
            )),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::doctor::Look;
    use crate::node::clock::Clock;

    #[test]
    fn the_newest_signer_counts_and_is_due_after_four_fifths() {
        let signed = |name: &str, from: u64| Certificate {
            role: CertificateRole::ClientAuthority,
            path: "/etc/kubernetes/kubelet-ca.crt".into(),
            subject: format!("CN={name}"),
            not_before: from,
            not_after: from + 1000,
        };
        let worst = |now: u64| {
            let all = vec![
                signed(SIGNER, 0),
                signed(SIGNER, 500),
                signed("other", 5000),
            ];
            let verdict = judge_kubelet_authority(&DoctorEvidence {
                certificates: Look::Seen(all),
                clock: Clock {
                    now,
                    ..Clock::default()
                },
                ..DoctorEvidence::default()
            });
            verdict.findings.first().map(|one| one.severity)
        };
        assert_eq!(worst(1200), None);
        assert_eq!(worst(1400), Some(CheckSeverity::Notice));
        assert_eq!(worst(1600), Some(CheckSeverity::Warning));
        assert_eq!(worst(7000), None);
    }
}
