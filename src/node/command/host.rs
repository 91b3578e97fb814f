//! The only place that starts programs.

use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use super::{CommandError, CommandLine, CommandOutput, CommandRunner};
use crate::host::progress::{self, Work};
use crate::host::sys::privileges;

/// Runs programs on the running system, with a cleared environment, the C locale and no standard input.
#[derive(Debug, Default, Clone, Copy)]
pub struct HostRunner;

const DIRECTORIES: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];
const STDERR_TAIL: usize = 1024;
/// Maximum output of a program, in bytes.
const MAX_OUTPUT: usize = 64 << 20;
/// How long to wait for remaining output after the program has exited.
const LEFT_BEHIND: Duration = Duration::from_secs(2);
/// Shortest and longest pause between two polls.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(50);

impl CommandRunner for HostRunner {
    fn run(&self, command: &CommandLine) -> Result<CommandOutput, CommandError> {
        self.run_until(command, &|| false)
    }

    fn run_until(
        &self,
        command: &CommandLine,
        ended: &dyn Fn() -> bool,
    ) -> Result<CommandOutput, CommandError> {
        let program = find_program(&command.program)
            .ok_or_else(|| CommandError::Missing(command.program.clone()))?;
        let failed =
            |e: std::io::Error| CommandError::Failed(command.program.clone(), e.to_string());
        let mut child = spawn_program(&program, command).map_err(failed)?;
        let mut output = ProgramOutput::of_child(&mut child);
        let _phase = progress::begin_phase(waiting_for(command));
        let ending = wait_for_end(&child, &mut output, command, ended);
        // This also kills everything that the program started and left behind. Until it is waited for, no other group can get
        // its number.
        kill_group(&child);
        let status = child.wait().map_err(failed)?;
        ending?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(CommandOutput {
            status: status.code(),
            stdout: text(&output.stdout.bytes),
            stderr: stderr_tail(text(&output.stderr.bytes)),
        })
    }
}

/// Places of systemd in a tree, the first one that exists is started.
const INITS: [&str; 2] = ["/usr/lib/systemd/systemd", "/sbin/init"];

/// Becomes the systemd of the root, with the console as its terminal. `arguments` are those of the kernel. Returns only if that
/// fails.
#[allow(
    clippy::disallowed_methods,
    reason = "this is the one place that starts programs"
)]
pub fn become_init(arguments: &[String]) -> std::io::Error {
    let console = || {
        std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/console")
    };
    let streams = console().and_then(|first| Ok((first.try_clone()?, first.try_clone()?, first)));
    let (input, output, errors) = match streams {
        Ok(streams) => streams,
        Err(error) => return error,
    };
    let init = INITS.iter().find(|path| PathBuf::from(path).exists());
    let mut command = Command::new(init.unwrap_or(&INITS[0]));
    command
        .args(["--log-target=console", "--log-color=false"])
        .args(arguments)
        .env_clear()
        .env("container", "mco-rescue")
        .env("TERM", "dumb")
        .env("PATH", DIRECTORIES.join(":"))
        .stdin(input)
        .stdout(output)
        .stderr(errors);
    command.exec()
}

/// Returns the progress phase for a running program: its name, and its verb if it has one.
fn waiting_for(command: &CommandLine) -> Work {
    let verb = command.args.first().filter(|verb| !verb.starts_with('-'));
    let verb = verb.map(|verb| format!(" {verb}")).unwrap_or_default();
    Work::new(format!("Waiting for {}{verb}", command.program)).with_deadline(command.timeout)
}

#[allow(
    clippy::disallowed_methods,
    reason = "programs of the running system, not of the node's root"
)]
fn find_program(program: &str) -> Option<PathBuf> {
    DIRECTORIES
        .iter()
        .map(|dir| PathBuf::from(dir).join(program))
        .find(|path| path.exists())
}

#[allow(
    clippy::disallowed_methods,
    reason = "this is the one place that starts programs"
)]
fn spawn_program(program: &PathBuf, line: &CommandLine) -> std::io::Result<Child> {
    let mut command = Command::new(program);
    command
        .args(&line.args)
        .env_clear()
        .env("LC_ALL", "C")
        .env("PATH", DIRECTORIES.join(":"));
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // A process group of its own, so that a time-out kills the program's children too.
    command.process_group(0);
    // Children never get a capability that their thread has dropped; this process keeps its own.
    let start = || {
        privileges::keep_for_program(line.capabilities);
        command.spawn()
    };
    thread::scope(|scope| {
        let thread = thread::Builder::new().spawn_scoped(scope, start)?;
        let ended = |_| Err(std::io::Error::other("the thread that starts it ended"));
        thread.join().unwrap_or_else(ended)
    })
}

