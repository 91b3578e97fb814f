//! The manners of the source tree: what a name promises, and how long a function and a file may be.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::layers::source_files;

/// Files that may be longer than [`MAX_LINES`]. The list may only shrink.
const LONG_FILES: &[&str] = &[];
/// Functions that may be longer than [`MAX_FUNCTION`]. The list may only shrink.
const LONG_FUNCTIONS: &[&str] = &[];
/// Reads whose error counts as an empty answer, by file, with their number. Each has a comment there, or only names something in
/// a message. The list may only shrink.
const SWALLOWED: &[(&str, usize)] = &[
    ("change/install/mod.rs", 1),
    ("change/session/predict.rs", 1),
    ("change/source/objects.rs", 1),
    ("change/transaction/freeze.rs", 1),
    ("change/transaction/lock.rs", 1),
    ("change/transaction/state.rs", 2),
    ("change/transaction/strays.rs", 4),
    ("change/transaction/survey.rs", 1),
    ("cli/butane.rs", 1),
    ("cli/diffs.rs", 3),
    ("cli/doctor/fix.rs", 1),
    ("diagnose/doctor/gather/mod.rs", 1),
    ("diagnose/doctor/gather/upkeep.rs", 1),
    ("diagnose/recorder/look.rs", 1),
    ("host/root/mount.rs", 1),
    ("host/sys/kernel.rs", 1),
    ("node/accounts.rs", 2),
    ("node/activity.rs", 1),
    ("node/authorities.rs", 2),
    ("node/boot.rs", 1),
    ("node/booted.rs", 1),
    ("node/clock.rs", 2),
    ("node/command/job.rs", 2),
    ("node/host.rs", 2),
    ("node/kernel.rs", 4),
    ("node/login_session.rs", 4),
    ("node/machine.rs", 1),
    ("node/platform/control_plane.rs", 2),
    ("node/platform/next_login.rs", 1),
    ("node/records.rs", 1),
    ("node/services_at_work.rs", 2),
    ("node/static_network.rs", 1),
    ("node/static_pods.rs", 1),
    ("node/unit_links.rs", 2),
    ("rehearse/boot.rs", 1),
    ("report/console.rs", 1),
    ("run/capsule.rs", 1),
    ("run/snapshot.rs", 1),
    ("run/trial/guards.rs", 1),
];
/// What is read from: a node, the running system, or its systemd.
const READ_FROM: [&str; 5] = ["root.", "files.", "view.", "running::", "systemctl::"];
/// Functions that read it.
const READS: [&str; 22] = [
    "read(",
    "read_small(",
    "read_file(",
    "read_within(",
    "read_with_stat(",
    "read_link(",
    "read_text(",
    "read_bytes(",
    "read_if_present(",
    "read_at_most(",
    "list(",
    "list_types(",
    "list_names(",
    "names(",
    "exists(",
    "open_directory(",
    "open_followed(",
    "plain_directory(",
    "stat(",
    "observe(",
    "open_place(",
    "query_activity(",
];
/// Methods that make an empty answer of an error.
const SWALLOWERS: [&str; 6] = [
    ".ok()",
    ".unwrap_or_default()",
    ".unwrap_or(",
    ".is_ok_and(",
    ".unwrap_or_else(|_|",
    ".into_iter().flatten()",
];
/// The most functions whose name is a single word, in percent: constructors, methods of traits, nouns.
const MAX_ONE_WORD: usize = 12;
/// The most lines of a file, its unit tests included.
const MAX_LINES: usize = 800;
/// The most lines of a function.
const MAX_FUNCTION: usize = 100;
/// Types that a predicate may return: an answer, or a failure to find it.
const ANSWERS: [&str; 4] = ["bool", "Option<bool>", "Result<bool", "Result<Option<bool>"];

/// Returns the files below `src` by their paths, with their texts.
fn sources() -> BTreeMap<String, String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    source_files(&source, &mut files);
    assert!(files.len() > 200, "{}", files.len());
    let texts = files.iter().map(|file| {
        let path = file.strip_prefix(&source).unwrap().display().to_string();
        (path, fs::read_to_string(file).unwrap())
    });
    texts.collect()
}

/// Returns the code before the unit tests at the end of a file.
fn without_tests(text: &str) -> &str {
    text.split("\nmod tests {").next().unwrap()
}

