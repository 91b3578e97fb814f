//! The name of a rendered MachineConfig: its pool and a digest of its spec.
//!
//! The digest identifies; it does not protect. It has been salted MD5 since 2018.

use std::borrow::Cow;

use md5::{Digest, Md5};
use serde_json::Value;

use crate::config::document::Finding;
use crate::formats::go_yaml::{self, YamlNode};
use crate::host::root::to_hex;

/// The salt before the text (`pkg/controller/render/hash.go`).
const SALT: [u8; 80] = [
    16, 124, 206, 228, 139, 56, 175, 175, 79, 229, 134, 118, 157, 154, 211, 110, 25, 93, 47, 253,
    172, 106, 37, 7, 174, 13, 160, 185, 110, 17, 87, 52, 219, 131, 12, 206, 218, 141, 116, 135,
    188, 181, 192, 151, 233, 62, 126, 165, 64, 83, 179, 119, 15, 168, 208, 197, 146, 107, 58, 227,
    133, 188, 238, 26, 33, 26, 235, 202, 32, 173, 31, 234, 41, 144, 148, 79, 6, 206, 23, 22,
];

/// The keys of a spec.
const KEYS: [&str; 7] = [
    "osImageURL",
    "baseOSExtensionsContainerImage",
    "config",
    "kernelArguments",
    "extensions",
    "fips",
    "kernelType",
];

/// Returns the hash in the name of a rendered config with this `spec`: 32 lower-case hex digits.
pub fn name_hash(spec: &Value) -> Result<String, Finding> {
    salted_digest(&YamlNode::from(spec), &KEYS)
}

fn salted_digest(spec: &YamlNode<'_>, keys: &[&'static str]) -> Result<String, Finding> {
    let hashed = hashed_fields(spec, keys)?;
    let mut digest = Md5::new().chain_update(SALT);
    let entries = hashed.iter().map(|(key, value)| (*key, &**value));
    go_yaml::write_yaml(entries, &mut |piece| digest.update(piece));
    Ok(to_hex(&digest.finalize()))
}

/// A hashed key with its value.
type HashedField<'s, 't> = (&'static str, Cow<'s, YamlNode<'t>>);

fn hashed_fields<'s, 't>(
    spec: &'s YamlNode<'t>,
    keys: &[&'static str],
) -> Result<Vec<HashedField<'s, 't>>, Finding> {
    if !matches!(spec, YamlNode::Object(_)) {
        return Err(Finding::error("spec", "is not an object"));
    }
    let mut all = Vec::new();
    for key in keys.iter().copied() {
        let value = spec.get(key).filter(|value| **value != YamlNode::Null);
        let absent = || Cow::Owned(absent_value(key));
        let value = value.map_or_else(absent, Cow::Borrowed);
        if !has_right_type(key, &value) {
            return Err(Finding::error(format!("spec.{key}"), "has the wrong type"));
        }
        all.push((key, value));
    }
    Ok(all)
}

/// Returns the value that the operator's types have for a key that is missing or `null`.
fn absent_value(key: &str) -> YamlNode<'static> {
    match key {
        "config" | "kernelArguments" | "extensions" => YamlNode::Null,
        "fips" => YamlNode::Bool(false),
        _ => YamlNode::Text("".into()),
    }
}

fn has_right_type(key: &str, value: &YamlNode<'_>) -> bool {
    match key {
        "config" => matches!(value, YamlNode::Object(_) | YamlNode::Null),
        "fips" => matches!(value, YamlNode::Bool(_)),
        "kernelArguments" | "extensions" => match value {
            YamlNode::List(items) => items.iter().all(|item| item.as_str().is_some()),
            other => *other == YamlNode::Null,
        },
        _ => value.as_str().is_some(),
    }
}

/// The result of comparing the hash in the name of a rendered config with its contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameHash {
    /// The hash matches the contents.
    Right,
    /// It is not.
    Wrong,
    /// The name has no hash.
    Missing,
    /// The hash cannot be computed here; the reason.
    Unknown(String),
}

impl NameHash {
    /// Returns a short name for scripts.
    pub fn short_name(&self) -> &'static str {
        match self {
            Self::Right => "right",
            Self::Wrong => "wrong",
            Self::Missing => "missing",
            Self::Unknown(_) => "unknown",
        }
    }
}

