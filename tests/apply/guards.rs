//! Guards around a run: flags and mounts that hold a name in place, capabilities that are missing or not
//! needed, an update under way, and state that is not what it should be. What can be had real is real:
//! `chattr`, bind mounts, reduced capabilities, processes.
#![allow(unsafe_code)]

use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::mounts::{mount, with_mounts};
use crate::support::ostree_node::Turn;
use crate::support::trace::can_trace;
use crate::support::{
    Lacks, PROGRAM, Run, STATE, TestRoot, copy_program, file, flat_run, install, install_program,
    is_root, machine_config, null_device, say, skip, unsealed,
};
use serde_json::{Value, json};

/// A root whose flags are taken away before it is removed.
struct Flagged(TestRoot);

impl std::ops::Deref for Flagged {
    type Target = TestRoot;

    fn deref(&self) -> &TestRoot {
        &self.0
    }
}

impl Drop for Flagged {
    fn drop(&mut self) {
        let mut command = Command::new("chattr");
        command.args(["-R", "-ia"]).arg(self.0.dir());
        let _ = command.stderr(Stdio::null()).status();
    }
}

impl Flagged {
    /// The old config applied; `None`, said aloud, where no flags can be set.
    fn new() -> Option<Self> {
        let root = Self(TestRoot::new());
        let probe = root.path("probe");
        fs::write(&probe, "").unwrap();
        let set = |flag: &str| {
            let mut command = Command::new("chattr");
            command.arg(flag).arg(&probe).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        if !set("+i") || !set("-i") {
            skip(
                Lacks::root_or_program("chattr"),
                "flags of files cannot be set here",
            );
            return None;
        }
        fs::remove_file(probe).unwrap();
        root.apply(&old());
        Some(root)
    }

    fn set(&self, flags: &str, path: &str) {
        let mut command = Command::new("chattr");
        let status = command.arg(flags).arg(self.path(path)).status().unwrap();
        assert!(status.success(), "chattr {flags} {path}");
    }

    /// The flags `i` and `a` of a path.
    fn flags(&self, path: &str) -> String {
        let mut command = Command::new("lsattr");
        let output = command.arg("-d").arg(self.path(path)).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let flags = text.split_whitespace().next().unwrap();
        flags.chars().filter(|c| matches!(c, 'i' | 'a')).collect()
    }
}

fn old() -> Value {
    machine_config(
        "rendered-worker-old",
        json!({"storage": {"files": [
            file("/etc/of-config/replaced", 0o644, "old\n"),
            file("/etc/of-config/removed", 0o644, "old\n"),
            file("/etc/of-config/kept", 0o644, "same\n"),
        ]}}),
    )
}

fn new() -> Value {
    machine_config(
        "rendered-worker-new",
        json!({"storage": {"files": [
            file("/etc/of-config/replaced", 0o644, "new\n"),
            file("/etc/of-config/added", 0o644, "new\n"),
            file("/etc/of-config/kept", 0o644, "same\n"),
        ]}}),
    )
}

/// `plan` and `apply` refuse with these words, and nothing changes.
fn is_blocked(root: &TestRoot, config: &Value, words: &[&str]) {
    let config = root.config(config);
    let before = root.everything();
    for args in [
        &["plan", config.path()][..],
        &["apply", "--yes", config.path()],
    ] {
        let said = flat_run(&root.run(args).exits(1));
        for word in words {
            assert!(said.contains(word), "no {word:?} in {said}");
        }
        assert_eq!(root.everything(), before);
    }
}

const TARGETS: [&str; 3] = [
    "etc/of-config/replaced",
    "etc/of-config/removed",
    "etc/of-config",
];

#[test]
fn a_flag_in_the_way_is_named_with_the_command_that_clears_it() {
    for path in TARGETS {
        for (flag, word) in [("i", "immutable"), ("a", "append-only")] {
            let Some(root) = Flagged::new() else { return };
            root.set(&format!("+{flag}"), path);
            let clear = format!("chattr -{flag} /{path}");
            is_blocked(&root, &new(), &[word, &clear, "--clear-immutable"]);
            assert_eq!(root.flags(path), flag);
        }
    }
}

#[test]
fn a_flag_is_cleared_when_asked_and_set_again_on_what_is_there_then() {
    for path in TARGETS {
        for flag in ["i", "a", "ia"] {
            let Some(root) = Flagged::new() else { return };
            root.set(&format!("+{flag}"), path);
            let config = root.config(&new());
            let args = ["apply", "--yes", "--clear-immutable", config.path()];
            let said = flat_run(&root.run(&args).ok());
            assert!(said.contains("Flags cleared for the renames"), "{said}");
            root.run(&["verify", config.path()]).ok();
            assert_eq!(root.read("etc/of-config/replaced"), "new\n");
            assert!(!root.exists("etc/of-config/removed"));
            if root.exists(path) {
                let mut found: Vec<char> = root.flags(path).chars().collect();
                found.sort_unstable_by(|a, b| b.cmp(a));
                assert_eq!(found.into_iter().collect::<String>(), flag, "{path}");
            }
            // A second run has nothing to do, and so nothing to clear.
            root.run(&["apply", "--yes", config.path()]).ok();
        }
    }
}

#[test]
fn taking_a_run_back_brings_the_flags_back_too() {
    let Some(root) = Flagged::new() else { return };
    for path in TARGETS {
        root.set("+i", path);
    }
    let before = root.snapshot();
    let config = root.config(&new());
    root.run(&["apply", "--yes", "--clear-immutable", config.path()])
        .ok();
    let said = flat_run(&root.run(&["rollback", "--yes"]).exits(1));
    assert!(said.contains("--clear-immutable"), "{said}");
    root.run(&["rollback", "--yes", "--clear-immutable"]).ok();
    assert_eq!(root.snapshot(), before);
    for path in TARGETS {
        assert_eq!(root.flags(path), "i", "{path}");
    }
}

#[test]
fn mode_and_owner_of_a_flagged_directory_are_in_the_way_too() {
    let Some(root) = Flagged::new() else { return };
    fs::create_dir(root.path("etc/dir")).unwrap();
    root.chmod("etc/dir", 0o700);
    root.set("+i", "etc/dir");
    let bare = json!({"ignition": {"version": "3.5.0"},
        "storage": {"directories": [{"path": "/etc/dir", "mode": 493}]}});
    is_blocked(&root, &bare, &["/etc/dir", "immutable"]);
    let config = root.config(&bare);
    root.run(&["apply", "--yes", "--clear-immutable", config.path()])
        .ok();
    assert_eq!(
        (root.mode("etc/dir"), root.flags("etc/dir").as_str()),
        (0o755, "i")
    );
}

#[test]
fn the_flag_of_the_root_directory_is_never_cleared() {
    let Some(root) = Flagged::new() else { return };
    root.set("+i", "");
    let at_top = machine_config(
        "rendered-worker-top",
        json!({"storage": {"files": [file("/top/file", 0o644, "x\n")]}}),
    );
    is_blocked(&root, &at_top, &["/top", "root directory", "immutable"]);
    let config = root.config(&at_top);
    root.run(&["apply", "--yes", "--clear-immutable", config.path()])
        .exits(1);
    assert_eq!(root.flags(""), "i");
    // Below it, it is in nobody's way.
    root.apply(&new());
    assert_eq!(root.flags(""), "i");
}

#[test]
fn flags_above_our_own_state_have_to_be_cleared_by_hand() {
    let Some(root) = Flagged::new() else { return };
    root.set("+i", "var/lib/mco-rescue");
    let config = root.config(&new());
    let said = flat_run(
        &root
            .run(&["apply", "--yes", "--clear-immutable", config.path()])
            .exits(1),
    );
    assert!(said.contains("chattr -i /var/lib/mco-rescue"), "{said}");
    assert_eq!(root.read("etc/of-config/replaced"), "old\n");
}

#[test]
fn a_directory_with_something_immutable_in_it_does_not_give_way() {
    let Some(root) = Flagged::new() else { return };
    root.write("etc/dir/deep/file", "x\n");
    root.set("+i", "etc/dir/deep/file");
    is_blocked(
        &root,
        &instead_of_a_directory(),
        &["/etc/dir", "/etc/dir/deep/file"],
    );
}

/// A bare config that puts a file where a directory is.
fn instead_of_a_directory() -> Value {
    json!({"ignition": {"version": "3.5.0"},
        "storage": {"files": [{"path": "/etc/dir", "overwrite": true, "contents": {"source": "data:,x"}}]}})
}

/// Runs with one system call tampered with.
fn tampered(root: &TestRoot, call: &str, what: &str, nth: usize, args: &[&str]) -> Output {
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o", "/dev/null", "-e"]);
    command.arg(format!("trace={call}"));
    command
        .arg("-e")
        .arg(format!("inject={call}:{what}:when={nth}"));
    command
        .arg(PROGRAM)
        .arg("--root")
        .arg(root.dir())
        .args(args);
    // A terminal that draws would be asked for its size, by an ioctl as well.
    command.env("TERM", "dumb");
    command.stdin(Stdio::null()).output().unwrap()
}

/// A root with flags on everything that will change, and its tree.
fn flagged_everywhere() -> Option<Flagged> {
    let root = Flagged::new()?;
    for path in TARGETS {
        root.set("+i", path);
    }
    Some(root)
}

fn flags_are_set(root: &Flagged) {
    for path in TARGETS.into_iter().filter(|path| root.exists(path)) {
        assert_eq!(root.flags(path), "i", "{path}");
    }
}

#[test]
fn a_run_killed_at_any_rename_or_flag_ends_with_the_flags_set() {
    if !can_trace() || Flagged::new().is_none() {
        return;
    }
    let mut points = 0;
    for call in ["renameat", "renameat2", "ioctl", "syncfs"] {
        for nth in 1.. {
            let Some(root) = flagged_everywhere() else {
                return;
            };
            let before = root.snapshot();
            let config = root.config(&new());
            let args = ["apply", "--yes", "--clear-immutable", config.path()];
            let ended = tampered(&root, call, "signal=KILL", nth, &args);
            if ended.status.code() == Some(0) {
                assert!(nth > 1, "{call} is never called");
                break;
            }
            points += 1;
            let back = nth % 2 == 0;
            root.run(if back {
                &["recover", "--back"]
            } else {
                &["recover"]
            })
            .ok();
            flags_are_set(&root);
            if back && root.read("etc/of-config/replaced") == "old\n" {
                assert_eq!(root.snapshot(), before, "{call} {nth}");
            }
            root.run(&args).ok();
            root.run(&["verify", config.path()]).ok();
            flags_are_set(&root);
        }
    }
    say(&format!("killed at {points} points"));
}

#[test]
fn an_error_at_any_flag_puts_everything_back() {
    if !can_trace() || Flagged::new().is_none() {
        return;
    }
    let mut failed = 0;
    for nth in 1.. {
        let Some(root) = flagged_everywhere() else {
            return;
        };
        let before = root.snapshot();
        let config = root.config(&new());
        // Looks at a terminal are ioctls, too; those of the first kind come before any flag, and stop nothing.
        let args = [
            "apply",
            "--yes",
            "--color=never",
            "--clear-immutable",
            config.path(),
        ];
        let ended = tampered(&root, "ioctl", "error=EPERM", nth, &args);
        if ended.status.code() == Some(0) {
            if failed == 0 && nth < 6 {
                continue;
            }
            assert!(failed > 5, "only {failed} calls");
            return;
        }
        failed += 1;
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(4), "{nth}: {said}");
        assert!(
            said.contains("changing the flags of /etc/of-config"),
            "{said}"
        );
        assert!(said.contains("CAP_LINUX_IMMUTABLE"), "{said}");
        assert_eq!(root.snapshot(), before);
        flags_are_set(&root);
    }
}