/// A program that talks with the user at the terminal, with the environment of the user: what asks for a passphrase, or uses an
/// agent.
#[derive(Debug)]
pub struct TerminalCommand {
    /// Program name, looked up in the system directories only.
    pub program: &'static str,
    /// Arguments.
    pub args: Vec<OsString>,
    /// Standard input.
    pub input: File,
}

impl TerminalCommand {
    /// Runs it to its end, and returns its exit status and its output. Its errors are shown to the user.
    ///
    /// # Errors
    /// It is missing, or cannot be started.
    #[allow(
        clippy::disallowed_methods,
        reason = "this is the one place that starts programs"
    )]
    pub fn run(self) -> Result<(Option<i32>, Vec<u8>), CommandError> {
        let name = self.program.to_owned();
        let program = find_program(&name).ok_or_else(|| CommandError::Missing(name.clone()))?;
        let output = Command::new(program)
            .args(&self.args)
            .stdin(Stdio::from(self.input))
            .stderr(Stdio::inherit())
            .output();
        let output = output.map_err(|error| CommandError::Failed(name, error.to_string()))?;
        Ok((output.status.code(), output.stdout))
    }
}

/// The output of a program so far.
struct ProgramOutput {
    stdout: Stream<ChildStdout>,
    stderr: Stream<ChildStderr>,
}

/// One pipe, read without blocking.
struct Stream<R> {
    pipe: Option<R>,
    bytes: Vec<u8>,
}

impl ProgramOutput {
    fn of_child(child: &mut Child) -> Self {
        Self {
            stdout: Stream::new(child.stdout.take()),
            stderr: Stream::new(child.stderr.take()),
        }
    }

    /// Reads the bytes that are available. Returns true if there were any.
    fn read_available(&mut self) -> bool {
        let (out, err) = (self.stdout.read_available(), self.stderr.read_available());
        out || err
    }

    /// Returns true once every writer has closed both pipes.
    fn is_whole(&self) -> bool {
        self.stdout.pipe.is_none() && self.stderr.pipe.is_none()
    }
}

impl<R: Read + AsFd> Stream<R> {
    fn new(pipe: Option<R>) -> Self {
        // A pipe that cannot be made non-blocking is not read at all.
        let is_ready = |pipe: &R| fcntl(pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).is_ok();
        Self {
            pipe: pipe.filter(is_ready),
            bytes: Vec::new(),
        }
    }

    fn read_available(&mut self) -> bool {
        let Some(pipe) = &mut self.pipe else {
            return false;
        };
        let mut piece = [0; 16 << 10];
        match pipe.read(&mut piece) {
            Ok(0) => self.pipe = None,
            Ok(n) => {
                // Output beyond the limit is read and dropped, so that the program can continue. No real answer is that long.
                let room = MAX_OUTPUT.saturating_sub(self.bytes.len()).min(n);
                self.bytes
                    .extend_from_slice(piece.get(..room).unwrap_or_default());
                return true;
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            // A broken pipe ends the text early; the exit status shows the result.
            Err(_) => self.pipe = None,
        }
        false
    }
}

/// Waits until the program has exited and its output is complete.
fn wait_for_end(
    child: &Child,
    output: &mut ProgramOutput,
    command: &CommandLine,
    ended: &dyn Fn() -> bool,
) -> Result<(), CommandError> {
    let mut deadline = Instant::now() + command.timeout;
    let mut pause = SHORTEST;
    let mut has_ended = false;
    loop {
        let more = output.read_available();
        if !has_ended && is_ended(child) {
            has_ended = true;
            // A process that the program left behind may keep the pipes open forever.
            deadline = deadline.min(Instant::now() + LEFT_BEHIND);
            continue;
        }
        let late = Instant::now() >= deadline;
        if has_ended && (late || output.is_whole()) {
            return Ok(());
        }
        if !has_ended && ended() {
            return Err(CommandError::Interrupted(command.program.clone()));
        }
        if late {
            let seconds = command.timeout.as_secs();
            return Err(CommandError::TimedOut(command.program.clone(), seconds));
        }
        if more {
            pause = SHORTEST;
        } else {
            thread::sleep(pause);
            pause = (pause * 2).min(LONGEST);
        }
    }
}

/// Returns true if the program has exited. Leaves its status for `wait`.
fn is_ended(child: &Child) -> bool {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    !matches!(
        waitid(Id::Pid(pid_of(child)), flags),
        Ok(WaitStatus::StillAlive) | Err(Errno::EINTR)
    )
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap_or_default())
}

