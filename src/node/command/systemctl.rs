//! systemctl: the states of units, and jobs for the running systemd.

use std::fmt;
use std::time::Duration;

use super::{CommandError, CommandLine, CommandOutput, CommandRunner};
use crate::host::sys::privileges::Capability;

/// The active state of a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ActiveState {
    /// It is started.
    Active,
    /// It is started, and reloads its configuration.
    Reloading,
    /// It is started, and its mount namespace is renewed.
    Refreshing,
    /// It is not started.
    Inactive,
    /// It ended with an error.
    Failed,
    /// It starts.
    Activating,
    /// It stops.
    Deactivating,
    /// Any other, in systemd's word.
    Other(String),
}

impl From<&str> for ActiveState {
    fn from(word: &str) -> Self {
        match word {
            "active" => Self::Active,
            "reloading" => Self::Reloading,
            "refreshing" => Self::Refreshing,
            "inactive" => Self::Inactive,
            "failed" => Self::Failed,
            "activating" => Self::Activating,
            "deactivating" => Self::Deactivating,
            other => Self::Other(other.to_owned()),
        }
    }
}

impl fmt::Display for ActiveState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Active => "active",
            Self::Reloading => "reloading",
            Self::Refreshing => "refreshing",
            Self::Inactive => "inactive",
            Self::Failed => "failed",
            Self::Activating => "activating",
            Self::Deactivating => "deactivating",
            Self::Other(word) => word,
        })
    }
}

/// A unit's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitActivity {
    /// Its name.
    pub name: String,
    /// Active state.
    pub active: ActiveState,
    /// Sub-state, such as `running`.
    pub sub: String,
}

impl UnitActivity {
    /// Returns true if the unit is doing something; a oneshot that has run is `active (exited)` and idle.
    pub fn is_at_work(&self) -> bool {
        match self.active {
            ActiveState::Activating | ActiveState::Deactivating | ActiveState::Reloading => true,
            ActiveState::Active => self.sub == "running",
            _ => false,
        }
    }

    /// Returns true if it was started and has not stopped.
    pub fn is_running(&self) -> bool {
        matches!(
            self.active,
            ActiveState::Active
                | ActiveState::Activating
                | ActiveState::Reloading
                | ActiveState::Refreshing
        )
    }
}

/// Returns the states of the units according to the running systemd.
///
/// # Errors
/// systemctl is missing or gives no answer.
pub fn query_activity(
    runner: &dyn CommandRunner,
    units: &[&str],
) -> Result<Vec<UnitActivity>, CommandError> {
    run_systemctl(runner, &activity_query(units)).map(|answer| parse_activity(&answer))
}

/// A queued or running job of systemd, such as a start or stop of a unit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnitJob {
    /// The unit.
    pub unit: String,
    /// The type of the job, such as `start`.
    pub kind: String,
    /// It is running, not queued.
    pub running: bool,
    /// The time when the unit left its inactive state, in microseconds since the kernel started. Only for running jobs.
    pub began: Option<u64>,
}

/// Returns all jobs.
///
/// # Errors
/// systemctl is missing, or gives no answer.
pub fn query_jobs(runner: &dyn CommandRunner) -> Result<Vec<UnitJob>, CommandError> {
    let options = ["list-jobs", "--no-legend", "--plain", "--full"];
    let answer = run_systemctl(runner, &systemctl_line(&options, &[], QUICK))?;
    let mut jobs = parse_jobs(&answer.stdout);
    let running = jobs.iter().filter(|job| job.running);
    let units: Vec<String> = running.map(|job| job.unit.clone()).collect();
    if units.is_empty() {
        return Ok(jobs);
    }
    let units: Vec<&str> = units.iter().map(String::as_str).collect();
    let options = ["show", "--property=Id,InactiveExitTimestampMonotonic"];
    let answer = run_systemctl(runner, &systemctl_line(&options, &units, QUICK))?;
    for block in answer.stdout.split("\n\n") {
        let id = property_value(block, "Id");
        let began = property_value(block, "InactiveExitTimestampMonotonic");
        let began = began.and_then(|began| began.parse().ok());
        for job in jobs.iter_mut().filter(|job| Some(&job.unit) == id.as_ref()) {
            job.began = began.filter(|began| job.running && *began > 0);
        }
    }
    Ok(jobs)
}

