//! Runs of the program under strace: which calls they make, and what a fault at one of them leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use tempfile::TempDir;

pub use super::trace::{Call, calls, can_trace};
use crate::support::{Config, Entry, PROGRAM, STATE, Snapshot, TestRoot, say};

/// Calls that change names, attributes or durability; a run is killed at them.
pub const CHANGING: [&str; 9] = [
    "renameat",
    "renameat2",
    "linkat",
    "unlinkat",
    "mkdirat",
    "symlinkat",
    "fsync",
    "syncfs",
    "fchmod",
];
/// Calls that only look at something.
pub const READING: [&str; 8] = [
    "openat",
    "openat2",
    "read",
    "newfstatat",
    "statx",
    "readlinkat",
    "getdents64",
    "lgetxattr",
];
pub const JOURNAL: &str = "var/lib/mco-rescue/journal.json";

/// Two states of one root, and the run that leads from the one to the other.
pub struct Scene {
    template: TempDir,
    /// What leads from the one to the other: this config, or taking the last run back.
    pub new: Option<Value>,
    /// What the file system refuses in every run.
    standing: Vec<String>,
    pub before: Snapshot,
    pub after: Snapshot,
    /// The trace of an undisturbed run from the one to the other.
    pub clean: Vec<Call>,
}

impl Scene {
    /// From a root as it is. `watched` are the calls to be traced, `standing` what is refused in every run.
    pub fn leading(
        root: &TestRoot,
        new: Option<Value>,
        watched: &[&str],
        standing: &[&str],
    ) -> Self {
        let template = tempfile::tempdir().unwrap();
        copy_tree(root.dir(), template.path());
        let before = root.snapshot();
        let config = root.config(new.as_ref().unwrap_or(&Value::Null));
        let args = arguments(new.as_ref(), &config);
        let standing: Vec<String> = standing.iter().map(|&fault| fault.to_owned()).collect();
        let clean = traced(root, &watched.join(","), &standing, &args);
        assert_eq!(clean.code, Some(0), "{}", clean.err);
        assert_eq!(left_over(root), [""; 0]);
        Self {
            template,
            new,
            standing,
            before,
            after: root.snapshot(),
            clean: clean.calls,
        }
    }

    /// The tree in the old state.
    pub fn template(&self) -> &Path {
        self.template.path()
    }

    /// A root in the old state.
    pub fn root(&self) -> TestRoot {
        duplicate(self.template.path())
    }

    pub fn count(&self, call: &str) -> usize {
        count(&self.clean, call)
    }

    /// Which call of this name matches, counted from one.
    pub fn nth(&self, call: &str, matches: impl Fn(&str) -> bool) -> usize {
        let mut same = self.clean.iter().filter(|c| c.name == call);
        same.position(|c| matches(&c.line)).unwrap() + 1
    }

    /// Where in the clean run the rename of a name is.
    pub fn position(&self, name: &str) -> usize {
        let mut calls = self.clean.iter();
        calls
            .position(|c| c.name == "renameat" && c.line.contains(name))
            .unwrap()
    }

    pub fn position_of(&self, call: &str, nth: usize) -> usize {
        let same = self
            .clean
            .iter()
            .enumerate()
            .filter(|(_, c)| c.name == call);
        same.map(|(position, _)| position).nth(nth - 1).unwrap()
    }

    /// A root on which the run to the new state was killed at a call.
    pub fn killed_at(&self, call: &str, nth: usize) -> TestRoot {
        let root = self.root();
        self.kill(&root, call, nth);
        root
    }

    pub fn kill(&self, root: &TestRoot, call: &str, nth: usize) {
        self.disturbed(root, call, &format!("{call}:signal=KILL:when={nth}"))
            .was_killed(call, nth);
    }

    /// The run to the new state, with one more fault.
    pub fn disturbed(&self, root: &TestRoot, call: &str, fault: &str) -> Traced {
        let config = root.config(self.new.as_ref().unwrap_or(&Value::Null));
        let faults = [&self.standing[..], &[fault.to_owned()]].concat();
        let called = faults.iter().map(|fault| fault.split(':').next().unwrap());
        let trace = called.chain([call]).collect::<Vec<_>>().join(",");
        traced(
            root,
            &trace,
            &faults,
            &arguments(self.new.as_ref(), &config),
        )
    }

    /// Which renames come first and last between journal and mark.
    pub fn renames(&self) -> (usize, usize) {
        let journal = self.nth("renameat", |line| line.contains(".journal.json.new"));
        let mark = self.nth("renameat", |line| line.contains(".committed.new"));
        assert!(mark > journal);
        (journal + 1, mark)
    }

