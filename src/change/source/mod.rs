//! The source of a config. A named one takes precedence: a file, standard input, `cached:NAME` or `cached:latest`. Otherwise
//! [`by_itself`] chooses: the cluster's last desired config if the cache has an intact copy, or else the recorded one.

pub mod cache;
pub mod changes;
mod choice;
pub mod gate;
mod http;
pub mod identity;
mod medium;
pub mod objects;
mod references;
pub mod server;

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::base::invocation::{command_name, mco_rescue, whole_command};
use crate::base::paths;
use crate::base::reason::Reason;
use crate::change::capsule::CAPSULE;
use crate::change::capsule::accepted::TakenFromCapsule;
use crate::change::capsule::opened::{CapsuleError, CapsuleFacts};
use crate::change::capsule::policy::CapsuleInput;
use crate::change::source::identity::Membership;
use crate::config::document::{self, DocumentError, MachineConfig};
use crate::host::caller;
use crate::host::progress::{self, Work};
use crate::host::root::{Root, RootError};
use crate::node::{Recorded, Records};
use cache::{CacheEntry, Cached};
use gate::{CapsuleOptions, ConfigOrigin, ConfigRequest, GateError, open_capsule};

/// Maximum size of a YAML document (64 MiB). The operator refuses rendered configs above 1.5 MiB.
const MAX_YAML: u64 = 64 << 20;

/// File name extensions of documents.
const DOCUMENTS: [&str; 4] = ["json", "yaml", "yml", "ign"];

/// A config with the reason for its choice.
#[derive(Debug, Clone)]
pub struct Chosen {
    /// The config.
    pub config: MachineConfig,
    /// The reason, as text.
    pub why: String,
    /// All other available configs, each with the reason why it was not chosen; empty if a config was named.
    pub others: Vec<Candidate>,
    /// Who signed it; `None` if it was read without a capsule.
    pub signed: Option<CapsuleFacts>,
}

