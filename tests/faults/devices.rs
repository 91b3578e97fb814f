//! Real disks: filled to the last block or inode, gone read-only, and several of them below one root; before a
//! run and in the middle of it. Needs root, for loop devices. Quotas are not here: EDQUOT is injected (`every_call.rs`).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;

use crate::support::faults::{self, Scene, copy_tree, count, demand, left_over, on_threads};
use crate::support::mounts::{Disk, mount, unmount, with_mounts};
use crate::support::scenes::{WATCHED, bare, can_disturb, everything_is_asked_for, update};
use crate::support::steps::Stepped;
use crate::support::{TestRoot, say};

const STOPS: [&str; 6] = [
    "mkdirat",
    "linkat",
    "symlinkat",
    "renameat",
    "renameat2",
    "syncfs",
];
const EXT4: [&str; 7] = ["mkfs.ext4", "-q", "-F", "-m", "0", "-J", "size=4"];
const FILLER: &str = "var/lib/of-others";

/// Takes every block, then every inode.
fn fill_blocks(root: &TestRoot) {
    fs::create_dir_all(root.path(FILLER)).unwrap();
    let full = |error: std::io::Error| error.kind() == std::io::ErrorKind::StorageFull;
    for size in [1 << 16, 1 << 12, 1] {
        let name = format!("{FILLER}/{size}");
        let mut file = File::options()
            .create(true)
            .append(true)
            .open(root.path(&name))
            .unwrap();
        let error = loop {
            if let Err(error) = file
                .write_all(&vec![b'x'; size])
                .and_then(|()| file.sync_data())
            {
                break error;
            }
        };
        assert!(full(error));
    }
}

/// Takes every inode.
fn fill_inodes(root: &TestRoot) {
    fs::create_dir_all(root.path(FILLER)).unwrap();
    let mut made = (0..).map(|n| File::create(root.path(&format!("{FILLER}/{n}"))));
    let error = made.find_map(Result::err).unwrap();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
}

fn make_room(root: &TestRoot) {
    fs::remove_dir_all(root.path(FILLER)).unwrap();
}

/// Mounts a disk and puts the old tree of the scene on it.
fn furnish(disk: &Disk, scene: &Scene) -> TestRoot {
    let root = TestRoot::empty();
    disk.mount(root.dir(), "");
    fs::remove_dir(root.path("lost+found")).unwrap();
    copy_tree(scene.template(), root.dir());
    root
}

/// Every stop of an undisturbed run, or some of them.
fn stops(scene: &Scene, each: usize) -> Vec<(&'static str, usize)> {
    let all = faults::every(&scene.clean, &STOPS);
    let step = if everything_is_asked_for() { 1 } else { each };
    all.into_iter().step_by(step).collect()
}

/// Stops a run after a call, does something to it, and lets it end.
fn meanwhile(
    scene: &Scene,
    root: &TestRoot,
    stop: (&str, usize),
    act: impl FnOnce(),
) -> (i32, String) {
    let config = root.config(scene.new.as_ref().unwrap());
    let (call, nth) = stop;
    let fault = format!("{call}:signal=STOP:when={nth}");
    let mut run = Stepped::start(root, call, &[fault], &["apply", "--yes", config.path()]);
    assert!(run.next().is_some(), "{call} number {nth} was not reached");
    act();
    run.resume();
    assert!(run.next().is_none());
    let output = run.output();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().unwrap_or(-1), said)
}

/// Says how the runs of a test ended.
fn tell(what: &str, ends: &Mutex<BTreeMap<i32, usize>>) {
    let ends = ends.lock().unwrap();
    let total: usize = ends.values().sum();
    say(&format!("{what}: {total} runs, by exit code {ends:?}"));
}

