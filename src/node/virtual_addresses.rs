//! The virtual addresses of an on-premises cluster: the static pods keepalived and haproxy, their templates, and the files
//! rendered from them.

use std::net::IpAddr;

use super::static_network::parse_with_prefix;
use crate::host::root::{Root, RootError, RootPath};

const MANIFESTS: &str = "etc/kubernetes/manifests";
/// Directory of manifests that are disabled because the user has an external load balancer.
const DISABLED: &str = "etc/kubernetes/disabled-manifests";
const TEMPLATE: &str = "etc/kubernetes/static-pod-resources/keepalived/keepalived.conf.tmpl";
const BALANCER_TEMPLATE: &str = "etc/kubernetes/static-pod-resources/haproxy/haproxy.cfg.tmpl";
/// The configuration of keepalived.
pub const CONFIG: &str = "etc/keepalived/keepalived.conf";
/// The configuration of haproxy.
pub const BALANCER_CONFIG: &str = "etc/haproxy/haproxy.cfg";
/// Written by nodeip-configuration if the node is in another network; keepalived is then inactive.
pub const REMOTE_WORKER: &str = "run/nodeip-configuration/remote-worker";

/// The manifest of one of these static pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressPod {
    /// The kubelet runs it.
    Active,
    /// It is disabled: another load balancer does its work.
    Disabled,
    /// There is none.
    Missing,
}

/// A file that a pod renders from its template.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Rendered<T> {
    /// There is none.
    #[default]
    Missing,
    /// It has no content.
    Empty,
    /// Its content.
    Content(T),
}

/// The virtual addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VirtualAddresses {
    /// The pod of keepalived.
    pub keepalived: AddressPod,
    /// The pod of haproxy.
    pub balancer: AddressPod,
    /// The template of keepalived exists.
    pub template: bool,
    /// The template of haproxy exists: the node belongs to the control plane.
    pub balancer_template: bool,
    /// The configuration of keepalived.
    pub config: Rendered<Keepalived>,
    /// Number of servers in the configuration of haproxy.
    pub servers: Rendered<usize>,
    /// Scripts of keepalived that are missing or cannot run: path and reason.
    pub bad_scripts: Vec<(String, &'static str)>,
    /// The mark of a remote worker exists.
    pub remote_worker: bool,
}

/// The configuration of keepalived.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keepalived {
    /// Its virtual routers.
    pub instances: Vec<VrrpInstance>,
    /// Commands of its checks.
    pub scripts: Vec<String>,
}

/// A virtual router.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VrrpInstance {
    /// Name, such as `mycluster_API_0`.
    pub name: String,
    /// The interface of its addresses.
    pub interface: String,
    /// This node's address; `None` if multicast is used.
    pub source: Option<IpAddr>,
    /// The other nodes; `None` if there is no list.
    pub peers: Option<Vec<IpAddr>>,
    /// The virtual addresses.
    pub addresses: Vec<IpAddr>,
}

impl VrrpInstance {
    /// Returns true if its addresses are those of the API.
    pub fn is_api(&self) -> bool {
        self.name.contains("_API")
    }
}

impl VirtualAddresses {
    /// Returns the virtual routers.
    pub fn instances(&self) -> &[VrrpInstance] {
        match &self.config {
            Rendered::Content(config) => &config.instances,
            Rendered::Missing | Rendered::Empty => &[],
        }
    }
}

/// Reads the files; `None` if the node does not take part in virtual addresses.
///
/// # Errors
/// A file cannot be read.
pub fn read_virtual_addresses(root: &Root) -> Result<Option<VirtualAddresses>, RootError> {
    let exists = |path: &'static str| root.exists(&RootPath::fixed(path));
    let manifest = |name: &str| -> Result<AddressPod, RootError> {
        let there = |folder: &'static str| match RootPath::fixed(folder).join(name) {
            Ok(path) => root.exists(&path),
            Err(_) => Ok(false),
        };
        Ok(match (there(MANIFESTS)?, there(DISABLED)?) {
            (true, _) => AddressPod::Active,
            (false, true) => AddressPod::Disabled,
            (false, false) => AddressPod::Missing,
        })
    };
    let keepalived = manifest("keepalived.yaml")?;
    let template = exists(TEMPLATE)?;
    if keepalived == AddressPod::Missing && !template {
        return Ok(None);
    }
    let text = |path| -> Result<Rendered<String>, RootError> {
        Ok(match root.read_small(&RootPath::fixed(path))? {
            None => Rendered::Missing,
            Some(bytes) => match String::from_utf8_lossy(&bytes) {
                text if text.trim_matches(['\0', ' ', '\n']).is_empty() => Rendered::Empty,
                text => Rendered::Content(text.into_owned()),
            },
        })
    };
    let config = text(CONFIG)?.map_value(|text| parse_keepalived(&text));
    let bad_scripts = match &config {
        Rendered::Content(config) => bad_scripts(root, &config.scripts)?,
        Rendered::Missing | Rendered::Empty => Vec::new(),
    };
    Ok(Some(VirtualAddresses {
        keepalived,
        balancer: manifest("haproxy.yaml")?,
        template,
        balancer_template: exists(BALANCER_TEMPLATE)?,
        config,
        servers: text(BALANCER_CONFIG)?.map_value(|text| count_servers(&text)),
        bad_scripts,
        remote_worker: exists(REMOTE_WORKER)?,
    }))
}

impl<T> Rendered<T> {
    fn map_value<U>(self, change: impl FnOnce(T) -> U) -> Rendered<U> {
        match self {
            Self::Missing => Rendered::Missing,
            Self::Empty => Rendered::Empty,
            Self::Content(content) => Rendered::Content(change(content)),
        }
    }
}

