//! Decodes `spec.kubeletConfig` like the operator: typed by the table of fields, with the errors of Go's JSON decoder.

use serde_json::{Map, Number, Value};

use super::duration;
use super::fields::{KUBELET, KubeletField, KubeletKind, Struct, Width};
use super::merge::zero_value;
use crate::base::order::StableOrder;
use crate::base::reason::Reason;
use crate::config::controllers::quantity::Quantity;

/// A value that the operator cannot decode.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub(super) struct UndecodedValue {
    reason: Reason,
    /// The path to its field, where the operator's message names it.
    pub(super) path: Vec<&'static str>,
}

impl From<Reason> for UndecodedValue {
    fn from(reason: Reason) -> Self {
        let path = Vec::new();
        Self { reason, path }
    }
}

impl From<UndecodedValue> for Reason {
    fn from(undecoded: UndecodedValue) -> Self {
        undecoded.reason
    }
}

/// Decodes the configuration of a KubeletConfig. The result has the given known fields under their exact names, durations in
/// Go's form and quantities in canonical form; `null` is left out.
///
/// # Errors
/// The operator's message.
pub(super) fn decode_fields(value: &Value) -> Result<Map<String, Value>, UndecodedValue> {
    let Value::Object(object) = value else {
        let (name, found) = (KUBELET.name, value_name(value));
        return Err(Reason::from(format!(
            "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {found} into Go value of type {name}"
        ))
        .into());
    };
    let mut reader = Reader::default();
    let decoded = reader.read_fields(object, &KUBELET)?;
    match reader.first_error {
        Some(error) => Err(error),
        None => Ok(decoded),
    }
}

/// Returns the first value of a type with which the kubelet does not load its configuration: the message of Go, after the field
/// if the message does not name it.
pub(super) fn find_type_fault(object: &Map<String, Value>) -> Option<(String, String)> {
    let mut reader = Reader::default();
    let error = match reader.read_fields(object, &KUBELET) {
        Ok(_) => reader.first_error?,
        Err(error) => error,
    };
    let words = error.to_string();
    let said = if error.path.is_empty() {
        format!("{}: {words}", reader.path.join("."))
    } else {
        words.clone()
    };
    Some((said, words))
}

/// Go continues after a value of a wrong type and reports the first one at the end. An error in a type that decodes itself
/// (durations, quantities) stops the decoder.
#[derive(Default)]
struct Reader {
    first_error: Option<UndecodedValue>,
    /// The innermost struct, and the path to the field.
    place: Option<&'static str>,
    path: Vec<&'static str>,
}

impl Reader {
    fn read_fields(
        &mut self,
        object: &Map<String, Value>,
        of: &'static Struct,
    ) -> Result<Map<String, Value>, UndecodedValue> {
        let mut keys: Vec<&String> = object.keys().collect();
        // The API passes objects on with sorted keys.
        keys.sort();
        let outer = (self.place, self.path.len());
        let mut read = Map::new();
        for key in keys {
            let (Some(field), Some(value)) = (of.find_field(key), object.get(key)) else {
                continue;
            };
            self.place = Some(of.short_name());
            self.path.extend(field.embedded);
            self.path.push(field.name);
            if let Some(value) = self.read_field(value, field)? {
                read.insert(field.name.to_owned(), value);
            }
            self.place = outer.0;
            self.path.truncate(outer.1);
        }
        Ok(read)
    }

    fn read_field(
        &mut self,
        value: &Value,
        field: &'static KubeletField,
    ) -> Result<Option<Value>, UndecodedValue> {
        if value.is_null() && field.pointer {
            return Ok(None);
        }
        self.read_value(value, &field.kind)
    }

    fn read_value(
        &mut self,
        value: &Value,
        kind: &'static KubeletKind,
    ) -> Result<Option<Value>, UndecodedValue> {
        match kind {
            KubeletKind::Duration => return self.read_duration(value).map(Some),
            KubeletKind::TimeOrDuration => return self.read_time(value).map(Some),
            KubeletKind::Quantity => return Ok(Some(read_quantity(value)?)),
            _ if value.is_null() => return Ok(None),
            _ => {}
        }
        Ok(match (kind, value) {
            (KubeletKind::Bool, Value::Bool(_)) | (KubeletKind::Text(_), Value::String(_)) => {
                Some(value.clone())
            }
            (KubeletKind::Int(width, name), Value::Number(number)) => {
                self.read_int(number, *width, name)
            }
            (KubeletKind::Float, Value::Number(number)) => {
                Some(Value::Number(whole_number(number)))
            }
            (KubeletKind::List(item, _), Value::Array(items)) => {
                Some(self.read_items(items, item)?)
            }
            (KubeletKind::Map(item, _), Value::Object(entries)) => {
                Some(self.read_entries(entries, item)?)
            }
            (KubeletKind::Struct(of), Value::Object(object)) => {
                Some(Value::Object(self.read_fields(object, of)?))
            }
            _ => {
                self.refuse_value(value_name(value), type_name(kind));
                None
            }
        })
    }

