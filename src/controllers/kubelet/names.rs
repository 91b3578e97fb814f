//! Names of the MachineConfigs where several KubeletConfigs select a pool.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::controllers::{ApiObject, Base, Cluster, ConfigPool, Generation, selects};

/// The annotation with the suffix that the operator gave to a KubeletConfig.
const SUFFIX: &str = "machineconfiguration.openshift.io/mc-name-suffix";
/// The highest suffix.
const LAST: u64 = 9;

/// The KubeletConfigs of a cluster, while they are synced one after the other.
#[derive(Debug)]
pub(super) struct Register<'c> {
    entries: Vec<Entry<'c>>,
    /// KubeletConfigs that are not given, but whose MachineConfigs are there: suffixes by pool.
    unknown: BTreeMap<String, Vec<(String, String)>>,
}

#[derive(Debug)]
struct Entry<'c> {
    object: &'c ApiObject,
    /// It exists: it has a time of creation or annotations, or its turn has come.
    exists: bool,
    suffix: Option<String>,
}

impl Entry<'_> {
    fn selects(&self, pool: &ConfigPool) -> bool {
        let selector = self.object.get("/spec/machineConfigPoolSelector");
        self.exists && selects(selector, &pool.labels)
    }

    fn created(&self) -> Option<&str> {
        self.object.get("/metadata/creationTimestamp")?.as_str()
    }
}

impl<'c> Register<'c> {
    pub(super) fn new(cluster: &'c Cluster) -> Self {
        let entry = |object: &'c ApiObject| {
            let annotations = object
                .get("/metadata/annotations")
                .and_then(Value::as_object);
            let suffix = annotations.and_then(|all| all.get(SUFFIX)?.as_str());
            let has_annotations = annotations.is_some_and(|all| !all.is_empty());
            let has_time = object.get("/metadata/creationTimestamp").is_some();
            Entry {
                object,
                exists: has_annotations || has_time,
                suffix: suffix.map(str::to_owned),
            }
        };
        let mut register = Self {
            entries: cluster.of_kind("KubeletConfig").map(entry).collect(),
            unknown: BTreeMap::new(),
        };
        register.read_owners(cluster);
        register
    }

    /// Takes suffixes from the owners of the MachineConfigs that are there: a file for `oc apply` has no annotations.
    fn read_owners(&mut self, cluster: &Cluster) {
        let Base::Parts(parts) = &cluster.base else {
            return;
        };
        for (name, part) in parts {
            let owner = part.pointer("/metadata/ownerReferences/0");
            let text = |key: &str| owner?.get(key)?.as_str();
            let (Some("KubeletConfig"), Some(owner)) = (text("kind"), text("name")) else {
                continue;
            };
            let Some((pool, suffix)) = split_name(name) else {
                continue;
            };
            match self
                .entries
                .iter_mut()
                .find(|entry| entry.object.name == owner)
            {
                Some(entry) if entry.suffix.is_none() && !entry.exists => {
                    entry.suffix = Some(suffix.to_owned());
                    entry.exists = true;
                }
                Some(_) => {}
                None => {
                    let known = self.unknown.entry(pool.to_owned()).or_default();
                    known.push((owner.to_owned(), suffix.to_owned()));
                }
            }
        }
    }

    /// The turn of an object has come: it is created if it did not exist.
    pub(super) fn create(&mut self, name: &str) {
        if let Some(entry) = self.entry_mut(name) {
            entry.exists = true;
        }
    }

    /// Keeps the suffix of a MachineConfig's name as the annotation of the object, unless it has one.
    pub(super) fn annotate(&mut self, name: &str, config: &str) {
        let suffix = split_name(config).map_or("", |(_, suffix)| suffix);
        if let Some(entry) = self.entry_mut(name) {
            entry.suffix.get_or_insert_with(|| suffix.to_owned());
        }
    }

    fn entry_mut(&mut self, name: &str) -> Option<&mut Entry<'c>> {
        self.entries
            .iter_mut()
            .find(|entry| entry.object.name == name)
    }

    /// KubeletConfigs that are not given, but have a MachineConfig for this pool.
    pub(super) fn unknown(&self, pool: &str) -> impl Iterator<Item = &str> {
        let unknown = self.unknown.get(pool).into_iter().flatten();
        unknown.map(|(owner, _)| owner.as_str())
    }

    /// The name of the object's MachineConfig for a pool.
    ///
    /// # Errors
    /// The operator's words where no name is left.
    pub(super) fn name_of(
        &self,
        object: &ApiObject,
        pool: &ConfigPool,
        cluster: &Cluster,
        generation: &Generation,
    ) -> Result<String, String> {
        let own = self
            .entries
            .iter()
            .find(|entry| entry.object.name == object.name);
        if let Some(suffix) = own.and_then(|entry| entry.suffix.as_deref()) {
            return Ok(join_name(&pool.name, suffix));
        }
        let all = self.entries.iter().filter(|entry| entry.selects(pool));
        let all: Vec<&Entry<'_>> = all.collect();
        let unknown = self.unknown.get(&pool.name).map_or(&[][..], Vec::as_slice);
        if all.len() + unknown.len() == 1 {
            return Ok(join_name(&pool.name, ""));
        }
        let created = own.and_then(Entry::created);
        if all.iter().any(|entry| entry.created() > created)
            && let Some(name) = name_in_finalizers(object, pool, cluster, generation)
        {
            return Ok(name);
        }
        let known = all.iter().filter_map(|entry| entry.suffix.as_deref());
        let suffixes = known.chain(unknown.iter().map(|(_, suffix)| suffix.as_str()));
        let mut last = 0;
        for suffix in suffixes.filter(|suffix| !suffix.is_empty()) {
            let number: u64 = suffix.parse().map_err(|_| {
                let text = crate::go_quote::quoted(suffix);
                format!(
                    "error converting {suffix} to int: strconv.Atoi: parsing {text}: invalid syntax"
                )
            })?;
            last = last.max(number);
        }
        if last >= LAST {
            return Err(
                "max number of supported kubelet config (10) has been reached. Please delete old kubelet configs before retrying"
                    .to_owned(),
            );
        }
        Ok(join_name(&pool.name, &(last + 1).to_string()))
    }
}

