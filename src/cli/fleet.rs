//! `report`: one page about many nodes, made from documents that were gathered from them.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use flate2::read::GzDecoder;

use super::ui::Ui;
use crate::base::error::ExitCode;
use crate::base::order::StableOrder;
use crate::base::time::current_time;
use crate::change::transaction;
use crate::diagnose::fleet::{
    Fleet, FleetNode, NodeDocument, NodeHealth, SkippedFile, node_of_bundle, node_of_document,
    read_document,
};
use crate::host::root::{EntryType, Root, RootPath};
use crate::report;
use clap::Args;

/// Which documents become a page.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The directory with the documents, a path of this machine
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,

    /// The page [default: DIR/fleet.html]
    ///
    /// An older page of this program is replaced, any other file is not
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Maximum size of a file; a document of a node is much smaller.
const MAX_FILE: u64 = 16 << 20;
/// Maximum number of bytes unpacked from one bundle.
const MAX_UNPACKED: u64 = 64 << 20;
/// Maximum number of files.
const MAX_FILES: usize = 20_000;
/// Maximum depth of directories: `DIR/NODE/mco-rescue-bundle`.
const MAX_DEPTH: usize = 4;

/// Runs `report`.
pub(super) fn run(ui: &Ui<'_>, args: &ReportArgs) -> Result<ExitCode> {
    let shown = args.directory.display();
    let root = Root::open(&args.directory)?;
    let mut gathered = Gathered::default();
    gathered.directory(&root, &RootPath::fixed("."), &[])?;
    let now = current_time();
    let fleet = gathered.compared(now);
    if fleet.nodes.is_empty() {
        for skipped in &fleet.skipped {
            log::warn!("{} {}", skipped.file, skipped.why);
        }
        bail!(
            "{shown} has no status or doctor document; gather some first: \
             mco-rescue status --output json >DIR/NODE.status.json"
        );
    }
    let page = report::html::fleet::to_html(&fleet, now);
    let path = match &args.out {
        Some(path) => path.clone(),
        None => args.directory.join("fleet.html"),
    };
    write(&path, &page)?;
    let written = path.display().to_string();
    ui.print_result(
        || report::fleet::to_json(&fleet, &written, now),
        || report::fleet::to_text(&fleet, &written),
    )?;
    Ok(code(&fleet))
}

/// Writes the page. An earlier page is replaced, any other file is not.
fn write(path: &Path, page: &str) -> Result<()> {
    transaction::write_output(path, page.as_bytes(), report::html::is_page).map_err(|why| {
        let path: PathBuf = path.to_owned();
        anyhow!(
            "writing {}: {why}; give another file with --out. Only a page of mco-rescue is replaced",
            path.display()
        )
    })
}

/// Returns the exit code. A node or document that could not be judged counts as a warning.
fn code(fleet: &Fleet) -> ExitCode {
    let of = |health| fleet.count_nodes(health) > 0;
    if of(NodeHealth::Critical) {
        ExitCode::Critical
    } else if of(NodeHealth::Warning) || of(NodeHealth::Unknown) || !fleet.skipped.is_empty() {
        ExitCode::Drift
    } else {
        ExitCode::Done
    }
}

/// The documents that were found so far.
#[derive(Debug, Default)]
struct Gathered {
    nodes: BTreeMap<String, FleetNode>,
    skipped: Vec<SkippedFile>,
    files: usize,
}

impl Gathered {
    fn compared(self, now: u64) -> Fleet {
        Fleet::new(self.nodes.into_values().collect(), self.skipped, now)
    }

    fn skip(&mut self, names: &[String], why: impl Into<String>) {
        self.skipped.push(SkippedFile {
            file: names.join("/"),
            why: why.into(),
        });
    }

