//! Somebody who swaps directories and links while a run is under way, mounts in the root, and forged state: nothing
//! outside the root is read or changed.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::notify::{Watcher, uses};
use crate::support::trace::{self, can_trace};
use crate::support::{
    self, Lacks, PROGRAM, Run, STATE, TestRoot, file, is_root, machine_config, say, skip, unsealed,
};
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use serde_json::{Value, json};
use tempfile::TempDir;

const CANARY: &str = "canary-that-nobody-may-read";
const CLIMB: &str = "../../../../../../../../../..";

/// What a path outside is, change time and number of names included, without opening it.
type Stat = (u32, u32, u32, u64, u64, (i64, i64), (i64, i64), u64);

fn stat(path: &Path) -> Stat {
    let meta = fs::symlink_metadata(path).unwrap();
    let modified = (meta.mtime(), meta.mtime_nsec());
    let changed = (meta.ctime(), meta.ctime_nsec());
    let owner = (meta.uid(), meta.gid());
    (
        meta.mode(),
        owner.0,
        owner.1,
        meta.size(),
        meta.nlink(),
        modified,
        changed,
        meta.ino(),
    )
}

fn stats(top: &Path) -> BTreeMap<PathBuf, Stat> {
    let mut all = BTreeMap::from([(top.to_owned(), stat(top))]);
    let mut todo = vec![top.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let found = stat(&path);
            if path.is_dir() && !path.is_symlink() {
                todo.push(path.clone());
            }
            all.insert(path, found);
        }
    }
    all
}

/// A tree outside of the root that has every name that a run may look for; it must stay as it is, and unread.
struct Outside {
    dir: TempDir,
    before: BTreeMap<PathBuf, Stat>,
    watcher: Watcher,
}

/// Names that the configs below use, and those of our own state.
const NAMES: [&str; 14] = [
    "x.conf",
    "stale.conf",
    "sub/x.conf",
    "a.service",
    "a.service.d/10-a.conf",
    "authorized_keys.d/ignition",
    ".ssh/authorized_keys.d/ignition",
    "currentconfig",
    "etc/x.conf.mcdorig",
    "journal.json",
    "status.json",
    "shadow",
    "tree/deep/file",
    ".profile",
];

impl Outside {
    fn new() -> Self {
        let dir = tempfile::tempdir_in("/dev/shm")
            .or_else(|_| tempfile::tempdir())
            .unwrap();
        for name in NAMES {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{CANARY}\n")).unwrap();
        }
        fs::write(dir.path().join("marker"), "mco-rescue state directory\n").unwrap();
        let before = stats(dir.path());
        let watcher = Watcher::of_tree(uses(), dir.path());
        Self {
            dir,
            before,
            watcher,
        }
    }

    fn path(&self) -> &str {
        self.dir.path().to_str().unwrap()
    }

    /// Neither opened, read, listed nor changed since the last look.
    fn is_untouched(&self, what: &str) {
        assert_eq!(self.watcher.seen(), [""; 0], "{what}");
        assert_eq!(stats(self.dir.path()), self.before, "{what}");
        // Our own look has listed the directories.
        self.watcher.seen();
    }

    /// As it was, though perhaps seen: it was mounted in the root.
    fn is_unchanged(&self, what: &str) {
        let attributes = stats(self.dir.path());
        assert_eq!(attributes, self.before, "{what}");
        self.watcher.seen();
    }

    /// The links that lead here, by every way that a link can.
    fn links(&self, below: &str) -> Vec<String> {
        let below = below.trim_end_matches('/');
        vec![
            format!("{}{below}", self.path()),
            format!("{CLIMB}{}{below}", self.path()),
            format!("/proc/self/root{}{below}", self.path()),
            format!("/proc/1/root{}{below}", self.path()),
            format!(
                "/proc/{}/cwd/../..{}{below}",
                std::process::id(),
                self.path()
            ),
        ]
    }
}

