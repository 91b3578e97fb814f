//! The store of container images (`containers-storage`, overlay): its files, and the layers that they refer to.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::Value;

use crate::host::root::{Root, RootError, RootPath};

/// Path of the store.
pub const STORE: &str = "var/lib/containers/storage";
const LAYERS: [&str; 2] = [
    "var/lib/containers/storage/overlay-layers/layers.json",
    "var/lib/containers/storage/overlay-layers/volatile-layers.json",
];
const IMAGES: &str = "var/lib/containers/storage/overlay-images/images.json";
const CONTENTS: &str = "var/lib/containers/storage/overlay";

/// Lists of containers with their layers. A damaged list also stops CRI-O and podman.
const CONTAINERS: [&str; 2] = [
    "var/lib/containers/storage/overlay-containers/containers.json",
    "var/lib/containers/storage/overlay-containers/volatile-containers.json",
];
/// Directory with the data of images: manifest, config, signatures.
const DATA: &str = "var/lib/containers/storage/overlay-images";
/// Maximum number of layers whose directories are read; a node has a few hundred.
const MAX_LAYERS: usize = 8192;

/// The store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainersStorage {
    /// The store exists.
    pub exists: bool,
    /// Unusable files, with the error.
    pub broken: Vec<(String, String)>,
    /// Images with a missing layer: image name and layer.
    pub lacking: Vec<(String, String)>,
    /// Damage to layers of images, data of images, and the list of containers: path and problem.
    pub damaged: Vec<(String, String)>,
    /// Number of images.
    pub images: usize,
    /// Bytes of their layers.
    pub bytes: u64,
    /// Images that exist in no registry: `localhost/...`.
    pub local_only: Vec<String>,
}

#[derive(Deserialize)]
struct Layer {
    id: String,
    #[serde(default)]
    parent: Option<String>,
    #[serde(default, rename = "diff-size")]
    size: Option<u64>,
    #[serde(default)]
    flags: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
struct DiskImage {
    id: String,
    #[serde(default)]
    digest: Option<String>,
    #[serde(default)]
    names: Option<Vec<String>>,
    #[serde(default)]
    layer: Option<String>,
    #[serde(default, rename = "big-data-sizes")]
    data: Option<BTreeMap<String, u64>>,
}

/// An entry of a list that is parsed but not used.
#[derive(Deserialize)]
struct Container {
    #[serde(rename = "id")]
    _id: String,
}

/// Reads the store. Anything that looks damaged is read twice, because images come and go on a running node.
///
/// # Errors
/// The store cannot be read.
pub fn read_images_on_disk(root: &Root) -> anyhow::Result<ContainersStorage> {
    let mut storage = read_once(root)?;
    if !storage.damaged.is_empty() {
        let again = read_once(root)?;
        storage.damaged.retain(|one| again.damaged.contains(one));
    }
    Ok(storage)
}

fn read_once(root: &Root) -> anyhow::Result<ContainersStorage> {
    let mut storage = ContainersStorage {
        exists: root.open_directory(&RootPath::fixed(STORE))?.is_some(),
        ..ContainersStorage::default()
    };
    let mut layers: BTreeMap<String, Layer> = BTreeMap::new();
    for file in LAYERS {
        let listed: Vec<Layer> = read_list(root, file, &mut storage.broken)?;
        layers.extend(listed.into_iter().map(|layer| (layer.id.clone(), layer)));
    }
    let contents: BTreeSet<String> = root.list(&RootPath::fixed(CONTENTS))?.into_iter().collect();
    let images: Vec<DiskImage> = read_list(root, IMAGES, &mut storage.broken)?;
    for file in CONTAINERS {
        read_list::<Container>(root, file, &mut storage.damaged)?;
    }
    storage.images = images.len();
    let mut chains = BTreeSet::new();
    for image in &images {
        let names = image.names.iter().flatten();
        let local = names.clone().filter(|name| name.starts_with("localhost/"));
        storage.local_only.extend(local.cloned());
        let Some(layer) = image.layer.as_ref().filter(|layer| !layer.is_empty()) else {
            continue;
        };
        if !layers.contains_key(layer) || !contents.contains(layer) {
            let name = names.clone().next().unwrap_or(&image.id);
            storage.lacking.push((name.clone(), layer.clone()));
            continue;
        }
        judge_chain(&layers, layer, &mut chains, &mut storage.damaged);
    }
    let sizes = chains.iter().filter_map(|id| layers.get(*id)?.size);
    storage.bytes = sizes.fold(0, u64::saturating_add);
    for id in chains.iter().take(MAX_LAYERS) {
        let layer = layers.get(*id);
        let has_parent = layer.is_some_and(|layer| parent_of(layer).is_some());
        let at_fault = judge_directory(root, id, has_parent)?;
        storage.damaged.extend(at_fault);
    }
    for image in &images {
        judge_data(root, image, &mut storage.damaged)?;
    }
    storage.damaged.sort();
    storage.damaged.dedup();
    Ok(storage)
}

fn parent_of(layer: &Layer) -> Option<&String> {
    layer.parent.as_ref().filter(|parent| !parent.is_empty())
}

/// Follows the layers of an image down to the lowest one.
fn judge_chain<'a>(
    layers: &'a BTreeMap<String, Layer>,
    top: &'a str,
    seen: &mut BTreeSet<&'a str>,
    damaged: &mut Vec<(String, String)>,
) {
    let mut at = top;
    while let Some(layer) = layers.get(at) {
        if !seen.insert(at) {
            return;
        }
        if layer.flags.get("incomplete") == Some(&Value::Bool(true)) {
            let why = "is marked incomplete: it is removed at the next start".to_owned();
            damaged.push((content_path(at), why));
        }
        let Some(parent) = parent_of(layer) else {
            return;
        };
        if !layers.contains_key(parent) {
            let why = format!("its parent {} is missing", short_id(parent));
            damaged.push((content_path(at), why));
        }
        at = parent;
    }
}

