//! FP-39: the control plane was off for too long.

use crate::base::time::format_utc;
use crate::diagnose::doctor::cold::{self, ColdCertificate, JudgedTime, RECOVERY, Renewer};
use crate::diagnose::doctor::{
    CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, Fact, messages,
};

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-39",
    title: "the control plane was off for too long",
    looks_at: "every certificate of the static pods: its dates, and what renews it while the cluster is down",
    explain: "A running cluster renews most certificates of its control plane after half of their life, which is often \
30 days, and hours on test releases. This check judges each file by its own dates, of the directories without revision and \
of the revision in force.\n\n\
After a long time off, a control plane repairs most of this by itself. The API server starts with expired certificates. In \
its pod the cert-regeneration-controller makes new ones, in the pod of the controller manager the recovery-controller makes \
a new csr-signer: both only for what has expired, and both over the name localhost-recovery. They need etcd with its quorum, \
valid certificates for etcd, and the images of these pods on the node.\n\n\
Then it stops until an admin approves requests in two rounds: the client certificates of the kubelets, and some minutes later \
their server certificates. FP-09 has the kubelet's own. After that the operators renew the rest.\n\n\
On this node nothing renews the certificates of etcd and of its clients, their authority, and that of localhost-recovery. \
They live for years. If one has expired, approvals do not help: another control-plane node whose etcd still runs, or a \
restore, is the way.\n\n\
The kubeconfigs in node-kubeconfigs are written only by an operator. If they have expired, approve with an admin's kubeconfig \
from elsewhere. The kubeconfig with node-bootstrapper cannot approve. An expired user-serving-cert is renewed by the admin who \
brought it, and stops nothing else.\n\n\
mco-rescue doctor --until DATE shows when this node can no longer come back by itself.",
    judge: judge_cold,
};

/// A certificate is overdue if it is not renewed within this fraction of its lifetime after its renewal time.
const PATIENCE: u64 = 10;

fn judge_cold(evidence: &DoctorEvidence) -> CheckVerdict {
    match evidence.static_pods.seen() {
        Ok(Some(_)) => {}
        Ok(None) => return CheckVerdict::healthy(),
        Err(why) => return CheckVerdict::not_seen(format!("certificates of static pods: {why}")),
    }
    let mut verdict = CheckVerdict::healthy();
    if let Some(Some(pods)) = evidence.static_pods.get() {
        for why in &pods.unseen {
            verdict = verdict.and_unseen(format!("a file of a static pod: {why}"));
        }
    }
    let time = cold::judge_time(&evidence.clock);
    if let Some(doubt) = time.doubt {
        return verdict.and_unseen(doubt);
    }
    let all = cold::list_certificates(evidence);
    let all: Vec<&ColdCertificate> = all.iter().filter(|one| !one.of_fp_09).collect();
    let expired = |renewed: &dyn Fn(Renewer) -> bool| -> Vec<&ColdCertificate> {
        let all = all.iter().copied();
        all.filter(|one| one.not_after < time.now && renewed(one.renewer))
            .collect()
    };
    let lost = expired(&|renewer| renewer == Renewer::Nothing);
    let of_admin = expired(&|renewer| renewer == Renewer::Admin);
    let renewed = expired(&|renewer| !matches!(renewer, Renewer::Nothing | Renewer::Admin));
    let overdue = if renewed.is_empty() && lost.is_empty() {
        find_overdue(evidence, &all, &time)
    } else {
        None
    };
    verdict
        .and_findings(find_lost(&lost, &time))
        .and_findings(find_renewed(evidence, &renewed, &time))
        .and_findings(find_of_admin(&of_admin, &time))
        .and_findings(overdue)
}

fn add_dates(finding: DoctorFinding, all: &[&ColdCertificate], time: &JudgedTime) -> DoctorFinding {
    let facts = all.iter().map(|one| {
        let until = format_utc(one.not_after);
        let said = match &one.ended_by {
            Some(issuer) => format!("{}, until {until} by its authority {issuer}", one.subject),
            None => format!("{} until {until}", one.subject),
        };
        Fact::new(&one.path, said)
    });
    let finding = finding.seen_all(facts);
    match &time.by {
        Some(by) => finding.with_evidence(
            by,
            format!("{}, in place of the clock (FP-15)", format_utc(time.now)),
        ),
        None => finding.with_evidence("clock", format_utc(time.now)),
    }
}

