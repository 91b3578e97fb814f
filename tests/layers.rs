//! The layers of the source tree: a module uses only modules that stand above it in `src/lib.rs`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Returns the modules of `src/lib.rs`, in its order.
fn layers(source: &Path) -> Vec<String> {
    let list = fs::read_to_string(source.join("lib.rs")).unwrap();
    let modules = list
        .lines()
        .filter_map(|line| line.strip_prefix("pub mod "));
    modules
        .map(|name| name.trim_end_matches(';').to_owned())
        .collect()
}

fn source_files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            source_files(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

/// Returns the names that follow `crate::` in code: one, or those of a list in braces. Comments and unit tests are
/// left out: a test may use what a program of a higher layer prints.
fn used_modules(text: &str) -> BTreeSet<String> {
    let code = text.split("\nmod tests {").next().unwrap();
    let code = code
        .lines()
        .map(|line| line.split("//").next().unwrap())
        .collect::<Vec<_>>()
        .join("\n");
    let mut used = BTreeSet::new();
    for part in code.split("crate::").skip(1) {
        let list = match part.strip_prefix('{') {
            Some(list) => list.split_once("};").unwrap().0,
            None => part,
        };
        let mut depth = 0;
        let several = part.starts_with('{');
        let names = list.split(|c| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            c == ',' && depth == 0
        });
        for name in names.take(if several { usize::MAX } else { 1 }) {
            let name = name.trim();
            let end = name
                .find(|c: char| !c.is_alphanumeric() && c != '_')
                .unwrap_or(name.len());
            used.insert(name[..end].to_owned());
        }
    }
    used
}

#[test]
fn a_module_uses_only_modules_above_it() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let order = layers(&source);
    let place = |name: &str| order.iter().position(|layer| layer == name);
    let mut files = Vec::new();
    source_files(&source, &mut files);
    assert!(order.len() > 20 && files.len() > 200, "{}", files.len());
    let (mut arrows, mut upwards) = (0, Vec::new());
    for file in &files {
        let relative = file.strip_prefix(&source).unwrap().display().to_string();
        let own = relative.split(['/', '.']).next().unwrap();
        let Some(own_place) = place(own) else {
            assert!(["lib", "main"].contains(&own), "{relative} is in no layer");
            continue;
        };
        for used in used_modules(&fs::read_to_string(file).unwrap()) {
            let Some(used_place) = place(&used) else {
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

#[test]
fn uses_are_found_in_every_form() {
    let text = "//! crate::cli\nuse crate::net::{self, Url};\nuse crate::{node, plan::{Plan, Step}, root};\n\
                fn f() { crate::document::parse(); } // crate::report\n#[cfg(test)]\nmod tests { use crate::doctor; }";
    let used = used_modules(text);
    assert_eq!(
        used.iter().map(String::as_str).collect::<Vec<_>>(),
        ["document", "net", "node", "plan", "root"]
    );
}
