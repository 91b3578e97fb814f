//! Writes an image of a repository as an export.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{self, Cursor, Read};
use std::os::unix::ffi::OsStrExt;

use nix::sys::stat::FileStat;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::medium::{ExportFile, ExportTarget, MediumRoom};
use crate::base::reason::Reason;
use crate::host::progress;
use crate::host::root::{ExtendedAttributes, Place, all_attributes, to_hex};
use crate::node::images::object_store::{
    MetadataSource, ObjectId, ObjectStore, StoreError, StoreMode, StoredImage, list_objects,
};
use crate::node::images::ostree_objects::{FileAttributes, OstreeObjectKind, object_path};

/// The file that says which image an export has.
pub const DESCRIPTION: &str = "mco-rescue-image.json";
/// The file that lists the objects of an export with their sizes, one on each line.
pub const LISTING: &str = "mco-rescue-objects.txt";
/// The empty file between the metadata objects and the objects of files.
pub const BOUNDARY: &str = "mco-rescue-files";
/// Schema of the description.
pub const SCHEMA: &str = "mco-rescue/image-export/v1";
/// Directories without which `ostree` reads no repository.
pub const EMPTY: [&str; 5] = ["refs/heads", "refs/mirrors", "refs/remotes", "state", "tmp"];
/// Configuration of the repository in an export.
pub const CONFIG: &str = "[core]\nrepo_version=1\nmode=archive-z2\n";
/// The most bytes of one stored block of deflate (RFC 1951, 3.2.4).
const BLOCK: usize = 65_535;
/// Unit of a tar, in bytes.
const TAR_BLOCK: u64 = 512;
/// Bytes of a tar that are not of a file.
const TAR_OTHERS: u64 = 64 << 10;
/// Bytes of a directory for the name of an object, on vfat: seven entries for its letters, and one.
const NAME: u64 = 8 * 32;
/// Bytes that are compared at once.
const COMPARED: usize = 256 << 10;
/// The bytes before a block: its kind, its length, and the complement of that.
const BLOCK_HEADER: usize = 5;

/// The description of an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageDescription {
    /// [`SCHEMA`].
    pub schema: String,
    /// Name of the image with its digest.
    pub image: String,
    /// Checksum of its tree, as `ostree show` prints it.
    pub content_checksum: String,
    /// Architecture in Go's names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// Checksum of its merge commit.
    pub commit: String,
    /// Number of objects of the image.
    pub objects: usize,
    /// Number of objects that are not in the export, because the receiver has them.
    pub left_out: usize,
    /// Each layer: the ref and the commit.
    pub layers: Vec<LayerDescription>,
}

/// A layer in a description.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerDescription {
    /// The full ref.
    #[serde(rename = "ref")]
    pub name: String,
    /// Its commit.
    pub commit: String,
}

/// An error of an export.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The repository or the image cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The target has too little room.
    #[error(
        "{missing} more bytes are needed than are free there ({free}); make room, use a larger medium, or use --since to leave out what the receiver has"
    )]
    NoRoom {
        /// Bytes that are missing.
        missing: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// The target's file system has a maximum size of a file.
    #[error("{path} has {size} bytes, and a file there has at most {largest}; {way_out}")]
    LargeFile {
        /// Path of the file.
        path: String,
        /// Its size in bytes.
        size: u64,
        /// The maximum.
        largest: u64,
        /// What to do instead.
        way_out: &'static str,
    },
    /// The target cannot be written, or the object cannot be read.
    #[error("writing {path}: {reason}")]
    Write {
        /// Path below the export.
        path: String,
        /// The system's error.
        reason: Reason,
    },
}

impl ExportError {
    /// Returns the error of a target before anything is written.
    pub fn at_start(error: io::Error) -> Self {
        write_error("the first bytes", error)
    }

    /// Returns the error of the last bytes.
    pub fn at_end(error: io::Error) -> Self {
        write_error("the last bytes", error)
    }
}

/// What an export will write.
#[derive(Debug)]
pub struct Export<'a> {
    store: &'a ObjectStore,
    image: &'a StoredImage,
    /// Objects with their sizes in the export, metadata first.
    objects: Vec<(ObjectId, u64)>,
    left_out: usize,
}

