//! The ContainerRuntimeConfig controller: `99-POOL-generated-containerruntime`.
//!
//! Each field becomes a separate drop-in of CRI-O, so that several objects add up; `overlaySize` rewrites `storage.conf`.

mod settings;
mod storage;
mod validate;

use serde_json::{Value, json};

use super::suffix::SuffixNames;
use super::{
    ApiObject, Base, Cluster, ConfigPool, GeneratedConfig, GeneratedFile, Generation, Note,
    ObjectRefusal, os_stream, selects_labels,
};

use crate::config::controllers::toml_text::quote_toml;
use crate::config::document::Finding;
pub(super) use settings::FIELDS;
pub use settings::from_settings;
use validate::RuntimeSettings;

const KIND: &str = "ContainerRuntimeConfig";
const STORAGE: &str = "/etc/containers/storage.conf";
const DROP_INS: &str = "/etc/crio/crio.conf.d/01-ctrcfg-";
const TOO_MANY: &str = "max number of supported ctrcfgs (10) has been reached. \
     Please delete old ctrcfgs before retrying";

/// Adds the MachineConfigs, refusals and notes of this controller.
pub(super) fn sync_runtime(cluster: &Cluster, generation: &mut Generation) {
    let mut names = SuffixNames::new(cluster, KIND, "containerruntime", TOO_MANY);
    for object in cluster.of_kind(KIND) {
        if let Err(refused) = sync_object(object, cluster, &mut names, generation) {
            generation.refusals.push(ObjectRefusal {
                object: object.title(),
                place: place_of(object, refused.path),
                message: refused.message,
                advice: refused.advice,
            });
        }
    }
}

fn place_of(object: &ApiObject, path: &str) -> String {
    let located = object.locate(Finding::error(path, ""));
    format!("{}: {}", object.origin, located.path)
}

/// A refused object, with the place in it.
#[derive(Debug, PartialEq)]
struct Refused {
    path: &'static str,
    message: String,
    advice: String,
}

fn refuse_field(
    path: &'static str,
    message: impl Into<String>,
    advice: impl Into<String>,
) -> Refused {
    Refused {
        path,
        message: message.into(),
        advice: advice.into(),
    }
}

fn sync_object<'a>(
    object: &'a ApiObject,
    cluster: &'a Cluster,
    names: &mut SuffixNames<'a>,
    generation: &mut Generation,
) -> Result<(), Refused> {
    let settings = RuntimeSettings::read_settings(object)?;
    settings.check_values()?;
    let selector = object.get("/spec/machineConfigPoolSelector");
    let selected = |pool: &&ConfigPool| selects_labels(selector, &pool.labels);
    let pools: Vec<&ConfigPool> = cluster.pools.iter().filter(selected).collect();
    if pools.is_empty() {
        return Err(refuse_selector(object));
    }
    note_gate(object, &settings, cluster, generation);
    for pool in pools {
        check_stream(&settings, pool, cluster)?;
        let name = names.assign_name(object, pool, cluster, generation);
        let name = name.map_err(|message| {
            let advice = "delete one of the others, or put the settings of several into one object";
            refuse_field("metadata.name", message.to_string(), advice)
        })?;
        let files = write_files(object, &settings, pool, cluster, generation)?;
        note_earlier(object, &files, cluster, generation);
        generation.configs.push(GeneratedConfig {
            name,
            pool: pool.name.clone(),
            files,
            kernel_arguments: None,
            owners: vec![owner_reference(object)],
        });
    }
    if settings.default_runtime == "runc" {
        generation.notes.push(Note::exact(
            object.title(),
            "RHEL 10 has no runc: with an OS image of RHEL 10 the operator renders no config for the pool, \
             and CRI-O does not start. Use crun there.",
        ));
    }
    Ok(())
}

fn refuse_selector(object: &ApiObject) -> Refused {
    let message = format!(
        "could not find any MachineConfigPool set for {KIND} {}",
        object.name
    );
    refuse_field(
        "spec.machineConfigPoolSelector",
        message,
        "the selector looks at the labels of pools, not of nodes; \
         `pools.operator.machineconfiguration.openshift.io/worker: \"\"` selects the pool worker. Of a pool of your own, \
         give the MachineConfigPool, too",
    )
}

fn owner_reference(object: &ApiObject) -> Value {
    let mut owner = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": KIND,
        "name": object.name,
    });
    if let Some(uid) = object.get("/metadata/uid") {
        owner["uid"] = uid.clone();
    }
    owner["controller"] = true.into();
    owner["blockOwnerDeletion"] = true.into();
    owner
}

/// Refuses runc if the pool is known to use an OS image of RHEL 10.
fn check_stream(
    settings: &RuntimeSettings,
    pool: &ConfigPool,
    cluster: &Cluster,
) -> Result<(), Refused> {
    let stream = os_stream::name_of_pool(cluster, &pool.name);
    let is_rhel_10 = stream.is_some_and(|stream| stream.ends_with("-10"));
    if settings.default_runtime != "runc" || !is_rhel_10 {
        return Ok(());
    }
    let message = format!(
        "MachineConfigPool {} targets a RHEL 10 OS image where runc is not available. To unblock, migrate to crun by \
         removing any ContainerRuntimeConfig that sets defaultRuntime to runc, and removing any MachineConfig that sets \
         default_runtime = \"runc\" in CRI-O configuration under /etc/crio/crio.conf.d/",
        pool.name
    );
    let advice = "set defaultRuntime to crun, or leave it out";
    Err(refuse_field(
        "spec.containerRuntimeConfig.defaultRuntime",
        message,
        advice,
    ))
}

