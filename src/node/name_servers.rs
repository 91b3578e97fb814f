//! The name servers of a node, from its files.

use std::net::IpAddr;

use resolv_conf::Config;

use crate::base::paths;
use crate::host::root::{Root, RootError, RootPath};

/// The static pod that answers queries for the cluster's names on platforms without DNS.
const OWN_SERVER: &str = "etc/kubernetes/manifests/coredns.yaml";

/// The configuration of name sources for all programs.
const SOURCES: &str = "etc/nsswitch.conf";
/// Sources for host names that query a name server.
const ASKING: [&str; 3] = ["dns", "resolve", "sss"];

/// The name servers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameServers {
    /// `/etc/resolv.conf` exists.
    pub file: bool,
    /// The target of `/etc/resolv.conf`, if it is a broken link.
    pub dangling: Option<String>,
    /// The servers in it.
    pub servers: Vec<IpAddr>,
    /// The node has its own name server in a static pod.
    pub own: bool,
    /// The `hosts:` line of `/etc/nsswitch.conf`, if it has no source that queries a name server.
    pub no_source: Option<String>,
}

impl NameServers {
    /// Returns the servers on other machines.
    pub fn remote_servers(&self) -> impl Iterator<Item = &IpAddr> {
        self.servers.iter().filter(|server| !server.is_loopback())
    }
}

/// Reads the name servers.
///
/// # Errors
/// A file cannot be read.
pub fn read_name_servers(root: &Root) -> Result<NameServers, RootError> {
    let path = RootPath::fixed(paths::RESOLV_CONF);
    let bytes = root.read(&path)?;
    let file = bytes.is_some();
    let dangling = if file { None } else { root.read_link(&path)? };
    let (config, _) = Config::parse_with_errors(&bytes.unwrap_or_default());
    Ok(NameServers {
        file,
        dangling,
        servers: config.nameservers.iter().map(IpAddr::from).collect(),
        own: root.exists(&RootPath::fixed(OWN_SERVER))?,
        no_source: root
            .read_small(&RootPath::fixed(SOURCES))?
            .and_then(|bytes| find_no_source(&String::from_utf8_lossy(&bytes))),
    })
}

/// Returns the `hosts:` line, if it has no source that queries a name server.
fn find_no_source(text: &str) -> Option<String> {
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim());
    let mut hosts = lines.filter_map(|line| line.strip_prefix("hosts:"));
    let words = hosts.next_back()?;
    let asks = words.split_whitespace().any(|word| ASKING.contains(&word));
    (!asks).then(|| format!("hosts:{words}"))
}
