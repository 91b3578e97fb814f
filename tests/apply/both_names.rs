//! Objects that are named both by their path and through a link, with links of every shape: what is planned happens, and nothing
//! is left to do.

use std::fs;

use serde_json::{Value, json};

use crate::support::scenes::everything_is_asked_for;
use crate::support::{Run, TestRoot, file, machine_config, say};

/// Links on the disk, by path; the directories above them are there.
const LAYOUTS: [&[(&str, &str)]; 18] = [
    &[],
    &[("foo/bar", "/")],
    &[("foo/bar", "..")],
    &[("foo/bar", "../..")],
    &[("foo/bar", "../../..")],
    &[("foo/bar", ".")],
    &[("foo/bar", "/foo")],
    &[("foo/bar", "/foo/real")],
    &[("foo/bar", "real")],
    &[("foo/bar", "../foo/real")],
    &[("foo/bar", "bar")],
    &[("foo/bar", "/missing")],
    &[("foo/bar", "/new")],
    &[("foo/bar", "other"), ("foo/other", "real")],
    &[("foo/bar", "other"), ("foo/other", "/")],
    &[("foo/bar", "other"), ("foo/other", "bar")],
    &[("top", "/"), ("foo/bar", "/top/foo")],
    &[("top", "foo"), ("foo/bar", "../top/real")],
];

/// Paths of the config. Those through a link are other names of the rest.
const PATHS: [&str; 14] = [
    "/new/a",
    "/new/b",
    "/new",
    "/foo/new/a",
    "/foo/new/b",
    "/foo/real/new/b",
    "/foo/real/b",
    "/foo/bar/new/a",
    "/foo/bar/new/b",
    "/foo/bar/b",
    "/foo/bar/foo/bar/new/b",
    "/foo/bar/real/new/a",
    "/top/new/b",
    "/missing/new/b",
];

fn node(links: &[(&str, &str)]) -> TestRoot {
    let root = TestRoot::new();
    fs::create_dir_all(root.path("foo/real")).unwrap();
    for (path, target) in links {
        root.link(path, target);
    }
    root
}

fn config(paths: [&str; 2], texts: [&str; 2]) -> Value {
    let files = [
        file(paths[0], 0o644, texts[0]),
        file(paths[1], 0o644, texts[1]),
    ];
    machine_config("rendered-worker-1", json!({"storage": {"files": files}}))
}

/// The problem with one config, if there is one; and if it was applied.
fn try_one(links: &[(&str, &str)], config: &Value) -> Result<bool, String> {
    let root = node(links);
    let config = root.config(config);
    let path = config.path();
    let before = root.snapshot();
    let run = |args: &[&str]| root.run(args);
    let said = |run: &Run| format!("{}: {}{}", run.code(), run.out(), run.err());
    let plan = run(&["plan", path]);
    let apply = run(&["apply", "--yes", path]);
    if plan.code() == 1 {
        return if apply.code() == 1 && root.snapshot() == before {
            Ok(false)
        } else {
            Err(format!(
                "refused by plan, and apply ended with {}",
                said(&apply)
            ))
        };
    }
    if plan.code() != 0 {
        return Err(format!("plan ended with {}", said(&plan)));
    }
    if apply.code() != 0 {
        return Err(format!("apply ended with {}", said(&apply)));
    }
    let verify = run(&["verify", path]);
    if verify.code() != 0 {
        return Err(format!("verify ended with {}", said(&verify)));
    }
    let after = root.snapshot();
    let again = run(&["--output", "json", "plan", path]);
    if again.code() != 0 || again.json()["steps"] != json!([]) {
        return Err(format!("a second plan has steps: {}", said(&again)));
    }
    let again = run(&["apply", "--yes", path]);
    if again.code() != 0 || root.snapshot() != after {
        return Err(format!("a second apply ended with {}", said(&again)));
    }
    Ok(true)
}

#[test]
fn an_object_that_is_named_through_a_link_too_is_applied_or_refused_by_the_plan() {
    let (mut tried, mut applied, mut problems) = (0usize, 0usize, Vec::new());
    for (at, links) in LAYOUTS.iter().enumerate() {
        for (first, one) in PATHS.iter().enumerate() {
            for (second, other) in PATHS.iter().enumerate() {
                // The order in the config counts too. In a sample, the pairs with a path through a link are tried in turns.
                let through = one.starts_with("/foo/bar") || one.starts_with("/top");
                let is_due = through && (at + first + second) % 9 == 0;
                if first == second || !everything_is_asked_for() && !is_due {
                    continue;
                }
                for texts in [["x", "x"], ["x", "y"]] {
                    tried += 1;
                    match try_one(links, &config([one, other], texts)) {
                        Ok(done) => applied += usize::from(done),
                        Err(why) => {
                            problems.push(format!("{links:?} {one} {other} {texts:?}: {why}"))
                        }
                    }
                }
            }
        }
    }
    say(&format!(
        "{tried} configs were tried, {applied} of them applied"
    ));
    let first: Vec<&String> = problems.iter().take(20).collect();
    assert!(
        problems.is_empty(),
        "{} problems: {first:#?}",
        problems.len()
    );
    assert!(applied > tried / 4 && applied < tried);
}
