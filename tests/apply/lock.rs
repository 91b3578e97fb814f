//! One run at a time on a root: the second is refused with the holder's name, and reading is free.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::mounts::{mount, with_mounts};
use crate::support::{
    Lacks, PROGRAM, STATE, TestRoot, file, install, is_root, machine_config, skip,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

fn config(name: &str, text: &str) -> Value {
    let files: Vec<Value> = (0..20)
        .map(|n| file(&format!("/etc/of-config/{n}.conf"), 0o644, text))
        .collect();
    machine_config(name, json!({"storage": {"files": files}}))
}

/// Another program that holds the lock until it is dropped.
struct Holder {
    child: Child,
    input: Option<ChildStdin>,
}

impl Holder {
    /// `None`, said aloud, where there is no `flock`.
    fn of(directory: &Path) -> Option<Self> {
        Self::run_by(&[], directory, Path::new("cat"))
    }

    /// The same, started through others, by a program that does as `cat`.
    fn run_by(wrapper: &[&str], directory: &Path, program: &Path) -> Option<Self> {
        let line = [wrapper, &["flock", "--exclusive", "--no-fork"]].concat();
        let mut command = Command::new(line[0]);
        command.args(&line[1..]).arg(directory).arg(program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let Ok(mut child) = command.spawn() else {
            skip(Lacks::Setup, "flock is not installed");
            return None;
        };
        // The program itself answers, so that it runs, under its own name, when this returns.
        let mut input = child.stdin.take().unwrap();
        input.write_all(b"held\n").unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "held\n");
        let input = Some(input);
        Some(Self { child, input })
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.input.take());
        self.child.wait().unwrap();
    }
}

#[test]
fn a_second_run_names_the_process_and_command_that_hold_the_lock() {
    let root = TestRoot::new();
    fs::create_dir(root.path(STATE)).unwrap();
    let Some(holder) = Holder::of(&root.path(STATE)) else {
        return;
    };
    let config = root.config(&config("rendered-worker-a", "a\n"));
    let before = root.everything();
    for args in [&["apply", "--yes", config.path()][..], &["recover"]] {
        let run = root.run(args).exits(1);
        let named = format!("process {} (cat)", holder.child.id());
        assert!(run.err().contains(&named), "{}", run.err());
        assert_eq!(root.everything(), before);
    }
    drop(holder);
    root.run(&["apply", "--yes", config.path()]).ok();
}

