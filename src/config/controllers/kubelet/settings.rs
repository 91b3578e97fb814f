//! Creates a KubeletConfig from single settings, such as `maxPods=300`.

use serde_json::{Map, Value, json};

use super::duration;
use super::fields::{KUBELET, KubeletField, KubeletKind, Struct};
use crate::config::controllers::ConfigPool;
use crate::config::controllers::nearest::hint_nearest;
use crate::config::controllers::quantity::Quantity;

/// Prefix of the pool labels that a KubeletConfig selects.
const POOL_LABEL: &str = "pools.operator.machineconfiguration.openshift.io/";

/// The reason why settings cannot become a KubeletConfig.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// A setting without `=`.
    #[error("{0}: write FIELD=VALUE, such as maxPods=300")]
    NoValue(String),
    /// The name is not that of a field.
    #[error("{0}: the kubelet's configuration has no such field{1}")]
    Unknown(String, String),
    /// The value has the wrong type.
    #[error("{setting}: {field} must be {wanted}, such as {field}={example}")]
    WrongValue {
        /// The setting.
        setting: String,
        /// The name of the field.
        field: String,
        /// The type in words.
        wanted: &'static str,
        /// A value that is right.
        example: &'static str,
    },
    /// The field is a struct and has fields of its own.
    #[error("{0}: it has fields of its own, such as {0}.{1}; give them one by one")]
    HasFields(String, &'static str),
    /// A map without a key.
    #[error("{0}: it is a list of names and values; write {0}.NAME=VALUE")]
    NoKey(String),
    /// A field twice.
    #[error("{0}: the field is given twice; keep one")]
    Twice(String),
    /// A pool without a label.
    #[error(
        "the pool {0} has no label that a KubeletConfig could select; give it one: oc label mcp {0} custom-kubelet={0}"
    )]
    NoLabel(String),
    /// No setting.
    #[error("no setting is given; write FIELD=VALUE, such as maxPods=300")]
    None,
}

/// Creates a KubeletConfig for a pool from settings: fields of the kubelet's configuration (`maxPods=300`,
/// `evictionHard.memory.available=1Gi`, `logging.verbosity=4`), `logLevel`, `autoSizingReserved`, `tlsSecurityProfile`. List
/// items are separated by commas. The object is ready for `oc apply`.
///
/// # Errors
/// A name is not a field, or a value has the wrong type. Refusals of the operator are found when the object is synced.
pub fn from_settings(pool: &ConfigPool, settings: &[&str]) -> Result<Value, SettingError> {
    if settings.is_empty() {
        return Err(SettingError::None);
    }
    let mut spec = Map::new();
    spec.insert("machineConfigPoolSelector".to_owned(), pool_selector(pool)?);
    let mut fields = Map::new();
    for setting in settings {
        let (path, text) = setting
            .split_once('=')
            .filter(|(path, _)| !path.trim().is_empty())
            .ok_or_else(|| SettingError::NoValue((*setting).to_owned()))?;
        let (path, text) = (path.trim(), text.trim());
        let path = path.strip_prefix("spec.").unwrap_or(path);
        let path = path.strip_prefix("kubeletConfig.").unwrap_or(path);
        if let Some(value) = top_level(path, text, setting)? {
            if spec.insert(path.to_owned(), value).is_some() {
                return Err(SettingError::Twice((*setting).to_owned()));
            }
            continue;
        }
        set_field(&mut fields, &KUBELET, path, "", text, setting)?;
    }
    if !fields.is_empty() {
        spec.insert("kubeletConfig".to_owned(), Value::Object(fields));
    }
    Ok(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "KubeletConfig",
        "metadata": {"name": format!("mco-rescue-{}", pool.name)},
        "spec": spec,
    }))
}