fn bind(from: &Path, to: &Path) {
    mount(&["--bind", from.to_str().unwrap(), to.to_str().unwrap()]);
}

#[test]
fn a_file_that_is_a_mount_point_is_named_and_left() {
    with_mounts(|| {
        for path in ["etc/of-config/replaced", "etc/of-config/removed"] {
            for read_only in [false, true] {
                let root = TestRoot::new();
                root.apply(&old());
                let from = root.path("var/elsewhere");
                fs::write(&from, "old\n").unwrap();
                fs::set_permissions(&from, fs::metadata(root.path(path)).unwrap().permissions())
                    .unwrap();
                bind(&from, &root.path(path));
                if read_only {
                    let at = root.path(path);
                    mount(&["-o", "remount,bind,ro", at.to_str().unwrap()]);
                }
                let umount = format!("umount /{path}");
                is_blocked(&root, &new(), &["mount point", "findmnt", &umount]);
            }
        }
    });
}

#[test]
fn a_mount_elsewhere_is_in_nobodys_way() {
    with_mounts(|| {
        let root = TestRoot::new();
        root.apply(&old());
        let kept = root.path("etc/of-config/kept");
        bind(&kept, &kept);
        bind(&root.path("etc/of-config"), &root.path("etc/of-config"));
        root.apply(&new());
        assert_eq!(root.read("etc/of-config/replaced"), "new\n");
    });
}

