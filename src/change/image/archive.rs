//! Reads an export that is a tar: a file, or a stream that can be read once.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};

use super::export::{
    BOUNDARY, CONFIG, DESCRIPTION, EMPTY, ImageDescription, LISTING, SCHEMA, exported_path,
};
use super::medium::{DirectoryTarget, ExportFile, ExportTarget};
use crate::base::reason::Reason;
use crate::host::root::{sha256_hex, to_hex};
use crate::node::images::object_store::{MAX_METADATA, MetadataSource, ObjectId, StoreError};
use crate::node::images::ostree_objects::{Checksum, OstreeObjectKind, parse_checksum};

/// Maximum size of the description, in bytes.
const MAX_DESCRIPTION: u64 = 1 << 20;
/// Maximum size of the listing, in bytes.
const MAX_LISTING: u64 = 256 << 20;
/// Maximum size of all metadata objects, in bytes.
const MAX_HEAD: u64 = 512 << 20;

/// The reason why an archive cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveReadError {
    /// It cannot be read, or ends too early.
    #[error("reading the export {path}: {reason}")]
    Read {
        /// Its path.
        path: String,
        /// The system's error.
        reason: Reason,
    },
    /// It is not an export, or one of another version.
    #[error("{path}: {why}; make it with mco-rescue image export")]
    Form {
        /// Its path.
        path: String,
        /// The difference.
        why: String,
    },
}

/// An archive whose head was read. The reader stands at the first object of a file.
pub struct ExportArchive {
    shown: String,
    description: ImageDescription,
    sizes: BTreeMap<String, u64>,
    metadata: BTreeMap<ObjectId, Vec<u8>>,
    rest: Box<dyn Read + Send>,
}

impl std::fmt::Debug for ExportArchive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExportArchive")
            .field("shown", &self.shown)
            .finish_non_exhaustive()
    }
}

impl ExportArchive {
    /// Reads the head of an archive; `None` if its first file is not that of an export.
    ///
    /// # Errors
    /// It cannot be read, or its head is not that of an export.
    pub fn open_archive(
        shown: &str,
        mut reader: Box<dyn Read + Send>,
    ) -> Result<Option<Self>, ArchiveReadError> {
        let form = |why: &str| ArchiveReadError::Form {
            path: shown.to_owned(),
            why: why.to_owned(),
        };
        let failed = |error: io::Error| ArchiveReadError::Read {
            path: shown.to_owned(),
            reason: error.into(),
        };
        let mut archive = tar::Archive::new(&mut reader);
        let mut entries = archive.entries().map_err(failed)?;
        let mut description = None;
        let mut sizes = BTreeMap::new();
        let mut metadata = BTreeMap::new();
        let mut total = 0;
        loop {
            let Some(entry) = entries.next() else {
                return match description {
                    None => Ok(None),
                    Some(_) => Err(form("the export ends before its objects")),
                };
            };
            let mut entry = match entry {
                Ok(entry) => entry,
                // Something else than a tar.
                Err(_) if description.is_none() => return Ok(None),
                Err(error) => return Err(failed(error)),
            };
            let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            let mut read = |limit: u64| -> Result<Vec<u8>, ArchiveReadError> {
                let size = entry.size();
                if size > limit {
                    return Err(form(&format!("{name} is too large")));
                }
                let mut bytes = Vec::new();
                entry.read_to_end(&mut bytes).map_err(failed)?;
                if bytes.len() as u64 == size {
                    Ok(bytes)
                } else {
                    Err(form(&format!("the export ends within {name}")))
                }
            };
            match (&description, name.as_str()) {
                (None, DESCRIPTION) => {
                    let parsed =
                        serde_json::from_slice::<ImageDescription>(&read(MAX_DESCRIPTION)?);
                    let parsed = parsed.map_err(|error| form(&format!("{name}: {error}")))?;
                    if parsed.schema != SCHEMA {
                        return Err(form(&format!(
                            "its schema is {:?} and not {SCHEMA:?}",
                            parsed.schema
                        )));
                    }
                    description = Some(parsed);
                }
                (None, _) => return Ok(None),
                (Some(_), LISTING) => {
                    let listing = read(MAX_LISTING)?;
                    let listing = String::from_utf8_lossy(&listing);
                    sizes =
                        parse_listing(&listing).ok_or_else(|| form("its listing is damaged"))?;
                }
                (Some(_), BOUNDARY) => break,
                (Some(_), _) => {
                    if let Some(id) = parse_exported_path(&name) {
                        let bytes = read(MAX_METADATA)?;
                        total += bytes.len() as u64;
                        if total > MAX_HEAD {
                            return Err(form("its directories are too large"));
                        }
                        if parse_checksum(&sha256_hex(&bytes)) != Some(id.1) {
                            return Err(form(&format!("{name} is damaged")));
                        }
                        metadata.insert(id, bytes);
                    }
                }
            }
        }
        let description = description.ok_or_else(|| form("it has no description"))?;
        Ok(Some(Self {
            shown: shown.to_owned(),
            description,
            sizes,
            metadata,
            rest: reader,
        }))
    }

