//! Converts YAML to typed values, like Go's yaml.v3 when it fills Butane's structs.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use crate::base::go_quote::quote_go;
use crate::base::reason::Reason;

use super::node::{MAX_NODES, MappingKey, Node, NodeValue, Scalar};
use super::report::{Path, PathStep, Report};
use super::scalar::{Resolved, resolve_plain};
use super::schema::{ButaneKind, NamedType, RecordSchema};
use super::version::{ButaneVersion, SchemaLevel};

/// Decodes the whole input. Missing values are left out, except for texts, which are empty.
///
/// # Errors
/// The error in the words of yaml.v3.
pub(super) fn decode_butane(
    root: &Node,
    record: &RecordSchema,
    version: ButaneVersion,
) -> Result<Value, Reason> {
    let mut decoder = Decoder {
        version: Some(version),
        errors: Vec::new(),
        left: MAX_NODES,
        failure: None,
    };
    let value = decoder.decode_record(root, record);
    decoder.finish()?;
    Ok(value.unwrap_or_default())
}

/// Reads the two keys that select the translator.
///
/// # Errors
/// As for [`decode_butane`].
pub(super) fn decode_header(root: &Node) -> Result<(String, String), Reason> {
    let mut decoder = Decoder {
        version: None,
        errors: Vec::new(),
        left: MAX_NODES,
        failure: None,
    };
    let mut header = (String::new(), String::new());
    if let Some(entries) = decoder.decode_entries(root, || "config.commonFields".to_owned()) {
        for (key, node) in entries {
            let place = match key.as_str() {
                "version" => &mut header.0,
                "variant" => &mut header.1,
                _ => continue,
            };
            if let Some(Value::String(text)) = decoder.decode_text(&node, "string") {
                *place = text;
            }
        }
    }
    decoder.finish()?;
    Ok(header)
}

type EntryList = Vec<(String, Rc<Node>)>;

/// The entries of a mapping; keys are unique.
#[derive(Default)]
struct Entries {
    list: EntryList,
    keys: BTreeSet<String>,
}

impl Entries {
    /// Adds an entry, unless its key exists.
    fn add(&mut self, key: &MappingKey, value: &Rc<Node>) {
        if self.keys.insert(key.text.clone()) {
            self.list.push((key.text.clone(), Rc::clone(value)));
        }
    }
}

struct Decoder {
    version: Option<ButaneVersion>,
    errors: Vec<String>,
    /// Number of nodes that may still be read; an alias counts each time it is used.
    left: usize,
    /// An error that ends reading.
    failure: Option<String>,
}

impl Decoder {
    fn finish(self) -> Result<(), Reason> {
        if let Some(failure) = self.failure {
            return Err(failure.into());
        }
        if self.errors.is_empty() {
            return Ok(());
        }
        let lines = self.errors.join("\n  ");
        Err(format!("yaml: unmarshal errors:\n  {lines}").into())
    }

    fn level(&self) -> SchemaLevel {
        self.version
            .map_or(SchemaLevel::V3, |version| version.level)
    }

    /// Returns the Go name of a type in a layer.
    fn go_name(&self, record: &RecordSchema) -> String {
        let package = self
            .version
            .map(|version| version.go_package(record.origin));
        format!("{}.{}", package.unwrap_or_default(), record.name)
    }

    fn item_name(&self, named: NamedType) -> String {
        let version = self.version;
        match named {
            NamedType::Plain => "string".to_owned(),
            NamedType::Base(name) => {
                let package =
                    version.map(|version| version.go_package(super::version::TypeOrigin::Base));
                format!("{}.{name}", package.unwrap_or_default())
            }
        }
    }

    fn decode_value(&mut self, node: &Node, kind: ButaneKind) -> Option<Value> {
        if self.left == 0 || self.failure.is_some() {
            self.failure
                .get_or_insert_with(|| "yaml: document contains excessive aliasing".to_owned());
            return None;
        }
        self.left -= 1;
        match kind {
            ButaneKind::Text | ButaneKind::OptionalText => self.decode_text(node, "string"),
            ButaneKind::Number => self.decode_number(node),
            ButaneKind::Flag => self.decode_flag(node),
            ButaneKind::Texts(named) => {
                let name = self.item_name(named);
                self.decode_items(node, &name, |decoder, item| {
                    decoder.decode_text(item, &name)
                })
            }
            ButaneKind::Record(record) => self.decode_record(node, record),
            ButaneKind::Records(record) => {
                let name = self.go_name(record);
                self.decode_items(node, &name, |decoder, item| {
                    decoder.decode_value(item, ButaneKind::Record(record))
                })
            }
            ButaneKind::Labels => self.decode_labels(node),
        }
    }

