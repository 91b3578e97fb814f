//! The KubeletConfig controller: `99-POOL-generated-kubelet`, and `98-POOL-generated-kubelet` with the base.

pub(super) mod base;
mod decode;
pub(super) mod duration;
mod fields;
mod files;
mod in_force;
mod merge;
mod settings;
mod tls;
mod unknown;
mod validate;
pub mod values;

use serde_json::{Map, Value, json};

pub use settings::from_settings;

use self::base::KubeletFields;
use self::validate::{Invalid, Spec};
use super::suffix::SuffixNames;
use super::{
    ApiObject, Base, Cluster, ConfigPool, GeneratedConfig, Generation, Note, ObjectRefusal,
    selects_labels,
};
use crate::config::document::Finding;

const KIND: &str = "KubeletConfig";
const TOO_MANY: &str = "max number of supported kubelet config (10) has been reached. Please delete old kubelet configs before retrying";

/// Adds the MachineConfigs, refusals and notes of this controller.
pub(super) fn sync_kubelet(cluster: &Cluster, generation: &mut Generation) {
    base::sync_features(cluster, generation);
    if cluster.of_kind(KIND).next().is_some() {
        base::note_foreign(cluster, generation);
    }
    let mut names = SuffixNames::new(cluster, KIND, "kubelet", TOO_MANY);
    let mut is_any_done = false;
    for object in cluster.of_kind(KIND) {
        if object.get("/metadata/deletionTimestamp").is_some() {
            delete_config(object, cluster, generation);
            continue;
        }
        match sync_object(object, cluster, &mut names, generation) {
            Ok(configs) => {
                is_any_done |= !configs.is_empty();
                generation.configs.extend(configs);
            }
            Err(invalid) => {
                names.forget_suffix(object);
                generation.refusals.push(to_refusal(object, invalid));
            }
        }
    }
    if is_any_done {
        note_several(cluster, generation);
        delete_stale(cluster, generation);
    }
}

fn to_refusal(object: &ApiObject, invalid: Invalid) -> ObjectRefusal {
    let finding = object.locate(Finding::error(invalid.path, ""));
    ObjectRefusal {
        object: object.title(),
        place: format!("{}: {}", object.origin, finding.path),
        message: invalid.message,
        advice: invalid.advice,
    }
}

/// Deletes a KubeletConfig together with the MachineConfigs in its finalizers.
fn delete_config(object: &ApiObject, cluster: &Cluster, generation: &mut Generation) {
    let finalizers = object.get("/metadata/finalizers").and_then(Value::as_array);
    let names = finalizers.into_iter().flatten().filter_map(Value::as_str);
    let known = names.filter(|name| cluster.base.find_part(name).is_some());
    generation.deleted.extend(known.map(str::to_owned));
}

/// Generates the MachineConfigs of one KubeletConfig.
fn sync_object<'a>(
    object: &'a ApiObject,
    cluster: &'a Cluster,
    names: &mut SuffixNames<'a>,
    generation: &mut Generation,
) -> Result<Vec<GeneratedConfig>, Invalid> {
    let spec = validate::read_spec(object)?;
    let selector = object.get("/spec/machineConfigPoolSelector");
    let selected = |pool: &&ConfigPool| selects_labels(selector, &pool.labels);
    if !cluster.pools.iter().any(|pool| selected(&pool)) {
        return Err(refuse_selector());
    }
    let mut configs = Vec::new();
    for pool in base::list_pools(cluster).filter(selected) {
        validate::refuse_static_pods(&spec, pool)?;
        let name = names.assign_name(object, pool, cluster, generation);
        let name = name.map_err(|message| {
            Invalid::new(
                "metadata.name",
                message.to_string(),
                "put the settings of two KubeletConfigs into one",
            )
        })?;
        let base = base::of_pool(cluster, &pool.name).map_err(|message| {
            Invalid::new(
                "",
                message.to_string(),
                "give 97- or 98-POOL-generated-kubelet among the parts",
            )
        })?;
        let (files, merged) = files::make_files(&spec, base)?;
        note_suffix(object, &name, pool, generation);
        note_object(object, &spec, pool, &merged, cluster, generation);
        for owner in names.foreign_owners(&pool.name) {
            generation.notes.push(note_about(object, format!(
                "The pool {} also has a MachineConfig of the KubeletConfig {owner}, which was not given. It stays as it is.",
                pool.name
            )));
        }
        configs.push(GeneratedConfig {
            name,
            pool: pool.name.clone(),
            files,
            kernel_arguments: None,
            owners: vec![owner_reference(object)],
        });
    }
    note_pools(object, cluster, &selected, generation);
    Ok(configs)
}