/// The finalizer with the largest number that names an existing MachineConfig of this controller and pool.
fn name_in_finalizers(
    object: &ApiObject,
    pool: &ConfigPool,
    cluster: &Cluster,
    generation: &Generation,
) -> Option<String> {
    let exists = |name: &str| {
        cluster.base.part(name).is_some()
            || generation.configs.iter().any(|config| config.name == name)
    };
    let first = join_name(&pool.name, "");
    let mut best: Option<(u64, &str)> = None;
    let finalizers = object.get("/metadata/finalizers").and_then(Value::as_array);
    for name in finalizers.into_iter().flatten().filter_map(Value::as_str) {
        if !exists(name) || !name.starts_with(&first) {
            continue;
        }
        let (_, end) = name.rsplit_once('-').unwrap_or_default();
        let number = match end.parse() {
            Ok(number) => number,
            Err(_) if name == first => 0,
            Err(_) => continue,
        };
        if best.is_none_or(|(known, _)| number > known) {
            best = Some((number, name));
        }
    }
    best.map(|(_, name)| name.to_owned())
}

fn join_name(pool: &str, suffix: &str) -> String {
    match suffix {
        "" => format!("99-{pool}-generated-kubelet"),
        _ => format!("99-{pool}-generated-kubelet-{suffix}"),
    }
}

/// Pool and suffix of a name of this controller.
fn split_name(name: &str) -> Option<(&str, &str)> {
    let (pool, end) = name
        .strip_prefix("99-")?
        .rsplit_once("-generated-kubelet")?;
    match end.strip_prefix('-') {
        None if end.is_empty() => Some((pool, "")),
        Some(number) if number.parse::<u64>().is_ok() => Some((pool, number)),
        _ => None,
    }
}
