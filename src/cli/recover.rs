//! `recover`: finish or undo an interrupted run.

use crate::cli::ui::Ui;
use anyhow::{Context, Result};

use super::events;
use super::node_change::{Needs, NodeChange, Opening};
use super::own_state::expect_known_state;
use super::session::open_root;
use super::workloads;
use super::{Output, RecoverArgs, trial};
use crate::base::error::{self, Changed, ExitCode, RunError};
use crate::base::notice::Notice;
use crate::base::paths;
use crate::base::time::now;
use crate::change::staging::lease::Lease;
use crate::change::staging::state;
use crate::change::transaction::{
    self, Direction, Leave, Pending, RecoverError, RecoverRequest, Recovered, RunningSystem,
};
use crate::change::transaction::{LastRun, RunOutcome, RunPhase};
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
use crate::report;
use crate::report::events::{NodeEvent, RunEnd};
use crate::report::recover::StartedUnits;

/// Runs `recover`.
pub(super) fn run(ui: &Ui<'_>, args: &RecoverArgs) -> Result<ExitCode> {
    let root = open_root(ui)?;
    let leave = leave(&args.leave)?;
    // Started without need, as `install` does to see whether it can be: then another process may have the lock.
    let is_idle = || -> Result<bool> {
        let nothing = transaction::find_pending(&root)? == Pending::Nothing;
        Ok(nothing && transaction::find_strays(&root).is_empty())
    };
    if args.at_boot {
        expect_known_state(&root)?;
        // What is half-way comes first: a trial goes back from a whole run.
        let tried = trial::boot::judge(ui, &root, true);
        if let Err(error) = &tried {
            log::error!("{error:#}. The guard tries again");
        }
        if is_idle()? {
            return tried.map(|()| ExitCode::Done);
        }
    }
    let needs = match args.give_up {
        true => &Needs::GIVE_UP,
        false => &Needs::RECOVER,
    };
    let change = Opening::of(ui, root, needs)?.begin()?;
    let root = &change.root;
    let direction = if args.back {
        Direction::Back
    } else {
        Direction::Forward
    };
    let recovered = if args.give_up {
        transaction::give_up_run(root, change.lock()).map_err(|error| failed(&error))?
    } else {
        recover(&change, direction, &leave)?
    };
    // The recovery is done, whatever becomes of the kubelet: an error would say that nothing was changed.
    if let Err(error) = workloads::start_again(root, ui.runner) {
        log::warn!("{error:#}");
    }
    let is_there = |path: &RootPath| !matches!(root.exists(path), Ok(false));
    let units = (args.at_boot && systemd_runs(root))
        .then(|| at_boot(recovered.changed(), &is_there, ui.runner));
    if let Some(units) = &units {
        keep(&change, &recovered, units);
    }
    let text = match ui.output {
        Output::Json => report::recover::to_json(&recovered, units.as_ref())?,
        Output::Text => report::recover::to_text(&recovered, units.as_ref()),
    };
    report::print_result(text.as_bytes());
    trial::name_unconfirmed(root);
    Ok(match recovered {
        // Files from before may stand beside those of the run.
        Recovered::GivenUp(..) => ExitCode::Drift,
        _ => ExitCode::Done,
    })
}

/// What may stay as it is.
fn leave(paths: &[String]) -> Result<Leave> {
    let all = |path: &&String| path.trim_matches('/').is_empty() && path.starts_with('/');
    let named = paths.iter().filter(|path| !all(path));
    let named = named.map(|path| {
        RootPath::parse(path).context("--leave takes a path of the node, such as /etc/a.conf")
    });
    Ok(Leave {
        all: paths.iter().any(|path| all(&path)),
        paths: named.collect::<Result<_>>()?,
    })
}

