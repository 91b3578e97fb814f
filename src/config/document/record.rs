//! The daemon's record, parsed like the daemon does. Go's `json.Decoder` reads the first value of a file and nothing after it,
//! accepts keys in any letter case, and merges a repeated key over the earlier one (docs/develop/agreement.md: Files on a node).

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Deserializer, Value, json};

use super::json::JsonSection;
use crate::base::go_quote;
use crate::base::reason::Reason;

/// The result of the daemon's parser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordReading {
    /// An object; its name is empty if it has none.
    Object {
        /// `metadata.name`.
        name: String,
        /// The object as the daemon would write it.
        text: String,
    },
    /// It fails with exactly this message.
    Says(String),
    /// It fails, and its message depends on the version of Go; the reason.
    Fails(Reason),
}

/// Parses a record like the daemon.
pub fn read_record(bytes: &[u8]) -> RecordReading {
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    let Some(start) = bytes.iter().position(|byte| !blank(byte)) else {
        return RecordReading::Says("EOF".to_owned());
    };
    let rest = bytes.get(start..).unwrap_or_default();
    let kind = match rest.first().copied().unwrap_or_default() {
        b'{' => None,
        // In a struct, null sets nothing.
        b'n' if rest.starts_with(b"null") => return read_object("{}"),
        b'[' => Some("array"),
        b'"' => Some("string"),
        b't' | b'f' => Some("bool"),
        b'-' | b'0'..=b'9' => Some("number"),
        b'n' => None,
        other => {
            return RecordReading::Says(format!(
                "invalid character {} looking for beginning of value",
                go_quote::quote_character(other)
            ));
        }
    };
    let mut values = Deserializer::from_slice(rest).into_iter::<IgnoredAny>();
    match (values.next(), kind) {
        (Some(Err(error)), _) if error.is_eof() => RecordReading::Says("unexpected EOF".to_owned()),
        (Some(Err(error)), _) => RecordReading::Fails(format!("not valid JSON: {error}").into()),
        (_, Some(kind)) => RecordReading::Says(format!(
            "json: cannot unmarshal {kind} into Go value of type v1.MachineConfig"
        )),
        (_, None) => {
            let first = rest.get(..values.byte_offset()).unwrap_or_default();
            read_object(&with_whole_surrogates(&String::from_utf8_lossy(first)))
        }
    }
}

/// The type of a field.
#[derive(Clone, Copy)]
enum Shape {
    Text,
    Bool,
    Integer,
    Texts,
    TextMap,
    Objects,
    /// Kept as it is.
    Raw,
}

/// The fields of a struct, in the order in which Go writes them.
type Fields = &'static [(&'static str, Shape)];

const OBJECT: Fields = &[
    ("kind", Shape::Text),
    ("apiVersion", Shape::Text),
    ("metadata", Shape::Raw),
    ("spec", Shape::Raw),
];

const METADATA: Fields = &[
    ("name", Shape::Text),
    ("generateName", Shape::Text),
    ("namespace", Shape::Text),
    ("selfLink", Shape::Text),
    ("uid", Shape::Text),
    ("resourceVersion", Shape::Text),
    ("generation", Shape::Integer),
    ("creationTimestamp", Shape::Text),
    ("deletionTimestamp", Shape::Text),
    ("deletionGracePeriodSeconds", Shape::Integer),
    ("labels", Shape::TextMap),
    ("annotations", Shape::TextMap),
    ("ownerReferences", Shape::Objects),
    ("finalizers", Shape::Texts),
    ("managedFields", Shape::Objects),
];

const SPEC: Fields = &[
    ("osImageURL", Shape::Text),
    ("baseOSExtensionsContainerImage", Shape::Text),
    ("config", Shape::Raw),
    ("kernelArguments", Shape::Texts),
    ("extensions", Shape::Texts),
    ("fips", Shape::Bool),
    ("kernelType", Shape::Text),
];

fn read_object(text: &str) -> RecordReading {
    match try_object(text) {
        Ok((name, text)) => RecordReading::Object { name, text },
        Err(why) => RecordReading::Fails(why),
    }
}