fn refuse_selector() -> Invalid {
    Invalid::new(
        "spec.machineConfigPoolSelector",
        "could not find any MachineConfigPool set for KubeletConfig",
        "select a label of a pool (`oc get mcp --show-labels`), such as \
         matchLabels: {pools.operator.machineconfiguration.openshift.io/worker: \"\"}",
    )
}

/// Returns the owner reference to a KubeletConfig.
fn owner_reference(object: &ApiObject) -> Value {
    let mut owner = Map::new();
    owner.insert(
        "apiVersion".to_owned(),
        "machineconfiguration.openshift.io/v1".into(),
    );
    owner.insert("kind".to_owned(), KIND.into());
    owner.insert("name".to_owned(), object.name.as_str().into());
    if let Some(uid) = object.get("/metadata/uid") {
        owner.insert("uid".to_owned(), uid.clone());
    }
    owner.insert("controller".to_owned(), json!(true));
    owner.insert("blockOwnerDeletion".to_owned(), json!(true));
    Value::Object(owner)
}

fn note_about(object: &ApiObject, text: String) -> Note {
    Note::exact(object.title(), text)
}

/// Adds notes about fields that the operator drops or does not change.
fn note_object(
    object: &ApiObject,
    spec: &Spec<'_>,
    pool: &ConfigPool,
    merged: &KubeletFields,
    cluster: &Cluster,
    generation: &mut Generation,
) {
    let mut notes = Vec::new();
    if let Some(config) = object.get("/spec/kubeletConfig") {
        notes.extend(
            unknown::note_unknown_fields(config)
                .into_iter()
                .map(|text| note_about(object, text)),
        );
        notes.extend(values::find_faults(config, None).into_iter().map(|fault| {
            note_about(object, format!(
                "spec.kubeletConfig.{}. The operator accepts it, but the kubelet does not start with it: {}",
                fault.said, fault.words
            ))
        }));
    }
    let lost = list_lost_fields(spec, pool, merged).into_iter();
    notes.extend(lost.map(|text| note_about(object, text)));

    if let Base::Rendered(config) = &cluster.base {
        let signs = in_force::find_signs(config);
        if !signs.is_empty() {
            notes.push(Note {
                inexact: true,
                ..note_about(object, format!(
                    "A KubeletConfig seems to be in force already ({}). The base below it is gone: what it set stays, where the cluster \
                     starts from the base again. Give the parts with --parts, or put all settings into this object.",
                    signs.join(", ")
                ))
            });
        }
    }
    for note in notes {
        if !generation.notes.contains(&note) {
            generation.notes.push(note);
        }
    }
}

/// Returns the fields that change nothing, in sentences.
fn list_lost_fields(spec: &Spec<'_>, pool: &ConfigPool, merged: &KubeletFields) -> Vec<String> {
    let given = spec.fields.iter().flatten();
    let lost = given.filter(|(name, given)| is_lost(given, merged.get(*name)));
    let text = |(name, given): (&String, &Value)| {
        let kept = merged.get(name)?;
        Some(format!(
            "{name}: {given} changes nothing: the operator never replaces a value with an empty one, and the pool {} keeps {kept}.",
            pool.name
        ))
    };
    lost.filter_map(text).collect()
}

