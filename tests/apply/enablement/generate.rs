//! Random trees and operations, mostly sensible ones.

use super::harness::{Operation, Verb};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use std::collections::BTreeMap;

const UNITS: [&str; 12] = [
    "a.service",
    "b.service",
    "c.service",
    "t@.service",
    "t@x.service",
    "t@y.service",
    "u@.service",
    "u@x.service",
    "s.socket",
    "w.timer",
    "m.mount",
    "e.target",
];
const WANTING: [&str; 7] = [
    "e.target",
    "multi.target",
    "g@.target",
    "g@x.target",
    "%p.target",
    "g@%i.target",
    "b.service",
];
/// The vendor's directory counts for more.
const DIRS: [&str; 9] = [
    "etc:", "etc:", "run:", "loc:", "usr:", "usr:", "usr:", "usr:", "opt/",
];

pub type Tree = BTreeMap<String, String>;

/// A tree and what is done to it, one after another.
pub fn scenario() -> impl Strategy<Value = (Tree, Vec<Operation>)> {
    tree().prop_flat_map(|tree| {
        let there: Vec<String> = tree.keys().filter_map(|path| unit_of(path)).collect();
        (Just(tree), prop::collection::vec(operation(there), 1..7))
    })
}

/// The unit that a node of the tree is about; for a template an instance half of the time.
fn unit_of(path: &str) -> Option<String> {
    let name = path.rsplit(['/', ':']).next()?.to_owned();
    let instance = path.len().is_multiple_of(2);
    UNITS.contains(&name.as_str()).then(|| {
        if instance {
            name.replace("@.", "@x.")
        } else {
            name
        }
    })
}

fn operation(there: Vec<String>) -> BoxedStrategy<Operation> {
    let verb = prop_oneof![
        5 => Just(Verb::Enable), 3 => Just(Verb::Disable), 2 => Just(Verb::Preset), 2 => Just(Verb::IsEnabled),
    ];
    let any: Vec<String> = UNITS.iter().map(|unit| (*unit).to_owned()).collect();
    let there = if there.is_empty() { any.clone() } else { there };
    let units = prop_oneof![
        8 => select(there.clone()).prop_map(|unit| vec![unit]),
        1 => select(any).prop_map(|unit| vec![unit]),
        2 => prop::collection::vec(select(there), 2..4),
    ];
    (verb, units)
        .prop_map(|(verb, units)| {
            let count = if verb == Verb::IsEnabled {
                1
            } else {
                units.len()
            };
            Operation {
                verb,
                units: units.into_iter().take(count).collect(),
            }
        })
        .boxed()
}

fn tree() -> impl Strategy<Value = Tree> {
    let nodes = prop::collection::vec(
        prop_oneof![9 => unit_node(), 3 => dependency(), 1 => dropin()],
        3..16,
    );
    (nodes, prop::option::weighted(0.7, presets()))
        .prop_map(|(nodes, presets)| nodes.into_iter().chain(presets).collect())
}

fn unit_node() -> BoxedStrategy<(String, String)> {
    (select(&DIRS[..]), select(&UNITS[..]))
        .prop_flat_map(|(dir, unit)| {
            let node = prop_oneof![
                16 => install_section(), 1 => Just(String::new()), 2 => target_for(unit), 1 => link_target(),
            ];
            (Just(format!("{dir}{unit}")), node)
        })
        .boxed()
}

/// A link in a directory of dependencies.
fn dependency() -> BoxedStrategy<(String, String)> {
    let dirs = [
        "etc:e.target.wants",
        "etc:multi.target.requires",
        "usr:e.target.wants",
        "run:e.target.wants",
        "etc:g@.target.wants",
    ];
    (select(dirs.to_vec()), select(&UNITS[..]))
        .prop_flat_map(|(dir, unit)| {
            let node = prop_oneof![4 => target_for(unit), 1 => link_target()];
            (Just(format!("{dir}/{unit}")), node)
        })
        .boxed()
}

