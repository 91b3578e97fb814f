//! A new directory gets its name with all that is in it: in one step, however much that is, and after every accident.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::faults::{JOURNAL, Scene, count, left_over};
use crate::support::scenes::can_disturb;
use crate::support::{TestRoot, file, machine_config, unsealed};

const WATCHED: [&str; 3] = ["renameat", "renameat2", "syncfs"];

/// A config with so many files in new directories, a unit with a drop-in, and a file in a directory of the OS.
fn config(files: usize) -> Value {
    let in_new = (0..files).map(|number| {
        let path = format!("/etc/new/{}/{number}.conf", number % 2);
        file(&path, 0o640, &format!("number {number}\n"))
    });
    let all: Vec<Value> = in_new
        .chain([file("/etc/old/one.conf", 0o644, "one\n")])
        .collect();
    let unit = json!({
        "name": "b.service",
        "contents": "[Service]\nExecStart=/bin/b\n",
        "dropins": [{"name": "10-a.conf", "contents": "[Service]\nRestart=always\n"}],
    });
    machine_config(
        "rendered-worker-new",
        json!({"storage": {"files": all}, "systemd": {"units": [unit]}}),
    )
}

fn node() -> TestRoot {
    let root = TestRoot::new();
    root.write("etc/old/two.conf", "two\n");
    root
}

fn scene(files: usize) -> Scene {
    Scene::leading(&node(), Some(config(files)), &WATCHED, &[])
}

/// The rename that gives `/etc/new` its name, counted among all of its kind.
fn naming(scene: &Scene) -> usize {
    scene.nth("renameat2", |line| line.contains("\"new\""))
}

/// The names below a directory, and how many of them are files.
fn below(dir: &Path) -> usize {
    let Ok(entries) = fs::read_dir(dir) else {
        return 0;
    };
    let count = |path: &Path| if path.is_dir() { below(path) } else { 1 };
    entries.map(|entry| count(&entry.unwrap().path())).sum()
}

#[test]
fn a_new_directory_needs_one_rename_however_many_files_are_in_it() {
    if !can_disturb() {
        return;
    }
    let renames = |files| count(&scene(files).clean, "renameat2");
    assert_eq!(renames(2), renames(40));
}

#[test]
fn a_new_directory_is_missing_or_whole_at_every_moment() {
    if !can_disturb() {
        return;
    }
    let (files, scene) = (7, scene(7));
    let mut seen = Vec::new();
    for nth in 1..=count(&scene.clean, "renameat2") {
        let root = scene.killed_at("renameat2", nth);
        let found = below(&root.path("etc/new"));
        assert!(root.exists("etc/new") == (found > 0));
        assert!([0, files].contains(&found), "{found} of {files}");
        seen.push(found);
        root.run(&["recover"]).exits(0);
        assert_eq!(scene.between(&root), [""; 0]);
    }
    assert!(seen.contains(&0) && seen.contains(&files), "{seen:?}");
}

#[test]
fn a_run_of_an_older_version_that_staged_each_file_by_itself_is_finished_and_undone() {
    if !can_disturb() {
        return;
    }
    let scene = scene(3);
    let ways = [(&["recover"][..], true), (&["recover", "--back"], false)];
    // With no name changed, and with some.
    let points = [1, naming(&scene)];
    for (nth, (args, is_new)) in points.iter().flat_map(|nth| ways.map(|way| (*nth, way))) {
        let root = scene.killed_at("renameat2", nth);
        stage_as_older_versions(&root);
        root.run(args).exits(0);
        let unlike = if is_new {
            scene.unlike_new(&root)
        } else {
            scene.unlike_old(&root)
        };
        assert_eq!(unlike, [""; 0], "{args:?}");
        assert_eq!(left_over(&root), [""; 0], "{args:?}");
    }
}

