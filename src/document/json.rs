//! Reading JSON with positions: the path of every bad value, unknown keys as findings.

use std::fmt;

use serde::Deserializer;
use serde::de::{Deserialize, DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

use super::finding::{CUT_SHORT, Finding};

/// Every key that the model knows; distinguishes a key of wrong letter case from a foreign one.
const KNOWN_KEYS: [&str; 67] = [
    "append",
    "baseOSExtensionsContainerImage",
    "certificateAuthorities",
    "compression",
    "config",
    "contents",
    "directories",
    "disks",
    "dropins",
    "enabled",
    "extensions",
    "files",
    "filesystems",
    "fips",
    "gecos",
    "gid",
    "group",
    "groups",
    "hard",
    "hash",
    "homeDir",
    "httpHeaders",
    "httpProxy",
    "httpResponseHeaders",
    "httpTotal",
    "httpsProxy",
    "id",
    "ignition",
    "kernelArguments",
    "kernelType",
    "links",
    "luks",
    "mask",
    "merge",
    "metadata",
    "mode",
    "name",
    "noCreateHome",
    "noLogInit",
    "noProxy",
    "noUserGroup",
    "osImageURL",
    "overwrite",
    "passwd",
    "passwordHash",
    "path",
    "primaryGroup",
    "proxy",
    "raid",
    "replace",
    "security",
    "shell",
    "shouldExist",
    "shouldNotExist",
    "source",
    "spec",
    "sshAuthorizedKeys",
    "storage",
    "system",
    "systemd",
    "target",
    "timeouts",
    "tls",
    "uid",
    "units",
    "value",
    "verification",
];

/// Keys that hold an object, whatever the document.
const OBJECT_KEYS: [&str; 19] = [
    "config",
    "contents",
    "create",
    "group",
    "ignition",
    "metadata",
    "mount",
    "networkd",
    "passwd",
    "proxy",
    "replace",
    "security",
    "spec",
    "storage",
    "systemd",
    "timeouts",
    "tls",
    "user",
    "verification",
];

/// Keys that hold a list of objects (or, in other places, of strings).
const ENTRY_KEYS: [&str; 13] = [
    "append",
    "certificateAuthorities",
    "directories",
    "dropins",
    "files",
    "filesystems",
    "groups",
    "httpHeaders",
    "links",
    "merge",
    "ownerReferences",
    "units",
    "users",
];

/// Returns the place of a list where an object must be: serde would fill the fields one by one from it.
fn list_for_object(value: &Value, at: &str, is_object: bool) -> Option<String> {
    match value {
        Value::Array(_) if is_object => Some(at.to_owned()),
        Value::Object(map) => map.iter().find_map(|(key, value)| {
            let at = join_path(at, key);
            if let (true, Value::Array(items)) = (ENTRY_KEYS.contains(&key.as_str()), value) {
                let mut items = items.iter().enumerate();
                return items
                    .find_map(|(i, item)| list_for_object(item, &format!("{at}[{i}]"), true));
            }
            // In a MachineConfig it is a list, in an Ignition config an object.
            let arguments = key == "kernelArguments" && map.contains_key("ignition");
            let is_object = arguments || OBJECT_KEYS.contains(&key.as_str());
            list_for_object(value, &at, is_object)
        }),
        _ => None,
    }
}

/// Reads a document without the contents of its files and units, which are nearly all of it: they are empty here.
///
/// # Errors
/// Returns the finding for text that is not JSON.
pub(super) fn read_outline(text: &str, at: &str) -> Result<Value, Finding> {
    outline_but(text, at, None)
}

/// The same, with an empty value for the key `but` of the document itself.
fn outline_but(text: &str, at: &str, but: Option<&'static str>) -> Result<Value, Finding> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let outline = Outline {
        but,
        ..Outline::default()
    };
    let value = outline.deserialize(&mut deserializer);
    let ended = value.and_then(|value| deserializer.end().map(|()| value));
    ended.map_err(|e| syntax_finding(at, &e))
}

/// Reads a value without the contents of files and units.
#[derive(Clone, Copy, Default)]
struct Outline {
    /// A key of this very object whose value is left empty.
    but: Option<&'static str>,
    /// The value of `contents`: text, or an object with its source.
    contents: bool,
    /// A string here is left empty.
    empty: bool,
}

impl<'de> DeserializeSeed<'de> for Outline {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Outline {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(if self.empty { "" } else { text }.into())
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element_seed(Self::default())? {
            items.push(item);
        }
        Ok(items.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        // A map that grows has room for twice as much, and there is one for each file.
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            let value = if self.but == Some(key.as_str()) {
                empty_like(map.next_value()?)
            } else {
                let contents = key == "contents";
                map.next_value_seed(Self {
                    but: None,
                    contents,
                    empty: contents || self.contents && key == "source",
                })?
            };
            entries.push((key, value));
        }
        let mut object = Map::with_capacity(entries.len());
        object.extend(entries);
        Ok(Value::Object(object))
    }
}

/// Returns an empty value of the same kind.
fn empty_like(raw: &RawValue) -> Value {
    match raw.get().bytes().next() {
        Some(b'[') => Value::Array(Vec::new()),
        Some(b'{') => Value::Object(Map::new()),
        _ => Value::Null,
    }
}

/// Deserialises `text`, whose place in the document is `at`.
///
/// Unknown keys are pushed to `findings`: a warning, or an error where only the
/// letter case differs from a known key (Go would take it, so dropping it is wrong).
pub(super) fn from_str<'t, T: Deserialize<'t>>(
    text: &'t str,
    at: &str,
    findings: &mut Vec<Finding>,
) -> Result<T, Finding> {
    from_outlined(text, &read_outline(text, at)?, at, findings)
}

