//! The outlook for a node that is off from now until a date: whether it recovers on its own, and what prevents that.
//!
//! Pure: evidence and a date in, an outlook out. Assumes that nothing is renewed in the meantime.

use serde::Serialize;

use super::cold::{self, ColdCertificate, JudgedTime, Renewer};
use super::{DoctorEvidence, Look};
use crate::base::order::StableOrder;
use crate::base::paths;
use crate::base::reason::Reason;
use crate::base::time::format_utc;
use crate::diagnose::doctor::evidence::Kubeconfig;
use crate::node::certificates::{Certificate, CertificateRole};
use crate::node::static_pods::{StaticPod, StaticPods};

/// The outlook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outlook {
    /// The kind of node.
    pub node: NodeKind,
    /// The time by which dates were judged; seconds since 1970.
    pub now: u64,
    /// The date at which the node is switched on again; seconds since 1970.
    pub until: u64,
    /// The state at that date.
    pub verdict: OutlookVerdict,
    /// First day (UTC) on which it no longer recovers on its own, even if that is after the date; `None` if unknown.
    pub first_day: Option<String>,
    /// First day (UTC) from which approvals cannot bring it back either.
    pub lost_day: Option<String>,
    /// Everything that expires, in order, including after the date.
    pub steps: Vec<OutlookStep>,
    /// The rounds of approvals, in order.
    pub approvals: Vec<Approval>,
    /// Commands with which an admin gives the approvals, in order.
    pub next: Vec<String>,
    /// Other facts worth knowing.
    pub notes: Vec<String>,
    /// Missing evidence, with the reason.
    pub unseen: Vec<String>,
}

/// The kind of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeKind {
    /// It runs the static pods of a control plane.
    ControlPlane,
    /// Any other node.
    Worker,
}

/// The state at the date. Sorts worst last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OutlookVerdict {
    /// It comes back by itself.
    ByItself,
    /// Not known, as something that decides it could not be read.
    Unknown,
    /// It recovers once an admin has done something.
    NeedsHands,
    /// Nothing on this node, and no approval, brings it back.
    Lost,
}

/// A certificate that expires, and what that means for recovery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OutlookStep {
    /// Time of expiry; seconds since 1970.
    pub at: u64,
    /// The state of the node from then on, by this certificate alone.
    pub verdict: OutlookVerdict,
    /// A short name of the certificate.
    pub name: String,
    /// Path of its file.
    pub path: String,
    /// Its subject.
    pub subject: String,
    /// The step in the cluster's own recovery: what renews the certificate, or what stalls.
    pub means: String,
    /// Time from which a running cluster renews it; seconds since 1970.
    pub renewed_from: u64,
}

/// A round of approvals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Approval {
    /// The kind of requests: for `client` or `server` certificates of kubelets.
    pub requests: &'static str,
    /// The earliest moment at which it is needed; seconds since 1970.
    pub from: u64,
    /// When the requests appear, and who approves them.
    pub when: String,
}

const DAY: u64 = 86_400;

impl Outlook {
    /// Returns the first step that has this verdict or a worse one.
    pub fn first_step(&self, verdict: OutlookVerdict) -> Option<&OutlookStep> {
        self.steps.iter().find(|step| step.verdict >= verdict)
    }
}

/// Computes the outlook.
///
/// # Errors
/// The root has no certificate of a node: the reason.
pub fn look_ahead(evidence: &DoctorEvidence, until: u64) -> Result<Outlook, Reason> {
    let time = cold::judge_time(&evidence.clock);
    let pods = match &evidence.static_pods {
        Look::Seen(pods) => pods.as_ref(),
        Look::Unseen(_) => None,
    };
    let all = cold::list_certificates(evidence);
    let mut unseen = evidence.certificates_unseen.clone();
    unseen.extend(
        pods.into_iter()
            .flat_map(|pods| pods.unseen.iter().cloned()),
    );
    if let Look::Unseen(why) = &evidence.static_pods {
        unseen.push(format!("static pods: {why}"));
    }
    let joins = matches!(evidence.kubeconfig, Look::Seen(Kubeconfig::There));
    if all.is_empty() && unseen.is_empty() && !joins {
        let why = "this root has no certificate of a kubelet or of a control plane, so there is nothing that expires";
        return Err(why.into());
    }
    let node = match pods {
        Some(_) => NodeKind::ControlPlane,
        None => NodeKind::Worker,
    };
    let mut steps: Vec<OutlookStep> = all.iter().map(|one| step_of(one, node)).collect();
    steps.extend(of_authorities(evidence));
    steps.extend(without_client(evidence, &all, time.now));
    steps.order_by_key(|step| step.at);
    let day = |verdict| {
        let first = steps.iter().find(|step| step.verdict >= verdict)?;
        format_utc(first.at).split('T').next().map(str::to_owned)
    };
    let worst = steps
        .iter()
        .filter(|step| step.at < until)
        .map(|step| step.verdict);
    let mut notes = note_clock(&time);
    notes.extend(bootstrap_note(evidence));
    notes.extend(young_note(&all));
    notes.extend(pods.into_iter().flat_map(note_pods));
    let approvals = list_approvals(&all, &steps, node);
    let is_known = !steps.is_empty() && unseen.is_empty();
    let otherwise = if is_known {
        OutlookVerdict::ByItself
    } else {
        OutlookVerdict::Unknown
    };
    let worst = worst
        .max()
        .filter(|worst| *worst > OutlookVerdict::ByItself);
    Ok(Outlook {
        next: if approvals.is_empty() {
            Vec::new()
        } else {
            list_commands(&all, node, until)
        },
        node,
        now: time.now,
        until,
        verdict: worst.unwrap_or(otherwise),
        first_day: day(OutlookVerdict::NeedsHands),
        lost_day: day(OutlookVerdict::Lost),
        approvals,
        steps,
        notes,
        unseen,
    })
}

