//! The certificates of a node that is off for a long time: what renews each one, and what waits for it.
//!
//! Pure. Shared by the check FP-39 and the outlook of `doctor --until`.

use crate::base::order::StableOrder;
use crate::diagnose::doctor::DoctorEvidence;
use crate::node::certificates::{Certificate, CertificateRole};
use crate::node::clock::Clock;
use crate::node::static_pods::{PodCertificate, StaticPods};

/// The program that renews a certificate after it has expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewer {
    /// The cert-regeneration-controller in the pod of the API server.
    Regeneration,
    /// The recovery-controller in the pod of the controller manager.
    Recovery,
    /// An operator, in a pod that runs only once the kubelets have their certificates.
    Operator,
    /// The kubelet, with a request for its client certificate.
    KubeletClient,
    /// The kubelet, with a request for its server certificate.
    KubeletServing,
    /// The person who installed it.
    Admin,
    /// No program on this node.
    Nothing,
}

/// A certificate, or a bundle of authorities, with its renewal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColdCertificate {
    /// A short name, such as `aggregator-client`.
    pub name: String,
    /// Path of its file.
    pub path: String,
    /// Its subject; for a bundle, that of the authority that expires last.
    pub subject: String,
    /// Start of its validity; seconds since 1970.
    pub not_before: u64,
    /// End of its validity, or of its issuer's if that is earlier; seconds since 1970.
    pub not_after: u64,
    /// The issuer's subject, if the issuer expires first.
    pub ended_by: Option<String>,
    /// The program that renews it.
    pub renewer: Renewer,
    /// Time from which a running cluster renews it; seconds since 1970.
    pub renewed_from: u64,
    /// FP-09 reports it.
    pub of_fp_09: bool,
}

/// The admin's kubeconfig that works while this node's API server runs alone.
pub const RECOVERY: &str = "/etc/kubernetes/static-pod-resources/kube-apiserver-certs/secrets/node-kubeconfigs/localhost-recovery.kubeconfig";

/// Fraction of its lifetime after which a running cluster renews a certificate.
type Part = (u64, u64);

const HALF: Part = (1, 2);
/// For those of etcd and of the recovery, in the newest releases.
const LATE: Part = (4, 5);
/// The kubeconfigs of a node are renewed every month, for two years.
const MONTH_OF_TWO_YEARS: Part = (30, 730);

/// The time by which certificates are judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JudgedTime {
    /// Seconds since 1970.
    pub now: u64,
    /// The source of a time that is not this machine's clock.
    pub by: Option<String>,
    /// The reason why no date can be judged, if two clocks contradict each other.
    pub doubt: Option<String>,
}

/// Secrets that the cert-regeneration-controller renews once they have expired.
const REGENERATED: [&str; 10] = [
    "aggregator-client",
    "kubelet-client",
    "localhost-serving-cert-certkey",
    "service-network-serving-certkey",
    "external-loadbalancer-serving-certkey",
    "internal-loadbalancer-serving-certkey",
    "control-plane-node-admin-client-cert-key",
    "check-endpoints-client-cert-key",
    "kube-controller-manager-client-cert-key",
    "kube-scheduler-client-cert-key",
];

/// Seconds by which clocks may differ without changing a verdict.
const TOLERANCE: u64 = 600;
const DAY: u64 = 86_400;

