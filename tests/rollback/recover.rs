//! A run that is killed or meets an error at any system call leaves every path as it was or as
//! it should be, and the next run finishes or undoes it; what cannot be told apart is left alone.

use std::fs;
use std::process::Command;

use crate::support::faults::{
    CHANGING, JOURNAL, Point, Scene, can_trace, count, demand, duplicate, every, kill, left_over,
    traced, try_each,
};
use crate::support::{self, STATE, Snapshot, TestRoot, file, machine_config, unsealed};
use serde_json::{Value, json};

impl Scene {
    /// From one config to another. `None`, said aloud, where nothing can be traced.
    pub(super) fn update() -> Option<Self> {
        let scene = Self::of(Some(&old_config()), new_config())?;
        every_kind_is_there(&scene.before, &scene.after);
        Some(scene)
    }

    /// From a root that no run has touched yet.
    fn first() -> Option<Self> {
        Self::of(None, old_config())
    }

    /// Where directories give way to files and links, and files to directories.
    fn exchange() -> Option<Self> {
        let over = |path: &str| {
            let mut file = file(path, 0o640, "instead of what was there\n");
            file["overwrite"] = json!(true);
            file
        };
        let new = json!({
            "ignition": {"version": "3.4.0"},
            "storage": {
                "files": [over("/srv/tree"), over("/srv/plain/below/deep")],
                "directories": [{"path": "/srv/plain", "overwrite": true, "mode": 0o750}],
                "links": [{"path": "/srv/empty", "target": "tree", "overwrite": true}],
            },
        });
        let scene = Self::of(None, new)?;
        for (path, old, new) in [
            ("srv/tree", 'd', 'f'),
            ("srv/plain", 'f', 'd'),
            ("srv/empty", 'd', 'l'),
        ] {
            assert_eq!(
                (scene.before[path].kind, scene.after[path].kind),
                (old, new),
                "{path}"
            );
        }
        Some(scene)
    }

    /// Where the last run is taken back.
    fn rollback() -> Option<Self> {
        Self::between_two(&[&old_config(), &new_config()], None)
    }

    fn of(old: Option<&Value>, new: Value) -> Option<Self> {
        let before: Vec<&Value> = old.into_iter().collect();
        Self::between_two(&before, Some(new))
    }

    fn between_two(before: &[&Value], new: Option<Value>) -> Option<Self> {
        if !can_trace() {
            return None;
        }
        let root = furnished();
        before.iter().for_each(|config| drop(root.apply(config)));
        root.chmod("etc/kubernetes/kubeconfig", 0o644);
        Some(Self::leading(&root, new, &CHANGING, &[]))
    }

    /// How many names changed places.
    fn exchanges(&self) -> usize {
        let exchanges = self.clean.iter();
        exchanges
            .filter(|call| call.line.contains("RENAME_EXCHANGE"))
            .count()
    }

    /// A root whose run was killed in the middle of its renames.
    pub(super) fn half_way(&self) -> TestRoot {
        let (first, mark) = self.renames();
        let root = self.killed_at("renameat", usize::midpoint(first, mark));
        assert!(root.exists(JOURNAL));
        assert!(!self.unlike_old(&root).is_empty());
        assert!(!self.unlike_new(&root).is_empty());
        root
    }
}

/// A root with what the OS ships: twins below `usr/etc`, presets, a lock of the account files.
fn furnished() -> TestRoot {
    let root = TestRoot::new();
    for path in ["os.conf", "taken.conf"] {
        root.write(&format!("usr/etc/{path}"), "of the OS\n");
        root.write(&format!("etc/{path}"), "of the OS\n");
    }
    root.write(
        "usr/lib/systemd/system-preset/99-default.preset",
        "disable *\n",
    );
    root.write("etc/.pwd.lock", "");
    root.chmod("etc/.pwd.lock", 0o600);
    root.write("srv/tree/a/b", "in a tree that may have to go\n");
    root.link("srv/tree/link", "/etc/os.conf");
    root.write("srv/plain", "a file where a directory may be wanted\n");
    fs::create_dir(root.path("srv/empty")).unwrap();
    root
}

fn unit(text: &str) -> String {
    format!("[Service]\nExecStart=/bin/{text}\n[Install]\nWantedBy=multi-user.target\n")
}

