//! Jobs for the running system, between the files and the records (docs/develop/transaction.md).
//!
//! A job may run twice, so recovery in the same boot repeats all of them. After another boot none is needed: every service has
//! read the current files. When files are restored, the services that read the new ones are made to reread them.

use super::journal::Journal;
use crate::formats::systemd::changed::is_read_by_manager;
use crate::node::boot::BootIdentity;
use crate::node::command::job::{self, Done, Job};
use crate::node::command::{CommandError, CommandRunner};

/// The running system of a root.
#[allow(missing_debug_implementations, reason = "a runner has nothing to show")]
pub struct RunningSystem<'a> {
    /// Starts programs on it.
    pub runner: &'a dyn CommandRunner,
    /// Its boot; `None` if the root is not that of the running system.
    pub boot: Option<&'a BootIdentity>,
}

/// A job that failed.
#[derive(Debug, thiserror::Error)]
#[error("{job}: {error} (see `{see}`; --no-actions leaves it to you)")]
pub struct JobError {
    job: Job,
    see: String,
    error: CommandError,
}

/// Runs jobs in order, until one fails.
///
/// # Errors
/// The failed job, with its index.
pub(super) fn carry_out(
    runner: &dyn CommandRunner,
    jobs: &[Job],
) -> Result<Vec<(Job, Done)>, (usize, JobError)> {
    let mut done = Vec::new();
    for (index, job) in jobs.iter().enumerate() {
        log::info!("{job}");
        let failed = |error| {
            let (job, see) = (job.clone(), where_to_look(job));
            (index, JobError { job, see, error })
        };
        done.push((job.clone(), job::carry_out(runner, job).map_err(failed)?));
    }
    Ok(done)
}

/// Runs the first `told` jobs again after files were restored, and starts the units that were stopped for the run. Returns a
/// line for every failed job; a failure does not stop the others.
pub(super) fn repeat_jobs(
    runner: &dyn CommandRunner,
    journal: &Journal,
    told: usize,
) -> Vec<String> {
    let mut jobs = job::jobs_back(journal.jobs.iter().take(told));
    let mut steps = journal.steps.iter();
    if !jobs.is_empty() && steps.any(|step| is_read_by_manager(step.step.path())) {
        jobs.retain(|job| *job != Job::DaemonReload);
        let stops = jobs.iter().filter(|job| matches!(job, Job::Stop(_)));
        jobs.insert(stops.count(), Job::DaemonReload);
    }
    let rest = journal.jobs.iter().skip(told);
    jobs.extend(rest.filter(|job| matches!(job, Job::Start(_))).cloned());
    let mut failed = Vec::new();
    for job in jobs {
        log::info!("{job}, with the files as they were before");
        if let Err(error) = job::carry_out(runner, &job) {
            failed.push(format!("{job}: {error}"));
        }
    }
    failed
}

/// Returns the jobs that an interrupted run still needs: all in the same boot, none after another boot.
pub(super) fn jobs_left<'a>(journal: &'a Journal, running: &RunningSystem<'_>) -> &'a [Job] {
    let boots = running.boot.zip(journal.boot.as_ref());
    let same = boots.is_some_and(|(now, then)| {
        let same_deployment = match (&now.boot_deployment, &journal.deployment) {
            (Some(runs), Some(ran)) => runs == ran,
            _ => true,
        };
        now.is_same(then) && same_deployment
    });
    if same { &journal.jobs } else { &[] }
}