/// Chooses the time: the server's, if it answered now; or a later moment that has certainly passed; otherwise the clock's.
pub fn judge_time(clock: &Clock) -> JudgedTime {
    let at = |now, by| JudgedTime {
        now,
        by: Some(by),
        doubt: None,
    };
    if let Some(server) = clock.server.as_ref().filter(|server| server.now) {
        let own = server.own.unwrap_or(clock.now);
        if own.abs_diff(server.said) > TOLERANCE {
            let place = format!("the clock of {}", server.place);
            return at(
                clock.now.saturating_add(server.said).saturating_sub(own),
                place,
            );
        }
    } else {
        let passed = clock.passed.iter().filter(|one| one.foreign);
        let later = passed
            .filter(|one| one.at > clock.now.saturating_add(TOLERANCE))
            .max_by_key(|one| one.at);
        if let Some(later) = later {
            return at(later.at, later.place.clone());
        }
    }
    let board = clock.board.filter(|board| {
        // A hardware clock that was never set proves nothing.
        let told = clock.passed.iter().filter(|one| one.foreign);
        let newest = told.map(|one| one.at).max().unwrap_or_default();
        clock.server.as_ref().is_none_or(|server| !server.now)
            && board.saturating_add(DAY) < clock.now
            && *board >= newest
    });
    JudgedTime {
        now: clock.now,
        by: None,
        doubt: board.map(|_| {
            "the clock is ahead of the board's, so no date is judged; FP-15 has both".to_owned()
        }),
    }
}

/// Returns the certificates of the node, sorted by expiry.
pub fn list_certificates(evidence: &DoctorEvidence) -> Vec<ColdCertificate> {
    let mut all = Vec::new();
    for one in evidence.certificates.get().into_iter().flatten() {
        all.extend(of_kubelet(one));
    }
    if let Some(Some(pods)) = evidence.static_pods.get() {
        all.extend(of_static_pods(pods));
    }
    all.order_by(|a, b| (a.not_after, &a.path).cmp(&(b.not_after, &b.path)));
    all
}

fn of_kubelet(one: &Certificate) -> Option<ColdCertificate> {
    let (name, renewer) = match one.role {
        CertificateRole::KubeletClient => {
            ("the kubelet's client certificate", Renewer::KubeletClient)
        }
        CertificateRole::KubeletServing => {
            ("the kubelet's server certificate", Renewer::KubeletServing)
        }
        _ => return None,
    };
    Some(ColdCertificate {
        name: name.to_owned(),
        path: one.path.clone(),
        subject: one.subject.clone(),
        not_before: one.not_before,
        not_after: one.not_after,
        ended_by: None,
        renewer,
        renewed_from: part_after(one.not_before, one.not_after, LATE),
        of_fp_09: true,
    })
}

fn part_after(from: u64, until: u64, (part, whole): Part) -> u64 {
    from.saturating_add(until.saturating_sub(from) / whole * part)
}

fn of_static_pods(pods: &StaticPods) -> Vec<ColdCertificate> {
    let mut all: Vec<ColdCertificate> = Vec::new();
    let bundles: Vec<&PodCertificate> = pods
        .certificates
        .iter()
        .filter(|one| one.in_bundle)
        .collect();
    for one in &pods.certificates {
        let Some((name, renewer, part)) = classify_file(&one.path) else {
            continue;
        };
        let issuer =
            issuer_of(one, &bundles).filter(|_| !one.in_bundle && renewer == Renewer::Nothing);
        let ended_by = issuer.filter(|issuer| issuer.not_after < one.not_after);
        let not_after = ended_by.map_or(one.not_after, |issuer| issuer.not_after);
        let new = ColdCertificate {
            name,
            path: one.path.clone(),
            subject: one.subject.clone(),
            not_before: one.not_before,
            not_after,
            ended_by: ended_by.map(|issuer| issuer.subject.clone()),
            renewer,
            renewed_from: part_after(one.not_before, one.not_after, part),
            of_fp_09: is_of_fp_09(&one.path),
        };
        // Expired authorities in a bundle are normal: the last one to expire counts.
        match all.iter_mut().find(|known| known.path == new.path) {
            Some(known) if known.not_after < new.not_after => *known = new,
            Some(_) => {}
            None => all.push(new),
        }
    }
    all
}

fn is_of_fp_09(path: &str) -> bool {
    path.contains("/etcd-certs/secrets/etcd-all-certs/")
}

/// Returns the authority that expires last of those that may have signed a certificate.
fn issuer_of<'a>(
    one: &PodCertificate,
    bundles: &[&'a PodCertificate],
) -> Option<&'a PodCertificate> {
    let signed = |authority: &&&PodCertificate| match (&one.issuer_key_id, &authority.key_id) {
        (Some(named), Some(own)) => named == own,
        _ => authority.subject == one.issuer,
    };
    let all = bundles.iter().filter(signed);
    all.copied().max_by_key(|authority| authority.not_after)
}

