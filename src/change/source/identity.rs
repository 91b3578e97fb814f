//! Pool and cluster of a node, from its files: the record, the annotations, kubeconfigs, and the config from which it was
//! provisioned.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::base::paths;
use crate::change::source::{cache, server};
use crate::config::document::{self, Desired, MachineConfig, pointer, yaml};
use crate::host::net;
use crate::host::net::find_host;
use crate::host::root::{Root, RootError, RootPath, sha256_hex, skip_obstacle};
use crate::judge::daemon::{annotations, pod_log};
use crate::node::authorities;
use crate::node::{Recorded, Records};

/// Bundles, each compared only with the one at the same path, because each has its own signers.
const BUNDLES: [&str; 3] = [
    "etc/kubernetes/ca.crt",
    "etc/kubernetes/kubelet-ca.crt",
    paths::KUBECONFIG,
];
/// Config files from which a node was provisioned.
const POINTERS: [&str; 2] = ["boot/ignition/config.ign", "usr/lib/ignition/user.ign"];
/// The unit whose labels contain the role of a node.
const KUBELET: &str = "kubelet.service";

/// Digests of the certificates in each bundle, by the bundle's path.
pub type Bundles = BTreeMap<&'static str, BTreeSet<String>>;

/// A fact with its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Witness {
    /// The pool, or the host.
    pub says: String,
    /// The source, as text.
    pub place: String,
}

impl Witness {
    /// Creates a fact with its source.
    pub fn new(says: impl Into<String>, place: impl Into<String>) -> Self {
        Self {
            says: says.into(),
            place: place.into(),
        }
    }
}

/// Pool and cluster of a node, according to its own files.
#[derive(Debug, Clone, Default)]
pub struct NodeIdentity {
    /// Pools in which the cluster or the daemon has put the node.
    pub pools: Vec<Witness>,
    /// Pools for which it was provisioned, or as which it runs. A node of a custom pool is provisioned as `worker`.
    pub provisioned: Vec<Witness>,
    /// Hosts of its API.
    pub hosts: Vec<Witness>,
    /// Certificates of its authorities.
    pub bundles: Bundles,
}

/// Pool and cluster that a config claims.
#[derive(Debug, Clone, Default)]
pub struct Claims {
    /// Name of its pool.
    pub pool: Option<String>,
    /// Hosts of its API.
    pub hosts: Vec<String>,
    /// Certificates of its authorities.
    pub bundles: Bundles,
}

impl Claims {
    /// Returns pool and cluster of a config.
    pub fn from_config(config: &MachineConfig, desired: &Desired) -> Self {
        let text = |path: &str| text_in(desired, path);
        let url = text(paths::APISERVER_URL);
        let mut hosts: Vec<String> = url
            .as_deref()
            .and_then(server::api_host)
            .into_iter()
            .collect();
        hosts.extend(
            text(paths::KUBECONFIG)
                .iter()
                .flat_map(|text| hosts_in(text)),
        );
        let bundle = |path: &'static str| Some((path, parse_certificates(text(path)?.as_bytes())));
        Self {
            pool: cache::pool_of(config),
            hosts,
            bundles: non_empty(BUNDLES.into_iter().filter_map(bundle)),
        }
    }
}

/// The relation of a pool to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Membership<'a> {
    /// A source names this pool for the node.
    Member,
    /// A source names another pool for the node, and none names this one.
    Stranger(&'a Witness),
    /// No source names a pool.
    Unknown,
}

/// Pools of the control plane; every other pool is based on `worker`.
const CONTROL_PLANE: [&str; 2] = ["master", "arbiter"];

impl NodeIdentity {
    /// Returns the pool according to the best source.
    pub fn pool(&self) -> Option<&str> {
        let first = self.pools.first().or(self.provisioned.first());
        first.map(|witness| witness.says.as_str())
    }

