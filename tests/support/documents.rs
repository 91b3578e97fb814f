//! The documents of `--output json`, as `documents.txt` describes them: compared with what the program prints, and
//! written as JSON Schema and as a page of the manual.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

const TABLE: &str = "tests/support/documents.txt";

/// What a value may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Type {
    Any,
    Null,
    String,
    Integer,
    Boolean,
    Word(String),
    Named(String),
    List(Box<Type>),
    Tuple(Vec<Type>),
    OneOf(Vec<Type>),
}

/// A key of an object.
#[derive(Debug, Clone)]
pub struct Key {
    pub name: String,
    pub required: bool,
    pub kind: Type,
    pub meaning: String,
}

/// An object, or several of them.
#[derive(Debug, Clone)]
pub enum Shape {
    Keys(Vec<Key>),
    OneOf(Vec<String>),
}

/// One entry of the table.
#[derive(Debug, Clone)]
pub struct Entry {
    pub meaning: String,
    pub shape: Shape,
}

/// The whole table.
#[derive(Debug, Default)]
pub struct Table {
    /// By name, such as `plan/v1`.
    pub documents: BTreeMap<String, Entry>,
    pub types: BTreeMap<String, Entry>,
}

impl Table {
    pub fn read() -> Self {
        let mut table = Self::default();
        let mut included = Vec::new();
        let mut open: Option<(bool, String)> = None;
        let text = std::fs::read_to_string(TABLE).unwrap();
        let lines = text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        for line in lines {
            let (first, rest) = line.split_once(' ').unwrap();
            // A key may be called `type`, too.
            let is_key = rest.contains(" | ");
            match first {
                "document" | "type" | "union" if !is_key => {
                    let (head, meaning) = rest.split_once(": ").unwrap();
                    let (name, shape) = match head.split_once(" = ") {
                        Some((name, all)) => {
                            let all = all.split(", ").map(str::to_owned).collect();
                            (name, Shape::OneOf(all))
                        }
                        None => (head, Shape::Keys(Vec::new())),
                    };
                    let entry = Entry {
                        meaning: meaning.to_owned(),
                        shape,
                    };
                    let is_document = first == "document";
                    let before = if is_document {
                        table.documents.insert(name.to_owned(), entry)
                    } else {
                        table.types.insert(name.to_owned(), entry)
                    };
                    assert!(before.is_none(), "{name} is there twice");
                    open = Some((is_document, name.to_owned()));
                }
                "with" => included.push((open.clone().unwrap(), rest.to_owned())),
                _ => {
                    let (kind, meaning) = rest.split_once(" | ").unwrap();
                    let key = Key {
                        name: first.trim_end_matches('?').to_owned(),
                        required: !first.ends_with('?'),
                        kind: parse_type(kind),
                        meaning: meaning.to_owned(),
                    };
                    table.keys_of(open.as_ref().unwrap()).push(key);
                }
            }
        }
        // A type that includes another one may be included itself.
        for _ in 0..2 {
            for (into, name) in &included {
                let Shape::Keys(keys) = table.types[name].shape.clone() else {
                    panic!("{name} has no keys of its own");
                };
                let into = table.keys_of(into);
                into.retain(|key| keys.iter().all(|other| other.name != key.name));
                into.extend(keys);
            }
        }
        table
    }

    fn keys_of(&mut self, (is_document, name): &(bool, String)) -> &mut Vec<Key> {
        let all = match is_document {
            true => &mut self.documents,
            false => &mut self.types,
        };
        match &mut all.get_mut(name).unwrap().shape {
            Shape::Keys(keys) => keys,
            Shape::OneOf(_) => panic!("{name} has no keys of its own"),
        }
    }

    /// What a document has that the table does not, or the other way round; nothing of documents that are not ours.
    pub fn differences(&self, document: &Value) -> Vec<String> {
        let Some(schema) = document["schema"].as_str() else {
            return Vec::new();
        };
        let Some(name) = schema.strip_prefix("mco-rescue/") else {
            return Vec::new();
        };
        let Some(entry) = self.documents.get(name) else {
            return vec![format!("{schema} is not in tests/support/documents.txt")];
        };
        let mut wrong = Vec::new();
        match &entry.shape {
            Shape::OneOf(_) => self.compare_shape(document, &entry.shape, name, &mut wrong),
            Shape::Keys(keys) => {
                let mut keys = keys.clone();
                keys.push(schema_key(schema));
                self.compare_shape(document, &Shape::Keys(keys), name, &mut wrong);
            }
        }
        wrong
    }