/// Parses lines with number, unit, type and state.
fn parse_jobs(text: &str) -> Vec<UnitJob> {
    let job = |line: &str| {
        let mut words = line.split_whitespace();
        words.next()?.parse::<u64>().ok()?;
        Some(UnitJob {
            unit: words.next()?.to_owned(),
            kind: words.next()?.to_owned(),
            running: words.next()? == "running",
            began: None,
        })
    };
    text.lines().filter_map(job).collect()
}

/// Returns the units that are not running and that no job is about to start.
///
/// # Errors
/// systemctl is missing or gives no answer.
pub fn query_idle(runner: &dyn CommandRunner, units: &[&str]) -> Result<Vec<String>, CommandError> {
    let options = ["show", "--property=Id,ActiveState,Job"];
    run_systemctl(runner, &systemctl_line(&options, units, QUICK))
        .map(|answer| read_idle(&answer.stdout))
}

/// Makes systemd reload all unit files.
///
/// # Errors
/// systemctl is missing or reports an error.
pub fn daemon_reload(runner: &dyn CommandRunner) -> Result<(), CommandError> {
    run_systemctl(runner, &systemctl_line(&["daemon-reload"], &[], BUSY)).map(drop)
}

/// Returns the command line that lists failed units, for display.
pub fn failed_units() -> CommandLine {
    systemctl_line(
        &["list-units", "--failed", "--no-legend", "--plain"],
        &[],
        QUICK,
    )
}

/// Returns all units that systemd has loaded, with their states.
///
/// # Errors
/// systemctl is missing or gives no answer.
pub fn query_units(runner: &dyn CommandRunner) -> Result<Vec<UnitActivity>, CommandError> {
    let options = ["list-units", "--all", "--no-legend", "--plain", "--full"];
    let answer = run_systemctl(runner, &systemctl_line(&options, &[], QUICK))?;
    let unit = |line: &str| {
        let mut words = line.split_whitespace();
        let (name, _load) = (words.next()?.to_owned(), words.next()?);
        Some(UnitActivity {
            name,
            active: words.next()?.into(),
            sub: words.next()?.to_owned(),
        })
    };
    Ok(answer.stdout.lines().filter_map(unit).collect())
}

/// Restarts a unit if it is running.
///
/// # Errors
/// systemctl is missing or reports an error.
pub fn try_restart(runner: &dyn CommandRunner, unit: &str) -> Result<(), CommandError> {
    run_systemctl(runner, &systemctl_line(&["try-restart"], &[unit], BUSY)).map(drop)
}

/// Starts a unit and waits for it.
///
/// # Errors
/// systemctl is missing, or reports an error; [`start_result`] returns the result of the unit.
pub fn start_unit(runner: &dyn CommandRunner, unit: &str) -> Result<(), CommandError> {
    run_systemctl(runner, &systemctl_line(&["start"], &[unit], BUSY)).map(drop)
}

/// Queues the jobs that the current unit files add to the boot, without waiting for them.
///
/// systemd computes the jobs of a boot once, from the unit files at its beginning. A unit that conflicted with one of those has
/// no job.
///
/// # Errors
/// systemctl is missing or reports an error.
pub fn add_jobs_of_boot(runner: &dyn CommandRunner) -> Result<(), CommandError> {
    let line = systemctl_line(&["start", "--no-block"], &["default.target"], BUSY);
    run_systemctl(runner, &line).map(drop)
}

/// Stops units and waits for them.
///
/// # Errors
/// systemctl is missing, or reports an error.
pub fn stop_units(runner: &dyn CommandRunner, units: &[&str]) -> Result<(), CommandError> {
    run_systemctl(runner, &systemctl_line(&["stop"], units, BUSY)).map(drop)
}

