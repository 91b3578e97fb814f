//! Putting the program and its units in place, and the check that systemd can start them.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};

use super::{FETCH, FoundItem, InstallScope, InstallSurvey, ItemStanding, RECOVER, read_program};
use crate::base::error::{self, Changed};
use crate::base::invocation::{shell_word, whole_command};
use crate::base::paths;
use crate::base::reason::Reason;
use crate::base::text::count_noun;
use crate::change::plan::restorecon_command;
use crate::change::transaction::place::{self, Placement};
use crate::change::transaction::{self, Lock, Pending};
use crate::host::root::{Exposed, ExposedBy, Root, RootPath};
use crate::judge::drift::text_object;
use crate::node::command::systemctl::{self, StartResult};
use crate::node::command::{CommandRunner, journalctl};
use crate::node::host::systemd_runs;
use crate::node::{Host, Labels};

/// What an installation would do.
#[allow(
    missing_debug_implementations,
    reason = "the bytes of a program have nothing to show"
)]
pub struct Due {
    /// Every item, with its state before.
    pub found: Vec<FoundItem>,
    host: Host,
    labels: Labels,
    program: Vec<u8>,
}

/// Refuses to put a file that root runs or systemd reads where an ordinary user could replace it.
fn refuse_exposed(root: &Root, path: &RootPath) -> Result<()> {
    let Some(Exposed { directory, by }) = root.exposed_on_the_way(path)? else {
        return Ok(());
    };
    let Some(directory) = directory else {
        bail!(
            "a directory above {path} {by}: another user could replace {path}, which root relies on. Nothing was installed. \
             Look: namei -l {path}"
        );
    };
    let place = root.shown().join(directory.relative());
    let place = shell_word(&place.display().to_string());
    let next = match by {
        ExposedBy::Owner(_) => format!("chown root:root {place}"),
        ExposedBy::Mode(_) => format!("chmod go-w {place}"),
    };
    bail!(
        "{directory} {by}: another user could replace {path}, which root relies on. Nothing was installed. Close it first: \
         {next}"
    )
}

impl Due {
    /// Compares every item of `scope` with the root. Paths that a config manages are left alone.
    ///
    /// # Errors
    /// The root or the running program cannot be read, or another user could replace a file.
    pub fn compare_scope(
        root: &Root,
        scope: InstallScope,
        managed: &BTreeSet<RootPath>,
    ) -> Result<Self> {
        let host = Host::observe(root).context("looking at the node")?;
        let labels = Labels::read(root);
        let program = read_program().map_err(Reason::from);
        let program = program
            .map_err(|why| anyhow::anyhow!("{why}. Mount /proc first. Next: {}", whole_command()))
            .context("reading the running program")?;
        let survey = InstallSurvey {
            root,
            host: &host,
            labels: &labels,
            program: &program,
            managed,
        };
        let found = survey
            .survey_scope(scope)
            .context("looking at what is installed")?;
        for due in found.iter().filter(|found| found.is_due()) {
            refuse_exposed(root, &due.item.path)?;
        }
        Ok(Self {
            found,
            host,
            labels,
            program,
        })
    }

    /// Returns true if everything is in place.
    pub fn is_nothing(&self) -> bool {
        !self.found.iter().any(FoundItem::is_due)
    }

    /// Returns the directories that [`Self::put_items`] creates, topmost first.
    ///
    /// # Errors
    /// A path cannot be resolved, or a directory cannot be created there.
    pub fn missing_directories(&self, root: &Root) -> Result<Vec<RootPath>> {
        let mut all = Vec::new();
        for found in self.found.iter().filter(|found| found.is_due()) {
            let missing = place::missing_directories(root, &found.item.path)?;
            all.extend(missing.into_iter().map(|(named, _)| named));
        }
        let mut known = BTreeSet::new();
        all.retain(|path| known.insert(path.clone()));
        Ok(all)
    }

