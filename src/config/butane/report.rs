//! Entries of a report, with their position in the input.

use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use super::node::{MappingKey, Node, NodeValue, TextMark};

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PathStep {
    /// A key of a mapping.
    Key(String),
    /// The key itself, not its value.
    KeyItself(String),
    /// An item of a list, from 0.
    Index(usize),
}

/// The path of a value of the input, from the top.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Path(Vec<PathStep>);

impl Path {
    /// Returns the path of a list of keys.
    pub(super) fn from_keys(keys: &[&str]) -> Self {
        Self(
            keys.iter()
                .map(|key| PathStep::Key((*key).to_owned()))
                .collect(),
        )
    }

    /// Returns the path of a key below this one.
    pub(super) fn with_key(&self, key: &str) -> Self {
        self.with_step(PathStep::Key(key.to_owned()))
    }

    /// Returns the path of an item below this one.
    pub(super) fn with_index(&self, index: usize) -> Self {
        self.with_step(PathStep::Index(index))
    }

    /// Returns the path extended by one step.
    pub(super) fn with_step(&self, step: PathStep) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }
}

/// The keys of mappings, collected on first use: a report may have an entry for each of them.
#[derive(Default)]
struct Places<'n> {
    /// By the address of the mapping: the first and the last entry of each key.
    maps: HashMap<*const Node, HashMap<&'n str, (usize, usize)>>,
}

impl<'n> Places<'n> {
    /// Returns the indexes of the first and the last entry of a key.
    fn find_key(
        &mut self,
        map: &'n Node,
        entries: &'n [(MappingKey, Rc<Node>)],
        key: &str,
    ) -> Option<(usize, usize)> {
        let keys = self.maps.entry(std::ptr::from_ref(map)).or_insert_with(|| {
            let mut keys = HashMap::new();
            for (at, (key, _)) in entries.iter().enumerate() {
                keys.entry(key.text.as_str()).or_insert((at, at)).1 = at;
            }
            keys
        });
        keys.get(key).copied()
    }

    /// Returns the position of the deepest existing node on a path.
    fn find_mark(&mut self, path: &Path, root: &'n Node) -> TextMark {
        let mut node = root;
        for step in &path.0 {
            let next = match (step, &node.value) {
                (PathStep::Key(key), NodeValue::Map(entries)) => {
                    let found = self.find_key(node, entries, key);
                    found.and_then(|(_, last)| Some(&entries.get(last)?.1))
                }
                (PathStep::KeyItself(key), NodeValue::Map(entries)) => {
                    let found = self.find_key(node, entries, key);
                    let entry = found.and_then(|(first, _)| entries.get(first));
                    return entry.map_or(node.mark, |entry| entry.0.mark);
                }
                (PathStep::Index(index), NodeValue::List(items)) => items.get(*index),
                _ => None,
            };
            let Some(next) = next else { break };
            node = next;
        }
        node.mark
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("$")?;
        self.0.iter().try_for_each(|step| match step {
            PathStep::Key(key) | PathStep::KeyItself(key) => write!(f, ".{key}"),
            PathStep::Index(index) => write!(f, ".{index}"),
        })
    }
}

/// Severity of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// Nothing is translated.
    Error,
    /// There is an output, but the user should know about this.
    Warning,
}

impl EntryKind {
    /// Returns the word for it in the text of an entry.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// One entry of the report on an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportEntry {
    /// Error or warning.
    pub kind: EntryKind,
    /// The path of the value, such as `$.storage.files.0.mode`.
    pub path: String,
    /// Number of the line, from 1.
    pub line: usize,
    /// Number of the character in the line, from 1.
    pub column: usize,
    /// Butane's own words.
    pub message: String,
}

impl fmt::Display for ReportEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, line, column) = (self.kind.as_str(), self.line, self.column);
        let place = match self.path.as_str() {
            "$" => String::new(),
            path => format!("{path}, "),
        };
        write!(
            f,
            "{kind} at {place}line {line} col {column}: {}",
            self.message
        )
    }
}

/// Entries whose position in the text is not yet known.
#[derive(Debug, Default)]
pub(super) struct Report {
    entries: Vec<(EntryKind, Path, String)>,
}

impl Report {
    /// Adds an error.
    pub(super) fn add_error(&mut self, path: Path, message: impl Into<String>) {
        self.entries.push((EntryKind::Error, path, message.into()));
    }

    /// Adds a warning.
    pub(super) fn add_warning(&mut self, path: Path, message: impl Into<String>) {
        self.entries
            .push((EntryKind::Warning, path, message.into()));
    }

    /// Adds the entries of another report.
    pub(super) fn append(&mut self, mut other: Self) {
        self.entries.append(&mut other.entries);
    }

    /// Returns true if there is an error among the entries.
    pub(super) fn is_fatal(&self) -> bool {
        self.entries.iter().any(|entry| entry.0 == EntryKind::Error)
    }

    /// Returns the entries with their places.
    pub(super) fn located_in(self, root: &Node) -> Vec<ReportEntry> {
        let mut places = Places::default();
        let entries = self.entries.into_iter().map(|(kind, path, message)| {
            let mark = places.find_mark(&path, root);
            ReportEntry {
                kind,
                path: path.to_string(),
                line: mark.line,
                column: mark.column,
                message,
            }
        });
        entries.collect()
    }
}
