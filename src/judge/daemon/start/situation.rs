//! What the daemon's start depends on: annotations, records, the API, and the files that request something.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::reason::Reason;
use crate::config::document::MachineConfig;
use crate::judge::daemon::first_boot::FirstBootWork;
use crate::judge::daemon::midway::Failure;
use crate::judge::daemon::policies::{ClusterPolicies, Overrides};
use crate::judge::daemon::release::Release;
use crate::judge::drift::Drift;
use crate::node::os_release::Class;

/// Prefix of the daemon's annotations.
pub const PREFIX: &str = "machineconfiguration.openshift.io/";

/// Placeholder for a config whose name only the API knows.
pub const OF_CURRENT: &str = "the one that the node's annotation currentConfig names";

/// Placeholder for the target of the node's pool.
pub const OF_POOL: &str = "(the one that the pool targets)";

/// An annotation of the Node object, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Annotation {
    /// No source is available.
    #[default]
    Unknown,
    /// The Node does not have it, or it is empty.
    Absent,
    /// Its value.
    Is(String),
}

impl Annotation {
    /// Converts a value from an answer of the API.
    pub fn from_answer(value: Option<&str>) -> Self {
        match value {
            None | Some("") => Self::Absent,
            Some(value) => Self::Is(value.to_owned()),
        }
    }

    pub(super) fn value(&self) -> Option<&str> {
        match self {
            Self::Is(value) => Some(value),
            Self::Unknown | Self::Absent => None,
        }
    }
}

/// The annotations that decide about the daemon's start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StartAnnotations {
    /// `currentConfig`.
    pub current: Annotation,
    /// `desiredConfig`.
    pub desired: Annotation,
    /// `currentImage`.
    pub current_image: Annotation,
    /// `desiredImage`.
    pub desired_image: Annotation,
}

/// `currentconfig`, as the daemon reads it.
#[derive(Debug, Clone, Copy)]
pub enum DaemonRecord<'a> {
    /// No such file.
    Missing,
    /// The daemon's message about an unreadable file.
    Broken(&'a str),
    /// A file that the daemon cannot read, for this reason; its message is not known here.
    Undecodable(&'a Reason),
    /// A file that the daemon reads, but that is refused here.
    Refused {
        /// The name in it.
        name: &'a str,
        /// The reason.
        why: &'a Reason,
    },
    /// A config.
    Present(&'a MachineConfig),
}

/// A config of the API whose contents are available here.
#[derive(Debug, Clone, Copy)]
pub struct KnownConfig<'a> {
    /// The contents.
    pub config: &'a MachineConfig,
    /// True if the hash in its name matches the contents, so the API's object is the same.
    pub proven: bool,
}

/// The comparison of the disk with one config.
#[derive(Debug, Clone, Default)]
pub struct DiskComparison {
    /// The differences, in the daemon's order.
    pub drifts: Vec<Drift>,
    /// True if the operating system should be compared too, but could not be queried.
    pub os_unknown: bool,
    /// The error with which the last shutdown failed to write the staged deployment; the daemon adds it to its message.
    pub root_cause: Option<String>,
}

/// Compares the disk with a config and a layered image.
type Compare<'a> = &'a dyn Fn(&MachineConfig, Option<&str>) -> DiskComparison;

/// Returns the failure of an update to the config of a name, as far as it is known.
type Fails<'a> = &'a dyn Fn(&str) -> Option<Failure>;

/// The operating system, as far as the start of the daemon depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartOs {
    /// The daemon's classification of it.
    pub class: Class,
    /// The running image; `None` if rpm-ostree was not queried.
    pub booted: Option<String>,
    /// Installed extension packages; `None` if rpm was not queried.
    pub packages: Option<BTreeSet<String>>,
    /// Podman's error, if it was asked for an image and failed.
    pub podman: Option<String>,
}

/// Files that the daemon checks, or that trigger an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(clippy::struct_excessive_bools, reason = "files that exist, or not")]
pub struct Triggers {
    /// The encapsulated config of a first boot.
    pub encapsulated: bool,
    /// `/run/machine-config-daemon-force`.
    pub force: bool,
    /// The file of the service that leaves on-cluster layering, or its unit.
    pub revert: bool,
    /// `/etc/kubernetes/kubeconfig`.
    pub kubeconfig: bool,
    /// `/etc/yum.repos.d/coreos-extensions.repo`.
    pub repository: bool,
    /// True if a deployment is staged for the next boot.
    pub staged: bool,
}

/// A node as the daemon will find it.
#[derive(Clone, Copy)]
#[allow(
    missing_debug_implementations,
    reason = "whole configs with their secrets must not get into a message"
)]
pub struct Situation<'a> {
    /// The release of the daemon.
    pub release: Release,
    /// Name of the Node.
    pub node: &'a str,
    /// Its annotations.
    pub annotations: &'a StartAnnotations,
    /// True if the cluster has one node, so the daemon requests no drain.
    pub single_replica: bool,
    /// The config that the pool targets, if it is known.
    pub pool_target: Option<&'a str>,
    /// The contents of configs, by name.
    pub configs: &'a BTreeMap<String, KnownConfig<'a>>,
    /// `currentconfig`.
    pub record: DaemonRecord<'a>,
    /// `currentimage`.
    pub image: Option<&'a str>,
    /// `node-annotations.json`: its content, or the parser's error. While it exists, the daemon treats this as the node's first
    /// boot.
    pub initial: Option<Result<&'a StartAnnotations, &'a Reason>>,
    /// Other files.
    pub triggers: Triggers,
    /// Work left for the first-boot service, if its file exists.
    pub first_boot: &'a FirstBootWork,
    /// The operating system.
    pub os: &'a StartOs,
    /// FIPS mode of the kernel, if it is known.
    pub fips: Option<bool>,
    /// The node disruption policies.
    pub policies: &'a ClusterPolicies,
    /// True if the policies are the cluster's own, not the defaults.
    pub policies_known: bool,
    /// The changes of storage sections that the cluster allows, if known.
    pub overrides: Option<&'a Overrides>,
    /// Compares the disk with a config.
    pub compare: Compare<'a>,
    /// Returns the failure of an update on this disk.
    pub fails: Fails<'a>,
}