impl<'a> Export<'a> {
    /// Plans the export of an image without the objects that the receiver has.
    ///
    /// # Errors
    /// The repository does not have all other objects of the image.
    pub fn plan_export(
        store: &'a ObjectStore,
        image: &'a StoredImage,
        present: &BTreeSet<ObjectId>,
    ) -> Result<Self, ExportError> {
        let all = list_objects(store, &image.commits())?;
        let mut objects = Vec::new();
        let mut left_out = 0;
        // The kinds are in this order, and files are the last.
        for id in all {
            // The commits of layers prove what the receiver has.
            if id.0 != OstreeObjectKind::Commit && present.contains(&id) {
                left_out += 1;
                continue;
            }
            let size = exported_size(store, &id)?;
            objects.push((id, size));
        }
        Ok(Self {
            store,
            image,
            objects,
            left_out,
        })
    }

    /// Returns the number of objects in the export.
    pub fn count(&self) -> usize {
        self.objects.len()
    }

    /// Returns the number of objects that are left out.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// Returns the size of all objects in the export, in bytes.
    pub fn bytes(&self) -> u64 {
        self.objects.iter().map(|(_, size)| size).sum()
    }

    /// Checks that a directory of this file system can take what is not there yet.
    ///
    /// # Errors
    /// It has too little room, or takes no file as large as one of them.
    pub fn check_directory_room(
        &self,
        target: &dyn ExportTarget,
        room: &MediumRoom,
    ) -> Result<(), ExportError> {
        let mut needed = NeededRoom::new(room.block);
        for (path, text) in self.texts()? {
            if !is_there(target, &path, text.len() as u64, || {
                Ok(Box::new(text.as_bytes()))
            })? {
                needed.add_file(&path, text.len() as u64);
            }
        }
        if !is_earlier(target, "config", CONFIG.len() as u64)? {
            EMPTY.iter().for_each(|path| needed.add_directory(path));
        }
        for (id, size) in &self.objects {
            let path = exported_path(id);
            if !is_earlier(target, &path, *size)? {
                check_file(&path, *size, room, "use a medium with exfat or ext4")?;
                needed.add_file(&path, *size);
            }
        }
        check_free(needed.total(), room)
    }

    /// Checks that this file system can take the export as one file.
    ///
    /// # Errors
    /// It has too little room, or takes no file as large as that.
    pub fn check_archive_room(&self, path: &str, room: &MediumRoom) -> Result<(), ExportError> {
        let padded = |size: u64| TAR_BLOCK + size.div_ceil(TAR_BLOCK) * TAR_BLOCK;
        let texts = self.texts()?.into_iter();
        let small = texts.map(|(_, text)| text.len() as u64);
        let objects = self.objects.iter().map(|(_, size)| *size);
        let files: u64 = small.chain(objects).map(padded).sum();
        // Headers of directories and of long names, and the end of the archive.
        let needed = files + TAR_OTHERS;
        check_file(
            path,
            needed,
            room,
            "name a directory there instead of FILE.tar",
        )?;
        check_free(needed, room)
    }

    /// Returns the paths and contents of the files that are not objects.
    fn texts(&self) -> Result<Vec<(String, String)>, ExportError> {
        let texts = [
            (DESCRIPTION, self.description_text()?),
            (LISTING, self.listing()),
            ("config", CONFIG.to_owned()),
            (BOUNDARY, String::new()),
        ];
        let texts = texts.map(|(path, text)| (path.to_owned(), text));
        Ok(texts.into_iter().chain(self.refs()).collect())
    }

    /// Returns path and content of the refs: that of the image is the last.
    fn refs(&self) -> Vec<(String, String)> {
        let layers = self.image.layers.iter();
        let image = (self.image.image_ref(), self.image.commit);
        layers
            .map(|(name, commit)| (name.clone(), *commit))
            .chain([image])
            .map(|(name, commit)| (format!("refs/heads/{name}"), to_hex(&commit) + "\n"))
            .collect()
    }

    /// Writes the export. The refs come last, so an interrupted export has no image.
    ///
    /// # Errors
    /// The target cannot be written, or an object is damaged.
    pub fn write_to(&self, target: &mut dyn ExportTarget) -> Result<(), ExportError> {
        put_text(target, DESCRIPTION, &self.description_text()?)?;
        put_text(target, LISTING, &self.listing())?;
        put_text(target, "config", CONFIG)?;
        for path in EMPTY {
            let made = target.make_directory(path);
            made.map_err(|error| write_error(path, error))?;
        }
        let mut in_files = false;
        for (id, size) in &self.objects {
            if !in_files && id.0 == OstreeObjectKind::File {
                put_text(target, BOUNDARY, "")?;
                in_files = true;
            }
            self.put_object(target, id, *size)?;
        }
        if !in_files {
            put_text(target, BOUNDARY, "")?;
        }
        target.flush().map_err(ExportError::at_end)?;
        for (path, commit) in self.refs() {
            put_text(target, &path, &commit)?;
        }
        target.finish_export().map_err(ExportError::at_end)
    }

