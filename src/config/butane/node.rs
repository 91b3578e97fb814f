//! The YAML of an input, with the line and column of each node as in Go's yaml.v3.

use std::collections::BTreeMap;
use std::rc::Rc;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput};

use crate::base::reason::Reason;

/// Maximum nesting depth of a Butane config.
const MAX_DEPTH: usize = 64;

/// Maximum number of values in a Butane config: with more, the MachineConfig would exceed etcd's limit (1.5 MiB).
pub(super) const MAX_NODES: usize = 250_000;

/// A position in the text; both numbers start at 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct TextMark {
    /// Number of the line.
    pub(super) line: usize,
    /// Number of the character in the line.
    pub(super) column: usize,
}

/// One node of the text.
#[derive(Debug)]
pub(super) struct Node {
    /// The place where it begins.
    pub(super) mark: TextMark,
    /// Its value.
    pub(super) value: NodeValue,
}

/// The value of a node.
#[derive(Debug)]
pub(super) enum NodeValue {
    /// A scalar, not resolved.
    Scalar(Scalar),
    /// A list.
    List(Vec<Rc<Node>>),
    /// A mapping, in the order of the text.
    Map(Vec<(MappingKey, Rc<Node>)>),
    /// The node that an alias refers to; the position is the alias's own.
    Alias(Rc<Node>),
}

/// The text of a scalar, and how it was written.
#[derive(Debug)]
pub(super) struct Scalar {
    /// The text.
    pub(super) text: String,
    /// False for quoted and block scalars, which are always text.
    pub(super) is_plain: bool,
    /// The tag without its prefix, such as `str`.
    pub(super) tag: Option<String>,
}

/// The key of a mapping.
#[derive(Debug)]
pub(super) struct MappingKey {
    /// The text; empty for a key that is not a scalar.
    pub(super) text: String,
    /// The place where it begins.
    pub(super) mark: TextMark,
    /// True if it is a plain scalar.
    pub(super) is_plain: bool,
}

impl Node {
    /// Returns the node itself, or the target of an alias.
    pub(super) fn target(&self) -> &Self {
        match &self.value {
            NodeValue::Alias(target) => target.target(),
            _ => self,
        }
    }
}

/// Parses the first document of a text; `None` if there is none.
///
/// # Errors
/// The message of Go's yaml.v3, such as `yaml: line 3: did not find expected node content`.
pub(super) fn parse_first(text: &str) -> Result<Option<Rc<Node>>, Reason> {
    let mut reader = Reader {
        parser: Parser::new_from_str(text),
        lines: text.lines().collect(),
        anchors: BTreeMap::new(),
        depth: 0,
        left: MAX_NODES,
    };
    loop {
        match reader.next_event()? {
            (Event::DocumentStart(_), _) => break,
            (Event::StreamEnd, _) => return Ok(None),
            _ => {}
        }
    }
    let (event, mark) = reader.next_event()?;
    let node = reader.read_node(event, mark, None)?;
    // A malformed end of the document is also an error.
    reader.next_event()?;
    Ok(Some(node))
}

struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    lines: Vec<&'a str>,
    anchors: BTreeMap<usize, Rc<Node>>,
    depth: usize,
    /// Number of nodes that may still be read.
    left: usize,
}

