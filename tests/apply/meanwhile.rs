//! What others do while a run is under way: change its targets, hold them open, or ask it to end.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::process::{Command, Stdio};

use crate::support::faults::left_over;
use crate::support::trace::{CHANGING, Call, Traced, can_trace, stopped, traced};
use crate::support::{
    self, Config, Lacks, Snapshot, TestRoot, file, is_root, machine_config, say, skip,
};
use serde_json::{Value, json};

const KUBECONFIG: &str = "etc/kubernetes/kubeconfig";

fn unit(text: &str) -> String {
    format!("[Service]\nExecStart=/bin/{text}\n[Install]\nWantedBy=multi-user.target\n")
}

fn config(name: &str, files: Value, unit_text: &str, hash: &str) -> Value {
    machine_config(
        name,
        json!({
            "storage": {"files": files},
            "systemd": {"units": [{"name": "a.service", "enabled": true, "contents": unit(unit_text)}]},
            "passwd": {"users": [
                {"name": "core", "sshAuthorizedKeys": [format!("ssh-ed25519 AAAA {name}")], "passwordHash": hash},
            ]},
        }),
    )
}

fn old() -> Value {
    let files = json!([
        file("/etc/x.conf", 0o644, "old\n"),
        file("/etc/stale.conf", 0o644, "soon gone\n"),
    ]);
    config("rendered-worker-old", files, "old", "$6$old$old")
}

fn new() -> Value {
    let files = json!([
        file("/etc/x.conf", 0o644, "new and longer\n"),
        file("/etc/new.conf", 0o644, "new\n"),
    ]);
    config("rendered-worker-new", files, "new", "$6$new$new")
}

/// A root in the old config, and the trace of an undisturbed run to the new one on its like.
struct Scene {
    root: TestRoot,
    config: Config,
    before: Snapshot,
}

impl Scene {
    fn new() -> Self {
        let root = TestRoot::new();
        root.apply(&old());
        root.chmod(KUBECONFIG, 0o644);
        let config = root.config(&new());
        let before = root.snapshot();
        Self {
            root,
            config,
            before,
        }
    }

    fn args(&self) -> [&str; 3] {
        ["apply", "--yes", self.config.path()]
    }

    /// An undisturbed run.
    fn clean(trace: &str) -> Traced {
        let scene = Self::new();
        let run = traced(&scene.root, trace, &[], &scene.args());
        assert_eq!(run.code, Some(0), "{}", run.said);
        run
    }

    /// Stops the run behind a call, lets somebody do something, and goes on.
    fn disturbed(&self, (call, nth): (&str, usize), disturb: impl FnOnce(&TestRoot)) -> Traced {
        let run = stopped(&self.root, &[(call, nth)], &self.args());
        disturb(&self.root);
        run.resume()
    }

    /// The run has refused, with this exit code and path, and nothing but somebody's change is to be seen.
    fn is_refused(&self, run: &Traced, code: i32, path: &str, theirs: &Theirs) {
        assert_eq!(run.code, Some(code), "{path}: {}", run.said);
        let flat: String = run.said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains(&format!("/{path}")), "{path}: {flat}");
        assert!(
            flat.contains("changed by another program"),
            "{path}: {flat}"
        );
        assert_eq!(
            theirs.of(&self.root),
            theirs.wanted,
            "{path} is not theirs any more: {flat}"
        );
        let (mut before, mut now) = (self.before.clone(), self.root.snapshot());
        before.remove(path);
        now.remove(path);
        // What the scene itself made: the lock of the account files.
        let differ: Vec<_> = before
            .keys()
            .chain(now.keys())
            .filter(|path| before.get(*path) != now.get(*path))
            .collect();
        assert!(differ.is_empty(), "{path}: {differ:?}");
        assert_eq!(left_over(&self.root), [""; 0], "{path}");
        assert_eq!(
            self.root.run(&["recover"]).ok().out(),
            "Nothing to recover.\n"
        );
    }
}

/// What somebody made of a path.
struct Theirs {
    path: &'static str,
    wanted: Option<support::Entry>,
}

impl Theirs {
    fn seen(root: &TestRoot, path: &'static str) -> Self {
        let mut theirs = Self { path, wanted: None };
        theirs.wanted = theirs.of(root);
        theirs
    }

    fn of(&self, root: &TestRoot) -> Option<support::Entry> {
        root.everything().get(self.path).cloned()
    }
}

