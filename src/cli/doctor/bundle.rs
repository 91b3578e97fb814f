//! `doctor --bundle`: the evidence in one archive for other people. It does not contain the contents of files from a config: these
//! are listed by digest, and secrets by a digest with a key of the node. User, password and query are removed from URLs.

use crate::change::session::predict::GivenDaemon;
use crate::diagnose::recorder::look::digest_key;
use crate::node::kernel::kernel_command_line;
use std::io;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

use crate::base::paths;
use crate::base::reason::Reason;
use crate::base::secrets::{self, redacted_arguments, redacted_url, redacted_words};
use crate::base::text::{make_printable, spelled_out};
use crate::base::time::current_time;
use crate::change::source::cache;
use crate::change::transaction;
use crate::config::document::Desired;
use crate::formats::age::{self, Recipient};
use crate::host::root::{Root, RootPath};
use crate::node::bootloader::{self, BootEntry};
use crate::node::command::rpm_ostree::arguments;
use crate::node::command::{CommandLine, CommandRunner, systemctl};
use crate::node::{Machine, Records};
use crate::report;
use crate::report::html::node::NodeDocuments;
use crate::run::compared::{SnapshotDiff, compare_last_good};
use crate::run::history::History;
use crate::run::status::NodeStatus;

/// One file of the archive.
struct Piece {
    name: &'static str,
    what: &'static str,
    text: String,
}

/// The directory of all files in the archive.
const FOLDER: &str = "mco-rescue-bundle";

/// Writes the archive, and returns its list of contents.
pub(super) fn write(
    root: &Root,
    runner: &dyn CommandRunner,
    daemon: GivenDaemon<'_>,
    path: &Path,
    recipients: &[Recipient],
    doctor: [String; 2],
) -> Result<String> {
    let [text, json] = doctor;
    let mut pieces = vec![
        piece("doctor.txt", "what was found, for people", Ok(text)),
        piece("doctor.json", "the same for programs", Ok(json)),
    ];
    pieces.extend(of_root(root, runner, daemon));
    if root.is_live() {
        pieces.extend(of_system(runner));
    }
    for piece in &mut pieces {
        piece.text = redacted_piece(&piece.text);
    }
    let page = page(root, &pieces);
    pieces.insert(
        0,
        piece("report.html", "all of it as a page for a browser", Ok(page)),
    );
    let list = list(&pieces);
    pieces.insert(0, piece("LIST", "this list", Ok(list.clone())));
    let archive = pack(&pieces).map_err(Reason::from);
    let archive = archive.map_err(|why| anyhow!("packing the bundle: {why}"))?;
    let bytes = match recipients {
        [] => archive,
        recipients => age::encrypt_to(&archive, recipients).context("encrypting the bundle")?,
    };
    // An earlier bundle is never overwritten.
    transaction::write_output(path, &bytes, |_| false).map_err(|why| {
        let path = path.display();
        anyhow!("writing {path}: {why}; give another FILE, where nothing is yet and there is room")
    })?;
    Ok(list)
}

/// Returns the page made from the other pieces; a piece that is not a document is missing on it.
fn page(root: &Root, pieces: &[Piece]) -> String {
    let document = |name: &str| -> Option<Value> {
        let piece = pieces.iter().find(|piece| piece.name == name)?;
        serde_json::from_str(&piece.text).ok()
    };
    let (doctor, status) = (document("doctor.json"), document("status.json"));
    let (history, diff) = (document("history.json"), document("diff.json"));
    let machine = Machine::observe(root).ok();
    report::html::node::to_html(&NodeDocuments {
        name: machine.as_ref().and_then(|machine| machine.name.as_deref()),
        system: machine.as_ref().map(|machine| machine.system.as_str()),
        now: current_time(),
        doctor: doctor.as_ref(),
        status: status.as_ref(),
        history: history.as_ref(),
        diff: diff.as_ref(),
    })
}

/// Returns a piece of the archive. If its text is not available, the piece contains the reason.
fn piece(name: &'static str, what: &'static str, text: Result<String>) -> Piece {
    let text = text.unwrap_or_else(|error| format!("(cannot be had: {error:#})\n"));
    Piece { name, what, text }
}