/// While it lives, two names change places as fast as they can.
fn swapping<T>(one: &Path, other: &Path, work: impl FnOnce() -> T) -> (T, usize) {
    let stop = AtomicBool::new(false);
    let swaps = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let flags = RenameFlags::RENAME_EXCHANGE;
                if renameat2(AT_FDCWD, one, AT_FDCWD, other, flags).is_ok() {
                    swaps.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        stop.store(true, Ordering::Relaxed);
        let result = result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (result, swaps.load(Ordering::Relaxed))
    })
}

fn unit(text: &str) -> String {
    format!("[Service]\nExecStart=/bin/{text}\n[Install]\nWantedBy=multi-user.target\n")
}

/// A config with every kind of step; odd and even ones differ in all of them.
fn rendered(number: usize) -> Value {
    let text = format!("of config {number}\n");
    let even = number.is_multiple_of(2);
    let mut files = vec![
        file("/etc/race/x.conf", 0o644, &text),
        file(
            "/etc/race/sub/x.conf",
            if even { 0o600 } else { 0o644 },
            &text,
        ),
        file("/etc/x.conf", 0o644, &text),
    ];
    if even {
        files.push(file("/etc/race/stale.conf", 0o644, &text));
    }
    machine_config(
        &format!("rendered-worker-{number}"),
        json!({
            "storage": {"files": files},
            "systemd": {"units": [
                {"name": "a.service", "enabled": even, "contents": unit(&text),
                 "dropins": [{"name": "10-a.conf", "contents": format!("# {text}")}]},
                {"name": "masked.service", "mask": even},
            ]},
            "passwd": {"users": [{
                "name": "core",
                "sshAuthorizedKeys": [format!("ssh-ed25519 AAAA {number}")],
                "passwordHash": format!("$6$salt${number}"),
            }]},
        }),
    )
}

/// A bare config with directories, links and files that take the place of what is there.
fn bare(number: usize) -> Value {
    let mut over = file("/srv/race/over", 0o640, &format!("{number}\n"));
    over["overwrite"] = json!(true);
    let mut tree = file("/srv/race/tree", 0o640, "instead\n");
    tree["overwrite"] = json!(true);
    json!({
        "ignition": {"version": "3.3.0"},
        "storage": {
            "files": [over, tree,
                {"path": "/srv/race/appended", "append": [{"source": format!("data:,{number}%0A")}]}],
            "directories": [{"path": format!("/srv/race/dir{}", number % 2), "mode": 448, "overwrite": true}],
            "links": [
                {"path": "/srv/race/soft", "target": "over", "overwrite": true},
                {"path": "/srv/race/hard", "target": "/srv/race/over", "hard": true, "overwrite": true},
            ],
        },
    })
}

fn furnished() -> TestRoot {
    let root = TestRoot::new();
    root.write("usr/etc/race/x.conf", "of the OS\n");
    root.write("etc/race/x.conf", "of the OS\n");
    root.write("etc/race/sub/x.conf", "of the OS\n");
    root.write("usr/etc/x.conf", "of the OS\n");
    root.write("etc/x.conf", "of the OS\n");
    root.write("srv/race/over", "old\n");
    root.write("srv/race/appended", "old\n");
    root.write("srv/race/tree/deep/file", "in a tree\n");
    root.write("home/core/.profile", "of core\n");
    fs::create_dir_all(root.path("home/core/.ssh/authorized_keys.d")).unwrap();
    fs::create_dir_all(root.path("etc/systemd/system/multi-user.target.wants")).unwrap();
    fs::create_dir_all(root.path("etc/machine-config-daemon")).unwrap();
    fs::create_dir_all(root.path("proc")).unwrap();
    root
}

/// How often a race is run, at most, and for how long.
const ROUNDS: usize = 40;
const TIME: Duration = Duration::from_millis(700);