#[test]
fn a_directory_that_is_or_holds_a_mount_does_not_give_way() {
    with_mounts(|| {
        for (at, words) in [
            ("etc/dir", "mount point"),
            ("etc/dir/deep", "umount /etc/dir/deep"),
        ] {
            let root = TestRoot::new();
            root.write("etc/dir/deep/file", "x\n");
            bind(&root.path("var"), &root.path(at));
            is_blocked(&root, &instead_of_a_directory(), &["/etc/dir", words]);
        }
    });
}

/// A config that needs nothing but root's own files.
fn plain() -> Value {
    machine_config(
        "rendered-worker-plain",
        json!({"storage": {"files": [file("/etc/plain", 0o644, "x\n")]}}),
    )
}

/// A bare config with one thing that has this owner and mode.
fn owned(what: &str, uid: u32, gid: u32, mode: u32) -> Value {
    json!({"ignition": {"version": "3.6.0"}, "storage": {what: [
        {"path": "/etc/owned", "mode": mode, "user": {"id": uid}, "group": {"id": gid}}]}})
}

/// Runs as root with these capabilities only, or with all but these (`-` before the name).
fn with_capabilities(root: &TestRoot, capabilities: &str, args: &[&str]) -> Run {
    let bounding = if capabilities.starts_with('-') {
        capabilities.to_owned()
    } else {
        format!("-all{capabilities}")
    };
    let mut command = Command::new("setpriv");
    command.arg(format!("--bounding-set={bounding}"));
    command.arg("--inh-caps=-all").arg("--").arg(PROGRAM);
    command.arg("--root").arg(root.dir()).args(args);
    Run::of(command.stdin(Stdio::null()).output().unwrap())
}