/// A change that somebody makes to a path.
type Change = fn(&TestRoot, &str);

fn written_in_place(root: &TestRoot, path: &str) {
    let mut file = OpenOptions::new()
        .write(true)
        .open(root.path(path))
        .unwrap();
    file.write_all(b"THEIRS").unwrap();
}

fn appended(root: &TestRoot, path: &str) {
    let mut file = OpenOptions::new()
        .append(true)
        .open(root.path(path))
        .unwrap();
    file.write_all(b"theirs\n").unwrap();
}

fn renamed_over(root: &TestRoot, path: &str) {
    let beside = root.path(&format!("{path}.theirs"));
    fs::write(&beside, "of an editor\n").unwrap();
    fs::rename(beside, root.path(path)).unwrap();
}

fn removed(root: &TestRoot, path: &str) {
    root.remove(path);
}

fn made_private(root: &TestRoot, path: &str) {
    root.chmod(path, 0o640);
}

fn made_a_link(root: &TestRoot, path: &str) {
    root.remove(path);
    root.link(path, "/etc/machine-id");
}

fn made_a_directory(root: &TestRoot, path: &str) {
    fs::remove_file(root.path(path)).ok();
    fs::create_dir(root.path(path)).unwrap();
}

fn made(root: &TestRoot, path: &str) {
    root.write(path, "theirs\n");
}

fn led_elsewhere(root: &TestRoot, path: &str) {
    root.remove(path);
    root.link(path, "../theirs.service");
}

const WANTED: &str = "etc/systemd/system/multi-user.target.wants/a.service";
const A_UNIT: &str = "etc/systemd/system/a.service";

/// One change for each way in which somebody may be faster, and each kind of step.
const CHANGES: [(&str, Change); 19] = [
    ("etc/x.conf", written_in_place),
    ("etc/x.conf", appended),
    ("etc/x.conf", renamed_over),
    ("etc/x.conf", removed),
    ("etc/x.conf", made_private),
    ("etc/x.conf", made_a_link),
    ("etc/x.conf", made_a_directory),
    ("etc/stale.conf", written_in_place),
    ("etc/stale.conf", renamed_over),
    ("etc/stale.conf", made_a_directory),
    ("etc/new.conf", made),
    ("etc/new.conf", made_a_directory),
    (A_UNIT, appended),
    (A_UNIT, renamed_over),
    ("etc/shadow", appended),
    ("etc/shadow", renamed_over),
    (KUBECONFIG, made_private),
    ("etc/machine-config-daemon/currentconfig", renamed_over),
    ("home/core/.ssh/authorized_keys.d/ignition", appended),
];

#[test]
fn a_target_changed_between_plan_and_staging_is_refused_before_anything_changes() {
    if !can_trace() {
        return;
    }
    let clean = Scene::clean("renameat");
    let intent = clean.nth("renameat", |line| line.contains(".intent.json.new"));
    let mut tried = 0;
    for (path, change) in CHANGES {
        // What is not there yet is looked for when its name changes.
        if path == "etc/new.conf" {
            continue;
        }
        let scene = Scene::new();
        let mut theirs = None;
        let run = scene.disturbed(("renameat", intent), |root| {
            change(root, path);
            theirs = Some(Theirs::seen(root, path));
        });
        scene.is_refused(&run, 1, path, &theirs.unwrap());
        tried += 1;
    }
    say(&format!(
        "changed between plan and staging: {tried} changes refused"
    ));
}

#[test]
fn a_target_changed_while_it_is_kept_is_refused_before_anything_changes() {
    if !can_trace() {
        return;
    }
    let clean = Scene::clean("linkat");
    let mut tried = 0;
    for (path, change) in CHANGES {
        let name = format!("\"{}\"", path.rsplit('/').next().unwrap());
        let links = clean.calls.iter().enumerate();
        let links = links.filter(|(_, call)| call.line.contains(&name));
        for (index, _) in links {
            let scene = Scene::new();
            let mut theirs = None;
            let run = scene.disturbed(("linkat", index + 1), |root| {
                change(root, path);
                theirs = Some(Theirs::seen(root, path));
            });
            assert_eq!(run.code, Some(1), "{path}, link {index}: {}", run.said);
            scene.is_refused(&run, 1, path, &theirs.unwrap());
            tried += 1;
        }
    }
    assert!(tried >= 20, "only {tried}");
    say(&format!(
        "changed while it was kept: {tried} changes refused"
    ));
}