/// Adds a note about a numbered name that the object does not have yet: the cluster numbers by the objects that it has at that
/// time.
fn note_suffix(object: &ApiObject, name: &str, pool: &ConfigPool, generation: &mut Generation) {
    let has_annotation = object
        .get("/metadata/annotations")
        .is_some_and(|all| all.get(super::suffix::SUFFIX).is_some());
    if has_annotation || name.ends_with("-generated-kubelet") {
        return;
    }
    let text = format!(
        "It is not the first KubeletConfig of the pool {}: the operator writes it as {name}, and keeps the number in its annotation {}.",
        pool.name,
        super::suffix::SUFFIX
    );
    generation.notes.push(note_about(object, text));
}

/// Returns true for an empty value that the merge ignored.
fn is_lost(given: &Value, merged: Option<&Value>) -> bool {
    let is_empty = match given {
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty() || text == "0s",
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    is_empty && merged != Some(given)
}

/// Adds notes about pools that the object also selects, but whose base is unknown.
fn note_pools(
    object: &ApiObject,
    cluster: &Cluster,
    selected: &dyn Fn(&&ConfigPool) -> bool,
    generation: &mut Generation,
) {
    let Some(own) = base::own_pool(&cluster.base) else {
        return;
    };
    let others = cluster
        .pools
        .iter()
        .filter(|pool| pool.name != own && selected(pool));
    let names: Vec<&str> = others.map(|pool| pool.name.as_str()).collect();
    if !names.is_empty() {
        generation.notes.push(note_about(
            object,
            format!(
                "It also selects the pool {}, whose config is not available; nothing is made for it.",
                names.join(", ")
            ),
        ));
    }
    let is_custom = cluster
        .pools
        .iter()
        .any(|pool| pool.name == own && pool.is_custom());
    if is_custom && names.contains(&"worker") {
        generation.notes.push(Note {
            inexact: true,
            ..note_about(object, format!(
                "The pool {own} inherits the log level and the reserved resources of this object from the pool worker. They are left \
                 out here: give the parts with --parts."
            ))
        });
    }
}

/// Adds a note about several KubeletConfigs for one pool, which are not merged.
fn note_several(cluster: &Cluster, generation: &mut Generation) {
    for pool in &cluster.pools {
        let ours = generation.configs.iter().filter(|config| {
            config.pool == pool.name
                && config.name.starts_with("99-")
                && config.name.contains("-generated-kubelet")
        });
        let mut names: Vec<&str> = ours.map(|config| config.name.as_str()).collect();
        names.sort_unstable();
        if let [_, .., last] = names.as_slice() {
            let text = format!(
                "The pool {} has {} KubeletConfigs. They do not merge: only {last} is used, on top of the base.",
                pool.name,
                names.len()
            );
            generation.notes.push(Note::exact(String::new(), text));
        }
    }
}

/// Deletes MachineConfigs that another version of the operator generated, like the controller.
fn delete_stale(cluster: &Cluster, generation: &mut Generation) {
    let (Base::Parts(parts), Some(operator)) = (&cluster.base, cluster.base.operator()) else {
        return;
    };
    for (name, part) in parts {
        let annotation = part.get("metadata").and_then(|metadata| {
            metadata
                .get("annotations")?
                .get(super::generated::GENERATED_BY)?
                .as_str()
        });
        let is_made = generation.configs.iter().any(|config| config.name == *name);
        if name.starts_with("99")
            && name.contains("generated-kubelet")
            && !is_made
            && annotation != Some(operator)
            && !generation.deleted.contains(name)
        {
            generation.deleted.push(name.clone());
            generation.notes.push(Note::exact(
                String::new(),
                format!("The controller deletes the MachineConfig {name}: another version of the operator made it."),
            ));
        }
    }
}