    fn compare_shape(&self, value: &Value, shape: &Shape, at: &str, wrong: &mut Vec<String>) {
        let keys = match shape {
            Shape::Keys(keys) => keys,
            Shape::OneOf(names) => {
                let tried = names.iter().map(|name| {
                    let mut wrong = Vec::new();
                    self.compare_shape(value, &self.types[name].shape, at, &mut wrong);
                    wrong
                });
                let tried: Vec<_> = tried.collect();
                if tried.iter().all(|wrong| !wrong.is_empty()) {
                    wrong.extend(tried.into_iter().min_by_key(Vec::len).unwrap());
                }
                return;
            }
        };
        let Some(object) = value.as_object() else {
            wrong.push(format!("{at}: {value} is not an object"));
            return;
        };
        for key in keys {
            match object.get(&key.name) {
                Some(value) => self.compare(value, &key.kind, &format!("{at}.{}", key.name), wrong),
                None if key.required => wrong.push(format!("{at}: no {}", key.name)),
                None => {}
            }
        }
        let unknown = object
            .keys()
            .filter(|name| keys.iter().all(|key| key.name != **name));
        wrong.extend(
            unknown.map(|name| format!("{at}: {name} is not in tests/support/documents.txt")),
        );
    }

    fn compare(&self, value: &Value, kind: &Type, at: &str, wrong: &mut Vec<String>) {
        let fits = match (kind, value) {
            (Type::Any, _)
            | (Type::Null, Value::Null)
            | (Type::String, Value::String(_))
            | (Type::Boolean, Value::Bool(_)) => true,
            (Type::Integer, Value::Number(number)) => number.is_i64() || number.is_u64(),
            (Type::Word(word), Value::String(text)) => word == text,
            (Type::Named(name), value) => {
                self.compare_shape(value, &self.types[name].shape, at, wrong);
                true
            }
            (Type::List(kind), Value::Array(all)) => {
                for (index, one) in all.iter().enumerate() {
                    self.compare(one, kind, &format!("{at}[{index}]"), wrong);
                }
                true
            }
            (Type::Tuple(kinds), Value::Array(all)) if kinds.len() == all.len() => {
                for (kind, one) in kinds.iter().zip(all) {
                    self.compare(one, kind, at, wrong);
                }
                true
            }
            (Type::OneOf(kinds), value) => {
                let tried = kinds.iter().map(|kind| {
                    let mut wrong = Vec::new();
                    self.compare(value, kind, at, &mut wrong);
                    wrong
                });
                let tried: Vec<_> = tried.collect();
                if tried.iter().all(|wrong| !wrong.is_empty()) {
                    // Of a type and null the type has more to say.
                    wrong.extend(tried.into_iter().next().unwrap());
                }
                true
            }
            _ => false,
        };
        if !fits {
            wrong.push(format!("{at}: {value} is not {kind:?}"));
        }
    }

