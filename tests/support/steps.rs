//! Runs of the program that stand still after a call, so that something can be done meanwhile.

use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::NamedTempFile;

use super::faults::{Call, calls};
use crate::support::{PROGRAM, TestRoot};

/// Where the log says that the process has stopped: every thread says so, and the first one counts.
pub fn stops(log: &str) -> impl Iterator<Item = usize> {
    let first = log.split_whitespace().next().unwrap_or_default();
    log.match_indices("--- stopped by SIGSTOP")
        .map(|(at, _)| at)
        .filter(move |at| {
            let line = log[..*at].rsplit('\n').next().unwrap_or_default();
            line.split_whitespace().next() == Some(first)
        })
}

/// A run under strace that is stopped after calls.
pub struct Stepped {
    tracer: Child,
    log: NamedTempFile,
    stops: usize,
}

impl Stepped {
    /// Starts it. `faults` are strace's; those with `signal=STOP` stop the run.
    pub fn start(root: &TestRoot, trace: &str, faults: &[String], args: &[&str]) -> Self {
        let log = NamedTempFile::new().unwrap();
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-s", "256", "-e", &format!("trace={trace}")]);
        for fault in faults {
            command.args(["-e", &format!("inject={fault}")]);
        }
        command.arg("-o").arg(log.path()).arg(PROGRAM);
        command.arg("--root").arg(root.dir()).args(args);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Self {
            tracer: command.stderr(Stdio::piped()).spawn().unwrap(),
            log,
            stops: 0,
        }
    }

    /// Waits until the run stands still again; gives the call it has just made, or nothing when it has ended.
    pub fn next(&mut self) -> Option<Call> {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let ended = self.tracer.try_wait().unwrap().is_some();
            let text = fs::read_to_string(self.log.path()).unwrap();
            if let Some(at) = stops(&text).nth(self.stops) {
                self.stops += 1;
                return calls(&text[..at]).pop();
            }
            if ended {
                return None;
            }
            assert!(Instant::now() < deadline, "neither stops nor ends: {text}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Lets it go on.
    pub fn resume(&self) {
        let text = fs::read_to_string(self.log.path()).unwrap();
        let pid = text.split_whitespace().next().unwrap().parse().unwrap();
        kill(Pid::from_raw(pid), Signal::SIGCONT).unwrap();
    }

    /// Its end, when it stands still no more.
    pub fn output(self) -> Output {
        self.tracer.wait_with_output().unwrap()
    }
}
