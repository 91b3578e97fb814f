//! Checks a config as written against the table in `schema`: fields that are newer than its version (docs/develop/ignition.md:
//! Parsing), and duplicate keys (V28).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::{self, Display};

use serde_json::Value;

use super::finding::{Finding, path_below};
use super::json::Outline;
use super::schema::{CONFIG, Field, FieldKind, Item, Key};

/// Returns a warning for each field that is newer than the declared version; Ignition ignores them.
pub(super) fn find_newer(config: &Outline<'_>, minor: u64, at: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    find_newer_in(config, CONFIG, minor, &format_args!("{at}"), &mut found);
    found
}

fn find_newer_in(
    value: &Outline<'_>,
    fields: &[Field],
    minor: u64,
    at: &dyn Display,
    found: &mut Vec<Finding>,
) {
    for field in fields {
        let is_newer = field.since > minor;
        if !is_newer && matches!(field.kind, FieldKind::Scalar) {
            continue;
        }
        let Some(value) = value.get(field.name) else {
            continue;
        };
        // A large config has many objects, so a path is only formatted for a finding.
        let path = Below(at, field.name);
        if is_newer {
            if *value != Outline::Null {
                let message = format!(
                    "came with spec 3.{}; ignored in a 3.{minor} config. Raise ignition.version to use it",
                    field.since
                );
                found.push(Finding::warning(path.to_string(), message));
            }
            continue;
        }
        match &field.kind {
            FieldKind::Scalar => {}
            FieldKind::Object(inner) => find_newer_in(value, inner, minor, &path, found),
            FieldKind::List(_, inner)
            | FieldKind::Shared(_, inner)
            | FieldKind::Appended(inner) => {
                for (index, item) in value.items().iter().enumerate() {
                    let path = format_args!("{path}[{index}]");
                    find_newer_in(item, inner, minor, &path, found);
                }
            }
        }
    }
}

/// The path of a key below another path, which may be empty.
struct Below<'p>(&'p dyn Display, &'static str);

impl Display for Below<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&path_below(&self.0.to_string(), self.1))
    }
}

/// Removes the fields that are newer than the declared version.
pub(super) fn drop_newer(config: &mut Value, minor: u64) {
    drop_newer_in(config, CONFIG, minor);
}

fn drop_newer_in(value: &mut Value, fields: &[Field], minor: u64) {
    let Some(map) = value.as_object_mut() else {
        return;
    };
    for field in fields {
        if field.since > minor {
            map.shift_remove(field.name);
            continue;
        }
        match (&field.kind, map.get_mut(field.name)) {
            (FieldKind::Object(inner), Some(value)) => drop_newer_in(value, inner, minor),
            (
                FieldKind::List(_, inner)
                | FieldKind::Shared(_, inner)
                | FieldKind::Appended(inner),
                Some(Value::Array(items)),
            ) => items
                .iter_mut()
                .for_each(|item| drop_newer_in(item, inner, minor)),
            _ => {}
        }
    }
}

/// V28: returns every entry with the same key as an earlier one. Fields that are newer than the declared version are ignored.
/// Merged configs are exempt, as in Ignition.
pub(super) fn find_duplicates(config: &Outline<'_>, minor: u64, at: &str) -> Vec<Finding> {
    let mut search = Duplicates {
        minor,
        at,
        found: Vec::new(),
    };
    search.find_in_object(config, CONFIG, &"");
    search.found
}

/// Keys seen so far, each with its list and its index there.
type SeenKeys<'v> = BTreeMap<Cow<'v, str>, (&'static str, usize)>;

/// The search for duplicate keys.
struct Duplicates<'a> {
    minor: u64,
    /// The path of the config in its document.
    at: &'a str,
    found: Vec<Finding>,
}

