//! What a node keeps beside its configs: ways to log in, labels, stamps, secrets, links of units, name servers.

use crate::daemon::start::Annotations;
use crate::images::auth::Secrets;
use crate::node::Mislabelled;
use crate::node::builds::Builds;
use crate::node::login::Login;
use crate::node::name_servers::NameServers;
use crate::node::stamps::Stamps;
use crate::node::unit_links::UnitLink;

use super::Look;

/// All of it.
#[derive(Debug, Clone, Default)]
pub struct Upkeep {
    /// The directory that was looked at: of a disk, its deployment.
    pub directory: String,
    /// Labels of what the recorded config wants.
    pub labels: Look<Labels>,
    /// Who can log in.
    pub login: Look<Login>,
    /// Files with credentials of registries.
    pub secrets: Look<Vec<Secrets>>,
    /// Links that lead nowhere.
    pub unit_links: Look<Vec<UnitLink>>,
    /// Originals that the daemon keeps.
    pub stamps: Look<Stamps>,
    /// Whom it asks for names.
    pub name_servers: Look<NameServers>,
    /// When its parts were built.
    pub builds: Look<Builds>,
    /// `node-annotations.json`: what it says, or the words of its parser; nothing where there is none.
    pub annotations: Look<Option<Result<Annotations, String>>>,
    /// The records in the other deployments.
    pub elsewhere: Look<Vec<Elsewhere>>,
    /// When the record of this root was written; seconds since 1970.
    pub record_written: Option<u64>,
    /// Nothing is mounted at the `/var` of this deployment; its own is in the stateroot.
    pub var_missing: bool,
    /// FIPS mode of the kernel, where it is known.
    pub fips: Option<bool>,
    /// Packages that were asked for on top of the image, as files tell it.
    pub packages: Option<Vec<String>>,
    /// The terminals that the kernel has; of a running system only.
    pub terminals: Option<Vec<String>>,
}

/// SELinux, as far as it depends on the root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels {
    /// Why the policy gives no labels, where there is one.
    pub unusable: Option<String>,
    /// What has another label than the policy gives.
    pub wrong: Vec<Mislabelled>,
}

/// The daemon's record in another deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elsewhere {
    /// `CHECKSUM.SERIAL`.
    pub deployment: String,
    /// The file.
    pub path: String,
    /// Name of the config.
    pub config: String,
    /// When it was written; seconds since 1970.
    pub written: u64,
}