    /// Every path holds its old or its new object. A directory may still wait for its mode, and staged
    /// objects on other mounts are nobody's yet.
    pub fn torn(&self, root: &TestRoot) -> Vec<String> {
        let now = root.snapshot();
        let all = now
            .keys()
            .chain(self.before.keys())
            .chain(self.after.keys());
        let torn = all.filter(|path| {
            let (old, new) = (self.before.get(*path), self.after.get(*path));
            let found = now.get(*path);
            let unfinished = |e: &Entry| e.kind == 'd' && new.is_some_and(|n| n.kind == 'd');
            let staged = path.contains(".mco-rescue-");
            found != old && found != new && !staged && !found.is_some_and(unfinished)
        });
        torn.map(|path| format!("{path} is torn: {}", words(now.get(path))))
            .collect()
    }

    /// The whole tree is the old or the new one.
    pub fn between(&self, root: &TestRoot) -> Vec<String> {
        let (unlike_old, unlike_new) = (self.unlike_old(root), self.unlike_new(root));
        if unlike_old.len() < unlike_new.len() {
            unlike_old
        } else {
            unlike_new
        }
    }

    pub fn unlike_old(&self, root: &TestRoot) -> Vec<String> {
        differences(&self.before, root)
    }

    pub fn unlike_new(&self, root: &TestRoot) -> Vec<String> {
        differences(&self.after, root)
    }

    /// `apply` leads to the new state, `verify` finds nothing, and nothing of ours lies about.
    pub fn applied_afterwards(&self, root: &TestRoot) -> Vec<String> {
        let config = root.config(self.new.as_ref().unwrap());
        let mut problems = demand(root, &["apply", "--yes", config.path()], 0);
        problems.extend(self.unlike_new(root));
        problems.extend(demand(root, &["verify", config.path()], 0));
        problems.extend(left_over(root));
        problems
    }
}

/// What leads to the new state.
pub fn arguments<'a>(new: Option<&Value>, config: &'a Config) -> Vec<&'a str> {
    match new {
        Some(_) => vec!["apply", "--yes", config.path()],
        None => vec!["rollback", "--yes"],
    }
}

/// Runs the program; a complaint if it does not end with this code.
pub fn demand(root: &TestRoot, args: &[&str], code: i32) -> Vec<String> {
    let run = root.run(args);
    if run.code() == code {
        return Vec::new();
    }
    let said = format!("{}{}", run.out(), run.err());
    vec![format!("{} ended with {}: {said}", args[0], run.code())]
}

/// A root of its own with the same tree.
pub fn duplicate(tree: &Path) -> TestRoot {
    let root = TestRoot::empty();
    copy_tree(tree, root.dir());
    root
}

/// Kills a run at a call, which it must come to.
pub fn kill(root: &TestRoot, call: &str, nth: usize, args: &[&str]) {
    let run = traced(
        root,
        call,
        &[format!("{call}:signal=KILL:when={nth}")],
        args,
    );
    run.was_killed(call, nth);
}

/// Everything in a directory, into another.
pub fn copy_tree(from: &Path, to: &Path) {
    let status = Command::new("cp")
        .arg("-a")
        .arg(from.join("."))
        .arg(to)
        .status()
        .unwrap();
    assert!(status.success());
}

/// How a root differs from a tree. A managed file that shares its bytes with a staged one
/// would change with it, so that counts too.
pub fn differences(wanted: &Snapshot, root: &TestRoot) -> Vec<String> {
    let found = root.snapshot();
    let paths: BTreeSet<&String> = wanted.keys().chain(found.keys()).collect();
    let differ = paths
        .into_iter()
        .filter(|path| wanted.get(*path) != found.get(*path));
    let mut all: Vec<String> = differ
        .map(|path| {
            let (wanted, found) = (words(wanted.get(path)), words(found.get(path)));
            format!("{path} is {found} instead of {wanted}")
        })
        .collect();
    let files = found.iter().filter(|(_, entry)| entry.kind != 'd');
    let stats: Vec<(&String, fs::Metadata)> = files
        .map(|(path, _)| (path, fs::symlink_metadata(root.path(path)).unwrap()))
        .collect();
    for (path, stat) in &stats {
        let is_it = |one: &fs::Metadata| (one.dev(), one.ino()) == (stat.dev(), stat.ino());
        let of_the_tree = stats.iter().filter(|(_, one)| is_it(one));
        if stat.nlink() != of_the_tree.count() as u64 {
            all.push(format!("{path} has {} names", stat.nlink()));
        }
    }
    all
}

/// What is at a path, in short.
pub fn words(entry: Option<&Entry>) -> String {
    match entry {
        None => "missing".to_owned(),
        Some(e) => {
            let text = String::from_utf8_lossy(&e.content);
            let start: String = text.chars().take(40).collect();
            format!("{} {:04o} {:?} {start:?}", e.kind, e.mode, e.owner)
        }
    }
}

fn is_mount_point(root: &TestRoot, path: &str) -> bool {
    let device = |path| fs::symlink_metadata(path).unwrap().dev();
    let path = root.path(path);
    device(path.as_path()) != device(path.parent().unwrap())
}