/// The reason why there is no config.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The document cannot be read.
    #[error("reading {0}: {1}")]
    Read(String, Reason),
    /// It is a directory.
    #[error("{0} is a directory. Give one of the files in it")]
    Directory(String),
    /// The file is missing; the user may have meant something else.
    #[error("reading {name}: there is no such file{hint}")]
    NoFile {
        /// The name as given.
        name: String,
        /// A likely file or config, or how to get it.
        hint: String,
    },
    /// The document is too large for a MachineConfig.
    #[error(
        "reading {0}: larger than any MachineConfig (64 MiB, in JSON 1.5 GiB); check that it is the right file"
    )]
    TooLarge(String),
    /// It is a URL, which another command fetches.
    #[error(
        "{0} is a URL. Fetch it into the cache first: {fetch}, then name it cached:NAME", fetch = mco_rescue("fetch URL")
    )]
    Url(String),
    /// The cache has no such config.
    #[error("the cache has no config {0:?}. It has: {1}")]
    NotCached(String, String),
    /// The cache has no intact config of this pool.
    #[error(
        "the cache has no intact rendered config of {0}. Next: {list}, or {fetch}", list = mco_rescue("cache list"), fetch = mco_rescue("fetch")
    )]
    NoLatest(String),
    /// The cache has several pools, and the node's is unknown.
    #[error(
        "the cache has configs of several pools ({0}), and no source here names this node's pool. Name one: \
         {list}, then cached:NAME", list = mco_rescue("cache list")
    )]
    SeveralPools(String),
    /// The prefix matches several configs in the cache.
    #[error("{0:?} is the beginning of several configs in the cache: {1}. Give the whole name")]
    Ambiguous(String, String),
    /// The cache cannot be read.
    #[error("reading the cache: {0}")]
    Cache(#[from] RootError),
    /// No config was given, and the node has none.
    #[error(
        "no config was given, and {0}. Give a file: `{again}`", again = with_file()
    )]
    NoneRecorded(Reason),
    /// It is the encapsulated object of a first boot without its Ignition part; applying it would remove everything.
    #[error(
        "{0} is the encapsulated config of a first boot: its Ignition part is empty. Give the full one, such as \
         /{path} of a node with the same config",
        path = paths::MCS_CONTENT
    )]
    Encapsulated(String),
    /// It is a part of a rendered config without an Ignition part of its own.
    #[error(
        "{origin}: {name} is not a rendered config ({why}), and it names no file, unit or user: applying it would remove \
         everything. Merge all of its pool: mco-rescue render POOL FILES... > rendered.json"
    )]
    NotRendered {
        /// Name of the document.
        origin: String,
        /// Name of the config.
        name: String,
        /// The reason.
        why: String,
    },
    /// A referenced source is unavailable.
    #[error("{place}: {problem}")]
    Reference {
        /// The JSON path in the document.
        place: String,
        /// The error and the next step.
        problem: String,
    },
    /// A capsule is missing, or does not have the document.
    #[error(transparent)]
    Gate(#[from] GateError),
    /// The document was refused.
    #[error(transparent)]
    Document(#[from] DocumentError),
}

pub use choice::{Candidate, Choice, KnownSources, Pick, by_itself, find_rivals};
pub use http::{Http, show_progress};
pub use medium::{ConfigMedium, ConfigMediumError};
pub use references::{Fetch, ReferenceNetwork};

/// Prefix of the name of a cached config.
pub const CACHED: &str = "cached:";

/// Name of the newest config of the node's pool in the cache.
pub const LATEST: &str = "cached:latest";

/// Returns the config named on the command line, or else the automatic choice. The references of a named bare Ignition config
/// are fetched.
pub fn choose_source(
    root: &Root,
    request: &ConfigRequest<'_>,
    kept: &KnownSources<'_>,
    fetch: &mut dyn Fetch,
) -> Result<Chosen, SourceError> {
    let (records, cache) = (kept.records, kept.cache);
    let mut given = match request.named {
        Some(LATEST) => latest_config(kept)?,
        Some(name) if name.starts_with(CACHED) => read_cached(name, cache)?,
        Some("-") => parse_config(read_config(root, "-", &request.capsule)?, "standard input")?,
        Some(url) if url.starts_with("http://") || url.starts_with("https://") => {
            return Err(SourceError::Url(crate::base::secrets::redacted_url(url)));
        }
        Some(name) if !caller::is_there(name) => return Err(no_file(name, kept)),
        Some(path) => match recorded_as(path, records)? {
            Some(config) => as_given(config),
            None => parse_config(read_config(root, path, &request.capsule)?, path)?,
        },
        None => return take_choice(by_itself(kept).map_err(SourceError::NoneRecorded)?),
    };
    given.config = references::complete_references(given.config, fetch)?;
    let (config, part) = (&given.config, given.config.why_not_rendered(true));
    if let Some(why) = part.filter(|_| config.emptied) {
        let (origin, name) = (config.origin.clone(), config.name.clone());
        return Err(SourceError::NotRendered { origin, name, why });
    }
    if given.config.emptied {
        complete_config(given, records, cache)
    } else {
        Ok(given)
    }
}

/// Returns the error for a missing file. It suggests a file with another extension, or a config.
fn no_file(name: &str, kept: &KnownSources<'_>) -> SourceError {
    let hint =
        file_beside(name).or_else(|| (!name.contains('/')).then(|| of_config(name, kept))?);
    SourceError::NoFile {
        name: name.to_owned(),
        hint: hint.unwrap_or_else(|| ". Check its name and the current directory".to_owned()),
    }
}

/// Returns a file with the same name and another extension.
fn file_beside(name: &str) -> Option<String> {
    let stem = if is_document(name) {
        name.rsplit_once('.')?.0
    } else {
        name
    };
    let others = DOCUMENTS.iter().map(|ending| format!("{stem}.{ending}"));
    let found = others.into_iter().find(|other| caller::is_there(other))?;
    Some(format!(". Did you mean {found}?"))
}

/// Returns a config with this name, or those whose names begin with it.
fn of_config(name: &str, kept: &KnownSources<'_>) -> Option<String> {
    let name = name.trim_end_matches(".json").trim_end_matches(".yaml");
    let named = cache::whole_entries(kept.cache).map(|entry| entry.name.as_str());
    let named: BTreeSet<&str> = named.filter(|known| known.starts_with(name)).collect();
    let meant: Vec<String> = match named.get(name) {
        Some(exact) => vec![format!("cached:{exact}")],
        None => named.iter().map(|name| format!("cached:{name}")).collect(),
    };
    if !meant.is_empty() {
        return Some(format!(". Did you mean {}?", meant.join(" or ")));
    }
    if kept.records.name().as_deref() == Some(name) {
        return Some(". The node is recorded to be in this config: leave the name out".to_owned());
    }
    name.starts_with("rendered-").then(|| {
        let cached: Vec<&str> = cache::whole_entries(kept.cache).map(|entry| entry.name.as_str()).collect();
        let has = if cached.is_empty() {
"is empty".to_owned()
} else {
format!("has only {}", cached.join(", "))
};
        format!(
            ", and the cache {has}. Next: oc get mc {name} -o yaml > {name}.yaml # if the API answers, or {fetch} # from the \
             pool's server",
            fetch = mco_rescue("fetch")
        )
    })
}

/// Returns the config of the automatic choice.
fn take_choice(choice: Choice<'_>) -> Result<Chosen, SourceError> {
    let config = match choice.pick {
        Pick::Record(config) => config.clone(),
        Pick::Cache(entry) => entry.config()?,
    };
    Ok(Chosen {
        config,
        why: choice.why,
        others: choice.others,
        signed: None,
    })
}

/// Returns the complete config of the same name, from the first boot's file or from the cache.
fn complete_config(
    given: Chosen,
    records: &Records,
    cache: &[Cached],
) -> Result<Chosen, SourceError> {
    let kept = match &records.mcs_content {
        Recorded::Present(full) if full.name == given.config.name && !full.emptied => {
            Some((**full).clone())
        }
        _ => of_cache(&given.config.name, cache)?,
    };
    match kept {
        Some(config) => Ok(Chosen {
            config,
            why: "the full config of the given encapsulated one".to_owned(),
            others: Vec::new(),
            signed: None,
        }),
        None => Err(SourceError::Encapsulated(given.config.origin)),
    }
}

/// Returns the cached config with exactly this name.
fn of_cache(name: &str, cache: &[Cached]) -> Result<Option<MachineConfig>, SourceError> {
    let entry = cache::whole_entries(cache).find(|entry| entry.name == name);
    Ok(entry.map(CacheEntry::config).transpose()?)
}

fn read_cached(argument: &str, cache: &[Cached]) -> Result<Chosen, SourceError> {
    Ok(Chosen {
        config: find_named(argument, cache)?.config()?,
        why: "named on the command line".to_owned(),
        others: Vec::new(),
        signed: None,
    })
}

/// Returns the last fetched config of the node's pool whose contents match its name.
fn latest_config(kept: &KnownSources<'_>) -> Result<Chosen, SourceError> {
    let newest = choice::find_newest(kept, |entry| entry.name_matches == Some(true));
    let newest = newest.map_err(|pools| {
        if pools.is_empty() {
            SourceError::NoLatest(kept.node.pool().unwrap_or("any pool").to_owned())
        } else {
            SourceError::SeveralPools(pools.join(", "))
        }
    })?;
    let pool = newest.pool.as_deref().unwrap_or_default();
    let why = match kept.node.membership_of(pool) {
        Membership::Member => "the last fetched config of the node's pool, as requested",
        _ => "the last fetched config, as requested; the node's pool is unknown here",
    };
    Ok(Chosen {
        config: newest.config()?,
        why: why.to_owned(),
        others: find_rivals(newest, kept.cache),
        signed: None,
    })
}

/// Returns the cached config with this name, or the only one whose name begins with it.
pub fn find_named<'a>(name: &str, cache: &'a [Cached]) -> Result<&'a CacheEntry, SourceError> {
    let name = name.strip_prefix(CACHED).unwrap_or(name);
    let list = |entries: &[&CacheEntry]| -> String {
        let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
        names.join(", ")
    };
    let all: Vec<&CacheEntry> = cache::whole_entries(cache).collect();
    if let Some(exact) = all.iter().find(|entry| entry.name == name) {
        return Ok(exact);
    }
    let fitting: Vec<&CacheEntry> = all
        .iter()
        .copied()
        .filter(|entry| entry.name.starts_with(name))
        .collect();
    match fitting.as_slice() {
        [only] => Ok(only),
        [] if all.is_empty() => Err(SourceError::NotCached(
            name.to_owned(),
            format!("nothing ({} fills it)", mco_rescue("fetch")),
        )),
        [] => Err(SourceError::NotCached(name.to_owned(), list(&all))),
        several => Err(SourceError::Ambiguous(name.to_owned(), list(several))),
    }
}

