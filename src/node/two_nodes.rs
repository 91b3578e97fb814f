//! Two nodes with fencing: the files of Corosync and Pacemaker, and what the cluster installed alongside.

use crate::base::paths;
use crate::host::root::{Root, RootError, RootPath};
use crate::node::neighbours::has_fencing;

/// Directories with drop-ins of Corosync's unit.
const DROP_INS: [&str; 2] = [
    "etc/systemd/system/corosync.service.d",
    "usr/lib/systemd/system/corosync.service.d",
];
/// The unit that creates the bridge with Corosync's address.
const BRIDGE_UNIT: &str = "etc/systemd/system/ovs-configuration.service";
/// The addresses of etcd's members, as last written by the operator.
const ETCD_ENV: &str =
    "etc/kubernetes/static-pod-resources/etcd-certs/configmaps/etcd-scripts/etcd.env";
/// The pod with which Pacemaker's agent starts etcd.
const ETCD_POD: &str =
    "etc/kubernetes/static-pod-resources/etcd-certs/configmaps/external-etcd-pod/pod.yaml";
/// Pacemaker's configuration.
const CIB: &str = "var/lib/pacemaker/cib/cib.xml";
/// Largest configuration of Pacemaker that is read.
const MAX_CIB: u64 = 4 << 20;

/// The facts about a node in a cluster of two with fencing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TwoNodes {
    /// Corosync's configuration.
    pub corosync: Corosync,
    /// Addresses of etcd's members in the operator's file: variable name and address.
    pub etcd_members: Vec<(String, String)>,
    /// Whether a drop-in makes Corosync's unit wait for the bridge, as it has to; `None` if the node has no bridge.
    pub waits_for_bridge: Option<bool>,
    /// Whether the pod file exists from which Pacemaker starts etcd; `None` if Pacemaker has no such resource yet.
    pub etcd_pod: Option<bool>,
}

/// The part of `corosync.conf` that matters here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Corosync {
    /// Name or first address of each node in the list.
    pub nodes: Vec<String>,
    /// Version number in `totem`; a higher one is newer.
    pub version: String,
}

impl TwoNodes {
    /// Reads the facts; `None` on any other node.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn read(root: &Root) -> Result<Option<Self>, RootError> {
        if !has_fencing(root)? {
            return Ok(None);
        }
        let text = |path: &RootPath| -> Result<Option<String>, RootError> {
            let bytes = root.read_small(path)?;
            Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
        };
        let corosync = text(&RootPath::fixed(paths::COROSYNC))?.unwrap_or_default();
        let env = text(&RootPath::fixed(ETCD_ENV))?.unwrap_or_default();
        let waits_for_bridge = if root.exists(&RootPath::fixed(BRIDGE_UNIT))? {
            Some(has_drop_in(root)?)
        } else {
            None
        };
        let cib = root.read_within(&RootPath::fixed(CIB), MAX_CIB)?;
        let cib = cib.unwrap_or_default();
        let starts_etcd = String::from_utf8_lossy(&cib).contains("type=\"podman-etcd\"");
        let etcd_pod = if starts_etcd {
            Some(root.exists(&RootPath::fixed(ETCD_POD))?)
        } else {
            None
        };
        Ok(Some(Self {
            corosync: Corosync::parse(&corosync),
            etcd_members: parse_members(&env),
            waits_for_bridge,
            etcd_pod,
        }))
    }
}