fn can_drop() -> bool {
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-all", "--inh-caps=-all", "true"]);
    let works = is_root() && command.status().is_ok_and(|status| status.success());
    if !works {
        skip(
            Lacks::root_or_program("setpriv"),
            "capabilities can only be taken away by root with setpriv",
        );
    }
    works
}

/// A root, a config, extra options, and the one capability that this needs.
struct Case {
    root: Flagged,
    config: Value,
    options: Vec<&'static str>,
    needs: Vec<&'static str>,
}

fn cases() -> Vec<Case> {
    let case = |root: Flagged, config: Value, needs: &[&'static str]| Case {
        root,
        config,
        options: Vec::new(),
        needs: needs.to_vec(),
    };
    let fresh = || Flagged(TestRoot::new());
    let closed = fresh();
    fs::create_dir(closed.path("etc/closed")).unwrap();
    chown(closed.path("etc/closed"), Some(1000), Some(1000)).unwrap();
    let below = machine_config(
        "rendered-worker-closed",
        json!({"storage": {"files": [file("/etc/closed/file", 0o644, "x\n")]}}),
    );
    let mut cases = vec![
        case(fresh(), plain(), &[]),
        case(
            fresh(),
            owned("files", 1000, 1000, 0o644),
            &["chown", "fowner"],
        ),
        case(
            fresh(),
            owned("files", 0, 1000, 0o2755),
            &["chown", "fowner", "fsetid"],
        ),
        case(
            fresh(),
            owned("directories", 1000, 1000, 0o755),
            &["chown", "fowner", "dac_override"],
        ),
        case(closed, below, &["dac_override"]),
    ];
    if let Some(flagged) = Flagged::new() {
        flagged.set("+i", "etc/of-config/replaced");
        cases.push(Case {
            options: vec!["--clear-immutable"],
            ..case(flagged, new(), &["linux_immutable"])
        });
    }
    cases
}

#[test]
fn each_missing_capability_is_named_before_anything_is_changed() {
    if !can_drop() {
        return;
    }
    for case in cases() {
        for missing in &case.needs {
            let config = case.root.config(&case.config);
            let before = case.root.everything();
            for command in [&["plan"][..], &["apply", "--yes"]] {
                let args = [command, &case.options, &[config.path()]].concat();
                let run = with_capabilities(&case.root, &format!("-{missing}"), &args);
                let said = flat_run(&run.exits(1));
                let name = format!("CAP_{}", missing.to_uppercase());
                assert!(said.contains(&name), "no {name} in {said}");
                assert!(said.contains("podman run --cap-add"), "{said}");
                assert_eq!(case.root.everything(), before);
            }
        }
    }
}

#[test]
fn what_the_preflight_asks_for_is_enough() {
    if !can_drop() {
        return;
    }
    for case in cases() {
        let config = case.root.config(&case.config);
        let given: String = case.needs.iter().map(|name| format!(",+{name}")).collect();
        let args = [&["apply", "--yes"][..], &case.options, &[config.path()]].concat();
        with_capabilities(&case.root, &given, &args).ok();
        case.root.run(&["verify", config.path()]).ok();
    }
}

