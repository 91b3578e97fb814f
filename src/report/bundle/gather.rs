//! The files of the bundle: what the node, its records and its commands say, without contents of files from a config.

use anyhow::{Context, Result};

use super::{BundlePiece, foreign_text};
use crate::base::paths;
use crate::base::secrets::redacted_arguments;
use crate::change::session::predict::GivenDaemon;
use crate::change::source::cache;
use crate::config::document::Desired;
use crate::diagnose::recorder::look::digest_key;
use crate::host::root::{Root, RootPath};
use crate::node::Records;
use crate::node::bootloader::{self, BootEntry};
use crate::node::command::rpm_ostree::arguments;
use crate::node::command::{CommandLine, CommandRunner, systemctl};
use crate::node::kernel::kernel_command_line;
use crate::report;
use crate::run::compared::{SnapshotDiff, compare_last_good};
use crate::run::history::History;
use crate::run::status::NodeStatus;

/// Gathers the files about a node, and on a running one those about its system. One that cannot be had contains the reason.
pub fn gather_pieces(
    root: &Root,
    runner: &dyn CommandRunner,
    daemon: GivenDaemon<'_>,
) -> Vec<BundlePiece> {
    let mut pieces = of_root(root, runner, daemon);
    if root.is_live() {
        pieces.extend(of_system(runner));
    }
    pieces
}

fn of_root(root: &Root, runner: &dyn CommandRunner, daemon: GivenDaemon<'_>) -> Vec<BundlePiece> {
    let records = || Records::read(root).context("reading the daemon's records");
    let recorded = records().and_then(|records| {
        let config = records.recorded_config().context("no config is recorded")?;
        let key = digest_key(root);
        let desired = Desired::from_config(config);
        Ok(report::show::to_json(config, &desired, key.as_ref())?)
    });
    let status = NodeStatus::observe(root, runner, daemon)
        .and_then(|all| Ok(report::status::to_json(&all)?));
    let cache = cache::read_cache(root)
        .context("reading the cache")
        .and_then(|all| {
            let name = records()?.name();
            Ok(report::fetch::list_json(&all, name.as_deref())?)
        });
    let history =
        History::of_root(root).and_then(|document| Ok(report::history::to_json(&document)?));
    let diff = compare_last_good(runner, root)
        .and_then(|document| Ok(report::history::diff_json(&without_texts(document))?));
    let entries = bootloader::read_boot_entries(root).context("reading the boot entries");
    let entries = entries.map(|all| {
        let texts = all.iter().map(boot_entry);
        texts.collect::<Vec<_>>().join("\n")
    });
    vec![
        BundlePiece::new(
            "status.json",
            "the five facts, the last run, what the daemon will do",
            status,
        ),
        BundlePiece::new(
            "recorded.json",
            "the recorded config: paths, modes and digests, no content",
            recorded,
        ),
        BundlePiece::new(
            "cache.json",
            "configs that are kept, by name and digest",
            cache,
        ),
        BundlePiece::new("history.json", "boots and runs, the newest first", history),
        BundlePiece::new(
            "diff.json",
            "what differs since the last good boot, without texts of files",
            diff,
        ),
        BundlePiece::new("boot-entries.txt", "entries of the boot loader", entries),
        file(
            root,
            paths::OS_RELEASE,
            "os-release.txt",
            "which system it is",
        ),
        file(
            root,
            paths::AWAITED,
            "awaited.json",
            "the boot that a run waits for",
        ),
    ]
}

fn file(root: &Root, path: &'static str, name: &'static str, what: &'static str) -> BundlePiece {
    let bytes = root.read(&RootPath::fixed(path)).context("reading it");
    let text = bytes.and_then(|bytes| bytes.with_context(|| format!("/{path} does not exist")));
    let text = text.map(|bytes| foreign_text(&String::from_utf8_lossy(&bytes)));
    BundlePiece::new(name, what, text)
}

fn of_system(runner: &dyn CommandRunner) -> Vec<BundlePiece> {
    let said = |line: CommandLine| -> Result<String> {
        let answer = runner.run(&line)?;
        Ok(foreign_text(&format!("{}{}", answer.stdout, answer.stderr)))
    };
    let arguments_said = |line: CommandLine| -> Result<String> {
        let answer = runner.run(&line)?;
        let lines = answer.stdout.lines().map(redacted_arguments);
        Ok(lines.map(|line| line + "\n").collect::<String>() + &foreign_text(&answer.stderr))
    };
    let command_line = kernel_command_line().context("the kernel does not report it");
    vec![
        BundlePiece::new(
            "kernel-command-line.txt",
            "of the running kernel",
            command_line.map(|line| redacted_arguments(&line) + "\n"),
        ),
        BundlePiece::new(
            "rpm-ostree-status.txt",
            "deployments, for people",
            said(arguments::status_text()),
        ),
        BundlePiece::new(
            "rpm-ostree-kargs.txt",
            "arguments of the next boot",
            arguments_said(arguments::show_kargs()),
        ),
        BundlePiece::new(
            "failed-units.txt",
            "units that systemd calls failed",
            said(systemctl::failed_units()),
        ),
    ]
}

/// Returns a boot loader entry as text.
fn boot_entry(entry: &BootEntry) -> String {
    let options = redacted_arguments(&entry.options.to_string());
    format!(
        "{}\n  title    {}\n  version  {}\n  linux    {}\n  initrd   {}\n  options  {options}\n",
        entry.file,
        entry.title,
        entry.version,
        entry.linux,
        entry.initrd.join(" ")
    )
}

/// Returns the differences without contents of files, which must not leave the node.
fn without_texts(mut document: SnapshotDiff) -> SnapshotDiff {
    for difference in &mut document.differences {
        difference.text = None;
    }
    document
}