/// Returns the name of a file's certificate, what renews it, and the fraction of its lifetime after which that happens; `None`
/// for a certificate that recovery does not need.
fn classify_file(path: &str) -> Option<(String, Renewer, Part)> {
    let below = path.strip_prefix("/etc/kubernetes/static-pod-resources/")?;
    let mut parts = below.split('/');
    let (directory, kind, name, file) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem);
    let pod = directory.strip_suffix("-certs");
    let named = |renewer, part| Some((name.to_owned(), renewer, part));
    match (directory, pod, kind, name) {
        // Other people's authorities.
        (_, _, "configmaps", "trusted-ca-bundle" | "cloud-config") => None,
        (_, Some("etcd"), kind, "etcd-all-certs" | "etcd-all-bundles") => {
            classify_of_etcd(kind, name, stem)
        }

        // A copy of a file outside the revisions.
        (own, ..) if own.starts_with("etcd-pod-") => None,
        (_, None, "configmaps", "etcd-serving-ca" | "kube-apiserver-server-ca") => {
            named(Renewer::Nothing, LATE)
        }
        (_, None, "configmaps", "kubelet-serving-ca" | "serviceaccount-ca") => {
            named(Renewer::Operator, HALF)
        }
        (_, Some(_), "configmaps", "aggregator-client-ca" | "client-ca") => {
            named(Renewer::Regeneration, HALF)
        }
        (_, Some(_), "secrets", "node-kubeconfigs") => Some((
            stem.to_owned() + ".kubeconfig",
            Renewer::Operator,
            MONTH_OF_TWO_YEARS,
        )),
        (_, Some(_), "secrets", name) if name.starts_with("user-serving-cert") => {
            named(Renewer::Admin, HALF)
        }
        (_, Some(_), "secrets", "csr-signer") => named(Renewer::Recovery, HALF),
        (_, Some(_), "secrets", name) if REGENERATED.contains(&name) => {
            named(Renewer::Regeneration, HALF)
        }
        (_, None, "secrets", "localhost-recovery-serving-certkey" | "etcd-client") => {
            named(Renewer::Nothing, LATE)
        }
        (_, None, "secrets", "serving-cert") => named(Renewer::Operator, HALF),
        // Directories that no release uses any more remain on the disk for years, with their contents.
        _ => None,
    }
}