fn old_config() -> Value {
    machine_config(
        "rendered-worker-old",
        json!({
            "storage": {"files": [
                file("/etc/replaced.conf", 0o644, "old\n"),
                file("/etc/stale.conf", 0o644, "soon gone\n"),
                file("/etc/os.conf", 0o644, "of the config\n"),
            ]},
            "systemd": {"units": [
                {"name": "a.service", "enabled": true, "contents": unit("old"),
                 "dropins": [{"name": "10-old.conf", "contents": "[Unit]\n"}]},
                {"name": "masked.service", "enabled": true, "contents": unit("masked")},
                {"name": "unmasked.service", "mask": true},
                {"name": "gone.service", "enabled": true, "contents": unit("gone")},
            ]},
            "passwd": {"users": [
                {"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA one"], "passwordHash": "$6$old$old"},
            ]},
        }),
    )
}

fn new_config() -> Value {
    machine_config(
        "rendered-worker-new",
        json!({
            "storage": {"files": [
                file("/etc/replaced.conf", 0o600, "new and longer\n"),
                file("/etc/new.conf", 0o644, "new\n"),
                file("/etc/taken.conf", 0o644, "taken over from the OS\n"),
                file("/etc/new/deep/below.conf", 0o644, "in new directories\n"),
                file("/var/lib/app/data", 0o755, "below var\n"),
            ]},
            "systemd": {"units": [
                {"name": "a.service", "enabled": false, "contents": unit("new"),
                 "dropins": [{"name": "20-new.conf", "contents": "[Service]\nNice=1\n"}]},
                {"name": "b.service", "enabled": true, "contents": unit("b"),
                 "dropins": [{"name": "10-b.conf", "contents": "[Unit]\n"}]},
                {"name": "masked.service", "mask": true},
                {"name": "unmasked.service", "mask": false, "contents": unit("unmasked")},
            ]},
            "passwd": {"users": [
                {"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA one", "ssh-ed25519 BBBB two"],
                 "passwordHash": "$6$new$new"},
            ]},
        }),
    )
}

/// The scene is worth nothing unless every kind of step is in it.
fn every_kind_is_there(before: &Snapshot, after: &Snapshot) {
    let units = "etc/systemd/system";
    let text = |all: &Snapshot, path: &str| {
        let entry = all.get(path)?;
        Some((
            entry.kind,
            entry.mode,
            String::from_utf8(entry.content.clone()).unwrap(),
        ))
    };
    let link = |target: &str| Some(('l', 0o777, target.to_owned()));
    let plain = |text: &str| Some(('f', 0o644, text.to_owned()));
    let daemon = "etc/machine-config-daemon";
    assert_eq!(text(before, "etc/new.conf"), None);
    assert_eq!(text(after, "etc/new.conf"), plain("new\n"));
    assert_eq!(text(before, "etc/replaced.conf"), plain("old\n"));
    assert_eq!(
        text(after, "etc/replaced.conf"),
        Some(('f', 0o600, "new and longer\n".into()))
    );
    assert_eq!(text(before, "etc/stale.conf"), plain("soon gone\n"));
    assert_eq!(text(after, "etc/stale.conf"), None);
    assert_eq!(text(before, "etc/os.conf"), plain("of the config\n"));
    assert_eq!(text(after, "etc/os.conf"), plain("of the OS\n"));
    let orig = |name: &str| format!("{daemon}/orig/etc/{name}.mcdorig");
    assert_eq!(text(before, &orig("os.conf")), plain("of the OS\n"));
    assert_eq!(text(after, &orig("os.conf")), None);
    assert_eq!(text(before, &orig("taken.conf")), None);
    assert_eq!(text(after, &orig("taken.conf")), plain("of the OS\n"));
    assert_eq!(before.get("etc/new/deep").map(|e| e.kind), None);
    assert_eq!(after.get("etc/new/deep").map(|e| e.mode), Some(0o755));
    assert_eq!(after.get("var/lib/app").map(|e| e.mode), Some(0o755));
    let wanted = |unit: &str| format!("{units}/multi-user.target.wants/{unit}");
    assert!(before.contains_key(&wanted("a.service")));
    assert!(!after.contains_key(&wanted("a.service")));
    assert!(!before.contains_key(&wanted("b.service")));
    assert_eq!(after.get(&wanted("b.service")).map(|e| e.kind), Some('l'));
    assert!(!after.contains_key(&wanted("gone.service")));
    assert!(!after.contains_key(&format!("{units}/gone.service")));
    assert_eq!(
        text(after, &format!("{units}/masked.service")),
        link("/dev/null")
    );
    assert_eq!(
        text(before, &format!("{units}/unmasked.service")),
        link("/dev/null")
    );
    assert_eq!(
        after
            .get(&format!("{units}/unmasked.service"))
            .map(|e| e.kind),
        Some('f')
    );
    assert!(before.contains_key(&format!("{units}/a.service.d/10-old.conf")));
    assert!(!after.contains_key(&format!("{units}/a.service.d/10-old.conf")));
    assert!(after.contains_key(&format!("{units}/b.service.d/10-b.conf")));
    let keys = text(after, "home/core/.ssh/authorized_keys.d/ignition").unwrap();
    assert!(keys.2.ends_with("BBBB two\n"));
    assert!(
        text(before, "etc/shadow")
            .unwrap()
            .2
            .contains(":$6$old$old:")
    );
    assert!(
        text(after, "etc/shadow")
            .unwrap()
            .2
            .contains(":$6$new$new:")
    );
    let kubeconfig = "etc/kubernetes/kubeconfig";
    assert_eq!(before.get(kubeconfig).map(|e| e.mode), Some(0o644));
    assert_eq!(after.get(kubeconfig).map(|e| e.mode), Some(0o600));
    let record = text(after, &format!("{daemon}/currentconfig")).unwrap().2;
    assert!(record.contains("rendered-worker-new"));
}