fn try_object(text: &str) -> Result<(String, String), Reason> {
    let (mut metadata, mut spec) = (Struct::new("metadata", METADATA), Struct::new("spec", SPEC));
    for (key, value) in read_entries(text, "")? {
        match known_field(&key, OBJECT) {
            Some(("metadata", _)) => metadata.lay_over(value)?,
            Some(("spec", _)) => spec.lay_over(value)?,
            Some((name, shape)) => drop(shape_value(shape, value, name)?),
            None => {}
        }
    }
    let name = metadata.values.get("name").map(|name| name.get());
    let name: Option<String> = name.and_then(|name| serde_json::from_str(name).ok());
    let text = format!(
        "{{\"metadata\":{},\"spec\":{}}}",
        metadata.to_text(),
        spec.to_text()
    );
    Ok((name.unwrap_or_default(), text))
}

/// A struct, possibly given in several parts.
struct Struct {
    key: &'static str,
    fields: Fields,
    values: BTreeMap<&'static str, Box<RawValue>>,
}

impl Struct {
    fn new(key: &'static str, fields: Fields) -> Self {
        let values = BTreeMap::new();
        Self {
            key,
            fields,
            values,
        }
    }

    /// Merges an object over the existing one; `null` changes nothing.
    fn lay_over(&mut self, part: &RawValue) -> Result<(), Reason> {
        if part.get() == "null" {
            return Ok(());
        }
        for (key, value) in read_entries(part.get(), self.key)? {
            if let Some((name, shape)) = known_field(&key, self.fields) {
                self.set_field(name, shape, value)?;
            }
        }
        Ok(())
    }

    fn set_field(
        &mut self,
        name: &'static str,
        shape: Shape,
        value: &RawValue,
    ) -> Result<(), Reason> {
        let at = format!("{}.{name}", self.key);
        let Some(value) = shape_value(shape, value, &at)? else {
            // A list or map is emptied; any other value is kept.
            if matches!(shape, Shape::Texts | Shape::TextMap | Shape::Objects) {
                self.values.remove(name);
            }
            return Ok(());
        };
        let value = match (shape, self.values.get(name)) {
            (Shape::TextMap, Some(before)) => merge_maps(before, &value).unwrap_or(value),
            _ => value,
        };
        self.values.insert(name, value);
        Ok(())
    }

    fn to_text(&self) -> String {
        let entry = |(name, _): &(&'static str, Shape)| {
            let value = self.values.get(name)?;
            Some(format!("{}:{}", json!(name), value.get()))
        };
        let entries: Vec<String> = self.fields.iter().filter_map(entry).collect();
        format!("{{{}}}", entries.join(","))
    }
}

/// Returns the union of two maps; the second takes precedence.
fn merge_maps(before: &RawValue, after: &RawValue) -> Option<Box<RawValue>> {
    let mut all: BTreeMap<String, String> = serde_json::from_str(before.get()).ok()?;
    let later: BTreeMap<String, String> = serde_json::from_str(after.get()).ok()?;
    all.extend(later);
    serde_json::value::to_raw_value(&all).ok()
}

/// Returns a value in the form of its field, with each inner `null` removed; `None` if the whole value is `null`.
fn shape_value(shape: Shape, value: &RawValue, at: &str) -> Result<Option<Box<RawValue>>, Reason> {
    if value.get() == "null" {
        return Ok(None);
    }
    let own = || value.to_owned();
    let taken = match shape {
        Shape::Raw => Some(own()),
        Shape::Text => read_value::<String>(value).map(|_| own()),
        Shape::Bool => read_value::<bool>(value).map(|_| own()),
        Shape::Integer => read_value::<i64>(value).map(|_| own()),
        Shape::Objects => {
            read_value::<Vec<Option<serde_json::Map<String, Value>>>>(value).map(|_| own())
        }
        Shape::Texts => read_value::<Vec<Option<String>>>(value).and_then(|all| {
            let all: Vec<String> = all.into_iter().map(Option::unwrap_or_default).collect();
            serde_json::value::to_raw_value(&all).ok()
        }),
        Shape::TextMap => read_value::<BTreeMap<String, Option<String>>>(value).and_then(|all| {
            let all = all.into_iter();
            let all: BTreeMap<String, String> = all
                .map(|(key, text)| (key, text.unwrap_or_default()))
                .collect();
            serde_json::value::to_raw_value(&all).ok()
        }),
    };
    let wanted = match shape {
        Shape::Text => "a string",
        Shape::Bool => "true or false",
        Shape::Integer => "an integer",
        Shape::Texts => "a list of strings",
        Shape::TextMap => "an object of strings",
        Shape::Objects => "a list of objects",
        Shape::Raw => "a value",
    };
    taken
        .map(Some)
        .ok_or_else(|| format!("{at} is not {wanted}").into())
}