    fn description_text(&self) -> Result<String, ExportError> {
        let text = serde_json::to_string_pretty(&self.description());
        let text = text.map_err(|error| write_error(DESCRIPTION, io::Error::other(error)))?;
        Ok(text + "\n")
    }

    fn description(&self) -> ImageDescription {
        let layers = self.image.layers.iter();
        ImageDescription {
            schema: SCHEMA.to_owned(),
            image: self.image.name.clone(),
            content_checksum: self.image.content.clone(),
            architecture: self.image.architecture.clone(),
            commit: to_hex(&self.image.commit),
            objects: self.objects.len() + self.left_out,
            left_out: self.left_out,
            layers: layers
                .map(|(name, commit)| LayerDescription {
                    name: name.clone(),
                    commit: to_hex(commit),
                })
                .collect(),
        }
    }

    fn listing(&self) -> String {
        let mut text = String::new();
        for (id, size) in &self.objects {
            text.push_str(&format!("{} {size}\n", exported_path(id)));
        }
        text
    }

    fn put_object(
        &self,
        target: &mut dyn ExportTarget,
        id: &ObjectId,
        size: u64,
    ) -> Result<(), ExportError> {
        let path = exported_path(id);
        // A medium that was pulled out or lost power has files of the right size with other contents.
        if is_there(target, &path, size, || self.open_content(id))? {
            progress::advance_by(size);
            return Ok(());
        }
        let mut content = progress::Counted(self.open_content(id)?);
        put_content(target, &path, size, &mut content)
    }

    /// Returns an object as it is in an export.
    fn open_content(&self, id: &ObjectId) -> Result<Box<dyn Read + '_>, ExportError> {
        Ok(match (id.0, self.store.mode()) {
            (OstreeObjectKind::File, StoreMode::Bare) => self.archived_file(id)?,
            (OstreeObjectKind::File, StoreMode::Archive) => {
                let file = self.store.place_of(id)?.open_file();
                Box::new(file.map_err(|errno| self.store.error_at(id, errno))?)
            }
            _ => Box::new(Cursor::new(self.store.read_metadata(id)?)),
        })
    }

    /// Returns a file or link of a `bare` repository in the form of an archive.
    fn archived_file(&self, id: &ObjectId) -> Result<Box<dyn Read>, ExportError> {
        let file = BareFile::read_object(self.store, id)?;
        let attributes = file.attributes();
        let mut hash = Sha256::new();
        hash.update(attributes.hashed_header());
        if file.target.is_some() {
            return if hash.finalize().as_slice() == id.1 {
                Ok(Box::new(Cursor::new(attributes.archive_header(0))))
            } else {
                Err(self.store.object_fault(id, "is damaged").into())
            };
        }
        let left = file.size();
        let opened = file.place.open_file();
        let stored = StoredBlocks {
            file: opened.map_err(|errno| self.store.error_at(id, errno))?,
            left,
            block: Vec::new(),
            next: 0,
            is_done: false,
            hash,
            expected: id.1,
        };
        let header = Cursor::new(attributes.archive_header(left));
        Ok(Box::new(header.chain(stored)))
    }
}

/// The room that new files take in a directory, with the directories above them.
struct NeededRoom {
    block: u64,
    bytes: u64,
    /// Directories below the export, with the number of new names in each.
    directories: BTreeMap<String, u64>,
}

impl NeededRoom {
    fn new(block: u64) -> Self {
        Self {
            block,
            bytes: 0,
            directories: BTreeMap::new(),
        }
    }

    fn add_bytes(&mut self, size: u64) {
        self.bytes += size.div_ceil(self.block) * self.block;
    }

    fn add_file(&mut self, path: &str, size: u64) {
        self.add_bytes(size);
        self.add_name(path);
    }

    fn add_directory(&mut self, path: &str) {
        self.directories.entry(path.to_owned()).or_default();
        self.add_name(path);
    }