fn parse_config(read: ReadConfig, origin: &str) -> Result<Chosen, SourceError> {
    Ok(Chosen {
        signed: read.signed,
        ..as_given(document::parse_document(read.bytes, origin)?)
    })
}

fn as_given(config: MachineConfig) -> Chosen {
    Chosen {
        config,
        why: "given on the command line".to_owned(),
        others: Vec::new(),
        signed: None,
    }
}

/// Returns the recorded config if the given document is identical, in which case parsing would give the same result.
fn recorded_as(path: &str, records: &Records) -> Result<Option<MachineConfig>, SourceError> {
    let Some(config) = records.recorded_config() else {
        return Ok(None);
    };
    let file = open_file(Path::new(path))?;
    // A pipe can only be read once.
    let is_file = file.metadata().is_ok_and(|found| found.is_file());
    // The caller reports a read error when it reads the whole file.
    let same = is_file && config.is_text_of(file).unwrap_or(false);
    Ok(same.then(|| MachineConfig {
        origin: path.to_owned(),
        ..config.clone()
    }))
}

/// Reads a document: a file named by the user, or `-` for standard input.
pub fn read_named(name: &str) -> Result<Vec<u8>, SourceError> {
    match name {
        "-" => read_document(std::io::stdin(), 0, "standard input"),
        path => read_file(Path::new(path)),
    }
}