/// Deserialises a value; `None` if it has another type, which the caller reports.
fn read_value<'t, T: Deserialize<'t>>(value: &'t RawValue) -> Option<T> {
    serde_json::from_str(value.get()).ok()
}

/// Returns the entries of an object in their order, including repeated keys.
fn read_entries<'t>(text: &'t str, at: &str) -> Result<Vec<(String, &'t RawValue)>, Reason> {
    match serde_json::from_str(text) {
        Ok(JsonSection::Object(entries)) => Ok(entries),
        Ok(JsonSection::Other(_)) | Err(_) => Err(format!("{at} is not an object").into()),
    }
}

/// Returns the field that Go matches with a key: the letter case is ignored, and the long s and the kelvin sign match `s` and
/// `k`.
fn known_field(key: &str, fields: Fields) -> Option<(&'static str, Shape)> {
    let folded = |c: char| match c {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        c => c.to_ascii_lowercase(),
    };
    let same =
        |(name, _): &&(&'static str, Shape)| key.chars().map(folded).eq(name.chars().map(folded));
    fields.iter().find(same).copied()
}

/// Replaces each escape of an unpaired surrogate with that of U+FFFD, as Go does.
fn with_whole_surrogates(text: &str) -> Cow<'_, str> {
    let unit = |at: &str| {
        let digits = at.strip_prefix("\\u").and_then(|digits| digits.get(..4));
        digits.and_then(|digits| u16::from_str_radix(digits, 16).ok())
    };
    let (mut out, mut rest) = (String::new(), text);
    let mut replaced = false;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        out.push_str(before);
        let after = escape.get(6..);
        let taken = match (unit(escape), after.and_then(unit)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => {
                replaced = true;
                out.push_str("\\ufffd");
                rest = after.unwrap_or_default();
                continue;
            }
            _ => 2,
        };
        let (escape, after) = escape.split_at_checked(taken).unwrap_or((escape, ""));
        out.push_str(escape);
        rest = after;
    }
    if replaced {
        (out + rest).into()
    } else {
        text.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = r#"{"ignition":{"version":"3.5.0"}}"#;

    /// Returns the record of a node with the fields that the daemon writes.
    fn record() -> String {
        format!(
            r#"{{"metadata":{{"name":"rendered-worker-a","labels":{{"x":"1"}}}},"spec":{{"osImageURL":"i","config":{CONFIG},"kernelArguments":["a"],"extensions":[],"fips":false,"kernelType":"default"}}}}"#
        )
    }

    /// The expected results come from Go 1.19's `json.NewDecoder(...).Decode` into the API's types.
    #[test]
    fn a_record_is_read_as_go_reads_it() {
        let whole = record();
        let named = |text: &str, name: &str| match read_record(text.as_bytes()) {
            RecordReading::Object { name: read, .. } => assert_eq!(read, name, "{text}"),
            other => panic!("{text}: {other:?}"),
        };
        let tails = ["", "\n", "xx", "}", "\0\0", "# note", "\u{feff}", &whole];
        for tail in tails {
            let reading = read_record(format!("{whole}{tail}").as_bytes());
            let wanted = RecordReading::Object {
                name: "rendered-worker-a".to_owned(),
                text: whole.clone(),
            };
            assert_eq!(reading, wanted, "{tail:?}");
        }
        for (from, to, name) in [
            ("\"metadata\"", "\"METADATA\"", "rendered-worker-a"),
            ("\"name\"", "\"name\":\"b\",\"Name\"", "rendered-worker-a"),
            ("\"labels\"", "\"nAme\":\"b\",\"labels\"", "b"),
            (
                "\"labels\"",
                "\"name\":null,\"labels\"",
                "rendered-worker-a",
            ),
            ("\"spec\"", "\"\u{17f}pec\"", "rendered-worker-a"),
            (
                "{\"metadata\"",
                "{\"kind\":\"Node\",\"metadata\"",
                "rendered-worker-a",
            ),
            (
                "{\"metadata\"",
                "{\"items\":7,\"metadata\"",
                "rendered-worker-a",
            ),
            ("\"1\"", "\"\\ud800\"", "rendered-worker-a"),
            ("\"1\"", "null", "rendered-worker-a"),
        ] {
            named(&whole.replacen(from, to, 1), name);
        }
        named("null", "");
        named("{}", "");
        named(&format!("{{\"items\":[{whole}]}}"), "");
    }

    #[test]
    fn a_repeated_key_is_laid_over_the_earlier_one() {
        let over = |from: &str, to: &str| {
            let text = record().replacen(from, to, 1);
            match read_record(text.as_bytes()) {
                RecordReading::Object { text, .. } => text,
                other => panic!("{text}: {other:?}"),
            }
        };
        let whole = record();
        for (from, to, result) in [
            (
                "\"fips\":false",
                "\"fips\":true,\"Fips\":false",
                whole.clone(),
            ),
            ("\"config\"", "\"config\":7,\"config\"", whole.clone()),
            ("\"fips\"", "\"config\":null,\"fips\"", whole.clone()),
            (
                "\"spec\"",
                "\"spec\":{\"fips\":true},\"spec\"",
                whole.clone(),
            ),
            (
                "{\"metadata\"",
                "{\"metadata\":{},\"metadata\"",
                whole.clone(),
            ),
            (
                "\"fips\"",
                "\"kernelArguments\":[null,\"b\"],\"fips\"",
                whole.replace("[\"a\"]", "[\"\",\"b\"]"),
            ),
            (
                "\"labels\"",
                "\"labels\":{\"w\":\"0\"},\"labels\"",
                whole.replace("{\"x\"", "{\"w\":\"0\",\"x\""),
            ),
        ] {
            assert_eq!(over(from, to), result, "{to}");
        }
    }

    #[test]
    fn what_go_cannot_read_is_said_in_its_words_where_they_are_known() {
        let cut = |text: &str| text[..40].to_owned();
        let says = |text: &str| format!("invalid character {text} looking for beginning of value");
        let array = "json: cannot unmarshal array into Go value of type v1.MachineConfig";
        for (text, wanted) in [
            (String::new(), "EOF".to_owned()),
            (" \n".to_owned(), "EOF".to_owned()),
            (cut(&record()), "unexpected EOF".to_owned()),
            (format!("[{}]", record()), array.to_owned()),
            ("\"x\"".to_owned(), array.replace("array", "string")),
            ("true".to_owned(), array.replace("array", "bool")),
            ("-7".to_owned(), array.replace("array", "number")),
            ("<html>".to_owned(), says("'<'")),
            ("'x'".to_owned(), says(r"'\''")),
            ("\0\0".to_owned(), says(r"'\x00'")),
            ("\u{feff}{}".to_owned(), says("'ï'")),
        ] {
            let reading = read_record(text.as_bytes());
            assert_eq!(reading, RecordReading::Says(wanted), "{text:?}");
        }
        for (from, to) in [
            ("false", "\"false\""),
            ("false", "\"x\",\"fips\":false"),
            ("[\"a\"]", "\"a\""),
            ("[\"a\"]", "[1]"),
            ("\"i\"", "7"),
            ("\"1\"", "1"),
            ("\"rendered-worker-a\"", "7"),
            ("{\"metadata\"", "{\"kind\":7,\"metadata\""),
            ("\"labels\"", "\"generation\":1.0,\"labels\""),
            ("\"labels\"", "\"ownerReferences\":{},\"labels\""),
            ("\"spec\":", "\"spec\":[],\"spec\":"),
            ("}}", "},}"),
            ("\"spec\"", "spec"),
        ] {
            let text = record().replacen(from, to, 1);
            let reading = read_record(text.as_bytes());
            assert!(
                matches!(reading, RecordReading::Fails(_)),
                "{to}: {reading:?}"
            );
        }
    }
}