    /// Adds a name to its directory, and the names of directories that are met for the first time.
    fn add_name(&mut self, path: &str) {
        let mut path = path;
        loop {
            let above = path.rsplit_once('/').map_or("", |(above, _)| above);
            let is_new = !self.directories.contains_key(above);
            *self.directories.entry(above.to_owned()).or_default() += 1;
            if !is_new || above.is_empty() {
                return;
            }
            path = above;
        }
    }

    fn total(&self) -> u64 {
        let names = self.directories.values();
        let blocks = names.map(|names| (names * NAME).div_ceil(self.block).max(1));
        self.bytes + blocks.sum::<u64>() * self.block
    }
}

/// Returns the path of an object below an export.
pub fn exported_path((kind, checksum): &ObjectId) -> String {
    let extension = match kind {
        OstreeObjectKind::File => StoreMode::Archive.file_extension(),
        kind => kind.extension(),
    };
    object_path(checksum, extension)
}

/// Returns the size of an object in an export.
fn exported_size(store: &ObjectStore, id: &ObjectId) -> Result<u64, ExportError> {
    if id.0 != OstreeObjectKind::File || store.mode() == StoreMode::Archive {
        let stat = store.stat_object(id)?;
        let stat = stat.ok_or_else(|| store.object_fault(id, "is missing"))?;
        return Ok(size_of(stat.st_size));
    }
    let file = BareFile::read_object(store, id)?;
    let header = file.attributes().archive_header(0).len() as u64;
    Ok(match file.target {
        Some(_) => header,
        None => {
            let blocks = file.size().div_ceil(BLOCK as u64).max(1);
            header + file.size() + blocks * BLOCK_HEADER as u64
        }
    })
}

/// A file or link of a `bare` repository, without its content.
struct BareFile {
    place: Place,
    stat: FileStat,
    /// Target, if it is a link.
    target: Option<OsString>,
    extended: ExtendedAttributes,
}

impl BareFile {
    fn read_object(store: &ObjectStore, id: &ObjectId) -> Result<Self, StoreError> {
        let failed = |errno| store.error_at(id, errno);
        let place = store.place_of(id)?;
        let stat = place.stat().map_err(failed)?;
        let stat = stat.ok_or_else(|| store.object_fault(id, "is missing"))?;
        let target = if stat.st_mode & libc::S_IFMT == libc::S_IFLNK {
            Some(place.read_target().map_err(failed)?)
        } else {
            None
        };
        Ok(Self {
            extended: all_attributes(&place).map_err(failed)?,
            place,
            stat,
            target,
        })
    }

    fn size(&self) -> u64 {
        size_of(self.stat.st_size)
    }

    fn attributes(&self) -> FileAttributes<'_> {
        FileAttributes {
            uid: self.stat.st_uid,
            gid: self.stat.st_gid,
            mode: self.stat.st_mode,
            target: self.target.as_ref().map_or(&[], |target| target.as_bytes()),
            extended: &self.extended,
        }
    }
}

/// Returns true if an earlier export left a file of this size.
fn is_earlier(target: &dyn ExportTarget, path: &str, size: u64) -> Result<bool, ExportError> {
    let earlier = target.find_earlier(path, size);
    let earlier = earlier.map_err(|error| write_error(path, error))?;
    Ok(earlier.is_some())
}

/// Returns true if an earlier export left a file with this content.
fn is_there<'a>(
    target: &dyn ExportTarget,
    path: &str,
    size: u64,
    open: impl FnOnce() -> Result<Box<dyn Read + 'a>, ExportError>,
) -> Result<bool, ExportError> {
    let failed = |error: io::Error| write_error(path, error);
    match target.find_earlier(path, size).map_err(failed)? {
        Some(earlier) => is_same(earlier, &mut open()?).map_err(failed),
        None => Ok(false),
    }
}

/// Returns true if a file of the same size has this content. One that cannot be read has not.
fn is_same(mut file: std::fs::File, content: &mut dyn Read) -> io::Result<bool> {
    let (mut expected, mut found) = (vec![0; COMPARED], vec![0; COMPARED]);
    loop {
        let read = content.read(&mut expected)?;
        let (Some(expected), Some(found)) = (expected.get(..read), found.get_mut(..read)) else {
            return Ok(false);
        };
        if expected.is_empty() {
            return Ok(true);
        }
        if file.read_exact(found).is_err() || expected != found {
            return Ok(false);
        }
    }
}