    /// Returns the relation of a pool to this node.
    pub fn membership_of(&self, pool: &str) -> Membership<'_> {
        let told = if self.pools.is_empty() {
            &self.provisioned
        } else {
            &self.pools
        };
        let Some(first) = told.first() else {
            return Membership::Unknown;
        };
        if told.iter().any(|witness| witness.says == pool) {
            return Membership::Member;
        }
        // A node of a custom pool is provisioned as worker, and its kubelet runs as one.
        let worker = self
            .provisioned
            .iter()
            .any(|witness| witness.says == "worker");
        let custom = worker && !CONTROL_PLANE.contains(&pool);
        if self.pools.is_empty() && custom {
            Membership::Unknown
        } else {
            Membership::Stranger(first)
        }
    }

    /// Reads the node. `recorded` has the objects of the recorded config. Files that this user may not read are skipped.
    ///
    /// # Errors
    /// A file cannot be read: without it, a config of another pool or cluster might be accepted.
    pub fn observe(
        root: &Root,
        records: &Records,
        recorded: Option<&Desired>,
    ) -> Result<Self, RootError> {
        let initial = initial_annotations(root)?;
        let mut found = Self {
            pools: told_pools(root, records, &initial)?,
            ..Self::default()
        };
        found.look_at_provisioning(root)?;
        found.look_at_hosts(root, recorded)?;
        for path in BUNDLES {
            let of_record = recorded.and_then(|recorded| text_in(recorded, path));
            let on_disk = bytes_of(root, path)?;
            let mut all = parse_certificates(&on_disk.unwrap_or_default());
            all.extend(parse_certificates(of_record.unwrap_or_default().as_bytes()));
            found.bundles.extend(non_empty([(path, all)]));
        }
        Ok(found)
    }

    fn look_at_provisioning(&mut self, root: &Root) -> Result<(), RootError> {
        for path in POINTERS {
            let Some(text) = text_of(root, path)? else {
                continue;
            };
            for source in pointer::server_addresses(&text) {
                let place = format!("the pointer config /{path}");
                if let Some(pool) = pointer::requested_pool(&source) {
                    self.provisioned.push(Witness::new(pool, &place));
                }
                self.hosts
                    .extend(find_host(&source).map(|host| Witness::new(host, &place)));
            }
        }
        let unit = text_of(root, &format!("{}/{KUBELET}", paths::UNITS))?;
        if let Some(role) = unit.as_deref().and_then(role_in) {
            self.provisioned
                .push(Witness::new(role, format!("/{}/{KUBELET}", paths::UNITS)));
        }
        if unless_denied(root.exists(&RootPath::fixed(paths::ETCD_POD)))? {
            // An arbiter also has a member of etcd.
            let is_arbiter = self.provisioned.iter().any(|one| one.says == "arbiter");
            let role = if is_arbiter { "arbiter" } else { "master" };
            self.provisioned
                .push(Witness::new(role, format!("/{}", paths::ETCD_POD)));
        }
        Ok(())
    }

    fn look_at_hosts(&mut self, root: &Root, recorded: Option<&Desired>) -> Result<(), RootError> {
        let mut add = |text: Option<String>, place: &str| {
            let host = text.as_deref().and_then(server::api_host);
            self.hosts
                .extend(host.map(|host| Witness::new(host, place)));
        };
        let of_record = recorded.and_then(|recorded| text_in(recorded, paths::APISERVER_URL));
        add(of_record, "the recorded config");
        add(
            text_of(root, paths::APISERVER_URL)?,
            &format!("/{}", paths::APISERVER_URL),
        );
        for path in [paths::KUBELET_KUBECONFIG, paths::KUBECONFIG] {
            let text = text_of(root, path)?.unwrap_or_default();
            let hosts = hosts_in(&text).into_iter();
            self.hosts
                .extend(hosts.map(|host| Witness::new(host, format!("/{path}"))));
        }
        Ok(())
    }
}

