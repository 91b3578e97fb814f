//! Power cuts: the disk as it is at any moment of a run, without what only the page cache held, is mounted again
//! and holds the old tree or the new one, or what `recover` makes one of them. Needs root, for loop devices.
//!
//! Twice: as the program flushed it, and as if the file system had written its own journal at that moment besides,
//! which makes names durable but no contents. `MCO_RESCUE_FAULTS=all` tries every moment.

use std::fs::{self, File};
use std::time::{Instant, SystemTime};

use crate::support::faults::{Call, Scene, copy_tree, demand, on_threads};
use crate::support::mounts::{Disk, unmount, with_mounts};
use crate::support::scenes::{bare, can_disturb, everything_is_asked_for, update};
use crate::support::steps::Stepped;
use crate::support::{TestRoot, say};

/// Calls after which the run is stopped.
const STOPS: [&str; 6] = [
    "renameat",
    "renameat2",
    "syncfs",
    "fsync",
    "unlinkat",
    "fchmod",
];
/// A kind of file system. Nothing is written unless the program, or the test, asks for it.
struct Kind {
    name: &'static str,
    mebibytes: u64,
    mkfs: &'static [&'static str],
    /// Mount options of the run.
    lazy: &'static str,
    /// Mount options afterwards: several copies are mounted at a time.
    again: &'static str,
}

const KINDS: [Kind; 2] = [
    Kind {
        name: "ext4",
        mebibytes: 24,
        mkfs: &["mkfs.ext4", "-q", "-F", "-m", "0", "-J", "size=4"],
        lazy: ",commit=600,noauto_da_alloc",
        again: "",
    },
    Kind {
        name: "xfs",
        mebibytes: 32,
        mkfs: &["mkfs.xfs", "-q", "-f", "--unsupported"],
        lazy: "",
        again: ",nouuid",
    },
];

/// What a power cut after a call leaves.
struct Moment {
    call: Call,
    disk: Disk,
    promise: Promise,
}

/// What the program may rely on at a moment.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Promise {
    /// No name has changed yet.
    Old,
    /// `recover` leads to one of the two.
    Either,
    /// The mark is flushed, or the run is over and has said so.
    New,
}

/// Whether the file system writes its own journal at every moment, as any other program on the node may make it.
#[derive(Clone, Copy, PartialEq)]
enum Commits {
    Never,
    Always,
}

impl Kind {
    fn format(&self) -> Option<Disk> {
        Disk::new(self.mebibytes, self.mkfs)
    }
}

/// Makes the file system write its journal: all names, and the contents of no file that was not flushed.
fn commit(root: &TestRoot) {
    let top = File::open(root.dir()).unwrap();
    top.set_modified(SystemTime::now()).unwrap();
    top.sync_all().unwrap();
}

/// Stops a run after every call and keeps the disk as it is then.
fn moments(kind: &Kind, scene: &Scene, commits: Commits, faults: &[&str]) -> Vec<Moment> {
    let disk = kind.format().unwrap();
    let root = TestRoot::empty();
    disk.mount(root.dir(), kind.lazy);
    let _ = fs::remove_dir(root.path("lost+found"));
    copy_tree(scene.template(), root.dir());
    // Mounted anew, so that all of this is on the disk.
    unmount(root.dir());
    disk.mount(root.dir(), kind.lazy);
    let config = root.config(scene.new.as_ref().unwrap());
    let args = ["apply", "--yes", config.path()];
    let faults: Vec<String> = faults.iter().map(|&fault| fault.to_owned()).collect();
    let mut run = Stepped::start(&root, &STOPS.join(","), &faults, &args);
    let mut all: Vec<Moment> = Vec::new();
    let mut promise = Promise::Old;
    while let Some(call) = run.next() {
        promise = promised(promise, &all, &call);
        if commits == Commits::Always {
            commit(&root);
        }
        let disk = disk.copy();
        all.push(Moment {
            call,
            disk,
            promise,
        });
        run.resume();
    }
    let output = run.output();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    if commits == Commits::Always {
        commit(&root);
    }
    let last = all.last().unwrap().call.clone();
    all.push(Moment {
        call: last,
        disk: disk.copy(),
        promise: Promise::New,
    });
    unmount(root.dir());
    all
}

/// Names change from the journal on, and the flush after the mark's name ends it.
fn promised(so_far: Promise, before: &[Moment], call: &Call) -> Promise {
    let renames = |call: &Call, name: &str| call.name == "renameat" && call.line.contains(name);
    let mut before = before.iter();
    let marked = before.any(|moment| renames(&moment.call, ".committed.new"));
    match so_far {
        Promise::Old if renames(call, ".journal.json.new") => Promise::Either,
        Promise::Either if marked && call.name == "syncfs" => Promise::New,
        other => other,
    }
}

