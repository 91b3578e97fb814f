//! Jobs for the running system after files were changed: jobs for systemd, and the one program that the daemon runs
//! instead of a failed job (docs/agreement.md: Actions).

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{CommandError, CommandLine, CommandRunner, systemctl};
use crate::sys::privileges::Capability;

/// Puts certificate authorities into the bundles.
pub const CA_TRUST: &str = "coreos-update-ca-trust.service";

/// One job; the journal names it, so that an interrupted run can do it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "job", content = "unit")]
pub enum Job {
    /// The manager reads all unit files again.
    DaemonReload,
    /// A unit reads its files again.
    Reload(String),
    /// A unit is started anew, also one that does not run.
    Restart(String),
    /// A unit that was stopped for the time of the run is started again.
    Start(String),
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DaemonReload => write!(f, "daemon-reload"),
            Self::Reload(unit) => write!(f, "reload {unit}"),
            Self::Restart(unit) => write!(f, "restart {unit}"),
            Self::Start(unit) => write!(f, "start {unit}"),
        }
    }
}

impl Job {
    /// Returns its unit; `None` if it concerns the manager.
    pub fn unit(&self) -> Option<&str> {
        match self {
            Self::DaemonReload => None,
            Self::Reload(unit) | Self::Restart(unit) | Self::Start(unit) => Some(unit),
        }
    }

    /// Returns the command line that a person types for it.
    pub fn systemctl_text(&self) -> String {
        format!("systemctl {self}")
    }
}

/// The result of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Done {
    /// The job was done.
    Done,
    /// The unit does not run: it reads its files when it is started.
    NotRunning,
    /// The unit failed, and `update-ca-trust` did its work instead.
    Instead,
}

/// Carries a job out and waits for its end.
///
/// A service that does not run is not reloaded: systemd refuses that, and on a node in need of rescue it is common.
///
/// # Errors
/// systemctl reports an error, or gives no answer in time.
pub fn carry_out(runner: &dyn CommandRunner, job: &Job) -> Result<Done, CommandError> {
    match job {
        Job::DaemonReload => systemctl::daemon_reload(runner)?,
        Job::Reload(unit) if is_idle(runner, unit) => return Ok(Done::NotRunning),
        Job::Reload(unit) => systemctl::reload_unit(runner, unit)?,
        Job::Restart(unit) => match systemctl::restart_unit(runner, unit) {
            Err(error) if unit == CA_TRUST => return update_ca_trust(runner, &error),
            restarted => restarted?,
        },
        Job::Start(unit) => systemctl::start_unit(runner, unit)?,
    }
    Ok(Done::Done)
}

/// Returns true if the unit certainly does not run. Without an answer the job is run.
fn is_idle(runner: &dyn CommandRunner, unit: &str) -> bool {
    let known = systemctl::query_activity(runner, &[unit]).unwrap_or_default();
    !known.is_empty() && known.iter().all(|unit| !unit.is_running())
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

/// It writes into directories that are closed even to their owner.
fn ca_trust_line() -> CommandLine {
    CommandLine {
        program: "update-ca-trust".into(),
        args: Vec::new(),
        timeout: Duration::from_secs(90),
        capabilities: &[Capability::CAP_DAC_OVERRIDE, Capability::CAP_FOWNER],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::CommandOutput;
    use std::cell::RefCell;

    /// Answers in order; an unexpected command and an unused answer fail.
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
        assert_eq!(jobs[1].systemctl_text(), "systemctl reload a.service");
    }
}