/// Runs everything that changes something, over and over, while a directory of the root and a link that leads
/// outside change places. Gives how many runs and swaps there were, and how many of the runs worked.
fn raced(at: &str, target: &str, outside: &Outside) -> (usize, usize, usize) {
    let root = furnished();
    let scratch = tempfile::tempdir_in(root.dir()).unwrap();
    fs::create_dir_all(root.path(at)).unwrap();
    let link = scratch.path().join("link");
    symlink(target, &link).unwrap();
    if is_root() && at.starts_with("home/core") {
        lchown(&link, Some(1000), Some(1000)).unwrap();
    }
    let configs: Vec<_> = (1..=2).map(|n| root.config(&rendered(n))).collect();
    let bares: Vec<_> = (1..=2).map(|n| root.config(&bare(n))).collect();
    let (mut runs, mut worked) = (0, 0);
    let mut done = |run: &Run| {
        let said = run.out() + &run.err();
        assert!(!said.contains(CANARY), "{said}");
        assert!([0, 1, 3, 4, 5].contains(&run.code()), "{said}");
        runs += 1;
        worked += usize::from(run.code() == 0);
    };
    let begun = Instant::now();
    let ((), swaps) = swapping(&root.path(at), &link, || {
        for round in 0..ROUNDS {
            if begun.elapsed() > TIME {
                break;
            }
            let (config, bare) = (configs[round % 2].path(), bares[round % 2].path());
            done(&root.run(&["apply", "--yes", config]));
            done(&root.run(&["verify", config]));
            done(&root.run(&["apply", "--yes", bare]));
            killed(&root, config, round);
            done(&root.run([&["recover"][..], &["recover", "--back"]][round % 2]));
            done(&root.run(&["rollback", "--yes", "--leave-changed"]));
        }
    });
    outside.is_untouched(&format!("{at} and {target}"));
    (runs, swaps, worked)
}

/// A run that is killed somewhere between its names, so that there is something to recover.
fn killed(root: &TestRoot, config: &str, round: usize) {
    let fault = format!("renameat:signal=KILL:when={}", 3 + round % 7);
    trace::traced(root, "renameat", &[fault], &["apply", "--yes", config]);
}

/// Directories in which something changes, or is looked for.
const RACED: [(&str, &str); 14] = [
    ("etc/race", ""),
    ("etc/race/sub", "/sub"),
    ("etc", ""),
    ("etc/systemd/system", ""),
    ("etc/systemd/system/a.service.d", "/a.service.d"),
    ("etc/systemd/system/multi-user.target.wants", ""),
    ("etc/systemd/system-preset", ""),
    ("etc/machine-config-daemon", ""),
    ("etc/machine-config-daemon/orig", ""),
    ("home/core/.ssh", ""),
    ("home/core/.ssh/authorized_keys.d", "/authorized_keys.d"),
    ("srv/race", ""),
    ("var/lib/mco-rescue/history", ""),
    ("var/lib", ""),
];

#[test]
fn no_swapped_directory_leads_a_run_out_of_the_root() {
    if !can_trace() {
        return;
    }
    let outside = Outside::new();
    let (mut escapes, mut all_runs, mut all_swaps, mut all_worked) = (0, 0, 0, 0);
    for (index, (at, below)) in RACED.into_iter().enumerate() {
        let links = outside.links(below);
        // Every directory with two of the ways, every way with several directories.
        for step in [0, 2] {
            let target = &links[(index + step) % links.len()];
            let (runs, swaps, worked) = raced(at, target, &outside);
            assert!(runs >= 5 && swaps > 100, "{at}: {runs} runs, {swaps} swaps");
            say(&format!(
                "  {at} <-> {target}: {runs} runs ({worked} worked), {swaps} swaps"
            ));
            escapes += 1;
            all_runs += runs;
            all_swaps += swaps;
            all_worked += worked;
        }
    }
    assert!(
        all_worked > 20,
        "the races stopped nearly every run: {all_worked}"
    );
    say(&format!(
        "races: {escapes} escapes tried in {all_runs} runs, {all_swaps} swaps, nothing outside was touched"
    ));
}