/// The same for text with a part below the key `raw` that is read by itself.
pub(super) fn from_str_but<'t, T: Deserialize<'t>>(
    text: &'t str,
    raw: &'static str,
    at: &str,
    findings: &mut Vec<Finding>,
) -> Result<T, Finding> {
    from_outlined(text, &outline_but(text, at, Some(raw))?, at, findings)
}

/// The same for text whose outline is known.
pub(super) fn from_outlined<'t, T: Deserialize<'t>>(
    text: &'t str,
    outline: &Value,
    at: &str,
    findings: &mut Vec<Finding>,
) -> Result<T, Finding> {
    check_objects(outline, at)?;
    from_checked(text, at, findings)
}

/// Checks that no list is where an object must be.
///
/// # Errors
/// Returns the finding for the first one.
pub(super) fn check_objects(outline: &Value, at: &str) -> Result<(), Finding> {
    match list_for_object(outline, at, true) {
        Some(path) => Err(Finding::error(
            path,
            "invalid type: a list, expected an object",
        )),
        None => Ok(()),
    }
}

/// Deserialises text whose outline passed [`check_objects`].
pub(super) fn from_checked<'t, T: Deserialize<'t>>(
    text: &'t str,
    at: &str,
    findings: &mut Vec<Finding>,
) -> Result<T, Finding> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(&mut deserializer, &mut track);
    let mut ignored = |path: serde_ignored::Path<'_>| {
        findings.push(unknown_key(&join_path(at, &path.to_string())))
    };
    let result = serde_ignored::deserialize(tracked, &mut ignored);
    match result {
        Ok(value) => deserializer
            .end()
            .map(|()| value)
            .map_err(|e| syntax_finding(at, &e)),
        Err(error) => Err(bad_value(at, &track.path().to_string(), &error)),
    }
}

/// Returns the finding for text that is not JSON.
pub(super) fn syntax_finding(at: &str, error: &serde_json::Error) -> Finding {
    let said = without_value(&error.to_string());
    let message = match error.is_eof() {
        true => format!("not valid JSON: {said}; {CUT_SHORT}"),
        false => format!("not valid JSON: {said}"),
    };
    Finding::error(at, message)
}

/// A parser quotes the text it did not expect, and that may be a secret: its type is enough.
fn without_value(message: &str) -> String {
    let quoted = (message.find("string \""), message.rfind("\", expected"));
    let message = match quoted {
        (Some(start), Some(end)) => {
            let (before, after) = (message.get(..start), message.get(end + 1..));
            format!(
                "{}a string{}",
                before.unwrap_or_default(),
                after.unwrap_or_default()
            )
        }
        _ => message.to_owned(),
    };
    in_plain_words(message)
}

/// Types of the document instead of types of the program.
fn in_plain_words(mut message: String) -> String {
    if let Some(at) = message.find("expected struct ") {
        let end = message.get(at..).and_then(|rest| rest.find(" at line"));
        message.replace_range(
            at..end.map_or(message.len(), |end| at + end),
            "expected an object",
        );
    }
    for (program, document) in [
        ("expected i64", "expected an integer"),
        ("expected a sequence", "expected a list"),
        ("invalid type: sequence", "invalid type: a list"),
        ("invalid type: map", "invalid type: an object"),
    ] {
        message = message.replace(program, document);
    }
    message
}

fn bad_value(at: &str, path: &str, error: &serde_json::Error) -> Finding {
    let text = error.to_string();
    // The position is relative to an inner text; the path says where it is.
    let message = text
        .rsplit_once(" at line ")
        .map_or(text.as_str(), |(message, _)| message);
    let inner = if path == "." {
        String::new()
    } else {
        path.to_owned()
    };
    Finding::error(
        join_path(at, &with_brackets(&inner)),
        without_value(message),
    )
}

fn unknown_key(path: &str) -> Finding {
    let path = with_brackets(path);
    let key = path.rsplit('.').next().unwrap_or(&path).to_owned();
    match KNOWN_KEYS
        .iter()
        .find(|known| known.eq_ignore_ascii_case(&key))
    {
        Some(known) if **known != key => Finding::error(
            path,
            format!("unknown key; write it as {known:?} (the letter case matters)"),
        ),
        _ => Finding::warning(path, "unknown key, ignored"),
    }
}

/// `a.0.b` as `a[0].b`.
fn with_brackets(path: &str) -> String {
    let mut out = String::new();
    for part in path.split('.').filter(|part| *part != "?") {
        if part.bytes().all(|b| b.is_ascii_digit()) && !part.is_empty() {
            out.push_str(&format!("[{part}]"));
            continue;
        }
        if !out.is_empty() && !part.is_empty() {
            out.push('.');
        }
        out.push_str(part);
    }
    out
}

fn join_path(at: &str, path: &str) -> String {
    match (at, path) {
        ("", path) => path.to_owned(),
        (at, path) if at.ends_with('.') => format!("{at}{path}"),
        (at, "") => at.to_owned(),
        (at, path) if path.starts_with('[') => format!("{at}{path}"),
        (at, path) => format!("{at}.{path}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_wrong_value_is_not_repeated() {
        let wrong = r#"{"a": "se\"cret, expected"}"#;
        let mut findings = Vec::new();
        let error =
            from_str::<std::collections::BTreeMap<String, u8>>(wrong, "spec", &mut findings)
                .unwrap_err();
        assert_eq!(
            error.to_string(),
            "spec.a: invalid type: a string, expected u8"
        );
    }

    #[test]
    fn paths_print_with_brackets() {
        assert_eq!(
            with_brackets("storage.files.3.mode"),
            "storage.files[3].mode"
        );
        assert_eq!(with_brackets("?.a.?"), "a");
        assert_eq!(join_path("items[0].", "spec"), "items[0].spec");
    }
}
