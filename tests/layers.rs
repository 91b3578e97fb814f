//! The layers of the source tree: a room uses only rooms that stand above it in `src/lib.rs`, and a module only modules that
//! stand above it in its room.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Rooms whose modules are not in layers: each counts as a whole, but for the modules of `node` that stand apart.
const WHOLE: [&str; 3] = ["node", "report", "cli"];
/// The layers of `node`. The last one but `mounts` is all the rest.
const NODE: [&str; 4] = ["node::command", "node::images", "node", "node::mounts"];

/// Returns the layers in their order: the rooms of `src/lib.rs`, and the modules of each in the order of its `mod.rs`.
fn layers(source: &Path) -> Vec<String> {
    let modules = |file: PathBuf| -> Vec<String> {
        let list = fs::read_to_string(file).unwrap();
        let modules = list
            .lines()
            .filter_map(|line| line.strip_prefix("pub mod "));
        modules
            .map(|name| name.trim_end_matches(';').to_owned())
            .collect()
    };
    let rooms = modules(source.join("lib.rs"));
    let layers = rooms.iter().flat_map(|room| match room.as_str() {
        "node" => NODE.map(str::to_owned).to_vec(),
        whole if WHOLE.contains(&whole) => vec![room.clone()],
        _ => {
            let inside = modules(source.join(room).join("mod.rs"));
            inside
                .iter()
                .map(|module| format!("{room}::{module}"))
                .collect()
        }
    });
    layers.collect()
}

/// Returns the layer of a path of modules such as `node::command::host`.
fn layer_of(path: &str, order: &[String]) -> Option<usize> {
    let mut parts = path.split("::");
    let room = parts.next()?;
    let module = parts.next().map(|module| format!("{room}::{module}"));
    let place = |name: &str| order.iter().position(|layer| layer == name);
    module
        .and_then(|module| place(&module))
        .or_else(|| place(room))
}

pub fn source_files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            source_files(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

/// Returns the paths that follow `crate::` in code, to two names: one, or those of a list in braces. Comments and unit tests are
/// left out: a test may use what a program of a higher layer prints.
fn used_modules(text: &str) -> BTreeSet<String> {
    let code = text.split("\nmod tests {").next().unwrap();
    let code: String = code
        .lines()
        .map(|line| line.split("//").next().unwrap().to_owned() + "\n")
        .collect();
    let mut used = BTreeSet::new();
    for part in code.split("crate::").skip(1) {
        for path in paths_of(part) {
            let names: Vec<&str> = path.split("::").take(2).collect();
            used.insert(names.join("::"));
        }
    }
    used
}

/// Returns the paths that a piece of code begins with: `a::b::C` has one, `{a, b::{c, d}}` has `a`, `b::c` and `b::d`.
fn paths_of(code: &str) -> Vec<String> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let code = code.trim_start();
    let Some(list) = code.strip_prefix('{') else {
        let end = code.find(|c| !is_name(c)).unwrap_or(code.len());
        let (name, rest) = code.split_at(end);
        return match rest.strip_prefix("::") {
            Some(rest) if rest.starts_with(|c| is_name(c) || c == '{') => {
                let inner = paths_of(rest);
                inner.iter().map(|path| format!("{name}::{path}")).collect()
            }
            _ => vec![name.to_owned()],
        };
    };
    let (mut depth, mut start, mut pieces) = (1, 0, Vec::new());
    for (place, c) in list.char_indices() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if depth == 0 || (depth == 1 && c == ',') {
            pieces.push(list[start..place].trim());
            start = place + 1;
        }
        if depth == 0 {
            break;
        }
    }
    let pieces = pieces.into_iter().filter(|piece| !piece.is_empty());
    pieces.flat_map(paths_of).collect()
}

#[test]
fn a_module_uses_only_modules_above_it() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let order = layers(&source);
    let mut files = Vec::new();
    source_files(&source, &mut files);
    // Unit tests are left out here too.
    files.retain(|file| !file.ends_with("tests.rs"));
    assert!(order.len() > 20 && files.len() > 200, "{}", files.len());
    let (mut arrows, mut upwards) = (0, Vec::new());
    for file in &files {
        let relative = file.strip_prefix(&source).unwrap().display().to_string();
        let own = relative
            .trim_end_matches(".rs")
            .trim_end_matches("/mod")
            .replace('/', "::");
        let Some(own_place) = layer_of(&own, &order) else {
            let is_room = WHOLE.contains(&own.as_str()) || !own.contains("::");
            assert!(is_room, "{relative} is in no layer");
            continue;
        };
        for used in used_modules(&fs::read_to_string(file).unwrap()) {
            let Some(used_place) = layer_of(&used, &order) else {
                continue;
            };
            arrows += 1;
            if used_place > own_place {
                upwards.push(format!("{relative} uses {used}"));
            }
        }
    }
    assert!(arrows > 500, "only {arrows} uses were found");
    assert_eq!(upwards, Vec::<String>::new(), "these arrows point upwards");
}

