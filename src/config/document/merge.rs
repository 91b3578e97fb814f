//! Ignition's merge of one config into another, on JSON values of spec 3.5.
//!
//! Reading and merging both follow the table in `schema` (docs/develop/ignition.md: Merging). Nothing here knows about MachineConfigs.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::finding::Finding;
use super::schema::{CONFIG, Field, FieldKind, HEADERS, Item, Key};

/// An object of a config.
pub type ConfigSection = Map<String, Value>;

/// Reads a config of spec 3.`minor` like Ignition: unknown and newer keys are dropped, and `null`, empty lists and empty
/// objects count as missing. `at` is its path in the document.
pub fn read_section(config: &Value, minor: u64, at: &str) -> Result<ConfigSection, Finding> {
    read_object(config, CONFIG, minor, at)
}

/// Returns the config without empty objects and lists, as the operator marshals it.
pub fn without_empty(config: ConfigSection) -> Result<ConfigSection, Finding> {
    read_section(&Value::Object(config), u64::MAX, "spec.config")
}

fn read_object(
    value: &Value,
    fields: &[Field],
    minor: u64,
    at: &str,
) -> Result<ConfigSection, Finding> {
    let Some(given) = value.as_object() else {
        return Err(Finding::error(at, "is not an object"));
    };
    let mut known = ConfigSection::new();
    for field in fields.iter().filter(|field| field.since <= minor) {
        let Some(value) = given.get(field.name).filter(|value| !value.is_null()) else {
            continue;
        };
        let value = read_value(value, &field.kind, minor, &format!("{at}.{}", field.name))?;
        if !is_empty(&value) {
            known.insert(field.name.to_owned(), value);
        }
    }
    Ok(known)
}

fn read_value(value: &Value, kind: &FieldKind, minor: u64, at: &str) -> Result<Value, Finding> {
    match kind {
        FieldKind::Scalar if value.is_array() || value.is_object() => {
            Err(Finding::error(at, "is not a single value"))
        }
        FieldKind::Scalar => Ok(value.clone()),
        FieldKind::Object(fields) => read_object(value, fields, minor, at).map(Value::Object),
        FieldKind::List(_, fields) | FieldKind::Shared(_, fields) | FieldKind::Appended(fields) => {
            let items = value.as_array();
            let items = items.ok_or_else(|| Finding::error(at, "is not a list"))?;
            let item = |(index, item)| read_item(item, fields, minor, &format!("{at}[{index}]"));
            let items = items.iter().enumerate().map(item);
            items.collect::<Result<_, _>>().map(Value::Array)
        }
    }
}

/// Reads a list item, which is kept even if it is empty.
fn read_item(item: &Value, fields: &[Field], minor: u64, at: &str) -> Result<Value, Finding> {
    if !fields.is_empty() {
        return read_object(item, fields, minor, at).map(Value::Object);
    }
    if item.is_string() {
        Ok(item.clone())
    } else {
        Err(Finding::error(at, "is not a string"))
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

/// Merges the child's config over the parent's.
pub fn merge_sections(parent: &ConfigSection, child: &ConfigSection) -> ConfigSection {
    merge_objects(parent, child, CONFIG)
}

fn merge_objects(parent: &ConfigSection, child: &ConfigSection, fields: &[Field]) -> ConfigSection {
    let mut merged = ConfigSection::new();
    for field in fields {
        let (ours, theirs) = (parent.get(field.name), child.get(field.name));
        let value = match &field.kind {
            FieldKind::Scalar => theirs.or(ours).cloned(),
            FieldKind::Object(fields) => Some(merge_values(ours, theirs, fields)),
            FieldKind::Appended(_) => Some([list_items(ours), list_items(theirs)].concat().into()),
            FieldKind::List(key, inner) => Some(merge_lists(
                field,
                *key,
                inner,
                list_items(ours),
                list_items(theirs),
            )),
            FieldKind::Shared(key, inner) => {
                let taken = keys_elsewhere(child, field, fields);
                let mut ours = list_items(ours).to_vec();
                ours.retain(|item| !taken.contains(&key.key_of(item)));
                Some(merge_lists(field, *key, inner, &ours, list_items(theirs)))
            }
        };
        if let Some(value) = value.filter(|value| !is_empty(value)) {
            merged.insert(field.name.to_owned(), value);
        }
    }
    merged
}

fn merge_values<'a>(
    parent: Option<&'a Value>,
    child: Option<&'a Value>,
    fields: &[Field],
) -> Value {
    let nothing = ConfigSection::new();
    let section = |value: Option<&'a Value>| value.and_then(Value::as_object);
    let (parent, child) = (section(parent), section(child));
    Value::Object(merge_objects(
        parent.unwrap_or(&nothing),
        child.unwrap_or(&nothing),
        fields,
    ))
}

fn list_items(list: Option<&Value>) -> &[Value] {
    list.map_or(&[], Value::items)
}

/// Returns the child's keys in other lists that share a namespace with this one.
fn keys_elsewhere<'c>(
    child: &'c ConfigSection,
    this: &Field,
    fields: &[Field],
) -> BTreeSet<Cow<'c, str>> {
    let other = |field: &&Field| field.name != this.name;
    let keys = |field: &Field| match field.kind {
        FieldKind::Shared(key, _) => list_items(child.get(field.name))
            .iter()
            .map(|item| key.key_of(item))
            .collect(),
        _ => Vec::new(),
    };
    fields.iter().filter(other).flat_map(keys).collect()
}

