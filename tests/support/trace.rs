//! The program under strace: which calls it makes, and stopped, signalled or killed at one of them.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{Lacks, PROGRAM, TestRoot, skip};

/// Calls that change names, attributes or durability.
pub const CHANGING: [&str; 10] = [
    "renameat",
    "renameat2",
    "linkat",
    "unlinkat",
    "mkdirat",
    "symlinkat",
    "fsync",
    "syncfs",
    "fchmod",
    "utimensat",
];

/// One call of a trace.
#[derive(Debug, Clone)]
pub struct Call {
    pub name: String,
    pub line: String,
}

/// A traced run that has ended.
pub struct Traced {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub said: String,
    pub calls: Vec<Call>,
}

impl Traced {
    /// Which call of this name matches, counted from one.
    pub fn nth(&self, name: &str, matches: impl Fn(&str) -> bool) -> usize {
        let mut same = self.calls.iter().filter(|call| call.name == name);
        let found = same.position(|call| matches(&call.line));
        found.unwrap_or_else(|| panic!("no such {name}: {:#?}", self.calls)) + 1
    }
}

/// Whether strace works here; says so where it does not.
pub fn can_trace() -> bool {
    let works = Command::new("strace")
        .args(["-o", "/dev/null", "true"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !works {
        skip(
            Lacks::program("strace"),
            "strace is not installed or may not trace here",
        );
    }
    works
}

fn command(root: &TestRoot, log: &str, trace: &str, inject: &[String], args: &[&str]) -> Command {
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-s", "256", "-o", log]);
    command.args(["-e", &format!("trace={trace}")]);
    for fault in inject {
        command.args(["-e", &format!("inject={fault}")]);
    }
    command
        .arg(PROGRAM)
        .arg("--root")
        .arg(root.dir())
        .args(args)
        .stdin(Stdio::null());
    command
}

/// Runs the program under strace to its end, with these faults.
pub fn traced(root: &TestRoot, trace: &str, inject: &[String], args: &[&str]) -> Traced {
    let log = tempfile::NamedTempFile::new().unwrap();
    let path = log.path().to_str().unwrap();
    let output = command(root, path, trace, inject, args).output().unwrap();
    ended(&output, path)
}

fn ended(output: &std::process::Output, log: &str) -> Traced {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Traced {
        code: output.status.code(),
        signal: output.status.signal(),
        said: text(&output.stdout) + &text(&output.stderr),
        calls: calls(&fs::read_to_string(log).unwrap()),
    }
}

/// The calls of a log: lines like `1234 renameat(5, "new-3", 7, "x.conf") = 0`, without the number where one process was traced.
pub fn calls(log: &str) -> Vec<Call> {
    let call = |line: &str| {
        let rest = line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
        let (name, _) = rest.split_once('(')?;
        let is_call = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        is_call.then(|| Call {
            name: name.to_owned(),
            line: rest.to_owned(),
        })
    };
    log.lines().filter_map(call).collect()
}

/// A run that stands still behind one of its calls.
pub struct Stopped {
    child: Child,
    log: tempfile::NamedTempFile,
    pid: Pid,
    stops: usize,
}

/// Stops the run behind each of these calls, by name and number; gives it at the first.
pub fn stopped(root: &TestRoot, calls: &[(&str, usize)], args: &[&str]) -> Stopped {
    let log = tempfile::NamedTempFile::new().unwrap();
    let path = log.path().to_str().unwrap();
    let names: Vec<&str> = calls.iter().map(|(name, _)| *name).collect();
    let faults = calls.iter();
    let faults: Vec<String> = faults
        .map(|(name, nth)| format!("{name}:signal=STOP:when={nth}"))
        .collect();
    let mut command = command(root, path, &names.join(","), &faults, args);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stopped = Stopped {
        child,
        log,
        pid: Pid::from_raw(0),
        stops: 0,
    };
    stopped.at_next()
}

impl Stopped {
    /// Waits until it has stopped once more.
    fn at_next(mut self) -> Self {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let text = fs::read_to_string(self.log.path()).unwrap();
            // Every thread says so; the first one counts.
            let first = text.split_whitespace().next().unwrap_or_default();
            let mut lines = text.lines().filter(|line| {
                line.contains("stopped by SIGSTOP") && line.split_whitespace().next() == Some(first)
            });
            if let Some(line) = lines.nth(self.stops) {
                let pid = line.split_whitespace().next().unwrap();
                self.pid = Pid::from_raw(pid.parse().unwrap());
                self.stops += 1;
                return self;
            }
            if self.child.try_wait().unwrap().is_some() || Instant::now() > deadline {
                let output = self.child.wait_with_output().unwrap();
                panic!("the call to stop at was not reached: {output:?}\n{text}");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Lets it go on to the next of the calls.
    pub fn go_on(self) -> Self {
        kill(self.pid, Signal::SIGCONT).unwrap();
        self.at_next()
    }

    /// Lets it go on to its end.
    pub fn resume(self) -> Traced {
        kill(self.pid, Signal::SIGCONT).unwrap();
        let output = self.child.wait_with_output().unwrap();
        ended(&output, self.log.path().to_str().unwrap())
    }
}