/// Returns the same for the files of etcd.
fn classify_of_etcd(kind: &str, name: &str, stem: &str) -> Option<(String, Renewer, Part)> {
    match (kind, name, stem) {
        ("secrets", "etcd-all-certs", stem) if stem.starts_with("etcd-serving-metrics-") => {
            Some((stem.to_owned(), Renewer::Operator, LATE))
        }
        ("secrets", "etcd-all-certs", stem) => Some((stem.to_owned(), Renewer::Nothing, LATE)),
        ("configmaps", "etcd-all-bundles", "server-ca-bundle") => {
            Some(("etcd's authorities".to_owned(), Renewer::Nothing, LATE))
        }
        ("configmaps", "etcd-all-bundles", stem) => {
            Some((stem.to_owned(), Renewer::Operator, LATE))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::clock::{Heard, PastMoment};

    /// Files of static pods, with their names and what renews them.
    const RENEWERS: &[(&str, &str, Renewer)] = &[
        (
            "kube-apiserver-certs/secrets/aggregator-client/tls.crt",
            "aggregator-client",
            Renewer::Regeneration,
        ),
        (
            "kube-apiserver-certs/secrets/node-kubeconfigs/lb-int.kubeconfig",
            "lb-int.kubeconfig",
            Renewer::Operator,
        ),
        (
            "kube-apiserver-certs/secrets/user-serving-cert-003/tls.crt",
            "user-serving-cert-003",
            Renewer::Admin,
        ),
        (
            "kube-apiserver-certs/configmaps/client-ca/ca-bundle.crt",
            "client-ca",
            Renewer::Regeneration,
        ),
        (
            "kube-apiserver-pod-8/secrets/etcd-client/tls.crt",
            "etcd-client",
            Renewer::Nothing,
        ),
        (
            "kube-apiserver-pod-8/secrets/localhost-recovery-serving-certkey/tls.crt",
            "localhost-recovery-serving-certkey",
            Renewer::Nothing,
        ),
        (
            "kube-controller-manager-certs/secrets/csr-signer/tls.crt",
            "csr-signer",
            Renewer::Recovery,
        ),
        (
            "kube-controller-manager-pod-3/secrets/serving-cert/tls.crt",
            "serving-cert",
            Renewer::Operator,
        ),
        (
            "kube-scheduler-certs/secrets/kube-scheduler-client-cert-key/tls.crt",
            "kube-scheduler-client-cert-key",
            Renewer::Regeneration,
        ),
        (
            "etcd-certs/secrets/etcd-all-certs/etcd-peer-a.b.crt",
            "etcd-peer-a.b",
            Renewer::Nothing,
        ),
        (
            "etcd-certs/secrets/etcd-all-certs/etcd-serving-metrics-a.crt",
            "etcd-serving-metrics-a",
            Renewer::Operator,
        ),
    ];

    #[test]
    fn each_file_has_its_renewer() {
        let of = |path: &str| {
            let path = format!("/etc/kubernetes/static-pod-resources/{path}");
            classify_file(&path).map(|(name, renewer, _)| (name, renewer))
        };
        for &(path, name, renewer) in RENEWERS {
            assert_eq!(of(path), Some((name.to_owned(), renewer)), "{path}");
        }
        for path in [
            "etcd-pod-8/secrets/etcd-all-certs/etcd-peer-a.crt",
            "kube-apiserver-certs/configmaps/trusted-ca-bundle/ca-bundle.crt",
            "configmaps/cloud-config/ca-bundle.pem",
            "kube-apiserver-certs/secrets/kube-apiserver-cert-syncer-client-cert-key/tls.crt",
        ] {
            assert_eq!(of(path), None, "{path}");
        }
    }

    #[test]
    fn the_time_is_that_of_the_best_source() {
        let moment = |at, foreign| PastMoment {
            place: "x".to_owned(),
            what: "",
            at,
            foreign,
        };
        let heard = |said, now| Heard {
            place: "s".to_owned(),
            said,
            own: Some(1_000_000),
            now,
        };
        let clock = Clock {
            now: 1_000_000,
            ..Clock::default()
        };
        let time = |change: &dyn Fn(&mut Clock)| {
            let mut clock = clock.clone();
            change(&mut clock);
            let time = judge_time(&clock);
            (time.now, time.by.is_some(), time.doubt.is_some())
        };
        assert_eq!(time(&|_| {}), (1_000_000, false, false));
        assert_eq!(
            time(&|clock| clock.server = Some(heard(400_000, true))),
            (400_000, true, false)
        );
        assert_eq!(
            time(&|clock| clock.server = Some(heard(1_000_100, true))),
            (1_000_000, false, false)
        );
        assert_eq!(
            time(&|clock| clock.server = Some(heard(400_000, false))),
            (1_000_000, false, false)
        );
        assert_eq!(
            time(&|clock| clock.passed.push(moment(2_000_000, true))),
            (2_000_000, true, false)
        );
        assert_eq!(
            time(&|clock| clock.passed.push(moment(2_000_000, false))),
            (1_000_000, false, false)
        );
        assert_eq!(
            time(&|clock| clock.board = Some(800_000)),
            (1_000_000, false, true)
        );
        // A hardware clock with an empty battery.
        let empty = |clock: &mut Clock| {
            clock.board = Some(800_000);
            clock.passed.push(moment(900_000, true));
        };
        assert_eq!(time(&empty), (1_000_000, false, false));
    }
}
