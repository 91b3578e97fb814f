//! Room, inodes, read-only and separate mounts: the plan says what will not do, with numbers, and
//! what fails all the same leaves the old tree. Needs root, for mounts that only the test sees.

use std::fs;
use std::process::{Command, Output, Stdio};

use crate::support::mounts::{Disk, mount, with_mounts};
use crate::support::{
    Lacks, PROGRAM, Snapshot, TestRoot, file, flat_run, machine_config, say, skip,
};
use serde_json::{Value, json};

/// Puts a tmpfs over a directory, with what was in it.
fn on_tmpfs(root: &TestRoot, path: &str, options: &str) {
    let at = root.path(path);
    let copy = tempfile::tempdir().unwrap();
    let cp = |from: &std::path::Path, to: &std::path::Path| {
        let from = from.join(".");
        let status = Command::new("cp").arg("-a").arg(from).arg(to).status();
        assert!(status.unwrap().success());
    };
    cp(&at, copy.path());
    mount(&["-t", "tmpfs", "-o", options, "tmpfs", at.to_str().unwrap()]);
    cp(copy.path(), &at);
}

/// Makes a directory a mount of the file system it is on anyway.
fn bound(root: &TestRoot, path: &str) {
    let at = root.path(path);
    let at = at.to_str().unwrap();
    mount(&["--bind", at, at]);
}

fn files(name: &str, count: usize, size: usize) -> Value {
    let text = "x".repeat(size);
    let files: Vec<Value> = (0..count)
        .map(|n| file(&format!("/etc/of-config/{n}.conf"), 0o644, &text))
        .collect();
    machine_config(name, json!({"storage": {"files": files}}))
}

/// The two numbers of a blocker: `… 12 KiB are needed, 3 KiB are free`.
fn numbers(said: &str, unit: &str) -> (u64, u64) {
    let before = |end: &str| -> u64 {
        let (start, _) = said
            .split_once(end)
            .unwrap_or_else(|| panic!("no {end:?} in {said}"));
        start
            .trim_end()
            .rsplit(' ')
            .next()
            .unwrap()
            .parse()
            .unwrap()
    };
    (
        before(&format!("{unit} are needed")),
        before(&format!("{unit} are free")),
    )
}

/// `plan` and `apply` refuse, name the path, and change nothing.
fn is_blocked(root: &TestRoot, config: &Value, named: &[&str]) -> String {
    let config = root.config(config);
    let before = root.everything();
    let mut said = String::new();
    for args in [
        &["plan", config.path()][..],
        &["apply", "--yes", config.path()],
    ] {
        let run = root.run(args).exits(1);
        said = flat_run(&run);
        for word in named {
            assert!(said.contains(word), "no {word:?} in {said}");
        }
        assert_eq!(root.everything(), before);
    }
    said
}

/// Names of ours outside the state directory, and in it what should be gone.
fn left_over(root: &TestRoot) -> Vec<String> {
    let everything = root.everything();
    let ours = everything.keys().filter(|path| path.contains("mco-rescue"));
    let state = "var/lib/mco-rescue";
    ours.filter(|path| {
        let kept = ["", "/marker", "/status.json"].map(|name| format!("{state}{name}"));
        !kept.contains(path) && !path.starts_with(&format!("{state}/history"))
    })
    .cloned()
    .collect()
}

#[test]
fn too_few_bytes_are_reported_with_numbers() {
    for place in ["etc", "."] {
        let root = TestRoot::new();
        with_mounts(|| {
            on_tmpfs(&root, place, "size=256k");
            let config = files("rendered-worker-big", 1, 1 << 20);
            let said = is_blocked(&root, &config, &["Blockers", "/etc/of-config", "room"]);
            let (needed, free) = numbers(&said, "KiB");
            assert!((1024..8192).contains(&needed), "{said}");
            assert!(free > 0 && free < 256, "{said}");
        });
    }
}