fn is_killed_anywhere(scene: &Scene) {
    for call in CHANGING {
        // A run flushes whole file systems, and those twice.
        let is_flushed = call == "fsync";
        assert_eq!(scene.count(call) > 0, !is_flushed, "{call}");
    }
    assert_eq!(scene.count("syncfs"), 2);
    try_each("killed", &every(&scene.clean, &CHANGING), |&(call, nth)| {
        let root = scene.killed_at(call, nth);
        let mut problems = scene.torn(&root);
        problems.extend(demand(&root, &["recover"], 0));
        problems.extend(scene.between(&root));
        problems.extend(scene.applied_afterwards(&root));
        problems
    });
}

#[test]
fn a_run_killed_at_any_call_is_finished_or_undone() {
    if let Some(scene) = Scene::update() {
        is_killed_anywhere(&scene);
    }
}

#[test]
fn the_first_run_on_a_node_may_be_killed_at_any_call_too() {
    if let Some(scene) = Scene::first() {
        is_killed_anywhere(&scene);
    }
}

#[test]
fn a_run_that_replaces_directories_may_be_killed_at_any_call_too() {
    let Some(scene) = Scene::exchange() else {
        return;
    };
    assert_eq!(scene.exchanges(), 3);
    let calls = [
        "renameat",
        "renameat2",
        "unlinkat",
        "mkdirat",
        "fsync",
        "syncfs",
    ];
    let points = every(&scene.clean, &calls);
    try_each("exchange killed", &points, |&(call, nth)| {
        let root = scene.killed_at(call, nth);
        let mut problems = scene.torn(&root);
        problems.extend(demand(&root, &["recover"], 0));
        problems.extend(scene.between(&root));
        problems.extend(scene.applied_afterwards(&root));
        problems
    });
    let (first, mark) = scene.renames();
    let mut points = every(&scene.clean, &["renameat2", "mkdirat"]);
    points.extend((first..=mark).map(|nth| ("renameat", nth)));
    try_each("exchange killed, then back", &points, |&(call, nth)| {
        let root = scene.killed_at(call, nth);
        let mut problems = demand(&root, &["recover", "--back"], 0);
        problems.extend(scene.unlike_old(&root));
        problems.extend(left_over(&root));
        problems
    });
}

#[test]
fn taking_a_run_back_may_be_killed_at_any_call_too() {
    let Some(scene) = Scene::rollback() else {
        return;
    };
    let points = every(&scene.clean, &CHANGING);
    try_each("rollback killed", &points, |&(call, nth)| {
        let root = scene.killed_at(call, nth);
        let mut problems = scene.torn(&root);
        problems.extend(demand(&root, &["recover"], 0));
        problems.extend(scene.between(&root));
        problems.extend(left_over(&root));
        problems
    });
}

