//! Programs that watch directories (the kubelet its static pods, CRI-O its conf directory) see one event for each
//! changed file, none for any other, and never a name of ours.

use std::path::PathBuf;

use crate::support::notify::{Watcher, anything, changes};
use crate::support::trace::{can_trace, traced};
use crate::support::{Config, TestRoot, file, machine_config, say};
use serde_json::{Value, json};

const PODS: &str = "etc/kubernetes/manifests";
const CONF: &str = "etc/crio/crio.conf.d";

fn config(name: &str, files: Value) -> Value {
    machine_config(name, json!({"storage": {"files": files}}))
}

/// In both directories: a file that stays, one that changes and one that goes.
fn old() -> Value {
    let of = |dir: &str| {
        [
            file(&format!("/{dir}/same"), 0o644, "the same\n"),
            file(&format!("/{dir}/changes"), 0o644, "old\n"),
            file(&format!("/{dir}/mode"), 0o644, "the same\n"),
            file(&format!("/{dir}/goes"), 0o644, "old\n"),
        ]
    };
    config("rendered-worker-old", json!([of(PODS), of(CONF)].concat()))
}

/// ... and one that is new.
fn new() -> Value {
    let of = |dir: &str| {
        [
            file(&format!("/{dir}/same"), 0o644, "the same\n"),
            file(&format!("/{dir}/changes"), 0o644, "new and longer\n"),
            file(&format!("/{dir}/mode"), 0o600, "the same\n"),
            file(&format!("/{dir}/comes"), 0o644, "new\n"),
        ]
    };
    config("rendered-worker-new", json!([of(PODS), of(CONF)].concat()))
}

/// A root in the old config whose two directories are watched.
struct Scene {
    root: TestRoot,
    config: Config,
}

impl Scene {
    fn new() -> Self {
        let root = TestRoot::new();
        root.apply(&old());
        let config = root.config(&new());
        Self { root, config }
    }

    fn args(&self) -> [&str; 3] {
        ["apply", "--yes", self.config.path()]
    }

    fn directories(&self) -> [PathBuf; 2] {
        [PODS, CONF].map(|dir| self.root.path(dir))
    }

    fn watch(&self) -> Watcher {
        let [pods, conf] = self.directories();
        Watcher::new(changes(), &[&pods, &conf])
    }

    /// Each of these, in both directories and in any order, and nothing else.
    fn saw(&self, watcher: &Watcher, wanted: &[(&str, &str)]) {
        let mut wanted: Vec<String> = self
            .directories()
            .iter()
            .flat_map(|dir| {
                wanted
                    .iter()
                    .map(|(kind, name)| format!("{kind} {}", dir.join(name).display()))
            })
            .collect();
        let mut seen = watcher.seen();
        wanted.sort();
        seen.sort();
        assert_eq!(seen, wanted);
    }
}

const FORWARD: [(&str, &str); 4] = [
    ("IN_MOVED_TO", "changes"),
    ("IN_MOVED_TO", "mode"),
    ("IN_MOVED_TO", "comes"),
    ("IN_MOVED_FROM", "goes"),
];
const BACK: [(&str, &str); 4] = [
    ("IN_MOVED_TO", "changes"),
    ("IN_MOVED_TO", "mode"),
    ("IN_MOVED_FROM", "comes"),
    ("IN_MOVED_TO", "goes"),
];

#[test]
fn a_watched_directory_gets_one_event_for_each_file_that_changes() {
    let scene = Scene::new();
    let watcher = scene.watch();
    scene.root.run(&scene.args()).ok();
    scene.saw(&watcher, &FORWARD);
    scene.root.run(&["rollback", "--yes"]).ok();
    scene.saw(&watcher, &BACK);
}

#[test]
fn looking_and_a_second_run_give_no_event_in_the_whole_root() {
    let scene = Scene::new();
    scene.root.run(&scene.args()).ok();
    let watcher = Watcher::of_tree(changes(), scene.root.dir());
    for args in [
        &scene.args()[..],
        &["apply", "--yes"],
        &["plan"],
        &["verify"],
        &["status"],
        &["recover"],
        &["show"],
    ] {
        scene.root.run(args).ok();
        assert_eq!(watcher.seen(), [""; 0], "{args:?}");
    }
}

#[test]
fn what_is_refused_or_fails_while_staging_gives_no_event() {
    let scene = Scene::new();
    let watcher = scene.watch();
    scene.root.write("etc/x", "in the way\n");
    let blocked = scene.root.config(&config(
        "rendered-worker-b",
        json!([file("/etc/x/y", 0o644, "")]),
    ));
    scene.root.run(&["apply", "--yes", blocked.path()]).exits(1);
    assert_eq!(watcher.seen(), [""; 0]);
    if !can_trace() {
        return;
    }
    let fault = ["syncfs:error=EIO:when=1".to_owned()];
    let run = traced(&scene.root, "syncfs", &fault, &scene.args());
    assert_eq!(run.code, Some(1), "{}", run.said);
    assert_eq!(watcher.seen(), [""; 0]);
}

