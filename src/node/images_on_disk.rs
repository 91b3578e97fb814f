//! The store of the container images (`containers-storage`, overlay): its files, and the layers that they name.

use std::collections::BTreeSet;

use serde::Deserialize;

use crate::root::{Root, RootPath};

/// Path of the store.
pub const STORE: &str = "var/lib/containers/storage";
const LAYERS: [&str; 2] = [
    "var/lib/containers/storage/overlay-layers/layers.json",
    "var/lib/containers/storage/overlay-layers/volatile-layers.json",
];
const IMAGES: &str = "var/lib/containers/storage/overlay-images/images.json";
const CONTENTS: &str = "var/lib/containers/storage/overlay";

/// The store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainersStorage {
    /// The store exists.
    pub exists: bool,
    /// Unusable files, with the error.
    pub broken: Vec<(String, String)>,
    /// Images with a missing layer: name and layer.
    pub lacking: Vec<(String, String)>,
}

#[derive(Deserialize)]
struct Layer {
    id: String,
}

#[derive(Deserialize)]
struct DiskImage {
    id: String,
    #[serde(default)]
    names: Option<Vec<String>>,
    #[serde(default)]
    layer: Option<String>,
}

/// Reads the store.
///
/// # Errors
/// It cannot be read.
pub fn read(root: &Root) -> anyhow::Result<ContainersStorage> {
    let mut storage = ContainersStorage {
        exists: root.directory(&RootPath::fixed(STORE))?.is_some(),
        ..ContainersStorage::default()
    };
    let mut known = BTreeSet::new();
    for file in LAYERS {
        let layers: Vec<Layer> = list(root, file, &mut storage.broken)?;
        known.extend(layers.into_iter().map(|layer| layer.id));
    }
    let contents: BTreeSet<String> = root.list(&RootPath::fixed(CONTENTS))?.into_iter().collect();
    let images: Vec<DiskImage> = list(root, IMAGES, &mut storage.broken)?;
    for image in images {
        let Some(layer) = image.layer.filter(|layer| !layer.is_empty()) else {
            continue;
        };
        if !known.contains(&layer) || !contents.contains(&layer) {
            let name = image.names.unwrap_or_default().into_iter().next();
            storage.lacking.push((name.unwrap_or(image.id), layer));
        }
    }
    Ok(storage)
}

/// Returns the entries of a file; empty if it is missing or unusable.
fn list<T: for<'a> Deserialize<'a>>(
    root: &Root,
    file: &'static str,
    broken: &mut Vec<(String, String)>,
) -> anyhow::Result<Vec<T>> {
    let Some(bytes) = root.read(&RootPath::fixed(file))? else {
        return Ok(Vec::new());
    };
    Ok(serde_json::from_slice(&bytes).unwrap_or_else(|error| {
        let why = match bytes.is_empty() {
            true => "empty".to_owned(),
            false => format!("unexpected JSON ({error})"),
        };
        broken.push((format!("/{file}"), why));
        Vec::new()
    }))
}