/// Links at rest: each place, each way out, each command.
#[test]
fn no_link_at_rest_leads_a_run_out_of_the_root() {
    let outside = Outside::new();
    let mut tried = 0;
    for (at, below) in RACED {
        for target in outside.links(below) {
            let root = furnished();
            let [one, two] = [1, 2].map(|n| root.config(&rendered(n)));
            let bare = root.config(&bare(1));
            // With a history, where that is possible.
            root.run(&["apply", "--yes", one.path()]).ok();
            fs::remove_dir_all(root.path(at)).ok();
            fs::create_dir_all(root.path(at).parent().unwrap()).unwrap();
            symlink(&target, root.path(at)).unwrap();
            for args in [
                &["plan", two.path()][..],
                &["verify", one.path()],
                &["apply", "--yes", two.path()],
                &["apply", "--yes", bare.path()],
                &["rollback", "--yes"],
                &["recover"],
                &["status"],
            ] {
                let run = root.run(args);
                let said = run.out() + &run.err();
                assert!(!said.contains(CANARY), "{said}");
                outside.is_untouched(&format!("{args:?} with {at} -> {target}: {said}"));
                tried += 1;
            }
        }
    }
    say(&format!(
        "links at rest: {tried} escapes tried, nothing outside was touched"
    ));
}

/// A journal as a run leaves it between two names, changed by somebody who may write it.
#[test]
fn a_forged_journal_leads_nobody_out_of_the_root() {
    if !can_trace() {
        return;
    }
    let outside = Outside::new();
    let mut tried = 0;
    let climbing = format!("/{CLIMB}{}", outside.path());
    type Forgery<'a> = Box<dyn Fn(&mut Value) + 'a>;
    let forgeries: Vec<(&str, Forgery<'_>)> = vec![
        ("id", Box::new(|j| j["id"] = json!(&climbing))),
        ("absolute id", Box::new(|j| j["id"] = json!(outside.path()))),
        ("empty id", Box::new(|j| j["id"] = json!(""))),
        ("undoes", Box::new(|j| j["undoes"] = json!(&climbing))),
        ("undoes the history", Box::new(|j| j["undoes"] = json!(""))),
        ("stages", Box::new(|j| j["stages"] = json!([&climbing]))),
        (
            "stages through a link",
            Box::new(|j| j["stages"] = json!(["/etc/evil", "/etc/evil"])),
        ),
        (
            "path",
            Box::new(|j| j["steps"][0]["path"] = json!(format!("{climbing}/x.conf"))),
        ),
        (
            "path through a link",
            Box::new(|j| {
                for step in j["steps"].as_array_mut().unwrap() {
                    step["path"] = json!("/etc/evil/x.conf");
                }
            }),
        ),
        (
            "stage number",
            Box::new(|j| j["steps"][0]["stage"] = json!(99)),
        ),
    ];
    for (what, forge) in &forgeries {
        for committed in [false, true] {
            for args in [
                &["recover"][..],
                &["recover", "--back"],
                &["rollback", "--yes"],
                &["status"],
            ] {
                let root = furnished();
                let [one, two] = [1, 2].map(|n| root.config(&rendered(n)));
                root.run(&["apply", "--yes", one.path()]).ok();
                killed(&root, two.path(), 3);
                root.link("etc/evil", outside.path());
                let path = format!("{STATE}/journal.json");
                let mut journal = unsealed(&root.read(&path));
                forge(&mut journal);
                root.write(&path, &journal.to_string());
                if committed {
                    root.write(&format!("{STATE}/committed"), &journal["id"].to_string());
                }
                // In the history too, where rollback looks.
                for id in fs::read_dir(root.path(&format!("{STATE}/history"))).unwrap() {
                    let past = id.unwrap().path().join("journal.json");
                    if past.exists() {
                        let mut journal = unsealed(&fs::read_to_string(&past).unwrap());
                        forge(&mut journal);
                        fs::write(past, journal.to_string()).unwrap();
                    }
                }
                let run = root.run(args);
                let said = run.out() + &run.err();
                assert!(
                    !said.contains(CANARY) && run.code() != -1 && run.code() != 101,
                    "{said}"
                );
                outside.is_untouched(&format!("{args:?} with a forged {what}: {said}"));
                tried += 1;
            }
        }
    }
    say(&format!(
        "forged journals: {tried} escapes tried, nothing outside was touched"
    ));
}

