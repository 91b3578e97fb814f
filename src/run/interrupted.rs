//! Finishing or undoing an interrupted run.

use crate::base::invocation::reboot_command;
use anyhow::Result;

use crate::base::error::{self, Changed, RunError};
use crate::base::notice::Notice;
use crate::base::paths;
use crate::base::time::current_time;
use crate::change::staging::lease::Lease;
use crate::change::staging::state;
use crate::change::transaction::{
    self, Direction, LastRun, Leave, Pending, RecoverError, RecoverRequest, Recovered, RunOutcome,
    RunPhase, RunningSystem,
};
use crate::change::workloads;
use crate::formats::systemd::UNIT_SEARCH_PATH;
use crate::formats::systemd::changed::{is_read_by_manager, units_at, wanted_at};
use crate::host::progress::{self, Work};
use crate::host::root::{Root, RootPath};
use crate::host::sys::memory::RunStage;
use crate::host::sys::signals::{self, SignalAnswer};
use crate::node::Host;
use crate::node::boot::BootIdentity;
use crate::node::command::{CommandError, CommandRunner, systemctl};
use crate::node::host::systemd_runs;
use crate::run::events::{self, NodeEvent, RunEnd};
use crate::run::node_change::NodeChange;

/// Units affected by a recovery while the boot continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartedUnits {
    /// No unit file has changed.
    Unconcerned,
    /// The manager has reloaded the unit files.
    Read {
        /// Units that started earlier, from the old files.
        before: Vec<String>,
        /// Units that are still running although their files are gone.
        removed: Vec<String>,
        /// Units enabled by the recovery, too late for this boot.
        too_late: Vec<String>,
    },
    /// The manager could not be queried, for this reason.
    Unknown(String),
}

impl StartedUnits {
    /// Returns a description of the affected units.
    pub fn describe_units(&self) -> String {
        match self {
            Self::Unconcerned => "no unit file has changed".to_owned(),
            Self::Read {
                before,
                removed,
                too_late,
            } => {
                let mut said = "systemd has read the changed unit files".to_owned();
                if before.is_empty() && removed.is_empty() {
                    said.push_str("; none of their units was started before");
                }
                if !removed.is_empty() {
                    let (all, words) = (removed.join(", "), removed.join(" "));
                    said.push_str(&format!(
                        "; removed, and still running: {all}. Next: systemctl stop {words}"
                    ));
                }
                if !before.is_empty() {
                    let (all, words) = (before.join(", "), before.join(" "));
                    said.push_str(&format!(
                        "; started earlier, from the old files: {all}. Next: systemctl restart {words}"
                    ));
                }
                if !too_late.is_empty() {
                    let (all, words) = (too_late.join(", "), too_late.join(" "));
                    said.push_str(&format!(
                        "; enabled too late for this boot: {all}. Next: systemctl start {words}"
                    ));
                }
                said
            }
            Self::Unknown(why) => format!(
                "unit files have changed, and systemd could not be queried about units started from the old files \
                 ({why}). Next: systemctl daemon-reload, or {}",
                reboot_command()
            ),
        }
    }
}

/// Makes the manager reload unit files that have changed, and finds the units that are already running.
pub fn at_boot(
    changed: &[RootPath],
    is_there: &dyn Fn(&RootPath) -> bool,
    runner: &dyn CommandRunner,
) -> StartedUnits {
    if !changed.iter().any(is_read_by_manager) {
        return StartedUnits::Unconcerned;
    }
    if let Err(error) = systemctl::daemon_reload(runner) {
        log::warn!("{error}. Next: systemctl daemon-reload");
        return StartedUnits::Unknown(error.to_string());
    }
    let there = changed.iter().filter(|path| is_there(path)).cloned();
    let wanted = wanted_at(&there.collect::<Vec<_>>());
    match split_running(&units_at(changed), &wanted, runner) {
        Ok((running, too_late)) => {
            let (before, removed) = running
                .into_iter()
                .partition(|unit| has_file(unit, is_there));
            StartedUnits::Read {
                before,
                removed,
                too_late,
            }
        }
        Err(error) => StartedUnits::Unknown(error.to_string()),
    }
}

