//! The facts of a cluster that its controllers start from, as far as files and a node's config tell them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::generated::{GENERATED_BY, ROLE};
use super::kubelet::base::KUBELET_CONF;
use super::objects::ApiObject;
use crate::config::document::{data_url, yaml};

/// A MachineConfigPool.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigPool {
    /// Its name, such as `worker`.
    pub name: String,
    /// Its labels, which the selectors of KubeletConfigs and ContainerRuntimeConfigs look at.
    pub labels: BTreeMap<String, String>,
    /// `spec.nodeSelector`; `null` if it is missing.
    pub node_selector: Value,
}

impl ConfigPool {
    /// One of the pools that every cluster has, with the labels that it has there.
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

    /// A custom pool whose object is missing: its labels and nodes are unknown, and it has the usual label.
    fn assumed(name: &str) -> Self {
        let label = format!("pools.operator.machineconfiguration.openshift.io/{name}");
        Self {
            name: name.to_owned(),
            labels: BTreeMap::from([(label, String::new())]),
            node_selector: Value::Null,
        }
    }

    /// The pool of a MachineConfigPool object.
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

    /// Returns true for a pool that an admin made; it inherits the MachineConfigs of the pool `worker`.
    pub fn is_custom(&self) -> bool {
        Self::built_in(&self.name).is_none()
    }
}

/// What the generated MachineConfigs are put upon.
#[derive(Debug, Clone)]
pub enum Base {
    /// The MachineConfigs of the cluster, by name: the rendered name is exact.
    Parts(BTreeMap<String, Value>),
    /// The rendered config of a node; its parts are unknown.
    Rendered(Value),
}

impl Base {
    /// The bytes of a file as the templates and the base of the kubelet's configuration have it, for this pool: with parts,
    /// the last of 00, 01, 97 and 98 that has it; without, that of the rendered config, which a generated part may have
    /// replaced.
    pub fn file(&self, pool: &str, path: &str) -> Option<Vec<u8>> {
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

    /// A MachineConfig of the cluster; `None` where the parts are unknown.
    pub fn part(&self, name: &str) -> Option<&Value> {
        match self {
            Self::Parts(parts) => parts.get(name),
            Self::Rendered(_) => None,
        }
    }

    /// The version (git hash) of the operator that made the base.
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

/// The role that a MachineConfig's label names.
pub fn role_of(config: &Value) -> Option<&str> {
    config.get("metadata")?.get("labels")?.get(ROLE)?.as_str()
}

/// The decoded bytes of a file of a MachineConfig; the last one with the path. `None` if it is missing or undecodable.
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
    /// The pools: those given as objects, else the built-in ones that the base shows.
    pub pools: Vec<ConfigPool>,
    /// Every object that was given, in the order in which it was given, MachineConfigs left out. A later object replaces
    /// an earlier one with the same kind, namespace and name.
    pub objects: Vec<ApiObject>,
    /// The feature gates of the version that runs; `None` if they are unknown.
    pub gates: Option<BTreeMap<String, bool>>,
    /// Image of the release that runs, `REPOSITORY@sha256:…`; `None` if it is unknown.
    pub release_image: Option<String>,
    /// What the generated MachineConfigs are put upon.
    pub base: Base,
}

impl Cluster {
    /// Gathers the facts from objects, in their order. Of `Node`, which may be refused by what it was before, and of
    /// MachineConfigs none is replaced.
    ///
    /// `pool` is the pool of the node or of the command. If no object describes it and it is a custom one, its labels are
    /// unknown, and it has the one that the console gives.
    pub fn new(objects: Vec<ApiObject>, base: Base, pool: &str) -> Self {
        let mut kept: Vec<ApiObject> = Vec::new();
        for object in objects
            .into_iter()
            .filter(|one| one.kind != "MachineConfig")
        {
            match kept.iter_mut().find(|other| replaces(&object, other)) {
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

    /// The objects of a kind, in their order.
    pub fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a ApiObject> {
        self.objects
            .iter()
            .filter(move |object| object.kind == kind)
    }

    /// The object of a kind of which a cluster has one, such as `Image cluster`.
    pub fn single(&self, kind: &str, name: &str) -> Option<&ApiObject> {
        let found = |object: &&ApiObject| object.kind == kind && object.name == name;
        self.objects.iter().find(found)
    }

    /// The names of the pools that every cluster has; a custom pool inherits the MachineConfigs of `worker`.
    pub fn built_in_pools(&self) -> impl Iterator<Item = String> + use<> {
        let pools = self.pools.iter();
        let names = pools.map(|pool| match pool.is_custom() {
            true => "worker".to_owned(),
            false => pool.name.clone(),
        });
        names.collect::<BTreeSet<String>>().into_iter()
    }

    /// Returns the state of a feature gate: by the FeatureGate object, else by a kubelet.conf that a controller wrote, which
    /// names every gate that the operator knows. `None` if neither names it.
    pub fn named_gate(&self, name: &str) -> Option<bool> {
        let of_object = self.gates.as_ref().and_then(|gates| gates.get(name));
        of_object.copied().or_else(|| self.gate_of_kubelet(name))
    }

    /// Returns the state of a feature gate by kubelet.conf.
    pub fn gate_of_kubelet(&self, name: &str) -> Option<bool> {
        let mut files = self.pools.iter();
        let bytes = files.find_map(|pool| self.base.file(&pool.name, KUBELET_CONF))?;
        let config = yaml::parse(std::str::from_utf8(&bytes).ok()?).ok()?;
        config.get("featureGates")?.get(name)?.as_bool()
    }

    /// Returns true if a feature gate is on; `None` if it is unknown.
    pub fn has_gate(&self, name: &str) -> Option<bool> {
        self.gates
            .as_ref()
            .map(|gates| gates.get(name) == Some(&true))
    }
}

fn replaces(new: &ApiObject, old: &ApiObject) -> bool {
    let key = |object: &ApiObject| {
        (
            object.kind.clone(),
            object.namespace.clone(),
            object.name.clone(),
        )
    };
    new.kind != "Node" && key(new) == key(old)
}

/// The pools of the objects, else the built-in ones; `own` is among them.
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

/// The feature gates of a FeatureGate object, all of them, for this version of the cluster (`None`: its only or first
/// one).
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
