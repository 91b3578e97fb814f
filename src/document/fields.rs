//! Checks of a config as written against the table in `schema`: fields that are newer than its version
//! (docs/ignition.md: Parsing), and duplicate keys (V28).

use std::collections::BTreeMap;

use serde_json::Value;

use super::finding::{Finding, path_below};
use super::schema::{CONFIG, Field, FieldKind, Key};

/// Removes fields that are newer than the declared version, each with a warning, as Ignition does.
pub(super) fn drop_newer(config: &mut Value, minor: u64, at: &str) -> Vec<Finding> {
    let mut gone = Vec::new();
    drop_in(config, CONFIG, minor, at, &mut gone);
    let warning = |(path, since): (String, u64)| {
        let message = format!(
            "came with spec 3.{since}; ignored in a 3.{minor} config. Raise ignition.version to use it"
        );
        Finding::warning(path, message)
    };
    gone.into_iter().map(warning).collect()
}

/// Removes newer fields, and adds each place with the version that brought it to `gone`.
fn drop_in(
    value: &mut Value,
    fields: &[Field],
    minor: u64,
    at: &str,
    gone: &mut Vec<(String, u64)>,
) {
    let Some(map) = value.as_object_mut() else {
        return;
    };
    for field in fields {
        // A large config has many objects: a place is written down only for what may be dropped.
        let path = || path_below(at, field.name);
        if field.since > minor {
            let old = map.shift_remove(field.name);
            if old.is_some_and(|old| !old.is_null()) {
                gone.push((path(), field.since));
            }
            continue;
        }
        if matches!(field.kind, FieldKind::Scalar) {
            continue;
        }
        match (&field.kind, map.get_mut(field.name)) {
            (FieldKind::Object(inner), Some(value)) => drop_in(value, inner, minor, &path(), gone),
            (
                FieldKind::List(_, inner)
                | FieldKind::Shared(_, inner)
                | FieldKind::Appended(inner),
                Some(Value::Array(items)),
            ) => {
                let path = path();
                for (index, item) in items.iter_mut().enumerate() {
                    drop_in(item, inner, minor, &format!("{path}[{index}]"), gone);
                }
            }
            _ => {}
        }
    }
}

/// V28: returns every entry whose key an earlier one has. Merged configs are exempt, as in Ignition.
pub(super) fn find_duplicates(config: &Value, at: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    find_in_object(config, CONFIG, at, "", &mut found);
    found
}

/// Keys that were seen, with their places below the config.
type SeenKeys = BTreeMap<String, String>;

fn find_in_object(value: &Value, fields: &[Field], at: &str, here: &str, found: &mut Vec<Finding>) {
    let Some(map) = value.as_object() else {
        return;
    };
    let mut shared = SeenKeys::new();
    for field in fields {
        if matches!(field.kind, FieldKind::Scalar) {
            continue;
        }
        let Some(value) = map.get(field.name) else {
            continue;
        };
        let path = path_below(here, field.name);
        match &field.kind {
            FieldKind::Scalar => {}
            FieldKind::Object(inner) => find_in_object(value, inner, at, &path, found),
            FieldKind::Appended(inner) => find_in_items(value, inner, at, &path, found),
            FieldKind::List(key, inner) => {
                find_in_list(value, *key, at, &path, &mut SeenKeys::new(), found);
                find_in_items(value, inner, at, &path, found);
            }
            FieldKind::Shared(key, inner) => {
                find_in_list(value, *key, at, &path, &mut shared, found);
                find_in_items(value, inner, at, &path, found);
            }
        }
    }
}

fn find_in_items(list: &Value, fields: &[Field], at: &str, path: &str, found: &mut Vec<Finding>) {
    for (index, item) in list.as_array().into_iter().flatten().enumerate() {
        find_in_object(item, fields, at, &format!("{path}[{index}]"), found);
    }
}

fn find_in_list(
    list: &Value,
    key: Key,
    at: &str,
    path: &str,
    seen: &mut SeenKeys,
    found: &mut Vec<Finding>,
) {
    for (index, item) in list.as_array().into_iter().flatten().enumerate() {
        let here = match key {
            Key::Field(name) => format!("{path}[{index}].{name}"),
            Key::Itself | Key::NumberOrLabel => format!("{path}[{index}]"),
        };
        let text = key.key_of(item);
        if let Some(first) = seen.get(&text) {
            let message = format!("is already at {first}; keep one of them");
            found.push(Finding::error(path_below(at, &here), message));
        } else {
            seen.insert(text, here);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn newer_fields_go_with_their_place_and_null_goes_in_silence() {
        let mut config = json!({
            "storage": {"luks": null, "files": [{"path": "/a",
                "append": [{"source": "http://a.example", "httpHeaders": []}]}]},
            "passwd": {"groups": [{"name": "a", "shouldExist": false}]},
        });
        let findings = drop_newer(&mut config, 0, "spec.config");
        let paths: Vec<_> = findings.into_iter().map(|finding| finding.path).collect();
        assert_eq!(
            paths,
            [
                "spec.config.passwd.groups[0].shouldExist",
                "spec.config.storage.files[0].append[0].httpHeaders",
            ]
        );
        let wanted = json!({
            "storage": {"files": [{"path": "/a", "append": [{"source": "http://a.example"}]}]},
            "passwd": {"groups": [{"name": "a"}]},
        });
        assert_eq!(config, wanted);
    }

    #[test]
    fn odd_shapes_are_passed_over() {
        let mut odd = json!({"storage": {"files": 1, "luks": [{"clevis": {"tang": [7, null]}}]}, "passwd": []});
        assert_eq!(drop_newer(&mut odd, 2, ""), []);
        assert_eq!(find_duplicates(&json!([1]), ""), []);
    }
}
