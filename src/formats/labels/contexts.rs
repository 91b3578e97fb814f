//! The `file_contexts` of a policy: which of its lines applies to a path (file_contexts(5), selabel_file(5)).
//!
//! The last matching line applies, except that a line without a pattern takes precedence over all others. The files are read in
//! libselinux's order: the policy's own, `.homedirs`, `.local`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use regex_lite::Regex;

use crate::base::object::ObjectKind;

/// The label of paths that must not be labeled.
const NONE: &str = "<<none>>";

/// The texts of a policy's files; empty for missing ones.
#[derive(Debug, Clone, Default)]
pub struct PolicySources {
    /// `file_contexts`.
    pub policy: String,
    /// `file_contexts.homedirs`: generated for the homes of users.
    pub homes: String,
    /// `file_contexts.local`: what an admin has set with `semanage fcontext`.
    pub local: String,
    /// `file_contexts.subs`: an admin's own aliases of directories.
    pub aliases: String,
    /// `file_contexts.subs_dist`: the policy's aliases of directories.
    pub policy_aliases: String,
}

/// An invalid line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("SELinux does not understand line {line} of {file}")]
pub struct ContextsError {
    /// Name of the file.
    pub file: &'static str,
    /// Counted from one.
    pub line: usize,
}

/// All lines, in order.
#[derive(Clone)]
pub struct FileContexts(Arc<Table>);

impl std::fmt::Debug for FileContexts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileContexts({} lines)", self.0.specs.len())
    }
}

struct Table {
    specs: Vec<ContextLine>,
    /// Lines without a pattern, by path.
    literal: BTreeMap<String, Vec<usize>>,
    /// Patterns that can match below one top directory.
    below: BTreeMap<String, Vec<usize>>,
    /// Patterns that can match anywhere.
    anywhere: Vec<usize>,
    aliases: [Vec<Alias>; 2],
}

/// One line.
struct ContextLine {
    pattern: String,
    /// Text with which every match begins.
    prefix: String,
    /// True if the pattern consists of the prefix only.
    literal: bool,
    /// `None` for any type.
    letter: Option<char>,
    /// `None` for `<<none>>`.
    label: Option<String>,
    /// Compiled when first needed; most never are.
    regex: OnceLock<Option<Regex>>,
}

struct Alias {
    path: String,
    stands_for: String,
}

impl FileContexts {
    /// Parses the files of a policy.
    ///
    /// # Errors
    /// A line with an unknown file type or without a label; libselinux rejects the whole file then.
    pub fn parse(sources: &PolicySources) -> Result<Self, ContextsError> {
        let mut specs = Vec::new();
        for (file, text) in [
            ("file_contexts", &sources.policy),
            ("file_contexts.homedirs", &sources.homes),
            ("file_contexts.local", &sources.local),
        ] {
            for (index, line) in text.lines().enumerate() {
                let line_error = || ContextsError {
                    file,
                    line: index + 1,
                };
                specs.extend(ContextLine::parse(line).map_err(|()| line_error())?);
            }
        }
        let aliases = [&sources.aliases, &sources.policy_aliases].map(|text| parse_aliases(text));
        Ok(Self(Arc::new(Table::new(specs, aliases))))
    }

    /// Returns the label for an absolute path whose parent directories have their links resolved. `None` if no line matches, or
    /// if the matching one is `<<none>>` or has a pattern that is not understood.
    pub fn find_label(&self, path: &str, kind: &ObjectKind) -> Option<&str> {
        let line = self.deciding_line(path, kind)?;
        line.label.as_deref().filter(|_| line.is_understood())
    }

    /// Returns the pattern that may apply to a path, if it is not understood.
    pub fn unclear_pattern(&self, path: &str, kind: &ObjectKind) -> Option<&str> {
        let line = self.deciding_line(path, kind)?;
        (!line.is_understood()).then_some(line.pattern.as_str())
    }

    fn deciding_line(&self, path: &str, kind: &ObjectKind) -> Option<&ContextLine> {
        let table = &self.0;
        let path = table.aliases.iter().fold(path.to_owned(), |path, aliases| {
            resolve_alias(aliases, &path).unwrap_or(path)
        });
        let letter = type_letter(kind);
        let fits = |index: &&usize| {
            let spec = table.specs.get(**index);
            spec.is_some_and(|spec| spec.letter.is_none_or(|of| of == letter))
        };
        let literal = table.literal.get(&path);
        let literal = literal.and_then(|all| all.iter().rev().find(fits));
        let mut patterns = table.candidate_lines(&path).iter().rev().filter(fits);
        let index =
            literal.or_else(|| patterns.find(|index| table.line_matches(**index, &path)))?;
        table.specs.get(*index)
    }
}

