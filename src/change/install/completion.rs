//! The units that would finish a run at the next boot: what is missing of them, and if a plan may begin without.

use std::collections::BTreeSet;

use anyhow::{Result, bail};

use super::units::{Due, check_units};
use super::{COMPLETE, FoundItem, InstallScope, RECOVER, is_mask, managed_paths, recorded_paths};
use crate::base::error::Changed;
use crate::base::invocation::{mco_rescue, on_node};
use crate::base::notice::Notice;
use crate::base::paths;
use crate::base::reason::Reason;
use crate::change::plan::{Findings, Plan, Step};
use crate::change::transaction::Lock;
use crate::config::document::Desired;
use crate::host::root::{Root, RootPath};
use crate::node::Records;
use crate::node::command::CommandRunner;
use crate::node::host::systemd_runs;
use crate::node::space::MountState;

/// Before a run on the live node: what is missing of what would fix it at boot after a power cut, or why that cannot be
/// told.
#[allow(
    missing_debug_implementations,
    reason = "the bytes of a program have nothing to show"
)]
pub struct Beforehand {
    due: Result<Due, Reason>,
    /// The directories that are created for the units, topmost first.
    directories: Vec<RootPath>,
}

impl Beforehand {
    /// Returns what is missing; `None` if nothing is, where systemd does not run, or where the image has it.
    /// What `desired` and the recorded config in `old` bring is their matter.
    pub fn find_missing(root: &Root, desired: &Desired, old: Option<&Desired>) -> Option<Self> {
        let mut theirs = managed_paths(desired);
        theirs.extend(old.iter().flat_map(|old| managed_paths(old)));
        Self::missing_on(root, &theirs)
    }

    /// Returns the same for a run without a config of its own.
    pub fn of_recorded(root: &Root, records: &Records) -> Option<Self> {
        Self::missing_on(root, &recorded_paths(records))
    }

    fn missing_on(root: &Root, theirs: &BTreeSet<RootPath>) -> Option<Self> {
        if !systemd_runs(root) || image_recovers(root) {
            return None;
        }
        let due = Due::compare_scope(root, InstallScope::Recovery, theirs);
        match due.and_then(|due| Ok((due.missing_directories(root)?, due))) {
            Ok((_, due)) if due.is_nothing() => None,
            Ok((directories, due)) => Some(Self {
                due: Ok(due),
                directories,
            }),
            Err(error) => {
                let why = format!("{error:#}");
                log::warn!("{}", without_recovery(&why));
                Some(Self {
                    due: Err(why.into()),
                    directories: Vec::new(),
                })
            }
        }
    }

    /// Returns the directories that exist before the first step of a plan, because they are created for the units.
    pub fn directories(&self) -> &[RootPath] {
        &self.directories
    }

    /// Returns the notice on the units that are installed before the first step of a plan.
    pub fn notice(&self) -> Option<Notice> {
        let due = self.due.as_ref().ok()?;
        Some(Notice::new("recovery at boot", announce_units(&due.found)))
    }

    /// Puts it in place and says so; else why it is not. A run of files alone needs none of it.
    pub fn install_missing(
        &self,
        root: &Root,
        lock: &Lock,
        runner: &dyn CommandRunner,
    ) -> Option<String> {
        let due = match &self.due {
            Ok(due) => due,
            // It was said when it was looked at.
            Err(why) => return Some(why.to_string()),
        };
        match due.try_install(root, lock, runner) {
            Ok(said) => {
                log::warn!("{said}");
                None
            }
            Err(error) => {
                let why = format!("{error:#}");
                log::warn!("{}", without_recovery(&why));
                Some(why)
            }
        }
    }
}

impl Due {
    fn try_install(&self, root: &Root, lock: &Lock, runner: &dyn CommandRunner) -> Result<String> {
        self.make_parents(root, lock)?;
        let unlabelled = self.put_items(root, lock, Changed::Before)?;
        let check = check_units(root, lock, self, runner)?;
        if let Some(problem) = check.describe_problem(&unlabelled) {
            bail!("{problem}");
        }
        Ok(now_at_boot())
    }
}