    /// Creates the missing directories, all that can be created: a plan may need them even if a file cannot be put.
    ///
    /// # Errors
    /// A directory cannot be created.
    pub fn make_parents(&self, root: &Root, lock: &Lock) -> Result<()> {
        let due = self.found.iter().filter(|found| found.is_due());
        let made = due.map(|found| {
            let path = &found.item.path;
            place::make_parent(root, lock, path, &self.host, &self.labels)
                .with_context(|| format!("installing {path}"))
        });
        made.fold(Ok(()), Result::and)
    }

    /// Puts what is missing or differs, each of which is `changed`; gives what could not be labelled, and why.
    ///
    /// # Errors
    /// A file that cannot be put; those before it are in place.
    pub fn put_items(
        &self,
        root: &Root,
        lock: &Lock,
        changed: Changed,
    ) -> Result<Vec<(RootPath, Reason)>> {
        for found in &self.found {
            place::sweep_temporary(root, lock, &found.item.path)?;
        }
        let mut unlabelled = Vec::new();
        for found in self.found.iter().filter(|found| found.is_due()) {
            let put = self.put_one(root, lock, found);
            let why = put.with_context(|| format!("installing {}", found.item.path))?;
            error::note_changed(changed);
            unlabelled.extend(why.map(|why| (found.item.path.clone(), why)));
        }
        Ok(unlabelled)
    }

    fn put_one(&self, root: &Root, lock: &Lock, found: &FoundItem) -> Result<Option<Reason>> {
        let path = &found.item.path;
        if let (ItemStanding::Mislabelled, Some(label)) = (found.standing, &found.label) {
            return Ok(place::relabel_file(root, lock, path, label)?);
        }
        place::make_parent(root, lock, path, &self.host, &self.labels)?;
        let placement = Placement {
            path,
            object: &found.object,
            bytes: found.item.bytes_of(&self.program),
            label: found.label.as_deref(),
        };
        Ok(place::put_file(root, lock, &placement)?)
    }
}

/// Lets the running systemd read the units and start them.
///
/// # Errors
/// The root cannot be read or written.
pub fn check_units(
    root: &Root,
    lock: &Lock,
    due: &Due,
    runner: &dyn CommandRunner,
) -> Result<UnitCheck> {
    if !due.host.live {
        return Ok(UnitCheck::OtherRoot);
    }
    if !systemd_runs(root) {
        return Ok(UnitCheck::NoSystemd);
    }
    if let Err(error) = systemctl::daemon_reload(runner) {
        return Ok(UnitCheck::Unknown(error.to_string()));
    }
    let mut items = due.found.iter();
    if items.any(|found| found.item.path == RootPath::fixed(paths::CATALOGUE) && found.is_due()) {
        journalctl::update_catalogue(runner);
    }
    if due.has_unit(FETCH[1])
        && let Err(error) = systemctl::start_unit(runner, FETCH[1])
    {
        log::warn!("{error}. Next: systemctl status {}", FETCH[1]);
    }
    if !due.has_unit(RECOVER) {
        return Ok(UnitCheck::NotOurs);
    }
    if transaction::find_pending(root)? != Pending::Nothing {
        return Ok(UnitCheck::Pending);
    }
    start_units(root, lock, due, runner)
}

impl Due {
    /// Returns true if a unit of the program exists now.
    pub fn has_unit(&self, unit: &str) -> bool {
        let mut items = self.found.iter();
        let ours = |found: &FoundItem| {
            !matches!(found.standing, ItemStanding::Masked | ItemStanding::Managed)
        };
        items.any(|found| found.item.unit == Some(unit) && ours(found))
    }
}

/// Starts the unit. Its conditions are not met where nothing is pending; for a moment a file meets one.
fn start_units(
    root: &Root,
    lock: &Lock,
    due: &Due,
    runner: &dyn CommandRunner,
) -> Result<UnitCheck> {
    let path = RootPath::fixed(paths::CHECK);
    let object = text_object(&[], 0o600, due.host.attainable_owner((0, 0)));
    let placement = Placement {
        path: &path,
        object: &object,
        bytes: &[],
        label: None,
    };
    place::put_file(root, lock, &placement)?;
    let started = systemctl::start_unit(runner, RECOVER);
    let result = systemctl::start_result(runner, RECOVER);
    place::remove_file(root, lock, &path)?;
    Ok(match (started, result) {
        (_, Err(error)) | (Err(error), Ok(StartResult::Ran | StartResult::NotStarted)) => {
            UnitCheck::Unknown(error.to_string())
        }
        (_, Ok(result)) => UnitCheck::Started(result),
    })
}

