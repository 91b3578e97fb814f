//! Opens what `--os-from` names, if it has an image as OSTree objects: a repository, a mounted disk, an export, or a stream.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::archive::{ArchiveReadError, ExportArchive};
use crate::host::root::{Root, RootError};
use crate::node::images::object_store::{
    MetadataSource, ObjectId, ObjectStore, StoreError, StoredImage, read_image,
};
use crate::node::images::ostree_objects::{Checksum, parse_checksum};

/// The path that means standard input.
pub const STREAM: &str = "-";

/// The last archive, from the plan until its objects are imported. A stream can be read once, and the head of a file need not be
/// read again.
static OPENED: Mutex<Option<ExportArchive>> = Mutex::new(None);

/// Images as OSTree objects.
#[derive(Debug)]
pub enum ObjectSource {
    /// A repository.
    Repository(ObjectStore),
    /// An archive or a stream.
    Archive(Box<ExportArchive>),
}

/// The reason why a source cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ObjectSourceError {
    /// A repository cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An archive cannot be read.
    #[error(transparent)]
    Archive(#[from] ArchiveReadError),
    /// The stream is not an export.
    #[error(
        "standard input is not an export of an image; on the other node: mco-rescue image export -"
    )]
    NoExport,
}

impl From<RootError> for ObjectSourceError {
    fn from(error: RootError) -> Self {
        Self::Store(error.into())
    }
}

impl ObjectSource {
    /// Opens a source; `None` if what is there has no OSTree objects, such as OCI media.
    ///
    /// # Errors
    /// It has them and cannot be read.
    pub fn open(path: &Path) -> Result<Option<Self>, ObjectSourceError> {
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(archive) = opened.take_if(|archive| is_same_path(&archive.shown(), path)) {
            return Ok(Some(Self::Archive(Box::new(archive))));
        }
        if path == Path::new(STREAM) {
            let archive = ExportArchive::open_archive(STREAM, Box::new(io::stdin()))?;
            let archive = archive.ok_or(ObjectSourceError::NoExport)?;
            return Ok(Some(Self::Archive(Box::new(archive))));
        }
        let Ok(directory) = Root::open(path) else {
            return Self::open_file(path);
        };
        if let Some(sysroot) = sysroot_of(path)?
            && let Some(store) = ObjectStore::find(&Root::open(&sysroot)?)?
        {
            return Ok(Some(Self::Repository(store)));
        }
        Ok(ObjectStore::find(&directory)?.map(Self::Repository))
    }

    fn open_file(path: &Path) -> Result<Option<Self>, ObjectSourceError> {
        // What is missing or cannot be opened is reported by the one who looks for OCI media next.
        let Ok(Some((root, inside))) = Root::open_above(path) else {
            return Ok(None);
        };
        let Ok(Some(file)) = root.open_file(&inside) else {
            return Ok(None);
        };
        let reader: Box<dyn Read + Send> = Box::new(io::BufReader::with_capacity(1 << 20, file));
        let archive = ExportArchive::open_archive(&path.display().to_string(), reader)?;
        Ok(archive.map(|archive| Self::Archive(Box::new(archive))))
    }

    /// Keeps an archive for the next one who opens it. A repository is opened again.
    pub fn close(self) {
        if let Self::Archive(archive) = self {
            let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
            *opened = Some(*archive);
        }
    }

    /// Returns its metadata.
    pub fn metadata(&self) -> &dyn MetadataSource {
        match self {
            Self::Repository(store) => store,
            Self::Archive(archive) => archive.as_ref(),
        }
    }

    /// Returns the images, by name, with the commit of each.
    ///
    /// # Errors
    /// The refs cannot be read.
    pub fn list_images(&self) -> Result<BTreeMap<String, String>, ObjectSourceError> {
        match self {
            Self::Repository(store) => Ok(store.image_commits()?),
            Self::Archive(archive) => {
                let description = archive.description();
                let one = (description.image.clone(), description.commit.clone());
                Ok([one].into())
            }
        }
    }

    /// Returns the size of an object there, in bytes; `None` if it is missing.
    ///
    /// # Errors
    /// The repository cannot be read.
    pub fn size_of(&self, id: &ObjectId) -> Result<Option<u64>, StoreError> {
        match self {
            Self::Repository(store) => {
                let stat = store.stat_object(id)?;
                Ok(stat.map(|stat| u64::try_from(stat.st_size).unwrap_or_default()))
            }
            Self::Archive(archive) => Ok(archive.size_of(id)),
        }
    }

    /// Finds the image with a digest. `name` is the wanted one; another one with the same digest is the same image.
    ///
    /// # Errors
    /// The source cannot be read, or the image there is incomplete.
    pub fn find_image(
        &self,
        metadata: &dyn MetadataSource,
        name: &str,
        digest: &str,
    ) -> Result<Option<StoredImage>, ObjectSourceError> {
        let images = self.list_images()?;
        let exact = images.get(name).into_iter();
        let others = images.iter().filter(|(other, _)| *other != name);
        let with_digest = others.filter(|(other, _)| other.ends_with(&format!("@{digest}")));
        let mut commits = exact.chain(with_digest.map(|(_, commit)| commit));
        let Some(commit) = commits.next() else {
            return Ok(None);
        };
        let Some(checksum) = parse_checksum(commit) else {
            return Ok(None);
        };
        Ok(Some(read_image(metadata, name, &checksum)?))
    }
}

/// Returns the directory that a system's own repository is in, whose deployments name some of its images.
fn sysroot_of(path: &Path) -> Result<Option<PathBuf>, RootError> {
    let shown = path.display().to_string();
    let whole = std::path::absolute(path);
    let whole = whole.map_err(|error| RootError::of_system(&shown, &error))?;
    let above = whole.ancestors().nth(2);
    let own = above.filter(|_| whole.ends_with("ostree/repo"));
    Ok(own.map(Path::to_owned))
}

fn is_same_path(shown: &str, path: &Path) -> bool {
    match (std::path::absolute(shown), std::path::absolute(path)) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

/// Metadata of a source, and what it leaves out of the node's own repository.
#[derive(Debug)]
pub struct WithNode<'a> {
    /// The source.
    pub source: &'a ObjectSource,
    /// The node's repository.
    pub node: &'a ObjectStore,
}

impl MetadataSource for WithNode<'_> {
    fn read_metadata(&self, id: &ObjectId) -> Result<Vec<u8>, StoreError> {
        match self.node.stat_object(id)? {
            Some(_) => self.node.read_metadata(id),
            None => self.source.metadata().read_metadata(id),
        }
    }

    fn find_layer(&self, name: &str) -> Result<Option<Checksum>, StoreError> {
        self.source.metadata().find_layer(name)
    }

    fn shown(&self) -> String {
        self.source.metadata().shown()
    }
}