/// Returns true if a unit has a file, or is an instance of a template.
fn has_file(unit: &str, is_there: &dyn Fn(&RootPath) -> bool) -> bool {
    let exists = |directory: &&str| {
        let path = RootPath::parse(&format!("{directory}/{unit}"));
        path.is_ok_and(|path| is_there(&path))
    };
    unit.contains('@') || UNIT_SEARCH_PATH.iter().any(exists)
}

/// Returns the units that are already running, and the wanted units that are idle.
fn split_running(
    units: &[String],
    wanted: &[String],
    runner: &dyn CommandRunner,
) -> Result<(Vec<String>, Vec<String>), CommandError> {
    let running = match unit_names(units).as_slice() {
        [] => Vec::new(),
        units => systemctl::query_activity(runner, units)?,
    };
    let running = running.into_iter().filter(|unit| unit.is_running());
    let idle = match unit_names(wanted).as_slice() {
        [] => Vec::new(),
        units => systemctl::query_idle(runner, units)?,
    };
    Ok((running.map(|unit| unit.name).collect(), idle))
}

fn unit_names(units: &[String]) -> Vec<&str> {
    units.iter().map(String::as_str).collect()
}

/// Keeps the result for `status`, as the console may be unattended during a boot.
pub fn keep_result(change: &NodeChange<'_>, recovered: &Recovered, units: &StartedUnits) {
    let (outcome, config) = match recovered {
        Recovered::Finished(config, _) => (RunOutcome::Recovered, config),
        Recovered::Undone(config, _) => (RunOutcome::Undone, config),
        Recovered::Swept(_) | Recovered::Nothing | Recovered::GivenUp(..) => return,
    };
    let phase = |name: &str, result: String| RunPhase {
        name: name.into(),
        result,
    };
    let left = recovered.left_paths().iter().map(|left| {
        Notice::new(
            left.path.to_string(),
            format!("left as it is: {}", left.why),
        )
    });
    let run = LastRun {
        version: LastRun::VERSION,
        id: String::new(),
        config: config.clone(),
        by: change.by.clone(),
        started: change.started,
        finished: current_time(),
        outcome,
        phases: vec![
            phase("recover", describe_recovery(recovered)),
            phase("units", units.describe_units()),
        ],
        steps: recovered.changed_paths().len(),
        notices: left.collect(),
    };
    transaction::write_last_run(&change.root, change.lock(), &run);
}

/// Returns true if the state directory contains a file of a run.
pub fn has_run_files(root: &Root) -> Result<bool> {
    let mut found = false;
    for file in [
        paths::INTENT,
        paths::PREPARED_JOURNAL,
        paths::JOURNAL,
        paths::COMMITTED,
    ] {
        found |= root.exists(&RootPath::fixed(file))?;
    }
    Ok(found)
}

/// Finishes or undoes an interrupted run. If that fails, the error says that the node is left incomplete.
pub fn recover_run(
    change: &NodeChange<'_>,
    direction: Direction,
    leave: &Leave,
) -> Result<Recovered> {
    let (root, runner, lock) = (&change.root, change.runner(), change.lock());
    let has_files = has_run_files(root)?;
    let _has_files = has_files.then(RunStage::enter_changing);
    let _phase = has_files.then(|| {
        signals::set_answer(SignalAnswer::SeeStatus);
        progress::begin_phase(Work::new("Recovering an interrupted run"))
    });
    let deployment = Host::observe(root)?.deployment;
    let boot = if has_files {
        BootIdentity::observe(root, deployment.clone(), runner)
    } else {
        None
    };
    if has_files && systemd_runs(root) && boot.is_none() {
        anyhow::bail!(
            "the kernel reports no boot ID, so it is not known which services read the new files"
        );
    }
    let running = RunningSystem {
        runner,
        boot: boot.as_ref(),
    };
    let wanted = RecoverRequest {
        direction,
        leave,
        deployment: deployment.as_deref(),
    };
    let pending = transaction::find_pending(root).unwrap_or(Pending::Nothing);
    let result = transaction::recover_interrupted(root, lock, &wanted, &running);
    tell_journal(root, &pending, &result);
    if result.is_ok() {
        state::settle_files(root);
    }
    result.map_err(|error| {
        if has_files {
            recovery_error(&error).into()
        } else {
            anyhow::anyhow!("looking for an interrupted run: {error}")
        }
    })
}

