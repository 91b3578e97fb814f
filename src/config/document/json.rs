//! JSON parsing with positions: the path of every bad value, and unknown keys as findings.

use std::borrow::Cow;
use std::fmt;

use serde::Deserializer;
use serde::de::{Deserialize, DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::finding::{CUT_SHORT, Finding};
use super::schema::Item;

/// Every key of the model; distinguishes a key in the wrong letter case from an unknown one.
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

/// Keys whose value is always an object.
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

/// Keys whose value is a list of objects (or, in other places, of strings).
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

/// Returns the path below `value` of a list in place of an object. serde would otherwise fill the fields in order from the
/// list.
fn list_for_object(value: &Outline<'_>, is_object: bool) -> Option<String> {
    match value {
        Outline::List(_) if is_object => Some(String::new()),
        Outline::Object(entries) => entries.iter().find_map(|(key, inner)| {
            if let (true, Outline::List(items)) = (ENTRY_KEYS.contains(&&**key), inner) {
                let mut items = items.iter().enumerate();
                return items.find_map(|(i, item)| {
                    let place = list_for_object(item, true)?;
                    Some(join_path(key, &join_path(&format!("[{i}]"), &place)))
                });
            }
            // It is a list in a MachineConfig, but an object in an Ignition config.
            let arguments = key == "kernelArguments" && value.get("ignition").is_some();
            let is_object = arguments || OBJECT_KEYS.contains(&&**key);
            list_for_object(inner, is_object).map(|place| join_path(key, &place))
        }),
        _ => None,
    }
}

/// A value without the contents of its files and units, which are most of a document and are left empty here. Borrows its text.
#[derive(PartialEq)]
pub(super) enum Outline<'t> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool,
    /// A number, if it is a 64-bit integer.
    Number(Option<i64>),
    /// A string.
    Text(Cow<'t, str>),
    /// A list.
    List(Vec<Outline<'t>>),
    /// All entries of an object, in the order of the document.
    Object(Vec<(Cow<'t, str>, Outline<'t>)>),
}

impl<'t> Outline<'t> {
    /// Reads a document.
    ///
    /// # Errors
    /// Returns the finding for text that is not JSON.
    pub(super) fn read_text(text: &'t str, at: &str) -> Result<Self, Finding> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let value = OutlineOf::default().deserialize(&mut deserializer);
        let ended = value.and_then(|value| deserializer.end().map(|()| value));
        ended.map_err(|e| syntax_finding(at, &e))
    }

    /// Returns the value of a key; the last one, if the key occurs twice.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        let Self::Object(entries) = self else {
            return None;
        };
        let found = entries.iter().rev().find(|(name, _)| name == key);
        found.map(|(_, value)| value)
    }

    /// Returns the text of a string.
    pub(super) fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl Item for Outline<'_> {
    fn field(&self, key: &str) -> Option<&Self> {
        self.get(key)
    }

    fn text(&self) -> Option<&str> {
        self.as_str()
    }

    fn number(&self) -> Option<i64> {
        match self {
            Self::Number(number) => *number,
            _ => None,
        }
    }

    fn items(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            _ => &[],
        }
    }
}

/// Reads an [`Outline`].
#[derive(Clone, Copy, Default)]
struct OutlineOf {
    /// The value belongs to `contents`: text, or an object with its source.
    contents: bool,
    /// Strings are left empty.
    empty: bool,
}

impl<'de> DeserializeSeed<'de> for OutlineOf {
    type Value = Outline<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Outline<'de>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for OutlineOf {
    type Value = Outline<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Outline<'de>, E> {
        Ok(Outline::Bool)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Outline<'de>, E> {
        Ok(Outline::Number(Some(value)))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Outline<'de>, E> {
        Ok(Outline::Number(value.try_into().ok()))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Outline<'de>, E> {
        Ok(Outline::Number(None))
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Outline<'de>, E> {
        Ok(Outline::Text(if self.empty { "" } else { text }.into()))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Outline<'de>, E> {
        let text = if self.empty { "" } else { text };
        Ok(Outline::Text(text.to_owned().into()))
    }

    fn visit_unit<E: Error>(self) -> Result<Outline<'de>, E> {
        Ok(Outline::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Outline<'de>, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element_seed(Self::default())? {
            items.push(item);
        }
        Ok(Outline::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Outline<'de>, A::Error> {
        let mut entries = Vec::new();
        while let Some(Name(key)) = map.next_key()? {
            let contents = key == "contents";
            let empty = contents || self.contents && key == "source";
            let value = map.next_value_seed(Self { contents, empty })?;
            entries.push((key, value));
        }
        // There is one for each file, and a growing list has up to twice the needed capacity.
        entries.shrink_to_fit();
        Ok(Outline::Object(entries))
    }
}