    /// Records that a node has the wrong type.
    fn refuse_type(&mut self, node: &Node, name: &str) {
        let target = node.target();
        let (tag, text) = match &target.value {
            NodeValue::List(_) => ("!!seq".to_owned(), String::new()),
            NodeValue::Map(_) => ("!!map".to_owned(), String::new()),
            NodeValue::Alias(_) => return,
            NodeValue::Scalar(scalar) => {
                let tag = match &scalar.tag {
                    Some(tag) => format!("!!{tag}"),
                    None => resolve_scalar(scalar).tag().to_owned(),
                };
                let shown: String = if scalar.text.len() > 10 {
                    String::from_utf8_lossy(scalar.text.as_bytes().get(..7).unwrap_or_default())
                        .into_owned()
                        + "..."
                } else {
                    scalar.text.clone()
                };
                (tag, format!(" `{shown}`"))
            }
        };
        let line = target.mark.line;
        self.errors.push(format!(
            "line {line}: cannot unmarshal {tag}{text} into {name}"
        ));
    }

    /// Returns the scalar of a node; `None` if it is null, or is not a scalar, which is an error.
    fn decode_scalar<'n>(&mut self, node: &'n Node, name: &str) -> Option<(&'n Scalar, Resolved)> {
        match &node.target().value {
            NodeValue::Scalar(scalar) => match resolve_scalar(scalar) {
                Resolved::Null => None,
                resolved => Some((scalar, resolved)),
            },
            _ => {
                self.refuse_type(node, name);
                None
            }
        }
    }

    fn decode_text(&mut self, node: &Node, name: &str) -> Option<Value> {
        let (scalar, _) = self.decode_scalar(node, name)?;
        if scalar.tag.as_deref() == Some("binary") {
            let packed: String = scalar.text.split(['\n', '\r']).collect();
            let bytes = STANDARD.decode(packed).ok();
            let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
            if text.is_none() {
                self.failure.get_or_insert_with(|| {
                    "yaml: !!binary value contains invalid base64 data".to_owned()
                });
            }
            return text.map(Value::String);
        }
        Some(Value::String(scalar.text.clone()))
    }

    fn decode_number(&mut self, node: &Node) -> Option<Value> {
        let (_, resolved) = self.decode_scalar(node, "int")?;
        match resolved {
            Resolved::Integer(number) => return Some(number.into()),
            // Go cuts a fraction off.
            Resolved::Float(number) if number.abs() < 9.2e18 => {
                #[allow(clippy::cast_possible_truncation, reason = "it is in the range of i64")]
                return Some((number as i64).into());
            }
            _ => {}
        }
        self.refuse_type(node, "int");
        None
    }

    fn decode_flag(&mut self, node: &Node) -> Option<Value> {
        let (scalar, resolved) = self.decode_scalar(node, "bool")?;
        match (resolved, scalar.text.as_str()) {
            (Resolved::Flag(flag), _) => return Some(flag.into()),
            (Resolved::Text, "y" | "Y" | "yes" | "on") => return Some(true.into()),
            (Resolved::Text, "n" | "N" | "no" | "off") => return Some(false.into()),
            _ => {}
        }
        self.refuse_type(node, "bool");
        None
    }

    fn decode_items(
        &mut self,
        node: &Node,
        name: &str,
        mut read: impl FnMut(&mut Self, &Node) -> Option<Value>,
    ) -> Option<Value> {
        match &node.target().value {
            // Null items are dropped.
            NodeValue::List(items) => {
                let items = items.iter().filter_map(|item| read(self, item));
                Some(Value::Array(items.collect()))
            }
            NodeValue::Scalar(scalar) if resolve_scalar(scalar) == Resolved::Null => None,
            _ => {
                self.refuse_type(node, &format!("[]{name}"));
                None
            }
        }
    }

    /// Returns the entries of a mapping, including those of its merge keys. A duplicate key is an error.
    fn decode_entries(&mut self, node: &Node, name: impl FnOnce() -> String) -> Option<EntryList> {
        let entries = match &node.target().value {
            NodeValue::Map(entries) => entries,
            NodeValue::Scalar(scalar) if resolve_scalar(scalar) == Resolved::Null => return None,
            _ => {
                self.refuse_type(node, &name());
                return None;
            }
        };
        if self.has_duplicates(entries) {
            return None;
        }
        let mut all = Entries::default();
        for (key, value) in entries {
            if !(key.is_plain && key.text == "<<") {
                all.add(key, value);
            }
        }
        let merged = entries
            .iter()
            .filter(|entry| entry.0.is_plain && entry.0.text == "<<");
        for (_, value) in merged {
            self.merge_entries(value, &mut all, 0);
        }
        Some(all.list)
    }

    /// Adds the entries of a merge key whose keys do not exist yet.
    fn merge_entries(&mut self, value: &Node, all: &mut Entries, depth: usize) {
        let cost = match &value.target().value {
            NodeValue::Map(entries) => entries.len(),
            NodeValue::List(items) => items.len(),
            _ => 0,
        };
        if depth > 8 || self.left < cost {
            self.left = 0;
            return;
        }
        self.left -= cost;
        match &value.target().value {
            NodeValue::Map(entries) => {
                for (key, value) in entries {
                    if key.text == "<<" {
                        self.merge_entries(value, all, depth + 1);
                    } else {
                        all.add(key, value);
                    }
                }
            }
            NodeValue::List(items) => {
                for item in items {
                    self.merge_entries(item, all, depth + 1);
                }
            }
            _ => {
                self.failure.get_or_insert_with(|| {
                    "yaml: map merge requires map or sequence of maps as the value".to_owned()
                });
            }
        }
    }

    fn has_duplicates(&mut self, entries: &[(MappingKey, Rc<Node>)]) -> bool {
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        let before = self.errors.len();
        for (key, _) in entries {
            match seen.get(key.text.as_str()) {
                Some(first) => self.errors.push(format!(
                    "line {}: mapping key {} already defined at line {first}",
                    key.mark.line,
                    quote_go(&key.text)
                )),
                None => {
                    seen.insert(&key.text, key.mark.line);
                }
            }
        }
        self.errors.len() > before
    }

    fn decode_record(&mut self, node: &Node, record: &RecordSchema) -> Option<Value> {
        let name = self.go_name(record);
        let entries = self.decode_entries(node, || name)?;
        let level = self.level();
        let mut found = Map::new();
        for (key, value) in entries {
            if let Some(field) = record.find_field(&key, level)
                && let Some(value) = self.decode_value(&value, field.kind)
            {
                found.insert(field.name.to_owned(), value);
            }
        }
        // Fields have the order of the Go type, and texts are never missing.
        let mut ordered = Map::new();
        for field in record.fields_at(level) {
            let value = match (found.remove(field.name), field.kind) {
                (None, ButaneKind::Text) => Some(Value::String(String::new())),
                (value, _) => value,
            };
            if let Some(value) = value {
                ordered.insert(field.name.to_owned(), value);
            }
        }
        Some(Value::Object(ordered))
    }

    fn decode_labels(&mut self, node: &Node) -> Option<Value> {
        let entries = self.decode_entries(node, || "map[string]string".to_owned())?;
        let mut labels = Map::new();
        for (key, value) in entries {
            let before = self.errors.len();
            let text = self.decode_text(&value, "string");
            if self.errors.len() == before {
                labels.insert(key, text.unwrap_or_else(|| "".into()));
            }
        }
        Some(Value::Object(labels))
    }
}