/// Kills the program and everything that it started. If it has exited already, there is nothing left to kill.
fn kill_group(child: &Child) {
    let _ = killpg(pid_of(child), Signal::SIGKILL);
}

fn stderr_tail(text: String) -> String {
    let mut start = text.len().saturating_sub(STDERR_TAIL);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    text.get(start..).unwrap_or_default().to_owned()
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "files of a test, not of a node")]
mod tests {
    use super::*;
    use crate::host::sys::privileges::Capability;

    fn line(program: &str, args: &[&str], timeout: Duration) -> CommandLine {
        CommandLine::new(program, args, timeout)
    }

    #[test]
    fn a_program_gets_only_the_capabilities_it_needs() {
        let show = ["-c", "grep -E '^(Cap|NoNewPrivs)' /proc/self/status"];
        let none = line("sh", &show, Duration::from_secs(20));
        let one = CommandLine {
            capabilities: &[Capability::CAP_CHOWN],
            ..none.clone()
        };
        let has = privileges::effective_capabilities().contains(&Capability::CAP_CHOWN);
        let chown = Capability::CAP_CHOWN.bitmask();
        for (line, wanted) in [(none, 0), (one, if has { chown } else { 0 })] {
            let said = HostRunner.run(&line).unwrap().stdout;
            let set = |name: &str| {
                let line = said.lines().find_map(|l| l.strip_prefix(name)).unwrap();
                u64::from_str_radix(line.trim(), 16).unwrap()
            };
            assert_eq!((set("CapPrm:"), set("CapEff:")), (wanted, wanted), "{said}");
            assert_eq!((set("CapInh:"), set("CapAmb:")), (0, 0), "{said}");
            assert!(said.contains("NoNewPrivs:\t1"), "{said}");
        }
    }

    #[test]
    fn output_and_status_come_back() {
        let out = HostRunner
            .run(&line(
                "sh",
                &["-c", "echo out; echo err >&2; exit 3"],
                Duration::from_secs(20),
            ))
            .unwrap();
        assert_eq!(
            (out.status, out.stdout.as_str(), out.stderr.as_str()),
            (Some(3), "out\n", "err\n")
        );
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_its_children() {
        let error = HostRunner
            .run(&line(
                "sh",
                &["-c", "sleep 600 & wait"],
                Duration::from_millis(50),
            ))
            .unwrap_err();
        assert!(matches!(error, CommandError::TimedOut(..)));
    }

    #[test]
    fn what_a_program_leaves_behind_neither_holds_it_up_nor_stays() {
        for left in ["sleep 600 &", "trap '' TERM; (while :; do echo x; done) &"] {
            let begun = Instant::now();
            let script = format!("{left} echo $!; exit 3");
            let command = line("sh", &["-c", &script], Duration::from_secs(60));
            let out = HostRunner.run(&command).unwrap();
            assert_eq!(out.status, Some(3));
            assert!(begun.elapsed() < Duration::from_secs(20), "{left}");
            let pid = out
                .stdout
                .lines()
                .find_map(|word| word.parse().ok())
                .unwrap();
            // It was killed, but the process that reaps orphans here may take its time.
            let end = Instant::now() + Duration::from_secs(20);
            while is_alive(pid) && Instant::now() < end {
                thread::yield_now();
            }
            assert!(!is_alive(pid), "{left} is still there");
        }
    }

    fn is_alive(pid: i32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat
            .rsplit_once(") ")
            .and_then(|(_, rest)| rest.chars().next());
        state.is_some_and(|state| state != 'Z')
    }

    #[test]
    fn a_long_answer_comes_whole() {
        let command = line(
            "sh",
            &["-c", "head -c 3000000 /dev/zero | tr '\\0' x"],
            Duration::from_secs(60),
        );
        assert_eq!(HostRunner.run(&command).unwrap().stdout.len(), 3_000_000);
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = HostRunner
            .run(&line("no-such-program", &[], Duration::from_secs(1)))
            .unwrap_err();
        assert_eq!(error, CommandError::Missing("no-such-program".into()));
    }
}
