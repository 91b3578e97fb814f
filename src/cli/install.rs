//! `install`: the program and its units on a node, off it again, or in an archive for an initramfs.

use crate::change::staging::state;
use crate::cli::ui::Ui;
use crate::node::host::systemd_runs;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use flate2::Compression;
use flate2::write::GzEncoder;

use super::node_change::{Needs, NodeChange, Opening};
use super::session::{Session, open_root};

use super::{InstallArgs, Output};
use crate::base::error::{self, Changed, ExitCode};
use crate::base::invocation::{mco_rescue, on_node, reboot, shell_word, whole_command};
use crate::base::notice::Notice;
use crate::base::paths;
use crate::base::reason::Reason;
use crate::change::install::archive::{Baked, archive_entries};
use crate::change::install::{
    self, COMPLETE, FETCH, FoundItem, InstallScope, InstallSurvey, ItemStanding, RECOVER, cpio,
    managed_paths,
};
use crate::change::plan::{Findings, Plan, Step};
use crate::change::source;
use crate::change::transaction::place::{self, Placement};
use crate::change::transaction::{self, Lock, Pending};
use crate::config::document::{self, Desired};
use crate::host::root::{Exposed, ExposedBy, Root, RootPath, sha256};
use crate::judge::drift::text_object;
use crate::node::command::CommandRunner;
use crate::node::command::journalctl;
use crate::node::command::systemctl::{self, StartResult};
use crate::node::mounts;
use crate::node::space::MountState;
use crate::node::{Host, Labels, Records};
use crate::report;
use crate::report::install::{ArchiveReport, Installed, Removed, UnitCheck};

/// Runs `install`.
pub(super) fn run(ui: &Ui<'_>, args: &InstallArgs) -> Result<ExitCode> {
    match &args.initramfs {
        Some(file) => archive(ui, file, &args.configs),
        None if args.remove => remove(ui),
        None => install(ui, args.not_a_node),
    }
}

fn install(ui: &Ui<'_>, meant: bool) -> Result<ExitCode> {
    let opening = Opening::of(ui, open_root(ui)?, &Needs::INSTALL.meant(meant))?;
    let change = opening.begin()?;
    let (root, lock) = (&change.root, change.lock());
    let records = Records::read(root).context("reading the daemon's records")?;
    let config = records.recorded().map(Desired::from_config);
    let managed = config.as_ref().map(managed_paths).unwrap_or_default();
    let due = Due::of(root, InstallScope::All, &managed)?;
    let unlabelled = due
        .put(root, lock, Changed::Part)
        .map_err(|error| go_on(error, "install"))?;
    let check = check(root, lock, &due, ui.runner)?;
    let code = if check.is_failure() {
        ExitCode::Error
    } else {
        ExitCode::Done
    };
    let installed = Installed {
        root: root.shown().display().to_string(),
        found: &due.found,
        unlabelled: &unlabelled,
        check,
    };
    let text = match ui.output {
        Output::Json => report::install::to_json(&installed)?,
        Output::Text => report::install::to_text(&installed),
    };
    report::print_result(text.as_bytes());
    Ok(code)
}

/// The error of a command that may have put or removed a part.
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

/// What an installation would do.
struct Due {
    found: Vec<FoundItem>,
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
    fn of(root: &Root, scope: InstallScope, managed: &BTreeSet<RootPath>) -> Result<Self> {
        let host = Host::observe(root).context("looking at the node")?;
        let labels = Labels::read(root);
        let program = install::read_program().map_err(Reason::from);
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
        let found = survey.of(scope).context("looking at what is installed")?;
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

    fn is_nothing(&self) -> bool {
        !self.found.iter().any(FoundItem::is_due)
    }

    /// Puts what is missing or differs, each of which is `changed`; gives what could not be labelled, and why.
    fn put(&self, root: &Root, lock: &Lock, changed: Changed) -> Result<Vec<(RootPath, Reason)>> {
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
            bytes: found.item.bytes(&self.program),
            label: found.label.as_deref(),
        };
        Ok(place::put_file(root, lock, &placement)?)
    }
}

/// Lets the running systemd read the units and start them.
fn check(root: &Root, lock: &Lock, due: &Due, runner: &dyn CommandRunner) -> Result<UnitCheck> {
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
    if due.has(FETCH[1])
        && let Err(error) = systemctl::start_unit(runner, FETCH[1])
    {
        log::warn!("{error}. Next: systemctl status {}", FETCH[1]);
    }
    if !due.has(RECOVER) {
        return Ok(UnitCheck::NotOurs);
    }
    if transaction::find_pending(root)? != Pending::Nothing {
        return Ok(UnitCheck::Pending);
    }
    start(root, lock, due, runner)
}

