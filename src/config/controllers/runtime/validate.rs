//! The fields of a ContainerRuntimeConfig, and the values that the controller refuses.

use serde_json::Value;

use super::super::ApiObject;
use super::super::quantity::Quantity;
use super::{Refused, refuse_field};
use crate::base::go_quote::quote_go;

/// The feature gate of the additional stores.
pub(super) const GATE: &str = "AdditionalStorageConfig";
pub(super) const LOG_LEVELS: [&str; 7] =
    ["error", "fatal", "panic", "warn", "info", "debug", "trace"];
const LEAST_LOG_SIZE: i64 = 8192;
const LEAST_PIDS: i64 = 20;

/// The fields of `spec.containerRuntimeConfig`.
#[derive(Debug, Default)]
pub(super) struct RuntimeSettings {
    pub(super) pids_limit: Option<i64>,
    pub(super) log_level: String,
    pub(super) log_size_max: Option<Quantity>,
    pub(super) overlay_size: Option<Quantity>,
    pub(super) default_runtime: String,
    pub(super) layer_stores: Vec<String>,
    pub(super) image_stores: Vec<String>,
    pub(super) artifact_stores: Vec<String>,
}

impl RuntimeSettings {
    pub(super) fn read_settings(object: &ApiObject) -> Result<Self, Refused> {
        let advice = "write the fields below it, or `{}` for none";
        let config = object.get("/spec/containerRuntimeConfig").ok_or_else(|| {
            let message =
                "spec.containerRuntimeConfig is missing; this stops the operator's controller";
            refuse_field("spec", message, advice)
        })?;
        if !config.is_object() {
            let message = "spec.containerRuntimeConfig has to be an object";
            return Err(refuse_field("spec.containerRuntimeConfig", message, advice));
        }
        Ok(Self {
            pids_limit: read_pids(config)?,
            log_level: text_at(config, "logLevel", "spec.containerRuntimeConfig.logLevel")?,
            log_size_max: quantity_at(
                config,
                "logSizeMax",
                "spec.containerRuntimeConfig.logSizeMax",
            )?,
            overlay_size: quantity_at(
                config,
                "overlaySize",
                "spec.containerRuntimeConfig.overlaySize",
            )?,
            default_runtime: text_at(
                config,
                "defaultRuntime",
                "spec.containerRuntimeConfig.defaultRuntime",
            )?,
            layer_stores: stores_at(
                config,
                "additionalLayerStores",
                "spec.containerRuntimeConfig.additionalLayerStores",
            )?,
            image_stores: stores_at(
                config,
                "additionalImageStores",
                "spec.containerRuntimeConfig.additionalImageStores",
            )?,
            artifact_stores: stores_at(
                config,
                "additionalArtifactStores",
                "spec.containerRuntimeConfig.additionalArtifactStores",
            )?,
        })
    }

    pub(super) fn has_stores(&self) -> bool {
        let stores = [
            &self.layer_stores,
            &self.image_stores,
            &self.artifact_stores,
        ];
        stores.iter().any(|paths| !paths.is_empty())
    }

    /// Refuses values in the controller's order and words.
    pub(super) fn check_values(&self) -> Result<(), Refused> {
        if let Some(limit) = self.pids_limit
            && limit != 0
            && limit < LEAST_PIDS
        {
            let advice = "give 20 or more, or 0 for the default of CRI-O";
            let message = format!("invalid PidsLimit {limit}");
            return Err(refuse_field(
                "spec.containerRuntimeConfig.pidsLimit",
                message,
                advice,
            ));
        }
        if let Some(size) = &self.log_size_max
            && (1..=LEAST_LOG_SIZE).contains(&size.value())
        {
            let message = format!(
                "invalid LogSizeMax {}, cannot be less than 8kB",
                quote_go(&size.to_string())
            );
            let advice = "give more than 8192 bytes, such as 16Ki, or -1 for no limit";
            return Err(refuse_field(
                "spec.containerRuntimeConfig.logSizeMax",
                message,
                advice,
            ));
        }
        if let Some(size) = &self.overlay_size
            && size.value() < 0
        {
            let message = format!(
                "invalid overlaySize {}, cannot be less than 0",
                quote_go(&size.to_string())
            );
            let advice = "give a size such as 20G, or leave it out";
            return Err(refuse_field(
                "spec.containerRuntimeConfig.overlaySize",
                message,
                advice,
            ));
        }
        if !self.log_level.is_empty() && !LOG_LEVELS.contains(&self.log_level.as_str()) {
            let message = format!(
                "invalid LogLevel {}, must be one of error, fatal, panic, warn, info, debug, or trace",
                quote_go(&self.log_level)
            );
            let advice = "give one of these words, in small letters";
            return Err(refuse_field(
                "spec.containerRuntimeConfig.logLevel",
                message,
                advice,
            ));
        }
        if !["", "crun", "runc"].contains(&self.default_runtime.as_str()) {
            let runtime = quote_go(&self.default_runtime);
            let message = format!("invalid DefaultRuntime {runtime}, must be one of crun, runc");
            let advice = "give crun or runc, or leave it out";
            return Err(refuse_field(
                "spec.containerRuntimeConfig.defaultRuntime",
                message,
                advice,
            ));
        }
        self.check_stores()
    }