#[test]
fn the_next_apply_alone_picks_up_a_killed_run() {
    let Some(scene) = Scene::update() else { return };
    let points = every(&scene.clean, &["renameat", "renameat2", "syncfs"]);
    try_each("killed before apply", &points, |&(call, nth)| {
        let root = scene.killed_at(call, nth);
        scene.applied_afterwards(&root)
    });
}

#[test]
fn a_killed_run_is_taken_back_when_asked() {
    let Some(scene) = Scene::update() else { return };
    let (first, mark) = scene.renames();
    let mut points = every(&scene.clean, &["renameat2", "mkdirat"]);
    points.extend((first..=mark).map(|nth| ("renameat", nth)));
    try_each("killed, then back", &points, |&(call, nth)| {
        let root = scene.killed_at(call, nth);
        let mut problems = demand(&root, &["recover", "--back"], 0);
        problems.extend(scene.unlike_old(&root));
        problems.extend(left_over(&root));
        problems.extend(scene.applied_afterwards(&root));
        problems
    });
}

#[test]
fn recovering_twice_changes_nothing_more() {
    let Some(scene) = Scene::update() else { return };
    for way in [&["recover"][..], &["recover", "--back"]] {
        let root = scene.half_way();
        root.run(way).ok();
        let once = root.everything();
        assert_eq!(root.run(way).ok().out(), "Nothing to recover.\n");
        assert_eq!(root.everything(), once);
    }
}

/// Kills the recovery of a half-way run at every call that changes something, then recovers again.
fn recovery_is_killed(scene: &Scene, what: &str, first: &[&str], second: &[&str]) {
    let half_way = scene.half_way();
    let clean = duplicate(half_way.dir());
    let run = traced(&clean, &CHANGING.join(","), &[], first);
    assert_eq!(run.code, Some(0), "{}", run.err);
    let calls = [
        "renameat",
        "renameat2",
        "unlinkat",
        "mkdirat",
        "fsync",
        "syncfs",
    ];
    let points = every(&run.calls, &calls);
    assert!(
        count(&run.calls, "renameat") > 3,
        "recovery renames nothing"
    );
    try_each(what, &points, |&(call, nth)| {
        let root = duplicate(half_way.dir());
        kill(&root, call, nth, first);
        let mut problems = scene.torn(&root);
        problems.extend(demand(&root, second, 0));
        problems.extend(match (first.len(), second.len()) {
            (1, 1) => scene.unlike_new(&root),
            (2, 2) => scene.unlike_old(&root),
            _ => scene.between(&root),
        });
        problems.extend(scene.applied_afterwards(&root));
        problems
    });
}

#[test]
fn recovery_killed_anywhere_is_finished_by_the_next_one() {
    let Some(scene) = Scene::update() else { return };
    recovery_is_killed(&scene, "recovery killed", &["recover"], &["recover"]);
}

#[test]
fn taking_back_killed_anywhere_is_finished_by_the_next_one() {
    let Some(scene) = Scene::update() else { return };
    let back = ["recover", "--back"];
    recovery_is_killed(&scene, "taking back killed", &back, &back);
}

#[test]
fn recovery_may_change_its_mind_after_being_killed() {
    let Some(scene) = Scene::update() else { return };
    let back = ["recover", "--back"];
    recovery_is_killed(&scene, "forward killed, then back", &["recover"], &back);
    recovery_is_killed(&scene, "back killed, then forward", &back, &["recover"]);
}

#[test]
fn a_path_changed_by_hand_stops_recovery_before_it_touches_anything() {
    let Some(scene) = Scene::update() else { return };
    let (done, open) = (
        "home/core/.ssh/authorized_keys.d/ignition",
        "etc/machine-config-daemon/currentconfig",
    );
    for path in [done, open, "etc/replaced.conf"] {
        let root = scene.half_way();
        root.write(path, "by hand\n");
        refuses_recovery(&root, &scene, &[&format!("/{path}")], &[5]);
    }
}

/// `recover`, `recover --back` and `apply` all end so, name all of this, and change nothing.
fn refuses_recovery(root: &TestRoot, scene: &Scene, named: &[&str], codes: &[i32]) {
    let before = root.everything();
    let config = root.config(scene.new.as_ref().unwrap());
    let apply = ["apply", "--yes", config.path()];
    for args in [&["recover"][..], &["recover", "--back"], &apply] {
        let run = root.run(args);
        assert!(
            codes.contains(&run.code()),
            "{args:?}: {}{}",
            run.code(),
            run.err()
        );
        for word in named {
            assert!(
                run.err().contains(word),
                "{args:?}: no {word:?} in {}",
                run.err()
            );
        }
        assert_eq!(root.everything(), before, "{args:?}");
    }
}