/// A document, and who signed it.
#[derive(Debug)]
pub struct ReadConfig {
    /// Its bytes, which are those that were compared with the capsule.
    pub bytes: Vec<u8>,
    /// Who signed it; `None` if it was read without a capsule.
    pub signed: Option<CapsuleFacts>,
}

/// Reads a config: a file named by the user, or `-` for standard input. Where there is a capsule, or the node demands one, it is
/// read through that.
///
/// # Errors
/// It cannot be read, or must not be.
pub fn read_config(
    root: &Root,
    name: &str,
    options: &CapsuleOptions<'_>,
) -> Result<ReadConfig, SourceError> {
    let input = match (name, options.origin) {
        (_, ConfigOrigin::Trusted) => {
            let bytes = read_named(name)?;
            return Ok(ReadConfig {
                bytes,
                signed: None,
            });
        }
        ("-", _) => CapsuleInput::Stdin,
        (_, ConfigOrigin::FirstBoot) => CapsuleInput::FirstBoot,
        (_, ConfigOrigin::Named) => CapsuleInput::Media,
    };
    let path = Path::new(name);
    let near = (name != "-").then_some(path);
    let Some(capsule) = open_capsule(root, options, input, near)? else {
        let bytes = read_named(name)?;
        return Ok(ReadConfig {
            bytes,
            signed: None,
        });
    };
    let bytes = match near {
        Some(path) => capsule.read_file(path).map_err(GateError::from)?,
        None => {
            let bytes = read_named(name)?;
            if !capsule.lists_contents(&bytes) {
                return Err(GateError::from(CapsuleError::NotListed(name.to_owned())).into());
            }
            bytes
        }
    };
    Ok(ReadConfig {
        bytes,
        signed: Some(capsule.facts),
    })
}