    /// Returns what the export says of itself. Only what its objects prove is to be relied on.
    pub fn description(&self) -> &ImageDescription {
        &self.description
    }

    /// Returns the size of an object in the export; `None` if the export does not have it.
    pub fn size_of(&self, id: &ObjectId) -> Option<u64> {
        self.sizes.get(&exported_path(id)).copied()
    }

    /// Unpacks the metadata and the given files as a repository without refs. Names of files are not taken from the archive.
    /// Contents are checked when they are pulled from there.
    ///
    /// # Errors
    /// The archive ends too early, or the target cannot be written.
    pub fn unpack_objects(
        self,
        wanted: &BTreeSet<ObjectId>,
        target: &mut DirectoryTarget,
    ) -> Result<(), ArchiveReadError> {
        let shown = self.shown;
        let failed = |error: io::Error| ArchiveReadError::Read {
            path: shown.clone(),
            reason: error.into(),
        };
        put_file(target, "config", CONFIG.as_bytes()).map_err(failed)?;
        for path in EMPTY {
            target.make_directory(path).map_err(failed)?;
        }
        for (id, bytes) in &self.metadata {
            put_file(target, &exported_path(id), bytes).map_err(failed)?;
        }
        let is_file = |id: &&ObjectId| id.0 == OstreeObjectKind::File;
        let mut missing: BTreeSet<ObjectId> = wanted.iter().filter(is_file).copied().collect();
        let mut archive = tar::Archive::new(self.rest);
        if !missing.is_empty() {
            for entry in archive.entries().map_err(failed)? {
                let mut entry = entry.map_err(failed)?;
                let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
                let Some(id) = parse_exported_path(&name) else {
                    continue;
                };
                if missing.remove(&id) {
                    let size = entry.size();
                    let file = ExportFile {
                        path: &exported_path(&id),
                        size,
                        content: &mut entry,
                    };
                    target.put_file(file).map_err(failed)?;
                }
                if missing.is_empty() {
                    break;
                }
            }
        }
        // The sender of a stream is not to end by a closed pipe.
        let mut rest = archive.into_inner();
        io::copy(&mut rest, &mut io::sink()).map_err(failed)?;
        if let Some(id) = missing.first() {
            return Err(ArchiveReadError::Form {
                path: shown,
                why: format!("the export ends before {}", exported_path(id)),
            });
        }
        Ok(())
    }
}

impl MetadataSource for ExportArchive {
    fn read_metadata(&self, id: &ObjectId) -> Result<Vec<u8>, StoreError> {
        let found = self.metadata.get(id).cloned();
        found.ok_or_else(|| self.object_fault(id, "is missing"))
    }

    fn find_layer(&self, name: &str) -> Result<Option<Checksum>, StoreError> {
        let mut layers = self.description.layers.iter();
        let found = layers.find(|layer| layer.name == name);
        Ok(found.and_then(|layer| parse_checksum(&layer.commit)))
    }

    fn shown(&self) -> String {
        self.shown.clone()
    }
}

fn put_file(target: &mut DirectoryTarget, path: &str, bytes: &[u8]) -> io::Result<()> {
    target.put_file(ExportFile {
        path,
        size: bytes.len() as u64,
        content: &mut &bytes[..],
    })
}

fn parse_listing(listing: &str) -> Option<BTreeMap<String, u64>> {
    let lines = listing.lines().map(|line| {
        let (path, size) = line.split_once(' ')?;
        Some((path.to_owned(), size.parse().ok()?))
    });
    lines.collect()
}

/// Parses the path of an object below an export; `None` for any other path.
fn parse_exported_path(path: &str) -> Option<ObjectId> {
    let (name, extension) = path.strip_prefix("objects/")?.split_once('.')?;
    let (first, rest) = name.split_once('/')?;
    let kind = match extension {
        "commit" => OstreeObjectKind::Commit,
        "dirtree" => OstreeObjectKind::DirTree,
        "dirmeta" => OstreeObjectKind::DirMeta,
        "filez" => OstreeObjectKind::File,
        _ => return None,
    };
    let checksum = parse_checksum(&format!("{first}{rest}"))?;
    let id = (kind, checksum);
    // Upper case, or a slash elsewhere, would be another path.
    (exported_path(&id) == path && to_hex(&checksum).starts_with(first)).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_objects_are_taken() {
        let name = "a".repeat(62);
        let path = format!("objects/aa/{name}.filez");
        assert_eq!(
            parse_exported_path(&path).map(|id| exported_path(&id)),
            Some(path)
        );
        for other in [
            format!("objects/../{name}.filez"),
            format!("objects/AA/{name}.filez"),
            format!("objects/aa/{name}.file"),
            format!("objects/aa/../aa/{name}.filez"),
            format!("/objects/aa/{name}.filez"),
            format!("./objects/aa/{name}.filez"),
            format!("objects/aaa/{}.filez", "a".repeat(61)),
            "refs/heads/x".to_owned(),
        ] {
            assert_eq!(parse_exported_path(&other), None, "{other}");
        }
    }
}