impl Duplicates<'_> {
    fn find_in_object(&mut self, value: &Outline<'_>, fields: &[Field], here: &dyn Display) {
        let mut shared = SeenKeys::new();
        for field in fields {
            if field.since > self.minor || matches!(field.kind, FieldKind::Scalar) {
                continue;
            }
            let Some(value) = value.get(field.name) else {
                continue;
            };
            let path = Below(here, field.name);
            match &field.kind {
                FieldKind::Scalar => {}
                FieldKind::Object(inner) => self.find_in_object(value, inner, &path),
                FieldKind::Appended(inner) => self.find_in_items(value, inner, &path),
                FieldKind::List(key, inner) => {
                    self.find_in_list(value, *key, here, field.name, &mut SeenKeys::new());
                    self.find_in_items(value, inner, &path);
                }
                FieldKind::Shared(key, inner) => {
                    self.find_in_list(value, *key, here, field.name, &mut shared);
                    self.find_in_items(value, inner, &path);
                }
            }
        }
    }

    fn find_in_items(&mut self, list: &Outline<'_>, fields: &[Field], path: &dyn Display) {
        for (index, item) in list.items().iter().enumerate() {
            self.find_in_object(item, fields, &format_args!("{path}[{index}]"));
        }
    }

    /// Examines the keys in the list `name` of the object at `here`.
    fn find_in_list<'v>(
        &mut self,
        list: &'v Outline<'_>,
        key: Key,
        here: &dyn Display,
        name: &'static str,
        seen: &mut SeenKeys<'v>,
    ) {
        let place_of = |(list, index): (&'static str, usize)| {
            let place = format!("{}[{index}]", Below(here, list));
            match key {
                Key::Field(name) => format!("{place}.{name}"),
                Key::Itself | Key::NumberOrLabel => place,
            }
        };
        for (index, item) in list.items().iter().enumerate() {
            match seen.entry(key.key_of(item)) {
                Entry::Vacant(entry) => {
                    entry.insert((name, index));
                }
                Entry::Occupied(first) => {
                    let first = place_of(*first.get());
                    let message = format!("is already at {first}; keep one of them");
                    let path = path_below(self.at, &place_of((name, index)));
                    self.found.push(Finding::error(path, message));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn outline_of(text: &str) -> Outline<'_> {
        Outline::read_text(text, "").unwrap()
    }

    #[test]
    fn newer_fields_go_with_their_place_and_null_goes_in_silence() {
        let config = json!({
            "storage": {"luks": null, "files": [{"path": "/a",
                "append": [{"source": "http://a.example", "httpHeaders": []}]}]},
            "passwd": {"groups": [{"name": "a", "shouldExist": false}]},
        });
        let text = config.to_string();
        let findings = find_newer(&outline_of(&text), 0, "spec.config");
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
        let mut left = config;
        drop_newer(&mut left, 0);
        assert_eq!(left, wanted);
        assert_eq!(find_newer(&outline_of(&wanted.to_string()), 0, ""), []);
    }

    #[test]
    fn odd_shapes_are_passed_over() {
        let odd = json!({"storage": {"files": 1, "luks": [{"clevis": {"tang": [7, null]}}]}, "passwd": []});
        assert_eq!(find_newer(&outline_of(&odd.to_string()), 2, ""), []);
        let mut left = odd.clone();
        drop_newer(&mut left, 2);
        assert_eq!(left, odd);
        assert_eq!(find_duplicates(&outline_of("[1]"), 0, ""), []);
    }

    #[test]
    fn duplicates_are_found_with_both_places_and_not_in_newer_fields() {
        let config = json!({
            "storage": {
                "files": [{"path": "/a"}, {"path": "/b"}],
                "links": [{"path": "/c"}, {"path": "/a"}],
            },
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["k", "k"]}]},
            "kernelArguments": {"shouldExist": ["a", "a"]},
        });
        let found = |minor| -> Vec<String> {
            let text = config.to_string();
            let findings = find_duplicates(&outline_of(&text), minor, "spec.config");
            findings.iter().map(ToString::to_string).collect()
        };
        let arguments = "spec.config.kernelArguments.shouldExist[1]: is already at \
            kernelArguments.shouldExist[0]; keep one of them";
        let others = [
            "spec.config.passwd.users[0].sshAuthorizedKeys[1]: is already at \
                passwd.users[0].sshAuthorizedKeys[0]; keep one of them",
            "spec.config.storage.links[1].path: is already at storage.files[0].path; keep one of them",
        ];
        let mut found_in_2 = found(2);
        found_in_2.sort();
        assert_eq!(found_in_2, others);
        let mut found_in_3 = found(3);
        found_in_3.sort();
        assert_eq!(found_in_3, [&[arguments], &others[..]].concat());
    }
}