/// The check that the units can start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnitCheck {
    /// The root is not that of the running system.
    OtherRoot,
    /// systemd is not running here.
    NoSystemd,
    /// An unfinished run is pending, and the unit would recover it.
    Pending,
    /// The unit is masked, or a config manages it.
    NotOurs,
    /// The unit was started, with this result.
    Started(StartResult),
    /// systemd could not be queried; the reason.
    Unknown(String),
}

impl UnitCheck {
    /// Returns true if systemd runs here, but will not recover an interrupted run.
    pub fn is_failure(&self) -> bool {
        match self {
            Self::Started(result) => !matches!(result, StartResult::Ran | StartResult::Masked),
            Self::Unknown(_) => true,
            Self::OtherRoot | Self::NoSystemd | Self::Pending | Self::NotOurs => false,
        }
    }
}

impl UnitCheck {
    /// Returns one word for JSON, and a sentence for the text.
    pub fn describe_check(&self) -> (&'static str, String) {
        let (word, said) = match self {
            UnitCheck::OtherRoot => (
                "other-root",
                "The start of the units could not be checked: this root is not the running system.",
            ),
            UnitCheck::NoSystemd => (
                "no-systemd",
                "The start of the units could not be checked: systemd is not running.",
            ),
            UnitCheck::Pending => (
                "pending",
                "The start of the units was not checked: an earlier run is unfinished.",
            ),
            UnitCheck::NotOurs => (
                "not-ours",
                "No unit recovers an interrupted run at boot: the recovery unit was left alone.",
            ),
            UnitCheck::Started(StartResult::Ran) => (
                "started",
                "systemd has read the units, and can start the recovery unit.",
            ),
            UnitCheck::Started(StartResult::NotStarted) => (
                "not-started",
                "systemd has read the units, but did not start the recovery unit.",
            ),
            UnitCheck::Started(StartResult::Masked) => (
                "masked",
                "No unit recovers an interrupted run at boot: the recovery unit is masked.",
            ),
            UnitCheck::Started(StartResult::CannotRun) => (
                "cannot-run",
                "systemd is not allowed to run the program (203/EXEC): its SELinux label is wrong, or its file system is mounted \
             noexec.",
            ),
            UnitCheck::Started(StartResult::OutOfMemory(how) | StartResult::Failed(how)) => {
                return ("failed", format!("The recovery unit fails: {how}."));
            }
            UnitCheck::Unknown(why) => {
                return ("unknown", format!("systemd could not be queried: {why}."));
            }
        };
        (word, said.to_owned())
    }

    /// Returns the obstacle that keeps an interrupted run from being recovered at boot.
    pub fn describe_problem(&self, not_labelled: &[(RootPath, Reason)]) -> Option<String> {
        match self {
            UnitCheck::Started(StartResult::Ran) if not_labelled.is_empty() => None,
            UnitCheck::Started(StartResult::Ran) => Some(describe_unlabelled(not_labelled)),
            UnitCheck::Started(StartResult::CannotRun) => Some(format!(
                "{} Run {}",
                self.describe_check().1,
                "`restorecon -Fv /usr/local/bin/mco-rescue`"
            )),
            other => Some(other.describe_check().1),
        }
    }
}

/// Returns which files have no label, why, and what sets it.
pub fn describe_unlabelled(unlabelled: &[(RootPath, Reason)]) -> String {
    let paths: Vec<RootPath> = unlabelled.iter().map(|(path, _)| path.clone()).collect();
    let why = unlabelled.first().map(|(_, why)| why.to_string());
    format!(
        "{} could not be given the SELinux label of the policy ({}). Run {} on the node.",
        count_noun(paths.len(), "file"),
        why.unwrap_or_default(),
        restorecon_command(&paths),
    )
}