/// Runs a script in a mount namespace of its own; `$ROOT`, `$OUTSIDE`, `$PROGRAM` and `$1`... are set.
fn in_mounts(
    root: &TestRoot,
    outside: &Outside,
    script: &str,
    args: &[&str],
) -> (Option<i32>, String) {
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh"])
        .args(args)
        .env("ROOT", root.dir())
        .env("OUTSIDE", outside.path())
        .env("PROGRAM", PROGRAM)
        .output()
        .unwrap();
    let said = format!("{output:?}");
    (output.status.code(), said)
}

#[test]
fn a_mount_below_a_directory_that_gives_way_keeps_what_is_in_it() {
    if !is_root() {
        skip(Lacks::Root, "mounting needs root");
        return;
    }
    let outside = Outside::new();
    let root = furnished();
    fs::create_dir_all(root.path("srv/race/tree/mounted")).unwrap();
    let configs: Vec<_> = (1..=6).map(|n| root.config(&bare(n))).collect();
    let paths: Vec<&str> = configs.iter().map(support::Config::path).collect();
    let script = "mount --bind \"$OUTSIDE\" \"$ROOT/srv/race/tree/mounted\" || exit 77
        run() { \"$PROGRAM\" --root \"$ROOT\" \"$@\"; echo \"$1: $?\"; }
        run apply --yes \"$1\"; run rollback --yes
        for config; do run apply --yes \"$config\"; done
        run rollback --yes; run rollback --yes; run recover";
    let (code, said) = in_mounts(&root, &outside, script, &paths);
    assert_ne!(code, Some(77), "{said}");
    assert!(said.contains("something is mounted below it"), "{said}");
    assert!(
        said.contains("apply: 1") && !said.contains("apply: 0"),
        "{said}"
    );
    assert!(!said.contains(CANARY), "{said}");
    outside.is_unchanged(&said);
    say("mounts: a directory with a bind mount below it did not give way, and lost nothing");
}

#[test]
fn processes_of_a_mounted_proc_lead_nobody_out_of_the_root() {
    if !is_root() {
        skip(Lacks::Root, "mounting needs root");
        return;
    }
    let outside = Outside::new();
    let mut tried = 0;
    for way in [
        "self/root",
        "self/cwd",
        "1/root",
        "thread-self/root",
        "self/fd/9",
        "self/task/SELF/root",
    ] {
        for (at, config) in [
            ("etc/race", rendered(1)),
            ("srv/race", bare(1)),
            ("home/core/.ssh", rendered(1)),
            ("var/lib", rendered(1)),
        ] {
            for direct in [false, true] {
                let root = furnished();
                let inside = if way == "self/fd/9" || way == "self/cwd" {
                    format!("/proc/{way}")
                } else {
                    format!("/proc/{way}{}", outside.path())
                };
                let config = if direct {
                    let path = format!("{inside}/x.conf");
                    machine_config(
                        "rendered-worker-p",
                        json!({"storage": {"files": [file(&path, 0o644, "no\n")]}}),
                    )
                } else {
                    fs::remove_dir_all(root.path(at)).unwrap();
                    symlink(&inside, root.path(at)).unwrap();
                    config.clone()
                };
                let config = root.config(&config);
                let script = "mount -t proc proc \"$ROOT/proc\" && cd \"$OUTSIDE\" || exit 77
                    exec 9<\"$OUTSIDE\"
                    for command in plan verify 'apply --yes'; do
                        \"$PROGRAM\" --root \"$ROOT\" $command \"$1\"; echo \"$command: $?\"
                    done";
                let (code, said) = in_mounts(&root, &outside, script, &[config.path()]);
                assert_ne!(code, Some(77), "{said}");
                assert!(!said.contains(CANARY), "{said}");
                // The shell's own opening of the directory is harmless.
                let seen = outside.watcher.seen();
                let directory = format!(" {}", outside.path());
                let harm: Vec<_> = seen
                    .iter()
                    .filter(|event| !event.ends_with(&directory))
                    .collect();
                assert!(harm.is_empty(), "{harm:?}: {said}");
                outside.is_unchanged(&said);
                tried += 3;
            }
        }
    }
    say(&format!(
        "magic links: {tried} escapes tried, nothing outside was touched"
    ));
}

/// An ordinary user who may write his home only, and swaps what he owns for links into the rest of the root.
#[test]
fn a_user_wins_nothing_by_swapping_what_he_owns_for_links_into_the_root() {
    if !is_root() {
        skip(Lacks::Root, "giving things to users needs root");
        return;
    }
    // Places that are root's in the scratch root, and not there at all on the system that runs the test.
    const TARGETS: [&str; 4] = [
        "/opt/of-root",
        "../../opt/of-root",
        "/var/lib/mco-rescue",
        "/var/lib/mco-rescue/history",
    ];
    let mut tried = 0;
    for at in [
        "home/core/.ssh",
        "home/core/.ssh/authorized_keys.d",
        "home/core/own",
    ] {
        for target in TARGETS {
            let root = furnished();
            fs::create_dir_all(root.path("opt/of-root/authorized_keys.d")).unwrap();
            fs::create_dir_all(root.path("home/core/own")).unwrap();
            root.write("home/core/own/file", "of core\n");
            for path in [
                "home/core/.ssh",
                "home/core/.ssh/authorized_keys.d",
                "home/core/own",
                "home/core/own/file",
            ] {
                lchown(root.path(path), Some(1000), Some(1000)).unwrap();
            }
            let link = root.path("home/core/link");
            symlink(target, &link).unwrap();
            lchown(&link, Some(1000), Some(1000)).unwrap();
            let bare = |n: usize| {
                let append = json!([{"source": format!("data:,{n}")}]);
                root.config(&json!({
                    "ignition": {"version": "3.3.0"},
                    "storage": {"files": [{"path": "/home/core/own/file", "append": append, "mode": 420 + n % 2},
                        {"path": format!("/home/core/own/{n}"), "overwrite": true, "mode": 420}]},
                    "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": [format!("ssh-ed25519 A{n}")]}]},
                }))
            };
            let rendered: Vec<_> = (1..=2).map(|n| root.config(&rendered(n))).collect();
            let bares: Vec<_> = (1..=2).map(bare).collect();
            let begun = Instant::now();
            let before = elsewhere(&root);
            let (runs, swaps) = swapping(&root.path(at), &link, || {
                let mut runs = 0;
                while begun.elapsed() < TIME {
                    root.run(&["apply", "--yes", bares[runs % 2].path()]);
                    runs += 1;
                }
                runs
            });
            assert!(runs > 3 && swaps > 100);
            assert_eq!(elsewhere(&root), before, "{at} <-> {target}");
            // With the links of a config, which are of the root, and of accounts: whatever was meant to change may.
            swapping(&root.path(at), &link, || {
                for config in &rendered {
                    root.run(&["apply", "--yes", config.path()]);
                }
            });
            let mut strays = root.everything();
            strays.retain(|path, entry| {
                let name = path.rsplit('/').next().unwrap();
                let not_his = path.starts_with("opt/") || path.starts_with(STATE);
                not_his && (entry.owner == (1000, 1000) && entry.kind == 'd' || name == "ignition")
            });
            assert!(strays.is_empty(), "{at} <-> {target}: {strays:?}");
            tried += 1;
        }
    }
    say(&format!(
        "links of a user: {tried} races, nothing but his own was changed"
    ));
}

/// What is not the user's: type, mode, owner and content of everything outside the homes and our own state.
fn elsewhere(root: &TestRoot) -> support::Snapshot {
    let mut all = root.snapshot();
    all.retain(|path, _| {
        !path.starts_with("home/") && path != "var/lib" && path != "etc/.pwd.lock"
    });
    all
}

#[test]
fn the_races_are_worth_something() {
    // Without the guard of the root, the same link leads out, and the sentinel tells.
    let outside = Outside::new();
    let root = furnished();
    root.link("etc/evil", outside.path());
    fs::read(root.path("etc/evil/x.conf")).unwrap();
    assert!(!outside.watcher.seen().is_empty());
    let naive = root.path("etc/evil/x.conf");
    fs::set_permissions(naive, fs::Permissions::from_mode(0o600)).unwrap();
    assert_ne!(stats(outside.dir.path()), outside.before);
}