    fn check_stores(&self) -> Result<(), Refused> {
        let fields = [
            ("AdditionalLayerStores", &self.layer_stores),
            ("AdditionalImageStores", &self.image_stores),
            ("AdditionalArtifactStores", &self.artifact_stores),
        ];
        let all = fields
            .iter()
            .flat_map(|(field, paths)| paths.iter().filter_map(|path| wrong_path(field, path)));
        let errors: Vec<String> = all.collect();
        if errors.is_empty() {
            return Ok(());
        }
        let advice = "write each path as /a/b, without `:ref`, which the controller adds itself";
        Err(refuse_field(
            "spec.containerRuntimeConfig",
            errors.join("\n"),
            advice,
        ))
    }
}

fn wrong_path(field: &str, path: &str) -> Option<String> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if path.is_empty() {
        return Some(format!("invalid {field}: path must not be empty"));
    }
    let rest = path.strip_prefix('/').unwrap_or_default();
    if rest.is_empty() || !rest.chars().all(is_allowed) {
        return Some(format!(
            "invalid {field} path {}: must be an absolute path containing only alphanumeric characters, '/', '.', '_', and '-'",
            quote_go(path)
        ));
    }
    path.contains("//").then(|| {
        format!(
            "invalid {field} path {}: must not contain consecutive forward slashes",
            quote_go(path)
        )
    })
}

fn present_value<'a>(config: &'a Value, key: &str) -> Option<&'a Value> {
    config.get(key).filter(|value| !value.is_null())
}

fn read_pids(config: &Value) -> Result<Option<i64>, Refused> {
    let Some(value) = present_value(config, "pidsLimit") else {
        return Ok(None);
    };
    let number = value.as_i64().ok_or_else(|| {
        let message = format!("pidsLimit has to be a whole number, but is {value}");
        let advice = "write it without quotes, such as `pidsLimit: 4096`";
        refuse_field("spec.containerRuntimeConfig.pidsLimit", message, advice)
    })?;
    Ok(Some(number))
}

fn text_at(config: &Value, key: &str, path: &'static str) -> Result<String, Refused> {
    match present_value(config, key) {
        None => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => {
            let message = format!("{key} has to be a text, but is {other}");
            Err(refuse_field(path, message, "put it into quotes"))
        }
    }
}

fn quantity_at(config: &Value, key: &str, path: &'static str) -> Result<Option<Quantity>, Refused> {
    let Some(value) = present_value(config, key) else {
        return Ok(None);
    };
    let read = Quantity::from_value(value).map_err(|error| {
        let message = format!("{key} is {value}: {error}");
        refuse_field(path, message, "write a size such as 50Mi, 8G or 10Gi")
    })?;
    Ok(Some(read))
}

fn stores_at(config: &Value, key: &str, path: &'static str) -> Result<Vec<String>, Refused> {
    let advice = "write a list of objects: `- path: /var/lib/store`";
    let Some(value) = present_value(config, key) else {
        return Ok(Vec::new());
    };
    let items = value
        .as_array()
        .ok_or_else(|| refuse_field(path, format!("{key} has to be a list"), advice))?;
    let path_of = |item: &Value| match item.get("path") {
        None | Some(Value::Null) if item.is_object() => Ok(String::new()),
        Some(Value::String(path)) => Ok(path.clone()),
        _ => Err(refuse_field(
            path,
            format!("{key} has an item without a path"),
            advice,
        )),
    };
    items.iter().map(path_of).collect()
}