/// Returns true if a drop-in of Corosync's unit refers to the unit of the bridge.
fn has_drop_in(root: &Root) -> Result<bool, RootError> {
    for folder in DROP_INS.map(RootPath::fixed) {
        for name in root.list(&folder)? {
            let Ok(path) = folder.join(&name) else {
                continue;
            };
            let bytes = if name.ends_with(".conf") {
                root.read_small(&path)?.unwrap_or_default()
            } else {
                Vec::new()
            };
            let text = String::from_utf8_lossy(&bytes);
            let mut lines = text.lines().map(str::trim);
            if lines.any(|line| line.starts_with("After=") && line.contains("ovs-configuration")) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

impl Corosync {
    /// Parses sections in braces that contain `key: value` lines.
    pub fn parse(text: &str) -> Self {
        let mut found = Self::default();
        let mut sections: Vec<&str> = Vec::new();
        let mut node: Option<String> = None;
        for line in text.lines().map(str::trim) {
            if line.starts_with('#') {
                continue;
            }
            if let Some(name) = line.strip_suffix('{') {
                sections.push(name.trim());
                if sections == ["nodelist", "node"] {
                    node = Some(String::new());
                }
                continue;
            }
            if line == "}" {
                if sections == ["nodelist", "node"] {
                    found.nodes.extend(node.take());
                }
                sections.pop();
                continue;
            }
            let Some((key, value)) = line.split_once(':') else {
                continue;
            };
            let (key, value) = (key.trim(), value.trim());
            match (sections.as_slice(), key) {
                (["totem"], "config_version") => found.version = value.to_owned(),
                (["nodelist", "node"], "name") => node = Some(value.to_owned()),
                (["nodelist", "node"], "ring0_addr") => {
                    let is_named = node.as_ref().is_some_and(|name| !name.is_empty());
                    node = node.filter(|_| is_named).or(Some(value.to_owned()));
                }
                _ => {}
            }
        }
        found
    }
}

/// Returns the variables `NODE_NAME_IP` of a shell file.
pub fn parse_members(text: &str) -> Vec<(String, String)> {
    let lines = text.lines().map(str::trim);
    let pairs = lines.filter_map(|line| {
        let line = line.strip_prefix("export ").unwrap_or(line);
        let (key, value) = line.split_once('=')?;
        let is_member = key.starts_with("NODE_") && key.ends_with("_IP");
        let value = value.trim_matches(['"', '\'']);
        (is_member && !value.is_empty()).then(|| (key.to_owned(), value.to_owned()))
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "totem {\n    version: 2\n    config_version: 7\n    transport: knet\n    crypto {\n        cipher: aes256\n    }\n}\n\n\
                       nodelist {\n    node {\n        ring0_addr: 192.0.2.10\n        name: master-0\n        nodeid: 1\n    }\n\n\
                       # an old one: node {\n    node {\n        ring0_addr: 192.0.2.11\n        nodeid: 2\n    }\n}\n\
                       quorum {\n    provider: corosync_votequorum\n    two_node: 1\n    wait_for_all: 1\n}\n";

    #[test]
    fn nodes_are_counted_in_their_list_alone() {
        let wanted = Corosync {
            nodes: vec!["master-0".to_owned(), "192.0.2.11".to_owned()],
            version: "7".to_owned(),
        };
        assert_eq!(Corosync::parse(TWO), wanted);
        for text in [
            "",
            "totem {\n",
            "}\n}\n}",
            "node {\nname: a\n}\n",
            "nodelist {\n name: a\n}",
        ] {
            assert!(Corosync::parse(text).nodes.is_empty(), "{text}");
        }
    }

    #[test]
    fn members_are_the_addresses_of_nodes() {
        let text = "export ALL_ETCD_ENDPOINTS=\"https://192.0.2.10:2379\"\nexport NODE_master_0_IP=\"192.0.2.10\"\n\
                    export NODE_master_0_ETCD_NAME=\"master-0\"\nNODE_master_1_IP='192.0.2.11'\nNODE_IP=\n";
        let names: Vec<String> = parse_members(text).into_iter().map(|(_, ip)| ip).collect();
        assert_eq!(names, ["192.0.2.10", "192.0.2.11"]);
    }

    proptest::proptest! {
        #[test]
        fn no_text_ends_the_program(text in "[a-z{}:# \\n]{0,200}") {
            let _ = Corosync::parse(&text);
            let _ = parse_members(&text);
        }
    }
}
