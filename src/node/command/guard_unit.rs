//! The transient units that guard a trial. systemd owns them, so they outlive the login that starts them.

use std::time::Duration;

use super::CommandLine;

/// The guard, the timer of the second guard, and the second guard.
pub const UNITS: [&str; 3] = [
    "mco-rescue-guard.service",
    "mco-rescue-guard-late.timer",
    "mco-rescue-guard-late.service",
];

/// Time between two checks of the second guard.
const LATE: &str = "30s";

/// Starts the guard. systemd restarts it however it ends, except after the end of a trial.
pub fn start_guard(program: &str) -> CommandLine {
    systemd_run(&[
        "--unit=mco-rescue-guard",
        "--description=Guard of a trial of mco-rescue",
        "--collect",
        "--slice=system.slice",
        "--property=Restart=always",
        "--property=RestartSec=1s",
        "--property=StartLimitIntervalSec=0",
        // The guard exits with 0 only when no trial is left.
        "--property=RestartPreventExitStatus=0",
        "--property=NotifyAccess=main",
        "--property=WatchdogSec=30min",
        "--property=OOMScoreAdjust=-1000",
        "--property=KillMode=mixed",
        "--property=TimeoutStopSec=5min",
        "--",
        program,
        "trial",
        "guard",
    ])
}

/// Starts the timer of the second guard, which reverts what the first one should have reverted.
pub fn start_second_guard(program: &str) -> CommandLine {
    let active = format!("--on-active={LATE}");
    let again = format!("--on-unit-inactive={LATE}");
    systemd_run(&[
        "--unit=mco-rescue-guard-late",
        "--description=Second guard of a trial of mco-rescue",
        "--collect",
        "--slice=system.slice",
        &active,
        &again,
        "--timer-property=AccuracySec=1s",
        "--property=OOMScoreAdjust=-1000",
        "--property=TimeoutStopSec=5min",
        "--",
        program,
        "trial",
        "guard",
        "--once",
    ])
}

fn systemd_run(words: &[&str]) -> CommandLine {
    let args = [&["--no-ask-password", "--quiet"], words].concat();
    CommandLine {
        program: "systemd-run".to_owned(),
        args: args.into_iter().map(str::to_owned).collect(),
        timeout: Duration::from_secs(60),
        // systemd does the work; it only needs a request from root.
        capabilities: &[],
    }
}