/// The sets of a process that strace has stopped at its n-th rename, from `/proc`.
fn sets_at_rename(root: &TestRoot, nth: usize, args: &[&str]) -> Option<Vec<(String, u64)>> {
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-e", "trace=renameat", "-e"]);
    command.arg(format!("inject=renameat:signal=STOP:when={nth}"));
    command.arg("-o").arg(log.path()).arg(PROGRAM);
    command.arg("--root").arg(root.dir()).args(args);
    let mut tracer = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let pid: i32 = loop {
        let text = fs::read_to_string(log.path()).unwrap();
        if let Some(line) = text.lines().find(|l| l.contains("stopped by SIGSTOP")) {
            break line.split_whitespace().next().unwrap().parse().unwrap();
        }
        if tracer.try_wait().unwrap().is_some() || Instant::now() > deadline {
            panic!("never stopped: {text}");
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let pid = nix::unistd::Pid::from_raw(pid);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGCONT).unwrap();
    assert!(tracer.wait().unwrap().success());
    let lines = status.lines().filter(|line| line.starts_with("Cap"));
    let set = |line: &str| {
        let (name, bits) = line.split_once(':')?;
        Some((name.to_owned(), u64::from_str_radix(bits.trim(), 16).ok()?))
    };
    lines.map(set).collect()
}

#[test]
fn while_names_change_only_needed_capabilities_are_left() {
    if !is_root() {
        return skip(Lacks::Root, "only root has capabilities to give up");
    }
    if !can_trace() {
        return;
    }
    // CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID; and LINUX_IMMUTABLE.
    let files = 0b1_1111;
    let immutable = 1 << 9;
    let root = TestRoot::new();
    let config = root.config(&plain());
    let sets = sets_at_rename(&root, 4, &["apply", "--yes", config.path()]).unwrap();
    check_sets(&sets, files);
    let Some(root) = flagged_everywhere() else {
        return;
    };
    let config = root.config(&new());
    let args = ["apply", "--yes", "--clear-immutable", config.path()];
    check_sets(&sets_at_rename(&root, 4, &args).unwrap(), files | immutable);
}

fn check_sets(sets: &[(String, u64)], kept: u64) {
    let (files, immutable) = (0b1_1111, 1 << 9);
    for (name, bits) in sets {
        match name.as_str() {
            "CapPrm" | "CapEff" => assert_eq!(*bits, kept, "{sets:x?}"),
            "CapInh" | "CapAmb" => assert_eq!(*bits, 0, "{sets:x?}"),
            // Taken away at the beginning: all but SYS_CHROOT, SYS_PTRACE, SYS_ADMIN, SYS_BOOT, MKNOD, AUDIT_WRITE,
            // SETFCAP and MAC_ADMIN.
            _ => {
                let sometimes = [18, 19, 21, 22, 27, 29, 31, 33];
                let sometimes = sometimes.iter().fold(immutable, |all, bit| all | 1 << bit);
                assert_eq!(*bits, files | sometimes, "{sets:x?}");
            }
        }
    }
}

/// A root in which the program sees itself as on a live node. Nothing of this system is bound into it:
/// what is removed at the end is a copy.
struct Live {
    root: TestRoot,
    /// Its programs and stand-ins for a daemon would be seen by the nodes of other tests.
    _turn: Turn,
}

impl Drop for Live {
    fn drop(&mut self) {
        // Lazily, which always works: nothing of the kernel's may be met when the root is removed.
        for path in ["proc", "sys/fs/cgroup"] {
            let mut command = Command::new("umount");
            let command = command.arg("--lazy").arg(self.root.path(path));
            let _ = command.stderr(Stdio::null()).status();
        }
        if fs::read_dir(self.root.path("proc"))
            .unwrap()
            .next()
            .is_some()
        {
            std::process::abort();
        }
    }
}

impl Live {
    /// A shell with its libraries, and programs that answer like an idle node's.
    fn new() -> Self {
        let root = TestRoot::new();
        copy_program(&root, "/bin/sh");
        for dir in ["proc", "dev", "usr/sbin"] {
            fs::create_dir_all(root.path(dir)).unwrap();
        }
        null_device(&root);
        mount(&["-t", "proc", "proc", root.path("proc").to_str().unwrap()]);
        install_program(&root.path("usr/mco-rescue"));
        root.write("config", &plain().to_string());
        let live = Self {
            root,
            _turn: Turn::take(),
        };
        live.answers(
            "rpm-ostree",
            r#"echo '{"deployments": [], "transaction": null}'"#,
        );
        live.answers("systemctl", "exit 1");
        live
    }

    /// A program of the node.
    fn answers(&self, program: &str, script: &str) {
        self.root.write("script", &format!("#!/bin/sh\n{script}\n"));
        let path = self.root.path(&format!("usr/sbin/{program}"));
        install(&self.root.path("script"), &path);
    }

    fn run(&self, args: &[&str]) -> Run {
        let mut command = Command::new("chroot");
        command
            .arg(self.root.dir())
            .arg("/usr/mco-rescue")
            .args(args);
        Run::of(command.stdin(Stdio::null()).output().unwrap())
    }

    /// `plan` and `apply` refuse and name the evidence; with `--takeover` it is only told.
    fn is_refused(&self, words: &[&str]) {
        for args in [&["plan", "/config"][..], &["apply", "--yes", "/config"]] {
            let said = flat_run(&self.run(args).exits(1));
            for word in words.iter().chain(&["--takeover"]) {
                assert!(said.contains(word), "no {word:?} in {said}");
            }
            assert!(!self.root.exists("etc/plain"));
        }
        let said = flat_run(&self.run(&["apply", "--yes", "--takeover", "/config"]).ok());
        for word in words.iter().chain(&["accepted"]) {
            assert!(said.contains(word), "no {word:?} in {said}");
        }
        assert!(self.root.exists("etc/plain"));
    }
}

/// A daemon with a child, as a process table shows them.
struct Daemon {
    child: Child,
    // What the daemon's child reads from; open as long as it lives.
    _pipe: Option<fs::File>,
    _dir: tempfile::TempDir,
}

impl Daemon {
    /// `child`: name and one argument of the child; none for a daemon that is idle.
    fn with(child: Option<(&str, &str)>) -> Self {
        Self::of("machine-config-daemon", child)
    }

    /// Another program, which is idle.
    fn named(name: &str) -> Self {
        Self::of(name, None)
    }

    fn of(own: &str, child: Option<(&str, &str)>) -> Self {
        use std::os::unix::process::CommandExt;
        let dir = tempfile::tempdir().unwrap();
        let script = child.map_or("read line".to_owned(), |(name, argument)| {
            format!("(exec -a {name} cat {argument}) & wait")
        });
        let pipe = child.map(|(_, argument)| dir.path().join(argument));
        if let Some(pipe) = &pipe {
            nix::unistd::mkfifo(pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        }
        let mut command = Command::new("bash");
        command.arg0(own).args(["-c", &script]);
        command.current_dir(dir.path()).stdin(Stdio::piped());
        let child = command.process_group(0).spawn().unwrap();
        // Opening waits for the reader: from here on the child is what its name says.
        let pipe = pipe.map(|pipe| fs::OpenOptions::new().write(true).open(pipe).unwrap());
        Self {
            child,
            _pipe: pipe,
            _dir: dir,
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let group = nix::unistd::Pid::from_raw(self.child.id() as i32);
        let _ = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL);
        self.child.wait().unwrap();
    }
}

/// One test, as every test of this file sees the daemons of all others.
#[test]
fn a_daemon_that_changes_the_node_is_evidence_and_one_that_merely_lives_is_not() {
    with_mounts(|| {
        let live = Live::new();
        let idle = Daemon::with(None);
        let asking = Daemon::with(Some(("rpm-ostree", "status")));
        live.run(&["apply", "--yes", "/config"]).ok();
        live.root.remove("etc/plain");
        let status = flat_run(&live.run(&["status"]).ok());
        let running = "When the daemon, which runs now, is restarted:";
        assert!(status.contains(running), "{status}");
        drop((idle, asking));
        let working = Daemon::with(Some(("rpm-ostree", "rebase")));
        live.is_refused(&["process ", "rpm-ostree rebase is running"]);
        drop(working);
        live.root.remove("etc/plain");
        live.run(&["apply", "--yes", "/config"]).ok();
    });
}

#[test]
fn a_running_transaction_of_the_os_is_evidence() {
    with_mounts(|| {
        let live = Live::new();
        let answer = r#"echo '{"deployments": [], "transaction": ["rebase", ":1.9", "/org/x"]}'"#;
        live.answers("rpm-ostree", answer);
        live.is_refused(&["rpm-ostree", "(rebase)"]);
    });
}

#[test]
fn a_unit_that_updates_the_node_is_evidence_while_it_works() {
    with_mounts(|| {
        let live = Live::new();
        let shown = "Id=machine-config-daemon-firstboot.service\\nActiveState=activating\\nSubState=start\\n";
        live.answers("systemctl", &format!("printf '{shown}'"));
        live.is_refused(&["machine-config-daemon-firstboot.service", "activating"]);
    });
}

#[test]
fn a_staged_deployment_and_a_scheduled_shutdown_are_evidence() {
    with_mounts(|| {
        for path in [
            "run/ostree/staged-deployment",
            "run/systemd/shutdown/scheduled",
        ] {
            let live = Live::new();
            live.root.write(path, "");
            live.is_refused(&[path]);
        }
    });
}

/// A cgroup as container runtimes make them, with a daemon in it.
struct Container {
    dir: std::path::PathBuf,
    daemon: Daemon,
    /// A child of the daemon, in a cgroup further below.
    child: Daemon,
}

impl Container {
    /// `below`: the daemon's own cgroup within that of its container. `None`, said aloud, where no cgroups can be made.
    fn new(live: &Live, below: &str) -> Option<Self> {
        let mount_point = live.root.path("sys/fs/cgroup");
        fs::create_dir_all(&mount_point).unwrap();
        let mut command = Command::new("mount");
        command.args(["-t", "cgroup2", "cgroup2"]).arg(&mount_point);
        let slice = mount_point.join(format!("kubepods-test-{}.slice", std::process::id()));
        let dir = slice.join("crio-0a.scope");
        let mounted = command.status().is_ok_and(|status| status.success());
        let inner = dir.join(below).join("inner");
        if !mounted || fs::create_dir_all(&inner).is_err() || !dir.join("cgroup.kill").exists() {
            skip(
                Lacks::Machine,
                "no cgroup (version 2, with freeze and kill) can be made here",
            );
            return None;
        }
        let (daemon, child) = (Daemon::with(None), Daemon::named("sh"));
        for (one, dir) in [
            (&daemon, inner.parent().unwrap()),
            (&child, inner.as_path()),
        ] {
            fs::write(dir.join("cgroup.procs"), one.child.id().to_string()).unwrap();
        }
        Some(Self { dir, daemon, child })
    }

    fn events(&self) -> String {
        fs::read_to_string(self.dir.join("cgroup.events")).unwrap()
    }
}

fn remove_cgroups(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().unwrap().is_dir() {
            remove_cgroups(&entry.path());
        }
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    while fs::remove_dir(dir).is_err() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(2));
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = fs::write(self.dir.join("cgroup.kill"), "1");
        let _ = self.daemon.child.wait();
        let _ = self.child.child.wait();
        remove_cgroups(self.dir.parent().unwrap());
    }
}