/// The power is on again: complaints about what is found.
fn powered_up(kind: &Kind, scene: &Scene, moment: &Moment) -> Vec<String> {
    let root = TestRoot::empty();
    moment.disk.mount(root.dir(), kind.again);
    let mut problems = scene.torn(&root);
    let unlike = match moment.promise {
        Promise::Old => scene.unlike_old(&root),
        Promise::Either => Vec::new(),
        Promise::New => scene.unlike_new(&root),
    };
    // Staged objects and kept ones still have their second names.
    problems.extend(unlike.into_iter().filter(|what| !what.ends_with("names")));
    problems.extend(demand(&root, &["recover"], 0));
    problems.extend(match moment.promise {
        Promise::Old => scene.unlike_old(&root),
        Promise::Either => scene.between(&root),
        Promise::New => scene.unlike_new(&root),
    });
    problems.extend(scene.applied_afterwards(&root));
    unmount(root.dir());
    let (line, promise) = (&moment.call.line, moment.promise);
    let complain = |problem| format!("after {line} ({promise:?}): {problem}");
    problems.into_iter().map(complain).collect()
}

/// The barriers, and every so many of the other moments.
fn chosen(all: Vec<Moment>) -> Vec<Moment> {
    if everything_is_asked_for() {
        return all;
    }
    let count = all.len();
    let numbered = all.into_iter().enumerate();
    let is_chosen = |number: usize, moment: &Moment| {
        moment.call.name == "syncfs" || number.is_multiple_of(5) || number + 1 == count
    };
    let some = numbered.filter(|(number, moment)| is_chosen(*number, moment));
    some.map(|(_, moment)| moment).collect()
}

fn stop_everywhere() -> String {
    format!("{}:signal=STOP", STOPS.join(","))
}

#[test]
fn a_power_cut_at_any_moment_leaves_the_old_tree_or_the_new_one() {
    if !can_disturb() {
        return;
    }
    with_mounts(|| {
        for kind in KINDS.iter().filter(|kind| kind.format().is_some()) {
            for (what, scene) in [("an update", update(&[])), ("overwriting", bare())] {
                for (how, commits) in [
                    ("as flushed", Commits::Never),
                    ("names written at once", Commits::Always),
                ] {
                    is_cut_anywhere(kind, &format!("{what}, {how}"), &scene, commits);
                }
            }
        }
    });
}

fn is_cut_anywhere(kind: &Kind, what: &str, scene: &Scene, commits: Commits) {
    let started = Instant::now();
    let moments = moments(kind, scene, commits, &[&stop_everywhere()]);
    // They cost most of the time of a small run.
    let flushes = |name: &str| moments.iter().filter(|m| m.call.name == name).count();
    assert_eq!((flushes("syncfs"), flushes("fsync")), (2, 0));
    let moments = chosen(moments);
    for promise in [Promise::Old, Promise::Either, Promise::New] {
        assert!(moments.iter().any(|moment| moment.promise == promise));
    }
    let problems = on_threads(&moments, |moment| powered_up(kind, scene, moment));
    let (count, failures) = (moments.len(), problems.len());
    let (name, seconds) = (kind.name, started.elapsed().as_secs());
    say(&format!(
        "power cuts on {name} during {what}: {count} moments, {failures} failures, {seconds} s"
    ));
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn without_its_flushes_a_power_cut_would_lose_data() {
    if !can_disturb() {
        return;
    }
    with_mounts(|| {
        for kind in KINDS.iter().filter(|kind| kind.format().is_some()) {
            let scene = update(&[]);
            let flushes = "syncfs,fsync:retval=0:signal=STOP";
            let others = "renameat,renameat2,unlinkat,fchmod:signal=STOP";
            for commits in [Commits::Never, Commits::Always] {
                let moments = chosen(moments(kind, &scene, commits, &[flushes, others]));
                let lost = on_threads(&moments, |moment| {
                    let problems = powered_up(kind, &scene, moment).into_iter();
                    problems.take(1).collect()
                });
                let torn = lost.iter().filter(|problem| problem.contains("torn"));
                say(&format!(
                    "without flushes {} of {} moments on {} lose data, {} of them tear a path",
                    lost.len(),
                    moments.len(),
                    kind.name,
                    torn.clone().count()
                ));
                assert!(!lost.is_empty());
                assert!(commits == Commits::Never || torn.count() > 0);
            }
        }
    });
}
