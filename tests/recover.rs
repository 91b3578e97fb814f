//! A run that is killed or meets an error at any system call leaves every path as it was or as
//! it should be, and the next run finishes or undoes it; what cannot be told apart is left alone.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    missing_docs
)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use support::{Entry, PROGRAM, Snapshot, TestRoot, file, machine_config};
use tempfile::TempDir;

/// Calls that change names, attributes or durability; a run is killed at them.
const CHANGING: [&str; 9] = [
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
const STATE: &str = "var/lib/mco-rescue";

/// Two states of one root: an old config applied, and what the new one makes of it.
struct Scene {
    template: TempDir,
    new: Value,
    before: Snapshot,
    after: Snapshot,
    /// The trace of an undisturbed run from the one to the other.
    clean: Vec<Call>,
}

impl Scene {
    /// `None`, said aloud, where nothing can be traced.
    fn new() -> Option<Self> {
        let works = Command::new("strace")
            .args(["-o", "/dev/null", "true"])
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
        if !works {
            eprintln!("SKIP: strace is not installed or may not trace here");
            return None;
        }
        let root = furnished();
        root.apply(&old_config());
        root.chmod("etc/kubernetes/kubeconfig", 0o644);
        let template = tempfile::tempdir().unwrap();
        copy_tree(root.dir(), template.path());
        let before = root.snapshot();
        let new = new_config();
        let config = root.config(&new);
        let clean = traced(
            &root,
            &CHANGING.join(","),
            &[],
            &["apply", "--yes", config.path()],
        );
        assert_eq!(clean.code(), Some(0), "{}", clean.err);
        let after = root.snapshot();
        every_kind_is_there(&before, &after);
        assert_eq!(left_over(&root), [""; 0]);
        Some(Self {
            template,
            new,
            before,
            after,
            clean: clean.calls,
        })
    }

    /// A root in the old state.
    fn root(&self) -> TestRoot {
        let root = TestRoot::new();
        for entry in fs::read_dir(root.dir()).unwrap() {
            fs::remove_dir_all(entry.unwrap().path()).unwrap();
        }
        copy_tree(self.template.path(), root.dir());
        root
    }

    fn count(&self, call: &str) -> usize {
        count(&self.clean, call)
    }

    /// Which call of this name matches, counted from one.
    fn nth(&self, call: &str, matches: impl Fn(&str) -> bool) -> usize {
        let mut same = self.clean.iter().filter(|c| c.name == call);
        same.position(|c| matches(&c.line)).unwrap() + 1
    }

    /// A root on which the run to the new state was killed at a call.
    fn killed_at(&self, call: &str, nth: usize) -> TestRoot {
        let root = self.root();
        self.kill(&root, call, nth);
        root
    }

    fn kill(&self, root: &TestRoot, call: &str, nth: usize) {
        let config = root.config(&self.new);
        let run = traced(
            root,
            call,
            &[format!("{call}:signal=KILL:when={nth}")],
            &["apply", "--yes", config.path()],
        );
        assert_eq!(
            run.signal,
            Some(9),
            "{call} number {nth} was not reached: {}",
            run.err
        );
    }

    /// A root whose run was killed in the middle of its renames.
    fn half_way(&self) -> TestRoot {
        let first = self.nth("renameat", |line| line.contains("\"new-"));
        let last = self.nth("renameat", |line| line.contains(".committed.new"));
        let root = self.killed_at("renameat", usize::midpoint(first, last));
        assert!(root.exists("var/lib/mco-rescue/journal.json"));
        let now = root.snapshot();
        assert_ne!(now, self.before);
        assert_ne!(now, self.after);
        root
    }

    /// Every path holds its old or its new object. A directory may still wait for its mode.
    fn torn(&self, root: &TestRoot) -> Vec<String> {
        let now = root.snapshot();
        let all = now
            .keys()
            .chain(self.before.keys())
            .chain(self.after.keys());
        let torn = all.filter(|path| {
            let (old, new) = (self.before.get(*path), self.after.get(*path));
            let found = now.get(*path);
            let unfinished = |e: &Entry| e.kind == 'd' && new.is_some_and(|n| n.kind == 'd');
            found != old && found != new && !found.is_some_and(unfinished)
        });
        torn.map(|path| format!("{path} is torn: {}", words(now.get(path))))
            .collect()
    }

    /// The whole tree is the old or the new one.
    fn between(&self, root: &TestRoot) -> Vec<String> {
        let (from_old, from_new) = (self.from_old(root), self.from_new(root));
        if from_old.len() < from_new.len() {
            from_old
        } else {
            from_new
        }
    }

    fn from_old(&self, root: &TestRoot) -> Vec<String> {
        differences(&self.before, root)
    }

    fn from_new(&self, root: &TestRoot) -> Vec<String> {
        differences(&self.after, root)
    }

    /// `apply` leads to the new state, `verify` finds nothing, and nothing of ours lies about.
    fn applied_afterwards(&self, root: &TestRoot) -> Vec<String> {
        let config = root.config(&self.new);
        let mut problems = demand(root, &["apply", "--yes", config.path()], 0);
        problems.extend(self.from_new(root));
        problems.extend(demand(root, &["verify", config.path()], 0));
        problems.extend(left_over(root));
        problems
    }
}

/// Runs the program; a complaint if it does not end with this code.
fn demand(root: &TestRoot, args: &[&str], code: i32) -> Vec<String> {
    let run = root.run(args);
    if run.code() == code {
        return Vec::new();
    }
    let said = format!("{}{}", run.out(), run.err());
    vec![format!("{} ended with {}: {said}", args[0], run.code())]
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

fn copy_tree(from: &Path, to: &Path) {
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
fn differences(wanted: &Snapshot, root: &TestRoot) -> Vec<String> {
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
    for (path, _) in found.iter().filter(|(_, entry)| entry.kind != 'd') {
        let links = fs::symlink_metadata(root.path(path)).unwrap().nlink();
        if links != 1 {
            all.push(format!("{path} has {links} names"));
        }
    }
    all
}

fn words(entry: Option<&Entry>) -> String {
    match entry {
        None => "missing".to_owned(),
        Some(e) => {
            let text = String::from_utf8_lossy(&e.content);
            let start: String = text.chars().take(40).collect();
            format!("{} {:04o} {:?} {start:?}", e.kind, e.mode, e.owner)
        }
    }
}

/// What of ours lies beside marker, status and history.
fn left_over(root: &TestRoot) -> Vec<String> {
    let everything = root.everything();
    let ours = everything.keys().filter(|path| {
        path.rsplit('/').next().unwrap().contains("mco-rescue") || path.starts_with(STATE)
    });
    let unwanted = ours.filter(|path| {
        let below = path.strip_prefix(STATE).unwrap_or(path.as_str());
        !(matches!(below, "" | "/marker" | "/status.json") || below.starts_with("/history"))
    });
    unwanted.map(|path| format!("{path} is left over")).collect()
}

#[derive(Clone)]
struct Call {
    name: String,
    line: String,
}

struct Traced {
    status: Option<i32>,
    signal: Option<i32>,
    out: String,
    err: String,
    calls: Vec<Call>,
}

impl Traced {
    fn code(&self) -> Option<i32> {
        self.status
    }

    /// The lines that `main` printed about the failure.
    fn error_lines(&self) -> Vec<&str> {
        let lines = self.err.lines();
        lines.filter(|line| line.starts_with("error: ")).collect()
    }
}

fn count(calls: &[Call], name: &str) -> usize {
    calls.iter().filter(|call| call.name == name).count()
}

/// Runs the program under strace, with these faults.
fn traced(root: &TestRoot, trace: &str, inject: &[String], args: &[&str]) -> Traced {
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new("strace");
    command
        .args(["-f", "-qq", "-s", "256", "-o"])
        .arg(log.path());
    command.args(["-e", &format!("trace={trace}")]);
    for fault in inject {
        command.args(["-e", &format!("inject={fault}")]);
    }
    command
        .arg(PROGRAM)
        .arg("--root")
        .arg(root.dir())
        .args(args);
    let output = command.stdin(Stdio::null()).output().unwrap();
    Traced {
        status: output.status.code(),
        signal: output.status.signal(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
        calls: calls(&fs::read_to_string(log.path()).unwrap()),
    }
}

/// Lines like `1234 renameat(5, "new-3", 7, "x.conf") = 0`.
fn calls(log: &str) -> Vec<Call> {
    let call = |line: &str| {
        let (_, rest) = line.split_once(char::is_whitespace)?;
        let rest = rest.trim_start();
        let (name, _) = rest.split_once('(')?;
        let is_call = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        is_call.then(|| Call {
            name: name.to_owned(),
            line: rest.to_owned(),
        })
    };
    log.lines().filter_map(call).collect()
}

/// Tries every point on a few threads; the complaints of all of them are the test's.
fn try_each(what: &str, points: &[Point], work: impl Fn(&Point) -> Vec<String> + Sync) {
    let next = AtomicUsize::new(0);
    let problems = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some(point) = points.get(next.fetch_add(1, Ordering::Relaxed)) {
                    for problem in work(point) {
                        let (call, nth) = point;
                        let mut problems = problems.lock().unwrap();
                        problems.push(format!("{what} at {call} number {nth}: {problem}"));
                    }
                }
            });
        }
    });
    let mut tally: BTreeMap<&str, usize> = BTreeMap::new();
    for (call, _) in points {
        *tally.entry(call).or_default() += 1;
    }
    eprintln!("{what}: {} points tried: {tally:?}", points.len());
    let problems = problems.into_inner().unwrap();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// The n-th call of a name, counted from one.
type Point = (&'static str, usize);

/// All calls of the kinds that order everything, and a spread of the rest.
fn points(calls: &[Call]) -> Vec<Point> {
    let mut points = Vec::new();
    for call in CHANGING {
        let total = count(calls, call);
        let every = if matches!(call, "linkat" | "unlinkat") {
            3
        } else {
            1
        };
        points.extend(
            (1..=total)
                .filter(|n| n % every == 1 % every || *n == total)
                .map(|n| (call, n)),
        );
    }
    points
}

#[test]
fn a_run_killed_at_any_call_is_finished_or_undone() {
    let Some(scene) = Scene::new() else { return };
    for call in CHANGING {
        assert!(scene.count(call) > 0, "the run makes no {call}");
    }
    try_each("killed", &points(&scene.clean), |&(call, nth)| {
        let root = scene.killed_at(call, nth);
        let mut problems = scene.torn(&root);
        problems.extend(demand(&root, &["recover"], 0));
        problems.extend(scene.between(&root));
        problems.extend(scene.applied_afterwards(&root));
        problems
    });
}