/// Runs in the root with its n-th rename tampered with.
fn tampered_live(live: &Live, what: &str, nth: impl std::fmt::Display) -> Output {
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=renameat", "-e"]);
    command.arg(format!("inject=renameat:{what}:when={nth}"));
    command.arg("chroot").arg(live.root.dir());
    command.args(["/usr/mco-rescue", "apply", "--yes", "/config"]);
    command.stdin(Stdio::null()).output().unwrap()
}

/// The rename of the mark `committed`: before it those of marker, intent and journal.
const COMMITTED: usize = 4;

/// One test, as every run sees the daemons of all others.
#[test]
fn the_container_of_the_daemon_stands_still_until_it_is_ended_or_let_go() {
    if !is_root() {
        return skip(Lacks::Root, "cgroups need root");
    }
    if !can_trace() {
        return;
    }
    with_mounts(|| {
        // As runc leaves it, and as crun does.
        for below in ["", "container"] {
            stands_still_until_it_is_ended_or_let_go(below);
        }
        nothing_stands_still_after_an_end_half_way();
    });
}

fn stands_still_until_it_is_ended_or_let_go(below: &str) {
    // Killed half-way: it stands still until recovery, which ends it.
    let live = Live::new();
    let Some(container) = Container::new(&live, below) else {
        return;
    };
    tampered_live(&live, "signal=KILL", COMMITTED);
    assert!(live.root.exists("var/lib/mco-rescue/journal.json"));
    assert!(container.events().contains("populated 1\nfrozen 1"));
    status_says_what_stands_still(&live, &container);
    live.run(&["recover"]).ok();
    assert!(!live.run(&["status"]).ok().out().contains("Frozen"));
    assert!(live.root.exists("etc/plain"));
    is_ended(&container);
    drop((container, live));
    // Killed half-way and taken back: it goes on as it was.
    let live = Live::new();
    let Some(container) = Container::new(&live, below) else {
        return;
    };
    tampered_live(&live, "signal=KILL", COMMITTED);
    live.run(&["recover", "--back"]).ok();
    assert!(!live.root.exists("etc/plain"));
    assert!(container.events().contains("populated 1\nfrozen 0"));
    // Failed (the marker is there by now): it goes on too.
    let ended = tampered_live(&live, "error=EIO", COMMITTED - 1);
    assert_eq!(ended.status.code(), Some(4), "{ended:?}");
    assert!(container.events().contains("populated 1\nfrozen 0"));
    // Done: it is ended.
    let said = flat_run(&live.run(&["apply", "--yes", "/config"]).ok());
    assert!(said.contains("is frozen"), "{said}");
    is_ended(&container);
}