/// A key of an object, borrowed if the text has it without escapes.
struct Name<'t>(Cow<'t, str>);

impl<'de: 't, 't> Deserialize<'de> for Name<'t> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Key;
        impl<'de> Visitor<'de> for Key {
            type Value = Name<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_borrowed_str<E: Error>(self, key: &'de str) -> Result<Name<'de>, E> {
                Ok(Name(key.into()))
            }

            fn visit_str<E: Error>(self, key: &str) -> Result<Name<'de>, E> {
                Ok(Name(key.to_owned().into()))
            }
        }
        deserializer.deserialize_str(Key)
    }
}

/// A value of a document; the values in an object are not parsed.
pub(super) enum JsonSection<'t> {
    /// The keys of an object with the text of their values, in the order of the document.
    Object(Vec<(String, &'t RawValue)>),
    /// Any other value; for a list, only the fact that it is one.
    Other(Value),
}

impl<'t> JsonSection<'t> {
    /// Returns the text of a key's value; `None` if it is missing or `null`.
    pub(super) fn text_of(&self, key: &str) -> Option<&'t str> {
        let Self::Object(entries) = self else {
            return None;
        };
        let found = entries.iter().rev().find(|(name, _)| name == key);
        let text = found.map(|(_, raw)| raw.get());
        text.filter(|text| *text != "null")
    }

    /// Returns the JSON text of this value, with the value of the key `but` replaced by an empty one of the same kind.
    pub(super) fn without_key(&self, but: &str) -> String {
        let entries = match self {
            Self::Other(value) => return value.to_string(),
            Self::Object(entries) => entries,
        };
        let entry = |(key, raw): &(String, &RawValue)| {
            let value = if key == but {
                empty_like(raw)
            } else {
                raw.get()
            };
            format!("{}:{value}", Value::from(key.as_str()))
        };
        let entries: Vec<String> = entries.iter().map(entry).collect();
        format!("{{{}}}", entries.join(","))
    }
}

impl<'de: 't, 't> Deserialize<'de> for JsonSection<'t> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Sections)
    }
}

struct Sections;

impl<'de> Visitor<'de> for Sections {
    type Value = JsonSection<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<JsonSection<'de>, E> {
        Ok(JsonSection::Other(value.into()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<JsonSection<'de>, E> {
        Ok(JsonSection::Other(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<JsonSection<'de>, E> {
        Ok(JsonSection::Other(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<JsonSection<'de>, E> {
        Ok(JsonSection::Other(value.into()))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<JsonSection<'de>, E> {
        Ok(JsonSection::Other(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<JsonSection<'de>, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(JsonSection::Other(Value::Array(Vec::new())))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<JsonSection<'de>, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(JsonSection::Object(entries))
    }
}

/// Returns the text of an empty value of the same kind.
fn empty_like(raw: &RawValue) -> &'static str {
    match raw.get().bytes().next() {
        Some(b'[') => "[]",
        Some(b'{') => "{}",
        _ => "null",
    }
}

/// Deserialises `text`, whose path in the document is `at`.
///
/// Unknown keys are added to `findings`: as a warning, or as an error if only the letter case differs from a known key, because
/// Go would accept the key.
pub(super) fn from_str<'t, T: Deserialize<'t>>(
    text: &'t str,
    at: &str,
    findings: &mut Vec<Finding>,
) -> Result<T, Finding> {
    check_objects(&Outline::read_text(text, at)?, at)?;
    from_checked(text, at, findings)
}

/// Checks that no list is in place of an object.
///
/// # Errors
/// The finding for the first one.
pub(super) fn check_objects(outline: &Outline<'_>, at: &str) -> Result<(), Finding> {
    match list_for_object(outline, true) {
        Some(place) => Err(Finding::error(
            join_path(at, &place),
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
    let message = if error.is_eof() {
        format!("not valid JSON: {said}; {CUT_SHORT}")
    } else {
        format!("not valid JSON: {said}")
    };
    Finding::error(at, message)
}

/// Removes values from a parser's message: it quotes the unexpected text, which may be a secret, but its type is sufficient.
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

/// Replaces types of the program with types of the document.
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
    // The position is relative to an inner text; the path shows the place.
    let message = text
        .rsplit_once(" at line ")
        .map_or(text.as_str(), |(message, _)| message);
    let inner = if path == "." {
        String::new()
    } else {
        path.to_owned()
    };
    let mut message = without_value(message);
    if inner.ends_with(".mode") && message.starts_with("invalid type: a string") {
        message += "; write the number without quotes, such as 0644 in YAML, or 420 in JSON";
    }
    Finding::error(join_path(at, &with_brackets(&inner)), message)
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

/// Returns `a.0.b` as `a[0].b`.
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
