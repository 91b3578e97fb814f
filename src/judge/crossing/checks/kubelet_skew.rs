//! Does the cluster's API server accept the image's kubelet?

use crate::formats::checkpoint::kubernetes_minor;
use crate::judge::crossing::{CrossingCheck, CrossingFinding, Target};
use crate::node::platform::{ApiServerPod, Platform};

/// The check.
pub(super) const CHECK: CrossingCheck = CrossingCheck::of_image("kubelet-skew", judge);

/// Number of minor versions by which a kubelet may be older than the API server.
const OLDEST: u32 = 3;

/// A version, to the precision that the skew needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SkewVersion {
    OpenShift(u32, u32),
    Kubernetes(u32, u32),
}

impl SkewVersion {
    /// Returns the minor version of Kubernetes.
    pub(super) fn kubernetes_minor(self) -> Option<u32> {
        match self {
            Self::OpenShift(major, minor) => kubernetes_minor(&format!("{major}.{minor}")),
            Self::Kubernetes(1, minor) => Some(minor),
            Self::Kubernetes(..) => None,
        }
    }
}

fn judge(target: &Target, node: &Platform) -> Vec<CrossingFinding> {
    let Some((place, said, kubelet)) = kubelet_of(target) else {
        return Vec::new();
    };
    let unknown = |what: String| {
        CrossingFinding::unknown("kubelet", what)
            .with_evidence(&place, &said)
            .next("Compare with the control plane: oc get clusterversion version")
    };
    let server = match &node.api_server {
        Ok(server) => server.as_ref(),
        Err(reason) => {
            let what = format!("the release of the API server is not known: {reason}");
            return vec![unknown(what)];
        }
    };
    if let Some(server) = server
        && let Some((words, version)) = same_kind(server, kubelet)
    {
        return compare_versions(kubelet, version, &words)
            .map(|finding| {
                finding
                    .with_evidence(&place, said)
                    .with_evidence(&server.place, words)
            })
            .into_iter()
            .collect();
    }
    // The node's own release is never newer than that of the control plane.
    match own_release(node) {
        Some((_, version, _)) if !is_newer(kubelet, version) => Vec::new(),
        Some((own_place, _, text)) => vec![
            unknown(format!(
                "the image's kubelet is newer than the node's release {text}; the release of the API server is not known here"
            ))
            .with_evidence(own_place, text)
            .with_prevented("the kubelet registers with an older API server, and the node is NotReady"),
        ],
        None => vec![unknown(
            "neither the release of the API server nor that of the node is known here".to_owned(),
        )],
    }
}

/// Returns the place, the version and the text of the node's own release.
pub(super) fn own_release<'a>(node: &'a Platform) -> Option<(&'static str, SkewVersion, &'a str)> {
    let own = [
        (
            "/etc/machine-config-daemon/currentconfig",
            node.record.release.as_str(),
        ),
        ("/etc/os-release", node.os_release.get("OPENSHIFT_VERSION")),
        (
            "/etc/os-release",
            openshift_of_version_id(node.os_release.get("VERSION_ID")),
        ),
    ];
    let known =
        |(place, text): (&'static str, &'a str)| Some((place, parse_openshift(text)?, text));
    own.into_iter().find_map(known)
}

/// Returns the place, the text and the version of the image's kubelet.
pub(super) fn kubelet_of(target: &Target) -> Option<(String, String, SkewVersion)> {
    for name in ["openshift-kubelet", "openshift-hyperkube", "kubelet"] {
        if let Some(package) = target.find_package(name) {
            let version = match parse_pair(&package.version)? {
                (1, minor) => SkewVersion::Kubernetes(1, minor),
                (major, minor) => SkewVersion::OpenShift(major, minor),
            };
            let said = format!("{name}-{}", package.version);
            return Some((format!("packages of {}", target.tree.source), said, version));
        }
    }
    let text = target.os_release.get("OPENSHIFT_VERSION");
    let place = "usr/lib/os-release of the image".to_owned();
    Some((
        place,
        format!("OPENSHIFT_VERSION={text}"),
        parse_openshift(text)?,
    ))
}

/// Returns the API server's version, if it is comparable with this one.
fn same_kind(server: &ApiServerPod, kubelet: SkewVersion) -> Option<(String, SkewVersion)> {
    match kubelet {
        SkewVersion::OpenShift(..) => {
            let text = server.release.as_deref()?;
            Some((format!("version {text}"), parse_openshift(text)?))
        }
        SkewVersion::Kubernetes(..) => {
            let text = server.kubernetes.as_deref()?;
            let (major, minor) = parse_pair(text)?;
            Some((
                format!("kubernetes={text}"),
                SkewVersion::Kubernetes(major, minor),
            ))
        }
    }
}

fn compare_versions(
    kubelet: SkewVersion,
    server: SkewVersion,
    words: &str,
) -> Option<CrossingFinding> {
    let (SkewVersion::OpenShift(major, minor) | SkewVersion::Kubernetes(major, minor)) = kubelet;
    let (SkewVersion::OpenShift(of_server, its_minor)
    | SkewVersion::Kubernetes(of_server, its_minor)) = server;
    if is_newer(kubelet, server) {
        let what = format!("the image's kubelet is newer than the API server ({words})");
        let finding = CrossingFinding::inhibitor("kubelet", what);
        return Some(
            finding
                .with_prevented("the kubelet asks for what the API server does not have, and the node is NotReady")
                .next("Take the image of the cluster's release: oc adm release info --image-for=rhel-coreos"),
        );
    }
    let is_too_old = major == of_server && its_minor > minor + OLDEST;
    is_too_old.then(|| {
        let what = format!("the image's kubelet is more than {OLDEST} minor versions older than the API server ({words})");
        CrossingFinding::warning("kubelet", what)
            .next("Take the image of the cluster's release: oc adm release info --image-for=rhel-coreos")
    })
}

fn is_newer(one: SkewVersion, other: SkewVersion) -> bool {
    match (one, other) {
        (SkewVersion::OpenShift(a, b), SkewVersion::OpenShift(c, d))
        | (SkewVersion::Kubernetes(a, b), SkewVersion::Kubernetes(c, d)) => (a, b) > (c, d),
        // Not comparable: assume nothing.
        _ => true,
    }
}

/// Returns OpenShift's version from `VERSION_ID`: an old CoreOS has it there, a newer one has that of its base.
fn openshift_of_version_id(text: &str) -> &str {
    if text.starts_with("4.") { text } else { "" }
}

fn parse_openshift(text: &str) -> Option<SkewVersion> {
    let (major, minor) = parse_pair(text)?;
    (major >= 4).then_some(SkewVersion::OpenShift(major, minor))
}

/// Returns the first two numbers of a version such as `v4.18.3-rc.1`.
fn parse_pair(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text
        .trim()
        .trim_start_matches('v')
        .split(['.', '-', '_', '~']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}
