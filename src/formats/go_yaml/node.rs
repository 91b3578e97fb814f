//! A JSON value that borrows its text: the digest of a name covers a whole config, which need not be copied.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Number, Value};

/// A value. If a key is repeated, the last one wins, as usual.
#[derive(Debug, Clone, PartialEq)]
pub enum YamlNode<'t> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A string.
    Text(Cow<'t, str>),
    /// A list.
    List(Vec<YamlNode<'t>>),
    /// An object, its keys in the order of the document.
    Object(Vec<(Cow<'t, str>, YamlNode<'t>)>),
}

impl<'t> YamlNode<'t> {
    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<&Self> {
        let Self::Object(entries) = self else {
            return None;
        };
        let found = entries.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value)
    }

    /// Returns the text of a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl<'t> From<&'t Value> for YamlNode<'t> {
    fn from(value: &'t Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(*value),
            Value::Number(number) => Self::Number(number.clone()),
            Value::String(text) => Self::Text(Cow::Borrowed(text)),
            Value::Array(items) => Self::List(items.iter().map(Self::from).collect()),
            Value::Object(map) => {
                let entry = |(key, value): (&'t String, &'t Value)| {
                    (Cow::Borrowed(key.as_str()), Self::from(value))
                };
                Self::Object(map.iter().map(entry).collect())
            }
        }
    }
}

impl<'de: 't, 't> Deserialize<'de> for YamlNode<'t> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Nodes)
    }
}

/// A key of an object.
struct Name<'t>(Cow<'t, str>);

impl<'de: 't, 't> Deserialize<'de> for Name<'t> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match deserializer.deserialize_str(Nodes)? {
            YamlNode::Text(text) => Ok(Self(text)),
            _ => Err(D::Error::custom("a key is not a string")),
        }
    }
}

struct Nodes;

impl<'de> Visitor<'de> for Nodes {
    type Value = YamlNode<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<YamlNode<'de>, E> {
        Ok(YamlNode::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<YamlNode<'de>, E> {
        Ok(YamlNode::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<YamlNode<'de>, E> {
        Ok(YamlNode::Number(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<YamlNode<'de>, E> {
        Ok(YamlNode::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<YamlNode<'de>, E> {
        Ok(Number::from_f64(value).map_or(YamlNode::Null, YamlNode::Number))
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<YamlNode<'de>, E> {
        Ok(YamlNode::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<YamlNode<'de>, E> {
        Ok(YamlNode::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<YamlNode<'de>, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(YamlNode::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<YamlNode<'de>, A::Error> {
        let mut entries: Vec<(Cow<'de, str>, YamlNode<'de>)> = Vec::new();
        while let Some((Name(key), value)) = map.next_entry()? {
            match entries.iter_mut().find(|(known, _)| *known == key) {
                Some(known) => known.1 = value,
                None => entries.push((key, value)),
            }
        }
        Ok(YamlNode::Object(entries))
    }
}
