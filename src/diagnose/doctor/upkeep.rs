//! Parts of a node outside of its configs: logins, labels, stamps, secrets, unit links, name servers.

use crate::base::reason::Reason;
use crate::formats::systemd::JudgedUnit;
use crate::judge::daemon::start::StartAnnotations;
use crate::node::Mislabelled;
use crate::node::builds::Builds;
use crate::node::images::auth::Secrets;
use crate::node::lasting::Transient;
use crate::node::login::Login;
use crate::node::name_servers::NameServers;
use crate::node::stamps::Stamps;
use crate::node::unit_links::UnitLink;

use super::Look;

/// Evidence about the parts of a node outside of its configs.
#[derive(Debug, Clone, Default)]
pub struct Upkeep {
    /// The directory that was read: on a disk, that of its deployment.
    pub directory: String,
    /// SELinux labels of the recorded config's objects.
    pub labels: Look<LabelEvidence>,
    /// The keys and passwords that allow a login.
    pub login: Look<Login>,
    /// Files with credentials of registries.
    pub secrets: Look<Vec<Secrets>>,
    /// Links that lead nowhere.
    pub unit_links: Look<Vec<UnitLink>>,
    /// Units that systemd rejects, or of which it ignores a setting.
    pub judged_units: Look<Vec<JudgedUnit>>,
    /// Backup copies and stamps of the daemon.
    pub stamps: Look<Stamps>,
    /// The name servers of the node.
    pub name_servers: Look<NameServers>,
    /// Build dates of boot image and OS.
    pub builds: Look<Builds>,
    /// `node-annotations.json`: its content, or the parser's error; `None` if it is missing.
    pub annotations: Look<Option<Result<StartAnnotations, Reason>>>,
    /// The records in the other deployments.
    pub elsewhere: Look<Vec<Elsewhere>>,
    /// The parts that every boot recreates.
    pub transient: Look<Transient>,
    /// Time at which the record of this root was written; seconds since 1970.
    pub record_written: Option<u64>,
    /// True if the `/var` of this deployment is not mounted; its data is in the stateroot.
    pub var_missing: bool,
    /// FIPS mode of the kernel, if known.
    pub fips: Option<bool>,
    /// Whether the root has the kubelet's unit, which only a config creates.
    pub has_kubelet_unit: Look<bool>,
    /// The architecture as `uname -m` prints it, if known.
    pub architecture: Option<&'static str>,
    /// The kernel's terminals; only for a running system.
    pub terminals: Option<Vec<String>>,
}

/// SELinux labels of a root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelEvidence {
    /// The reason, if there is a policy but it yields no labels.
    pub unusable: Option<String>,
    /// Objects whose label differs from the policy.
    pub wrong: Vec<Mislabelled>,
}

/// The daemon's record in another deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elsewhere {
    /// `CHECKSUM.SERIAL`.
    pub deployment: String,
    /// Path of the record.
    pub path: String,
    /// Name of the config.
    pub config: String,
    /// Time at which it was written; seconds since 1970.
    pub written: u64,
}