    /// The JSON Schema of a document.
    pub fn json_schema(&self, name: &str) -> Value {
        let entry = &self.documents[name];
        let mut schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": format!("mco-rescue/{name}"),
        });
        let own = match &entry.shape {
            Shape::Keys(keys) => {
                let mut all = vec![schema_key(&format!("mco-rescue/{name}"))];
                all.extend(keys.iter().cloned());
                Entry {
                    meaning: entry.meaning.clone(),
                    shape: Shape::Keys(all),
                }
            }
            Shape::OneOf(_) => entry.clone(),
        };
        let described = schema_of_entry(&own);
        schema
            .as_object_mut()
            .unwrap()
            .extend(described.as_object().unwrap().clone());
        let used = self.used_by(&own.shape);
        let defined: Map<String, Value> = used
            .into_iter()
            .map(|name| (name.clone(), schema_of_entry(&self.types[&name])))
            .collect();
        if !defined.is_empty() {
            schema["$defs"] = Value::Object(defined);
        }
        schema
    }

    /// Every type that a shape leads to.
    fn used_by(&self, shape: &Shape) -> BTreeSet<String> {
        let mut used = BTreeSet::new();
        let mut next = named_in(shape);
        while let Some(name) = next.pop() {
            if used.insert(name.clone()) {
                next.extend(named_in(&self.types[&name].shape));
            }
        }
        used
    }

    /// The page of the manual that has every document.
    pub fn page(&self) -> String {
        let mut page = String::from(
            "<!-- Written by tests/screens/documents.rs from tests/support/documents.txt -->\n\n# Every key of every JSON document\n\n\
             [json.md](../reference/json.md) says what all documents have in common. Lists are in brackets; `|` separates what a value can be. A key with\n\
             a question mark can be missing.\n",
        );
        for (name, entry) in &self.documents {
            let file = file_name(name);
            page += &format!(
                "\n## {name}\n\n{} Schema: [{file}]({file})\n",
                entry.meaning
            );
            page += &described(&entry.shape);
        }
        page += "\n# Types\n";
        for (name, entry) in &self.types {
            let is_part = |other: &Entry| named_in(&other.shape).contains(name);
            if !self
                .types
                .values()
                .chain(self.documents.values())
                .any(is_part)
            {
                // Included by others only.
                continue;
            }
            page += &format!(
                "\n## {name}\n\n{}\n{}",
                entry.meaning,
                described(&entry.shape)
            );
        }
        page
    }
}