/// A full disk is told before anything is done, and where it fills up meanwhile the run undoes itself.
fn fills_up(what: &str, mkfs: &[&str], fill: fn(&TestRoot), named: &str) {
    let scene = update(&[]);
    let Some(disk) = Disk::new(16, mkfs) else {
        return;
    };
    let root = furnish(&disk, &scene);
    fill(&root);
    let before = root.everything();
    let config = root.config(scene.new.as_ref().unwrap());
    let run = root.run(&["apply", "--yes", config.path()]).exits(1);
    assert!((run.out() + &run.err()).contains(named), "{}", run.out());
    assert_eq!(root.everything(), before);
    make_room(&root);
    assert_eq!(scene.applied_afterwards(&root), [""; 0]);
    unmount(root.dir());
    let ends = Mutex::new(BTreeMap::new());
    let problems = on_threads(&stops(&scene, 4), |&stop| {
        let disk = Disk::new(16, mkfs).unwrap();
        let root = furnish(&disk, &scene);
        let (code, said) = meanwhile(&scene, &root, stop, || fill(&root));
        *ends.lock().unwrap().entry(code).or_default() += 1;
        make_room(&root);
        let mut problems = match code {
            0 => scene.unlike_new(&root),
            1 | 4 if said.contains("no space left on device") => {
                [scene.unlike_old(&root), left_over(&root)].concat()
            }
            _ => vec![format!("ended with {code}: {said}")],
        };
        problems.extend(scene.applied_afterwards(&root));
        unmount(root.dir());
        let complain = |problem| format!("{what} after {stop:?}: {problem}");
        problems.into_iter().map(complain).collect()
    });
    tell(what, &ends);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    let ends = ends.into_inner().unwrap();
    assert!(ends.contains_key(&1), "it was never too full");
}

#[test]
fn a_disk_without_a_free_block_leaves_the_old_tree() {
    if can_disturb() {
        with_mounts(|| fills_up("filled to the last block", &EXT4, fill_blocks, "room"));
    }
}

#[test]
fn a_disk_without_a_free_inode_leaves_the_old_tree() {
    if can_disturb() {
        let few = [&EXT4[..], &["-N", "192"]].concat();
        with_mounts(|| fills_up("no inode left", &few, fill_inodes, "inodes"));
    }
}

fn remount(root: &TestRoot, how: &str) -> bool {
    let mut command = Command::new("mount");
    command
        .args(["-o", &format!("remount,{how}")])
        .arg(root.dir());
    command.stderr(Stdio::null()).status().unwrap().success()
}

#[test]
fn a_disk_that_goes_read_only_is_mended_when_it_can_be_written_again() {
    if !can_disturb() {
        return;
    }
    with_mounts(|| {
        // No account changes here: the lock of the account files would keep the mount writable.
        let scene = bare();
        let Some(disk) = Disk::new(16, &EXT4) else {
            return;
        };
        let root = furnish(&disk, &scene);
        assert!(remount(&root, "ro"));
        let before = root.everything();
        let config = root.config(scene.new.as_ref().unwrap());
        let run = root.run(&["apply", "--yes", config.path()]).exits(1);
        assert!(run.out().contains("read-only"), "{}", run.out());
        assert_eq!(root.everything(), before);
        unmount(root.dir());
        let ends = Mutex::new(BTreeMap::new());
        let problems = on_threads(&stops(&scene, 3), |&stop| {
            let disk = Disk::new(16, &EXT4).unwrap();
            let root = furnish(&disk, &scene);
            let mut done = false;
            let (code, said) = meanwhile(&scene, &root, stop, || done = remount(&root, "ro"));
            let mut problems = scene.torn(&root);
            // At the very end staging directories that are gone are still open, which keeps the mount writable.
            if !done && code != 0 {
                problems.push("the disk could not be made read-only".to_owned());
            }
            *ends.lock().unwrap().entry(code).or_default() += 1;
            let told = match code {
                0 => !said.contains("error:"),
                // Where the plan was not made yet, its blocker says it.
                1 if said.contains("refusing to apply") => {
                    let config = root.config(scene.new.as_ref().unwrap());
                    root.run(&["plan", config.path()])
                        .out()
                        .contains("read-only mount")
                }
                1 => said.contains("read-only file system"),
                4 => said.contains("read-only file system"),
                5 => said.contains("read-only file system") && said.contains("mco-rescue recover"),
                _ => false,
            };
            if !told {
                problems.push(format!("ended with {code}: {said}"));
            }
            assert!(remount(&root, "rw"));
            match code {
                0 => problems.extend(scene.unlike_new(&root)),
                _ => problems.extend(demand(&root, &["recover"], 0)),
            }
            problems.extend(scene.between(&root));
            problems.extend(scene.applied_afterwards(&root));
            unmount(root.dir());
            let complain = |problem| format!("read-only after {stop:?}: {problem}");
            problems.into_iter().map(complain).collect()
        });
        tell("gone read-only", &ends);
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    });
}