/// Returns the pools named by the record, the API, the daemon's log and the first boot.
fn told_pools(
    root: &Root,
    records: &Records,
    initial: &BTreeMap<String, String>,
) -> Result<Vec<Witness>, RootError> {
    let mut all = Vec::new();
    let mut add = |pool: Option<String>, place: String| {
        all.extend(pool.map(|pool| Witness::new(pool, place)));
    };
    let recorded = records.recorded_config();
    add(
        recorded.and_then(cache::pool_of),
        format!("its record, {}", records.name().unwrap_or_default()),
    );
    if let (None, Recorded::Present(served)) = (recorded, &records.mcs_content) {
        add(cache::pool_of(served), format!("/{}", paths::MCS_CONTENT));
    }
    let mut add_name = |name: Option<&str>, place: &str| {
        let pool = name.and_then(document::pool_in).map(str::to_owned);
        add(pool, format!("{place} {}", name.unwrap_or_default()));
    };
    if let Some(seen) = unless_denied(annotations::read_annotations(root))? {
        add_name(seen.desired.as_deref(), "its annotation desiredConfig,");
        add_name(seen.current.as_deref(), "its annotation currentConfig,");
    }
    if let Some(log) = unless_denied(pod_log::read_pod_log(root))? {
        let wanted = log.wanted.as_ref().map(|trace| trace.name.as_str());
        add_name(wanted, "the daemon's log,");
    }
    add_name(
        initial.get("desiredConfig").map(String::as_str),
        "the annotations of its first boot,",
    );
    Ok(all)
}

/// Returns the annotations from the Machine Config Server, or from the daemon's backup copy of them.
fn initial_annotations(root: &Root) -> Result<BTreeMap<String, String>, RootError> {
    let mut all = BTreeMap::new();
    for path in [paths::NODE_ANNOTATIONS, paths::NODE_ANNOTATIONS_KEPT] {
        let Some(text) = text_of(root, path)? else {
            continue;
        };
        let given: BTreeMap<String, String> = serde_json::from_str(&text).unwrap_or_else(|error| {
            log::warn!("/{path}: {error}; it is skipped");
            BTreeMap::new()
        });
        for (key, value) in given {
            if let Some(key) = key.strip_prefix("machineconfiguration.openshift.io/") {
                all.entry(key.to_owned()).or_insert(value);
            }
        }
    }
    Ok(all)
}

/// Returns the image of a layered pool in a served config.
pub fn layered_image(desired: &Desired) -> Option<String> {
    let text = text_in(desired, paths::NODE_ANNOTATIONS)?;
    let all: BTreeMap<String, String> = serde_json::from_str(&text).ok()?;
    all.get("machineconfiguration.openshift.io/currentImage")
        .cloned()
}

/// Returns the image of a layered pool in the annotations that the node keeps.
///
/// # Errors
/// They cannot be read.
pub fn layered_image_kept(root: &Root) -> Result<Option<String>, RootError> {
    Ok(initial_annotations(root)?.remove("currentImage"))
}