#[test]
fn the_room_that_old_objects_take_on_var_counts_too() {
    let root = TestRoot::new();
    with_mounts(|| {
        root.write("etc/of-config/0.conf", &"old".repeat(400_000));
        on_tmpfs(&root, "var", "size=256k");
        let config = files("rendered-worker-small", 1, 10);
        let said = is_blocked(&root, &config, &["Blockers", "/var/lib/mco-rescue"]);
        let (needed, free) = numbers(&said, "KiB");
        assert!(needed >= 1171 && free <= 256, "{said}");
    });
}

#[test]
fn a_directory_that_gives_way_takes_the_room_of_its_copy_on_var() {
    let root = TestRoot::new();
    with_mounts(|| {
        root.write("etc/d/deep/big", &"old".repeat(400_000));
        (0..40).for_each(|n| root.write(&format!("etc/d/{n}"), ""));
        on_tmpfs(&root, "var", "size=256k,nr_inodes=60");
        let files = [file("/etc/d", 0o644, "a file\n")];
        let config = json!({"ignition": {"version": "3.4.0"}, "storage": {"files": files}});
        let said = is_blocked(&root, &config, &["Blockers", "/var/lib/mco-rescue", "room"]);
        let (needed, free) = numbers(&said, "KiB");
        assert!((1171..1600).contains(&needed) && free <= 256, "{said}");
        let inodes = said.split_once("inodes on its").unwrap().1;
        let (needed, _) = numbers(inodes, "");
        assert!((58..120).contains(&needed), "{said}");
    });
}

#[test]
fn small_files_take_the_large_blocks_of_their_file_system() {
    let (root, elsewhere) = (TestRoot::new(), TestRoot::empty());
    with_mounts(|| {
        // Linux before 6.12 mounts no blocks that are larger than its pages.
        let mkfs = ["mkfs.xfs", "-q", "-f", "--unsupported", "-b", "size=64k"];
        let Some(disk) = Disk::new(192, &mkfs) else {
            return;
        };
        disk.mount(elsewhere.dir(), "");
        for directory in [elsewhere.path("own"), root.path("etc/of-config")] {
            fs::create_dir(directory).unwrap();
        }
        let [from, to] = [elsewhere.path("own"), root.path("etc/of-config")];
        mount(&["--bind", from.to_str().unwrap(), to.to_str().unwrap()]);
        let filler = elsewhere.path("filler");
        let mut allocate = Command::new("fallocate");
        let status = allocate.args(["-l", "140M"]).arg(&filler).status();
        assert!(status.unwrap().success());
        let config = files("rendered-worker-many", 150, 10);
        let said = is_blocked(&root, &config, &["Blockers", "/etc/of-config", "room"]);
        let (needed, free) = numbers(&said, "KiB");
        assert!((150 * 64..150 * 64 + 1024).contains(&needed), "{said}");
        // In blocks of 4 KiB it would do.
        assert!(free > 2048, "{said}");
        fs::remove_file(filler).unwrap();
        root.apply(&config);
    });
}

#[test]
fn too_few_inodes_are_reported_with_numbers() {
    let root = TestRoot::new();
    with_mounts(|| {
        on_tmpfs(&root, "etc", "size=16m,nr_inodes=30");
        let config = files("rendered-worker-many", 40, 10);
        let said = is_blocked(&root, &config, &["Blockers", "/etc/of-config", "inodes"]);
        let (needed, free) = numbers(&said, "");
        assert!((40..400).contains(&needed), "{said}");
        assert!(free < 30, "{said}");
    });
}