/// With both ways to let it go on.
fn status_says_what_stands_still(live: &Live, container: &Container) {
    let dir = container.dir.strip_prefix(live.root.dir()).unwrap();
    let file = format!("/{}/cgroup.freeze", dir.display());
    let said = flat_run(&live.run(&["status"]).ok());
    for words in [
        "Frozen the daemon's container",
        "Next: mco-rescue recover or: echo 0",
        &format!("echo 0 >{file}"),
    ] {
        assert!(said.contains(words), "no {words:?} in {said}");
    }
    let json = live.run(&["--output", "json", "status"]).ok().json();
    assert_eq!(json["frozen"], json!([file]));
}

fn nothing_stands_still_after_an_end_half_way() {
    // The first file is in place; from there on every rename fails, also the one that would put it back.
    let live = Live::new();
    live.root.write("etc/plain", "old\n");
    let Some(container) = Container::new(&live, "container") else {
        return;
    };
    let ended = tampered_live(&live, "error=EIO", format!("{}+", COMMITTED + 1));
    assert_eq!(ended.status.code(), Some(5), "{ended:?}");
    assert!(container.events().contains("populated 1\nfrozen 0"));
    drop((container, live));
    // Killed, and its journal cannot be read any more.
    let live = Live::new();
    let Some(container) = Container::new(&live, "container") else {
        return;
    };
    tampered_live(&live, "signal=KILL", COMMITTED);
    assert!(container.events().contains("populated 1\nfrozen 1"));
    live.root.write("var/lib/mco-rescue/journal.json", "{");
    assert_eq!(live.run(&["recover"]).code(), 5);
    assert!(container.events().contains("populated 1\nfrozen 0"));
}

#[test]
fn a_daemon_that_cannot_stand_still_is_said() {
    with_mounts(|| {
        let live = Live::new();
        let _daemon = Daemon::with(None);
        let said = flat_run(&live.run(&["plan", "/config"]).ok());
        assert!(
            said.contains("it is running and cannot be frozen: its cgroup"),
            "{said}"
        );
        assert!(
            said.contains("crictl stop $(crictl ps -q --name machine-config-daemon)"),
            "{said}"
        );
    });
}

