//! Telling the running system, between the files and the records (design.md section 3, point 6).
//!
//! A job may be done twice, so an interrupted run does all of them again in the same boot; after another boot nothing
//! is left to be told. Once files are put back, whoever was told of the new ones is told of the old ones.

use super::journal::Journal;
use crate::command::job::{self, Done, Job};
use crate::command::{CommandError, CommandRunner};
use crate::systemd::changed::is_read_by_manager;

/// What runs there now.
pub struct Running<'a> {
    /// Starts programs on it.
    pub runner: &'a dyn CommandRunner,
    /// The id of its boot; `None` where the root is not that of the running system.
    pub boot: Option<&'a str>,
}

/// A job that failed.
#[derive(Debug, thiserror::Error)]
#[error("{job}: {error} (see `{see}`; --no-actions leaves it to you)")]
pub struct JobError {
    job: Job,
    see: String,
    error: CommandError,
}

/// Carries jobs out in order, up to the first that fails.
///
/// # Errors
/// That one, with its number.
pub fn carry_out(
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

/// After files were put back: tells again whoever was told of the new ones, of the first `told` jobs, and starts what
/// was stopped for the run. What fails is said, and stops nothing.
pub fn tell_again(runner: &dyn CommandRunner, journal: &Journal, told: usize) -> Vec<String> {
    let mut jobs: Vec<&Job> = journal.jobs.iter().take(told).collect();
    let mut steps = journal.steps.iter();
    if !jobs.is_empty() && steps.any(|step| is_read_by_manager(step.step.path())) {
        jobs.retain(|job| **job != Job::DaemonReload);
        jobs.insert(0, &Job::DaemonReload);
    }
    let rest = journal.jobs.iter().skip(told);
    jobs.extend(rest.filter(|job| matches!(job, Job::Start(_))));
    let mut failed = Vec::new();
    for job in jobs {
        log::info!("{job}, with the files as they were before");
        if let Err(error) = job::carry_out(runner, job) {
            failed.push(format!("{job}: {error}"));
        }
    }
    failed
}

/// What there is left to tell of an interrupted run: all of it in the same boot, and nothing after another one.
pub fn left<'a>(journal: &'a Journal, running: &Running<'_>) -> &'a [Job] {
    let same = running.boot.is_some() && journal.boot.as_deref() == running.boot;
    if same { &journal.jobs } else { &[] }
}

fn where_to_look(job: &Job) -> String {
    match job {
        Job::DaemonReload => "journalctl -b -t systemd".to_owned(),
        Job::Reload(unit) | Job::Restart(unit) | Job::Start(unit) => {
            format!("systemctl status {unit}")
        }
    }
}
