//! Jobs for the running system after files were changed: for systemd, NetworkManager and udev, and the one program that the
//! daemon runs instead of a failed job (docs/develop/agreement.md: Actions; docs/reference/after-the-files.md).

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::systemctl::ActiveState;
use super::{CommandError, CommandLine, CommandRunner, network_manager, systemctl};
use crate::base::order::StableOrder;
use crate::host::sys::privileges::Capability;

/// Updates the bundles of certificate authorities.
pub const CA_TRUST: &str = "coreos-update-ca-trust.service";
/// Applies the settings of `sysctl.d` to the kernel.
pub const SYSCTL: &str = "systemd-sysctl.service";

/// One job. The journal of the run records it, so that an interrupted run can repeat it.
///
/// The content is one string in every variant, as in the JSON documents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "job", content = "unit")]
pub enum Job {
    /// The manager reads all unit files again.
    DaemonReload,
    /// A unit reads its files again.
    Reload(String),
    /// A unit is restarted, or started if it does not run.
    Restart(String),
    /// A unit that was stopped for the duration of the run is started again.
    Start(String),
    /// A unit that ran before the run reloads its files; it is restarted if it does not run or cannot reload.
    ReloadOrRestart(String),
    /// `sshd -t` checks the files, then the SSH server reloads them; it is restarted if it does not run. For a socket unit,
    /// only the check is made: each connection starts its own server.
    Sshd(String),
    /// A unit that the run enabled is started.
    StartEnabled(String),
    /// A unit that the run disabled, masked or removed is stopped.
    Stop(String),
    /// NetworkManager rereads its connections and activates the one in a changed file, at this path.
    Connection(String),
    /// The same for a new file.
    NewConnection(String),
    /// NetworkManager rereads its connections and drops the one of a removed file, at this path.
    GoneConnection(String),
    /// udev rereads its rules. Existing devices keep their names and properties.
    UdevRules,
    /// The kernel gets the settings in the files. The string has the previous values, one a line, such as
    /// `net/ipv4/ip_forward=0`.
    Sysctls(String),
    /// The kernel gets these previous values back, then the settings in the files.
    SysctlsBack(String),
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DaemonReload => write!(f, "daemon-reload"),
            Self::Reload(unit) => write!(f, "reload {unit}"),
            Self::Restart(unit) => write!(f, "restart {unit}"),
            Self::Start(unit) | Self::StartEnabled(unit) => write!(f, "start {unit}"),
            Self::Stop(unit) => write!(f, "stop {unit}"),
            Self::ReloadOrRestart(unit) => write!(f, "reload-or-restart {unit}"),
            Self::Sshd(unit) if unit.ends_with(".socket") => write!(f, "sshd -t"),
            Self::Sshd(unit) => write!(f, "sshd -t, reload {unit}"),
            Self::Connection(path) | Self::NewConnection(path) => {
                write!(f, "activate the connection {path}")
            }
            Self::GoneConnection(path) => write!(f, "forget the connection {path}"),
            Self::UdevRules => write!(f, "udevadm control --reload"),
            Self::Sysctls(_) => write!(f, "restart {SYSCTL}"),
            Self::SysctlsBack(_) => write!(f, "restore the kernel's previous settings"),
        }
    }
}

impl Job {
    /// Returns the unit of the job; `None` if it does not concern exactly one unit.
    pub fn unit(&self) -> Option<&str> {
        match self {
            Self::Reload(unit)
            | Self::Restart(unit)
            | Self::Start(unit)
            | Self::ReloadOrRestart(unit)
            | Self::Sshd(unit)
            | Self::StartEnabled(unit)
            | Self::Stop(unit) => Some(unit),
            Self::DaemonReload
            | Self::Connection(_)
            | Self::NewConnection(_)
            | Self::GoneConnection(_)
            | Self::UdevRules
            | Self::Sysctls(_)
            | Self::SysctlsBack(_) => None,
        }
    }