#[test]
fn a_target_changed_between_journal_and_rename_is_refused_and_the_run_undone() {
    if !can_trace() {
        return;
    }
    let clean = Scene::clean("renameat");
    let journal = clean.nth("renameat", |line| line.contains(".journal.json.new"));
    for (path, change) in CHANGES {
        let scene = Scene::new();
        let mut theirs = None;
        let run = scene.disturbed(("renameat", journal), |root| {
            change(root, path);
            theirs = Some(Theirs::seen(root, path));
        });
        scene.is_refused(&run, 4, path, &theirs.unwrap());
    }
    say(&format!(
        "changed between journal and rename: {} changes refused and undone",
        CHANGES.len()
    ));
}

#[test]
fn an_enablement_link_changed_meanwhile_is_refused_and_the_run_undone() {
    if !can_trace() {
        return;
    }
    let disable = || {
        let mut config = new();
        config["spec"]["config"]["systemd"]["units"][0]["enabled"] = json!(false);
        config
    };
    let mut scene = Scene::new();
    scene.config = scene.root.config(&disable());
    let clean = traced(&scene.root, "renameat", &[], &scene.args());
    assert_eq!(clean.code, Some(0), "{}", clean.said);
    let journal = clean.nth("renameat", |line| line.contains(".journal.json.new"));
    let mut scene = Scene::new();
    scene.config = scene.root.config(&disable());
    let mut theirs = None;
    let run = scene.disturbed(("renameat", journal), |root| {
        led_elsewhere(root, WANTED);
        theirs = Some(Theirs::seen(root, WANTED));
    });
    scene.is_refused(&run, 4, WANTED, &theirs.unwrap());
}

#[test]
fn somebody_who_holds_the_old_file_open_writes_to_the_old_file_only() {
    let scene = Scene::new();
    let mut held = OpenOptions::new()
        .read(true)
        .append(true)
        .open(scene.root.path("etc/x.conf"))
        .unwrap();
    scene.root.run(&scene.args()).ok();
    held.write_all(b"later\n").unwrap();
    assert_eq!(scene.root.read("etc/x.conf"), "new and longer\n");
    scene.root.run(&["verify"]).ok();
    // The history has the same old file, which is not what it was: that is said instead of bringing it back.
    let before = scene.root.snapshot();
    let run = scene.root.run(&["rollback", "--yes"]).exits(1);
    assert!(run.err().contains("/etc/x.conf"), "{}", run.err());
    assert_eq!(scene.root.snapshot(), before);
    assert_eq!(left_over(&scene.root), [""; 0]);
}

#[test]
fn a_mapped_file_stays_for_whoever_has_mapped_it() {
    let scene = Scene::new();
    let script = "import mmap, sys\n\
                  with open(sys.argv[1], 'r+b') as f: m = mmap.mmap(f.fileno(), 0)\n\
                  print(m[:].decode(), end='', flush=True)\n\
                  sys.stdin.readline()\n\
                  print(m[:].decode(), end='', flush=True)\n";
    let mut child = Command::new("python3")
        .args(["-c", script])
        .arg(scene.root.path("etc/x.conf"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "old\n");
    scene.root.run(&scene.args()).ok();
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "old\n");
    assert!(child.wait().unwrap().success());
    assert_eq!(scene.root.read("etc/x.conf"), "new and longer\n");
}

