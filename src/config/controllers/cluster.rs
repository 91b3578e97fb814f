//! The facts about a cluster that its controllers use, as far as files and a node's config contain them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::generated::{GENERATED_BY, ROLE};
use super::objects::ApiObject;
use crate::config::document::{data_url, yaml};

/// The kubelet's configuration on a node.
pub(super) const KUBELET_CONF: &str = "/etc/kubernetes/kubelet.conf";

/// A MachineConfigPool.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigPool {
    /// Its name, such as `worker`.
    pub name: String,
    /// Its labels, on which the selectors of KubeletConfigs and ContainerRuntimeConfigs act.
    pub labels: BTreeMap<String, String>,
    /// `spec.nodeSelector`; `null` if it is missing.
    pub node_selector: Value,
}

impl ConfigPool {
    /// Returns a pool that every cluster has, with its default labels.
    pub fn built_in(name: &str) -> Option<Self> {
        if !["master", "worker", "arbiter"].contains(&name) {
            return None;
        }
        let operator_label = format!("pools.operator.machineconfiguration.openshift.io/{name}");
        let built_in = "machineconfiguration.openshift.io/mco-built-in".to_owned();
        let role = format!("node-role.kubernetes.io/{name}");
        Some(Self {
            name: name.to_owned(),
            labels: BTreeMap::from([(built_in, String::new()), (operator_label, String::new())]),
            node_selector: serde_json::json!({"matchLabels": { role: "" }}),
        })
    }

    /// Returns a custom pool whose object is missing: its labels and nodes are unknown, so it gets the usual label.
    fn assumed(name: &str) -> Self {
        let label = format!("pools.operator.machineconfiguration.openshift.io/{name}");
        Self {
            name: name.to_owned(),
            labels: BTreeMap::from([(label, String::new())]),
            node_selector: Value::Null,
        }
    }

    /// Returns the pool of a MachineConfigPool object.
    fn from_object(object: &ApiObject) -> Self {
        let labels = object.get("/metadata/labels").and_then(Value::as_object);
        let label = |(key, value): (&String, &Value)| {
            (key.clone(), value.as_str().unwrap_or_default().to_owned())
        };
        Self {
            name: object.name.clone(),
            labels: labels.into_iter().flatten().map(label).collect(),
            node_selector: object
                .get("/spec/nodeSelector")
                .cloned()
                .unwrap_or_default(),
        }
    }

    /// Returns true for a pool that an admin created; it inherits the MachineConfigs of the pool `worker`.
    pub fn is_custom(&self) -> bool {
        Self::built_in(&self.name).is_none()
    }
}

/// The base onto which the generated MachineConfigs are merged.
#[derive(Debug, Clone)]
pub enum Base {
    /// The MachineConfigs of the cluster, by name; the rendered name is then exact.
    Parts(BTreeMap<String, Value>),
    /// The rendered config of a node; its parts are unknown.
    Rendered(Value),
}

impl Base {
    /// Returns the bytes of a file in the base of this pool, from the templates and the base of the kubelet's configuration.
    /// With parts, this is the last of 00, 01, 97 and 98 that has the file; otherwise it is that of the rendered config, which
    /// a generated part may have replaced.
    pub fn find_file(&self, pool: &str, path: &str) -> Option<Vec<u8>> {
        match self {
            Self::Rendered(config) => file_of(config, path),
            Self::Parts(parts) => {
                let role = if ConfigPool::built_in(pool).is_some() {
                    pool
                } else {
                    "worker"
                };
                let names = parts.iter().filter(|(name, part)| {
                    let role = if name.starts_with("97-") || name.starts_with("98-") {
                        pool
                    } else {
                        role
                    };
                    ["00-", "01-", "97-", "98-"]
                        .iter()
                        .any(|start| name.starts_with(start))
                        && role_of(part) == Some(role)
                });
                names
                    .filter_map(|(_, part)| file_of(part, path))
                    .next_back()
            }
        }
    }

    /// Returns a MachineConfig of the cluster; `None` if the parts are unknown.
    pub fn find_part(&self, name: &str) -> Option<&Value> {
        match self {
            Self::Parts(parts) => parts.get(name),
            Self::Rendered(_) => None,
        }
    }

    /// Returns the version (git hash) of the operator that created the base.
    pub fn operator<'a>(&'a self) -> Option<&'a str> {
        let annotation = |config: &'a Value| -> Option<&'a str> {
            let annotations = config.get("metadata")?.get("annotations")?;
            let version = annotations.get(GENERATED_BY)?.as_str()?;
            Some(version).filter(|version| !version.is_empty())
        };
        match self {
            Self::Rendered(config) => annotation(config),
            Self::Parts(parts) => parts.values().find_map(annotation),
        }
    }
}

/// Returns the role in a MachineConfig's label.
pub fn role_of(config: &Value) -> Option<&str> {
    config.get("metadata")?.get("labels")?.get(ROLE)?.as_str()
}

/// Returns the decoded bytes of a file in a MachineConfig, the last one with this path; `None` if it is missing or cannot be
/// decoded.
pub fn file_of(config: &Value, path: &str) -> Option<Vec<u8>> {
    let files = config.pointer("/spec/config/storage/files")?.as_array()?;
    let mut files = files.iter().rev();
    let file = files.find(|file| file.get("path").and_then(Value::as_str) == Some(path))?;
    let contents = file.get("contents");
    let text = |key: &str| contents?.get(key)?.as_str();
    let bytes = data_url(text("source").unwrap_or("data:,")).ok()?;
    match text("compression") {
        Some("gzip") => crate::config::document::gunzip_within(&bytes, 1 << 26).ok(),
        _ => Some(bytes),
    }
}

