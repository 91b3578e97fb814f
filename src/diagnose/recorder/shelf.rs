//! Reads the recorder's files: on the node, or below `/boot`, where a rescue system finds them without the node's root.

use serde::Serialize;

use super::digest::DigestKey;
use super::format::{self, FormatError, KEY, KNOWN};
use super::known::KnownFiles;
use super::{Snapshot, SnapshotRecord};
use crate::base::order::StableOrder;
use crate::base::paths;
use crate::base::reason::Reason;
use crate::host::root::{Root, RootError, RootPath};

/// Largest record that is read.
const MAX_RECORD: u64 = 64 << 10;
/// Maximum size of a part that is read, in bytes.
const MAX_PART: u64 = 1 << 20;
/// Maximum size of a file of known digests, in bytes.
const MAX_KNOWN: u64 = 16 << 20;

/// A file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Damaged {
    /// Its path.
    pub path: String,
    /// The reason.
    pub why: String,
}

/// A directory with snapshots.
#[derive(Debug)]
pub struct Shelf {
    /// Path of the directory, for messages.
    pub place: String,
    /// The records, by their numbers.
    pub records: Vec<SnapshotRecord>,
    /// Records that cannot be used.
    pub damaged: Vec<Damaged>,
    directory: Root,
    /// Names of all files.
    files: Vec<String>,
}

/// The places of snapshots below a root: that of a node, its copy on `/boot`, and the same if `/boot` is mounted on its own.
const PLACES: [&str; 3] = [paths::RECORDER, paths::BOOT_RECORDER, "mco-rescue"];

impl Shelf {
    /// Finds the snapshots of a root; `None` if there are none. The first place with a snapshot counts.
    ///
    /// # Errors
    /// A directory cannot be read.
    pub fn find(root: &Root) -> Result<Option<Self>, RootError> {
        let mut found = None;
        for place in PLACES {
            let Some(shelf) = Self::open_at(root, &RootPath::fixed(place))? else {
                continue;
            };
            if !shelf.records.is_empty() {
                return Ok(Some(shelf));
            }
            found = found.or(Some(shelf).filter(|shelf| !shelf.damaged.is_empty()));
        }
        Ok(found)
    }

    /// Opens a directory of a root; `None` if it is missing.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn open_at(root: &Root, path: &RootPath) -> Result<Option<Self>, RootError> {
        if root.plain_directory(path)?.is_none() {
            return Ok(None);
        }
        Self::open(root.open_within(path)?, path.to_string()).map(Some)
    }

    /// Opens a directory that holds snapshots.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn open(directory: Root, place: String) -> Result<Self, RootError> {
        let files = directory.list_top()?;
        let mut shelf = Self {
            place,
            records: Vec::new(),
            damaged: Vec::new(),
            directory,
            files,
        };
        for file in &shelf.files {
            let Some(number) = format::record_of_file(file) else {
                continue;
            };
            let read = shelf.read_file(file, MAX_RECORD);
            let parsed = read.and_then(|bytes| {
                let record = format::parse_record(&bytes).map_err(Reason::from_error)?;
                if record.number == number {
                    Ok(record)
                } else {
                    Err(Reason::from_error(FormatError::Damaged))
                }
            });
            match parsed {
                Ok(record) => shelf.records.push(record),
                Err(why) => shelf.damaged.push(shelf.damaged_file(file, why)),
            }
        }
        shelf.records.order_by_key(|record| record.number);
        Ok(shelf)
    }

    /// Reads the parts of a snapshot. Also returns the parts that cannot be used; the facts of the others are complete.
    pub fn read_snapshot(&self, record: &SnapshotRecord) -> (Snapshot, Vec<Damaged>) {
        let (mut snapshot, mut damaged) = (Snapshot::default(), Vec::new());
        for name in record.parts.values() {
            let file = format::part_file(name);
            let unpacked = self.read_file(&file, MAX_PART).and_then(|bytes| {
                format::unpack_part(name, &bytes, &mut snapshot).map_err(Reason::from_error)
            });
            if let Err(why) = unpacked {
                damaged.push(self.damaged_file(&file, why));
            }
        }
        (snapshot, damaged)
    }

    /// Returns the newest record of a boot that finished.
    pub fn last_good(&self) -> Option<&SnapshotRecord> {
        self.records.iter().rfind(|record| record.is_good_boot())
    }

    /// Returns the key of the digests; `None` if it is missing or damaged.
    ///
    /// # Errors
    /// The reason why it cannot be read: it may still be whole.
    pub fn read_key(&self) -> Result<Option<DigestKey>, Reason> {
        let path = RootPath::fixed(KEY);
        let read = self.directory.read_file(&path);
        let place = self.place.trim_end_matches('/');
        let bytes = read.map_err(|error| format!("{place}/{KEY}: {}", error.cause))?;
        Ok(bytes.and_then(|bytes| DigestKey::parse(&bytes)))
    }

    /// Returns true if a key file exists, valid or not.
    pub fn has_key_file(&self) -> bool {
        self.files.iter().any(|file| file == KEY)
    }

    /// Returns the known digests.
    pub fn read_known(&self, key: &DigestKey) -> KnownFiles {
        let bytes = self.read_file(KNOWN, MAX_KNOWN).unwrap_or_default();
        KnownFiles::parse(&bytes, &key.id())
    }

    /// Returns the names of all files.
    pub fn files(&self) -> &[String] {
        &self.files
    }

    /// Returns the size of a part; `None` if it is missing. Its contents are not read.
    pub fn part_size(&self, name: &str) -> Option<usize> {
        let file = format::part_file(name);
        self.files.binary_search(&file).ok()?;
        let path = RootPath::parse(&format!("/{file}")).ok()?;
        let stat = self.directory.open_place(&path).ok()??.stat().ok()??;
        usize::try_from(stat.st_size).ok()
    }

    /// Returns the stored bytes of a part.
    ///
    /// # Errors
    /// The part cannot be read.
    pub fn part_bytes(&self, name: &str) -> Result<Vec<u8>, Reason> {
        self.read_file(&format::part_file(name), MAX_PART)
    }

    fn read_file(&self, file: &str, limit: u64) -> Result<Vec<u8>, Reason> {
        let path = RootPath::parse(&format!("/{file}")).map_err(Reason::from_error)?;
        let place = self.directory.open_place(&path);
        let place = place.map_err(|error| error.cause.to_string())?;
        let stat = place.and_then(|place| place.stat().ok().flatten());
        // A link could lead anywhere, and reading a pipe never ends.
        if stat.is_some_and(|stat| stat.st_mode & libc::S_IFMT != libc::S_IFREG) {
            return Err("it is not a file".into());
        }
        match self.directory.read_within(&path, limit) {
            Ok(Some(bytes)) => Ok(bytes),
            Ok(None) => Err("it is missing".into()),
            Err(error) => Err(Reason::from_error(error.cause)),
        }
    }

    fn damaged_file(&self, file: &str, why: Reason) -> Damaged {
        Damaged {
            path: format!("{}/{file}", self.place.trim_end_matches('/')),
            why: why.to_string(),
        }
    }
}
