//! Names of the MachineConfigs for several objects of one kind: `99-POOL-generated-KIND`, `…-1`, `…-2`.
//!
//! The controllers store the number in an annotation of each object. An object without one is new and gets the next number.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{ApiObject, Base, Cluster, ConfigPool, Generation, selects_labels};

use crate::base::reason::Reason;

/// The annotation with the suffix; empty for the name without one.
pub(super) const SUFFIX: &str = "machineconfiguration.openshift.io/mc-name-suffix";
/// The greatest suffix.
const MOST: u32 = 9;

/// The existing names of the objects of one kind, and those assigned in this run.
#[derive(Debug)]
pub(super) struct SuffixNames<'a> {
    /// All objects of the kind, in the order in which they are synced.
    objects: Vec<&'a ApiObject>,
    /// The end of the names, `kubelet` or `containerruntime`.
    ending: &'static str,
    /// The suffixes assigned in this run, by object name.
    given: BTreeMap<&'a str, String>,
    /// The suffixes of existing MachineConfigs, by the name of their owner: a file for `oc apply` has no annotation.
    owned: BTreeMap<&'a str, &'a str>,
    /// Owners that were not given as objects: pool, name, suffix.
    strangers: Vec<(&'a str, &'a str, &'a str)>,
    /// The controller's message about the eleventh object.
    too_many: &'static str,
}

impl<'a> SuffixNames<'a> {
    /// Collects the names of all objects of a kind.
    pub(super) fn new(
        cluster: &'a Cluster,
        kind: &'a str,
        ending: &'static str,
        too_many: &'static str,
    ) -> Self {
        let mut names = Self {
            objects: cluster.of_kind(kind).collect(),
            ending,
            given: BTreeMap::new(),
            owned: BTreeMap::new(),
            strangers: Vec::new(),
            too_many,
        };
        if let Base::Parts(parts) = &cluster.base {
            for (name, part) in parts {
                names.read_owner(name, part, kind);
            }
        }
        names
    }

    fn read_owner(&mut self, name: &'a str, part: &'a Value, kind: &str) {
        let owner = part.pointer("/metadata/ownerReferences/0");
        let text = |key: &str| owner?.get(key)?.as_str();
        let generated = name
            .strip_prefix("99-")
            .and_then(|name| name.split_once("-generated-"));
        let (Some((pool, rest)), Some(owner)) = (generated, text("name")) else {
            return;
        };
        let suffix = match rest.strip_prefix(self.ending) {
            Some("") => "",
            Some(rest) => rest.trim_start_matches('-'),
            None => return,
        };
        if text("kind") != Some(kind) || !suffix.bytes().all(|byte| byte.is_ascii_digit()) {
            return;
        }
        if self.objects.iter().any(|object| object.name == owner) {
            self.owned.insert(owner, suffix);
        } else {
            self.strangers.push((pool, owner, suffix));
        }
    }