/// The check that a unit completes a run at the next boot: a plan that stages is refused without one, unless that is
/// done `by_hand`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Completion {
    by_hand: bool,
}

impl Completion {
    /// Creates the findings as asked for.
    pub fn new(by_hand: bool) -> Self {
        Self { by_hand }
    }

    /// Returns why nothing would complete a plan that stages: a blocker, or a notice if that is done by hand.
    ///
    /// # Errors
    /// A path that cannot be read.
    pub fn check_plan(
        &self,
        root: &Root,
        plan: &Plan,
        beforehand: Option<&Beforehand>,
    ) -> Result<Findings> {
        let mut found = Findings::default();
        if !plan.os.needs_reboot() || !systemd_runs(root) {
            return Ok(found);
        }
        let why = match not_completed(root, beforehand)? {
            None if is_brought(plan) || is_installed(beforehand) => None,
            None => not_enabled(root)?,
            why => why,
        };
        let Some(why) = why else {
            return Ok(found);
        };
        let subject = COMPLETE.to_owned();
        if self.by_hand {
            let message = format!("{why}. {}", BY_HAND);
            found.notices.push(Notice::new(subject, message));
        } else {
            let message = format!("{why}. {}", NOT_COMPLETED);
            found.blockers.push(Notice::new(subject, message));
        }
        Ok(found)
    }

    /// Installs what is missing; a plan that stages ends here where that does not work.
    ///
    /// # Errors
    /// It does not, and is not done by hand.
    pub fn install_for(
        &self,
        root: &Root,
        lock: &Lock,
        runner: &dyn CommandRunner,
        plan: &Plan,
        beforehand: &Beforehand,
    ) -> Result<()> {
        match beforehand.install_missing(root, lock, runner) {
            Some(why) if plan.os.needs_reboot() && !self.by_hand => {
                bail!(
                    "nothing would complete this run at the next boot: {}. No part of the config was applied. \
                     Fix this first: {}. {}",
                    why.trim_end_matches('.'),
                    mco_rescue("install"),
                    NOT_COMPLETED
                )
            }
            _ => Ok(()),
        }
    }
}

/// Refuses where nothing would put the files back at the next boot, unless that is done `by_hand`.
///
/// # Errors
/// The refusal, or a path that cannot be read.
pub fn refuse_without_completion(root: &Root, by_hand: bool) -> Result<()> {
    if by_hand || !systemd_runs(root) {
        return Ok(());
    }
    let why = not_completed(root, None)?;
    match why.map_or_else(|| not_enabled(root), |why| Ok(Some(why)))? {
        Some(why) => bail!("{COMPLETE} {why}. Nothing was changed. {}", NOT_COMPLETED),
        None => Ok(()),
    }
}

/// Returns why the unit that completes would not run at the next boot; `None` where no reason is seen.
fn not_completed(root: &Root, beforehand: Option<&Beforehand>) -> Result<Option<String>> {
    for path in [paths::COMPLETE_UNIT, paths::COMPLETE_RUNTIME_UNIT] {
        let path = RootPath::fixed(path);
        if is_mask(root, &path)? {
            return Ok(Some(format!(
                "is masked ({path}): nothing would complete this run at the next boot. Next: {}",
                on_node(format!("systemctl unmask {COMPLETE}"))
            )));
        }
    }
    let due = match beforehand.map(|beforehand| &beforehand.due) {
        Some(Err(why)) => {
            return Ok(Some(format!(
                "cannot be looked at ({}): nothing would complete this run at the next boot. Fix this first: mco-rescue \
                 install",
                why.to_string().trim_end_matches('.')
            )));
        }
        Some(Ok(due)) => due.found.as_slice(),
        None => &[],
    };
    for found in due.iter().filter(|found| found.is_due()) {
        let path = &found.item.path;
        let directory = path.parent().unwrap_or_else(|| path.clone());
        if MountState::read_options(root, &directory)?.read_only {
            return Ok(Some(format!(
                "{path} cannot be installed, as {directory} is read-only: nothing would complete this run at the next \
                 boot. Make it writable: findmnt -T {directory}"
            )));
        }
    }
    let program = RootPath::fixed(paths::PROGRAM);
    let directory = program.parent().unwrap_or_else(|| program.clone());
    let of_image = root.exists(&RootPath::fixed(paths::IMAGE_COMPLETE_UNIT))?
        && !root.exists(&RootPath::fixed(paths::COMPLETE_UNIT))?;
    if !of_image && MountState::read_options(root, &directory)?.no_exec {
        return Ok(Some(format!(
            "cannot run {program} (203/EXEC), as {directory} is mounted noexec: nothing would complete this run at the \
             next boot. Look: findmnt -T {directory}"
        )));
    }
    Ok(None)
}

