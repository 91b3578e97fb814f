//! The tree of an image, built from its layers, which are read once and never unpacked to disk.
//!
//! The lower layers of a node image contain an OSTree commit: the content of a file is an entry below
//! `sysroot/ostree/repo/objects`, and its real path is a hard link to that entry, normally the next entry. Upper layers are
//! plain: a later layer overrides earlier ones, and `.wh.NAME` removes a file.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, BufReader, Read};

use tar::EntryType;

use super::wanted::{Want, find_want};
use super::zstd::{MAGIC, ZstdFrames};
use super::{ImageTree, Initramfs, TreeFile, initramfs, is_initramfs};
use crate::host::sys::parallel;
use crate::node::images::manifest::Descriptor;
use crate::node::images::medium::{DescribedImage, Medium, MediumError};

/// The objects of an OSTree repository.
const OBJECTS: &str = "sysroot/ostree/repo/objects/";
/// Maximum size of an object that is kept in memory until its path is known; all wanted content is smaller.
const MAX_KEPT: u64 = 16 << 20;
/// Maximum number of entries in a layer; a node image has a few hundred thousand in total.
const MAX_ENTRIES: usize = 4_000_000;
/// Size of the read buffer in bytes.
const BUFFER: usize = 256 << 10;

/// The files of one layer.
#[derive(Debug, Default)]
struct Layer {
    files: BTreeMap<String, TreeFile>,
    /// Removed paths, with everything below.
    removed: Vec<String>,
    /// Directories whose content in lower layers is hidden.
    emptied: Vec<String>,
    initramfs: BTreeMap<String, Initramfs>,
    /// Bytes of all files.
    content_bytes: u64,
    /// Wanted paths whose object is not the preceding entry, with that object.
    unresolved: Vec<(String, String)>,
}

/// Reads the tree of an image on a medium.
///
/// # Errors
/// A layer is missing or damaged.
pub fn read_image(medium: &Medium, image: &DescribedImage) -> Result<ImageTree, MediumError> {
    let read = parallel::in_parts(&image.layers, 1, |part| {
        let layers = part.iter().map(|layer| read_layer(medium, layer));
        layers.collect::<Result<Vec<Layer>, MediumError>>()
    });
    let mut tree = ImageTree {
        source: medium.reference(),
        labels: image.labels.clone(),
        architecture: image.architecture.clone(),
        ..ImageTree::default()
    };
    let mut images = BTreeMap::new();
    let mut content_bytes = 0;
    for part in read {
        for layer in part? {
            content_bytes += layer.content_bytes;
            add_layer(&mut tree, &mut images, layer);
        }
    }
    tree.content_bytes = Some(content_bytes);
    let path = tree.files.keys().find(|path| is_initramfs(path));
    tree.initramfs = path.map(|path| {
        images.remove(path).unwrap_or_else(|| Initramfs {
            problem: Some("the initramfs was not found in its layer".to_owned()),
            ..Initramfs::default()
        })
    });
    Ok(tree)
}

/// Merges a layer over the lower ones.
fn add_layer(tree: &mut ImageTree, images: &mut BTreeMap<String, Initramfs>, layer: Layer) {
    for gone in &layer.removed {
        let inside = format!("{gone}/");
        let is_gone = |path: &str| path == gone || path.starts_with(&inside);
        tree.files.retain(|path, _| !is_gone(path));
    }
    for directory in &layer.emptied {
        let inside = format!("{directory}/");
        tree.files.retain(|path, _| !path.starts_with(&inside));
    }
    tree.files.extend(layer.files);
    images.extend(layer.initramfs);
}

fn read_layer(medium: &Medium, layer: &Descriptor) -> Result<Layer, MediumError> {
    let mut found = medium.read_layer(layer, |reader| {
        let mut found = Layer::default();
        read_entries(reader, &mut found)?;
        Ok(found)
    })?;
    let unresolved = std::mem::take(&mut found.unresolved);
    if !unresolved.is_empty() {
        medium.read_layer(layer, |reader| {
            read_objects(reader, &unresolved, &mut found)
        })?;
    }
    Ok(found)
}