    fn read_int(&mut self, number: &Number, width: Width, name: &str) -> Option<Value> {
        let whole = whole_number(number);
        let fits = match width {
            Width::Signed32 => whole.as_i64().is_some_and(|n| i32::try_from(n).is_ok()),
            Width::Signed64 => whole.as_i64().is_some(),
            Width::Unsigned32 => whole.as_u64().is_some_and(|n| u32::try_from(n).is_ok()),
        };
        if !fits {
            self.refuse_value(&format!("number {whole}"), name);
            return None;
        }
        Some(Value::Number(whole))
    }

    /// Decodes the items of a list; to Go, `null` is an empty item.
    fn read_items(
        &mut self,
        items: &[Value],
        item: &'static KubeletKind,
    ) -> Result<Value, UndecodedValue> {
        let mut read = Vec::new();
        for value in items {
            read.push(
                self.read_value(value, item)?
                    .unwrap_or_else(|| zero_value(item)),
            );
        }
        Ok(Value::Array(read))
    }

    fn read_entries(
        &mut self,
        entries: &Map<String, Value>,
        item: &'static KubeletKind,
    ) -> Result<Value, UndecodedValue> {
        let mut keys: Vec<(&String, &Value)> = entries.iter().collect();
        keys.order_by_key(|(key, _)| *key);
        let mut read = Map::new();
        for (key, value) in keys {
            let value = self
                .read_value(value, item)?
                .unwrap_or_else(|| zero_value(item));
            read.insert(key.clone(), value);
        }
        Ok(Value::Object(read))
    }

    fn read_duration(&self, value: &Value) -> Result<Value, UndecodedValue> {
        let text = match value {
            Value::String(text) => text.as_str(),
            Value::Null => "",
            _ => return Err(self.type_error(value_name(value), "string")),
        };
        let nanoseconds = duration::parse_duration(text)?;
        Ok(duration::format_duration(nanoseconds).into())
    }

    fn read_time(&self, value: &Value) -> Result<Value, UndecodedValue> {
        match value {
            Value::String(_) => self.read_duration(value),
            Value::Null => Ok(0.into()),
            Value::Number(number) if whole_number(number).as_i64().is_some() => {
                Ok(Value::Number(whole_number(number)))
            }
            _ => {
                let found = match value {
                    Value::Number(number) => format!("number {}", whole_number(number)),
                    _ => value_name(value).to_owned(),
                };
                let text = crate::base::go_quote::quote_go(&value.to_string());
                Err(Reason::from(format!(
                    "invalid duration {text}: json: cannot unmarshal {found} into Go value of type time.Duration"
                ))
                .into())
            }
        }
    }

    fn refuse_value(&mut self, found: &str, wanted: &str) {
        let error = self.type_error(found, wanted);
        self.first_error.get_or_insert(error);
    }

    fn type_error(&self, found: &str, wanted: &str) -> UndecodedValue {
        let place = self.place.unwrap_or_default();
        let path = self.path.join(".");
        let reason = format!(
            "json: cannot unmarshal {found} into Go struct field {place}.{path} of type {wanted}"
        );
        UndecodedValue {
            reason: reason.into(),
            path: self.path.clone(),
        }
    }
}

fn read_quantity(value: &Value) -> Result<Value, Reason> {
    if value.is_null() {
        return Ok("0".into());
    }
    Ok(Quantity::from_value(value)?.to_string().into())
}

/// Returns the number as it is in the API's JSON: YAML's `250.0` becomes 250.
fn whole_number(number: &Number) -> Number {
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 9e15 =>
        {
            #[allow(clippy::cast_possible_truncation)]
            Number::from(float as i64)
        }
        _ => number.clone(),
    }
}