#[test]
fn a_program_that_runs_is_replaced_and_runs_on() {
    let root = TestRoot::new();
    root.write("usr/local/bin/tool", "");
    let tool = root.path("usr/local/bin/tool");
    fs::copy("/bin/sleep", &tool).unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    let Ok(mut child) = Command::new(&tool).arg("600").spawn() else {
        skip(Lacks::Machine, "the scratch directory is mounted noexec");
        return;
    };
    // A writer in place would fail here, as others do.
    let in_place = OpenOptions::new().write(true).open(&tool).unwrap_err();
    assert_eq!(
        in_place.raw_os_error(),
        Some(nix::errno::Errno::ETXTBSY as i32)
    );
    root.apply(&machine_config(
        "rendered-worker-a",
        json!({"storage": {"files": [file("/usr/local/bin/tool", 0o755, "#!/bin/sh\n")]}}),
    ));
    assert!(child.try_wait().unwrap().is_none(), "it was ended");
    assert_eq!(root.read("usr/local/bin/tool"), "#!/bin/sh\n");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// A bare config that appends to a file of a user, who makes it a link to somebody's secret between two looks.
#[test]
fn a_link_put_in_place_of_a_file_between_two_looks_is_not_read_through() {
    if !is_root() {
        skip(Lacks::Root, "giving files to users needs root");
        return;
    }
    if !can_trace() {
        return;
    }
    const PROFILE: &str = "home/core/.profile";
    let entry = json!({"path": format!("/{PROFILE}"), "append": [{"source": "data:,appended%0A"}]});
    let config = json!({"ignition": {"version": "3.4.0"}, "storage": {"files": [entry]}});
    let furnished = || {
        let root = TestRoot::new();
        root.write(PROFILE, "of core\n");
        chown(root.path(PROFILE), Some(1000), Some(1000)).unwrap();
        root.write("etc/shadow", "root:$6$canary$canary:19000:0:99999:7:::\n");
        root
    };
    let root = furnished();
    let beside = root.config(&config);
    let args = ["apply", "--yes", beside.path()];
    let clean = traced(&root, "openat,renameat", &[], &args);
    assert_eq!(clean.code, Some(0), "{}", clean.said);
    assert_eq!(root.read(PROFILE), "of core\nappended\n");
    // The first look opens the file for its digest. Behind that it is a link, and the file again before it is kept.
    let look = clean.nth("openat", |line| line.contains(".profile"));
    let intent = clean.nth("renameat", |line| line.contains(".intent.json.new"));
    let root = furnished();
    let run = stopped(&root, &[("openat", look), ("renameat", intent)], &args);
    let (profile, aside) = (root.path(PROFILE), root.path("home/core/aside"));
    fs::rename(&profile, &aside).unwrap();
    symlink("/etc/shadow", &profile).unwrap();
    lchown(&profile, Some(1000), Some(1000)).unwrap();
    let run = run.go_on();
    fs::rename(&aside, &profile).unwrap();
    let run = run.resume();
    let text = root.read(PROFILE);
    assert!(
        !text.contains("canary") && !run.said.contains("canary"),
        "{text}{}",
        run.said
    );
}

/// A run that gets a signal at one of its calls.
fn signalled(signal: &str, (call, nth): (&str, usize), args: &[&str], scene: &Scene) -> Traced {
    let fault = format!("{call}:signal={signal}:when={nth}");
    traced(&scene.root, call, &[fault], args)
}

/// Every call of an undisturbed run, with its name, number, and whether the barrier before the journal is behind it.
fn points(clean: &Traced) -> Vec<(String, usize, bool)> {
    let is_journal =
        |call: &Call| call.name == "renameat" && call.line.contains(".journal.json.new");
    let journal = clean.calls.iter().position(is_journal).unwrap();
    let mut staging = clean.calls.iter().take(journal);
    let barrier = staging.rposition(|call| call.name == "syncfs").unwrap();
    let mut all = Vec::new();
    for (index, call) in clean.calls.iter().enumerate() {
        let before = clean.calls.iter().take(index);
        let nth = before.filter(|c| c.name == call.name).count() + 1;
        all.push((call.name.clone(), nth, index > barrier));
    }
    all
}

/// What ends a program, without what it is told to ignore from here (`nohup`): that ends nothing.
fn signals() -> Vec<(&'static str, i32)> {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = u64::from_str_radix(ignored.unwrap().trim(), 16).unwrap();
    let mut all = vec![("TERM", 15), ("INT", 2), ("HUP", 1), ("QUIT", 3)];
    all.retain(|(_, number)| ignored & (1 << (number - 1)) == 0);
    all
}

#[test]
fn asked_to_end_while_staging_it_leaves_nothing_and_later_it_finishes_first() {
    if !can_trace() {
        return;
    }
    let trace = CHANGING.join(",");
    let clean = Scene::clean(&trace);
    let (mut early, mut late) = (0, 0);
    let signals = signals();
    for (index, (call, nth, journalled)) in points(&clean).into_iter().enumerate() {
        // Every call of staging; of the rest, which is one stretch, every other.
        if journalled && !index.is_multiple_of(2) {
            continue;
        }
        let (name, number) = signals[index % signals.len()];
        let scene = Scene::new();
        let run = signalled(name, (&call, nth), &scene.args(), &scene);
        let at = format!("SIG{name} at {call} number {nth}: {}", run.said);
        assert_eq!(run.signal, Some(number), "{at}");
        assert_eq!(left_over(&scene.root), [""; 0], "{at}");
        let now = scene.root.snapshot();
        let status = scene.root.run(&["status", "--output", "json"]).ok().json();
        if journalled {
            scene.root.run(&["verify", scene.config.path()]).ok();
            assert_eq!(scene.root.read("etc/new.conf"), "new\n", "{at}");
            assert_eq!(
                status["last_run"]["config"]["name"], "rendered-worker-new",
                "{at}"
            );
            late += 1;
        } else {
            assert_eq!(now, scene.before, "{at}");
            assert!(run.said.contains("nothing was changed"), "{at}");
            assert_eq!(status["history"].as_array().unwrap().len(), 1, "{at}");
            early += 1;
        }
        assert_eq!(status["pending"], "nothing", "{at}");
    }
    assert!(early > 10 && late > 10, "{early} and {late}");
    say(&format!(
        "signals: {early} while staging, {late} behind the journal"
    ));
}

#[test]
fn a_signal_that_is_ignored_ends_nothing() {
    if !can_trace() {
        return;
    }
    let scene = Scene::new();
    let clean = Scene::clean("linkat");
    assert!(clean.calls.len() > 2);
    let log = tempfile::NamedTempFile::new().unwrap();
    // As under nohup.
    let script = "trap '' HUP; exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh", "strace", "-f", "-qq", "-o"]);
    command.arg(log.path());
    command.args([
        "-e",
        "trace=linkat",
        "-e",
        "inject=linkat:signal=HUP:when=2",
    ]);
    command
        .arg(support::PROGRAM)
        .arg("--root")
        .arg(scene.root.dir());
    let output = command.args(scene.args()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(scene.root.read("etc/new.conf"), "new\n");
}