/// Panics if this is a document that differs from the table.
#[track_caller]
pub fn check(printed: &[u8]) {
    static READ: LazyLock<Table> = LazyLock::new(Table::read);
    if !printed.starts_with(b"{") {
        return;
    }
    if let Ok(document) = serde_json::from_slice::<Value>(printed) {
        let wrong = READ.differences(&document);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

/// `plan-v1.schema.json`.
pub fn file_name(document: &str) -> String {
    format!("{}.schema.json", document.replace('/', "-"))
}

fn schema_key(schema: &str) -> Key {
    Key {
        name: "schema".to_owned(),
        required: true,
        kind: Type::Word(schema.to_owned()),
        meaning: "Name and version of the document.".to_owned(),
    }
}

/// Splits at a letter that stands in no brackets and quotes.
fn split(text: &str, at: char) -> Vec<&str> {
    let (mut parts, mut begin, mut depth, mut quoted) = (Vec::new(), 0, 0, false);
    for (index, letter) in text.char_indices() {
        match letter {
            '"' => quoted = !quoted,
            '[' | '(' => depth += 1,
            ']' | ')' => depth -= 1,
            _ if letter == at && depth == 0 && !quoted => {
                parts.push(&text[begin..index]);
                begin = index + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[begin..]);
    parts
}

fn parse_type(text: &str) -> Type {
    let parts = split(text, '|');
    if parts.len() > 1 {
        return Type::OneOf(parts.into_iter().map(parse_type).collect());
    }
    let inner = |open: char, close: char| text.strip_prefix(open)?.strip_suffix(close);
    if let Some(inner) = inner('[', ']') {
        return Type::List(Box::new(parse_type(inner)));
    }
    if let Some(inner) = inner('(', ')') {
        return Type::Tuple(split(inner, ',').into_iter().map(parse_type).collect());
    }
    if let Some(word) = inner('"', '"') {
        return Type::Word(word.to_owned());
    }
    match text {
        "any" => Type::Any,
        "null" => Type::Null,
        "string" => Type::String,
        "integer" => Type::Integer,
        "boolean" => Type::Boolean,
        name => Type::Named(name.to_owned()),
    }
}

fn named_in(shape: &Shape) -> Vec<String> {
    fn collect(kind: &Type, into: &mut Vec<String>) {
        match kind {
            Type::Named(name) => into.push(name.clone()),
            Type::List(kind) => collect(kind, into),
            Type::Tuple(kinds) | Type::OneOf(kinds) => {
                kinds.iter().for_each(|kind| collect(kind, into));
            }
            _ => {}
        }
    }
    match shape {
        Shape::OneOf(names) => names.clone(),
        Shape::Keys(keys) => {
            let mut names = Vec::new();
            keys.iter().for_each(|key| collect(&key.kind, &mut names));
            names
        }
    }
}

fn schema_of_entry(entry: &Entry) -> Value {
    match &entry.shape {
        Shape::OneOf(names) => {
            let all: Vec<Value> = names.iter().map(|name| reference(name)).collect();
            json!({"description": entry.meaning, "oneOf": all})
        }
        Shape::Keys(keys) => {
            let property = |key: &Key| {
                let mut schema = json!({"description": key.meaning});
                let kind = schema_of_type(&key.kind);
                schema
                    .as_object_mut()
                    .unwrap()
                    .extend(kind.as_object().unwrap().clone());
                (key.name.clone(), schema)
            };
            let properties: Map<String, Value> = keys.iter().map(property).collect();
            let required = keys.iter().filter(|key| key.required);
            let required: Vec<&str> = required.map(|key| key.name.as_str()).collect();
            json!({
                "description": entry.meaning,
                "type": "object",
                "properties": properties,
                "required": required,
                "additionalProperties": false,
            })
        }
    }
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/$defs/{name}")})
}

fn schema_of_type(kind: &Type) -> Value {
    match kind {
        Type::Any => json!({}),
        Type::Null => json!({"type": "null"}),
        Type::String => json!({"type": "string"}),
        Type::Integer => json!({"type": "integer"}),
        Type::Boolean => json!({"type": "boolean"}),
        Type::Word(word) => json!({"const": word}),
        Type::Named(name) => reference(name),
        Type::List(kind) => json!({"type": "array", "items": schema_of_type(kind)}),
        Type::Tuple(kinds) => {
            let all: Vec<Value> = kinds.iter().map(schema_of_type).collect();
            json!({"type": "array", "prefixItems": all, "items": false, "minItems": all.len()})
        }
        Type::OneOf(kinds) => {
            let word = |kind: &Type| match kind {
                Type::Word(word) => Some(json!(word)),
                Type::Null => Some(Value::Null),
                _ => None,
            };
            if let Some(words) = kinds.iter().map(word).collect::<Option<Vec<Value>>>() {
                return json!({"enum": words});
            }
            let all: Vec<Value> = kinds.iter().map(schema_of_type).collect();
            let simple = all.iter().map(|one| {
                one.get("type")
                    .filter(|_| one.as_object().unwrap().len() == 1)
            });
            match simple.collect::<Option<Vec<&Value>>>() {
                Some(types) => json!({"type": types}),
                None => json!({"anyOf": all}),
            }
        }
    }
}

fn described(shape: &Shape) -> String {
    match shape {
        Shape::OneOf(names) => {
            let links = names.iter().map(|name| link(name));
            format!("\nOne of {}.\n", links.collect::<Vec<_>>().join(", "))
        }
        Shape::Keys(keys) => {
            let mut rows = String::from("\n| key | value | meaning |\n|---|---|---|\n");
            for key in keys {
                let mark = if key.required { "" } else { "?" };
                let (name, value) = (&key.name, value_words(&key.kind));
                rows += &format!("| `{name}`{mark} | {value} | {} |\n", key.meaning);
            }
            rows
        }
    }
}

fn link(name: &str) -> String {
    format!("[{name}](#{})", name.to_lowercase())
}

fn value_words(kind: &Type) -> String {
    let many = |kinds: &[Type], between: &str| {
        let all: Vec<String> = kinds.iter().map(value_words).collect();
        all.join(between)
    };
    match kind {
        Type::Any => "anything".to_owned(),
        Type::Null => "null".to_owned(),
        Type::String => "string".to_owned(),
        Type::Integer => "integer".to_owned(),
        Type::Boolean => "boolean".to_owned(),
        Type::Word(word) => format!("`{word}`"),
        Type::Named(name) => link(name),
        Type::List(kind) => format!("\\[{}\\]", value_words(kind)),
        Type::Tuple(kinds) => format!("\\[{}\\]", many(kinds, ", ")),
        Type::OneOf(kinds) => many(kinds, " \\| "),
    }
}
