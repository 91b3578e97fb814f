//! Refusals of a KubeletConfig, before the pools are considered and for each pool.

use serde_json::{Map, Value};

use super::decode::{UndecodedValue, decode_fields};
use crate::config::controllers::{ApiObject, ConfigPool};

/// A reason to refuse a KubeletConfig.
#[derive(Debug)]
pub(super) struct Invalid {
    /// The place in the object, such as `spec.logLevel`.
    pub(super) path: String,
    /// The operator's words.
    pub(super) message: String,
    /// The next step.
    pub(super) advice: String,
}

impl Invalid {
    pub(super) fn new(path: &str, message: impl Into<String>, advice: &str) -> Self {
        Self {
            path: path.to_owned(),
            message: message.into(),
            advice: advice.to_owned(),
        }
    }
}

/// The parts of a valid KubeletConfig.
#[derive(Debug)]
pub(super) struct Spec<'o> {
    pub(super) log_level: Option<i64>,
    pub(super) auto_sizing: Option<bool>,
    pub(super) tls_profile: Option<&'o Value>,
    /// `spec.kubeletConfig`, decoded; `None` if it is missing.
    pub(super) fields: Option<Map<String, Value>>,
    /// `spec.kubeletConfig` as compact JSON.
    pub(super) raw: String,
}

/// Decodes the spec of a KubeletConfig.
///
/// # Errors
/// The first refusal of the operator.
pub(super) fn read_spec(object: &ApiObject) -> Result<Spec<'_>, Invalid> {
    let log_level = read_log_level(object)?;
    let auto_sizing = match object.get("/spec/autoSizingReserved") {
        Some(Value::Bool(value)) => Some(*value),
        None => None,
        Some(_) => {
            return Err(Invalid::new(
                "spec.autoSizingReserved",
                "it is neither true nor false",
                "write true or false, without quotes",
            ));
        }
    };
    let mut spec = Spec {
        log_level,
        auto_sizing,
        tls_profile: object.get("/spec/tlsSecurityProfile"),
        fields: None,
        raw: String::new(),
    };
    if let Some(config) = object.get("/spec/kubeletConfig") {
        spec.raw = config.to_string();
        let fields = decode_fields(config).map_err(|error| unreadable_value(&error))?;
        refuse_fields(&fields)?;
        refuse_together(&fields, auto_sizing)?;
        spec.fields = Some(fields);
    }
    Ok(spec)
}

fn read_log_level(object: &ApiObject) -> Result<Option<i64>, Invalid> {
    let Some(value) = object.get("/spec/logLevel") else {
        return Ok(None);
    };
    let refused = |message: String| {
        Invalid::new(
            "spec.logLevel",
            message,
            "write a number from 0 to 10; 2 is usual",
        )
    };
    match value.as_i64() {
        Some(level) if (0..=10).contains(&level) => Ok(Some(level)),
        Some(level) => Err(refused(format!(
            "KubeletConfig's LogLevel is not valid [0,10]: {level}"
        ))),
        None => Err(refused("it is not a whole number".to_owned())),
    }
}

fn unreadable_value(error: &UndecodedValue) -> Invalid {
    // An embedded struct has no key in the document.
    let given = error.path.iter().copied();
    let given = given.filter(|name| !name.starts_with(|c: char| c.is_ascii_uppercase()));
    let path = ["spec.kubeletConfig"].into_iter().chain(given);
    Invalid::new(
        &path.collect::<Vec<_>>().join("."),
        format!("KubeletConfig could not be unmarshalled, err: {error}"),
        "correct the value; write numbers, true and false without quotes, a duration as in 1m30s, a quantity as in 2Gi",
    )
}