/// Returns a selector that matches this pool's labels and those of no other pool.
fn pool_selector(pool: &ConfigPool) -> Result<Value, SettingError> {
    let own = format!("{POOL_LABEL}{}", pool.name);
    let of_all = |name: &str| {
        name == "machineconfiguration.openshift.io/mco-built-in"
            || name == "operator.machineconfiguration.openshift.io/required-for-upgrade"
    };
    let label = pool.labels.get_key_value(&own);
    let label = label.or_else(|| pool.labels.iter().find(|(name, _)| !of_all(name)));
    let (name, value) = label.ok_or_else(|| SettingError::NoLabel(pool.name.clone()))?;
    Ok(json!({"matchLabels": { name: value }}))
}

/// Returns the value of a field of the object itself; `None` if the name belongs to the kubelet's configuration.
fn top_level(path: &str, text: &str, setting: &str) -> Result<Option<Value>, SettingError> {
    let wrong = |wanted, example| SettingError::WrongValue {
        setting: setting.to_owned(),
        field: path.to_owned(),
        wanted,
        example,
    };
    match path {
        "logLevel" => match text.parse::<i32>() {
            Ok(level) if (0..=10).contains(&level) => Ok(Some(level.into())),
            _ => Err(wrong("a number from 0 to 10", "4")),
        },
        "autoSizingReserved" => match text.parse::<bool>() {
            Ok(value) => Ok(Some(value.into())),
            Err(_) => Err(wrong("true or false", "true")),
        },
        "tlsSecurityProfile" | "tlsSecurityProfile.type" => {
            if path.ends_with(".type") {
                return Err(SettingError::Unknown(
                    setting.to_owned(),
                    "; write tlsSecurityProfile=Modern".to_owned(),
                ));
            }
            match text {
                "Old" | "Intermediate" | "Modern" => {
                    Ok(Some(json!({"type": text, text.to_ascii_lowercase(): {}})))
                }
                _ => Err(wrong("Old, Intermediate or Modern", "Modern")),
            }
        }
        _ => Ok(None),
    }
}

/// Sets one field. `above` is the path of its parent, for messages.
fn set_field(
    fields: &mut Map<String, Value>,
    of: &'static Struct,
    path: &str,
    above: &str,
    text: &str,
    setting: &str,
) -> Result<(), SettingError> {
    let (name, rest) = match path.split_once('.') {
        Some((name, rest)) => (name, Some(rest)),
        None => (path, None),
    };
    let Some(field) = known_field(of, name) else {
        return Err(unknown_field(of, name, above, setting));
    };
    let full = format!("{above}{}", field.name);
    let below = |fields: &mut Map<String, Value>| match fields.remove(field.name) {
        Some(Value::Object(known)) => known,
        _ => Map::new(),
    };
    match (&field.kind, rest) {
        (KubeletKind::Struct(inner), None) => {
            let example = inner.fields.first().map_or("", |field| field.name);
            return Err(SettingError::HasFields(full, example));
        }
        (KubeletKind::Struct(inner), Some(rest)) => {
            let mut known = below(fields);
            set_field(&mut known, inner, rest, &format!("{full}."), text, setting)?;
            fields.insert(field.name.to_owned(), Value::Object(known));
        }
        (KubeletKind::Map(..), None) => return Err(SettingError::NoKey(full)),
        (KubeletKind::Map(item, _), Some(key)) => {
            let value = parse_setting(item, text, &full, setting)?;
            let mut known = below(fields);
            if known.insert(key.to_owned(), value).is_some() {
                return Err(SettingError::Twice(setting.to_owned()));
            }
            fields.insert(field.name.to_owned(), Value::Object(known));
        }
        (_, Some(_)) => return Err(unknown_below(&full, setting)),
        (kind, None) => {
            let value = parse_setting(kind, text, &full, setting)?;
            if fields.insert(field.name.to_owned(), value).is_some() {
                return Err(SettingError::Twice(setting.to_owned()));
            }
        }
    }
    Ok(())
}