fn step_of(one: &ColdCertificate, node: NodeKind) -> OutlookStep {
    use OutlookVerdict::{ByItself, Lost, NeedsHands};
    let (verdict, means) = match one.renewer {
        Renewer::Regeneration => (
            ByItself,
            "the cert-regeneration-controller in kube-apiserver's pod makes a new one when it starts",
        ),
        Renewer::Recovery => (
            ByItself,
            "the recovery-controller in kube-controller-manager's pod makes a new one when it starts",
        ),
        Renewer::Operator if one.path.contains("/node-kubeconfigs/") => (
            NeedsHands,
            "the node has no valid kubeconfig of an admin: approvals need one from elsewhere, such as the installer's",
        ),
        Renewer::Operator => (
            ByItself,
            "its operator writes a new one, after the kubelets are back",
        ),
        Renewer::Admin => (
            ByItself,
            "it stops no recovery, but clients refuse the API until its admin renews it",
        ),
        Renewer::KubeletClient if node == NodeKind::ControlPlane => (
            NeedsHands,
            "the kubelet's request stays Pending: the machine-approver does not run while the control plane comes back",
        ),
        Renewer::KubeletClient => (
            NeedsHands,
            "the kubelet asks again as node-bootstrapper, and that request of a known node stays Pending",
        ),
        Renewer::KubeletServing => (
            ByItself,
            "the kubelet asks for a new one when its client certificate works; oc logs and exec fail until it is approved",
        ),
        Renewer::Nothing if one.name == "etcd-client" || one.name == "etcd-serving-ca" => (
            Lost,
            "the API server cannot use etcd, and nothing on this node renews this",
        ),
        Renewer::Nothing if one.name.contains("etcd") => (
            Lost,
            "etcd's members refuse each other, and its operator renews them only in a cluster that runs",
        ),
        Renewer::Nothing => (
            Lost,
            "the controllers that renew everything else cannot reach the API server by the name localhost-recovery",
        ),
    };
    let means = match &one.ended_by {
        Some(issuer) => format!("{means} (its authority {issuer} ends first)"),
        None => means.to_owned(),
    };
    OutlookStep {
        at: one.not_after,
        verdict,
        name: one.name.clone(),
        path: one.path.clone(),
        subject: one.subject.clone(),
        means,
        renewed_from: one.renewed_from,
    }
}

/// Returns the steps for bundles that the kubelet trusts, and for those of clients that may ask it for logs: of each the
/// authority that expires last.
fn of_authorities(evidence: &DoctorEvidence) -> Vec<OutlookStep> {
    let certificates = evidence.certificates.get();
    let of = |path: String| -> Option<&Certificate> {
        let all = certificates?.iter().filter(|one| one.path == path);
        all.max_by_key(|one| one.not_after)
    };
    let step = |one: &Certificate, name: &str, verdict, means: &str| OutlookStep {
        at: one.not_after,
        verdict,
        name: name.to_owned(),
        path: one.path.clone(),
        subject: one.subject.clone(),
        means: means.to_owned(),
        renewed_from: one.not_after,
    };
    let mut steps = Vec::new();
    if let Some(one) = of(format!("/{}", paths::KUBECONFIG)) {
        let means = "the kubelet refuses the API server when it asks for a certificate: copy the file from another node";
        steps.push(step(
            one,
            "the authorities of the bootstrap kubeconfig",
            OutlookVerdict::NeedsHands,
            means,
        ));
    }
    let signer = certificates.into_iter().flatten();
    let signer = signer
        .filter(|one| one.role == CertificateRole::ClientAuthority)
        .max_by_key(|one| one.not_after);
    if let Some(one) = signer {
        let means = "the kubelet refuses the API server's requests: oc logs and exec fail until the daemon writes a new bundle";
        steps.push(step(one, "kubelet-ca.crt", OutlookVerdict::ByItself, means));
    }
    steps
}