impl Table {
    fn new(specs: Vec<ContextLine>, aliases: [Vec<Alias>; 2]) -> Self {
        let patterns = || specs.iter().enumerate().filter(|(_, spec)| !spec.literal);
        let tops: BTreeSet<&str> = patterns()
            .filter_map(|(_, spec)| spec.top_directory())
            .collect();
        let only = |top: Option<&str>| -> Vec<usize> {
            let fitting = patterns()
                .filter(|(_, spec)| spec.top_directory().is_none_or(|of| Some(of) == top));
            fitting.map(|(index, _)| index).collect()
        };
        let below = tops
            .iter()
            .map(|top| ((*top).to_owned(), only(Some(top))))
            .collect();
        let anywhere = only(None);
        let mut literal: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (index, spec) in specs.iter().enumerate().filter(|(_, spec)| spec.literal) {
            literal.entry(spec.prefix.clone()).or_default().push(index);
        }
        Self {
            below,
            anywhere,
            literal,
            aliases,
            specs,
        }
    }

    /// Returns the lines that may match, in the order of the files.
    fn candidate_lines(&self, path: &str) -> &[usize] {
        let top = top_component(path).and_then(|top| self.below.get(top));
        top.unwrap_or(&self.anywhere)
    }

    /// Returns true if a line matches. A pattern that is not understood counts as matching: a label from a weaker line would be
    /// a guess.
    fn line_matches(&self, index: usize, path: &str) -> bool {
        let Some(spec) = self.specs.get(index) else {
            return false;
        };
        path.starts_with(&spec.prefix)
            && spec
                .compile_pattern()
                .is_none_or(|regex| regex.is_match(path))
    }
}

impl ContextLine {
    fn parse(line: &str) -> Result<Option<Self>, ()> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (pattern, letter, label) = match fields.as_slice() {
            [] => return Ok(None),
            [first, ..] if first.starts_with('#') => return Ok(None),
            [pattern, label] => (*pattern, None, *label),
            [pattern, kind, label, ..] => (*pattern, Some(parse_letter(kind)?), *label),
            [_] => return Err(()),
        };
        let (prefix, literal) = common_prefix(pattern);
        let regex = OnceLock::new();
        let label = (label != NONE).then(|| label.to_owned());
        Ok(Some(Self {
            pattern: pattern.to_owned(),
            prefix,
            literal,
            letter,
            label,
            regex,
        }))
    }

    fn is_understood(&self) -> bool {
        self.literal || self.compile_pattern().is_some()
    }

    /// Returns the top directory that contains every match.
    fn top_directory(&self) -> Option<&str> {
        top_component(&self.prefix)
    }

    /// Compiles the pattern, anchored as in libselinux; a dot matches any character.
    fn compile_pattern(&self) -> Option<&Regex> {
        let compile = || Regex::new(&format!("(?s)^{}$", self.pattern)).ok();
        self.regex.get_or_init(compile).as_ref()
    }
}

fn parse_letter(field: &str) -> Result<char, ()> {
    match field {
        "--" => Ok('-'),
        "-b" | "-c" | "-d" | "-l" | "-p" | "-s" => field.chars().nth(1).ok_or(()),
        _ => Err(()),
    }
}

/// Returns the letter for a type in the files, after the hyphen.
fn type_letter(kind: &ObjectKind) -> char {
    match kind {
        ObjectKind::File { .. } => '-',
        ObjectKind::Directory => 'd',
        ObjectKind::Symlink { .. } => 'l',
        ObjectKind::Special { type_bits } => match *type_bits {
            libc::S_IFBLK => 'b',
            libc::S_IFCHR => 'c',
            libc::S_IFIFO => 'p',
            _ => 's',
        },
    }
}

/// Returns the first component of a path that has a second one.
fn top_component(path: &str) -> Option<&str> {
    let (top, _) = path.strip_prefix('/')?.split_once('/')?;
    Some(top)
}

/// Returns the text with which every match of a pattern begins, and whether that is the whole pattern.
fn common_prefix(pattern: &str) -> (String, bool) {
    let (text, whole) = leading_text(pattern);
    match top_component(&text) {
        _ if !has_alternatives(pattern) => (text, whole),
        // libselinux considers a line only if the top directory is the same, alternatives or not.
        Some(top) => (format!("/{top}/"), false),
        None => (String::new(), false),
    }
}

fn leading_text(pattern: &str) -> (String, bool) {
    let mut text = String::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                // A character class, such as \d.
                Some(escaped) if escaped.is_ascii_alphanumeric() => return (text, false),
                escaped => text.extend(escaped),
            },
            // The preceding character may be missing.
            '*' | '?' | '{' => {
                text.pop();
                return (text, false);
            }
            '.' | '^' | '$' | '+' | '[' | '(' | '|' => return (text, false),
            c => text.push(c),
        }
    }
    (text, true)
}