    /// Returns the commands with which a user would do the job by hand.
    pub fn command_text(&self) -> String {
        match self {
            Self::Sshd(unit) if unit.ends_with(".socket") => "sshd -t".to_owned(),
            Self::Sshd(unit) => format!("sshd -t && systemctl reload-or-restart {unit}"),
            Self::Connection(path) | Self::NewConnection(path) => {
                format!("nmcli connection reload; nmcli connection up UUID (of {path})")
            }
            Self::GoneConnection(_) => "nmcli connection reload".to_owned(),
            Self::UdevRules => self.to_string(),
            Self::SysctlsBack(values) => {
                let values: Vec<&str> = values.lines().collect();
                format!("sysctl -w {}; systemctl restart {SYSCTL}", values.join(" "))
            }
            _ => format!("systemctl {self}"),
        }
    }

    /// Returns the job to run once the previous files are restored.
    #[must_use]
    pub fn reverse_job(&self) -> Self {
        match self {
            Self::StartEnabled(unit) => Self::Stop(unit.clone()),
            Self::Stop(unit) => Self::StartEnabled(unit.clone()),
            Self::NewConnection(path) => Self::GoneConnection(path.clone()),
            Self::GoneConnection(path) => Self::NewConnection(path.clone()),
            Self::Sysctls(values) => Self::SysctlsBack(values.clone()),
            Self::SysctlsBack(values) => Self::Sysctls(values.clone()),
            _ => self.clone(),
        }
    }
}

/// Returns the jobs to run once the previous files are restored. Units that the run started are stopped first, while systemd
/// still knows them; units that it stopped are started last, when everything else has read the old files.
pub fn jobs_back<'a>(jobs: impl IntoIterator<Item = &'a Job>) -> Vec<Job> {
    let mut back: Vec<Job> = jobs.into_iter().map(Job::reverse_job).collect();
    back.order_by_key(|job| match job {
        Job::Stop(_) => 0,
        Job::DaemonReload => 1,
        Job::StartEnabled(_) => 3,
        _ => 2,
    });
    back
}

/// The result of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Done {
    /// The job was done.
    Done,
    /// The unit does not run and will read its files when it is started. For a connection: its device is missing.
    NotRunning,
    /// The unit failed, and `update-ca-trust` did its work instead.
    Instead,
}

impl Done {
    /// Returns the result as text.
    pub fn words(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::NotRunning => "not running; it reads its files at its next start",
            Self::Instead => "failed; update-ca-trust ran instead",
        }
    }
}

/// Carries out a job and waits until it is finished.
///
/// A service that does not run is not reloaded: systemd refuses that, and such services are common on a node that needs rescue.
///
/// # Errors
/// A program reports an error or does not answer in time.
pub fn carry_out(runner: &dyn CommandRunner, job: &Job) -> Result<Done, CommandError> {
    match job {
        Job::DaemonReload => systemctl::daemon_reload(runner)?,
        Job::Reload(unit) if is_idle(runner, unit) => return Ok(Done::NotRunning),
        Job::Reload(unit) => systemctl::reload_unit(runner, unit)?,
        Job::Restart(unit) => match systemctl::restart_unit(runner, unit) {
            Err(error) if unit == CA_TRUST => return update_ca_trust(runner, &error),
            restarted => restarted?,
        },
        Job::Start(unit) | Job::StartEnabled(unit) => systemctl::start_unit(runner, unit)?,
        Job::Stop(unit) => match systemctl::stop_units(runner, &[unit]) {
            // Its file was removed, and the unit with it.
            Err(_) if is_idle(runner, unit) => return Ok(Done::NotRunning),
            stopped => stopped?,
        },
        Job::ReloadOrRestart(unit) => reload_or_restart(runner, unit)?,
        Job::Sshd(unit) => {
            match run_program(runner, &sshd_test_line(), true) {
                // systemd creates that directory when it starts the server.
                Err(CommandError::Failed(_, said)) if said.contains(NO_DIRECTORY) => {}
                tested => tested?,
            }
            if !unit.ends_with(".socket") {
                reload_or_restart(runner, unit)?;
            }
        }
        Job::Connection(path) | Job::NewConnection(path) => {
            if !network_manager::activate_file(runner, path)? {
                return Ok(Done::NotRunning);
            }
        }
        Job::GoneConnection(_) => network_manager::reload_connections(runner)?,
        Job::UdevRules => run_program(runner, &udev_line(), false)?,
        Job::Sysctls(_) => systemctl::restart_unit(runner, SYSCTL)?,
        Job::SysctlsBack(values) => {
            let set = set_sysctls(runner, values);
            systemctl::restart_unit(runner, SYSCTL)?;
            set?;
        }
    }
    Ok(Done::Done)
}