/// Returns the outlook for a kubelet without a client certificate, which needs an admin now.
fn without_client(
    evidence: &DoctorEvidence,
    all: &[ColdCertificate],
    now: u64,
) -> Option<OutlookStep> {
    let has = all.iter().any(|one| one.renewer == Renewer::KubeletClient);
    let path = format!("/{}", paths::KUBELET_CLIENT);
    let unseen = evidence
        .certificates_unseen
        .iter()
        .any(|why| why.contains(&path));
    (!has && !unseen).then(|| OutlookStep {
        at: now,
        verdict: OutlookVerdict::NeedsHands,
        name: "the kubelet's client certificate".to_owned(),
        path,
        subject: String::new(),
        means: "it is missing: the kubelet asks for one as node-bootstrapper at its start, and that waits for an approval"
            .to_owned(),
        renewed_from: now,
    })
}

fn list_approvals(all: &[ColdCertificate], steps: &[OutlookStep], node: NodeKind) -> Vec<Approval> {
    let client = steps.iter().find(|step| {
        step.path.ends_with("/kubelet-client-current.pem")
            && step.verdict == OutlookVerdict::NeedsHands
    });
    let Some(client) = client else {
        return Vec::new();
    };
    let serving = all
        .iter()
        .find(|one| one.renewer == Renewer::KubeletServing);
    let when = match node {
        NodeKind::ControlPlane => {
            "after the API server of a control-plane node answers; for every node of the cluster"
        }
        NodeKind::Worker => "after this node has booted and reaches the API",
    };
    let later = "a minute after the first one; approved by itself only for machines that the cluster manages";
    let first = Approval {
        requests: "client",
        from: client.at,
        when: when.to_owned(),
    };
    // Without one, the kubelet requests it as soon as it may.
    let ends = serving.map_or(client.at, |serving| serving.not_after);
    let second = Approval {
        requests: "server",
        from: ends.max(client.at),
        when: later.to_owned(),
    };
    vec![first, second]
}

/// Returns an admin's commands: on a control plane that recovers, with the node's kubeconfig while that is valid.
fn list_commands(all: &[ColdCertificate], node: NodeKind, until: u64) -> Vec<String> {
    let own = all.iter().find(|one| one.path == cold::RECOVERY);
    let with = match (node, own) {
        (NodeKind::Worker, _) => String::new(),
        (NodeKind::ControlPlane, Some(own)) if own.not_after > until => {
            format!("KUBECONFIG={} ", cold::RECOVERY)
        }
        (NodeKind::ControlPlane, _) => "KUBECONFIG=KUBECONFIG-OF-AN-ADMIN ".to_owned(),
    };
    vec![
        format!("{with}oc get csr"),
        format!("{with}oc adm certificate approve NAME"),
    ]
}

/// Returns true if the pod starts from what is on the node.
fn is_whole(pod: &StaticPod) -> bool {
    let revision = pod.in_force().filter(|one| one.problems.is_empty());
    pod.running().is_some() && pod.certs.is_empty() && revision.is_some()
}

fn note_clock(time: &JudgedTime) -> Vec<String> {
    let doubt = time.doubt.as_ref().map(|_| {
        "The clock is ahead of the board's: find out which is right first (FP-15).".to_owned()
    });
    let by = time.by.as_ref();
    let by = by.map(|by| format!("The clock is wrong (FP-15). Dates are judged by {by}."));
    doubt.into_iter().chain(by).collect()
}

/// Returns the notes on a control plane.
fn note_pods(pods: &StaticPods) -> Vec<String> {
    let mut notes = Vec::new();
    if !pods.pods.iter().all(is_whole) {
        notes.push(
            "A static pod is not complete (FP-54). Repair it before the node goes off.".to_owned(),
        );
    }
    notes.push("The recovery also needs etcd with its quorum, and the images of the static pods on the node.".to_owned());
    notes
}

fn bootstrap_note(evidence: &DoctorEvidence) -> Option<String> {
    let state = match evidence.kubeconfig.get()? {
        Kubeconfig::There => return None,
        Kubeconfig::Empty => "empty",
        Kubeconfig::Missing => "missing",
    };
    Some(format!(
        "/{} is {state}: without it the kubelet cannot ask for a new certificate. Copy it from another node (FP-61).",
        paths::KUBECONFIG
    ))
}

/// Returns a note about the installer's signer, which lives for only a day; the next certificates last longer.
fn young_note(all: &[ColdCertificate]) -> Option<String> {
    let signed = |one: &&ColdCertificate| {
        matches!(one.renewer, Renewer::KubeletClient | Renewer::Recovery)
            && one.not_after.saturating_sub(one.not_before) <= DAY + DAY / 24
    };
    all.iter().any(|one| signed(&one)).then(|| {
        "The kubelets' first certificates live for a day at most: the cluster is younger than that, or renews every few hours. \
Let it run for 25 hours after its installation, and look again, before it goes off for longer."
            .to_owned()
    })
}