impl Due {
    /// Whether a unit of ours is there now.
    fn has(&self, unit: &str) -> bool {
        let mut items = self.found.iter();
        let ours = |found: &FoundItem| {
            !matches!(found.standing, ItemStanding::Masked | ItemStanding::Managed)
        };
        items.any(|found| found.item.unit == Some(unit) && ours(found))
    }
}

/// Its conditions are not met where nothing is pending; for a moment a file meets one.
fn start(root: &Root, lock: &Lock, due: &Due, runner: &dyn CommandRunner) -> Result<UnitCheck> {
    let path = RootPath::fixed(paths::CHECK);
    let object = text_object(&[], 0o600, due.host.attainable((0, 0)));
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

/// Before a run on the live node: what is missing of what would mend it at boot after a power cut, or why that cannot be
/// told.
pub(super) struct Beforehand {
    due: Result<Due, String>,
    /// The plan still has to name the units.
    announced: bool,
}

impl Beforehand {
    /// What is missing; `None` where nothing is, where systemd does not run, or where the image has it.
    pub(super) fn of(session: &Session<'_>) -> Option<Self> {
        let mut theirs = managed_paths(&session.desired);
        theirs.extend(session.old.iter().flat_map(|old| managed_paths(old)));
        Self::on(&session.root, &theirs)
    }

    /// The same for a run without a config of its own.
    pub(super) fn of_recorded(root: &Root, records: &Records) -> Option<Self> {
        let config = records.recorded().map(Desired::from_config);
        Self::on(
            root,
            &config.as_ref().map(managed_paths).unwrap_or_default(),
        )
    }

    fn on(root: &Root, theirs: &BTreeSet<RootPath>) -> Option<Self> {
        if !systemd_runs(root) || image_recovers(root) {
            return None;
        }
        match Due::of(root, InstallScope::Recovery, theirs) {
            Ok(due) if due.is_nothing() => None,
            Ok(due) => Some(Self {
                due: Ok(due),
                announced: true,
            }),
            Err(error) => {
                let why = format!("{error:#}");
                log::warn!("{}", report::install::without_recovery(&why));
                Some(Self {
                    due: Err(why),
                    announced: true,
                })
            }
        }
    }

    /// Ends the notice: the units are in place, or a warning has said why not.
    pub(super) fn end_announcement(&mut self) {
        self.announced = false;
    }

    /// Returns the notice on the units that are installed before the first step of a plan.
    pub(super) fn notice(&self) -> Option<Notice> {
        let due = self.due.as_ref().ok().filter(|_| self.announced)?;
        Some(Notice {
            subject: "recovery at boot".to_owned(),
            message: report::install::beforehand_text(&due.found),
        })
    }

    /// Puts it in place and says so; else why it is not. A run of files alone needs none of it.
    pub(super) fn install(&self, change: &NodeChange<'_>) -> Option<String> {
        let due = match &self.due {
            Ok(due) => due,
            // It was said when it was looked at.
            Err(why) => return Some(why.clone()),
        };
        match due.try_install(change) {
            Ok(said) => {
                log::warn!("{said}");
                None
            }
            Err(error) => {
                let why = format!("{error:#}");
                log::warn!("{}", report::install::without_recovery(&why));
                Some(why)
            }
        }
    }
}

impl Due {
    fn try_install(&self, change: &NodeChange<'_>) -> Result<String> {
        let (root, lock) = (&change.root, change.lock());
        let unlabelled = self.put(root, lock, Changed::Before)?;
        let check = check(root, lock, self, change.runner())?;
        if let Some(problem) = report::install::problem_text(&check, &unlabelled) {
            bail!("{problem}");
        }
        Ok(report::install::now_at_boot())
    }
}

/// The check that a unit completes a run at the next boot: a plan that stages is refused without one, unless that is
/// done `by_hand`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Completion {
    by_hand: bool,
}

impl Completion {
    /// As asked for.
    pub(super) fn new(by_hand: bool) -> Self {
        Self { by_hand }
    }