    /// Returns the objects that were not given, but own a MachineConfig of this kind in a pool.
    pub(super) fn foreign_owners(&self, pool: &str) -> impl Iterator<Item = &'a str> {
        let of_pool = self.strangers.iter().filter(move |(of, ..)| *of == pool);
        of_pool.map(|(_, owner, _)| *owner)
    }

    /// Returns the name of an object's MachineConfig in a pool, and records the annotation that the object gets.
    ///
    /// # Errors
    /// The controller's message about too many objects, or an annotation that is not a number.
    pub(super) fn assign_name(
        &mut self,
        object: &'a ApiObject,
        pool: &ConfigPool,
        cluster: &Cluster,
        generation: &Generation,
    ) -> Result<String, Reason> {
        let plain = format!("99-{}-generated-{}", pool.name, self.ending);
        let name = self.choose_name(object, pool, &plain, cluster, generation)?;
        let last = name.rsplit('-').next().unwrap_or_default();
        let suffix = if last.parse::<u32>().is_ok() {
            last
        } else {
            ""
        };
        let given = self.given.entry(&object.name);
        given.or_insert_with(|| suffix.to_owned());
        Ok(name)
    }

    /// Forgets the suffix of a refused object, which gets no annotation.
    pub(super) fn forget_suffix(&mut self, object: &ApiObject) {
        self.given.remove(object.name.as_str());
    }

    fn choose_name(
        &self,
        object: &ApiObject,
        pool: &ConfigPool,
        plain: &str,
        cluster: &Cluster,
        generation: &Generation,
    ) -> Result<String, Reason> {
        match self.known_suffix(object) {
            Some("") => return Ok(plain.to_owned()),
            Some(suffix) => return Ok(format!("{plain}-{suffix}")),
            None => {}
        }
        let siblings = self.sibling_objects(object, pool);
        if siblings.len() == 1 && self.foreign_owners(&pool.name).next().is_none() {
            return Ok(plain.to_owned());
        }
        let born = creation_time(object);
        if siblings.iter().any(|other| creation_time(other) > born)
            && let Some(name) = name_of_finalizers(object, plain, cluster, generation)
        {
            return Ok(name);
        }
        let mut greatest = 0;
        let known = siblings.iter().filter_map(|other| self.known_suffix(other));
        let strangers = self.strangers.iter().filter(|(of, ..)| *of == pool.name);
        for suffix in known.chain(strangers.map(|(.., suffix)| *suffix)) {
            if suffix.is_empty() {
                continue;
            }
            let number: u32 = suffix.parse().map_err(|_| {
                let quoted = crate::base::go_quote::quote_go(suffix);
                format!(
                    "error converting {suffix} to int: strconv.Atoi: parsing {quoted}: invalid syntax"
                )
            })?;
            greatest = greatest.max(number);
        }
        if greatest >= MOST {
            return Err(self.too_many.into());
        }
        Ok(format!("{plain}-{}", greatest + 1))
    }

    fn known_suffix<'b>(&'b self, object: &'b ApiObject) -> Option<&'b str> {
        let annotations = object.get("/metadata/annotations");
        let written = annotations.and_then(|all| all.get(SUFFIX)?.as_str());
        let given = self.given.get(object.name.as_str()).map(String::as_str);
        let owned = self.owned.get(object.name.as_str()).copied();
        written
            .or(given)
            .or(owned.filter(|_| creation_time(object).is_none()))
    }

    /// Returns the objects that select the pool when this one is synced: the cluster's, and the new ones up to this one. An
    /// object with a timestamp or annotations comes from a cluster.
    fn sibling_objects(&self, object: &ApiObject, pool: &ConfigPool) -> Vec<&'a ApiObject> {
        let at = self
            .objects
            .iter()
            .position(|other| other.name == object.name)
            .unwrap_or(self.objects.len());
        let is_known = |other: &ApiObject| {
            creation_time(other).is_some()
                || other.get("/metadata/annotations").is_some()
                || self.owned.contains_key(other.name.as_str())
        };
        let present = self.objects.iter().enumerate().filter(|(index, other)| {
            (*index <= at || is_known(other))
                && selects_labels(other.get("/spec/machineConfigPoolSelector"), &pool.labels)
        });
        present.map(|(_, other)| *other).collect()
    }
}

fn creation_time(object: &ApiObject) -> Option<&str> {
    object.get("/metadata/creationTimestamp")?.as_str()
}

/// Returns the name of a MachineConfig of the cluster from the finalizers, the one with the highest number.
fn name_of_finalizers(
    object: &ApiObject,
    plain: &str,
    cluster: &Cluster,
    generation: &Generation,
) -> Option<String> {
    let finalizers = object.get("/metadata/finalizers")?.as_array()?;
    let mut best: Option<(u32, &str)> = None;
    for name in finalizers.iter().filter_map(Value::as_str) {
        let exists = matches!(cluster.base, Base::Rendered(_))
            || cluster.base.find_part(name).is_some()
            || generation.configs.iter().any(|config| config.name == name);
        let number = name.rsplit('-').next().and_then(|last| last.parse().ok());
        let number = number.or_else(|| (name == plain).then_some(0));
        if let Some(number) = number
            && exists
            && name.starts_with(plain)
            && best.is_none_or(|(most, _)| number > most)
        {
            best = Some((number, name));
        }
    }
    best.map(|(_, name)| name.to_owned())
}
