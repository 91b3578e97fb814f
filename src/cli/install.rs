//! `install`: installs the program and its units on a node, removes them, or writes them into an archive for an initramfs.

use crate::change::install::units::{Due, check};
use crate::change::staging::state;
use crate::cli::args::OVERRIDES;
use crate::cli::ui::{DryRunEnd, Ui};
use crate::node::host::systemd_runs;
use crate::run::front::Front;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::change::session::open_root;
use crate::run::opening::{Needs, Opening};

use super::Output;
use crate::base::error::{self, Changed, ExitCode};
use crate::base::invocation::{mco_rescue, reboot};
use crate::base::paths;
use crate::base::reason::Reason;
use crate::change::install::archive::{Baked, archive_entries};
use crate::change::install::{self, InstallScope, cpio, managed_paths};
use crate::change::source;
use crate::change::transaction::place::{self};
use crate::change::transaction::{self, Lock};
use crate::config::document::{self, Desired};
use crate::host::root::{Root, RootPath, sha256};
use crate::node::Records;
use crate::node::command::CommandRunner;
use crate::node::command::journalctl;
use crate::node::command::systemctl::{self};
use crate::node::mounts;
use crate::report;
use crate::report::install::{ArchiveReport, Installed, Removed};
use clap::Args;
use std::path::PathBuf;

/// What to install where.
#[derive(Debug, Args)]
pub struct InstallArgs {
    /// Show what would be done, and change nothing
    #[arg(short = 'n', long, display_order = 0, conflicts_with = "initramfs")]
    pub dry_run: bool,

    /// Remove units, program and state; asks first
    ///
    /// The state directory with cache and history is removed, too
    #[arg(long)]
    pub remove: bool,

    /// Install although this machine is not a node of a cluster [default: refuse]
    #[arg(long, conflicts_with_all = ["remove", "initramfs"], hide_short_help = true, help_heading = OVERRIDES)]
    pub not_a_node: bool,

    /// Write an archive for an initramfs, and change nothing on the node
    ///
    /// An archive with the program and the units of the dracut module, to be loaded after the
    /// distribution's initramfs
    #[arg(long, value_name = "FILE", conflicts_with = "remove")]
    pub initramfs: Option<PathBuf>,

    /// With --initramfs: a config for the archive; may be given several times
    #[arg(long = "config", value_name = "FILE", requires = "initramfs")]
    pub configs: Vec<String>,
}

/// Runs `install`.
pub(super) fn run(ui: &Ui<'_>, args: &InstallArgs) -> Result<ExitCode> {
    match &args.initramfs {
        Some(file) => archive(ui, file, &args.configs),
        None if args.remove => remove(ui, args.dry_run),
        None => install(ui, args.not_a_node, args.dry_run),
    }
}

fn install(ui: &Ui<'_>, meant: bool, dry_run: bool) -> Result<ExitCode> {
    let opening = Opening::of(ui, open_root(&ui.root)?, &Needs::INSTALL.meant(meant))?;
    let change = opening.begin()?;
    let (root, lock) = (&change.root, change.lock());
    let records = Records::read(root).context("reading the daemon's records")?;
    let config = records.recorded().map(Desired::from_config);
    let managed = config.as_ref().map(managed_paths).unwrap_or_default();
    let due = Due::of(root, InstallScope::All, &managed)?;
    if dry_run {
        if ui.output == Output::Json {
            bail!("install --dry-run has no JSON form. Leave --output json out");
        }
        report::print(report::install::foreseen_text(&due.found).as_bytes())?;
        return Err(DryRunEnd.into());
    }
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

/// Removes everything that was installed.
fn remove(ui: &Ui<'_>, dry_run: bool) -> Result<ExitCode> {
    let change = Opening::of(ui, open_root(&ui.root)?, &Needs::REMOVE)?.begin()?;
    let (root, lock) = (&change.root, change.lock());
    // A failed one is only kept to be reported.
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
    if dry_run || !paths.removed.is_empty() {
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

/// Returns the installed paths, links before units before the program, and the paths to keep, with the reason.
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
    // The state directory records which directories were created, so it is removed last.
    if place::remove_tree(root, lock, &runtime)? {
        removed.push(runtime);
    }
    if place::remove_state(root, lock)? {
        removed.push(state);
    }
    Ok(removed)
}

/// Writes an archive for an initramfs; the node is not changed.
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

/// Reads and checks configs; each file is named after the config in it.
fn bake(configs: &[String]) -> Result<Vec<Baked>> {
    let mut all: Vec<Baked> = Vec::new();
    for name in configs {
        let document = source::read_named(name)?;
        let config = document::parse_document(document.as_slice(), name)?;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        if !config.name.chars().all(plain) || config.name.starts_with('.') {
            bail!(
                "{name}: its name {:?} is not a file name. Rename the config",
                config.name
            );
        }
        // The extension is for people; both formats are read in the same way.
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

/// Writes the archive. An existing file is never overwritten: FILE could be a disk, or the node's initramfs. An archive with
/// configs is readable only by its owner.
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