    /// Returns why nothing would complete a plan that stages: a blocker, or a notice if that is done by hand.
    ///
    /// # Errors
    /// A path that cannot be read.
    pub(super) fn check(
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
            let message = format!("{why}. {}", report::install::BY_HAND);
            found.notices.push(Notice { subject, message });
        } else {
            let message = format!("{why}. {}", report::install::NOT_COMPLETED);
            found.blockers.push(Notice { subject, message });
        }
        Ok(found)
    }

    /// Installs what is missing; a plan that stages ends here where that does not work.
    ///
    /// # Errors
    /// It does not, and is not done by hand.
    pub(super) fn install(
        &self,
        change: &NodeChange<'_>,
        plan: &Plan,
        beforehand: &Beforehand,
    ) -> Result<()> {
        match beforehand.install(change) {
            Some(why) if plan.os.needs_reboot() && !self.by_hand => {
                bail!(
                    "nothing would complete this run at the next boot: {}. Nothing of the config was changed. \
                     See to it: {}. {}",
                    why.trim_end_matches('.'),
                    mco_rescue("install"),
                    report::install::NOT_COMPLETED
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
pub(super) fn refuse_without_completion(root: &Root, by_hand: bool) -> Result<()> {
    if by_hand || !systemd_runs(root) {
        return Ok(());
    }
    let why = not_completed(root, None)?;
    match why.map_or_else(|| not_enabled(root), |why| Ok(Some(why)))? {
        Some(why) => bail!(
            "{COMPLETE} {why}. Nothing was changed. {}",
            report::install::NOT_COMPLETED
        ),
        None => Ok(()),
    }
}

/// Why the unit that completes would not run at the next boot; nothing where no reason is seen.
fn not_completed(root: &Root, beforehand: Option<&Beforehand>) -> Result<Option<String>> {
    for path in [paths::COMPLETE_UNIT, paths::COMPLETE_RUNTIME_UNIT] {
        let path = RootPath::fixed(path);
        if install::is_mask(root, &path)? {
            return Ok(Some(format!(
                "is masked ({path}): nothing would complete this run at the next boot. Next: {}",
                on_node(format!("systemctl unmask {COMPLETE}"))
            )));
        }
    }
    let due = match beforehand.map(|beforehand| &beforehand.due) {
        Some(Err(why)) => {
            return Ok(Some(format!(
                "cannot be looked at ({}): nothing would complete this run at the next boot. See to it: mco-rescue \
                 install",
                why.trim_end_matches('.')
            )));
        }
        Some(Ok(due)) => due.found.as_slice(),
        None => &[],
    };
    for found in due.iter().filter(|found| found.is_due()) {
        let path = &found.item.path;
        let directory = path.parent().unwrap_or_else(|| path.clone());
        if MountState::of(root, &directory)?.read_only {
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
    if !of_image && MountState::of(root, &directory)?.no_exec {
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
    due.is_some_and(|due| due.has(COMPLETE))
}

/// Why systemd does not start the unit that completes: it is missing, or not enabled.
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

/// Whether the image brings the unit along, enabled, and nothing takes precedence over it.
fn image_recovers(root: &Root) -> bool {
    let exists = |path| root.exists(&RootPath::fixed(path));
    let is_there = |path| matches!(exists(path), Ok(true));
    let links = [paths::RECOVER_LINK, paths::IMAGE_RECOVER_LINK];
    is_there(paths::IMAGE_RECOVER_UNIT)
        && matches!(exists(paths::RECOVER_UNIT), Ok(false))
        && links.into_iter().any(is_there)
}

/// Takes everything away again.
fn remove(ui: &Ui<'_>) -> Result<ExitCode> {
    let change = Opening::of(ui, open_root(ui)?, &Needs::REMOVE)?.begin()?;
    let (root, lock) = (&change.root, change.lock());
    // One that failed is kept only to be told.
    if state::read_awaited(root)?.is_some_and(|awaited| awaited.failed.is_none()) {
        bail!(
            "what an earlier run staged waits for the next boot, and removing would take away what completes it. \
             Nothing was removed. Next: {}, then {}",
            reboot(),
            mco_rescue("status")
        );
    }
    let mut paths = to_remove(root, lock)?;
    if ui.output == Output::Text {
        report::print(report::install::about_to_remove(&paths).as_bytes())?;
    }
    if !paths.removed.is_empty() {
        ui.confirm("Remove mco-rescue from this node?")?;
    }
    let removed = take_away(root, ui.runner, lock, &paths.removed);
    paths.removed = removed.map_err(|error| go_on(error, "install --remove"))?;
    let text = match ui.output {
        Output::Json => report::install::removed_json(&paths)?,
        Output::Text => report::install::removed_text(&paths),
    };
    report::print_result(text.as_bytes());
    Ok(ExitCode::Done)
}

/// What of ours is there, links before units before the program; and what stays, with the reason.
fn to_remove(root: &Root, lock: &Lock) -> Result<Removed> {
    let records = Records::read(root).context("reading the daemon's records")?;
    let config = records.recorded().map(Desired::from_config);
    let managed = config.as_ref().map(managed_paths).unwrap_or_default();
    let (mut ours, mut left) = (Vec::new(), Vec::new());
    for item in install::list_items(InstallScope::All, true)
        .into_iter()
        .rev()
    {
        let path = item.path;
        if !root.exists(&path)? {
            continue;
        }
        if managed.contains(&path) {
            left.push((path, "the node's config is in charge of it"));
        } else if install::is_mask(root, &path)? {
            left.push((path, "the unit was masked by hand; remove it by hand"));
        } else {
            ours.push(path);
        }
    }
    let copies = RootPath::fixed(paths::BOOT_RECORDER);
    if root.exists(&copies)? {
        match root.directory(&RootPath::fixed(paths::BOOT))? {
            Some(boot) if mounts::is_read_only(&boot) => {
                left.push((copies, "/boot is read-only; remove it by hand"));
            }
            _ => ours.push(copies),
        }
    }
    for path in [paths::TIMER_STAMP, paths::RUNTIME, paths::STATE].map(RootPath::fixed) {
        let only_for_us = path == RootPath::fixed(paths::STATE) && lock.made_state();
        if !only_for_us && root.exists(&path)? {
            ours.push(path);
        }
    }
    Ok(Removed {
        root: root.shown().display().to_string(),
        removed: ours,
        left,
    })
}

fn take_away(
    root: &Root,
    runner: &dyn CommandRunner,
    lock: &Lock,
    ours: &[RootPath],
) -> Result<Vec<RootPath>> {
    let live = systemd_runs(root);
    if live {
        stop(runner, ours);
    }
    let removed = remove_files(root, lock, ours)?;
    if live && let Err(error) = systemctl::daemon_reload(runner) {
        log::warn!("{error}. Next: systemctl daemon-reload");
    }
    if live && removed.contains(&RootPath::fixed(paths::CATALOGUE)) {
        journalctl::update_catalogue(runner);
    }
    Ok(removed)
}

fn stop(runner: &dyn CommandRunner, ours: &[RootPath]) {
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
    // The state directory knows which directories were made: it goes last.
    if place::remove_tree(root, lock, &runtime)? {
        removed.push(runtime);
    }
    if place::remove_state(root, lock)? {
        removed.push(state);
    }
    Ok(removed)
}

/// Writes an archive for an initramfs; the node is left alone.
fn archive(ui: &Ui<'_>, file: &Path, configs: &[String]) -> Result<ExitCode> {
    let baked = bake(configs)?;
    let names: Vec<String> = baked.iter().map(|config| config.file.clone()).collect();
    let program = install::read_program()
        .map_err(Reason::from)
        .map_err(|why| anyhow::anyhow!("reading the running program: {why}. Mount /proc first"))?;
    let entries = archive_entries(program, baked);
    let bytes = pack(&cpio::write_archive(&entries)?).context("packing the archive")?;
    write_archive(file, &bytes, configs.is_empty())?;
    let archive = ArchiveReport {
        file: file.display().to_string(),
        size: bytes.len(),
        sha256: sha256(&bytes),
        configs: names,
    };
    let text = match ui.output {
        Output::Json => report::install::archive_json(&archive)?,
        Output::Text => report::install::archive_text(&archive),
    };
    report::print_result(text.as_bytes());
    Ok(ExitCode::Done)
}

/// Reads and checks configs; each is named after the config that it holds.
fn bake(configs: &[String]) -> Result<Vec<Baked>> {
    let mut all: Vec<Baked> = Vec::new();
    for name in configs {
        let document = source::read_named(name)?;
        let config = document::parse_document(document.as_slice(), name)?;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        if !config.name.chars().all(plain) || config.name.starts_with('.') {
            bail!(
                "{name}: its name {:?} is no file name. Rename the config",
                config.name
            );
        }
        // The ending is for people; both are read alike.
        let json = document.trim_ascii_start().starts_with(b"{");
        let file = format!("{}.{}", config.name, if json { "json" } else { "yaml" });
        match all.iter().find(|baked| baked.file == file) {
            Some(same) if same.document == document => {}
            Some(_) => bail!(
                "{name}: another document is named {} too. Leave one out",
                config.name
            ),
            None => all.push(Baked { file, document }),
        }
    }
    Ok(all)
}

fn pack(archive: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(archive)?;
    packed.finish()
}

/// Nothing that is there is written over: FILE could be a disk, or the initramfs of the node. Configs are for root alone.
fn write_archive(file: &Path, bytes: &[u8], is_readable: bool) -> Result<()> {
    let write = match is_readable {
        true => transaction::write_readable_output,
        false => transaction::write_output,
    };
    write(file, bytes, |_| false).map_err(|why| {
        let file = file.display();
        anyhow!("writing {file}: {why}; give another FILE, where nothing is yet and there is room")
    })
}
