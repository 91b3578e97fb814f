//! `butane`: translates a Butane config of variant `openshift` into a MachineConfig.

use std::cell::Cell;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail};
use nix::errno::Errno;

use super::Output;
use super::ui::Ui;
use crate::base::error::ExitCode;
use crate::base::order::StableOrder;
use crate::base::reason::Reason;
use crate::change::source;
use crate::config::butane::{self, FilesDir, OutputOptions, Translation, TreeEntry, TreeEntryKind};
use crate::host::root::{EntryType, ResolveError, Root, RootError, RootPath};
use crate::report;
use clap::Args;
use std::path::PathBuf;

/// What to translate.
#[derive(Debug, Args)]
pub struct ButaneArgs {
    /// The Butane config, a path of this machine; `-` for standard input
    #[arg(value_name = "FILE", required_unless_present = "filename")]
    pub file: Option<String>,

    /// The same as FILE, as with oc
    #[arg(
        short = 'f',
        long = "filename",
        value_name = "FILE",
        conflicts_with = "file",
        hide_short_help = true
    )]
    pub filename: Option<String>,

    /// The directory with the files that the config names
    ///
    /// Those of `local`, `contents_local`, `ssh_authorized_keys_local` and `trees`; nothing outside
    /// of it is read
    #[arg(short = 'd', long, value_name = "DIR")]
    pub files_dir: Option<PathBuf>,

    /// Print the Ignition config alone, as JSON
    #[arg(long)]
    pub raw: bool,

    /// Refuse a config with warnings
    #[arg(long)]
    pub strict: bool,
}

/// Maximum size of a file; a MachineConfig contains far less.
const MAX_FILE: u64 = 16 << 20;
/// Maximum size of all files together.
const MAX_FILES: u64 = 64 << 20;
/// Maximum number of entries in a tree.
const MAX_ENTRIES: usize = 20_000;
/// Maximum depth of a tree.
const MAX_DEPTH: usize = 64;

/// Runs `butane`.
pub(super) fn run(ui: &Ui<'_>, args: &ButaneArgs) -> Result<ExitCode> {
    let file = args.file.as_deref().or(args.filename.as_deref());
    let file = file.unwrap_or("-");
    let bytes = source::read_named(file)?;
    let name = match file {
        "-" => "standard input",
        file => file,
    };
    let text = String::from_utf8(bytes)
        .with_context(|| format!("{name} is not UTF-8 text; give a Butane config"))?;
    let files = args.files_dir.as_deref().map(NamedDir::open).transpose()?;
    let files = files.as_ref().map(|dir| dir as &dyn FilesDir);
    let mut translation = butane::translate_butane(&text, files, OutputOptions { raw: args.raw });
    if args.strict && translation.error.is_none() && !translation.report.is_empty() {
        translation.error = Some("Config produced warnings and --strict was specified".to_owned());
        translation.advice =
            Some("fix what the report warns about, or leave --strict out".to_owned());
        translation.output = None;
        translation.machine_config = None;
    }
    if ui.output == Output::Json {
        report::print_whole(report::butane::to_json(&translation)?.as_bytes())?;
        return Ok(match translation.error {
            Some(_) => ExitCode::Error,
            None => ExitCode::Done,
        });
    }
    print_text(&translation, name)
}

fn print_text(translation: &Translation, name: &str) -> Result<ExitCode> {
    let mut error = std::io::stderr();
    for entry in &translation.report {
        writeln!(error, "{entry}").context("printing the report")?;
    }
    let Some(output) = &translation.output else {
        let message = translation.error.as_deref().unwrap_or("nothing was made");
        match &translation.advice {
            Some(advice) => bail!("{name}: {message}; {advice}"),
            None => bail!("{name}: {message}"),
        }
    };
    if translation.experimental {
        log::warn!(
            "version {} is not stable: the operator cannot read this MachineConfig",
            translation.version.unwrap_or_default()
        );
    }
    report::print_bytes(format!("{output}\n").as_bytes())?;
    Ok(ExitCode::Done)
}

/// The directory of `--files-dir`.
struct NamedDir {
    root: Root,
    shown: String,
    /// Number of bytes that may still be read.
    left: Cell<u64>,
}

impl NamedDir {
    fn open(path: &Path) -> Result<Self> {
        let root = Root::open(path).context("opening the directory of --files-dir")?;
        Ok(Self {
            root,
            shown: path.display().to_string(),
            left: Cell::new(MAX_FILES),
        })
    }

    /// Returns the path as the user would write it.
    fn shown(&self, path: &str) -> String {
        match path {
            "" => self.shown.clone(),
            path => format!("{}/{path}", self.shown.trim_end_matches('/')),
        }
    }