/// The directory of keepalived's scripts, in its container and on the host.
const SCRIPTS: &str = "/etc/keepalived/";

/// Returns the scripts that cannot run. Other programs in the commands belong to the container.
fn bad_scripts(root: &Root, commands: &[String]) -> Result<Vec<(String, &'static str)>, RootError> {
    let words = commands
        .iter()
        .flat_map(|command| command.split_whitespace());
    let mut bad: Vec<(String, &'static str)> = Vec::new();
    for word in words.filter(|word| word.starts_with(SCRIPTS)) {
        let Ok(path) = RootPath::parse(word) else {
            continue;
        };
        let stat = root.stat(&path)?;
        let why = match stat {
            None => "missing",
            Some(stat) if stat.st_size == 0 => "empty",
            Some(stat) if stat.st_mode & 0o111 == 0 => "not executable",
            Some(_) => continue,
        };
        if bad.iter().all(|(known, _)| known != word) {
            bad.push((word.to_owned(), why));
        }
    }
    Ok(bad)
}

/// Counts the servers of haproxy's configuration.
pub fn count_servers(text: &str) -> usize {
    let lines = text.lines().map(str::trim);
    lines.filter(|line| line.starts_with("server ")).count()
}

/// Parses keepalived's configuration: words, and blocks in braces.
pub fn parse_keepalived(text: &str) -> Keepalived {
    let mut found = Keepalived::default();
    // Kinds and names of the open blocks.
    let mut open: Vec<String> = Vec::new();
    for line in text.lines() {
        let line = line.split(['#', '!']).next().unwrap_or_default().trim();
        if line == "}" {
            open.pop();
            continue;
        }
        let (line, opens) = match line.strip_suffix('{') {
            Some(line) => (line.trim(), true),
            None => (line, false),
        };
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else {
            if opens {
                open.push(String::new());
            }
            continue;
        };
        if opens {
            match (open.is_empty(), first) {
                (true, "vrrp_instance") => found.instances.push(VrrpInstance {
                    name: words.next().unwrap_or_default().to_owned(),
                    ..VrrpInstance::default()
                }),
                (false, "unicast_peer") => {
                    if let Some(instance) = found.instances.last_mut() {
                        instance.peers = Some(Vec::new());
                    }
                }
                _ => {}
            }
            // A block may end on its own line.
            if !line.ends_with('}') {
                open.push(first.to_owned());
            }
            continue;
        }
        let outer = open.first().map(String::as_str);
        let inner = open.get(1).map(String::as_str);
        match (outer, inner, first) {
            (Some("vrrp_script"), None, "script") => {
                let command = line.strip_prefix("script").unwrap_or_default();
                found
                    .scripts
                    .push(command.trim().trim_matches('"').to_owned());
            }
            (Some("vrrp_instance"), inner, first) => {
                let Some(instance) = found.instances.last_mut() else {
                    continue;
                };
                let value = words.next().unwrap_or_default();
                let address = || parse_with_prefix(first).map(|(address, _)| address);
                match (inner, first) {
                    (None, "interface") => instance.interface = value.to_owned(),
                    (None, "unicast_src_ip") => instance.source = value.parse().ok(),
                    (Some("unicast_peer"), _) => {
                        let peers = instance.peers.get_or_insert_default();
                        peers.extend(address());
                    }
                    (Some("virtual_ipaddress"), _) => instance.addresses.extend(address()),
                    _ => {}
                }
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_routers_are_read_with_their_peers() {
        let text = "global_defs {\n    script_user root # none\n}\n\nvrrp_script chk_a {\n    script \"/usr/bin/timeout 1.9 /etc/keepalived/a.sh\"\n    weight 20\n}\n\n\
                    vrrp_instance c_API_0 {\n    state BACKUP\n    interface br-ex\n    priority 40\n    \n    unicast_src_ip 192.0.2.10\n    unicast_peer {\n        192.0.2.11\n        192.0.2.12\n    }\n    \n\
                    authentication {\n        auth_type PASS\n        auth_pass c_api_vip\n    }\n    virtual_ipaddress {\n        192.0.2.5/32 label vip\n    }\n    track_script {\n        chk_a\n    }\n}\n\n\n\
                    vrrp_instance c_INGRESS_0 {\n    interface br-ex\n    virtual_ipaddress {\n        2001:db8::5/128 label vip\n    }\n}\n";
        let found = parse_keepalived(text);
        assert_eq!(found.scripts, ["/usr/bin/timeout 1.9 /etc/keepalived/a.sh"]);
        let shown: Vec<String> = found
            .instances
            .iter()
            .map(|one| {
                let VrrpInstance {
                    name,
                    interface,
                    source,
                    peers,
                    addresses,
                } = one;
                format!(
                    "{name} {interface} {source:?} {peers:?} {addresses:?} {}",
                    one.is_api()
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                "c_API_0 br-ex Some(192.0.2.10) Some([192.0.2.11, 192.0.2.12]) [192.0.2.5] true",
                "c_INGRESS_0 br-ex None None [2001:db8::5] false",
            ]
        );
    }

    #[test]
    fn a_damaged_configuration_is_read_as_far_as_it_goes() {
        for text in [
            "",
            "}\n}\n{\n",
            "vrrp_instance",
            "vrrp_instance {\nunicast_peer {",
            "\u{fffd}{\n",
        ] {
            let found = parse_keepalived(text);
            assert!(found.scripts.is_empty(), "{text}");
        }
        let cut =
            parse_keepalived("vrrp_instance a_API_0 {\n interface ens3\n unicast_peer {\n 192.0.2");
        assert_eq!(cut.instances[0].peers, Some(Vec::new()));
    }
}
