//! FP-09: certificates that expired while the node was off.

use crate::base::time::format_utc;
use crate::diagnose::doctor::evidence::Kubeconfig;
use crate::diagnose::doctor::{
    CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, Fact, messages,
};
use crate::node::certificates::{Certificate, CertificateRole};

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-09",
    title: "the node's certificates have expired",
    looks_at: "certificates of the kubelet and of etcd: end dates, how to renew them, what they block",
    explain: "A node that was off for a month comes back with an expired certificate, and the API rejects it. How each one is renewed:\n\n\
kubelet, client (/var/lib/kubelet/pki/kubelet-client-current.pem): the kubelet asks for a new one; it blocks everything, \
the node stays NotReady. When it has expired, the kubelet asks with /etc/kubernetes/kubeconfig as node-bootstrapper, and \
an admin has to approve that request.\n\n\
kubelet, server (kubelet-server-current.pem): requested once the first one works, as a second request to approve; it \
blocks oc logs, exec and debug.\n\n\
kubelet-ca.crt: written by the daemon, also while a pool is paused in newer releases; it blocks oc logs and exec. \
Certificates of etcd: renewed by its operator; they block the control plane.\n\n\
So there are two rounds: oc get csr, approve, wait a minute, and again. Approve by name, and only Pending requests whose \
subject is this node: an approved request makes its sender a node of the cluster. If the API cannot be reached from elsewhere, the \
localhost kubeconfig of a control-plane node works too. mco-rescue approves nothing.",
    judge: judge_certificates,
};

const DAY: u64 = 86_400;
/// The command that lists kubelets' requests for client certificates, with their state.
const CLIENT_REQUESTS: &str =
    "oc get csr --field-selector spec.signerName=kubernetes.io/kube-apiserver-client-kubelet";
/// The command that lists kubelets' requests for server certificates, with their state.
const SERVER_REQUESTS: &str =
    "oc get csr --field-selector spec.signerName=kubernetes.io/kubelet-serving";
/// Seconds before its expiry from which a valid certificate is reported.
const SOON: u64 = 2 * DAY;

fn judge_certificates(evidence: &DoctorEvidence) -> CheckVerdict {
    let certificates = match evidence.certificates.seen() {
        Ok(certificates) => certificates,
        Err(why) => return CheckVerdict::not_seen(format!("certificates: {why}")),
    };
    let now = evidence.clock.now;
    let mut verdict = CheckVerdict::healthy();
    for role in [
        CertificateRole::KubeletClient,
        CertificateRole::KubeletServing,
        CertificateRole::ClientAuthority,
        CertificateRole::Etcd,
    ] {
        let all: Vec<&Certificate> = certificates.iter().filter(|one| one.role == role).collect();
        verdict = verdict.and_findings(judge_role(evidence, role, &all, now));
    }
    for why in &evidence.certificates_unseen {
        verdict = verdict.and_unseen(format!("a certificate: {why}"));
    }
    verdict
}

/// Judges the certificates of one role. One valid authority makes a bundle usable; for other roles each certificate counts.
fn judge_role(
    evidence: &DoctorEvidence,
    role: CertificateRole,
    all: &[&Certificate],
    now: u64,
) -> Option<DoctorFinding> {
    let old: Vec<&Certificate> = all
        .iter()
        .copied()
        .filter(|one| one.not_after < now)
        .collect();
    let expired = match role {
        CertificateRole::ClientAuthority => !all.is_empty() && old.len() == all.len(),
        _ => !old.is_empty(),
    };
    if expired {
        return Some(expired_finding(evidence, role, &old, now));
    }
    let soon: Vec<&Certificate> = all
        .iter()
        .copied()
        .filter(|one| one.not_after < now + SOON && role != CertificateRole::ClientAuthority)
        .collect();
    (!soon.is_empty()).then(|| {
        let means = "It is renewed automatically while the node reaches the API. Otherwise the node becomes NotReady then.";
        DoctorFinding::notice(format!("{} ends within two days", name_of(role)), means)
            .seen_all(soon.iter().map(|one| as_fact(one)))
            .next("oc get csr")
    })
}

fn name_of(role: CertificateRole) -> &'static str {
    match role {
        CertificateRole::KubeletClient => "the kubelet's client certificate",
        CertificateRole::KubeletServing => "the kubelet's server certificate",
        CertificateRole::ClientAuthority => "kubelet-ca.crt",
        CertificateRole::Etcd => "a certificate of etcd",
        CertificateRole::ServerAuthority | CertificateRole::Pointer => "an authority",
    }
}