#[test]
fn no_lock_that_every_user_can_take_keeps_a_run_out() {
    let root = TestRoot::new();
    let open = ["", "var", "var/lib", "etc"].map(|path| root.path(path));
    for path in &open {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    // Its name proves nothing.
    let scratch = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let named = scratch.path().join("mco-rescue");
    install("/bin/cat".as_ref(), &named);
    let nobody: &[&str] = if is_root() {
        &[
            "setpriv",
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
        ]
    } else {
        &[]
    };
    let program = if is_root() {
        named.as_path()
    } else {
        Path::new("cat")
    };
    let holders = open
        .iter()
        .map(|path| Holder::run_by(nobody, path, program))
        .collect::<Option<Vec<_>>>();
    let Some(_holders) = holders else { return };
    let first = root.config(&config("rendered-worker-a", "a\n"));
    root.run(&["apply", "--yes", first.path()]).ok();
    root.run(&["recover"]).ok();
    root.run(&["rollback", "--yes"]).ok();
    assert_eq!(root.mode(STATE), 0o700);
    if is_root() {
        let mut command = Command::new("setpriv");
        let command = command.args(&nobody[1..]).args(["flock", "--nonblock"]);
        let status = command.arg(root.path(STATE)).arg("true").output();
        assert!(!status.unwrap().status.success(), "a user can lock it");
    }
}

#[test]
fn a_run_of_a_version_that_locked_the_root_itself_still_keeps_the_next_one_out() {
    let root = TestRoot::new();
    let scratch = tempfile::tempdir_in("/var/tmp").unwrap();
    let named = scratch.path().join("mco-rescue");
    install("/bin/cat".as_ref(), &named);
    let config = root.config(&config("rendered-worker-a", "a\n"));
    for path in ["", "var"] {
        let Some(holder) = Holder::run_by(&[], &root.path(path), &named) else {
            return;
        };
        let before = root.everything();
        let run = root.run(&["apply", "--yes", config.path()]).exits(1);
        let said = format!("process {}", holder.child.id());
        assert!(run.err().contains(&said), "{}", run.err());
        assert_eq!(root.everything(), before);
    }
    root.run(&["apply", "--yes", config.path()]).ok();
}

#[test]
fn of_two_very_first_runs_started_at_once_none_disturbs_the_other() {
    for round in 1..=8 {
        let root = TestRoot::new();
        if round % 2 == 0 {
            fs::remove_dir_all(root.path("var")).unwrap();
        }
        let text = format!("{round}\n");
        let config = root.config(&config(&format!("rendered-worker-{round}"), &text));
        let start = || {
            let mut command = root.command(&["apply", "--yes", config.path()]);
            command.stdin(Stdio::null()).stdout(Stdio::piped());
            command.stderr(Stdio::piped()).spawn().unwrap()
        };
        let children = [start(), start(), start()];
        let ends = children.map(|child| child.wait_with_output().unwrap());
        let done = |end: &&Output| end.status.code() == Some(0);
        assert!(ends.iter().filter(done).count() >= 1, "{ends:?}");
        for end in ends.iter().filter(|end| !done(end)) {
            assert_eq!(end.status.code(), Some(1), "{end:?}");
            let said = String::from_utf8_lossy(&end.stderr);
            assert!(said.contains("another run holds the lock"), "{said}");
        }
        root.run(&["verify", config.path()]).ok();
        assert_eq!(root.run(&["recover"]).ok().code(), 0);
    }
}

#[test]
fn on_a_read_only_root_the_plan_is_shown_and_the_run_ends_before_anything() {
    with_mounts(|| {
        let root = TestRoot::new();
        let config = root.config(&config("rendered-worker-a", "a\n"));
        let dir = root.dir().to_str().unwrap();
        mount(&["--bind", dir, dir]);
        mount(&["-o", "remount,bind,ro", dir]);
        let before = root.everything();
        let run = root.run(&["apply", "--yes", config.path()]).exits(1);
        assert!(run.out().contains("/etc/of-config/0.conf"), "{}", run.out());
        assert!(run.out().contains("read-only"), "{}", run.out());
        assert!(run.err().contains("nothing was changed"), "{}", run.err());
        root.run(&["recover"]).ok();
        assert_eq!(root.everything(), before);
    });
}

#[test]
fn looking_needs_no_lock() {
    let root = TestRoot::new();
    let value = config("rendered-worker-a", "a\n");
    root.apply(&value);
    let Some(_holder) = Holder::of(&root.path(STATE)) else {
        return;
    };
    let config = root.config(&value);
    for args in [
        &["plan", config.path()][..],
        &["verify", config.path()],
        &["show", config.path()],
        &["status"],
    ] {
        root.run(args).ok();
    }
}

/// A run that strace stops at its n-th rename.
struct Stopped {
    tracer: Child,
    pid: i32,
}

impl Stopped {
    /// `None`, said aloud, where nothing can be traced.
    fn at_rename(root: &TestRoot, nth: usize, config: &str) -> Option<Self> {
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-e", "trace=renameat,renameat2", "-e"]);
        command.arg(format!("inject=renameat:signal=STOP:when={nth}"));
        command.arg("-o").arg(log.path()).arg(PROGRAM);
        command.arg("--root").arg(root.dir());
        command.args(["apply", "--yes", config]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let spawned = command.stderr(Stdio::piped()).spawn();
        let Ok(mut tracer) = spawned else {
            skip(Lacks::Setup, "strace is not installed");
            return None;
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let text = fs::read_to_string(log.path()).unwrap();
            if let Some(line) = text.lines().find(|l| l.contains("stopped by SIGSTOP")) {
                let pid = line.split_whitespace().next().unwrap().parse().unwrap();
                return Some(Self { tracer, pid });
            }
            if tracer.try_wait().unwrap().is_some() {
                let output = tracer.wait_with_output().unwrap();
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                assert!(said.contains("ptrace"), "never stopped: {said}{text}");
                skip(Lacks::Machine, "strace may not trace here");
                return None;
            }
            assert!(Instant::now() < deadline, "never stopped: {text}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Lets it go on, and waits for its end.
    fn resume(self) -> Output {
        let pid = nix::unistd::Pid::from_raw(self.pid);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGCONT).unwrap();
        self.tracer.wait_with_output().unwrap()
    }
}

#[test]
fn a_run_that_is_under_way_keeps_the_next_one_out() {
    let root = TestRoot::new();
    root.apply(&config("rendered-worker-a", "a\n"));
    let first = root.config(&config("rendered-worker-b", "b\n"));
    let second = root.config(&config("rendered-worker-c", "c\n"));
    let Some(stopped) = Stopped::at_rename(&root, 12, first.path()) else {
        return;
    };
    let half_way = root.everything();
    let files = half_way
        .iter()
        .filter(|(path, _)| path.starts_with("etc/of-config/"));
    let new = files.filter(|(_, entry)| entry.content == b"b\n").count();
    assert!((1..20).contains(&new), "{new} files are new");
    for args in [
        &["apply", "--yes", second.path()][..],
        &["recover", "--back"],
    ] {
        let run = root.run(args).exits(1);
        let holder = format!("process {}", stopped.pid);
        for word in [holder.as_str(), "mco-rescue", "apply", first.path()] {
            assert!(run.err().contains(word), "no {word:?} in {}", run.err());
        }
        assert_eq!(root.everything(), half_way);
    }
    let output = stopped.resume();
    assert_eq!(output.status.code(), Some(0));
    root.run(&["verify", first.path()]).ok();
    root.run(&["apply", "--yes", second.path()]).ok();
    root.run(&["verify", second.path()]).ok();
}

#[test]
fn a_first_run_that_makes_var_itself_still_keeps_the_next_one_out() {
    let root = TestRoot::new();
    fs::remove_dir_all(root.path("var")).unwrap();
    let first = root.config(&config("rendered-worker-a", "a\n"));
    let second = root.config(&config("rendered-worker-b", "b\n"));
    // The marker's, the intent's and the journal's renames come first: names are changing now.
    let Some(stopped) = Stopped::at_rename(&root, 4, first.path()) else {
        return;
    };
    assert!(root.exists("var"));
    let half_way = root.everything();
    let run = root.run(&["apply", "--yes", second.path()]);
    let (code, said) = (run.code(), run.err());
    let after = root.everything();
    stopped.resume();
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("another run holds the lock"), "{said}");
    assert_eq!(after, half_way);
    root.run(&["verify", first.path()]).ok();
}

#[test]
fn of_two_runs_started_at_once_one_waits_its_turn_or_gives_up() {
    let root = TestRoot::new();
    root.apply(&config("rendered-worker-0", "0\n"));
    for round in 1..=8 {
        let text = format!("{round}\n");
        let config = root.config(&config(&format!("rendered-worker-{round}"), &text));
        let args = ["apply", "--yes", config.path()];
        let start = || {
            let mut command = root.command(&args);
            command.stdin(Stdio::null()).stdout(Stdio::piped());
            command.stderr(Stdio::piped()).spawn().unwrap()
        };
        let children = [start(), start()];
        let ends = children.map(|child| child.wait_with_output().unwrap());
        let done = ends
            .iter()
            .filter(|end| end.status.code() == Some(0))
            .count();
        assert!(done >= 1, "{ends:?}");
        for end in ends.iter().filter(|end| end.status.code() != Some(0)) {
            assert_eq!(end.status.code(), Some(1), "{end:?}");
            let said = String::from_utf8_lossy(&end.stderr);
            assert!(said.contains("another run holds the lock"), "{said}");
        }
        for n in 0..20 {
            assert_eq!(root.read(&format!("etc/of-config/{n}.conf")), text);
        }
        root.run(&["verify", config.path()]).ok();
        let state = fs::read_dir(root.path("var/lib/mco-rescue")).unwrap();
        let mut names: Vec<_> = state.map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["history", "marker", "status.json"]);
    }
}

#[test]
fn the_lock_ends_with_the_process_that_held_it() {
    let root = TestRoot::new();
    let value = config("rendered-worker-a", "a\n");
    let config = root.config(&value);
    let Some(mut stopped) = Stopped::at_rename(&root, 4, config.path()) else {
        return;
    };
    let pid = nix::unistd::Pid::from_raw(stopped.pid);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    stopped.tracer.wait().unwrap();
    root.run(&["apply", "--yes", config.path()]).ok();
    root.run(&["verify", config.path()]).ok();
}

/// A run that starts in that moment would be refused, also the one that completes at boot.
#[test]
fn status_takes_no_lock_to_see_whether_a_run_is_at_work() {
    let root = TestRoot::new();
    root.apply(&config("rendered-worker-a", "a\n"));
    let awaited = json!({"version": 1, "way": "forward", "run": null, "boot": "b", "from": "f", "staged": null,
        "image": null, "kernel_arguments": [], "since": 1, "failed": null,
        "config": {"name": "rendered-worker-a", "digest": "d", "origin": "o"}});
    root.write(&format!("{STATE}/awaited.json"), &awaited.to_string());
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-e", "trace=flock,fcntl", "-o"]);
    command.arg(log.path()).arg(PROGRAM);
    command.arg("--root").arg(root.dir()).arg("status");
    let Ok(output) = command.stdin(Stdio::null()).output() else {
        return skip(Lacks::Setup, "strace is not installed");
    };
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return skip(Lacks::Machine, "strace may not trace here");
    }
    assert!(said.contains("Boot into"), "{said}");
    let calls = fs::read_to_string(log.path()).unwrap();
    let takes = |line: &&str| line.contains("flock(") || line.contains("SETLK");
    let taken: Vec<&str> = calls.lines().filter(takes).collect();
    assert_eq!(taken, [""; 0]);
}

/// At the first question on a root without state there is nothing but the directory that is locked.
#[test]
fn a_signal_at_the_first_question_leaves_nothing() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        for without in ["var", "var/lib", STATE] {
            let root = TestRoot::new();
            let _ = fs::remove_dir_all(root.path(without));
            let config = root.config(&config("rendered-worker-a", "a\n"));
            let before = root.everything();
            let terminal = nix::pty::openpty(None, None).unwrap();
            // Whatever started the tests may ignore signals, and a program inherits that.
            let mut command = Command::new("env");
            command.args(["--default-signal=INT,TERM,HUP", PROGRAM, "--root"]);
            command.arg(root.dir()).args(["apply", config.path()]);
            command.stdin(terminal.slave).stdout(Stdio::null());
            let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
            let mut said = Vec::new();
            let mut errors = BufReader::new(child.stderr.take().unwrap());
            while !String::from_utf8_lossy(&said).contains("[y/N]") {
                let more = errors.read_until(b']', &mut said).unwrap();
                assert!(more > 0, "{}", String::from_utf8_lossy(&said));
            }
            assert!(root.exists(STATE), "nothing was locked");
            let pid = nix::unistd::Pid::from_raw(child.id().try_into().unwrap());
            nix::sys::signal::kill(pid, signal).unwrap();
            let status = child.wait().unwrap();
            assert_eq!(status.signal(), Some(signal as i32), "{without}");
            assert_eq!(root.everything(), before, "{signal} without {without}");
        }
    }
}