#[test]
fn a_run_that_is_killed_and_recovered_gives_each_event_once() {
    if !can_trace() {
        return;
    }
    let scene = Scene::new();
    let clean = traced(&scene.root, "renameat,renameat2", &[], &scene.args());
    assert_eq!(clean.code, Some(0), "{}", clean.said);
    let journal = clean.nth("renameat", |line| line.contains(".journal.json.new"));
    let mark = clean.nth("renameat", |line| line.contains(".committed.new"));
    let mut tried = 0;
    for nth in journal + 1..=mark {
        let fault = format!("renameat:signal=KILL:when={nth}");
        let killed = |scene: &Scene| {
            let run = traced(
                &scene.root,
                "renameat",
                std::slice::from_ref(&fault),
                &scene.args(),
            );
            assert_eq!(run.signal, Some(9), "{}", run.said);
        };
        // Forward: over both runs, what one would have given.
        let scene = Scene::new();
        let watcher = scene.watch();
        killed(&scene);
        scene.root.run(&["recover"]).ok();
        scene.saw(&watcher, &FORWARD);
        // Back: what has happened happens once more, the other way.
        let scene = Scene::new();
        let watcher = scene.watch();
        killed(&scene);
        let there = watcher.seen();
        scene.root.run(&["recover", "--back"]).ok();
        let mut back = watcher.seen();
        let mut wanted: Vec<String> = there.iter().map(|event| inverse(event)).collect();
        wanted.sort();
        back.sort();
        assert_eq!(back, wanted);
        tried += 2;
    }
    say(&format!(
        "killed between two names and recovered: {tried} times, one event for each change"
    ));
}

/// The event that taking a change back gives.
fn inverse(event: &str) -> String {
    let (kind, path) = event.split_once(' ').unwrap();
    let kind = match (kind, path.rsplit('/').next().unwrap()) {
        ("IN_MOVED_TO", "comes") => "IN_MOVED_FROM",
        ("IN_MOVED_FROM", _) => "IN_MOVED_TO",
        (kind, _) => kind,
    };
    format!("{kind} {path}")
}

#[test]
fn an_error_half_way_is_undone_with_one_event_for_each_change_that_was_made() {
    if !can_trace() {
        return;
    }
    let scene = Scene::new();
    let watcher = scene.watch();
    let clean = traced(&scene.root, "renameat", &[], &scene.args());
    watcher.seen();
    let mark = clean.nth("renameat", |line| line.contains(".committed.new"));
    let scene = Scene::new();
    let watcher = scene.watch();
    let fault = [format!("renameat:error=EIO:when={mark}")];
    let run = traced(&scene.root, "renameat", &fault, &scene.args());
    assert_eq!(run.code, Some(4), "{}", run.said);
    scene.saw(&watcher, &[FORWARD, BACK].concat());
}

/// Keeping a second name of the old file changes its count of links, which a watcher of the *file* is told, one of
/// the directory is not. A file that stays is told nothing.
#[test]
fn who_watches_a_file_itself_hears_of_its_second_name_only_where_it_is_replaced() {
    let scene = Scene::new();
    let paths = ["same", "changes"].map(|name| scene.root.path(&format!("{CONF}/{name}")));
    let same = Watcher::new(changes(), &[&paths[0]]);
    let replaced = Watcher::new(changes(), &[&paths[1]]);
    scene.root.run(&scene.args()).ok();
    assert_eq!(same.seen(), [""; 0]);
    let seen = replaced.seen();
    assert!(
        !seen.is_empty() && seen.iter().all(|event| event.starts_with("IN_ATTRIB ")),
        "{seen:?}"
    );
}

#[test]
fn nothing_is_opened_for_writing_in_a_watched_directory() {
    let scene = Scene::new();
    let [pods, conf] = scene.directories();
    let watcher = Watcher::new(anything(), &[&pods, &conf]);
    scene.root.run(&scene.args()).ok();
    let names = [
        "same",
        "changes",
        "mode",
        "goes",
        "comes",
        "manifests",
        "crio.conf.d",
    ];
    let allowed = [
        "IN_OPEN",
        "IN_ACCESS",
        "IN_CLOSE_NOWRITE",
        "IN_MOVED_TO",
        "IN_MOVED_FROM",
    ];
    for event in watcher.seen() {
        let (kind, path) = event.split_once(' ').unwrap();
        assert!(allowed.contains(&kind), "{event}");
        assert!(names.contains(&path.rsplit('/').next().unwrap()), "{event}");
    }
}