/// The objects and facts that the controllers read.
#[derive(Debug, Clone)]
pub struct Cluster {
    /// The pools: those given as objects, or else the built-in ones that the base shows.
    pub pools: Vec<ConfigPool>,
    /// Every given object except MachineConfigs, in order. A later object replaces an earlier one with the same kind, namespace
    /// and name.
    pub objects: Vec<ApiObject>,
    /// The feature gates of the running version; `None` if unknown.
    pub gates: Option<BTreeMap<String, bool>>,
    /// Image of the running release, `REPOSITORY@sha256:…`; `None` if unknown.
    pub release_image: Option<String>,
    /// The base onto which the generated MachineConfigs are merged.
    pub base: Base,
}

impl Cluster {
    /// Collects the facts from objects, in their order. `Node` objects are never replaced, because the previous one determines
    /// whether a new one is refused; MachineConfigs are not replaced either.
    ///
    /// `pool` is the pool of the node or of the command. If it is a custom pool without an object, its labels are unknown, and
    /// it gets the label that the console sets.
    pub fn new(objects: Vec<ApiObject>, base: Base, pool: &str) -> Self {
        let mut kept: Vec<ApiObject> = Vec::new();
        for object in objects
            .into_iter()
            .filter(|one| one.kind != "MachineConfig")
        {
            match kept.iter_mut().find(|other| is_newer(&object, other)) {
                Some(other) => *other = object,
                None => kept.push(object),
            }
        }
        let found = |kind: &str| kept.iter().rev().find(|object| object.kind == kind);
        let release = found("ClusterVersion");
        let text = |pointer: &str| release?.get(pointer)?.as_str();
        let version = text("/status/desired/version");
        Self {
            pools: pools_of(&kept, pool),
            gates: found("FeatureGate").and_then(|object| feature_gates(object, version)),
            release_image: text("/status/desired/image").map(str::to_owned),
            objects: kept,
            base,
        }
    }

    /// Returns the objects of a kind, in their order.
    pub fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a ApiObject> {
        self.objects
            .iter()
            .filter(move |object| object.kind == kind)
    }

    /// Returns an object of a kind that exists once in a cluster, such as `Image cluster`.
    pub fn find_single(&self, kind: &str, name: &str) -> Option<&ApiObject> {
        let found = |object: &&ApiObject| object.kind == kind && object.name == name;
        self.objects.iter().find(found)
    }

    /// Returns the names of the built-in pools; for a custom pool, `worker`, whose MachineConfigs it inherits.
    pub fn built_in_pools(&self) -> impl Iterator<Item = String> + use<> {
        let pools = self.pools.iter();
        let names = pools.map(|pool| {
            if pool.is_custom() {
                "worker".to_owned()
            } else {
                pool.name.clone()
            }
        });
        names.collect::<BTreeSet<String>>().into_iter()
    }

    /// Returns the state of a feature gate from the FeatureGate object, or else from a kubelet.conf that a controller wrote,
    /// which lists every gate that the operator knows. `None` if neither lists it.
    pub fn named_gate(&self, name: &str) -> Option<bool> {
        let of_object = self.gates.as_ref().and_then(|gates| gates.get(name));
        of_object.copied().or_else(|| self.gate_of_kubelet(name))
    }

    /// Returns the state of a feature gate in kubelet.conf.
    pub fn gate_of_kubelet(&self, name: &str) -> Option<bool> {
        let mut files = self.pools.iter();
        let bytes = files.find_map(|pool| self.base.find_file(&pool.name, KUBELET_CONF))?;
        let config = yaml::parse_yaml(std::str::from_utf8(&bytes).ok()?).ok()?;
        config.get("featureGates")?.get(name)?.as_bool()
    }

    /// Returns whether a feature gate is on; `None` if unknown.
    pub fn has_gate(&self, name: &str) -> Option<bool> {
        self.gates
            .as_ref()
            .map(|gates| gates.get(name) == Some(&true))
    }
}

fn is_newer(new: &ApiObject, old: &ApiObject) -> bool {
    let key = |object: &ApiObject| {
        (
            object.kind.clone(),
            object.namespace.clone(),
            object.name.clone(),
        )
    };
    new.kind != "Node" && key(new) == key(old)
}

/// Returns the pools of the objects, or else the built-in ones; always includes `own`.
fn pools_of(objects: &[ApiObject], own: &str) -> Vec<ConfigPool> {
    let given = objects
        .iter()
        .filter(|object| object.kind == "MachineConfigPool");
    let mut pools: Vec<ConfigPool> = given.map(ConfigPool::from_object).collect();
    if pools.is_empty() {
        pools.extend(
            ["master", "worker"]
                .into_iter()
                .filter_map(ConfigPool::built_in),
        );
    }
    if !pools.iter().any(|pool| pool.name == own) {
        pools.push(ConfigPool::built_in(own).unwrap_or_else(|| ConfigPool::assumed(own)));
    }
    pools
}

/// Returns all feature gates of a FeatureGate object for this version of the cluster (`None`: its only or first version).
pub fn feature_gates(object: &ApiObject, version: Option<&str>) -> Option<BTreeMap<String, bool>> {
    let all = object.get("/status/featureGates")?.as_array()?;
    let of_version = |entry: &&Value| entry.get("version").and_then(Value::as_str) == version;
    let entry = all.iter().find(of_version).or_else(|| all.first())?;
    let names = |key: &str, on: bool| {
        let list = entry.get(key).and_then(Value::as_array);
        let names = list.into_iter().flatten();
        let names = names.filter_map(|item| item.get("name")?.as_str());
        names.map(|name| (name.to_owned(), on)).collect::<Vec<_>>()
    };
    let mut gates = BTreeMap::from_iter(names("disabled", false));
    gates.extend(names("enabled", true));
    Some(gates)
}