/// Returns a reader of the uncompressed layer; its first bytes show the compression.
fn unpack_layer<'a>(reader: &'a mut dyn Read) -> io::Result<Box<dyn Read + 'a>> {
    let mut begin = [0; 4];
    let mut length = 0;
    while length < begin.len() {
        match reader.read(&mut begin[length..])? {
            0 => break,
            read => length += read,
        }
    }
    let begin = begin[..length].to_vec();
    let is_gzip = begin.starts_with(&[0x1f, 0x8b]);
    let is_zstd = begin.starts_with(&MAGIC);
    let whole = BufReader::with_capacity(BUFFER, io::Cursor::new(begin).chain(reader));
    Ok(if is_gzip {
        Box::new(flate2::bufread::MultiGzDecoder::new(whole))
    } else if is_zstd {
        Box::new(ZstdFrames::new(whole))
    } else {
        Box::new(whole)
    })
}

/// The object of the last entry, until the links that follow it give its path.
#[derive(Default)]
struct LastObject {
    name: String,
    size: u64,
    /// Its content, if it is small enough; the memory is reused for each object.
    bytes: Vec<u8>,
    /// `bytes` has the complete content.
    is_whole: bool,
    initramfs: Option<Initramfs>,
}

fn read_entries(reader: &mut dyn Read, layer: &mut Layer) -> io::Result<()> {
    let mut archive = tar::Archive::new(unpack_layer(reader)?);
    let mut last = LastObject::default();
    let mut sizes: HashMap<String, u64> = HashMap::new();
    for (number, entry) in archive.entries()?.enumerate() {
        let mut entry = entry?;
        if number > MAX_ENTRIES {
            return Err(io::Error::other("it has more than 4000000 entries"));
        }
        let name = plain_name(&entry.path_bytes());
        let kind = entry.header().entry_type();
        if kind.is_file() {
            layer.content_bytes += entry.size();
        }
        if kind.is_file() && is_object(&name) {
            let size = entry.size();
            sizes.insert(name.clone(), size);
            last.read_content(&mut entry, name, size)?;
            continue;
        }
        let Some(path) = tree_path(&name) else {
            continue;
        };
        if let Some((directory, removed)) = split_whiteout(&path) {
            match removed {
                ".wh..opq" => layer.emptied.push(directory.to_owned()),
                removed => layer.removed.push(format!("{directory}/{removed}")),
            }
            continue;
        }
        let want = find_want(&path);
        if want == Want::Nothing {
            continue;
        }
        match kind {
            EntryType::Link => {
                let to = entry.link_name_bytes().unwrap_or_default();
                let to = plain_name(&to);
                if is_object(&to) {
                    add_link(layer, &last, &sizes, path, want, &to);
                } else if let Some(to) = tree_path(&to) {
                    layer.files.insert(path, link_to(format!("/{to}")));
                }
            }
            EntryType::Symlink => {
                let to = entry.link_name_bytes().unwrap_or_default();
                let to = String::from_utf8_lossy(&to).into_owned();
                layer.files.insert(path, link_to(to));
            }
            kind if kind.is_file() => {
                let size = entry.size();
                last.read_content(&mut entry, String::new(), size)?;
                add_content(layer, path, want, &last);
            }
            _ => {}
        }
    }
    Ok(())
}

fn link_to(to: String) -> TreeFile {
    TreeFile {
        link: Some(to),
        ..TreeFile::default()
    }
}

impl LastObject {
    /// Reads as much of an entry's content as a wanted path may need.
    fn read_content(&mut self, entry: &mut impl Read, name: String, size: u64) -> io::Result<()> {
        self.name = name;
        self.size = size;
        self.bytes.clear();
        self.is_whole = size <= MAX_KEPT;
        self.initramfs = None;
        if self.is_whole {
            entry.take(MAX_KEPT).read_to_end(&mut self.bytes)?;
            return Ok(());
        }
        // Of larger files only the initramfs matters: a cpio archive, compressed or not.
        let mut begin = [0; 6];
        entry.read_exact(&mut begin)?;
        if is_packed(&begin) {
            let whole = io::Cursor::new(begin).chain(entry);
            self.initramfs = Some(initramfs::list_modules(whole));
        }
        Ok(())
    }
}