fn size_of(size: i64) -> u64 {
    u64::try_from(size).unwrap_or_default()
}

fn check_file(
    path: &str,
    size: u64,
    room: &MediumRoom,
    way_out: &'static str,
) -> Result<(), ExportError> {
    match room.largest_file.filter(|largest| size > *largest) {
        Some(largest) => Err(ExportError::LargeFile {
            path: path.to_owned(),
            size,
            largest,
            way_out,
        }),
        None => Ok(()),
    }
}

fn check_free(needed: u64, room: &MediumRoom) -> Result<(), ExportError> {
    match needed.saturating_sub(room.free) {
        0 => Ok(()),
        missing => Err(ExportError::NoRoom {
            missing,
            free: room.free,
        }),
    }
}

/// Writes a text, unless an earlier export left it: a medium that holds the whole export may be read-only.
fn put_text(target: &mut dyn ExportTarget, path: &str, text: &str) -> Result<(), ExportError> {
    let size = text.len() as u64;
    if is_there(target, path, size, || Ok(Box::new(text.as_bytes())))? {
        return Ok(());
    }
    put_content(target, path, size, &mut text.as_bytes())
}

fn put_content(
    target: &mut dyn ExportTarget,
    path: &str,
    size: u64,
    content: &mut dyn Read,
) -> Result<(), ExportError> {
    let file = ExportFile {
        path,
        size,
        content,
    };
    let put = target.put_file(file);
    put.map_err(|error| write_error(path, error))
}

fn write_error(path: &str, error: io::Error) -> ExportError {
    ExportError::Write {
        path: path.to_owned(),
        reason: error.into(),
    }
}

/// The content of a file in stored blocks of deflate. A medium has the room, and a compressor would only take time.
struct StoredBlocks {
    file: std::fs::File,
    left: u64,
    /// The current block.
    block: Vec<u8>,
    /// Position in it.
    next: usize,
    is_done: bool,
    hash: Sha256,
    expected: [u8; 32],
}

impl StoredBlocks {
    /// Reads the next block. The last one is checked against the object's name before it is passed on.
    fn read_block(&mut self) -> io::Result<()> {
        let size = usize::try_from(self.left).unwrap_or(BLOCK).min(BLOCK);
        self.block.resize(BLOCK_HEADER + size, 0);
        let content = self.block.get_mut(BLOCK_HEADER..).unwrap_or_default();
        self.file.read_exact(content)?;
        self.hash.update(content);
        self.left -= size as u64;
        self.is_done = self.left == 0;
        let length = u16::try_from(size).unwrap_or(u16::MAX);
        let [low, high] = length.to_le_bytes();
        let header = [u8::from(self.is_done), low, high, !low, !high];
        if let Some(place) = self.block.get_mut(..BLOCK_HEADER) {
            place.copy_from_slice(&header);
        }
        self.next = 0;
        let is_damaged = self.is_done
            && (self.hash.clone().finalize().as_slice() != self.expected
                || self.file.read(&mut [0])? != 0);
        if is_damaged {
            Err(io::Error::other(
                "the object is damaged: its content does not match its name",
            ))
        } else {
            Ok(())
        }
    }
}

impl Read for StoredBlocks {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.next == self.block.len() {
            if self.is_done {
                return Ok(0);
            }
            self.read_block()?;
        }
        let rest = self.block.get(self.next..).unwrap_or_default();
        let read = rest.len().min(buffer.len());
        if let (Some(from), Some(to)) = (rest.get(..read), buffer.get_mut(..read)) {
            to.copy_from_slice(from);
        }
        self.next += read;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_four_gibibytes_is_refused_where_the_medium_takes_none() {
        let vfat = MediumRoom {
            free: 1 << 40,
            block: 32 << 10,
            largest_file: Some(u64::from(u32::MAX)),
        };
        let ext4 = MediumRoom {
            largest_file: None,
            ..vfat
        };
        let check = |size, room| check_file("os.tar", size, room, "use ext4");
        check(u64::from(u32::MAX), &vfat).unwrap();
        check(1 << 32, &ext4).unwrap();
        let error = check(1 << 32, &vfat).unwrap_err().to_string();
        assert_eq!(
            error,
            "os.tar has 4294967296 bytes, and a file there has at most 4294967295; use ext4"
        );
    }
}