/// Returns a drop-in of CRI-O with one setting.
fn drop_in(field: &str, line: &str) -> GeneratedFile {
    let text = format!("[crio]\n  [crio.runtime]\n    {line}\n");
    GeneratedFile::new(format!("{DROP_INS}{field}"), text)
}

fn write_files(
    object: &ApiObject,
    settings: &RuntimeSettings,
    pool: &ConfigPool,
    cluster: &Cluster,
    generation: &mut Generation,
) -> Result<Vec<GeneratedFile>, Refused> {
    let has_stores = cluster.has_gate(validate::GATE) == Some(true);
    let mut files = Vec::new();
    let size = settings
        .overlay_size
        .as_ref()
        .filter(|size| size.value() != 0);
    let changes = storage::StorageChanges {
        size: size.map(ToString::to_string),
        layer_stores: if has_stores {
            &settings.layer_stores
        } else {
            &[]
        },
        image_stores: if has_stores {
            &settings.image_stores
        } else {
            &[]
        },
    };
    if !changes.is_empty() {
        let base = cluster.base.find_file(&pool.name, STORAGE).ok_or_else(|| {
            let advice = format!(
                "{STORAGE} of the pool {} is not in the config; give the MachineConfig 00-{} with --parts",
                pool.name, pool.name
            );
            refuse_field("spec.containerRuntimeConfig", "could not find Storage Config", advice)
        })?;
        let advice = format!(
            "{STORAGE} of the pool {} is damaged; compare it with another node's",
            pool.name
        );
        let rewritten = storage::rewrite_storage(&base, &changes).map_err(|message| {
            refuse_field("spec.containerRuntimeConfig", message.to_string(), advice)
        })?;
        if rewritten.was_generated && matches!(cluster.base, Base::Rendered(_)) {
            generation.notes.push(Note::inexact(
                object.title(),
                format!(
                    "{STORAGE} of this config was already rewritten for a ContainerRuntimeConfig. Its size and stores are \
                     replaced; those of another object that stays would come back in the cluster."
                ),
            ));
        }
        if !rewritten.lost.is_empty() {
            generation.notes.push(Note::exact(
                object.title(),
                format!(
                    "The controller leaves these keys of {STORAGE} out, which a MachineConfig of yours set: {}.",
                    rewritten.lost.join(", ")
                ),
            ));
        }
        files.push(GeneratedFile::new(STORAGE, rewritten.text));
    }
    let quoted = quote_toml;
    if !settings.log_level.is_empty() {
        files.push(drop_in(
            "logLevel",
            &format!("log_level = {}", quoted(&settings.log_level)),
        ));
    }
    if let Some(limit) = settings.pids_limit {
        files.push(drop_in("pidsLimit", &format!("pids_limit = {limit}")));
    }
    let log_size = settings
        .log_size_max
        .as_ref()
        .map(super::quantity::Quantity::value);
    if let Some(size) = log_size.filter(|size| *size != 0) {
        files.push(drop_in("logSizeMax", &format!("log_size_max = {size}")));
    }
    if !settings.default_runtime.is_empty() {
        let line = format!("default_runtime = {}", quoted(&settings.default_runtime));
        files.push(drop_in("defaultRuntime", &line));
    }
    if has_stores && !settings.artifact_stores.is_empty() {
        let list = storage::toml_list(&settings.artifact_stores);
        let line = format!("additional_artifact_stores = {list}");
        files.push(drop_in("additionalArtifactStores", &line));
    }
    Ok(files)
}

/// Adds a note if a feature gate of the cluster determines whether stores are accepted.
fn note_gate(
    object: &ApiObject,
    settings: &RuntimeSettings,
    cluster: &Cluster,
    generation: &mut Generation,
) {
    if !settings.has_stores() {
        return;
    }
    let gate = validate::GATE;
    let text = match cluster.has_gate(gate) {
        Some(true) => return,
        Some(false) => format!(
            "The feature gate {gate} is off in this cluster, so the controller leaves out additionalLayerStores, \
             additionalImageStores and additionalArtifactStores."
        ),
        None => format!(
            "The feature gates of the cluster are unknown, so additionalLayerStores, additionalImageStores and \
             additionalArtifactStores are left out, as without {gate}. Give the FeatureGate object beside this one."
        ),
    };
    let inexact = cluster.gates.is_none();
    generation.notes.push(Note {
        object: object.title(),
        text,
        inexact,
    });
}

/// Adds a note about drop-ins in the node's config that an earlier object produced, and that this one does not replace.
fn note_earlier(
    object: &ApiObject,
    files: &[GeneratedFile],
    cluster: &Cluster,
    generation: &mut Generation,
) {
    let Base::Rendered(config) = &cluster.base else {
        return;
    };
    let entries = config.pointer("/spec/config/storage/files");
    let entries = entries.and_then(Value::as_array).into_iter().flatten();
    let earlier = entries
        .filter_map(|entry| entry.get("path")?.as_str()?.strip_prefix(DROP_INS))
        .filter(|field| {
            !files
                .iter()
                .any(|file| file.path.strip_prefix(DROP_INS) == Some(field))
        });
    let earlier: Vec<&str> = earlier.collect();
    if earlier.is_empty() {
        return;
    }
    generation.notes.push(Note::inexact(
        object.title(),
        format!(
            "A ContainerRuntimeConfig is in force already; its {} stays. If that is an earlier version of {}, the cluster \
             takes {} away: repeat every field that is to stay. If it is another object, this one gets a name with a number.",
            earlier.join(", "),
            object.name,
            if earlier.len() == 1 { "it" } else { "them" },
        ),
    ));
}

#[cfg(test)]
mod tests;