/// Returns true where the config brings the unit that completes: its state is the config's matter then.
fn is_brought(plan: &Plan) -> bool {
    let own = [paths::COMPLETE_UNIT, paths::COMPLETE_LINK].map(RootPath::fixed);
    let mut steps = plan.steps.iter();
    steps.any(|planned| matches!(&planned.step, Step::Put { path, .. } if own.contains(path)))
}

/// Returns true where the unit that completes is installed and enabled before the run.
fn is_installed(beforehand: Option<&Beforehand>) -> bool {
    let due = beforehand.and_then(|beforehand| beforehand.due.as_ref().ok());
    due.is_some_and(|due| due.has_unit(COMPLETE))
}

/// Returns why systemd does not start the unit that completes: it is missing, or not enabled.
fn not_enabled(root: &Root) -> Result<Option<String>> {
    let exists = |path| root.exists(&RootPath::fixed(path));
    let units = [paths::COMPLETE_UNIT, paths::IMAGE_COMPLETE_UNIT];
    let links = [paths::COMPLETE_LINK, paths::IMAGE_COMPLETE_LINK];
    for (what, places) in [("is missing", units), ("is not enabled", links)] {
        if !exists(places[0])? && !exists(places[1])? {
            return Ok(Some(format!(
                "{what}: nothing would complete this run at the next boot. Install it: {}",
                mco_rescue("install")
            )));
        }
    }
    Ok(None)
}

/// Returns true if the image brings the unit along, enabled, and nothing takes precedence over it.
fn image_recovers(root: &Root) -> bool {
    let exists = |path| root.exists(&RootPath::fixed(path));
    let is_there = |path| matches!(exists(path), Ok(true));
    let links = [paths::RECOVER_LINK, paths::IMAGE_RECOVER_LINK];
    is_there(paths::IMAGE_RECOVER_UNIT)
        && matches!(exists(paths::RECOVER_UNIT), Ok(false))
        && links.into_iter().any(is_there)
}

/// Returns the notice of a plan about the recovery unit, which `apply` installs before its first step.
fn announce_units(found: &[FoundItem]) -> String {
    let due = found.iter().filter(|found| found.is_due());
    let paths: Vec<String> = due.map(|found| found.item.path.to_string()).collect();
    format!(
        "the unit that finishes or undoes this run after a power cut is installed first; missing or different: {}. \
         `{}` removes it again",
        paths.join(", "),
        mco_rescue("install --remove"),
    )
}

/// Returns the message after that installation.
fn now_at_boot() -> String {
    format!(
        "installed /usr/local/bin/mco-rescue with {RECOVER}, which finishes or undoes this run at boot if it is interrupted"
    )
}

/// The next step after a refusal to stage without the unit.
const NOT_COMPLETED: &str = "Or override it with --complete-by-hand, and run mco-rescue complete right after \
the reboot, before the kubelet starts";

/// The step that a person has to take.
const BY_HAND: &str = "Overridden as asked (--complete-by-hand): run mco-rescue complete right after the reboot, \
before the kubelet starts; keep the kubelet from starting until then: systemctl disable kubelet";

/// Returns the consequence of a missing recovery unit.
fn without_recovery(why: &str) -> String {
    let why = why.trim_end_matches('.');
    format!(
        "no unit will recover this run at boot: {why}. After a power cut run `{}` by hand",
        mco_rescue("recover")
    )
}