fn dropin() -> BoxedStrategy<(String, String)> {
    let names = ["10.conf", "20.conf", "x.txt"];
    (
        select(&DIRS[..5]),
        select(&UNITS[..]),
        select(names.to_vec()),
        prop_oneof![9 => install_section(), 1 => through_a_file()],
    )
        .prop_map(|(dir, unit, name, text)| (format!("{dir}{unit}.d/{name}"), text))
        .boxed()
}

/// A link that leads to the same unit somewhere else.
fn target_for(unit: &'static str) -> BoxedStrategy<String> {
    let template = unit
        .split_once('@')
        .map_or(unit.to_owned(), |(prefix, _)| format!("{prefix}@.service"));
    let dirs = [
        "/usr/lib/systemd/system/",
        "/lib/systemd/system/",
        "/opt/",
        "../",
        "/etc/systemd/system/",
    ];
    (
        select(dirs.to_vec()),
        select(vec![unit.to_owned(), template]),
    )
        .prop_map(|(dir, unit)| format!("-> {dir}{unit}"))
        .boxed()
}

fn link_target() -> BoxedStrategy<String> {
    let dirs = [
        "/usr/lib/systemd/system/",
        "",
        "/etc/systemd/system/",
        "/opt/",
        "/run/systemd/system/",
    ];
    prop_oneof![
        4 => (select(dirs.to_vec()), select(&UNITS[..])).prop_map(|(dir, unit)| format!("-> {dir}{unit}")),
        1 => Just("-> /dev/null".to_owned()),
        1 => through_a_file(),
    ]
    .boxed()
}

/// A link that goes on behind a unit's path, which is a file or a link to one where it is there.
fn through_a_file() -> BoxedStrategy<String> {
    let dirs = ["/usr/lib/systemd/system/", "/opt/"];
    let ends = ["/x.service", "/..", "/../a.service"];
    (
        select(dirs.to_vec()),
        select(&UNITS[..]),
        select(ends.to_vec()),
    )
        .prop_map(|(dir, unit, end)| format!("-> {dir}{unit}{end}"))
        .boxed()
}

fn install_section() -> BoxedStrategy<String> {
    let list = |key: &'static str, values: Vec<&'static str>, max| {
        subsequence(values, 1..max).prop_map(move |values| format!("{key}={}\n", values.join(" ")))
    };
    let line = prop_oneof![
        6 => list("WantedBy", WANTING.to_vec(), 3),
        2 => list("RequiredBy", WANTING.to_vec(), 3),
        2 => list("Alias", [&UNITS[..], &["z.service", "z@.service", "z@x.service", "e.target.wants/%n"]].concat(), 3),
        2 => list("Also", [&UNITS[..], &["%p.socket", "missing.service"]].concat(), 3),
        1 => select(&["DefaultInstance=x\n", "DefaultInstance=y\n", "DefaultInstance=\n"][..]).prop_map(str::to_owned),
        1 => select(&["WantedBy=\"e.target\" 'multi.target'\n", "WantedBy=e.target \"open\n", "WantedBy=no-unit\n",
            "Also=\n", "UpheldBy=e.target\n", "[Service]\n", "# x\n", "junk\n", "WantedBy=e.target \\\n"][..]).prop_map(str::to_owned),
    ];
    prop_oneof![
        9 => prop::collection::vec(line, 1..4).prop_map(|lines| format!("[Install]\n{}", lines.concat())),
        1 => Just("[Unit]\n".to_owned()),
    ]
    .boxed()
}

fn presets() -> BoxedStrategy<(String, String)> {
    let patterns = [
        "*",
        "a.service",
        "?.service",
        "t@.service",
        "t@.service x y",
        "t@x.*",
        "[!a]*",
        "[a-c].service",
        "u@*",
    ];
    let rule = (
        select(&["enable", "disable"][..]),
        select(patterns.to_vec()),
    )
        .prop_map(|(verb, what)| format!("{verb} {what}\n"));
    let rules = prop::collection::vec(rule, 0..4).prop_map(|rules| rules.concat());
    let names = [
        "preset:50.preset",
        "preset:90.preset",
        "usr/lib/systemd/system-preset/60.preset",
        "usr/lib/systemd/system-preset/50.preset",
    ];
    (select(names.to_vec()).prop_map(str::to_owned), rules).boxed()
}