fn where_to_look(job: &Job) -> String {
    match job {
        Job::DaemonReload => "journalctl -b -t systemd".to_owned(),
        Job::Sshd(_) => "sshd -t".to_owned(),
        Job::Connection(_) | Job::NewConnection(_) | Job::GoneConnection(_) => {
            "journalctl -b -u NetworkManager".to_owned()
        }
        Job::UdevRules => "systemctl status systemd-udevd.service".to_owned(),
        Job::Sysctls(_) | Job::SysctlsBack(_) => format!("systemctl status {}", job::SYSCTL),
        Job::Reload(unit)
        | Job::Restart(unit)
        | Job::Start(unit)
        | Job::ReloadOrRestart(unit)
        | Job::StartEnabled(unit)
        | Job::Stop(unit) => format!("systemctl status {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::plan::{Section, Step};
    use crate::change::transaction::journal::{ConfigRef, JournalStep, VERSION};
    use crate::host::root::RootPath;
    use crate::node::command::{CommandLine, CommandOutput};
    use std::cell::RefCell;

    /// Records the commands; `bad.service` fails, and every unit is running.
    #[derive(Default)]
    struct Manager(RefCell<Vec<String>>);

    impl CommandRunner for Manager {
        fn run(&self, command: &CommandLine) -> Result<CommandOutput, CommandError> {
            let said = command.args.join(" ");
            let bad = said.ends_with("bad.service") && !said.starts_with("show");
            if !said.starts_with("show") {
                self.0.borrow_mut().push(said);
            }
            Ok(CommandOutput {
                status: Some(i32::from(bad)),
                stdout: "Id=x\nActiveState=active\nSubState=running\n".to_owned(),
                stderr: "it is bad".to_owned(),
            })
        }
    }

    fn journal(path: &str, jobs: &[Job]) -> Journal {
        let step = Step::MakeDirectory {
            path: RootPath::parse(path).unwrap(),
            mode: 0o755,
            uid: 0,
            gid: 0,
        };
        Journal {
            version: VERSION,
            id: "1-1".into(),
            config: ConfigRef {
                name: "a".into(),
                digest: String::new(),
                origin: String::new(),
            },
            deployment: None,
            stages: Vec::new(),
            steps: vec![JournalStep {
                step,
                stage: 0,
                section: Section::Files,
                within: None,
            }],
            records_from: 1,
            held: Vec::new(),
            freeze: Vec::new(),
            undoes: None,
            jobs: jobs.to_vec(),
            by: None,
            capsules: Vec::new(),
            boot: Some(boot("this", 1)),
        }
    }

    fn boot(id: &str, soft_reboots: u32) -> BootIdentity {
        BootIdentity {
            id: id.to_owned(),
            soft_reboots: Some(soft_reboots),
            ..BootIdentity::default()
        }
    }

    fn jobs() -> [Job; 4] {
        [
            Job::Reload("a.service".into()),
            Job::DaemonReload,
            Job::Restart("bad.service".into()),
            Job::Start("kubelet.service".into()),
        ]
    }

    #[test]
    fn only_the_boot_of_the_run_is_reported() {
        let journal = journal("/etc/a", &jobs());
        let runner = Manager::default();
        for (boot, told) in [
            (Some(boot("this", 1)), 4),
            // A soft reboot keeps the boot id.
            (Some(boot("this", 2)), 0),
            (Some(boot("other", 1)), 0),
            (None, 0),
        ] {
            let running = RunningSystem {
                runner: &runner,
                boot: boot.as_ref(),
            };
            assert_eq!(jobs_left(&journal, &running).len(), told, "{boot:?}");
        }
    }

    #[test]
    fn the_first_that_fails_ends_it_and_says_where_to_look() {
        let runner = Manager::default();
        let (index, error) = carry_out(&runner, &jobs()).unwrap_err();
        assert_eq!(index, 2);
        let wanted = "restart bad.service: running systemctl: it is bad (see `systemctl status bad.service`; \
                      --no-actions leaves it to you)";
        assert_eq!(error.to_string(), wanted);
    }

    #[test]
    fn notified_units_are_notified_again_and_stopped_ones_start() {
        let told = |path: &str, told: usize| {
            let runner = Manager::default();
            let failed = repeat_jobs(&runner, &journal(path, &jobs()), told);
            (runner.0.take(), failed)
        };
        let start = "start -- kubelet.service";
        assert_eq!(told("/etc/a", 0).0, [start]);
        assert_eq!(told("/etc/a", 1).0, ["reload -- a.service", start]);
        // systemd reloads unit files first.
        let (said, failed) = told("/etc/systemd/system/a.service", 3);
        let wanted = [
            "daemon-reload",
            "reload -- a.service",
            "restart -- bad.service",
            start,
        ];
        assert_eq!(said, wanted);
        assert_eq!(
            failed,
            ["restart bad.service: running systemctl: it is bad"]
        );
    }
}