/// A root with an applied config, on a file system of this size, and what an update does to it.
fn update_on(options: &str) -> (i32, i32, Vec<String>) {
    let root = TestRoot::new();
    let mut result = (-1, -1, Vec::new());
    with_mounts(|| {
        root.apply(&files("rendered-worker-old", 12, 9000));
        on_tmpfs(&root, ".", options);
        let config = root.config(&files("rendered-worker-new", 16, 10_000));
        let before = root.snapshot();
        result.0 = root.run(&["plan", config.path()]).code();
        let run = root.run(&["apply", "--yes", config.path()]);
        result.1 = run.code();
        match run.code() {
            0 => assert_eq!(root.run(&["verify", config.path()]).code(), 0),
            1 | 4 => assert_eq!(root.snapshot(), before, "{}", run.err()),
            code => panic!("{code}: {}", run.err()),
        }
        result.2 = left_over(&root);
    });
    result
}

/// Tries sizes from hopeless to plenty: a plan that is let through must also fit.
fn what_is_let_through_fits(sizes: impl Iterator<Item = String>) {
    let (mut blocked, mut applied, mut problems) = (0, 0, Vec::new());
    for options in sizes {
        let (plan, apply, left) = update_on(&options);
        match (plan, apply) {
            (1, 1) => blocked += 1,
            (0, 0) => applied += 1,
            (-1, -1) => return,
            _ => problems.push(format!(
                "{options}: plan ended with {plan}, apply with {apply}"
            )),
        }
        if !left.is_empty() {
            problems.push(format!("{options}: {left:?} is left over"));
        }
    }
    say(&format!("{blocked} sizes were blocked, {applied} did"));
    assert!(blocked > 0 && applied > 0);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn bytes_that_the_plan_lets_through_are_enough() {
    what_is_let_through_fits((640..2000).step_by(40).map(|k| format!("size={k}k")));
}

#[test]
fn inodes_that_the_plan_lets_through_are_enough() {
    what_is_let_through_fits(
        (70..220)
            .step_by(5)
            .map(|n| format!("size=16m,nr_inodes={n}")),
    );
}

#[test]
fn read_only_mounts_are_named() {
    for (place, named) in [
        ("etc", "/etc/of-config"),
        ("var", "/var/lib/mco-rescue"),
        (".", "/etc/of-config"),
    ] {
        let root = TestRoot::new();
        with_mounts(|| {
            bound(&root, place);
            mount(&["-o", "remount,bind,ro", root.path(place).to_str().unwrap()]);
            let config = files("rendered-worker-a", 2, 10);
            is_blocked(&root, &config, &["Blockers", named, "read-only"]);
        });
    }
}

/// Mounts below a root: tmpfs, or a bind mount of the file system that the directory is on.
const LAYOUTS: [&[(&str, bool)]; 7] = [
    &[("etc", true)],
    &[("var", true)],
    &[("etc", true), ("var", true)],
    &[("etc", false)],
    &[("var", false)],
    &[("etc", false), ("var", false), ("home", false)],
    &[
        ("etc", true),
        ("etc/of-config", false),
        ("var", true),
        ("home", true),
    ],
];

fn lay_out(root: &TestRoot, layout: &[(&str, bool)]) {
    fs::create_dir_all(root.path("etc/of-config")).unwrap();
    for (path, tmpfs) in layout {
        if *tmpfs {
            on_tmpfs(root, path, "size=4m");
        } else {
            bound(root, path);
        }
    }
    // Otherwise the test would prove nothing.
    root.write("etc/here", "");
    let error = fs::rename(root.path("etc/here"), root.path("var/there")).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::CrossesDevices);
    root.remove("etc/here");
}

fn wide(name: &str, text: &str, more: bool) -> Value {
    let mut files = vec![
        file("/etc/of-config/a.conf", 0o644, text),
        file("/etc/b.conf", 0o600, text),
        file("/var/lib/app/c.data", 0o644, text),
    ];
    if more {
        files.push(file("/opt/new/d", 0o755, text));
        files.push(file("/etc/of-config/new/e.conf", 0o644, text));
    } else {
        files.push(file("/etc/of-config/stale.conf", 0o644, text));
    }
    let unit = format!("[Unit]\nDescription={text}[Install]\nWantedBy=multi-user.target\n");
    machine_config(
        name,
        json!({
            "storage": {"files": files},
            "systemd": {"units": [{"name": "a.service", "enabled": more, "contents": unit}]},
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": [format!("ssh-ed25519 {text}").trim()]}]},
        }),
    )
}

