//! The units of the guard of a trial and of the timer that backs it up: requirements, start and stop.

use anyhow::{Context, Result, bail};

use crate::base::invocation::mco_rescue;
use crate::base::object::ObjectKind;
use crate::base::paths;
use crate::change::install;
use crate::change::transaction::Lock;
use crate::change::transaction::place::{self, Placement};
use crate::host::root::{Root, RootPath};
use crate::host::sys::runtime;
use crate::judge::drift::text_object;
use crate::node::command::{CommandError, CommandRunner, guard_unit, systemctl};
use crate::node::space::MountState;
use crate::node::{Host, Labels};
use crate::run::node_change::NodeChange;

/// Returns true if a guard is running.
///
/// # Errors
/// systemd cannot be queried.
pub fn is_guarded(runner: &dyn CommandRunner) -> Result<bool, CommandError> {
    let units = [guard_unit::UNITS[0], guard_unit::UNITS[1], install::TRIAL];
    let known = systemctl::query_activity(runner, &units)?;
    Ok(known.iter().any(systemctl::UnitActivity::is_running))
}

/// Refuses if no unit would revert the change during a boot.
pub fn require_units(root: &Root) -> Result<()> {
    let places = [
        [paths::TRIAL_UNIT, paths::TRIAL_LINK],
        [paths::IMAGE_TRIAL_UNIT, paths::IMAGE_TRIAL_LINK],
    ];
    let exists = |path: &'static str| root.exists(&RootPath::fixed(path));
    let mut is_enabled = false;
    for [unit, link] in places {
        is_enabled |= exists(unit)? && exists(link)?;
    }
    // A unit of an older version does not know about trials.
    let recover = if exists(paths::RECOVER_UNIT)? {
        paths::RECOVER_UNIT
    } else {
        paths::IMAGE_RECOVER_UNIT
    };
    let text = root
        .read_small(&RootPath::fixed(recover))?
        .unwrap_or_default();
    let knows = String::from_utf8_lossy(&text).contains(paths::TRIAL);
    if is_enabled && knows {
        return Ok(());
    }
    bail!(
        "no unit would revert the change after a reboot or a power cut: {} is missing, not enabled, or {} has an \
         older version. Nothing was changed. Next: {}",
        install::TRIAL,
        install::RECOVER,
        mco_rescue("install")
    )
}

/// Starts the guard outside of this login, with a copy of the program, and the timer that backs it up.
pub fn start_guard(change: &NodeChange<'_>) -> Result<()> {
    let program = copy_program(&change.root, change.lock())?;
    for line in [
        guard_unit::start_guard(&program),
        guard_unit::start_second_guard(&program),
    ] {
        let answer = change.runner().run(&line)?;
        if answer.status != Some(0) {
            bail!("{}: {}", line.program, answer.stderr.trim());
        }
    }
    Ok(())
}

/// Stops both. A missing unit is not an error: the guard may have exited.
pub fn stop_guard(runner: &dyn CommandRunner) {
    for unit in guard_unit::UNITS {
        if let Err(error) = systemctl::stop_units(runner, &[unit]) {
            log::info!("{error}");
        }
        if let Err(error) = systemctl::reset_failed(runner, &[unit]) {
            log::info!("{error}");
        }
    }
}

/// Stops all guards except the caller once no trial is left, and removes the copies of the program.
pub fn end_guards(root: &Root, runner: &dyn CommandRunner, is_second: bool) {
    let [first, timer, second] = guard_unit::UNITS;
    let others = if is_second {
        [first, timer]
    } else {
        [timer, second]
    };
    for unit in others {
        if let Err(error) = systemctl::stop_units(runner, &[unit]) {
            log::info!("{error}");
        }
    }
    for path in [paths::GUARD_PROGRAM, paths::GUARD_PROGRAM_KEPT] {
        let removed = root
            .exists(&RootPath::fixed(path))
            .is_ok_and(|exists| exists);
        if removed && let Err(error) = runtime::remove_path(&format!("/{path}")) {
            log::info!("/{path}: {error}");
        }
    }
}

/// Copies the running program to a place that the change cannot affect. Returns its path.
pub fn copy_program(root: &Root, lock: &Lock) -> Result<String> {
    let run = RootPath::fixed(paths::GUARD_PROGRAM);
    let directory = run.parent().context("the path has no directory")?;
    runtime::make_directory(&directory.to_string())
        .with_context(|| format!("making {directory}"))?;
    let path = if MountState::read_options(root, &directory)?.no_exec {
        RootPath::fixed(paths::GUARD_PROGRAM_KEPT)
    } else {
        run
    };
    let bytes = install::read_program().context("reading the running program")?;
    let host = Host::observe(root)?;
    let object = text_object(&bytes, 0o700, host.attainable_owner((0, 0)));
    // The label that allows systemd to run it.
    let installed = RootPath::fixed(paths::PROGRAM);
    let label = Labels::read(root).wanted_label(
        &installed,
        &ObjectKind::File {
            size: 0,
            sha256: String::new().into(),
        },
    );
    let placement = Placement {
        path: &path,
        object: &object,
        bytes: &bytes,
        label: label.as_deref(),
    };
    place::put_file(root, lock, &placement)?;
    Ok(path.to_string())
}