/// What of ours lies beside marker, status, history, and the cache, in which a rollback keeps the reverted config.
pub fn left_over(root: &TestRoot) -> Vec<String> {
    let everything = root.everything();
    let ours = everything.keys().filter(|path| {
        path.rsplit('/').next().unwrap().contains("mco-rescue") || path.starts_with(STATE)
    });
    let unwanted = ours.filter(|path| {
        let below = path.strip_prefix(STATE).unwrap_or(path.as_str());
        let kept = matches!(below, "" | "/marker" | "/status.json");
        !(kept
            || below.starts_with("/history")
            || below.starts_with("/cache")
            || is_mount_point(root, path))
    });
    unwanted
        .map(|path| format!("{path} is left over"))
        .collect()
}

/// A finished run under strace.
pub struct Traced {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub out: String,
    pub err: String,
    pub calls: Vec<Call>,
}

impl Traced {
    /// Panics unless it was; then the call was never reached.
    pub fn was_killed(&self, call: &str, nth: usize) {
        let Self { signal, err, .. } = self;
        assert_eq!(
            *signal,
            Some(9),
            "{call} number {nth} was not reached: {err}"
        );
    }
}

/// How many calls have this name.
pub fn count(calls: &[Call], name: &str) -> usize {
    calls.iter().filter(|call| call.name == name).count()
}

/// Runs the program under strace, with these faults.
pub fn traced(root: &TestRoot, trace: &str, inject: &[String], args: &[&str]) -> Traced {
    // On a busy machine a run may last so long that its progress is shown.
    let words = [PROGRAM, "--quiet", "--root"].map(OsString::from);
    let mut words: Vec<OsString> = words.into();
    words.push(root.dir().into());
    words.extend(args.iter().map(OsString::from));
    traced_by(&["-f"], &words, trace, inject)
}

/// The same of any command line, and of none of its other threads and programs.
pub fn traced_on_first_thread(words: &[OsString], trace: &str, inject: &[String]) -> Traced {
    traced_by(&[], words, trace, inject)
}

fn traced_by(options: &[&str], words: &[OsString], trace: &str, inject: &[String]) -> Traced {
    let log = tempfile::NamedTempFile::new().unwrap();
    // With one processor the program looks at one thing after the other, so that a call has the same number every time.
    let mut command = Command::new("taskset");
    command
        .args(["--cpu-list", &one_processor(), "strace"])
        .args(options)
        .args(["-qq", "-s", "256", "-o"])
        .arg(log.path());
    command.args(["-e", &format!("trace={trace}")]);
    for fault in inject {
        command.args(["-e", &format!("inject={fault}")]);
    }
    command.args(words);
    let output = command.stdin(Stdio::null()).output().unwrap();
    Traced {
        code: output.status.code(),
        signal: output.status.signal(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
        calls: calls(&fs::read_to_string(log.path()).unwrap()),
    }
}

/// One of those that this process may use, in turns.
fn one_processor() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let allowed = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).unwrap();
    let allowed: Vec<usize> = (0..nix::sched::CpuSet::count())
        .filter(|processor| allowed.is_set(*processor).unwrap())
        .collect();
    let turn = NEXT.fetch_add(1, Ordering::Relaxed);
    allowed[turn % allowed.len()].to_string()
}

/// Works on everything with a few threads; gives the complaints of all of them.
pub fn on_threads<T: Sync>(all: &[T], work: impl Fn(&T) -> Vec<String> + Sync) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let problems = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // The first few tell what is wrong; the rest follows from them.
                    let found = work(one).into_iter().take(3);
                    problems.lock().unwrap().extend(found);
                }
            });
        }
    });
    problems.into_inner().unwrap()
}

/// Tries every point; the complaints of all of them are the test's.
pub fn try_each(what: &str, points: &[Point], work: impl Fn(&Point) -> Vec<String> + Sync) {
    let problems = on_threads(points, |point| {
        let (call, nth) = point;
        let complain = |problem| format!("{what} at {call} number {nth}: {problem}");
        work(point).into_iter().map(complain).collect()
    });
    let mut tally: BTreeMap<&str, usize> = BTreeMap::new();
    for (call, _) in points {
        *tally.entry(call).or_default() += 1;
    }
    say(&format!("{what}: {} points tried: {tally:?}", points.len()));
    assert!(
        problems.is_empty(),
        "{}",
        problems.join(
            "
"
        )
    );
}

/// The n-th call of a name, counted from one.
pub type Point = (&'static str, usize);

/// Every call of these names.
pub fn every(calls: &[Call], names: &[&'static str]) -> Vec<Point> {
    let of_one = |&name: &&'static str| (1..=count(calls, name)).map(move |nth| (name, nth));
    names.iter().flat_map(of_one).collect()
}
