//! The operator's merge of a KubeletConfig onto the base: an empty value never replaces one of the base.

use serde_json::{Map, Value};

use super::duration;
use super::fields::{KubeletField, KubeletKind, Struct};

/// Returns the empty value of a type.
pub(super) fn zero_value(kind: &KubeletKind) -> Value {
    match kind {
        KubeletKind::Bool => false.into(),
        KubeletKind::Int(..) | KubeletKind::Float | KubeletKind::TimeOrDuration => 0.into(),
        KubeletKind::Text(_) => "".into(),
        KubeletKind::Duration => "0s".into(),
        KubeletKind::Quantity => "0".into(),
        KubeletKind::List(..) | KubeletKind::Map(..) => Value::Null,
        KubeletKind::Struct(of) => Value::Object(complete_fields(Map::new(), of)),
    }
}

/// Merges the decoded fields of a KubeletConfig onto the base.
pub(super) fn merge_fields(
    base: &mut Map<String, Value>,
    over: Map<String, Value>,
    of: &'static Struct,
) {
    for (name, value) in over {
        let Some(field) = of.find_field(&name) else {
            continue;
        };
        match (&field.kind, value) {
            // Its value is invisible to the operator's merge.
            (KubeletKind::Quantity, _) => {}
            (KubeletKind::Struct(inner), Value::Object(fields)) => {
                merge_struct(base, field, fields, inner);
            }
            (KubeletKind::Map(..), Value::Object(entries)) => merge_map(base, &name, entries),
            (KubeletKind::TimeOrDuration, value) => merge_time(base, &name, &value),
            (kind, value) => {
                let is_missing = base.get(&name).is_none_or(Value::is_null);
                if !is_empty(&value, kind) || field.pointer && is_missing {
                    base.insert(name, complete_value(value, kind));
                }
            }
        }
    }
}

fn merge_struct(
    base: &mut Map<String, Value>,
    field: &KubeletField,
    over: Map<String, Value>,
    of: &'static Struct,
) {
    if let Some(Value::Object(known)) = base.get_mut(field.name) {
        return merge_fields(known, over, of);
    }
    if field.pointer {
        base.insert(
            field.name.to_owned(),
            Value::Object(complete_fields(over, of)),
        );
        return;
    }
    let mut fresh = Map::new();
    merge_fields(&mut fresh, over, of);
    if !fresh.is_empty() {
        base.insert(
            field.name.to_owned(),
            Value::Object(complete_fields(fresh, of)),
        );
    }
}

fn merge_map(base: &mut Map<String, Value>, name: &str, over: Map<String, Value>) {
    if over.is_empty() {
        return;
    }
    let known = base
        .entry(name)
        .or_insert_with(|| Value::Object(Map::new()));
    if !known.is_object() {
        *known = Value::Object(Map::new());
    }
    let Some(known) = known.as_object_mut() else {
        return;
    };
    for (key, value) in over {
        if value.as_str() != Some("") || !known.contains_key(&key) {
            known.insert(key, value);
        }
    }
}

/// Merges a number of nanoseconds or a duration: value and form are replaced separately.
fn merge_time(base: &mut Map<String, Value>, name: &str, over: &Value) {
    let nanoseconds = |value: &Value| match value {
        Value::String(text) => duration::parse_duration(text).unwrap_or(0),
        _ => value.as_i64().unwrap_or(0),
    };
    let known = base.get(name).cloned().unwrap_or(Value::Null);
    let amount = match nanoseconds(over) {
        0 => nanoseconds(&known),
        amount => amount,
    };
    let value = if over.is_string() || known.is_string() {
        duration::format_duration(amount).into()
    } else if amount == 0 && known.is_null() {
        return;
    } else {
        amount.into()
    };
    base.insert(name.to_owned(), value);
}

/// Returns true if Go considers the value empty.
fn is_empty(value: &Value, kind: &KubeletKind) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => {
            text.is_empty() || matches!(kind, KubeletKind::Duration) && text == "0s"
        }
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty() && !matches!(kind, KubeletKind::Struct(_)),
    }
}

/// Returns the fields as Go writes a struct: mandatory fields are added and empty optional ones left out.
pub(super) fn complete_fields(
    mut given: Map<String, Value>,
    of: &'static Struct,
) -> Map<String, Value> {
    let mut written = Map::new();
    for field in of.fields {
        let value = given.remove(field.name);
        let value = match value {
            Some(value) => complete_value(value, &field.kind),
            None if field.is_always() => zero_value(&field.kind),
            None => continue,
        };
        if field.pointer || field.is_always() || !is_empty(&value, &field.kind) {
            written.insert(field.name.to_owned(), value);
        }
    }
    written
}