/// Reloads the configuration of a unit and waits for it.
///
/// # Errors
/// systemctl is missing or reports an error.
pub fn reload_unit(runner: &dyn CommandRunner, unit: &str) -> Result<(), CommandError> {
    run_systemctl(runner, &systemctl_line(&["reload"], &[unit], TWICE)).map(drop)
}

/// Reloads a running unit, or restarts it if it cannot reload, and waits for it.
///
/// # Errors
/// systemctl is missing or reports an error.
pub fn reload_or_restart_unit(runner: &dyn CommandRunner, unit: &str) -> Result<(), CommandError> {
    run_systemctl(
        runner,
        &systemctl_line(&["reload-or-restart"], &[unit], TWICE),
    )
    .map(drop)
}

/// Restarts a unit and waits for it.
///
/// # Errors
/// systemctl is missing or reports an error.
pub fn restart_unit(runner: &dyn CommandRunner, unit: &str) -> Result<(), CommandError> {
    run_systemctl(runner, &systemctl_line(&["restart"], &[unit], TWICE)).map(drop)
}

/// Clears the failed state of units.
///
/// # Errors
/// systemctl is missing, or reports an error.
pub fn reset_failed(runner: &dyn CommandRunner, units: &[&str]) -> Result<(), CommandError> {
    run_systemctl(runner, &systemctl_line(&["reset-failed"], units, QUICK)).map(drop)
}

/// The result of a service's last start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartResult {
    /// Its program ran and succeeded.
    Ran,
    /// A condition of the unit was not met.
    NotStarted,
    /// The unit is masked.
    Masked,
    /// systemd could not execute the program (`203/EXEC`): SELinux, a noexec mount, a wrong file.
    CannotRun,
    /// The kernel killed it for lack of memory; in systemd's words.
    OutOfMemory(String),
    /// It failed; in systemd's words, such as `exit-code 1` or `timeout`.
    Failed(String),
}

/// Returns the result of a service's last start.
///
/// # Errors
/// systemctl is missing, or gives no answer.
pub fn start_result(runner: &dyn CommandRunner, unit: &str) -> Result<StartResult, CommandError> {
    let options = [
        "show",
        "--property=LoadState,Result,ConditionResult,ExecMainStatus",
    ];
    run_systemctl(runner, &systemctl_line(&options, &[unit], QUICK))
        .map(|answer| read_start(&answer.stdout))
}

/// systemd's exit status for a program that could not be executed.
const EXEC: &str = "203";
/// For questions.
const QUICK: Duration = Duration::from_secs(30);
/// Time limit of jobs: during boot, other jobs may come first.
const BUSY: Duration = Duration::from_secs(90);
/// Time limit of a stop and a start, for each of which systemd allows 90 s.
const TWICE: Duration = Duration::from_secs(200);

/// Returns the start time of a running unit, in microseconds since the kernel started. The inner `None` is an unknown time, the
/// outer one a unit that is not running.
///
/// # Errors
/// systemctl is missing or gives no answer.
pub fn query_start(
    runner: &dyn CommandRunner,
    unit: &str,
) -> Result<Option<Option<u64>>, CommandError> {
    let options = [
        "show",
        "--property=ActiveState,SubState,InactiveExitTimestampMonotonic",
    ];
    let answer = run_systemctl(runner, &systemctl_line(&options, &[unit], QUICK))?;
    let value = |key| property_value(&answer.stdout, key).unwrap_or_default();
    let state = UnitActivity {
        name: unit.to_owned(),
        active: value("ActiveState").as_str().into(),
        sub: value("SubState"),
    };
    let began = value("InactiveExitTimestampMonotonic").parse().ok();
    Ok(state
        .is_at_work()
        .then(|| began.filter(|began: &u64| *began > 0)))
}