/// Returns a line without `pub`, `pub(super)` and their kin, and if it had one of them.
fn without_visibility(line: &str) -> (&str, bool) {
    let line = line.trim_start();
    let Some(rest) = line.strip_prefix("pub") else {
        return (line, false);
    };
    match rest
        .strip_prefix('(')
        .and_then(|rest| rest.split_once(") "))
    {
        Some((_, rest)) => (rest, true),
        None => (rest.trim_start(), rest.starts_with(' ')),
    }
}

/// Returns the name that follows one of the keywords.
fn name_after<'t>(line: &'t str, keywords: &[&str]) -> Option<&'t str> {
    let rest = keywords.iter().find_map(|word| {
        let rest = line.strip_prefix(word)?;
        rest.strip_prefix(' ')
    })?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_')
        .next()
}

/// Returns the name of the function that a line begins, and if there is one.
fn function_name(line: &str) -> Option<&str> {
    let (mut line, _) = without_visibility(line);
    for word in ["const ", "unsafe ", "extern \"C\" "] {
        line = line.strip_prefix(word).unwrap_or(line);
    }
    name_after(line, &["fn"])
}

#[test]
fn a_public_type_has_a_name_of_its_own() {
    let mut places: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (file, text) in sources() {
        for line in without_tests(&text).lines() {
            let (rest, is_public) = without_visibility(line);
            // An associated type of a trait has no visibility.
            if let Some(name) = name_after(rest, &["struct", "enum", "trait", "type"])
                && is_public
            {
                let files = places.entry(name.to_owned()).or_default();
                files.insert(file.clone());
            }
        }
    }
    assert!(places.len() > 900, "only {} types were found", places.len());
    places.retain(|_, files| files.len() > 1);
    assert_eq!(places, BTreeMap::new(), "these names stand for two types");
}

/// Returns the signatures of the functions of a text, each on one line, by their names.
fn signatures(text: &str) -> Vec<(&str, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let found = lines.iter().enumerate().filter_map(|(at, line)| {
        let name = function_name(line)?;
        let rest = &lines[at..];
        let is_end =
            |line: &&str| line.ends_with('{') || line.ends_with(';') || line.ends_with('}');
        let end = rest.iter().position(is_end).unwrap_or(0);
        let parts: Vec<&str> = rest[..=end].iter().map(|line| line.trim()).collect();
        Some((name, parts.join(" ")))
    });
    found.collect()
}

#[test]
fn a_predicate_answers_yes_or_no() {
    let (mut predicates, mut others) = (0, Vec::new());
    for (file, text) in sources() {
        for (name, signature) in signatures(&text) {
            if !["is_", "has_", "can_"]
                .iter()
                .any(|word| name.starts_with(word))
            {
                continue;
            }
            predicates += 1;
            let returned = signature.rsplit_once(") -> ").map_or("", |(_, end)| end);
            // Such as `io::Result<bool>`.
            let returned = returned
                .rsplit_once("::Result<")
                .map_or_else(|| returned.to_owned(), |(_, kind)| format!("Result<{kind}"));
            if !ANSWERS.iter().any(|answer| returned.starts_with(answer)) {
                others.push(format!("{file}: {signature}"));
            }
        }
    }
    assert!(predicates > 300, "only {predicates} were found");
    assert_eq!(others, Vec::<String>::new(), "these answer something else");
}

/// Asserts that exactly the allowed ones are too long: one that is no longer so leaves the list.
fn assert_long(found: BTreeSet<String>, allowed: &[&str]) {
    let allowed: BTreeSet<String> = allowed.iter().map(|&one| one.to_owned()).collect();
    let new: Vec<&String> = found.difference(&allowed).collect();
    let gone: Vec<&String> = allowed.difference(&found).collect();
    assert!(new.is_empty(), "too long: {new:#?}");
    assert!(gone.is_empty(), "to take from the list: {gone:#?}");
}

#[test]
fn a_file_is_read_in_one_sitting() {
    let sources = sources();
    let long = sources
        .iter()
        .filter(|(_, text)| text.lines().count() > MAX_LINES);
    assert_long(long.map(|(file, _)| file.clone()).collect(), LONG_FILES);
}

