//! The tree of an image that is unpacked in directories: a deployment, a mounted image, or the layers of a storage.

use super::wanted::{self, Want, find_want};
use super::{ImageTree, TreeFile, initramfs, is_initramfs};
use crate::host::root::{EntryType, Root, RootError, RootPath};

/// Maximum depth of directories.
const MAX_DEPTH: usize = 8;

/// Reads the tree below a root. `source` is its name in findings.
///
/// # Errors
/// A directory or file cannot be read.
pub fn read_directory(root: &Root, source: &str) -> Result<ImageTree, RootError> {
    let mut tree = ImageTree {
        source: source.to_owned(),
        ..ImageTree::default()
    };
    add_layer(root, &mut tree)?;
    Ok(tree)
}

/// Reads the tree below a root without kernel, modules and initramfs, which would take a second. Files that are kept only by
/// name have no size.
///
/// # Errors
/// A directory or file cannot be read.
pub fn read_directory_briefly(root: &Root, source: &str) -> Result<ImageTree, RootError> {
    let mut tree = ImageTree {
        source: source.to_owned(),
        ..ImageTree::default()
    };
    add_directories(root, &mut tree, true)?;
    Ok(tree)
}

/// Merges the files of a directory into a tree.
pub(super) fn add_layer(root: &Root, tree: &mut ImageTree) -> Result<(), RootError> {
    add_directories(root, tree, false)
}

fn add_directories(root: &Root, tree: &mut ImageTree, brief: bool) -> Result<(), RootError> {
    // The `etc` of a deployment is the node's own; that of an image is the image's.
    let moved = !root.exists(&RootPath::fixed("usr/etc"))?;
    let own_path = |path: &str| match path.strip_prefix("usr/etc") {
        Some(rest) if moved => format!("etc{rest}"),
        _ => path.to_owned(),
    };
    for directory in wanted::wanted_directories(brief) {
        let own = own_path(directory);
        read_below(root, &own, directory, MAX_DEPTH, brief, tree)?;
    }
    for file in wanted::single_files() {
        if let Some(at) = root_path(&own_path(file)) {
            read_link_or_file(root, &at, file, tree)?;
        }
    }
    Ok(())
}

fn root_path(path: &str) -> Option<RootPath> {
    RootPath::parse(&format!("/{path}")).ok()
}

/// Reads a directory. `own` is its path below the root, `directory` its path in the tree.
fn read_below(
    root: &Root,
    own: &str,
    directory: &str,
    depth: usize,
    brief: bool,
    tree: &mut ImageTree,
) -> Result<(), RootError> {
    let Some(at) = root_path(own) else {
        return Ok(());
    };
    for (name, kind) in root.list_types(&at)? {
        let path = format!("{directory}/{name}");
        let own = format!("{own}/{name}");
        match kind {
            EntryType::Directory if depth > 0 && !wanted::is_pruned(&path) => {
                read_below(root, &own, &path, depth - 1, brief, tree)?;
            }
            EntryType::File if brief && find_want(&path) == Want::Presence => {
                tree.files.insert(path, TreeFile::default());
            }
            EntryType::Link | EntryType::File => {
                if let Some(at) = root_path(&own) {
                    read_link_or_file(root, &at, &path, tree)?;
                }
            }
            // A 0/0 character device, with which the storage's overlay hides the lower file.
            EntryType::Other => hide_path(tree, &path),
            EntryType::Directory => {}
        }
    }
    Ok(())
}

fn hide_path(tree: &mut ImageTree, path: &str) {
    let inside = format!("{path}/");
    tree.files
        .retain(|other, _| other != path && !other.starts_with(&inside));
}

fn read_link_or_file(
    root: &Root,
    at: &RootPath,
    path: &str,
    tree: &mut ImageTree,
) -> Result<(), RootError> {
    let want = find_want(path);
    if want == Want::Nothing {
        return Ok(());
    }
    let mut file = TreeFile {
        link: root.read_link(at)?,
        ..TreeFile::default()
    };
    if file.link.is_none() {
        if !root.exists(at)? {
            return Ok(());
        }
        let Some(opened) = root.open_file(at)? else {
            return Ok(());
        };
        file.size = opened.metadata().map_or(0, |data| data.len());
        file.bytes = match want {
            Want::Content(limit) if file.size <= limit => root.read_within(at, limit)?,
            _ => None,
        };
        if is_initramfs(path) {
            tree.initramfs = Some(initramfs::list_modules(opened));
        }
    }
    tree.files.insert(path.to_owned(), file);
    Ok(())
}