#[test]
fn etc_and_var_may_be_different_mounts() {
    for layout in LAYOUTS {
        let root = TestRoot::new();
        with_mounts(|| {
            lay_out(&root, layout);
            for (name, text, more) in [("a", "a\n", false), ("b", "b\n", true), ("c", "c\n", false)]
            {
                let config = root.config(&wide(&format!("rendered-worker-{name}"), text, more));
                root.run(&["apply", "--yes", config.path()]).ok();
                root.run(&["verify", config.path()]).ok();
                assert_eq!(root.read("etc/of-config/a.conf"), text);
                assert_eq!(root.exists("opt/new/d"), more);
                assert_eq!(root.exists("etc/of-config/stale.conf"), !more);
                assert_eq!(left_over(&root), [""; 0], "{layout:?}");
            }
        });
    }
}

/// A run that was not started directly.
struct Ended(Output);

impl Ended {
    fn code(&self) -> i32 {
        self.0.status.code().unwrap_or(-1)
    }

    fn err(&self) -> String {
        String::from_utf8_lossy(&self.0.stderr).into_owned()
    }
}

/// Runs under strace with one fault; `None` where nothing can be traced.
fn faulty(
    root: &TestRoot,
    trace: &str,
    fault: Option<&str>,
    config: &str,
) -> Option<(Ended, String)> {
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-e", &format!("trace={trace}")]);
    if let Some(fault) = fault {
        command.args(["-e", &format!("inject={fault}")]);
    }
    command.arg("-o").arg(log.path()).arg(PROGRAM);
    command.arg("--root").arg(root.dir());
    command
        .args(["apply", "--yes", config])
        .stdin(Stdio::null());
    let Ok(output) = command.output() else {
        skip(Lacks::Setup, "strace is not installed");
        return None;
    };
    let log = fs::read_to_string(log.path()).unwrap();
    if log.is_empty() {
        skip(Lacks::Machine, "strace may not trace here");
        return None;
    }
    Some((Ended(output), log))
}

/// Tries one kind of fault at every call on every layout of mounts.
fn faults(call: &str, fault: &str, check: impl Fn(&TestRoot, &Ended, &Snapshot, &Snapshot) + Sync) {
    let mut tried = 0;
    for layout in [LAYOUTS[2], LAYOUTS[5]] {
        let mut nth = 1;
        let mut total = usize::MAX;
        let mut after = Snapshot::new();
        // The first round counts, the others disturb.
        while nth <= total {
            let root = TestRoot::new();
            let mut stop = true;
            with_mounts(|| {
                lay_out(&root, layout);
                root.apply(&wide("rendered-worker-old", "old\n", false));
                let before = root.snapshot();
                let config = root.config(&wide("rendered-worker-new", "new\n", true));
                let at = format!("{call}:{fault}:when={nth}");
                let disturb = (total != usize::MAX).then_some(at.as_str());
                let Some((run, log)) = faulty(&root, call, disturb, config.path()) else {
                    return;
                };
                stop = false;
                if disturb.is_none() {
                    assert_eq!(run.code(), 0, "{}", run.err());
                    total = log.matches(&format!("{call}(")).count();
                    after = root.snapshot();
                    return;
                }
                check(&root, &run, &before, &after);
                root.run(&["apply", "--yes", config.path()]).ok();
                assert_eq!(root.snapshot(), after);
                assert_eq!(left_over(&root), [""; 0], "{at}");
                nth += 1;
                tried += 1;
            });
            if stop {
                return;
            }
        }
    }
    say(&format!(
        "{tried} faults of {call} ({fault}) on separate mounts"
    ));
    assert!(tried > 10);
}