fn complete_value(value: Value, kind: &KubeletKind) -> Value {
    match (kind, value) {
        (KubeletKind::Struct(of), Value::Object(fields)) => {
            Value::Object(complete_fields(fields, of))
        }
        (KubeletKind::List(item, _), Value::Array(items)) => {
            let items = items.into_iter().map(|value| complete_value(value, item));
            Value::Array(items.collect())
        }
        (_, value) => value,
    }
}

#[cfg(test)]
mod tests {
    use super::super::decode::decode_fields;
    use super::super::fields::KUBELET;
    use super::*;
    use serde_json::json;

    /// Merges a KubeletConfig onto a base.
    fn merged(base: Value, over: &Value) -> Value {
        let Value::Object(mut base) = base else {
            panic!("no object");
        };
        merge_fields(&mut base, decode_fields(over).unwrap(), &KUBELET);
        Value::Object(base)
    }

    #[test]
    fn an_empty_value_never_replaces_one_of_the_base() {
        let base = || {
            json!({"maxPods": 250, "rotateCertificates": true, "kubeAPIQPS": 50, "tlsCipherSuites": ["a"],
                "evictionHard": {"a": "1"}, "syncFrequency": "5s", "logging": {"flushFrequency": 5, "verbosity": 2}})
        };
        let over = json!({"maxPods": 0, "rotateCertificates": false, "kubeAPIQPS": 0, "tlsCipherSuites": [],
            "evictionHard": {"a": ""}, "syncFrequency": "0s", "logging": {"flushFrequency": 0, "verbosity": 0}});
        assert_eq!(merged(base(), &over), base());
    }

    #[test]
    fn a_field_that_the_base_lacks_is_written_if_it_tells_missing_from_empty() {
        let over = json!({"cpuCFSQuota": false, "runOnce": false, "eventRecordQPS": 0, "port": 0,
            "cpuCFSQuotaPeriod": "0s", "evictionHard": {}, "tracing": {}, "resolvConf": ""});
        let written = json!({"cpuCFSQuota": false, "eventRecordQPS": 0, "cpuCFSQuotaPeriod": "0s", "tracing": {},
            "resolvConf": ""});
        assert_eq!(merged(json!({}), &over), written);
    }

    #[test]
    fn structs_and_maps_merge_and_lists_are_replaced() {
        let base = json!({"evictionHard": {"a": "1", "b": "2"}, "enforceNodeAllocatable": ["pods"],
            "logging": {"flushFrequency": 0, "verbosity": 0, "options": {"json": {"infoBufferSize": "0"}}}});
        let over = json!({"evictionHard": {"b": "3", "c": ""}, "enforceNodeAllocatable": ["none"],
            "reservedMemory": [{"numaNode": 1}],
            "logging": {"flushFrequency": "0s", "verbosity": 4, "options": {"json": {"infoBufferSize": "4Ki", "splitStream": true}}}});
        let wanted = json!({"evictionHard": {"a": "1", "b": "3", "c": ""}, "enforceNodeAllocatable": ["none"],
            "reservedMemory": [{"numaNode": 1, "limits": null}],
            "logging": {"flushFrequency": "0s", "verbosity": 4,
                "options": {"json": {"infoBufferSize": "0", "splitStream": true}}}});
        assert_eq!(merged(base, &over), wanted);
    }

    #[test]
    fn every_file_has_the_fields_that_go_never_leaves_out() {
        let Value::Object(always) = json!({
            "authentication": {"anonymous": {}, "webhook": {"cacheTTL": "0s"}, "x509": {}},
            "authorization": {"webhook": {"cacheAuthorizedTTL": "0s", "cacheUnauthorizedTTL": "0s"}},
            "containerRuntimeEndpoint": "", "cpuManagerReconcilePeriod": "0s", "crashLoopBackOff": {},
            "evictionPressureTransitionPeriod": "0s", "fileCheckFrequency": "0s", "httpCheckFrequency": "0s",
            "imageMaximumGCAge": "0s", "imageMinimumGCAge": "0s",
            "logging": {"flushFrequency": 0, "options": {"json": {"infoBufferSize": "0"}, "text": {"infoBufferSize": "0"}},
                "verbosity": 0},
            "memorySwap": {}, "nodeStatusReportFrequency": "0s", "nodeStatusUpdateFrequency": "0s",
            "runtimeRequestTimeout": "0s", "shutdownGracePeriod": "0s", "shutdownGracePeriodCriticalPods": "0s",
            "streamingConnectionIdleTimeout": "0s", "syncFrequency": "0s", "volumeStatsAggPeriod": "0s",
        }) else {
            panic!("no object");
        };
        let mut written = complete_fields(Map::new(), &KUBELET);
        written.sort_keys();
        let mut always = always;
        always.sort_keys();
        assert_eq!(written, always);
    }
}