/// The state of user space according to the running systemd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UserSpace {
    /// Number of soft reboots since the kernel started; `None` before systemd 256.
    pub soft_reboots: Option<u32>,
    /// Its start time, in microseconds since the kernel started.
    pub began: Option<u64>,
}

/// Returns the start time of user space and the number of soft reboots.
///
/// # Errors
/// systemctl is missing or gives no answer.
pub fn query_user_space(runner: &dyn CommandRunner) -> Result<UserSpace, CommandError> {
    let options = [
        "show",
        "--property=SoftRebootsCount,UserspaceTimestampMonotonic",
    ];
    let answer = run_systemctl(runner, &systemctl_line(&options, &[], QUICK))?;
    let value = |key| property_value(&answer.stdout, key);
    Ok(UserSpace {
        soft_reboots: value("SoftRebootsCount").and_then(|text| text.parse().ok()),
        began: value("UserspaceTimestampMonotonic")
            .and_then(|text| text.parse().ok())
            .filter(|began| *began > 0),
    })
}

fn activity_query(units: &[&str]) -> CommandLine {
    systemctl_line(
        &["show", "--property=Id,ActiveState,SubState"],
        units,
        QUICK,
    )
}

/// Returns a command line of systemctl with these words, about these units.
pub(super) fn systemctl_line(words: &[&str], units: &[&str], timeout: Duration) -> CommandLine {
    let end: &[&str] = if units.is_empty() { &[] } else { &["--"] };
    let args = words.iter().chain(end).chain(units);
    CommandLine::new("systemctl", args, timeout)
}

fn run_systemctl(
    runner: &dyn CommandRunner,
    command: &CommandLine,
) -> Result<CommandOutput, CommandError> {
    let answer = runner.run(command)?;
    if answer.status == Some(0) {
        return Ok(answer);
    }
    let words = answer.stderr.trim().to_owned();
    Err(CommandError::Failed("systemctl".into(), words))
}

fn read_idle(text: &str) -> Vec<String> {
    let idle = |block: &&str| {
        let job = property_value(block, "Job").unwrap_or_default();
        property_value(block, "ActiveState").as_deref() == Some("inactive")
            && matches!(&*job, "" | "0")
    };
    let blocks = text.split("\n\n").filter(idle);
    blocks
        .filter_map(|block| property_value(block, "Id"))
        .collect()
}

fn read_start(text: &str) -> StartResult {
    let value = |key: &str| property_value(text, key).unwrap_or_default();
    if value("LoadState") == "masked" {
        return StartResult::Masked;
    }
    match (value("Result").as_str(), value("ConditionResult").as_str()) {
        ("success", "yes") => StartResult::Ran,
        ("success", _) => StartResult::NotStarted,
        (result, _) => match value("ExecMainStatus") {
            status if status == EXEC => StartResult::CannotRun,
            status if result == "oom-kill" => {
                StartResult::OutOfMemory(format!("{result} {status}"))
            }
            status => StartResult::Failed(format!("{result} {status}")),
        },
    }
}

/// Returns the value of a `Key=value` line.
fn property_value(block: &str, key: &str) -> Option<String> {
    let line = block.lines().find_map(|line| line.strip_prefix(key));
    line.and_then(|rest| rest.strip_prefix('='))
        .map(str::to_owned)
}

/// Returns the main process of a unit that is running or starting.
///
/// # Errors
/// systemctl is missing or gives no answer.
pub fn main_pid(runner: &dyn CommandRunner, unit: &str) -> Result<Option<i32>, CommandError> {
    let answer = runner.run(&CommandLine::new(
        "systemctl",
        ["show", "--property=MainPID", "--value", "--", unit],
        Duration::from_secs(30),
    ))?;
    if answer.status != Some(0) {
        let words = answer.stderr.trim().to_owned();
        return Err(CommandError::Failed("systemctl".into(), words));
    }
    Ok(answer.stdout.trim().parse().ok().filter(|pid| *pid > 0))
}

