//! Whom a node asks for names, as its files tell it.

use std::net::IpAddr;

use resolv_conf::Config;

use crate::paths;
use crate::root::{Root, RootError, RootPath};

/// The static pod that answers for the cluster's names on platforms without a DNS of their own.
const OWN_SERVER: &str = "etc/kubernetes/manifests/coredns.yaml";

/// What the files say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameServers {
    /// There is an `/etc/resolv.conf`.
    pub file: bool,
    /// The servers in it.
    pub servers: Vec<IpAddr>,
    /// The node answers for the cluster's names itself, by a static pod.
    pub own: bool,
}

impl NameServers {
    /// Servers that are somewhere else.
    pub fn elsewhere(&self) -> impl Iterator<Item = &IpAddr> {
        self.servers.iter().filter(|server| !server.is_loopback())
    }
}

/// Reads them.
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