/// Sends the end of an interrupted run to the journal.
fn tell_journal(root: &Root, pending: &Pending, result: &Result<Recovered, RecoverError>) {
    let (config, end) = match (result, pending) {
        (Ok(Recovered::Finished(config, _)), _) => (config, RunEnd::Recovered),
        (Ok(Recovered::Undone(config, _)), _)
        | (Err(RecoverError::Undone(..)), Pending::Unfinished(config, _)) => {
            (config, RunEnd::Undone)
        }
        (Err(_), Pending::Unfinished(config, _)) => (config, RunEnd::Incomplete),
        _ => return,
    };
    events::send_event(root, &NodeEvent::RunEnded(end), &config.name);
}

/// Undoes an interrupted run, whatever was changed since; a committed run is finished instead. Returns the paths that are left as
/// they are, with reasons.
pub fn undo_interrupted(change: &NodeChange<'_>) -> Result<Vec<String>> {
    let leave = Leave {
        all: true,
        paths: Vec::new(),
    };
    let recovered = recover_run(change, Direction::Back, &leave)?;
    end_interrupted(change, &recovered)?;
    let left = recovered.left_paths().iter();
    Ok(left
        .map(|left| format!("{}: {}", left.path, left.why))
        .collect())
}

/// Returns the error of a failed recovery. A run that was undone is not incomplete.
pub fn recovery_error(error: &RecoverError) -> RunError {
    match error {
        RecoverError::Undone(..) => RunError::RolledBack(format!("recovering: {error}")),
        _ => RunError::Incomplete(format!("recovering: {error}")),
    }
}

/// Finishes or undoes an interrupted run before anything else, and logs the result.
pub fn recover_first(change: &NodeChange<'_>, direction: Direction) -> Result<()> {
    let recovered = recover_run(change, direction, &Leave::default())?;
    end_interrupted(change, &recovered)
}

/// Logs the result for an interrupted run, starts the workloads that it stopped, and removes what it temporarily provided to
/// rpm-ostreed ([`Lease`]).
fn end_interrupted(change: &NodeChange<'_>, recovered: &Recovered) -> Result<()> {
    let (root, runner, lock) = (&change.root, change.runner(), change.lock());
    if *recovered != Recovered::Nothing {
        log::warn!("{}", describe_recovery(recovered));
    }
    if !recovered.changed_paths().is_empty() {
        error::note_changed(Changed::Before);
    }
    for left in recovered.left_paths() {
        log::warn!("{} stays as it is: {}", left.path, left.why);
    }
    workloads::start_again(root, runner)?;
    if root.is_live() {
        Lease { root, lock, runner }.remove_all()?;
    }
    Ok(())
}