fn as_fact(one: &Certificate) -> Fact {
    Fact::new(
        &one.path,
        format!("{} until {}", one.subject, format_utc(one.not_after)),
    )
}

fn expired_finding(
    evidence: &DoctorEvidence,
    role: CertificateRole,
    old: &[&Certificate],
    now: u64,
) -> DoctorFinding {
    let ages = old.iter().map(|one| now.saturating_sub(one.not_after));
    let since = match ages.max().unwrap_or_default() / DAY {
        0 => "less than a day".to_owned(),
        1 => "1 day".to_owned(),
        days => format!("{days} days"),
    };
    let clock = format!("{}, {since} after the end", format_utc(now));
    let (severity, means, daemon) = match role {
        CertificateRole::KubeletClient => (
            CheckSeverity::Critical,
            "The API rejects the kubelet: the node stays NotReady until two new certificates are approved \
             (client, then server).",
            Some(messages::BOOTSTRAP_EXPIRED),
        ),
        CertificateRole::KubeletServing => (
            CheckSeverity::Warning,
            "oc logs, exec and debug fail on this node until a new certificate is approved.",
            None,
        ),
        CertificateRole::Etcd => (
            CheckSeverity::Critical,
            "The other etcd members reject this one. Its operator renews it once the control plane runs.",
            None,
        ),
        _ => (
            CheckSeverity::Warning,
            "oc logs and exec fail: the kubelet no longer accepts the API's certificate. The daemon writes a new bundle.",
            None,
        ),
    };
    let finding = DoctorFinding::new(severity, format!("{} has expired", name_of(role)), means)
        .seen_all(old.iter().map(|one| as_fact(one)))
        .with_evidence("clock", clock)
        .with_message(daemon.map(str::to_owned));
    match role {
        CertificateRole::KubeletClient => renew_client(evidence, finding),
        CertificateRole::KubeletServing => add_approval(evidence, finding.next(SERVER_REQUESTS)),
        CertificateRole::Etcd => finding.next("oc get clusteroperator etcd"),
        _ => finding.next("oc get mcp"),
    }
}

/// Adds the commands with which the kubelet gets both of its certificates.
fn renew_client(evidence: &DoctorEvidence, finding: DoctorFinding) -> DoctorFinding {
    let finding = finding.with_evidence("bootstrap", bootstrap_path(evidence));
    // Without that file no request appears.
    let finding = match evidence.kubeconfig.get() {
        Some(Kubeconfig::Missing | Kubeconfig::Empty) => {
            finding.next("Copy /etc/kubernetes/kubeconfig from another node of the pool")
        }
        Some(Kubeconfig::There) | None => finding,
    };
    // Nothing runs on a mounted disk: its kubelet sends the request when that node boots.
    let (finding, when) = if evidence.live {
        (finding.next_all(evidence.restart_kubelet()), "")
    } else {
        (finding, " # once the node has booted")
    };
    let finding = finding.next(format!("{CLIENT_REQUESTS}{when}"));
    add_approval(evidence, finding).next(format!(
        "{SERVER_REQUESTS} # a minute later: look and approve it the same way"
    ))
}

/// Adds a look at a single pending request, and its approval by name: approving a request admits its sender as a node.
fn add_approval(evidence: &DoctorEvidence, finding: DoctorFinding) -> DoctorFinding {
    let node = evidence.node_name().unwrap_or("NODE");
    finding
        .next(format!(
            "oc get csr NAME -o jsonpath='{{.spec.request}}' | base64 -d | openssl req -noout -subject # a Pending one; \
             approve it only if this says CN = system:node:{node}"
        ))
        .next("oc adm certificate approve NAME")
}

fn bootstrap_path(evidence: &DoctorEvidence) -> &'static str {
    match evidence.kubeconfig.get() {
        Some(Kubeconfig::There) => {
            "/etc/kubernetes/kubeconfig is present: the kubelet requests a new one with it"
        }
        None => {
            "/etc/kubernetes/kubeconfig could not be checked: the kubelet needs it to request a new one"
        }
        Some(Kubeconfig::Empty) => {
            "/etc/kubernetes/kubeconfig is empty: copy it from another node of the pool"
        }
        Some(Kubeconfig::Missing) => {
            "/etc/kubernetes/kubeconfig is missing: copy it from another node of the pool"
        }
    }
}