impl<'a> Reader<'a> {
    fn next_event(&mut self) -> Result<(Event<'a>, TextMark), Reason> {
        let next: Option<Result<(Event<'a>, Span), ScanError>> = self.parser.next_event();
        match next {
            Some(Ok((event, span))) => {
                let mark = TextMark {
                    line: span.start.line(),
                    column: span.start.col() + 1,
                };
                Ok((event, mark))
            }
            Some(Err(error)) => Err(self.syntax_error(&error).into()),
            None => Ok((Event::StreamEnd, TextMark::default())),
        }
    }

    /// Reads the node that begins with an event. `key` is the position of its key.
    fn read_node(
        &mut self,
        event: Event<'a>,
        mark: TextMark,
        key: Option<TextMark>,
    ) -> Result<Rc<Node>, Reason> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("yaml: line {}: exceeded max depth", mark.line).into());
        }
        self.left = self.left.checked_sub(1).ok_or_else(|| {
            format!(
                "yaml: line {}: more than {MAX_NODES} keys and values",
                mark.line
            )
        })?;
        let (mark, anchor, value) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let is_block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
                let mark = if is_block { self.header_of(mark) } else { mark };
                let scalar = Scalar {
                    text: text.into_owned(),
                    is_plain: style == ScalarStyle::Plain,
                    tag: tag.map(|tag| tag.suffix.clone()),
                };
                (mark, anchor, NodeValue::Scalar(scalar))
            }
            Event::SequenceStart(anchor, _) => {
                let mark = self.dash_of(mark, key);
                (mark, anchor, NodeValue::List(self.read_items()?))
            }
            Event::MappingStart(anchor, _) => (mark, anchor, NodeValue::Map(self.read_entries()?)),
            Event::Alias(id) => {
                let target = self.anchors.get(&id).cloned();
                let target = target.ok_or("yaml: anchor contains itself")?;
                (mark, 0, NodeValue::Alias(target))
            }
            other => return Err(format!("yaml: line {}: unexpected {other:?}", mark.line).into()),
        };
        self.depth -= 1;
        let node = Rc::new(Node { mark, value });
        if anchor != 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        Ok(node)
    }

    fn read_items(&mut self) -> Result<Vec<Rc<Node>>, Reason> {
        let mut items = Vec::new();
        loop {
            match self.next_event()? {
                (Event::SequenceEnd, _) => return Ok(items),
                (event, mark) => items.push(self.read_node(event, mark, None)?),
            }
        }
    }

    fn read_entries(&mut self) -> Result<Vec<(MappingKey, Rc<Node>)>, Reason> {
        let mut entries = Vec::new();
        loop {
            let (event, mark) = self.next_event()?;
            if event == Event::MappingEnd {
                return Ok(entries);
            }
            let node = self.read_node(event, mark, None)?;
            let (text, is_plain) = match &node.target().value {
                NodeValue::Scalar(scalar) => (scalar.text.clone(), scalar.is_plain),
                _ => (String::new(), false),
            };
            let key = MappingKey {
                text,
                mark: node.mark,
                is_plain,
            };
            let (event, mark) = self.next_event()?;
            let value = self.read_node(event, mark, Some(key.mark))?;
            entries.push((key, value));
        }
    }

    fn char_at(&self, line: usize, column: usize) -> Option<char> {
        let line = self.lines.get(line.checked_sub(1)?)?;
        line.chars().nth(column.checked_sub(1)?)
    }

    /// Returns the position of a list's first dash. If the dashes are below the key, our parser reports the first item instead.
    fn dash_of(&self, mark: TextMark, key: Option<TextMark>) -> TextMark {
        let Some(key) = key else { return mark };
        let below = key.line < mark.line && key.column < mark.column;
        if below && self.char_at(mark.line, key.column) == Some('-') {
            let column = key.column;
            return TextMark { column, ..mark };
        }
        mark
    }

    /// Returns the position of the `|` or `>` of a block scalar, or of the tag or anchor before it.
    fn header_of(&self, mark: TextMark) -> TextMark {
        for number in (1..=mark.line).rev() {
            let Some(line) = self.lines.get(number - 1) else {
                continue;
            };
            if let Some(start) = block_header(line) {
                let column = 1 + line.get(..start).unwrap_or_default().chars().count();
                return TextMark {
                    line: number,
                    column,
                };
            }
            if number < mark.line && !line.trim().is_empty() {
                break;
            }
        }
        mark
    }

    /// Returns the message of yaml.v3 for an error of our parser.
    fn syntax_error(&self, error: &ScanError) -> String {
        let line = error.marker().line();
        let known = SYNTAX.iter().find(|row| error.info().contains(row.0));
        let (text, is_scanners) = known.map_or((error.info(), true), |row| (row.1, row.2));
        // The parser of yaml.v3 counts lines from 0, and its scanner corrects that.
        let line = if is_scanners {
            line
        } else {
            line.saturating_sub(1)
        };
        match line {
            0 => format!("yaml: {text}"),
            _ => format!("yaml: line {line}: {text}"),
        }
    }
}

/// Part of our parser's message, yaml.v3's message, and whether yaml.v3's scanner reports it.
const SYNTAX: [(&str, &str, bool); 14] = [
    (
        "did not find expected node content",
        "did not find expected node content",
        false,
    ),
    (
        "did not find expected key",
        "did not find expected key",
        false,
    ),
    (
        "did not find expected '-' indicator",
        "did not find expected '-' indicator",
        false,
    ),
    (
        "did not find expected ',' or '}'",
        "did not find expected ',' or '}'",
        false,
    ),
    (
        "expected ',' or ']'",
        "did not find expected ',' or ']'",
        false,
    ),
    (
        "mapping values are not allowed",
        "mapping values are not allowed in this context",
        true,
    ),
    ("tabs disallowed", TOKEN, true),
    ("unexpected character", TOKEN, true),
    (
        "found unexpected end of stream",
        "found unexpected end of stream",
        true,
    ),
    (
        "unknown escape character",
        "found unknown escape character",
        true,
    ),
    ("simple key expect ':'", "could not find expected ':'", true),
    (
        "block sequence entries are not allowed",
        "block sequence entries are not allowed in this context",
        true,
    ),
    (
        "did not find expected <document start>",
        "did not find expected <document start>",
        false,
    ),
    ("found unknown anchor", "unknown anchor referenced", true),
];

const TOKEN: &str = "found character that cannot start any token";

/// Returns the byte offset of a block scalar's header, including its tag and anchor, if a line ends with one.
fn block_header(line: &str) -> Option<usize> {
    let code = match line.rfind(" #") {
        Some(at) if line.get(..at).is_some_and(ends_with_header) => line.get(..at)?,
        _ => line,
    };
    if !ends_with_header(code) {
        return None;
    }
    let mut start = last_word(code.trim_end())?;
    loop {
        let before = code.get(..start)?.trim_end();
        match last_word(before) {
            Some(at)
                if before
                    .get(at..)
                    .is_some_and(|word| word.starts_with(['!', '&'])) =>
            {
                start = at;
            }
            _ => return Some(start),
        }
    }
}

fn last_word(text: &str) -> Option<usize> {
    (!text.is_empty()).then(|| text.rfind([' ', '\t']).map_or(0, |at| at + 1))
}

fn ends_with_header(text: &str) -> bool {
    let text = text.trim_end();
    let word = last_word(text).and_then(|at| text.get(at..));
    let rest = word.and_then(|word| word.strip_prefix(['|', '>']));
    rest.is_some_and(|rest| rest.chars().all(|c| matches!(c, '+' | '-' | '0'..='9')))
}