/// Returns true for the first bytes of a compressed initramfs.
fn is_packed(begin: &[u8]) -> bool {
    let starts: [&[u8]; 6] = [
        b"07070",
        &[0x1f, 0x8b],
        &MAGIC,
        &[0xfd, b'7', b'z'],
        &[0x02, 0x21, 0x4c, 0x18],
        &[0x04, 0x22, 0x4d, 0x18],
    ];
    starts.iter().any(|start| begin.starts_with(start))
}

/// Adds a path that is a link to an object.
fn add_link(
    layer: &mut Layer,
    last: &LastObject,
    sizes: &HashMap<String, u64>,
    path: String,
    want: Want,
    object: &str,
) {
    if last.name == object {
        add_content(layer, path, want, last);
    } else if want == Want::Presence && !is_initramfs(&path) {
        let size = sizes.get(object).copied().unwrap_or_default();
        let file = TreeFile {
            size,
            ..TreeFile::default()
        };
        layer.files.insert(path, file);
    } else {
        layer.unresolved.push((path, object.to_owned()));
    }
}

/// Adds a path with the content that was read.
fn add_content(layer: &mut Layer, path: String, want: Want, object: &LastObject) {
    if is_initramfs(&path) {
        let found = match &object.initramfs {
            Some(found) => found.clone(),
            None if object.is_whole => initramfs::list_modules(object.bytes.as_slice()),
            None => Initramfs {
                problem: Some("the initramfs has an unknown form".to_owned()),
                ..Initramfs::default()
            },
        };
        layer.initramfs.insert(path.clone(), found);
    }
    let bytes = match want {
        Want::Content(limit) if object.size <= limit && object.is_whole => {
            Some(object.bytes.clone())
        }
        _ => None,
    };
    let file = TreeFile {
        size: object.size,
        bytes,
        link: None,
    };
    layer.files.insert(path, file);
}

/// Reads a layer again, for paths whose object is not the preceding entry. Objects that are not in the layer are ignored.
fn read_objects(
    reader: &mut dyn Read,
    unresolved: &[(String, String)],
    layer: &mut Layer,
) -> io::Result<()> {
    let mut archive = tar::Archive::new(unpack_layer(reader)?);
    let mut object = LastObject::default();
    for entry in archive.entries()? {
        let mut entry = entry?;
        let name = plain_name(&entry.path_bytes());
        if !entry.header().entry_type().is_file() || !unresolved.iter().any(|one| one.1 == name) {
            continue;
        }
        let size = entry.size();
        object.read_content(&mut entry, name, size)?;
        for (path, _) in unresolved.iter().filter(|one| one.1 == object.name) {
            add_content(layer, path.clone(), find_want(path), &object);
        }
    }
    Ok(())
}

/// Returns the name of an entry without `./` and without slashes at either end; bytes that are not UTF-8 are replaced.
fn plain_name(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_start_matches("./").trim_matches('/');
    text.to_owned()
}

fn is_object(name: &str) -> bool {
    name.starts_with(OBJECTS) && name.ends_with(".file")
}

/// Returns the path in the tree; `None` for a name that is not part of it.
fn tree_path(name: &str) -> Option<String> {
    let (first, rest) = name.split_once('/')?;
    match first {
        "usr" => Some(name.to_owned()),
        "etc" | "bin" | "sbin" | "lib" | "lib64" => Some(format!("usr/{first}/{rest}")),
        _ => None,
    }
}

/// Splits a whiteout into its directory and the removed name or `.wh..opq`.
fn split_whiteout(path: &str) -> Option<(&str, &str)> {
    let (directory, name) = path.rsplit_once('/')?;
    let removed = name.strip_prefix(".wh.")?;
    Some((directory, removed))
}