/// Returns the meaning of a scalar, considering its quotes and its tag.
fn resolve_scalar(scalar: &Scalar) -> Resolved {
    match scalar.tag.as_deref() {
        None if scalar.is_plain => resolve_plain(&scalar.text),
        Some("int" | "float" | "bool" | "null" | "timestamp") => resolve_plain(&scalar.text),
        _ => Resolved::Text,
    }
}

/// Returns true for an item that Go drops from a list.
fn is_nothing(node: &Node) -> bool {
    match &node.target().value {
        NodeValue::Scalar(scalar) => resolve_scalar(scalar) == Resolved::Null,
        _ => false,
    }
}

/// Returns warnings about unused keys, in the order of the types.
pub(super) fn find_unused_keys(root: &Node, record: &RecordSchema, level: SchemaLevel) -> Report {
    let mut report = Report::default();
    walk_unused(root, record, level, &Path::default(), &mut report);
    report
}

fn walk_unused(
    node: &Node,
    record: &RecordSchema,
    level: SchemaLevel,
    at: &Path,
    report: &mut Report,
) {
    let NodeValue::Map(entries) = &node.value else {
        report.add_warning(
            at.clone(),
            format!(
                "context tree does not match content tree at {at}. Line and column reporting may be inconsistent. \
                 Unused keys may not be reported."
            ),
        );
        return;
    };
    for (key, _) in entries {
        if record.find_field(&key.text, level).is_none() {
            let place = at.with_step(PathStep::KeyItself(key.text.clone()));
            report.add_warning(place, format!("unused key {}", key.text));
        }
    }
    for field in record.fields_at(level) {
        let entry = entries.iter().find(|entry| entry.0.text == field.name);
        let Some((_, value)) = entry else { continue };
        let at = at.with_key(field.name);
        match (field.kind, &value.value) {
            (ButaneKind::Record(record), _) => walk_unused(value, record, level, &at, report),
            (ButaneKind::Records(record), NodeValue::List(items)) => {
                let given = items.iter().filter(|item| !is_nothing(item)).count();
                for (index, item) in items.iter().take(given).enumerate() {
                    walk_unused(item, record, level, &at.with_index(index), report);
                }
            }
            _ => {}
        }
    }
}