/// Compares the name of a rendered config, given as the text of its object, with the hash of its spec.
///
/// The encapsulated config of a first boot does not match, because its Ignition part was emptied; nor does a copy with a
/// different image. Operators before 4.12 hashed fewer keys, and newer ones may hash more.
pub fn name_hash_of(record_json: &str) -> NameHash {
    let Ok(record) = serde_json::from_str::<YamlNode<'_>>(record_json) else {
        return NameHash::Missing;
    };
    let name = record
        .get("metadata")
        .and_then(|metadata| metadata.get("name"));
    let named = name.and_then(YamlNode::as_str).and_then(hash_in);
    let (Some(named), Some(spec)) = (named, record.get("spec")) else {
        return NameHash::Missing;
    };
    let all = match salted_digest(spec, &KEYS) {
        Ok(all) => all,
        Err(finding) => return NameHash::Unknown(finding.to_string()),
    };
    let given: Vec<&str> = KEYS
        .into_iter()
        .filter(|key| spec.get(key).is_some())
        .collect();
    let older = || salted_digest(spec, &given).is_ok_and(|older| older == named);
    if all == named || (given.len() < KEYS.len() && older()) {
        return NameHash::Right;
    }
    match newer_key(spec) {
        Some(key) => NameHash::Unknown(format!("spec.{key} is from a newer operator")),
        None => NameHash::Wrong,
    }
}

/// Returns the hash in a rendered name.
fn hash_in(name: &str) -> Option<&str> {
    let (_, hash) = name.strip_prefix("rendered-")?.rsplit_once('-')?;
    let is_hash = hash.len() == 32 && hash.bytes().all(|b| b.is_ascii_hexdigit());
    is_hash.then_some(hash)
}

fn newer_key(spec: &YamlNode<'_>) -> Option<String> {
    let YamlNode::Object(entries) = spec else {
        return None;
    };
    let mut names = entries.iter().map(|(name, _)| name.to_string());
    names.find(|name| !KEYS.contains(&name.as_str()))
}

/// Returns whether the name of a rendered config has the hash of its spec; `None` if that cannot be computed.
pub fn name_matches(record_json: &str) -> Option<bool> {
    match name_hash_of(record_json) {
        NameHash::Right => Some(true),
        NameHash::Wrong => Some(false),
        NameHash::Missing | NameHash::Unknown(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn absent_keys_count_as_the_operator_writes_them() {
        let empty = json!({"osImageURL": "", "config": null, "kernelArguments": null, "other": 1});
        assert_eq!(name_hash(&empty), name_hash(&json!({})));
        let with_list = json!({"kernelArguments": []});
        assert_ne!(name_hash(&with_list), name_hash(&json!({})));
    }

    #[test]
    fn a_spec_of_wrong_types_has_no_hash() {
        assert_eq!(name_hash(&json!([])).unwrap_err().path, "spec");
        let wrong = name_hash(&json!({"extensions": [1]})).unwrap_err();
        assert_eq!(wrong.path, "spec.extensions");
    }

    #[test]
    fn names_without_a_hash_are_no_matter() {
        assert_eq!(name_matches("{"), None);
        assert_eq!(
            name_matches(r#"{"metadata":{"name":"00-worker"},"spec":{}}"#),
            None
        );
        let wrong = format!("rendered-a-b-{}", "0".repeat(32));
        let record = json!({"metadata": {"name": wrong}, "spec": {}});
        assert_eq!(name_matches(&record.to_string()), Some(false));
    }

    #[test]
    fn operators_of_all_ages_are_understood() {
        let old = json!({"osImageURL": "a", "config": {}, "kernelArguments": [], "fips": false, "kernelType": ""});
        let keys = [
            "osImageURL",
            "config",
            "kernelArguments",
            "fips",
            "kernelType",
        ];
        let hash = salted_digest(&YamlNode::from(&old), &keys).unwrap();
        let named = |hash: &str, spec: &Value| {
            let name = format!("rendered-worker-{hash}");
            name_hash_of(&json!({"metadata": {"name": name}, "spec": spec}).to_string())
        };
        assert_eq!(named(&hash, &old), NameHash::Right);
        let mut edited = old.clone();
        edited["fips"] = json!(true);
        assert_eq!(named(&hash, &edited), NameHash::Wrong);
        edited["osImageStream"] = json!("x");
        assert!(
            matches!(named(&hash, &edited), NameHash::Unknown(why) if why.contains("osImageStream"))
        );
        edited["fips"] = json!("yes");
        assert!(
            matches!(named(&hash, &edited), NameHash::Unknown(why) if why.contains("spec.fips"))
        );
        assert_eq!(named("a", &old), NameHash::Missing);
    }
}