/// Returns the command line of an orderly reboot; the command returns before the reboot. `soft` is true if a soft reboot is
/// prepared, which must be bypassed.
pub fn reboot_node(soft: bool) -> CommandLine {
    let words = ["SYSTEMCTL_SKIP_AUTO_SOFT_REBOOT=1", "systemctl"];
    let words: &[&str] = if soft { &words } else { &[] };
    let args = words.iter().copied().chain(["--no-block", "reboot"]);
    CommandLine::new(
        if soft { "env" } else { "systemctl" },
        args,
        Duration::from_secs(60),
    )
    .with_capabilities(&[Capability::CAP_SYS_BOOT])
}

/// Returns the state of the whole system, such as `starting`, `running` or `degraded`; `None` without an answer.
pub fn query_system_state(runner: &dyn CommandRunner) -> Option<String> {
    let line = systemctl_line(&["is-system-running"], &[], QUICK);
    // Its exit status is 1 in all states but one.
    let answer = runner.run(&line).ok()?;
    Some(answer.stdout.trim().to_owned())
}

/// Returns the commands that force a reboot, from gentle to hard.
pub fn force_reboot() -> [CommandLine; 2] {
    [
        &["reboot", "--force"][..],
        &["reboot", "--force", "--force"],
    ]
    .map(|words| CommandLine {
        capabilities: &[Capability::CAP_SYS_BOOT],
        ..systemctl_line(words, &[], BUSY)
    })
}