fn of_root(root: &Root, runner: &dyn CommandRunner, daemon: GivenDaemon<'_>) -> Vec<Piece> {
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
        piece(
            "status.json",
            "the five facts, the last run, what the daemon will do",
            status,
        ),
        piece(
            "recorded.json",
            "the recorded config: paths, modes and digests, no content",
            recorded,
        ),
        piece(
            "cache.json",
            "configs that are kept, by name and digest",
            cache,
        ),
        piece("history.json", "boots and runs, the newest first", history),
        piece(
            "diff.json",
            "what differs since the last good boot, without texts of files",
            diff,
        ),
        piece("boot-entries.txt", "entries of the boot loader", entries),
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

fn file(root: &Root, path: &'static str, name: &'static str, what: &'static str) -> Piece {
    let bytes = root.read(&RootPath::fixed(path)).context("reading it");
    let text = bytes.and_then(|bytes| bytes.with_context(|| format!("/{path} is not there")));
    let text = text.map(|bytes| foreign(&String::from_utf8_lossy(&bytes)));
    piece(name, what, text)
}

fn of_system(runner: &dyn CommandRunner) -> Vec<Piece> {
    let said = |line: CommandLine| -> Result<String> {
        let answer = runner.run(&line)?;
        Ok(foreign(&format!("{}{}", answer.stdout, answer.stderr)))
    };
    let arguments_said = |line: CommandLine| -> Result<String> {
        let answer = runner.run(&line)?;
        let lines = answer.stdout.lines().map(redacted_arguments);
        Ok(lines.map(|line| line + "\n").collect::<String>() + &foreign(&answer.stderr))
    };
    let command_line = kernel_command_line().context("the kernel does not tell");
    vec![
        piece(
            "kernel-command-line.txt",
            "of the running kernel",
            command_line.map(|line| redacted_arguments(&line) + "\n"),
        ),
        piece(
            "rpm-ostree-status.txt",
            "deployments, for people",
            said(arguments::status_text()),
        ),
        piece(
            "rpm-ostree-kargs.txt",
            "arguments of the next boot",
            arguments_said(arguments::show_kargs()),
        ),
        piece(
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

/// Returns a piece that may leave the node: without secrets, and without characters that hide or forge text.
fn redacted_piece(text: &str) -> String {
    match redacted_document(text) {
        Some(document) => spelled_out(&document),
        None => make_printable(&redacted_words(text)),
    }
}

/// Returns a document without secrets, and without logins and queries in URLs.
fn redacted_document(text: &str) -> Option<String> {
    fn redact(value: &mut Value) {
        match value {
            Value::String(text) => *text = redacted_text(text),
            Value::Array(all) => all.iter_mut().for_each(redact),
            Value::Object(all) => all.values_mut().for_each(redact),
            _ => {}
        }
    }
    let mut value: Value = serde_json::from_str(text).ok()?;
    redact(&mut value);
    Some(serde_json::to_string_pretty(&value).ok()? + "\n")
}

fn redacted_text(text: &str) -> String {
    let words = redacted_words(text);
    let words = words.split_inclusive(char::is_whitespace);
    words.map(redacted_word).collect()
}

/// Returns a word without login and query if it is a URL; trailing white space is preserved.
fn redacted_word(word: &str) -> String {
    let address = word.trim_end();
    if address.contains("://") {
        redacted_url(address) + word.strip_prefix(address).unwrap_or_default()
    } else {
        word.to_owned()
    }
}

/// Returns a text from a file or a program, line by line, without secrets.
fn foreign(text: &str) -> String {
    let text = secrets::redact_secrets(text);
    text.split_inclusive('\n').map(redacted_text).collect()
}

fn list(pieces: &[Piece]) -> String {
    let line = |piece: &Piece| {
        format!(
            "{:<26}{:>9}  {}\n",
            piece.name,
            piece.text.len(),
            piece.what
        )
    };
    pieces.iter().map(line).collect()
}

/// Returns the archive.
fn pack(pieces: &[Piece]) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::best()));
    for piece in pieces {
        let mut header = tar::Header::new_gnu();
        header.set_size(piece.text.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(current_time());
        let name = format!("{FOLDER}/{}", piece.name);
        archive.append_data(&mut header, name, piece.text.as_bytes())?;
    }
    archive.into_inner()?.finish()
}
