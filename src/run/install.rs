//! `install`: puts the program and its units on a node, or removes them.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};

use super::node_change::NodeChange;
use crate::base::error::{self, Changed, ExitCode};
use crate::base::invocation::{mco_rescue, reboot_command};
use crate::base::paths;
use crate::base::reason::Reason;
use crate::change::install::units::{Due, UnitCheck, check_units};
use crate::change::install::{self, InstallScope, recorded_paths};
use crate::change::staging::state;
use crate::change::transaction::{Lock, place};
use crate::host::root::{Root, RootPath};
use crate::node::command::{CommandRunner, journalctl, systemctl};
use crate::node::host::systemd_runs;
use crate::node::{Records, mounts};

/// A finished installation.
#[derive(Debug)]
pub struct Installation {
    /// Files that could not be labelled, with the reason.
    pub unlabelled: Vec<(RootPath, Reason)>,
    /// The check that the units can start.
    pub check: UnitCheck,
}

/// Returns the paths of the recorded config, which are neither installed nor removed.
fn find_managed(root: &Root) -> Result<BTreeSet<RootPath>> {
    let records = Records::read(root).context("reading the daemon's records")?;
    Ok(recorded_paths(&records))
}

/// Finds the state of everything that is to be installed: the program and all of its units.
///
/// # Errors
/// The node or the running program cannot be read.
pub fn find_due(root: &Root) -> Result<Due> {
    Due::compare_scope(root, InstallScope::All, &find_managed(root)?)
}

/// Installs what is due.
///
/// # Errors
/// Something cannot be installed; what was installed before it is whole.
pub fn install_due(change: &NodeChange<'_>, due: &Due) -> Result<Installation> {
    let (root, lock) = (&change.root, change.lock());
    let unlabelled = due
        .put_items(root, lock, Changed::Part)
        .map_err(|error| go_on(error, "install"))?;
    let check = check_units(root, lock, due, change.runner())?;
    Ok(Installation { unlabelled, check })
}

/// Returns the error of a command that may have installed or removed a part, with the next step.
fn go_on(error: anyhow::Error, command: &str) -> anyhow::Error {
    match error::exit_code(&error) {
        ExitCode::Incomplete => {
            let said = format!("{error:#}");
            anyhow::anyhow!(
                "{}. Next: {}",
                said.trim_end_matches('.'),
                mco_rescue(command)
            )
        }
        _ => error,
    }
}

/// The paths of an installation.
#[derive(Debug, Default)]
pub struct InstalledPaths {
    /// The paths to remove: links before units before the program.
    pub ours: Vec<RootPath>,
    /// The paths to keep, with the reason.
    pub left: Vec<(RootPath, &'static str)>,
}

impl InstalledPaths {
    /// Finds what is installed.
    ///
    /// # Errors
    /// A staged run still needs it, or the node cannot be read.
    pub fn find_paths(change: &NodeChange<'_>) -> Result<Self> {
        let (root, lock) = (&change.root, change.lock());
        // A failed one is only kept to be reported.
        if state::read_awaited(root)?.is_some_and(|awaited| awaited.failed.is_none()) {
            bail!(
                "what an earlier run staged waits for the next boot, and removing would take away what completes it. \
                 Nothing was removed. Next: {}, then {}",
                reboot_command(),
                mco_rescue("status")
            );
        }
        let managed = find_managed(root)?;
        let mut found = Self::default();
        let items = install::list_items(InstallScope::All, true).into_iter();
        for item in items.rev() {
            let path = item.path;
            if !root.exists(&path)? {
                continue;
            }
            if managed.contains(&path) {
                let why = "the node's config manages it";
                found.left.push((path, why));
            } else if install::is_mask(root, &path)? {
                let why = "the unit was masked by hand; remove it by hand";
                found.left.push((path, why));
            } else {
                found.ours.push(path);
            }
        }
        found.add_copies(root)?;
        for path in [paths::TIMER_STAMP, paths::RUNTIME, paths::STATE].map(RootPath::fixed) {
            let only_for_us = path == RootPath::fixed(paths::STATE) && lock.made_state();
            if !only_for_us && root.exists(&path)? {
                found.ours.push(path);
            }
        }
        Ok(found)
    }

    /// Adds the recorder's copies on the boot partition.
    fn add_copies(&mut self, root: &Root) -> Result<()> {
        let copies = RootPath::fixed(paths::BOOT_RECORDER);
        if !root.exists(&copies)? {
            return Ok(());
        }
        match root.open_directory(&RootPath::fixed(paths::BOOT))? {
            Some(boot) if mounts::is_read_only(&boot) => {
                let why = "/boot is read-only; remove it by hand";
                self.left.push((copies, why));
            }
            _ => self.ours.push(copies),
        }
        Ok(())
    }

    /// Stops the units and removes the paths. Returns those that are removed.
    ///
    /// # Errors
    /// A path cannot be removed; those before it are gone.
    pub fn remove_paths(&self, change: &NodeChange<'_>) -> Result<Vec<RootPath>> {
        let (root, runner) = (&change.root, change.runner());
        let live = systemd_runs(root);
        if live {
            stop_units(runner, &self.ours);
        }
        let removed = remove_files(root, change.lock(), &self.ours);
        let removed = removed.map_err(|error| go_on(error, "install --remove"))?;
        if live && let Err(error) = systemctl::daemon_reload(runner) {
            log::warn!("{error}. Next: systemctl daemon-reload");
        }
        if live && removed.contains(&RootPath::fixed(paths::CATALOGUE)) {
            journalctl::update_catalogue(runner);
        }
        Ok(removed)
    }
}

fn stop_units(runner: &dyn CommandRunner, ours: &[RootPath]) {
    let directory = Some(RootPath::fixed(paths::UNITS));
    let units = ours.iter().filter(|path| path.parent() == directory);
    let units: Vec<&str> = units.map(RootPath::name).collect();
    if !units.is_empty()
        && let Err(error) = systemctl::stop_units(runner, &units)
    {
        log::warn!("{error}");
    }
}

fn remove_files(root: &Root, lock: &Lock, ours: &[RootPath]) -> Result<Vec<RootPath>> {
    for item in install::list_items(InstallScope::All, true) {
        place::sweep_temporary(root, lock, &item.path)?;
    }
    let copies = RootPath::fixed(paths::BOOT_RECORDER);
    let whole = [paths::RUNTIME, paths::STATE, paths::BOOT_RECORDER].map(RootPath::fixed);
    let mut removed = Vec::new();
    for path in ours.iter().filter(|path| !whole.contains(path)) {
        if place::remove_file(root, lock, path)? {
            error::note_changed(Changed::Part);
            removed.push(path.clone());
        }
    }
    removed.extend(place::remove_directories(root, lock)?);
    if ours.contains(&copies) && place::remove_tree(root, lock, &copies)? {
        removed.push(copies);
    }
    let [runtime, state, _] = whole;
    // The state directory records which directories were created, so it is removed last.
    if place::remove_tree(root, lock, &runtime)? {
        removed.push(runtime);
    }
    if place::remove_state(root, lock)? {
        removed.push(state);
    }
    Ok(removed)
}