fn find_lost(lost: &[&ColdCertificate], time: &JudgedTime) -> Option<DoctorFinding> {
    if lost.is_empty() {
        return None;
    }
    let means = "The API server of this node cannot use etcd, or the recovery cannot use the API server, so no approval \
helps. Another control-plane node whose etcd runs renews it, else restore from a backup.";
    let what = "expired certificates that nothing here renews";
    let finding =
        DoctorFinding::critical(what, means).with_message(Some(messages::NOT_YET_VALID.to_owned()));
    Some(
        add_dates(finding, lost, time)
            .next("date -u # before anything else: a wrong clock looks the same")
            .next("oc get clusteroperator etcd kube-apiserver # with the API of another node"),
    )
}

fn find_renewed(
    evidence: &DoctorEvidence,
    renewed: &[&ColdCertificate],
    time: &JudgedTime,
) -> Option<DoctorFinding> {
    if renewed.is_empty() {
        return None;
    }
    let means = "Controllers in the static pods renew these when they start, within minutes. Then the recovery waits for approvals \
in two rounds: client certificates of the kubelets, then their server certificates.";
    let what = "certificates of the control plane have expired";
    let finding =
        DoctorFinding::warning(what, means).with_message(Some(messages::NOT_YET_VALID.to_owned()));
    let finding = add_dates(finding, renewed, time);
    // They share one certificate.
    let own = renewed
        .iter()
        .any(|one| one.path.contains("/node-kubeconfigs/"));
    let when = if evidence.live {
        ""
    } else {
        " # once the node has booted"
    };
    Some(if own {
        finding
            .next(format!("KUBECONFIG=KUBECONFIG-OF-AN-ADMIN oc get csr # those of the node have expired{when}"))
            .next("oc adm certificate approve NAME # client requests, then the server ones")
    } else {
        finding
            .next(format!("KUBECONFIG={RECOVERY} oc get csr{when}"))
            .next(format!(
                "KUBECONFIG={RECOVERY} oc adm certificate approve NAME # client requests, then the server ones"
            ))
    })
}

fn find_of_admin(of_admin: &[&ColdCertificate], time: &JudgedTime) -> Option<DoctorFinding> {
    if of_admin.is_empty() {
        return None;
    }
    let means = "Clients refuse the API under its public name. It stops no recovery; nothing but its admin renews it.";
    let what = "your own certificate of the API has expired";
    let finding =
        DoctorFinding::warning(what, means).with_message(Some(messages::NOT_YET_VALID.to_owned()));
    Some(
        add_dates(finding, of_admin, time)
            .next("oc get apiserver cluster -o jsonpath='{.spec.servingCerts}'"),
    )
}

/// Reports certificates that a running cluster would have renewed long ago.
fn find_overdue(
    evidence: &DoctorEvidence,
    all: &[&ColdCertificate],
    time: &JudgedTime,
) -> Option<DoctorFinding> {
    let overdue = all.iter().copied().filter(|one| {
        let patience = one.not_after.saturating_sub(one.not_before) / PATIENCE;
        one.renewer != Renewer::Admin && one.renewed_from.saturating_add(patience) < time.now
    });
    let overdue: Vec<&ColdCertificate> = overdue
        .filter(|one| !one.path.contains("/configmaps/"))
        .collect();
    let first = overdue.first()?;
    let what = "the control plane's certificates are overdue";
    let means = format!(
        "A running control plane renews them earlier: it was off, or its operators do not work. The first ends at {}.",
        format_utc(first.not_after)
    );
    let finding = DoctorFinding::notice(what, means);
    let day = format_utc(first.not_after);
    let day = day.split('T').next().unwrap_or_default();
    Some(
        add_dates(finding, &overdue, time)
            .next("oc get clusteroperators kube-apiserver kube-controller-manager etcd")
            .next(evidence.own_command(&format!("doctor --until {day}"))),
    )
}