#[test]
fn a_run_over_several_mounts_may_be_killed_at_any_rename() {
    faults("renameat", "signal=KILL", |root, run, before, after| {
        assert_eq!(run.code(), -1, "not reached: {}", run.err());
        root.run(&["recover"]).ok();
        let now = root.snapshot();
        assert!(now == *before || now == *after, "neither old nor new");
        assert!(!now.keys().any(|path| path.contains("mco-rescue")));
    });
}

#[test]
fn an_error_on_one_of_several_mounts_puts_all_of_them_back() {
    faults("renameat", "error=EIO", |root, run, before, after| {
        let now = root.snapshot();
        match run.code() {
            0 => assert_eq!(now, *after),
            1 | 4 => assert_eq!(now, *before, "{}", run.err()),
            code => panic!("{code}: {}", run.err()),
        }
    });
}

#[test]
fn a_disk_that_fills_after_all_leaves_the_old_tree() {
    let root = TestRoot::new();
    with_mounts(|| {
        lay_out(&root, LAYOUTS[2]);
        root.apply(&wide("rendered-worker-old", "old\n", false));
        let before = root.snapshot();
        let config = root.config(&wide("rendered-worker-new", "new\n", true));
        let Some((run, log)) = faulty(&root, "write", None, config.path()) else {
            return;
        };
        assert_eq!(run.code(), 0, "{}", run.err());
        let calls: Vec<&str> = log
            .lines()
            .filter(|line| line.contains(" write("))
            .collect();
        let own = |line: &&str| line.contains(" write(1,") || line.contains(" write(2,");
        let staged: Vec<usize> = (1..=calls.len()).filter(|n| !own(&calls[n - 1])).collect();
        assert!(staged.len() > 8);
        let back = root.config(&wide("rendered-worker-old", "old\n", false));
        // The mark and the status come last, when names have changed.
        for nth in &staged[..staged.len() - 2] {
            root.run(&["apply", "--yes", back.path()]).ok();
            let before_fault = root.snapshot();
            let fault = format!("write:error=ENOSPC:when={nth}");
            let (run, _) = faulty(&root, "write", Some(&fault), config.path()).unwrap();
            assert_eq!(run.code(), 1, "{fault}: {}", run.err());
            assert!(
                run.err().to_lowercase().contains("no space left on device"),
                "{}",
                run.err()
            );
            assert_eq!(root.snapshot(), before_fault, "{fault}");
        }
        assert!(!before.is_empty());
        say(&format!("{} writes met a full disk", staged.len() - 2));
    });
}

#[test]
fn what_is_not_a_file_is_not_copied_from_mount_to_mount() {
    for (kind, numbers) in [("p", &[][..]), ("c", &["1", "5"])] {
        let root = TestRoot::new();
        with_mounts(|| {
            lay_out(&root, LAYOUTS[2]);
            let at = root.path("etc/b.conf");
            let mut mknod = Command::new("mknod");
            mknod.arg(&at).arg(kind).args(numbers);
            assert!(mknod.status().unwrap().success());
            let config = root.config(&wide("rendered-worker-a", "a\n", false));
            let mut command = Command::new("timeout");
            command
                .args(["--signal=KILL", "20", PROGRAM, "--root"])
                .arg(root.dir());
            command
                .args(["apply", "--yes", config.path()])
                .stdin(Stdio::null());
            let run = Ended(command.output().unwrap());
            let replaced = fs::symlink_metadata(&at).unwrap().is_file();
            let said = run.err();
            assert!(
                run.code() == 1 && !replaced || run.code() == 0 && replaced,
                "{}: {said}",
                run.code()
            );
            assert!(
                !said.to_lowercase().contains("no space left"),
                "a device was read until the disk was full: {said}"
            );
        });
    }
}