/// The manager has read the unit files before they changed: it reads them again, and the units that run
/// already are found.
pub(super) fn at_boot(
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
    match ask(&units_at(changed), &wanted, runner) {
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

/// The units that were started before, and those that nothing starts any more.
fn ask(
    units: &[String],
    wanted: &[String],
    runner: &dyn CommandRunner,
) -> Result<(Vec<String>, Vec<String>), CommandError> {
    let running = match names(units).as_slice() {
        [] => Vec::new(),
        units => systemctl::query_activity(runner, units)?,
    };
    let running = running.into_iter().filter(|unit| unit.is_running());
    let idle = match names(wanted).as_slice() {
        [] => Vec::new(),
        units => systemctl::query_idle(runner, units)?,
    };
    Ok((running.map(|unit| unit.name).collect(), idle))
}

fn names(units: &[String]) -> Vec<&str> {
    units.iter().map(String::as_str).collect()
}

/// At boot the console may go unread; `status` shows it later.
fn keep(change: &NodeChange<'_>, recovered: &Recovered, units: &StartedUnits) {
    let (outcome, config) = match recovered {
        Recovered::Finished(config, _) => (RunOutcome::Recovered, config),
        Recovered::Undone(config, _) => (RunOutcome::Undone, config),
        Recovered::Swept(_) | Recovered::Nothing | Recovered::GivenUp(..) => return,
    };
    let phase = |name: &str, result: String| RunPhase {
        name: name.into(),
        result,
    };
    let left = recovered.left().iter().map(|left| Notice {
        subject: left.path.to_string(),
        message: format!("left as it is: {}", left.why),
    });
    let run = LastRun {
        version: LastRun::VERSION,
        id: String::new(),
        config: config.clone(),
        started: change.started,
        finished: now(),
        outcome,
        phases: vec![
            phase("recover", report::recover::recovered_sentence(recovered)),
            phase("units", report::recover::units_text(units)),
        ],
        steps: recovered.changed().len(),
        notices: left.collect(),
    };
    transaction::write_last_run(&change.root, change.lock(), &run);
}

/// Returns true if a file of a run is in the state directory.
pub(super) fn has_run_files(root: &Root) -> Result<bool> {
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

/// Recovers; what cannot be recovered leaves the node half-way.
fn recover(change: &NodeChange<'_>, direction: Direction, leave: &Leave) -> Result<Recovered> {
    let (root, runner, lock) = (&change.root, change.runner(), change.lock());
    let half_way = has_run_files(root)?;
    let _half_way = half_way.then(RunStage::changing);
    let _phase = half_way.then(|| {
        signals::set_answer(SignalAnswer::SeeStatus);
        progress::begin_phase(Work::new("Recovering an interrupted run"))
    });
    let deployment = Host::observe(root)?.deployment;
    let boot = match half_way {
        true => BootIdentity::observe(root, deployment.clone(), runner),
        false => None,
    };
    if half_way && systemd_runs(root) && boot.is_none() {
        anyhow::bail!(
            "the kernel tells no boot id, so it is not known which services read the new files"
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
    result.map_err(|error| match half_way {
        true => failed(&error).into(),
        false => anyhow::anyhow!("looking for an interrupted run: {error}"),
    })
}

/// The journal gets the end of a run that was interrupted.
fn tell_journal(root: &Root, pending: &Pending, result: &Result<Recovered, RecoverError>) {
    let (config, end) = match (result, pending) {
        (Ok(Recovered::Finished(config, _)), _) => (config, RunEnd::Recovered),
        (Ok(Recovered::Undone(config, _)), _)
        | (Err(RecoverError::Undone(..)), Pending::Unfinished(config, _)) => {
            (config, RunEnd::Undone)
        }
        (Err(_), Pending::Unfinished(config, _)) => (config, RunEnd::HalfWay),
        _ => return,
    };
    events::send(root, &NodeEvent::RunEnded(end), &config.name);
}

/// Undoes an interrupted run, whatever was changed since; a run that is committed is finished. Returns the paths that stay as
/// they are, with the reason.
pub(super) fn undo_interrupted(change: &NodeChange<'_>) -> Result<Vec<String>> {
    let leave = Leave {
        all: true,
        paths: Vec::new(),
    };
    let recovered = recover(change, Direction::Back, &leave)?;
    end_interrupted(change, &recovered)?;
    let left = recovered.left().iter();
    Ok(left
        .map(|left| format!("{}: {}", left.path, left.why))
        .collect())
}

/// A run that was undone leaves nothing half-way.
fn failed(error: &RecoverError) -> RunError {
    match error {
        RecoverError::Undone(..) => RunError::RolledBack(format!("recovering: {error}")),
        _ => RunError::Incomplete(format!("recovering: {error}")),
    }
}

/// An unfinished transaction comes first, always; what became of it is said.
pub(super) fn recover_first(change: &NodeChange<'_>, direction: Direction) -> Result<()> {
    let recovered = recover(change, direction, &Leave::default())?;
    end_interrupted(change, &recovered)
}

/// Says what became of an interrupted run, and takes back what it had lent and stopped.
fn end_interrupted(change: &NodeChange<'_>, recovered: &Recovered) -> Result<()> {
    let (root, runner, lock) = (&change.root, change.runner(), change.lock());
    if *recovered != Recovered::Nothing {
        log::warn!("{}", report::recover::recovered_sentence(recovered));
    }
    if !recovered.changed().is_empty() {
        error::note_changed(Changed::Before);
    }
    for left in recovered.left() {
        log::warn!("{} stays as it is: {}", left.path, left.why);
    }
    workloads::start_again(root, runner)?;
    if root.is_live() {
        Lease { root, lock, runner }.take_back()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::transaction::RecoveryChanges;
    use crate::change::transaction::journal::ConfigRef;
    use crate::node::command::{CommandLine, CommandOutput};
    use std::cell::RefCell;

    /// Notes what it is told; every unit that it is asked for runs, but `idle.service`.
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
        let found = at_boot(recovered.changed(), &|_| true, &manager);
        let wanted = StartedUnits::Read {
            before: vec!["a.service".to_owned()],
            removed: Vec::new(),
            too_late: Vec::new(),
        };
        assert_eq!(found, wanted);
        // It runs on, and no restart finds it.
        let found = at_boot(recovered.changed(), &|_| false, &Manager::default());
        let wanted = StartedUnits::Read {
            before: Vec::new(),
            removed: vec!["a.service".to_owned()],
            too_late: Vec::new(),
        };
        assert_eq!(found, wanted);
        let said = report::recover::units_text(&found);
        assert!(said.contains("Next: systemctl stop a.service"), "{said}");
        assert!(!said.contains("restart"), "{said}");
        assert_eq!(*manager.0.borrow(), ["daemon-reload", "show"]);
    }

    #[test]
    fn without_changed_unit_files_the_manager_is_left_alone() {
        let manager = Manager::default();
        let found = at_boot(
            finished(&["/etc/chrony.conf"]).changed(),
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
        let found = at_boot(recovered.changed(), &|_| true, &manager);
        let wanted = StartedUnits::Read {
            before: Vec::new(),
            removed: Vec::new(),
            too_late: vec!["idle.service".to_owned()],
        };
        assert_eq!(found, wanted);
        assert_eq!(*manager.0.borrow(), ["daemon-reload", "show"]);
        // Links that are gone enable nothing.
        let found = at_boot(recovered.changed(), &|_| false, &manager);
        let wanted = StartedUnits::Read {
            before: Vec::new(),
            removed: Vec::new(),
            too_late: Vec::new(),
        };
        assert_eq!(found, wanted);
    }
}