/// Returns the result of a recovery in one sentence.
pub fn describe_recovery(recovered: &Recovered) -> String {
    match recovered {
        Recovered::Nothing => "Nothing was pending.".to_owned(),
        Recovered::Swept(config) => {
            format!(
                "The files of an interrupted run were removed; it changed nothing ({}).",
                config.name
            )
        }
        Recovered::Finished(config, _) => {
            format!("An interrupted run was finished ({}).", config.name)
        }
        Recovered::Undone(config, _) => format!("An interrupted run was undone ({}).", config.name),
        Recovered::GivenUp(config, _) => format!(
            "An interrupted run was given up ({}): its journal is damaged.",
            config.name
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::transaction::RecoveryChanges;
    use crate::change::transaction::journal::ConfigRef;
    use crate::node::command::{CommandLine, CommandOutput};
    use std::cell::RefCell;

    /// A manager that records its commands; every queried unit is running, except `idle.service`.
    #[derive(Default)]
    struct Manager(RefCell<Vec<String>>);

    impl CommandRunner for Manager {
        fn run(&self, command: &CommandLine) -> Result<CommandOutput, CommandError> {
            let mut said = self.0.borrow_mut();
            said.push(command.args.first().cloned().unwrap_or_default());
            let units = command.args.iter().skip_while(|arg| *arg != "--").skip(1);
            let state = |unit: &String| match unit.as_str() {
                "idle.service" => "inactive",
                _ => "active",
            };
            let block = |unit| format!("Id={unit}\nActiveState={}\nSubState=x\n", state(unit));
            let blocks: Vec<String> = units.map(block).collect();
            Ok(CommandOutput {
                status: Some(0),
                stdout: blocks.join("\n"),
                stderr: String::new(),
            })
        }
    }

    fn finished(paths: &[&str]) -> Recovered {
        let config = ConfigRef {
            name: "rendered-worker-1".to_owned(),
            digest: String::new(),
            origin: String::new(),
        };
        let paths = paths.iter().map(|path| RootPath::parse(path).unwrap());
        let changes = RecoveryChanges {
            changed: paths.collect(),
            left: Vec::new(),
        };
        Recovered::Finished(config, changes)
    }

    #[test]
    fn units_that_run_from_old_files_are_found_after_the_reload() {
        let manager = Manager::default();
        let recovered = finished(&[
            "/etc/systemd/system/a.service",
            "/etc/systemd/system/idle.service",
        ]);
        let found = at_boot(recovered.changed_paths(), &|_| true, &manager);
        let wanted = StartedUnits::Read {
            before: vec!["a.service".to_owned()],
            removed: Vec::new(),
            too_late: Vec::new(),
        };
        assert_eq!(found, wanted);
        // The unit is still running, and no restart finds it.
        let found = at_boot(recovered.changed_paths(), &|_| false, &Manager::default());
        let wanted = StartedUnits::Read {
            before: Vec::new(),
            removed: vec!["a.service".to_owned()],
            too_late: Vec::new(),
        };
        assert_eq!(found, wanted);
        let said = found.describe_units();
        assert!(said.contains("Next: systemctl stop a.service"), "{said}");
        assert!(!said.contains("restart"), "{said}");
        assert_eq!(*manager.0.borrow(), ["daemon-reload", "show"]);
    }

    #[test]
    fn without_changed_unit_files_the_manager_is_left_alone() {
        let manager = Manager::default();
        let found = at_boot(
            finished(&["/etc/chrony.conf"]).changed_paths(),
            &|_| true,
            &manager,
        );
        assert_eq!(found, StartedUnits::Unconcerned);
        assert!(manager.0.borrow().is_empty());
    }

    #[test]
    fn what_a_link_enables_too_late_is_found() {
        let manager = Manager::default();
        let links = ["a.service", "idle.service"]
            .map(|unit| format!("/etc/systemd/system/multi-user.target.wants/{unit}"));
        let recovered = finished(&links.each_ref().map(String::as_str));
        let found = at_boot(recovered.changed_paths(), &|_| true, &manager);
        let wanted = StartedUnits::Read {
            before: Vec::new(),
            removed: Vec::new(),
            too_late: vec!["idle.service".to_owned()],
        };
        assert_eq!(found, wanted);
        assert_eq!(*manager.0.borrow(), ["daemon-reload", "show"]);
        // Removed links enable nothing.
        let found = at_boot(recovered.changed_paths(), &|_| false, &manager);
        let wanted = StartedUnits::Read {
            before: Vec::new(),
            removed: Vec::new(),
            too_late: Vec::new(),
        };
        assert_eq!(found, wanted);
    }
}
