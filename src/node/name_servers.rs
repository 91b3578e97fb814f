//! The name servers of a node, from its files.

use std::net::IpAddr;

use resolv_conf::Config;

use crate::paths;
use crate::root::{Root, RootError, RootPath};

/// The static pod that answers for the cluster's names on platforms without DNS.
const OWN_SERVER: &str = "etc/kubernetes/manifests/coredns.yaml";

/// The name servers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameServers {
    /// `/etc/resolv.conf` exists.
    pub file: bool,
    /// The servers in it.
    pub servers: Vec<IpAddr>,
    /// The node runs its own name server, as a static pod.
    pub own: bool,
}

impl NameServers {
    /// Returns the servers on other machines.
    pub fn elsewhere(&self) -> impl Iterator<Item = &IpAddr> {
        self.servers.iter().filter(|server| !server.is_loopback())
    }
}

/// Reads the name servers.
///
/// # Errors
/// A file that cannot be read.
pub fn read(root: &Root) -> Result<NameServers, RootError> {
    let bytes = root.read(&RootPath::fixed(paths::RESOLV_CONF))?;
    let file = bytes.is_some();
    let (config, _) = Config::parse_with_errors(&bytes.unwrap_or_default());
    Ok(NameServers {
        file,
        servers: config.nameservers.iter().map(IpAddr::from).collect(),
        own: root.exists(&RootPath::fixed(OWN_SERVER))?,
    })
}