fn merge_lists(
    field: &Field,
    key: Key,
    inner: &[Field],
    ours: &[Value],
    theirs: &[Value],
) -> Value {
    let known: BTreeSet<_> = ours.iter().map(|item| key.key_of(item)).collect();
    let mut over: BTreeMap<_, &Value> =
        theirs.iter().map(|item| (key.key_of(item), item)).collect();
    let mut merged = Vec::new();
    for item in ours {
        match over.remove(&key.key_of(item)) {
            // A header without a value removes the header.
            Some(other) if field.name == HEADERS.name && other.get("value").is_none() => {}
            Some(other) if !inner.is_empty() => {
                merged.push(merge_values(Some(item), Some(other), inner));
            }
            _ => merged.push(item.clone()),
        }
    }
    let new = |item: &&Value| !known.contains(&key.key_of(*item));
    merged.extend(theirs.iter().filter(new).cloned());
    Value::Array(merged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn merged(parent: Value, child: Value) -> Value {
        let parent = read_section(&parent, 5, "a").unwrap();
        Value::Object(merge_sections(
            &parent,
            &read_section(&child, 5, "b").unwrap(),
        ))
    }

    fn files(parent: Value, child: Value) -> Value {
        let storage = |files: Value| json!({"storage": {"files": files}});
        merged(storage(parent), storage(child))["storage"]["files"].clone()
    }

    #[test]
    fn equal_keys_merge_in_place_and_new_ones_follow() {
        let parent = json!([{"path": "/a", "mode": 1}, {"path": "/b", "mode": 2}]);
        let child = json!([{"path": "/c"}, {"path": "/a", "overwrite": false}]);
        let wanted = json!([
            {"path": "/a", "mode": 1, "overwrite": false},
            {"path": "/b", "mode": 2},
            {"path": "/c"},
        ]);
        assert_eq!(files(parent, child), wanted);
    }

    #[test]
    fn what_a_child_leaves_out_is_inherited_and_what_is_false_is_not() {
        let parent = json!([{"path": "/a", "overwrite": true, "mode": 7,
            "contents": {"source": "data:,1", "verification": {"hash": "h"}}}]);
        let child = json!([{"path": "/a", "overwrite": false, "mode": 0, "user": {"id": 0},
            "contents": {"source": ""}}]);
        let wanted = json!([{"path": "/a", "overwrite": false, "mode": 0, "user": {"id": 0},
            "contents": {"source": "", "verification": {"hash": "h"}}}]);
        assert_eq!(files(parent, child), wanted);
    }

    #[test]
    fn fragments_are_appended_even_if_equal() {
        let file = json!([{"path": "/a", "append": [{"source": "data:,1"}]}]);
        let merged = files(file.clone(), file);
        assert_eq!(merged[0]["append"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn a_path_has_one_type_the_child_decides() {
        let parent =
            json!({"storage": {"files": [{"path": "/a", "mode": 1}], "links": [{"path": "/b"}]}});
        let child =
            json!({"storage": {"directories": [{"path": "/a"}], "files": [{"path": "/b"}]}});
        let wanted =
            json!({"storage": {"directories": [{"path": "/a"}], "files": [{"path": "/b"}]}});
        assert_eq!(merged(parent, child), wanted);
        let parent = json!({"kernelArguments": {"shouldExist": ["x", "y"]}});
        let child = json!({"kernelArguments": {"shouldNotExist": ["x"]}});
        let wanted = json!({"kernelArguments": {"shouldExist": ["y"], "shouldNotExist": ["x"]}});
        assert_eq!(merged(parent, child), wanted);
    }

    #[test]
    fn keys_of_a_user_are_a_set() {
        let user = |keys: Value| json!({"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": keys}]}});
        let merged = merged(user(json!(["a", "b"])), user(json!(["b", "c", "a"])));
        assert_eq!(merged, user(json!(["a", "b", "c"])));
    }

    #[test]
    fn dropins_merge_within_their_unit() {
        let parent = json!({"systemd": {"units": [{"name": "a.service", "contents": "x",
            "dropins": [{"name": "1.conf", "contents": "1"}, {"name": "2.conf", "contents": "2"}]}]}});
        let child = json!({"systemd": {"units": [{"name": "a.service", "mask": true,
            "dropins": [{"name": "3.conf"}, {"name": "1.conf", "contents": ""}]}]}});
        let wanted = json!({"systemd": {"units": [{"name": "a.service", "contents": "x", "mask": true,
            "dropins": [{"name": "1.conf", "contents": ""}, {"name": "2.conf", "contents": "2"}, {"name": "3.conf"}]}]}});
        assert_eq!(merged(parent, child), wanted);
    }

    #[test]
    fn a_header_without_value_removes_the_parents() {
        let file = |headers: Value| json!([{"path": "/a", "contents": {"httpHeaders": headers}}]);
        let parent = file(json!([{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]));
        let child = file(json!([{"name": "A"}, {"name": "b", "value": "3"}]));
        let wanted = file(json!([{"name": "B", "value": "2"}, {"name": "b", "value": "3"}]));
        assert_eq!(files(parent, child), wanted);
    }

    #[test]
    fn partitions_go_by_number_then_by_label() {
        let disk = |partitions: Value| json!({"storage": {"disks": [{"device": "/d", "partitions": partitions}]}});
        let parent = disk(json!([{"number": 1, "label": "a"}, {"label": "b"}]));
        let child =
            disk(json!([{"number": 1, "label": "c"}, {"number": 0, "label": "b", "sizeMiB": 5}]));
        let wanted =
            disk(json!([{"number": 1, "label": "c"}, {"label": "b", "number": 0, "sizeMiB": 5}]));
        assert_eq!(merged(parent, child), wanted);
    }

    #[test]
    fn newer_foreign_and_empty_parts_are_left_out() {
        let config = json!({
            "ignition": {"version": "3.0.0", "proxy": {"httpProxy": "x"}, "security": {"tls": {}}},
            "kernelArguments": {"shouldExist": ["x"]},
            "storage": {"files": [{"path": "/a", "user": {}, "mode": null, "odd": 1}], "links": []},
            "systemd": {"units": []},
        });
        let read = read_section(&config, 0, "c").map(Value::Object);
        let wanted =
            json!({"ignition": {"version": "3.0.0"}, "storage": {"files": [{"path": "/a"}]}});
        assert_eq!(read, Ok(wanted));
    }

    #[test]
    fn wrong_shapes_are_named() {
        let table = [
            (json!({"storage": []}), "c.storage"),
            (json!({"storage": {"raid": {}}}), "c.storage.raid"),
            (json!({"passwd": {"groups": ["x"]}}), "c.passwd.groups[0]"),
            (
                json!({"systemd": {"units": [{"mask": []}]}}),
                "c.systemd.units[0].mask",
            ),
            (
                json!({"passwd": {"users": [{"groups": [1]}]}}),
                "c.passwd.users[0].groups[0]",
            ),
        ];
        for (config, path) in table {
            assert_eq!(read_section(&config, 5, "c").unwrap_err().path, path);
        }
    }
}