/// Returns true if a pattern has alternatives outside of any group; they may have no common prefix.
fn has_alternatives(pattern: &str) -> bool {
    let mut depth = 0;
    pattern.chars().any(|c| {
        depth += match c {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        c == '|' && depth <= 0
    })
}

fn parse_aliases(text: &str) -> Vec<Alias> {
    let lines = text
        .lines()
        .map(str::trim_start)
        .filter(|line| !line.starts_with('#'));
    let pairs = lines.filter_map(|line| {
        let mut fields = line.split_whitespace();
        Some(Alias {
            path: fields.next()?.to_owned(),
            stands_for: fields.next()?.to_owned(),
        })
    });
    pairs.collect()
}

/// Returns the path that an alias stands for; the last matching alias wins.
fn resolve_alias(aliases: &[Alias], path: &str) -> Option<String> {
    aliases.iter().rev().find_map(|alias| {
        let rest = path.strip_prefix(&alias.path)?;
        let whole = rest.is_empty() || rest.starts_with('/');
        whole.then(|| match alias.stands_for.as_str() {
            "/" if !rest.is_empty() => rest.to_owned(),
            other => format!("{other}{rest}"),
        })
    })
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use super::*;
    use crate::base::object::HexDigest;

    static FILE: LazyLock<ObjectKind> = LazyLock::new(|| ObjectKind::File {
        size: 0,
        sha256: HexDigest::default(),
    });

    fn contexts(policy: &str, local: &str) -> FileContexts {
        let sources = PolicySources {
            policy: policy.into(),
            local: local.into(),
            homes: "/home/[^/]+/\\.ssh(/.*)?\tu:r:ssh_home_t:s0\n".into(),
            aliases: "/srv/homes /home\n/var /aliased\n".into(),
            policy_aliases: "# none\n/etc/systemd/system /usr/lib/systemd/system\n/aliased /\n"
                .into(),
        };
        FileContexts::parse(&sources).unwrap()
    }

    const POLICY: &str = "/.*\tu:r:default_t:s0
# a comment

/etc(/.*)?\tu:r:etc_t:s0
/etc/ssh/.+_key  --  u:r:sshd_key_t:s0
/etc/shadow.*\t--\tu:r:shadow_t:s0
/etc/shadow-tool\tu:r:tool_t:s0
/etc/(cron|at)\\.d\t-d\tu:r:cron_t:s0
/etc/run\\.d\tu:r:run_t:s0
/etc/run.*\tu:r:later_t:s0
/tmp/.*\t<<none>>
/usr/lib/systemd/system(/.*)?\tu:r:unit_t:s0
/opt/[0-9]{2}x?/a\tu:r:odd_t:s0
/opt/a|/opt/b\tu:r:odd_t:s0
";

    #[test]
    fn the_last_line_that_matches_decides_and_one_without_pattern_goes_first() {
        let contexts = contexts(POLICY, "/etc/mine(/.*)?\tu:r:local_t:s0\n");
        for (path, wanted) in [
            ("/x", Some("default_t")),
            ("/etc", Some("etc_t")),
            ("/etcetera", Some("default_t")),
            ("/etc/shadow", Some("shadow_t")),
            ("/etc/shadow-", Some("shadow_t")),
            ("/etc/shadow-tool", Some("tool_t")),
            ("/etc/ssh/host_key", Some("sshd_key_t")),
            ("/etc/ssh/_key", Some("etc_t")),
            ("/etc/run.d", Some("run_t")),
            ("/etc/runxd", Some("later_t")),
            ("/etc/mine/a\nb", Some("local_t")),
            ("/tmp/a", None),
            ("/tmp", Some("default_t")),
            ("/opt/12/a", Some("odd_t")),
            ("/opt/12x/a", Some("odd_t")),
            ("/opt/b", Some("odd_t")),
            ("/home/core/.ssh/authorized_keys", Some("ssh_home_t")),
            ("/home/core/xssh", Some("default_t")),
        ] {
            let label = contexts.find_label(path, &FILE);
            assert_eq!(label.map(crate::formats::labels::type_of), wanted, "{path}");
        }
    }

    #[test]
    fn a_line_may_be_for_one_type_only() {
        let contexts = contexts(POLICY, "");
        let of = |path, kind: &ObjectKind| {
            contexts
                .find_label(path, kind)
                .map(crate::formats::labels::type_of)
        };
        let link = ObjectKind::Symlink { target: "x".into() };
        assert_eq!(of("/etc/cron.d", &ObjectKind::Directory), Some("cron_t"));
        assert_eq!(of("/etc/cron.d", &FILE), Some("etc_t"));
        assert_eq!(of("/etc/shadow", &link), Some("etc_t"));
    }

    #[test]
    fn aliases_of_the_admin_come_before_those_of_the_policy() {
        let contexts = contexts(POLICY, "");
        let of = |path| {
            contexts
                .find_label(path, &FILE)
                .map(crate::formats::labels::type_of)
        };
        assert_eq!(of("/etc/systemd/system/a.service"), Some("unit_t"));
        assert_eq!(of("/etc/systemd/systemx"), Some("etc_t"));
        assert_eq!(of("/srv/homes/core/.ssh"), Some("ssh_home_t"));
        assert_eq!(of("/var/etc/shadow"), Some("shadow_t"));
    }

    #[test]
    fn what_a_pattern_that_is_not_understood_may_match_gets_no_label() {
        let contexts = contexts("/.*\tu:r:default_t:s0\n/etc/(?!a).*\tu:r:odd_t:s0\n", "");
        assert_eq!(contexts.find_label("/etc/b", &FILE), None);
        assert_eq!(
            contexts.unclear_pattern("/etc/b", &FILE),
            Some("/etc/(?!a).*")
        );
        assert_eq!(contexts.unclear_pattern("/b", &FILE), None);
        assert_eq!(contexts.find_label("/b", &FILE), Some("u:r:default_t:s0"));
    }

    #[test]
    fn the_patterns_that_policies_are_written_with_are_understood() {
        for (pattern, path) in [
            (r"/a\-b\_c\@d\:e\ff?", "/a-b_c@d:e\u{c}"),
            (r"/a\/b\,c\=d\%e\~.", "/a/b,c=d%e~x"),
            (r"/dev/[[:alnum:]]+\d\w[^[:space:]]", "/dev/a1b2"),
            (r"/x[0-9\-]{1,3}(a|b|(c/.*))?\+", "/x1-2c/d+"),
            (r"/(?:a|b)[.]d", "/b.d"),
            (r"/\[a\]\{\}\$\^.*?", "/[a]{}$^"),
        ] {
            let contexts = contexts(&format!("{pattern} u:r:a_t:s0\n"), "");
            assert_eq!(contexts.unclear_pattern(path, &FILE), None, "{pattern}");
            assert_eq!(
                contexts.find_label(path, &FILE),
                Some("u:r:a_t:s0"),
                "{pattern}"
            );
        }
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        let sources = |local: &str| PolicySources {
            local: local.into(),
            ..PolicySources::default()
        };
        for text in ["/a u:r:a_t:s0\n/b\n", "\n/b -x u:r:a_t:s0\n"] {
            let error = FileContexts::parse(&sources(text)).unwrap_err();
            assert_eq!((error.file, error.line), ("file_contexts.local", 2));
        }
    }

    /// What the index skips could not have matched.
    fn slow_lookup(sources: &PolicySources, path: &str) -> Option<String> {
        let specs: Vec<ContextLine> = sources
            .policy
            .lines()
            .filter_map(|line| ContextLine::parse(line).ok()?)
            .collect();
        let matches = |spec: &&ContextLine| {
            spec.compile_pattern()
                .is_some_and(|regex| regex.is_match(path))
        };
        let literal = specs.iter().rev().filter(|spec| spec.literal).find(matches);
        let all = specs.iter().rev();
        literal.or_else(|| all.clone().find(matches))?.label.clone()
    }

    proptest! {
        #[test]
        fn the_index_finds_what_trying_every_line_finds(
            patterns in proptest::collection::vec("(/([ab]|ab\\?|ab\\*|ba\\{0,1\\}|\\.\\*|\\[ab\\]\\+|\\(/b\\)\\?|a\\{2\\}|\\\\\\.)){1,3}", 1..8),
            path in "(/[ab.]{1,2}){1,3}",
        ) {
            let lines = patterns.iter().enumerate();
            let policy = lines.map(|(n, pattern)| format!("{pattern} u:r:t{n}:s0\n")).collect();
            let sources = PolicySources { policy, ..PolicySources::default() };
            let contexts = FileContexts::parse(&sources).unwrap();
            let slow = slow_lookup(&sources, &path);
            prop_assert_eq!(contexts.find_label(&path, &FILE), slow.as_deref());
        }

        #[test]
        fn no_text_makes_it_panic(policy in "[ -~\\n]{0,200}", aliases in "[ -~\\n]{0,80}", path in "(/[ -~]{1,9}){1,3}") {
            let sources = PolicySources { policy, aliases, ..PolicySources::default() };
            if let Ok(contexts) = FileContexts::parse(&sources) {
                drop(contexts.find_label(&path, &FILE).map(str::to_owned));
            }
        }
    }
}
