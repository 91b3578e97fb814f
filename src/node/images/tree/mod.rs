//! The file tree of an OS image that is not running: read from an OCI directory or archive, from a directory with the tree,
//! from OSTree objects, or from containers-storage. Nothing is unpacked, and only the files that `wanted.rs` lists are kept.

mod directory;
mod initramfs;
mod isa;
mod layers;
mod modules;
mod objects;
mod storage;
mod wanted;
mod zstd;

pub use directory::{read_directory, read_directory_briefly};
pub use initramfs::module_name;
pub use isa::x86_isa_needed;
pub use layers::read_image;
pub use modules::ModuleLists;
pub use objects::read_objects;
pub use storage::read_stored;

use crate::base::reason::Reason;
use std::collections::{BTreeMap, BTreeSet};

/// A file of the tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TreeFile {
    /// Size in bytes.
    pub size: u64,
    /// Content, if `wanted.rs` requests it and it does not exceed the limit there.
    pub bytes: Option<Vec<u8>>,
    /// Target, if it is a symbolic link.
    pub link: Option<String>,
}

/// The kernel modules inside an initramfs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Initramfs {
    /// Names of the modules, such as `virtio_blk`: without directory and extension, with `_` for `-`.
    pub modules: BTreeSet<String>,
    /// The reason why its content is unknown, such as an unknown compression.
    pub problem: Option<String>,
}

/// The parts of an image's file tree that matter before a node boots it.
///
/// Paths have no leading slash. The tree's `/etc` is below `usr/etc` in every form of an image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageTree {
    /// The source, such as `oci:/mnt/os`.
    pub source: String,
    /// Labels of the image's config; empty for a directory.
    pub labels: BTreeMap<String, String>,
    /// Architecture in Go's names, such as `amd64`; `None` for a directory.
    pub architecture: Option<String>,
    /// Uncompressed size of all files in all layers, in bytes; `None` if unknown, as for a directory.
    pub content_bytes: Option<u64>,
    /// Files by path.
    pub files: BTreeMap<String, TreeFile>,
    /// The initramfs of the kernel; `None` if the tree has none.
    pub initramfs: Option<Initramfs>,
}

impl ImageTree {
    /// Returns true if a file, a link, or a directory with kept files exists.
    pub fn exists(&self, path: &str) -> bool {
        self.files.contains_key(path) || self.files_below(path).next().is_some()
    }

    /// Returns the content of a file, following links within the tree.
    pub fn bytes_of(&self, path: &str) -> Option<&[u8]> {
        self.find_file(path)?.bytes.as_deref()
    }

    /// Returns the content of a text file, following links within the tree.
    pub fn text_of(&self, path: &str) -> Option<String> {
        let bytes = self.bytes_of(path)?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    }

    /// Returns the content of a text file, following links within the tree; `None` if it is missing.
    ///
    /// # Errors
    /// The file exists but its content is unknown: it is too large, or a link that leads out of the kept files.
    pub fn read_text(&self, path: &str) -> Result<Option<String>, Reason> {
        let link = self.files.get(path).and_then(|file| file.link.as_deref());
        match self.text_of(path) {
            // It hides a file of the same name and has no content.
            None if link == Some("/dev/null") => Ok(Some(String::new())),
            None if self.files.contains_key(path) => {
                Err(format!("/{path} of the image could not be read").into())
            }
            text => Ok(text),
        }
    }

    /// Returns a file, following up to eight links within the tree.
    pub fn find_file(&self, path: &str) -> Option<&TreeFile> {
        let mut at = path.to_owned();
        for _ in 0..8 {
            let file = self.files.get(&at)?;
            let Some(link) = &file.link else {
                return Some(file);
            };
            at = follow_link(&at, link);
        }
        None
    }

    /// Returns the paths of the files below a directory, in order.
    pub fn files_below<'a>(&'a self, directory: &str) -> impl Iterator<Item = &'a str> {
        let prefix = format!("{directory}/");
        let start = prefix.clone();
        self.files
            .range(start..)
            .map(|(path, _)| path.as_str())
            .take_while(move |path| path.starts_with(&prefix))
    }
}

/// Returns the path that a link leads to.
fn follow_link(path: &str, link: &str) -> String {
    let base = if link.starts_with('/') {
        ""
    } else {
        path.rsplit_once('/').map_or("", |(above, _)| above)
    };
    let mut parts: Vec<&str> = base.split('/').filter(|part| !part.is_empty()).collect();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// Returns true for the initramfs of a kernel.
fn is_initramfs(path: &str) -> bool {
    path.starts_with("usr/lib/modules/") && path.ends_with("/initramfs.img")
}