/// A root whose directories are file systems of their own.
struct Composed {
    root: TestRoot,
    mounts: Vec<&'static str>,
    _disks: Vec<Disk>,
}

impl Composed {
    /// `None`, said aloud, where one of them is not to be had.
    fn of(tree: &Path, layout: &[(&'static str, &str)]) -> Option<Self> {
        let root = TestRoot::empty();
        let mut composed = Self {
            root,
            mounts: Vec::new(),
            _disks: Vec::new(),
        };
        for (path, kind) in layout {
            let at = composed.root.path(path);
            fs::create_dir_all(&at).unwrap();
            if *kind == "tmpfs" {
                mount(&["-t", "tmpfs", "tmpfs", at.to_str().unwrap()]);
            } else {
                let xfs = ["mkfs.xfs", "-q", "-f", "--unsupported"];
                let mkfs = if *kind == "xfs" { &xfs[..] } else { &EXT4[..] };
                let disk = Disk::new(32, mkfs)?;
                disk.mount(&at, "");
                let _ = fs::remove_dir(at.join("lost+found"));
                composed._disks.push(disk);
            }
            composed.mounts.push(path);
        }
        copy_tree(tree, composed.root.dir());
        Some(composed)
    }
}

impl Drop for Composed {
    fn drop(&mut self) {
        self.mounts
            .iter()
            .rev()
            .for_each(|path| unmount(&self.root.path(path)));
    }
}

const LAYOUTS: [&[(&str, &str)]; 4] = [
    &[("etc", "xfs"), ("var", "tmpfs")],
    &[("etc", "tmpfs"), ("var", "ext4"), ("home", "xfs")],
    // Our own state and the staged objects lie elsewhere than what changes.
    &[("var/lib/mco-rescue", "tmpfs")],
    &[
        ("", "ext4"),
        ("var", "xfs"),
        ("var/lib/mco-rescue/stage", "tmpfs"),
    ],
];

#[test]
fn several_file_systems_below_one_root_change_all_or_none() {
    if !can_disturb() {
        return;
    }
    with_mounts(|| {
        let plain = update(&[]);
        for layout in LAYOUTS {
            let Some(composed) = Composed::of(plain.template(), layout) else {
                continue;
            };
            let scene = Scene::leading(&composed.root, plain.new.clone(), &WATCHED, &[]);
            assert!(count(&scene.clean, "syncfs") >= 2 * 2, "{layout:?}");
            let faults = ["signal=KILL", "error=EIO", "error=ENOSPC"];
            let stops = stops(&scene, 9);
            let points: Vec<_> = stops.iter().enumerate().collect();
            let problems = on_threads(&points, |&(number, &(call, nth))| {
                let composed = Composed::of(plain.template(), layout).unwrap();
                let root = &composed.root;
                let fault = format!("{call}:{}:when={nth}", faults[number % faults.len()]);
                let run = scene.disturbed(root, call, &fault);
                let mut problems = scene.torn(root);
                problems.extend(match run.code {
                    None => demand(root, &["recover"], 0),
                    Some(0) => scene.unlike_new(root),
                    Some(1 | 4) => scene.unlike_old(root),
                    code => vec![format!("ended with {code:?}: {}", run.err)],
                });
                problems.extend(scene.between(root));
                problems.extend(scene.applied_afterwards(root));
                let complain = |problem| format!("{layout:?}: {fault}: {problem}");
                problems.into_iter().map(complain).collect()
            });
            say(&format!(
                "{layout:?}: {} faults, {} failures",
                points.len(),
                problems.len()
            ));
            assert!(problems.is_empty(), "{}", problems.join("\n"));
        }
    });
}