/// Refuses fields that only the operator may set.
fn refuse_fields(fields: &Map<String, Value>) -> Result<(), Invalid> {
    let not_allowed = |name: &str, field: &str, value: &str| {
        Err(Invalid::new(
            &format!("spec.kubeletConfig.{field}"),
            format!("KubeletConfiguration: {name} is not allowed to be set, but contains: {value}"),
            "remove the field; the operator sets it",
        ))
    };
    let text = |name: &str| {
        fields
            .get(name)
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty())
    };
    if let Some(value) = text("cgroupDriver") {
        return not_allowed("cgroupDriver", "cgroupDriver", value);
    }
    let list = fields.get("clusterDNS").and_then(Value::as_array);
    if let Some(list) = list.filter(|list| !list.is_empty()) {
        let all: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
        return not_allowed("clusterDNS", "clusterDNS", &format!("[{}]", all.join(" ")));
    }
    if let Some(value) = text("clusterDomain") {
        return not_allowed("clusterDomain", "clusterDomain", value);
    }
    let gates = fields.get("featureGates").and_then(Value::as_object);
    if let Some(gates) = gates.filter(|gates| !gates.is_empty()) {
        let mut all: Vec<String> = gates
            .iter()
            .map(|(name, on)| format!("{name}:{on}"))
            .collect();
        all.sort();
        return not_allowed(
            "featureGates",
            "featureGates",
            &format!("map[{}]", all.join(" ")),
        );
    }
    if let Some(value) = fields.get("failSwapOn") {
        return not_allowed("failSwapOn", "failSwapOn", &value.to_string());
    }
    let swap = fields
        .get("memorySwap")
        .and_then(|swap| swap.get("swapBehavior"));
    match swap.and_then(Value::as_str) {
        None | Some("") => Ok(()),
        Some(value) => not_allowed("swapBehavior", "memorySwap.swapBehavior", value),
    }
}

/// Refuses fields that exclude each other.
fn refuse_together(fields: &Map<String, Value>, auto_sizing: Option<bool>) -> Result<(), Invalid> {
    let reserved = fields.get("systemReserved").and_then(Value::as_object);
    if auto_sizing == Some(true) && reserved.is_some_and(|map| !map.is_empty()) {
        return Err(Invalid::new(
            "spec.autoSizingReserved",
            "KubeletConfiguration: autoSizingReserved and systemdReserved cannot be set together",
            "remove spec.autoSizingReserved, or spec.kubeletConfig.systemReserved",
        ));
    }
    match different_cgroups(fields) {
        None => Ok(()),
        Some((reserved, system)) => Err(Invalid::new(
            "spec.kubeletConfig.systemReservedCgroup",
            format!(
                "KubeletConfiguration: systemReservedCgroup ({reserved}) must match systemCgroups ({system})"
            ),
            "give both the same value",
        )),
    }
}

/// Returns `systemReservedCgroup` and `systemCgroups` if both are set and differ.
pub(super) fn different_cgroups(fields: &Map<String, Value>) -> Option<(&str, &str)> {
    let text = |name: &str| fields.get(name)?.as_str().filter(|text| !text.is_empty());
    let (reserved, system) = (text("systemReservedCgroup")?, text("systemCgroups")?);
    (reserved != system).then_some((reserved, system))
}

/// Refuses a path for static pods, which no pool may change.
///
/// # Errors
/// The operator's message.
pub(super) fn refuse_static_pods(spec: &Spec<'_>, pool: &ConfigPool) -> Result<(), Invalid> {
    let name = &pool.name;
    let refused = |message: String| {
        Err(Invalid::new(
            "spec.kubeletConfig.staticPodPath",
            message,
            "remove the field",
        ))
    };
    if is_control_plane(pool) {
        if spec.raw.contains("\"staticPodPath\"") {
            return refused(format!(
                "KubeletConfiguration: staticPodPath is not allowed to be set for control plane pool \"{name}\""
            ));
        }
        return Ok(());
    }
    let fields = spec.fields.as_ref();
    let path = fields.and_then(|fields| fields.get("staticPodPath")?.as_str());
    match path {
        None | Some("") => Ok(()),
        Some(path) => refused(format!(
            "KubeletConfiguration: staticPodPath must be empty for pool \"{name}\", but contains: {path}"
        )),
    }
}

fn is_control_plane(pool: &ConfigPool) -> bool {
    const ROLE: &str = "node-role.kubernetes.io/master";
    let selector = &pool.node_selector;
    let labels = selector.get("matchLabels").and_then(Value::as_object);
    let expressions = selector.get("matchExpressions").and_then(Value::as_array);
    let names_role = |expression: &Value| {
        let text = |key: &str| expression.get(key).and_then(Value::as_str);
        text("key") == Some(ROLE) && matches!(text("operator"), Some("Exists" | "In"))
    };
    ["master", "arbiter"].contains(&pool.name.as_str())
        || labels.is_some_and(|labels| labels.contains_key(ROLE))
        || expressions.is_some_and(|all| all.iter().any(names_role))
}