/// Returns Go's word for the type of a JSON value.
fn value_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn type_name(kind: &KubeletKind) -> &'static str {
    match kind {
        KubeletKind::Bool => "bool",
        KubeletKind::Int(_, name)
        | KubeletKind::Text(name)
        | KubeletKind::List(_, name)
        | KubeletKind::Map(_, name) => name,
        KubeletKind::Float => "float64",
        KubeletKind::Duration | KubeletKind::TimeOrDuration | KubeletKind::Quantity => "string",
        KubeletKind::Struct(of) => of.name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    /// Settings, and the error of Go.
    const WRONG: &[(&str, &str)] = &[
        (
            r#"{"maxPods": "many"}"#,
            "json: cannot unmarshal string into Go struct field KubeletConfiguration.maxPods of type int32",
        ),
        (
            r#"{"maxPods": 2.5}"#,
            "json: cannot unmarshal number 2.5 into Go struct field KubeletConfiguration.maxPods of type int32",
        ),
        (
            r#"{"maxPods": 3000000000}"#,
            "json: cannot unmarshal number 3000000000 into Go struct field KubeletConfiguration.maxPods of type int32",
        ),
        (
            r#"{"logging": {"verbosity": -1}}"#,
            "json: cannot unmarshal number -1 into Go struct field LoggingConfiguration.logging.verbosity of type v1.VerbosityLevel",
        ),
        (
            r#"{"cpuCFSQuota": "no"}"#,
            "json: cannot unmarshal string into Go struct field KubeletConfiguration.cpuCFSQuota of type bool",
        ),
        (
            r#"{"clusterDNS": "10.0.0.1"}"#,
            "json: cannot unmarshal string into Go struct field KubeletConfiguration.clusterDNS of type []string",
        ),
        (
            r#"{"clusterDNS": [1]}"#,
            "json: cannot unmarshal number into Go struct field KubeletConfiguration.clusterDNS of type string",
        ),
        (
            r#"{"systemReserved": {"memory": 1}}"#,
            "json: cannot unmarshal number into Go struct field KubeletConfiguration.systemReserved of type string",
        ),
        (
            r#"{"authentication": {"anonymous": {"enabled": "x"}}}"#,
            "json: cannot unmarshal string into Go struct field KubeletAnonymousAuthentication.authentication.anonymous.enabled of type bool",
        ),
        (
            r#"{"authentication": true}"#,
            "json: cannot unmarshal bool into Go struct field KubeletConfiguration.authentication of type v1beta1.KubeletAuthentication",
        ),
        (
            r#"{"reservedMemory": [{"numaNode": "a"}]}"#,
            "json: cannot unmarshal string into Go struct field MemoryReservation.reservedMemory.numaNode of type int32",
        ),
        (
            r#"{"reservedMemory": [{"limits": {"memory": "lots"}}]}"#,
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            r#"{"syncFrequency": 5}"#,
            "json: cannot unmarshal number into Go struct field KubeletConfiguration.syncFrequency of type string",
        ),
        (
            r#"{"syncFrequency": "soon"}"#,
            "time: invalid duration \"soon\"",
        ),
        (r#"{"syncFrequency": null}"#, "time: invalid duration \"\""),
        // The first one is reported, unless a type that decodes itself fails.
        (
            r#"{"maxPods": "b", "address": 1}"#,
            "json: cannot unmarshal number into Go struct field KubeletConfiguration.address of type string",
        ),
        (
            r#"{"address": 1, "syncFrequency": "soon"}"#,
            "time: invalid duration \"soon\"",
        ),
        (
            r#"[]"#,
            "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go value of type v1beta1.KubeletConfiguration",
        ),
    ];

    #[test]
    fn a_wrong_value_is_refused_in_the_words_of_go() {
        for &(value, error) in WRONG {
            let value: Value = serde_json::from_str(value).unwrap();
            assert_eq!(
                decode_fields(&value).unwrap_err().to_string(),
                error,
                "{value}"
            );
        }
    }

    #[test]
    fn known_fields_are_read_and_normalised() {
        let value = json!({
            "maxpods": 250.0, "unknown": {"a": 1}, "cpuCFSQuota": null, "syncFrequency": "90s",
            "reservedMemory": [{"limits": {"memory": "1.5Gi"}}], "evictionHard": {"a": null},
        });
        let read = json!({
            "maxPods": 250, "syncFrequency": "1m30s",
            "reservedMemory": [{"limits": {"memory": "1536Mi"}}], "evictionHard": {"a": ""},
        });
        assert_eq!(Value::Object(decode_fields(&value).unwrap()), read);
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "\\PC{0,8}".prop_map(Value::from),
        ];
        let names: Vec<&str> = KUBELET.fields.iter().map(|field| field.name).collect();
        let key = prop_oneof![
            proptest::sample::select(names).prop_map(str::to_owned),
            proptest::sample::select(vec![
                "limits",
                "options",
                "text",
                "infoBufferSize",
                "webhook"
            ])
            .prop_map(str::to_owned),
        ];
        leaf.prop_recursive(4, 32, 6, move |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map(key.clone(), inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    /// Removes null fields, which Go treats as missing.
    fn without_nulls(value: Value) -> Value {
        match value {
            Value::Object(fields) => {
                let fields = fields.into_iter().filter(|(_, value)| !value.is_null());
                let fields = fields.map(|(name, value)| (name, without_nulls(value)));
                Value::Object(fields.collect())
            }
            Value::Array(items) => items.into_iter().map(without_nulls).collect(),
            other => other,
        }
    }

    fn assert_read_again_alike(value: &Value) {
        if let Ok(read) = decode_fields(value) {
            let read = Value::Object(read);
            let again = decode_fields(&read).map(|read| without_nulls(Value::Object(read)));
            assert_eq!(again, Ok(without_nulls(read)));
        }
    }

    #[test]
    fn an_empty_item_is_read_again_alike() {
        assert_read_again_alike(&json!({"reservedMemory": [null]}));
    }

    proptest! {
        #[test]
        fn what_is_read_is_read_again_alike(value in any_json()) {
            assert_read_again_alike(&value);
        }
    }
}
