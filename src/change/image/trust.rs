//! Who vouches that the tree at a source is the wanted image.
//!
//! Objects prove that the tree has a content checksum. The digest in `osImageURL` is that of a manifest, from which the tree cannot
//! be computed again. So a witness has to know both: two other nodes that imported the image from a registry, or the user. The same
//! is true of each layer, which a later update takes from the repository: a witness has to know the layers too. A checksum that a
//! capsule signs counts first (`Search::require_proof` in `change/staging/image_source.rs`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::base::reason::Reason;
use crate::host::root::{Root, RootError};
use crate::node::images::object_store::StoredImage;

/// Schema of the documents that `image list --output json` prints.
pub const SCHEMA: &str = "mco-rescue/images/v1";
/// Schema of the documents that `status --output json` prints, which also have the checksums of what is booted and staged.
const STATUS_SCHEMA: &str = "mco-rescue/status/v1";
/// Number of nodes that have to agree.
const WITNESSES: usize = 2;

/// The verdict on the content of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentTrust {
    /// These nodes have the same content and the same layers under the same digest.
    Agreed(Vec<String>),
    /// Nobody vouches for it, or too few do: the nodes that agree.
    Unproven(Vec<String>),
    /// A node has another content under the same digest: the node, and its checksum.
    Contradicted(String, String),
    /// A node of another cluster: the node, and the URL of its API server.
    OtherCluster(String, String),
}

/// The reason why a document cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProofError {
    /// It cannot be read.
    #[error("reading {path}: {reason}")]
    Read {
        /// Its path.
        path: String,
        /// The system's error.
        reason: Reason,
    },
    /// It has no images of a node.
    #[error(
        "{path} does not have the images of a node ({why}); on another node: mco-rescue image list --output json >{path}"
    )]
    Form {
        /// Its path.
        path: String,
        /// The difference.
        why: String,
    },
}

#[derive(Deserialize)]
struct Listed {
    schema: String,
    node: Option<String>,
    api_server: Option<String>,
    images: Option<Vec<ListedImage>>,
    /// Keys of a status that are `null` because they could not be read.
    #[serde(default)]
    unreadable: Vec<String>,
}

#[derive(Deserialize)]
struct ListedImage {
    image: String,
    content_checksum: Option<String>,
    layers_checksum: Option<String>,
}

/// Compares the content of an image with what other nodes have. A node counts once, whatever number of documents it has. Nodes of
/// another cluster than `cluster` do not count.
///
/// # Errors
/// A document cannot be read.
pub fn judge_content(
    image: &StoredImage,
    documents: &[PathBuf],
    cluster: Option<&str>,
) -> Result<ContentTrust, ProofError> {
    let mut cluster = cluster.map(str::to_owned);
    let mut nodes = BTreeSet::new();
    for path in documents {
        let listed = read_document(path)?;
        let form = |why: &str| ProofError::Form {
            path: path.display().to_string(),
            why: why.to_owned(),
        };
        let node = listed.node.ok_or_else(|| form("it names no node"))?;
        let images = listed.images.ok_or_else(|| form("they are not known"))?;
        if listed.unreadable.iter().any(|key| key == "api_server") {
            return Err(form("it is not known which cluster it belongs to"));
        }
        if let Some(other) = listed.api_server {
            match &cluster {
                Some(cluster) if *cluster != other => {
                    return Ok(ContentTrust::OtherCluster(node, other));
                }
                _ => cluster = Some(other),
            }
        }
        let suffix = format!("@{}", image.digest);
        let same = images.iter().filter(|one| one.image.ends_with(&suffix));
        for one in same {
            let Some(content) = &one.content_checksum else {
                continue;
            };
            if *content != image.content {
                return Ok(ContentTrust::Contradicted(node, content.clone()));
            }
            if one.layers_checksum.as_ref() == Some(&image.layers_checksum) {
                nodes.insert(node.clone());
            }
        }
    }
    let nodes: Vec<String> = nodes.into_iter().collect();
    Ok(if nodes.len() >= WITNESSES {
        ContentTrust::Agreed(nodes)
    } else {
        ContentTrust::Unproven(nodes)
    })
}

fn read_document(path: &Path) -> Result<Listed, ProofError> {
    let read = |reason: Reason| ProofError::Read {
        path: path.display().to_string(),
        reason,
    };
    let failed = |error: RootError| read(error.into());
    let above = Root::open_above(path).map_err(failed)?;
    let (root, inside) = above.ok_or_else(|| read(nix::errno::Errno::EINVAL.into()))?;
    let bytes = root.read(&inside).map_err(failed)?;
    let bytes = bytes.ok_or_else(|| read(nix::errno::Errno::ENOENT.into()))?;
    let form = |why: String| ProofError::Form {
        path: path.display().to_string(),
        why,
    };
    let listed: Listed = serde_json::from_slice(&bytes).map_err(|error| form(error.to_string()))?;
    if [SCHEMA, STATUS_SCHEMA].contains(&listed.schema.as_str()) {
        Ok(listed)
    } else {
        Err(form(format!("its schema is {:?}", listed.schema)))
    }
}