    fn add_entries(&self, top: &str, below: &str, found: &mut Vec<TreeEntry>) {
        let names: Vec<&str> = [top, below]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect();
        let mut add = |path: String, kind| found.push(TreeEntry { path, kind });
        let full = names.join("/");
        if found_too_much(below, full.matches('/').count()) {
            let message = format!(
                "{}: nested deeper than {MAX_DEPTH} directories",
                self.shown(&full)
            );
            return add(below.to_owned(), TreeEntryKind::Unreadable(message.into()));
        }
        add(below.to_owned(), TreeEntryKind::Directory);
        let listed = match place(&full) {
            Some(path) => self.root.list_types(&path),
            None => self.root.list_types(&RootPath::fixed(".")),
        };
        let mut entries = match listed {
            Ok(entries) => entries,
            Err(error) => {
                let message = format!("open {}: {}", self.shown(&full), cause(&error));
                return add(below.to_owned(), TreeEntryKind::Unreadable(message.into()));
            }
        };
        entries.order_by(|a, b| a.0.cmp(&b.0));
        for (name, kind) in entries {
            let path = match below {
                "" => name,
                below => format!("{below}/{name}"),
            };
            if found.len() >= MAX_ENTRIES {
                let message = format!("{}: more than {MAX_ENTRIES} entries", self.shown(top));
                found.push(TreeEntry {
                    path,
                    kind: TreeEntryKind::Unreadable(message.into()),
                });
                return;
            }
            match kind {
                EntryType::Directory => self.add_entries(top, &path, found),
                kind => {
                    let names: Vec<&str> = [top, &path]
                        .into_iter()
                        .filter(|part| !part.is_empty())
                        .collect();
                    let kind = self.kind_of(&names.join("/"), kind);
                    found.push(TreeEntry { path, kind });
                }
            }
        }
    }

    fn kind_of(&self, path: &str, kind: EntryType) -> TreeEntryKind {
        let unreadable = |error: &str| {
            TreeEntryKind::Unreadable(format!("lstat {}: {error}", self.shown(path)).into())
        };
        let Some(place) = place(path) else {
            return TreeEntryKind::Other;
        };
        match kind {
            EntryType::File => match self.root.open_place(&place) {
                Ok(Some(found)) => match found.stat() {
                    Ok(Some(stat)) => TreeEntryKind::File(stat.st_mode & 0o111 != 0),
                    Ok(None) => unreadable("it is gone"),
                    Err(errno) => unreadable(errno.desc()),
                },
                Ok(None) => unreadable("it is gone"),
                Err(error) => unreadable(&cause(&error)),
            },
            EntryType::Link => match self.root.read_link(&place) {
                Ok(Some(target)) => TreeEntryKind::Link(target),
                Ok(None) => unreadable("it is gone"),
                Err(error) => unreadable(&cause(&error)),
            },
            _ => TreeEntryKind::Other,
        }
    }
}

fn found_too_much(below: &str, depth: usize) -> bool {
    !below.is_empty() && depth > MAX_DEPTH
}

/// Returns the path below the directory; `None` for the directory itself.
fn place(path: &str) -> Option<RootPath> {
    RootPath::parse(&format!("/{path}")).ok()
}

/// Returns the system's error message, as Butane prints it.
fn cause(error: &RootError) -> String {
    error.cause.to_string()
}

impl FilesDir for NamedDir {
    fn read_file(&self, path: &str) -> Result<Vec<u8>, Reason> {
        let shown = self.shown(path);
        let missing = || {
            let link = place(path).and_then(|place| self.root.read_link(&place).ok().flatten());
            match link {
                Some(_) => {
                    format!("open {shown}: the link leads to no file in the files directory")
                }
                None => format!("open {shown}: no such file or directory"),
            }
        };
        let place = place(path).ok_or_else(|| format!("read {shown}: is a directory"))?;
        let limit = MAX_FILE.min(self.left.get());
        match self.root.read_within(&place, limit) {
            Ok(Some(bytes)) => {
                self.left
                    .set(self.left.get().saturating_sub(bytes.len() as u64));
                Ok(bytes)
            }
            Ok(None) => Err(missing().into()),
            Err(error) if error.cause == Errno::EFBIG.into() => Err(format!(
                "read {shown}: larger than {} MiB, or all files together than {} MiB",
                MAX_FILE >> 20,
                MAX_FILES >> 20
            )
            .into()),
            Err(error) => Err(format!("open {shown}: {}", cause(&error)).into()),
        }
    }

    fn walk_tree(&self, path: &str) -> Result<Vec<TreeEntry>, Reason> {
        let shown = self.shown(path);
        if let Some(place) = place(path) {
            match self.root.open_directory(&place) {
                Ok(Some(_)) => {}
                Ok(None) => return Err(format!("stat {shown}: no such file or directory").into()),
                Err(error)
                    if matches!(
                        error.cause,
                        ResolveError::NoDirectory(_) | ResolveError::System(Errno::ENOTDIR)
                    ) =>
                {
                    return Err("root of tree must be a directory".into());
                }
                Err(error) => return Err(format!("stat {shown}: {}", cause(&error)).into()),
            }
        }
        let mut found = Vec::new();
        self.add_entries(path, "", &mut found);
        Ok(found)
    }
}
