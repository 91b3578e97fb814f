//! What the node's repository lacks of an image, and how it gets that.

use std::collections::BTreeSet;
use std::path::Path;

use super::archive::ArchiveReadError;
use super::medium::DirectoryTarget;
use super::source::{ObjectSource, ObjectSourceError, WithNode};
use crate::base::reason::Reason;
use crate::node::images::object_store::{ObjectId, ObjectStore, StoredImage, list_objects};
use crate::node::images::ostree_objects::Checksum;

/// What has to be imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportNeed {
    /// The image.
    pub image: StoredImage,
    /// Layers that have no ref in the node's repository: the full ref and the commit of each. One that is there is not replaced.
    pub layers: Vec<(String, Checksum)>,
    /// Objects that the node's repository lacks.
    pub missing: BTreeSet<ObjectId>,
    /// Their size at the source, in bytes.
    pub bytes: u64,
}

/// The reason why an image cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The source or the node's repository cannot be read.
    #[error(transparent)]
    Source(#[from] ObjectSourceError),
    /// Some objects are neither at the source nor on the node.
    #[error(
        "{path} lacks {count} objects of the image that this node does not have either; export it again without --since, or from \
         another node"
    )]
    Incomplete {
        /// Path of the source.
        path: String,
        /// Their number.
        count: usize,
    },
    /// The scratch directory cannot be used.
    #[error("unpacking into {path}: {reason}")]
    Scratch {
        /// Its path.
        path: String,
        /// The system's error.
        reason: Reason,
    },
}

impl From<ArchiveReadError> for ImportError {
    fn from(error: ArchiveReadError) -> Self {
        Self::Source(error.into())
    }
}

/// Compares the image of this digest at a source with the node's repository; `None` if the source has no such image.
///
/// # Errors
/// One of the two cannot be read, or objects are missing in both.
pub fn find_import_need(
    node: &ObjectStore,
    source: &ObjectSource,
    name: &str,
    digest: &str,
) -> Result<Option<ImportNeed>, ImportError> {
    let metadata = WithNode { source, node };
    let Some(image) = source.find_image(&metadata, name, digest)? else {
        return Ok(None);
    };
    let mut layers = Vec::new();
    for (layer, commit) in &image.layers {
        if !node.has_layer(layer).map_err(ObjectSourceError::from)? {
            layers.push((layer.clone(), *commit));
        }
    }
    let commits = layers.iter().map(|(_, commit)| *commit);
    let commits: Vec<Checksum> = [image.commit].into_iter().chain(commits).collect();
    let all = list_objects(&metadata, &commits).map_err(ObjectSourceError::from)?;
    let mut need = ImportNeed {
        image,
        layers,
        missing: BTreeSet::new(),
        bytes: 0,
    };
    let mut nowhere = 0;
    for id in all {
        if node
            .stat_object(&id)
            .map_err(ObjectSourceError::from)?
            .is_some()
        {
            continue;
        }
        match source.size_of(&id).map_err(ObjectSourceError::from)? {
            Some(size) => need.bytes += size,
            None => nowhere += 1,
        }
        need.missing.insert(id);
    }
    match nowhere {
        0 => Ok(Some(need)),
        count => Err(ImportError::Incomplete {
            path: source.metadata().shown(),
            count,
        }),
    }
}

/// Unpacks what is missing from an archive, as a repository from which ostree can pull.
///
/// # Errors
/// The archive ends too early, or the directory cannot be written.
pub fn unpack_for_pull(
    source: ObjectSource,
    need: &ImportNeed,
    scratch: &Path,
) -> Result<(), ImportError> {
    let ObjectSource::Archive(archive) = source else {
        return Ok(());
    };
    let failed = |error: std::io::Error| ImportError::Scratch {
        path: scratch.display().to_string(),
        reason: error.into(),
    };
    DirectoryTarget::remove_directory(scratch).map_err(failed)?;
    let mut target = DirectoryTarget::make_directory(scratch).map_err(failed)?;
    Ok(archive.unpack_objects(&need.missing, &mut target)?)
}
