//! The transient unit in which a rehearsal boots, and questions to the system inside it.

use std::time::Duration;

use super::systemctl::systemctl_line;
use super::{CommandError, CommandLine, CommandOutput, CommandRunner};
use crate::host::sys::privileges::Capability;

/// The unit.
pub const UNIT: &str = "mco-rescue-rehearsal.service";

/// What entering the namespaces of another process needs.
pub const ENTER: [Capability; 5] = [
    Capability::CAP_SYS_ADMIN,
    Capability::CAP_SYS_CHROOT,
    Capability::CAP_SYS_PTRACE,
    Capability::CAP_DAC_OVERRIDE,
    Capability::CAP_DAC_READ_SEARCH,
];

/// Bounds of the unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnitBounds {
    /// Memory in bytes, for processes and for what they write.
    pub memory: u64,
    /// Processes and threads.
    pub tasks: u32,
    /// Seconds after which systemd ends it.
    pub seconds: u64,
}

/// The command that starts a program as the first process of its own namespaces.
const NAMESPACES: [&str; 11] = [
    "unshare",
    "--mount",
    "--propagation=private",
    "--uts",
    "--ipc",
    "--net",
    "--cgroup",
    "--pid",
    "--fork",
    "--kill-child",
    "--",
];

/// Starts the unit: `program` as the first process of its own namespaces, with `args`. It gives way to everything else on the
/// node, and systemd ends it and removes the directory `own` even if this program is killed. Its output goes to
/// `console`, a terminal. Returns as soon as it is started.
pub fn start_rehearsal(
    program: &str,
    args: &[&str],
    bounds: UnitBounds,
    own: &str,
    console: &str,
) -> CommandLine {
    let words = [
        "--no-ask-password".to_owned(),
        "--quiet".to_owned(),
        "--service-type=exec".to_owned(),
        format!("--unit={UNIT}"),
        "--description=Rehearsal of the next boot by mco-rescue".to_owned(),
        "--slice=system.slice".to_owned(),
        "--property=Delegate=yes".to_owned(),
        "--property=KillMode=control-group".to_owned(),
        "--property=KillSignal=SIGKILL".to_owned(),
        "--property=SuccessExitStatus=SIGKILL".to_owned(),
        "--property=TimeoutStopSec=10s".to_owned(),
        "--property=OOMPolicy=kill".to_owned(),
        "--property=OOMScoreAdjust=1000".to_owned(),
        "--property=MemorySwapMax=0".to_owned(),
        "--property=CPUWeight=1".to_owned(),
        "--property=IOWeight=1".to_owned(),
        "--property=Nice=19".to_owned(),
        format!("--property=MemoryMax={}", bounds.memory),
        format!("--property=TasksMax={}", bounds.tasks),
        format!("--property=RuntimeMaxSec={}", bounds.seconds),
        format!("--property=ExecStopPost=-/usr/bin/rm -rf {own}"),
        format!("--property=StandardOutput=file:{console}"),
        format!("--property=StandardError=file:{console}"),
        "--".to_owned(),
    ];
    let namespaces = NAMESPACES.map(str::to_owned).into_iter();
    let args = args.iter().map(|word| (*word).to_owned());
    let rest = namespaces.chain([program.to_owned()]).chain(args);
    CommandLine::new(
        "systemd-run",
        words.into_iter().chain(rest),
        Duration::from_secs(bounds.seconds + 30),
    )
}

/// Returns true if the unit is active, or is starting or stopping.
///
/// # Errors
/// systemctl is missing or gives no answer.
pub fn is_rehearsing(runner: &dyn CommandRunner) -> Result<bool, CommandError> {
    let output = runner.run(&about_unit(&["show", "--property=ActiveState", "--value"]))?;
    Ok(!matches!(output.stdout.trim(), "inactive" | "failed" | ""))
}

/// Returns why the unit ended, such as `oom-kill`.
///
/// # Errors
/// systemctl is missing or gives no answer.
pub fn query_result(runner: &dyn CommandRunner) -> Result<String, CommandError> {
    let output = runner.run(&about_unit(&["show", "--property=Result", "--value"]))?;
    Ok(output.stdout.trim().to_owned())
}

/// Ends the unit with all its processes, and waits until they are gone.
///
/// # Errors
/// systemctl is missing or gives no answer.
pub fn stop_rehearsal(runner: &dyn CommandRunner) -> Result<(), CommandError> {
    runner.run(&about_unit(&["stop"]))?;
    forget_failure(runner)
}

/// Makes systemd forget a failure of the unit, so that the node does not count as degraded and the unit can be started again.
///
/// # Errors
/// systemctl is missing or gives no answer.
pub fn forget_failure(runner: &dyn CommandRunner) -> Result<(), CommandError> {
    runner.run(&about_unit(&["reset-failed"])).map(drop)
}

fn about_unit(words: &[&str]) -> CommandLine {
    systemctl_line(words, &[UNIT], Duration::from_secs(30))
}

/// Runs a program in the namespaces of a process, as that process sees it.
///
/// # Errors
/// The same as for any program.
pub fn run_inside(
    runner: &dyn CommandRunner,
    pid: u32,
    words: &[&str],
    timeout: Duration,
) -> Result<CommandOutput, CommandError> {
    let target = format!("--target={pid}");
    let enter = [
        &target, "--mount", "--uts", "--ipc", "--net", "--cgroup", "--pid", "--",
    ];
    let args = enter.into_iter().chain(words.iter().copied());
    runner.run(&CommandLine::new("nsenter", args, timeout).with_capabilities(&ENTER))
}
