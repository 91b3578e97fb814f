//! The only place that starts a program.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::{CommandError, CommandLine, CommandOutput, CommandRunner};
use crate::privileges;

/// Runs programs on the running system: cleared environment, C locale, no standard input.
#[derive(Debug, Default, Clone, Copy)]
pub struct HostRunner;

const DIRECTORIES: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];
const STDERR_TAIL: usize = 1024;

impl CommandRunner for HostRunner {
    fn run(&self, command: &CommandLine) -> Result<CommandOutput, CommandError> {
        self.run_until(command, &|| false)
    }
}

impl HostRunner {
    /// Runs a program to its end, or until it shall not go on.
    pub fn run_until(
        &self,
        command: &CommandLine,
        ended: &dyn Fn() -> bool,
    ) -> Result<CommandOutput, CommandError> {
        let program =
            find(&command.program).ok_or_else(|| CommandError::Missing(command.program.clone()))?;
        let failed =
            |e: std::io::Error| CommandError::Failed(command.program.clone(), e.to_string());
        let mut child = spawn(&program, command).map_err(failed)?;
        let stdout = collect(child.stdout.take());
        let stderr = collect(child.stderr.take());
        let status = wait(&mut child, command, ended)?;
        let text = |reader: thread::JoinHandle<Vec<u8>>| {
            String::from_utf8_lossy(&reader.join().unwrap_or_default()).into_owned()
        };
        Ok(CommandOutput {
            status,
            stdout: text(stdout),
            stderr: tail(text(stderr)),
        })
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "programs of the running system, not of the node's root"
)]
fn find(program: &str) -> Option<PathBuf> {
    DIRECTORIES
        .iter()
        .map(|dir| PathBuf::from(dir).join(program))
        .find(|path| path.exists())
}

#[allow(
    clippy::disallowed_methods,
    reason = "this is the one place that starts programs"
)]
fn spawn(program: &PathBuf, line: &CommandLine) -> std::io::Result<Child> {
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
    // A group of its own, so that a time-out ends the program's children too.
    command.process_group(0);
    // What a thread gives up its children never have; ours stays as it is.
    let started = thread::scope(|scope| {
        let thread = scope.spawn(|| {
            privileges::keep_for_program(line.capabilities);
            command.spawn()
        });
        thread.join()
    });
    started.unwrap_or_else(|_| Err(std::io::Error::other("the thread that starts it ended")))
}

fn collect(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // A broken pipe ends the text early; the exit status tells the rest.
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}

fn wait(
    child: &mut Child,
    command: &CommandLine,
    ended: &dyn Fn() -> bool,
) -> Result<Option<i32>, CommandError> {
    let deadline = Instant::now() + command.timeout;
    let mut pause = Duration::from_millis(1);
    let mut interrupted = false;
    loop {
        interrupted |= ended();
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status.code()),
            Ok(None) if interrupted || Instant::now() >= deadline => break,
            Ok(None) => thread::sleep(pause),
            Err(e) => return Err(CommandError::Failed(command.program.clone(), e.to_string())),
        }
        pause = (pause * 2).min(Duration::from_millis(50));
    }
    let group = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap_or_default());
    // It may have ended in between; then there is nobody to kill.
    let _ = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL);
    let _ = child.wait();
    if interrupted {
        return Err(CommandError::Interrupted(command.program.clone()));
    }
    Err(CommandError::TimedOut(
        command.program.clone(),
        command.timeout.as_secs(),
    ))
}

fn tail(text: String) -> String {
    let mut start = text.len().saturating_sub(STDERR_TAIL);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    text.get(start..).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::privileges::Capability;

    fn line(program: &str, args: &[&str], timeout: Duration) -> CommandLine {
        CommandLine {
            program: program.into(),
            args: args.iter().map(|a| (*a).to_owned()).collect(),
            timeout,
            capabilities: &[],
        }
    }

    #[test]
    fn a_program_gets_only_the_capabilities_it_needs() {
        let show = ["-c", "grep -E '^(Cap|NoNewPrivs)' /proc/self/status"];
        let none = line("sh", &show, Duration::from_secs(20));
        let one = CommandLine {
            capabilities: &[Capability::CAP_CHOWN],
            ..none.clone()
        };
        let has = privileges::effective().contains(&Capability::CAP_CHOWN);
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
    fn a_missing_program_is_named() {
        let error = HostRunner
            .run(&line("no-such-program", &[], Duration::from_secs(1)))
            .unwrap_err();
        assert_eq!(error, CommandError::Missing("no-such-program".into()));
    }
}