/// Takes every object that is still staged out of its staged directory, and the new key out of the journal.
fn stage_as_older_versions(root: &TestRoot) {
    let mut journal = unsealed(&root.read(JOURNAL));
    let steps = journal["steps"].as_array().unwrap().clone();
    let stage = |step: &Value| {
        let at = step["stage"].as_u64().unwrap() as usize;
        root.path(&journal["stages"][at].as_str().unwrap()[1..])
    };
    let mut nested = 0;
    // The deepest first.
    for (index, step) in steps.iter().enumerate().rev() {
        let mut below = Vec::new();
        let mut at = index;
        while let Some(above) = steps[at]["within"].as_u64() {
            let path = steps[at]["path"].as_str().unwrap();
            below.insert(0, path.rsplit('/').next().unwrap().to_owned());
            at = above as usize;
        }
        below.insert(0, format!("tree-{at}"));
        let from = stage(step).join(below.join("/"));
        let is_new = step["step"] == "make-directory" || below.len() > 1;
        if is_new && from.symlink_metadata().is_ok() {
            nested += usize::from(below.len() > 1);
            fs::rename(from, stage(step).join(format!("new-{index}"))).unwrap();
        }
    }
    assert!(nested > 4, "{nested}");
    for step in journal["steps"].as_array_mut().unwrap() {
        step.as_object_mut().unwrap().remove("within");
    }
    fs::write(root.path(JOURNAL), journal.to_string()).unwrap();
}

#[test]
fn a_directory_that_another_program_makes_meanwhile_gets_what_was_staged_and_keeps_its_own() {
    if !can_disturb() {
        return;
    }
    let (files, scene) = (5, scene(5));
    for with_own in [false, true] {
        let root = scene.killed_at("renameat2", naming(&scene));
        fs::create_dir_all(root.path("etc/new/0")).unwrap();
        if with_own {
            root.write("etc/new/0/theirs.conf", "theirs\n");
        }
        root.run(&["recover"]).exits(0);
        assert_eq!(below(&root.path("etc/new")), files + usize::from(with_own));
        assert_eq!(root.read("etc/new/0/4.conf"), "number 4\n");
        assert_eq!(left_over(&root), [""; 0]);
    }
}

#[test]
fn a_run_that_fails_after_a_new_directory_got_its_name_takes_all_of_it_back() {
    if !can_disturb() {
        return;
    }
    let scene = scene(6);
    let last = count(&scene.clean, "renameat2");
    assert!(naming(&scene) < last);
    for nth in naming(&scene)..=last {
        let root = scene.root();
        let fault = format!("renameat2:error=EIO:when={nth}");
        let run = scene.disturbed(&root, "renameat2", &fault);
        assert_eq!(run.code, Some(4), "{}", run.err);
        assert_eq!(scene.unlike_old(&root), [""; 0]);
        assert_eq!(left_over(&root), [""; 0]);
        assert_eq!(scene.applied_afterwards(&root), [""; 0]);
    }
}

#[test]
fn a_full_disk_while_a_new_directory_is_staged_changes_nothing() {
    if !can_disturb() {
        return;
    }
    let root = node();
    let new = config(30);
    let scene = Scene::leading(&root, Some(new), &["mkdirat", "openat", "write"], &[]);
    let staged = |call: &str| {
        let mut same = scene.clean.iter().filter(|one| one.name == call);
        same.position(|one| one.line.contains("tree-")).unwrap() + 1
    };
    for call in ["mkdirat", "openat"] {
        // The first that is in a staged directory, and one some files later.
        for nth in [staged(call), staged(call) + 5] {
            let root = scene.root();
            let run = scene.disturbed(&root, call, &format!("{call}:error=ENOSPC:when={nth}"));
            assert_eq!(run.code, Some(1), "{call} {nth}: {}", run.err);
            assert!(run.err.contains("no space left on device"), "{}", run.err);
            assert_eq!(scene.unlike_old(&root), [""; 0]);
            assert_eq!(left_over(&root), [""; 0]);
        }
    }
}
