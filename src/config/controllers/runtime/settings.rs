//! Creates a ContainerRuntimeConfig from settings on a command line.

use serde_json::{Map, Value, json};

use super::super::ConfigPool;

use crate::base::reason::Reason;

/// The fields of `spec.containerRuntimeConfig`.
pub(in crate::config::controllers) const FIELDS: [&str; 8] = [
    "pidsLimit",
    "logLevel",
    "logSizeMax",
    "overlaySize",
    "defaultRuntime",
    "additionalLayerStores",
    "additionalImageStores",
    "additionalArtifactStores",
];

/// Creates the object for one pool from settings such as `pidsLimit=4096`. Its name is `mco-rescue-POOL`. The controller
/// validates the values later.
///
/// # Errors
/// A setting is not `KEY=VALUE`, a key is unknown or repeated, or the pool has no label for a selector.
pub fn from_settings(pool: &ConfigPool, settings: &[&str]) -> Result<Value, Reason> {
    let mut config = Map::new();
    for setting in settings {
        let (key, value) = setting.split_once('=').ok_or_else(|| {
            format!("{setting}: no `=` in it; write KEY=VALUE, such as pidsLimit=4096")
        })?;
        let field = FIELDS.iter().find(|field| field.eq_ignore_ascii_case(key));
        let field = field.ok_or_else(|| {
            format!(
                "{key}: not a field of a ContainerRuntimeConfig; the fields are {}",
                FIELDS.join(", ")
            )
        })?;
        let value = match *field {
            "pidsLimit" => value.parse::<i64>().map(Value::from).map_err(|_| {
                format!("{setting}: the limit has to be a whole number, such as pidsLimit=4096")
            })?,
            field if field.starts_with("additional") => {
                let stores = value.split(',').map(|path| json!({ "path": path }));
                stores.collect::<Vec<Value>>().into()
            }
            _ => value.into(),
        };
        if config.insert((*field).to_owned(), value).is_some() {
            return Err(format!("{field} is given twice; give it once").into());
        }
    }
    if config.is_empty() {
        return Err(format!("no setting is given; the fields are {}", FIELDS.join(", ")).into());
    }
    Ok(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": super::KIND,
        "metadata": { "name": format!("mco-rescue-{}", pool.name) },
        "spec": {
            "machineConfigPoolSelector": { "matchLabels": label_of(pool)? },
            "containerRuntimeConfig": config,
        },
    }))
}

/// Returns the label that selects the pool: the operator's, or else one with the pool's name, or else its first one.
fn label_of(pool: &ConfigPool) -> Result<Value, Reason> {
    let operator = format!(
        "pools.operator.machineconfiguration.openshift.io/{}",
        pool.name
    );
    let named =
        |(key, value): &(&String, &String)| key.contains(&pool.name) || value.contains(&pool.name);
    let labels = &pool.labels;
    let label = labels
        .get_key_value(&operator)
        .or_else(|| labels.iter().find(named))
        .or_else(|| labels.first_key_value())
        .ok_or_else(|| {
            format!(
                "the labels of the pool {} are unknown, and a ContainerRuntimeConfig selects a pool by a label; give the \
                 MachineConfigPool as a file beside the others",
                pool.name
            )
        })?;
    let mut selector = Map::new();
    selector.insert(label.0.clone(), label.1.as_str().into());
    Ok(selector.into())
}
