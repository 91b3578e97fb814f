//! Where a config comes from, and why that one: an explicit argument wins, else the recorded one.

mod http;
mod references;

use std::fmt;
use std::io::Read;
use std::path::Path;

use crate::document::{self, DocumentError, MachineConfig};
use crate::error::Reason;
use crate::node::{Baseline, Recorded, Records};
use crate::paths;

/// A document may not be larger than this (64 MiB): the operator refuses rendered configs above 1.5 MiB.
const MAX_DOCUMENT: u64 = 64 << 20;

/// A config and why it was chosen.
#[derive(Debug, Clone)]
pub struct Chosen {
    /// The config.
    pub config: MachineConfig,
    /// The reason, for people.
    pub why: &'static str,
}

/// Why there is no config.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// It cannot be read.
    #[error("reading {0}: {1}")]
    Read(String, Reason),
    /// It is too large to be a MachineConfig.
    #[error("reading {0}: more than 64 MiB, which is no MachineConfig")]
    TooLarge(String),
    /// URLs are for another command.
    #[error("{0} is a URL; fetch it first (`curl -o config.json URL`) and give the file")]
    Url(String),
    /// None was given and the node has none to offer.
    #[error(
        "no config was given, and {0}. Give a file: `mco-rescue plan rendered-worker-NAME.yaml`"
    )]
    NoneRecorded(String),
    /// The first-boot object without its Ignition part; applying it would remove everything.
    #[error(
        "{0} is the encapsulated config of a first boot: its Ignition part is empty. Give the full one, such as \
         /{path} of a node with the same config",
        path = paths::MCS_CONTENT
    )]
    Encapsulated(String),
    /// Something that it refers to could not be had.
    #[error("{place}: {problem}")]
    Reference {
        /// The JSON path and the document.
        place: String,
        /// What went wrong and what to do.
        problem: String,
    },
    /// It was read and refused.
    #[error(transparent)]
    Document(#[from] DocumentError),
}

pub use http::Http;
pub use references::{Fetch, Network, Wanted};

/// Reads the config named on the command line, or the one the node is recorded to be in. What a bare
/// Ignition config refers to is fetched.
pub fn choose(
    argument: Option<&str>,
    records: &Records,
    fetch: &mut dyn Fetch,
) -> Result<Chosen, SourceError> {
    let mut given = match argument {
        Some("-") => parse(&read_named("-")?, "standard input")?,
        Some(url) if url.starts_with("http://") || url.starts_with("https://") => {
            return Err(SourceError::Url(url.to_owned()));
        }
        Some(path) => parse(&read_named(path)?, path)?,
        None => return recorded(records),
    };
    given.config = references::complete(given.config, fetch)?;
    if given.config.emptied {
        whole(given, records)
    } else {
        Ok(given)
    }
}

/// The full config of the same name, which the node keeps beside the encapsulated one.
fn whole(given: Chosen, records: &Records) -> Result<Chosen, SourceError> {
    match &records.mcs_content {
        Recorded::Present(full) if full.name == given.config.name && !full.emptied => Ok(Chosen {
            config: (**full).clone(),
            why: "the full config of the encapsulated one that was given",
        }),
        _ => Err(SourceError::Encapsulated(given.config.origin)),
    }
}

fn parse(bytes: &[u8], origin: &str) -> Result<Chosen, SourceError> {
    Ok(Chosen {
        config: document::parse(bytes, origin)?,
        why: "given on the command line",
    })
}

/// The bytes of a document: a file of the caller, or `-` for standard input.
pub fn read_named(name: &str) -> Result<Vec<u8>, SourceError> {
    match name {
        "-" => read(std::io::stdin(), "standard input"),
        path => read_file(Path::new(path)),
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "a path of the caller, not of the node's root"
)]
fn read_file(path: &Path) -> Result<Vec<u8>, SourceError> {
    let name = path.display().to_string();
    let file = std::fs::File::open(path).map_err(|e| SourceError::Read(name.clone(), e.into()))?;
    read(file, &name)
}

fn read(reader: impl Read, name: &str) -> Result<Vec<u8>, SourceError> {
    let mut bytes = Vec::new();
    let result = reader.take(MAX_DOCUMENT + 1).read_to_end(&mut bytes);
    result.map_err(|e| SourceError::Read(name.to_owned(), e.into()))?;
    if bytes.len() as u64 > MAX_DOCUMENT {
        Err(SourceError::TooLarge(name.to_owned()))
    } else {
        Ok(bytes)
    }
}

fn recorded(records: &Records) -> Result<Chosen, SourceError> {
    if let Recorded::Broken(problem) = &records.current_config {
        return Err(SourceError::NoneRecorded(format!(
            "the recorded one cannot be used: {problem}"
        )));
    }
    match records.baseline() {
        Baseline::Known(config) => Ok(Chosen {
            config: config.clone(),
            why: "the config that the node is recorded to be in",
        }),
        Baseline::Unknown(why) => Err(SourceError::NoneRecorded(why.to_owned())),
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