    /// Reads a directory, in the order of its names.
    fn directory(&mut self, root: &Root, path: &RootPath, names: &[String]) -> Result<()> {
        let mut entries = match root.list_types(path) {
            Ok(entries) => entries,
            Err(error) if names.is_empty() => return Err(error.into()),
            Err(error) => {
                self.skip(names, format!("cannot be listed: {error}"));
                return Ok(());
            }
        };
        entries.order_by(|a, b| a.0.cmp(&b.0));
        for (name, kind) in entries {
            if name.starts_with('.') {
                continue;
            }
            let names: Vec<String> = names.iter().cloned().chain([name.clone()]).collect();
            let Ok(path) = RootPath::parse(&format!("/{}", names.join("/"))) else {
                self.skip(&names, "has a name that is not a path");
                continue;
            };
            if kind == EntryType::Directory {
                if names.len() < MAX_DEPTH {
                    self.directory(root, &path, &names)?
                } else {
                    self.skip(&names, "is too deep below the directory")
                }
            } else if is_wanted(&name) {
                self.files += 1;
                if self.files > MAX_FILES {
                    bail!("there are more than {MAX_FILES} files; give a directory with fewer");
                }
                self.file(root, &path, &names);
            }
        }
        Ok(())
    }

    fn file(&mut self, root: &Root, path: &RootPath, names: &[String]) {
        let name = names.last().map(String::as_str).unwrap_or_default();
        if name.ends_with(".age") {
            return self.skip(names, "is encrypted; open it first: age -d -i KEYFILE");
        }
        let bytes = match root.read_within(path, MAX_FILE) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => {
                return self.skip(
                    names,
                    "is a link to nothing below DIR, or not a regular file",
                );
            }
            Err(error) => return self.skip(names, format!("cannot be read: {error}")),
        };
        match node_of_bundle(name) {
            Some(node) => {
                if let Err(why) = self.bundle(&node, &bytes) {
                    self.skip(
                        names,
                        format!("is not a bundle, or only a part of one: {why:#}"),
                    );
                }
            }
            None => self.document(names, &bytes),
        }
    }

    fn document(&mut self, names: &[String], bytes: &[u8]) {
        match read_document(bytes) {
            Ok(NodeDocument::Other) => {}
            Ok(document) => match node_of_document(names) {
                Some(node) => self.add(node, document),
                None => self.skip(
                    names,
                    "does not contain a node name: rename it to NODE.status.json",
                ),
            },
            Err(why) => self.skip(names, why.to_string()),
        }
    }

    fn add(&mut self, node: String, document: NodeDocument) {
        let known = self.nodes.entry(node.clone());
        let node = known.or_insert_with(|| FleetNode {
            name: node,
            ..FleetNode::default()
        });
        node.add_document(document);
    }

    /// Reads the documents of a bundle, without unpacking it onto a disk.
    fn bundle(&mut self, node: &str, bytes: &[u8]) -> Result<()> {
        let unpacked = GzDecoder::new(bytes).take(MAX_UNPACKED);
        let mut archive = tar::Archive::new(unpacked);
        let mut found = Vec::new();
        for entry in archive.entries()? {
            let mut entry = entry?;
            let path = entry.path()?.to_path_buf();
            let name = path.file_name().and_then(|name| name.to_str());
            if !matches!(name, Some("status.json" | "doctor.json")) {
                continue;
            }
            let mut text = Vec::new();
            entry.by_ref().take(MAX_FILE).read_to_end(&mut text)?;
            // If there was no status, the bundle has a sentence in its place.
            found.extend(read_document(&text).ok());
        }
        if found.is_empty() {
            bail!("it has no status and no doctor document");
        }
        found
            .into_iter()
            .for_each(|document| self.add(node.to_owned(), document));
        Ok(())
    }
}

/// Returns true for files that may contain documents, not for texts and pages beside them.
fn is_wanted(name: &str) -> bool {
    [".json", ".tar.gz", ".tgz", ".age"]
        .iter()
        .any(|ending| name.ends_with(ending))
}