fn text_of(root: &Root, path: &str) -> Result<Option<String>, RootError> {
    let bytes = bytes_of(root, path)?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

fn bytes_of(root: &Root, path: &str) -> Result<Option<Vec<u8>>, RootError> {
    match RootPath::parse(&format!("/{path}")) {
        Ok(path) => unless_denied(root.read(&path)),
        Err(_) => Ok(None),
    }
}

/// Returns the result; empty for a file that this user may not read.
fn unless_denied<T: Default>(read: Result<T, RootError>) -> Result<T, RootError> {
    match skip_obstacle(read) {
        Err(error) if error.cause.is_denied() => {
            log::info!("reading pool and cluster: {error}");
            Ok(T::default())
        }
        read => read,
    }
}

fn text_in(desired: &Desired, path: &str) -> Option<String> {
    let path = RootPath::parse(&format!("/{path}")).ok()?;
    let mut added = desired.additions.iter();
    let file = desired
        .file_at(&path)
        .or_else(|| added.find(|file| file.path == path))?;
    let bytes = file.contents.bytes().ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn parse_certificates(bytes: &[u8]) -> BTreeSet<String> {
    let blocks = authorities::to_pem(bytes);
    let all = net::system_certificates(blocks.as_bytes());
    all.iter().map(|der| sha256_hex(der)).collect()
}

/// Returns the bundles that are not empty.
fn non_empty(all: impl IntoIterator<Item = (&'static str, BTreeSet<String>)>) -> Bundles {
    all.into_iter()
        .filter(|(_, certificates)| !certificates.is_empty())
        .collect()
}

/// Returns the hosts of the clusters in a kubeconfig, except the machine itself.
fn hosts_in(kubeconfig: &str) -> Vec<String> {
    let document = yaml::parse_yaml(kubeconfig).unwrap_or_default();
    let clusters = document.get("clusters").and_then(Value::as_array);
    let servers = clusters.into_iter().flatten();
    let servers = servers.filter_map(|one| one.pointer("/cluster/server")?.as_str());
    let own = |host: &String| !["localhost", "127.0.0.1", "::1"].contains(&host.as_str());
    servers.filter_map(find_host).filter(own).collect()
}

/// Returns `master`, `arbiter` or `worker`, from the labels that the kubelet sets on its Node.
fn role_in(unit: &str) -> Option<&'static str> {
    let labels = unit.split_once("--node-labels=")?.1;
    let labels = labels.split_whitespace().next()?;
    let has = |role: &str| {
        let wanted = format!("node-role.kubernetes.io/{role}");
        labels
            .split(',')
            .any(|label| label.trim_end_matches('=') == wanted)
    };
    let is_master = has("master") || has("control-plane");
    let roles = [
        (is_master, "master"),
        (has("arbiter"), "arbiter"),
        (has("worker"), "worker"),
    ];
    let role = roles.into_iter().find(|(is_it, _)| *is_it);
    role.map(|(_, role)| role)
}

#[cfg(test)]
mod tests {
    use crate::change::source::identity::*;

    #[test]
    fn hosts_and_roles_are_read_from_the_texts_that_nodes_have() {
        for (url, host) in [
            ("https://api-int.Example:6443", Some("api-int.example")),
            ("https://[fd00::1]:22623/config/worker", Some("fd00::1")),
            ("https://10.0.0.1/config/worker", Some("10.0.0.1")),
            ("data:,x", None),
            ("https://", None),
        ] {
            assert_eq!(find_host(url).as_deref(), host, "{url}");
        }
        let kubeconfig = "clusters:\n- cluster: {server: 'https://localhost:6443'}\n- cluster: {server: 'https://a.b:6443'}\n";
        assert_eq!(hosts_in(kubeconfig), ["a.b"]);
        assert!(hosts_in("kind: Config\n").is_empty() && hosts_in("[").is_empty());
        let label = "node-role.kubernetes.io";
        for (unit, role) in [
            (
                format!("kubelet --node-labels={label}/control-plane,{label}/master,x=y \\\n"),
                Some("master"),
            ),
            (
                format!("kubelet --node-labels={label}/worker,a={label}/master"),
                Some("worker"),
            ),
            (
                format!("kubelet --node-labels={label}/arbiter,x=y"),
                Some("arbiter"),
            ),
            ("kubelet --node-labels=a=b".to_owned(), None),
            ("kubelet".to_owned(), None),
        ] {
            assert_eq!(role_in(&unit), role, "{unit}");
        }
    }

    #[test]
    fn a_pool_is_a_stranger_only_if_nothing_speaks_for_it() {
        let of = |pools: &[&str], provisioned: &[&str]| {
            let all = |list: &[&str]| list.iter().map(|one| Witness::new(*one, "x")).collect();
            NodeIdentity {
                pools: all(pools),
                provisioned: all(provisioned),
                ..NodeIdentity::default()
            }
        };
        for (pool, pools, provisioned, wanted) in [
            ("worker", &["worker"][..], &[][..], "member"),
            ("master", &["worker"], &["master"], "worker"),
            // The cluster moves it to another pool.
            ("infra", &["worker", "infra"], &[], "member"),
            ("worker", &["infra"], &["worker"], "infra"),
            ("worker", &[], &["worker"], "member"),
            ("infra", &[], &["worker"], "unknown"),
            ("master", &[], &["worker"], "worker"),
            ("arbiter", &[], &["worker"], "worker"),
            ("worker", &[], &["master"], "master"),
            ("worker", &[], &["infra"], "infra"),
            ("infra", &[], &["infra", "worker"], "member"),
            ("worker", &[], &[], "unknown"),
        ] {
            let node = of(pools, provisioned);
            let found = match node.membership_of(pool) {
                Membership::Member => "member",
                Membership::Stranger(witness) => &witness.says,
                Membership::Unknown => "unknown",
            };
            assert_eq!(found, wanted, "{pool} {pools:?} {provisioned:?}");
        }
    }
}