/// Returns true if a file of this name may contain a config.
pub fn is_document(name: &str) -> bool {
    let extension = Path::new(name)
        .extension()
        .and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| DOCUMENTS.contains(&extension))
}

/// Returns the files that may contain a config in a directory named by the user, sorted by name, without subdirectories.
pub fn documents_in(directory: &str) -> Result<Vec<String>, SourceError> {
    let error = |e: std::io::Error| SourceError::Read(directory.to_owned(), e.into());
    let mut all = Vec::new();
    for path in caller::list_paths(directory).map_err(error)? {
        let name = path.display().to_string();
        let is_list = path.file_name().is_some_and(|name| name == CAPSULE);
        if is_document(&name) && !is_list && caller::is_file(&path) {
            all.push(name);
        }
    }
    all.sort();
    Ok(all)
}

fn read_file(path: &Path) -> Result<Vec<u8>, SourceError> {
    let file = open_file(path)?;
    let size = file.metadata().map_or(0, |found| found.len());
    read_document(file, size, &path.display().to_string())
}

fn open_file(path: &Path) -> Result<File, SourceError> {
    caller::open_file(path).map_err(|e| SourceError::Read(path.display().to_string(), e.into()))
}

/// Reads a document of about `size` bytes; 0 if the size is unknown.
fn read_document(reader: impl Read, size: u64, name: &str) -> Result<Vec<u8>, SourceError> {
    let _phase = progress::begin_phase(Work::new(format!("Reading {name}")));
    let mut reader = progress::Counted(reader);
    // The capacity is for everything at once: a growing vector would temporarily need twice that. It is only a reservation.
    let room = usize::try_from(size.min(document::MAX_JSON)).unwrap_or_default();
    let mut bytes = Vec::with_capacity(room.saturating_add(1));
    let mut up_to = |limit: u64| {
        let left = (limit + 1).saturating_sub(bytes.len() as u64);
        let result = reader.by_ref().take(left).read_to_end(&mut bytes);
        result.map_err(|e| match e.kind() {
            std::io::ErrorKind::IsADirectory => SourceError::Directory(name.to_owned()),
            _ => SourceError::Read(name.to_owned(), e.into()),
        })?;
        let whole = bytes.len() as u64 <= limit;
        Ok::<_, SourceError>((whole, bytes.trim_ascii_start().starts_with(b"{")))
    };
    let whole = match up_to(MAX_YAML)? {
        (false, true) => up_to(document::MAX_JSON)?.0,
        (whole, _) => whole,
    };
    whole
        .then_some(bytes)
        .ok_or_else(|| SourceError::TooLarge(name.to_owned()))
}

impl Chosen {
    /// Returns what was taken from a capsule, if it was read through one.
    pub fn taken(&self) -> Option<TakenFromCapsule> {
        Some(TakenFromCapsule {
            what: self.config.name.clone(),
            digest: Some(self.config.digest.clone()),
            signed: self.signed.clone()?,
        })
    }
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin = if self.config.origin == format!("/{}", paths::CURRENT_CONFIG) {
            "currentconfig"
        } else {
            &self.config.origin
        };
        write!(f, "{} ({origin}; {})", self.config.name, self.why)
    }
}

/// Returns the command of this run with a file; where that takes none, `verify` with one.
fn with_file() -> String {
    match command_name() {
        "plan" | "apply" => format!("{} FILE", whole_command()),
        "change" => format!("{} --from FILE", whole_command()),
        _ => mco_rescue("verify FILE"),
    }
}
