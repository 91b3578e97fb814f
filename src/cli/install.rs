//! `install`: installs the program and its units on a node, removes them, or writes them into an archive for an initramfs.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::Output;
use crate::base::error::ExitCode;
use crate::base::reason::Reason;
use crate::change::install::archive::{Baked, archive_entries};
use crate::change::install::{self, cpio};
use crate::change::session::open_root;
use crate::change::{source, transaction};
use crate::cli::args::OVERRIDES;
use crate::cli::ui::{DryRunEnd, Ui};
use crate::config::document;
use crate::host::root::sha256_hex;
use crate::report;
use crate::report::install::{ArchiveReport, Installed, Removed};
use crate::run::front::Front;
use crate::run::install::{InstalledPaths, find_due, install_due};
use crate::run::opening::{Needs, Opening};

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
    let opening = Opening::check_needs(ui, open_root(&ui.root)?, &Needs::INSTALL.if_meant(meant))?;
    let change = opening.begin_change()?;
    let due = find_due(&change.root)?;
    if dry_run {
        if ui.output == Output::Json {
            bail!("install --dry-run has no JSON form. Leave --output json out");
        }
        report::print(report::install::foreseen_text(&due.found).as_bytes())?;
        return Err(DryRunEnd.into());
    }
    let done = install_due(&change, &due)?;
    let code = if done.check.is_failure() {
        ExitCode::Error
    } else {
        ExitCode::Done
    };
    let installed = Installed {
        root: change.root.shown().display().to_string(),
        found: &due.found,
        unlabelled: &done.unlabelled,
        check: done.check,
    };
    ui.print_result(
        || report::install::to_json(&installed),
        || report::install::to_text(&installed),
    )?;
    Ok(code)
}

/// Removes everything that was installed.
fn remove(ui: &Ui<'_>, dry_run: bool) -> Result<ExitCode> {
    let change = Opening::check_needs(ui, open_root(&ui.root)?, &Needs::REMOVE)?.begin_change()?;
    let found = InstalledPaths::find_paths(&change)?;
    let mut paths = Removed {
        root: change.root.shown().display().to_string(),
        removed: found.ours.clone(),
        left: found.left.clone(),
    };
    if ui.output == Output::Text {
        report::print(report::install::about_to_remove(&paths).as_bytes())?;
    }
    if dry_run || !found.ours.is_empty() {
        ui.confirm("Remove mco-rescue from this node?")?;
    }
    paths.removed = found.remove_paths(&change)?;
    ui.print_result(
        || report::install::removed_json(&paths),
        || report::install::removed_text(&paths),
    )?;
    Ok(ExitCode::Done)
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
        sha256: sha256_hex(&bytes),
        configs: names,
    };
    ui.print_result(
        || report::install::archive_json(&archive),
        || report::install::archive_text(&archive),
    )?;
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
    let write = if is_readable {
        transaction::write_readable_output
    } else {
        transaction::write_output
    };
    write(file, bytes, |_| false).map_err(|why| {
        let file = file.display();
        anyhow!(
            "writing {file}: {why}; give another FILE that does not exist yet, where there is room"
        )
    })
}
