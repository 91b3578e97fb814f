//! A MachineConfig as a value: the result of parsing a document.
//!
//! The text of the object is kept as received: it becomes the daemon's record, and re-serialising it would make every file look
//! changed.

use std::io::{self, Read};
use std::sync::Arc;

use super::finding::Finding;
use super::ignition::{File, Ignition};
use super::layer::ConfigLayer;
use super::text::Text;
use super::written::Written;
use crate::base::paths;

/// `kernelType` in the daemon's canonical form; unknown values are refused earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KernelType {
    /// The kernel of the image.
    #[default]
    Default,
    /// `realtime`.
    Realtime,
    /// `64k-pages`.
    Pages64k,
}

impl KernelType {
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text {
            "" | "default" => Some(Self::Default),
            "realtime" => Some(Self::Realtime),
            "64k-pages" => Some(Self::Pages64k),
            _ => None,
        }
    }

    /// Returns the value as written in documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Realtime => "realtime",
            Self::Pages64k => "64k-pages",
        }
    }
}

/// The origin of a MachineConfig according to its metadata.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Provenance {
    /// The label that makes it part of a pool's rendered config.
    pub role: Option<String>,
    /// The kinds of its owners; an owner may leave its kind out.
    pub owners: Vec<Option<String>>,
    /// It has the annotation of the controller that creates rendered configs and some of their parts.
    pub generated: bool,
    /// The release of the controller that rendered it, such as `4.21.3`.
    pub release: Option<String>,
}

/// A MachineConfig that passed every check.
#[derive(Debug, Clone)]
pub struct MachineConfig {
    /// `metadata.name`.
    pub name: String,
    /// The pool, from the controlling owner reference.
    pub pool: Option<String>,
    /// Its origin, according to its metadata.
    pub provenance: Provenance,
    /// `spec.osImageURL`.
    pub os_image_url: String,
    /// `spec.baseOSExtensionsContainerImage`.
    pub extensions_image: String,
    /// `spec.kernelArguments`, entries as written.
    pub kernel_arguments: Vec<String>,
    /// `spec.extensions`.
    pub extensions: Vec<String>,
    /// `spec.fips`.
    pub fips: bool,
    /// `spec.kernelType`.
    pub kernel_type: KernelType,
    /// `spec.config`; empty if it is `null` or missing.
    pub ignition: Arc<Ignition>,
    /// The object as JSON, as received; becomes `currentconfig`.
    pub record: Text,
    /// Lower-case hex SHA-256 of `record`.
    pub digest: String,
    /// The source of the document, for messages.
    pub origin: String,
    /// Warnings for the user.
    pub warnings: Vec<Finding>,
    /// Set if the Ignition part was in spec 2, which the daemon validates by different rules and in its written form.
    pub spec2: Option<Written>,
    /// A bare Ignition config: it has no name and no record, and the daemon does not know about it.
    pub bare: bool,
    /// The Ignition part has nothing but a version, as in the encapsulated object of a first boot.
    pub emptied: bool,
    /// Files that the Machine Config Server adds for the first boot; never part of the config itself.
    pub additions: Vec<File>,
    /// Set for a bare Ignition config with references, which have to be fetched and merged first.
    pub layer: Option<ConfigLayer>,
}

impl MachineConfig {
    /// Returns true if this config contains a file, unit file or drop-in with this path.
    pub fn contains_file(&self, path: &str) -> bool {
        let mut files = self.ignition.storage.files.iter();
        let unit_at = path
            .strip_prefix('/')
            .and_then(|path| path.strip_prefix(paths::UNITS)?.strip_prefix('/'));
        let is_unit = |at: &str| {
            let mut units = self.ignition.systemd.units.iter();
            units.any(|unit| match at.split_once(".d/") {
                Some((name, dropin)) => {
                    *unit.name == *name && unit.dropins.iter().any(|one| *one.name == *dropin)
                }
                None => *unit.name == *at && unit.contents.is_some(),
            })
        };
        files.any(|file| file.path == path) || unit_at.is_some_and(is_unit)
    }

    /// Returns true if this config contains a file below a directory.
    pub fn brings_below(&self, directory: &str) -> bool {
        let files = self.ignition.storage.files.iter();
        let mut below = files.filter_map(|file| file.path.strip_prefix(directory));
        below.any(|rest| rest.starts_with('/'))
    }

    /// Returns true if a document is byte for byte the text of this config, apart from trailing blanks; it then need not be
    /// read into memory.
    ///
    /// # Errors
    /// The reader's error.
    pub fn is_text_of(&self, mut document: impl Read) -> io::Result<bool> {
        let mut left = self.record.as_bytes();
        let mut piece = vec![0; 64 << 10];
        if left.is_empty() {
            return Ok(false);
        }
        loop {
            let n = match document.read(&mut piece) {
                Ok(0) => return Ok(left.is_empty()),
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            let piece = piece.get(..n).unwrap_or_default();
            let (same, blank) = piece.split_at(n.min(left.len()));
            let Some(rest) = left.strip_prefix(same) else {
                return Ok(false);
            };
            if !blank.trim_ascii().is_empty() {
                return Ok(false);
            }
            left = rest;
        }
    }

    /// Returns the path in the document as written; a conversion may have moved it.
    pub fn original_place(&self, path: String) -> String {
        match &self.spec2 {
            Some(written) => written.original_path(&path),
            None => path,
        }
    }
}