/// Carries out every job, even after one has failed, and returns a line for each failure. It is used to revert a run, so a unit
/// that hit its start limit is started nevertheless.
pub fn carry_out_all(runner: &dyn CommandRunner, jobs: &[Job]) -> Vec<String> {
    let mut failed = Vec::new();
    for job in jobs {
        let checked =
            |other: &&Job| matches!((other, job), (Job::Sshd(a), Job::Restart(b)) if a == b);
        let refused = jobs.iter().find(checked).map(|check| format!("{check}: "));
        if refused.is_some_and(|words| failed.iter().any(|said: &String| said.starts_with(&words)))
        {
            // It would stop the server that still works.
            continue;
        }
        log::info!("{job}, with the files as they were before");
        let answer = carry_out(runner, job).or_else(|error| match job.unit() {
            Some(unit) if systemctl::reset_failed(runner, &[unit]).is_ok() => {
                carry_out(runner, job).map_err(|_| error)
            }
            _ => Err(error),
        });
        if let Err(error) = answer {
            failed.push(format!("{job}: {error}"));
        }
    }
    failed
}

/// Returns true if the unit is known not to run. If that is unknown, the job is run.
fn is_idle(runner: &dyn CommandRunner, unit: &str) -> bool {
    let known = systemctl::query_activity(runner, &[unit]).unwrap_or_default();
    !known.is_empty() && known.iter().all(|unit| !unit.is_running())
}

/// Reloads a unit, or restarts it: a unit that waits for its next start cannot be reloaded.
fn reload_or_restart(runner: &dyn CommandRunner, unit: &str) -> Result<(), CommandError> {
    let known = systemctl::query_activity(runner, &[unit]).unwrap_or_default();
    let works = |unit: &systemctl::UnitActivity| {
        matches!(unit.active, ActiveState::Active | ActiveState::Reloading)
    };
    if known.iter().all(works) {
        systemctl::reload_or_restart_unit(runner, unit)
    } else {
        systemctl::restart_unit(runner, unit)
    }
}

fn set_sysctls(runner: &dyn CommandRunner, values: &str) -> Result<(), CommandError> {
    let values: Vec<&str> = values.lines().collect();
    if values.is_empty() {
        return Ok(());
    }
    // systemd has the capabilities that some settings need. A setting that fails does not stop the others.
    let words = [
        "--quiet",
        "--collect",
        "--wait",
        "--pipe",
        "sysctl",
        "-q",
        "-w",
        "--",
    ];
    let line = CommandLine::new(
        "systemd-run",
        words.into_iter().chain(values),
        Duration::from_secs(30),
    );
    run_program(runner, &line, false)
}

fn sshd_test_line() -> CommandLine {
    CommandLine::new("sshd", ["-t"], Duration::from_secs(10))
}

fn udev_line() -> CommandLine {
    CommandLine::new("udevadm", ["control", "--reload"], Duration::from_secs(30))
}

/// The error of `sshd -t` if the server is not running and its directory below `/run` was removed with it.
const NO_DIRECTORY: &str = "Missing privilege separation directory";