/// A file of ours, and what can be wrong with it.
fn damaged(whole: &str) -> [(String, &'static str); 5] {
    let newer = whole.replacen("\"version\":1", "\"version\":99", 1);
    let other = whole.replacen("rendered-worker-new", "rendered-worker-odd", 1);
    assert!(newer != whole && other != whole);
    [
        (whole[..whole.len() / 2].to_owned(), "cannot be read"),
        (String::new(), "cannot be read"),
        ("{}".to_owned(), "cannot be read"),
        (newer, "version 99"),
        (other, "checksum"),
    ]
}

#[test]
fn a_damaged_journal_is_named_and_left_alone_until_the_run_is_given_up() {
    let Some(scene) = Scene::update() else { return };
    for (text, words) in damaged(&scene.half_way().read(JOURNAL)) {
        let root = scene.half_way();
        root.run(&["recover", "--give-up"]).exits(5);
        fs::write(root.path(JOURNAL), text).unwrap();
        let next = match words {
            "version 99" => "# with that version\nor: mco-rescue recover --give-up",
            _ => "Next: mco-rescue recover --give-up",
        };
        let named = [&format!("/{JOURNAL}"), words, next];
        refuses_recovery(&root, &scene, &named, &[1, 5]);
        let before = root.snapshot();
        let run = root.run(&["recover", "--give-up"]).exits(3);
        assert!(
            run.out().contains("Next: mco-rescue apply"),
            "{}",
            run.out()
        );
        let after = root.snapshot();
        assert!(
            after
                .iter()
                .all(|(path, entry)| before.get(path) == Some(entry))
        );
        assert_eq!(root.run(&["recover"]).ok().out(), "Nothing to recover.\n");
        let config = root.config(scene.new.as_ref().unwrap());
        root.run(&["apply", "--yes", config.path()]).ok();
        root.run(&["verify"]).ok();
        let unlike = scene.unlike_new(&root).into_iter();
        assert_eq!(
            unlike
                .filter(|what| !what.ends_with(" names"))
                .collect::<Vec<_>>(),
            [""; 0]
        );
    }
}

#[test]
fn a_damaged_intent_is_said_and_the_journal_suffices() {
    let Some(scene) = Scene::update() else { return };
    let path = format!("{STATE}/intent.json");
    for (text, words) in damaged(&scene.half_way().read(&path)) {
        for way in [&["recover"][..], &["recover", "--back"]] {
            let root = scene.half_way();
            fs::write(root.path(&path), &text).unwrap();
            if words == "version 99" {
                // Of another version of the program, which may have left more than the journal tells.
                let named = [&format!("/{path}"), words, "recover --give-up"];
                refuses_recovery(&root, &scene, &named, &[1, 5]);
                continue;
            }
            let run = root.run(way).ok();
            assert!(run.err().contains(&format!("/{path}")), "{}", run.err());
            assert!(run.err().contains(words), "{}", run.err());
            assert_eq!(scene.between(&root), [""; 0]);
            assert_eq!(left_over(&root), [""; 0]);
        }
    }
}

#[test]
fn the_mark_of_another_run_does_not_end_this_one() {
    let Some(scene) = Scene::update() else { return };
    for text in ["\"1-1\"", "{\"id\":\"1-1\"}", "{\"id\":", ""] {
        let root = scene.half_way();
        root.write(&format!("{STATE}/committed"), text);
        let run = root.run(&["recover"]).ok();
        assert!(run.err().contains("committed"), "{}", run.err());
        assert_eq!(scene.unlike_new(&root), [""; 0]);
        assert_eq!(left_over(&root), [""; 0]);
        assert_eq!(scene.applied_afterwards(&root), [""; 0]);
    }
}

#[test]
fn a_state_directory_without_marker_is_refused() {
    let Some(scene) = Scene::update() else { return };
    let root = scene.half_way();
    root.remove("var/lib/mco-rescue/marker");
    refuses_recovery(&root, &scene, &["/var/lib/mco-rescue", "marker"], &[1, 5]);
    root.write("var/lib/mco-rescue/marker", "something else\n");
    refuses_recovery(&root, &scene, &["/var/lib/mco-rescue", "marker"], &[1, 5]);
    let root = furnished();
    root.write("var/lib/mco-rescue/of-somebody-else", "");
    refuses_recovery(&root, &scene, &["/var/lib/mco-rescue", "marker"], &[1, 5]);
}

#[test]
fn an_unknown_name_in_a_staging_directory_is_said_and_stays() {
    let Some(scene) = Scene::update() else { return };
    for way in [&["recover"][..], &["recover", "--back"]] {
        let root = scene.half_way();
        let mut stages = fs::read_dir(root.path("var/lib/mco-rescue/stage")).unwrap();
        let stage = stages.next().unwrap().unwrap().file_name();
        let path = format!("{STATE}/stage/{}/notes", stage.to_str().unwrap());
        root.write(&path, "mine\n");
        let run = root.run(way).ok();
        assert!(run.err().contains(&format!("/{path}")), "{}", run.err());
        assert_eq!(root.read(&path), "mine\n");
        // Beside it only the two directories above it are left.
        assert_eq!(left_over(&root).len(), 3);
    }
}

#[test]
fn the_run_of_another_deployment_is_never_finished_here() {
    let Some(scene) = Scene::update() else { return };
    let other = format!("{}.0", "a1".repeat(32));
    let root = scene.half_way();
    let mut journal = unsealed(&root.read(JOURNAL));
    journal["deployment"] = json!(other);
    fs::write(root.path(JOURNAL), journal.to_string()).unwrap();
    let before = root.everything();
    let config = root.config(scene.new.as_ref().unwrap());
    for args in [&["recover"][..], &["apply", "--yes", config.path()]] {
        let run = root.run(args).exits(5);
        assert!(run.err().contains(&other), "{}", run.err());
        assert_eq!(root.everything(), before);
    }
    root.run(&["recover", "--back"]).ok();
    assert_eq!(scene.unlike_old(&root), [""; 0]);
    assert_eq!(left_over(&root), [""; 0]);
}

#[test]
fn without_its_staged_objects_a_run_is_undone() {
    let Some(scene) = Scene::update() else { return };
    let root = scene.half_way();
    let staged = staged(&root, "new-");
    assert!(!staged.is_empty());
    staged.iter().for_each(|path| root.remove(path));
    root.run(&["recover"]).ok();
    assert_eq!(scene.unlike_old(&root), [""; 0]);
    assert_eq!(scene.applied_afterwards(&root), [""; 0]);
}

#[test]
fn without_its_kept_objects_a_run_is_finished_even_when_asked_to_go_back() {
    let Some(scene) = Scene::update() else { return };
    let root = scene.half_way();
    let kept = [staged(&root, "old-"), staged(&root, "away-")].concat();
    assert!(!kept.is_empty());
    kept.iter().for_each(|path| root.remove(path));
    let before = root.everything();
    let run = root.run(&["recover", "--back"]).exits(5);
    assert!(run.err().contains("staged old objects"), "{}", run.err());
    assert_eq!(root.everything(), before);
    root.run(&["recover"]).ok();
    assert_eq!(scene.unlike_new(&root), [""; 0]);
}

#[test]
fn a_run_that_can_go_neither_way_is_left_as_it_is() {
    let Some(scene) = Scene::update() else { return };
    let root = scene.half_way();
    let all = [
        staged(&root, "old-"),
        staged(&root, "away-"),
        staged(&root, "new-"),
    ]
    .concat();
    all.iter().for_each(|path| root.remove(path));
    refuses_recovery(&root, &scene, &["staged objects", "/etc/"], &[5]);
}

fn staged(root: &TestRoot, prefix: &str) -> Vec<String> {
    let everything = root.everything();
    let below = everything
        .keys()
        .filter(|path| path.starts_with(&format!("{STATE}/stage/")));
    below
        .filter(|path| path.rsplit('/').next().unwrap().starts_with(prefix))
        .cloned()
        .collect()
}

#[test]
fn an_error_at_any_call_leaves_the_old_tree_and_says_why() {
    let Some(scene) = Scene::update() else { return };
    let faults = [
        ("renameat", "EIO"),
        ("renameat2", "EIO"),
        ("linkat", "ENOSPC"),
        ("mkdirat", "EROFS"),
        ("symlinkat", "ENOSPC"),
        ("fsync", "EIO"),
        ("syncfs", "EIO"),
        ("fchmod", "EPERM"),
        ("unlinkat", "EIO"),
    ];
    let mark = scene.position(".committed.new");
    let journal = scene.position(".journal.json.new");
    let last_flush = scene.clean.iter().rposition(|call| call.name == "syncfs");
    let last_flush = last_flush.unwrap();
    // The status is made between the mark and the last barrier; no run fails because of it.
    assert!(
        scene.clean[mark + 1..last_flush]
            .iter()
            .any(|call| call.line.contains(".status.json.new"))
    );
    let points = every(&scene.clean, &CHANGING);
    try_each("an error", &points, |&(call, nth)| {
        let (_, errno) = faults.iter().find(|(name, _)| *name == call).unwrap();
        let fault = format!("{call}:error={errno}:when={nth}");
        let position = scene.position_of(call, nth);
        // After the last flush only tidying up is left.
        let code = match position {
            p if p <= journal => 1,
            p if p <= mark || p == last_flush => 4,
            _ => 0,
        };
        fails(&scene, &fault, code, errno)
    });
}

#[test]
fn a_disk_that_is_full_while_staging_leaves_the_old_tree() {
    let Some(scene) = Scene::update() else { return };
    let root = scene.root();
    let config = root.config(scene.new.as_ref().unwrap());
    let run = traced(&root, "write", &[], &["apply", "--yes", config.path()]);
    let of_ours = |line: &str| !line.starts_with("write(1,") && !line.starts_with("write(2,");
    let all = run.calls.iter().enumerate();
    let points: Vec<Point> = all
        .filter(|(_, call)| of_ours(&call.line))
        .map(|(index, _)| ("write", index + 1))
        .collect();
    assert!(points.len() > 10, "{points:?}");
    // The last two are the mark, when names have changed already, and the status.
    let (mark, status) = (points[points.len() - 2], points[points.len() - 1]);
    try_each("full", &points, |&(call, nth)| {
        let code = match (call, nth) {
            point if point == mark => 4,
            point if point == status => 0,
            _ => 1,
        };
        let fault = format!("{call}:error=ENOSPC:when={nth}");
        fails(&scene, &fault, code, "ENOSPC")
    });
}

/// One fault in one run; complaints unless it ends with this code, a tree to match, and the reason.
fn fails(scene: &Scene, fault: &str, code: i32, errno: &str) -> Vec<String> {
    let root = scene.root();
    let config = root.config(scene.new.as_ref().unwrap());
    let call = fault.split(':').next().unwrap();
    let args = ["apply", "--yes", config.path()];
    let run = traced(&root, call, &[fault.to_owned()], &args);
    let mut problems = Vec::new();
    if run.code != Some(code) {
        let ended = run.code;
        problems.push(format!(
            "ended with {ended:?} instead of {code}: {}",
            run.err
        ));
    }
    let reason = match errno {
        "EIO" => "i/o error",
        "ENOSPC" => "no space left on device",
        "EROFS" => "read-only file system",
        _ => "operation not permitted",
    };
    let lines = run.err.lines().filter(|line| line.starts_with("error: "));
    let said: Vec<&str> = lines.collect();
    let promise = match code {
        1 => "nothing was changed",
        _ => "everything was restored",
    };
    let why = |line: &str| line.to_lowercase().contains(reason);
    match (code, said.as_slice()) {
        (0, []) => problems.extend(scene.unlike_new(&root)),
        (1 | 4, [line]) if line.contains(promise) && why(line) => {
            problems.extend(scene.unlike_old(&root));
            problems.extend(left_over(&root));
        }
        _ => problems.push(format!("does not say what and why: {}", run.err)),
    }
    problems.extend(scene.applied_afterwards(&root));
    problems
}

#[test]
fn when_undoing_fails_too_the_node_is_called_half_way_and_recover_helps() {
    let Some(scene) = Scene::update() else { return };
    let (first, mark) = scene.renames();
    let points: Vec<Point> = (first + 1..mark).map(|nth| ("renameat", nth)).collect();
    try_each("errors from there on", &points, |&(call, nth)| {
        let root = scene.root();
        let config = root.config(scene.new.as_ref().unwrap());
        let fault = format!("{call}:error=EIO:when={nth}+");
        let run = traced(&root, call, &[fault], &["apply", "--yes", config.path()]);
        let mut problems = scene.torn(&root);
        if run.code != Some(5) || !run.err.contains("mco-rescue recover") {
            problems.push(format!("ended with {:?}: {}", run.code, run.err));
        }
        problems.extend(demand(&root, &["recover"], 0));
        problems.extend(scene.between(&root));
        problems.extend(scene.applied_afterwards(&root));
        problems
    });
}

#[test]
fn a_run_killed_while_it_undoes_is_not_taken_for_finished() {
    let Some(scene) = Scene::update() else { return };
    // The mark's name is there, but flushing it fails: the run undoes everything.
    let flush = scene.count("syncfs");
    let (_, renames) = scene.renames();
    let points: Vec<Point> = (renames + 1..renames + 9)
        .map(|nth| ("renameat", nth))
        .collect();
    try_each("killed while undoing", &points, |&(call, nth)| {
        let root = scene.root();
        let config = root.config(scene.new.as_ref().unwrap());
        let faults = [
            format!("syncfs:error=EIO:when={flush}"),
            format!("{call}:signal=KILL:when={nth}"),
        ];
        let run = traced(
            &root,
            "syncfs,renameat",
            &faults,
            &["apply", "--yes", config.path()],
        );
        assert_eq!(
            run.signal,
            Some(9),
            "{call} number {nth} was not reached: {}",
            run.err
        );
        let mut problems = scene.torn(&root);
        problems.extend(demand(&root, &["recover"], 0));
        problems.extend(scene.between(&root));
        problems.extend(scene.applied_afterwards(&root));
        problems
    });
}

#[test]
fn a_signal_to_end_waits_until_names_stand_still() {
    let Some(scene) = Scene::update() else { return };
    let (first, mark) = scene.renames();
    for nth in [first, usize::midpoint(first, mark), mark] {
        let root = scene.root();
        let config = root.config(scene.new.as_ref().unwrap());
        let fault = format!("renameat:signal=TERM:when={nth}");
        let run = traced(
            &root,
            "renameat",
            &[fault],
            &["apply", "--yes", config.path()],
        );
        assert!(run.code == Some(0) || run.signal == Some(15), "{}", run.err);
        assert_eq!(scene.unlike_new(&root), [""; 0]);
        assert_eq!(root.run(&["recover"]).ok().out(), "Nothing to recover.\n");
        assert_eq!(left_over(&root), [""; 0]);
    }
}

/// So many files are staged by as many threads as there are processors.
fn many() -> Value {
    let text = |n: usize| format!("{n} {}\n", "x".repeat(n % 97));
    let one = |n: usize| file(&format!("/etc/many/{}/{n}.conf", n % 7), 0o644, &text(n));
    let files: Vec<Value> = (0..1100).map(one).collect();
    machine_config("rendered-worker-many", json!({"storage": {"files": files}}))
}

#[test]
fn many_files_that_are_staged_at_once_arrive_whole_or_not_at_all() {
    if !can_trace() {
        return;
    }
    let root = TestRoot::new();
    // In directories that are there each file is staged by itself.
    for number in 0..10 {
        fs::create_dir_all(root.path(&format!("etc/many/{number}"))).unwrap();
    }
    let config = root.config(&many());
    let before = root.snapshot();
    let apply = ["apply", "--yes", config.path()];
    // Of each thread: strace counts them one by one.
    for call in [30, 100, 250] {
        let inject = format!("inject=fchmod:signal=KILL:when={call}");
        let killed = Command::new("strace")
            .args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=fchmod", "-e"])
            .arg(inject)
            .args([support::PROGRAM, "--root"])
            .arg(root.dir())
            .args(apply)
            .output()
            .unwrap();
        assert!(!killed.status.success(), "{call}");
        let stages = root.path("var/lib/mco-rescue/stage");
        assert!(fs::read_dir(&stages).unwrap().count() > 1, "{call}");
        root.run(&["recover"]).ok();
        assert!(!stages.exists(), "{call}");
        assert_eq!(root.snapshot(), before, "{call}");
    }
    root.run(&apply).ok();
    root.run(&["verify"]).ok();
    root.write("etc/many/3/10.conf", "changed\n");
    let verify = root.run(&["verify"]).exits(3);
    let drift = "content mismatch for file \"/etc/many/3/10.conf\"";
    assert!(verify.out().contains(drift), "{}", verify.out());
}