#[test]
fn recovery_and_rollback_asked_to_end_finish_first() {
    if !can_trace() {
        return;
    }
    let renames = Scene::clean("renameat");
    let journal = renames.nth("renameat", |line| line.contains(".journal.json.new"));
    let half_way = || {
        let scene = Scene::new();
        let run = signalled("KILL", ("renameat", journal + 3), &scene.args(), &scene);
        assert_eq!(run.signal, Some(9));
        scene
    };
    let mut tried = 0;
    for args in [&["recover"][..], &["recover", "--back"]] {
        let clean = traced(&half_way().root, "renameat,renameat2,unlinkat", &[], args);
        assert_eq!(clean.code, Some(0), "{}", clean.said);
        for (index, call) in clean.calls.iter().enumerate() {
            let earlier = clean.calls.iter().take(index);
            let nth = earlier.filter(|c| c.name == call.name).count() + 1;
            let scene = half_way();
            let run = signalled("TERM", (&call.name, nth), args, &scene);
            let at = format!("{args:?} at {} number {nth}: {}", call.name, run.said);
            assert_eq!(run.signal, Some(15), "{at}");
            assert_eq!(left_over(&scene.root), [""; 0], "{at}");
            assert_eq!(
                scene.root.run(&["recover"]).ok().out(),
                "Nothing to recover.\n",
                "{at}"
            );
            let done = scene.root.exists("etc/new.conf");
            assert_eq!(done, args.len() == 1, "{at}");
            tried += 1;
        }
    }
    let applied = || {
        let scene = Scene::new();
        scene.root.run(&scene.args()).ok();
        scene
    };
    let args = ["rollback", "--yes"];
    let clean = traced(&applied().root, "renameat", &[], &args);
    let journal = clean.nth("renameat", |line| line.contains(".journal.json.new"));
    for nth in journal..=clean.calls.len() {
        let scene = applied();
        let run = signalled("TERM", ("renameat", nth), &args, &scene);
        assert_eq!(run.signal, Some(15), "rollback at {nth}: {}", run.said);
        assert_eq!(left_over(&scene.root), [""; 0]);
        let mut now = scene.root.snapshot();
        let mut before = scene.before.clone();
        for tree in [&mut now, &mut before] {
            tree.retain(|path, _| path != "etc/.pwd.lock");
        }
        assert_eq!(now, before, "rollback at {nth}");
        tried += 1;
    }
    say(&format!("signals to recover and rollback: {tried}"));
}
