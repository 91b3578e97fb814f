//! The tree of an image in containers-storage (overlay), which has one directory for each layer.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{ImageTree, directory};
use crate::base::reason::Reason;
use crate::host::root::{Root, RootPath};
use crate::node::images::medium::ImageConfig;

const STORE: &str = "var/lib/containers/storage";
/// Maximum number of layers of an image; the storage allows no more.
const MAX_LAYERS: usize = 4096;

#[derive(Debug, Deserialize)]
struct StoredLayer {
    id: String,
    #[serde(default)]
    parent: String,
    /// Bytes of its files.
    #[serde(default, rename = "diff-size")]
    size: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct StoredImage {
    id: String,
    #[serde(default)]
    names: Option<Vec<String>>,
    #[serde(default)]
    layer: Option<String>,
}

/// Reads the tree of the image with exactly this name in a root's storage; `None` if there is none.
///
/// # Errors
/// A file or directory of the storage cannot be read or used; in words.
pub fn read_stored(root: &Root, name: &str) -> Result<Option<ImageTree>, Reason> {
    let images: Vec<StoredImage> = read_json(root, "overlay-images/images.json")?;
    let is_named = |image: &&StoredImage| {
        let names = image.names.iter().flatten();
        names.into_iter().any(|other| other == name)
    };
    let Some(image) = images.iter().find(is_named) else {
        return Ok(None);
    };
    let mut layers: Vec<StoredLayer> = read_json(root, "overlay-layers/layers.json")?;
    layers.extend(read_json::<StoredLayer>(
        root,
        "overlay-layers/volatile-layers.json",
    )?);
    let parents: BTreeMap<&str, &str> = layers
        .iter()
        .map(|layer| (layer.id.as_str(), layer.parent.as_str()))
        .collect();
    let mut chain = Vec::new();
    let mut at = image.layer.as_deref().unwrap_or_default();
    while !at.is_empty() && chain.len() < MAX_LAYERS {
        chain.push(at);
        at = parents
            .get(at)
            .ok_or_else(|| format!("its layer {at} is missing in /{STORE}"))?;
    }
    let mut tree = ImageTree {
        source: format!("containers-storage:{name}"),
        ..ImageTree::default()
    };
    let sizes = chain
        .iter()
        .map(|id| layers.iter().find(|layer| layer.id == *id)?.size);
    tree.content_bytes = sizes.sum();
    for layer in chain.iter().rev() {
        let path = format!("/{STORE}/overlay/{layer}/diff");
        let path = RootPath::parse(&path).map_err(Reason::from_error)?;
        let layer = root.open_within(&path).map_err(Reason::from_error)?;
        directory::add_layer(&layer, &mut tree).map_err(Reason::from_error)?;
    }
    if let Some(config) = read_config(root, &image.id)? {
        tree.labels = config.config.labels.unwrap_or_default();
        tree.architecture = Some(config.architecture).filter(|name| !name.is_empty());
    }
    Ok(Some(tree))
}

/// Reads the config of an image; `None` if its file is missing.
fn read_config(root: &Root, id: &str) -> Result<Option<ImageConfig>, Reason> {
    // The config's digest is the id of the image, and its file is named after it.
    let file = STANDARD.encode(format!("sha256:{id}"));
    let path = RootPath::parse(&format!("/{STORE}/overlay-images/{id}/={file}"));
    let path = path.map_err(Reason::from_error)?;
    let bytes = root.read_small(&path).map_err(Reason::from_error)?;
    let config = bytes.map(|bytes| serde_json::from_slice(&bytes));
    let config = config.transpose();
    config.map_err(|error| format!("{path}: {error}").into())
}

/// Reads a list; empty if its file is missing.
fn read_json<T: DeserializeOwned>(root: &Root, file: &str) -> Result<Vec<T>, Reason> {
    let path = RootPath::parse(&format!("/{STORE}/{file}")).map_err(Reason::from_error)?;
    match root.read(&path) {
        Ok(Some(bytes)) => serde_json::from_slice(&bytes)
            .map_err(|error| format!("reading {path}: {error}").into()),
        Ok(None) => Ok(Vec::new()),
        Err(error) => Err(Reason::from_error(error)),
    }
}
