//! The output under construction: each value has the place in the input that it comes from.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::report::Path;

/// A value of the output.
#[derive(Debug, Clone)]
pub(super) struct Out {
    /// The place of the input that it comes from.
    pub(super) from: Path,
    /// The value.
    pub(super) value: OutValue,
}

/// The forms of a value.
#[derive(Debug, Clone)]
pub(super) enum OutValue {
    /// Text, a number or a boolean.
    Leaf(Value),
    /// A list.
    List(Vec<Out>),
    /// A mapping, in Ignition's order of keys.
    Map(Vec<(String, Out)>),
}

impl Out {
    /// Creates a value that is neither a list nor a mapping.
    pub(super) fn leaf(from: &Path, value: impl Into<Value>) -> Self {
        Self {
            from: from.clone(),
            value: OutValue::Leaf(value.into()),
        }
    }

    /// Creates a list.
    pub(super) fn list(from: &Path, items: Vec<Self>) -> Self {
        Self {
            from: from.clone(),
            value: OutValue::List(items),
        }
    }

    /// Creates a mapping.
    pub(super) fn map(from: &Path, entries: Vec<(&str, Self)>) -> Self {
        let entries = entries
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value));
        Self {
            from: from.clone(),
            value: OutValue::Map(entries.collect()),
        }
    }

    /// Converts a JSON value; all of it comes from one place.
    pub(super) fn from_json(from: &Path, value: &Value) -> Self {
        let value = match value {
            Value::Array(items) => OutValue::List(
                items
                    .iter()
                    .map(|item| Self::from_json(from, item))
                    .collect(),
            ),
            Value::Object(entries) => {
                let entries = entries
                    .iter()
                    .map(|(key, value)| (key.clone(), Self::from_json(from, value)));
                OutValue::Map(entries.collect())
            }
            other => OutValue::Leaf(other.clone()),
        };
        Self {
            from: from.clone(),
            value,
        }
    }

    /// Returns the value of a key.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        match &self.value {
            OutValue::Map(entries) => entries
                .iter()
                .find(|entry| entry.0 == key)
                .map(|entry| &entry.1),
            _ => None,
        }
    }

    /// Returns the value of a key, mutably.
    pub(super) fn get_mut(&mut self, key: &str) -> Option<&mut Self> {
        match &mut self.value {
            OutValue::Map(entries) => {
                let entry = entries.iter_mut().find(|entry| entry.0 == key);
                entry.map(|entry| &mut entry.1)
            }
            _ => None,
        }
    }

    /// Returns the value at a path of keys.
    pub(super) fn value_at(&self, keys: &[&str]) -> Option<&Self> {
        keys.iter().try_fold(self, |value, key| value.get(key))
    }

    /// Returns the text of a key.
    pub(super) fn text_at(&self, key: &str) -> Option<&str> {
        self.get(key)?.as_text()
    }

    /// Returns the value if it is text.
    pub(super) fn as_text(&self) -> Option<&str> {
        match &self.value {
            OutValue::Leaf(value) => value.as_str(),
            _ => None,
        }
    }

    /// Returns the number of a key.
    pub(super) fn number_at(&self, key: &str) -> Option<i64> {
        match &self.get(key)?.value {
            OutValue::Leaf(value) => value.as_i64(),
            _ => None,
        }
    }

    /// Returns true if the boolean at a key is true.
    pub(super) fn is_true(&self, key: &str) -> bool {
        matches!(
            self.get(key).map(|flag| &flag.value),
            Some(OutValue::Leaf(Value::Bool(true)))
        )
    }

    /// Returns the items of the list at a key.
    pub(super) fn items_at(&self, key: &str) -> &[Self] {
        match self.get(key).map(|list| &list.value) {
            Some(OutValue::List(items)) => items,
            _ => &[],
        }
    }

    /// Returns the place of a missing value: that of the nearest existing parent, followed by the missing keys as named in the
    /// input.
    pub(super) fn place_of(&self, keys: &[&str]) -> Path {
        let mut value = self;
        let mut rest = keys.iter();
        let mut last = None;
        for key in rest.by_ref() {
            match value.get(key) {
                Some(next) => value = next,
                None => {
                    last = Some(key);
                    break;
                }
            }
        }
        let missing = last.into_iter().chain(rest);
        missing.fold(value.from.clone(), |path, key| {
            path.with_key(&to_snake(key))
        })
    }

    /// Sets a value. A new key is inserted in Ignition's order: for a file that of its type, otherwise alphabetical.
    pub(super) fn set(&mut self, key: &str, new: Self) {
        let OutValue::Map(entries) = &mut self.value else {
            return;
        };
        if let Some(entry) = entries.iter_mut().find(|entry| entry.0 == key) {
            entry.1 = new;
            return;
        }
        let is_node = entries.iter().any(|entry| entry.0 == "path");
        let own = sort_key(key, is_node);
        let at = entries
            .iter()
            .position(|entry| sort_key(&entry.0, is_node) > own);
        entries.insert(at.unwrap_or(entries.len()), (key.to_owned(), new));
    }

    /// Returns the list at a key, which is created if it is missing.
    pub(super) fn list_mut(&mut self, key: &str, from: &Path) -> Option<&mut Vec<Self>> {
        if self.items_at(key).is_empty() {
            self.set(key, Self::list(from, Vec::new()));
        }
        match &mut self.get_mut(key)?.value {
            OutValue::List(items) => Some(items),
            _ => None,
        }
    }

    /// Returns the value without places, and without empty lists and mappings.
    pub(super) fn to_json(&self) -> Value {
        self.pruned().unwrap_or_else(|| Value::Object(Map::new()))
    }

    fn pruned(&self) -> Option<Value> {
        match &self.value {
            OutValue::Leaf(value) => Some(value.clone()),
            OutValue::List(items) if items.is_empty() => None,
            OutValue::List(items) => {
                let items = items.iter().map(Self::to_json);
                Some(Value::Array(items.collect()))
            }
            OutValue::Map(entries) => {
                let kept = entries
                    .iter()
                    .filter_map(|(key, value)| Some((key.clone(), value.pruned()?)));
                let kept: Map<String, Value> = kept.collect();
                (!kept.is_empty()).then_some(Value::Object(kept))
            }
        }
    }
}