/// Parses blocks of `Key=value` lines in any order, with an empty line between two units.
fn parse_activity(answer: &CommandOutput) -> Vec<UnitActivity> {
    let blocks = answer.stdout.split("\n\n");
    let unit = |block: &str| {
        Some(UnitActivity {
            name: property_value(block, "Id")?,
            active: property_value(block, "ActiveState")?.as_str().into(),
            sub: property_value(block, "SubState")?,
        })
    };
    blocks.filter_map(unit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// A runner with scripted answers, used in order; an unexpected command or an unused answer fails the test.
    struct Scripted(RefCell<Vec<(&'static str, CommandOutput)>>);

    impl CommandRunner for Scripted {
        fn run(&self, command: &CommandLine) -> Result<CommandOutput, CommandError> {
            let (wanted, answer) = self.0.borrow_mut().remove(0);
            let said = format!("{} {}", command.program, command.args.join(" "));
            assert_eq!(said, wanted);
            Ok(answer)
        }
    }

    impl Drop for Scripted {
        fn drop(&mut self) {
            assert!(self.0.borrow().is_empty() || std::thread::panicking());
        }
    }

    fn script(lines: &[(&'static str, i32, &str)]) -> Scripted {
        let answer = |&(line, status, text): &(&'static str, i32, &str)| {
            let answer = CommandOutput {
                status: Some(status),
                stdout: text.to_owned(),
                stderr: text.to_owned(),
            };
            (line, answer)
        };
        Scripted(RefCell::new(lines.iter().map(answer).collect()))
    }

    #[test]
    fn names_never_become_options() {
        let runner = script(&[
            ("systemctl daemon-reload", 0, ""),
            ("systemctl start -- a.service", 0, ""),
            ("systemctl stop -- -b.service c.timer", 0, ""),
        ]);
        daemon_reload(&runner).unwrap();
        start_unit(&runner, "a.service").unwrap();
        stop_units(&runner, &["-b.service", "c.timer"]).unwrap();
    }

    #[test]
    fn soft_reboots_are_counted_where_systemd_tells_them() {
        let command = "systemctl show --property=SoftRebootsCount,UserspaceTimestampMonotonic";
        for (answer, soft_reboots, began) in [
            (
                "UserspaceTimestampMonotonic=2000000\nSoftRebootsCount=3\n",
                Some(3),
                Some(2_000_000),
            ),
            ("UserspaceTimestampMonotonic=17\n", None, Some(17)),
            ("UserspaceTimestampMonotonic=0\n", None, None),
            ("", None, None),
        ] {
            let runner = script(&[(command, 0, answer)]);
            let wanted = UserSpace {
                soft_reboots,
                began,
            };
            assert_eq!(query_user_space(&runner), Ok(wanted), "{answer}");
        }
    }

    #[test]
    fn running_jobs_are_told_from_those_that_wait_for_them() {
        let list = "systemctl list-jobs --no-legend --plain --full";
        let show = "systemctl show --property=Id,InactiveExitTimestampMonotonic -- a.service";
        let jobs = "  1 multi-user.target start waiting\n 86 a.service start running\n102 b.service start waiting\nNo jobs running.\n";
        let times = "Id=a.service\nInactiveExitTimestampMonotonic=17000000\n";
        let runner = script(&[(list, 0, jobs), (show, 0, times)]);
        let all = query_jobs(&runner).unwrap();
        let shown: Vec<String> = all
            .iter()
            .map(|job| format!("{} {} {} {:?}", job.unit, job.kind, job.running, job.began))
            .collect();
        assert_eq!(
            shown,
            [
                "multi-user.target start false None",
                "a.service start true Some(17000000)",
                "b.service start false None"
            ]
        );
        assert_eq!(query_jobs(&script(&[(list, 0, "")])), Ok(Vec::new()));
        assert!(query_jobs(&script(&[(list, 1, "Failed to connect to bus")])).is_err());
    }

    #[test]
    fn a_unit_with_a_job_is_not_idle() {
        let text = "Id=a.service\nActiveState=inactive\nJob=85\n\nId=b.service\nActiveState=inactive\nJob=\n\n\
                    Id=c.service\nActiveState=active\nJob=\n\nId=d.service\nActiveState=failed\nJob=\n";
        let units = ["a.service", "b.service", "c.service", "d.service"];
        let command = "systemctl show --property=Id,ActiveState,Job -- a.service b.service c.service d.service";
        let runner = script(&[(command, 0, text)]);
        assert_eq!(
            query_idle(&runner, &units),
            Ok(vec!["b.service".to_owned()])
        );
    }

    #[test]
    fn what_systemctl_said_is_the_error() {
        let runner = script(&[("systemctl start -- a.service", 1, "Job for a failed.\n")]);
        let error = start_unit(&runner, "a.service").unwrap_err();
        assert_eq!(error.to_string(), "running systemctl: Job for a failed.");
    }

    #[test]
    fn the_ways_in_which_a_start_ends_are_told_apart() {
        let command = "systemctl show --property=LoadState,Result,ConditionResult,ExecMainStatus -- a.service";
        for (answer, wanted) in [
            (
                "LoadState=loaded\nResult=success\nConditionResult=yes\nExecMainStatus=0\n",
                StartResult::Ran,
            ),
            (
                "ExecMainStatus=0\nConditionResult=no\nResult=success\nLoadState=loaded\n",
                StartResult::NotStarted,
            ),
            (
                "LoadState=loaded\nResult=exit-code\nConditionResult=yes\nExecMainStatus=203\n",
                StartResult::CannotRun,
            ),
            (
                "LoadState=loaded\nResult=timeout\nConditionResult=yes\nExecMainStatus=15\n",
                StartResult::Failed("timeout 15".to_owned()),
            ),
            ("LoadState=masked\nResult=success\n", StartResult::Masked),
        ] {
            let runner = script(&[(command, 0, answer)]);
            assert_eq!(start_result(&runner, "a.service"), Ok(wanted));
        }
    }

    #[test]
    fn each_block_is_a_unit() {
        let answer = CommandOutput {
            status: Some(0),
            stdout: "Id=a.service\nActiveState=active\nSubState=exited\n\n\
                     ActiveState=activating\nSubState=start\nId=b.service\n"
                .to_owned(),
            stderr: String::new(),
        };
        let found = parse_activity(&answer);
        let shown: Vec<_> = found
            .iter()
            .map(|unit| format!("{} {} {}", unit.name, unit.active, unit.sub))
            .collect();
        assert_eq!(
            shown,
            ["a.service active exited", "b.service activating start"]
        );
    }
}