fn known_field(of: &'static Struct, name: &str) -> Option<&'static KubeletField> {
    of.find_field(name)
        .filter(|field| !["kind", "apiVersion"].contains(&field.name))
}

fn unknown_field(of: &'static Struct, name: &str, above: &str, setting: &str) -> SettingError {
    let mut names: Vec<&str> = of.fields.iter().map(|field| field.name).collect();
    if above.is_empty() {
        names.extend(["logLevel", "autoSizingReserved", "tlsSecurityProfile"]);
    }
    SettingError::Unknown(setting.to_owned(), hint_nearest(name, names.into_iter()))
}

fn unknown_below(full: &str, setting: &str) -> SettingError {
    SettingError::Unknown(
        setting.to_owned(),
        format!("; {full} has no fields of its own"),
    )
}

/// Parses the value of a setting.
fn parse_setting(
    kind: &'static KubeletKind,
    text: &str,
    field: &str,
    setting: &str,
) -> Result<Value, SettingError> {
    let wrong = |(wanted, example)| SettingError::WrongValue {
        setting: setting.to_owned(),
        field: field.to_owned(),
        wanted,
        example,
    };
    let typed = match kind {
        KubeletKind::Bool => text.parse::<bool>().map(Value::from).ok(),
        KubeletKind::Int(..) => text.parse::<i64>().map(Value::from).ok(),
        KubeletKind::Float => text
            .parse::<f64>()
            .ok()
            .and_then(|number| serde_json::Number::from_f64(number).map(Value::Number)),
        KubeletKind::Text(_) => Some(text.into()),
        KubeletKind::Duration | KubeletKind::TimeOrDuration => {
            duration::parse_duration(text).ok().map(|_| text.into())
        }
        KubeletKind::Quantity => Quantity::parse(text).ok().map(|_| text.into()),
        KubeletKind::List(KubeletKind::Struct(_), _)
        | KubeletKind::Struct(_)
        | KubeletKind::Map(..) => serde_json::from_str(text).ok().filter(Value::is_array),
        KubeletKind::List(item, _) => {
            let parts = text
                .split(',')
                .map(str::trim)
                .filter(|part| !part.is_empty());
            let items: Result<Vec<Value>, _> = parts
                .map(|part| parse_setting(item, part, field, setting))
                .collect();
            Some(Value::Array(items?))
        }
    };
    match typed.filter(|value| is_decoded(field, value)) {
        Some(value) => Ok(value),
        None => Err(wrong(describe_kind(kind))),
    }
}

/// Returns true if the operator's decoder takes the value of a field: it checks the range of numbers.
fn is_decoded(field: &str, value: &Value) -> bool {
    let kind = KUBELET.find_field(field).map(|field| field.kind);
    if field.contains('.') || matches!(kind, Some(KubeletKind::Map(..) | KubeletKind::List(..))) {
        return true;
    }
    let alone = Map::from_iter([(field.to_owned(), value.clone())]);
    super::decode::decode_fields(&Value::Object(alone)).is_ok()
}

/// Returns the type of a value in words, and an example.
fn describe_kind(kind: &KubeletKind) -> (&'static str, &'static str) {
    match kind {
        KubeletKind::Bool => ("true or false", "true"),
        KubeletKind::Int(..) => ("a whole number", "300"),
        KubeletKind::Float => ("a number", "0.8"),
        KubeletKind::Text(_) => ("a text", "static"),
        KubeletKind::Duration | KubeletKind::TimeOrDuration => ("a duration", "1m30s"),
        KubeletKind::Quantity => ("a quantity", "1Gi"),
        KubeletKind::List(KubeletKind::Struct(_), _) => ("a JSON list of objects", "[{}]"),
        KubeletKind::List(..) => ("a list with commas", "pods,system-reserved"),
        KubeletKind::Map(..) | KubeletKind::Struct(_) => ("a JSON object", "{}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn worker() -> ConfigPool {
        ConfigPool::built_in("worker").unwrap()
    }

    #[test]
    fn settings_become_one_object_with_typed_values() {
        let settings = [
            "maxPods=300",
            "evictionHard.memory.available=1Gi",
            "evictionHard.nodefs.available=10%",
            "cpuCFSQuota=false",
            "nodeStatusUpdateFrequency=15s",
            "enforceNodeAllocatable=pods, system-reserved",
            "logging.verbosity=4",
            "logLevel=5",
            "autoSizingReserved=false",
            "systemReserved.memory=3Gi",
            "tlsSecurityProfile=Modern",
            "reservedMemory=[{\"numaNode\":0,\"limits\":{\"memory\":\"1Gi\"}}]",
        ];
        let object = from_settings(&worker(), &settings).unwrap();
        let wanted = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "KubeletConfig",
            "metadata": {"name": "mco-rescue-worker"},
            "spec": {
                "machineConfigPoolSelector": {"matchLabels": {"pools.operator.machineconfiguration.openshift.io/worker": ""}},
                "logLevel": 5,
                "autoSizingReserved": false,
                "tlsSecurityProfile": {"type": "Modern", "modern": {}},
                "kubeletConfig": {
                    "maxPods": 300,
                    "evictionHard": {"memory.available": "1Gi", "nodefs.available": "10%"},
                    "cpuCFSQuota": false,
                    "nodeStatusUpdateFrequency": "15s",
                    "enforceNodeAllocatable": ["pods", "system-reserved"],
                    "logging": {"verbosity": 4},
                    "systemReserved": {"memory": "3Gi"},
                    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
                },
            },
        });
        assert_eq!(object, wanted);
    }

    #[test]
    fn a_wrong_setting_is_refused_with_the_way_to_write_it() {
        for (setting, words) in [
            ("maxPods", "maxPods: write FIELD=VALUE, such as maxPods=300"),
            ("=3", "=3: write FIELD=VALUE, such as maxPods=300"),
            (
                "maxPod=3",
                "maxPod=3: the kubelet's configuration has no such field; did you mean maxPods?",
            ),
            (
                "maxPods.a=3",
                "maxPods.a=3: the kubelet's configuration has no such field; maxPods has no fields of its own",
            ),
            (
                "maxPods=many",
                "maxPods=many: maxPods must be a whole number, such as maxPods=300",
            ),
            (
                "maxPods=99999999999",
                "maxPods=99999999999: maxPods must be a whole number, such as maxPods=300",
            ),
            (
                "cpuCFSQuota=no",
                "cpuCFSQuota=no: cpuCFSQuota must be true or false, such as cpuCFSQuota=true",
            ),
            (
                "syncFrequency=5",
                "syncFrequency=5: syncFrequency must be a duration, such as syncFrequency=1m30s",
            ),
            (
                "evictionHard=1",
                "evictionHard: it is a list of names and values; write evictionHard.NAME=VALUE",
            ),
            (
                "logging=1",
                "logging: it has fields of its own, such as logging.format; give them one by one",
            ),
            (
                "logLevel=11",
                "logLevel=11: logLevel must be a number from 0 to 10, such as logLevel=4",
            ),
        ] {
            let error = from_settings(&worker(), &[setting]).unwrap_err();
            assert_eq!(error.to_string(), words);
        }
        let twice = from_settings(&worker(), &["maxPods=1", "maxpods=2"]).unwrap_err();
        assert_eq!(twice, SettingError::Twice("maxpods=2".to_owned()));
        assert_eq!(from_settings(&worker(), &[]), Err(SettingError::None));
    }

    #[test]
    fn a_custom_pool_is_selected_by_a_label_of_its_own() {
        let mut pool = worker();
        pool.name = "infra".to_owned();
        pool.labels = [("custom-kubelet".to_owned(), "infra".to_owned())].into();
        let object = from_settings(&pool, &["maxPods=1"]).unwrap();
        let selector = &object["spec"]["machineConfigPoolSelector"];
        assert_eq!(
            selector,
            &json!({"matchLabels": {"custom-kubelet": "infra"}})
        );
        pool.labels.clear();
        let error = from_settings(&pool, &["maxPods=1"]).unwrap_err();
        assert_eq!(error, SettingError::NoLabel("infra".to_owned()));
    }

    proptest! {
        #[test]
        fn any_setting_is_taken_or_refused(path in "[a-zA-Z.]{0,20}", value in "\\PC{0,20}") {
            let setting = format!("{path}={value}");
            let _ = from_settings(&worker(), &[&setting]);
            for field in KUBELET.fields {
                let _ = from_settings(&worker(), &[&format!("{}={value}", field.name)]);
            }
        }
    }
}
