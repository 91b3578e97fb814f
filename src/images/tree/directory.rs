//! The tree of an image that lies unpacked in a directory: a staged deployment, or a mounted image.

use super::wanted::{self, Want, find_want};
use super::{ImageTree, TreeFile, initramfs, is_initramfs};
use crate::root::{EntryType, Root, RootError, RootPath};

/// Directories below each other, at most.
const MAX_DEPTH: usize = 8;

/// Reads the tree below a root. `source` names it in findings.
///
/// # Errors
/// A directory or file that cannot be read.
pub fn read_directory(root: &Root, source: &str) -> Result<ImageTree, RootError> {
    let mut tree = ImageTree {
        source: source.to_owned(),
        ..ImageTree::default()
    };
    let directories = wanted::directories();
    for directory in directories {
        read_below(root, directory, MAX_DEPTH, &mut tree)?;
    }
    for file in wanted::single_files() {
        read_link_or_file(root, file, &mut tree)?;
    }
    let image = tree.files.keys().find(|path| is_initramfs(path)).cloned();
    if let Some(at) = image.as_deref().and_then(rooted)
        && let Some(file) = root.open_followed(&at)?
    {
        tree.initramfs = Some(initramfs::list_modules(file));
    }
    Ok(tree)
}

fn rooted(path: &str) -> Option<RootPath> {
    RootPath::parse(&format!("/{path}")).ok()
}

fn read_below(
    root: &Root,
    directory: &str,
    depth: usize,
    tree: &mut ImageTree,
) -> Result<(), RootError> {
    let Some(at) = rooted(directory) else {
        return Ok(());
    };
    for (name, kind) in root.list_types(&at)? {
        let path = format!("{directory}/{name}");
        match kind {
            // No list of modules lies deeper, and the modules themselves are many.
            EntryType::Directory if depth > 0 && !wanted::is_pruned(&path) => {
                read_below(root, &path, depth - 1, tree)?;
            }
            EntryType::Link | EntryType::File => read_link_or_file(root, &path, tree)?,
            _ => {}
        }
    }
    Ok(())
}

fn read_link_or_file(root: &Root, path: &str, tree: &mut ImageTree) -> Result<(), RootError> {
    let want = find_want(path);
    let Some(at) = rooted(path).filter(|_| want != Want::Nothing) else {
        return Ok(());
    };
    let mut file = TreeFile {
        link: root.read_link(&at)?,
        ..TreeFile::default()
    };
    if file.link.is_none() && !root.exists(&at)? {
        return Ok(());
    }
    if file.link.is_none() {
        let Some(opened) = root.open_file(&at)? else {
            return Ok(());
        };
        file.size = opened.metadata().map_or(0, |data| data.len());
        file.bytes = match want {
            Want::Content(limit) if file.size <= limit => root.read_within(&at, limit)?,
            _ => None,
        };
    }
    tree.files.insert(path.to_owned(), file);
    Ok(())
}