fn short_id(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

fn content_path(layer: &str) -> String {
    format!("/{CONTENTS}/{layer}")
}

/// Returns what is wrong with a layer's directory: it needs `diff` and `link`, and `lower` if it has a parent.
fn judge_directory(
    root: &Root,
    layer: &str,
    has_parent: bool,
) -> Result<Option<(String, String)>, RootError> {
    let place = content_path(layer);
    let Ok(path) = RootPath::parse(&place) else {
        return Ok(None);
    };
    let names = root.list(&path)?;
    let needed = ["diff", "link", "lower"];
    for name in needed.into_iter().take(if has_parent { 3 } else { 2 }) {
        if !names.iter().any(|there| there == name) {
            return Ok(Some((place, format!("{name} is missing"))));
        }
    }
    for name in names
        .iter()
        .filter(|name| ["link", "lower"].contains(&name.as_str()))
    {
        if let Ok(file) = path.join(name)
            && root
                .read_small(&file)?
                .is_some_and(|bytes| bytes.is_empty())
        {
            return Ok(Some((format!("{place}/{name}"), "empty".to_owned())));
        }
    }
    Ok(None)
}

/// Compares the sizes of an image's data files with the recorded ones.
fn judge_data(
    root: &Root,
    image: &DiskImage,
    damaged: &mut Vec<(String, String)>,
) -> Result<(), RootError> {
    for (key, size) in image.data.iter().flatten() {
        let place = format!("/{DATA}/{}/{}", image.id, file_of(key));
        let Ok(path) = RootPath::parse(&place) else {
            continue;
        };
        let stat = root.stat(&path)?;
        // A negative size means that it is unknown.
        let found = stat.and_then(|stat| u64::try_from(stat.st_size).ok());
        if let Some(found) = found.filter(|found| found != size) {
            damaged.push((place, format!("has {found} bytes instead of {size}")));
        }
    }
    Ok(())
}

/// Returns the file name for such data: keys with any other characters are encoded.
fn file_of(key: &str) -> String {
    let is_plain = |c: char| c == '.' || c.is_ascii_digit() || c.is_ascii_lowercase();
    if key.chars().all(is_plain) {
        key.to_owned()
    } else {
        format!("={}", STANDARD.encode(key))
    }
}

/// Returns true if the store has an image with this name or digest; `None` if the store is missing or unusable.
///
/// # Errors
/// The store cannot be read.
pub fn has_image(root: &Root, image: &str) -> anyhow::Result<Option<bool>> {
    if root.open_directory(&RootPath::fixed(STORE))?.is_none() {
        return Ok(None);
    }
    let mut broken = Vec::new();
    let images: Vec<DiskImage> = read_list(root, IMAGES, &mut broken)?;
    let digest = image.split_once('@').map(|(_, digest)| digest);
    let is_it = |one: &DiskImage| {
        let named = one.names.iter().flatten().any(|name| name == image);
        named || (digest.is_some() && one.digest.as_deref() == digest)
    };
    Ok(broken.is_empty().then(|| images.iter().any(is_it)))
}

/// Returns the entries of a file; empty if it is missing or unusable.
fn read_list<T: for<'a> Deserialize<'a>>(
    root: &Root,
    file: &'static str,
    broken: &mut Vec<(String, String)>,
) -> anyhow::Result<Vec<T>> {
    let Some(bytes) = root.read(&RootPath::fixed(file))? else {
        return Ok(Vec::new());
    };
    Ok(serde_json::from_slice(&bytes).unwrap_or_else(|error| {
        let why = if bytes.is_empty() {
            "empty".to_owned()
        } else {
            format!("unexpected JSON ({error})")
        };
        broken.push((format!("/{file}"), why));
        Vec::new()
    }))
}