/// Returns the sort key of a key. Keys common to files, directories and links precede their specific keys.
fn sort_key(key: &str, is_node: bool) -> (bool, &str) {
    let own = ["append", "contents", "mode", "hard", "target"];
    (is_node && own.contains(&key), key)
}

/// Returns Ignition's key for a key of the input: `size_mib` becomes `sizeMiB`.
pub(super) fn to_camel(key: &str) -> String {
    let (key, end) = match key.strip_suffix("_mib") {
        Some(key) => (key, "MiB"),
        None => (key, ""),
    };
    let mut out = String::with_capacity(key.len());
    let mut upper = false;
    for c in key.chars() {
        match c {
            '_' => upper = true,
            c if upper => {
                out.extend(c.to_uppercase());
                upper = false;
            }
            c => out.push(c),
        }
    }
    out + end
}

/// Returns the key of the input for a key of Ignition.
pub(super) fn to_snake(key: &str) -> String {
    let mut out = String::with_capacity(key.len() + 2);
    for c in key.replace("MiB", "_mib").chars() {
        if c.is_ascii_uppercase() {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

/// Merges the user's values over values from sugar, like Ignition merges a child into its parent.
pub(super) fn merge_out(parent: Out, child: Out) -> Out {
    let (parent_entries, child_entries) = match (parent.value, child.value) {
        (OutValue::Map(parent), OutValue::Map(child)) => (parent, child),
        (_, value) => {
            return Out {
                from: child.from,
                value,
            };
        }
    };
    let mut merged = Out {
        from: child.from,
        value: OutValue::Map(child_entries),
    };
    for (key, below) in parent_entries {
        let value = match merged.get(&key).cloned() {
            None => below,
            Some(above) => match (&below.value, &above.value) {
                (OutValue::List(_), OutValue::List(_)) => merge_lists(&key, below, above),
                (OutValue::Map(_), OutValue::Map(_)) => merge_out(below, above),
                _ => above,
            },
        };
        merged.set(&key, value);
    }
    merged
}

fn merge_lists(key: &str, parent: Out, child: Out) -> Out {
    let (OutValue::List(parents), OutValue::List(children)) = (parent.value, child.value) else {
        return Out::list(&child.from, Vec::new());
    };
    let appended = ["options", "openOptions", "mountOptions", "append"].contains(&key);
    let mut items = parents;
    let mut known: HashMap<String, usize> = HashMap::new();
    for (at, item) in items.iter().enumerate() {
        known.entry(key_of(key, item)).or_insert(at);
    }
    for item in children {
        let at = *known.entry(key_of(key, &item)).or_insert(items.len());
        match items.get_mut(at).filter(|_| !appended) {
            Some(twin) => {
                let empty = Out::map(&item.from, Vec::new());
                let below = std::mem::replace(twin, empty);
                *twin = merge_out(below, item);
            }
            None => items.push(item),
        }
    }
    Out::list(&child.from, items)
}

/// Returns the key by which Ignition identifies items of a list.
pub(super) fn key_of(list: &str, item: &Out) -> String {
    if let Some(text) = item.as_text() {
        return text.to_owned();
    }
    let field = match list {
        "files" | "directories" | "links" => "path",
        "disks" | "filesystems" => "device",
        "partitions" => match item.number_at("number") {
            Some(number) if number != 0 => return format!("number:{number}"),
            _ => return format!("label:{}", item.text_at("label").unwrap_or_default()),
        },
        "tang" => "url",
        "merge" | "append" | "certificateAuthorities" => "source",
        _ => "name",
    };
    item.text_at(field).unwrap_or_default().to_owned()
}