fn is_ended(container: &Container) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !container.events().contains("populated 0") {
        assert!(Instant::now() < deadline, "{}", container.events());
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn evidence_is_looked_for_on_a_live_root_only() {
    let root = TestRoot::new();
    root.write("run/ostree/staged-deployment", "");
    root.apply(&plain());
}

fn numbered(number: usize) -> Value {
    machine_config(
        &format!("rendered-worker-{number}"),
        json!({"storage": {"files": [file("/etc/n", 0o644, &format!("{number}\n"))]}}),
    )
}

fn history(root: &TestRoot) -> Vec<String> {
    let status = root.run(&["--output", "json", "status"]).ok().json();
    let kept = status["history"].as_array().unwrap().iter();
    kept.map(|run| run["config"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn runs_stay_in_order_when_the_clock_jumps_back() {
    let root = TestRoot::new();
    root.apply(&numbered(1));
    // As if it had been made in the year 2286, by a clock that has been put right since.
    let name = fs::read_dir(root.path(&format!("{STATE}/history"))).unwrap();
    let name = name.map(|entry| entry.unwrap().path()).next().unwrap();
    let future = name.with_file_name("9999999999999-1");
    fs::rename(&name, &future).unwrap();
    let journal = fs::read_to_string(future.join("journal.json")).unwrap();
    let old = name.file_name().unwrap().to_str().unwrap();
    let journal = unsealed(&journal).to_string();
    fs::write(
        future.join("journal.json"),
        journal.replace(old, "9999999999999-1"),
    )
    .unwrap();
    // One digit more: by its letters it would come first.
    for number in 2..=5 {
        root.apply(&numbered(number));
    }
    let named = |numbers: [usize; 3]| numbers.map(|n| format!("rendered-worker-{n}"));
    assert_eq!(history(&root), named([5, 4, 3]));
    for number in [4, 3, 2] {
        root.run(&["rollback", "--yes"]).ok();
        assert_eq!(root.read("etc/n"), format!("{number}\n"));
    }
}

#[test]
fn a_damaged_status_stops_nothing() {
    for text in ["", "{", "{\"version\": 99}", "[]"] {
        let root = TestRoot::new();
        root.apply(&numbered(1));
        fs::write(root.path(&format!("{STATE}/status.json")), text).unwrap();
        let run = root.run(&["status"]).ok();
        assert!(run.err().contains("status.json"), "{}", run.err());
        assert!(run.out().contains("rendered-worker-1"), "{}", run.out());
        root.run(&["recover"]).ok();
        root.apply(&numbered(2));
        let status = root.run(&["--output", "json", "status"]).ok().json();
        assert_eq!(status["last_run"]["config"]["name"], "rendered-worker-2");
    }
}

#[test]
fn a_marker_that_is_a_link_proves_nothing() {
    let root = TestRoot::new();
    root.apply(&numbered(1));
    let marker = root.path(&format!("{STATE}/marker"));
    fs::rename(&marker, root.path("etc/marker")).unwrap();
    symlink("/etc/marker", &marker).unwrap();
    let before = root.everything();
    let config = root.config(&numbered(2));
    for args in [
        &["apply", "--yes", config.path()][..],
        &["recover"],
        &["rollback", "--yes"],
        &["status"],
    ] {
        let run = root.run(args);
        assert!(matches!(run.code(), 1 | 5), "{args:?}: {}", run.err());
        assert!(run.err().contains("marker"), "{args:?}: {}", run.err());
        assert_eq!(root.everything(), before, "{args:?}");
    }
}

#[test]
fn a_damaged_mark_of_the_end_is_named_and_goes() {
    let root = TestRoot::new();
    root.apply(&numbered(1));
    for text in ["", "{", "17"] {
        let config = root.config(&numbered(2));
        for args in [&["recover"][..], &["apply", "--yes", config.path()]] {
            root.write(&format!("{STATE}/committed"), text);
            let run = root.run(args).ok();
            assert!(run.err().contains("committed"), "{}", run.err());
            assert!(!root.exists(&format!("{STATE}/committed")));
        }
    }
}

#[test]
fn in_a_deployment_that_did_not_boot_an_empty_var_is_not_the_real_one() {
    let top = TestRoot::new();
    let name = format!("{}.0", "a1".repeat(32));
    fs::create_dir(top.path(&name)).unwrap();
    for dir in ["etc", "usr", "home"] {
        fs::rename(top.path(dir), top.path(&format!("{name}/{dir}"))).unwrap();
    }
    fs::create_dir(top.path(&format!("{name}/var"))).unwrap();
    let config = top.config(&plain());
    let deployment = top.path(&name);
    let run = |args: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.arg("--root").arg(&deployment).args(args);
        Run::of(command.stdin(Stdio::null()).output().unwrap())
    };
    let before = top.everything();
    for args in [
        &["plan", config.path()][..],
        &["apply", "--yes", config.path()],
    ] {
        let said = flat_run(&run(args).exits(1));
        assert!(
            said.contains("/var") && said.contains("not mounted"),
            "{said}"
        );
        assert_eq!(top.everything(), before);
    }
    fs::create_dir(top.path(&format!("{name}/var/lib"))).unwrap();
    run(&["apply", "--yes", config.path()]).ok();
}