#[test]
fn a_function_is_read_without_scrolling_far() {
    let (mut functions, mut long) = (0, BTreeSet::new());
    for (file, text) in sources() {
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let Some(name) = function_name(line) else {
                continue;
            };
            // The tree is formatted: a function ends at the brace below its first letter.
            let indent = &line[..line.len() - line.trim_start().len()];
            let end = format!("{indent}}}");
            let length = lines[at..].iter().position(|line| *line == end);
            functions += 1;
            if length.is_some_and(|length| length >= MAX_FUNCTION)
                && !line.ends_with(';')
                && !line.ends_with('}')
            {
                long.insert(format!("{file} {name}"));
            }
        }
    }
    assert!(functions > 5000, "only {functions} were found");
    assert_long(long, LONG_FUNCTIONS);
}

/// Returns the text after the parenthesis that closes the one before it.
fn after_call(text: &str) -> Option<&str> {
    let mut depth = 1;
    let end = text.find(|letter| {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        depth == 0
    })?;
    text.get(end + 1..)
}

#[test]
fn an_error_of_a_read_is_not_an_empty_answer() {
    let (mut reads, mut swallowed) = (0, Vec::new());
    for (file, text) in sources() {
        if file.ends_with("tests.rs") {
            continue;
        }
        let text: String = without_tests(&text).lines().map(str::trim).collect();
        let mut count = 0;
        let places = READ_FROM.iter().flat_map(|one| text.match_indices(one));
        for (at, receiver) in places {
            let rest = &text[at + receiver.len()..];
            let arguments = READS.iter().find_map(|read| rest.strip_prefix(read));
            let Some(rest) = arguments.and_then(after_call) else {
                continue;
            };
            reads += 1;
            let is_swallowed = |rest: &str| SWALLOWERS.iter().any(|one| rest.starts_with(one));
            // Or the next statement does it.
            let next = text[..at].rsplit_once("let ").and_then(|(_, name)| {
                let name = name.strip_suffix(" = ")?;
                let next = rest.strip_prefix(';')?.split(';').next()?;
                next.split_once(name).map(|(_, rest)| rest)
            });
            count += usize::from(is_swallowed(next.unwrap_or(rest)));
        }
        if count > 0 {
            swallowed.push((file, count));
        }
    }
    assert!(reads > 300, "only {reads} reads were found");
    let swallowed: Vec<(&str, usize)> = swallowed
        .iter()
        .map(|(file, count)| (file.as_str(), *count))
        .collect();
    assert_eq!(swallowed, SWALLOWED);
}

/// Returns how many results of a line have a text as their error.
fn text_errors(line: &str) -> usize {
    let results = line.match_indices("Result<").filter(|(at, word)| {
        let rest = &line[at + word.len()..];
        let mut depth = 1;
        let end = rest.find(|letter| {
            match letter {
                '<' | '(' | '[' => depth += 1,
                '>' | ')' | ']' => depth -= 1,
                _ => {}
            }
            depth == 0
        });
        end.is_some_and(|end| rest[..end].ends_with(", String") && outer_comma(&rest[..end]))
    });
    results.count()
}

/// Returns true if the last comma is between the two arguments themselves, and not inside of the first one.
fn outer_comma(arguments: &str) -> bool {
    let before = arguments.rsplit_once(',').map_or("", |(before, _)| before);
    let opened = before.matches(['<', '(', '[']).count();
    opened == before.matches(['>', ')', ']']).count()
}

#[test]
fn an_error_is_a_type_and_not_a_text() {
    let mut found = Vec::new();
    for (file, text) in sources() {
        let numbered = without_tests(&text).lines().enumerate();
        let lines = numbered.filter(|(_, line)| text_errors(line) > 0);
        if !file.ends_with("tests.rs") {
            found.extend(lines.map(|(index, line)| format!("{file}:{}: {line}", index + 1)));
        }
    }
    assert_eq!(
        found,
        Vec::<String>::new(),
        "use base::reason::Reason, or an enum"
    );
}

#[test]
fn a_function_says_in_more_than_a_word_what_it_does() {
    let (mut functions, mut short) = (0, 0);
    for (_, text) in sources() {
        for (name, _) in signatures(without_tests(&text)) {
            functions += 1;
            short += usize::from(!name.contains('_'));
        }
    }
    let percent = 100 * short / functions;
    assert!(
        percent <= MAX_ONE_WORD,
        "{percent} %: {short} of {functions}"
    );
}