/// Returns the modules that a module uses, by the paths of their files: of `crate::`, `super::` and `self::` in its code.
fn used_files(own: &str, text: &str, files: &BTreeSet<String>) -> BTreeSet<String> {
    let code = text.split("\nmod tests {").next().unwrap();
    let code: String = code
        .lines()
        .map(|line| line.split("//").next().unwrap().to_owned() + "\n")
        .collect();
    let mut used = BTreeSet::new();
    for (at, _) in code.match_indices("::") {
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        let before = &code[..at];
        let start = before.rfind(|c| !is_name(c)).map_or(0, |end| end + 1);
        let base: Vec<&str> = match &before[start..] {
            _ if before[..start].ends_with("::") => continue,
            "crate" => Vec::new(),
            "self" | "super" => own.split("::").collect(),
            _ => continue,
        };
        let is_super = &before[start..] == "super";
        for path in paths_of(&code[at + 2..]) {
            let mut base = base.clone();
            let mut names: Vec<&str> = path.split("::").collect();
            if is_super {
                base.pop();
            }
            while names.first() == Some(&"super") {
                names.remove(0);
                base.pop();
            }
            base.extend(names);
            while !base.is_empty() && !files.contains(&base.join("::")) {
                base.pop();
            }
            used.insert(base.join("::"));
        }
    }
    used.remove(own);
    used.remove("");
    used
}

/// Returns true for a child of a module: that the module names it is no use, but how modules are declared.
fn is_child(parent: &str, module: &str) -> bool {
    module
        .strip_prefix(parent)
        .and_then(|rest| rest.strip_prefix("::"))
        .is_some_and(|rest| !rest.contains("::"))
}

/// Returns what can be reached from a module.
fn reached<'g>(from: &str, uses: &'g BTreeMap<String, BTreeSet<String>>) -> BTreeSet<&'g str> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(next) = open.pop() {
        for used in uses.get(next).into_iter().flatten() {
            if seen.insert(used.as_str()) {
                open.push(used);
            }
        }
    }
    seen
}

#[test]
fn only_a_parent_and_its_child_use_each_other() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    source_files(&source, &mut paths);
    let texts: BTreeMap<String, String> = paths
        .iter()
        .map(|path| {
            let relative = path.strip_prefix(&source).unwrap().display().to_string();
            let module = relative.trim_end_matches(".rs").trim_end_matches("/mod");
            (module.replace('/', "::"), fs::read_to_string(path).unwrap())
        })
        .collect();
    let files: BTreeSet<String> = texts.keys().cloned().collect();
    let uses: BTreeMap<String, BTreeSet<String>> = texts
        .iter()
        .map(|(own, text)| {
            let mut used = used_files(own, text, &files);
            used.retain(|module| !is_child(own, module));
            (own.clone(), used)
        })
        .collect();
    let count: usize = uses.values().map(BTreeSet::len).sum();
    assert!(count > 3000, "only {count} uses were found");
    let in_cycles: Vec<&String> = files
        .iter()
        .filter(|own| reached(own, &uses).contains(own.as_str()))
        .collect();
    assert_eq!(in_cycles, Vec::<&String>::new(), "these are in a cycle");
}

#[test]
fn uses_are_found_in_every_form() {
    let text = "//! crate::cli\nuse crate::host::net::{self, Url};\nuse crate::{node, change::plan::{Plan, Step}, host::root};\n\
                fn f() { crate::config::document::parse(); } // crate::report\n#[cfg(test)]\nmod tests { use crate::cli; }";
    let used = used_modules(text);
    assert_eq!(
        used.iter().map(String::as_str).collect::<Vec<_>>(),
        [
            "change::plan",
            "config::document",
            "host::net",
            "host::root",
            "node"
        ]
    );
}