/// Runs a program that has to exit with 0; a missing program is not an error if it is `optional`.
fn run_program(
    runner: &dyn CommandRunner,
    line: &CommandLine,
    optional: bool,
) -> Result<(), CommandError> {
    match runner.run(line) {
        Ok(answer) if answer.status == Some(0) => Ok(()),
        Ok(answer) => {
            let said = [answer.stderr.trim(), answer.stdout.trim()];
            let said = said.into_iter().find(|said| !said.is_empty());
            let said = said.unwrap_or("it failed without a message").to_owned();
            Err(CommandError::Failed(line.program.clone(), said))
        }
        Err(CommandError::Missing(_)) if optional => Ok(()),
        Err(error) => Err(error),
    }
}

fn update_ca_trust(runner: &dyn CommandRunner, error: &CommandError) -> Result<Done, CommandError> {
    let failed = |words: String| {
        CommandError::Failed("update-ca-trust".into(), format!("{words}, after {error}"))
    };
    let answer = runner.run(&ca_trust_line());
    match answer.map_err(|second| failed(second.to_string()))? {
        answer if answer.status == Some(0) => Ok(Done::Instead),
        answer => Err(failed(answer.stderr.trim().to_owned())),
    }
}

/// Returns the command line of `update-ca-trust`. It writes into directories that are closed even to their owner.
fn ca_trust_line() -> CommandLine {
    CommandLine::new("update-ca-trust", [""; 0], Duration::from_secs(90))
        .with_capabilities(&[Capability::CAP_DAC_OVERRIDE, Capability::CAP_FOWNER])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::command::CommandOutput;
    use std::cell::RefCell;

    /// A runner with scripted answers, used in order; an unexpected command or an unused answer fails the test.
    struct Scripted(RefCell<Vec<(&'static str, i32, &'static str)>>);

    impl CommandRunner for Scripted {
        fn run(&self, command: &CommandLine) -> Result<CommandOutput, CommandError> {
            let (wanted, status, text) = self.0.borrow_mut().remove(0);
            let said = format!("{} {}", command.program, command.args.join(" "));
            assert_eq!(said.trim(), wanted);
            Ok(CommandOutput {
                status: Some(status),
                stdout: text.to_owned(),
                stderr: text.to_owned(),
            })
        }
    }

    fn done(
        job: &Job,
        answers: &[(&'static str, i32, &'static str)],
    ) -> Result<Done, CommandError> {
        let runner = Scripted(RefCell::new(answers.to_vec()));
        let done = carry_out(&runner, job);
        assert_eq!(runner.0.borrow().len(), 0, "unused answers");
        done
    }

    const SHOW: &str = "systemctl show --property=Id,ActiveState,SubState -- crio.service";

    #[test]
    fn a_service_that_does_not_run_is_not_reloaded() {
        let job = Job::Reload("crio.service".into());
        for state in ["inactive", "failed"] {
            let text = match state {
                "failed" => "Id=crio.service\nActiveState=failed\nSubState=failed\n",
                _ => "Id=crio.service\nActiveState=inactive\nSubState=dead\n",
            };
            assert_eq!(done(&job, &[(SHOW, 0, text)]), Ok(Done::NotRunning));
        }
        let running = "Id=crio.service\nActiveState=active\nSubState=running\n";
        let reload = "systemctl reload -- crio.service";
        assert_eq!(
            done(&job, &[(SHOW, 0, running), (reload, 0, "")]),
            Ok(Done::Done)
        );
        let error = done(&job, &[(SHOW, 1, ""), (reload, 1, "no")]).unwrap_err();
        assert_eq!(error.to_string(), "running systemctl: no");
    }

    #[test]
    fn a_unit_that_is_gone_needs_no_stop() {
        let job = Job::Stop("crio.service".into());
        let stop = "systemctl stop -- crio.service";
        let gone = "Unit crio.service not loaded.";
        let idle = "Id=crio.service\nActiveState=inactive\nSubState=dead\n";
        assert_eq!(done(&job, &[(stop, 0, "")]), Ok(Done::Done));
        let stopped = done(&job, &[(stop, 5, gone), (SHOW, 0, idle)]);
        assert_eq!(stopped, Ok(Done::NotRunning));
        let running = "Id=crio.service\nActiveState=active\nSubState=running\n";
        let error = done(&job, &[(stop, 1, "no"), (SHOW, 0, running)]).unwrap_err();
        assert_eq!(error.to_string(), "running systemctl: no");
    }

    #[test]
    fn the_bundles_are_made_by_the_program_where_its_unit_fails() {
        let restart = "systemctl restart -- coreos-update-ca-trust.service";
        let job = Job::Restart(CA_TRUST.into());
        let program = "update-ca-trust";
        assert_eq!(done(&job, &[(restart, 0, "")]), Ok(Done::Done));
        assert_eq!(
            done(&job, &[(restart, 5, "not found"), (program, 0, "")]),
            Ok(Done::Instead)
        );
        let error = done(
            &job,
            &[(restart, 5, "not found"), (program, 1, "p11-kit: no")],
        );
        let said = error.unwrap_err().to_string();
        assert!(
            said.contains("p11-kit: no, after running systemctl: not found"),
            "{said}"
        );
        let other = Job::Restart("crio.service".into());
        assert!(done(&other, &[("systemctl restart -- crio.service", 1, "no")]).is_err());
    }

    #[test]
    fn a_job_reads_back_as_it_was_written() {
        let jobs = vec![
            Job::DaemonReload,
            Job::Reload("a.service".into()),
            Job::Restart("b.service".into()),
            Job::Start("c.service".into()),
        ];
        let text = serde_json::to_string(&jobs).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Job>>(&text).unwrap(), jobs);
        assert_eq!(jobs[1].command_text(), "systemctl reload a.service");
    }

    fn every_kind() -> Vec<Job> {
        let unit = || "a.service".to_owned();
        let path = || "/etc/NetworkManager/system-connections/a.nmconnection".to_owned();
        vec![
            Job::DaemonReload,
            Job::Reload(unit()),
            Job::Restart(unit()),
            Job::Start(unit()),
            Job::ReloadOrRestart(unit()),
            Job::Sshd("sshd.service".to_owned()),
            Job::StartEnabled(unit()),
            Job::Stop(unit()),
            Job::Connection(path()),
            Job::NewConnection(path()),
            Job::GoneConnection(path()),
            Job::UdevRules,
            Job::Sysctls("net/ipv4/ip_forward=0\nvm/swappiness=60".to_owned()),
            Job::SysctlsBack("net/ipv4/ip_forward=0".to_owned()),
        ]
    }

    #[test]
    fn jobs_of_earlier_versions_and_all_others_are_read_back() {
        let text = r#"[{"job":"daemon-reload"},{"job":"reload","unit":"a.service"},
            {"job":"restart","unit":"b.service"},{"job":"start","unit":"c.service"}]"#;
        let jobs: Vec<Job> = serde_json::from_str(text).unwrap();
        assert_eq!(jobs[3], Job::Start("c.service".into()));
        for job in every_kind() {
            let value = serde_json::to_value(&job).unwrap();
            assert!(value["job"].is_string());
            // Documents promise a string.
            assert!(
                value.get("unit").is_none_or(serde_json::Value::is_string),
                "{value}"
            );
            assert_eq!(serde_json::from_value::<Job>(value).unwrap(), job);
        }
    }

    #[test]
    fn the_way_back_of_the_way_back_is_the_way_there() {
        for job in every_kind() {
            assert_eq!(job.reverse_job().reverse_job(), job);
        }
        let jobs = [
            Job::Stop("old.service".into()),
            Job::DaemonReload,
            Job::StartEnabled("new.service".into()),
            Job::Sshd("sshd.service".into()),
        ];
        let back: Vec<String> = jobs_back(&jobs).iter().map(Job::to_string).collect();
        let wanted = [
            "stop new.service",
            "daemon-reload",
            "sshd -t, reload sshd.service",
            "start old.service",
        ];
        assert_eq!(back, wanted);
    }

    const SSHD: &str = "systemctl show --property=Id,ActiveState,SubState -- sshd.service";
    const RUNS: &str = "Id=sshd.service\nActiveState=active\nSubState=running\n";

    #[test]
    fn a_server_that_lives_is_not_told_of_files_that_would_end_it() {
        let job = Job::Sshd("sshd.service".into());
        let fault = "/etc/ssh/sshd_config line 2: Bad configuration option: Pork";
        let error = done(&job, &[("sshd -t", 255, fault)]).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("running sshd: /etc/ssh/sshd_config line 2"),
            "{error}"
        );
        let reload = "systemctl reload-or-restart -- sshd.service";
        assert_eq!(
            done(
                &job,
                &[("sshd -t", 0, ""), (SSHD, 0, RUNS), (reload, 0, "")]
            ),
            Ok(Done::Done)
        );
        // A unit that is dead, or that systemd is about to restart, cannot be reloaded.
        for state in [
            "ActiveState=failed\nSubState=failed",
            "ActiveState=activating\nSubState=auto-restart",
        ] {
            let state: &'static str =
                Box::leak(format!("Id=sshd.service\n{state}\n").into_boxed_str());
            let restart = "systemctl restart -- sshd.service";
            assert_eq!(
                done(
                    &job,
                    &[("sshd -t", 0, ""), (SSHD, 0, state), (restart, 0, "")]
                ),
                Ok(Done::Done)
            );
        }
        // Each connection starts its own server, so only the check is made.
        assert_eq!(
            done(&Job::Sshd("sshd.socket".into()), &[("sshd -t", 0, "")]),
            Ok(Done::Done)
        );
    }

    #[test]
    fn a_server_that_lives_is_not_restarted_with_files_that_it_refuses() {
        let sshd = || "sshd.service".to_owned();
        let runner = Scripted(RefCell::new(vec![
            ("sshd -t", 255, "line 1: no"),
            ("systemctl reset-failed -- sshd.service", 1, "no"),
        ]));
        let failed = carry_out_all(&runner, &[Job::Sshd(sshd()), Job::Restart(sshd())]);
        assert_eq!(
            failed,
            ["sshd -t, reload sshd.service: running sshd: line 1: no"]
        );
        assert_eq!(runner.0.borrow().len(), 0, "unused answers");
    }

    #[test]
    fn the_way_back_goes_on_after_a_failure_and_starts_what_failed_too_often() {
        let runner = Scripted(RefCell::new(vec![
            ("systemctl stop -- new.service", 1, "no"),
            (
                "systemctl show --property=Id,ActiveState,SubState -- new.service",
                1,
                "no",
            ),
            ("systemctl reset-failed -- new.service", 1, "no"),
            (
                "systemctl restart -- a.service",
                1,
                "start request repeated too quickly",
            ),
            ("systemctl reset-failed -- a.service", 0, ""),
            ("systemctl restart -- a.service", 0, ""),
            (
                "systemd-run --quiet --collect --wait --pipe sysctl -q -w -- net/ipv4/ip_forward=0 vm/swappiness=60",
                1,
                "cannot",
            ),
            ("systemctl restart -- systemd-sysctl.service", 0, ""),
            ("udevadm control --reload", 0, ""),
        ]));
        let jobs = [
            Job::StartEnabled("new.service".into()),
            Job::Restart("a.service".into()),
            Job::Sysctls("net/ipv4/ip_forward=0\nvm/swappiness=60".into()),
            Job::UdevRules,
        ];
        let failed = carry_out_all(&runner, &jobs_back(&jobs));
        let wanted = [
            "stop new.service: running systemctl: no",
            "restore the kernel's previous settings: running systemd-run: cannot",
        ];
        assert_eq!(failed, wanted);
        assert_eq!(runner.0.borrow().len(), 0, "unused answers");
    }
}
